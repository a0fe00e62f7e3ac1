"""The script of `make check`: every suite runs, and a line says how it ended."""

import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import ROOT

MAKEFILE = """
style:
	@echo "no issues found"
types:
	@echo "Found 1 error"; exit 1
test-code:
	@echo "===== 12 passed, 1 skipped in 3.10s ====="
test-documents:
	@echo "===== 5 skipped in 0.10s ====="
test-browser:
	@echo "never run"
chaos:
	@echo "$(STRIKES) strikes in 9 minutes"; touch chaos-ran
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with these suites, of which the browser's cannot be installed."""
    (tmp_path / "Makefile").write_text(MAKEFILE)
    for suite, status in (("browser", 1), ("cluster", 0)):
        (tmp_path / "tests" / suite).mkdir(parents=True)
        (tmp_path / "tests" / suite / "install.sh").write_text(
            f"echo 'There is no package.'; exit {status}\n"
        )
    shutil.copy(ROOT / "tests/check.sh", tmp_path / "tests/check.sh")
    return tmp_path


def check(project: Path, *words: str) -> tuple[int, dict[str, str], list[str]]:
    """The exit status, how each suite ended, and all lines."""
    command = ["sh", project / "tests/check.sh", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    lines = done.stdout.splitlines()
    ends = {"ok", "FAILED", "skipped"}
    rows = [line.split() for line in lines]
    return done.returncode, {r[0]: r[1] for r in rows if len(r) > 1 and r[1] in ends}, lines


def test_a_suite_that_fails_is_named_and_the_others_still_run(project: Path) -> None:
    status, ended, lines = check(project, "style", "types", "code", "chaos")
    assert status == 1
    assert ended == {"style": "ok", "types": "FAILED", "code": "ok", "chaos": "ok"}
    assert (project / "chaos-ran").exists()
    # What the failed one said is shown; of the others their counts.
    assert "Found 1 error" in lines
    assert "===== 12 passed, 1 skipped in 3.10s =====" not in lines
    # At the end all lines again, one for each.
    assert [line.split()[0] for line in lines[-4:]] == ["style", "types", "code", "chaos"]
    assert lines[-2].endswith("12 passed, 1 skipped in 3.10s =====")


def test_suites_that_succeed_end_with_0(project: Path) -> None:
    assert check(project, "style", "code")[:2] == (0, {"style": "ok", "code": "ok"})


def test_what_tests_nothing_is_skipped_and_in_ci_a_failure(project: Path) -> None:
    """Tests that all skip themselves, and a suite whose packages cannot be installed."""
    status, ended, lines = check(project, "documents", "browser")
    assert (status, ended) == (0, {"documents": "skipped", "browser": "skipped"})
    assert lines[-1].endswith("There is no package.")
    assert "never run" not in lines
    for suite in ("documents", "browser"):
        assert check(project, "--ci", suite)[:2] == (1, {suite: "FAILED"})
    status, ended, lines = check(project, "--ci", "code", "types")
    assert (status, ended) == (1, {"code": "ok", "types": "FAILED"})
    # Each line once, as they were said.
    assert lines.count("Found 1 error") == lines.count("===== 12 passed, 1 skipped in 3.10s =====")

"""The scripts of `make check` and CI: every suite runs, and a line says how it ended."""

import os
import re
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
test-slow:
	@echo "===== 4 passed in 2.10s ====="
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


def git(project: Path, *words: str) -> None:
    subprocess.run(["git", *words], cwd=project, check=True, capture_output=True, timeout=60)


@pytest.fixture
def cloned(project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The project with CI's script, as a clone whose main has two commits."""
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "name")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "name@example.org")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    (project / ".ci").mkdir()
    shutil.copy(ROOT / ".ci/run", project / ".ci/run")
    git(project, "init", "-q", "-b", "main")
    (project / ".gitignore").write_text("chaos-ran\n")
    committed(project, "README.md")
    committed(project, "docs/howto.md")
    git(project, "update-ref", "refs/remotes/origin/main", "HEAD")
    return project


def committed(project: Path, name: str) -> None:
    (project / name).parent.mkdir(parents=True, exist_ok=True)
    (project / name).write_text("text")
    git(project, "add", "-A")
    git(project, "commit", "-q", "-m", name)


def runs_documents(project: Path) -> bool:
    done = subprocess.run(
        ["bash", ".ci/run"], cwd=project, capture_output=True, text=True, check=False, timeout=120
    )
    lines = done.stdout.splitlines()
    for suite in ("slow", "chaos"):
        assert any(re.match(f"{suite} +ok ", x) for x in lines), done.stdout + done.stderr
    return any(re.match("documents +", line) for line in lines)


def test_ci_runs_the_documents_tests_if_a_file_changed_that_they_depend_on(cloned: Path) -> None:
    # On main the last commit counts.
    assert runs_documents(cloned)
    committed(cloned, "tests/browser/test_x.py")
    git(cloned, "update-ref", "refs/remotes/origin/main", "HEAD")
    assert not runs_documents(cloned)
    # All commits of a branch count.
    git(cloned, "checkout", "-q", "-b", "branch")
    committed(cloned, "workflow/scripts/gpushmoo/x.py")
    committed(cloned, "experiments/y.py")
    assert runs_documents(cloned)
    git(cloned, "update-ref", "refs/remotes/origin/main", "HEAD^")
    assert not runs_documents(cloned)
    # What is not committed counts as well.
    (cloned / "README.md").write_text("other text")
    assert runs_documents(cloned)


def test_ci_runs_the_documents_tests_if_git_does_not_know_what_changed(cloned: Path) -> None:
    committed(cloned, "tests/browser/test_x.py")
    git(cloned, "update-ref", "-d", "refs/remotes/origin/main")
    assert runs_documents(cloned)
    # A clone of one commit has no parent.
    shutil.rmtree(cloned / ".git")
    git(cloned, "init", "-q", "-b", "main")
    committed(cloned, "tests/browser/test_x.py")
    git(cloned, "update-ref", "refs/remotes/origin/main", "HEAD")
    assert runs_documents(cloned)
    shutil.rmtree(cloned / ".git")
    assert runs_documents(cloned)


def test_no_test_of_the_documents_reads_a_file_that_does_not_count() -> None:
    [apart] = re.findall("^APART='(.*)'$", (ROOT / ".ci/run").read_text(), re.M)
    tests = [*ROOT.glob("tests/documents/*.py"), *ROOT.glob("reports/chapters/*/tests/*.py")]
    text = "".join(path.read_text() for path in tests)
    imported = set(re.findall(r"^(?:from|import) (\w+)", text, re.M))
    sources = [path.relative_to(ROOT) for path in ROOT.glob("[te]*/**/*.py")]
    assert {path.stem for path in sources if re.match(apart, f"{path}")}.isdisjoint(imported)
    for name in ("README.md", "config/config.yaml", "tests/support/warm.py", "CHANGELOG.md"):
        assert not re.match(apart, name)

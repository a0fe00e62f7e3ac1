"""Extras: gpushmoo works without each of them, and nothing names them but their own folders."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from conftest import environment
from gpushmoo.core.errors import ConfigError
from gpushmoo.core.paths import PACKAGE, ROOT
from gpushmoo.interactive.commands.options import Parser
from gpushmoo.planning import config
from gpushmoo.registry import extra_folders

# Fast ones, which load the rules, the configuration and the command line.
CORE = ("planning/test_digest", "planning/test_flow", "core/test_numbers")
IMPORTED = ("workflow/scripts", "kernels", "reports/chapters", "tests/support")


# Of the project's folders, those that a copy has itself.
COPIED = ("kernels", "reports", "tests", "workflow")


def copy_without(place: Path, names: Iterable[str]) -> Path:
    """Copy the project without these extras. Environment, documentation and the like are linked."""
    for path in ROOT.iterdir():
        if path.is_file():
            shutil.copy(path, place)
        elif path.name in COPIED:
            shutil.copytree(path, place / path.name)
        elif path.name not in ("results", ".snakemake", ".pytest_cache"):
            (place / path.name).symlink_to(path)
    for name in names:
        shutil.rmtree(place / PACKAGE.relative_to(ROOT) / "extras" / name)
    return place


def started(copy: Path, *words: str) -> subprocess.Popen[str]:
    """Start Python in a copy of the project, which it imports."""
    path = ":".join(str(copy / folder) for folder in IMPORTED)
    return subprocess.Popen(
        [sys.executable, "-P", *words],
        cwd=copy,
        env=environment(PYTHONPATH=path),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def said(process: subprocess.Popen[str]) -> str:
    """What a process says, which must end without an error."""
    text, _ = process.communicate(timeout=600)
    assert process.returncode == 0, text
    return text


def commands_of(name: str) -> set[str]:
    """The commands that an extra adds to the command line."""
    if not (extra_folders()[name] / "commands.py").is_file():
        return set()
    added = Parser().add_subparsers(parser_class=Parser)
    import_module(f"gpushmoo.extras.{name}.commands").add_commands(added)
    return set(added.choices)


DRY_RUN = ("-m", "snakemake", "--cores", "1", "--dry-run", "--quiet", "rules")


@pytest.mark.slow
@pytest.mark.parametrize("name", extra_folders())
def test_without_an_extra_the_command_line_and_a_dry_run_work(name: str, tmp_path: Path) -> None:
    copy = copy_without(tmp_path, [name])
    helps, planned = started(copy, "-m", "gpushmoo", "--help"), started(copy, *DRY_RUN)
    commands = re.findall(r"^    (\w+) ", said(helps), re.MULTILINE)
    assert "sweep" in commands
    assert not commands_of(name) & set(commands)
    assert "measure" in said(planned)


@pytest.mark.slow
def test_without_all_extras_the_cores_tests_pass(tmp_path: Path) -> None:
    copy = copy_without(tmp_path, extra_folders())
    files = [f"tests/unit/{name}.py" for name in CORE]
    said(started(copy, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *files))


@pytest.mark.fuzz
@pytest.mark.parametrize("name", extra_folders())
def test_without_an_extra_all_tests_of_the_core_pass(name: str, tmp_path: Path) -> None:
    copy = copy_without(tmp_path, [name])
    words = ("-m", "pytest", "-q", "-x", "-n", "2", "-p", "no:cacheprovider", "tests/unit")
    said(started(copy, *words, "--deselect", "tests/unit/extras/test_extras.py"))


def test_a_key_of_an_extra_that_is_not_there_is_refused(
    raw_config: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config, "extras", dict)
    with pytest.raises(ConfigError, match=r"^history: this gpushmoo has no extra"):
        config.load_config(raw_config | {"history": "results"}, ROOT)


def test_only_an_extras_own_folder_names_it() -> None:
    """Apart from the list of public names, which type checkers read."""
    files = [ROOT / "Snakefile", ROOT / "pyproject.toml", *(ROOT / "workflow").rglob("*.smk")]
    files += [path for path in PACKAGE.rglob("*") if path.suffix in (".py", ".yaml")]
    names = "|".join(extra_folders())
    word = re.compile(rf"extras[./]({names})\b")
    assert [
        f"{path.relative_to(ROOT)}: {found[0]}"
        for path in files
        if not path.is_relative_to(PACKAGE / "extras")
        for found in word.finditer(path.read_text(encoding="utf-8"))
    ] == []

"""Define the contract of an extra, and find the extras.

An extra is a folder of ``gpushmoo/extras/`` whose ``__init__.py`` defines EXTRA, an instance of
`Extra`. No other list names the extras: if a folder is missing, gpushmoo does not have the extra.
Each start of the command line and of Snakemake imports every ``__init__.py``, so it must import
nothing but this module at its top. Code outside the folder does not import an extra.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

# pytest imports this module in each of its runs, so it imports no other.
_PACKAGE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Section:
    """A section of the report, which ``section.typ`` in the extra's folder lays out.

    `files` gets the run (a `planning.flow.Flow`) and returns the files that the section is made of.
    It returns none if this run has no such section. `content` makes facts of these files, as JSON:
    its ``figured`` says whether the section shows its `figure`, which a rule of the extra draws as
    ``figures/<figure>.svg``. `findings` are sentences for the first page, each with what it is
    worth (`report.findings.Finding`). Sections are in the order of `place`, then by name.
    """

    files: Callable[[Any], Sequence[str]]
    figure: str
    content: Callable[[Sequence[Path]], Mapping[str, Any]]
    findings: Callable[[Sequence[Path]], Sequence[tuple[str, float]]] = lambda files: ()
    place: int = 100


@dataclass(frozen=True)
class Extra:
    """The parts of gpushmoo that an extra adds to.

    `products` are names of files beside the report, which each run makes by
    the extra's rules, and `compared` are those in the folder of a comparison. `cells_page` is the
    one of the products that shows all cells; the report refers to it. `pytest_plugins` are modules
    that pytest loads. `formats` are those of an export by name: functions that import and return a
    class of `exporting.form.Format`. `section` is one of the report. `keys` are those of the
    configuration that say what the extra does: without it they are refused.
    """

    products: Sequence[str] = ()
    compared: Sequence[str] = ()
    cells_page: str | None = None
    pytest_plugins: Sequence[str] = ()
    formats: Mapping[str, Callable[[], Any]] = field(default_factory=dict)
    section: Section | None = None
    keys: Sequence[str] = ()


@cache
def extra_folders() -> dict[str, Path]:
    """Return the folders of the extras by name, in the order of the names."""
    found = sorted(path.parent for path in (_PACKAGE / "extras").glob("*/__init__.py"))
    return {folder.name: folder for folder in found}


@cache
def extras() -> dict[str, Extra]:
    """Import the extras and return what each registers, by name."""
    return {name: import_module(f"{_PACKAGE.name}.extras.{name}").EXTRA for name in extra_folders()}


def extra_rules() -> list[Path]:
    """Return the ``rules.smk`` of the extras that have one; the Snakefile includes them."""
    files = [folder / "rules.smk" for folder in extra_folders().values()]
    return [file for file in files if file.is_file()]


def extra_sections() -> dict[str, Section]:
    """Return the report's sections by the extra's name, in the order in which it shows them."""
    found = [(name, extra.section) for name, extra in extras().items() if extra.section]
    return dict(sorted(found, key=lambda each: (each[1].place, each[0])))


def extra_commands() -> list[str]:
    """Return the extras' modules ``commands``, whose ``add_commands`` extends the parser."""
    folders = extra_folders().items()
    return [
        f"{_PACKAGE.name}.extras.{name}.commands"
        for name, folder in folders
        if (folder / "commands.py").is_file()
    ]

"""The architecture as the sources show it: imports, names, lengths, and what no code may do."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest
from conftest import python
from gpushmoo.core.backends import BACKENDS
from gpushmoo.core.paths import CHAPTERS, KERNELS, PACKAGE, ROOT
from gpushmoo.devices.base import functions_of

# Tracked files that may be over 2 MB.
LARGE = {"reports/reference/nvidia-h200/packed.parquet"}
# What only a document says.
WORDS = re.compile(
    r"tesla|c1060|\bthe document|(first|second|third) document|dot product|texture shmoo|gantt|gtx",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Module:
    """A source file and its name as an import gives it: ``gpushmoo.core.space``."""

    name: str
    path: Path

    @cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    def place(self, line: int) -> str:
        """Format a line as ``workflow/scripts/gpushmoo/core/space.py:31``."""
        return f"{self.path.relative_to(ROOT)}:{line}"


def modules_in(folder: Path) -> Iterator[Module]:
    for path in sorted(set(folder.rglob("*.py")) - set(folder.glob("tests/*"))):
        parts = path.relative_to(folder.parent).with_suffix("").parts
        yield Module(".".join(parts[:-1] if parts[-1] == "__init__" else parts), path)


CHAPTER_FOLDERS = sorted(path.parent for path in CHAPTERS.glob("*/__init__.py"))
MODULES = {
    module.name: module
    for folder in (PACKAGE, KERNELS / "dot_products", *CHAPTER_FOLDERS)
    for module in modules_in(folder)
}


def test_private_names_stay_in_their_package() -> None:
    assert [
        module.place(node.lineno)
        for module in MODULES.values()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ImportFrom) and node.level != 1
        if any(re.match("_[^_]", alias.name) for alias in node.names)
    ] == []


@pytest.fixture(scope="module")
def tracked() -> list[str]:
    """List the repository's files that git tracks."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    return [name for name in listed.stdout.decode().split("\0") if (ROOT / name).is_file()]


def test_a_clone_stays_light(tracked: list[str]) -> None:
    sizes = {name: (ROOT / name).stat().st_size for name in tracked}
    assert {name for name, size in sizes.items() if size > 2e6} <= LARGE
    assert sum(sizes.values()) <= 25e6


def test_the_instrument_does_not_speak_of_a_document() -> None:
    sources = [ROOT / "Snakefile", *(ROOT / "reports").glob("*.typ")]
    for suffix in ("py", "smk", "yaml"):
        sources += (ROOT / "workflow").rglob(f"*.{suffix}")
    assert [
        f"{path.relative_to(ROOT)}:{number}: {match[0]}"
        for path in sorted(sources)
        # The package's link to the default configuration, which configures chapters as well.
        if not path.is_symlink()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        for match in WORDS.finditer(line)
    ] == []


# Modules that are a backend's own, and the table of them.
OF_BACKENDS = tuple(f"gpushmoo.devices.{name}" for name in (*BACKENDS, "machine_code"))
TABLE = "gpushmoo.core.backends"
# Keys of the configuration that are a backend's own, and an option of the command line for one.
KEYS = ("cuda_arch", "opencl_runtime", "--opencl-runtime")


def names_in(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and text of every string of a module, apart from docstrings, and of its imports."""
    statements = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Expr)}
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str() as text) if id(node) not in statements:
                yield node.lineno, text
            case ast.ImportFrom(module=str() as module):
                yield from ((node.lineno, part) for part in module.split("."))


def test_no_module_names_or_imports_a_backend_or_its_sources() -> None:
    named = set(BACKENDS) | {b.source_suffix for b in BACKENDS.values()}
    named |= {f"kernel{b.source_suffix}" for b in BACKENDS.values()}
    assert [
        f"{module.place(line)} names {text}"
        for name, module in MODULES.items()
        if name.startswith(PACKAGE.name) and not name.startswith((*OF_BACKENDS, TABLE))
        for line, text in names_in(module.tree)
        if text in named
    ] == []


def test_words_of_a_backend_are_in_its_own_modules() -> None:
    """Also within sentences and patterns; `compat` knows other tuners' names of them."""
    word = re.compile("|".join(BACKENDS), re.IGNORECASE)
    own = (*OF_BACKENDS, TABLE, ".".join((PACKAGE.name, "extras", "compat")))
    assert [
        f"{module.place(line)} says {text}"
        for name, module in MODULES.items()
        if name.startswith(PACKAGE.name) and not name.startswith(own)
        for line, text in names_in(module.tree)
        if word.search(text) and text not in KEYS
    ] == []


@pytest.mark.parametrize("name", BACKENDS)
def test_every_entry_has_its_folder_and_functions(name: str) -> None:
    backend = BACKENDS[name]
    asked = {"open_device", "list_devices", "targets", "compile_version"}
    asked |= {"count_devices"} if backend.claims_gpu else set()
    asked |= {"clocks"} if backend.locks_clocks else set()
    assert asked <= set(vars(functions_of(backend)))


def test_planning_and_the_backends_functions_import_no_library_of_a_backend() -> None:
    program = """
import sys
import gpushmoo.planning.flow
from gpushmoo.devices.base import functions_of
from gpushmoo.core.backends import BACKENDS

for backend in BACKENDS.values():
    functions_of(backend)
print(sorted({"cupy", "pyopencl", "pynvml", "cuda"} & set(sys.modules)))
"""
    done = python(program)
    assert done.stdout == "[]\n", done.stderr

"""Chooses tests near a changed line, and runs them in a copy until one fails (for `mutants`)."""

import ast
import importlib
import inspect
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import NoReturn

import pytest

ROOT = Path(__file__).resolve().parents[1]
LIBRARY = Path("workflow/scripts/gpushmoo")
# How many test files are collected at once.
TOGETHER = 4
# A fork that is at work for its seconds of a processor, times this, and for HANGS_S hangs.
PATIENCE, HANGS_S = 10.0, 240.0
# What tests import, imported once. The library is imported by each fork.
PACKAGES = (
    "numpy",
    "pandas",
    "pyarrow.parquet",
    "pyarrow.dataset",
    "matplotlib.figure",
    "scipy.stats",
    "matplotlib.backends.backend_agg",
    "scipy.optimize",
    "pydantic",
    "yaml",
    "filelock",
    "hypothesis",
    "_pytest.assertion.rewrite",
    "pyopencl",
)


@dataclass
class Outcome:
    """What tests found: the one that failed, how many passed, their seconds of a processor."""

    failed: str | None = None
    passed: int = 0
    seconds: float = 0.0


@dataclass
class Near:
    """Test files, nearest first, and the names whose tests come first in each."""

    files: list[str]
    names: set[str] = field(default_factory=set)


class Tests:
    """The test files, and which modules they import."""

    def __init__(self) -> None:
        folders = (ROOT / f"tests/{name}" for name in ("support", "unit", "workflow"))
        files = [p for folder in folders for p in sorted(folder.rglob("*.py"))]
        self._texts = {p: p.read_text(encoding="utf-8") for p in files}
        stub = (ROOT / LIBRARY / "__init__.pyi").read_text(encoding="utf-8")
        self._homes = _homes(stub)
        # Tests and their helpers go by their stems.
        names = {p: _module(p) for p in sorted((ROOT / LIBRARY).rglob("*.py"))}
        names |= {p: p.stem for p in files}
        self._importers: dict[str, set[str]] = {name: set() for name in names.values()}
        for path, name in names.items():
            for imported in self._imports(path, name):
                self._importers.get(imported, set()).add(name)
        self._slow = set(re.findall(r'"(test_\w+)"', (ROOT / "conftest.py").read_text("utf-8")))

    def near(self, path: Path, line: int) -> Near:
        """The tests that may see a change of `line` in the module `path`.

        The distance of a file counts the imports between the two. A file is nearer if its name
        shares a word with the module's, or if it names a function that uses the line. A file that
        takes long comes later.
        """
        imports = self._distances(_module(ROOT / path))
        users = _users(ROOT / path, line)

        def distance(test: Path) -> tuple[float, int]:
            mirrors = bool(_words(test.stem) & _words(path.stem))
            names = bool(users & set(re.findall(r"\w+", self._texts[test])))
            slow = test.stem in self._slow or test.parent.name == "workflow"
            away = imports[test.stem] - 2 * mirrors - 1.5 * names + 1.5 * slow
            return away, len(self._texts[test])

        reached = [p for p in self._texts if p.stem.startswith("test_") and p.stem in imports]
        return Near([str(p.relative_to(ROOT)) for p in sorted(reached, key=distance)], users)

    def _imports(self, path: Path, module: str) -> Iterator[str]:
        """What a file imports, modules and their names alike."""
        text = path.read_text(encoding="utf-8")
        package = module.split(".") if path.stem == "__init__" else module.split(".")[:-1]
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import):
                yield from (name.name for name in node.names)
            elif isinstance(node, ast.ImportFrom):
                above = package[: len(package) - node.level + 1] if node.level else []
                base = ".".join([*above, *filter(None, [node.module])])
                yield base
                yield from (f"{base}.{name.name}" for name in node.names)
                if base == "gpushmoo":
                    yield from (self._homes.get(name.name, base) for name in node.names)
        yield from (self._homes.get(name, "") for name in re.findall(r"\bgpushmoo\.(\w+)", text))

    def _distances(self, module: str) -> dict[str, int]:
        """The fewest imports from each importer to `module`."""
        found, ring, distance = {module: 0}, {module}, 0
        while ring:
            distance += 1
            ring = {i for one in ring for i in self._importers[one]} - found.keys()
            found |= dict.fromkeys(ring, distance)
        return found


def _homes(stub: str) -> dict[str, str]:
    """The modules of the library's short names."""
    lines = re.findall(r"^from \.(\S+) import (\w+) as", stub, re.MULTILINE)
    return {name: f"gpushmoo.{module}" for module, name in lines}


def _words(stem: str) -> set[str]:
    """The words of a file's name, without the plural."""
    return {word.removesuffix("s") for word in stem.removeprefix("test_").split("_") if word}


def _module(path: Path) -> str:
    parts = path.relative_to(ROOT / LIBRARY.parent).with_suffix("").parts
    return ".".join(parts).removesuffix(".__init__")


def _users(path: Path, line: int) -> set[str]:
    """What the module defines on `line`, or around it, and what uses that in turn."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    kinds = (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef, ast.Assign, ast.AnnAssign)
    around = [
        node
        for node in ast.walk(tree)
        if isinstance(node, kinds[:3]) or (node in tree.body and isinstance(node, kinds))
    ]
    found: set[str] = set()
    for node in around:
        found |= _defined(node) if node.lineno <= line <= (node.end_lineno or line) else set()
    size = -1
    while len(found) != size:
        size = len(found)
        for node in (n for n in tree.body if isinstance(n, kinds)):
            words = {getattr(n, "id", getattr(n, "attr", None)) for n in ast.walk(node)}
            found |= _defined(node) if words & found else set()
    return {name for name in found if not name.startswith("__")}


def _defined(node: ast.stmt) -> set[str]:
    """The names that a definition or an assignment gives a meaning."""
    if isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return {target.id for target in targets if isinstance(target, ast.Name)}
    return {getattr(node, "name", "")}


class Copy:
    """Two copies of the project: in one a line changes, in the other none."""

    def __init__(self, place: Path) -> None:
        self._changing, self._clean, self._place = place / "changing", place / "clean", place
        listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        names = subprocess.run(listed, cwd=ROOT, capture_output=True, check=True).stdout
        for root in (self._changing, self._clean):
            for name in filter(None, names.decode().split("\0")):
                if (ROOT / name).is_file():
                    (root / name).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(ROOT / name, root / name)
            (root / ".venv").symlink_to(sys.prefix)
            subprocess.run(["git", "init", "-q"], cwd=root, check=True)
        self._writes = time.time()
        # Tests that failed, and whether they pass without a change.
        self._passes: dict[str, bool] = {}
        os.environ["OPENBLAS_NUM_THREADS"] = "1"
        for name in PACKAGES:
            importlib.import_module(name)

    def text(self, path: str) -> str:
        """The module `path` without a change."""
        return (self._clean / path).read_text(encoding="utf-8")

    def first_failure(self, path: str, changed: str, near: Near, limit_s: float) -> Outcome:
        """Run the tests with `changed` as the module `path`, until one fails or time is over.

        `limit_s` are seconds of a processor: other load on the machine decides nothing.
        """
        self._write(path, changed)
        try:
            return self.tried(near, limit_s)
        finally:
            self._write(path, self.text(path))

    def tried(self, near: Near, limit_s: float) -> Outcome:
        """Run the tests on the change as it is."""
        total, files = Outcome(), list(near.files)
        while files and total.failed is None and total.seconds < limit_s:
            left_s = limit_s - total.seconds
            found = self._run(self._changing, files[:TOGETHER], near.names, left_s)
            total.passed += found.passed
            total.seconds = round(total.seconds + found.seconds, 1)
            if found.failed is None or self._passes.get(found.failed) is False:
                files = files[TOGETHER:]
            elif self._passes_unchanged(found.failed):
                total.failed = found.failed
        return total

    def _write(self, path: str, text: str) -> None:
        """Write a module with a time by which Python knows that it is another."""
        file = self._changing / path
        file.write_text(text, encoding="utf-8")
        self._writes -= 10.0
        os.utime(file, (self._writes, self._writes))

    def _passes_unchanged(self, test: str) -> bool:
        """Whether a test, or the collection of a file, succeeds without a change."""
        if test not in self._passes:
            self._passes[test] = self._run(self._clean, [test], set(), HANGS_S).failed is None
        return self._passes[test]

    def _run(self, root: Path, tests: Sequence[str], names: set[str], limit_s: float) -> Outcome:
        """Run tests in a fork of this process."""
        folder = Path(tempfile.mkdtemp(dir=self._place))
        own = _Watch(folder / "outcome", tests, names, limit_s)
        unfit = {test for test, passes in self._passes.items() if not passes} - {*tests}
        child = os.fork()
        if not child:
            _child(root, [*tests, *(f"--deselect={test}" for test in unfit)], own, folder)
        watched = os.pidfd_open(child)
        select.select([watched], [], [], PATIENCE * limit_s + HANGS_S)
        # What a test started ends with it.
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(watched)
        outcome = Outcome(**json.loads(own.file.read_text(encoding="utf-8")))
        shutil.rmtree(folder, ignore_errors=True)
        return outcome


def _child(root: Path, tests: Sequence[str], own: "_Watch", folder: Path) -> NoReturn:
    """Run tests and end this process."""
    try:
        os.setpgid(0, 0)
        own.begin()
        os.chdir(root)
        with (folder / "terminal").open("w") as out:
            os.dup2(out.fileno(), 1)
            os.dup2(out.fileno(), 2)
        os.environ |= {"PYTHONPATH": str(root / LIBRARY.parent), "TMPDIR": str(folder)}
        tempfile.tempdir = None
        sys.path[:0] = [str(root), str(root / LIBRARY.parent)]
        sys.dont_write_bytecode = False
        options = ["-q", "--maxfail=1", "-p", "no:cacheprovider", f"--basetemp={folder}/tests"]
        own.end(pytest.main([*options, *tests], plugins=[own]))
    finally:
        os._exit(0)


class _Watch:
    """A plugin: orders the tests, ends them with the time, and writes the outcome into `file`.

    Until a test or the collection ends, the file says that it failed: it may end the process.
    """

    def __init__(self, file: Path, tests: Sequence[str], names: set[str], limit_s: float) -> None:
        self.file, self._names, self._limit_s = file, names, limit_s
        self._place = {test.split("::")[0]: i for i, test in enumerate(tests)}
        self._first, self._found, self._is_late = tests[0], Outcome(), False

    def _write(self, running: str | None) -> None:
        # Since the fork; processes that ended count as well.
        seconds = round(sum(os.times()[:4]), 1)
        found = replace(self._found, failed=self._found.failed or running, seconds=seconds)
        self.file.write_text(json.dumps(asdict(found)), encoding="utf-8")

    def begin(self) -> None:
        """Say that the collection runs."""
        self._write(self._first)

    def end(self, status: int) -> None:
        """Write the outcome of pytest's exit `status`."""
        fine = status in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED) or self._is_late
        self._write(None if fine else self._first)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Tests that name what has the change come first, then by the distance of the file."""

        def place(item: pytest.Item) -> tuple[bool, int]:
            text = inspect.getsource(item.function) if isinstance(item, pytest.Function) else ""
            names = bool(self._names & set(re.findall(r"\w+", text)))
            return not names, self._place.get(item.nodeid.split("::")[0], 0)

        items.sort(key=place)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Keep the file that cannot be imported."""
        if report.failed:
            self._found.failed = report.nodeid or self._first

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Say what runs."""
        self._write(nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the first that failed, and count those that passed."""
        if report.failed and self._found.failed is None:
            self._found.failed = report.nodeid
        self._found.passed += report.when == "call" and report.passed

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> None:
        """End before the next test if the time is over."""
        if sum(os.times()[:4]) > self._limit_s:
            self._is_late = True
            item.session.shouldstop = "the time is over"

    def pytest_runtest_logfinish(self) -> None:
        """Write what is known."""
        self._write(None)

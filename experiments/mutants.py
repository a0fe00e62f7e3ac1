"""Do the tests see a changed line of the library? Changes one line at a time and runs the tests.

    make mutants                    # 100 changes, chosen by a seed that is printed
    make mutants SEED=7 COUNT=20

A change is one of CHANGES at a place drawn from the library's syntax trees: another comparison,
operator, constant or connective. It is made in a copy of the tracked files. First run the test
files that import the changed module, then all of tests/unit; the first failure kills the mutant.
Lines that no result depends on (texts of errors, type hints, docstrings) are not drawn. Prints each
mutant that survives, and the share killed.
"""

import argparse
import ast
import json
import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[1]
LIBRARY = Path("workflow/scripts/gpushmoo")
# A mutant that makes a test wait for ever is seen, too.
LIMIT_S = 600.0

COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
}
OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "-",
    ast.Sub: "+",
    ast.Mult: "/",
    ast.Div: "*",
    ast.FloorDiv: "*",
    ast.Mod: "//",
}


@dataclass(frozen=True)
class Mutant:
    """`new` in the place of `old`, at line `line` (from 1) and column `column` of `path`."""

    path: Path
    line: int
    column: int
    old: str
    new: str

    def applied(self, text: str) -> str:
        """The source `text` with this change."""
        lines = text.split("\n")
        head, tail = lines[self.line - 1][: self.column], lines[self.line - 1][self.column :]
        lines[self.line - 1] = head + self.new + tail.removeprefix(self.old)
        return "\n".join(lines)

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.old} -> {self.new}"


def mutants_of(path: Path) -> Iterator[Mutant]:
    """All changes of a module that fit one line."""
    text = (ROOT / path).read_text(encoding="utf-8")
    lines = text.split("\n")
    tree = ast.parse(text)
    # What an error says is no result.
    errors = (node for node in ast.walk(tree) if isinstance(node, ast.Raise))
    said = {id(part) for node in errors for part in ast.walk(node)}
    for node in (node for node in ast.walk(tree) if id(node) not in said):
        match node:
            case ast.Compare(left=left, ops=[operator], comparators=[right]):
                yield from _between(path, lines, left, right, COMPARISONS.get(type(operator)))
            case ast.BinOp(left=left, op=op, right=right) if not isinstance(left, ast.JoinedStr):
                yield from _between(path, lines, left, right, OPERATORS.get(type(op)))
            case ast.BoolOp(op=op, values=[left, right, *_]):
                other = "or" if isinstance(op, ast.And) else "and"
                yield from _between(path, lines, left, right, other)
            case ast.Constant(value=bool() as value):
                yield Mutant(path, node.lineno, node.col_offset, str(value), str(not value))
            case ast.Constant(value=int() | float() as value) if node.lineno == node.end_lineno:
                old = lines[node.lineno - 1][node.col_offset : node.end_col_offset]
                new = repr(value + 1 if isinstance(value, int) else value * 1.5 + 0.01)
                yield Mutant(path, node.lineno, node.col_offset, old, new)


def _between(
    path: Path, lines: list[str], left: ast.expr, right: ast.expr, new: str | None
) -> Iterator[Mutant]:
    """The operator between two operands of one line, with `new` in its place."""
    if new is None or left.end_lineno != right.lineno or left.end_col_offset is None:
        return
    line = lines[right.lineno - 1]
    if not line.isascii():
        return
    between = line[left.end_col_offset : right.col_offset]
    if found := re.search(r"[^\s()]+(?: [a-z]+)?", between):
        column = left.end_col_offset + found.start()
        yield Mutant(path, right.lineno, column, found[0].strip(), new)


def drawn(count: int, seed: int) -> list[Mutant]:
    """`count` mutants of different lines, drawn from all of the library."""
    paths = sorted(p.relative_to(ROOT) for p in (ROOT / LIBRARY).rglob("*.py"))
    # Where a figure's marks lie is looked at, not tested.
    paths = [p for p in paths if not {"figures", "template"}.intersection(p.parts)]
    every = [m for path in paths for m in mutants_of(path)]
    random.Random(seed).shuffle(every)
    lines: dict[tuple[Path, int], Mutant] = {}
    for mutant in every:
        lines.setdefault((mutant.path, mutant.line), mutant)
    return list(lines.values())[:count]


def files_near(module: str) -> list[str]:
    """The test files that import `module` or something from it."""
    folder, _, name = module.rpartition(".")
    own = rf"{re.escape(module)}\b|from {re.escape(folder)} import .*\b{name}\b"
    tests = sorted((ROOT / "tests/unit").rglob("test_*.py"))
    return [str(p.relative_to(ROOT)) for p in tests if re.search(own, p.read_text("utf-8"))]


def is_killed(mutant: Mutant, copy: Path) -> bool:
    """Whether a test fails with this change in `copy`."""
    file = copy / mutant.path
    text = file.read_text(encoding="utf-8")
    file.write_text(mutant.applied(text), encoding="utf-8")
    parts = mutant.path.relative_to(LIBRARY.parent).with_suffix("").parts
    module = ".".join(parts).removesuffix(".__init__")
    # The copy's modules before those of the clone that made the environment.
    environment = {**os.environ, "PYTHONPATH": str(copy / LIBRARY.parent)}
    options = ["-q", "-x", "--no-header", "-p", "no:cacheprovider", "--dist", "loadfile"]
    try:
        for files in filter(None, (files_near(module), ["tests/unit"])):
            workers = ["-n", "2"] if files == ["tests/unit"] else []
            command = [sys.executable, "-m", "pytest", *options, *workers, *files]
            how = {"cwd": copy, "env": environment, "timeout": LIMIT_S}
            if subprocess.run(command, capture_output=True, check=False, **how).returncode:
                return True
    except subprocess.TimeoutExpired:
        return True
    finally:
        file.write_text(text, encoding="utf-8")
    return False


def main() -> None:
    """Draw, change, test, and say what survived."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(2)))
    options = parser.parse_args()
    print(f"make mutants SEED={options.seed} COUNT={options.count}", flush=True)
    mutants = drawn(options.count, options.seed)
    survivors = []
    began = time.monotonic()
    with TemporaryDirectory() as place:
        copy = Path(place) / "copy"
        subprocess.run(["git", "clone", "-q", str(ROOT), str(copy)], check=True)
        (copy / ".venv").symlink_to(Path(sys.prefix))
        for number, mutant in enumerate(mutants, start=1):
            killed = is_killed(mutant, copy)
            print(f"{number:4} {'killed  ' if killed else 'SURVIVED'} {mutant}", flush=True)
            survivors += [] if killed else [str(mutant)]
    share = 1.0 - len(survivors) / len(mutants)
    seconds = round(time.monotonic() - began)
    print(json.dumps({"seed": options.seed, "killed": share, "seconds": seconds}))
    sys.exit(share < 0.85)


if __name__ == "__main__":
    main()

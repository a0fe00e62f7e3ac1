"""Do the tests see a changed line of the library? Changes one line at a time and runs tests.

    make mutants                    # 100 changes, chosen by a seed that is printed
    make mutants SEED=7 COUNT=20
    make mutants SEED=7 OUT=seven.json
    make mutants AGAIN=seven.json   # those that survived, once more

A change is one of COMPARISONS, OPERATORS, another constant or another connective, at a place drawn
from the library's syntax trees. Changes that no result depends on are not drawn: texts of errors
and logs, annotations, keywords such as `strict`. A change's place in the draw depends on its line
and the seed alone, so that a seed draws nearly the same after an edit elsewhere.

The change is made in a copy of the tracked files and of those not yet tracked. Test files are run
nearest first (`mutant_tests.Tests`) until a test fails or the mutant's seconds of a processor are
over. A test that fails without the change, too, is left out. Prints each mutant, and the share
killed. Mutants of CUDA's backend that survive count as not run if there is no CUDA device.
"""

import argparse
import ast
import hashlib
import json
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from mutant_tests import LIBRARY, ROOT, Copy, Outcome, Tests

# Of whole numbers the bound itself counts.
BOUNDS: dict[type[ast.cmpop], str] = {ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">"}
# Of seconds and ratios none is the bound itself: there the opposite.
COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Lt: ">=",
    ast.LtE: ">",
    ast.Gt: "<=",
    ast.GtE: "<",
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
# Keywords that make an error of the library's own mistakes, or change the order of keys.
NO_RESULT = {"strict", "frozen", "slots", "repr", "sort_keys"}


@dataclass(frozen=True)
class Mutant:
    """Replacement of `old` by `new`, at line `line` (from 1) and column `column` of `path`."""

    path: str
    line: int
    column: int
    old: str
    new: str
    source: str

    def applied(self, text: str) -> str:
        """The source `text` with this change."""
        lines = text.split("\n")
        head, tail = lines[self.line - 1][: self.column], lines[self.line - 1][self.column :]
        lines[self.line - 1] = head + self.new + tail.removeprefix(self.old)
        return "\n".join(lines)

    def draw(self, seed: int) -> str:
        """A number that orders mutants at random, but each as ever."""
        words = f"{seed} {self.path} {self.source} {self.old} {self.new}"
        return hashlib.sha256(words.encode()).hexdigest()

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.old} -> {self.new} | {self.source.strip()}"


def mutants_of(path: Path) -> Iterator[Mutant]:
    """All changes of a module that fit one line."""
    text = (ROOT / path).read_text(encoding="utf-8")
    lines = text.split("\n")
    for node in _with_results(ast.parse(text)):
        match node:
            case ast.Compare(left=left, ops=[operator], comparators=[right]):
                whole = _is_whole(left) or _is_whole(right)
                others = COMPARISONS | BOUNDS if whole else COMPARISONS
                yield from _between(path, lines, left, right, others.get(type(operator)))
            case ast.BinOp(left=left, op=op, right=right):
                yield from _between(path, lines, left, right, OPERATORS.get(type(op)))
            case ast.BoolOp(op=op, values=[left, right, *_]):
                other = "or" if isinstance(op, ast.And) else "and"
                yield from _between(path, lines, left, right, other)
            case ast.Constant(value=bool() as value):
                yield _mutant(path, lines, node.lineno, node.col_offset, str(value), str(not value))
            case ast.Constant(value=int() | float() as value) if node.lineno == node.end_lineno:
                line = lines[node.lineno - 1].encode()
                old = line[node.col_offset : node.end_col_offset].decode()
                new = repr(value + 1 if isinstance(value, int) else value * 1.5 + 0.01)
                yield _mutant(path, lines, node.lineno, node.col_offset, old, new)


def _with_results(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a tree on which a result may depend."""
    match node:
        # Before Python 3.12 no node within an f-string has its own place.
        case ast.Raise() | ast.Assert() | ast.JoinedStr():
            return
        case ast.Call(func=ast.Attribute(value=ast.Name(id="log" | "warnings"))):
            return
        case ast.keyword(arg=str() as name) if name in NO_RESULT:
            return
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return
        # Any negative number is the length that is left.
        case ast.Call(func=ast.Attribute(attr="reshape"), args=[ast.UnaryOp()]):
            node = node.func
    yield node
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "type_params"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _with_results(child)


def _is_whole(node: ast.expr) -> bool:
    """Whether an operand is known to be a whole number."""
    match node:
        case ast.Constant(value=value):
            return type(value) is int
        case ast.Call(func=ast.Name(id="len" | "int")):
            return True
    return False


def _mutant(path: Path, lines: list[str], line: int, column: int, old: str, new: str) -> Mutant:
    # Columns count bytes.
    column = len(lines[line - 1].encode()[:column].decode())
    return Mutant(str(path), line, column, old, new, lines[line - 1])


def _between(
    path: Path, lines: list[str], left: ast.expr, right: ast.expr, new: str | None
) -> Iterator[Mutant]:
    """The operator between two operands of one line, with `new` in its place."""
    if new is None or left.end_lineno != right.lineno or left.end_col_offset is None:
        return
    line = lines[right.lineno - 1].encode()
    between = line[left.end_col_offset : right.col_offset].decode()
    if found := re.search(r"[^\s()]+(?: [a-z]+)?", between):
        column = left.end_col_offset + found.start()
        yield _mutant(path, lines, right.lineno, column, found[0].strip(), new)


def drawn(count: int, seed: int) -> list[Mutant]:
    """`count` mutants of different lines, drawn from all of the library."""
    paths = sorted(p.relative_to(ROOT) for p in (ROOT / LIBRARY).rglob("*.py"))
    # No test checks the places of a figure's marks. A reader looks at them.
    paths = [p for p in paths if not {"figures", "template"}.intersection(p.parts)]
    every = sorted((m for path in paths for m in mutants_of(path)), key=lambda m: m.draw(seed))
    lines: dict[tuple[str, int], Mutant] = {}
    for mutant in every:
        lines.setdefault((mutant.path, mutant.line), mutant)
    return list(lines.values())[:count]


def again(file: Path) -> list[Mutant]:
    """The mutants in `file` that survived, at the lines where their sources are today."""
    found = []
    for one in json.loads(file.read_text(encoding="utf-8"))["mutants"]:
        if one["result"] == "survived":
            mutant = Mutant(**{key: one[key] for key in Mutant.__dataclass_fields__})
            same = [m for m in mutants_of(Path(mutant.path)) if m.draw(0) == mutant.draw(0)]
            near = sorted(same, key=lambda m: abs(m.line - mutant.line))
            found += near[:1]
            if not near:
                print(f"gone: {mutant}", flush=True)
    return found


def result_of(mutant: Mutant, outcome: Outcome) -> str:
    """``killed``, ``survived`` or ``not run``."""
    if outcome.failed:
        return "killed"
    needs_gpu = "devices/cuda" in mutant.path and not Path("/dev/nvidiactl").exists()
    return "not run" if needs_gpu or not outcome.passed else "survived"


def main() -> None:
    """Draw, change, test, and print what survived."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(2)))
    parser.add_argument("--limit", type=float, default=40.0, help="seconds of a processor")
    parser.add_argument("--again", type=Path, help="try the survivors of this --out")
    parser.add_argument("--out", type=Path, help="a JSON file of the results")
    options = parser.parse_args()
    print(f"make mutants SEED={options.seed} COUNT={options.count}", flush=True)
    mutants = again(options.again) if options.again else drawn(options.count, options.seed)
    if not mutants:
        sys.exit("There is no mutant to try.")
    results = []
    began = time.monotonic()
    with TemporaryDirectory() as place:
        copy, tests = Copy(Path(place)), Tests()
        for number, mutant in enumerate(mutants, start=1):
            near = tests.near(Path(mutant.path), mutant.line)
            changed = mutant.applied(copy.text(mutant.path))
            outcome = copy.first_failure(mutant.path, changed, near, options.limit)
            result = result_of(mutant, outcome)
            said = f"{number:4} {result:8} {outcome.seconds:4.0f} s {mutant}"
            print(said, *filter(None, [outcome.failed]), sep="\n          by ", flush=True)
            results.append({"result": result} | asdict(mutant) | asdict(outcome))
            counts = Counter(one["result"] for one in results)
            share = counts["killed"] / max(1, counts["killed"] + counts["survived"])
            summary = {"seed": options.seed, "share": round(share, 3), **counts}
            summary |= {"seconds": round(time.monotonic() - began)}
            if options.out:
                options.out.write_text(json.dumps(summary | {"mutants": results}, indent=1))
    print(json.dumps(summary))
    sys.exit(share < 0.85)


if __name__ == "__main__":
    main()

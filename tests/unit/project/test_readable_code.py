"""Values are listed one by one, and docstrings are sentences."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpushmoo.core.paths import CHAPTERS, KERNELS, PACKAGE, ROOT

FOLDERS = (PACKAGE.parent, KERNELS, CHAPTERS)
MIN_WORDS = 5


def packed_tuples(tree: ast.Module) -> Iterator[int]:
    """Lines that unpack a tuple or list which is written at the same place."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Starred) and isinstance(node.value, ast.Tuple | ast.List):
            yield node.lineno


def short_docstrings(tree: ast.Module) -> Iterator[int]:
    """Lines of docstrings whose first paragraph has too few words to say anything."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text is not None and len(text.split("\n\n")[0].split()) < MIN_WORDS:
                yield node.body[0].lineno


RULES = {"packed tuple": packed_tuples, "short docstring": short_docstrings}


def sources() -> list[Path]:
    return sorted(path for folder in FOLDERS for path in folder.rglob("*.py"))


@pytest.mark.parametrize("rule", RULES)
def test_the_sources_are_not_golfed(rule: str) -> None:
    assert [
        f"{path.relative_to(ROOT)}:{line}: {rule}"
        for path in sources()
        for line in RULES[rule](ast.parse(path.read_text(encoding="utf-8")))
    ] == []


@pytest.mark.parametrize(
    ("rule", "source", "lines"),
    [
        ("packed tuple", "f(*(1, 2), x)\nf(\n    *[y, z],\n)\nx = (*a, *(1, 2))\n", [1, 3, 5]),
        ("packed tuple", "f(*rest, x)\nf(*map(g, (1, 2)))\nx = (*a, *b)\n", []),
        (
            "short docstring",
            '''
            """Sums over blocks of threads."""

            class A:
                """As above."""

                def f(self):
                    """See `B`.

                    Only the first paragraph counts, however long others are.
                    """

            async def g():
                """Return the sum of both arguments."""
            ''',
            [5, 8],
        ),
    ],
)
def test_what_is_golfed_is_found(rule: str, source: str, lines: list[int]) -> None:
    assert list(RULES[rule](ast.parse(textwrap.dedent(source)))) == lines

"""What the tests draw is the same in every run, so that none of them fails by luck."""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
from conftest import ROOT
from hypothesis import given
from hypothesis import strategies as st

TESTS = sorted((ROOT / "tests").rglob("*.py"))


def drawn() -> list[tuple[int, float, str]]:
    """All draws of one test of numbers and text, in their order."""
    found: list[tuple[int, float, str]] = []

    @hypothesis.settings(parent=hypothesis.settings.get_profile("test"), max_examples=300)
    @given(st.integers(), st.floats(allow_nan=False), st.text())
    def draw(number: int, other: float, text: str) -> None:
        found.append((number, other, text))

    draw()
    return found


def test_draws_do_not_depend_on_what_was_imported_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = drawn()
    path = tmp_path / "constants_of_a_module.py"
    lines = [f"N{i} = {10**9 + i}, {i}.125, 'word {i}'" for i in range(200)]
    path.write_text("\n".join(lines))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, path.stem, module)
    spec.loader.exec_module(module)
    assert drawn() == before


def test_make_test_draws_the_same_and_remembers_nothing() -> None:
    profile = hypothesis.settings.get_profile("test")
    assert profile.derandomize
    assert profile.database is None
    assert profile.deadline is None
    # A search for a smaller example may take five minutes for each test.
    assert hypothesis.Phase.shrink not in profile.phases


def calls(path: Path) -> Iterator[tuple[str, ast.Call]]:
    """Every call in a file, and its function as it is written there."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


GENERATORS = ("default_rng", "random.Random", "PCG64", "SeedSequence")


@pytest.mark.parametrize("path", TESTS, ids=lambda p: p.name)
def test_no_test_draws_without_a_seed(path: Path) -> None:
    for function, call in calls(path):
        where = f"{path.name}:{call.lineno}"
        if function.endswith(GENERATORS):
            assert call.args or call.keywords, f"{where}: a generator without a seed"
        elif function.endswith("random.seed"):
            # For a library that draws from the generators that all share.
            assert call.args, f"{where}: a seed of the moment"
        elif re.fullmatch(r"(np\.)?random\.\w+", function):
            pytest.fail(f"{where}: the generator that all share")
        elif function == "settings":
            names = {keyword.arg for keyword in call.keywords}
            assert names.isdisjoint({"derandomize", "database"}), f"{where}: the profile's to say"

"""Texts avoid the phrases of `prose.RULES`, and pages avoid semicolons."""

from __future__ import annotations

from pathlib import Path

import prose
import pytest

# Matches in 1,000 words. What httpx, nvbench and Kernel Tuner have is a third of the first.
ERRORS_IN_1000 = 0.5
SEMICOLONS_IN_1000 = 3.0

# Kinds that do not meet the bound yet may not get worse. Lower a number after you rewrite texts.
ERRORS_TODAY = {
    "tests": 209,
}


@pytest.fixture(scope="module")
def counts() -> dict[str, prose.Count]:
    return prose.counted(prose.texts())


@pytest.mark.parametrize("kind", prose.KINDS)
def test_texts_avoid_the_phrases(kind: str, counts: dict[str, prose.Count]) -> None:
    count = counts[kind]
    allowed = max(ERRORS_TODAY.get(kind, 0), ERRORS_IN_1000 * count.words / 1000)
    assert count.errors <= allowed, (
        f"{count.errors} phrases in {kind}, at most {allowed:.0f} are allowed; to list them, run "
        "PYTHONPATH=workflow/scripts python tests/support/prose.py all"
    )


def test_pages_have_few_semicolons(counts: dict[str, prose.Count]) -> None:
    allowed = SEMICOLONS_IN_1000 * counts["docs"].words / 1000
    assert counts["docs"].semicolons <= allowed


@pytest.mark.parametrize("name", prose.RULES)
def test_each_rule_finds_its_example_and_accepts_the_better_sentence(name: str) -> None:
    rule = prose.RULES[name]
    assert list(rule.matches(rule.bad))
    for other, of_other in prose.RULES.items():
        assert not list(of_other.matches(rule.better)), other


def test_phrases_are_found_across_lines_but_not_in_code(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("The rest of\nwhat; `of what`\n\n```\nof what\n```\n* of\n* what\n")
    module = tmp_path / "module.py"
    module.write_text(
        '"""Return a part of\n    what is read."""\nx = 1  # of\n# what\ny = "of what"\n'
    )
    found = [*prose.markdown(page), *prose.python_text(module)]
    counts = prose.counted(iter(found))
    assert [counts[kind].errors for kind in ("docs", "docstrings", "messages")] == [1, 1, 1]
    assert counts["docs"].semicolons == 1

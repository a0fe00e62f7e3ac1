"""Facts that pages state in words are those of the code and of the profiles."""

import re
from types import SimpleNamespace
from typing import Any, cast

from conftest import ROOT
from gpushmoo.analysis.statistics import SHARING_CELLS
from gpushmoo.core.measure_settings import Measure
from gpushmoo.core.schema import Status
from gpushmoo.exporting.write import all_formats
from gpushmoo.measuring.sample_length import LASTING_S
from gpushmoo.measuring.sampling import Sampling, StoppingRule


def text_of(page: str) -> str:
    return (ROOT / "docs" / page).read_text(encoding="utf-8")


def words_of(page: str) -> str:
    """The text of a page as one line."""
    return " ".join(text_of(page).split())


def named(text: str) -> list[str]:
    """The code in the first cell of each row of the tables of a text."""
    cells = re.findall(r"(?m)^\| (.+?) \|", text)
    return [name for cell in cells for name in re.findall("`(.+?)`", cell)]


def test_troubleshooting_lists_every_status_once() -> None:
    listed = named(text_of("troubleshooting.md").partition("\n## Symptoms")[0])
    assert sorted(listed) == sorted(str(status) for status in Status)


def test_the_method_says_when_a_result_is_verified() -> None:
    def sampling(repeat: int, repeats: int) -> Sampling:
        job = SimpleNamespace(repeat=repeat, measure=SimpleNamespace(repeats=repeats))
        return Sampling(cast(Any, job), StoppingRule(1, 1, 0.0, 0.0))

    found = [sampling(*each) for each in ((1, 3), (2, 3), (1, 1))]
    before_and_after = [(s.verifies_before, s.verifies_after) for s in found]
    assert before_and_after == [(True, False), (False, True), (True, True)]
    assert (
        "The first repeat verifies a cell before its first sample. Later repeats verify it after "
        "its last sample. A run with one repeat does both."
    ) in words_of("method.md")


def test_pages_say_that_the_fastest_cell_decides_about_boundaries() -> None:
    """As `test_the_fastest_of_tied_cells_says_which_axis_to_widen` shows."""
    assert "| boundary | the fastest cell has the smallest or largest" in words_of("glossary.md")
    assert re.search(
        r"\| `boundary` \| axes \w+ which the fastest cell has the", words_of("data.md")
    )


def test_the_guide_to_snakemake_says_what_the_slurm_profile_sets() -> None:
    profile = (ROOT / "profiles/slurm/config.yaml").read_text(encoding="utf-8")
    lines = [line.strip(" #") for line in profile.splitlines()]
    table = text_of("snakemake.md").partition("### The Slurm profile")[2].partition("\n### ")[0]
    told = named(table)
    assert len(told) > 10
    for setting in told:
        value = setting.removeprefix("set-threads: ")
        assert any(line.startswith((value, f"{value}:")) for line in lines), setting


def test_pages_state_the_constants_of_the_code() -> None:
    assert f"| one GPU | {Measure().cells_per_shard}, the default |" in words_of("snakemake.md")
    assert SHARING_CELLS == 8
    assert "If a group has at least eight cells" in words_of("statistics.md")
    assert f"`LASTING_S`, {1e6 * LASTING_S:.0f} µs" in words_of("method.md")
    assert set(all_formats()) <= set(named(text_of("results.md")))

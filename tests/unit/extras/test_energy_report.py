"""What figures and the report make of the table of energy."""

import json
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from cells import cell
from energetic import energy_row, write_energy
from gpushmoo.analysis.best import best_table
from gpushmoo.core.median import MeanInterval
from gpushmoo.core.space import Cell, Problem, chosen_cell
from gpushmoo.extras.studies.energy_table import (
    FASTEST,
    energy_cells,
    energy_groups,
    joules_ratio,
    read_energy,
)
from gpushmoo.extras.studies.figure import energy_figure
from gpushmoo.extras.studies.page import energy_findings, energy_page
from gpushmoo.figures.run_changes import MAX_PANELS
from matplotlib.figure import Figure
from test_figures import assert_readable

# Known to 0.1 % of each.
FAST = energy_row("block_x=64 block_y=4", 2500.0, [0.1980, 0.1982, 0.1981])
CLOSE = energy_row("block_x=32 block_y=8", 2490.0, [0.2040, 0.2041, 0.2039])
CHEAP = energy_row("block_x=48 block_y=4", 2400.0, [0.1900, 0.1901, 0.1899])
WORSE = energy_row("block_x=8 block_y=8", 1300.0, [0.3690, 0.3691, 0.3689])
ROWS = [WORSE, CHEAP, CLOSE, FAST]


def page(tmp_path: Path, rows: list[dict[str, Any]], why: str | None = None) -> Any:
    return energy_page(read_energy(write_energy(tmp_path / "e.parquet", rows, why)))


def test_groups_know_their_front_ties_and_ratios() -> None:
    [group] = energy_groups(ROWS)
    assert [group.fastest, group.cheapest] == [FAST, CHEAP]
    assert group.tied == [FAST, CLOSE]
    assert group.front == [FAST, CHEAP]
    others = [energy_row("", 1.0, [1.0], **{k: 7 if k == "height" else "x"}) for k in ("kernel",)]
    others += [energy_row("", 1.0, [1.0], height=7), energy_row("", 1.0, [1.0], dtype="double")]
    assert sorted(len(g.rows) for g in energy_groups([*ROWS, *others])) == [1, 1, 1, 4]
    drifting = energy_row("a=1", 100.0, [1.0, 1.2, 1.5])
    dearer = energy_row("a=2", 100.0, [1.01, 1.213, 1.514])
    found = joules_ratio(dearer, drifting)
    assert found.mean == pytest.approx(1.01, abs=1e-3)
    assert found.low is not None
    assert found.low > 1.005
    alone = joules_ratio(energy_row("", 1.0, [2.0]), energy_row("", 1.0, [1.0]))
    assert alone == MeanInterval(pytest.approx(2.0), None, None)


def test_the_page_says_whether_energy_breaks_ties(tmp_path: Path) -> None:
    found = page(tmp_path, ROWS)
    idle, ties, cheapest = found["sentences"]
    assert "it took 120 W before and 122 W after" in idle
    assert "Of 1 groups with several launches within 1.0 % of the fastest" in ties
    assert (
        "of these in 1; at most they differ by 3.0 % (k, float, 8192²: 64 × 4 takes 198.1 mJ/GB, "
        in ties
    )
    assert "In 1 of 1 groups a launch is cheaper" in cheapest
    assert "48 × 4 takes 4.1 % less energy a byte than 64 × 4 and is 4.0 % slower" in cheapest
    assert [row["mark"] for row in found["rows"]] == ["fastest", "", "cheapest", ""]
    assert found["rows"][0] | {"half": ""} == {
        "kernel": "k",
        "dtype": "float",
        "size": "8192²",
        "launch": "64 × 4",
        "gbs": "2500",
        "power": "495",
        "energy": "198.1",
        "half": "",
        "net": "150.1",
        "mark": "fastest",
    }


def test_what_was_not_decided_or_measured_is_said(tmp_path: Path) -> None:
    noisy = energy_row("block_x=16 block_y=16", 2499.0, [0.18, 0.22, 0.19], throttled=True)
    found = page(tmp_path, [FAST, noisy])
    assert found["sentences"][1].endswith("of these in 0: it breaks no tie.")
    assert found["sentences"][2].startswith("In none of 1 groups")
    assert found["sentences"][-1] == "In 1 of 2 cells the device protected itself."
    assert energy_findings(read_energy(tmp_path / "e.parquet")) == []
    [(_, worth)] = energy_findings(read_energy(write_energy(tmp_path / "e.parquet", ROWS)))
    assert worth == pytest.approx(0.0204, abs=1e-3)
    why = "Energy was not measured: nothing counts it."
    assert page(tmp_path, [], why)["sentences"] == [why]
    energy_figure(tmp_path / "e.parquet", tmp_path / "energy.svg")
    assert json.loads((tmp_path / "energy.json").read_text(encoding="utf-8"))["caption"] == why
    failed = energy_row("a=1", 1.0, [1.0], message="The result is wrong: it is.")
    assert page(tmp_path, [failed])["sentences"] == [
        "Energy was not measured: The result is wrong: it is."
    ]


@pytest.mark.parametrize("kernels", [1, 13])
def test_the_front_is_drawn(kernels: int, written: list[Figure], tmp_path: Path) -> None:
    rows = [
        {**row, "kernel": f"kernel_{n}", "cell_key": f"{n} {row['params']}"}
        for n in range(kernels)
        for row in ROWS
    ]
    svg = tmp_path / "energy.svg"
    energy_figure(write_energy(tmp_path / "e.parquet", rows), svg)
    text = svg.read_text(encoding="utf-8")
    for words in ("bandwidth (GB/s)", "energy (GB/J)", "fastest: 64 × 4", "cheapest: 48 × 4"):
        assert words in text
    assert text.count("fastest: ") == min(kernels, MAX_PANELS)
    assert_readable(written[0])
    caption = json.loads(svg.with_suffix(".json").read_text(encoding="utf-8"))["caption"]
    assert "over 3 rounds" in caption
    assert ("The 12 of 13 groups" in caption) == (kernels == 13)


def test_energy_is_asked_of_batched_launches_under_the_keys_of_the_data_set() -> None:
    """Isolated launches compete with each other, and have winners of their own."""
    rows = []
    for at, mode in product(((8, 8), (16, 16), (32, 8)), ("batched", "isolated")):
        axes = (("block_x", at[0]), ("block_y", at[1]))
        one = Cell("k", "float", "v", Problem(64, 64), axes, timing_mode=mode)
        # Each mode has another winner.
        seconds = 1e-3 * (at[0] if mode == "batched" else 64 - at[0])
        rows.append(
            cell(seconds, **{**one.columns(), **dict(axes)}, threads_per_block=at[0] * at[1])
        )
    table = pd.DataFrame(rows)
    found = energy_cells(table, best_table(table, ()).to_pandas())
    batched = set(table["cell_key"][table["timing_mode"] == "batched"])
    assert {one.cell.key for one in found} <= batched
    assert [one.cell["block_x"] for one in found if one.role == FASTEST] == [8]
    alone = table[table["timing_mode"] == "isolated"]
    assert energy_cells(alone, best_table(alone, ()).to_pandas()) == []
    isolated = chosen_cell(alone.to_dict("records")[0], ["block_x", "block_y"], FASTEST)
    assert [isolated.cell.key] == [*alone["cell_key"][:1]]

"""Which launch the report tells to use, what others cost, and what is said of it first."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import pytest
from cells import cell
from gpushmoo.analysis.best import Advice, Cost, advice, best_table, place
from gpushmoo.analysis.peak import PeakRow
from gpushmoo.report.findings import MAX_FINDINGS, Finding, advice_findings, ranked
from gpushmoo.report.tables import (
    axes_words,
    closing_lines,
    cost_cell,
    first_page,
    launch_words,
    peak_table,
    thumbnail,
)
from hypothesis import strategies as st

MIB = 2**20
CACHE = 60 * MIB


def group(times: Mapping[tuple[int, int], float], side: int = 8192, **other: Any) -> pd.DataFrame:
    """Cells of blocks x × y that take so many seconds, known to 0.1 % to both sides."""
    where = {"height": side, "width": side, "working_set_over_cache": side * side * 8 / CACHE}
    return pd.DataFrame(
        cell(
            seconds,
            **{**where, "block_x": x, "block_y": y, "threads_per_block": x * y},
            **{"median_low_s": 0.5 * seconds, "median_high_s": 2.0 * seconds, **other},
        )
        for (x, y), seconds in times.items()
    )


def advised(*groups: pd.DataFrame, peak: Sequence[PeakRow] = ()) -> list[Advice]:
    cells = pd.concat(groups, ignore_index=True)
    return advice(cells, best_table(cells, peak).to_pandas(), peak)


def peaks(gbs: float) -> list[PeakRow]:
    """A device that loads and stores so fast, known to 1 %."""
    where, what = ("D", "warm", "batched"), ("p", "float", "v", "")
    return [
        PeakRow(*where, kind, MIB, None, gbs, 0.99 * gbs, 1.01 * gbs, *what)
        for kind in ("load", "store")
    ]


LARGE = {(32, 8): 1.1, (16, 16): 1.0, (64, 4): 1.0005, (256, 1): 2.0, (4, 4): 9.0}
SMALL = {(32, 8): 0.011, (16, 16): 0.02, (64, 4): 0.010, (256, 1): 0.03, (4, 4): 0.04}


def test_of_a_class_of_sizes_the_launch_that_loses_least_is_told() -> None:
    [alone] = advised(group(LARGE))
    assert launch_words(alone.cell, alone.axes) == "16 × 16"
    [both] = advised(group(LARGE), group(SMALL, side=7000))
    assert launch_words(both.cell, both.axes) == "64 × 4"
    assert (both.tied, both.candidates) == (2, 5)
    # What is clearly slower is not told for the sake of a size in the cache.
    far = LARGE | {(64, 4): 1.05}
    [kept] = advised(group(far), group(SMALL, side=1024))
    assert launch_words(kept.cell, kept.axes) == "16 × 16"
    assert kept.in_cache is not None
    assert kept.in_cache.cost is not None
    assert kept.in_cache.cost.value == pytest.approx(1.0)
    assert launch_words(kept.in_cache.best, kept.axes) == "64 × 4"


def test_the_fastest_variant_and_the_largest_warm_problem_are_told() -> None:
    flushed = group({(8, 8): 0.5, (4, 4): 1.0}, cache_state="flushed")
    [found] = advised(group(SMALL, side=1024), flushed)
    assert (found.group["height"], found.group["cache_state"]) == (8192, "flushed")
    [found] = advised(group(SMALL, side=1024), flushed, group(LARGE))
    assert (found.group["height"], found.group["cache_state"]) == (8192, "warm")
    assert found.place == "memory"
    faster = group({(8, 8): 0.5, (4, 4): 1.0}, variant="w")
    double = group({(32, 8): 1.0, (4, 4): 2.0}, dtype="double")
    failed = group({(8, 8): 0.1}).assign(status="wrong_result")
    found = advised(group(LARGE), faster, double, failed)
    assert [(a.group["dtype"], a.group["variant"]) for a in found] == [
        ("double", "v"),
        ("float", "w"),
    ]
    assert advised(group(LARGE).assign(status="timeout")) == []


def test_costs_of_usual_blocks_are_those_of_the_cells() -> None:
    [found] = advised(group(LARGE))
    assert {name: cost.value for name, cost in found.defaults.items()} == {
        "256 × 1": pytest.approx(1.0),
        "16 × 16": pytest.approx(0.0),
        "32 × 8": pytest.approx(0.1),
    }
    # From the far ends of both intervals.
    usual = found.defaults["32 × 8"]
    assert (usual.low, usual.high) == pytest.approx(
        (1.1 * 0.999 / 1.001 - 1, 1.1 * 1.001 / 0.999 - 1)
    )
    assert [cost.sure for cost in found.defaults.values()] == [True, False, True]
    assert (found.worst, found.typical) == pytest.approx((9.0, 1.1))
    # The usual block that costs most, or what a typical launch costs.
    assert found.impact == pytest.approx(1.0)
    [few] = advised(group({(8, 8): 1.0, (4, 4): 2.0}))
    assert (few.defaults, few.impact) == ({}, pytest.approx(0.5))
    flat = group({(64, 1): 1.0, (256, 2): 1.5, (256, 1): 1.2, (16, 1): 4.0})
    flat = flat.rename(columns={"block_y": "unroll"})
    [found] = advised(flat)
    assert launch_words(found.cell, found.axes) == "64, unroll 1"
    assert launch_words(found.cell, found.axes, named=False) == "64, 1"
    assert axes_words(found.axes) == "block_x, unroll"
    assert found.defaults["256 × 1"].value == pytest.approx(0.2)


TIMES = st.dictionaries(
    st.tuples(st.sampled_from([4, 8, 16, 32]), st.sampled_from([1, 4, 8, 16])),
    st.floats(0.5, 4.0),
    min_size=1,
)


@pytest.mark.parametrize(
    ("share", "expected"),
    [
        (None, "unknown"),
        (float("nan"), "unknown"),
        (1.0, "cache"),
        (1.01, "between"),
        (3.99, "between"),
        (4.0, "memory"),
    ],
)
def test_where_data_lie(share: float | None, expected: str) -> None:
    assert place(share) == expected


@pytest.mark.parametrize(
    ("cost", "text", "bad"),
    [
        (None, "—", False),
        (Cost(0.01, -0.001, 0.021), "none", False),
        (Cost(0.01, 0.008, 0.012), "+1.0 % ±\u00a00.2 %", False),
        (Cost(0.068, 0.06, 0.076), "+6.8 % ±\u00a00.8 %", True),
        (Cost(1.0, 0.8, 1.2), "+100 % ±\u00a020 %", True),
        # Noise: so large a cost with such an interval gives no reason to choose another launch.
        (Cost(3.44, 0.12, 8.58), "≥ +12 %", False),
    ],
)
def test_costs_are_read_at_a_glance(cost: Cost | None, text: str, bad: bool) -> None:
    cell = cost_cell(cost)
    assert (f"{cell['text']} {cell['half']}".strip(), cell["bad"]) == (text, bad)


def known_to(width: float, cells: pd.DataFrame) -> pd.DataFrame:
    times = cells["median_s"]
    return cells.assign(group_low_s=times / (1 + width), group_high_s=times * (1 + width))


def test_noise_is_no_headline() -> None:
    # 32 × 8 takes 4.4 times as long, but between 1.04 and 18 times; 30 % are certain of the other.
    noisy = known_to(1.05, group({(64, 4): 1.0, (32, 8): 4.4, (4, 4): 90.0}))
    clear = group({(64, 4): 1.0, (32, 8): 1.3, (4, 4): 9.0}, kernel="l")
    told = advised(noisy, clear)
    page = first_page(told, pd.concat([noisy, clear]), False)
    assert page["first"]["kernel"] == "l"
    costs = {k["name"]: k["rows"][0]["defaults"]["32 × 8"] for k in page["kernels"]}
    assert [costs[name]["bad"] for name in "kl"] == [False, True]
    assert "340" not in costs["k"]["text"]
    [finding] = [f for f in advice_findings(told) if "32 × 8" in f.sentence]
    assert finding.worth == pytest.approx(0.3)
    [finding] = [f for f in advice_findings(told[:1]) if "32 × 8" in f.sentence]
    assert "at least" in finding.sentence
    assert finding.worth < 0.1
    # Nor is a bandwidth that another run may miss by more than half.
    wide = group({(64, 4): 1.0, (32, 8): 1.3}, bandwidth_low_gbs=0.1, bandwidth_high_gbs=900.0)
    rows = [
        first_page(advised(cells), cells, False)["kernels"][0]["rows"][0] for cells in (wide, clear)
    ]
    assert [row["is_known"] for row in rows] == [False, True]


def test_page_one_speaks_of_data_in_memory_first() -> None:
    # The kernel that fits the cache has more at stake, and two types.
    small = group(LARGE | {(32, 8): 5.0}, side=1024)
    cached = [small, small.assign(dtype="double")]
    large = [group(LARGE, kernel="z"), group(LARGE, kernel="z", dtype="double")]
    for groups, first in (([*cached, *large], "zzkk"), (cached, "kk"), (large, "zz")):
        page = first_page(advised(*groups), pd.concat(groups), False)
        rows = [row | {"kernel": k["name"]} for k in page["kernels"] for row in k["rows"]]
        ranked_rows = sorted((r for r in rows if r["rank"] is not None), key=lambda r: r["rank"])
        assert "".join(row["kernel"] for row in ranked_rows) == first
        assert "".join(row["kernel"] for row in rows) == first
        assert page["first"]["kernel"] == first[0]
        # Findings likewise.
        assert f"({first[0]}, " in ranked(advice_findings(advised(*groups)))[0].sentence
    cache, memory = Finding("cache", 0.9, in_cache=True), Finding("memory", 0.1)
    fault = Finding("fault", float("inf"))
    assert ranked([cache, memory, fault]) == [fault, memory, cache]


def at(**seconds: float) -> list[pd.DataFrame]:
    """Cells of a type that each take so long."""
    return [group({(32, 8): s, (4, 4): 9 * s}, dtype=dtype) for dtype, s in seconds.items()]


def page_of(groups: Sequence[pd.DataFrame], gbs: float, is_cpu: bool) -> dict[str, Any]:
    told = advised(*groups, peak=peaks(gbs))
    return first_page(told, pd.concat(groups), is_cpu)


def test_a_share_of_the_peak_that_is_none_is_a_dash_and_said_why() -> None:
    # One second is half of the measured peak, 0.499 are statistically tied with all of it.
    gbs = 2 * 8192 * 8192 * 8 / 1e9
    page = page_of(at(double=1.0, float=0.499, float3=0.4, float4=0.25), gbs, True)
    shown = {row["dtype"]: row["share"] for row in page["kernels"][0]["rows"]}
    assert shown == {"double": "50 %", "float": "100 %", "float3": "—", "float4": "—"}
    assert page["above_peak"] == (
        "for 2 of 4: faster than loading and storing one after the other, which is not a limit "
        "there (a CPU's caches do both at once)."
    )
    on_a_gpu = page_of(at(double=1.0, float=0.4), gbs, False)["above_peak"]
    assert "(a cache does both at once). In memory (1 of these)" in on_a_gpu
    page = page_of([group({(32, 8): 0.001}, side=1024)], 1.0, False)
    assert "In memory" not in page["above_peak"]
    assert page["kernels"][0]["rows"][0]["worst"] == "—"
    assert page_of(at(double=1.0, float=0.499), gbs, True)["above_peak"] == ""
    # Without a measured peak a dash needs no reason.
    [cells] = at(float=1.0)
    page = first_page(advised(cells), cells, True)
    assert page["kernels"][0]["rows"][0]["share"] == "—"
    assert (page["has_peak"], page["above_peak"]) == (False, "")


def test_a_small_map_has_the_fastest_of_every_place_and_holes_where_nothing_ran() -> None:
    cells = group({(x, y): x * y / 16.0 for x in (4, 8, 16) for y in (4, 8, 16) if x * y < 200})
    [found] = advised(cells)
    drawn = thumbnail(found, cells)
    assert drawn == {"kind": "map", "rows": [[64, 32, None], [128, 64, 32], [255, 128, 64]]}
    line = cells[cells["block_y"] == 4]
    [found] = advised(line)
    drawn = thumbnail(found, line)
    assert drawn is not None
    assert drawn["kind"] == "line"
    assert drawn["points"] == [[0.0, 1.0], [0.3333, 0.5], [1.0, 0.25]]


def test_where_all_launches_are_tied_none_of_them_stands_out() -> None:
    noisy = group({(4, 4): 1.0, (8, 8): 1.1, (16, 16): 1.2, (32, 8): 1.3})
    noisy["group_low_s"], noisy["group_high_s"] = 0.5 * noisy["median_s"], 2 * noisy["median_s"]
    told = advised(noisy, group(LARGE, dtype="double"))
    page = first_page(told, noisy, False)
    decided, undecided = page["kernels"][0]["rows"]
    assert (decided["undecided"], decided["tied"]) == (False, "2 of 5")
    assert (undecided["use"], undecided["tied"]) == ("any of the 4", "4 of 4")
    assert {cost["text"] for cost in undecided["defaults"].values()} == {"none", "—"}
    assert (decided["rank"], undecided["rank"], decided["worst"]) == (0, 1, "9.00 ×")
    facts = {"first_page": page, "kernels": [{"name": n} for n in "kl"], "unsteady": "No."}
    for repeats, ending in ((1, "(another run may be outside ±):"), (3, "launches:")):
        facts["method"] = {"repeats": repeats}
        [head, *lines, rest, unsteady] = closing_lines(facts, "report.pdf")
        assert head.endswith(ending)
    assert [line.endswith("4 of 4 tied: no difference shown") for line in lines] == [False, True]
    assert rest == "  and 1 more kernel in the report: l"
    assert "unsteady" in unsteady
    assert advice_findings(told[1:]) == []


def test_findings_say_what_limits_and_what_the_cache_is_worth() -> None:
    gbs = 8192 * 8192 * 8 / 1e9
    said = advice_findings(advised(*at(double=0.5, float=2.0), peak=peaks(gbs)))
    [one] = [f.sentence for f in said if "peak" in f.sentence]
    assert one == (
        "k, float stays far below the measured peak: its best launch reaches 50 %. "
        "Something other than memory bandwidth limits it."
    )
    # Four times as fast, and half of the gain counts.
    assert [f.worth for f in said if "element type" in f.sentence] == [pytest.approx(1.5)]
    said = advice_findings(advised(*at(double=0.5), peak=peaks(gbs)))
    assert not any("peak" in f.sentence for f in said)
    far = LARGE | {(64, 4): 1.05}
    said = [f.sentence for f in findings_of(group(far), group(SMALL, side=1024))]
    assert any("16 × 16 takes 2.0 times as long (k, float). Use 64 × 4 for" in s for s in said)
    # 1024² in 0.01 s against 8192² in 1 s: 1.56 times as fast.
    assert any("up to 1.6 times as fast" in s for s in said)
    many = [Finding(str(worth), worth) for worth in (0.1, 0.5, 0.2, 0.4, 0.3, float("inf"))]
    assert [f.sentence for f in ranked(many)] == ["inf", "0.5", "0.4", "0.3", "0.2"]
    assert len(ranked(many)) == MAX_FINDINGS


def test_what_the_intervals_do_not_show_is_no_finding() -> None:
    def noisy(seconds: dict[tuple[int, int], float], **other: Any) -> pd.DataFrame:
        cells = group(seconds, **other)
        own = {"group_low_s": 0.99 * cells["median_s"], "group_high_s": 1.4 * cells["median_s"]}
        speed = cells["bandwidth_gbs"]
        return cells.assign(**own, bandwidth_low_gbs=0.7 * speed, bandwidth_high_gbs=1.4 * speed)

    # 30 % of a usual block, a type and the cache; and a clear loser, so that all is decided.
    times = {(64, 4): 1.0, (16, 16): 1.3, (32, 8): 1.2, (4, 4): 9.0}
    small = {(64, 4): 0.0125, (16, 16): 0.011, (32, 8): 0.0126, (4, 4): 0.9}
    slower = {launch: 1.3 * seconds for launch, seconds in times.items()}
    groups = [noisy(times), noisy(slower, dtype="double"), noisy(small, side=1024)]
    assert not any(a.undecided for a in advised(*groups))
    assert findings_of(*groups) == []


def findings_of(*groups: pd.DataFrame) -> list[Finding]:
    return advice_findings(advised(*groups))


def test_the_launch_of_a_cached_size_is_shown_if_this_one_costs_there() -> None:
    """A separate column if a size fits the cache; a remedy in it if the launch is bad there."""
    slow = LARGE | {(64, 4): 1.05}
    for cells, shown, instead in (
        ([group(slow)], False, ""),
        ([group(slow), group(SMALL, side=1024)], True, "64 × 4"),
        ([group(slow), group(slow, side=1024)], True, ""),
    ):
        page = first_page(advised(*cells), pd.concat(cells), False)
        [row] = page["kernels"][0]["rows"]
        assert page["has_cached"] is shown
        assert row["in_cache"]["instead"] == instead


def test_the_last_lines_name_other_kernels_only_beside_launches() -> None:
    [cells] = at(float=1.0)
    page = first_page(advised(cells), cells, False)
    facts: dict[str, Any] = {"first_page": page, "kernels": [{"name": "k"}], "unsteady": None}
    facts["method"] = {"repeats": 3}
    assert len(closing_lines(facts, "report.pdf")) == 2
    # Nothing was measured.
    facts |= {"first_page": page | {"kernels": []}, "kernels": [{"name": n} for n in "kl"]}
    assert closing_lines(facts, "report.pdf") == ["gpushmoo: the report is report.pdf."]


@pytest.mark.parametrize(
    ("slow", "words"), [(1.99, "99 % longer than the"), (2.0, "2.0 times as long as the")]
)
def test_a_cost_is_a_share_until_it_doubles_the_time(slow: float, words: str) -> None:
    [found] = advice_findings(advised(group(LARGE | {(256, 1): slow})))
    assert words in found.sentence


def peak_row(kind: str, share: float | None, gbs: float, **other: str) -> PeakRow:
    where = {"device_name": "D", "cache_state": "warm", "timing_mode": "batched", **other}
    return PeakRow(
        **where,
        kind=kind,
        bytes_touched=MIB,
        working_set_over_cache=share,
        bandwidth_gbs=gbs,
        bandwidth_low_gbs=0.9 * gbs,
        bandwidth_high_gbs=1.1 * gbs,
        kernel="k",
        dtype="float",
        variant="v",
        params="",
    )


def test_a_table_of_peaks_has_a_line_for_each_region_that_was_measured() -> None:
    rows = [peak_row("load", 0.4, 700.0), peak_row("load", 0.2, 800.0)]
    rows += [peak_row("store", 0.4, 600.0), peak_row("load", 40.0, 300.0)]
    # Between cache and memory nothing is read off.
    inside, outside = peak_table([*rows, peak_row("load", 1.5, 999.0)])
    assert (inside["where"], outside["where"]) == ("inside the cache, warm", "far outside, warm")
    assert "800" in inside["load"]
    assert "0.20 × cache" in inside["load"]
    assert "600" in inside["store"]
    assert ("300" in outside["load"], outside["store"]) == (True, "—")
    # Modes and devices are named only where there are several.
    [isolated] = peak_table([peak_row("load", 0.4, 7.0, timing_mode="isolated")])
    assert isolated["where"] == "inside the cache, warm"
    both = [*rows, peak_row("load", 0.4, 7.0, timing_mode="isolated")]
    named = [line["where"] for line in peak_table(both)]
    assert len(named) == len(set(named)) == 3
    other = [peak_row("load", 0.4, 7.0), peak_row("load", 0.4, 7.0, device_name="E")]
    assert [line["where"][-3:] for line in peak_table(other)] == [", D", ", E"]

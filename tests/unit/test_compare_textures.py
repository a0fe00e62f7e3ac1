"""What tests/gpu/compare_textures.py says about samples, and its peer's machine code; no device."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import ROOT
from gpushmoo.core.median import MedianInterval
from gpushmoo.devices.machine_code.nvrtc import compile_cubin
from gpushmoo.devices.machine_code.sass import complaints, listing, parse
from gpushmoo.workloads.contract import Access
from test_compare_kernel_tuner import load

script = load("compare_textures")
A, B, C, D = (4, 4), (4, 8), (8, 4), (8, 8)


def cell(median: float, half: float = 0.0) -> MedianInterval:
    return MedianInterval(median, median - half, median + half, 0.95)


def cells(*seconds: float, half: float = 0.0) -> dict[tuple[int, int], MedianInterval]:
    """Shapes A, B, C, D with these medians."""
    return {s: cell(m, half) for s, m in zip((A, B, C, D), seconds, strict=False)}


def turn(*seconds: float) -> dict[tuple[int, int], list[float]]:
    """One sample of A, B, C, D in a turn."""
    return {s: [m] for s, m in zip((A, B, C, D), seconds, strict=False)}


@pytest.mark.parametrize(("step", "count"), [(1, 2021), (2, 527), (4, 142)])
def test_shapes_are_the_documents(step: int, count: int) -> None:
    shapes = script.valid_shapes(step)
    assert len(shapes) == count
    assert all(x * y <= 1024 for x, y in shapes)
    assert {x for x, _ in shapes} == set(range(4, 65, step))


def test_csv_is_read_by_shape() -> None:
    text = "4,8,2.0e-03,3.0e-03\n4,4,1.0e-03,1.5e-03\n"
    assert script.parse_csv(text, [A, B], 2) == {B: [2e-3, 3e-3], A: [1e-3, 1.5e-3]}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        pytest.param("4,4,1e-3\n", "2 positive times", id="sample missing"),
        pytest.param("4,4,1e-3,0.0\n", "2 positive times", id="took no time"),
        pytest.param("4,4,1e-3,nan\n", "2 positive times", id="no number"),
        pytest.param("4,4,1e-3,inf\n", "2 positive times", id="endless"),
        pytest.param("", "other shapes", id="nothing"),
        pytest.param("8,4,1e-3,1e-3\n", "other shapes", id="another shape"),
        pytest.param("4,4,1e-3,1e-3\n" * 2, "some twice", id="twice"),
    ],
)
def test_csv_that_is_not_what_was_asked_for(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        script.parse_csv(text, [A], 2)


@pytest.mark.parametrize(
    ("count", "parts", "shares"), [(5, 2, [3, 2]), (31, 4, [8, 8, 8, 7]), (1, 2, [1])]
)
def test_rounds_are_shared_out(count: int, parts: int, shares: list[int]) -> None:
    assert script.split(count, parts) == shares


def test_intervals_are_of_all_turns_and_the_fastest_stands_first_equals_by_shape() -> None:
    found = script.intervals([{A: [1.0, 2.0]}, {A: [9.0]}])
    assert (found[A].median, found[A].low, found[A].high) == (2.0, 1.0, 9.0)
    assert script.ranking({B: cell(2.0), D: cell(1.0), A: cell(2.0)}) == [D, A, B]


def test_what_is_as_fast_as_the_tenth_is_measured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "TOP", 2)
    # B is the last of the top; C lies in its interval, D does not although their intervals meet.
    found = cells(1.0, 2.0, 2.1, 2.3, half=0.2)
    assert script.candidates(found) == [A, B, C]
    monkeypatch.setattr(script, "MOST_REMEASURED", 2)
    assert script.candidates(found) == [A, B]


def test_bandwidth_turns_the_interval_round() -> None:
    assert script.bandwidth(cell(4e-3, 1e-3), 12_000_000) == pytest.approx(
        {"gbs": 3.0, "low": 2.4, "high": 4.0}
    )


def test_ratio_is_ours_over_theirs_from_the_far_ends() -> None:
    # Ours takes half the time, so its bandwidth is twice theirs.
    assert script.ratio(cell(2.0, 0.5), cell(4.0, 1.0)) == pytest.approx(
        {"value": 2.0, "low": 3 / 2.5, "high": 5 / 1.5}
    )


def test_rank_correlation() -> None:
    shapes = [A, B, C, D]
    ours = cells(1.0, 2.0, 3.0, 4.0)
    assert script.spearman(ours, cells(10.0, 11.0, 90.0, 91.0), shapes) == pytest.approx(1.0)
    assert script.spearman(ours, cells(4.0, 3.0, 2.0, 1.0), shapes) == pytest.approx(-1.0)
    # One swap of neighbours: 1 - 6 * 2 / (4 * 15).
    assert script.spearman(ours, cells(2.0, 1.0, 3.0, 4.0), shapes) == pytest.approx(0.8)
    assert script.spearman(ours, cells(1.0, 1.0, 1.0, 1.0), shapes) is None


def test_only_pairs_that_both_sides_tell_apart_count() -> None:
    shapes = [A, B, C, D]
    ours = cells(1.0, 2.0, 3.0, 4.0, half=0.1)
    same = {"pairs": 6, "distinguishable": 6, "discordant": 0}
    assert script.pair_order(ours, ours, shapes) == same
    # A and B have changed places, which they tell apart; so have C and D, which they do not.
    theirs = cells(2.0, 1.0, 4.0, 3.9, half=0.1)
    found = {"pairs": 6, "distinguishable": 5, "discordant": 1}
    assert script.pair_order(ours, theirs, shapes) == found
    assert script.pair_order(theirs, ours, shapes) == found
    unsure = cells(1.0, 2.0, 3.0, 4.0, half=5.0)
    assert script.pair_order(unsure, theirs, shapes)["distinguishable"] == 0
    # Intervals that touch are not told apart.
    ours = {A: MedianInterval(1.0, 1.0, 2.0, 0.95), B: MedianInterval(3.0, 2.0, 3.0, 0.95)}
    assert script.pair_order(ours, ours, [A, B])["distinguishable"] == 0


def compared(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A case whose two tops of two shapes share B alone; A is best for us and B for them."""
    monkeypatch.setattr(script, "TOP", 2)
    first = [turn(1.0, 2.0, 3.0, 4.0)], [turn(2.5, 1.25, 2.0, 8.0)]
    second = [turn(1.0, 2.0, 3.0), turn(1.0, 2.0, 3.0)], [turn(2.5, 1.25, 2.0)] * 2
    return script.findings(4_000_000_000, first, second)


def test_findings(monkeypatch: pytest.MonkeyPatch) -> None:
    found = compared(monkeypatch)
    assert (found["shapes"], found["shapes_remeasured"]) == (4, 3)
    assert found["best"]["gpushmoo"] == {"block": [4, 4], "gbs": 4.0, "low": 4.0, "high": 4.0}
    assert found["best"]["document"]["block"] == [4, 8]
    assert found["ratio_of_best"] == {"value": 1.25, "low": 1.25, "high": 1.25} | {
        "by_turn": [1.25, 1.25]
    }
    assert [row["block"] for row in found["top"]["gpushmoo"]] == [[4, 4], [4, 8]]
    assert [row["block"] for row in found["top"]["document"]] == [[4, 8], [8, 4]]
    assert found["top_shared"] == 1
    # The union is A, B, C: A is before B and C for us, behind both for them.
    union = found["union_of_tops"]
    assert union["order"] == {"pairs": 3, "distinguishable": 3, "discordant": 2}
    assert union["difference"] == pytest.approx(0.5)  # of -0.6, 0.6 and 0.5
    assert found["all_shapes"]["order"]["pairs"] == 6
    json.dumps(found, allow_nan=False)


def case(ratio: float, discordant: int, slowed: bool) -> Mapping[str, Any]:
    return {
        "what": "texture",
        "size": 4096,
        "ratio_of_best": {"value": ratio},
        "union_of_tops": {"order": {"discordant": discordant}},
        "readings": [{"slowed": False}, {"slowed": slowed}],
    }


@pytest.mark.parametrize(
    ("told", "complaint"),
    [
        pytest.param((1.0099, 0, False), None, id="holds"),
        pytest.param((0.9901, 0, False), None, id="holds below"),
        pytest.param((1.0101, 0, False), "ratio 1.0101", id="ours faster"),
        pytest.param((0.9899, 0, False), "ratio 0.9899", id="ours slower"),
        pytest.param((1.0, 3, False), "3 distinguishable pairs", id="order"),
        pytest.param((1.0, 0, True), "slowed itself down", id="slowed"),
    ],
)
def test_complaints(told: tuple[float, int, bool], complaint: str | None) -> None:
    found = script.complaints([case(1.0, 0, False), case(*told)])
    assert [complaint in c for c in found] == [True] if complaint else found == []


def test_lines_name_both_sides_of_each_place(monkeypatch: pytest.MonkeyPatch) -> None:
    replayed, plain = {A: [1.0] * 7, B: [2.0] * 7}, {A: [1.5] * 7, B: [2.5] * 7}
    told = compared(monkeypatch) | {
        "what": "texture",
        "size": 4096,
        "wall_s": 1.0,
        "document_in_a_stream": script.in_a_stream(3 * 10**9, [replayed], plain),
    }
    text = script.lines(told)
    assert "2.0 GB/s at 4x4, +500000.00 us a launch" in text[2]
    assert " ".join(text[-2].split()) == "1 4x4 4.0 (4.0 to 4.0) 4x8 3.2 (3.2 to 3.2)"
    assert any("2 of 3 distinguishable" in line for line in text)


@pytest.mark.parametrize(("size", "launches"), [(256, 200), (4096, 10), (8192, 2), (16384, 1)])
def test_a_sample_of_the_documents_size_is_ten_launches(size: int, launches: int) -> None:
    assert script.Case("texture", size).launches == launches


def test_who_begins_takes_turns() -> None:
    told: list[tuple[str, int]] = []

    def side(who: str) -> Any:
        def take(shapes: Any, rounds: int) -> dict[tuple[int, int], list[float]]:
            told.append((who, rounds))
            return {A: [1.0 if who == "ours" else 2.0]}

        return SimpleNamespace(take=take)

    device = SimpleNamespace(reading=lambda: None)
    turns, readings = script.alternate(device, (side("ours"), side("theirs")), [A], [3, 2])
    assert told == [("theirs", 3), ("ours", 3), ("ours", 2), ("theirs", 2)]
    assert turns == ([{A: [1.0]}] * 2, [{A: [2.0]}] * 2)
    assert readings == []


def test_the_program_verifies_once_and_is_told_the_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[list[str]] = []

    def run(command: list[str], shown: str) -> str:
        told.append(command[1:])
        assert shown == " ".join(["./document_textures", *command[1:]])
        shapes = script.valid_shapes(60) if len(command) == 11 else [A]
        return "".join(f"{x},{y},1e-3\n" for x, y in shapes)

    monkeypatch.setattr(script, "run", run)
    commands: list[str] = []
    program = ROOT / "somewhere/document_textures"
    theirs = script.Theirs(program, script.Case("surface", 4096), 60, commands)
    theirs.take(script.valid_shapes(60), 1)
    theirs.take([A], 1, "stream")
    assert [" ".join(words) for words in told] == [
        "surface 4096 1 10 graph 1 verify 4 64 60",
        "surface 4096 1 10 stream 2 trust 4x4",
    ]
    assert len(commands) == 2
    assert "somewhere" not in "".join(commands)


# The peer's machine code

SOURCE = (ROOT / "tests/gpu/document_textures.cu").read_text()
FETCH = Access("load", "texture", 4, in_loop=True, before_test_of=0)


def faults(source: str, entry: str, access: Access) -> list[str]:
    cubin = compile_cubin(source, "document_textures", ("-std=c++17",), "sm_90").code
    return complaints(parse(listing(cubin))[entry], [access])


def test_the_peer_fetches_before_it_asks_for_the_sums_place_and_writes_in_its_loop() -> None:
    assert faults(SOURCE, "TexSums", FETCH) == []
    assert faults(SOURCE, "Surf2dMemset", Access("store", "surface", 4, in_loop=True)) == []
    # A peer that leaves early would be found.
    early = SOURCE.replace("float sum = 0.0f;", "float sum = 0.0f; if (!out) return;")
    assert early != SOURCE
    assert len(faults(early, "TexSums", FETCH)) == 1

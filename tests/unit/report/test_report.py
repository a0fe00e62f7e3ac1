"""The report: strings from data are text, a failed fit is said, same data, same bytes."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pypdfium2
import pytest
from energetic import energy_row, write_energy
from gpushmoo.analysis.peak import PeakRow, peak_rows
from gpushmoo.comparing.run_history import history_of
from gpushmoo.core.display import length, number, percent, seconds, significant, size_bytes
from gpushmoo.core.schema import Status
from gpushmoo.core.space import CACHE_STATES, Problem
from gpushmoo.registry import extra_folders
from gpushmoo.report.tables import NAMED_TIES
from gpushmoo.storage.store import read_shard
from histories import made
from hypothesis import given
from hypothesis import strategies as st
from rendering import HOSTILE, PEAKS, Rendered, render
from synthetic import GPU, other_device, write_shard

SHAPES = {"block_x": [8, 16, 64], "block_y": [4, 32]}
COUNTS = {"num_partition": [*range(1, 33), *range(66, 1057, 66), 529]}
PEAK_AXES = {"block_x": [128, 1024], "unroll": [1], "passes": [4]}
ENERGY = [
    energy_row("block_x=64 block_y=4", 2500.0, [0.1980, 0.1982, 0.1981]),
    energy_row("block_x=48 block_y=4", 2400.0, [0.1900, 0.1901, 0.1899]),
]
PEAK_SIZES = [Problem(2**i, 2**i) for i in range(9, 15)]

# Whether this gpushmoo has the extras that show earlier runs and energy.
HISTORY, ENERGY_SHOWN = (name in extra_folders() for name in ("history", "studies"))


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One warm float shard of two kernels, free to be changed."""
    folder = tmp_path_factory.mktemp("shards")
    write_shard(folder / "1.parquet", "copy2d_coalesced", "float", axes=SHAPES)
    write_shard(folder / "2.parquet", "block_eq_partition", "float", axes=COUNTS)
    return folder


@pytest.fixture(scope="module")
def full_shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both cache states, the kernels of the measured peak, two devices of one name."""
    folder = tmp_path_factory.mktemp("full")
    both, states = [Problem(1024, 1024), Problem(8192, 8192)], CACHE_STATES
    for kernel, axes in ("copy2d_coalesced", SHAPES), ("block_eq_partition", COUNTS):
        for dtype, info in ("float", GPU), ("double", other_device(1)):
            path = folder / f"{kernel}-{dtype}.parquet"
            write_shard(path, kernel, dtype, problems=both, states=states, axes=axes, info=info)
    for kernel in PEAKS:
        path = folder / f"{kernel}.parquet"
        write_shard(path, kernel, "float4", problems=PEAK_SIZES, states=states, axes=PEAK_AXES)
    return folder


@pytest.fixture(scope="module")
def plain(shards: Path, tmp_path_factory: pytest.TempPathFactory) -> Rendered:
    return render(shards, tmp_path_factory.mktemp("plain"))


@pytest.fixture(scope="module")
def full(full_shards: Path, tmp_path_factory: pytest.TempPathFactory) -> Rendered:
    """With a table of energy, a history and clocks that moved."""
    folder = tmp_path_factory.mktemp("rendered")

    def slow_down(_: pd.DataFrame, metadata: dict[str, Any]) -> None:
        state = {"temperature_c": 60, "power_w": 500.0, "memory_clock_mhz": 3201, "reasons": []}
        metadata["readings"] = [{"at_s": 0.0, "sm_clock_mhz": c, **state} for c in (1410, 1980)]

    energy = write_energy(folder / "energy.parquet", ENERGY)
    history = history_of(made(slower=0.05)).save(folder / "history")
    return render(
        full_shards,
        folder,
        slow_down,
        energy if ENERGY_SHOWN else None,
        history if HISTORY else None,
    )


@pytest.fixture(scope="module")
def changed(full_shards: Path, tmp_path_factory: pytest.TempPathFactory) -> Rendered:
    """Little of which is right: names, fits, results, intervals and measured peaks."""
    names = ("bandwidth_gbs", "bandwidth_low_gbs", "bandwidth_high_gbs")

    def change(cells: pd.DataFrame, metadata: dict[str, Any]) -> None:
        metadata["device"]["name"] = cells["device_name"] = HOSTILE
        metadata["host"]["system"] = HOSTILE
        if "num_partition" in cells.columns:
            cells.loc[cells["num_partition"] > 3, "status"] = Status.TIMEOUT.value
        first, *_ = cells.index[cells["status"] == Status.OK]
        cells.loc[first, ["status", "message"]] = [Status.LAUNCH_FAILED.value, HOSTILE]
        fastest = cells["median_s"].where(cells["status"] == Status.OK).idxmin()
        wrong = [Status.WRONG_RESULT.value, "7 of 9 words differ"]
        cells.loc[fastest, ["status", "message"]] = wrong
        widest = cells.loc[cells["status"] == Status.OK, "sample_half_width"].nlargest(3)
        metadata["params"]["measure"]["relative_half_width"] = float(widest.iloc[1:].mean())

    def tenth(cells: pd.DataFrame, kinds: dict[str, str]) -> list[PeakRow]:
        rows = peak_rows(cells, kinds)
        return [replace(r, **{name: getattr(r, name) / 10 for name in names}) for r in rows]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rendering.peak_rows", tenth)
        return render(full_shards, tmp_path_factory.mktemp("changed"), change)


def test_the_report_shows_what_was_measured(plain: Rendered, shards: Path, tmp_path: Path) -> None:
    assert "NVIDIA H200" in plain.text
    assert dict(plain.facts["device"])["Identity"] == "GPU-0", "the number is left out"
    cells = read_shard(shards / "1.parquet")[0].to_pandas()
    assert significant(cells["bandwidth_gbs"].max()) in plain.text
    assert "too_many_threads" in plain.text
    [row] = [r for r in plain.facts["sureness"] if r["kernel"] == "copy2d_coalesced"]
    limits = int((cells["status"] == Status.TOO_MANY_THREADS).sum())
    assert row["limits"] == str(limits) != "0"
    assert f"{limits} too_many_threads" in plain.text
    assert render(shards, tmp_path).pdf == plain.pdf


def test_what_went_wrong_is_said_and_strings_are_text(changed: Rendered) -> None:
    # Two of each of seven shards.
    assert "In 14 of the " in changed.text
    assert "measure.max_samples" in changed.text
    assert "measure.budget" not in changed.text
    shown = changed.text.replace("“", '"').replace("”", '"')
    # Once as the device, once as the host, once for each kernel's fault.
    assert shown.count('#panic("x") *bold* <b>&amp; $1/0$ @ref // \\ "quoted" `raw`') >= 3
    assert "points are too few" in changed.text
    assert "timeout" in changed.text
    assert all(f["why"] for f in changed.facts["partitions"])
    assert "7 cells computed wrong results" in changed.text
    assert "7 of 9 words differ" in changed.text


def test_the_first_page_has_a_row_for_each_type(full: Rendered, changed: Rendered) -> None:
    for report in (full, changed):
        first, second, *_ = report.pages
        assert "The machine. " in first
        assert report.facts["machine"][-1].split()[-1] in first
        assert "Peak bandwidth" in first + second
        assert report.facts["findings"][0]["sentence"][:20] not in second
    page = full.facts["first_page"]
    shown = [(k["name"], [r["dtype"] for r in k["rows"]]) for k in page["kernels"]]
    both = ["double", "float"]
    assert shown == [
        ("block_eq_partition", both),
        ("copy2d_coalesced", both),
        *((kernel, ["float4"]) for kernel in PEAKS),
    ]
    [rows] = [k["rows"] for k in page["kernels"] if k["name"] == "copy2d_coalesced"]
    assert {(r["place"], r["size"]) for r in rows} == {("memory", "8192²")}
    assert all(r["share"].endswith(" %") for r in rows)
    assert all(r["in_cache"]["text"] != "—" for r in rows)
    large = [row for kernel in page["kernels"] for row in kernel["rows"] if row["rank"] is not None]
    assert sorted(row["rank"] for row in large) == [0, 1, 2, 3, 4]
    # The explorer opens on the same group.
    [top] = [(k["name"], r) for k in page["kernels"] for r in k["rows"] if r["rank"] == 0]
    first = page["first"]
    assert (first["kernel"], first["dtype"]) == (top[0], top[1]["dtype"])
    assert (first["variant"], first["height"]) == (top[1]["variant"], 8192)
    # The figure that shows it is in the same report.
    files = {f["file"] for f in full.facts["heatmaps"] + full.facts["curves"]}
    assert {f["figure"] for f in full.facts["findings"]} & files


def headings(report: Rendered) -> list[tuple[int, str, int]]:
    """Level from 0, title and page index of each heading."""
    found = pypdfium2.PdfDocument(report.pdf).get_toc()
    return [(h.level, h.get_title(), h.get_dest().get_index()) for h in found]


def test_this_machine_comes_first_and_each_document_in_an_appendix(full: Rendered) -> None:
    top = [(title, page) for level, title, page in headings(full) if level == 0]
    titles = [title for title, _ in top]
    first = next(i for i, title in enumerate(titles) if title.startswith("Appendix"))
    # The section on quality comes last of this machine's pages.
    assert "Measurement quality" in titles[first - 1]
    chapters = full.facts["chapters"]
    assert titles[first:] == [f"Appendix A: {chapters[0]['title']}"]
    assert len(chapters) == 1
    for title, page in top[first:]:
        assert full.pages[page].startswith(title), "an appendix begins on a new page"
        assert not any(other == page for name, other in top if name != title)
    contents = full.pages[0] + full.pages[1]
    assert all(title.split(":")[0] in contents for title in titles)


def test_an_appendix_begins_with_its_document_its_question_and_what_is_compared(
    full: Rendered,
) -> None:
    (chapter,) = full.facts["chapters"]
    document, question, compared = chapter["introduction"]
    assert "Tesla C1060" in document
    assert question.startswith("It asks")
    assert "compare" in compared
    at = full.text.index
    assert at("Appendix A:") < at(document[:30]) < at(question[:30]) < at(compared[:30])
    assert at(compared[:30]) < at("Slips in the document")


def test_all_on_how_certain_figures_are_is_in_one_section(changed: Rendered) -> None:
    marks = headings(changed)
    begins = next(page for _, title, page in marks if "Measurement quality" in title)
    ends = next(page for _, title, page in marks if title.startswith("Appendix"))
    section = " ".join(changed.pages[begins:ends])
    before = " ".join(changed.pages[1:begins])
    for said in ("poisoned", "tied with the best", "too_many_threads"):
        assert said in section
        assert said not in before


def test_clocks_energy_history_and_ties_are_shown(full: Rendered) -> None:
    assert "were not locked and moved: its core ran at 1,410 to 1,980 MHz" in full.text
    assert "not locked" in full.facts["clock_warning"]
    of_energy = ("Energy of launches on", "Bandwidth and energy of launches: NVIDIA H200")
    for said in (*of_energy, "it took 120 W before", "198.1"):
        assert (said in full.text) == ENERGY_SHOWN
    assert ("History of 8 runs: r1 to r8, 2026-01-01 to 2026-01-08" in full.text) == HISTORY
    assert ("bests in the first and in the last run." in full.text) == HISTORY
    assert ("Each group's best over 8 runs" in full.text) == HISTORY
    for row in full.facts["best"]:
        named = row["tied_with"].removesuffix(",\u00a0…").split(", ")
        tied = int(row["tied"].split(" of ")[0])
        assert len([n for n in named if n]) == min(tied - 1, NAMED_TIES)
        assert row["tied_with"].endswith("…") == (tied - 1 > NAMED_TIES)


def test_display_strings() -> None:
    assert significant(3164.47) == "3164"
    assert significant(0.012345) == "0.0123"
    assert [significant(v) for v in (9.996, 99.96, 0.9996, -9.996, 999.6)] == [
        "10.0",
        "100",
        "1.00",
        "-10.0",
        "1000",
    ]
    assert [percent(v) for v in (0.0123, 0.0999, 0.00996)] == ["1.2 %", "10 %", "1.0 %"]
    assert [seconds(v) for v in (2.0, 1.5e-3, 4.41e-7, 4e-15)] == [
        "2.00 s",
        "1.50 ms",
        "441 ns",
        "0 s",
    ]
    assert [seconds(v) for v in (0.9994, 0.9996, 9.996e-4, 9.996e-7, 9.996)] == [
        "999 ms",
        "1.00 s",
        "1.00 ms",
        "1.00 µs",
        "10.0 s",
    ]
    assert number(3e-14) == "0"
    assert [size_bytes(n) for n in (1023, 1024, 62914560)] == ["1023 B", "1.00 KiB", "60.0 MiB"]
    assert [size_bytes(n) for n in (1023.4, 1023.6, 1024**2 - 1)] == [
        "1023 B",
        "1.00 KiB",
        "1.00 MiB",
    ]
    assert [length(n) for n in (0, 1, 3, 4, 2**27)] == ["0", "2⁰", "3", "2²", "2²⁷"]


@given(st.floats(1e-9, 1e12), st.integers(2, 5))
def test_a_number_has_its_significant_digits_and_no_more(value: float, digits: int) -> None:
    text = significant(value, digits)
    assert float(text) == pytest.approx(value, rel=10.0 ** (1 - digits))
    shown = len(text.replace(".", "").lstrip("0"))
    assert shown == digits or (shown > digits and "." not in text)

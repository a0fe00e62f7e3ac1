"""What the sweeps of dot products say, from cells that are made up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from conftest import ROOT, record
from gpushmoo.analysis.aggregate import aggregate
from gpushmoo.report.chapter_pages import Measured, Page
from gpushmoo.report.tables import Json
from gpushmoo.storage.dataset import read_cells
from gpushmoo.storage.store import read_table
from streamed_dot.analysis import (
    FASTEST_HOST,
    HOST,
    LIBRARY,
    RESIDENT,
    SQUARE,
    STREAMED,
    copied_gbs,
    fastest,
    plot_series,
    residents,
)
from streamed_dot.figure_studies import rivals
from streamed_dot.pages import dots_page, page
from streamed_dot.rivals import RIVALS_SCHEMA

LENGTHS = (64, 256, 1024, 4096)
VARIANTS = {HOST: "blas-all", LIBRARY: "library", RESIDENT: "packs"}


def cell(kernel: str, n: int, seconds: float, **other: Any) -> dict[str, Any]:
    rate = 16e-9 * n / seconds
    found = {
        "kernel": kernel,
        "dtype": "double",
        "variant": VARIANTS.get(kernel, "pinned-pooled"),
        "width": n,
        "status": "ok",
        "median_s": seconds,
        "bandwidth_gbs": rate,
        "bandwidth_low_gbs": 0.9 * rate,
        "bandwidth_high_gbs": 1.1 * rate,
        "copy_gbs": 12.5,
        "streams": 1,
        "min_per_stream": 4096,
        "blocks_per_stream": 32,
        "threads": 256,
        "chunk": 0,
        "host_percent": 0,
        **other,
    }
    return {**found, "cell_key": str(sorted((k, str(v)) for k, v in found.items()))}


def table(*cells: dict[str, Any]) -> pd.DataFrame:
    return pd.DataFrame(cells)


def resident(n: int, seconds: float, **other: Any) -> dict[str, Any]:
    return cell(RESIDENT, n, seconds, **{"threads": 256, "grid": 132, "unroll": 4, **other})


def test_of_data_on_the_device_the_fastest_launch_stands_for_each_length() -> None:
    cells = table(
        resident(1024, 3.0, grid=1),
        resident(1024, 2.0, grid=264, unroll=8),
        resident(64, 1.0, threads=512),
        resident(64, 0.1, status="wrong_result"),
        resident(64, 5.0, dtype="float"),
        cell(LIBRARY, 1024, 4.0),
    )
    short, long, single = residents(cells)
    assert (single.dtype, single.n, single.library_gbs) == ("float", 64, None)
    assert (short.n, short.threads, short.gbs) == (64, 512, pytest.approx(16e-9 * 64))
    # The library was not measured at this length.
    assert short.library_gbs is None
    assert (long.n, long.threads, long.grid, long.unroll) == (1024, 256, 264, 8)
    assert long.library_gbs == pytest.approx(long.gbs / 2)
    assert long.low_gbs < long.gbs < long.high_gbs
    # Nor is a library compared with that failed, or that is alone.
    failed = cell(LIBRARY, 64, 0.5, status="launch_failed")
    assert [r.library_gbs for r in residents(table(resident(64, 1.0), failed))] == [None]
    assert residents(table(cell(LIBRARY, 64, 1.0), cell(STREAMED, 64, 1.0))) == []


def test_of_each_length_the_fastest_stands_in_the_plots() -> None:
    cells = table(
        cell(STREAMED, 64, 3e-3, streams=1),
        cell(STREAMED, 64, 2e-3, streams=4),
        cell(STREAMED, 64, 1e-3, host_percent=100),
        cell(STREAMED, 64, 1e-3, variant="pageable-pooled"),
        # Shorter than what was published.
        cell(STREAMED, 63, 1e-3),
        cell(STREAMED, 0, 1e-3),
        cell(HOST, 32, 1e-3),
        cell(SQUARE, 64, 1e-3),
        cell(HOST, 64, 5e-3),
        cell(HOST, 64, 4e-3, variant="naive"),
        cell(HOST, 128, 6e-3),
        cell(HOST, 128, 7e-3, variant="naive"),
    )
    found = plot_series(cells, "ms")
    host, ours = f"{FASTEST_HOST} (double)", "ours, pooled (double)"
    assert list(found.itertuples(index=False, name=None)) == [
        (ours, 64, 2.0),
        (host, 64, 4.0),
        (host, 128, 6.0),
    ]
    # Beside throughput over a link the host's own stands for nothing.
    rates = plot_series(cells, "GB/s")
    assert list(rates["series"]) == [ours]
    assert list(rates["value"]) == pytest.approx([16 * 64e-9 / 2e-3])


def test_beside_the_published_squares_stand_squares_alone() -> None:
    cells = table(
        cell(SQUARE, 64, 3e-3),
        cell(SQUARE, 64, 2e-3, streams=4),
        cell(SQUARE, 64, 1e-3, host_percent=50),
        cell(SQUARE, 64, 5e-3, variant="published", dtype="float", streams=64),
        cell(STREAMED, 64, 1e-3),
        cell(HOST, 64, 1e-3),
    )
    found = plot_series(cells, "ms", square=True)
    assert list(found.itertuples(index=False, name=None)) == [
        ("ours, as published (square) (float)", 64, 5.0),
        ("ours, pooled (square) (double)", 64, 2.0),
    ]
    assert plot_series(cells.iloc[4:], "ms", square=True).empty


def test_inputs_were_copied_at_the_highest_rate_beside_a_streamed_kernel() -> None:
    cells = table(
        cell(STREAMED, 64, 1.0, copy_gbs=12.0),
        cell(STREAMED, 128, 1.0, copy_gbs=None),
        cell(SQUARE, 128, 1.0, copy_gbs=13.0),
        # Within the device's memory.
        resident(128, 1.0, copy_gbs=3000.0),
    )
    assert copied_gbs(cells) == 13.0
    assert copied_gbs(cells[cells["kernel"] == RESIDENT]) is None
    assert page_of(cells[cells["copy_gbs"].isna()])["link"] == "an unknown rate"


def test_of_equal_cells_always_the_same_is_taken() -> None:
    cells = table(*(cell(STREAMED, 64, 1.0, streams=s) for s in (4, 1, 2)))
    assert list(fastest(cells)["streams"]) == list(fastest(cells[::-1])["streams"])


SLIPS = [{"slip": "a", "published": "b", "corrected": "c", "why": "d"}]


def page_of(*tables: pd.DataFrame) -> Json:
    return dots_page(pd.concat(tables), SLIPS)


def test_the_page_has_the_links_rate_and_the_slips() -> None:
    page = page_of(table(*(cell(STREAMED, n, 1.0) for n in LENGTHS)))
    assert (page["link"], page["slips"], page["findings"]) == ("12.5 GB/s", SLIPS, [])


def test_as_published_is_with_the_documents_streams_alone() -> None:
    cells = table(
        cell(STREAMED, 64, 1.0, variant="published", streams=1),
        cell(STREAMED, 64, 2.0, variant="published", streams=64),
    )
    assert list(fastest(cells)["streams"]) == [64]


def test_the_page_holds_what_is_on_the_device_against_the_library() -> None:
    streamed = cell(STREAMED, 64, 1.0)
    alone = page_of(table(streamed, resident(64, 64e-9), resident(128, 64e-9)))
    assert [(r["n"], r["library"], r["ratio"]) for r in alone["residents"]] == [
        ("64", "not measured", ""),
        ("128", "not measured", ""),
    ]
    assert alone["findings"] == ["Dot product of data on the device, double, n = 128: 32.0 GB/s."]
    both = page_of(table(streamed, resident(64, 64e-9), cell(LIBRARY, 64, 128e-9)))
    (row,) = both["residents"]
    assert row["launch"] == "132 × 256, 4 packs"
    assert (row["gbs"], row["library"]) == ("16.0 GB/s [14.4, 17.6]", "8.00 GB/s")
    (finding,) = both["findings"]
    assert finding.endswith("n = 64: 16.0 GB/s, 2.00 x cuBLAS.")


def test_the_record_of_an_h200_makes_a_whole_page(tmp_path: Path) -> None:
    folder = record("nvidia-h200")
    aggregate(sorted(folder.glob("dot_*/*/*.parquet")), tmp_path / "dataset")
    studies = ROOT / "reports/reference/nvidia-h200-studies"
    rows = read_table(studies / "rivals.parquet", RIVALS_SCHEMA).to_pandas()
    rivals(rows, tmp_path / "rivals-dot.svg")
    note = json.loads((tmp_path / "rivals-dot.json").read_text())
    measured = Measured(
        read_cells(tmp_path / "dataset"),
        [],
        [],
        {},
        ROOT / "reports/chapters/streamed_dot",
        {},
        {"rivals-dot.svg": note},
    )
    found = page(measured)
    assert found.facts is not None
    # Of x·y and both types: the printed loop, a share, lengths between; and what is resident.
    assert len(found.findings) == 3 * 2 + 2
    assert {len(r["cells"]) for r in found.facts["changes"]["rows"]} == {
        len(found.facts["changes"]["columns"])
    }
    assert "not measured" not in {r["library"] for r in found.facts["residents"]}
    assert not any("as the document says" in finding for finding in found.findings)


def test_without_streamed_cells_there_is_no_page() -> None:
    cells = table(cell(HOST, 64, 1.0), resident(64, 1.0))
    measured = Measured(cells, [], [], {}, ROOT / "reports/chapters/streamed_dot", {}, {})
    assert page(measured) == Page(None)

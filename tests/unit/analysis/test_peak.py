"""The measured peak: the best load and store, and what a cell that does both can reach."""

import zlib
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from cells import cell
from gpushmoo.analysis.best import best_table
from gpushmoo.analysis.peak import (
    PeakRow,
    displayed_share,
    peak_gbs,
    peak_rows,
    read_peak,
    share_of_peak,
    write_peak,
)
from gpushmoo.core.space import USUAL, Condition

MIB = 2**20
FLUSHED = Condition("flushed")
KINDS = {"global_load": "load", "global_store": "store"}


def row(kind: str, size: int, bandwidth: float, state: str = "warm") -> PeakRow:
    return PeakRow(
        device_name="GPU",
        cache_state=state,
        timing_mode=USUAL[1],
        kind=kind,
        bytes_touched=size,
        working_set_over_cache=None,
        bandwidth_gbs=bandwidth,
        bandwidth_low_gbs=0.99 * bandwidth,
        bandwidth_high_gbs=1.01 * bandwidth,
        kernel=f"peak_{kind}",
        dtype="float",
        variant="v",
        params="x=1",
    )


ROWS = [
    row("load", 16 * MIB, 6000.0),
    row("load", 1024 * MIB, 4000.0),
    row("store", 16 * MIB, 3000.0),
    row("store", 1024 * MIB, 2000.0),
    row("load", 16 * MIB, 1000.0, "flushed"),
]


def test_times_add_up_and_what_is_lacking_gives_no_peak() -> None:
    # 8 MiB at 6000 and 8 MiB at 3000 GB/s: 2 / (1/6000 + 1/3000).
    assert peak_gbs(ROWS, "GPU", USUAL, 8 * MIB, 8 * MIB) == pytest.approx(4000.0)
    # Three quarters read: 4 / (3/6000 + 1/3000).
    assert peak_gbs(ROWS, "GPU", USUAL, 12 * MIB, 4 * MIB) == pytest.approx(4800.0)
    loads = [r for r in ROWS if r.kind == "load"]
    assert peak_gbs(loads, "GPU", USUAL, 16 * MIB, 0) == 6000.0
    assert peak_gbs(loads, "GPU", USUAL, 8 * MIB, 8 * MIB) is None
    assert peak_gbs(ROWS, "GPU", FLUSHED, 8 * MIB, 8 * MIB) is None
    assert peak_gbs(ROWS, "GPU", FLUSHED, 8 * MIB, 0) == 1000.0
    assert peak_gbs(ROWS, "another", USUAL, 8 * MIB, 8 * MIB) is None
    assert peak_gbs([], "GPU", USUAL, 8 * MIB, 8 * MIB) is None
    assert peak_gbs(ROWS, "GPU", USUAL, 0, 0) is None
    assert displayed_share([], measured(1.0)) is None
    assert displayed_share(ROWS, measured(1.0, read=0, written=0)) is None


def measured(gbs: float, half: float = 0.0, read: int = 8 * MIB, written: int = 8 * MIB) -> Any:
    """A row of the dataset, its bandwidth known to `half` of it to both sides."""
    return cell(half=half, gbs=gbs, device_name="GPU", bytes_read=read, bytes_written=written)


@pytest.mark.parametrize(
    ("gbs", "half", "share", "text"),
    [
        (2000.0, 0.01, 0.5, "50 %"),
        (4000.0, 0.0, 1.0, "100 %"),
        # The measured peak of 4000 GB/s is known to 1 %: it may be 4040.
        (4030.0, 0.0, 1.0, "100 %"),
        (4100.0, 0.02, 1.0, "100 %"),
        (4100.0, 0.01, None, "—"),
        (8000.0, 0.1, None, "—"),
    ],
)
def test_shares_of_a_bound(gbs: float, half: float, share: float | None, text: str) -> None:
    told = displayed_share(ROWS, measured(gbs, half))
    assert told is not None
    assert told.share == (None if share is None else pytest.approx(share))
    assert told.text == text
    bound = "above the measured peak, which does not limit overlapping loads and stores"
    assert told.words == (bound if share is None else f"{text} of the measured peak")
    # The data keep what was found.
    assert share_of_peak(ROWS, measured(gbs, half)) == pytest.approx(gbs / 4000.0)


def moved(kernel: str, mib: int, **columns: Any) -> dict[str, Any]:
    """A cell that touches so many MiB; its bandwidth depends on kernel, type, state and block."""
    read = {"global_load": mib, "global_store": 0, "global_copy": mib // 2}[kernel] * MIB
    name = f"{kernel} {sorted(columns.items())} {mib}"
    gbs = 1000.0 + zlib.crc32(name.encode()) % 1000
    bytes_moved = {"bytes_read": read, "bytes_written": mib * MIB - read}
    return cell(gbs=gbs, kernel=kernel, height=mib, threads_per_block=128, **bytes_moved, **columns)


CELLS = pd.DataFrame(
    moved(kernel, size * mib, dtype=dtype, cache_state=state, block_x=x)
    for kernel in (*KINDS, "global_copy")
    for dtype, size in (("float", 1), ("double", 2))
    for state in ("warm", "flushed")
    for mib in (4, 8)
    for x in (128, 256)
)


def test_rows_are_the_best_over_dtypes_variants_and_launches() -> None:
    rows = peak_rows(CELLS, KINDS)
    # 4, 8 and 16 MiB: the middle one is touched by either dtype.
    keys = [(r.cache_state, r.kind, r.bytes_touched // MIB) for r in rows]
    assert keys == [
        (s, k, n) for s in ("flushed", "warm") for k in ("load", "store") for n in (4, 8, 16)
    ]
    for r in rows:
        touched = CELLS["bytes_read"] + CELLS["bytes_written"] == r.bytes_touched
        mine = CELLS[touched & (CELLS["kernel"] == r.kernel)]
        mine = mine[mine["cache_state"] == r.cache_state]
        assert r.bandwidth_gbs == mine["bandwidth_gbs"].max()
        assert r.bandwidth_low_gbs <= r.bandwidth_gbs <= r.bandwidth_high_gbs
        assert r.params.startswith("block_x=")
        # The device does not tell its cache's size.
        assert r.working_set_over_cache is None


def test_unverified_cells_are_no_peak_and_what_is_written_is_read(tmp_path: Path) -> None:
    changed, fast = CELLS.copy(), CELLS["kernel"] == "global_load"
    top = changed.loc[fast, "bandwidth_gbs"].idxmax()
    changed.loc[top, "status"] = "wrong_result"
    before, after = (
        max(r.bandwidth_gbs for r in peak_rows(c, KINDS) if r.kind == "load")
        for c in (CELLS, changed)
    )
    assert after < before
    changed.loc[fast, "status"] = "timeout"
    assert {r.kind for r in peak_rows(changed, KINDS)} == {"store"}
    assert peak_rows(CELLS, {}) == peak_rows(CELLS, {"absent": "load"}) == []
    for rows in ([], peak_rows(CELLS, KINDS)):
        write_peak(rows, tmp_path / "deep" / "peak.json")
        assert read_peak(tmp_path / "deep" / "peak.json") == rows


def test_the_best_table_has_the_share_of_each_cell() -> None:
    rows, by_key = peak_rows(CELLS, KINDS), CELLS.set_index("cell_key")
    best = best_table(CELLS, rows).to_pandas()
    for _, b in best.iterrows():
        expected = share_of_peak(rows, by_key.loc[b["cell_key"]])
        assert b["share_of_peak"] == pytest.approx(expected)
    assert best_table(CELLS).to_pandas()["share_of_peak"].isna().all()
    fed = best_table(CELLS, rows, host_fed=["global_copy"]).to_pandas()
    assert (fed["share_of_peak"].isna() == (fed["kernel"] == "global_copy")).all()

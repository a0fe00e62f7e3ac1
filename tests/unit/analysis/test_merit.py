"""The figure of merit of cells, peaks of work, and the roofline."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from cells import cell
from gpushmoo.analysis.fastest import fastest, occupancy_steps
from gpushmoo.analysis.peak import (
    PeakRow,
    peak_rows,
    read_peak,
    read_work_peaks,
    work_peaks,
    write_peak,
)
from gpushmoo.core.metric import BANDWIDTH, SEVERAL, TIME, heading_of, interval, metric_of
from gpushmoo.storage.wholefile import read_json
from gpushmoo.workloads.views import FigureData, Roofline

NONE = {"bytes_read": 0, "bytes_written": 0}
BANDS = dict.fromkeys(("bandwidth_gbs", "bandwidth_low_gbs", "bandwidth_high_gbs"))


def silent(seconds: float, **columns: Any) -> dict[str, Any]:
    """A cell of a kernel that declares no bytes."""
    return cell(seconds, **NONE, **columns) | BANDS


def worked(work: float, **columns: Any) -> dict[str, Any]:
    return {"work": work, "work_unit": "FLOP", **columns}


def test_bytes_come_before_work_and_both_before_the_time() -> None:
    told = cell(1e-3, **worked(1e9))
    rated, timed = silent(1e-3, **worked(1e9)), silent(1e-3)
    assert metric_of(told) == metric_of(pd.DataFrame([told, told])) == BANDWIDTH
    assert metric_of(rated).unit == metric_of(pd.DataFrame([rated])).unit == "GFLOP/s"
    assert metric_of(timed) == TIME
    # All of a frame, or none; a cell that did not end as ok does not count.
    assert metric_of(pd.DataFrame([told, timed])) == TIME
    failed = timed | {"median_s": None}
    assert metric_of(pd.DataFrame([told, failed])) == BANDWIDTH
    other = rated | {"work_unit": "elements"}
    assert metric_of(pd.DataFrame([rated, other])) == TIME
    assert interval(rated) == "1000 GFLOP/s (999 to 1001)"
    assert interval(timed) == "1000 µs (999 to 1001)"
    assert interval(timed, "µs") == "1000 (999 to 1001)"
    assert heading_of([timed, timed]) == "µs"
    assert heading_of([timed, rated]) == SEVERAL
    assert heading_of([]) == "GB/s"


def test_the_fastest_is_so_by_its_time_however_many_bytes_others_declare() -> None:
    cells = pd.DataFrame(
        [silent(3.0, block_x=1), silent(1.0, block_x=2), cell(2.0, block_x=4, bytes_read=2**40)]
    )
    assert fastest(cells, ["kernel"])["block_x"].tolist() == [2]


def test_a_step_of_a_kernel_without_bytes_is_one_of_its_time() -> None:
    facts = {"multiprocessors": 4, "resident_blocks": 2}
    cells = pd.DataFrame([silent(s, blocks=n, **facts) for n, s in ((7, 1.1), (8, 1.0), (9, 2.0))])
    (step,) = occupancy_steps(cells)
    assert (step.blocks, step.lost.value) == (8, pytest.approx(0.5))


@pytest.fixture
def peaks(tmp_path: Path) -> tuple[list[PeakRow], Path]:
    cells = pd.DataFrame(
        [
            cell(gbs=100.0, kernel="load", block_x=32, bytes_written=0),
            cell(gbs=50.0, kernel="store", block_x=32, bytes_read=0, bytes_written=2**22),
            cell(1e-3, kernel="issue", block_x=64, **worked(2e9)),
            cell(1e-3, kernel="issue", block_x=32, **worked(1e9)),
        ]
    )
    rows = peak_rows(cells, {"load": "load", "store": "store"})
    write_peak(rows, tmp_path / "peak.json", work_peaks(cells[cells["kernel"] == "issue"]))
    return rows, tmp_path / "peak.json"


def test_the_peak_of_work_is_the_highest_rate(peaks: tuple[list[PeakRow], Path]) -> None:
    rows, file = peaks
    assert read_peak(file) == rows
    (peak,) = read_work_peaks(file)
    assert (peak.rate, peak.params, peak.work_unit) == (pytest.approx(2000.0), "block_x=64", "FLOP")


def drawn(cells: pd.DataFrame, file: Path | None, svg: Path) -> str:
    peak, of_work = (read_peak(file), read_work_peaks(file)) if file else ([], [])
    data = FigureData("mine", ("float",), (), (), cells, peak, work_peaks=of_work)
    Roofline().draw(data, svg)
    return str(read_json(svg.with_suffix(".json"))["caption"])


def test_a_roofline_says_what_binds(peaks: tuple[list[PeakRow], Path], tmp_path: Path) -> None:
    svg = tmp_path / "roof.svg"
    by_bytes = cell(gbs=60.0, kernel="mine", block_x=32, backend="cuda")
    moved = by_bytes["bytes_read"] + by_bytes["bytes_written"]
    few = pd.DataFrame([by_bytes | worked(0.5 * moved)])
    said = "float: 30.0 GFLOP/s at 0.500 FLOP a byte"
    assert drawn(few, peaks[1], svg) == f"{said}, 90 % of the measured peak."
    many = pd.DataFrame([by_bytes | worked(100.0 * moved)])
    # 100 FLOP of each byte are 6,667 GFLOP/s by bytes, of which the device does 2,000.
    assert "300 % of the measured peak of work" in drawn(many, peaks[1], svg)
    bare = drawn(few, None, svg)
    assert bare == (
        f"{said}. Not measured in this run, and not drawn: the peak of bytes (kernels global_load "
        "and global_store) and the peak of work (kernel issue)."
    )
    silence = "No cells tell both their bytes and their work in one unit."
    assert (
        drawn(pd.DataFrame([silent(1.0, backend="cuda", **worked(1.0))]), peaks[1], svg) == silence
    )
    assert drawn(pd.DataFrame([by_bytes]), peaks[1], svg) == silence

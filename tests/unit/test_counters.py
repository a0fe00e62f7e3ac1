"""Hardware counters without a device: the sample, and what becomes of what a profiler writes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from gpushmoo import __version__
from gpushmoo.core.backends import BACKENDS
from gpushmoo.core.paths import KERNELS
from gpushmoo.core.schema import METADATA_KEY
from gpushmoo.core.space import Cell, ChosenCell, Problem, from_plain
from gpushmoo.devices.select import DeviceChoice, open_device
from gpushmoo.storage.wholefile import write_json
from gpushmoo.studies import counters, ncu
from gpushmoo.studies.counters import REPLAY, CounterStudy, launch_cells
from gpushmoo.studies.sample import FLUSHED, GROUPS, designed_sample, explained_cells
from gpushmoo.workloads.loader import load_kernel

MADE_UP = """==PROF== Connected to process 7 (/usr/bin/python3.12)
==PROF== Profiling "copy_element" - 0: 0%....50%....100% - 3 passes
"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size",\
"Grid Size","Device","CC","dram__bytes_read.sum","gpu__time_duration.sum","lts__t_sectors.sum"
"","","","","","","","","","","","Mbyte","usecond","sector"
"0","7","python3.12","127.0.0.1","copy_element","1","7","(32, 8, 1)","(256, 1024, 1)","0","9.0",\
"268.5","1,234.5","16,777,216"
"1","7","python3.12","127.0.0.1","copy_element(float *)","1","7","(64, 4, 1)","(128, 2048, 1)",\
"0","9.0","n/a","nan",""
==PROF== Disconnected from process 7
"""
METRICS = {"read": "dram__bytes_read.sum", "time": "gpu__time_duration.sum", "new": "lts__new.sum"}
LAUNCHED = [
    {
        "key": "a",
        "message": None,
        "entry": "copy_element",
        "grid": [256, 1024, 1],
        "block": [32, 8, 1],
    },
    {"key": "b", "message": "too large", "entry": "", "grid": [0, 0, 0], "block": [0, 0, 0]},
    {
        "key": "c",
        "message": None,
        "entry": "copy_element",
        "grid": [128, 2048, 1],
        "block": [64, 4, 1],
    },
]


def test_every_cell_of_the_sample_is_one_that_its_kernel_launches() -> None:
    sample = designed_sample()
    folders = counters.sampled_kernels(sample)
    assert len({s.cell.key for s in sample}) == len(sample)
    for sampled in sample:
        cell, workload = sampled.cell, folders[sampled.cell.kernel].workload
        assert {name for name, _ in cell.params} == set(workload.axes)
        assert cell.dtype in workload.dtypes
        assert cell.variant in workload.variants
        assert workload.valid(cell) is None
        assert workload.launch(cell).threads <= 1024


def test_values_are_read_in_base_units_and_what_is_no_number_is_none() -> None:
    first, second = ncu.parse_report(MADE_UP)
    assert (first.kernel, first.grid, first.block) == ("copy_element", (256, 1024, 1), (32, 8, 1))
    assert first.values == {
        "dram__bytes_read.sum": 268.5e6,
        "gpu__time_duration.sum": 1234.5e3,
        "lts__t_sectors.sum": 2.0**24,
    }
    assert second.kernel == "copy_element"
    assert set(second.values.values()) == {None}


def test_launches_are_those_of_cells_in_order_and_an_unknown_metric_is_none() -> None:
    joined = counters.join(ncu.parse_report(MADE_UP), LAUNCHED, METRICS)
    assert joined == {
        "a": {"read": 268.5e6, "time": 1234.5e3, "new": None},
        "c": {"read": None, "time": None, "new": None},
    }


@pytest.mark.parametrize(
    ("launched", "says"),
    [
        (LAUNCHED[:1], "recorded 2 launches, 1 were made"),
        ([LAUNCHED[2], LAUNCHED[0]], "the profiler saw"),
        ([{**LAUNCHED[0], "entry": "other"}, LAUNCHED[2]], "'other'"),
    ],
)
def test_launches_of_other_cells_are_refused(launched: list[dict[str, object]], says: str) -> None:
    with pytest.raises(ncu.NotCountedError, match=says):
        counters.join(ncu.parse_report(MADE_UP), launched, METRICS)


def profiler(folder: Path, body: str) -> str:
    """A program that stands for the profiler; LOG and METRICS are what it is told of them."""
    path = folder / "ncu"
    path.write_text(
        f"""#!/bin/sh
echo "$@" >> {folder}/calls
case "$1" in --version) echo 'Version 1.2'; exit;; esac
while [ $# -gt 0 ]; do
  case "$1" in --log-file) LOG="$2";; --metrics) METRICS="$2";; --query-metrics) QUERY=1;; esac
  shift
done
{body}
""",
        encoding="utf-8",
    )
    path.chmod(0o755)
    return str(path)


def counted(program: str, folder: Path, metrics: list[str]) -> list[ncu.CountedLaunch]:
    return ncu.count_launches(
        program, ["true"], REPLAY[FLUSHED], metrics, folder / "report.csv", {}
    )


def test_a_metric_that_the_profiler_does_not_know_costs_itself_alone(tmp_path: Path) -> None:
    (tmp_path / "table").write_text(MADE_UP, encoding="utf-8")
    program = profiler(
        tmp_path,
        f"""case "$METRICS" in
*lts__new.sum*) echo '==ERROR== Failed to find metric lts__new.sum' > "$LOG"; exit 1;;
*) /bin/cp {tmp_path}/table "$LOG";; esac""",
    )
    rows = counted(program, tmp_path, ["dram__bytes_read.sum", "lts__new.sum"])
    assert len(rows) == 2
    first, again = (tmp_path / "calls").read_text(encoding="utf-8").splitlines()
    assert "--cache-control all" in first
    assert again.endswith("--metrics dram__bytes_read.sum true")


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission", "administrator"),
        ("==ERROR== Failed to initialize the profiler: LibraryNotLoaded", "LibraryNotLoaded[.]$"),
        ("==WARNING== No kernels were profiled.", "No kernels were profiled[.]$"),
        ("", "did not say why[.]$"),
    ],
)
def test_what_is_in_the_way_is_one_sentence(said: str, why: str, tmp_path: Path) -> None:
    program = profiler(tmp_path, f"echo '{said}' > \"$LOG\"")
    with pytest.raises(ncu.NotCountedError, match=why) as caught:
        counted(program, tmp_path, ["dram__bytes_read.sum"])
    assert "\n" not in str(caught.value)


def test_a_profiler_that_writes_nothing_or_does_not_start_is_named(tmp_path: Path) -> None:
    with pytest.raises(ncu.NotCountedError, match="status 3"):
        counted(profiler(tmp_path, "exit 3"), tmp_path, ["a__b.sum"])
    with pytest.raises(ncu.NotCountedError, match="does not start"):
        counted(str(tmp_path / "none"), tmp_path, ["a__b.sum"])


def study(folder: Path, backend: str) -> tuple[int, dict[str, object], list[str]]:
    """Rows and metadata of the table of two cells, and what was said on the way."""
    sample = [s for s in designed_sample() if s.cell.kernel == "tex2d_sum"][:2]
    device = {"backend": backend, "device": 0, "opencl_runtime": "auto", "seed": 1}
    folders = counters.sampled_kernels(sample)
    said: list[str] = []
    profiling = CounterStudy(sample, folders, device, folder / "cache", folder)
    profiling.count(folder / "counters.parquet", said.append)
    table = pq.read_table(folder / "counters.parquet")
    assert table.schema.remove_metadata().equals(counters.COUNTERS_SCHEMA)
    return table.num_rows, json.loads(table.schema.metadata[METADATA_KEY]), said


@pytest.mark.parametrize(
    ("backend", "why"),
    [
        (b.name, "neither on the PATH" if b.profiler else "has no profiler")
        for b in BACKENDS.values()
    ],
)
def test_without_a_profiler_the_table_is_empty_and_says_why(
    backend: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(ncu, "_PLACES", (f"{tmp_path}/nowhere*",))
    rows, metadata, said = study(tmp_path, backend)
    assert rows == 0
    assert [metadata["why"]] == said
    assert why in said[0]


def test_what_was_counted_stands_in_the_rows_and_a_group_that_failed_costs_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [name] = {b.profiler for b in BACKENDS.values() if b.profiler}
    monkeypatch.setattr(counters, "find_ncu", lambda _: name)

    def answer(_: str, command: list[str], __: object, metrics: list[str], *___: object) -> object:
        if "gpu__time_duration.sum" not in metrics:
            raise ncu.NotCountedError("The second one failed.")
        request = json.loads(Path(command[-1]).read_text(encoding="utf-8"))
        keys = [one.cell.key for one in from_plain(request)]
        grid, block = (2, 3, 1), (4, 5, 1)
        device = {"units": 132, "uuid": "GPU-1", "name": "made up"}
        launch = {"message": None, "entry": "sum", "grid": grid, "block": block}
        launched = [{"key": k, **launch, "resident_per_unit": 8, "registers": 16} for k in keys]
        launched[1]["message"] = "The result is wrong."
        write_json(Path(request["answer"]), {"device": device, "launched": launched})
        return [ncu.CountedLaunch("sum", grid, block, {"gpu__time_duration.sum": 7.0})]

    monkeypatch.setattr(counters, "count_launches", answer)
    earliest = datetime.now(UTC).replace(microsecond=0)
    rows, metadata, _ = study(tmp_path, next(b.name for b in BACKENDS.values() if b.profiler))
    assert rows == 2
    first, second = pq.read_table(tmp_path / "counters.parquet").to_pylist()
    assert (first["duration_ns"], first["blocks"], first["threads_per_block"]) == (7.0, 6, 20)
    assert all(first[column] is None for column in GROUPS["units"])
    assert (second["duration_ns"], second["blocks"]) == (None, None)
    assert second["message"] == "The result is wrong."
    assert metadata["why"] == "Hardware counters were not read: The second one failed."
    assert metadata["gpushmoo"] == __version__
    assert earliest <= datetime.fromisoformat(str(metadata["written_at"])) <= datetime.now(UTC)


def test_small_cells_are_profiled_by_running_the_program_again_for_every_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [name] = {b.profiler for b in BACKENDS.values() if b.profiler}
    monkeypatch.setattr(counters, "find_ncu", lambda _: name)
    asked: list[tuple[str, set[int]]] = []

    def refuse(_: str, command: list[str], options: Sequence[str], *__: object) -> object:
        cells = from_plain(json.loads(Path(command[-1]).read_text(encoding="utf-8")))
        sizes = {one.cell.problem.height for one in cells}
        asked.append((options[-1], sizes))
        raise ncu.NotCountedError("Not today.")

    monkeypatch.setattr(counters, "count_launches", refuse)
    backend = next(b.name for b in BACKENDS.values() if b.profiler)
    for kernel in ("global_copy", "copy2d_coalesced"):
        sample = [s for s in designed_sample() if s.cell.kernel == kernel]
        device = {"backend": backend, "device": 0, "seed": 1}
        folders = counters.sampled_kernels(sample)
        profiling = CounterStudy(sample, folders, device, tmp_path, tmp_path)
        profiling.count(tmp_path / "out.parquet", print)
    # A first run that fails ends the study.
    (first, small), (second, large) = asked
    assert (first, small) == ("application", {1024, 1280, 1536, 1792, 2048})
    assert (second, large) == ("kernel", {8192})
    assert json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))["cells"] == {}


def test_the_launches_that_a_model_explains_are_counted_too(tmp_path: Path) -> None:
    why = {
        "kernel": "copy2d_coalesced",
        "dtype": "float",
        "variant": "element",
        "height": 64,
        "width": 32,
        "cache_state": "warm",
        "params": {"block_y": 4, "block_x": 8},
    }
    write_json(tmp_path / "device.json", {"devices": [{"whys": [why]}, {"why": "too few"}]})
    [sampled] = explained_cells([tmp_path / "device.json"])
    axes = (("block_x", 8), ("block_y", 4))
    assert sampled.cell == Cell("copy2d_coalesced", "float", "element", Problem(64, 32), axes)


def test_exactly_one_launch_of_each_cell_that_can_be_launched_is_recorded(tmp_path: Path) -> None:
    device = open_device(DeviceChoice("opencl", 0, "pocl", tmp_path))
    shapes = [(8, 8), (64, 4096), (16, 4)]
    cells = [
        Cell(
            "copy2d_coalesced",
            "float",
            "element",
            Problem(64, 64),
            (("block_x", x), ("block_y", y)),
        )
        for x, y in shapes
    ]
    entered = []

    @contextmanager
    def recorded() -> Iterator[None]:
        entered.append(1)
        yield

    folders = {"copy2d_coalesced": load_kernel(KERNELS / "copy2d_coalesced")}
    first, second, third = launch_cells(
        device, folders, [ChosenCell(cell, "named") for cell in cells], 1, recorded
    )
    assert [one["key"] for one in (first, second, third)] == [cell.key for cell in cells]
    assert [first[n] for n in ("grid", "block", "message")] == [*((8, 8, 1), (8, 8, 1), None)]
    assert "262144 threads a block" in second["message"]
    assert third["entry"] == "copy_element"
    assert len(entered) == 2

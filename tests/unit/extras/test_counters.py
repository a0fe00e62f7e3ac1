"""Hardware counters without a device: the sample, and what becomes of what a profiler writes."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq
import pytest
from gpu.counted_cells import designed_sample
from gpushmoo import __version__
from gpushmoo.core.backends import BACKENDS
from gpushmoo.core.paths import KERNELS
from gpushmoo.core.schema import METADATA_KEY
from gpushmoo.core.space import Cell, ChosenCell, Problem, from_plain, to_plain
from gpushmoo.core.study_job import JobDevice, StudyJob
from gpushmoo.devices.base import Device
from gpushmoo.devices.select import DeviceChoice
from gpushmoo.extras.studies import counters
from gpushmoo.extras.studies.counters import REPLAY, CounterStudy
from gpushmoo.storage.wholefile import read_json, write_json
from gpushmoo.studies.cells import FLUSHED, GROUPS, explained_cells
from gpushmoo.workloads.loader import KernelFolder, load_kernel

MADE_UP = """==PROF== Connected to process 7 (/usr/bin/python3.12)
==PROF== Profiling "copy_element" - 0: 0%....50%....100% - 3 passes
"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size",\
"Grid Size","Device","CC","dram__bytes_read.sum","gpu__time_duration.sum","lts__t_sectors.sum"
"","","","","","","","","","","","byte","ns","sector"
"0","7","python3.12","127.0.0.1","copy_element","1","7","(32, 8, 1)","(256, 1024, 1)","0","9.0",\
"268,500,000","1,234,500","16,777,216"
"1","7","python3.12","127.0.0.1","copy_element(float *)","1","7","(64, 4, 1)","(128, 2048, 1)",\
"0","9.0","n/a","nan",""
==PROF== Disconnected from process 7
"""
METRICS = {"read": "dram__bytes_read.sum", "time": "gpu__time_duration.sum", "new": "lts__new.sum"}


def launch(key: str, grid: list[int], block: list[int], **changes: Any) -> dict[str, Any]:
    """Word of a launch of `copy_element`."""
    made = {"key": key, "message": None, "entry": "copy_element", "grid": grid, "block": block}
    return {**made, "resident_blocks": 8, "registers": 16, **changes}


LAUNCHED = [
    launch("a", [256, 1024, 1], [32, 8, 1]),
    launch("b", [0, 0, 0], [0, 0, 0], message="too large"),
    launch("c", [128, 2048, 1], [64, 4, 1]),
]


def kernels_of(sample: Sequence[ChosenCell]) -> dict[str, KernelFolder]:
    return {name: load_kernel(KERNELS / name) for name in {s.cell.kernel for s in sample}}


PROFILED = next(b for b in BACKENDS.values() if b.profiler)


def test_every_cell_of_the_sample_is_one_that_its_kernel_launches() -> None:
    sample = designed_sample()
    folders = kernels_of(sample)
    assert len({s.cell.key for s in sample}) == len(sample)
    for sampled in sample:
        cell, workload = sampled.cell, folders[sampled.cell.kernel].workload
        assert {name for name, _ in cell.params} | {"waves"} == {*workload.axes, "waves"}
        assert cell.dtype in workload.dtypes
        assert cell.variant in workload.variants
        assert workload.valid(cell) is None
        assert workload.launch(cell).threads <= 1024


def test_values_are_in_base_units_by_cell_and_what_is_no_number_or_unknown_is_none() -> None:
    first, second = counters.parse_report(MADE_UP)
    assert (first.kernel, first.grid, first.block) == ("copy_element", (256, 1024, 1), (32, 8, 1))
    assert first.values["lts__t_sectors.sum"] == 2.0**24
    assert second.kernel == "copy_element"
    assert counters.join([first, second], LAUNCHED, METRICS) == {
        "a": {"read": 268.5e6, "time": 1234.5e3, "new": None},
        "c": {"read": None, "time": None, "new": None},
    }
    assert counters.parse_report("==ERROR== nothing\n") == []


@pytest.mark.parametrize(
    ("launched", "says"),
    [
        (LAUNCHED[:1], "recorded 2 launches, 1 were made"),
        ([LAUNCHED[2], LAUNCHED[0]], "the profiler saw"),
        ([{**LAUNCHED[0], "entry": "other"}, LAUNCHED[2]], "'other'"),
    ],
)
def test_launches_of_other_cells_are_refused(launched: list[dict[str, object]], says: str) -> None:
    with pytest.raises(counters.CounterError, match=says):
        counters.join(counters.parse_report(MADE_UP), launched, METRICS)


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


def counted(program: str, folder: Path, metrics: list[str]) -> list[counters.CountedLaunch]:
    return counters.count_launches(
        program, ["true"], REPLAY[FLUSHED], metrics, folder / "report.csv", {}
    )


def test_an_unknown_metric_costs_itself_and_a_dead_profiler_is_named(tmp_path: Path) -> None:
    (tmp_path / "table").write_text(MADE_UP, encoding="utf-8")
    program = profiler(
        tmp_path,
        f"""case "$METRICS" in
*lts__new.sum*) echo '==ERROR== Failed to find metric lts__new.sum' > "$LOG"; exit 1;;
*) /bin/cp {tmp_path}/table "$LOG";; esac""",
    )
    rows = counted(program, tmp_path, ["dram__bytes_read.sum", "lts__new.sum"])
    assert len(rows) == 2
    assert counters.version_of(program) == "Version 1.2"
    first, again, _ = (tmp_path / "calls").read_text(encoding="utf-8").splitlines()
    assert "--cache-control all" in first
    assert again.endswith("--metrics dram__bytes_read.sum true")
    with pytest.raises(counters.CounterError, match="status 3"):
        counted(profiler(tmp_path, "exit 3"), tmp_path, ["a__b.sum"])
    with pytest.raises(counters.CounterError, match="does not start"):
        counted(str(tmp_path / "none"), tmp_path, ["a__b.sum"])


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
    with pytest.raises(counters.CounterError, match=why) as caught:
        counted(program, tmp_path, ["dram__bytes_read.sum"])
    assert "\n" not in str(caught.value)


def study(
    folder: Path, kernels: str, backend: str = PROFILED.name, most: int | None = None
) -> tuple[list[dict[str, Any]], dict[str, Any], list[str]]:
    """Rows and metadata of the table of a kernel's cells, and what was said on the way."""
    sample = [s for s in designed_sample() if s.cell.kernel == kernels][:most]
    device = JobDevice(backend=backend, device=0, opencl_runtime="auto", seed=1)
    said: list[str] = []
    asked = CounterStudy(sample, kernels_of(sample), device, folder / "cache", folder)
    asked.count(folder / "counters.parquet", said.append)
    table = pq.read_table(folder / "counters.parquet")
    assert table.schema.remove_metadata().equals(counters.COUNTERS_SCHEMA)
    return table.to_pylist(), json.loads(table.schema.metadata[METADATA_KEY]), said


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
    elsewhere = {
        name: replace(one, profiler_places=(f"{tmp_path}/nowhere*",))
        for name, one in BACKENDS.items()
    }
    monkeypatch.setattr(counters, "BACKENDS", elsewhere)
    rows, metadata, said = study(tmp_path, "tex2d_sum", backend, 2)
    assert rows == []
    assert [metadata["why"]] == said
    assert why in said[0]


def test_a_failed_group_costs_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters, "find_ncu", lambda backend: backend.profiler)

    def answer(
        _: str, command: list[str], __: object, metrics: list[str], *___: object
    ) -> list[counters.CountedLaunch]:
        if "gpu__time_duration.sum" not in metrics:
            raise counters.CounterError("The second one failed.")
        request = json.loads(Path(command[-1]).read_text(encoding="utf-8"))
        launched = [
            launch(one.cell.key, [2, 3, 1], [4, 5, 1], entry="sum") for one in from_plain(request)
        ]
        launched[1]["message"] = "The result is wrong."
        device = {"multiprocessors": 132, "uuid": "GPU-1", "name": "made up"}
        write_json(Path(request["answer"]), {"device": device, "launched": launched})
        return [
            counters.CountedLaunch("sum", (2, 3, 1), (4, 5, 1), {"gpu__time_duration.sum": 7.0})
        ]

    monkeypatch.setattr(counters, "count_launches", answer)
    (first, second), metadata, _ = study(tmp_path, "tex2d_sum", most=2)
    assert (first["duration_ns"], first["blocks"], first["threads_per_block"]) == (7.0, 6, 20)
    assert all(first[column] is None for column in GROUPS["units"])
    assert (second["duration_ns"], second["blocks"]) == (None, None)
    assert second["message"] == "The result is wrong."
    assert metadata["why"] == "Hardware counters were not read: The second one failed."
    assert metadata["gpushmoo"] == __version__


def test_small_cells_are_replayed_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters, "find_ncu", lambda backend: backend.profiler)
    asked: list[tuple[str, set[int]]] = []

    def refuse(_: str, command: list[str], options: Sequence[str], *__: object) -> object:
        cells = from_plain(json.loads(Path(command[-1]).read_text(encoding="utf-8")))
        asked.append((options[-1], {one.cell.problem.height for one in cells}))
        raise counters.CounterError("Not today.")

    monkeypatch.setattr(counters, "count_launches", refuse)
    for kernel in ("global_copy", "copy2d_coalesced"):
        study(tmp_path, kernel)
    # A first run that fails ends the study.
    small, large = {1024, 1280, 1536, 1792, 2048}, {8192}
    assert asked == [("application", small), ("kernel", large)]
    assert json.loads((tmp_path / "counters.json").read_text(encoding="utf-8"))["cells"] == {}


def test_the_launches_that_a_model_explains_are_counted_too(tmp_path: Path) -> None:
    why = {
        "kernel": "copy2d_coalesced",
        "dtype": "float",
        "variant": "element",
        "height": 64,
        "width": 32,
        "cache_state": "warm",
        "timing_mode": "batched",
        "params": {"block_y": 4, "block_x": 8},
    }
    write_json(tmp_path / "device.json", {"devices": [{"whys": [why]}, {"why": "too few"}]})
    [sampled] = explained_cells([tmp_path / "device.json"])
    axes = (("block_x", 8), ("block_y", 4))
    assert sampled.cell == Cell("copy2d_coalesced", "float", "element", Problem(64, 32), axes)


def test_exactly_one_launch_of_each_cell_that_can_be_launched_is_recorded(
    opencl_choice: DeviceChoice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the process that the profiler watches, here within this one."""
    kernel, entered = "copy2d_coalesced", []
    axes = [(("block_x", x), ("block_y", y)) for x, y in [(8, 8), (64, 4096), (16, 4)]]
    cells = [Cell(kernel, "float", "element", Problem(64, 64), params) for params in axes]

    @contextmanager
    def recorded() -> Iterator[None]:
        entered.append(1)
        yield

    monkeypatch.setattr(Device, "counters", SimpleNamespace(recorded=recorded))
    monkeypatch.setattr(counters, "end_with_parent", lambda: None)
    runtime = {"backend": "opencl", "opencl_runtime": opencl_choice.runtime, "seed": 1}
    request = {"cache": str(opencl_choice.cache), "folders": {kernel: str(KERNELS / kernel)}}
    request |= {"answer": str(tmp_path / "a.json"), **to_plain([ChosenCell(c, "") for c in cells])}
    write_json(tmp_path / "r.json", {**request, "device": {**runtime, "device": 0}})
    assert counters.main(str(tmp_path / "r.json")) == 0
    first, second, third = read_json(tmp_path / "a.json")["launched"]
    assert [one["key"] for one in (first, second, third)] == [cell.key for cell in cells]
    assert (first["grid"], first["block"], first["message"]) == ([8, 8, 1], [8, 8, 1], None)
    assert "262144 threads a block" in second["message"]
    assert third["entry"] == "copy_element"
    assert len(entered) == 2
    monkeypatch.undo()
    monkeypatch.setattr(counters, "end_with_parent", lambda: None)
    assert counters.main(str(tmp_path / "r.json")) == 1
    assert "No profiler reads counters of " in read_json(tmp_path / "a.json")["why"]
    write_json(tmp_path / "r.json", {**request, "device": {**runtime, "device": 99}})
    assert counters.main(str(tmp_path / "r.json")) == 1
    assert "there is no device 99" in read_json(tmp_path / "a.json")["why"]


def test_a_kernel_without_a_chosen_cell_needs_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be gone, or of a run whose model explains none of its cells."""
    sample = designed_sample()
    chosen = [one for one in sample if one.cell.kernel == sample[0].cell.kernel]
    made: list[dict[str, KernelFolder]] = []

    class Study:
        def __init__(self, cells: object, folders: dict[str, KernelFolder], *_: object) -> None:
            made.append(folders)

        def count(self, out: Path, say: object) -> None:
            assert out == tmp_path / "out"

    monkeypatch.setattr(counters, "explained_cells", lambda _: chosen)
    monkeypatch.setattr(counters, "CounterStudy", Study)
    kernel = chosen[0].cell.kernel
    device = JobDevice(backend="opencl", device=0, opencl_runtime="auto", seed=1)
    folders = {kernel: f"kernels/{kernel}", "gone": "kernels/gone"}
    job = StudyJob(device=device, kernels={}, folders=folders)
    counters.count_of_run(job, tmp_path / "out", print, str(tmp_path), [])
    assert [set(folders) for folders in made] == [{kernel}]


@pytest.mark.parametrize(
    ("changes", "room"),
    [
        # Blocks of three warps, of which two are on a multiprocessor, or as many as fit.
        ({}, 6.0),
        ({"blocks": 5000}, 24.0),
        ({"blocks": 133}, 6.0),
        ({"threads_per_block": 97}, 8.0),
        ({"resident_blocks": None}, None),
        ({"l1_percent": None}, None),
        ({"l1_percent": 0.0}, 6.0),
    ],
)
def test_a_launch_has_room_for_the_warps_of_its_resident_blocks(
    changes: dict[str, float | None], room: float | None
) -> None:
    units = dict.fromkeys(("dram_percent", "l2_percent", "l1_percent", "sm_percent"), 50.0)
    asked = {"threads_per_block": 96, "blocks": 264, "multiprocessors": 132, "resident_blocks": 8}
    found = counters._busy({**units, "active_warps": 5.0, **asked, **changes})
    assert (None if found is None else found["room_for_warps"]) == room

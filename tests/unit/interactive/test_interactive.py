"""A sweep from Python and from the shell, and a new kernel's folder."""

import copy
import errno
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO

import matplotlib
import numpy as np
import pandas as pd
import pytest
import yaml
from conftest import ROOT, USER_CUDA, USER_OPENCL, environment, python
from fakes import INFO
from gpushmoo import BufferRef, ConfigError, CopyWorkload, Launch, Sweep, ceil_div, open_run, sweep
from gpushmoo.__main__ import main as program
from gpushmoo.analysis.aggregate import aggregate
from gpushmoo.core.backends import BACKENDS
from gpushmoo.core.errors import DeviceError, DeviceLostError, NoDeviceError, OpenError
from gpushmoo.core.keys import bounds_of, keys_of
from gpushmoo.core.measure_settings import Measure
from gpushmoo.devices.base import DeviceInfo
from gpushmoo.devices.select import DeviceChoice
from gpushmoo.interactive import measure, shell, text_tables
from gpushmoo.interactive.arguments import Arguments
from gpushmoo.interactive.commands import measuring, run
from gpushmoo.interactive.shell import main
from gpushmoo.measuring.job import MeasuredShard, ShardTask, measure_shard
from gpushmoo.measuring.process import WorkerProcess
from gpushmoo.measuring.starting import StartedProgram
from gpushmoo.planning.config import load_config, merged
from gpushmoo.storage.dataset import read_cells
from gpushmoo.storage.store import read_shard
from gpushmoo.workloads.views import Curve
from matplotlib.figure import Figure

SHORT = {"min_samples": 6, "max_samples": 6, "warmup": 0}
AXES = {"block_x": [32, 64], "PER_THREAD": {"from": 1, "to": 2}}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, opencl_cache: Path) -> Iterator[Path]:
    """Return a folder for this module."""
    folder = tmp_path_factory.mktemp("interactive")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(opencl_cache))
        yield folder


@pytest.fixture(scope="module")
def device(opencl_choice: DeviceChoice) -> dict[str, str]:
    return {"backend": opencl_choice.backend, "opencl_runtime": opencl_choice.runtime}


@pytest.fixture(scope="module")
def folder(place: Path) -> Path:
    """Write the folder of a new kernel."""
    assert main(["new", "mine", "--in", str(place / "kernels")]) == 0
    return place / "kernels" / "mine"


@pytest.fixture(scope="module")
def swept(folder: Path, device: dict[str, str]) -> Sweep:
    """It is swept in two repeats."""
    types = {"dtypes": "float", "sizes": np.int64(64)}
    return sweep(folder, axes=AXES, **types, repeats=2, progress=False, **SHORT, **device)


def test_a_new_kernel_is_swept_at_once_and_its_best_are_told(swept: Sweep) -> None:
    cells = swept.cells
    assert swept.statuses == {"ok": 4}
    # OpenCL does not know how many blocks are resident: one on each core.
    assert set(cells["resident_blocks"]) == {1}
    assert set(swept.searches["mode"]) == {"race"}
    assert {str(cells[axis].dtype) for axis in AXES} == {"Int64"}
    points = {(x, n) for x in (32, 64) for n in (1, 2)}
    assert set(zip(cells["block_x"], cells["PER_THREAD"], strict=True)) == points
    assert set(cells["repeat_samples"].map(len)) == {2}
    best = swept.best
    assert best["is_fastest"].tolist() == [True] + [False] * (len(best) - 1)
    assert best["bandwidth_gbs"].is_monotonic_decreasing
    assert str(best["PER_THREAD"].dtype) == "Int64"
    assert best["bandwidth_gbs"].iloc[0] == swept.cells["bandwidth_gbs"].max()
    assert "<p>Sweep of mine: 4 ok</p>" in swept._repr_html_()


def test_all_devices_of_opencl_are_one_device(
    swept: Sweep, folder: Path, device: dict[str, str]
) -> None:
    types = {"dtypes": "float", "sizes": 64}
    asked = {**types, "axes": AXES, "progress": False, **SHORT, **device}
    found = sweep(folder, **asked, device="all")
    assert found.statuses == {"ok": 4}
    assert found.devices == swept.devices
    assert [shard["params"]["shard"] for shard in found.provenance] == [[0, 1]]
    with pytest.raises(ConfigError, match=r"'device' is -1; allowed: all .* or the index"):
        sweep(folder, **asked, device=-1)


def test_one_process_serves_all_calls_but_sees_edited_sources_and_another_environment(
    folder: Path, device: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[StartedProgram] = []

    class Counted(WorkerProcess):
        def __init__(self, program: StartedProgram) -> None:
            started.append(program)
            super().__init__(program)

    def statuses() -> dict[str, int]:
        options = {"dtypes": "float", "sizes": 64, "progress": False, **SHORT, **device}
        return sweep(edited, axes={"block_x": 32, "PER_THREAD": 1}, **options).statuses

    edited = shutil.copytree(folder, tmp_path / "mine")
    monkeypatch.setattr("gpushmoo.measuring.process.WorkerProcess", Counted)
    assert [statuses(), statuses()] == [{"ok": 1}] * 2
    assert len(started) <= 1
    before = len(started)
    source = edited / "kernel.cl"
    source.write_text(source.read_text().replace("dst[", "if (0) dst["))
    assert statuses() == {"wrong_result": 1}
    assert len(started) == before
    # A process in which a kernel went wrong is not used again.
    assert statuses() == {"wrong_result": 1}
    assert len(started) == before + 1
    shutil.copytree(folder, edited, dirs_exist_ok=True)
    assert [statuses(), statuses()] == [{"ok": 1}] * 2
    assert len(started) == before + 2
    monkeypatch.setenv("GPUSHMOO_ANYTHING", "1")
    assert statuses() == {"ok": 1}
    assert len(started) == before + 3


def test_a_compiler_that_crashes_the_measuring_process_is_run_apart(
    folder: Path, device: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def crashed(task: ShardTask, terminal: TextIO) -> MeasuredShard:
        if task.build is None:
            raise OpenError("The device was not opened: SIGSEGV.")
        return measure_shard(task, terminal)

    monkeypatch.setattr(measure, "measure_shard", crashed)
    options = {"dtypes": "float", "sizes": 64, "progress": False, **SHORT, **device}
    assert sweep(folder, axes=AXES, **options).statuses == {"ok": 4}


@pytest.mark.parametrize(("budget", "repeats"), [(1e-3, {1}), (60.0, {4})])
def test_a_budget_buys_repeats(
    folder: Path, device: dict[str, str], budget: float, repeats: set[int]
) -> None:
    options = {"dtypes": "float", "sizes": 64, "progress": False, "warmup": 0, **device}
    result = sweep(folder, axes=AXES, budget=budget, repeats=4, **options)
    assert set(result.cells["repeat_samples"].map(len)) == repeats
    assert result.statuses == {"ok": 4}
    assert not result.best.empty


# Two repeats alone have too few samples each: the first is kept.
@pytest.mark.parametrize(("repeat", "kept"), [(5, 4), (3, 1)])
def test_an_interrupt_leaves_the_repeats_that_are_done(
    folder: Path,
    device: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    repeat: int,
    kept: int,
) -> None:
    def interrupted(task: ShardTask, terminal: TextIO) -> MeasuredShard:
        if (task.job.repeat, task.job.dtype) == (repeat, "double"):
            raise KeyboardInterrupt
        return measure_shard(task, terminal)

    monkeypatch.setattr(measure, "measure_shard", interrupted)
    options = {"dtypes": ["float", "double"], "sizes": 64, "progress": False, "warmup": 0, **device}
    result = sweep(folder, axes=AXES, budget=600, **options)
    assert set(result.cells["repeat_samples"].map(len)) == {kept}
    aggregate(sorted(result.save(tmp_path / "kept").rglob("*.parquet")), tmp_path / "dataset")


def test_a_heat_map_is_a_figure_that_leaves_a_notebook_as_it_is(swept: Sweep) -> None:
    before = dict(matplotlib.rcParams)
    figure = swept.heatmap()
    assert isinstance(figure, Figure)
    assert figure.axes[0].get_xlabel() == "block_x (threads)"
    assert swept.heatmap("PER_THREAD", size=64).axes[0].get_xlabel() == "PER_THREAD"
    assert dict(matplotlib.rcParams) == before
    with pytest.raises(ConfigError, match="x, y: 'tile' is not known; allowed: block_x, PER_TH"):
        swept.heatmap("tile")
    with pytest.raises(ConfigError, match="size, cache, timing_mode: no cell has 32x32, warm"):
        swept.heatmap(size=32)


def test_the_title_of_a_small_map_is_whole(swept: Sweep) -> None:
    for name in ("mine", "a_kernel_of_a_rather_long_name_that_is_its_own"):
        named = object.__new__(Sweep)
        vars(named).update(vars(swept))
        named.cells = swept.cells.assign(kernel=name)
        figure = named.heatmap()
        figure.draw_without_rendering()
        [title] = figure.texts
        extent = title.get_window_extent()
        assert name in title.get_text()
        assert extent.x0 >= 0.0
        assert extent.x1 <= figure.bbox.width
        assert all(ax.title.get_window_extent().y1 <= extent.y0 for ax in figure.axes)


@pytest.mark.parametrize(("cells", "said"), [(20_000, ""), (20_001, "20,001 combinations")])
def test_a_call_of_very_many_cells_says_so_before_a_device_is_asked(
    cells: int,
    said: str,
    make_kernel: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Looking through them takes seconds, in which nothing else is printed."""

    def asked(*_: Any) -> None:
        raise DeviceError("asked")

    monkeypatch.setattr("gpushmoo.interactive.measure.devices_of", asked)
    many = {"block_x": {"from": 1, "to": cells}}
    with pytest.raises(DeviceError, match="asked"):
        sweep(make_kernel("many", USER_CUDA, USER_OPENCL), axes=many, sizes=64, repeats=1)
    err = capsys.readouterr().err
    assert said in err if said else err == ""


def test_a_notebooks_table_begins_with_parameters_and_speeds(swept: Sweep) -> None:
    heads = re.findall("<th>(.*?)</th>", swept._repr_html_())
    assert heads[:3] == ["PER_THREAD", "block_x", "bandwidth_gbs"]
    assert len(heads) < 12
    # Columns that name a group are shown only if they differ.
    assert not {"kernel", "dtype", "variant", "height", "cache_state"}.intersection(heads)
    several = copy.copy(swept)
    for variants, shown in ((["a", "b"], True), (["a", "a"], False)):
        several.best = pd.concat([swept.best[:1]] * 2).assign(variant=variants)
        assert ("<th>variant</th>" in several._repr_html_()) is shown


def test_a_saved_sweep_is_a_record(
    swept: Sweep, raw_config: dict[str, Any], tmp_path: Path
) -> None:
    kept = swept.save(tmp_path / "kept")
    aggregate(sorted(kept.rglob("*.parquet")), tmp_path / "dataset")
    pd.testing.assert_frame_equal(read_cells(tmp_path / "dataset"), swept.cells)
    own = yaml.safe_load((kept / "report.yaml").read_text(encoding="utf-8"))
    config = load_config(merged(raw_config, own, kept), ROOT)
    assert config.dataset == kept
    # A run of the kernel itself, whose report stays.
    assert config.settings.run != "mine"
    assert config.sweeps["mine"].folder.path == kept / "kernels" / "mine"
    run = open_run(kept)
    pd.testing.assert_frame_equal(run.cells, swept.cells)
    pd.testing.assert_frame_equal(run.best, swept.best)
    assert (repr(run), run.figures) == ("<Run of kept: 4 ok>", {})
    assert run.peak.empty
    with pytest.raises(ConfigError, match="exists already"):
        swept.save(kept)


@pytest.mark.parametrize(
    ("kernel", "asked", "host_fed"),
    [
        ("dot_host", {"variants": "blas-one", "sizes": 64}, True),
        (
            "block_eq_partition",
            {"variants": "exact", "sizes": 64, "axes": {"num_partition": 1}},
            None,
        ),
    ],
)
def test_a_shard_says_whether_the_host_streams_its_data(
    kernel: str,
    asked: dict[str, Any],
    host_fed: bool | None,
    device: dict[str, Any],
    tmp_path: Path,
) -> None:
    found = sweep(
        ROOT / "kernels" / kernel, dtypes="float", progress=False, **asked, **SHORT, **device
    )
    found.save(tmp_path / "saved")
    (file,) = (tmp_path / "saved").rglob("cells/**/*.parquet")
    assert read_shard(file)[1].get("host_fed") == host_fed


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
        shutil.Error([("from", "to", os.strerror(errno.ENOSPC))]),
    ],
)
def test_a_full_disk_leaves_no_half_of_a_saved_sweep(
    swept: Sweep,
    error: OSError,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(*_: Any) -> None:
        raise error

    monkeypatch.setattr("gpushmoo.interactive.measure.copy_folder", fail)
    monkeypatch.setattr(measure, "sweep", lambda *_, **__: swept)
    assert main(["sweep", "kernel", "--out", str(tmp_path / "kept")]) == 2
    said = capsys.readouterr().err
    assert "No space left" in said
    assert "Traceback" not in said
    # What was measured is shown, though it cannot be kept.
    assert measuring.report(swept) in said
    assert not (tmp_path / "kept").exists()


def test_a_summary_that_cannot_be_written_is_refused_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # Nothing is measured.
    monkeypatch.setattr("gpushmoo.interactive.checkouts.ab_checkouts", None)
    summary = tmp_path / "missing" / "summary.md"
    assert main(["ab", "main", "--markdown", str(summary)]) == 2
    said = capsys.readouterr().err
    assert "summary.md" in said
    assert "Traceback" not in said


def test_ctrl_c_during_the_imports_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Interrupted:
        def find_spec(self, name: str, *_: Any) -> None:
            if name == shell.__name__:
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, shell.__name__)
    monkeypatch.setattr(sys, "meta_path", [Interrupted(), *sys.meta_path])
    monkeypatch.setattr(sys, "argv", ["gpushmoo", "list", "kernels"])
    assert program() == 3
    assert capsys.readouterr().err == "gpushmoo: stopped.\n"


def test_the_shell_prints_the_best_in_a_table(
    folder: Path,
    device: dict[str, str],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    asked = "--axes block_x=32:64:32 PER_THREAD=1 --dtypes float --sizes 64"
    asked += " --measure min_samples=6 --measure max_samples=6"
    chosen = [
        word for name, value in device.items() for word in (f"--{name.replace('_', '-')}", value)
    ]
    assert (
        main(["sweep", str(folder), *asked.split(), *chosen, "--out", str(tmp_path / "a b")]) == 0
    )
    said = capsys.readouterr()
    assert said.out.startswith("Sweep of mine: 2 ok.\n\nfloat, plain, 64 x 64, warm, ")
    assert "\nPER_THREAD  block_x" in said.out
    assert "shard 1/1 mine float: 2 ok in " in said.err
    assert said.out.endswith(f"run {shlex.quote(str(tmp_path / 'a b' / 'report.yaml'))}\n")


def test_the_table_tells_how_many_more_are_tied_and_an_unsteady_copy(
    swept: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(swept, "best", pd.concat([swept.best.head(1)] * 8))
    for seconds, ending in (([1.0, 1.01], "  of memcpy"), ([1.0, 1.5], "  of memcpy ± 20 %")):
        for shard in swept.provenance:
            monkeypatch.setitem(shard["controls"][0], "seconds", seconds * 9)
        lines = measuring.report(swept).splitlines()
        assert "and 3 more" in lines
        [heading] = (line for line in lines if line.startswith("PER_THREAD  block_x  "))
        assert heading.endswith(ending)


def test_a_table_is_printed_for_programs_and_nothing_else(
    swept: Sweep, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure, "sweep", lambda *_: swept)
    assert main(["sweep", "kernel", "--csv"]) == 0
    read = pd.read_csv(io.StringIO(capsys.readouterr().out))
    for column in ("bandwidth_gbs", "PER_THREAD", "variant"):
        assert read[column].tolist() == swept.best[column].tolist()


@pytest.mark.parametrize(
    ("ended", "status"),
    [
        ({"ok": 3, "invalid": 1}, 0),
        ({"ok": 3, "wrong_result": 1}, 1),
        ({"launch_failed": 2, "build_failed": 2}, 3),
        (ConfigError("It cannot be."), 2),
        (DeviceLostError("The device is gone."), 3),
        (KeyboardInterrupt(), 3),
        (ZeroDivisionError("of our own"), 3),
    ],
)
def test_the_exit_status_tells_a_verdict_from_what_was_not_measured(
    ended: Any, status: int, swept: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*_: Any) -> Sweep:
        if isinstance(ended, BaseException):
            raise ended
        return swept

    monkeypatch.setattr(measure, "sweep", run)
    monkeypatch.setattr(Sweep, "statuses", ended)
    assert main(["sweep", "kernel"]) == status


def test_a_sweep_names_its_faulty_cells(swept: Sweep) -> None:
    cells = swept.cells.copy()
    fault = ["wrong_result", "2 of 4096 words differ"]
    cells.loc[0, ["status", "message"]] = fault
    copied = copy.copy(swept)
    copied.cells = cells
    first = cells.iloc[0]
    launch = f"PER_THREAD={first['PER_THREAD']}, block_x={first['block_x']}: {', '.join(fault)}"
    assert launch in measuring.report(copied)


def test_a_taken_place_is_refused_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "sweep", None)
    (tmp_path / "there").touch()
    for taken in (tmp_path, tmp_path / "there"):
        assert main(["sweep", "kernel", "--out", str(taken)]) == 2


def test_each_command_helps_by_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    commands = re.findall(r"^    (\w+) ", capsys.readouterr().out, re.M)
    assert {"new", "sweep", "tune", "ab", "list", "compare", "export", "run"} <= {*commands}
    for name in commands:
        with pytest.raises(SystemExit):
            main([name, "--help"])
        *_, title, example = capsys.readouterr().out.splitlines()
        assert title == "example:"
        words = shlex.split(example)
        assert words[:2] == ["gpushmoo", name]
        ours = run.split_words(words[1:])[0] if name == "run" else words[1:]
        assert shell.build_parser().parse_args(ours).command.name == name


def test_a_run_is_snakemakes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[list[str]] = []
    monkeypatch.setattr(run, "run_snakemake", lambda words: started.append(words) or 7)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").touch()
    assert main(["run", "mine.yaml", "--cores", "4", "--", "export", "--dry-run"]) == 7
    words = "--configfile mine.yaml --cores 4 export --dry-run"
    assert started[0] == ["-s", str(ROOT / "Snakefile"), *words.split()]
    monkeypatch.chdir(ROOT)
    assert main(["run"]) == 7
    assert started[1] == ["--cores", "all"]
    # Its options need no `--`, and a configuration may follow them.
    (tmp_path / "mine.yml").touch()
    monkeypatch.chdir(tmp_path)
    for given, theirs in (
        ("mine.yaml --unlock", "--configfile mine.yaml --cores all --unlock"),
        ("-n mine.yml --cores 2", "--configfile mine.yml --cores 2 -n"),
        ("mine.yaml -p export -c 3", "--configfile mine.yaml --cores all -p export -c 3"),
        ("--configfile mine.yaml", "--cores all --configfile mine.yaml"),
        ("--cores=1 mine.yaml -- -n x", "--configfile mine.yaml --cores 1 -n x"),
    ):
        assert main(["run", *given.split()]) == 7
        assert started[-1][2:] == theirs.split()
    monkeypatch.setattr(run, "ROOT", tmp_path)
    assert main(["run"]) == 2
    assert "A run needs a clone of gpushmoo" in capsys.readouterr().err


def test_kernels_and_devices_are_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kernels/broken").mkdir(parents=True)
    (tmp_path / "kernels/broken/workload.py").touch()
    assert main(["list", "kernels", "--json"]) == 0
    said = capsys.readouterr()
    assert "broken" in said.err
    rows = {row.pop("kernel"): row for row in json.loads(said.out)["rows"]}
    assert rows["stencil5"] == {
        "dtypes": ["float", "double"],
        "variants": ["global", "tiled"],
        "axes": ["block_x", "block_y"],
        "backends": [*BACKENDS],
        "title": "5-point stencil",
    }
    assert set(rows) == {path.parent.name for path in ROOT.glob("kernels/*/workload.py")}

    def answer(choice: DeviceChoice) -> DeviceInfo:
        if choice.backend == "cuda" or choice.index:
            raise NoDeviceError("There is none.")
        return INFO

    monkeypatch.setattr(text_tables, "probe", answer)
    with monkeypatch.context() as patch:
        patch.setattr(text_tables, "KERNELS", tmp_path / "none")
        patch.chdir(tmp_path / "kernels/broken")
        assert main(["list", "kernels"]) == 0
        said = capsys.readouterr()
        assert said.out == ""
        assert "gpushmoo new NAME" in said.err
    assert main(["list", "devices", "--csv"]) == 0
    found = pd.read_csv(io.StringIO(capsys.readouterr().out))
    assert found["opencl_runtime"].tolist() == [*BACKENDS["opencl"].runtimes]
    assert set(found["device_name"]) == {INFO.name}
    assert main(["list", "devices"]) == 0
    monkeypatch.setattr(text_tables, "BACKENDS", {"cuda": BACKENDS["cuda"]})
    assert main(["list", "devices"]) == 3
    assert "There is none." in capsys.readouterr().err


def test_what_a_new_kernel_is_told_to_run_next_runs_from_anywhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["new", "mine", "--in", "a folder"]) == 0
    [command] = re.findall("^  (.* run .*)", capsys.readouterr().out, re.M)
    done = subprocess.run(
        f"{command} --json -- -n", shell=True, env=environment(), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "measure" in done.stderr
    assert json.loads(done.stdout)["folder"] == str(tmp_path / "results" / "mine")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("sweep {} --axes TILE=16", "axes: 'TILE' is not known; allowed: block_x, PER_THREAD."),
        ("sweep {} --axes block_x=0", "Argument 'axes.block_x' is 0; it must be at least 1."),
        ("sweep {} --axes block_x", "argument --axes: 'block_x' must be NAME=VALUES, such as"),
        ("sweep {} --axes block_x=32 64", "'64' must be NAME=VALUES, such as"),
        ("sweep {} --axes =32", "'=32' must be NAME=VALUES, such as"),
        ("sweep {} --axes block_x=32,,64", "separate axes by blanks"),
        ("sweep {} --axes block_x=32,block_y=", "'block_y=' must be NAME=VALUES"),
        ("sweep {} --axes block_x=32,2y=2", "'block_x=2y=2': a block must have a whole number"),
        ("sweep {} --axes block_x==32", "separate values by commas, without brackets"),
        ("sweep {} --axes block_x=32:64:16:9", "'block_x=32:64:16:9': a range must be FROM:TO"),
        ("sweep {} --axes PER_THREAD=1:", "'PER_THREAD=1:': a range must be FROM:TO"),
        ("sweep {} --axes PER_THREAD=1:4:0", "the range is empty"),
        ("sweep {} --axes PER_THREAD=4:1", "the range is empty"),
        ("sweep {} --axes PER_THREAD=[1,2]", "such as PER_THREAD=16,32"),
        ("sweep {} --axes block_x=x64", "'block_x=x64': a block must have a whole number"),
        ("sweep {} --axes block_x=8.5", "'block_x=8.5': a block must have a whole number"),
        ("sweep {} --axes PER_THREAD=on", "'axes.PER_THREAD.0' is 'on'"),
        (
            "tune x.cl f --size 4 --arguments x=empty(n) --axes block_x=32 a=1,2,block_y=y3",
            "'block_y=y3': a block must have a whole number",
        ),
        ("sweep {} --search gided", "'search.mode' is 'gided'; allowed are all, race, guided"),
        ("sweep {} --sizes 8y", "argument --sizes: '8y' must be a number or such as 512x1024"),
        ("sweep {} --dtypes int", "dtypes: 'int' is not known; allowed: float, double."),
        ("sweep {} --measure samples=9", "Unknown argument 'samples'; allowed here: axes, "),
        ("sweep {} --measure max_samples=6", "max_samples is 6 but must be at least min_samples"),
        ("sweep {} --measure samples", "argument --measure: 'samples' must be KEY=VALUE, such"),
        (
            "sweep {} --measure max_cells=2",
            "a run may have 2: sweep fewer values or sizes, or raise max_cells",
        ),
        ("sweep {}/nothing", "is not a kernel's folder; there is no"),
        ("sweep {} --backend metal", "Argument 'backend' is 'metal'; allowed are auto, "),
        ("new mine --in {}/..", "exists already; choose another name."),
        ("new 3rd", "name: '3rd' cannot be a kernel's; it must be a letter and then letters"),
        ("new mine --in {}/kernel.cl", "cannot be written to (File exists): name another one"),
        ("old", "invalid choice: 'old'"),
        ("ab {} --blocks=9", "gpushmoo: --blocks is now --rounds; run with --help"),
        ("versus {}", "gpushmoo: versus is now ab; run with --help"),
        ("sweep {} --dtype float", "gpushmoo: --dtype is now --dtypes; run with --help"),
        (
            "tune x.cl f --size 4 --arguments x=empty(n) --axes block_x=32 --moved 8",
            "gpushmoo: --moved is now --bytes-moved; run with --help",
        ),
        (
            "sweep {} --colour red",
            "unrecognized arguments: --colour red; run with --help",
        ),
        ("list {}", "invalid choice: "),
        ("predict {} --dtype float --size 64", "such as `--axes PER_THREAD=32 block_x=32`"),
        (
            "run {}/nothing.yaml",
            "' is not a file; pass the path of a configuration file.",
        ),
    ],
)
def test_what_cannot_be_is_told_in_one_sentence(
    words: str, sentence: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status = main(words.format(folder).split())
    said = capsys.readouterr().err
    assert status == 2
    assert said.startswith("gpushmoo: ")
    assert sentence in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "axes"),
    [
        ("block_x=32,64,block_y=2", {"block_x": [32, 64], "block_y": [2]}),
        ("a=1,2,b=3 a=4", {"a": [1, 2, 4], "b": [3]}),
        (
            "block_x=4:64:1,block_y=4:64",
            {"block_x": [{"from": 4, "to": 64, "step": 1}], "block_y": [{"from": 4, "to": 64}]},
        ),
        ("A=010,1e3,-2.5,true", {"A": [10, 1000.0, -2.5, True]}),
        (
            "T=on,null,2024-01-01,std::plus,x==y,lib::f(4)",
            {"T": ["on", "null", "2024-01-01", "std::plus", "x==y", "lib::f(4)"]},
        ),
    ],
)
def test_axes_are_read_as_they_are_written(
    words: str, axes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(measure, "sweep", lambda _, **given: sys.exit(asked.append(given["axes"])))
    with pytest.raises(SystemExit):
        main(["sweep", "kernel", "--axes", *words.split()])
    assert asked == [axes]


@pytest.mark.parametrize(("word", "device"), [("all", "all"), ("1", 1)])
def test_the_shell_takes_all_devices_or_an_index(
    word: str, device: int | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(
        measure, "sweep", lambda _, **given: sys.exit(asked.append(given["device"]))
    )
    with pytest.raises(SystemExit):
        main(["sweep", "kernel", "--device", word])
    assert asked == [device]


def test_pairs_are_measured_on_one_device(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ab", str(folder), "--variant-a", "good", "--device", "all"]) == 2
    assert "'device' is 'all'; it must be a whole number" in capsys.readouterr().err


def test_without_a_device_the_shell_says_what_is_missing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: Any) -> None:
        raise NoDeviceError("There is none.")

    monkeypatch.setattr(measure, "devices_of", refuse)
    assert main(["sweep", str(folder)]) == 3
    assert capsys.readouterr().err == "gpushmoo: There is none.\n"


def test_what_does_not_fit_is_refused_before_anything_is_compiled(
    device: dict[str, str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure, "build_in_subprocess", pytest.fail)
    with pytest.raises(ConfigError, match=r"needs .* GiB, but the device has .* smaller size"):
        sweep(folder, sizes=[10**6], progress=False, **device)


def test_of_many_repeats_few_processes_stay(
    device: dict[str, str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers = measure.Workers(keep=True)
    monkeypatch.setattr(measure, "WORKERS", workers)
    axes = {"block_x": [32], "PER_THREAD": [1]}
    what = {"axes": axes, "dtypes": "float", "sizes": 64, "repeats": 5}
    result = sweep(folder, **what, progress=False, **SHORT, **device)
    assert result.cells["repeat_medians_s"].map(len).tolist() == [5]
    assert len(workers._kept) == 3
    for worker in workers._kept.values():
        worker.stop()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_how_many_versions_are_compiled_and_no_line_for_each(
    device: dict[str, str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setattr(measure, "_FEW_VERSIONS", 1)
    axes = {"block_x": [32], "PER_THREAD": [1, 2, 3, 4]}
    sweep(folder, axes=axes, dtypes="float", sizes=64, repeats=3, **SHORT, **device)
    shown = terminal.getvalue()
    assert "compiling, 0 of 4 versions done" in shown
    assert "compiling, 4 of 4 versions done" in shown
    assert "% of 4 cells" in shown
    kept = [line.rpartition("\x1b[K")[2] for line in shown.split("\n")]
    # On a busy machine a compiler may take long, which is said.
    kept = [line for line in kept if "has been compiling" not in line]
    # Later repeats, all ok, have none.
    assert len(kept) == 2
    assert "4 ok in" in kept[0]
    assert kept[1] == ""


class Defined(CopyWorkload):
    """As a notebook defines it; one variant takes the measuring process down."""

    name = "defined"
    title = "Defined here"
    pattern = "one float a thread"
    dtypes = ("float",)
    variants = ("good", "bad")
    sizes = (64,)
    axes: Any = {"block_x": [32]}  # noqa: RUF012
    views = (Curve("block_x", unit="threads"),)

    def launch(self, cell: Any) -> Launch:
        n, block = cell.problem.height * cell.problem.width, cell["block_x"]
        args = (BufferRef("dst"), BufferRef("src"), np.uint64(n))
        return Launch(cell.variant, (ceil_div(n, block), 1, 1), (block, 1, 1), args, n)


SOURCE = """
#define KERNEL(name, place) \\
    __kernel void name(__global float *dst, __global const float *src, const ulong n) \\
    { const ulong i = get_global_id(0); if (i < n) dst[place] = src[i]; }
KERNEL(good, i)
KERNEL(bad, i + ((ulong)1 << 38))
"""


def test_a_workload_of_the_program_is_measured(device: dict[str, str], place: Path) -> None:
    found = sweep(Defined(), source=SOURCE, progress=False, **SHORT, **device)
    cells = found.cells.set_index("variant")
    assert cells["status"].to_dict() == {"good": "ok", "bad": "launch_failed"}
    assert "was ended by SIGSEGV" in cells.loc["bad", "message"]
    assert "was ended by SIGSEGV" in found.log
    with pytest.raises(ConfigError, match="heatmap: it needs two axes; the kernel has block_x"):
        found.heatmap()


class Unfit(Defined):
    """Cannot be sent to another process."""

    def __init__(self) -> None:
        self.held = (n for n in ())


class Misnamed(Defined):
    """Has the name of no folder."""

    name = "a/b"


@pytest.mark.parametrize(
    ("make", "source", "sentence"),
    [
        (Defined, None, "source: a workload without a folder needs the text of its kernel"),
        (Defined, {".metal": ""}, "source: '.metal' is not known; allowed: "),
        (Unfit, SOURCE, "kernel: the workload cannot be sent to the measuring process"),
        (Misnamed, SOURCE, "kernel: the workload's name is 'a/b'; it must consist of letters"),
        (lambda: ROOT / "kernels" / "transpose", SOURCE, "source: a kernel's folder has its own"),
    ],
)
def test_a_workload_that_cannot_be_swept_is_refused(
    make: Callable[[], Any], source: Any, sentence: str, device: dict[str, str], place: Path
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        sweep(make(), source=source, **device)


def test_a_guided_sweep_leaves_cells_out(folder: Path, device: dict[str, str]) -> None:
    axes = {"block_x": {"from": 16, "to": 256, "step": 4}, "PER_THREAD": 1}
    # However unsteady the machine: it ends at a half of them at the latest.
    asked = {"mode": "guided", "max_share": 0.5}
    what = {"axes": axes, "dtypes": "float", "sizes": 64, "search": asked}
    found = sweep(folder, **what, progress=False, **SHORT, **device)
    assert set(found.statuses) <= {"ok", "not_searched"}
    assert found.statuses["not_searched"] >= 30
    [search] = found.searches.to_dict("records")
    assert (search["candidates"], search["measured"]) == (61, found.statuses["ok"])
    assert search["ended"] in ("stop", "budget")
    assert not set(found.best["block_x"]) - set(
        found.cells.loc[found.cells["status"] == "ok", "block_x"]
    )


def test_the_options_of_run_are_known_without_its_parser() -> None:
    [commands] = (a for a in shell.build_parser()._actions if a.choices)
    own = [name for a in commands.choices["run"]._actions for name in a.option_strings]
    assert sorted(own) == sorted(run.OPTIONS)


def test_the_parser_needs_no_slow_import() -> None:
    code = "import sys; from gpushmoo.interactive.shell import build_parser; build_parser(); "
    slow = ("numpy", "pandas", "pyarrow", "pydantic", "rich", "yaml")
    done = python(f"{code}print([m for m in {slow} if m in sys.modules])")
    assert done.stdout == "[]\n"


def test_a_call_takes_all_keys_of_a_section_but_that_of_many_jobs() -> None:
    keys, arguments = keys_of(Measure), keys_of(Arguments)
    assert {*keys} - {*arguments} == {"cells_per_shard"}
    for name in keys.keys() & arguments.keys():
        assert keys[name].meaning == arguments[name].meaning
        assert bounds_of(keys[name].annotation) == bounds_of(arguments[name].annotation)
        if name not in ("repeats", "budget"):
            assert keys[name].default == arguments[name].default

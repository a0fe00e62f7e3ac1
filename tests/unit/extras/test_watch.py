"""The live view: what it says of a run at any moment, and of folders that hold none."""

import io
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from begun import DTYPE, KERNEL, SHARD, finish
from begun import run as run  # a fixture
from begun import shards as shards  # a fixture
from bench import Bench
from conftest import ROOT
from fakes import Tiny, make_cells
from gpushmoo.core.errors import WatchError
from gpushmoo.core.run_plan import PLAN_FILE, RunPlan
from gpushmoo.core.schema import Status
from gpushmoo.devices.select import DeviceChoice
from gpushmoo.extras.watching import view
from gpushmoo.extras.watching.view import QUIET_S, RunState, Watched
from gpushmoo.interactive.shell import main
from gpushmoo.measuring.events import CellRun
from gpushmoo.measuring.progress import FOLDER, LiveFile, LiveShard, live_path, read_live
from gpushmoo.storage.wholefile import read_json, write_json
from rich.console import Console


def begin(run: Path, *lines: Any, of: str = SHARD) -> Path:
    """Leave the file of a shard on its way; lines that are texts are written as they are."""
    path = live_path(run, run / of)
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(x if isinstance(x, str) else json.dumps(x) + "\n" for x in lines))
    return path


def known(x: int, y: int, status: str | None = "ok", gbs: float | None = 100.0) -> dict[str, Any]:
    which = {"key": f"{x}-{y}", "variant": "element", "height": 1024, "width": 1024}
    params = {"block_x": x, "block_y": y}
    return (
        which
        | {"cache_state": "warm", "params": params, "status": status, "gbs": gbs}
        | {"seconds": None if gbs is None else 1e-3 / gbs}
    )


HEAD = {"label": "shard 1/2 copy2d_coalesced float", "cells": 24, "taken": 0, "begun_at": 1.0}


def text(state: RunState, width: int = 100, coloured: bool = False, height: Any = None) -> str:
    console = Console(
        file=io.StringIO(), width=width, color_system="truecolor" if coloured else None
    )
    console.print(view.frame(state, width, coloured, height))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_plan_is_said_and_a_shard_on_its_way_fills_the_map(run: Path) -> None:
    state = Watched(run).state()
    assert (state.planned, state.ended, state.shards, state.left_s) == (48, 0, [0, 2], None)
    said = text(state)
    assert said.startswith(
        "mine: 0 % of the work, 0 of 48 cells have ended, 0 of 2 shards, no cell"
    )
    assert "Cells that have ended: none yet." in said
    begin(
        run,
        HEAD,
        {"share": 0.0, "cells": [known(2048, 4, "too_many_threads", None)]},
        {"share": 0.2, "cells": [known(32, 1, None, 50.0), known(64, 1, None, 400.0)]},
        {"share": 0.5, "cells": [known(32, 1, "ok", 80.0)]},
        '{"share": 0.9, "cel',
    )
    state = Watched(run).state()
    assert (state.ended, state.done, state.statuses["ok"]) == (2, 12.0, 1)
    assert state.sweeps[1].best is not None
    assert state.sweeps[1].best.gbs == 80.0
    said = text(state)
    assert "Being measured: shard 1/2 copy2d_coalesced float." in said
    # Nothing is known of block_y = 2, which therefore has no line as yet.
    assert "      1 2 9 · \n      4 · · × \n" in said
    assert "9 is 400 GB/s" in said
    assert "█" in text(state, coloured=True)
    assert "80.0 GB/s  block_x=32, block_y=1 (element, 1024 x 1024, warm)" in said


def test_a_kernel_that_moves_nothing_is_shown_with_its_seconds(run: Path) -> None:
    cells = [
        known(32, 1, "ok", None) | {"seconds": 3e-3},
        known(64, 1, "ok", None) | {"seconds": 2e-3},
    ]
    begin(run, HEAD, {"share": 0.5, "cells": cells})
    assert "2.00 ms  block_x=64, block_y=1" in text(Watched(run).state())


def test_the_rest_is_told_and_a_killed_job_does_not_count(run: Path) -> None:
    started = (run / PLAN_FILE).stat().st_mtime
    # Before that it compiled, which takes as long however many cells there are.
    head = HEAD | {"begun_at": started + 90.0}
    path = begin(run, head, {"share": 0.0, "cells": []})
    os.utime(path, (started + 100.0, started + 100.0))
    # As long as nothing is measured, nothing is known.
    assert Watched(run).state(started + 100.0).left_s is None
    begin(run, head, {"share": 0.5, "cells": []})
    os.utime(path, (started + 100.0, started + 100.0))
    assert Watched(run).state(started + 100.0).left_s == pytest.approx(30.0)
    # A tenth of a second for next to nothing of its cells is no speed of a sweep.
    other = begin(
        run,
        head | {"begun_at": started + 99.9},
        {"share": 0.001, "cells": []},
        of=SHARD.replace(DTYPE, "double"),
    )
    os.utime(other, (started + 100.0, started + 100.0))
    left_s = Watched(run).state(started + 100.0).left_s
    assert left_s is not None
    assert 20.0 < left_s < 60.0
    other.unlink()
    # Two later repeats of each shard, thought half as long: twice as much again.
    plan = RunPlan.from_plain(read_json(run / PLAN_FILE))
    thrice = {
        dtype: replace(sweep, job=replace(sweep.job, measure=replace(sweep.job.measure, repeats=3)))
        for dtype, sweep in plan.sweeps[KERNEL].items()
    }
    write_json(run / PLAN_FILE, RunPlan({KERNEL: thrice}).as_plain())
    os.utime(run / PLAN_FILE, (started, started))
    assert Watched(run).state(started + 100.0).left_s == pytest.approx(70.0, rel=0.01)
    path = begin(run, HEAD, {"share": 0.5, "cells": [known(32, 1)]})
    told = path.stat().st_mtime
    state = Watched(run).state(told + QUIET_S + 20.0)
    assert (state.ended, state.labels, state.left_s) == (0, [], None)
    assert "nothing heard for 1 min" in text(state)


def test_a_finished_run_is_told_with_all_cells_read_once(
    run: Path, shards: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    finish(run, shards, DTYPE, "double")
    watched = Watched(run)
    state = watched.state()
    monkeypatch.setattr("gpushmoo.extras.watching.view._read_shard", None)
    assert watched.state() == replace(state, quiet_s=pytest.approx(state.quiet_s, abs=60.0))
    assert state.finished
    assert sum(state.statuses.values()) == 48
    assert text(state).startswith(
        "mine: 100 % of the work, 48 of 48 cells have ended, 2 of 2 shards, all"
    )


def test_a_shard_of_another_plan_is_none(run: Path, shards: dict[str, Path]) -> None:
    finish(run, shards, DTYPE)
    (run / SHARD.replace(DTYPE, "double")).parent.mkdir()
    shutil.copy(shards[DTYPE], run / SHARD.replace(DTYPE, "double"))
    state = Watched(run).state()
    assert (state.shards, [s.ended for s in state.sweeps]) == ([1, 2], [0, 24])
    (run / SHARD).write_bytes((run / SHARD).read_bytes()[:-9])
    assert Watched(run).state().shards == [0, 2]


def test_a_folder_that_is_no_run_is_said(run: Path, tmp_path: Path) -> None:
    with pytest.raises(WatchError, match=r"there is no run '.*other'; there are: mine\.$"):
        Watched(run.parent / "other")
    with pytest.raises(WatchError, match=r"there is no run '.*nothing'\.$"):
        Watched(tmp_path / "nothing")
    with pytest.raises(WatchError, match=r"has no plan\.json: nothing is measured in it, or"):
        Watched(tmp_path)
    # Of another version, and damaged.
    sweep = {"params": {}, "parts": 1}
    for text in (json.dumps({"copy": {"float": sweep}}), '{"copy": []}', "{"):
        (run / PLAN_FILE).write_text(text)
        with pytest.raises(
            WatchError, match="is not a plan that this version of gpushmoo can read"
        ):
            Watched(run)


@pytest.mark.parametrize(
    "lines",
    [
        ['{"label": "sh'],
        [HEAD, {"share": 0.1}],
        [HEAD, {"share": 0.1, "cells": [{"key": "of another version"}]}],
        ["[]\n"],
    ],
)
def test_a_file_that_says_nothing_is_passed_over(run: Path, lines: list[Any]) -> None:
    assert read_live(begin(run, *lines)) is None
    assert Watched(run).state().labels == []


def test_the_shell_prints_one_frame_where_there_is_no_terminal(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(run.parents[1])
    assert main(["watch"]) == main(["watch", "results/mine", "--once"]) == 0
    said = capsys.readouterr().out
    assert said.count("mine: 0 % of the work, 0 of 48 cells") == 2
    assert "\x1b" not in said
    shutil.rmtree(run)
    assert main(["watch"]) == 2
    assert capsys.readouterr().err == (
        "gpushmoo: there is no run in 'results'; start one, or name its folder.\n"
    )


@pytest.mark.parametrize("interrupted", [False, True])
def test_in_a_terminal_it_goes_on_until_the_run_is_finished(
    run: Path, shards: dict[str, Path], monkeypatch: pytest.MonkeyPatch, interrupted: bool
) -> None:
    terminal = Console(file=io.StringIO(), force_terminal=True, width=100, height=40)
    left = [DTYPE, "double"]

    def wait(_: float) -> None:
        if interrupted:
            raise KeyboardInterrupt
        finish(run, shards, left.pop())

    monkeypatch.setattr(view, "Console", lambda **_: terminal)
    monkeypatch.setattr(view.time, "sleep", wait)
    # The tests after this one shall not be slower for it.
    monkeypatch.setattr(view.os, "nice", lambda _: 0)
    view.watch(run, once=False)
    assert isinstance(terminal.file, io.StringIO)
    said = terminal.file.getvalue()
    assert "mine: 0 % of the work, 0 of 48 cells" in said
    assert ("24 of 48 cells have" in said) == ("all measured" in said) == (not interrupted)


def test_a_job_tells_of_every_cell_and_leaves_no_file(
    opencl_choice: DeviceChoice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[LiveShard | None] = []
    close = LiveFile.close

    def keep(file: LiveFile) -> None:
        (path,) = (tmp_path / FOLDER).iterdir()
        kept.append(read_live(path))
        close(file)

    monkeypatch.setattr(LiveFile, "close", keep)
    bench = Bench(opencl_choice, ROOT / "kernels/global_copy", tmp_path)
    axes = {"block_x": [32, 64], "unroll": [1, 2], "passes": 1}
    cells = bench.measure(["plain"], axes=axes).set_index("cell_key")
    (told,) = kept
    assert told is not None
    assert (told.cells, told.taken) == (4, 0)
    assert set() < {cell.key for cell in told.known} <= set(cells.index)
    for cell in told.known:
        assert cell.params == {axis: cells.loc[cell.key, axis] for axis in axes}
        assert cell.gbs is not None
        if cell.status is not None:
            assert cell.gbs == pytest.approx(cells.loc[cell.key, "bandwidth_gbs"])
    assert list((tmp_path / FOLDER).iterdir()) == []


def test_without_a_live_file_all_goes_on(opencl_choice: DeviceChoice, tmp_path: Path) -> None:
    (tmp_path / FOLDER).write_text("a file in the folder's place")
    bench = Bench(opencl_choice, ROOT / "kernels/global_copy", tmp_path)
    cells = bench.measure(["plain"], axes={"block_x": [32], "unroll": [1], "passes": 1})
    assert cells["status"].tolist() == ["ok"]


def test_the_live_file_has_the_speed_of_a_first_launch_and_then_of_the_samples(
    tmp_path: Path,
) -> None:
    first, failed, *_ = make_cells()
    workload = Tiny()
    runs = {cell.key: CellRun(cell, workload.launch(cell)) for cell in (first, failed)}
    path = tmp_path / "live"
    file = LiveFile(path, workload, "shard 1/2", 2, 0)
    file.tell(runs, {first.key: 4e-6}, 0.25)
    runs[first.key].end(Status.OK)
    runs[first.key].samples_s = [2e-6] * 7
    runs[failed.key].end(Status.TIMEOUT)
    moved = sum(workload.bytes_moved(first))
    told = read_live(path)
    assert told is not None
    assert [(c.status, c.gbs) for c in told.known] == [(None, pytest.approx(moved / 4e3))]
    file.tell(runs, {first.key: 4e-6}, 1.0)
    told = read_live(path)
    assert told is not None
    found = {cell.key: (cell.status, cell.seconds, cell.gbs) for cell in told.known}
    assert found == {
        first.key: ("ok", pytest.approx(2e-6), pytest.approx(moved / 2e3)),
        failed.key: ("timeout", None, None),
    }

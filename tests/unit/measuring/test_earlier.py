"""A cell is measured once: what jobs take over from those before them, and what they do not."""

import io
import shutil
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from unittest import mock

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bench import Bench
from conftest import ROOT
from fakes import INFO, FakeDevice
from gpushmoo.analysis.aggregate import aggregate, fault_of
from gpushmoo.core.errors import DeviceError
from gpushmoo.core.python_digest import python_digest
from gpushmoo.core.shard_job import ShardJob
from gpushmoo.devices.base import identity
from gpushmoo.devices.select import DeviceChoice
from gpushmoo.measuring import job as measuring_job
from gpushmoo.measuring.job import ShardTask, run_shard
from gpushmoo.measuring.process import Workers
from gpushmoo.measuring.programs import space_here
from gpushmoo.measuring.progress import Progress
from gpushmoo.measuring.shard_file import Earlier
from gpushmoo.report.method import earlier_finding, earlier_words
from gpushmoo.storage.store import read_shard, write_parquet
from gpushmoo.workloads.loader import load_kernel
from jobs import job_of
from older import made_older

FOLDER = ROOT / "kernels/global_copy"
SIX = {"repeats": 2, "min_samples": 6, "max_samples": 12}


class Run:
    """Measures shards of one sweep, each by a job of its own, as rule `measure` does."""

    def __init__(self, choice: DeviceChoice, root: Path, params: dict[str, Any]) -> None:
        self._choice, self.root, self.params = choice, root, params
        self.terminal, self.workers = io.StringIO(), Workers(keep=True)
        # How many cells the last job had to measure.
        self.asked = 0

    def measure(
        self,
        again: tuple[str, ...] = (),
        code: str = "code",
        repeat: int = 1,
        shard: tuple[int, int] = (0, 1),
        **params: Any,
    ) -> pd.DataFrame:
        """The shard's rows, by cell; `params` are in the place of the usual ones."""
        asked = self.params | params | {"repeat": repeat, "shard": list(shard)}
        job = ShardJob.of_plain(asked)
        name = f"{shard[0]:04d}-of-{shard[1]:04d}"
        first = self.root / "cells/sweep/float" / f"{name}.parquet"
        out = first if repeat == 1 else first.with_name(f"{name}.repeat-{repeat}.parquet")
        out.unlink(missing_ok=True)
        earlier = Earlier(out, job, code)
        earlier.read(again)
        self.terminal = io.StringIO()
        before = None if repeat == 1 else first
        # Its own: what another worker compiles at the same time may be other machine code, and
        # cells of other code are not taken over.
        task = ShardTask(
            job, (1, 1), self.root / ".cache", before, earlier=earlier, workers=self.workers
        )

        def progress(label: str, cells: int, *others: Any) -> Progress:
            self.asked = cells
            return Progress(label, cells, *others)

        with mock.patch.object(measuring_job, "Progress", progress):
            run_shard(task, out, self.terminal)
        self.table, self.metadata = read_shard(out)
        assert fault_of(out, self.table, self.metadata, None) is None
        return self.table.to_pandas().set_index("cell_key")

    def end(self) -> None:
        """End the measuring processes, which stay from job to job."""
        for worker in self.workers._kept.values():
            worker.stop()

    @property
    def kept(self) -> list[Path]:
        return sorted((self.root / "cells/.kept").rglob("*.kept"))


def run_in(folder: Path, choice: DeviceChoice) -> Run:
    """Of which nothing was measured."""
    params = Bench(choice, FOLDER, folder).params(["plain"])
    params["measure"] |= SIX
    params["axes"] = {"block_x": [32, 64], "unroll": 1, "passes": 1}
    return Run(choice, folder, params)


@pytest.fixture
def run(opencl_choice: DeviceChoice, tmp_path: Path) -> Iterator[Run]:
    made = run_in(tmp_path, opencl_choice)
    yield made
    made.end()


@pytest.fixture(scope="module")
def original(opencl_choice: DeviceChoice, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("begun")
    made = run_in(folder / "run", opencl_choice)
    made.measure()
    made.end()
    return folder / "run"


@pytest.fixture
def begun(run: Run, original: Path) -> Run:
    """Both cells of its sweep were measured once."""
    shutil.copytree(original, run.root, dirs_exist_ok=True)
    return run


@pytest.mark.parametrize("mode", ["all", "race"])
def test_only_what_is_new_is_measured(run: Run, mode: str) -> None:
    """One more value, a second repeat of both, another cut into shards, a shard that is gone."""
    run.params["measure"]["search"]["mode"] = mode
    before = run.measure()
    assert run.asked == 2
    run.measure(repeat=2)
    more = {"block_x": [32, 64, 128], "unroll": 1, "passes": 1}
    rows = run.measure(axes=more)
    assert run.asked == 1
    assert "2 cells were measured before" in run.terminal.getvalue()
    assert [told["cells"] for told in run.metadata["earlier"]] == [2]
    taken = rows.loc[before.index]
    pd.testing.assert_frame_equal(taken, before)
    assert rows["launches_per_sample"].nunique() == 1
    again = run.measure(repeat=2, axes=more)
    assert run.asked == 1
    assert list(again.index) == list(rows.index)
    assert len(run.kept) == 2
    # All is there when the shard itself is gone; a new size is all that a further shard measures.
    pd.testing.assert_frame_equal(run.measure(axes=more), rows)
    assert run.asked == 0
    sizes = [[64, 64], [32, 64]]
    parts = [run.measure(axes=more, sizes=sizes, shard=(i, 2)) for i in range(2)]
    assert {len(part) for part in parts} == {3}
    assert run.asked == 3
    part = next(p for p in parts if set(p["height"]) == {64})
    pd.testing.assert_frame_equal(part, rows)


@pytest.mark.parametrize("other", ["code", "seed", "settings", "device", "build", "damage"])
def test_other_conditions(begun: Run, other: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run = begun
    said = None
    if other == "code":
        run.measure(code="other code")
    elif other == "seed":
        run.measure(seed=2)
    elif other == "settings":
        run.measure(measure=run.params["measure"] | {"warmup": 1})
    elif other == "damage":
        (path,) = run.kept
        path.write_bytes(path.read_bytes()[:-100] + bytes(100))
        run.measure()
        assert len(run.kept) == 1
    else:
        taken = Earlier.taken
        said = {"device": "another driver (1 → 2): 2 cells", "build": "machine code of plain"}[
            other
        ]

        def elsewhere(self: Earlier, opened: Any, *args: Any) -> Any:
            if other == "device":
                for _, metadata in self._read.values():
                    metadata["device"]["driver"] = "1"
                opened = replace(opened, info=replace(opened.info, driver="2"))
            else:
                opened = replace(opened, codes=dict.fromkeys(opened.codes, "another"))
            return taken(self, opened, *args)

        monkeypatch.setattr(Earlier, "taken", elsewhere)
        run.measure()
    assert run.asked == 2
    assert ("measured again for another" in run.terminal.getvalue()) == (said is not None)
    assert (said or "") in run.terminal.getvalue()


def test_cells_of_a_file_with_former_names_are_not_measured_again(begun: Run) -> None:
    """Nor if a former name is that of how a cell ended, unless the present one is asked for."""
    (path,) = begun.kept
    table, metadata = read_shard(path)
    place = table.schema.get_field_index("status")
    ends = pa.array(["ok", "device_lost"], pa.string())
    write_parquet(table.set_column(place, table.schema.field(place), ends), path, metadata)
    made_older(path)
    assert "own_low_s" in pq.read_schema(path).names
    assert pq.read_table(path)["status"].to_pylist() == ["ok", "lost_device"]
    kept = read_shard(path)[0].to_pandas().set_index("cell_key")
    rows = begun.measure()
    assert begun.asked == 0
    assert dict(rows["status"].value_counts()) == {"ok": 1, "device_lost": 1}
    pd.testing.assert_frame_equal(rows, kept)
    assert dict(begun.measure(again=("device_lost",))["status"].value_counts()) == {"ok": 2}
    assert begun.asked == 1


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
def test_a_job_refuses_no_size_for_what_a_cpus_host_has_free(kind: str) -> None:
    job = job_of(sizes=[[64, 64]], variants=["plain"])
    device = FakeDevice()
    device.info = replace(device.info, kind=kind, global_memory=1, max_allocation=1)
    with pytest.raises(DeviceError) if kind == "gpu" else nullcontext():
        space_here(device.info, load_kernel(FOLDER), job)
    job = job_of(sizes=[[10**8, 10**8]], variants=["plain"])
    with pytest.raises(DeviceError, match="choose a smaller size"):
        space_here(device.info, load_kernel(FOLDER), job)


def test_of_a_device_counts_what_changes_times() -> None:
    def told(**facts: Any) -> dict[str, Any]:
        return identity(asdict(replace(INFO, **facts)))

    for facts in ({"global_memory": 1}, {"max_allocation": 1}, {"max_image": (1, 1)}):
        assert told(**facts) == told()
    others = {"driver": "2", "runtime": "2", "uuid": "fake-1", "extra": {"ecc": "1"}}
    for name, value in {**others, "multiprocessors": 8, "core_clock_mhz": 999}.items():
        assert told(**{name: value}) != told()
    # What a runtime tells of a CPU's clock may be that of the moment.
    assert told(kind="cpu", core_clock_mhz=999) == told(kind="cpu")


def test_cells_that_are_asked_for_again_are_measured_again(run: Run) -> None:
    axes = {"block_x": [32, 64, 4096], "unroll": 1, "passes": 1}
    run.measure(axes=axes, thread_limit=1024)
    rows = run.measure(axes=axes, thread_limit=1024, again=("ok",))
    assert run.asked == 2
    assert dict(rows["status"].value_counts()) == {"ok": 2, "too_many_threads": 1}
    assert len(run.kept) == 1


def test_a_repeat_with_other_launches_is_measured_again(run: Run) -> None:
    """Else two repeats of a cell would not be alike."""
    first = run.measure()
    run.measure(repeat=2)
    assert run.measure(repeat=2) is not None
    assert run.asked == 0
    path = run.root / "cells/sweep/float/0000-of-0001.parquet"
    table = run.measure() is not None and run.table
    place = table.schema.get_field_index("launches_per_sample")
    field = table.schema.field(place)
    more = pa.array([n + 1 for n in table.column(place).to_pylist()], field.type)
    write_parquet(table.set_column(place, field, more), path, run.metadata)
    rows = run.measure(repeat=2)
    assert run.asked == 2
    assert set(rows["launches_per_sample"]) == set(first["launches_per_sample"] + 1)


def test_what_is_of_different_jobs_has_the_wider_interval(run: Run) -> None:
    """Cells of one job share what the machine did meanwhile; those of two do not."""
    wide = {"block_x": {"from": 8, "to": 96, "step": 8}, "unroll": 1, "passes": 1}
    for repeat in (1, 2):
        run.measure(axes=wide, repeat=repeat)
    more = {"block_x": {"from": 8, "to": 104, "step": 8}, "unroll": 1, "passes": 1}
    for axes, alone in ((wide, True), (more, False)):
        for repeat in (1, 2):
            run.measure(axes=axes, repeat=repeat)
        files = sorted((run.root / "cells/sweep/float").glob("*.parquet"))
        aggregate(files, run.root / "dataset")
        cells = pd.read_parquet(run.root / "dataset")
        whole = (cells["group_low_s"] == cells["median_low_s"]).all()
        assert whole != alone


def test_the_report_says_what_was_measured_earlier() -> None:
    at = [{"measured_at": f"2026-11-{d}T10:03:09.123+00:00", "cells": d} for d in (20, 21)]
    shard = {"params": {"repeat": 1}, "earlier": at}
    (said,) = earlier_finding([shard, {"params": {"repeat": 2}, "earlier": at}])
    assert said.startswith("This report reuses 41 cells that an earlier start of the run measured ")
    assert "(2026-11-20 to 2026-11-21)" in said
    assert earlier_words([shard]) == (
        "; 20 cells of 2026-11-20 10:03; 21 cells of 2026-11-21 10:03"
    )
    assert earlier_finding([{"params": {"repeat": 1}}]) == []


SOURCE = """
class K:
    title = "T"
    axes = {"x": [1, 2]}
    compile_axes = ("x",)
    def launch(self, cell):
        return cell["x"]
"""


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("[1, 2]", "[1, 2, 3]", True),
        ('"T"', '"U"', True),
        ('("x",)', "()", False),
        ('cell["x"]', "len(self.axes)", False),
        ("return", "axes = 3; return", False),
    ],
)
def test_what_is_swept_is_no_part_of_what_is_measured(old: str, new: str, same: bool) -> None:
    left_out = frozenset({"axes", "title"})
    digests = [python_digest(s.encode(), left_out) for s in (SOURCE, SOURCE.replace(old, new))]
    assert (digests[0] == digests[1]) == same


def test_what_a_method_reads_counts() -> None:
    reading = SOURCE.replace('cell["x"]', "len(self.axes)")
    digests = [
        python_digest(s.encode(), frozenset({"axes"}))
        for s in (reading, reading.replace("[1, 2]", "[1]"))
    ]
    assert digests[0] != digests[1]


def test_a_kernel_with_neighbours_counts_whole(tmp_path: Path) -> None:
    """What it shares with them may read what it does not."""
    digests = []
    for name in ("alone", "shared"):
        folder = tmp_path / name / "kernel"
        folder.mkdir(parents=True)
        text = (FOLDER / "workload.py").read_text().replace('"global_copy"', '"kernel"')
        if name == "shared":
            (tmp_path / name / "common").mkdir()
            (tmp_path / name / "common/__init__.py").write_text("")
            text = text.replace("import numpy as np", "import common\nimport numpy as np")
        (folder / "workload.py").write_text(text)
        before = load_kernel(folder).digest(".cl")
        (folder / "workload.py").write_text(text.replace("title = ", 'title = "Other " + '))
        digests.append(before == load_kernel(folder).digest(".cl"))
    assert digests == [True, False]

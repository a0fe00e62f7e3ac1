"""A made-up GPU whose clock shows S(n) = c + n·t, and on which the place of buffers matters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from fakes import FOLDER, INFO, FakeCopy, FakeDevice, Tag, make_cells, work
from gpushmoo.core.space import USUAL, Cell, CellGroup, Condition
from gpushmoo.devices.base import DeviceInfo, TimedInterval
from gpushmoo.measuring.events import CellRun, MeasureCells, ShardResult
from gpushmoo.measuring.sampling import TOGETHER, StoppingRule
from gpushmoo.measuring.shard_file import cell_table
from gpushmoo.measuring.supervise import FaultLimits, Supervisor
from gpushmoo.storage.store import write_parquet
from jobs import sampling_of
from synthetic import shard_metadata, shard_params

RULE = StoppingRule(6, 9, 0.002, 1e9)


@dataclass
class RowDevice(FakeDevice):
    """Launches of `launch_s` and a few percent more by block, samples that cost `overhead_s`.

    A launch that is not in a row, and the first look at one, take `cold` times as long. Samples
    have a relative `noise`. A place of buffers changes the times in it by a draw of `placed`.
    """

    overhead_s: float = 2.5e-6
    cold: float = 1.0
    noise: float = 0.0
    placed: float = 0.0
    # Of the copy, in launches' seconds.
    copy_factor: float = 1.0
    # The class of the copy, a `RowCopy`.
    copies: Any = None
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(1))
    places: list[float] = field(default_factory=list)
    # Draws the effect of places, whatever the offset of buffers: pages lie anywhere.
    memory: np.random.Generator | None = None

    def seconds(self, tag: Tag, nth_sample: int, launches: int) -> float:
        own = self.launch_s * (1.0 + 0.01 * (tag[2] - 1))
        if launches == 1:
            return own * self.cold + self.overhead_s
        return self.in_a_row(own, launches)

    def in_a_row(self, launch_s: float, launches: int) -> float:
        place = self.places[-1] if self.places else 0.0
        whole = self.overhead_s + launches * launch_s * (1.0 + place)
        return whole / launches * (1.0 + self.noise * self.rng.standard_normal())

    def upload(self, array: Any) -> Any:
        # The inputs come first. Of a problem that does not nearly fill the cache no place matters.
        draws = self.placement if self.memory is None else self.memory
        if draws is not None:
            share = 2 * array.nbytes / self.info.cache
            placed = self.placed if 0.3 <= share <= 1.0 else 0.0
            self.places.append(placed * float(draws.standard_normal()))
        return super().upload(array)

    def timed_interval(self, met: Condition) -> TimedInterval:
        row = not met.flushed and met.timing_mode != "isolated"
        return TimedInterval.ROW if row else TimedInterval.EACH

    def bind_copy(self, source: Any, target: Any) -> RowCopy:
        return (self.copies or RowCopy)(self, source, target)


class RowCopy(FakeCopy):
    """The runtime's copy, in a row like launches."""

    def sample(self, launches: int, met: Condition = USUAL) -> float:
        super().sample(launches, met)
        device = self.device
        assert isinstance(device, RowDevice)
        own = device.launch_s * device.copy_factor
        if launches == 1:
            return own * device.cold + device.overhead_s
        return device.in_a_row(own, launches)


def measured(
    device: RowDevice,
    cells: list[Cell],
    repeat: int = 1,
    repeats: int = 1,
    launches: Mapping[CellGroup, int] | None = None,
    **settings: Any,
) -> ShardResult:
    """The shard as a job measures it; `launches` are those of the first repeat."""
    asked = sampling_of(RULE, repeat=repeat, repeats=repeats, **settings)

    def start(do: MeasureCells) -> Any:
        device.open()
        mine = [c for c in cells if do.keys is None or c.key in do.keys]
        return work(device, mine, asked, lambda event: None, do)

    runs = [CellRun(c, FOLDER.workload.launch(c)) for c in cells]
    supervisor = Supervisor(runs, start, FaultLimits(10.0), lambda n, share: None)
    return supervisor.measure(start(MeasureCells(None, TOGETHER, launches or {})))


def table_of(result: ShardResult, info: DeviceInfo = INFO) -> Any:
    """The rows of a shard's file."""
    return cell_table(result, FOLDER.workload, info, ["threads", "chunks"]).to_pandas()


def hot_info(cells: list[Cell], share: float) -> DeviceInfo:
    """A device whose last cache level the data of these cells fill by this share."""
    moved = sum(FOLDER.workload.bytes_moved(cells[0]))
    return replace(INFO, cache=int(moved / share))


# A group's variant and height.
GroupPlace = tuple[str, int]


@dataclass
class RunDevice(RowDevice):
    """Each group has a time and an overhead of its own, and drifts a little in each repeat."""

    times: dict[GroupPlace, float] = field(default_factory=dict)
    overheads: dict[GroupPlace, float] = field(default_factory=dict)
    drifts: dict[GroupPlace, float] = field(default_factory=dict)

    def seconds(self, tag: Tag, nth_sample: int, launches: int) -> float:
        group = tag[0], tag[1]
        own = self.times[group] * (1.0 + 0.01 * (tag[2] - 1) + 0.004 * (tag[3] - 1))
        own *= 1.0 + self.drifts[group]
        if nth_sample == 0:
            own *= self.cold
        self.overhead_s = self.overheads[group]
        return self.in_a_row(own, launches)


HEIGHTS = 2, 8, 32, 64
# Seconds of the fastest launch of each group, and their overheads.
GROUP_S = (1.5e-6, 3e-6, 4.9e-6, 6.2e-6, 12e-6, 24e-6, 49e-6, 400e-6)
OVERHEADS_S = (2.0e-6, 3.65e-6, 2.76e-6, 2.3e-6, 3.3e-6, 2.0e-6, 3.0e-6, 2.5e-6)


def made_up_cells() -> list[Cell]:
    """Eight groups of twelve cells."""
    return make_cells(heights=HEIGHTS, threads=(1, 2, 3, 4), chunks=(1, 2, 3))


def write_run(
    folder: Path, seed: int, slower: float = 0.0, repeats: int = 3, noise: float = 2e-3
) -> Path:
    """Write the shards of a run, in which groups of height 8 nearly fill the cache.

    Samples scatter by `noise`, groups drift by 0.05 % in each repeat, and a place of buffers
    changes the times of the hot groups by 2 %. Variant b is slower by this share.
    """
    rng = np.random.default_rng(seed)
    cells = made_up_cells()
    groups = [(variant, height) for height in HEIGHTS for variant in ("a", "b")]
    hot = [cell for cell in cells if cell.problem.height == 8]
    info = hot_info(hot, 0.9)
    launches: dict[Any, int] = {}
    for repeat in range(1, repeats + 1):
        times = dict(zip(groups, GROUP_S, strict=True))
        device = RunDevice(
            noise=noise,
            cold=1.0 + rng.uniform(0.0, 0.3),
            placed=0.02,
            rng=np.random.default_rng([seed, repeat]),
            info=info,
            times={g: t * (1.0 + slower * (g[0] == "b")) for g, t in times.items()},
            overheads=dict(zip(groups, OVERHEADS_S, strict=True)),
            drifts={g: 5e-4 * rng.standard_normal() for g in groups},
            memory=np.random.default_rng([seed, repeat, 7]),
        )
        result = measured(device, cells, repeat, repeats, launches=launches)
        launches = dict(result.launches)
        path = folder / f"0000-of-0001{'' if repeat == 1 else f'.repeat-{repeat}'}.parquet"
        axes = {"threads": [1, 2, 3, 4], "chunks": [1, 2, 3]}
        sweep = {"axes": axes, "sizes": [[h, 8] for h in HEIGHTS], "variants": ["a", "b"]}
        params = shard_params("kernels/tiny", "float", sweep | {"cache_states": ["warm"]}, info)
        measure = params["measure"] | {"repeats": repeats, "min_samples": 3 * repeats}
        params |= {"repeat": repeat, "measure": measure}
        write_parquet(
            cell_table(result, FOLDER.workload, info, list(axes)),
            path,
            shard_metadata(params, info),
        )
    return folder

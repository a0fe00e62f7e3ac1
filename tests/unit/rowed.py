"""A made-up GPU whose clock shows S(n) = c + n·t, and on which the place of buffers matters."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from fakes import FOLDER, INFO, FakeCopy, FakeDevice, Tag, work
from gpushmoo.core.space import USUAL, Cell, Condition
from gpushmoo.devices.base import DeviceInfo, PreparedLaunch, TimedInterval
from gpushmoo.measuring.events import CellRun, Measure, ShardResult
from gpushmoo.measuring.settings import TOGETHER, MeasureSettings, StoppingRule
from gpushmoo.measuring.shard_file import cell_table
from gpushmoo.measuring.supervise import FaultLimits, Supervisor

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
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(1))
    places: list[float] = field(default_factory=list)

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
        if self.placement is not None:
            # Memory is new, whatever it held before.
            drawn = self.placement.standard_normal()
            self.places.append(self.placed * float(drawn))
        return super().upload(array)

    def timed_interval(self, bound: PreparedLaunch, met: Condition) -> TimedInterval:
        row = not met.flushed and met.timing_mode != "isolated"
        return TimedInterval.ROW if row else TimedInterval.EACH

    def bind_copy(self, source: Any, target: Any) -> RowCopy:
        return RowCopy(self, source, target)


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
    device: RowDevice, cells: list[Cell], repeat: int = 1, repeats: int = 1, **settings: Any
) -> ShardResult:
    """The shard as a job measures it."""
    asked = MeasureSettings(1, None, 1, 10.0, RULE, repeat, repeats, **settings)

    def start(do: Measure) -> Any:
        device.open()
        mine = [c for c in cells if do.keys is None or c.key in do.keys]
        return work(device, mine, asked, lambda event: None, do)

    runs = [CellRun(c, FOLDER.workload.launch(c)) for c in cells]
    supervisor = Supervisor(runs, start, FaultLimits(10.0), lambda n, share: None)
    return supervisor.measure(start(Measure(None, TOGETHER, {})))


def table_of(result: ShardResult, info: DeviceInfo = INFO) -> Any:
    """The rows of a shard's file."""
    return cell_table(result, FOLDER.workload, info, ["threads", "chunks"]).to_pandas()


def hot_info(cells: list[Cell], share: float) -> DeviceInfo:
    """A device whose last cache level the data of these cells fill by this share."""
    moved = sum(FOLDER.workload.bytes_moved(cells[0]))
    return replace(INFO, cache=int(moved / share))

"""Measure a kernel on this machine without a run of Snakemake. The result is a table.

While the measuring process opens the device, this process imports the modules for the steps after
measuring, which takes as long. Therefore these imports are inside the functions that use them.
"""

from __future__ import annotations

import io
import logging
import os
import re
import shutil
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TextIO

import yaml

from .. import __name__ as library
from ..core.backends import AUTO, BACKENDS
from ..core.build_job import BuildJob
from ..core.display import number_of
from ..core.errors import CompilerSlowError, ConfigError, DeviceError, OpenError, raises_at_caller
from ..core.news import News, heartbeat
from ..core.paths import KERNELS
from ..core.run_plan import MIN_SAMPLES_OF_MANY, SAVED, TELLING_REPEATS
from ..core.schema import FAULTS, Status
from ..core.space import Condition, Problem, known_problems, plain_size, shard_name
from ..devices.base import DeviceInfo
from ..devices.build_file import blaming_the_host
from ..devices.building import build_in_subprocess
from ..devices.select import DeviceChoice, kept_for_calls, resolve
from ..measuring.events import Open
from ..measuring.job import MeasuredShard, ShardTask, measure_shard
from ..measuring.process import Workers
from ..planning.plan import CompilerChoice, build_job
from ..planning.refusal import refuse_unknown
from ..planning.sweeps import SweepConfig, refuse_timing_modes
from ..storage.room import obstacle, output_folder, temporary_folder
from ..storage.store import write_parquet
from ..storage.temporary import OwnFolder
from ..workloads.contract import Workload
from ..workloads.host_fed import HostFedWorkload
from ..workloads.loader import copy_folder
from ..workloads.sizes import Room
from ..workloads.views import HeatMap
from .arguments import (
    Request,
    checked,
    loaded,
    look_through_all,
    read_request,
    refuse_no_flag,
)
from .opened_run import Run
from .several_devices import (
    ALL,
    Lane,
    Part,
    SharedTerminal,
    in_threads,
    indices_of,
    measure_parts,
    parts_of,
    refuse_mixture,
)

log = logging.getLogger(__name__)

# An error shows this number of characters from the end of the measuring processes' output.
_LAST_WORDS = 4000


@raises_at_caller
def sweep(  # noqa: PLR0913 - keyword-only options of one public call
    kernel: str | os.PathLike[str] | Workload,
    *,
    source: str | Mapping[str, str] | None = None,
    axes: Mapping[str, Any] | None = None,
    dtypes: Any = None,
    sizes: Any = None,
    variants: Any = None,
    cache: Any = None,
    timing_modes: Any = None,
    backend: str = AUTO,
    device: int | Literal["all"] = 0,
    opencl_runtime: str = AUTO,
    repeats: int | None = None,
    budget: float | None = None,
    progress: bool = True,
    **measure: Any,
) -> Sweep:
    """Measure every combination of a kernel's launch parameters on this machine.

    The call blocks until the sweep is complete. A cell whose kernel crashes, hangs or computes a
    wrong result gets a status other than ``ok``. The measuring process keeps the device open, and
    later calls reuse it until this program exits.

    Parameters
    ----------
    kernel : path or Workload
        A kernel's folder, or an instance of a class that this program defines.
    source : str or mapping
        For a Workload: the kernel's text for the backend in use, or ``{".cl": text, ".cu": text}``.
    axes, dtypes, sizes, variants, cache, timing_modes
        Values to sweep, as in a configuration. One value means a list of one. By default the
        kernel's own values. `axes` maps names to values: ``{"block_x": [32, 64]}``.
    backend, device, opencl_runtime
        Where to measure. ``auto`` is the first backend that responds. `device` is an index from 0,
        or ``"all"``: every CUDA device at once, which must be of one name. One device measures all
        cells of a type and size in a repeat. With a `budget`, for OpenCL, and for data that the
        host streams, ``"all"`` means the first device.
    repeats : int
        How often to measure the sweep, in separate processes; by default 1, or 100 with a budget.
    budget : float
        Seconds for measuring again the cells that may be the fastest. After the first repeat,
        Ctrl-C ends the sweep with the repeats that are complete.
    progress : bool
        Whether to print lines to stderr.
    **measure
        Keys under ``measure`` of a configuration, ``seed`` and ``thread_limit``.

    Returns
    -------
    Sweep
        With `cells` and `best` (data frames), `heatmap` and `save`.

    Raises
    ------
    ConfigError, DeviceError
        If an argument is wrong (a ValueError), or no device can be used.
    """
    refuse_no_flag(progress=progress)
    what = {"axes": axes, "dtypes": dtypes, "sizes": sizes, "variants": variants}
    what |= {"cache": cache, "timing_modes": timing_modes}
    where = {"backend": backend, "device": device, "opencl_runtime": opencl_runtime}
    asked = {**what, **where, **measure, "repeats": repeats, "budget": budget}

    def folder(values: Mapping[str, Any], work: Path, log_file: Path) -> str | os.PathLike[str]:
        if not isinstance(kernel, Workload):
            if source is not None:
                raise ConfigError("source: a kernel's folder has its own; a Workload needs one.")
            return kernel
        # Imported when needed: a sweep of a folder needs no cloudpickle.
        from .in_memory import write_folder

        texts = source
        if isinstance(texts, str):
            texts = {BACKENDS[device_of(values, log_file)[0].backend].source_suffix: texts}
        return write_folder(kernel, texts or {}, work / "kernels")

    return Sweep(*measured(folder, asked, progress)).warned()


def measured(
    folder: Callable[[Mapping[str, Any], Path, Path], str | os.PathLike[str]],
    asked: Mapping[str, Any],
    progress: bool,
) -> tuple[Request, OwnFolder]:
    """Measure a kernel, and return the two values that a `Sweep` is made of.

    Parameters
    ----------
    folder
        Function that returns the kernel's folder. Its parameters are the checked arguments, a
        temporary folder for this sweep, and the sweep's log.
    asked
        Arguments of `sweep` by name.
    progress
        Whether to print lines to stderr.

    Raises
    ------
    ConfigError, DeviceError
        If an argument is wrong, or if no device can be used.
    """
    budget = asked["budget"]
    by_default = {"repeats": 1 if budget is None else MAX_REPEATS}
    began = time.monotonic()
    WORKERS.prepare()
    values = checked(by_default | {name: v for name, v in asked.items() if v is not None})
    if budget is not None:
        values = _on_first(values)
    with blaming_the_host(temporary_folder()):
        place = OwnFolder()
    work = Path(place.name)
    with logged(work / LOG) as log_file:
        terminal = sys.stderr if progress else io.StringIO()
        with blaming_the_host(work):
            kernel = folder(values, work, log_file)
        found = loaded(kernel)
        if isinstance(found.workload, HostFedWorkload):
            # The devices would share the host.
            values = _on_first(values)
        news = News(terminal, in_place=True)
        request = read_request(found, values, news.show)
        has_many = request.sweep.n_combinations > _MANY_CELLS
        if has_many:
            news.write(f"{found.name}: {_size_of(request.sweep)}")
        builds = _Builds(request.sweep, request.compile_timeout_s, work, terminal, log_file)
        # Opening a device takes seconds, too, and has its own line if it waits.
        text = f"{found.name}: still looking through the combinations"
        with heartbeat(terminal, text) if has_many else nullcontext():
            lanes = devices_of(values, log_file, builds)
            sweep = on_this(request.sweep, lanes[0].choice, lanes[0].info)
            request = replace(request, sweep=sweep)
        look_through_all(sweep, news.show)
        news.clear()
        until = None if budget is None else began + budget
        _measure(_Call(request, lanes, replace(builds, sweep=sweep), until))
    return request, place


def _on_first(values: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments with the first device instead of all devices."""
    return values | ({"device": 0} if values["device"] == ALL else {})


def _size_of(sweep: SweepConfig) -> str:
    """Return a text on how much a sweep with very many combinations has to measure, if known."""
    n, everything = sweep.n_cells, sweep.n_combinations
    if not sweep.is_looked_through:
        return f"looking through {everything:,} combinations"
    builds = number_of(sweep.n_builds, "version")
    return f"{n:,} of {everything:,} combinations are valid, {builds} to compile"


# The measuring processes of this program, kept from one call to the next.
WORKERS = Workers(keep=True)
# Repeats that a budget buys at most.
MAX_REPEATS = 100
# The measuring process itself compiles up to this number of versions, which takes less time than to
# start a process for the compilers.
_FEW_VERSIONS = 8
# It gives up after these seconds of a processor: then each version has a process and its limit.
_COMPILED_THERE_S = 5.0
# More cells than this take seconds before the first of them is measured.
_MANY_CELLS = 20_000
# The devices that have answered: choices and facts by backend, device and runtime as asked.
_ANSWERED: dict[tuple[str, int | str, str], list[tuple[DeviceChoice, DeviceInfo]]] = {}
# The measuring processes of other devices than the first, by index, if all are asked for.
_OTHERS: dict[int, Workers] = {}


def device_of(values: Mapping[str, Any], log_file: Path) -> tuple[DeviceChoice, DeviceInfo]:
    """Return the device that checked arguments select, or the first one if they select several.

    Parameters
    ----------
    values
        Arguments that `checked` returned.
    log_file
        File that gets the output of the measuring process.

    Raises
    ------
    DeviceError
        If no device can be used.
    """
    first = devices_of(values, log_file)[0]
    return first.choice, first.info


def devices_of(
    values: Mapping[str, Any],
    log_file: Path,
    builds: _Builds | None = None,
) -> list[Lane]:
    """Open the devices that checked arguments select.

    A measuring process opens each device and meanwhile compiles the versions of `builds`, if they
    are few. For several devices, separate processes compile. If one of several devices does not
    open, it is left out.

    Parameters
    ----------
    values
        Arguments that `checked` returned.
    log_file
        File that gets the output of the measuring processes.
    builds
        The versions to compile.

    Returns
    -------
    list
        The open devices with their processes. Devices that were opened by an earlier call with the
        same arguments are reused.

    Raises
    ------
    DeviceError
        If no device can be used.
    """
    asked = values["backend"], values["device"], values["opencl_runtime"]
    limit_s = values["compile_timeout_s"]
    found = dict[DeviceChoice, DeviceInfo]()

    def opened(tried: DeviceChoice) -> DeviceInfo:
        indices = indices_of(tried) if values["device"] == ALL else [tried.index]
        compile_s = min(limit_s, _COMPILED_THERE_S)
        if len(indices) > 1:
            asks = [Open(replace(tried, index=i), (), log_file, compile_s) for i in indices]
            found.update(_opened_at_once(asks, builds))
            return next(iter(found.values()))
        specs = []
        if builds is not None and _is_compiled_there(builds.sweep):
            sweep = builds.sweep
            specs = [_build_job(sweep, dtype, tried, limit_s) for dtype in sweep.dtypes]
        found[tried] = WORKERS.open(Open(tried, specs, log_file, compile_s), _import_analysis)
        return found[tried]

    if asked not in _ANSWERED:
        index = 0 if values["device"] == ALL else values["device"]
        resolve(DeviceChoice(values["backend"], index, asked[2], kept_for_calls()), opened)
        _ANSWERED[asked] = list(found.items())
    answered = _ANSWERED[asked]
    if len(answered) == 1:
        return [Lane(*answered[0], WORKERS)]
    lanes = [Lane(choice, info, _workers_of(choice.index)) for choice, info in answered]
    refuse_mixture(lanes)
    return lanes


def _workers_of(index: int) -> Workers:
    """Return the measuring processes of a device, for calls that use all devices."""
    return WORKERS if index == 0 else _OTHERS.setdefault(index, Workers(keep=True))


def _opened_at_once(asks: Sequence[Open], builds: _Builds | None) -> dict[DeviceChoice, DeviceInfo]:
    """Open several devices at the same time, while compilers run for `builds`.

    Return those that open, or raise the first error if none does.
    """
    answers: dict[int, DeviceInfo | Exception] = {}

    def open_one(ask: Open) -> None:
        try:
            info = _workers_of(ask.choice.index).open(ask, lambda: None)
        except Exception as err:
            answers[ask.choice.index] = err
        except KeyboardInterrupt:  # the processes were stopped
            return
        else:
            answers[ask.choice.index] = info

    def meanwhile() -> None:
        # The versions of sizes that follow the device are not known yet.
        if builds is not None and not builds.sweep.asks_for_sizes:
            # What fails is tried again, and said, once a device has answered.
            with suppress(DeviceError):
                builds.make(asks[0].choice)
        _import_analysis()

    workers = [_workers_of(ask.choice.index) for ask in asks]
    in_threads(workers, [partial(open_one, ask) for ask in asks], meanwhile)
    found = dict[DeviceChoice, DeviceInfo]()
    for ask in asks:
        answer = answers[ask.choice.index]
        if isinstance(answer, DeviceInfo):
            found[ask.choice] = answer
        else:
            said = f"device {ask.choice.index} is left out: {answer}"
            log.error(said)
            if builds is not None:
                print(f"{library}: {said}", file=builds.terminal, flush=True)
    if not found:
        raise next(err for err in answers.values() if isinstance(err, Exception))
    return found


def _import_analysis() -> None:
    """Import the modules for the steps after measuring, while a process opens the device."""
    for name in ("analysis.aggregate", "analysis.best", "analysis.run_quality"):
        import_module(f"{library}.{name}")


def _is_compiled_there(sweep: SweepConfig) -> bool:
    return sum(map(len, sweep.versions.values())) <= _FEW_VERSIONS


def _build_job(sweep: SweepConfig, dtype: str, choice: DeviceChoice, limit_s: float) -> BuildJob:
    compiler = CompilerChoice(
        backend=choice.backend,
        device=choice.index,
        opencl_runtime=choice.runtime,
        compile_timeout_s=limit_s,
    )
    return build_job(sweep, dtype, compiler)


def on_this(sweep: SweepConfig, choice: DeviceChoice, info: DeviceInfo) -> SweepConfig:
    """Return the sweep with the sizes that it has on a device.

    Parameters
    ----------
    sweep
        The sweep.
    choice, info
        The device and its properties.

    Raises
    ------
    ConfigError
        If the device does not support a timing mode, or if its memory is too small for a size.
    """
    refuse_timing_modes({sweep.folder.name: sweep}, choice.backend)
    room = Room(info.cache, info.kind == "cpu", info.global_memory, info.max_allocation)
    return sweep.on(f"kernels.{sweep.folder.name}.sizes", room)


@contextmanager
def logged(path: Path) -> Iterator[Path]:
    """Write the library's log messages to a file in this context.

    An error that leaves the context gets the end of the file as a note.

    Parameters
    ----------
    path
        The file, which is also the value of the context.
    """
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger = logging.getLogger(library)
    logger.addHandler(handler)
    try:
        yield path
    except Exception as err:
        err.add_note(path.read_text(encoding="utf-8", errors="replace")[-_LAST_WORDS:])
        raise
    finally:
        logger.removeHandler(handler)
        handler.close()


@dataclass(frozen=True)
class _Builds:
    """Build files of a sweep by element type, or None for a kernel without code for the device."""

    sweep: SweepConfig
    limit_s: float
    work: Path
    terminal: TextIO
    log_file: Path
    made: dict[str, Path | None] = field(default_factory=dict)

    def make(self, choice: DeviceChoice) -> None:
        """Compile each element type that has no build file yet."""
        for dtype in self.sweep.dtypes:
            if dtype not in self.made:
                self.made[dtype] = self._build(dtype, choice)

    def _build(self, dtype: str, choice: DeviceChoice) -> Path | None:
        folder = self.sweep.folder
        if not folder.workload.device_code:
            return None
        out = self.work / "builds" / f"{dtype}.json"
        job = _build_job(self.sweep, dtype, choice, self.limit_s)
        news = News(self.terminal, in_place=True)
        label = f"{folder.name} {dtype}"
        build_in_subprocess(job, choice.cache, out, self.log_file, news, label)
        return out


@dataclass(frozen=True)
class _Call:
    """A sweep to measure on open devices, within a budget that ends at `until` if it is set.

    A call with a budget uses one device.
    """

    request: Request
    lanes: Sequence[Lane]
    builds: _Builds
    until: float | None

    @property
    def sweep(self) -> SweepConfig:
        """Sweep of the request, without the parameters of its jobs."""
        return self.request.sweep

    @property
    def repeats(self) -> int:
        """Largest number of repeats. A budget may end the call earlier."""
        return self.request.measure.repeats

    def file_of(self, part: Part) -> Path:
        """Return the path of the Parquet file of one part, in the call's temporary folder."""
        folder = self.builds.work / CELLS / self.sweep.folder.name / part.dtype
        return folder / f"{shard_name(part.index, part.count, part.repeat)}.parquet"

    def task(self, part: Part, number: int, total: int, lane: Lane) -> ShardTask:
        """Return the job that measures a part on a device. Messages show `number` and `total`."""
        where = (part.index, part.count)
        return ShardTask(
            self.request.job(part.dtype, lane.choice, part.repeat, where),
            (number, total),
            lane.choice.cache,
            None if part.repeat == 1 else self.file_of(replace(part, repeat=1)),
            self.builds.made.get(part.dtype),
            worker_log=self.builds.log_file,
            workers=lane.workers,
            folder=self.sweep.folder,
            # If a sweep has parts, the process of each part checks the combinations.
            found=self.sweep.known_combinations(part.dtype) if part.count == 1 else None,
        )


def _measure(call: _Call) -> None:
    """Measure all repeats, write a shard for each part, and aggregate them to a data set."""
    from ..analysis.aggregate import aggregate

    shards = _measured_by_one(call) if len(call.lanes) == 1 else _measured_by_all(call)
    repeats = max(part.repeat for part in shards)
    if repeats < call.repeats:
        if repeats < TELLING_REPEATS:
            # Two repeats alone would have to have more samples each.
            for part in [part for part in shards if part.repeat > 1]:
                call.file_of(part).unlink()
                del shards[part]
            repeats = 1
        # What it would have been asked for to measure the same.
        taken = {"repeats": repeats, "min_samples": MIN_SAMPLES_OF_MANY * repeats}
        for part, shard in shards.items():
            shard.metadata["params"]["measure"] |= taken
            write_parquet(shard.table, call.file_of(part), shard.metadata)
    aggregate([*map(call.file_of, shards)], call.builds.work / DATASET)


def _measured_by_one(call: _Call) -> dict[Part, MeasuredShard]:
    """Measure with one device, a shard for each element type and repeat.

    After the first repeat follow two more or none. Further repeats follow as long as the next one
    would end before `until` if it took as long as the last one.
    """
    [lane], sweep, until = call.lanes, call.sweep, call.until
    terminal = call.builds.terminal
    shards = dict[Part, MeasuredShard]()
    there_s = min(call.request.compile_timeout_s, _COMPILED_THERE_S)
    is_apart = not _is_compiled_there(sweep)

    def measured(part: Part, number: int) -> MeasuredShard:
        nonlocal is_apart
        task = replace(
            call.task(part, number, len(sweep.dtypes), lane),
            # The first repeat may take half of it.
            seconds=until and max(0.0, until - time.monotonic()) / (2 if part.repeat == 1 else 1),
            compile_s=None if is_apart else there_s,
            in_place=True,
        )
        try:
            return measure_shard(task, terminal)
        except (OpenError, CompilerSlowError):
            if is_apart:
                raise
            # A compiler that crashes or hangs costs its own version if each has a process.
            is_apart = True
            call.builds.make(lane.choice)
            build = call.builds.made[part.dtype]
            return measure_shard(replace(task, build=build, compile_s=None), terminal)

    if is_apart:
        call.builds.make(lane.choice)
    for repeat in range(1, call.repeats + 1):
        began = time.monotonic()
        made = dict[Part, MeasuredShard]()
        try:
            for number, dtype in enumerate(sweep.dtypes, 1):
                part = Part(dtype, 0, 1, repeat)
                shard = measured(part, number)
                made[part] = shard
                write_parquet(shard.table, call.file_of(part), shard.metadata)
        except KeyboardInterrupt:
            if repeat == 1:
                raise
            # Each element type has the same repeats.
            for part in made:
                call.file_of(part).unlink(missing_ok=True)
            break
        shards |= made
        if repeat > TELLING_REPEATS:
            # Few calls have as many.
            WORKERS.end_repeat(repeat)
        now = time.monotonic()
        if until is not None and repeat != 2 and now + (now - began) > until:
            break
    return shards


def _measured_by_all(call: _Call) -> dict[Part, MeasuredShard]:
    """Measure with several devices, each of which measures whole groups of cells."""
    sweep, lanes = call.sweep, call.lanes
    groups = len(set(sweep.sizes)) * len(sweep.met)
    parts = parts_of(sweep.dtypes, groups, call.repeats, len(lanes))
    total = len(parts) // call.repeats
    terminal = SharedTerminal(call.builds.terminal)
    name = lanes[0].info.name
    terminal.write(f"{sweep.folder.name}: {len(lanes)} devices ({name}), {total} shards\n")
    call.builds.make(lanes[0].choice)

    def measured(lane: Lane, part: Part) -> MeasuredShard:
        task = call.task(part, parts.index(part) % total + 1, total, lane)
        shard = measure_shard(replace(task, brief=True), terminal)
        write_parquet(shard.table, call.file_of(part), shard.metadata)
        return shard

    done = measure_parts(parts, lanes, measured, terminal)
    for part in parts:
        if part not in done:
            call.file_of(part).unlink(missing_ok=True)
    return done


if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.text import Text

# What a sweep leaves in its temporary folder.
CELLS, DATASET, LOG = "cells", "dataset", "log.txt"
# Of how many threads a block may have where the request does not limit it.
_ANY_THREADS = 2**31 - 1


def _width_in(text: Text, figure: Figure) -> float:
    """Return the width of a text of the figure with a margin, in inches."""
    return text.get_window_extent().width / figure.dpi + 0.2


class Sweep(Run):
    """A finished sweep of one kernel.

    `log` contains the output of compilers and measuring processes. For the other attributes, see
    `Run`.

    Parameters
    ----------
    request
        The measured sweep.
    place
        Temporary folder with the data set. It is deleted together with this object.
    """

    def __init__(self, request: Request, place: OwnFolder) -> None:
        """Read the data set from the temporary folder."""
        from ..analysis.best import Limits
        from ..analysis.run_quality import dataset_provenance
        from ..storage.dataset import read_cells

        self._request: Request | None = request
        self._place: OwnFolder | None = place
        self._axes = list(request.sweep.axes)
        folder = request.sweep.folder
        dataset = self._path(DATASET)
        limits = Limits({folder.name: folder.workload.most}, request.thread_limit or _ANY_THREADS)
        cells = read_cells(dataset).copy()
        provenance = dataset_provenance(dataset)
        super().__init__(folder.name, cells, provenance, limits=limits)
        self.log = self._path(LOG).read_text(encoding="utf-8", errors="replace")

    @property
    def fault(self) -> str:
        """Message of a cell that did not work. Faults come before other statuses."""
        told = self.cells.sort_values("status", key=lambda s: ~s.isin(FAULTS))["message"]
        return next(iter(told.dropna()), "none was measured")

    def warned(self) -> Self:
        """Return this result, after warning the caller of `sweep` or `tune` of its problems."""
        for remark in self._remarks():
            # Between both is `raises_at_caller`.
            warnings.warn(remark, stacklevel=4)
        return self

    def _remarks(self) -> list[str]:
        """Return sentences to warn of: one, with the message of a faulty cell, if no cell is ok."""
        is_ok = Status.OK in self.statuses
        return [] if is_ok else [f"{str(self).strip('<>')}: {self.fault}"]

    @property
    def _swept(self) -> SweepConfig:
        """Measured sweep. Raises ConfigError if the result was pickled, which keeps only tables."""
        if self._request is None:
            raise ConfigError(
                f"{self.name}: this result was pickled, which keeps its tables alone; `save` it "
                "in the program that measured it."
            )
        return self._request.sweep

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without the temporary folder and without the kernel's classes."""
        return {**self.__dict__, "_request": None, "_place": None}

    def _path(self, name: str) -> Path:
        assert self._place is not None
        return Path(self._place.name) / name

    @raises_at_caller
    def heatmap(
        self,
        x: str | None = None,
        y: str | None = None,
        size: int | list[int] | tuple[int, int] | None = None,
        cache: str | None = None,
        timing_mode: str | None = None,
    ) -> Figure:
        """Draw the speed over two axes, with a panel for each variant and element type.

        For all other axes, each point shows its fastest cell.

        Parameters
        ----------
        x, y
            Names of the axes, by default those of the kernel's first heat map, or its first two
            axes.
        size
            Side of a square problem, number of elements, or height and width, by default the first
            size.
        cache, timing_mode
            Measurement condition, by default the first one that was swept.

        Raises
        ------
        ConfigError
            If there is no such axis or no such cell, or if the result was pickled.
        """
        # Imported when needed: it takes a second.
        import matplotlib as mpl
        from matplotlib.figure import Figure

        from ..core.metric import metric_of
        from ..figures.heatmap import draw_panels, every_variant, over_words
        from ..figures.style import set_style, subject
        from ..storage.dataset import matching

        sweep = self._swept
        view = self._view(x, y)
        problems = known_problems(sweep.sizes)
        problem = problems[0]
        if size is not None:
            to_problem = sweep.folder.workload.problem
            problem = to_problem(size) if isinstance(size, int) else Problem(*size)
        met = Condition(cache or sweep.cache_states[0], timing_mode or sweep.timing_modes[0])
        where = {"height": problem.height, "width": problem.width, **met._asdict()}
        counts = {"cache_state": len(sweep.cache_states), "timing_mode": len(sweep.timing_modes)}
        chosen = matching(self.cells, where)
        if chosen.empty:
            raise ConfigError(
                f"size, cache, timing_mode: no cell has {problem.label}, {', '.join(met)}; "
                f"there are: {', '.join(p.label for p in problems)}; "
                f"{', '.join(sweep.cache_states)}; {', '.join(sweep.timing_modes)}."
            )
        ranked = chosen.sort_values("median_s", ascending=False, na_position="first")
        with mpl.rc_context():
            set_style()
            # None of pyplot's: it opens no window, and a notebook shows it once.
            figure = Figure()
            draw_panels(figure, every_variant(ranked, sweep.dtypes), view)
            title = subject(chosen, [c for c, n in counts.items() if n > 1])
            what = f"{metric_of(chosen).name} over {over_words(view)}"
            heading = figure.suptitle(f"{title}: {what}", fontsize=10)
            if _width_in(heading, figure) > figure.get_figwidth():
                heading.set_text(f"{title}:\n{what}")
            # A map of few values is narrow.
            figure.set_figwidth(max(figure.get_figwidth(), _width_in(heading, figure)))
        return figure

    def _view(self, x: str | None, y: str | None) -> HeatMap:
        axes = self._axes
        refuse_unknown("x, y", filter(None, (x, y)), axes)
        views = self._swept.folder.workload.views
        named = [v for v in views if isinstance(v, HeatMap) and {v.x, v.y} <= set(axes)]
        if x is None and y is None and named:
            return named[0]
        free = [axis for axis in axes if axis not in (x, y)]
        x = x or (free.pop(0) if free else None)
        y = y or (free.pop(0) if free else None)
        if x is None or y is None or x == y:
            raise ConfigError(
                f"heatmap: it needs two axes; the kernel has {', '.join(axes) or 'none'}."
            )
        return next((v for v in named if (v.x, v.y) == (x, y)), HeatMap(x, y))

    @raises_at_caller
    def save(self, folder: str | Path) -> Path:
        """Write the sweep into a folder: its cells, its log, and the kernel.

        The cells are files as a run's jobs write them, so a run with ``dataset: FOLDER`` makes a
        report from them. The file ``report.yaml`` in the folder is a configuration of such a run.

        Parameters
        ----------
        folder
            A folder that is empty or does not exist.

        Returns
        -------
        Path
            The absolute path of the folder.

        Raises
        ------
        ConfigError
            If the folder is not empty, if it cannot be written, or if the result was pickled.
        """
        sweep = self._swept
        out = empty_folder(folder)
        with output_folder(out, ConfigError) as fresh:
            self._save(sweep, fresh, out)
        return out

    def _save(self, sweep: SweepConfig, fresh: Path, out: Path) -> None:
        shutil.copytree(self._path(CELLS), fresh / CELLS)
        shutil.copy(self._path(LOG), fresh / LOG)
        own: dict[str, Any] = {}
        if sweep.folder.path.parent != KERNELS:
            kernel = copy_folder(sweep.folder.path, fresh / "kernels")
            own = {"kernel_folders": [str(kernel.parent.relative_to(fresh))]}
        config = {
            # Not the kernel's name alone, which a run of it may have.
            "run": re.sub("[^A-Za-z0-9_.-]", "_", f"{sweep.folder.name}-{out.name}")[:64],
            "dataset": str(out),
            **own,
            "only": [sweep.folder.name],
            "kernels": {
                sweep.folder.name: {
                    "dtypes": list(sweep.dtypes),
                    "variants": list(sweep.variants),
                    "sizes": [plain_size(size) for size in sweep.sizes],
                    "cache": list(sweep.cache_states),
                    "timing_modes": list(sweep.timing_modes),
                    "axes": dict(sweep.axes),
                }
            },
        }
        text = yaml.safe_dump(config, sort_keys=False)
        (fresh / SAVED).write_text(text, encoding="utf-8")


def empty_folder(folder: str | Path) -> Path:
    """Return the absolute path of a folder for outputs, which must be empty or new.

    Parameters
    ----------
    folder
        The folder, which may start with ``~``.

    Raises
    ------
    ConfigError
        If the folder cannot be written, or if it is not empty.
    """
    out = Path(folder).expanduser().absolute()
    if problem := obstacle(out):
        raise ConfigError(f"out: {problem}")
    if out.exists() and any(out.iterdir()):
        raise ConfigError(f"out: '{folder}' exists already; remove it, or name another folder.")
    return out

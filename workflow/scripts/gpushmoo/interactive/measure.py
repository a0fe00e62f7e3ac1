"""Measures a kernel here and now, without a run or a plan; the result is a table."""

from __future__ import annotations

import io
import logging
import os
import re
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache as remembered
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TextIO

import pandas as pd
import yaml

from .. import __name__ as library
from ..analysis.aggregate import aggregate
from ..analysis.best import Limits, best_table
from ..analysis.run_quality import dataset_provenance
from ..core.backends import AUTO, BACKENDS
from ..core.paths import KERNELS
from ..core.space import Condition, Problem, shard_name
from ..devices.base import DeviceInfo
from ..devices.select import DeviceChoice, resolve
from ..measuring.job import ShardTask, measure_shard
from ..planning.config_schema import ConfigError, refuse_unknown
from ..planning.plan import build_params
from ..planning.sweeps import SweepConfig, refuse_kinds, refuse_too_large
from ..storage.dataset import as_frame, matching, read_cells
from ..storage.store import write_parquet
from ..workloads.contract import Workload
from ..workloads.views import HeatMap
from .arguments import Request, checked, loaded, read_request
from .building import build_apart

# Of what the measuring processes have printed, this many last characters go with an error.
_LAST_WORDS = 4000


def sweep(
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
    device: int = 0,
    runtime: str = AUTO,
    repeats: int = 1,
    progress: bool = True,
    **measure: Any,
) -> Sweep:
    """Measure every combination of a kernel's launch parameters on this machine, and wait for it.

    `kernel` is a kernel's folder, or an instance of a `Workload`, whose kernel's text is `source`
    (a text for the backend in use, or a mapping such as ``{".cl": text, ".cu": text}``). `axes`,
    `dtypes`, `sizes`, `variants`, `cache` and `timing_modes` have the form and the defaults that
    they have in a configuration. `runtime` names an OpenCL runtime. `measure` takes the keys under
    ``measure`` of a configuration, ``seed`` and ``thread_limit``, with the same defaults except
    one repeat. `progress` prints lines to stderr.

    A cell whose kernel crashes, hangs or is wrong has a status that says so. Raises ConfigError, a
    ValueError, for wrong arguments, and DeviceError where no device can be used.
    """
    what = {"axes": axes, "dtypes": dtypes, "sizes": sizes, "variants": variants}
    what |= {"cache": cache, "timing_modes": timing_modes, "repeats": repeats}
    values = checked({**what, "backend": backend, "device": device, "runtime": runtime, **measure})
    place = TemporaryDirectory(prefix=f"{library}-", ignore_cleanup_errors=True)
    work = Path(place.name)
    if isinstance(kernel, Workload):
        # Imported when needed: a sweep of a folder needs no cloudpickle.
        from .in_memory import write_folder

        if isinstance(source, str):
            source = {BACKENDS[device_of(values)[0].backend].source_suffix: source}
        kernel = write_folder(kernel, source or {}, work / "kernels")
    elif source is not None:
        raise ConfigError("source: a kernel's folder has its own; only a Workload needs one.")
    request = read_request(loaded(kernel), values)
    choice, info = device_of(values)
    refuse_misfit(request.sweep, choice, info)
    with logged(work / LOG) as log_file:
        _measure(request, choice, work, sys.stderr if progress else io.StringIO(), log_file)
    return Sweep(request, place)


def device_of(values: Mapping[str, Any]) -> tuple[DeviceChoice, DeviceInfo]:
    """The device that checked arguments name. Raises DeviceError where it cannot be used."""
    return _answering(values["backend"], values["device"], values["runtime"])


@remembered
def _answering(backend: str, device: int, runtime: str) -> tuple[DeviceChoice, DeviceInfo]:
    # Device runtimes keep there what they compile, for later sweeps as well.
    kept = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / library
    try:
        kept.mkdir(parents=True, exist_ok=True)
    except OSError:  # a home that may not be written
        kept = Path(tempfile.mkdtemp(prefix=f"{library}-cache-"))
    return resolve(DeviceChoice(backend, device, runtime, kept))


def refuse_misfit(sweep: SweepConfig, choice: DeviceChoice, info: DeviceInfo) -> None:
    """Raise ConfigError where the device has no such launches, or not as much memory."""
    named = {sweep.folder.name: sweep}
    refuse_kinds(named, choice.backend)
    refuse_too_large(named, info.global_memory, info.max_allocation)


@contextmanager
def logged(path: Path) -> Iterator[Path]:
    """Write the library's messages to the file `path`; an error has the end of it as a note."""
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


def _measure(
    request: Request, choice: DeviceChoice, work: Path, terminal: TextIO, log_file: Path
) -> None:
    """Write the shards of all repeats, and the data set that they make."""
    sweep, shards = request.sweep, list[Path]()
    builds = {d: _build(sweep, d, choice, work, terminal, log_file) for d in sweep.dtypes}
    for repeat in range(1, request.asked["measure"]["repeats"] + 1):
        for number, (dtype, build) in enumerate(builds.items(), 1):
            folder = work / CELLS / sweep.folder.name / dtype
            task = ShardTask(
                request.params(dtype, choice, repeat),
                (number, len(builds)),
                choice.cache,
                None if repeat == 1 else folder / f"{shard_name(0, 1, 1)}.parquet",
                build,
                worker_log=log_file,
            )
            shard = measure_shard(task, terminal)
            shards.append(folder / f"{shard_name(0, 1, repeat)}.parquet")
            write_parquet(shard.table, shards[-1], shard.metadata)
    aggregate(shards, work / DATASET)


def _build(
    sweep: SweepConfig,
    dtype: str,
    choice: DeviceChoice,
    work: Path,
    terminal: TextIO,
    log_file: Path,
) -> Path | None:
    """The build file of an element type; None where nothing runs on the device."""
    if not sweep.folder.workload.device_code:
        return None
    many = len(sweep.versions[dtype])
    if many > 1:
        terminal.write(f"{sweep.folder.name} {dtype}: compiling {many} versions\n")
        terminal.flush()
    out = work / "builds" / f"{dtype}.json"
    where = {"device": choice.index, "opencl_runtime": choice.runtime}
    params = build_params(sweep, dtype, choice.backend, cuda_arch=None, **where)
    build_apart(params, choice.cache, out, terminal, log_file)
    return out


if TYPE_CHECKING:
    from matplotlib.figure import Figure

# What a sweep leaves in its temporary folder.
CELLS, DATASET, LOG = "cells", "dataset", "log.txt"
# Of how many threads a block may have where the request does not limit it.
_ANY_THREADS = 2**31 - 1


class Sweep:
    """A finished sweep of one kernel.

    `cells` has one row for each combination, with the columns of the data set (see
    `core.schema.cell_schema`) and one of whole numbers for each axis; times are in seconds,
    bandwidths in GB/s. `log` is what compilers and measuring processes have printed.
    """

    def __init__(self, request: Request, place: TemporaryDirectory[str]) -> None:
        """Read the data set in `place`, which lasts as long as this object."""
        self._request, self._place = request, place
        self.cells: pd.DataFrame = read_cells(self._path(DATASET)).copy()
        self.log = self._path(LOG).read_text(encoding="utf-8", errors="replace")

    def _path(self, name: str) -> Path:
        return Path(self._place.name) / name

    @property
    def statuses(self) -> dict[str, int]:
        """How many cells ended in which way."""
        return dict(Counter(self.cells["status"]))

    @property
    def searches(self) -> pd.DataFrame:
        """How the search of each group ended, a row each; empty where every cell was measured.

        `better_probability` is the model's, that a cell that was left out is faster than the best
        by more than the tolerance; NaN for a race.
        """
        shards = dataset_provenance(self._path(DATASET))
        return pd.DataFrame(
            [
                {"dtype": shard["params"]["dtype"], **search}
                for shard in shards
                for search in shard.get("searches", ())
            ]
        )

    def best(self) -> pd.DataFrame:
        """The cells of each group that are statistically tied with its fastest, the fastest first.

        A group is what competes: one element type, variant, size, cache state and timing mode.
        Each axis has a column of whole numbers.
        """
        sweep, asked = self._request.sweep, self._request.asked
        most = {sweep.folder.name: sweep.folder.workload.most}
        limits = Limits(most, asked["thread_limit"] or _ANY_THREADS)
        return as_frame(best_table(self.cells, limits=limits))

    def heatmap(
        self,
        x: str | None = None,
        y: str | None = None,
        size: int | list[int] | tuple[int, int] | None = None,
        cache: str | None = None,
        timing_mode: str | None = None,
    ) -> Figure:
        """Bandwidth over the axes `x` and `y`, a panel for each variant and element type.

        By default the axes of the kernel's first heat map, or its first two; the first size, cache
        state and timing mode that were swept. Of other axes each point shows its fastest cell.
        Raises ConfigError.
        """
        # Imported when needed: it takes a second.
        import matplotlib as mpl
        from matplotlib.figure import Figure

        from ..figures.heatmap import draw_panels, every_variant, over_words
        from ..figures.style import set_style, subject

        sweep = self._request.sweep
        view = self._view(x, y)
        problem = sweep.problems[0]
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
                f"there are: {', '.join(p.label for p in sweep.problems)}; "
                f"{', '.join(sweep.cache_states)}; {', '.join(sweep.timing_modes)}."
            )
        ranked = chosen.sort_values("bandwidth_gbs", na_position="first")
        with mpl.rc_context():
            set_style()
            # None of pyplot's: it opens no window, and a notebook shows it once.
            figure = Figure()
            draw_panels(figure, every_variant(ranked, sweep.dtypes), view)
            title = subject(chosen, [c for c, n in counts.items() if n > 1])
            figure.suptitle(f"{title}: bandwidth over {over_words(view)}", fontsize=10)
        return figure

    def _view(self, x: str | None, y: str | None) -> HeatMap:
        axes = list(self._request.sweep.axes)
        refuse_unknown("x, y", filter(None, (x, y)), axes)
        views = self._request.sweep.folder.workload.views
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

    def save(self, folder: str | Path) -> Path:
        """Keep the sweep in `folder`, which must not exist or be empty: cells, log and kernel.

        The cells are files of the form that a run's jobs write, so ``dataset: folder`` has a
        report made of them; ``report.yaml`` is a configuration that does. Raises ConfigError.
        """
        out = Path(folder).expanduser().absolute()
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise ConfigError(f"folder: '{folder}' exists already; name one that does not.")
        sweep = self._request.sweep
        shutil.copytree(self._path(CELLS), out / CELLS)
        shutil.copy(self._path(LOG), out / LOG)
        own: dict[str, Any] = {}
        if sweep.folder.path.parent != KERNELS:
            ours = shutil.ignore_patterns("__pycache__")
            shutil.copytree(sweep.folder.path, out / "kernels" / sweep.folder.name, ignore=ours)
            own = {"kernel_folders": ["kernels"]}
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
                    "sizes": [[p.height, p.width] for p in sweep.problems],
                    "cache": list(sweep.cache_states),
                    "timing_modes": list(sweep.timing_modes),
                    "axes": dict(sweep.axes),
                }
            },
        }
        text = yaml.safe_dump(config, sort_keys=False)
        (out / "report.yaml").write_text(text, encoding="utf-8")
        return out

    def __repr__(self) -> str:
        counted = ", ".join(f"{n} {status}" for status, n in sorted(self.statuses.items()))
        return f"<Sweep of {self._request.sweep.folder.name}: {counted}>"

    def _repr_html_(self) -> str:
        """As a notebook shows it: how the cells ended, and the best of them."""
        shown = self.best().drop(columns=["kernel", "device_name", "cell_key"])
        title = repr(self).strip("<>")
        return f"<p>{title}</p>{shown.to_html(index=False, float_format='{:.4g}'.format)}"

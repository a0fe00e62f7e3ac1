"""Measures a kernel here and now: no run, no plan, and in the end a table."""

from __future__ import annotations

import io
import logging
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache as remembered
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, TextIO

from .. import __name__ as library
from ..analysis.aggregate import aggregate
from ..core.backends import AUTO, BACKENDS
from ..core.run_plan import SweepPlan
from ..core.space import shard_name
from ..devices.base import DeviceInfo
from ..devices.select import DeviceChoice, resolve
from ..measuring.job import ShardTask, measure_shard
from ..planning.config_schema import ConfigError
from ..planning.plan import build_params, sweep_params
from ..planning.sweeps import SweepConfig, refuse_kinds, refuse_too_large
from ..storage.store import write_parquet
from ..workloads.contract import Workload
from ..workloads.loader import KernelFolder
from .arguments import Request, checked, loaded, named_folder, read_request
from .building import build_apart
from .result import CELLS, DATASET, LOG, Sweep

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
    launch: Any = None,
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
    `dtypes`, `sizes`, `variants`, `cache` and `launch` say what is swept as a configuration does;
    what is left out is the kernel's own default, of `launch` that of all. `runtime` is which OpenCL
    runtime. `measure` takes the keys under ``measure`` of config/config.yaml, ``seed`` and
    ``thread_limit``; they have the same defaults, but for `repeats`. With `progress` lines on
    stderr tell how far it is.

    A cell whose kernel crashes, hangs or is wrong has a status that says so. Raises ConfigError, a
    ValueError, for arguments that cannot be, and DeviceError where no device can be used.
    """
    what = {"axes": axes, "dtypes": dtypes, "sizes": sizes, "variants": variants}
    what |= {"cache": cache, "launch": launch}
    where = {"backend": backend, "device": device, "runtime": runtime, "repeats": repeats}
    told = checked({**what, **where, **measure})
    place = tempfile.TemporaryDirectory(prefix=f"{library}-", ignore_cleanup_errors=True)
    chosen = partial(answering, told["backend"], told["device"], told["runtime"])
    folder = loaded_kernel(
        kernel, source, lambda: BACKENDS[chosen()[0].backend].source_suffix, Path(place.name)
    )
    request = read_request(folder, told)
    sweeps, (choice, info) = {folder.name: request.sweep}, chosen()
    refuse_kinds(sweeps, choice.backend)
    refuse_too_large(sweeps, info.global_memory, info.max_allocation)
    terminal = sys.stderr if progress else io.StringIO()
    with logged(Path(place.name) / LOG) as log_file:
        _measure(request, choice, Path(place.name), terminal, log_file)
    return Sweep(request, place)


def loaded_kernel(
    kernel: str | os.PathLike[str] | Workload,
    source: str | Mapping[str, str] | None,
    suffix: Callable[[], str],
    work: Path,
) -> KernelFolder:
    """The kernel with its folder, which is made in `work` where there is none."""
    if isinstance(kernel, Workload):
        # Not before it is needed: whoever sweeps folders need not be able to pickle.
        from .in_memory import write_folder

        path = write_folder(kernel, source, suffix, work / "kernels")
    else:
        if source is not None:
            raise ConfigError("source: a kernel's folder has its own; only a Workload needs one.")
        path = named_folder(kernel)
    return loaded(path)


@remembered
def answering(backend: str, device: int, runtime: str) -> tuple[DeviceChoice, DeviceInfo]:
    """The device that is meant. A process that asks again gets the answer that it had."""
    return resolve(DeviceChoice(backend, device, runtime, _cache_folder()))


def _cache_folder() -> Path:
    """Where device runtimes keep what they compile, for later sweeps as well."""
    kept = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / library
    try:
        kept.mkdir(parents=True, exist_ok=True)
    except OSError:  # a home that may not be written
        return Path(tempfile.mkdtemp(prefix=f"{library}-cache-"))
    return kept


@contextmanager
def logged(path: Path) -> Iterator[Path]:
    """Have the library's messages go to the file `path`; the end of it goes along with an error."""
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
    shards: list[Path] = []
    sweep = request.sweep
    builds = {d: _build(sweep, d, choice, work, terminal, log_file) for d in sweep.dtypes}
    repeats = request.asked["measure"]["repeats"]
    numbered = list(enumerate(builds.items(), 1))
    for repeat, (number, (dtype, build)) in product(range(1, repeats + 1), numbered):
        folder = work / CELLS / sweep.folder.name / dtype
        first = None if repeat == 1 else folder / f"{shard_name(0, 1, 1)}.parquet"
        task = ShardTask(
            SweepPlan(_params(request, choice, dtype), 1).shard_params(0, repeat),
            (number, len(builds)),
            choice.cache,
            first,
            build,
            worker_log=log_file,
        )
        shard = measure_shard(task, terminal, lambda: None, lambda measured, _: measured)
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


def _params(request: Request, choice: DeviceChoice, dtype: str) -> dict[str, Any]:
    """What the measuring jobs of one element type are told."""
    where = {"device": choice.index, "opencl_runtime": choice.runtime}
    return sweep_params(request.sweep, dtype, choice.backend, **where, **request.asked)

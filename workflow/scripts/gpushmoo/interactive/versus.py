"""Two versions of a kernel measured here and now, alternately: which is faster, and by how much."""

from __future__ import annotations

import io
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from .. import __name__ as library
from ..comparing.verdicts import LEAST_BLOCKS
from ..core.backends import AUTO
from ..core.run_plan import SweepPlan
from ..core.space import TYPICAL, asks_the_device, most_values
from ..devices.select import DeviceChoice
from ..measuring.events import Against, Job
from ..measuring.job import measure_pairs
from ..planning.config_schema import ConfigError, refuse_unknown
from ..planning.plan import sweep_params
from ..planning.sweeps import SweepConfig, refuse_kinds, refuse_too_large
from ..workloads.loader import KernelFolder, has_neighbours
from .arguments import checked, read_request
from .measure import answering, loaded_kernel, logged
from .result import LOG
from .versus_result import Side, Versus

# Of the keys under `measure` those that mean something here.
_MEASURE = ("cell_timeout_s", "max_builds", "max_cells", "seed", "thread_limit", "warmup")
_MOST_BLOCKS = 10_000


def versus(
    a: str | os.PathLike[str],
    b: str | os.PathLike[str] | None = None,
    *,
    variant_a: str | None = None,
    variant_b: str | None = None,
    options_a: str | Sequence[str] = (),
    options_b: str | Sequence[str] = (),
    axes: Mapping[str, Any] | None = None,
    dtypes: Any = None,
    sizes: Any = None,
    cache: Any = None,
    launch: Any = None,
    backend: str = AUTO,
    device: int = 0,
    runtime: str = AUTO,
    blocks: int = 8,
    delta: float = 0.01,
    progress: bool = True,
    **measure: Any,
) -> Versus:
    """Measure two versions alternately, A B B A, in one process on one device, and wait for it.

    `a` and `b` are kernels' folders, which may have the same name; without `b` both are `a`. They
    may differ in the variant as well, or in options for the backend's compiler
    (``options_b="-use_fast_math"``). Cells of both that are alike in element type, size, cache
    state, kind of launch and in all parameters that both kernels have are a pair, and each pair
    gets so many `blocks` of two samples of A and two of B. `axes`, `dtypes`, `sizes`, `cache` and
    `launch` say for both what is swept, `measure` takes ``seed``, ``thread_limit`` and, of the keys
    under ``measure`` of config/config.yaml, those that are not about samples. A change below
    `delta` does not matter.

    A kernel that crashes, hangs or is wrong costs its own pair, which has a status that says so.
    Raises ConfigError, a ValueError, for arguments that cannot be, and DeviceError where no device
    can be used.
    """
    _refuse(blocks, delta, measure)
    what = {"axes": axes, "dtypes": dtypes, "sizes": sizes, "cache": cache, "launch": launch}
    told = checked({**what, "backend": backend, "device": device, "runtime": runtime, **measure})
    options = _options("options_a", options_a), _options("options_b", options_b)
    terminal = sys.stderr if progress else io.StringIO()
    with tempfile.TemporaryDirectory(prefix=f"{library}-", ignore_cleanup_errors=True) as place:
        folders = _load(a, a if b is None else b, Path(place))
        variants = _variants(folders, variant_a, variant_b)
        sweeps, asked = _sweeps(folders, variants, told)
        choice, info = answering(told["backend"], told["device"], told["runtime"])
        refuse_kinds({folders[0].name: sweeps[0]}, choice.backend)
        for folder, sweep in zip(folders, sweeps, strict=True):
            refuse_too_large({folder.name: sweep}, info.global_memory, info.max_allocation)
        measured = {}
        with logged(Path(place) / LOG) as log_file:
            for dtype in sweeps[0].dtypes:
                first, second = (_params(sweep, dtype, asked, choice) for sweep in sweeps)
                against = Against(second, options, blocks)
                job = Job(first, choice.cache, time.monotonic(), against=against)
                label = f"{folders[0].name} {dtype}, A and B"
                measured[dtype] = measure_pairs(job, label, terminal, log_file)
        log = log_file.read_text(encoding="utf-8", errors="replace")
    sides = [
        Side(folder.path, sweep.variants, own)
        for folder, sweep, own in zip(folders, sweeps, options, strict=True)
    ]
    return Versus((sides[0], sides[1]), measured, blocks, delta, log)


def _refuse(blocks: Any, delta: Any, measure: Mapping[str, Any]) -> None:
    """Raise ConfigError for what only this function is told."""
    whole = isinstance(blocks, int) and not isinstance(blocks, bool)
    if not whole or not LEAST_BLOCKS <= blocks <= _MOST_BLOCKS:
        raise ConfigError(
            f"blocks is {blocks!r}; it must be a whole number from {LEAST_BLOCKS} to "
            f"{_MOST_BLOCKS}."
        )
    number = isinstance(delta, int | float) and not isinstance(delta, bool)
    if not number or not 0 < delta < 1:
        raise ConfigError(f"delta is {delta!r}; it must be a number between 0 and 1 (0.01 is 1 %).")
    refuse_unknown("measure", measure, _MEASURE)


def _options(name: str, given: Any) -> tuple[str, ...]:
    """The options for a compiler one by one; a text is taken apart at blanks."""
    words = given.split() if isinstance(given, str) else given
    if not isinstance(words, Sequence) or not all(isinstance(w, str) and w for w in words):
        raise ConfigError(f"{name} is {given!r}; it must be a text or a list of texts.")
    return tuple(words)


def _load(
    a: str | os.PathLike[str], b: str | os.PathLike[str], work: Path
) -> tuple[KernelFolder, KernelFolder]:
    """Both kernels; loaded once where they are one."""
    first, second = (Path(given).expanduser().resolve() for given in (a, b))
    load = partial(loaded_kernel, source=None, suffix=str, work=work)
    one = load(first)
    if first == second:
        return one, one
    other = load(second)
    if first.parent != second.parent:
        for folder in (one, other):
            if has_neighbours(folder.path / "workload.py"):
                raise ConfigError(
                    f"'{folder.path}' imports what lies beside it, of which one process loads that "
                    f"of '{first.parent}' or that of '{second.parent}'; put both kernels in one "
                    "folder under two names."
                )
    return one, other


def _variants(
    folders: tuple[KernelFolder, KernelFolder], a: str | None, b: str | None
) -> tuple[list[str], list[str]]:
    """The variants of A, and beside each that of B. Raises ConfigError."""
    first, second = (folder.workload for folder in folders)
    if a is None and b is None:
        both = [v for v in first.default_variants or first.variants if v in second.variants]
        if not both:
            raise ConfigError(
                f"variant_a, variant_b: A has {', '.join(first.variants)}, B has "
                f"{', '.join(second.variants)}; name one of each."
            )
        return both, both
    chosen = a or b, b or a
    refuse_unknown("variant_a", [chosen[0]], first.variants)
    refuse_unknown("variant_b", [chosen[1]], second.variants)
    return [str(chosen[0])], [str(chosen[1])]


def _sweeps(
    folders: tuple[KernelFolder, KernelFolder],
    variants: tuple[list[str], list[str]],
    told: Mapping[str, Any],
) -> tuple[tuple[SweepConfig, SweepConfig], dict[str, Any]]:
    """What is swept of A and of B: what both have. Raises ConfigError."""
    axes, known = told.get("axes", {}), [set(folder.workload.axes) for folder in folders]
    refuse_unknown("axes", axes, sorted(known[0] | known[1]))
    read = []
    for folder, names, own in zip(folders, variants, known, strict=True):
        mine = {name: spec for name, spec in axes.items() if name in own}
        # Beside the variants' order nothing of a request is lost: each names a variant once.
        read.append(read_request(folder, {**told, "axes": mine, "variants": names}))
    a, b = (request.sweep for request in read)
    for sweep, others, who in ((a, b, "A"), (b, a, "B")):
        for name, spec in sweep.axes.items():
            if name not in others.axes and (
                asks_the_device(spec) or most_values(spec, TYPICAL) > 1
            ):
                raise ConfigError(
                    f"axes: '{name}' is a parameter of {who} alone; give it one value (such as "
                    f"axes={{'{name}': 1}}), so that each cell has one to stand beside."
                )
    shared: dict[str, Any] = {
        "dtypes": _common("dtypes", a.dtypes, b.dtypes),
        "problems": _common("sizes", a.problems, b.problems),
        "cache_states": _common("cache", a.cache_states, b.cache_states),
        "launch_kinds": _common("launch", a.launch_kinds, b.launch_kinds),
    }
    return (replace(a, **shared), replace(b, **shared)), read[0].asked


def _common(name: str, a: Sequence[Any], b: Sequence[Any]) -> tuple[Any, ...]:
    """What A and B have in common of these. Raises ConfigError where that is nothing."""
    both = tuple(value for value in a if value in b)
    if not both:
        said = (", ".join(getattr(v, "label", str(v)) for v in values) for values in (a, b))
        raise ConfigError(f"{name}: A has {next(said)} and B {next(said)}; name what both have.")
    return both


def _params(
    sweep: SweepConfig, dtype: str, asked: Mapping[str, Any], choice: DeviceChoice
) -> dict[str, Any]:
    """What the measuring process is told of one version."""
    where = {"device": choice.index, "opencl_runtime": choice.runtime}
    params = sweep_params(sweep, dtype, choice.backend, **where, **asked)
    return SweepPlan(params, 1).shard_params(0, 1)

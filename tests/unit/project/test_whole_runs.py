"""Odd configurations: refused by a sentence before anything runs, else run to their report.

Workflow tests run few configurations by way of Snakemake; here the jobs of many run
one after the other in this process, which would take hours by way of Snakemake.
"""

import copy
import io
import math
import tempfile
from collections.abc import Mapping
from contextlib import chdir
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace as Wildcards
from typing import Any

import pytest
import yaml
from conftest import ROOT, examples
from dot_products.resident import ResidentSum
from gpushmoo.analysis.aggregate import aggregate
from gpushmoo.analysis.best import write_best
from gpushmoo.analysis.peak import measure_peak
from gpushmoo.analysis.run_quality import COLUMNS, write_verdict
from gpushmoo.core.errors import ConfigError
from gpushmoo.core.schema import FAULTS
from gpushmoo.core.space import Residency, expand_axis
from gpushmoo.figures.draw_stage import draw_figure
from gpushmoo.measuring.job import ShardTask, run_shard
from gpushmoo.planning.config import load_config
from gpushmoo.planning.flow import Flow
from gpushmoo.report.build import build_report
from gpushmoo.storage.dataset import read_cells
from gpushmoo.workloads.contract import Workload
from gpushmoo.workloads.host_fed import HostFedWorkload
from gpushmoo.workloads.loader import find_kernels, load_kernel
from hypothesis import HealthCheck, assume, given, reject, settings
from hypothesis import strategies as st
from streamed_dot.figure_dot import draw_plot

DEFAULT = yaml.safe_load((ROOT / "config/config.yaml").read_text())
FOLDERS = find_kernels([ROOT / "kernels"])
# cuBLAS is CUDA's.
KERNELS = sorted(set(FOLDERS) - {"dot_cublas"})
MAX_CELLS = 40
# Each launch of such a cell fills twice what the last cache holds.
MAX_FLUSHED = 2
SIZES = [1, 2, 3, 31, 32, 33, 64, 100, [1, 7], [7, 1], [48, 70], [33, 1000]]
LENGTHS = [0, 1, 2, 63, 64, 1000, 4096, 4097]
# Few enough that no launch takes a busy CPU longer than a cell may take.
VALUES = [1, 2, 3, 7, 8, 31, 32, 33, 64, 100, 1025]


def some(values: Any, most: int = 3) -> st.SearchStrategy[list[Any]]:
    return st.lists(st.sampled_from(list(values)), min_size=1, max_size=most, unique_by=str)


@st.composite
def axes(draw: st.DrawFn, w: Workload, axis: str) -> Any:
    """An axis with a few values, some of which no launch can have."""
    least, most = 0 if axis in w.zero_axes else 1, w.most.get(axis, 2**28)
    if axis in ("unroll", "block_rows"):
        # There is an entry of the kernel for each; of another one its cell says that there is none.
        return draw(some(w.axes[axis]))
    # Blocks of the loading kernel are of whole warps.
    step = 32 if w.peak == "load" and axis == "block_x" else 1
    values = [v for v in (0, *VALUES) if least <= v <= most and v % step == 0]
    kind = draw(st.sampled_from(["list", "list", "value", "range", "resident"]))
    if kind == "value":
        return draw(st.sampled_from(values))
    if kind == "range":
        first = draw(st.sampled_from([v for v in values if v < most]))
        step *= draw(st.integers(1, 5))
        return {"from": first, "to": min(most, first + draw(st.integers(0, 12))), "step": step}
    if kind == "resident" and step == 1:
        waves = draw(st.sampled_from([0.01, 0.5, 1.0, 16.0]))
        return {"to_resident": waves, "points": draw(st.integers(1, 3))}
    return draw(some(values))


@st.composite
def sweep(draw: st.DrawFn, kernel: str) -> dict[str, Any]:
    w = load_kernel(FOLDERS[kernel]).workload
    lengths = isinstance(w, HostFedWorkload | ResidentSum)
    return {
        "dtypes": draw(some(w.dtypes, 2)),
        "variants": draw(some(w.variants)),
        "sizes": draw(some(LENGTHS[not isinstance(w, HostFedWorkload) :] if lengths else SIZES, 4)),
        "cache": draw(some(["warm", "flushed"], 2)),
        "axes": {axis: draw(axes(w, axis)) for axis in w.axes},
    }


MEASURE = st.fixed_dictionaries(
    {
        "repeats": st.sampled_from([1, 1, 1, 2]),
        "min_samples": st.integers(6, 8),
        "max_samples": st.integers(6, 9),
        "relative_half_width": st.sampled_from([1e-9, 0.5, 1.0]),
        "cell_budget_s": st.sampled_from([1e-9, 0.01]),
        "warmup": st.sampled_from([0, 1, 3]),
        "search": st.fixed_dictionaries(
            {
                "mode": st.sampled_from(["all", "all", "race", "guided"]),
                "tolerance": st.sampled_from([0.01, 1.0]),
                "better_probability": st.sampled_from([0.05, 0.99]),
                "max_share": st.sampled_from([0.1, 1.0]),
            }
        ),
        "cells_per_shard": st.sampled_from([60, 1000]),
    }
)


@st.composite
def configurations(draw: st.DrawFn) -> dict[str, Any]:
    """Small ones, most of them possible."""
    config: dict[str, Any] = copy.deepcopy(DEFAULT)
    kernels = draw(some(KERNELS, 2))
    return config | {
        "run": "odd",
        "seed": draw(st.sampled_from([0, 1, 2**32 - 1])),
        "backend": "opencl",
        "thread_limit": draw(st.sampled_from([None, 1, 32, 1024, 10**9])),
        "only": kernels,
        "kernels": {k: draw(sweep(k)) for k in kernels},
        "measure": draw(MEASURE),
        "chapters": None,
    }


@pytest.mark.slow
@settings(max_examples=examples(3), suppress_health_check=list(HealthCheck))
@given(config=configurations())
def test_any_configuration_runs_or_is_refused(opencl_cache: Path, config: dict[str, Any]) -> None:
    try:
        taken = load_config(config, ROOT)
    except ConfigError as err:
        assert len(str(err).splitlines()) == 1  # noqa: PT017
        reject()
    cells = flushed = 0
    for s in taken.sweeps.values():
        # About: axes that ask the device are of one with two units.
        grids = (expand_axis(spec, Residency(2, 1)) for spec in s.axes.values())
        each = math.prod(map(len, (*grids, s.sizes, s.variants, s.dtypes)))
        cells += each * len(s.cache_states)
        flushed += each * ("flushed" in s.cache_states)
    assume(cells <= MAX_CELLS)
    assume(flushed <= MAX_FLUSHED)
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        flow = run_all(config, opencl_cache)
        assert Path(flow.path("report.pdf")).stat().st_size > 0
        rows = read_cells(Path(flow.path("dataset")))
        wrong = rows[rows["status"].isin(FAULTS)]
        assert wrong.empty, wrong[["status", "message"]]


def run_all(raw: Mapping[str, Any], cache: Path) -> Flow:
    """Measure, analyse, draw and render in the working directory, as the rules would.

    What runtimes compile is kept in `cache`.
    """
    flow = Flow(raw, ask_device=False)
    dataset, terminal = Path(flow.path("dataset")), io.StringIO()
    for shard in flow.shards:
        name = replace(shard, repeat=1).name
        wildcards = Wildcards(sweep=shard.sweep, dtype=shard.dtype, shard=name, repeat=shard.repeat)
        first = None if shard.repeat == 1 else Path(flow.first_repeat(wildcards))
        task = ShardTask(flow.job(wildcards), (1, 1), cache, first)
        run_shard(task, Path(flow.path("cells", shard.path)), terminal)
    aggregate([Path(f) for f in flow.shard_files], dataset, one_model=True)
    top, best = (Path(flow.path("summary", name)) for name in ("peak.json", "best.parquet"))
    measure_peak(dataset, flow.peak_kernels, top)
    write_best(dataset, top, flow.host_fed_kernels, flow.limits, best)
    for figure in flow.figures:
        wildcards = Wildcards(figure=figure.name)
        inputs = {name: Path(file) for name, file in flow.figure_inputs(wildcards).items()}
        svg = Path(flow.path("figures", f"{figure.name}.svg"))
        said = io.StringIO()
        draw_figure(flow.figure_job(wildcards), inputs, svg, said)
        assert said.getvalue() == ""
    for plot in (Path(f).stem for f in flow.figure_files):
        if plot.startswith("dot-"):
            draw_plot(plot.removeprefix("dot-"), dataset, Path(flow.path("figures", f"{plot}.svg")))
    files = {
        "dataset": dataset,
        "best": best,
        "peak": top,
        "figures": [*map(Path, flow.figure_files)],
        **dict.fromkeys(("machine", "device", "counted"), ()),
        "extras": {},
    }
    facts = Path(flow.path("report.json"))
    pdf = Path(flow.path("report.pdf"))
    build_report(files, flow.report_params(Wildcards()), facts, pdf)
    verdict = Path(flow.path("summary", "verdict.txt"))
    cells = read_cells(dataset, columns=COLUMNS)
    write_verdict(cells, verdict, False, flow.swept, terminal)
    return flow

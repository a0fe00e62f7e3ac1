"""Kernels that declare no bytes go through all that a run makes, ranked by time."""

import re
from pathlib import Path

import gpushmoo
import numpy as np
import pandas as pd
import pytest
from conftest import USER_OPENCL, WORKLOAD_TEMPLATE
from gpushmoo.comparing.run_history import LAUNCHES, history_of, read_runs
from gpushmoo.extras.history.figure import draw_timelines
from gpushmoo.interactive.commands.measuring import report
from gpushmoo.storage.dataset import read_cells
from projects import Project

pytest_plugins = ["workflow_fixtures"]

NO_BYTES = """
    def bytes_read(self, problem, dtype):
        return 0

    bytes_written = bytes_read

    def footprint(self, problem, dtype):
        return 12 * problem.height * problem.width
"""
WORK = """
    work_unit = "step"

    def work(self, cell):
        return float(cell.problem.height)
"""
# No words but these hold one of them.
NOT_TOLD = re.compile(r"\bnan\b|\binf\b|\binfinity\b|\b0(\.0*)? GB/s", re.IGNORECASE)


def write_kernel(folder: Path, name: str, work: str) -> None:
    kernel = folder / name
    kernel.mkdir(parents=True)
    (kernel / "kernel.cl").write_text(USER_OPENCL)
    text = WORKLOAD_TEMPLATE.format(name=name, variants=("good",))
    text = text.replace("    def launch", f"{NO_BYTES}{work}\n    def launch")
    text = text.replace("(64,)", "(16, 24, 32, 64)").replace("2048]", '64], "spare": [1, 2, 3]')
    text = text.replace("Curve,", "Curve, HeatMap, WorkingSet,").replace(
        'unit="threads"),', 'unit="threads"), HeatMap("block_x", "spare"), WorkingSet(),'
    )
    (kernel / "workload.py").write_text(text)


@pytest.mark.slow
def test_nothing_that_a_run_makes_breaks_or_tells_of_bytes(bare: Project, tmp_path: Path) -> None:
    for name, work in (("untold", ""), ("worked", WORK)):
        write_kernel(tmp_path / "own", name, work)
    config = {
        "run": "bytes",
        "backend": "opencl",
        "kernel_folders": [str(tmp_path / "own")],
        "only": ["untold", "worked"],
        "kernels": {"untold": {}, "worked": {}},
        "chapters": None,
        "measure": {"repeats": 2, "min_samples": 6, "max_samples": 7},
    }
    bare.write_config("bytes.yaml", config)
    done = bare.snakemake("all", "export", config=("bytes.yaml",))
    assert done.status == 0, done.text
    results = bare.root / "results/bytes"
    cells = read_cells(results / "dataset")
    ok = cells[cells["status"] == "ok"]
    assert len(ok) == 2 * 4 * 6
    absent = ["bandwidth_gbs", "bandwidth_low_gbs", "vs_memcpy", "working_set_over_cache"]
    assert cells[absent].isna().all(axis=None)
    told = ok.groupby("kernel", observed=True)["work_unit"].agg(lambda units: set(units.dropna()))
    assert told.to_dict() == {"untold": set(), "worked": {"step"}}
    best = pd.read_parquet(results / "summary/best.parquet")
    first = best[best["is_fastest"]].set_index(["kernel", "height"])["median_s"]
    fastest = ok.groupby(["kernel", "height"], observed=True)["median_s"].min()
    assert (first.sort_index() == fastest.sort_index()).all()
    made = [results / "report.json", *(results / "figures").glob("*.json")]
    made += [path for path in (results / "export").rglob("*") if path.is_file()]
    texts = {path.name: path.read_text() for path in made} | {"terminal": done.text}
    assert [name for name, text in texts.items() if NOT_TOLD.search(text)] == []
    assert r"\u00b5s (" in texts["report.json"]
    assert "Gstep/s" in texts["report.json"]
    assert " us (" in texts["launches.h"]
    assert gpushmoo.export(results, out=tmp_path / "export").files
    gpushmoo.explore(results, results, out=tmp_path / "page.html")
    assert not re.search(r"\bNaN\b|Infinity", index_of(tmp_path / "page.html"))
    said = gpushmoo.compare(results, results).markdown()
    assert not NOT_TOLD.search(said)
    history = history_of(read_runs([results, results]))
    assert history.rows[LAUNCHES].notna().all()
    assert not NOT_TOLD.search(history.markdown())
    draw_timelines(history.rows).savefig(tmp_path / "runs.svg")
    sweep = gpushmoo.sweep(tmp_path / "own/worked", sizes=64, backend="opencl", repeats=1)
    assert "Gstep/s" in report(sweep)
    assert not NOT_TOLD.search(report(sweep))
    assert np.isfinite(sweep.best["median_s"]).all()
    sweep.heatmap().savefig(tmp_path / "map.svg")


def index_of(page: Path) -> str:
    """The plain part of the explorer's data."""
    return page.read_text().split('id="index">')[1].split("</script>")[0]

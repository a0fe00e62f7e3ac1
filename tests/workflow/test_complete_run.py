"""A whole run, from the configuration to the report, on this machine's OpenCL device."""

import html
import itertools
import json
import re

import pandas as pd
import pytest
from gpushmoo import PROTOCOL_VERSION, OpenedError, open_run
from gpushmoo.registry import extras
from gpushmoo.storage.dataset import read_cells
from gpushmoo.storage.store import read_shard
from gpushmoo.storage.wholefile import read_json
from gpushmoo.workloads.loader import load_kernel
from projects import TINY, TINY_SHARDS, FinishedProject

pytest_plugins = ("workflow_fixtures",)

COPY, PERSISTENT = "copy2d_coalesced", "block_eq_partition"

# What extras put beside the report.
PRODUCTS = [name for extra in extras().values() for name in extra.products]


def test_every_promised_file_is_there(finished: FinishedProject) -> None:
    results = finished.results
    figures = ["simulated-tesla-c1060", "float3-tesla-c1060"]
    figures += [f"heatmap-{COPY}-block_x-block_y-48x70-warm"]
    figures += [f"curve-{PERSISTENT}-num_partition-128x128-warm"]
    promised = [f"figures/{name}.svg" for name in figures]
    for name in TINY_SHARDS:
        kernel, dtype, _ = name.split("/")
        promised.append(f"cells/{name}.parquet")
        promised.append(f"dataset/kernel={kernel}/dtype={dtype}/part-0.parquet")
        promised.append(f"logs/measure/{name.replace('/', '-')}.log")
    promised += ["summary/peak.json", "summary/best.parquet", "summary/verdict.txt"]
    promised += ["report.pdf", "report.json", "figures-tesla-c1060.pdf", *PRODUCTS]
    promised += ["benchmarks/best.tsv", f"benchmarks/figure-{figures[-1]}.tsv"]
    promised += [f"simulated/tesla-c1060-{part}.parquet" for part in ("blocks", "tables", "tiles")]
    empty = [p for p in promised if not (results / p).is_file() or not (results / p).stat().st_size]
    assert empty == []
    assert (results / "report.pdf").read_bytes().startswith(b"%PDF-")
    assert (results / "logs/best.log").exists()


def test_a_run_is_opened_with_what_its_report_shows(finished: FinishedProject) -> None:
    run = open_run(finished.results)
    best = pd.read_parquet(finished.results / "summary/best.parquet")
    pd.testing.assert_frame_equal(run.best, best, check_like=True)
    assert set(best["cell_key"]) <= set(run.cells["cell_key"])
    assert {str(run.best[axis].dtype) for axis in ("block_x", "num_partition")} == {"Int64"}
    assert run.figures[f"heatmap-{COPY}-block_x-block_y-48x70-warm"].is_file()
    assert len(run.peak) == len(read_json(finished.results / "summary/peak.json")["peak"])
    with pytest.raises(OpenedError, match="does not exist; name a run's folder"):
        open_run(finished.results / "none")


def test_every_cell_of_the_grid_is_one_verified_row(finished: FinishedProject) -> None:
    cells = read_cells(finished.results / "dataset")
    axes = TINY["kernels"][COPY]["axes"]
    expected = {
        (COPY, dtype, variant, 48, 70, x, y, -1)
        for dtype, variant in itertools.product(("float", "float3"), ("element", "tile32"))
        for x, y in itertools.product(axes["block_x"], axes["block_y"])
    }
    expected |= {
        (PERSISTENT, dtype, variant, 128, 128, -1, -1, n)
        for dtype, variant in itertools.product(("float", "double"), ("exact", "reciprocal"))
        for n in range(1, 13)
    }
    names = ["kernel", "dtype", "variant", "height", "width"]
    names += ["block_x", "block_y", "num_partition"]
    rows = list(cells[names].fillna(-1).itertuples(index=False, name=None))
    assert len(rows) == len(expected)
    assert set(rows) == expected
    assert cells["cell_key"].is_unique
    over = cells["block_x"] * cells["block_y"] > 1024
    assert set(cells.loc[over, "status"]) == {"too_many_threads"}
    ok = cells[~over]
    assert set(ok["status"]) == {"ok"}
    assert (ok["wrong_words"] == 0).all()
    # A word has four bytes: the whole output was compared.
    assert (ok["verified_words"] == ok["bytes_written"] // 4).all()
    assert (ok["verified_words"] > 0).all()
    # A race of one repeat takes one sample of a cell that cannot win.
    taken = ok["samples_s"].map(len)
    assert taken.between(1, TINY["measure"]["max_samples"]).all()
    assert (taken >= TINY["measure"]["min_samples"]).any()
    assert (ok["samples_s"].map(min) > 0).all()
    assert (ok["bandwidth_low_gbs"] <= ok["bandwidth_gbs"]).all()
    assert (ok["bandwidth_gbs"] <= ok["bandwidth_high_gbs"]).all()


def test_a_shard_tells_where_its_figures_come_from(finished: FinishedProject) -> None:
    for path in finished.shards:
        table, facts = read_shard(path)
        kernel = load_kernel(finished.root / "kernels" / path.parts[-3])
        assert facts["protocol_version"] == PROTOCOL_VERSION
        assert facts["kernel_digest"] == kernel.digest(".cl")
        assert set(facts["builds"]) == set(kernel.workload.variants)
        assert all("element_t" in options for options in facts["builds"].values())
        assert facts["device"]["backend"] == "opencl"
        for name in ("name", "uuid", "driver", "runtime"):
            assert facts["device"][name]
        assert facts["host"]["name"]
        assert pd.Timestamp(facts["written_at"]).tzinfo is not None
        assert set(table.column("device_uuid").to_pylist()) == {facts["device"]["uuid"]}


def test_a_run_tells_shards_launches_to_use_and_its_report(finished: FinishedProject) -> None:
    text = finished.outcome.text
    for number, name in enumerate(TINY_SHARDS, 1):
        kernel, dtype, _ = name.split("/")
        cells = 24 if kernel == PERSISTENT else 18
        assert f"shard {number}/4 {kernel} {dtype}: {cells} cells to measure" in text
    assert "Traceback" not in text
    # It asks little of the simulated device, and all figures of the document.
    jobs = finished.outcome.jobs
    assert (jobs["atlas"], jobs["simulate"], jobs["figure_simulated"]) == (1, 3, 2)
    (anew,) = (line for line in text.splitlines() if line.startswith("gpushmoo: made again"))
    assert "tesla-c1060-tables.parquet" in anew
    assert "figures-tesla-c1060.pdf" not in anew
    found = re.search(r"gpushmoo: the report is (\S+); .*\n((?:  .*\n)+)", text)
    assert found
    assert finished.root / found[1] == finished.results / "report.pdf"
    page = read_json(finished.results / "report.json")["first_page"]
    told = [(k["name"], row) for k in page["kernels"] for row in k["rows"]]
    lines = found[2].splitlines()
    assert len(lines) == len(told) > 0
    for line, (kernel, row) in zip(lines, told, strict=True):
        words = (kernel, row["dtype"], row["use"], f"{row['tied']} tied")
        assert all(word in line for word in words), line
    second = finished.snakemake()
    assert (second.status, second.jobs) == (0, {})
    assert "Nothing to be done" in second.text
    # The same again, and of the first run no job's number.
    assert found[0] in second.text
    assert "Finished jobid" not in text


def test_snakemakes_report_has_each_figure_with_its_words(finished: FinishedProject) -> None:
    outcome = finished.snakemake("--report", "own.html")
    assert outcome.status == 0, outcome.text
    page = (finished.root / "own.html").read_text()
    shown, headings = (
        json.loads(re.search(rf"^ *var {name} = (\{{.*\}});?$", page, re.MULTILINE)[1])
        for name in ("results", "categories")
    )
    notes = {
        p.with_suffix(".svg").name: read_json(p) for p in finished.results.glob("figures/*.json")
    }
    pages = {"report.pdf", "figures-tesla-c1060.pdf", *PRODUCTS}
    assert {figure["name"] for figure in shown.values()} == set(notes) | pages
    for figure in shown.values():
        caption = html.unescape(re.sub(r"<.*?>", "", figure["caption"]))
        if figure["name"] in pages:
            assert caption.strip()
            continue
        assert caption.split() == notes[figure["name"]]["caption"].split()
        assert figure["labels"] == {"figure": notes[figure["name"]]["title"]}
    assert set(headings) == {
        "Block shape",
        "Bandwidth over one parameter",
        "Partition camping on a Tesla C1060",
        "Report",
        *(["Explorer"] if PRODUCTS else []),
    }


def test_the_full_sweep_is_planned_without_a_device(finished: FinishedProject) -> None:
    jobs = finished.plan(config=("config/full.yaml",))
    assert jobs["measure"] > 1
    # Asking a device leaves its cache there.
    assert not (finished.root / "results/full").exists()
    recorded = "dataset=reports/reference/nvidia-h200"
    both = ("config/full.yaml", "config/dots.yaml")
    jobs = finished.plan("--config", recorded, "only=null", config=both)
    assert (jobs["report"], jobs["aggregate"], jobs.get("measure")) == (1, 1, None)

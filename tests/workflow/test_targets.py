"""Targets beside the report: compare with its guard, a history, an export."""

import json
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from conftest import record
from energetic import write_energy
from gpushmoo.comparing.run_history import read_history
from gpushmoo.exporting.formats import FORMAT
from gpushmoo.registry import extras
from gpushmoo.storage.store import read_shard, write_parquet
from gpushmoo.storage.wholefile import read_complete, read_json
from projects import Outcome, Project

pytest_plugins = ["workflow_fixtures"]

KERNEL = "stencil5"
TIMES = ("median_s", "median_low_s", "median_high_s", "group_low_s", "group_high_s")


def slowed(folder: Path, factor: float, day: int = 0) -> None:
    """The recorded shards, so many days later; a launch takes `factor` times as long."""
    recorded = record(f"nvidia-h200-gallery/{KERNEL}/float")
    for path in sorted(recorded.rglob("*.parquet")):
        table, metadata = read_shard(path)
        rows = table.to_pylist()
        for row in rows:
            row["measured_at"] += timedelta(days=day)
            row["repeat_medians_s"] = [factor * v for v in row["repeat_medians_s"]]
            row["samples_s"] = [factor * v for v in row["samples_s"]]
            for name in TIMES:
                row[name] = row[name] and factor * row[name]
            for name in ("bandwidth_gbs", "bandwidth_low_gbs", "bandwidth_high_gbs", "vs_memcpy"):
                row[name] = row[name] and row[name] / factor
        new = pa.Table.from_pylist(rows, schema=table.schema)
        write_parquet(new, folder / path.relative_to(recorded), metadata)


def test_a_slower_run_is_written_down_and_stopped_by_the_guard(bare: Project) -> None:
    def compared(after: str, *config: str) -> Outcome:
        return bare.snakemake(
            "compare", "--config", "run=held", "before=before", f"after={after}", *config
        )

    slowed(bare.root / "before", 1.0)
    slowed(bare.root / "after", 1.2)
    outcome = compared("after", "fail_on_regression=true")
    assert outcome.status != 0
    assert "got significantly slower" in outcome.text
    out = bare.root / "results/held/compare"
    assert b"got slower by more than 1.00 %" in read_complete(out / "summary.md")
    # What is in results/held is no plan of a run, and nothing was measured.
    assert not (bare.root / "results/held/plan.json").exists()
    outcome = compared("after")
    assert outcome.status == 0, outcome.text
    assert {path.name for path in out.iterdir()} == {
        "cells.parquet",
        "groups.parquet",
        "drift.parquet",
        "summary.md",
        "changes.svg",
        "changes.json",
        "compare.pdf",
        *(name for extra in extras().values() for name in extra.compared),
    }
    outcome = compared("nowhere")
    assert outcome.status != 0
    assert "after: 'nowhere' is not the folder of a run" in outcome.text
    outcome = compared("before", "fail_on_regression=true")
    assert outcome.status == 0, outcome.text
    assert (out / "regression.txt").exists()


@pytest.mark.skipif("history" not in extras(), reason="its extra is not there")
def test_a_run_is_shown_beside_earlier_ones(bare: Project) -> None:
    for day, (name, factor) in enumerate({"one": 1, "two": 1, "three": 1.2, "last": 1.2}.items()):
        slowed(bare.root / name, factor, day)
    (bare.root / "broken").mkdir()
    (bare.root / "broken" / "cut.parquet").write_bytes(b"PAR1")
    files = ("last.yaml",)
    config = {"run": "last", "dataset": "last", "only": [KERNEL], "chapters": None}
    config |= {"kernels": {KERNEL: {"dtypes": ["float"]}}}
    bare.write_config(files[0], {**config, "history": ["three", "one", "two", "broken"]})
    told = bare.snakemake(config=files)
    assert told.status == 0, told.text
    assert "gpushmoo: history: broken is left out: " in told.text
    results = bare.root / "results/last"
    found = read_history(results / "history")
    runs = found.rows.drop_duplicates("number").sort_values("number")["run"]
    assert runs.tolist() == ["one", "two", "three", "last"]
    changes = found.changes()
    assert len(changes) == len(found.rows.drop_duplicates(["variant", "dtype", "height"]))
    assert all(one.change == pytest.approx(1 / 1.2 - 1) for one in changes)
    facts = read_json(results / "report.json")
    at = f"{found.rows['measured_at'].min():%Y-%m-%d} to {found.rows['measured_at'].max():%Y-%m-%d}"
    titles = [part["facts"]["title"] for part in facts["extras"]]
    assert titles == [f"History of 4 runs: one to last, {at}"]
    for product in (name for extra in extras().values() for name in extra.products):
        page = read_complete(results / product).decode()
        index = json.loads(page.split('id="index">')[1].split("</script>")[0])
        assert [run["run"] for run in index[0]["history"]["runs"]] == runs.tolist()
    # All of it is there: nothing is made again.
    assert bare.plan(config=files) == {}


def test_the_energy_of_a_recorded_run_is_drawn(bare: Project) -> None:
    slowed(bare.root / "held", 1.0)
    write_energy(bare.root / "held-studies/energy.parquet", [], "No device has a counter.")
    figure = "results/drawn/figures/energy.svg"
    words = ("--config", "run=drawn", "dataset=held", "only=null")
    outcome = bare.snakemake(figure, *words, config=("config/gallery.yaml",))
    assert outcome.status == 0, outcome.text
    note = read_json((bare.root / figure).with_suffix(".json"))
    assert "No device has a counter." in note["caption"]


def test_a_run_is_exported_once(project: Project) -> None:
    outcome = project.snakemake("export")
    assert outcome.status == 0, outcome.text
    assert outcome.jobs == {"export": 1}
    made = project.results / "export"
    told = read_json(made / "choices.json")
    assert (told["format"], told["run"]) == (FORMAT, "tiny")
    assert {choice["kernel"] for choice in told["choices"]} == {
        "block_eq_partition",
        "copy2d_coalesced",
    }
    assert (made / "launches.h").is_file()
    if "foreign_formats" not in extras():
        return
    # Two types and one size of one kernel, two types and variants of the other.
    assert len(list((made / "kernel-tuner").iterdir())) == len(told["choices"])
    [copied, *_] = sorted((made / "t4").glob("copy2d_coalesced-*"))
    results = json.loads(copied.read_text())["results"]
    assert [r["invalidity"] for r in results].count("correct") <= len(results) == 9
    assert project.snakemake("export").jobs == {}

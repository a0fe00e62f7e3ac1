"""The target compare: two recorded sets held against each other, and a guard that stops."""

from __future__ import annotations

import shutil
from pathlib import Path

from conftest import record
from gpushmoo.storage.store import open_shard, read_shard, write_parquet
from gpushmoo.storage.wholefile import read_summed
from projects import Project

pytest_plugins = ["workflow_fixtures"]

KERNEL = "stencil5"
TIMES = ("samples_s", "median_s", "median_low_s", "median_high_s", "own_low_s", "own_high_s")


def slowed(folder: Path, factor: float) -> None:
    """A copy of the recorded shards in which every launch takes `factor` times as long."""
    recorded = record(f"nvidia-h200-gallery/{KERNEL}")
    for path in sorted(recorded.rglob("*.parquet")):
        table, metadata = read_shard(path)
        rows = table.to_pylist()
        for row in rows:
            for name in (*TIMES, "repeat_medians_s"):
                value = row[name]
                many = isinstance(value, list)
                row[name] = [factor * v for v in value] if many else value and factor * value
            for name in ("bandwidth_gbs", "bandwidth_low_gbs", "bandwidth_high_gbs", "over_copy"):
                row[name] = row[name] and row[name] / factor
        new = type(table).from_pylist(rows, schema=table.schema)
        write_parquet(new, folder / path.relative_to(recorded), metadata)
    assert open_shard(next(folder.rglob("*.parquet"))).metadata


def compared(project: Project, *config: str) -> tuple[int, str]:
    outcome = project.snakemake("compare", "--config", "run=held", *config)
    return outcome.status, outcome.text


def test_a_slower_run_is_written_down_and_stopped_by_the_guard(bare: Project) -> None:
    slowed(bare.root / "before", 1.0)
    slowed(bare.root / "after", 1.2)
    status, text = compared(bare, "before=before", "after=after")
    assert status == 0, text
    out = bare.root / "results/held/compare"
    assert b"got slower by more than 1.00 %" in read_summed(out / "summary.md")
    assert {path.name for path in out.iterdir()} == {
        *("cells.parquet", "groups.parquet", "drift.parquet", "summary.md", "changes.svg"),
        *("changes.json", "compare.pdf", "explorer.html"),
    }
    # What stands in results/held is no plan of a run, and nothing was measured.
    assert not (bare.root / "results/held/plan.json").exists()
    status, text = compared(bare, "before=before", "after=after", "guard=true")
    assert status != 0
    assert "surely got slower" in text
    assert (out / "summary.md").exists()
    shutil.rmtree(bare.root / "after")
    status, text = compared(bare, "before=before", "after=after")
    assert status != 0
    assert "after: 'after' is not the folder of a run" in text
    status, text = compared(bare, "before=before", "after=before", "guard=true")
    assert status == 0, text
    assert (out / "guard.txt").exists()

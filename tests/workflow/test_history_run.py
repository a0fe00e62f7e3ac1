"""A run of a recorded data set beside earlier ones: tables, a page, the explorer's lines."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from gpushmoo.comparing.history import BEST, read_history
from gpushmoo.storage.store import read_shard, write_parquet
from gpushmoo.storage.wholefile import read_json, read_summed
from histories import otava_in
from projects import Project
from test_compare_target import KERNEL, slowed

pytest_plugins = ["workflow_fixtures"]

CONFIG = {
    "run": "last",
    "dataset": "last",
    "only": [KERNEL],
    "kernels": {KERNEL: {"dtypes": ["float"]}},
    "chapters": None,
}


def later(folder: Path, days: int) -> None:
    """Have the shards in `folder` say that they were measured so many days later."""
    for path in sorted(folder.rglob("*.parquet")):
        table, metadata = read_shard(path)
        place = table.schema.get_field_index("measured_at")
        moved = pc.add(table["measured_at"], pa.scalar(timedelta(days=days), pa.duration("ms")))
        table = table.set_column(place, table.schema.field(place), moved)
        write_parquet(table, path, metadata)


def test_a_run_is_shown_beside_earlier_ones(bare: Project, tmp_path: Path) -> None:
    for day, (name, factor) in enumerate(
        [("one", 1.0), ("two", 1.0), ("three", 1.2), ("last", 1.2)]
    ):
        slowed(bare.root / name, factor)
        later(bare.root / name, day)
    (bare.root / "broken").mkdir()
    (bare.root / "broken" / "cut.parquet").write_bytes(b"PAR1")
    files = ("last.yaml",)
    bare.write_config(files[0], {**CONFIG, "history": ["three", "one", "two", "broken"]})
    missing = bare.snakemake("--config", "otava=nowhere", config=files)
    assert missing.status != 0
    assert "otava: 'nowhere' is no program; change points need Apache Otava" in missing.text
    # It was said before any job.
    assert not (bare.root / "results/last/dataset").exists()
    told = bare.snakemake("--config", f"otava={otava_in(tmp_path)}", config=files)
    assert told.status == 0, told.text
    assert "gpushmoo: history: broken is left out: " in told.text
    results = bare.root / "results/last"
    found = read_history(results / "history")
    runs = found.rows.drop_duplicates("number").sort_values("number")["run"]
    assert runs.tolist() == ["one", "two", "three", "last"]
    best = found.changes[found.changes["quantity"] == BEST]
    assert set(best["run"]) == {"three"}
    assert len(best) == len(found.rows.drop_duplicates(["variant", "dtype", "height"]))
    facts = read_json(results / "report.json")
    assert [page["title"] for page in facts["history"]] == [
        f"History of 4 runs: one to last, {found.rows['measured_at'].min():%Y-%m-%d} to "
        f"{found.rows['measured_at'].max():%Y-%m-%d}"
    ]
    assert any("Since run three" in finding["sentence"] for finding in facts["findings"])
    page = read_summed(results / "explorer.html").decode()
    index = json.loads(page.split('id="index">')[1].split("</script>")[0])
    assert [run["run"] for run in index[0]["history"]["runs"]] == runs.tolist()
    # All of it is there: nothing is made again.
    assert bare.plan("--config", f"otava={otava_in(tmp_path)}", config=files) == {}

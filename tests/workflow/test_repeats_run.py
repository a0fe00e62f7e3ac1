"""A sweep that is measured twice: all of it once, then all of it again, then one row a cell."""

import re

import pyarrow as pa
import pytest
from gpushmoo.analysis.run_quality import dataset_provenance
from gpushmoo.storage.dataset import read_cells
from gpushmoo.storage.store import read_shard, write_parquet
from projects import TINY, Outcome, Project
from workflow_fixtures import new_project

CONFIG = {
    **TINY,
    "only": ["block_eq_partition"],
    "measure": {"repeats": 2, "min_samples": 12, "max_samples": 14},
    "chapters": {"tesla_c1060": {"simulate": None}},
}
TARGETS = ("results/tiny/dataset",)


@pytest.fixture(scope="module")
def repeated(tmp_path_factory: pytest.TempPathFactory) -> tuple[Project, Outcome]:
    project = new_project(tmp_path_factory.mktemp("repeats") / "project", CONFIG)
    outcome = project.snakemake(*TARGETS)
    assert outcome.status == 0, outcome.text
    return project, outcome


def test_a_cell_is_one_row_of_both_repeats(repeated: tuple[Project, Outcome]) -> None:
    project, outcome = repeated
    assert (outcome.jobs["measure"], outcome.jobs["repeat"]) == (2, 2)
    ended = re.findall(r"^shard .* (repeat \d of 2): \d+ ok", outcome.text, re.MULTILINE)
    # A later repeat that is short and all right has no line.
    assert ended == ["repeat 1 of 2"] * 2
    cells = read_cells(project.results / "dataset")
    assert cells["cell_key"].is_unique
    assert set(cells["status"]) == {"ok"}
    assert (cells["repeat_medians_s"].map(len) == 2).all()
    assert (cells["repeat_samples"].map(sum) == cells["samples_s"].map(len)).all()
    assert cells["samples_s"].map(len).between(12, 14).all()
    assert (cells["median_low_s"] < cells["median_high_s"]).all()
    # Compared cells were measured alike, in both repeats.
    names = ["dtype", "variant", "height", "cache_state"]
    assert (cells.groupby(names, observed=True)["launches_per_sample"].nunique() == 1).all()
    repeats = [p["params"]["repeat"] for p in dataset_provenance(project.results / "dataset")]
    assert sorted(repeats) == [1, 1, 2, 2]
    assert project.plan(*TARGETS) == {}


def test_broken_repeats_are_measured_again(repeated: tuple[Project, Outcome]) -> None:
    """Later repeats take over cells and launches from the first."""
    project, _ = repeated
    shard = project.results / "cells/block_eq_partition/float/0000-of-0001.parquet"
    for broken, jobs in ((shard.with_suffix(".repeat-2.parquet"), (0, 1)), (shard, (1, 1))):
        whole = broken.read_bytes()
        broken.write_bytes(whole[:-9])
        plan = project.plan(*TARGETS)
        assert (plan.get("measure", 0), plan.get("repeat", 0)) == jobs
        broken.write_bytes(whole)


def test_faults_are_measured_again_when_asked(repeated: tuple[Project, Outcome]) -> None:
    project, _ = repeated
    shard = project.results / "cells/block_eq_partition/float/0000-of-0001.parquet"
    whole = shard.read_bytes()
    table, metadata = read_shard(shard)
    statuses = ["timeout", "device_lost", *table.column("status").to_pylist()[2:]]
    place = table.schema.get_field_index("status")
    changed = table.set_column(place, table.schema.field(place), pa.array(statuses))
    write_parquet(changed, shard, metadata)
    planned = project.snakemake("-n", *TARGETS, "--config", "remeasure=failed")
    assert "gpushmoo: remeasure: 2 cells (1 device_lost, 1 timeout) in 1 shard and" in planned.text
    assert planned.jobs == {"measure": 1, "repeat": 1, "aggregate": 1}
    others = project.snakemake("-n", *TARGETS, "--config", "remeasure=[throttled]")
    assert "gpushmoo: remeasure: no cell ended so; nothing is measured again." in others.text
    assert "measure" not in others.jobs
    shard.write_bytes(whole)

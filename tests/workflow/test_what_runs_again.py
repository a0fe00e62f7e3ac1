"""What a change makes Snakemake do again, and that it does nothing else."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from gpushmoo.store import read_shard
from projects import Project, print_of

pytest_plugins = ("workflow_fixtures",)

LIBRARY = Path("workflow/scripts/gpushmoo")


def append(project: Project, path: Path, text: str) -> None:
    file = project.root / path
    file.write_text(file.read_text() + text)


def test_a_comment_in_figure_code_makes_nothing_again(project: Project) -> None:
    append(project, LIBRARY / "figures/heatmap.py", "\n# A remark.\n")
    assert project.plan() == {}


def test_changed_figure_code_draws_its_figures_anew_and_measures_nothing(project: Project) -> None:
    append(project, LIBRARY / "figures/heatmap.py", "\n_NEW = 1\n")
    assert project.plan() == {"figure": 1, "report": 1, "verdict": 1, "all": 1}


def test_changed_measuring_code_measures_every_shard_anew(project: Project) -> None:
    append(project, LIBRARY / "measure.py", "\n_NEW = 1\n")
    jobs = project.plan()
    assert jobs["measure"] == 4
    assert jobs["aggregate"] == 1
    assert jobs["report"] == 1


def test_a_changed_kernel_source_measures_only_that_kernel_anew(project: Project) -> None:
    append(project, Path("kernels/copy2d_coalesced/kernel.cl"), "\n// A remark.\n")
    assert project.plan()["measure"] == 2


def test_a_new_dtype_measures_only_its_own_shard(project: Project) -> None:
    before = print_of(project.results / "cells")
    more = {"kernels": {"copy2d_coalesced": {"dtypes": ["float", "double", "float3"]}}}
    config = ("tiny.yaml", project.write_config("more.yaml", more))
    jobs = project.plan(config=config)
    assert (jobs["measure"], jobs["aggregate"], jobs["report"]) == (1, 1, 1)

    outcome = project.snakemake("results/tiny/dataset", config=config)
    assert outcome.status == 0, outcome.text
    assert outcome.jobs == {"measure": 1, "aggregate": 1}
    after = print_of(project.results / "cells")
    new = set(after) - set(before)
    assert new == {"copy2d_coalesced/double/0000-of-0001.parquet"}
    assert {name: after[name] for name in before} == before
    assert (project.results / "dataset/kernel=copy2d_coalesced/dtype=double").is_dir()


def test_a_truncated_shard_is_named_and_only_that_shard_is_measured_anew(project: Project) -> None:
    broken, *whole = project.shards
    name = str(broken.relative_to(project.root))
    table, _ = read_shard(broken)
    broken.write_bytes(broken.read_bytes()[:-100])
    before = print_of(project.results)

    dry = project.snakemake("-n")
    assert dry.status == 0, dry.text
    assert f"'{name}' is not a whole Parquet file" in dry.text
    assert dry.jobs["measure"] == 1
    assert print_of(project.results) == before

    outcome = project.snakemake("results/tiny/dataset")
    assert outcome.status == 0, outcome.text
    assert f"'{name}' is not a whole Parquet file" in outcome.text
    assert outcome.jobs == {"measure": 1, "aggregate": 1}
    after = print_of(project.results)
    for path in (str(p.relative_to(project.results)) for p in whole):
        assert after[path] == before[path]
    assert len(read_shard(broken)[0]) == len(table)
    assert len(pd.read_parquet(project.results / "dataset")) == 4 * 12 + 4 * 9


def test_a_flipped_bit_sets_its_shard_aside_and_only_that_is_measured_anew(
    project: Project,
) -> None:
    """Whole at both ends, wrong inside: found when it is read, kept, and never averaged in."""
    broken, *whole = project.shards
    data = bytearray(broken.read_bytes())
    data[len(data) // 3] ^= 4
    broken.write_bytes(data)
    sound = {path: path.read_bytes() for path in whole}

    outcome = project.snakemake("results/tiny/dataset", "--forcerun", "aggregate")
    assert outcome.status != 0
    aside = project.results / "quarantine" / broken.relative_to(project.results)
    assert f"Set aside as '{aside.relative_to(project.root)}'" in outcome.text
    assert "Traceback" not in outcome.text
    assert aside.read_bytes() == bytes(data)
    assert not broken.exists()

    outcome = project.snakemake("results/tiny/dataset")
    assert outcome.status == 0, outcome.text
    assert outcome.jobs == {"measure": 1, "aggregate": 1}
    assert {path: path.read_bytes() for path in whole} == sound
    assert read_shard(broken)[0].num_rows > 0


def test_what_is_made_from_shards_is_set_aside_and_made_anew(project: Project) -> None:
    damaged = "summary/best.parquet"
    path = project.results / damaged
    shards = print_of(project.results / "cells")
    report = (project.results / "report.pdf").read_bytes()
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 4
    path.write_bytes(data)

    outcome = project.snakemake("--forcerun", "report")
    assert outcome.status != 0
    [said] = [line for line in outcome.text.splitlines() if line.startswith("gpushmoo: ")]
    assert "Set aside as" in said
    assert said.endswith("start the run again to make it anew.")
    assert "Traceback" not in outcome.text
    assert not path.exists()
    assert (project.results / "quarantine" / damaged).read_bytes() == bytes(data)

    outcome = project.snakemake()
    assert outcome.status == 0, outcome.text
    assert outcome.jobs == {"best": 1, "report": 1, "verdict": 1, "all": 1}
    assert print_of(project.results / "cells") == shards
    assert (project.results / "report.pdf").read_bytes() == report

"""A configuration that cannot run is refused before any job, in one sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from projects import FinishedProject, Outcome, Project
from workflow_fixtures import new_project

pytest_plugins = ("workflow_fixtures",)

COPY = "kernels.copy2d_coalesced"


def complaints(outcome: Outcome) -> list[str]:
    """What stands on the terminal besides Snakemake's word on its configuration files."""
    said = ("Using workflow specific profile", "Config file")
    return [x for x in outcome.text.splitlines() if x and not x.startswith(said)]


# What else may be wrong, unit tests show.
@pytest.mark.parametrize(
    ("values", "key"),
    [
        pytest.param({"backends": "cuda"}, "'backends'", id="unknown key"),
        pytest.param(
            {"backend": "auto", "kernels": {"copy2d_coalesced": {"sizes": [1048576]}}},
            f"{COPY}.sizes",
            id="larger than the device",
        ),
    ],
)
def test_a_bad_value_is_refused_in_one_sentence_before_any_job(
    finished: FinishedProject, values: dict[str, Any], key: str
) -> None:
    config = ("tiny.yaml", finished.write_config("bad.yaml", {"run": "bad", **values}))
    outcome = finished.snakemake("-n", config=config)
    assert outcome.status != 0
    [sentence] = complaints(outcome)
    assert key in sentence
    assert sentence.endswith((".", "?"))
    assert "Traceback" not in outcome.text
    assert outcome.jobs == {}


def test_a_folder_that_snakemake_cannot_read_is_refused_in_one_sentence(tmp_path: Path) -> None:
    outcome = new_project(tmp_path / "a{sweep}b c").snakemake("-n", config=())
    assert outcome.status != 0
    [sentence] = complaints(outcome)
    assert sentence.endswith(
        "a{sweep}b c' has '{' or '}' in its name, which Snakemake takes for wildcards; rename it."
    )


# What else YAML may hold, tests/unit/test_readable.py shows.
def test_a_file_that_cannot_be_read_is_named_with_the_line(bare: Project) -> None:
    twice = bare.root / "twice.yaml"
    twice.write_text("run: a\nrun: b")
    sentences = {
        "nowhere.yaml": " does not exist.",
        "twice.yaml": ", line 2: the key 'run' stands in line 1 already; remove one.",
        "config/config.yaml": ", line 1: not UTF-8; save it as that.",
    }
    for name, sentence in sentences.items():
        own = () if name.startswith("config/") else (name,)
        if not own:
            (bare.root / name).write_bytes(b"# Gr\xf6\xdfe\n")
        outcome = bare.snakemake("-n", config=own)
        assert outcome.status != 0
        assert complaints(outcome) == [f"gpushmoo: '{name}'{sentence}"]


def test_a_missing_cuda_device_is_an_error_and_not_another_backend(project: Project) -> None:
    named = {"run": "absent", "backend": "cuda"}
    config = ("tiny.yaml", project.write_config("bad.yaml", named))
    shard = "results/absent/cells/block_eq_partition/float/0000-of-0001.parquet"
    outcome = project.snakemake(shard, config=config)
    if outcome.status == 0:
        pytest.skip("this machine has a CUDA device")
    said = [line for line in outcome.text.splitlines() if line.startswith("gpushmoo: ")]
    # Before it, how much the run asks for.
    assert len(said) == 2
    assert "CUDA" in said[1] or "CuPy" in said[1]
    assert "install" in said[1] or "driver" in said[1]
    assert "Traceback" not in outcome.text
    # No job has begun.
    assert not (project.root / "results/absent").exists()


def test_finished_shards_are_rendered_where_there_is_no_device(project: Project) -> None:
    config = ("tiny.yaml", project.write_config("here.yaml", {"dataset": "results/tiny/cells"}))
    there = ("tiny.yaml", "here.yaml", project.write_config("cuda.yaml", {"backend": "cuda"}))
    assert project.snakemake("-n", config=config).status == 0
    outcome = project.snakemake("results/tiny/summary/best.parquet", config=there)
    assert outcome.status == 0, outcome.text

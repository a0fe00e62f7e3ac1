"""A configuration that cannot run is refused before any job, in one sentence."""

from pathlib import Path

import pytest
from projects import Outcome, Project
from workflow_fixtures import new_project

pytest_plugins = ("workflow_fixtures",)


def complaints(outcome: Outcome) -> list[str]:
    """What is on the terminal besides Snakemake's word on its configuration files."""
    said = ("Using workflow specific profile", "Config file")
    return [x for x in outcome.text.splitlines() if x and not x.startswith(said)]


# What else may be wrong, tests/unit/planning/test_config.py and test_readable.py show.
def test_what_cannot_be_read_or_run_is_refused_before_any_job(tmp_path: Path) -> None:
    bare = new_project(tmp_path / "project")
    (bare.root / "twice.yaml").write_text("run: a\nrun: b")
    larger = {"backend": "auto", "kernels": {"copy2d_coalesced": {"sizes": [1048576]}}}
    bare.write_config("larger.yaml", {"run": "bad", **larger})
    sentences = {
        "nowhere.yaml": "gpushmoo: 'nowhere.yaml' does not exist.",
        "twice.yaml": "gpushmoo: 'twice.yaml', line 2: the key 'run' is already in line 1; "
        "remove one.",
        "larger.yaml": "kernels.copy2d_coalesced.sizes",
    }
    for name, told in sentences.items():
        outcome = bare.snakemake("-n", config=(name,))
        [sentence] = complaints(outcome)
        assert told in sentence
        assert sentence.endswith((".", "?"))
        assert (bool(outcome.status), outcome.jobs) == (True, {})
    braces = tmp_path / "a{sweep}b c"
    bare.root.rename(braces)
    outcome = Project(braces).snakemake("-n", config=())
    assert outcome.status != 0
    [sentence] = complaints(outcome)
    assert sentence.endswith(
        "a{sweep}b c' has '{' or '}' in its name, which Snakemake takes for wildcards; rename it."
    )


def test_numbers_within_what_config_gives_are_numbers(tmp_path: Path) -> None:
    project = new_project(tmp_path / "project")
    sweep = "{dtypes: [float], sizes: [512], axes: {block_x: {from: 8, to: 9}}}"
    given = (
        "measure={repeats: 2, search: {mode: all}}",
        f"kernels={{copy2d_coalesced: {sweep}}}",
        "only=[copy2d_coalesced]",
    )
    outcome = project.snakemake("-n", "--config", *given, "backend=opencl", config=())
    assert outcome.status == 0, outcome.text
    assert (outcome.jobs["measure"], outcome.jobs["repeat"]) == (1, 1)


def test_a_missing_cuda_device_is_an_error_and_not_another_backend(project: Project) -> None:
    named = {"run": "absent", "backend": "cuda", "only": None}
    config = ("tiny.yaml", project.write_config("bad.yaml", named))
    shard = "results/absent/cells/block_eq_partition/float/0000-of-0001.parquet"
    outcome = project.snakemake(shard, config=config)
    if outcome.status == 0:
        pytest.skip("this machine has a CUDA device")
    said = [line for line in outcome.text.splitlines() if line.startswith("gpushmoo: ")]
    # Before it, how much the run asks for.
    assert len(said) == 3
    assert "'only: [block_eq_partition, copy2d_coalesced]' leaves them out" in said[1]
    assert "CUDA" in said[2] or "CuPy" in said[2]
    assert "install" in said[2] or "driver" in said[2]
    assert "Traceback" not in outcome.text
    # No job has begun.
    assert not (project.root / "results/absent").exists()


def test_finished_shards_are_rendered_where_there_is_no_device(project: Project) -> None:
    given = {"dataset": "results/tiny/cells", "backend": "cuda"}
    config = ("tiny.yaml", project.write_config("there.yaml", given))
    outcome = project.snakemake("results/tiny/summary/best.parquet", config=config)
    assert outcome.status == 0, outcome.text

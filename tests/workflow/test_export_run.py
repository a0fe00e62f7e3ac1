"""The target ``export`` of a run, measured on this machine's OpenCL device."""

from __future__ import annotations

import json

from gpushmoo.exporting.formats import FORMAT
from gpushmoo.storage.wholefile import read_json
from projects import Project

pytest_plugins = ("workflow_fixtures",)


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
    # Two types and one size of one kernel, two types and variants of the other.
    assert len(list((made / "kernel-tuner").iterdir())) == len(told["choices"])
    [copied, *_] = sorted((made / "t4").glob("copy2d_coalesced-*"))
    results = json.loads(copied.read_text())["results"]
    assert [r["invalidity"] for r in results].count("correct") <= len(results) == 9
    assert (made / "launches.h").is_file()
    assert project.snakemake("export").jobs == {}

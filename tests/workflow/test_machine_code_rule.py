"""The rule that checks machine code, on a machine without a GPU; and that it can fail."""

from __future__ import annotations

import json
from typing import Any

import pytest
from projects import Project

pytest_plugins = ["workflow_fixtures"]

CONFIG: dict[str, Any] = {
    "run": "checked",
    "backend": "cuda",
    "cuda_arch": "sm_90",
    "device_memory_gib": 1,
    "only": ["copy2d_coalesced"],
    "kernels": {"copy2d_coalesced": {"dtypes": ["float4"], "variants": ["element"]}},
}


def machine_code(project: Project) -> tuple[int, str]:
    """Exit status and terminal of the check of one kernel and dtype."""
    outcome = project.snakemake("machine_code", config=(project.write_config("c.yaml", CONFIG),))
    return outcome.status, outcome.text


def test_facts_of_every_entry_are_recorded(project: Project) -> None:
    status, text = machine_code(project)
    assert status == 0, text
    path = project.root / "results/checked/machine_code/copy2d_coalesced/float4.json"
    told = json.loads(path.read_text())
    assert told["arch"] == "sm_90"
    entries = {e["entry"]: e for e in told["variants"]["element"]["entries"]}
    assert set(entries) == {"copy_element", "copy_tile"}
    accesses = {(a["kind"], a["width"]) for a in entries["copy_element"]["accesses"]}
    assert accesses == {("load", 16), ("store", 16)}
    assert entries["copy_element"]["spill_loads"] == 0
    assert 0 < entries["copy_element"]["registers"] <= 255


@pytest.mark.parametrize(
    ("line", "instead", "fault"),
    [
        pytest.param(
            "dst[y * width + x] = src[y * width + x];",
            "dst[y * width + x] = element_t();",
            "optimised away",
            id="no load",
        ),
        pytest.param(
            "dst[y * width + x] = src[y * width + x];",
            "if (src[y * width + x].x == 0.25f) return;",
            "optimised away",
            id="no store",
        ),
    ],
)
def test_kernel_that_does_not_do_what_is_timed_is_named_and_recorded(
    project: Project, line: str, instead: str, fault: str
) -> None:
    source = project.root / "kernels/copy2d_coalesced/kernel.cu"
    text = source.read_text()
    assert line in text
    source.write_text(text.replace(line, instead))
    status, terminal = machine_code(project)
    assert status != 0
    said = [x for x in terminal.splitlines() if x.startswith("gpushmoo: ")]
    assert len(said) == 2
    where = "kernels/copy2d_coalesced, float4, variant element"
    assert said[0].startswith(f"gpushmoo: {where}: what is to be timed is not run: ")
    assert fault in said[0]
    assert said[0].endswith(" more, in the log.")
    assert said[1].startswith("gpushmoo: The machine code of copy2d_coalesced, float4, element is")
    told = (project.root / "results/checked/machine_code/copy2d_coalesced/float4.json").read_text()
    assert fault in json.loads(told)["variants"]["element"]["failure"]
    log = project.root / "results/checked/logs/machine_code/copy2d_coalesced-float4.log"
    for entry in ("'copy_element'", "'copy_tile'"):
        assert entry in log.read_text()


def test_a_measurement_on_cuda_brings_the_check_along(project: Project) -> None:
    jobs = project.plan("cells", config=(project.write_config("c.yaml", CONFIG),))
    assert (jobs["check_machine_code"], jobs["measure"]) == (1, 1)

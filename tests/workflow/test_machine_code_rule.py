"""The rule that checks machine code, on a machine without a GPU; and that it can fail."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from projects import Project

pytest_plugins = ["workflow_fixtures"]

CONFIG = {
    "run": "checked",
    "backend": "cuda",
    "cuda_arch": "sm_90",
    "device_memory_gib": 1,
    "kernels": {
        "copy2d_coalesced": {"dtypes": ["float4"], "variants": ["element"]},
        "block_eq_partition": None,
    },
}


def machine_code(project: Project, **kernels: object) -> tuple[int, str]:
    base = yaml_keys(project)
    swept = dict.fromkeys(base) | CONFIG["kernels"] | kernels  # type: ignore[operator]
    project.write_config("checked.yaml", CONFIG | {"kernels": swept})
    outcome = project.snakemake("machine_code", config=("checked.yaml",))
    return outcome.status, outcome.text


def yaml_keys(project: Project) -> list[str]:
    """The kernels of the default configuration."""
    import yaml

    return list(yaml.safe_load((project.root / "config/config.yaml").read_text())["kernels"])


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
def test_kernel_that_does_not_do_what_is_timed_fails_the_build(
    project: Project, line: str, instead: str, fault: str
) -> None:
    source = project.root / "kernels/copy2d_coalesced/kernel.cu"
    text = source.read_text()
    assert line in text
    source.write_text(text.replace(line, instead))
    status, terminal = machine_code(project)
    assert status != 0
    said = [x for x in terminal.splitlines() if x.startswith("gpushmoo: copy2d_coalesced:")]
    assert len(said) == 1
    assert fault in said[0]
    assert "'copy_element'" in said[0]


def test_measuring_waits_for_the_check(project: Project, tmp_path: Path) -> None:
    project.write_config("checked.yaml", CONFIG)
    jobs = project.plan("cells", config=("checked.yaml",))
    assert jobs["check_machine_code"] >= 1
    assert jobs["measure"] >= 1

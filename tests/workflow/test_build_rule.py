"""Rules build the kernels: for a GPU that is not here, and only what is new."""

from __future__ import annotations

from typing import Any

from gpushmoo.devices.builds import read_build
from gpushmoo.storage.store import read_shard
from projects import Project

pytest_plugins = ("workflow_fixtures",)

CONFIG: dict[str, Any] = {
    "run": "checked",
    "backend": "cuda",
    "cuda_arch": "sm_90",
    "device_memory_gib": 1,
    "only": ["copy2d_coalesced"],
    "kernels": {"copy2d_coalesced": {"dtypes": ["float4"], "variants": ["element"]}},
}


SMALL = {
    **CONFIG,
    "run": "small",
    "backend": "opencl",
    "cuda_arch": None,
    "kernels": {
        "copy2d_coalesced": {
            "dtypes": ["float"],
            "variants": ["element"],
            "sizes": [64],
            "axes": {"block_x": [8, 16], "block_y": 8},
        }
    },
    "measure": {"repeats": 1, "min_samples": 6, "max_samples": 7},
}
BUILT = "results/checked/builds/copy2d_coalesced/float4.json"


def build(project: Project) -> tuple[int, str]:
    """Exit status and terminal of the build of one kernel and dtype."""
    outcome = project.snakemake("build", config=(project.write_config("c.yaml", CONFIG),))
    return outcome.status, outcome.text


def test_facts_of_every_entry_are_recorded_and_code_that_is_not_timed_is_named(
    bare: Project,
) -> None:
    jobs = bare.plan("cells", config=(bare.write_config("c.yaml", CONFIG),))
    assert (jobs["build_kernel"], jobs["measure"]) == (1, 1)
    status, text = build(bare)
    assert status == 0, text
    (element,) = read_build(bare.root / BUILT).targets["sm_90"].values()
    assert element.code is not None
    assert element.code.startswith(b"\x7fELF")
    assert element.entries is not None
    entries = {e["entry"]: e for e in element.entries}
    assert set(entries) == {"copy_element", "copy_tile"}
    accesses = {(a["kind"], a["width"]) for a in entries["copy_element"]["accesses"]}
    assert accesses == {("load", 16), ("store", 16)}
    assert entries["copy_element"]["spill_loads"] == 0
    assert 0 < entries["copy_element"]["registers"] <= 255
    # It stores a constant: nothing is left to load.
    line, fault = "dst[y * width + x] = src[y * width + x];", "optimised away"
    source = bare.root / "kernels/copy2d_coalesced/kernel.cu"
    text = source.read_text()
    assert line in text
    source.write_text(text.replace(line, "dst[y * width + x] = element_t();"))
    status, terminal = build(bare)
    assert status != 0
    _, *said = [x for x in terminal.splitlines() if x.startswith("gpushmoo: ")]
    assert len(said) == 2
    where = "kernels/copy2d_coalesced, float4, variant element"
    assert said[0].startswith(f"gpushmoo: {where}: what is to be timed is not run: ")
    assert fault in said[0]
    log = "results/checked/logs/build/copy2d_coalesced-float4.log"
    assert said[0].endswith(f" more, in the log. (whole message: {log})")
    assert said[1].startswith("gpushmoo: The machine code of copy2d_coalesced, float4, element is")
    made = read_build(bare.root / BUILT).targets["sm_90"]["element"]
    assert fault in str(made.failure)
    for entry in ("'copy_element'", "'copy_tile'"):
        assert entry in (bare.root / log).read_text()


def test_a_run_loads_what_it_built_and_a_changed_kernel_measures(bare: Project) -> None:
    config = (bare.write_config("small.yaml", SMALL),)
    outcome = bare.snakemake("cells", config=config)
    assert outcome.status == 0, outcome.text
    assert outcome.jobs == {"build_kernel": 1, "measure": 1, "cells": 1}
    cells = bare.root / "results/small/cells"
    assert read_shard(next(cells.rglob("*.parquet")))[1].keys().isdisjoint({"compiled_here"})

    source = bare.root / "kernels/copy2d_coalesced/kernel.cl"
    source.write_text(source.read_text() + "\n// A remark.\n")
    jobs = bare.plan("cells", config=config)
    assert (jobs["build_kernel"], jobs["measure"]) == (1, 1)

"""Rules build the kernels: for a GPU that is not here, and only what is new."""

from typing import Any

from gpushmoo.devices.build_file import read_build
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


BLOCKS = {"dtypes": ["float"], "sizes": [64], "axes": {"block_x": [8, 16], "block_y": 8}}
SMALL = {
    **CONFIG,
    "run": "small",
    "backend": "opencl",
    "cuda_arch": None,
    "kernels": {"copy2d_coalesced": {"variants": ["element"], **BLOCKS}},
    "measure": {"repeats": 1, "min_samples": 6, "max_samples": 7},
}
BUILT = "results/checked/builds/copy2d_coalesced/float4.json"


def test_facts_of_every_entry_are_recorded_and_untimed_code_named(bare: Project) -> None:
    config = (bare.write_config("c.yaml", CONFIG),)
    outcome = bare.snakemake("build", config=config)
    assert outcome.status == 0, outcome.text
    (element,) = read_build(bare.root / BUILT).targets["sm_90"].values()
    assert (element.code or b"").startswith(b"\x7fELF")
    entries = {e["entry"]: e for e in element.entries or ()}
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
    outcome = bare.snakemake("build", config=config)
    assert outcome.status != 0
    _, named, ended = [x for x in outcome.text.splitlines() if x.startswith("gpushmoo: ")]
    where = "copy2d_coalesced, float4, variant element"
    assert named.startswith(f"gpushmoo: {where}: what is to be timed is not run: ")
    assert fault in named
    log = "results/checked/logs/build/copy2d_coalesced-float4.log"
    assert named.endswith(f" more, in the log. (whole message: {log})")
    assert ended.startswith("gpushmoo: The machine code of copy2d_coalesced, float4, element is")
    assert fault in str(read_build(bare.root / BUILT).targets["sm_90"]["element"].failure)
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
    source.write_text(source.read_text() + "\n#define NEW 1\n")
    jobs = bare.plan("cells", config=config)
    assert (jobs["build_kernel"], jobs["measure"]) == (1, 1)

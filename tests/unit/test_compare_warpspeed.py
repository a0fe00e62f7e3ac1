"""What is told to warpspeed of our kernels, and what is on record of its predictions."""

from __future__ import annotations

import json
import math
import sys
from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType

import pytest
from conftest import ROOT
from gpushmoo.core.space import Cell
from gpushmoo.studies.counters import sampled_kernels
from gpushmoo.studies.sample import designed_sample

RECORD = ROOT / "reports/reference/nvidia-h200-model/warpspeed.json"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    name = "compare_warpspeed"
    spec = spec_from_file_location(name, ROOT / f"tests/benchmarks/{name}.py")
    module = module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def cells(script: ModuleType) -> dict[str, Cell]:
    return {s.cell.key: s.cell for s in designed_sample() if script.described(s.cell)}


def test_blocks_and_elements_are_those_of_the_launch(script: ModuleType) -> None:
    folders = sampled_kernels(designed_sample())
    for cell in cells(script).values():
        told, launch = script.described(cell), folders[cell.kernel].workload.launch(cell)
        assert (*told.block, 1) == launch.block
        x, y = told.block[0], told.block[1] * told.rows
        assert launch.grid == (
            math.ceil(cell.problem.width / x),
            math.ceil(cell.problem.height / y),
            1,
        )
        assert len(told.stores) == told.rows


def test_the_elements_of_a_transposing_block_are_those_of_its_tile(script: ModuleType) -> None:
    some = [cell for cell in cells(script).values() if cell.kernel == "transpose"]
    assert {cell["ROWS"] for cell in some} == {1, 4, 8}
    for cell in some:
        told = script.described(cell)
        threads = [(x, y) for x in range(told.block[0]) for y in range(told.block[1])]
        read, written = (
            {
                (eval(a, {"tidx": x, "tidy": y}), eval(b, {"tidx": x, "tidy": y}))
                for x, y in threads
                for a, b in places
            }
            for places in (told.loads, told.stores)
        )
        tile = {(x, y) for x in range(cell["TILE"]) for y in range(cell["TILE"])}
        assert read == written == tile


def test_what_is_no_plain_access_to_global_memory_is_left_out(script: ModuleType) -> None:
    left = {(c.kernel, c.variant) for c in cells(script).values()}
    assert left == set(script.DESCRIBED)
    assert "float3" not in {c.dtype for c in cells(script).values()}


def test_the_record_has_every_such_cell_and_no_volume_below_what_must_move(
    script: ModuleType,
) -> None:
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    asked = cells(script)
    assert record["cells"].keys() == asked.keys()
    assert {n: record["device"][n] for n in script.H200} == script.H200
    for key, row in record["cells"].items():
        n_bytes = row["height"] * row["width"] * script.ITEM_BYTES[row["dtype"]]
        assert row["params"] == dict(asked[key].params)
        for name in ("l2_load_bytes", "dram_load_bytes", "dram_store_bytes"):
            assert row[name] >= 0.999 * n_bytes
        assert row["seconds"] >= 0.999 * 2 * n_bytes / 1e9 / record["device"]["memBW"]

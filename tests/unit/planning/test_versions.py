"""Axes that are compiled in, cells that cannot be, and shared memory that a launch asks for."""

from pathlib import Path
from typing import Any

import pytest
from bench import BACKENDS, Bench, choice_of
from conftest import ROOT
from gpushmoo.core.build_job import BuildJob
from gpushmoo.core.errors import ConfigError, WorkloadError
from gpushmoo.core.space import Cell, Problem, ShardSpace, Version
from gpushmoo.devices.building import failure_sentences
from gpushmoo.measuring.events import planned
from gpushmoo.planning.config import default_config, load_config, merged
from gpushmoo.planning.plan import CompilerChoice, build_job
from gpushmoo.workloads.loader import KernelFolder, load_kernel, versions_of

RAW = default_config()
# Each block turns a tile of TILE elements round in shared memory, whose size the launch says.
OPENCL = """
#if TILE == 48
#error 48 is no tile
#endif
__kernel void turn(__global element_t *dst, __global const element_t *src, __local element_t *tile)
{
    const uint i = get_local_id(0), at = get_group_id(0) * TILE;
    tile[i] = src[at + i];
    barrier(CLK_LOCAL_MEM_FENCE);
    dst[at + i] = tile[TILE - 1 - i];
}
"""
CUDA = """
#if TILE == 48
#error 48 is no tile
#endif
extern "C" __global__ void turn(element_t *dst, const element_t *src)
{
    extern __shared__ element_t tile[];
    const unsigned i = threadIdx.x, at = blockIdx.x * TILE;
    tile[i] = src[at + i];
    __syncthreads();
    dst[at + i] = tile[TILE - 1 - i];
}
"""
WORKLOAD = """
import numpy as np
from gpushmoo.workloads.contract import BufferRef, CopyWorkload, Launch, SharedMemory

class Turned(CopyWorkload):
    name, title, pattern = "turned", "Turned", "tiles"
    dtypes, variants, sizes = ("float",), ("plain", "greedy"), (64,)
    axes = {"TILE": [16, 24, 32, 48], "block_x": 1}
    compile_axes = ("TILE",)

    def valid(self, cell):
        if cell["TILE"] == 24:
            return "24 does not divide a row"
        return "one is enough" if cell.variant == "greedy" and cell["TILE"] > 16 else None

    def reference(self, inputs):
        # The one size of a tile that is both valid and compiles for all variants is 16.
        rows = inputs["src"].reshape(-1, 16)[:, ::-1]
        return np.ascontiguousarray(rows).reshape(inputs["src"].shape)

    def launch(self, cell):
        tile = cell["TILE"]
        n_bytes = 10**9 if cell.variant == "greedy" else 4 * tile
        blocks = cell.problem.height * cell.problem.width // tile
        args = (BufferRef("dst"), BufferRef("src"), SharedMemory(n_bytes))
        return Launch("turn", (blocks, 1, 1), (tile, 1, 1), args, tiles=blocks)

WORKLOAD = Turned()
"""


@pytest.fixture
def turned(tmp_path: Path) -> KernelFolder:
    folder = tmp_path / "turned"
    folder.mkdir()
    (folder / "kernel.cl").write_text(OPENCL)
    (folder / "kernel.cu").write_text(CUDA)
    (folder / "workload.py").write_text(WORKLOAD)
    return load_kernel(folder)


def space_of_axes(**axes: Any) -> ShardSpace:
    every = {"TILE": [16, 24, 32, 48], "block_x": 1, **axes}
    return ShardSpace("float", ["plain", "greedy"], [Problem(64, 64)], ["warm"], every, 0, 1)


@pytest.mark.parametrize("choice", BACKENDS, indirect=True)
def test_every_value_is_a_build(choice: Any, turned: KernelFolder, tmp_path: Path) -> None:
    """48 does not compile, 24 cannot be, and no device has the shared memory of ``greedy``."""
    bench = Bench(choice, turned.path, tmp_path)
    axes = {"TILE": [16, 24, 32, 48], "block_x": 1}
    rows = bench.measure(["plain", "greedy"], axes=axes)
    found = rows.set_index(["variant", "TILE"])["status"]
    assert dict(found["plain"]) == {16: "ok", 24: "invalid", 32: "wrong_result", 48: "build_failed"}
    assert dict(found["greedy"]) == {
        16: "out_of_resources",
        **dict.fromkeys((24, 32, 48), "invalid"),
    }
    said = dict(zip(rows["status"], rows["message"], strict=True))
    assert said["invalid"] in ("24 does not divide a row", "one is enough")
    assert "1000000000 bytes of" in said["out_of_resources"]
    assert "48 is no tile" in said["build_failed"]
    assert bench.terminal.getvalue().count("variant plain TILE=48: ") == 1


@pytest.fixture
def choice(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return choice_of(request, tmp_path / "cache")


def test_versions_are_those_with_a_valid_cell(turned: KernelFolder) -> None:
    names = [v.name for v in versions_of(turned.workload, space_of_axes())]
    assert names == ["plain TILE=16", "plain TILE=32", "plain TILE=48", "greedy TILE=16"]
    # Whether cells are valid is not known as long as the device is not asked which there are.
    asking = space_of_axes(block_x={"to_resident": 1.0, "points": 2})
    assert len(versions_of(turned.workload, asking)) == 8
    cell = Cell("turned", "float", "plain", Problem(64, 64), (("TILE", 24), ("block_x", 1)))
    run = planned(turned.workload, cell)
    assert (run.status, run.message) == ("invalid", "24 does not divide a row")
    assert run.launch.threads == 0
    config = load_config(configured(turned, {"TILE": [16, 32]}, {}), ROOT)
    compiler = CompilerChoice(
        backend="opencl", device=0, opencl_runtime="auto", compile_timeout_s=60.0
    )
    job = build_job(config.sweeps["turned"], "float", compiler)
    assert BuildJob.of_plain(job.plain) == job
    assert job.plain["versions"] == [
        ["plain", [["TILE", 16]]],
        ["plain", [["TILE", 32]]],
        ["greedy", [["TILE", 16]]],
    ]
    type(turned.workload).defines = lambda *_: {"TILE": "8"}  # type: ignore[method-assign]
    version = Version("plain", (("TILE", 16),))
    with pytest.raises(WorkloadError, match="turned: defines returns 'TILE', which is an axis"):
        turned.workload.macros("float", version)


CONFIGS: dict[str, tuple[dict[str, Any], dict[str, int], str]] = {
    "no cell can be": (
        {"TILE": 24},
        {},
        r"^kernels\.turned: valid in its workload\.py refuses every cell \(the first: 24 does not "
        r"divide a row\); sweep other values, or repair it\.$",
    ),
    "compiled in, but the device's": (
        {"TILE": {"to_resident": 1.0, "points": 2}},
        {},
        r"'kernels\.turned\.axes\.TILE' asks the device, .*; list its values\.$",
    ),
    "builds": (
        {},
        {"max_builds": 3},
        # Of eight combinations that are valid.
        r"^kernels\.turned: 4 versions to compile, one for each value of TILE; a run may have 3: "
        r"list fewer values, or raise measure\.max_builds\.$",
    ),
    "time": (
        {"block_x": {"from": 1, "to": 10**7}},
        {},
        r"^kernels\.turned: 80,000,000 combinations are too many to look through .*50,000,000",
    ),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_too_much_is_refused_beforehand(name: str, turned: KernelFolder) -> None:
    axes, limits, said = CONFIGS[name]
    with pytest.raises(ConfigError, match=said):
        load_config(configured(turned, axes, limits), ROOT)


def configured(folder: KernelFolder, axes: Any, limits: dict[str, int]) -> dict[str, Any]:
    return {
        **RAW,
        "backend": "opencl",
        "only": ["turned"],
        "kernel_folders": [str(folder.path.parent)],
        "kernels": {"turned": {"axes": axes}},
        "measure": {**RAW["measure"], **limits},
    }


def test_files_are_merged_by_keys_and_common_failures_said_once() -> None:
    base = {"kernels": {"k": {"axes": {"x": {"from": 4, "to": 64, "step": 4}, "y": 1}}}, "run": "a"}
    part = {"kernels": {"k": {"axes": {"x": {"from": 1, "to": 8}}}, "none": None}}
    both = merged(base, {**part, "kernel_folders": [".", "/b"]}, Path("/a"))
    assert both == {
        "kernels": {"k": {"axes": {"x": {"from": 1, "to": 8}, "y": 1}}, "none": None},
        "run": "a",
        "kernel_folders": ["/a/.", "/b"],
    }
    home = merged(base, {"kernel_folders": ["~/own"]}, Path("/a"))["kernel_folders"]
    assert home == [str(Path.home() / "own")]
    for odd in ({"kernels": 3}, {"kernel_folders": 3}, {"kernel_folders": [3]}):
        assert merged(base, odd, Path("/a")) == {**base, **odd}
    assert failure_sentences({"a": "no.", "b": "no.", "c": "yes."}) == [
        "variant a and 1 more: no.",
        "variant c: yes.",
    ]


def space_of_sizes(*sides: int) -> ShardSpace:
    problems = [Problem(side, side) for side in sides]
    axes = {"block_x": 32, "block_y": 8}
    return ShardSpace("float", ["element"], problems, ["warm"], axes, 0, 1)


def test_indices_have_as_many_bits_as_a_cell_needs() -> None:
    copy = load_kernel(ROOT / "kernels/copy2d_coalesced").workload
    small, large = Problem(2**15, 2**16), Problem(2**15, 2**16 + 1)
    assert [copy.index_bits(p) for p in (small, large)] == [32, 64]
    axes = (("block_x", 32), ("block_y", 8))
    launches = [copy.launch(Cell(copy.name, "float", "element", p, axes)) for p in (small, large)]
    assert [type(launch.args[-1]).__name__ for launch in launches] == ["uint32", "uint64"]
    copy = load_kernel(ROOT / "kernels/copy2d_coalesced").workload
    assert [v.name for v in versions_of(copy, space_of_sizes(512))] == ["element"]
    both = space_of_sizes(512, 2**16)
    names = [v.name for v in versions_of(copy, both)]
    assert names == ["element", "element INDEX_BITS=64"]
    axes = {"block_x": [32], "block_y": [8]}
    assert {copy.version(cell).name for cell in both.cells(copy.name, axes)} == set(names)
    assert "INDEX_BITS" not in copy.macros("float", versions_of(copy, both)[0])
    assert copy.macros("float", versions_of(copy, both)[1])["INDEX_BITS"] == "64"

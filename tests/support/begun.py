"""A run that has begun: its folder and plan, and shards that finish it."""

import shutil
from pathlib import Path

import pytest
from gpushmoo.core.run_plan import PLAN_FILE, RunPlan, SweepPlan
from gpushmoo.core.shard_job import ShardJob
from gpushmoo.storage.wholefile import write_json
from synthetic import GPU, shard_params, write_shard

AXES = {"block_x": [32, 64, 128, 2048], "block_y": [1, 2, 4]}
KERNEL, DTYPE = "copy2d_coalesced", "float"
SHARD = f"cells/{KERNEL}/{DTYPE}/0000-of-0001.parquet"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The folder of a run of one kernel and two element types, of which nothing is measured."""
    folder = tmp_path / "results/mine"
    folder.mkdir(parents=True)
    sweep = {"axes": AXES, "sizes": [[1024, 1024]], "variants": ["element", "tile32"]}
    sweeps = {}
    for dtype in (DTYPE, "double"):
        told = shard_params(f"kernels/{KERNEL}", dtype, sweep | {"cache_states": ["warm"]}, GPU)
        told |= {"kernel_digest": "ac794c3939a83f2a"}
        sweeps[dtype] = SweepPlan(ShardJob.of_plain(told))
    write_json(folder / PLAN_FILE, RunPlan({KERNEL: sweeps}).as_plain())
    return folder


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("shards")
    return {
        dtype: write_shard(folder / f"{dtype}.parquet", KERNEL, dtype, axes=AXES)
        for dtype in (DTYPE, "double")
    }


def finish(run: Path, shards: dict[str, Path], *dtypes: str) -> None:
    for dtype in dtypes:
        path = run / SHARD.replace(DTYPE, dtype)
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(shards[dtype], path)

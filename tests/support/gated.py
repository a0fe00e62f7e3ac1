"""A kernel that can be held in the middle of its shard, for faults that strike there.

Its cells of 64² elements are measured; before those of 128² the measuring process leaves a mark
with its process id and waits until the gate is opened. So a fault strikes a shard that has measured
half of its cells, always, and no test sleeps for luck.
"""

from collections.abc import Sequence
from typing import Any

import pandas as pd
from copies import write_copy
from gpushmoo.storage.dataset import read_cells
from projects import Project, wait_until

DTYPES = ("float", "double", "float2", "float3", "float4", "unorm8x4")
INPUTS = """
    def inputs(self, problem, dtype, rng):
        gate = Path(__file__).resolve().parents[2] / "gate"
        if problem.height == 128:
            (gate / f"{dtype}-{os.getpid()}").touch()
            deadline = time.monotonic() + 900
            while not (gate / "open").exists() and not (gate / f"open-{dtype}").exists():
                if time.monotonic() > deadline:
                    raise RuntimeError("the gate was not opened")
                time.sleep(0.02)
        return super().inputs(problem, dtype, rng)

"""
CONFIG: dict[str, Any] = {
    "run": "gated",
    "backend": "opencl",
    "only": ["gated"],
    "measure": {"repeats": 1, "min_samples": 6, "max_samples": 7},
}
CELLS_PER_SHARD = 8
DATASET = "results/gated/dataset"


class Gate:
    """The gate of a project's kernel ``gated``."""

    def __init__(self, project: Project, dtypes: Sequence[str] = ("float", "double")) -> None:
        """Writes the kernel and ``gated.yaml`` into the project; the gate is closed."""
        self.dtypes = dtypes
        axes = {"block_x": [32, 64, 128, 256]}
        write_copy(project.root, "gated", axes, DTYPES, sizes=(64, 128), methods=INPUTS)
        self._project = project
        self.set_axis([32, 64, 128, 256])
        self._folder = project.root / "gate"
        self._folder.mkdir()

    def set_axis(self, block_x: Sequence[int]) -> None:
        """Write the configuration, with these values of the one axis."""
        sweep = {"dtypes": list(self.dtypes), "axes": {"block_x": list(block_x)}}
        config = CONFIG | {"kernels": {"gated": sweep}}
        self.config = (self._project.write_config("gated.yaml", config),)

    def workers(self, dtype: str) -> set[int]:
        """Process ids of those that ever came to the gate with the shard of `dtype`."""
        return {int(p.name.split("-")[1]) for p in self._folder.glob(f"{dtype}-*")}

    def wait_for(self, dtype: str) -> int:
        """Wait until one is in the middle of the shard of `dtype`; its process id."""
        wait_until(lambda: bool(self.workers(dtype)), f"{dtype} in the middle of its shard")
        return min(self.workers(dtype))

    def wait_for_any(self) -> str:
        """Wait until one is in the middle of a shard; its dtype."""
        wait_until(lambda: any(map(self.workers, self.dtypes)), "a shard in its middle")
        return next(d for d in self.dtypes if self.workers(d))

    def open(self, dtype: str | None = None) -> None:
        """Let all pass, or those of `dtype`."""
        (self._folder / ("open" if dtype is None else f"open-{dtype}")).touch()

    def cells(self) -> pd.DataFrame:
        """The dataset's rows, after the check that it holds every cell, each once, all ok."""
        cells = read_cells(self._project.root / DATASET)
        assert len(cells) == CELLS_PER_SHARD * len(self.dtypes)
        assert cells["cell_key"].is_unique
        assert set(cells["status"]) == {"ok"}, cells[["status", "message"]]
        return cells

"""What `gpushmoo ab` finds of slow-downs that are planted in a checkout of several kernels.

    PYTHONPATH=workflow/scripts python experiments/gpu/ab_planted.py --out planted.json

A checkout with 0, 1, 3 or 10 percent more blocks, which do the work of others again, is measured
beside the one with 0, again and again; a row for each group says what was planted and found. It
needs CUDA with CuPy and NVRTC; ``--backend opencl --size 512`` tries it on another device.
"""

import argparse
import json
import shutil
import tempfile
import time
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

from gpushmoo.core.paths import KERNELS
from gpushmoo.interactive.checkouts import ab_checkouts

NAMES = ("copy2d_coalesced", "global_copy", "stencil5", "transpose")
PERCENTS = (0, 1, 3, 10)
# Put before the sources: a block beyond those of the original launch does what one of them does.
# The compiler does not see the percents: without any it would leave out the division.
CUDA = """
static __device__ __forceinline__ uint3 first_of_same()
{
    unsigned most;
    asm("mov.u32 %0, %1;" : "=r"(most) : "n"(100u + PERCENT));
    uint3 at = blockIdx;
    if (gridDim.y > 1) at.y %= gridDim.y * 100u / most;
    else at.x %= gridDim.x * 100u / most;
    return at;
}
#define blockIdx first_of_same()
"""
OPENCL = """
#define REAL(n) ((uint)(n) * 100u / (100u + PERCENT))
#define PLANTED (get_num_groups(1) > 1 ? 1 : 0)
#define get_group_id(d) (get_group_id(d) % ((d) == PLANTED ? REAL(get_num_groups(d)) : ~0u))
#define get_global_id(d) (get_group_id(d) * get_local_size(d) + get_local_id(d))
"""
WORKLOAD = """
from dataclasses import replace as _replace
_launch = type(WORKLOAD).launch
def _planted(self, cell):
    told = _launch(self, cell)
    x, y, z = told.grid
    more = -(-(x if y == 1 else y) * (100 + PERCENT) // 100)
    return _replace(told, grid=(more, y, z) if y == 1 else (x, more, z))
type(WORKLOAD).launch = _planted
"""


def main() -> None:
    """Measure; what was measured before a fault is kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--limit-s", type=float, default=120.0)
    parser.add_argument("--backend", default="cuda")
    parser.add_argument("--size", type=int, default=8192)
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as place:
        for percent in PERCENTS:
            write_checkout(Path(place) / str(percent), percent)
        asked = {"dtypes": "float", "sizes": options.size, "backend": options.backend}
        try:
            rows.extend(measured(Path(place), options.limit_s, **asked))
        finally:
            options.out.write_text(json.dumps(rows, indent=1))


def write_checkout(place: Path, percent: int) -> None:
    """Write the kernels with `percent` % more blocks."""
    for name in NAMES:
        folder = Path(shutil.copytree(KERNELS / name, place / "kernels" / name))
        for suffix, text in ((".cu", CUDA), (".cl", OPENCL)):
            source = folder / f"kernel{suffix}"
            source.write_text(text.replace("PERCENT", f"{percent}u") + source.read_text())
        with (folder / "workload.py").open("a") as file:
            file.write(WORKLOAD.replace("PERCENT", str(percent)))


def measured(place: Path, limit_s: float, **asked: Any) -> Iterator[dict[str, Any]]:
    """The rows of one comparison after the other; none is begun after the limit."""
    begin = began = time.monotonic()
    for turn, percent in enumerate(cycle(PERCENTS)):
        found = ab_checkouts(place / "0", place / str(percent), unchanged=True, pairs=12, **asked)
        took_s, began = time.monotonic() - began, time.monotonic()
        print(f"{began - begin:.0f} s, {percent} %: {found.slower} in {took_s:.1f} s", flush=True)
        which = {"turn": turn, "planted": percent, "seconds": took_s}
        for row in found.groups.to_dict("records"):
            device = found.tests[row["kernel"]].device.name
            yield {**which, "device": device, "slower": row["kernel"] in found.slower, **row}
        for kernel, why in found.failed.items():
            yield {**which, "kernel": kernel, "unmeasured": why}
        if began - begin > limit_s:
            return


if __name__ == "__main__":
    main()

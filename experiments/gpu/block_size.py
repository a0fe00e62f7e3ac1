"""Bandwidth by block size with two blocks a multiprocessor, as gpu-benches' gpu-stream has it.

block_size.py OUT.json: 2²⁷ doubles, one a thread; shared memory that no thread uses lets two blocks
live on a multiprocessor, whatever their size. Every launch is verified. Needs a CUDA device.
"""

import json
import sys
from pathlib import Path

import gpushmoo
import numpy as np

ELEMENTS = 2**27
# Of 228 KiB a multiprocessor of compute capability 9.0 gives each block this and 1 KiB.
SHARED = 100 * 2**10
THREADS = range(32, 1025, 32)
# The element of each kernel, and how often a launch moves an array.
KERNELS = {"init": ("0.25", 1), "scale": ("1.25 * b[i]", 2), "triad": ("1.25 * b[i] + c[i]", 3)}
SOURCE = """
extern "C" __global__ void stream(double *a, const double *b, const double *c, const int n)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        a[i] = ELEMENT;
}
"""


if __name__ == "__main__":
    b, c = np.random.default_rng(1).random((2, ELEMENTS))
    arguments = [np.empty_like(b), b, c, np.int32(ELEMENTS)]
    expected = {"init": np.full_like(b, 0.25), "scale": 1.25 * b, "triad": 1.25 * b + c}
    told = {}
    for kernel, (element, arrays) in KERNELS.items():
        result = gpushmoo.tune(
            SOURCE.replace("ELEMENT", element),
            "stream",
            arguments,
            ELEMENTS,
            {"block_x": [*THREADS]},
            launch=gpushmoo.LaunchConfig(shared=SHARED, bytes_moved=f"{8 * arrays} * n"),
            # The compiler fuses product and sum, the host does not.
            check=gpushmoo.Check([expected[kernel], None, None, None], ulp=1),
            search={"mode": "all"},
            backend="cuda",
            progress=False,
        )
        cells = result.cells.sort_values("block_x")
        gbs = cells["bandwidth_gbs"].round(1).tolist()
        told[kernel] = dict(zip(cells["block_x"].tolist(), gbs, strict=True))
        device = cells["device_name"].iloc[0]
    Path(sys.argv[1]).write_text(
        json.dumps({"device": device, "elements": ELEMENTS, "gbs": told}) + "\n"
    )

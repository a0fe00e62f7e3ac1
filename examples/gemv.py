"""Matrix times vector in half precision, summed in float: threads a row, rows a block, loads.

Bytes moved: the matrix once; the vector comes from the cache. Threads of a row take neighbouring
packs of halves.
"""

import sys

import gpushmoo
import numpy as np

ROWS, WIDTH = 4096, 8192
SOURCE = """
#include <cuda_fp16.h>

struct alignas(2 * VEC) Pack { __half of[VEC]; };

extern "C" __global__ void gemv(float *y, const __half *a, const __half *x)
{
    const int row = blockIdx.x * ROWS_A_BLOCK + threadIdx.x / THREADS_A_ROW;
    const int lane = threadIdx.x % THREADS_A_ROW;
    const Pack *packs = (const Pack *)a + (size_t)row * (WIDTH / VEC);
    float sum = 0;
#pragma unroll 4
    for (int i = lane; i < WIDTH / VEC; i += THREADS_A_ROW) {
        const Pack left = packs[i], right = ((const Pack *)x)[i];
        for (int k = 0; k < VEC; k++)
            sum += __half2float(left.of[k]) * __half2float(right.of[k]);
    }
    for (int far = THREADS_A_ROW / 2; far; far /= 2)
        sum += __shfl_down_sync(~0u, sum, far, THREADS_A_ROW);
    if (lane == 0)
        y[row] = sum;
}
"""

rng = np.random.default_rng(3)
a = rng.uniform(-1, 1, (ROWS, WIDTH)).astype(np.float16)
x = rng.uniform(-1, 1, WIDTH).astype(np.float16)
exact = a.astype(np.float64) @ x.astype(np.float64)
sizes = np.abs(a).astype(np.float64) @ np.abs(x).astype(np.float64)
CALL = {
    "source": f"#define WIDTH {WIDTH}\n{SOURCE}",
    "name": "gemv",
    "arguments": [np.empty(ROWS, np.float32), a, x],
    "size": ROWS,
    "axes": {"THREADS_A_ROW": [8, 16, 32], "ROWS_A_BLOCK": [4, 8, 16, 32], "VEC": [2, 4, 8]},
    "launch": gpushmoo.LaunchConfig(
        grid="n / ROWS_A_BLOCK",
        block="THREADS_A_ROW * ROWS_A_BLOCK",
        bytes_moved=f"2 * {WIDTH} * n",
        work=f"2 * {WIDTH} * n",
    ),
    "check": gpushmoo.Check([exact, None, None], atol=gpushmoo.sum_bound(sizes, WIDTH)),
}
PEERS = {"PyTorch": "a @ x", "CuPy": "a @ x"}

if __name__ == "__main__":
    try:
        print(gpushmoo.tune(**CALL).best)
    except gpushmoo.DeviceError as err:
        sys.exit(str(err))

"""Softmax of each row of a matrix: how many threads a row, how wide a load.

Bytes moved: each element once in, once out. Threads of a block take neighbouring packs of a row,
and keep them in registers between the three steps.
"""

import sys

import gpushmoo
import numpy as np

ROWS, WIDTH = 4096, 4096
SOURCE = """
struct alignas(4 * VEC) Pack { float of[VEC]; };

__device__ float all(float mine, const bool largest)
{
    __shared__ float parts[32];
    for (int far = 16; far; far /= 2) {
        const float other = __shfl_xor_sync(~0u, mine, far);
        mine = largest ? fmaxf(mine, other) : mine + other;
    }
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        parts[threadIdx.x / 32] = mine;
    __syncthreads();
    mine = parts[0];
    for (int i = 1; i < block_x / 32; i++)
        mine = largest ? fmaxf(mine, parts[i]) : mine + parts[i];
    return mine;
}

extern "C" __global__ void __launch_bounds__(block_x) softmax(float *y, const float *x)
{
    const int packs = WIDTH / VEC / block_x;
    const size_t first = (size_t)blockIdx.x * (WIDTH / VEC) + threadIdx.x;
    Pack row[packs];
    float most = -1e38f, sum = 0;
    for (int i = 0; i < packs; i++) {
        row[i] = ((const Pack *)x)[first + i * block_x];
        for (float value : row[i].of)
            most = fmaxf(most, value);
    }
    most = all(most, true);
    for (Pack &pack : row)
        for (float &value : pack.of)
            sum += value = __expf(value - most);
    sum = all(sum, false);
    for (int i = 0; i < packs; i++) {
        for (float &value : row[i].of)
            value /= sum;
        ((Pack *)y)[first + i * block_x] = row[i];
    }
}
"""


x = np.random.default_rng(1).normal(size=(ROWS, WIDTH)).astype(np.float32)
powers = np.exp(x.astype(np.float64))
CALL = {
    "source": f"#define WIDTH {WIDTH}\n{SOURCE}",
    "name": "softmax",
    "arguments": [np.empty_like(x), x],
    "size": x.shape,
    "axes": {"block_x": [32, 64, 128, 256, 512, 1024], "VEC": [1, 2, 4]},
    "launch": gpushmoo.LaunchConfig(grid="height", bytes_moved="2 * 4 * n", work="5 * n"),
    "check": gpushmoo.Check([powers / powers.sum(axis=1, keepdims=True), None], rtol=1e-5),
}
PEERS = {"PyTorch": "torch.softmax(x, 1)", "CuPy": "softmax_of_scipy(x, axis=1)"}

if __name__ == "__main__":
    try:
        print(gpushmoo.tune(**CALL).best)
    except gpushmoo.DeviceError as err:
        sys.exit(str(err))

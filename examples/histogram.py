"""Histogram of bytes: how many copies in shared memory, how many blocks.

Bytes moved: each byte once. Threads take neighbouring packs of 16 bytes and add to one of the
copies of their block; each block adds its bins to the result, which is read and written in place.
"""

import sys

import gpushmoo
import numpy as np

N = 2**25
SOURCE = """
extern "C" __global__ void histogram(unsigned *bins, const unsigned char *x, const int n)
{
    __shared__ unsigned own[COPIES][256 + 1];
    for (int i = threadIdx.x; i < COPIES * 257; i += blockDim.x)
        own[i / 257][i % 257] = 0;
    __syncthreads();
    unsigned *mine = own[threadIdx.x % COPIES];
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n / 16; i += gridDim.x * blockDim.x) {
        const uint4 pack = ((const uint4 *)x)[i];
        for (unsigned word : {pack.x, pack.y, pack.z, pack.w})
            for (int k = 0; k < 4; k++)
                atomicAdd(mine + (word >> 8 * k & 255), 1);
    }
    __syncthreads();
    for (int bin = threadIdx.x; bin < 256; bin += blockDim.x) {
        unsigned sum = 0;
        for (int copy = 0; copy < COPIES; copy++)
            sum += own[copy][bin];
        atomicAdd(bins + bin, sum);
    }
}
"""

x = np.random.default_rng(4).integers(0, 256, N, np.uint8)
CALL = {
    "source": SOURCE,
    "name": "histogram",
    "arguments": [np.zeros(256, np.uint32), x, np.int32(N)],
    "size": N,
    "axes": {
        "block_x": [128, 256, 512, 1024],
        "COPIES": [1, 4, 16],
        "grid_x": [132, 264, 528],
    },
    "launch": gpushmoo.LaunchConfig(grid="grid_x", bytes_moved="n"),
    "check": gpushmoo.Check([np.bincount(x, minlength=256), None, None], in_place=["bins"]),
}
PEERS = {"PyTorch": "torch.bincount(x, minlength=256)", "CuPy": "cupy.bincount(x, minlength=256)"}

if __name__ == "__main__":
    try:
        print(gpushmoo.tune(**CALL).best)
    except gpushmoo.DeviceError as err:
        sys.exit(str(err))

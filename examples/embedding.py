"""Rows gathered from a table by index (an embedding): threads a row, how wide a load.

Bytes moved: each index, and each gathered row in and out. Threads of a row take neighbouring packs.
"""

import sys

import gpushmoo
import numpy as np

TABLE, WIDTH, TOKENS = 2**18, 128, 2**17
SOURCE = """
struct alignas(4 * VEC) Pack { float of[VEC]; };

extern "C" __global__ void embedding(float *y, const float *table, const int *index, const int n)
{
    const int sharers = WIDTH / VEC;
    const int token = (blockIdx.x * block_x + threadIdx.x) / sharers * EACH;
    const int lane = threadIdx.x % sharers;
#pragma unroll
    for (int k = 0; k < EACH; k++)
        if (token + k < n)
            ((Pack *)y)[(size_t)(token + k) * sharers + lane] =
                ((const Pack *)table)[(size_t)index[token + k] * sharers + lane];
}
"""

rng = np.random.default_rng(6)
table = rng.normal(size=(TABLE, WIDTH)).astype(np.float32)
index = rng.integers(0, TABLE, TOKENS).astype(np.int32)
CALL = {
    "source": f"#define WIDTH {WIDTH}\n{SOURCE}",
    "name": "embedding",
    "arguments": [np.empty((TOKENS, WIDTH), np.float32), table, index, np.int32(TOKENS)],
    "size": TOKENS,
    "axes": {"block_x": [128, 256, 512, 1024], "VEC": [1, 2, 4], "EACH": [1, 2, 4]},
    "launch": gpushmoo.LaunchConfig(
        grid=f"ceil(n * {WIDTH} / (block_x * VEC * EACH))", bytes_moved=f"n * (4 + 8 * {WIDTH})"
    ),
    "check": gpushmoo.Check([table[index], None, None, None]),
}
PEERS = {
    "PyTorch": "torch.nn.functional.embedding(index, table)",
    "CuPy": "cupy.take(table, index, axis=0)",
}

if __name__ == "__main__":
    try:
        print(gpushmoo.tune(**CALL).best)
    except gpushmoo.DeviceError as err:
        sys.exit(str(err))

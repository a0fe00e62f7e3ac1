"""Sums of segments of random length: how many threads share one segment.

Bytes moved: each element and each segment's end once. Threads of a segment take neighbouring
elements.
"""

import sys

import gpushmoo
import numpy as np

SEGMENTS, LONGEST = 2**18, 256
SOURCE = """
extern "C" __global__ void segmented_sum(float *sums, const float *x, const int *ends, const int n)
{
    const int segment = (blockIdx.x * block_x + threadIdx.x) / SHARERS;
    const int lane = threadIdx.x % SHARERS;
    if (segment >= n)
        return;
    float sum = 0;
    const int end = ends[segment];
    for (int i = (segment ? ends[segment - 1] : 0) + lane; i < end; i += SHARERS)
        sum += x[i];
    const unsigned sharers = (SHARERS == 32 ? ~0u : (1u << SHARERS % 32) - 1)
                             << threadIdx.x % 32 / SHARERS * SHARERS;
    for (int far = SHARERS / 2; far; far /= 2)
        sum += __shfl_down_sync(sharers, sum, far, SHARERS);
    if (lane == 0)
        sums[segment] = sum;
}
"""

rng = np.random.default_rng(5)
lengths = rng.integers(1, LONGEST, SEGMENTS)
ends = lengths.cumsum().astype(np.int32)
x = rng.uniform(-1, 1, ends[-1]).astype(np.float32)
starts = ends - lengths
exact, sizes = (np.add.reduceat(of, starts) for of in (x.astype(float), np.abs(x.astype(float))))
CALL = {
    "source": SOURCE,
    "name": "segmented_sum",
    "arguments": [np.empty(SEGMENTS, np.float32), x, ends, np.int32(SEGMENTS)],
    "size": SEGMENTS,
    "axes": {"block_x": [64, 128, 256, 512], "SHARERS": [1, 2, 4, 8, 16, 32]},
    "launch": gpushmoo.LaunchConfig(
        grid="ceil(n * SHARERS / block_x)", bytes_moved=f"4 * ({x.size} + 2 * n)"
    ),
    "check": gpushmoo.Check([exact, None, None, None], atol=gpushmoo.sum_bound(sizes, LONGEST)),
}
PEERS = {
    "PyTorch": "torch.segment_reduce(x, 'sum', offsets=torch.nn.functional.pad(ends, (1, 0)))",
    "CuPy": "cupy.add.reduceat(x, cupy.concatenate((ends[:1] * 0, ends[:-1])))",
}

if __name__ == "__main__":
    try:
        print(gpushmoo.tune(**CALL).best)
    except gpushmoo.DeviceError as err:
        sys.exit(str(err))

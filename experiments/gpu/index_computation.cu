// Times the index computation of the tiles by the multiprocessor's own clock, in the manner of a
// block-wise test harness: every block does the same, and writes down the cycles from the first of
// its threads that starts to the last that ends. A thread finds the place of its element in one tile
// after the other; each tile's number waits for the last index, as in the kernels it waits for the
// copy. `stride` is 0 when run, which the compiler does not know.

// The statements of the copy whose tiles are as wide as a partition.
template <bool RECIPROCAL>
__device__ static inline unsigned int place(unsigned int tile, unsigned int width, unsigned int tiles_x,
                                            float one_over_tiles_x)
{
    const unsigned int tile_y =
        RECIPROCAL ? __float2uint_rz(__uint2float_rz(tile) * one_over_tiles_x) : tile / tiles_x;
    const unsigned int tile_x = tile - tiles_x * tile_y;
    const unsigned int x = tile_x * blockDim.x + threadIdx.x;
    const unsigned int y = tile_y * blockDim.y + threadIdx.y;
    return x + width * y;
}

// KIND 0: the loop alone. 1: integer division. 2: the document's float reciprocal.
template <int KIND>
__device__ static inline void timed(long long *cycles, unsigned int *sink, unsigned int tiles,
                                    unsigned int stride, unsigned int width, unsigned int tiles_x,
                                    float one_over_tiles_x)
{
    __shared__ unsigned long long begin, end;
    if (threadIdx.x == 0 && threadIdx.y == 0) {
        begin = ~0ull;
        end = 0;
    }
    __syncthreads();
    const unsigned long long before = clock64();
    unsigned int tile = blockIdx.x, found = 0;
#pragma unroll 1
    for (unsigned int n = 0; n < tiles; ++n) {
        if (KIND == 0)
            found = tile;
        if (KIND == 1)
            found = place<false>(tile, width, tiles_x, one_over_tiles_x);
        if (KIND == 2)
            found = place<true>(tile, width, tiles_x, one_over_tiles_x);
        tile += 1 + stride * found;
    }
    const unsigned long long after = clock64();
    atomicMin(&begin, before);
    atomicMax(&end, after);
    __syncthreads();
    sink[(blockIdx.x * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x] = found + tile;
    if (threadIdx.x == 0 && threadIdx.y == 0)
        cycles[blockIdx.x] = (long long)(end - begin);
}

#define HARNESS(NAME, KIND)                                                                          \
    extern "C" __global__ void NAME(long long *cycles, unsigned int *sink, unsigned int tiles,       \
                                    unsigned int stride, unsigned int width, unsigned int tiles_x,   \
                                    float one_over_tiles_x)                                          \
    {                                                                                                \
        timed<KIND>(cycles, sink, tiles, stride, width, tiles_x, one_over_tiles_x);                  \
    }

HARNESS(bare, 0)
HARNESS(exact, 1)
HARNESS(reciprocal, 2)

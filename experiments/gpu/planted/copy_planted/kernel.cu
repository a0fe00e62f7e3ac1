// Copies n consecutive elements; a block takes a tile of blockDim.x * UNROLL of them. Of 100 blocks in a row,
// `percent` copy a tile besides that lies half of the array away: the same bytes to the same place as the
// block that it belongs to, so that the result is the same and only the work is more.
// Bytes moved, beside what is planted: sizeof(element_t) read and sizeof(element_t) written per element.

#define UNROLL 4

__device__ void copy_one(element_t *__restrict__ dst, const element_t *__restrict__ src, index_t n, index_t tile)
{
    const index_t first = tile * blockDim.x * UNROLL + threadIdx.x;
    element_t values[UNROLL];
    if (first + (UNROLL - 1) * blockDim.x < n) {
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) values[u] = src[first + u * blockDim.x];
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) dst[first + u * blockDim.x] = values[u];
    } else {
        for (index_t i = first; i < n && i < first + UNROLL * blockDim.x; i += blockDim.x) dst[i] = src[i];
    }
}

extern "C" __global__ void copy_planted(element_t *__restrict__ dst, const element_t *__restrict__ src,
                                        index_t n, unsigned int percent)
{
    const index_t blocks = gridDim.x, tile = blockIdx.x;
    copy_one(dst, src, n, tile);
    // Spread evenly: 3 of 100 are 0, 34 and 67.
    if ((tile % 100) * percent % 100 < percent) copy_one(dst, src, n, (tile + blocks / 2) % blocks);
}

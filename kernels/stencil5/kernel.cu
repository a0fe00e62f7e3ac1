// One step of a 5-point stencil: an element becomes the mean of its four neighbours, those at the
// border stay. A thread makes one element.
// Bytes moved: sizeof(element_t) read and written per element; neighbours are to come from a cache,
// or in stencil_tiled from the block's own tile.

__device__ static inline bool at_border(index_t x, index_t y, index_t width, index_t height)
{
    return x == 0 || y == 0 || x + 1 == width || y + 1 == height;
}

// The sums' order is that of the reference. The factor is a power of two: its product is exact.
__device__ static inline element_t mean(element_t up, element_t down, element_t left,
                                           element_t right)
{
    return (element_t)0.25 * ((up + down) + (left + right));
}

extern "C" __global__ void stencil_global(element_t *__restrict__ dst,
                                          const element_t *__restrict__ src,
                                          index_t width, index_t height)
{
    const index_t x = (index_t)blockIdx.x * blockDim.x + threadIdx.x;
    const index_t y = (index_t)blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height)
        return;
    const element_t *here = src + y * width + x;
    dst[y * width + x] = at_border(x, y, width, height)
                             ? *here
                             : mean(*(here - width), here[width], *(here - 1), here[1]);
}

extern "C" __global__ void stencil_tiled(element_t *__restrict__ dst,
                                         const element_t *__restrict__ src,
                                         index_t width, index_t height)
{
    // The elements of the block's threads. What lies around them comes from global memory.
    __shared__ element_t tile[1024];
    const unsigned int tx = threadIdx.x, ty = threadIdx.y, w = blockDim.x, h = blockDim.y;
    const index_t x = (index_t)blockIdx.x * w + tx;
    const index_t y = (index_t)blockIdx.y * h + ty;
    const bool within = x < width && y < height;
    const element_t *here = src + y * width + x, *mine = tile + ty * w + tx;
    if (within)
        tile[ty * w + tx] = *here;
    __syncthreads();
    if (!within)
        return;
    dst[y * width + x] = at_border(x, y, width, height)
                             ? *mine
                             : mean(ty > 0 ? *(mine - w) : *(here - width),
                                    ty + 1 < h ? mine[w] : here[width],
                                    tx > 0 ? *(mine - 1) : *(here - 1),
                                    tx + 1 < w ? mine[1] : here[1]);
}

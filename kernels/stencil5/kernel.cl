// One step of a 5-point stencil: an element becomes the mean of its four neighbours, those at the
// border stay. A work-item makes one element.
// Bytes moved: sizeof(element_t) read and written per element; neighbours are to come from a cache,
// or in stencil_tiled from the group's own tile.

static inline bool at_border(index_t x, index_t y, index_t width, index_t height)
{
    return x == 0 || y == 0 || x + 1 == width || y + 1 == height;
}

// The sums' order is that of the reference. The factor is a power of two: its product is exact.
static inline element_t mean(element_t up, element_t down, element_t left, element_t right)
{
    return (element_t)0.25 * ((up + down) + (left + right));
}

__kernel void stencil_global(__global element_t *restrict dst,
                             __global const element_t *restrict src, const index_t width,
                             const index_t height)
{
    const index_t x = get_global_id(0), y = get_global_id(1);
    if (x >= width || y >= height)
        return;
    __global const element_t *here = src + y * width + x;
    dst[y * width + x] = at_border(x, y, width, height)
                             ? *here
                             : mean(*(here - width), here[width], *(here - 1), here[1]);
}

__kernel void stencil_tiled(__global element_t *restrict dst,
                            __global const element_t *restrict src, const index_t width,
                            const index_t height)
{
    // The elements of the group. What lies around them comes from global memory.
    __local element_t tile[4096];
    const size_t tx = get_local_id(0), ty = get_local_id(1);
    const size_t w = get_local_size(0), h = get_local_size(1);
    const index_t x = get_global_id(0), y = get_global_id(1);
    const bool within = x < width && y < height;
    __global const element_t *here = src + y * width + x;
    __local element_t *mine = tile + ty * w + tx;
    if (within)
        *mine = *here;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (!within)
        return;
    dst[y * width + x] = at_border(x, y, width, height)
                             ? *mine
                             : mean(ty > 0 ? *(mine - w) : *(here - width),
                                    ty + 1 < h ? mine[w] : here[width],
                                    tx > 0 ? *(mine - 1) : *(here - 1),
                                    tx + 1 < w ? mine[1] : here[1]);
}

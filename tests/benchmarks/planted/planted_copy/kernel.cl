__kernel void planted_copy(__global element_t *restrict dst, __global const element_t *restrict src,
                           const index_t width, const index_t height)
{
    const index_t x = get_global_id(0);
    const index_t y = (index_t)get_global_id(1) % height;
    if (x < width)
        dst[y * width + x] = src[y * width + x];
}

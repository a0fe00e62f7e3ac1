// Copy of a height x width array of packed elements, row by row, so that neighbouring work-items
// touch neighbouring elements. element_t is float, double or the packed 12-byte float3 (OpenCL's own
// float3 takes 16 bytes, so it is a structure here).
// Bytes moved: sizeof(element_t) read and sizeof(element_t) written per element.
typedef struct { float x, y, z; } packed_float3;

// One element per work-item; the grid covers the array, the group shape is free.
__kernel void copy_element(__global element_t *restrict dst, __global const element_t *restrict src,
                           const index_t width, const index_t height)
{
    const index_t x = get_global_id(0);
    const index_t y = get_global_id(1);
    if (x < width && y < height)
        dst[y * width + x] = src[y * width + x];
}

// One TILE x TILE tile per group: the group walks over its tile in steps of its own shape.
// With a 32 x 8 group this is the first document's copy (four elements per work-item).
__kernel void copy_tile(__global element_t *restrict dst, __global const element_t *restrict src,
                        const index_t width, const index_t height)
{
    const index_t x0 = (index_t)get_group_id(0) * TILE;
    const index_t y0 = (index_t)get_group_id(1) * TILE;
    for (uint ty = get_local_id(1); ty < TILE; ty += get_local_size(1))
        for (uint tx = get_local_id(0); tx < TILE; tx += get_local_size(0)) {
            const index_t x = x0 + tx, y = y0 + ty;
            if (x < width && y < height)
                dst[y * width + x] = src[y * width + x];
        }
}

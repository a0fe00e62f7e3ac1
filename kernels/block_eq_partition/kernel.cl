// Copy by persistent groups: get_num_groups(0) groups share out the tiles of the array in turn. A
// tile is TILE_X x TILE_Y elements, one work-item each; its rows are 256 bytes wide, one memory
// partition of the Tesla C1060 (float3: 768 bytes, three). Bytes moved: sizeof(element_t) read and sizeof(element_t) written per element.
typedef struct { float x, y, z; } packed_float3;

static inline void copy_one(__global element_t *dst, __global const element_t *src, index_t width, index_t height,
                            index_t tile_x, index_t tile_y)
{
    const index_t x = tile_x * TILE_X + get_local_id(0);
    const index_t y = tile_y * TILE_Y + get_local_id(1);
    if (x < width && y < height)
        dst[y * width + x] = src[y * width + x];
}

// Integer division: right for every grid.
__kernel void copy_exact(__global element_t *restrict dst, __global const element_t *restrict src,
                         const index_t width, const index_t height, const uint tiles_x,
                         const uint tiles)
{
    for (index_t tile = get_group_id(0); tile < tiles; tile += get_num_groups(0)) {
        const uint tile_y = (uint)tile / tiles_x;
        const uint tile_x = (uint)tile - tiles_x * tile_y;
        copy_one(dst, src, width, height, tile_x, tile_y);
    }
}

// The document's way: multiply by a float reciprocal that is a millionth too large, then truncate.
// Past about 10^6 tiles the surplus reaches a whole tile row and the last tiles of a row go
// missing; verification then says wrong_result.
__kernel void copy_reciprocal(__global element_t *restrict dst, __global const element_t *restrict src,
                              const index_t width, const index_t height, const uint tiles_x,
                              const uint tiles, const float one_over_tiles_x)
{
    for (index_t tile = get_group_id(0); tile < tiles; tile += get_num_groups(0)) {
        const uint tile_y = convert_uint_rtz(convert_float_rtz((uint)tile) * one_over_tiles_x);
        const uint tile_x = (uint)tile - tiles_x * tile_y;
        copy_one(dst, src, width, height, tile_x, tile_y);
    }
}

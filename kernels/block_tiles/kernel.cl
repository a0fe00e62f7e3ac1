// Copy by persistent groups whose tiles have rows of any width, of an array cut into rows of any
// pitch. The `elements` of the buffers are taken as rows of `pitch` elements (the last may be
// shorter); get_num_groups(0) groups share out the tiles of one group's size in turn, one element a
// work-item. Bytes moved: sizeof(element_t) read and sizeof(element_t) written per element.
typedef struct { float x, y, z; } packed_float3;

__kernel void copy_tiles(__global element_t *restrict dst, __global const element_t *restrict src,
                         const index_t elements, const index_t pitch, const uint tiles_x, const uint tiles)
{
    for (index_t tile = get_group_id(0); tile < tiles; tile += get_num_groups(0)) {
        const uint tile_y = (uint)tile / tiles_x;
        const uint tile_x = (uint)tile - tiles_x * tile_y;
        const index_t x = (index_t)tile_x * get_local_size(0) + get_local_id(0);
        const index_t y = (index_t)tile_y * get_local_size(1) + get_local_id(1);
        const index_t i = y * pitch + x;
        if (x < pitch && i < elements)
            dst[i] = src[i];
    }
}

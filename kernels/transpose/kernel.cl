// Transposes a height x width array: dst[x][y] = src[y][x].
// Bytes moved: sizeof(element_t) read and sizeof(element_t) written per element.

// The group with these numbers of x and y. In `diagonal` order neighbouring groups take tiles of
// neighbouring rows as well as columns, so that they write to different partitions of the memory.
#ifdef DIAGONAL
#define TILE_X ((get_group_id(0) + get_group_id(1)) % get_num_groups(0))
#else
#define TILE_X get_group_id(0)
#endif
#define TILE_Y get_group_id(1)

// A group of so many x TILE / ROWS work-items moves one TILE x TILE tile, each work-item ROWS rows of it.
#define STEP (TILE / ROWS)

__kernel void transpose_naive(__global element_t *restrict dst, __global const element_t *restrict src,
                              const index_t width, const index_t height)
{
    const index_t x0 = TILE_X * TILE, y0 = TILE_Y * TILE;
    for (uint row = get_local_id(1); row < TILE; row += STEP)
        for (uint column = get_local_id(0); column < TILE; column += get_local_size(0))
            if (x0 + column < width && y0 + row < height)
                dst[(x0 + column) * height + y0 + row] = src[(y0 + row) * width + x0 + column];
}

// Through local memory, so that both reading and writing go along rows. PAD more elements in each of its
// rows spread a column of the tile over the memory's banks.
__kernel void transpose_tile(__global element_t *restrict dst, __global const element_t *restrict src,
                             const index_t width, const index_t height)
{
    __local element_t tile[TILE][TILE + PAD];
    const index_t x0 = TILE_X * TILE, y0 = TILE_Y * TILE;
    for (uint row = get_local_id(1); row < TILE; row += STEP)
        for (uint column = get_local_id(0); column < TILE; column += get_local_size(0))
            if (x0 + column < width && y0 + row < height)
                tile[row][column] = src[(y0 + row) * width + x0 + column];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint row = get_local_id(1); row < TILE; row += STEP)
        for (uint column = get_local_id(0); column < TILE; column += get_local_size(0))
            if (y0 + column < height && x0 + row < width)
                dst[(x0 + row) * height + y0 + column] = tile[column][row];
}

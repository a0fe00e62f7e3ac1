// Copy by persistent blocks: gridDim.x blocks share out the tiles of the array in turn. A tile is
// TILE_X x TILE_Y elements, one thread each; its rows are 256 bytes wide, one memory partition of
// the Tesla C1060 (float3: 768 bytes, three). Bytes moved: sizeof(element_t) read and sizeof(element_t) written per element.

__device__ static inline void copy_one(element_t *dst, const element_t *src, index_t width,
                                       index_t height, index_t tile_x,
                                       index_t tile_y)
{
    const index_t x = tile_x * TILE_X + threadIdx.x;
    const index_t y = tile_y * TILE_Y + threadIdx.y;
    if (x < width && y < height)
        dst[y * width + x] = src[y * width + x];
}

// Integer division: right for every grid.
extern "C" __global__ void copy_exact(element_t *__restrict__ dst, const element_t *__restrict__ src,
                                      index_t width, index_t height,
                                      unsigned int tiles_x, unsigned int tiles)
{
    for (index_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        const unsigned int tile_y = (unsigned int)tile / tiles_x;
        const unsigned int tile_x = (unsigned int)tile - tiles_x * tile_y;
        copy_one(dst, src, width, height, tile_x, tile_y);
    }
}

// The document's way: multiply by a float reciprocal that is a millionth too large, then truncate.
// Past about 10^6 tiles the surplus reaches a whole tile row and the last tiles of a row go
// missing; verification then says wrong_result.
extern "C" __global__ void copy_reciprocal(element_t *__restrict__ dst, const element_t *__restrict__ src,
                                           index_t width, index_t height,
                                           unsigned int tiles_x, unsigned int tiles,
                                           float one_over_tiles_x)
{
    for (index_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        const unsigned int tile_y =
            __float2uint_rz(__uint2float_rz((unsigned int)tile) * one_over_tiles_x);
        const unsigned int tile_x = (unsigned int)tile - tiles_x * tile_y;
        copy_one(dst, src, width, height, tile_x, tile_y);
    }
}

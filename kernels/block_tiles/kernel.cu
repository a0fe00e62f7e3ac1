// Copy by persistent blocks whose tiles have rows of any width, of an array cut into rows of any
// pitch. The `elements` of the buffers are taken as rows of `pitch` elements (the last may be
// shorter); gridDim.x blocks share out the tiles of blockDim.x x blockDim.y elements in turn, one
// element a thread. Bytes moved: sizeof(element_t) read and sizeof(element_t) written per element.

extern "C" __global__ void copy_tiles(element_t *__restrict__ dst, const element_t *__restrict__ src,
                                      index_t elements, index_t pitch,
                                      unsigned int tiles_x, unsigned int tiles)
{
    for (index_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        const unsigned int tile_y = (unsigned int)tile / tiles_x;
        const unsigned int tile_x = (unsigned int)tile - tiles_x * tile_y;
        const index_t x = (index_t)tile_x * blockDim.x + threadIdx.x;
        const index_t y = (index_t)tile_y * blockDim.y + threadIdx.y;
        const index_t i = y * pitch + x;
        if (x < pitch && i < elements)
            dst[i] = src[i];
    }
}

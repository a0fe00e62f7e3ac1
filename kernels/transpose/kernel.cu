// Transposes a height x width array: dst[x][y] = src[y][x].
// Bytes moved: sizeof(element_t) read and sizeof(element_t) written per element.

// The tile of this block. In diagonal order neighbouring blocks take tiles of neighbouring rows as well
// as columns, so that they write to different partitions of the memory.
#ifdef DIAGONAL
#define TILE_X ((blockIdx.x + blockIdx.y) % gridDim.x)
#else
#define TILE_X blockIdx.x
#endif

// A block of blockDim.x x TILE / ROWS threads moves one TILE x TILE tile, each thread ROWS rows of it.
#define STEP (TILE / ROWS)

extern "C" __global__ void transpose_naive(element_t *__restrict__ dst, const element_t *__restrict__ src,
                                           index_t width, index_t height)
{
    const index_t x0 = (index_t)TILE_X * TILE, y0 = (index_t)blockIdx.y * TILE;
    for (unsigned row = threadIdx.y; row < TILE; row += STEP)
        for (unsigned column = threadIdx.x; column < TILE; column += blockDim.x)
            if (x0 + column < width && y0 + row < height)
                dst[(x0 + column) * height + y0 + row] = src[(y0 + row) * width + x0 + column];
}

// Through shared memory, so that both reading and writing go along rows. PAD more elements in each of its
// rows spread a column of the tile over the memory's banks.
extern "C" __global__ void transpose_tile(element_t *__restrict__ dst, const element_t *__restrict__ src,
                                          index_t width, index_t height)
{
    __shared__ element_t tile[TILE][TILE + PAD];
    const index_t x0 = (index_t)TILE_X * TILE, y0 = (index_t)blockIdx.y * TILE;
    for (unsigned row = threadIdx.y; row < TILE; row += STEP)
        for (unsigned column = threadIdx.x; column < TILE; column += blockDim.x)
            if (x0 + column < width && y0 + row < height)
                tile[row][column] = src[(y0 + row) * width + x0 + column];
    __syncthreads();
    for (unsigned row = threadIdx.y; row < TILE; row += STEP)
        for (unsigned column = threadIdx.x; column < TILE; column += blockDim.x)
            if (y0 + column < height && x0 + row < width)
                dst[(x0 + row) * height + y0 + column] = tile[column][row];
}

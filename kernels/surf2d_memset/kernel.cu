// Writes every texel of an image through a surface, the second document's memset.
// Bytes moved: sizeof(element_t) written per texel. What is written is
//   VALUE_ONE    one value for all, an argument of the kernel, as in the document
//   VALUE_PLACE  a value that follows from the texel's place, so that a misplaced write shows
// With PLAIN it is stored to a buffer, row by row.
//
// A grid that covers the image makes each thread write one texel. Which one is the mapping:
//   MAP_BLOCK   the "obvious way": a warp takes texels of 32 / blockDim.x rows
//   MAP_ROW     consecutive threads, whatever the block's shape, take consecutive texels of a row
//   MAP_TILE8   ... of a tile of 8 x 8 texels, row by row: a warp takes 8 x 4
//   MAP_MORTON  ... of a tile of 8 x 8 texels in Morton order: 4 consecutive threads take 2 x 2
// The last three go by the thread's index alone, so only the number of threads matters to them. In a
// smaller grid a thread strides over the image by the grid; of the last two only downwards.
#define THREADS (blockDim.x * blockDim.y)
#define INDEX (blockIdx.x * THREADS + threadIdx.y * blockDim.x + threadIdx.x)
#if defined(MAP_BLOCK)
#define FIRST_COL (blockIdx.x * blockDim.x + threadIdx.x)
#define FIRST_ROW (blockIdx.y * blockDim.y + threadIdx.y)
#define STEP_COLS (blockDim.x * gridDim.x)
#define STEP_ROWS (blockDim.y * gridDim.y)
#elif defined(MAP_ROW)
#define FIRST_COL INDEX
#define FIRST_ROW blockIdx.y
#define STEP_COLS (THREADS * gridDim.x)
#define STEP_ROWS gridDim.y
#else // a strip of tiles for each blockIdx.y; gridDim.x must cover it
#if defined(MAP_TILE8)
#define IN_TILE_COL(i) ((i) & 7)
#define IN_TILE_ROW(i) ((i) >> 3 & 7)
#else // MAP_MORTON: even bits are the column's, odd bits the row's
#define IN_TILE_COL(i) (((i) & 1) | ((i) >> 1 & 2) | ((i) >> 2 & 4))
#define IN_TILE_ROW(i) (((i) >> 1 & 1) | ((i) >> 2 & 2) | ((i) >> 3 & 4))
#endif
#define FIRST_COL ((INDEX >> 6) * 8 + IN_TILE_COL(INDEX))
#define FIRST_ROW (blockIdx.y * 8 + IN_TILE_ROW(INDEX))
#define STEP_COLS (THREADS * gridDim.x / 8)
#define STEP_ROWS (gridDim.y * 8)
#endif

// Word k of all the image's words is k times an odd constant; a float holds its upper 24 bits.
#define WORD(k) ((k) * 2654435761u)
#define NUMBER(k) ((float)(WORD(k) >> 8))

__device__ static inline element_t texel_of(float value, unsigned int place)
{
#if defined(BYTES)
#ifdef VALUE_ONE
    const unsigned int w = (unsigned char)value * 0x01010101u;
#else
    const unsigned int w = WORD(place);
#endif
    return {(unsigned char)w, (unsigned char)(w >> 8), (unsigned char)(w >> 16), (unsigned char)(w >> 24)};
#else
#ifdef VALUE_ONE
#define LANE(i) value
#else
#define LANE(i) NUMBER(LANES * place + i)
#endif
#if LANES == 1
    return LANE(0);
#elif LANES == 2
    return {LANE(0), LANE(1)};
#else
    return {LANE(0), LANE(1), LANE(2), LANE(3)};
#endif
#endif
}

#ifdef PLAIN
typedef element_t *image_t;
#define STORE(col, row, texel) image[(row) * width + (col)] = texel
#else
typedef cudaSurfaceObject_t image_t;
#define STORE(col, row, texel) surf2Dwrite(texel, image, (col) * (int)sizeof(element_t), row)
#endif

extern "C" __global__ void set_texels(image_t image, float value, index_t width, index_t height)
{
    for (int row = FIRST_ROW; row < height; row += STEP_ROWS)
        for (int col = FIRST_COL; col < width; col += STEP_COLS)
            STORE(col, row, texel_of(value, row * (unsigned int)width + col));
}

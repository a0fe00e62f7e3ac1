// Sums the texels of an image by texture fetches, the second document's experiment. As timed, `out`
// is NULL and nothing is stored. The empty assembly takes the sum before that is asked, so the compiler
// can neither leave the fetches out nor move them behind the test. Bytes moved: sizeof(element_t) read
// per texel. With PLAIN the texels lie in a buffer, row by row, and loads take them.
// With WRITTEN every sum is stored, 4 more bytes per texel, to show what the trick saves. With REDUCED
// a block adds its sums up in shared memory and stores one float: the document's other way to keep the
// fetches. It is for MAP_BLOCK, in which a block's first thread always lies in the image.
//
// A grid that covers the image makes each thread fetch one texel. Which one is the mapping:
//   MAP_BLOCK   the "obvious way": a warp takes texels of 32 / blockDim.x rows
//   MAP_ROW     consecutive threads, whatever the block's shape, take consecutive texels of a row
//   MAP_TILE8   ... of a tile of 8 x 8 texels, row by row: a warp takes 8 x 4
//   MAP_MORTON  ... of a tile of 8 x 8 texels in Morton order: 4 consecutive threads take 2 x 2
// The last three go by the thread's index alone, so only the number of threads matters to them. In a
// smaller grid a thread strides over the image by the grid; of the last two only downwards.
//
// FETCHED_LANES: floats that a fetch returns. OFFSET: added to column and row before the fetch.
// SCALE makes every sum a whole number (the texels are whole numbers, a linear filter takes the mean
// of four), so that it can be compared bit by bit; it is applied only to what is stored or added up.
#if FETCHED_LANES == 1
#define FLOATS float
#define SUM(v) (v)
#elif FETCHED_LANES == 2
#define FLOATS float2
#define SUM(v) ((v).x + (v).y)
#else
#define FLOATS float4
#define SUM(v) ((v).x + (v).y + (v).z + (v).w)
#endif

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

#ifdef PLAIN
typedef const element_t *__restrict__ image_t;
#define FETCH(col, row) image[(row) * width + (col)]
#else
typedef cudaTextureObject_t image_t;
#ifdef NORMALISED
#define FETCH(col, row) tex2D<FLOATS>(image, ((col) + OFFSET) * per_width, ((row) + OFFSET) * per_height)
#else
#define FETCH(col, row) tex2D<FLOATS>(image, (float)(col), (float)(row))
#endif
#endif

#if !defined(WRITTEN) && !defined(REDUCED)
// For the proof each texel is taken again and stored, and the first one spoilt if they give another sum.
// Not inlined, so that the timed kernel has no other loop.
__device__ __noinline__ static void prove(float *out, image_t image, index_t width, index_t height,
                                          float per_width, float per_height, float sum)
{
    const int first_row = FIRST_ROW, first_col = FIRST_COL;
    float again = 0.0f;
#pragma unroll 1
    for (int row = first_row; row < height; row += STEP_ROWS)
#pragma unroll 1
        for (int col = first_col; col < width; col += STEP_COLS) {
            const auto texel = FETCH(col, row);
            again += SUM(texel);
            out[row * width + col] = rintf(SUM(texel) * SCALE);
        }
    if (again != sum && first_row < height && first_col < width)
        out[first_row * width + first_col] = -1.0f;
}
#endif

extern "C" __global__ void sum_texels(float *out, image_t image, index_t width, index_t height,
                                      float per_width, float per_height
#ifdef REDUCED
                                      , unsigned int prove
#endif
)
{
    const int first_row = FIRST_ROW, first_col = FIRST_COL;
    float sum = 0.0f;
    // Unrolled, a loop would count its turns by a division first, which costs more than its one turn.
#pragma unroll 1
    for (int row = first_row; row < height; row += STEP_ROWS)
#pragma unroll 1
        for (int col = first_col; col < width; col += STEP_COLS) {
            const auto texel = FETCH(col, row);
            sum += SUM(texel);
        }
#ifdef REDUCED
    __shared__ float sums[1024];
    const unsigned int thread = threadIdx.y * blockDim.x + threadIdx.x;
    sum = sums[thread] = rintf(sum * SCALE);
    for (unsigned int left = THREADS; left > 1;) { // of any number of threads; all come to every barrier
        const unsigned int half = (left + 1) / 2;
        __syncthreads();
        if (thread + half < left)
            sums[thread] += sums[thread + half];
        left = half;
    }
    if (!prove) {
        if (thread == 0)
            out[blockIdx.y * gridDim.x + blockIdx.x] = sums[0];
        return;
    }
    // For the proof each thread stores its own sum, but the first one what the block's leaves of it when
    // all others are subtracted: its own, if the block's is right. Whole numbers below 2^24 add up exactly.
    float rest = sums[0];
    __syncthreads();
    sums[thread] = sum;
    __syncthreads();
    for (unsigned int other = 1; thread == 0 && other < THREADS; other++)
        rest -= sums[other];
    if (first_row < height && first_col < width)
        out[first_row * width + first_col] = thread == 0 ? rest : sum;
#elif defined(WRITTEN)
    if (first_row < height && first_col < width)
        out[first_row * width + first_col] = rintf(sum * SCALE);
#else
    asm volatile("" ::"f"(sum));
    if (out != nullptr)
        prove(out, image, width, height, per_width, per_height, sum);
#endif
}

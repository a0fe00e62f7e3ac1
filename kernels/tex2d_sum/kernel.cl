// Sums the texels of an image by image reads. As timed, `out` is NULL and nothing is stored; whether
// it is NULL is asked after the reads. Bytes moved: sizeof(element_t) read per texel; with WRITTEN
// every sum is stored, 4 more bytes per texel; with REDUCED one sum for each group, 4 bytes.
// Mappings, PLAIN, OFFSET and SCALE are those of kernel.cu. The sampler is a constant here: FILTER and
// ADDRESS are OpenCL's names. Reading always returns four floats; FETCHED_LANES of them are texels.
#if defined(PLAIN) && FETCHED_LANES == 1
#define SUM(v) (v)
#elif FETCHED_LANES == 1
#define SUM(v) ((v).x)
#elif FETCHED_LANES == 2
#define SUM(v) ((v).x + (v).y)
#else
#define SUM(v) ((v).x + (v).y + (v).z + (v).w)
#endif

#ifdef PLAIN
#define IMAGE __global const element_t *
#define TEXEL_TYPE element_t
#define FETCH(col, row) image[(row) * width + (col)]
#else
#define IMAGE read_only image2d_t
#define TEXEL_TYPE float4
#define FETCH(col, row) read_imagef(image, sampler, PLACE(col, row))
#ifdef NORMALISED
#define COORDINATES CLK_NORMALIZED_COORDS_TRUE
#define PLACE(col, row) (float2)(((col) + OFFSET) * per_width, ((row) + OFFSET) * per_height)
#else
#define COORDINATES CLK_NORMALIZED_COORDS_FALSE
#define PLACE(col, row) (float2)((float)(col), (float)(row))
#endif
__constant sampler_t sampler = COORDINATES | ADDRESS | FILTER;
#endif

#define THREADS (get_local_size(0) * get_local_size(1))
#define INDEX (get_group_id(0) * THREADS + get_local_id(1) * get_local_size(0) + get_local_id(0))
#if defined(MAP_BLOCK)
#define FIRST_COL (get_group_id(0) * get_local_size(0) + get_local_id(0))
#define FIRST_ROW (get_group_id(1) * get_local_size(1) + get_local_id(1))
#define STEP_COLS (get_local_size(0) * get_num_groups(0))
#define STEP_ROWS (get_local_size(1) * get_num_groups(1))
#elif defined(MAP_ROW)
#define FIRST_COL INDEX
#define FIRST_ROW get_group_id(1)
#define STEP_COLS (THREADS * get_num_groups(0))
#define STEP_ROWS get_num_groups(1)
#else // a strip of tiles for each row of groups; its groups must cover it
#if defined(MAP_TILE8)
#define IN_TILE_COL(i) ((i) & 7)
#define IN_TILE_ROW(i) ((i) >> 3 & 7)
#else // MAP_MORTON: even bits are the column's, odd bits the row's
#define IN_TILE_COL(i) (((i) & 1) | ((i) >> 1 & 2) | ((i) >> 2 & 4))
#define IN_TILE_ROW(i) (((i) >> 1 & 1) | ((i) >> 2 & 2) | ((i) >> 3 & 4))
#endif
#define FIRST_COL ((INDEX >> 6) * 8 + IN_TILE_COL(INDEX))
#define FIRST_ROW (get_group_id(1) * 8 + IN_TILE_ROW(INDEX))
#define STEP_COLS (THREADS * get_num_groups(0) / 8)
#define STEP_ROWS (get_num_groups(1) * 8)
#endif

__kernel void sum_texels(__global float *out, IMAGE image, index_t width, index_t height,
                         float per_width, float per_height
#ifdef REDUCED
                         , uint prove
#endif
)
{
    const int first_row = FIRST_ROW, first_col = FIRST_COL;
    float sum = 0.0f;
    for (int row = first_row; row < height; row += STEP_ROWS)
        for (int col = first_col; col < width; col += STEP_COLS) {
            const TEXEL_TYPE texel = FETCH(col, row);
            sum += SUM(texel);
        }
#ifdef REDUCED // as in kernel.cu; a group may have 64 x 64 work-items on a CPU, and no more here
    // No barrier stands behind a test of `prove`: PoCL 3 then runs the wrong side of it.
    __local float sums[4096], own[4096];
    const uint thread = get_local_id(1) * get_local_size(0) + get_local_id(0);
    sum = sums[thread] = own[thread] = rint(sum * SCALE);
    for (uint left = THREADS; left > 1;) {
        const uint half_of_them = (left + 1) / 2;
        barrier(CLK_LOCAL_MEM_FENCE);
        if (thread + half_of_them < left)
            sums[thread] += sums[thread + half_of_them];
        left = half_of_them;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    float rest = sums[0];
    for (uint other = 1; prove && thread == 0 && other < THREADS; other++)
        rest -= own[other];
    if (!prove && thread == 0)
        out[get_group_id(1) * get_num_groups(0) + get_group_id(0)] = sums[0];
    if (prove && first_row < height && first_col < width)
        out[first_row * width + first_col] = thread == 0 ? rest : sum;
#elif defined(WRITTEN)
    if (first_row < height && first_col < width)
        out[first_row * width + first_col] = rint(sum * SCALE);
#else
    if (!out)
        return;
    float again = 0.0f;
    for (int row = first_row; row < height; row += STEP_ROWS)
        for (int col = first_col; col < width; col += STEP_COLS) {
            const TEXEL_TYPE texel = FETCH(col, row);
            again += SUM(texel);
            out[row * width + col] = rint(SUM(texel) * SCALE);
        }
    if (again != sum && first_row < height && first_col < width)
        out[first_row * width + first_col] = -1.0f;
#endif
}

// Writes every texel of an image. Bytes moved: sizeof(element_t) written per texel.
// The mappings, PLAIN and what is written are those of kernel.cu.
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

// Word k of all the image's words is k times an odd constant; a float holds its upper 24 bits.
#define WORD(k) ((k) * 2654435761u)
#define NUMBER(k) ((float)(WORD(k) >> 8))

static inline float4 texel_of(float value, uint place)
{
#if defined(BYTES)
#ifdef VALUE_ONE
    return (float4)(value / 255.0f);
#else
    const uint w = WORD(place);
    return convert_float4((uint4)(w & 255, w >> 8 & 255, w >> 16 & 255, w >> 24)) / 255.0f;
#endif
#elif defined(VALUE_ONE)
    return (float4)(value);
#elif LANES == 1
    return (float4)(NUMBER(place), 0.0f, 0.0f, 0.0f);
#elif LANES == 2
    return (float4)(NUMBER(2 * place), NUMBER(2 * place + 1), 0.0f, 0.0f);
#else
    return (float4)(NUMBER(4 * place), NUMBER(4 * place + 1), NUMBER(4 * place + 2), NUMBER(4 * place + 3));
#endif
}

#ifdef PLAIN
#define IMAGE __global element_t *
#if defined(BYTES)
#define PACKED(texel) convert_uchar4_rte(255.0f * (texel))
#elif LANES == 1
#define PACKED(texel) (texel).x
#elif LANES == 2
#define PACKED(texel) (texel).xy
#else
#define PACKED(texel) texel
#endif
#define STORE(col, row, texel) image[(row) * width + (col)] = PACKED(texel)
#else
#define IMAGE write_only image2d_t
#define STORE(col, row, texel) write_imagef(image, (int2)(col, row), texel)
#endif

__kernel void set_texels(IMAGE image, float value, index_t width, index_t height)
{
    for (int row = FIRST_ROW; row < height; row += STEP_ROWS)
        for (int col = FIRST_COL; col < width; col += STEP_COLS)
            STORE(col, row, texel_of(value, row * (uint)width + col));
}

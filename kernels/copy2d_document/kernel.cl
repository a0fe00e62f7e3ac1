// The first document's tile copy with its shape fixed when it is compiled: a TILE x TILE tile per
// group of TILE x ROWS work-items, so that each copies TILE / ROWS elements of one column.
// Bytes moved: sizeof(element_t) read and sizeof(element_t) written per element.
//
// MAY_ALIAS is the kernel as published: since dst might overlap src, the compiler must finish each
// store before the next load. Without it the pointers are declared distinct.
typedef struct { float x, y, z; } packed_float3;

#ifdef MAY_ALIAS
#define DISTINCT
#else
#define DISTINCT restrict
#endif

#define COPY_ROWS(ROWS)                                                                         \
    __kernel void copy_rows_##ROWS(__global element_t *DISTINCT dst,                            \
                                   __global const element_t *DISTINCT src, const index_t width, \
                                   const index_t height)                                        \
    {                                                                                           \
        const index_t x = (index_t)get_group_id(0) * TILE + get_local_id(0);                    \
        const index_t y = (index_t)get_group_id(1) * TILE + get_local_id(1);                    \
        if (x >= width)                                                                         \
            return;                                                                             \
        for (int i = 0; y + i < height && i < TILE; i += ROWS)                                  \
            dst[(y + i) * width + x] = src[(y + i) * width + x];                                \
    }

COPY_ROWS(1)
COPY_ROWS(2)
COPY_ROWS(4)
COPY_ROWS(8)
COPY_ROWS(16)
COPY_ROWS(32)

// The first document's tile copy with its shape fixed when it is compiled: a TILE x TILE tile per
// block of TILE x ROWS threads, so that each thread copies TILE / ROWS elements of one column.
// Bytes moved: sizeof(element_t) read and sizeof(element_t) written per element.
//
// MAY_ALIAS is the kernel as published: since dst might overlap src, the compiler must finish each
// store before the next load, and a thread has one load in flight. Without it the pointers are
// declared distinct and all loads of a thread are issued before its first store.
#ifdef MAY_ALIAS
#define DISTINCT
#else
#define DISTINCT __restrict__
#endif

#define COPY_ROWS(ROWS)                                                                             \
    extern "C" __global__ void copy_rows_##ROWS(element_t *DISTINCT dst,                            \
                                                const element_t *DISTINCT src,                      \
                                                index_t width,                                      \
                                                index_t height)                                     \
    {                                                                                               \
        const index_t x = (index_t)blockIdx.x * TILE + threadIdx.x;                                 \
        const index_t y = (index_t)blockIdx.y * TILE + threadIdx.y;                                 \
        if (x >= width)                                                                             \
            return;                                                                                 \
        dst += y * width + x;                                                                       \
        src += y * width + x;                                                                       \
        if (y + TILE - ROWS < height) {                                                             \
            _Pragma("unroll") for (int i = 0; i < TILE; i += ROWS) dst[i * width] = src[i * width]; \
        } else {                                                                                    \
            for (int i = 0; y + i < height && i < TILE; i += ROWS)                                  \
                dst[i * width] = src[i * width];                                                    \
        }                                                                                           \
    }

COPY_ROWS(1)
COPY_ROWS(2)
COPY_ROWS(4)
COPY_ROWS(8)
COPY_ROWS(16)
COPY_ROWS(32)

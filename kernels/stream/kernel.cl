// One pass over whole arrays, as in the STREAM benchmark. COPY: dst = x. MUL: dst = s x. ADD:
// dst = x + y. TRIAD: dst = x + s y. A group takes get_local_size(0) * UNROLL consecutive elements,
// each work-item UNROLL side by side.
// Bytes moved per element: sizeof(element_t) read of each operand, sizeof(element_t) written.

// A power of two: the product is exact, so a fused multiply-add gives what two roundings give.
#define SCALAR ((element_t)0.5)

#if defined(COPY)
#define RESULT(x, y) (x)
#elif defined(MUL)
#define RESULT(x, y) (SCALAR * (x))
#elif defined(ADD)
#define RESULT(x, y) ((x) + (y))
#elif defined(TRIAD)
#define RESULT(x, y) ((x) + SCALAR * (y))
#endif

#define LOAD1(at, from) ((from)[at])
#define STORE1(value, at, to) ((to)[at] = (value))
#define LOAD2(at, from) vload2(at, from)
#define STORE2(value, at, to) vstore2(value, at, to)
#define LOAD4(at, from) vload4(at, from)
#define STORE4(value, at, to) vstore4(value, at, to)

// UNROLL elements as vectors of WIDTH: no vector is wider than 32 bytes, for which PoCL 3 writes programs
// without kernels on CPUs that it does not know. Where RESULT has no y, the compiler leaves its load out.
#define STREAM(UNROLL, WIDTH)                                                                       \
    __kernel void stream_##UNROLL(__global element_t *restrict dst,                                 \
                                  __global const element_t *restrict x,                             \
                                  __global const element_t *restrict y, const index_t n)            \
    {                                                                                               \
        const index_t piece = (index_t)get_local_size(0) * UNROLL, first = get_group_id(0) * piece; \
        if (first + piece <= n) {                                                                   \
            const index_t mine = get_global_id(0) * (UNROLL / WIDTH);                               \
            for (index_t i = mine; i < mine + UNROLL / WIDTH; ++i)                                  \
                STORE##WIDTH(RESULT(LOAD##WIDTH(i, x), LOAD##WIDTH(i, y)), i, dst);                 \
        } else {                                                                                    \
            for (index_t k = first + get_local_id(0); k < n; k += get_local_size(0))                \
                dst[k] = RESULT(x[k], y[k]);                                                        \
        }                                                                                           \
    }

STREAM(1, 1)
STREAM(2, 2)
STREAM(4, 4)
STREAM(8, 4)

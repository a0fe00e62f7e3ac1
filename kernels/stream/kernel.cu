// One pass over whole arrays, as in the STREAM benchmark. COPY: dst = x. MUL: dst = s x. ADD:
// dst = x + y. TRIAD: dst = x + s y. A block takes blockDim.x * UNROLL consecutive elements, each
// thread UNROLL of them: loads and stores of up to 16 bytes, all loads before the first store.
// Bytes moved per element: sizeof(element_t) read of each operand, sizeof(element_t) written.

// A power of two: the product is exact, so a fused multiply-add gives what two roundings give.
#define SCALAR ((element_t)0.5)

#if defined(COPY)
#define OPERANDS 1
#define RESULT(x, y) (x)
#elif defined(MUL)
#define OPERANDS 1
#define RESULT(x, y) (SCALAR * (x))
#elif defined(ADD)
#define OPERANDS 2
#define RESULT(x, y) ((x) + (y))
#elif defined(TRIAD)
#define OPERANDS 2
#define RESULT(x, y) ((x) + SCALAR * (y))
#endif

template <int UNROLL>
__device__ static inline void stream(element_t *__restrict__ dst, const element_t *__restrict__ x,
                                     const element_t *__restrict__ y, index_t n)
{
    constexpr int WIDEST = 16 / sizeof(element_t), LANES = UNROLL < WIDEST ? UNROLL : WIDEST;
    constexpr int PACKS = UNROLL / LANES;
    struct alignas(LANES * sizeof(element_t)) pack { element_t v[LANES]; };

    const index_t piece = (index_t)blockDim.x * UNROLL;
    const index_t first = blockIdx.x * piece;
    if (first + piece > n) {
        for (index_t i = first + threadIdx.x; i < n; i += blockDim.x)
            dst[i] = RESULT(x[i], y[i]);
        return;
    }
    pack a[PACKS], b[PACKS] = {};
#pragma unroll
    for (int p = 0; p < PACKS; ++p) {
        a[p] = ((const pack *)(x + first))[p * blockDim.x + threadIdx.x];
#if OPERANDS == 2
        b[p] = ((const pack *)(y + first))[p * blockDim.x + threadIdx.x];
#endif
    }
#pragma unroll
    for (int p = 0; p < PACKS; ++p) {
        pack result;
        for (int k = 0; k < LANES; ++k)
            result.v[k] = RESULT(a[p].v[k], b[p].v[k]);
        ((pack *)(dst + first))[p * blockDim.x + threadIdx.x] = result;
    }
}

#define STREAM(UNROLL)                                                \
    extern "C" __global__ void stream_##UNROLL(                       \
        element_t *__restrict__ dst, const element_t *__restrict__ x, \
        const element_t *__restrict__ y, index_t n)                   \
    {                                                                 \
        stream<UNROLL>(dst, x, y, n);                                 \
    }

STREAM(1)
STREAM(2)
STREAM(4)
STREAM(8)

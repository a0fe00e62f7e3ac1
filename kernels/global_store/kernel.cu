// Writes n consecutive elements. A block takes `passes` pieces of blockDim.x * UNROLL elements, one
// after the other; each 32-bit word is its index times an odd constant.
// Bytes moved: sizeof(element_t) written per element.
#define WORDS (sizeof(element_t) / 4)
#define FACTOR 2654435761u
#ifdef STREAMING // the caches are told that nothing is used twice
#define STORE(p, v) __stcs(p, v)
#else
#define STORE(p, v) (*(p) = (v))
#endif

union element_words {
    element_t element;
    unsigned int word[WORDS];
    __device__ element_words() {}
};

__device__ static inline element_t pattern(index_t i)
{
    element_words view;
#pragma unroll
    for (unsigned int k = 0; k < WORDS; ++k)
        view.word[k] = ((unsigned int)i * (unsigned int)WORDS + k) * FACTOR;
    return view.element;
}

#define STORE_PIECES(UNROLL)                                                      \
    extern "C" __global__ void store_##UNROLL(element_t *dst, index_t n,          \
                                              unsigned int passes)                \
    {                                                                             \
        const index_t piece = (index_t)blockDim.x * UNROLL;                       \
        index_t i = (index_t)blockIdx.x * passes * piece + threadIdx.x;           \
        for (unsigned int pass = 0; pass < passes && i < n; ++pass, i += piece) { \
            if (i + piece - blockDim.x < n) {                                     \
                _Pragma("unroll") for (int u = 0; u < UNROLL; ++u)                \
                    STORE(dst + i + u * blockDim.x, pattern(i + u * blockDim.x)); \
            } else {                                                              \
                for (index_t k = i; k < n && k < i + piece; k += blockDim.x)      \
                    dst[k] = pattern(k);                                          \
            }                                                                     \
        }                                                                         \
    }

STORE_PIECES(1)
STORE_PIECES(2)
STORE_PIECES(4)
STORE_PIECES(8)

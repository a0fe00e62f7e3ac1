// Reads n consecutive elements and keeps nothing. A block takes `passes` pieces of
// blockDim.x * UNROLL elements, one after the other; a thread issues its UNROLL loads of a piece
// before it uses the first. Bytes moved: sizeof(element_t) read per element.
//
// Each thread folds what it reads into one word. With `report` it adds that to the bin of its index;
// so the very instructions that are timed are verified. Without, it would only if the fold were
// NEVER (once in 2^32), which the compiler cannot know, so no load can be left out.
#define WORDS (sizeof(element_t) / 4)
#define BINS 32
#define NEVER 0x9E3779B9u
#ifdef STREAMING // the caches are told that nothing is used twice
#define LOAD(p) __ldcs(p)
#else
#define LOAD(p) (*(p))
#endif

union element_words {
    element_t element;
    unsigned int word[WORDS];
    __device__ element_words() {}
};

__device__ static inline unsigned int fold(element_t element)
{
    element_words view;
    view.element = element;
    unsigned int folded = view.word[0];
#pragma unroll
    for (unsigned int k = 1; k < WORDS; ++k)
        folded ^= view.word[k] << 7 * k | view.word[k] >> (32 - 7 * k);
    return folded;
}

#define LOAD_PIECES(UNROLL)                                                                   \
    extern "C" __global__ void load_##UNROLL(unsigned int *bins,                              \
                                             const element_t *__restrict__ src,               \
                                             index_t n, unsigned int passes,                  \
                                             unsigned int report)                             \
    {                                                                                         \
        const index_t piece = (index_t)blockDim.x * UNROLL;                                   \
        index_t i = (index_t)blockIdx.x * passes * piece + threadIdx.x;                       \
        unsigned int folded = 0;                                                              \
        for (unsigned int pass = 0; pass < passes && i < n; ++pass, i += piece) {             \
            if (i + piece - blockDim.x < n) {                                                 \
                element_t values[UNROLL];                                                     \
                _Pragma("unroll") for (int u = 0; u < UNROLL; ++u) values[u] =                \
                    LOAD(src + i + u * blockDim.x);                                           \
                _Pragma("unroll") for (int u = 0; u < UNROLL; ++u) folded ^= fold(values[u]); \
            } else {                                                                          \
                for (index_t k = i; k < n && k < i + piece; k += blockDim.x)                  \
                    folded ^= fold(src[k]);                                                   \
            }                                                                                 \
        }                                                                                     \
        if (report || folded == NEVER)                                                        \
            atomicXor(bins + threadIdx.x % BINS, folded);                                     \
    }

LOAD_PIECES(1)
LOAD_PIECES(2)
LOAD_PIECES(4)
LOAD_PIECES(8)

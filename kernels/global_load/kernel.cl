// Reads n consecutive elements and keeps nothing. A block takes `passes` pieces of
// get_local_size(0) * UNROLL elements, one after the other; a thread issues its UNROLL loads of a piece
// before it uses the first. Bytes moved: sizeof(element_t) read per element.
//
// Each thread folds what it reads into one word. With `report` it adds that to the bin of its index;
// so the very instructions that are timed are verified. Without, it would only if the fold were
// NEVER (once in 2^32), which the compiler cannot know, so no load can be left out.
// OpenCL C cannot tell the caches that data are used once: both variants are the same.
#define WORDS (sizeof(element_t) / 4)
#define BINS 32
#define NEVER 0x9E3779B9u

typedef union {
    element_t element;
    uint word[WORDS];
} element_words;

static inline uint fold(element_t element)
{
    element_words view;
    view.element = element;
    uint folded = view.word[0];
    for (uint k = 1; k < WORDS; ++k)
        folded ^= view.word[k] << 7 * k | view.word[k] >> (32 - 7 * k);
    return folded;
}

#define LOAD_PIECES(UNROLL)                                                                               \
    __kernel void load_##UNROLL(                                                                          \
        __global uint *bins, __global const element_t *restrict src, index_t n, uint passes, uint report) \
    {                                                                                                     \
        const index_t piece = (index_t)get_local_size(0) * UNROLL;                                        \
        index_t i = (index_t)get_group_id(0) * passes * piece + get_local_id(0);                          \
        uint folded = 0;                                                                                  \
        for (uint pass = 0; pass < passes && i < n; ++pass, i += piece) {                                 \
            if (i + piece - get_local_size(0) < n) {                                                      \
                element_t values[UNROLL];                                                                 \
                for (int u = 0; u < UNROLL; ++u) values[u] = src[i + u * get_local_size(0)];              \
                for (int u = 0; u < UNROLL; ++u) folded ^= fold(values[u]);                               \
            } else {                                                                                      \
                for (index_t k = i; k < n && k < i + piece; k += get_local_size(0))                       \
                    folded ^= fold(src[k]);                                                               \
            }                                                                                             \
        }                                                                                                 \
        if (report || folded == NEVER)                                                                    \
            atomic_xor(bins + get_local_id(0) % BINS, folded);                                            \
    }

LOAD_PIECES(1)
LOAD_PIECES(2)
LOAD_PIECES(4)
LOAD_PIECES(8)

// Writes n consecutive elements. A block takes `passes` pieces of get_local_size(0) * UNROLL elements, one
// after the other; each 32-bit word is its index times an odd constant.
// Bytes moved: sizeof(element_t) written per element.
// OpenCL C cannot tell the caches that data are used once: both variants are the same.
#define WORDS (sizeof(element_t) / 4)
#define FACTOR 2654435761u

typedef union {
    element_t element;
    uint word[WORDS];
} element_words;

static inline element_t pattern(index_t i)
{
    element_words view;
    for (uint k = 0; k < WORDS; ++k)
        view.word[k] = ((uint)i * (uint)WORDS + k) * FACTOR;
    return view.element;
}

#define STORE_PIECES(UNROLL)                                                             \
    __kernel void store_##UNROLL(__global element_t *dst, index_t n, uint passes)        \
    {                                                                                    \
        const index_t piece = (index_t)get_local_size(0) * UNROLL;                       \
        index_t i = (index_t)get_group_id(0) * passes * piece + get_local_id(0);         \
        for (uint pass = 0; pass < passes && i < n; ++pass, i += piece) {                \
            if (i + piece - get_local_size(0) < n) {                                     \
                for (int u = 0; u < UNROLL; ++u)                                         \
                    dst[i + u * get_local_size(0)] = pattern(i + u * get_local_size(0)); \
            } else {                                                                     \
                for (index_t k = i; k < n && k < i + piece; k += get_local_size(0))      \
                    dst[k] = pattern(k);                                                 \
            }                                                                            \
        }                                                                                \
    }

STORE_PIECES(1)
STORE_PIECES(2)
STORE_PIECES(4)
STORE_PIECES(8)

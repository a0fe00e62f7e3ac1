// Copies n consecutive elements. A block takes `passes` pieces of blockDim.x * UNROLL elements, one
// after the other; a thread issues its UNROLL loads of a piece before its first store.
// Bytes moved: sizeof(element_t) read and sizeof(element_t) written per element.
#ifdef STREAMING // the caches are told that nothing is used twice
#define LOAD(p) __ldcs(p)
#define STORE(p, v) __stcs(p, v)
#else
#define LOAD(p) (*(p))
#define STORE(p, v) (*(p) = (v))
#endif

#define COPY(UNROLL)                                                              \
    extern "C" __global__ void copy_##UNROLL(element_t *__restrict__ dst,         \
                                             const element_t *__restrict__ src,   \
                                             index_t n, unsigned int passes)      \
    {                                                                             \
        const index_t piece = (index_t)blockDim.x * UNROLL;                       \
        index_t i = (index_t)blockIdx.x * passes * piece + threadIdx.x;           \
        for (unsigned int pass = 0; pass < passes && i < n; ++pass, i += piece) { \
            if (i + piece - blockDim.x < n) {                                     \
                element_t values[UNROLL];                                         \
                _Pragma("unroll") for (int u = 0; u < UNROLL; ++u) values[u] =    \
                    LOAD(src + i + u * blockDim.x);                               \
                _Pragma("unroll") for (int u = 0; u < UNROLL; ++u)                \
                    STORE(dst + i + u * blockDim.x, values[u]);                   \
            } else {                                                              \
                for (index_t k = i; k < n && k < i + piece; k += blockDim.x)      \
                    dst[k] = src[k];                                              \
            }                                                                     \
        }                                                                         \
    }

COPY(1)
COPY(2)
COPY(4)
COPY(8)

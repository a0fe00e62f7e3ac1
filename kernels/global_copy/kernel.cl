// Copies n consecutive elements. A block takes `passes` pieces of get_local_size(0) * UNROLL elements, one
// after the other; a thread issues its UNROLL loads of a piece before its first store.
// Bytes moved: sizeof(element_t) read and sizeof(element_t) written per element.
// OpenCL C cannot tell the caches that data are used once: both variants are the same.

#define COPY(UNROLL)                                                                                      \
    __kernel void copy_##UNROLL(                                                                          \
        __global element_t *restrict dst, __global const element_t *restrict src, index_t n, uint passes) \
    {                                                                                                     \
        const index_t piece = (index_t)get_local_size(0) * UNROLL;                                        \
        index_t i = (index_t)get_group_id(0) * passes * piece + get_local_id(0);                          \
        for (uint pass = 0; pass < passes && i < n; ++pass, i += piece) {                                 \
            if (i + piece - get_local_size(0) < n) {                                                      \
                element_t values[UNROLL];                                                                 \
                for (int u = 0; u < UNROLL; ++u) values[u] = src[i + u * get_local_size(0)];              \
                for (int u = 0; u < UNROLL; ++u)                                                          \
                    dst[i + u * get_local_size(0)] = values[u];                                           \
            } else {                                                                                      \
                for (index_t k = i; k < n && k < i + piece; k += get_local_size(0))                       \
                    dst[k] = src[k];                                                                      \
            }                                                                                             \
        }                                                                                                 \
    }

COPY(1)
COPY(2)
COPY(4)
COPY(8)

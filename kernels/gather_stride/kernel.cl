// Reads elements `stride` apart and writes them side by side: elements 0, stride, 2 stride, ...,
// then 1, 1 + stride, and so on, as one takes the fields of structures apart. get_group_id(1) is
// the first element; `whole` = n / stride, `rest` = n % stride. With `back` each goes where it
// came from, so that the very loads that are timed are verified.
// Bytes moved: sizeof(element_t) read and written per element; a device fetches whole sectors.

// Elements of a work-item: all loads before the first store.
#define EACH 4

__kernel void gather(__global element_t *restrict dst, __global const element_t *restrict src,
                     const index_t whole, const uint rest, const uint stride, const uint back)
{
    const index_t first = get_group_id(1), count = whole + (first < rest);
    const index_t start = first * whole + min(first, (index_t)rest);
    const index_t mine = get_group_id(0) * get_local_size(0) * EACH + get_local_id(0);
    element_t values[EACH];
    for (uint u = 0; u < EACH; ++u) {
        const index_t k = mine + u * get_local_size(0);
        if (k < count)
            values[u] = src[first + k * stride];
    }
    for (uint u = 0; u < EACH; ++u) {
        const index_t k = mine + u * get_local_size(0);
        if (k < count)
            dst[back ? first + k * stride : start + k] = values[u];
    }
}

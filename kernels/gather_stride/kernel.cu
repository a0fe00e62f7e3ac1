// Reads elements `stride` apart and writes them side by side: elements 0, stride, 2 stride, ...,
// then 1, 1 + stride, and so on, as one takes the fields of structures apart. blockIdx.y is the
// first element; `whole` = n / stride, `rest` = n % stride. With `back` each goes where it came
// from, so that the very loads that are timed are verified.
// Bytes moved: sizeof(element_t) read and written per element; a device fetches whole sectors.

// Elements of a thread: all loads before the first store.
#define EACH 4

extern "C" __global__ void gather(element_t *__restrict__ dst, const element_t *__restrict__ src,
                                  index_t whole, unsigned int rest, unsigned int stride,
                                  unsigned int back)
{
    const index_t first = blockIdx.y, count = whole + (first < rest);
    const index_t start = first * whole + (first < rest ? first : rest);
    const index_t mine = (index_t)blockIdx.x * blockDim.x * EACH + threadIdx.x;
    element_t values[EACH];
#pragma unroll
    for (unsigned int u = 0; u < EACH; ++u) {
        const index_t k = mine + u * blockDim.x;
        if (k < count)
            values[u] = src[first + k * stride];
    }
#pragma unroll
    for (unsigned int u = 0; u < EACH; ++u) {
        const index_t k = mine + u * blockDim.x;
        if (k < count)
            dst[back ? first + k * stride : start + k] = values[u];
    }
}

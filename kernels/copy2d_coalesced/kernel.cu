// Copy of a height x width array of packed elements, row by row, so that neighbouring threads
// touch neighbouring elements. element_t is float, double, the packed 12-byte float3 or float4.
// Bytes moved: sizeof(element_t) read and sizeof(element_t) written per element.

// One element per thread; the grid covers the array, the block shape is free.
extern "C" __global__ void copy_element(element_t *__restrict__ dst, const element_t *__restrict__ src,
                                        index_t width, index_t height)
{
    const index_t x = (index_t)blockIdx.x * blockDim.x + threadIdx.x;
    const index_t y = (index_t)blockIdx.y * blockDim.y + threadIdx.y;
    if (x < width && y < height)
        dst[y * width + x] = src[y * width + x];
}

// One TILE x TILE tile per block: the block walks over its tile in steps of its own shape.
// With a 32 x 8 block this is the first document's copy (four elements per thread).
extern "C" __global__ void copy_tile(element_t *__restrict__ dst, const element_t *__restrict__ src,
                                     index_t width, index_t height)
{
    const index_t x0 = (index_t)blockIdx.x * TILE;
    const index_t y0 = (index_t)blockIdx.y * TILE;
    for (unsigned int ty = threadIdx.y; ty < TILE; ty += blockDim.y)
        for (unsigned int tx = threadIdx.x; tx < TILE; tx += blockDim.x) {
            const index_t x = x0 + tx, y = y0 + ty;
            if (x < width && y < height)
                dst[y * width + x] = src[y * width + x];
        }
}

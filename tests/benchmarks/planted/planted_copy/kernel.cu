extern "C" __global__ void planted_copy(element_t *__restrict__ dst, const element_t *__restrict__ src,
                                        index_t width, index_t height)
{
    const index_t x = (index_t)blockIdx.x * blockDim.x + threadIdx.x;
    const index_t y = ((index_t)blockIdx.y * blockDim.y + threadIdx.y) % height;
    if (x < width)
        dst[y * width + x] = src[y * width + x];
}

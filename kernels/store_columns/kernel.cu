// Writes a height x width array down its columns: neighbouring threads write to different rows. Each
// element is its index. A block writes blockDim.x rows, each thread `turns` elements of one row.
// Bytes moved: sizeof(element_t) written per element; each store of a thread is a part of a sector.
extern "C" __global__ void columns(element_t *dst, index_t height, index_t width, unsigned int turns)
{
    const index_t row = (index_t)blockIdx.x * blockDim.x + threadIdx.x;
    index_t column = (index_t)blockIdx.y * blockDim.y * turns + threadIdx.y;
    if (row >= height)
        return;
#pragma unroll 1
    for (unsigned int turn = 0; turn < turns && column < width; ++turn, column += blockDim.y)
        dst[row * width + column] = (element_t)(row * width + column);
}

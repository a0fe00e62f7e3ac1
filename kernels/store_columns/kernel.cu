// Writes a height x width array down its columns: neighbouring threads write to different rows. Each
// element is its index. A block writes blockDim.x rows, each thread `passes` elements of one row.
// Bytes moved: sizeof(element_t) written per element; each store of a thread is a part of a sector.
extern "C" __global__ void columns(element_t *dst, index_t height, index_t width, unsigned int passes)
{
    const index_t row = (index_t)blockIdx.x * blockDim.x + threadIdx.x;
    index_t column = (index_t)blockIdx.y * blockDim.y * passes + threadIdx.y;
    if (row >= height)
        return;
#pragma unroll 1
    for (unsigned int pass = 0; pass < passes && column < width; ++pass, column += blockDim.y)
        dst[row * width + column] = (element_t)(row * width + column);
}

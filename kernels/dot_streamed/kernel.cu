// Dot product of one piece: a grid-stride loop over groups of four elements, a tree over the block.
// Moves 2 n sizeof(element_t) bytes in, and one element a block out, to partials[first...].
// As in the document a thread takes four elements at a time; what is left over is taken singly.

// Aligned for loads of 16 bytes, which every device has, whatever the type.
struct alignas(16) four { element_t v[4]; };

extern "C" __global__ void dot_piece(const element_t *__restrict__ x, const element_t *__restrict__ y,
                                     element_t *partials, const unsigned long long n,
                                     const unsigned long long first)
{
    const unsigned long long step = (unsigned long long)gridDim.x * blockDim.x;
    const unsigned long long mine = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
    const four *x4 = (const four *)x, *y4 = (const four *)y;
    four sum = {};
    for (unsigned long long i = mine; i < n / 4; i += step) {
        const four a = x4[i], b = y4[i];
        for (int k = 0; k < 4; k++)
            sum.v[k] += a.v[k] * b.v[k];
    }
    element_t total = (sum.v[0] + sum.v[1]) + (sum.v[2] + sum.v[3]);
    for (unsigned long long i = n / 4 * 4 + mine; i < n; i += step)
        total += x[i] * y[i];

    // A tree for any number of threads; every thread comes to every barrier.
    __shared__ element_t sums[1024];
    sums[threadIdx.x] = total;
    for (unsigned int width = 1; width < blockDim.x; width *= 2) {
        __syncthreads();
        if (threadIdx.x % (2 * width) == 0 && threadIdx.x + width < blockDim.x)
            sums[threadIdx.x] += sums[threadIdx.x + width];
    }
    if (threadIdx.x == 0)
        partials[first + blockIdx.x] = sums[0];
}

// As the document prints it: a vector of four sums a thread, kept apart through the block's tree (the
// threads are a power of two), and one such vector a block, partials[4 (first + block) ...].
extern "C" __global__ void dot_published(const element_t *x, const element_t *y, element_t *partials,
                                         const unsigned long long n, const unsigned long long first)
{
    __shared__ four sums[1024];
    const four *x4 = (const four *)x, *y4 = (const four *)y;
    four sum = {};
    const unsigned long long vectors = n / 4, step = (unsigned long long)gridDim.x * blockDim.x;
    for (unsigned long long i = blockIdx.x * blockDim.x + threadIdx.x; i < vectors; i += step) {
        const four a = x4[i], b = y4[i];
        for (int k = 0; k < 4; k++)
            sum.v[k] = fma(a.v[k], b.v[k], sum.v[k]);
    }
    sums[threadIdx.x] = sum;
    for (unsigned int width = blockDim.x / 2; width > 0; width /= 2) {
        __syncthreads();
        if (threadIdx.x < width)
            for (int k = 0; k < 4; k++)
                sums[threadIdx.x].v[k] += sums[threadIdx.x + width].v[k];
    }
    if (threadIdx.x < 1)
        ((four *)partials)[first + blockIdx.x] = *sums;
}

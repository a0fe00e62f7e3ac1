// Sum of an array, in one launch. Blocks take pieces of blockDim.x * UNROLL consecutive elements in
// turn, each thread UNROLL of them, in loads of up to 16 bytes; a block adds up as a tree in shared
// memory. The block that ends last adds up the sums that all have left.
// Bytes moved: sizeof(element_t) read per element.

template <int UNROLL>
__device__ static inline element_t thread_sum(const element_t *__restrict__ x, unsigned long long n)
{
    constexpr int WIDEST = 16 / sizeof(element_t), LANES = UNROLL < WIDEST ? UNROLL : WIDEST;
    constexpr int PACKS = UNROLL / LANES;
    struct alignas(LANES * sizeof(element_t)) pack { element_t v[LANES]; };

    const unsigned long long piece = (unsigned long long)blockDim.x * UNROLL;
    unsigned long long first = blockIdx.x * piece;
    pack sum = {};
    for (; first + piece <= n; first += gridDim.x * piece) {
        pack a[PACKS];
#pragma unroll
        for (int p = 0; p < PACKS; ++p)
            a[p] = ((const pack *)(x + first))[p * blockDim.x + threadIdx.x];
#pragma unroll
        for (int p = 0; p < PACKS; ++p)
            for (int k = 0; k < LANES; ++k)
                sum.v[k] += a[p].v[k];
    }
    element_t total = 0;
    for (int k = 0; k < LANES; ++k)
        total += sum.v[k];
    // One block has what is left over.
    for (unsigned long long i = first + threadIdx.x; i < n; i += blockDim.x)
        total += x[i];
    return total;
}

// A tree for any number of threads; all of them get the sum.
__device__ static inline element_t block_sum(element_t mine)
{
    __shared__ element_t sums[1024];
    __syncthreads();
    sums[threadIdx.x] = mine;
    for (unsigned int left = blockDim.x, half; left > 1; left = half) {
        half = (left + 1) / 2;
        __syncthreads();
        if (threadIdx.x < left - half)
            sums[threadIdx.x] += sums[threadIdx.x + half];
    }
    __syncthreads();
    return sums[0];
}

// `done` counts the blocks that have left their sum; it is 0 before and after each launch.
__device__ static inline void finish(element_t mine, element_t *dst, element_t *partials,
                                     unsigned int *done)
{
    __shared__ bool last;
    mine = block_sum(mine);
    if (threadIdx.x == 0) {
        partials[blockIdx.x] = mine;
        // Others see the sum before they see the count.
        __threadfence();
        last = atomicAdd(done, 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (!last)
        return;
    __threadfence();
    element_t rest = 0;
    for (unsigned int i = threadIdx.x; i < gridDim.x; i += blockDim.x)
        rest += ((volatile element_t *)partials)[i];
    rest = block_sum(rest);
    if (threadIdx.x == 0) {
        *dst = rest;
        *done = 0;
    }
}

#define SUM(UNROLL)                                                                        \
    extern "C" __global__ void sum_##UNROLL(                                               \
        const element_t *__restrict__ x, element_t *dst, element_t *partials,              \
        unsigned int *done, unsigned long long n)                                          \
    {                                                                                      \
        finish(thread_sum<UNROLL>(x, n), dst, partials, done);                             \
    }

SUM(1)
SUM(2)
SUM(4)
SUM(8)

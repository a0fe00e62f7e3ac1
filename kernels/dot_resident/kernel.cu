// Dot product of vectors that lie on the device, in one launch. Moves 2 n sizeof(element_t) bytes in.
// A grid-stride loop over packs of 16 bytes; a thread issues the loads of UNROLL packs of each vector
// before it uses the first. A block leaves one partial sum, and the last block to do so adds them up.

#define LANES (16 / sizeof(element_t))

struct alignas(16) pack { element_t v[LANES]; };

// A tree for any number of threads; every thread comes to every barrier. Thread 0 gets the sum.
__device__ static inline element_t block_sum(element_t *sums, element_t mine)
{
    sums[threadIdx.x] = mine;
    for (unsigned int width = 1; width < blockDim.x; width *= 2) {
        __syncthreads();
        if (threadIdx.x % (2 * width) == 0 && threadIdx.x + width < blockDim.x)
            sums[threadIdx.x] += sums[threadIdx.x + width];
    }
    return sums[threadIdx.x];
}

template <int UNROLL>
__device__ static inline element_t thread_sum(const element_t *__restrict__ x,
                                              const element_t *__restrict__ y, unsigned long long n)
{
    const unsigned long long step = (unsigned long long)gridDim.x * blockDim.x, packs = n / LANES;
    const unsigned long long mine = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
    const pack *px = (const pack *)x, *py = (const pack *)y;
    pack sum = {};
    unsigned long long i = mine;
    for (; i + (UNROLL - 1) * step < packs; i += UNROLL * step) {
        pack a[UNROLL], b[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            a[u] = px[i + u * step];
            b[u] = py[i + u * step];
        }
#pragma unroll
        for (int u = 0; u < UNROLL; u++)
            for (int k = 0; k < LANES; k++)
                sum.v[k] += a[u].v[k] * b[u].v[k];
    }
    // What is left over: packs, then elements.
    for (; i < packs; i += step)
        for (int k = 0; k < LANES; k++)
            sum.v[k] += px[i].v[k] * py[i].v[k];
    element_t total = 0;
    for (int k = 0; k < LANES; k++)
        total += sum.v[k];
    for (i = packs * LANES + mine; i < n; i += step)
        total += x[i] * y[i];
    return total;
}

// `done` counts the blocks that have left their sum; it is 0 before and after each launch.
__device__ static inline void finish(element_t mine, element_t *dst, element_t *partials,
                                     unsigned int *done)
{
    __shared__ element_t sums[1024];
    __shared__ bool last;
    const element_t total = block_sum(sums, mine);
    if (threadIdx.x == 0) {
        partials[blockIdx.x] = total;
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
    rest = block_sum(sums, rest);
    if (threadIdx.x == 0) {
        *dst = rest;
        *done = 0;
    }
}

#define DOT(UNROLL)                                                                               \
    extern "C" __global__ void dot_##UNROLL(const element_t *__restrict__ x,                      \
                                            const element_t *__restrict__ y, element_t *dst,      \
                                            element_t *partials, unsigned int *done,              \
                                            const unsigned long long n)                           \
    {                                                                                             \
        finish(thread_sum<UNROLL>(x, y, n), dst, partials, done);                                 \
    }

DOT(1)
DOT(2)
DOT(4)
DOT(8)

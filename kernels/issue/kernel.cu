// Independent fused multiply-adds from registers to registers, ACCUMULATORS * REPEATED of them a step:
// how fast instructions are issued, and the peak of work. `factor` and `addend` are 1, which the
// compiler does not know. All threads end with the same sum but for their lane; those that have
// `expected` count themselves, from a word of all ones on, and the last of the grid stores DONE. A timed
// launch expects a sum that none has: it stores nothing, and no instruction can be left out. Bytes
// moved: none then.
#define DONE 0x600D1550u
#define ACCUMULATORS 8
#define REPEATED 32

extern "C" __global__ void issue(unsigned int *dst, element_t factor, element_t addend,
                                 element_t expected, unsigned int steps)
{
    const element_t lane = threadIdx.x % 32;
    element_t a[ACCUMULATORS];
#pragma unroll
    for (int k = 0; k < ACCUMULATORS; ++k)
        a[k] = lane + k;
#pragma unroll 1
    for (unsigned int step = 0; step < steps; ++step)
#pragma unroll
        for (int r = 0; r < REPEATED; ++r)
#pragma unroll
            for (int k = 0; k < ACCUMULATORS; ++k)
                a[k] = fma(a[k], factor, addend);
    element_t sum = 0;
#pragma unroll
    for (int k = 0; k < ACCUMULATORS; ++k)
        sum += a[k] - lane;
    if (sum == expected && atomicAdd(dst, 1) + 2 == gridDim.x * blockDim.x)
        *dst = DONE;
}

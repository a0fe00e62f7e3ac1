// Independent multiply-adds from registers to registers, ACCUMULATORS * REPEATED of them a step: how
// fast instructions are issued. `factor` and `addend` are 1, which the compiler does not know. All
// threads end with the same sum but for their lane; those that have `expected` count themselves, from
// a word of all ones on, and the last of the grid stores DONE. A timed launch expects a sum that none
// has, so that it stores nothing, and no instruction can be left out. Bytes moved: none then.
#define DONE 0x600D1550u
#define ACCUMULATORS 8
#define REPEATED 32

extern "C" __global__ void issue(unsigned int *dst, float factor, float addend, float expected,
                                 unsigned int steps)
{
    const float lane = threadIdx.x % 32;
    float a[ACCUMULATORS];
#pragma unroll
    for (int k = 0; k < ACCUMULATORS; ++k)
        a[k] = lane + k;
#pragma unroll 1
    for (unsigned int step = 0; step < steps; ++step)
#pragma unroll
        for (int r = 0; r < REPEATED; ++r)
#pragma unroll
            for (int k = 0; k < ACCUMULATORS; ++k)
                a[k] = fmaf(a[k], factor, addend);
    float sum = 0;
#pragma unroll
    for (int k = 0; k < ACCUMULATORS; ++k)
        sum += a[k] - lane;
    if (sum == expected && atomicAdd(dst, 1) + 2 == gridDim.x * blockDim.x)
        *dst = DONE;
}

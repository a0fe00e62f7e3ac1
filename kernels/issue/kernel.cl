// Independent multiply-adds from registers to registers, ACCUMULATORS * REPEATED of them a step: how
// fast instructions are issued. `factor` and `addend` are 1, which the compiler does not know. All
// work-items end with the same sum but for their lane; those that have `expected` count themselves,
// from a word of all ones on, and the last of all stores DONE. A timed launch expects a sum that none
// has, so that it stores nothing, and no instruction can be left out. Bytes moved: none then.
#define DONE 0x600D1550u
#define ACCUMULATORS 8
#define REPEATED 32

__kernel void issue(volatile __global uint *dst, const float factor, const float addend,
                    const float expected, const uint steps)
{
    const float lane = get_local_id(0) % 32;
    float a[ACCUMULATORS];
    for (int k = 0; k < ACCUMULATORS; ++k)
        a[k] = lane + k;
    for (uint step = 0; step < steps; ++step)
        for (int r = 0; r < REPEATED; ++r)
            for (int k = 0; k < ACCUMULATORS; ++k)
                a[k] = mad(a[k], factor, addend);
    float sum = 0;
    for (int k = 0; k < ACCUMULATORS; ++k)
        sum += a[k] - lane;
    if (sum == expected && atomic_inc(dst) + 2 == get_global_size(0))
        *dst = DONE;
}

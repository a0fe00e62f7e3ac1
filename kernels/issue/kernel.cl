// Independent fused multiply-adds from registers to registers, ACCUMULATORS * REPEATED of them a step:
// how fast instructions are issued, and the peak of work. `factor` and `addend` are 1, which the
// compiler does not know. All work-items end with the same sum but for their lane; those that have
// `expected` count themselves, from a word of all ones on, and the last of the grid stores DONE. A timed
// launch expects a sum that none has: it stores nothing, and no instruction can be left out. Bytes
// moved: none then.
#define DONE 0x600D1550u
#define ACCUMULATORS 8
#define REPEATED 32

__kernel void issue(volatile __global uint *dst, const element_t factor, const element_t addend,
                    const element_t expected, const uint steps)
{
    const element_t lane = get_local_id(0) % 32;
    element_t a[ACCUMULATORS];
    for (int k = 0; k < ACCUMULATORS; ++k)
        a[k] = lane + k;
    for (uint step = 0; step < steps; ++step)
        for (int r = 0; r < REPEATED; ++r)
            for (int k = 0; k < ACCUMULATORS; ++k)
                a[k] = fma(a[k], factor, addend);
    element_t sum = 0;
    for (int k = 0; k < ACCUMULATORS; ++k)
        sum += a[k] - lane;
    if (sum == expected && atomic_inc(dst) + 2 == get_global_size(0))
        *dst = DONE;
}

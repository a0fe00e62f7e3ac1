// Dot product of vectors that lie on the device, in one launch. Moves 2 n sizeof(element_t) bytes in.
// A grid-stride loop over groups of four; a thread issues the loads of UNROLL groups of each vector
// before it uses the first. A group leaves one partial sum, and the last one to do so adds them up:
// OpenCL 1.2 does not promise that it sees the others' sums after the fence, the devices do.

#define JOINED(a, b) a##b
#define VECTOR(t, lanes) JOINED(t, lanes)
#define four VECTOR(element_t, 4)

// A tree for any number of threads; every thread comes to every barrier. Thread 0 gets the sum.
static inline element_t group_sum(__local element_t *sums, element_t mine)
{
    const size_t thread = get_local_id(0), threads = get_local_size(0);
    barrier(CLK_LOCAL_MEM_FENCE);
    sums[thread] = mine;
    for (size_t width = 1; width < threads; width *= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (thread % (2 * width) == 0 && thread + width < threads)
            sums[thread] += sums[thread + width];
    }
    return sums[thread];
}

// `done` counts the groups that have left their sum; it is 0 before and after each launch.
#define DOT(UNROLL)                                                                               \
    __kernel void dot_##UNROLL(__global const element_t *restrict x,                              \
                               __global const element_t *restrict y, __global element_t *dst,     \
                               volatile __global element_t *partials,                             \
                               volatile __global uint *done, const ulong n)                       \
    {                                                                                             \
        __local element_t sums[1024];                                                             \
        __local uint last;                                                                        \
        const ulong step = get_global_size(0), mine = get_global_id(0), groups = n / 4;           \
        four sum = (four)(0);                                                                     \
        ulong i = mine;                                                                           \
        for (; i + (UNROLL - 1) * step < groups; i += UNROLL * step) {                            \
            four a[UNROLL], b[UNROLL];                                                            \
            for (int u = 0; u < UNROLL; u++) {                                                    \
                a[u] = vload4(i + u * step, x);                                                   \
                b[u] = vload4(i + u * step, y);                                                   \
            }                                                                                     \
            for (int u = 0; u < UNROLL; u++)                                                      \
                sum += a[u] * b[u];                                                               \
        }                                                                                         \
        for (; i < groups; i += step)                                                             \
            sum += vload4(i, x) * vload4(i, y);                                                   \
        element_t total = (sum.x + sum.y) + (sum.z + sum.w);                                      \
        for (i = groups * 4 + mine; i < n; i += step)                                             \
            total += x[i] * y[i];                                                                 \
                                                                                                  \
        /* One tree for both sums: a compiler for CPUs takes seconds for each. */                 \
        for (int end = 0; end < 2; end++) {                                                       \
            total = group_sum(sums, total);                                                       \
            if (get_local_id(0) == 0 && end == 0) {                                               \
                partials[get_group_id(0)] = total;                                                \
                mem_fence(CLK_GLOBAL_MEM_FENCE);                                                  \
                last = atomic_inc(done) == get_num_groups(0) - 1;                                 \
            } else if (get_local_id(0) == 0) {                                                    \
                *dst = total;                                                                     \
                *done = 0;                                                                        \
            }                                                                                     \
            barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);                                  \
            if (!last)                                                                            \
                return;                                                                           \
            total = 0;                                                                            \
            for (size_t k = get_local_id(0); k < get_num_groups(0); k += get_local_size(0))       \
                total += partials[k];                                                             \
        }                                                                                         \
    }

DOT(1)
DOT(2)
DOT(4)
DOT(8)

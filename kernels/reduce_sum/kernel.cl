// Sum of an array, in one launch. Groups take pieces of get_local_size(0) * UNROLL elements in
// turn, each work-item UNROLL side by side; a group adds up as a tree in local memory. The group
// that ends last adds up the sums that all have left: OpenCL 1.2 does not promise that it sees
// them after the fence, the devices do.
// Bytes moved: sizeof(element_t) read per element.

// A tree for any number of work-items; all of them get the sum.
static inline element_t group_sum(__local element_t *sums, element_t mine)
{
    const size_t me = get_local_id(0);
    barrier(CLK_LOCAL_MEM_FENCE);
    sums[me] = mine;
    for (size_t left = get_local_size(0), half_of_them; left > 1; left = half_of_them) {
        half_of_them = (left + 1) / 2;
        barrier(CLK_LOCAL_MEM_FENCE);
        if (me < left - half_of_them)
            sums[me] += sums[me + half_of_them];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    return sums[0];
}

// `done` counts the groups that have left their sum; it is 0 before and after each launch.
#define SUM(UNROLL)                                                                        \
    __kernel void sum_##UNROLL(__global const element_t *restrict x,                       \
                               __global element_t *dst,                                    \
                               volatile __global element_t *partials,                      \
                               volatile __global uint *done, const ulong n)                \
    {                                                                                      \
        __local element_t sums[1024];                                                      \
        __local uint last;                                                                 \
        const ulong piece = (ulong)get_local_size(0) * UNROLL;                             \
        ulong first = get_group_id(0) * piece;                                             \
        element_t sum[UNROLL] = {0}, total = 0;                                            \
        for (; first + piece <= n; first += get_num_groups(0) * piece)                     \
            for (int k = 0; k < UNROLL; ++k) {                                             \
                const ulong i = first + get_local_id(0) * UNROLL + k;                      \
                sum[k] += x[i];                                                            \
            }                                                                              \
        for (int k = 0; k < UNROLL; ++k)                                                   \
            total += sum[k];                                                               \
        for (ulong i = first + get_local_id(0); i < n; i += get_local_size(0))             \
            total += x[i];                                                                 \
        total = group_sum(sums, total);                                                    \
        if (get_local_id(0) == 0) {                                                        \
            partials[get_group_id(0)] = total;                                             \
            mem_fence(CLK_GLOBAL_MEM_FENCE);                                               \
            last = atomic_inc(done) == get_num_groups(0) - 1;                              \
        }                                                                                  \
        barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);                               \
        if (!last)                                                                         \
            return;                                                                        \
        element_t rest = 0;                                                                \
        for (size_t k = get_local_id(0); k < get_num_groups(0); k += get_local_size(0))    \
            rest += partials[k];                                                           \
        rest = group_sum(sums, rest);                                                      \
        if (get_local_id(0) == 0) {                                                        \
            *dst = rest;                                                                   \
            *done = 0;                                                                     \
        }                                                                                  \
    }

SUM(1)
SUM(2)
SUM(4)
SUM(8)

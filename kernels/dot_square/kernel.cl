// Sum of the squares of one piece: a grid-stride loop over groups of four elements, a tree over the
// block. Moves n sizeof(element_t) bytes in, and one element a block out, to partials[first...].

#define JOINED(a, b) a##b
#define VECTOR(t, lanes) JOINED(t, lanes)

__kernel void dot_piece(__global const element_t *restrict x, __global element_t *partials,
                        const ulong n, const ulong first)
{
    __local element_t sums[1024];
    const size_t thread = get_local_id(0), threads = get_local_size(0);
    VECTOR(element_t, 4) sum = (VECTOR(element_t, 4))(0);
    for (ulong i = get_global_id(0); i < n / 4; i += get_global_size(0)) {
        const VECTOR(element_t, 4) a = vload4(i, x);
        sum += a * a;
    }
    element_t total = (sum.x + sum.y) + (sum.z + sum.w);
    for (ulong i = n / 4 * 4 + get_global_id(0); i < n; i += get_global_size(0))
        total += x[i] * x[i];

    // A tree for any number of threads; every thread comes to every barrier.
    sums[thread] = total;
    for (size_t width = 1; width < threads; width *= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (thread % (2 * width) == 0 && thread + width < threads)
            sums[thread] += sums[thread + width];
    }
    if (thread == 0)
        partials[first + get_group_id(0)] = sums[0];
}

// As the document prints it: a vector of four sums a thread, kept apart through the block's tree (the
// threads are a power of two), and one such vector a block, partials[4 (first + block) ...].
__kernel void dot_published(__global const element_t *x, __global const element_t *y,
                            __global element_t *partials, const ulong n, const ulong first)
{
    __local VECTOR(element_t, 4) sums[1024];
    const size_t thread = get_local_id(0);
    const ulong vectors = n / 4;
    VECTOR(element_t, 4) sum = (VECTOR(element_t, 4))(0);
    for (ulong i = get_global_id(0); i < vectors; i += get_global_size(0))
        sum = fma(vload4(i, x), vload4(i, y), sum);
    sums[thread] = sum;
    for (size_t width = get_local_size(0) / 2; width > 0; width /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (thread < width)
            sums[thread] += sums[thread + width];
    }
    if (thread < 1)
        vstore4(sums[0], first + get_group_id(0), partials);
}

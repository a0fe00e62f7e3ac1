// The kernel for OpenCL. gpushmoo defines two names before it compiles this file:
//   element_t     the element type that is being measured (float, double, ...)
//   PER_THREAD    a value of the axis of that name: workload.py says that it is compiled in
// dst is the output, which is compared with the right result; src is the input; n counts elements.
__kernel void copy_several(__global element_t *restrict dst, __global const element_t *restrict src,
                           const ulong n)
{
    // The first element of this thread. A group of threads copies PER_THREAD rows of elements, each as
    // long as the group, so that neighbouring threads always take neighbouring elements.
    const ulong first = get_group_id(0) * get_local_size(0) * PER_THREAD + get_local_id(0);
    // PER_THREAD is a constant for the compiler, so that it can unroll this loop.
    for (uint row = 0; row < PER_THREAD; row++) {
        const ulong i = first + row * get_local_size(0);
        // The last group may reach beyond the end: a write there would be found, and cost the cell.
        if (i < n)
            dst[i] = src[i];
    }
}

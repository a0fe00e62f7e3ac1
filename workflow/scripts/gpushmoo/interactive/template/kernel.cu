// The kernel for CUDA; it takes the same arguments as the one for OpenCL. gpushmoo defines two names
// before it compiles this file:
//   element_t     the element type that is being measured (float, double, ...)
//   PER_THREAD    a value of the axis of that name: workload.py says that it is compiled in
// dst is the output, which is compared with the right result; src is the input; n counts elements.
extern "C" __global__ void copy_several(element_t *__restrict__ dst, const element_t *__restrict__ src,
                                        unsigned long long n)
{
    // The first element of this thread. A block of threads copies PER_THREAD rows of elements, each as
    // long as the block, so that neighbouring threads always take neighbouring elements.
    const unsigned long long first =
        (unsigned long long)blockIdx.x * blockDim.x * PER_THREAD + threadIdx.x;
    // PER_THREAD is a constant for the compiler, so that it can unroll this loop.
    for (unsigned row = 0; row < PER_THREAD; row++) {
        const unsigned long long i = first + row * blockDim.x;
        // The last block may reach beyond the end: a write there would be found, and cost the cell.
        if (i < n)
            dst[i] = src[i];
    }
}

// Our dot product of data on the device, called and timed as BabelStream calls and times its own, by a
// C++ program: from the launch to the number on the host, by the host's clock. compare_dots.py builds
// and runs it; Python's share of a call, 50 us, would be a twentieth of what is compared.
//
//   nvcc -O3 -arch=native -Delement_t=double -DENTRY=dot_2 -Ikernels/dot_resident experiments/gpu/resident_dot.cu
//   ./a.out ELEMENTS CALLS GRID THREADS
//
// Prints BabelStream's line of CSV: Dot, calls, elements, bytes of an element, MB/s of the fastest call,
// seconds of the fastest, the slowest and the mean call. The first call is not counted.
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "kernel.cu"

static void check(cudaError_t error)
{
    if (error != cudaSuccess) {
        std::fprintf(stderr, "CUDA: %s\n", cudaGetErrorString(error));
        std::exit(1);
    }
}

template <typename T>
static T *device_memory(size_t elements)
{
    void *p;
    check(cudaMalloc(&p, elements * sizeof(T)));
    check(cudaMemset(p, 0, elements * sizeof(T)));
    return (T *)p;
}

// Multiples of 1/64 below 1, different from element to element, whose sums are exact in double.
__global__ void fill(element_t *x, unsigned long long n, unsigned int factor)
{
    const unsigned long long step = (unsigned long long)gridDim.x * blockDim.x;
    for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step)
        x[i] = (element_t)((unsigned int)i * factor >> 26) / 64;
}

static double product(unsigned int i)
{
    return (double)(i * 2654435761u >> 26) / 64 * ((double)(i * 2246822519u >> 26) / 64);
}

int main(int count, char **arguments)
{
    if (count != 5)
        return 2;
    const unsigned long long n = std::atoll(arguments[1]);
    const int calls = std::atoi(arguments[2]), grid = std::atoi(arguments[3]), threads = std::atoi(arguments[4]);
    element_t *x = device_memory<element_t>(n), *y = device_memory<element_t>(n);
    element_t *partials = device_memory<element_t>(grid), *result;
    unsigned int *done = device_memory<unsigned int>(1);
    check(cudaHostAlloc(&result, sizeof(element_t), cudaHostAllocDefault));
    fill<<<1024, 256>>>(x, n, 2654435761u);
    fill<<<1024, 256>>>(y, n, 2246822519u);
    cudaStream_t stream;
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    check(cudaDeviceSynchronize());

    std::vector<double> seconds;
    for (int i = 0; i <= calls; i++) {
        *result = NAN;
        const auto start = std::chrono::steady_clock::now();
        ENTRY<<<grid, threads, 0, stream>>>(x, y, result, partials, done, n);
        check(cudaPeekAtLastError());
        check(cudaStreamSynchronize(stream));
        const volatile element_t number = *result;
        seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
        (void)number;
    }
    // Elements recur after 2^32: exact in double for all lengths that fit a device today.
    double expected = 0;
    for (unsigned long long i = 0; i < n; i++)
        expected += product((unsigned int)i);
    if (!(std::fabs(*result - expected) <= 1e-5 * expected)) {
        std::fprintf(stderr, "wrong: %.17g instead of %.17g\n", (double)*result, expected);
        return 1;
    }
    double mean = 0;
    for (int i = 1; i <= calls; i++)
        mean += seconds[i] / calls;
    const auto [least, most] = std::minmax_element(seconds.begin() + 1, seconds.end());
    std::printf("Dot,%d,%llu,%zu,%g,%g,%g,%g\n", calls, n, sizeof(element_t),
                2e-6 * n * sizeof(element_t) / *least, *least, *most, mean);
}

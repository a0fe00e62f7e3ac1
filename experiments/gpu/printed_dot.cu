// Runs the third document's program, whose text compare_printed.py cuts out of the document and gives as
// LISTING. What the listing uses and the document does not print stands here.
//
//   nvcc -std=c++20 -O3 -arch=native -Xcompiler -march=native -DLISTING='"listing.cu"' experiments/gpu/printed_dot.cu
//
// For each line "square bytes n streams calls" that it reads (sum of squares or product, bytes of an
// element, elements, 64 or 1 of MAX_STREAMS) it prints the mean seconds of a call, by the host's clock,
// and the last call's result. The inputs are those of compare_printed.py, in pinned memory. Arguments: the
// longest array, and anything else for a process that has other memory on the device.
#include <cuda_runtime.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#define CHECK_CUDA_ERROR(call)                                                                   \
    do {                                                                                         \
        const cudaError_t error = (call);                                                        \
        if (error != cudaSuccess) {                                                              \
            std::fprintf(stderr, "CUDA: %s\n", cudaGetErrorString(error));                       \
            std::exit(1);                                                                        \
        }                                                                                        \
    } while (0)

namespace dotprod {
template <auto N>
concept IsPositivePowerOfTwo = N > 0 && (N & (N - 1)) == 0;

inline int log2_int(uint64_t n) { return 63 - __builtin_clzll(n); }
}

// One thread's loop over the host's share, of which powers of two have none.
namespace avx {
template <int, int, class T>
T dp(size_t n, const T *x, const T *y)
{
    T sum[64 / sizeof(T)] = {}, total = 0;
    constexpr size_t lanes = 64 / sizeof(T);
    size_t i = 0;
    for (; i + lanes <= n; i += lanes)
        for (size_t k = 0; k < lanes; k++)
            sum[k] += x[i + k] * y[i + k];
    for (const T &one : sum)
        total += one;
    for (; i < n; i++)
        total += x[i] * y[i];
    return total;
}

template <int, int, class T>
T dp_sq(size_t n, const T *x) { return dp<0, 0>(n, x, x); }
}

#include LISTING

template <class T>
struct Arrays {
    T *x, *y;

    explicit Arrays(size_t n)
    {
        CHECK_CUDA_ERROR(cudaHostAlloc((void **)&x, n * sizeof(T), cudaHostAllocDefault));
        CHECK_CUDA_ERROR(cudaHostAlloc((void **)&y, n * sizeof(T), cudaHostAllocDefault));
        for (size_t i = 0; i < n; i++) {
            x[i] = T(1 + i % 7) / 8;
            y[i] = T(1 + i % 5) / 8;
        }
    }
};

template <class T, size_t STREAMS>
static double value(bool square, size_t n, const Arrays<T> &of)
{
    return square ? reduce<STREAMS, 1 << 12, 32, 1024>(n, of.x) : reduce<STREAMS, 1 << 12, 32, 1024>(n, of.x, of.y);
}

template <class T>
static double once(bool square, size_t n, int streams, const Arrays<T> &of)
{
    return streams == 1 ? value<T, 1>(square, n, of) : value<T, 64>(square, n, of);
}

template <class T>
static void answer(bool square, size_t n, int streams, int calls, const Arrays<T> &of)
{
    double result = 0;
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; i++)
        result = once(square, n, streams, of);
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    std::printf("%.9e %.17g\n", taken.count() / calls, result);
    std::fflush(stdout);
}

int main(int count, char **arguments)
{
    const size_t most = count > 1 ? std::atoll(arguments[1]) : size_t(1) << 27;
    const Arrays<float> floats(most);
    const Arrays<double> doubles(most);
    // Other memory of the process: a small cudaMalloc then finds room in what the driver has mapped.
    void *other = nullptr;
    if (count > 2)
        CHECK_CUDA_ERROR(cudaMalloc(&other, 256));
    std::printf("ready\n");
    std::fflush(stdout);
    int square, bytes, streams, calls;
    unsigned long long n;
    while (std::scanf("%d %d %llu %d %d", &square, &bytes, &n, &streams, &calls) == 5)
        if (bytes == 4)
            answer(square, n, streams, calls, floats);
        else
            answer(square, n, streams, calls, doubles);
}

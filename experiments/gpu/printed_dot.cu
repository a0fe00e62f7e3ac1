// The third document's program as a shared library. compare_printed.py cuts its text out of the document and
// gives it as LISTING; what the listing uses and the document does not print stands here.
#include <cuda_runtime.h>

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
    constexpr size_t lanes = 64 / sizeof(T);
    T sum[lanes] = {}, total = 0;
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

template <size_t STREAMS, class T>
static double product(size_t n, T *x, T *y)
{
    return y ? reduce<STREAMS, 1 << 12, 32, 1024>(n, x, y) : reduce<STREAMS, 1 << 12, 32, 1024>(n, x);
}

template <class T>
static double by_streams(int streams, size_t n, void *x, void *y)
{
    return streams == 1 ? product<1>(n, (T *)x, (T *)y) : product<64>(n, (T *)x, (T *)y);
}

// x · y, or x · x where y is null, of n elements of so many bytes in pinned memory, by at most 64 streams or 1.
extern "C" double printed_dot(int streams, int bytes, size_t n, void *x, void *y)
{
    return bytes == 4 ? by_streams<float>(streams, n, x, y) : by_streams<double>(streams, n, x, y);
}

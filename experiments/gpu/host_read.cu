// What the host's memory can be read at, by its cores and by the device at the same time: the ceiling
// of any dot product whose data live on the host. compare_dots.py builds and drives it.
//
//   nvcc -O3 -arch=native -Xcompiler -march=native,-fopenmp experiments/gpu/host_read.cu -o host_read
//
// For each line "threads streams device" that it reads it prints GB/s (10^9 bytes a second) of the
// cores and of the device. So many threads each read their own part of two arrays, at so many places
// of each at a time, and fold the words by XOR; meanwhile the device, if asked for, copies from pinned
// memory of its own. All that is read is far larger than any cache.
#include <cuda_runtime.h>
#include <omp.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>

constexpr size_t BYTES = size_t(1) << 30;  // of each of the two arrays, and of each copy
constexpr double MIN_S = 0.1;

static void check(cudaError_t error)
{
    if (error != cudaSuccess) {
        std::fprintf(stderr, "CUDA: %s\n", cudaGetErrorString(error));
        std::exit(1);
    }
}

static double now()
{
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// GCC's vector extension: the widest loads that -march=native allows.
typedef uint64_t words __attribute__((vector_size(64)));

// `STREAMS` parts of each of two arrays at a time: hardware prefetches each of them for itself.
template <int STREAMS>
static uint64_t fold(const char *x, const char *y, size_t bytes)
{
    words chain[2 * STREAMS] = {};
    const size_t each = bytes / STREAMS / 64;
    for (size_t i = 0; i < each; i++)
        for (int k = 0; k < STREAMS; k++) {
            chain[2 * k] ^= ((const words *)x)[k * each + i];
            chain[2 * k + 1] ^= ((const words *)y)[k * each + i];
        }
    words all = {};
    for (const words &one : chain)
        all ^= one;
    uint64_t word = 0;
    for (int k = 0; k < 8; k++)
        word ^= all[k];
    return word;
}

struct Rates {
    double cores, device;
};

// Both at once; whoever is asked for nothing does nothing.
static Rates run(const char *x, const char *y, int threads, int streams, const char *pinned,
                 char *on_device)
{
    std::atomic<bool> stop{false};
    std::atomic<size_t> copied{0};
    double copy_s = 0;
    std::thread feeder([&] {
        if (!pinned)
            return;
        cudaStream_t streams[2];
        for (auto &s : streams)
            check(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
        const size_t piece = size_t(32) << 20;
        const double start = now();
        for (size_t i = 0; !stop; i++) {
            // Two in flight, so that the link never waits for this thread.
            check(cudaStreamSynchronize(streams[i % 2]));
            const size_t at = i * piece % BYTES;
            check(cudaMemcpyAsync(on_device + at, pinned + at, piece, cudaMemcpyHostToDevice, streams[i % 2]));
            copied += piece;
        }
        for (auto &s : streams)
            check(cudaStreamSynchronize(s));
        copy_s = now() - start;
        for (auto &s : streams)
            check(cudaStreamDestroy(s));
    });
    size_t read = 0;
    uint64_t folded = 0;
    const double start = now();
    double read_s = 0;
    while ((read_s = now() - start) < MIN_S) {
        if (!threads) {
            std::this_thread::sleep_for(std::chrono::duration<double>(MIN_S));
            continue;
        }
#pragma omp parallel num_threads(threads) reduction(^ : folded)
        {
            const size_t part = BYTES / threads / 512 * 512, begin = omp_get_thread_num() * part;
            folded ^= streams == 1   ? fold<1>(x + begin, y + begin, part)
                      : streams == 2 ? fold<2>(x + begin, y + begin, part)
                                     : fold<4>(x + begin, y + begin, part);
        }
        read += 2 * (BYTES / threads / 512 * 512) * threads;
    }
    stop = true;
    feeder.join();
    if (folded == 0x9E3779B97F4A7C15)
        std::fprintf(stderr, "an improbable fold\n");
    return {read / read_s * 1e-9, pinned ? copied / copy_s * 1e-9 : 0.0};
}

static char *filled(char *memory)
{
    uint64_t state = 88172645463325252;
    for (size_t i = 0; i < BYTES / 8; i++) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        ((uint64_t *)memory)[i] = state;
    }
    return memory;
}

static char *pinned_memory()
{
    void *p;
    check(cudaHostAlloc(&p, BYTES, cudaHostAllocDefault));
    return filled((char *)p);
}

int main()
{
    char *x = pinned_memory(), *y = pinned_memory(), *fed = pinned_memory(), *on_device;
    check(cudaMalloc(&on_device, BYTES));
    std::printf("%d\n", omp_get_num_procs());
    std::fflush(stdout);
    int threads, streams, device;
    while (std::scanf("%d %d %d", &threads, &streams, &device) == 3) {
        const Rates rates = run(x, y, threads, streams, device ? fed : nullptr, on_device);
        std::printf("%.3f %.3f\n", rates.cores, rates.device);
        std::fflush(stdout);
    }
}

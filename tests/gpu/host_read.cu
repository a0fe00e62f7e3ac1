// What the host's memory can be read at, by its cores and by the device at the same time: the ceiling
// of any dot product whose data live on the host. Not part of the pipeline; see docs/h200.md.
//
//   nvcc -O3 -arch=native -Xcompiler -march=native,-fopenmp tests/gpu/host_read.cu -o host_read
//   ./host_read > host_read.csv
//
// Each row: threads that read, places of each array that each of them reads at a time, whether the
// device reads, which memory, and GB/s (10^9 bytes a second) of each of the two and of both, medians of
// REPEATS runs of at least MIN_S seconds. A thread reads its own part of two arrays and folds the words
// by XOR; the device copies from pinned memory of its own. All that is read is larger than any cache.
#include <cuda_runtime.h>
#include <omp.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

constexpr size_t BYTES = size_t(1) << 30;  // of each of the two arrays, and of each copy
constexpr int REPEATS = 5;
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

// 16 bytes a lane and GCC's vector extension: the widest loads that -march=native allows.
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

static char *huge_pages()
{
    void *p = std::aligned_alloc(size_t(2) << 20, BYTES);
    madvise(p, BYTES, MADV_HUGEPAGE);
    return filled((char *)p);
}

int main()
{
    char *pinned_x = pinned_memory(), *pinned_y = pinned_memory(), *x = huge_pages(), *y = huge_pages();
    char *fed = pinned_memory(), *on_device;
    check(cudaMalloc(&on_device, BYTES));
    const int most = omp_get_num_procs();
    std::vector<int> counts{0, 1};
    for (int t : {most / 2, most * 3 / 4, most - 2, most - 1, most})
        if (t > counts.back())
            counts.push_back(t);
    std::printf("threads,streams,device_reads,memory,cores_gbs,device_gbs,total_gbs\n");
    for (int threads : counts)
        for (bool device : {false, true})
            for (int streams : {1, 2, 4})
                for (bool pinned : {true, false}) {
                if (!threads && (!device || !pinned || streams > 1))
                    continue;
                std::vector<Rates> all;
                for (int i = 0; i < REPEATS; i++)
                    all.push_back(run(pinned ? pinned_x : x, pinned ? pinned_y : y, threads, streams,
                                      device ? fed : nullptr, on_device));
                std::sort(all.begin(), all.end(), [](Rates a, Rates b) {
                    return a.cores + a.device < b.cores + b.device;
                });
                const Rates m = all[REPEATS / 2];
                std::printf("%d,%d,%d,%s,%.2f,%.2f,%.2f\n", threads, streams, device, pinned ? "pinned" : "huge pages",
                            m.cores, m.device, m.cores + m.device);
                std::fflush(stdout);
            }
}

// The second document's experiment, written anew as a peer for gpushmoo: how fast a texture is read
// and a surface is written, by block shape. Its texture references are gone from CUDA, so these are
// texture and surface objects; its programs did not check launches, so that one which was refused
// would have won: here it ends the run.
//
//   document_textures texture|surface SIZE SAMPLES LAUNCHES stream|graph SEED verify|trust FROM TO STEP
//   document_textures texture|surface SIZE SAMPLES LAUNCHES stream|graph SEED verify|trust WxH [WxH ...]
//
// SIZE is the side of the image of floats. FROM, TO (inclusive) and STEP are of block width and
// height, or the shapes are named; those of more than 1024 threads are left out. A sample is the time
// of LAUNCHES launches that follow each other, put into a stream as the document does, which leaves a
// gap between two of them, or replayed as a graph. With `verify` each shape's result is checked once
// before anything is timed. Prints a line for each shape: block_x,block_y, then seconds per launch of
// every sample. Ends with 1 and a sentence on any error.

extern "C" __global__ void TexSums(float *out, cudaTextureObject_t texture, size_t width, size_t height)
{
    const int firstRow = blockIdx.y * blockDim.y + threadIdx.y;
    const int firstCol = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0.0f;
    for (int row = firstRow; row < height; row += blockDim.y * gridDim.y)
        for (int col = firstCol; col < width; col += blockDim.x * gridDim.x)
            sum += tex2D<float>(texture, (float)col, (float)row);
    if (out) // never while it is timed; but the compiler does not know, and must fetch
        if (firstRow < height && firstCol < width)
            out[firstRow * width + firstCol] = sum;
}

extern "C" __global__ void Surf2dMemset(cudaSurfaceObject_t surface, float value, size_t width, size_t height)
{
    for (int row = blockIdx.y * blockDim.y + threadIdx.y; row < height; row += blockDim.y * gridDim.y)
        for (int col = blockIdx.x * blockDim.x + threadIdx.x; col < width; col += blockDim.x * gridDim.x)
            surf2Dwrite(value, surface, col * (int)sizeof(float), row);
}

// The rest is not timed.

// Whole numbers from 0 to 255 that look random, as gpushmoo's texels are; SplitMix64's last steps.
extern "C" __global__ void RandomTexels(float *out, size_t n, unsigned long long seed)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)blockDim.x * gridDim.x) {
        unsigned long long z = (seed + i) * 0x9e3779b97f4a7c15ull;
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
        z = (z ^ z >> 27) * 0x94d049bb133111ebull;
        out[i] = (float)(z >> 56);
    }
}

extern "C" __global__ void Fill(float *out, size_t n, float value)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)blockDim.x * gridDim.x)
        out[i] = value;
}

extern "C" __global__ void CountDifferent(const float *a, const float *b, size_t n, unsigned long long *count)
{
    unsigned long long mine = 0;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)blockDim.x * gridDim.x)
        mine += !(a[i] == b[i]); // a NaN differs
    if (mine)
        atomicAdd(count, mine);
}

#ifndef __CUDACC_RTC__ // NVRTC, by which the tests look at the kernels, knows device code alone

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

const unsigned int MAX_THREADS = 1024;
const float VALUE = 3.25f;
const double WARM_UP_S = 0.2;
const int FILL_BLOCKS = 2048, FILL_THREADS = 256;

[[noreturn]] void fail(const std::string &sentence)
{
    fprintf(stderr, "%s.\n", sentence.c_str());
    exit(1);
}

void check(cudaError_t status, const std::string &what)
{
    if (status != cudaSuccess)
        fail(what + " failed: " + cudaGetErrorString(status));
}

#define CHECK(call) check((call), std::string(#call).substr(0, std::string(#call).find('(')))

struct Shape {
    unsigned int x, y;
    std::string name() const { return std::to_string(x) + "x" + std::to_string(y); }
};

// An image, buffers as large, and the launches on them.
struct Experiment {
    bool texture;
    size_t size, texels, rowBytes;
    cudaArray_t array = nullptr;
    cudaTextureObject_t fetched = 0;
    cudaSurfaceObject_t written = 0;
    float *expected = nullptr, *found = nullptr;
    unsigned long long *count = nullptr;
    cudaStream_t stream = nullptr;

    Experiment(bool isTexture, size_t side, unsigned long long seed)
        : texture(isTexture), size(side), texels(side * side), rowBytes(side * sizeof(float))
    {
        const cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
        CHECK(cudaMallocArray(&array, &format, size, size, texture ? cudaArrayDefault : cudaArraySurfaceLoadStore));
        CHECK(cudaMalloc(&expected, texels * sizeof(float)));
        CHECK(cudaMalloc(&found, texels * sizeof(float)));
        CHECK(cudaMalloc(&count, sizeof *count));
        CHECK(cudaStreamCreate(&stream)); // the default stream cannot be captured in a graph
        cudaResourceDesc resource = {};
        resource.resType = cudaResourceTypeArray;
        resource.res.array.array = array;
        if (texture) {
            cudaTextureDesc how = {}; // the document's defaults: nearest texel, clamped, as it is
            how.addressMode[0] = how.addressMode[1] = cudaAddressModeClamp;
            how.filterMode = cudaFilterModePoint;
            how.readMode = cudaReadModeElementType;
            CHECK(cudaCreateTextureObject(&fetched, &resource, &how, nullptr));
            RandomTexels<<<FILL_BLOCKS, FILL_THREADS>>>(expected, texels, seed);
            check(cudaGetLastError(), "making the texels");
            toArray(expected);
        } else {
            CHECK(cudaCreateSurfaceObject(&written, &resource));
            Fill<<<FILL_BLOCKS, FILL_THREADS>>>(expected, texels, VALUE);
            check(cudaGetLastError(), "filling the expected texels");
        }
        CHECK(cudaDeviceSynchronize());
    }

    void toArray(const float *texelsOfIt)
    {
        CHECK(cudaMemcpy2DToArray(array, 0, 0, texelsOfIt, rowBytes, rowBytes, size, cudaMemcpyDeviceToDevice));
    }

    void launch(Shape block, float *out = nullptr)
    {
        const dim3 threads(block.x, block.y);
        const dim3 blocks((size + block.x - 1) / block.x, (size + block.y - 1) / block.y);
        if (texture)
            TexSums<<<blocks, threads, 0, stream>>>(out, fetched, size, size);
        else
            Surf2dMemset<<<blocks, threads, 0, stream>>>(written, VALUE, size, size);
        check(cudaGetLastError(), "the launch of blocks of " + block.name());
    }

    cudaGraphExec_t graphOf(Shape block, int launches)
    {
        cudaGraph_t graph;
        cudaGraphExec_t ready;
        CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
        for (int n = 0; n < launches; ++n)
            launch(block);
        CHECK(cudaStreamEndCapture(stream, &graph));
        CHECK(cudaGraphInstantiate(&ready, graph, 0));
        CHECK(cudaGraphDestroy(graph));
        CHECK(cudaGraphLaunch(ready, stream)); // the first replay uploads it
        CHECK(cudaStreamSynchronize(stream));
        return ready;
    }

    // Nothing that was there before may pass for a result: NaNs.
    void poison()
    {
        CHECK(cudaMemset(found, 0xff, texels * sizeof(float)));
        if (!texture)
            toArray(found);
    }

    void compare(const std::string &whose)
    {
        if (!texture)
            CHECK(cudaMemcpy2DFromArray(found, rowBytes, array, 0, 0, rowBytes, size, cudaMemcpyDeviceToDevice));
        CHECK(cudaMemset(count, 0, sizeof *count));
        CountDifferent<<<FILL_BLOCKS, FILL_THREADS>>>(expected, found, texels, count);
        check(cudaGetLastError(), "the comparison");
        unsigned long long wrong = 0;
        CHECK(cudaMemcpy(&wrong, count, sizeof wrong, cudaMemcpyDeviceToHost));
        if (wrong)
            fail(std::to_string(wrong) + " texels are wrong after " + whose);
    }

    void verify(Shape block)
    {
        poison();
        launch(block, found);
        compare("blocks of " + block.name());
    }

    // A device that has just begun to work has other clocks.
    void warmUp(Shape block)
    {
        const auto start = std::chrono::steady_clock::now();
        while (std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() < WARM_UP_S) {
            launch(block);
            CHECK(cudaDeviceSynchronize());
        }
    }
};

// Seconds per launch, for each shape its samples. Every round visits all shapes in a new order, and
// the device never waits for the host: the shapes of a round are queued one behind the other.
std::vector<std::vector<double>> timeShapes(Experiment &experiment, const std::vector<Shape> &shapes, int samples,
                                            int launches, bool asGraph, unsigned long long seed)
{
    std::vector<cudaGraphExec_t> graphs;
    if (asGraph)
        for (Shape block : shapes)
            graphs.push_back(experiment.graphOf(block, launches));
    std::vector<std::vector<double>> seconds(shapes.size());
    std::vector<cudaEvent_t> starts(shapes.size()), stops(shapes.size());
    std::vector<size_t> order(shapes.size());
    for (size_t i = 0; i < shapes.size(); ++i) {
        CHECK(cudaEventCreate(&starts[i]));
        CHECK(cudaEventCreate(&stops[i]));
        order[i] = i;
    }
    std::mt19937_64 random(seed);
    for (int round = 0; round < samples; ++round) {
        std::shuffle(order.begin(), order.end(), random);
        experiment.launch(shapes[order[0]]); // keeps the device busy until the first sample is queued
        for (size_t i : order) {
            CHECK(cudaEventRecord(starts[i], experiment.stream));
            if (asGraph)
                CHECK(cudaGraphLaunch(graphs[i], experiment.stream));
            else
                for (int n = 0; n < launches; ++n)
                    experiment.launch(shapes[i]);
            CHECK(cudaEventRecord(stops[i], experiment.stream));
        }
        CHECK(cudaDeviceSynchronize());
        for (size_t i : order) {
            float milliseconds = 0.0f;
            CHECK(cudaEventElapsedTime(&milliseconds, starts[i], stops[i]));
            seconds[i].push_back(1e-3 * milliseconds / launches);
        }
    }
    return seconds;
}

unsigned long long number(const char *text, unsigned long long least)
{
    char *end = nullptr;
    const unsigned long long value = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || value < least)
        fail("'" + std::string(text) + "' is no whole number of at least " + std::to_string(least));
    return value;
}

std::vector<Shape> shapesOf(int n, char **words)
{
    std::vector<Shape> all, valid;
    if (n == 3 && !strchr(words[0], 'x')) {
        const unsigned int from = number(words[0], 1), to = number(words[1], from), step = number(words[2], 1);
        for (unsigned int y = from; y <= to; y += step)
            for (unsigned int x = from; x <= to; x += step)
                all.push_back({x, y});
    } else
        for (int i = 0; i < n; ++i) {
            const std::string word = words[i];
            const size_t middle = std::min(word.find('x'), word.size() - 1);
            all.push_back({(unsigned int)number(word.substr(0, middle).c_str(), 1),
                           (unsigned int)number(word.substr(middle + 1).c_str(), 1)});
        }
    for (Shape block : all)
        if (block.x * block.y <= MAX_THREADS)
            valid.push_back(block);
    if (valid.empty())
        fail("no block shape of at most " + std::to_string(MAX_THREADS) + " threads was named");
    return valid;
}

int main(int argc, char **argv)
{
    if (argc < 9)
        fail("Usage: document_textures texture|surface SIZE SAMPLES LAUNCHES stream|graph SEED verify|trust FROM TO STEP | "
             "WxH and so on");
    const std::string what = argv[1], how = argv[5], trust = argv[7];
    if ((what != "texture" && what != "surface") || (how != "stream" && how != "graph") ||
        (trust != "verify" && trust != "trust"))
        fail("the first word is texture or surface, the fifth stream or graph, the seventh verify or trust");
    const size_t size = number(argv[2], 1);
    const int samples = (int)number(argv[3], 1), launches = (int)number(argv[4], 1);
    const unsigned long long seed = number(argv[6], 0);
    const std::vector<Shape> shapes = shapesOf(argc - 8, argv + 8);

    Experiment experiment(what == "texture", size, seed);
    if (trust == "verify")
        for (Shape block : shapes)
            experiment.verify(block);
    experiment.warmUp(shapes[shapes.size() / 2]);
    if (!experiment.texture)
        experiment.poison();
    const auto seconds = timeShapes(experiment, shapes, samples, launches, how == "graph", seed);
    if (!experiment.texture)
        experiment.compare("the timed launches");
    for (size_t i = 0; i < shapes.size(); ++i) {
        printf("%u,%u", shapes[i].x, shapes[i].y);
        for (double s : seconds[i])
            printf(",%.9e", s);
        printf("\n");
    }
    return 0;
}

#endif

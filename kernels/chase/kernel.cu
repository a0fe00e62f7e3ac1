// Every block is one thread that follows a chain of loads, each place the content of the one before,
// from place `first` + blockIdx.x * hops of the chain on. A place is LINE words wide: its first word
// is the index of the next place's, its second that of the place which is so far along the chain.
// Loads pass over the first cache level (ld.cg), whose hits would hide what lies behind it.
// Bytes moved: 4 read per hop.
#define LINE 32

extern "C" __global__ void chase(unsigned int *dst, const unsigned int *__restrict__ src,
                                 unsigned int places, unsigned int first, unsigned int hops)
{
    const unsigned int rank = (first + (unsigned long long)blockIdx.x * hops) % places;
    const unsigned int start = __ldcg(src + (unsigned long long)rank * LINE + 1);
    unsigned int at = start;
    for (unsigned int hop = 0; hop < hops; ++hop)
        at = __ldcg(src + at);
    // A block begins where the one before ends: what is left of all is where the last one ends.
    atomicXor(dst, blockIdx.x ? start ^ at : at);
}

// Every group is one work-item that follows a chain of loads, each place the content of the one before,
// from place `first` + get_group_id(0) * hops of the chain on. A place is LINE words wide: its first
// word is the index of the next place's, its second that of the place which is so far along the chain.
// OpenCL C cannot tell the caches that the first level is to be passed over.
// Bytes moved: 4 read per hop.
#define LINE 32

__kernel void chase(volatile __global uint *dst, __global const uint *restrict src, const uint places,
                    const uint first, const uint hops)
{
    const uint rank = (first + get_group_id(0) * (ulong)hops) % places;
    const uint start = src[(ulong)rank * LINE + 1];
    uint at = start;
    for (uint hop = 0; hop < hops; ++hop)
        at = src[at];
    // A group begins where the one before ends: what is left of all is where the last one ends.
    atomic_xor(dst, get_group_id(0) ? start ^ at : at);
}

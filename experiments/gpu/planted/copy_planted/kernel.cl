// Copies n consecutive elements; a group takes a tile of get_local_size(0) * UNROLL of them. Of 100 groups in a
// row, `percent` copy a tile besides that lies half of the array away: the same bytes to the same place as the
// group that it belongs to, so that the result is the same and only the work is more.
// Bytes moved, beside what is planted: sizeof(element_t) read and sizeof(element_t) written per element.

#define UNROLL 4

void copy_one(__global element_t *dst, __global const element_t *src, const index_t n, const index_t tile)
{
    const index_t width = get_local_size(0);
    const index_t first = tile * width * UNROLL + get_local_id(0);
    for (index_t i = first; i < n && i < first + UNROLL * width; i += width) dst[i] = src[i];
}

__kernel void copy_planted(__global element_t *dst, __global const element_t *src, const index_t n,
                           const uint percent)
{
    const index_t blocks = get_num_groups(0), tile = get_group_id(0);
    copy_one(dst, src, n, tile);
    // Spread evenly: 3 of 100 are 0, 34 and 67.
    if ((tile % 100) * percent % 100 < percent) copy_one(dst, src, n, (tile + blocks / 2) % blocks);
}

// Writes a height x width array down its columns: neighbouring work-items write to different rows. Each
// element is its index. A group writes get_local_size(0) rows, each work-item `passes` elements of one row.
// Bytes moved: sizeof(element_t) written per element; each store of a work-item is a part of a sector.
__kernel void columns(__global element_t *dst, index_t height, index_t width, uint passes)
{
    const index_t row = (index_t)get_group_id(0) * get_local_size(0) + get_local_id(0);
    index_t column = (index_t)get_group_id(1) * get_local_size(1) * passes + get_local_id(1);
    if (row >= height)
        return;
    for (uint pass = 0; pass < passes && column < width; ++pass, column += get_local_size(1))
        dst[row * width + column] = (element_t)(row * width + column);
}

/* Memory for compiled code: blocks are aligned as asked, can be resized, tell their end once, and are given back, also
 * those that an exception has left behind. What is not is found by LeakSanitizer. */
#include "../../../../libos/service/memory.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

struct seen { /* the first words of a block, which compiled code knows */
    uint64_t references;
    void (*end)(void *data, uint64_t size, void *info);
    void *info;
    uint8_t *data;
    uint64_t size;
};

static unsigned ended;

static void end(void *data, uint64_t size, void *info)
{
    (void)info;
    ended++;
    memset(data, 1, size); /* it is still there */
}

static void check(struct cl_block *b, uint64_t size)
{
    struct seen *seen = (struct seen *)b;
    assert(b && seen->references == 1 && seen->size == size);
    memset(seen->data, 7, size);
}

/* A handler that takes some, gives some back, and raises or returns. */
static void handle(struct cl_block **left, int32_t raised)
{
    struct cl_blocks blocks;
    cl_blocks_enter(&blocks);
    struct cl_block *first = cl_block_new(8), *middle = cl_block_new_aligned(100, 64), *buffer = cl_buffer_new(50);
    struct cl_block *told = cl_block_new_ended(16, end), *buffer_told = cl_buffer_new_ended(16, end);
    assert(cl_buffer_resize(buffer, 5000));
    cl_block_end(middle);
    *left = first;
    if (!raised) {
        cl_block_end(buffer_told);
        cl_block_end(buffer);
        cl_block_end(told);
    }
    cl_blocks_leave(&blocks, raised);
}

static void exceptions(void)
{
    struct cl_block *left, *outer;
    struct cl_blocks blocks;
    unsigned before = ended;
    handle(&left, 1); /* nothing of it is there any more, and nobody was told */
    assert(ended == before);
    handle(&left, 0); /* a reference to it goes on living */
    assert(ended == before + 2);
    check(left, 8);
    cl_block_end(left);
    cl_blocks_enter(&blocks); /* one within another: each has its own */
    outer = cl_block_new(24);
    handle(&left, 1);
    check(outer, 24);
    cl_blocks_leave(&blocks, 1);
    cl_bytes_free(cl_bytes_new(0));
}

int main(void)
{
    for (uint64_t size = 0; size < 300; size += 37) {
        struct cl_block *plain = cl_block_new(size), *told = cl_block_new_ended(size, end);
        check(plain, size);
        check(told, size);
        cl_block_end(plain);
        cl_block_end(told);
        for (uint32_t align = 1; align <= 256; align *= 2) {
            struct cl_block *b = cl_block_new_aligned(size, align);
            check(b, size);
            assert((uintptr_t)((struct seen *)b)->data % align == 0);
            cl_block_end(b);
        }
        struct cl_block *buffer = size % 2 ? cl_buffer_new(size) : cl_buffer_new_ended(size, end);
        check(buffer, size);
        assert(cl_buffer_resize(buffer, 2 * size + 1) == ((struct seen *)buffer)->data);
        check(buffer, 2 * size + 1);
        assert(cl_buffer_resize(buffer, 0));
        cl_block_end(buffer);
    }
    assert(ended == 9 + 5);
    exceptions();
    assert(!cl_block_new(UINT64_MAX - 8) && !cl_block_new_aligned(UINT64_MAX - 8, 64));
    puts("ok");
    return 0;
}

/* Memory for compiled code: blocks are aligned as asked, can be resized, tell their end once, and are given back. */
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
    assert(!cl_block_new(UINT64_MAX - 8) && !cl_block_new_aligned(UINT64_MAX - 8, 64));
    puts("ok");
    return 0;
}

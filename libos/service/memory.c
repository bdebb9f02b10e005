/* Memory that compiled code takes and counts references to, in processes without numba.
 *
 * numba's code has such calls for arrays, lists and objects that it makes; it counts the references itself, in the
 * first word of a block, and reads the address of the data from the fourth (numba/core/runtime/nrtdynmod.py). corelane
 * compile has it call these functions instead of numba's (libos/objects/needs.py). */
#include "memory.h"

#include <corelane/libos/uthread.h>

#include <stdlib.h>

struct cl_block {
    uint64_t references;
    void (*end)(void *data, uint64_t size, void *info);
    void *info;
    void *data;
    uint64_t size;
    /* Of the list that it is in (cl_blocks), which one uthread changes. link: what points to it; NULL: in none. */
    struct cl_block *next, **link;
    uint64_t pad; /* so that the data behind it has malloc's alignment */
};

_Static_assert(offsetof(struct cl_block, data) == 24, "compiled code reads it");
_Static_assert(sizeof(struct cl_block) % 16 == 0, "malloc's alignment");

/* Of a thread that is on no uthread, where compiled code does not block. */
static __thread void *outside;

static struct cl_blocks **entered(void)
{
    void **word = cl_uthread_memory();
    return (struct cl_blocks **)(word ? word : &outside);
}

static void put_in(struct cl_block *b)
{
    struct cl_blocks *list = *entered();
    if (!list)
        return;
    b->next = list->first;
    b->link = &list->first;
    if (b->next)
        b->next->link = &b->next;
    list->first = b;
}

static void take_out(struct cl_block *b)
{
    if (!b->link)
        return;
    *b->link = b->next;
    if (b->next)
        b->next->link = b->link;
    b->link = NULL;
}

/* `extra`: bytes behind the block. NULL: there is no memory. */
static struct cl_block *new_block(uint64_t size, uint64_t extra)
{
    uint64_t bytes;
    if (__builtin_add_overflow(extra, sizeof(struct cl_block), &bytes))
        return NULL;
    struct cl_block *b = malloc(bytes);
    if (!b)
        return NULL;
    *b = (struct cl_block){.references = 1, .data = b + 1, .size = size};
    put_in(b);
    return b;
}

struct cl_block *cl_block_new(uint64_t size)
{
    return new_block(size, size);
}

struct cl_block *cl_block_new_aligned(uint64_t size, uint32_t align)
{
    uint64_t extra;
    struct cl_block *b = __builtin_add_overflow(size, align, &extra) ? NULL : new_block(size, extra);
    uintptr_t at = b ? (uintptr_t)b->data : 0, beyond = align ? at % align : 0;
    if (b && beyond)
        b->data = (uint8_t *)b->data + (align - beyond);
    return b;
}

static void call_end(void *data, uint64_t size, void *info)
{
    ((cl_block_end_fn)(uintptr_t)info)(data, size, NULL);
}

struct cl_block *cl_block_new_ended(uint64_t size, cl_block_end_fn end)
{
    struct cl_block *b = new_block(size, size);
    if (b && end) {
        b->end = call_end;
        b->info = (void *)(uintptr_t)end;
    }
    return b;
}

static void end_buffer(void *data, uint64_t size, void *info)
{
    if (info)
        ((cl_block_end_fn)(uintptr_t)info)(data, size, NULL);
    free(data);
}

struct cl_block *cl_buffer_new_ended(uint64_t size, cl_block_end_fn end)
{
    struct cl_block *b = new_block(size, 0);
    void *data = b ? malloc(size ? size : 1) : NULL;
    if (!data) {
        if (b)
            take_out(b);
        free(b);
        return NULL;
    }
    b->data = data;
    b->end = end_buffer;
    b->info = (void *)(uintptr_t)end;
    return b;
}

struct cl_block *cl_buffer_new(uint64_t size)
{
    return cl_buffer_new_ended(size, NULL);
}

void *cl_buffer_resize(struct cl_block *b, uint64_t size)
{
    void *data = realloc(b->data, size ? size : 1);
    if (data) {
        b->data = data;
        b->size = size;
    }
    return data;
}

void cl_block_end(struct cl_block *b)
{
    take_out(b);
    if (b->end)
        b->end(b->data, b->size, b->info);
    free(b);
}

void *cl_bytes_new(uint64_t size)
{
    return malloc(size ? size : 1);
}

void cl_bytes_free(void *bytes)
{
    free(bytes);
}

void cl_blocks_enter(struct cl_blocks *b)
{
    struct cl_blocks **now = entered();
    *b = (struct cl_blocks){.before = *now};
    *now = b;
}

void cl_blocks_leave(struct cl_blocks *b, int32_t raised)
{
    *entered() = b->before;
    while (b->first) {
        struct cl_block *one = b->first;
        take_out(one);
        if (!raised)
            continue;
        /* What it would tell its end does no more than let go of others, which are in the list themselves. */
        if (one->end == end_buffer)
            free(one->data);
        free(one);
    }
}

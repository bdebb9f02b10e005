/* What compiled code calls for memory, in place of numba's functions. NULL: there is none. Any thread.
 *
 * An exception leaves behind what the functions that it passes through have taken: their code ends at the raise. So the
 * entry point, which C calls, keeps a list of what is taken while it runs (cl_blocks_enter), and gives it all back if
 * there was an exception. Nothing of it can be in use then: a handler's state is memory of another kind, and code that
 * starts uthreads, which might have some of it, has no list. */
#ifndef CORELANE_LIBOS_SERVICE_MEMORY_H
#define CORELANE_LIBOS_SERVICE_MEMORY_H

#include <corelane/runtime/base.h>

struct cl_block;
/* Called before memory is given back. */
typedef void (*cl_block_end_fn)(void *data, uint64_t size, void *info);

CL_API struct cl_block *cl_block_new(uint64_t size);                            /* NRT_MemInfo_alloc */
CL_API struct cl_block *cl_block_new_aligned(uint64_t size, uint32_t align);    /* NRT_MemInfo_alloc_aligned */
CL_API struct cl_block *cl_block_new_ended(uint64_t size, cl_block_end_fn end); /* NRT_MemInfo_alloc_dtor */
/* Blocks whose data can be resized. */
CL_API struct cl_block *cl_buffer_new(uint64_t size);                            /* NRT_MemInfo_new_varsize */
CL_API struct cl_block *cl_buffer_new_ended(uint64_t size, cl_block_end_fn end); /* NRT_MemInfo_new_varsize_dtor */
CL_API void *cl_buffer_resize(struct cl_block *b, uint64_t size);                /* NRT_MemInfo_varsize_realloc */
/* The last reference is gone. */
CL_API void cl_block_end(struct cl_block *b); /* NRT_MemInfo_call_dtor */
/* Without a count: what an exception says. */
CL_API void *cl_bytes_new(uint64_t size); /* NRT_Allocate */
CL_API void cl_bytes_free(void *bytes);   /* NRT_Free */

/* What the calling uthread has taken since it entered; lies in the entry point's frame, two words. */
struct cl_blocks {
    struct cl_block *first;
    struct cl_blocks *before; /* that it was in then */
};
CL_API void cl_blocks_enter(struct cl_blocks *b);
/* raised: give back what is left. Else that goes on living, as its references do. */
CL_API void cl_blocks_leave(struct cl_blocks *b, int32_t raised);

#endif

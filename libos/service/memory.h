/* What compiled code calls for memory, in place of numba's functions. NULL: there is none. Any thread. */
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

#endif

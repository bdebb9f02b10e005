/* Memory of typed values: counted to the byte, from slabs of size classes, without a system call as a rule.
 *
 * Blocks up to CL_RMEM_LARGE come from spans of 64 KiB that hold blocks of one class; an empty span is kept or given
 * back. Larger blocks are malloc's. Whoever frees a block says how large it is, so blocks have no header.
 *
 * `used` is what blocks take, rounded up to their class. The owner keeps it under a limit by asking before it takes
 * (evict.h): a request is never refused in the middle of a command. Should the kernel give no more address space, the
 * process traps: nothing that was begun could be finished.
 *
 * One caller at a time. */
#ifndef CORELANE_APPS_RESP_MEMORY_H
#define CORELANE_APPS_RESP_MEMORY_H

#include <corelane/runtime/base.h>

#if defined(__SANITIZE_ADDRESS__)
#define CL_RMEM_LARGE 0 /* all blocks are malloc's: ASan watches them */
#else
#define CL_RMEM_LARGE 16384 /* blocks above it are malloc's */
#endif
#define CL_RMEM_CLASSES 40
#define CL_RMEM_SPAN_BYTES 65536

struct cl_rmem_span;

struct cl_rmem {
    uint64_t used, peak;                           /* bytes of blocks */
    uint64_t spans;                                /* bytes of spans, whatever of them is in use */
    uint64_t large;                                /* bytes of large blocks, part of `used` */
    struct cl_rmem_span *partial[CL_RMEM_CLASSES]; /* of a class, with free blocks */
    struct cl_rmem_span *spare;                    /* empty */
    uint32_t n_spare;
};

/* How large a block of n bytes is in truth. */
uint64_t cl_rmem_round(uint64_t n);
/* Never NULL. n > 0. Not zeroed. */
void *cl_rmem_new(struct cl_rmem *m, uint64_t n);
void *cl_rmem_zero(struct cl_rmem *m, uint64_t n);
/* n: as it was asked for, or any size with the same rounding. p NULL is allowed. */
void cl_rmem_free(struct cl_rmem *m, void *p, uint64_t n);
/* p NULL is allowed, with was = 0. */
void *cl_rmem_resize(struct cl_rmem *m, void *p, uint64_t was, uint64_t n);
/* Give back the spans. All blocks are free. */
void cl_rmem_end(struct cl_rmem *m);

#endif

/* Memory of the program's that a call is given, by pointers that may be wrong: Linux says EFAULT, and so do the calls
 * that look here first. A look touches a byte of each page; one that faults is known by where its code lies, and fails
 * (cl_posix_memory_fault, which the handler of SIGSEGV and SIGBUS asks: preload/faults.c). What another thread unmaps
 * between the look and the call's own use is not found. */
#ifndef CORELANE_LIBOS_POSIX_MEMORY_H
#define CORELANE_LIBOS_POSIX_MEMORY_H

#include <corelane/runtime/base.h>

#include <sys/uio.h>

/* How many bytes from p on, up to n, can be read, or read and written; of the latter none changes. */
CL_API size_t cl_posix_readable(const void *p, size_t n);
CL_API size_t cl_posix_writable(void *p, size_t n);

static inline bool cl_posix_can_read(const void *p, size_t n)
{
    return cl_posix_readable(p, n) == n;
}

static inline bool cl_posix_can_write(void *p, size_t n)
{
    return cl_posix_writable(p, n) == n;
}

/* The same of n pieces, one after the other, up to `most` bytes. */
int64_t cl_posix_pieces_readable(const struct iovec *vec, int64_t n, int64_t most);
int64_t cl_posix_pieces_writable(const struct iovec *vec, int64_t n, int64_t most);

/* context: of a handler of signals. True: a look has faulted, and fails when the handler returns. */
CL_API bool cl_posix_memory_fault(void *context);
/* The calling thread blocks other signals than before, perhaps. One that blocks SIGSEGV or SIGBUS is asked for them
 * during each look, as Linux ends a program that faults with its signal blocked. */
CL_API void cl_posix_signals_changed(void);

#endif

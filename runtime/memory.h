/* Memory that processes share: sealed memfds, mapped and measured.
 *
 * A memory file has its size fixed for ever by seals: whoever maps it can rely on it that no peer shrinks it under the
 * mapping (SIGBUS), and whoever receives one checks the seals before touching it. With CL_MEMORY_PEERS_READ the maker
 * keeps a writable mapping and nobody else can ever get one (F_SEAL_FUTURE_WRITE), whatever becomes of the descriptor.
 *
 * Huge pages are a wish: if the pool is empty the file is made of base pages, and `huge_error` says why. Pages that
 * were never touched take no memory, but for huge pages and with CL_MEMORY_PREFAULT; cl_memory_used tells.
 *
 * Threads: none of its own; an object is used by one thread at a time. Tests: tests/runtime/test_memory.py. */
#ifndef CORELANE_RUNTIME_MEMORY_H
#define CORELANE_RUNTIME_MEMORY_H

#include <corelane/runtime/base.h>

CL_EXTERN_C_BEGIN

// cffi: begin
#define CL_MEMORY_HUGE 1       /* wished: huge pages (hugetlb); in the result: obtained */
#define CL_MEMORY_THP 2        /* ask for transparent huge pages; in the result: the kernel took the advice */
#define CL_MEMORY_PREFAULT 4   /* touch every page now, so that no page fault comes later */
#define CL_MEMORY_PEERS_READ 8 /* peers can map it read-only only */

/* A mapping. base NULL: not mapped. */
struct cl_memory {
    void *base;
    uint64_t bytes;      /* of the mapping and of the file: what was asked for, rounded up to pages */
    uint64_t room;       /* bytes of address space from base on that are the object's: `bytes`, or more */
    uint64_t page_bytes; /* of the pages behind it */
    int fd;              /* the file; closed by cl_memory_close, or -1 after cl_memory_shut */
    uint32_t flags;      /* what was obtained */
    int huge_error;      /* errno why huge pages were not obtained; 0 if they were, or were not asked for */
};

/* Make, seal and map a memory file of at least `bytes`, zeroed. name: for /proc/PID/maps, at most 200 characters. */
CL_API int cl_memory_create(const char *name, uint64_t bytes, uint32_t flags, struct cl_memory *out, char err[256]);
/* Map a peer's memory file of at least `bytes`, after checking that it cannot shrink. Takes over fd if it succeeds.
 * -EPERM: not sealed; -EPROTO: shorter than announced; -EACCES: writable was asked for and is not allowed. */
CL_API int cl_memory_map(int fd, uint64_t bytes, bool writable, struct cl_memory *out, char err[256]);
/* Take `bytes` of address space, with private zeroed memory behind, for cl_memory_map_over. -errno. */
CL_API int cl_memory_reserve(uint64_t bytes, struct cl_memory *out);
/* As cl_memory_map, at the addresses of an object that was reserved or vacated. -ENOSPC: they are too few; other
 * errors: as it was. */
CL_API int cl_memory_map_over(int fd, uint64_t bytes, bool writable, struct cl_memory *m, char err[256]);
/* Let the file go, and put private zeroed memory at its addresses: whoever has one of them may still read and write
 * there. -errno: as it was. */
CL_API int cl_memory_vacate(struct cl_memory *m);
/* Close the descriptor; the mapping stays. */
CL_API void cl_memory_shut(struct cl_memory *m);
/* Unmap and close. Again, or on a zeroed object: nothing. */
CL_API void cl_memory_close(struct cl_memory *m);
/* Bytes of the file that take memory now, whichever process touched them. */
CL_API int cl_memory_used(const struct cl_memory *m, uint64_t *used_bytes);

/* Have bytes [offset, offset + bytes) of a writable mapping take memory now, by one call of the kernel's instead of a
 * fault a page. Where it refuses (before Linux 5.14, or out of memory) a page comes when it is touched, as ever. */
CL_API void cl_memory_populate(const struct cl_memory *m, uint64_t offset, uint64_t bytes);

/* Send up to 16 descriptors along with n > 0 bytes. Returns the bytes sent or -errno; sends all descriptors or none. */
CL_API int64_t cl_fds_send(int sock, const void *data, uint64_t n, const int *fds, unsigned n_fds);
/* Receive up to n bytes and append the descriptors that came with them (close-on-exec) to fds[*n_fds..max_fds); those
 * beyond max_fds are closed. flags as for recvmsg. Bytes received (0: end of stream), -errno, or -EMSGSIZE if the
 * kernel had to leave descriptors out; then *n_fds still counts what was received. */
CL_API int64_t cl_fds_receive(int sock, void *data, uint64_t n, int flags, int *fds, unsigned max_fds, unsigned *n_fds);
// cffi: end

CL_EXTERN_C_END
#endif

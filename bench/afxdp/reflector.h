/* The floor of `corelane bench afxdp`: a raw AF_XDP reflector. No libos, no NIC vtable, no pool, no parking, no
 * statistics but two counts. One pinned thread spins on the rx ring, swaps MAC, IP and UDP port pairs in place (which
 * leaves the checksums right) and sends the very same chunk back.
 *
 * Hand-tuned for latency: the doorbell comes before anything that the peer does not wait for; a chunk comes back from
 * the completion ring straight into the fill ring; on copy-mode devices the kernel has both done when the doorbell
 * returns. */
#ifndef CORELANE_BENCH_AFXDP_REFLECTOR_H
#define CORELANE_BENCH_AFXDP_REFLECTOR_H

#include "../../drivers/nic/af_xdp/xsk.h"

// cffi: begin
struct cl_reflector;

/* Reflector on one queue of an interface of the calling thread's namespace, its thread pinned to `cpu`. -errno with the
 * reason in err (256 bytes). chunks: frames kept for receiving. checks: a datagram whose IPv4 or UDP checksum is wrong
 * is dropped, and an answer's are made anew, as a host has to that answers something else; still in place. */
CL_API int cl_reflector_new(const struct cl_xsk_config *config, uint32_t queue, uint32_t chunks, bool checks, int cpu,
                            struct cl_reflector **out, char *err);
/* The socket to put into the XDP program's XSKMAP. */
CL_API int cl_reflector_fd(const struct cl_reflector *r);
/* Frames reflected, and frames of other kinds received and dropped. */
CL_API void cl_reflector_counts(const struct cl_reflector *r, uint64_t *reflected, uint64_t *ignored);
/* From now on take the time of every doorbell, which is one system call that sends. */
CL_API void cl_reflector_time_doorbells(struct cl_reflector *r);
/* The last doorbells' times, at most n and 4096 of them, in ns; returns how many. */
CL_API unsigned cl_reflector_doorbells(const struct cl_reflector *r, double *ns, unsigned n);
/* Stop the thread, close the socket, free everything. */
CL_API void cl_reflector_delete(struct cl_reflector *r);
// cffi: end

#endif

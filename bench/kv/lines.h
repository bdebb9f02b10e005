/* The floor of a key-value server in memory: it touches the cache lines that a GET touches, in the order in which their
 * misses overlap best, and does nothing else.
 *
 *   request    descriptor and frame, as the NIC brings them
 *   index      a line for each four keys, chosen by a hash of the key
 *   item       found by what the index line holds: a header of 32 bytes, key and value
 *   answer     written over the request, so its first lines are here already; the others are sent for to be written
 *
 * A burst goes through three stages: the index lines of all are sent for, then their items, then all are answered. No
 * stack, checksums, protocol, comparing of keys, eviction, locks, counters of commands. Keys are the load generator's
 * (drivers/nic/loadgen/memcached.c), whose first eight letters are a number. Answers are right, byte by byte: what is
 * set is what is got. One pinned thread spins on queue 0 of a NIC. No ARP: the client must know the MAC address. */
#ifndef CORELANE_BENCH_KV_LINES_H
#define CORELANE_BENCH_KV_LINES_H

#include <corelane/drivers/nic.h>

// cffi: begin
#define CL_KV_LINES_KEY 16 /* bytes of a key */

struct cl_kv_lines;

/* Room for `keys` keys, of none of which anything is known. -ENOMEM, -EINVAL (no key, or values that fit no
 * datagram). */
CL_API int cl_kv_lines_new(uint32_t keys, uint32_t value_bytes, struct cl_kv_lines **out);
/* Serve on a NIC, which stays the caller's, from a thread on `cpu`, until stop. -errno, the reason in err[256]. */
CL_API int cl_kv_lines_start(struct cl_kv_lines *s, struct cl_nic *nic, int cpu, char *err);
CL_API void cl_kv_lines_stop(struct cl_kv_lines *s);
/* Not while it serves. */
CL_API void cl_kv_lines_delete(struct cl_kv_lines *s);
/* Requests answered and frames that were none, so far; from any thread. */
CL_API void cl_kv_lines_counts(const struct cl_kv_lines *s, uint64_t *answered, uint64_t *ignored);
// cffi: end

#endif

/* The floor of a TCP server: it answers a segment from what stands in it, and keeps nothing of any connection.
 *
 *   SYN     SYN and acknowledgement: the options are the peer's own, turned round
 *   data    the same data, and its acknowledgement; or, if it takes, the acknowledgement alone, one for a burst. If it
 *           keeps what it takes it sums and copies it first, as whoever hands data to a user has to
 *   FIN     FIN and acknowledgement
 *   others  nothing
 *
 * So it has no states, windows, timers, losses, order or memory: what a server takes more than this is for these. If it
 * connects, it is the least TCP that answers requests instead (minimal.h): what it returns is kept, and compared. Peers
 * must lose nothing, and what they send must be in order. One pinned thread spins on queue 0 of any NIC and sends the
 * very frames that came. No ARP: the peer must know its MAC address. */
#ifndef CORELANE_BENCH_TCP_REFLECTOR_H
#define CORELANE_BENCH_TCP_REFLECTOR_H

#include <corelane/drivers/nic.h>

// cffi: begin
struct cl_tcp_reflector;

/* What it does with data. */
enum { CL_REFLECTOR_RETURNS, CL_REFLECTOR_TAKES, CL_REFLECTOR_KEEPS, CL_REFLECTOR_CONNECTS };

/* data: one of these. The NIC stays the caller's. -errno, the reason in err[256]. */
CL_API int cl_tcp_reflector_start(struct cl_nic *nic, int cpu, uint32_t data, struct cl_tcp_reflector **out, char *err);
CL_API void cl_tcp_reflector_stop(struct cl_tcp_reflector *r);
// cffi: end

#endif

/* A neighbour that sends as fast as it can, for the isolation benchmark.
 *
 * It attaches as an application and keeps its tx ring full of descriptors that send the same frames again and again:
 * the iokernel copies frames, so their buffers need not change. That costs the flooder a few nanoseconds a frame, far
 * less than an honest sender, so that it fits into the gaps of a core that somebody else uses: it fills the ring,
 * sleeps, fills it again before it has run empty. Silent, it writes into its ring too, but nothing that the iokernel
 * takes.
 *
 * Threads: one. Not a port: it sends one buffer many times over, which the port's bookkeeping rules out. */
#ifndef CORELANE_BENCH_ISOLATION_FLOOD_H
#define CORELANE_BENCH_ISOLATION_FLOOD_H

#include "../../runtime/control.h"

// cffi: begin
struct cl_flood;

struct cl_flood_result {
    uint64_t sent;  /* descriptors that the iokernel took */
    uint64_t fills; /* times that the ring was filled up */
    uint64_t empty; /* of these, times that it was found empty: the iokernel was not saturated for a moment */
};

/* Attach as `name` with one kthread and a ring of `slots` (a power of two). -errno with a reason in err[256]. */
CL_API int cl_flood_new(const char *socket_path, const char *name, uint32_t slots, struct cl_flood **out, char *err);
/* Its own address, for the frame. */
CL_API void cl_flood_address(const struct cl_flood *flood, uint8_t *mac, uint32_t *ipv4);
/* Send `frame` for duration_ns, sleeping pause_ns between fills; then wait until the ring is empty. silent: send
 * nothing, but take the time that writing so many frames at each fill takes; 0: flood. -errno: the iokernel has gone or
 * reads no more. */
CL_API int cl_flood_run(struct cl_flood *flood, const uint8_t *frame, uint32_t len, int64_t duration_ns,
                        int64_t pause_ns, uint32_t silent, struct cl_flood_result *out);
CL_API void cl_flood_delete(struct cl_flood *flood);
// cffi: end

#endif

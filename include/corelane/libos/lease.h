/* Bytes of TCP without a copy: leases of what has come, and regions to send from. Part of the C API (libos.h).
 *
 *   struct cl_lease got;
 *   while (cl_stream_lease(s, &got, -1) == 0) {      tcp.h has the calls of the event form, stream.h those of sockets
 *       look_at(got.data, got.len);
 *       cl_lease_return(rt, &got);
 *   }
 *
 * A lease. The bytes are the user's from the call that gives them until it returns them, wherever the connection is by
 * then: read, closed, reset, gone. They lie in the frame in which they came, or in a chunk of the stack's. Nothing
 * writes to them meanwhile; the user must not either. A lease counts in its connection's receive buffer, with 2 KiB at
 * least, and closes the window that the peer sees; when as much is out as may be there, no more are given. So leases
 * that never come back hold up their own connection, and no other; `leased` - `unleased` of struct cl_tcp_counts says
 * how many are out. Of a NIC's buffers an eighth at most is kept so, of all connections together: what comes beyond
 * is copied into chunks, once (`frames_refused`), and so is what comes out of order, or in pieces below 512 bytes.
 *
 * A region. Memory of the user's, of which connections send without copying it into a buffer first: each segment is
 * copied, and summed, on its way into the NIC's frame, and for a retransmission again, from where it lies. What was
 * written from a region must stay as it is until it is released: acknowledged by the peer, or the connection over,
 * however it ended. Then `released` (tcp.h) or cl_stream_wait_released (stream.h) says so; the region itself counts
 * what connections still need, closed ones too. It counts in the send buffer as what is copied does, so that the
 * memory that a peer can hold up by acknowledging nothing has the same bound. */
#ifndef CORELANE_LIBOS_LEASE_H
#define CORELANE_LIBOS_LEASE_H

#include <corelane/runtime/base.h>

CL_EXTERN_C_BEGIN

// cffi: begin
struct cl_runtime;

struct cl_lease {
    const uint8_t *data;
    int64_t len;
    void *chunk, *home; /* the stack's; chunk NULL: nothing is leased */
};

/* Give it back; *lease is empty then. Any thread; on a kthread it costs little, elsewhere some 10 to 20 us. Also when
 * the runtime has stopped, and not when it was deleted. -EINVAL: it is empty. -EDEADLK: on a kthread of another
 * runtime; -ESHUTDOWN: the runtime is about to stop, and the lease is still out: again when it has. */
CL_API int cl_lease_return(struct cl_runtime *rt, struct cl_lease *lease);

struct cl_region;

/* Have connections send from `bytes` bytes at `base`, which stay the caller's, and readable, until cl_region_delete.
 * -EINVAL, -ENOMEM. Any thread, as the next two. */
CL_API int cl_region_new(const void *base, int64_t bytes, struct cl_region **out);
/* -EBUSY: connections may still send from it, and it stays as it is. NULL is allowed. */
CL_API int cl_region_delete(struct cl_region *region);
/* Bytes that were written from it and are not released. 0: nobody reads it any more. */
CL_API int64_t cl_region_lent(const struct cl_region *region);
// cffi: end

CL_EXTERN_C_END
#endif

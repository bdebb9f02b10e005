/* What came out of order, until what is before it has come.
 *
 * Ranges of bytes, sorted, with gaps between them, in one chunk that exists while there are any; the bytes of a range
 * in a chain. Of a byte that comes twice the first to come is kept, whatever the second says. At most CL_TCP_RANGES
 * ranges, all inside the window. What finds no room is refused. Only what is next in order makes room for itself: the
 * range that was added to last goes, its peer sends it again (RFC 2018, section 8, allows it). */
#ifndef CORELANE_LIBOS_NET_TCP_REASSEMBLY_H
#define CORELANE_LIBOS_NET_TCP_REASSEMBLY_H

#include "buffer.h"

struct cl_tcp_aside {
    uint32_t from, to;
    struct cl_chunk *first, *last;
    uint32_t order; /* of its last arrival */
    uint32_t pad;
};

#define CL_TCP_RANGES ((CL_CHUNK_ROOM - 16) / sizeof(struct cl_tcp_aside))

struct cl_tcp_reassembly {
    uint32_t n, order;
    uint64_t since_ns; /* since when what is behind the first gap has waited */
    struct cl_tcp_aside ranges[CL_TCP_RANGES];
};
_Static_assert(sizeof(struct cl_tcp_reassembly) <= CL_CHUNK_ROOM, "one chunk");

/* Put len > 0 bytes from seq on aside, where rcv_nxt <= seq. Returns how many of them it has now. */
uint32_t cl_tcp_aside_put(struct cl_tcp_conn *c, uint32_t seq, const uint8_t *data, uint32_t len);
/* Move what is in order by now to `receive`, and rcv_nxt with it. */
void cl_tcp_aside_take(struct cl_tcp_conn *c);
/* Forget what lies from seq on. */
void cl_tcp_aside_cut(struct cl_tcp_conn *c, uint32_t seq);
void cl_tcp_aside_free(struct cl_tcp_conn *c);
/* The ranges, the latest arrival first (RFC 2018, section 4), at most `room` of them. Returns how many. */
unsigned cl_tcp_aside_sacks(const struct cl_tcp_conn *c, struct cl_tcp_range *out, unsigned room);

#endif

/* The window that we offer (RFC 9293, sections 3.8.6 and 3.8.6.2.2; RFC 7323, section 2): in line, since each segment
 * says it. */
#ifndef CORELANE_LIBOS_NET_TCP_WINDOW_H
#define CORELANE_LIBOS_NET_TCP_WINDOW_H

#include "machine.h"

#define CL_TCP_FIELD_MOST 65535u

/* Bytes that may still come without going beyond the limit, as far as the field can say that: a limit below a unit of
 * the scale could never be said, so it is one. */
static inline uint32_t cl_tcp_receive_room(const struct cl_tcp_conn *c)
{
    uint64_t held = (uint64_t)c->receive.bytes + cl_tcp_leased(c);
    uint32_t limit = cl_max(c->receive.limit, 1u << c->rcv_scale), room = limit > held ? limit - (uint32_t)held : 0;
    return cl_min(room, CL_TCP_FIELD_MOST << c->rcv_scale);
}

/* By how much it has to grow before that is told: else the peer would send tiny segments. */
static inline uint32_t cl_tcp_window_step(const struct cl_tcp_conn *c)
{
    return cl_min(c->receive.limit / 2, (uint32_t)c->settings->mss);
}

/* By how much, for a segment of its own that tells it. A peer that may still send two segments, and half of the limit,
 * does not wait for that: the next acknowledgement says it. */
static inline uint32_t cl_tcp_window_worth(const struct cl_tcp_conn *c)
{
    uint32_t promised = c->rcv_edge - c->rcv_nxt, half = c->receive.limit / 2, two = 2u * c->settings->mss;
    return promised >= cl_max(half, two) ? UINT32_MAX - promised : cl_min(two, half);
}

/* Whether memory is short for what may come. Who has nothing waiting, or leased, is not to suffer from others who
 * do. */
static inline bool cl_tcp_is_pressed(const struct cl_tcp_conn *c)
{
    if (c->receive.bytes == 0 && cl_tcp_leased(c) == 0)
        return false;
    /* Relaxed: the pool was used up a moment ago, or not. */
    return c->turn->now_ns < cl_load_relaxed(&c->turn->stack->pressure_until_ns) || cl_tcp_has_its_share(c);
}

/* The window field of a segment that leaves now; what it promises is kept. */
static CL_ALWAYS_INLINE uint16_t cl_tcp_window(struct cl_tcp_conn *c, bool syn)
{
    unsigned scale = syn ? 0 : c->rcv_scale;
    uint32_t unit = 1u << scale, room = cl_tcp_receive_room(c), promised = c->rcv_edge - c->rcv_nxt;
    if (room >= promised + cl_tcp_window_step(c) && !cl_tcp_is_pressed(c))
        promised = room;
    /* Rounded up, so that the edge does not move left for whoever reads the field; but not beyond the limit again and
     * again: then it is told a little less, and what was promised is taken nevertheless (section 2.4). */
    uint32_t field = (promised + unit - 1) >> scale;
    if (room < promised && field << scale > promised)
        field = promised >> scale;
    field = cl_min(field, CL_TCP_FIELD_MOST);
    c->rcv_edge = cl_seq_max(c->rcv_edge, c->rcv_nxt + (field << scale));
    return (uint16_t)field;
}

#endif

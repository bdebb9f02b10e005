/* What the files of the state machine share. See conn.h. */
#ifndef CORELANE_LIBOS_NET_TCP_MACHINE_H
#define CORELANE_LIBOS_NET_TCP_MACHINE_H

#include "buffer.h"
#include "listen.h"
#include "loans.h"
#include "reassembly.h"
#include "recovery.h"
#include "scoreboard.h"

#define CL_TCP_MS 1000000ull
#define CL_TCP_OPTION_TIMES 12  /* bytes of a timestamp option, filled up */
#define CL_TCP_RETRIES 15       /* R2 (RFC 9293, section 3.8.3: at least 100 s) */
#define CL_TCP_ORPHAN_RETRIES 8 /* when the user has closed */
#define CL_TCP_ORPHAN_MS 60000  /* zero windows, when the user has closed */
#define CL_TCP_QUICK 16         /* acknowledgements at the start that are not delayed */
#define CL_TCP_CHALLENGES 10    /* in CL_TCP_CHALLENGE_MS, of a connection (RFC 5961, section 7) */
#define CL_TCP_CHALLENGE_STEP_MS 8
#define CL_TCP_CHALLENGE_MS 1000  /* also answers to old numbers without data: no two ends answer each other for ever */
#define CL_TCP_PAWS_MS 2073600000 /* 24 days (RFC 7323, section 5.5) */
#define CL_TCP_RETRY_NS 1000000ull /* without a buffer */
#define CL_TCP_ANSWER_NS 500000ull /* after which an answer does not come soon */
#define CL_TCP_BLACK_HOLE_RETRIES 3
#define CL_TCP_BURST 10     /* segments that leave at once after idleness, as many as at the start (RFC 6928) */
#define CL_TCP_DUPLICATES 3 /* that mean a loss (RFC 5681, section 3.2) */

static inline uint32_t cl_tcp_now_ms(const struct cl_tcp_conn *c)
{
    return (uint32_t)(c->turn->now_ns / CL_TCP_MS);
}

static inline void cl_tcp_set(struct cl_tcp_conn *c, enum cl_tcp_timer timer, uint64_t in_ns)
{
    c->due_ns[timer] = c->turn->now_ns + in_ns;
}

static inline void cl_tcp_unset(struct cl_tcp_conn *c, enum cl_tcp_timer timer)
{
    c->due_ns[timer] = CL_TCP_NEVER;
}

/* Our SYN is out, and not acknowledged. */
static inline bool cl_tcp_opening(const struct cl_tcp_conn *c)
{
    return c->state <= CL_TCP_SYN_RECEIVED;
}

/* The number behind the last byte that was written. */
static inline uint32_t cl_tcp_data_end(const struct cl_tcp_conn *c)
{
    /* With our SYN unacknowledged una is its number; with our FIN acknowledged the one behind the FIN's, and never
     * used. */
    return c->una + cl_tcp_opening(c) + c->send.bytes;
}

/* All that was written was sent, or nothing was. */
static inline bool cl_tcp_has_left(const struct cl_tcp_conn *c)
{
    return c->state >= CL_TCP_ESTABLISHED && cl_seq_upto(cl_tcp_data_end(c), c->nxt);
}

/* A FIN is to follow what was written, and has not left. */
static inline bool cl_tcp_fin_due(const struct cl_tcp_conn *c)
{
    return (c->flags & (CL_TCP_FIN_WANTED | CL_TCP_FIN_OUT)) == CL_TCP_FIN_WANTED;
}

/* Bytes of data that fit into a segment with the options of now. */
uint32_t cl_tcp_mss_now(const struct cl_tcp_conn *c);
static inline uint64_t cl_tcp_conn_rto_ns(const struct cl_tcp_conn *c)
{
    return cl_tcp_rto_ns(&c->rtt, c->settings->rto_least_ms * CL_TCP_MS);
}

/* output.c */
void cl_tcp_output(struct cl_tcp_conn *c);
/* The SYN, or the SYN that also acknowledges, as it leaves now; what its window promises is kept. */
void cl_tcp_syn(struct cl_tcp_conn *c, struct cl_tcp_segment *s);
/* An acknowledgement at once, as of a duplicate. */
void cl_tcp_send_ack(struct cl_tcp_conn *c);
/* An old number without data: asks the peer to say where it is. */
void cl_tcp_send_probe(struct cl_tcp_conn *c);
/* A reset. With `ack`, of rcv_nxt. */
void cl_tcp_send_reset(struct cl_tcp_conn *c, uint32_t seq, bool ack);
/* A segment that cannot be right came: say where we are, if the limit allows (RFC 5961, section 7). */
void cl_tcp_challenge(struct cl_tcp_conn *c);

/* Something of `send` was acknowledged: who could not write all hears of it when there is room worth it. */
static inline void cl_tcp_room_made(struct cl_tcp_conn *c)
{
    if (cl_likely(!(c->flags & CL_TCP_WANTS_ROOM)) || c->send.bytes > c->send.limit - c->send.limit / 3)
        return;
    c->flags &= ~(uint32_t)CL_TCP_WANTS_ROOM;
    c->events |= CL_TCP_EVENT_WRITABLE;
}

/* ack.c: the acknowledgement and the window in a segment. False: the segment goes no further. */
bool cl_tcp_take_ack(struct cl_tcp_conn *c, const struct cl_tcp_segment *s, uint32_t seq);
void cl_tcp_take_window(struct cl_tcp_conn *c, const struct cl_tcp_segment *s, uint32_t seq);

/* data.c: data and the FIN of an acceptable segment. */
void cl_tcp_take_data(struct cl_tcp_conn *c, uint32_t seq, const uint8_t *data, uint32_t len, bool fin);

/* Segments are smaller than both ends would take, since the path is. */
static inline bool cl_tcp_path_limits(const struct cl_tcp_conn *c)
{
    return c->cc.mss + (c->flags & CL_TCP_TIMES ? CL_TCP_OPTION_TIMES : 0) < c->mss;
}

/* What the short ways of a segment (input.c) and of an answer (output.c) take for granted: data goes both ways, nothing
 * is missing on either side, and neither marks nor the path have a say. CL_TCP_PLAIN remembers it from turn to turn. */
static inline bool cl_tcp_is_plain(const struct cl_tcp_conn *c)
{
    return c->state == CL_TCP_ESTABLISHED && cl_tcp_calm(c) && !(c->flags & (CL_TCP_READ_SHUT | CL_TCP_FIN_AHEAD)) &&
           !c->aside && !c->stall && !(c->marks & CL_TCP_MARKS_OF_ECN) && !cl_tcp_path_limits(c) &&
           !c->settings->no_prediction;
}

/* Something is done that may end it: the turn's end looks again. */
static inline void cl_tcp_not_plain(struct cl_tcp_conn *c)
{
    c->flags &= ~(uint32_t)CL_TCP_PLAIN;
}

/* path.c: a time-out has come: segments may be too large for the path. */
void cl_tcp_suspect_path(struct cl_tcp_conn *c);

/* An acknowledgement that is due now; where a uthread is about to answer it waits for that a moment, to ride on it. */
static inline void cl_tcp_ack_now(struct cl_tcp_conn *c)
{
    if (!(c->flags & CL_TCP_ANSWERED_LATER)) {
        c->flags |= CL_TCP_ACK_NOW;
        return;
    }
    c->flags |= CL_TCP_ACK_SOON;
    c->due_ns[CL_TCP_TIMER_ACK] = cl_min(c->due_ns[CL_TCP_TIMER_ACK], c->turn->now_ns + CL_TCP_ANSWER_NS);
}

/* window.c */
/* The user has taken something: tell the peer, if that is worth a segment. */
void cl_tcp_window_opened(struct cl_tcp_conn *c);

/* options.c */
/* Our options for a SYN. */
void cl_tcp_offer_options(const struct cl_tcp_conn *c, struct cl_tcp_options *o);
/* What the peer's SYN says: agree. */
void cl_tcp_agree(struct cl_tcp_conn *c, const struct cl_tcp_segment *syn);

/* rate.c */
/* The round trip that is measured now, before an acknowledgement is looked at that moved una on from `before`. */
struct cl_tcp_round cl_tcp_round_now(struct cl_tcp_conn *c, uint32_t before);
/* It was looked at: the rate is known if the round trip is over by it. */
void cl_tcp_round_acked(struct cl_tcp_conn *c, const struct cl_tcp_round *round);
/* Bytes a second, within a sixteenth; 0: none was measured. */
uint64_t cl_tcp_delivery_rate(const struct cl_tcp_conn *c);

/* stall.c */
/* What begins at `seq` is about to be sent again. */
void cl_tcp_stall_resent(struct cl_tcp_conn *c, uint32_t seq);
/* Nothing is under way, and something waits. */
void cl_tcp_stall_window(struct cl_tcp_conn *c);
/* The gap is filled behind which something has waited since then. */
void cl_tcp_stall_filled(struct cl_tcp_conn *c, uint64_t since_ns);
/* What it stood still for (c->stall) is over, since end_ns. */
void cl_tcp_stall_over(struct cl_tcp_conn *c, uint64_t end_ns);
/* The same of what was lost: it is acknowledged. left_ns: when the last of it left. */
void cl_tcp_stall_recovered(struct cl_tcp_conn *c, uint64_t left_ns);

/* ecn.c */
/* Flags of a SYN of ours. */
uint8_t cl_tcp_ecn_of_syn(const struct cl_tcp_conn *c);
/* What the peer's SYN says: agree. */
void cl_tcp_ecn_agree(struct cl_tcp_conn *c, const struct cl_tcp_segment *syn);
/* An acceptable segment came, before its data is taken. */
void cl_tcp_ecn_came(struct cl_tcp_conn *c, const struct cl_tcp_segment *s);
/* The acknowledgement of an acceptable segment was taken. */
void cl_tcp_ecn_echoed(struct cl_tcp_conn *c, const struct cl_tcp_segment *s);

/* states.c */
void cl_tcp_established(struct cl_tcp_conn *c, const struct cl_tcp_segment *s, uint32_t seq);
void cl_tcp_fin_taken(struct cl_tcp_conn *c);
void cl_tcp_fin_acked(struct cl_tcp_conn *c);
/* It is over, for a reason (errno), or 0. */
void cl_tcp_end(struct cl_tcp_conn *c, int error);

/* user.c, of a write of `len` bytes: how many of them the buffer has room for, or -EPIPE; and `done` of those were
 * taken. */
int64_t cl_tcp_write_room(const struct cl_tcp_conn *c, int64_t len);
void cl_tcp_wrote(struct cl_tcp_conn *c, int64_t len, int64_t room, int64_t done);

/* user.c: whether a read of so many bytes leaves nothing for the end of a turn to do. By the connection's holder. */
bool cl_tcp_reads_quietly(const struct cl_tcp_conn *c, int64_t room);

/* keep.c: the times of keep-alive of one connection. -ENOBUFS: connections of the stack have CL_TCP_KEEPS other
 * ones. */
int cl_tcp_keep_times(struct cl_tcp_conn *c, uint32_t idle_ms, uint32_t interval_ms, uint32_t probes);
/* It probes, and so much of the time until the first probe has passed. */
void cl_tcp_keep_from(struct cl_tcp_conn *c, uint32_t passed_ms);

/* tell.c: call the user of what has happened. */
void cl_tcp_tell_events(struct cl_tcp_conn *c);
static inline void cl_tcp_tell(struct cl_tcp_conn *c)
{
    if (c->events)
        cl_tcp_tell_events(c);
}
/* A callback has returned, perhaps on another kthread. */
static inline void cl_tcp_returned(struct cl_tcp_conn *c)
{
    if (c->turn->called)
        c->turn->called(c->turn);
}

/* One call of `data`. Returns how many it took. */
static inline uint32_t cl_tcp_call_data(struct cl_tcp_conn *c, const uint8_t *data, uint32_t len)
{
    struct cl_tcp_turn *turn = c->turn;
    turn->offered = data;
    turn->offered_len = len;
    turn->leased = false;
    c->flags |= CL_TCP_OFFERING;
    int64_t took = c->user->data(c, data, len, c->arg);
    c->flags &= ~(uint32_t)CL_TCP_OFFERING;
    cl_tcp_returned(c);
    if (turn->leased)
        return len;
    return took < 0 ? 0 : (uint32_t)cl_min(took, (int64_t)len);
}

/* Offer bytes that lie in a frame. Returns how many the user took. */
static inline uint32_t cl_tcp_offer(struct cl_tcp_conn *c, const uint8_t *data, uint32_t len)
{
    if (cl_unlikely(c->events & CL_TCP_EVENT_OPENED))
        cl_tcp_tell(c);
    if (!c->user || !c->user->data || c->receive.bytes || (c->flags & CL_TCP_READ_SHUT) || c->state == CL_TCP_CLOSED)
        return 0;
    return cl_tcp_call_data(c, data, len);
}

/* Data came. What is longer than we take is several segments, put together on the way. */
static inline void cl_tcp_note_length(struct cl_tcp_conn *c, uint32_t len)
{
    if (cl_unlikely(len > c->rcv_mss))
        c->rcv_mss = (uint16_t)cl_max((uint32_t)c->rcv_mss, cl_min(len, (uint32_t)c->settings->mss));
}

/* Something in order has come (RFC 9293, section 3.8.6.3; RFC 5681, section 4.2). */
static inline void cl_tcp_schedule_ack(struct cl_tcp_conn *c)
{
    if (c->rcv_nxt - c->last_ack_sent > c->rcv_mss) {
        c->flags |= CL_TCP_ACK_NOW;
        return;
    }
    if (c->quick) {
        if (c->flags & CL_TCP_ANSWERED_LATER)
            c->quick--;
        cl_tcp_ack_now(c);
        return;
    }
    c->flags |= CL_TCP_ACK_SOON;
    if (c->due_ns[CL_TCP_TIMER_ACK] == CL_TCP_NEVER)
        cl_tcp_set(c, CL_TCP_TIMER_ACK, c->settings->delayed_ack_ms * CL_TCP_MS);
}

static inline void cl_tcp_next_taken(struct cl_tcp_conn *c, uint32_t done)
{
    cl_count(&c->turn->counts->bytes_in, done);
    cl_tcp_schedule_ack(c);
}

/* data.c: the user has taken the first `done` of the next bytes, and not all, or the connection is over. False: the
 * rest of them, or the connection, is gone. */
bool cl_tcp_keep_next(struct cl_tcp_conn *c, const uint8_t *data, uint32_t len, uint32_t done);

/* The next bytes, and nothing is missing: the user takes them out of the frame. False: as above. */
static inline bool cl_tcp_take_next(struct cl_tcp_conn *c, const uint8_t *data, uint32_t len)
{
    uint32_t done = 0;
    c->rcv_nxt += len;
    if (c->receive.bytes == 0)
        done = cl_tcp_offer(c, data, len);
    if (cl_unlikely(done < len || c->state == CL_TCP_CLOSED))
        return cl_tcp_keep_next(c, data, len, done);
    cl_tcp_next_taken(c, len);
    return true;
}

#endif

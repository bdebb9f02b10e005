/* Congestion control: one small interface, three rules behind it.
 *
 * The connection keeps what is common: slow start and its threshold, and recovery, in which PRR (RFC 6937)
 * and not the rule says how much may be sent. A rule is asked how the window grows in congestion avoidance, and where
 * to it falls. All in bytes; times in ns of the connection's clock.
 *
 *   newreno  RFC 5681, with appropriate byte counting (3465; no limit L: receivers acknowledge bursts)
 *   cubic    RFC 9438
 *   dctcp    RFC 8257: falls by how much was marked; grows as newreno. Needs ECN, and a network that marks early
 *
 * A rule's state lies in the connection: no allocation, 64 bytes with all of it. */
#ifndef CORELANE_LIBOS_NET_TCP_CC_H
#define CORELANE_LIBOS_NET_TCP_CC_H

#include "seq.h"

#define CL_TCP_CC_NO_THRESHOLD UINT32_MAX
#define CL_TCP_CC_WINDOWS_LEAST 2 /* segments, after a loss (RFC 5681, equation 4) */

struct cl_tcp_cc;

/* What one acknowledgement brought. */
struct cl_tcp_cc_ack {
    uint64_t now_ns;
    uint64_t rtt_ns;   /* smoothed; 0: unknown */
    uint32_t acked;    /* bytes acknowledged for the first time */
    uint32_t marked;   /* of them, those that the receiver says met congestion (ECE) */
    uint32_t una, nxt; /* SND.UNA after it, and SND.NXT */
    bool limited;      /* the window and not the application held sending back (RFC 7661): else it does not grow */
};

struct cl_tcp_cc_ops {
    const char *name;
    void (*init)(struct cl_tcp_cc *cc);
    /* Of every acknowledgement while cc->watches, also in recovery. */
    void (*saw)(struct cl_tcp_cc *cc, const struct cl_tcp_cc_ack *ack);
    /* Congestion avoidance, outside of recovery: let cc->window grow. */
    void (*grow)(struct cl_tcp_cc *cc, const struct cl_tcp_cc_ack *ack);
    /* The window to come down to: after a loss, or (ecn) after a mark. Once a window. Remembers what `undo` needs
     * beside cc->before, which is not set yet. */
    uint32_t (*fall)(struct cl_tcp_cc *cc, uint64_t now_ns, bool ecn);
    /* The fall was a mistake: forget it. The window is what it was. */
    void (*undo)(struct cl_tcp_cc *cc);
};

struct cl_tcp_cc {
    uint32_t window;    /* bytes that may be under way */
    uint32_t threshold; /* of slow start */
    uint16_t mss;       /* bytes of data in a full segment */
    uint8_t rule;       /* its number; see cl_tcp_cc_ops */
    bool watches;       /* the rule's: `saw` has something to note now */
    union {
        uint32_t acked; /* newreno, behind slow start: bytes not yet turned into growth */
        uint32_t most;  /* in slow start: bytes that were under way at once, since it began */
    };
    /* Before the last fall (cwnd_prior). threshold_before 0: that fall was right, or not for a loss. */
    uint32_t before, threshold_before;
    union {
        struct {
            uint64_t epoch_ns; /* when this growth began, 0: it has not */
            double friendly;   /* W_est, segments */
            uint32_t grew_us;  /* from then to the last acknowledgement */
            float top, rise_s; /* W_max, segments; K */
            float old_top;     /* W_max before the fall, for undo */
        } cubic;
        struct {
            uint32_t until;         /* the window of observation ends when this is acknowledged, ... */
            bool begun;             /* ... if there is one */
            uint32_t acked, marked; /* bytes in it */
            uint32_t alpha;         /* 2^10 is 1 */
        } dctcp;
    } of;
};

extern const struct cl_tcp_cc_ops cl_tcp_newreno, cl_tcp_cubic, cl_tcp_dctcp;

/* The rule that it follows. */
const struct cl_tcp_cc_ops *cl_tcp_cc_ops(const struct cl_tcp_cc *cc);

/* By its name; NULL: there is none. */
const struct cl_tcp_cc_ops *cl_tcp_cc_find(const char *name);
/* Begin with a window of ten segments, of 14 600 bytes at most or two segments (RFC 6928). */
void cl_tcp_cc_init(struct cl_tcp_cc *cc, const struct cl_tcp_cc_ops *ops, uint32_t mss);
/* Another rule goes on from the window that there is. */
void cl_tcp_cc_choose(struct cl_tcp_cc *cc, const struct cl_tcp_cc_ops *ops);
/* An acknowledgement came. recovering: the window is PRR's, or does not grow since an echo of a mark came. */
void cl_tcp_cc_acked(struct cl_tcp_cc *cc, const struct cl_tcp_cc_ack *ack, bool recovering);
/* Whether the window and not the application held back what was under way before an acknowledgement (RFC 7661, section
 * 4.2): half of the window or more; in slow start what a window of that size may grow to in a round trip. */
static inline bool cl_tcp_cc_limited(struct cl_tcp_cc *cc, uint32_t flight)
{
    if (cc->window >= cc->threshold)
        return 2 * (uint64_t)flight >= cc->window;
    cc->most = cl_max(cc->most, flight);
    return 2 * (uint64_t)cc->most > cc->window;
}
/* Whether an acknowledgement outside of recovery changes nothing: the application held sending back. */
static inline bool cl_tcp_cc_rests(const struct cl_tcp_cc *cc, bool limited)
{
    return !limited && !cc->watches;
}
/* Set the threshold to where the rule falls to; the window stays, since it is led there by PRR. Returns the
 * threshold. */
uint32_t cl_tcp_cc_fall(struct cl_tcp_cc *cc, uint64_t now_ns, bool ecn);
/* The last fall was for a loss that was none (RFC 4015's response): window and threshold are at least what they were.
 * Once for a fall; nothing to undo: nothing happens. */
void cl_tcp_cc_undo(struct cl_tcp_cc *cc);
/* There is something to undo. */
static inline bool cl_tcp_cc_may_undo(const struct cl_tcp_cc *cc)
{
    return cc->threshold_before != 0;
}
/* The time-out has come: one segment (RFC 5681, section 3.1). first: of this data; else the threshold stays. */
void cl_tcp_cc_timed_out(struct cl_tcp_cc *cc, uint64_t now_ns, bool first);
/* Nothing was sent for idle_ns: halve the window each time-out of it, down to the first one (RFC 2861). */
void cl_tcp_cc_idle(struct cl_tcp_cc *cc, uint64_t idle_ns, uint64_t rto_ns);

#endif

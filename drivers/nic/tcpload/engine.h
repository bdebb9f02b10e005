/* The client's state, and what its files offer each other. Private to this room. Everything belongs to the client's
 * thread, except what says otherwise. */
#ifndef CORELANE_DRIVERS_NIC_TCPLOAD_ENGINE_H
#define CORELANE_DRIVERS_NIC_TCPLOAD_ENGINE_H

#include "tcpload.h"
#include "../headers.h"
#include "../loadgen/arrivals.h"
#include "../../random.h"

#include "../../../runtime/net.h"
#include <errno.h>

#define ACK_MS 40 /* as Linux' delayed acknowledgement */
#define RESEND_MS 200
#define SYN_BYTES 20        /* options of a SYN */
#define OPENING_MOST 256    /* connections that are being opened at one time */
#define OWED_MOST 64        /* ARP answers and resets that wait to be sent; beyond, they are left out */
#define ATTACKERS_FROM 256  /* addresses of attackers: so far behind the first own one */
#define ATTACKERS 64        /* addresses */
#define ATTACKERS_PORT 1024 /* the first of each */
#define ATTACKERS_MOST 131072
#define NONE UINT32_MAX
#define NEVER UINT64_MAX

enum state { CLOSED = 0, OPENING, OPEN, RESETTING };

/* conn.flags */
#define IN_OUT 0x1   /* in the ring `out` */
#define IN_LATER 0x2 /* in the ring `later` */
#define NOW 0x4      /* a segment is wanted even if it carries nothing: a SYN, an acknowledgement, a reset */
#define OWES 0x8     /* an acknowledgement, by ack_ms at the latest */
#define ENDLESS 0x10 /* always has more to send */
#define CLOSES 0x20  /* a FIN follows what is to be sent */
#define FIN_OUT 0x40
#define BUSY 0x80     /* a request is under way */
#define TIMES 0x100   /* timestamps were agreed */
#define SPOILED 0x200 /* wrong bytes came: the request is never answered */
#define FIN_IN 0x400

/* A connection: one cache line but for what is rarely needed. Sequence numbers are TCP's, places the pattern's. */
struct conn {
    uint64_t intended;            /* of the request under way */
    uint32_t una, nxt, end, edge; /* unacknowledged, next, end of what is to be sent, end of the server's window */
    uint32_t rcv_nxt, acked;      /* acked: rcv_nxt as last told */
    uint32_t ts_recent;
    uint32_t got; /* bytes of the answer */
    uint32_t flow;
    uint32_t since_ms; /* nothing was acknowledged since */
    uint32_t ack_ms;
    uint16_t out_place, in_place; /* with a script, out_place is the line */
    uint16_t flags, mss;
    uint16_t phase;
    uint8_t state;
    uint8_t snd_scale : 4, rcv_scale : 4;
} CL_ALIGNED(CL_CACHELINE);
_Static_assert(sizeof(struct conn) == CL_CACHELINE, "a request touches one line");
_Static_assert(CL_TCPLOAD_MAX_PHASES <= UINT16_MAX, "a connection knows the phase of its request");

/* Numbers in the order in which they came. As large as what may be in it, so pushing never fails. */
struct ring {
    uint32_t *at;
    uint32_t mask, head, tail;
};

struct phase {
    struct cl_tcpload_counts counts;
    struct cl_hist *latency; /* NULL: not measured */
    uint64_t start_tsc, end_tsc;
    uint64_t mean_gap; /* ticks, 24 binary places; 0: a pause */
};

struct pending {
    uint64_t intended;
    uint32_t phase;
};

/* A frame owed to somebody who has no connection. */
struct owed {
    uint8_t mac[6];
    bool arp;
    uint32_t own_ip_be, peer_ip_be;
    uint32_t flow, seq; /* of a reset */
};

struct segment {
    const uint8_t *data;
    uint32_t seq, ack, window;
    uint32_t ts_val;
    uint32_t flow;
    uint32_t attacker; /* which of them it is for; NONE: it is for `flow` */
    uint16_t len;
    uint16_t mss;  /* of a SYN; 0: none was given */
    uint8_t scale; /* of a SYN; 255: none was given */
    uint8_t flags;
    bool has_times;
};

/* A connection of an attacker: attackers.c. */
struct attacker {
    uint32_t first, una, nxt, edge; /* first byte, unacknowledged, next, end of the server's window */
    uint32_t answer, rcv_nxt, told; /* first byte of the server, what is in order, what of that was acknowledged */
    uint32_t turns;
    uint8_t state;
    bool answers; /* in the ring of those that are to answer */
};

struct attack {
    uint32_t kind; /* CL_TCPLOAD_ATTACK_*; 0: none */
    uint64_t gap, next_tsc;
    struct cl_random random;
    struct attacker *own; /* NULL: this kind has no connections */
    uint32_t n, turn;     /* of them; whose turn is next */
    struct ring answers;  /* those that are to answer at once */
};

/* A segment that somebody makes up. */
struct forged {
    uint32_t ip; /* where it claims to be from */
    uint16_t port;
    uint8_t flags;
    uint8_t mss; /* named in a SYN; 0: none */
    uint16_t window;
    uint16_t len;   /* of data, ... */
    uint16_t place; /* ... which is the pattern's from here on */
    uint32_t seq, ack;
};

struct cl_tcpload {
    struct cl_tcpload_config config;
    const struct cl_clock *clock;
    const uint8_t *pattern;
    struct head template;
    uint64_t ip_sum, tcp_sum; /* of what is the same in all segments */
    uint32_t server_ip_be, flows, window_scale;
    uint16_t server_port_be, mss;

    struct conn *conns;
    uint32_t *conn_of; /* [flow]; NONE */
    struct ring out;   /* connections that may have something to send */
    struct ring later; /* connections that owe an acknowledgement, in the order of their times */
    struct ring idle;  /* those that may be given a request; of churn: that are closed */
    struct ring free_flows;
    struct owed owed[OWED_MOST];
    uint32_t n_owed;
    uint32_t now_ms; /* low word of the time */
    uint32_t n_open, n_opening, to_open, opened_seen;
    uint32_t calls, looked_at; /* see look_for_losses */
    uint64_t progress_tsc;

    struct cl_gaps gaps;
    uint32_t gap_at, gap_left, gap_shift;
    struct cl_random random;
    struct phase *phases;              /* replaced by cl_tcpload_run between runs */
    uint32_t n_phases, sched, current; /* sched: phase of the schedule; current: of the time */
    uint64_t run_tsc, due_q16, next_tsc;
    uint64_t outstanding;
    struct pending pending[CL_NIC_BURST];
    uint32_t n_pending;
    uint64_t late_ticks, drain_ticks, give_up_ticks;
    uint32_t end_state; /* after ENDING */
    struct attack attack;
    struct cl_tcpload_other other;
    uint32_t failed_with;   /* connections that were open when the run failed */
    struct cl_parker *wake; /* who is to be woken when a run starts; set before the first run */

    /* Between the client's thread and the controlling one.
     *   state     writer: the controller while IDLE or FAILED, else the client. Release: results before it.
     *   requested writer: the controller (release: the phases are set); reader: the client.
     *   aborted   writer: the controller; reader: the client. */
    uint32_t state CL_ALIGNED(CL_CACHELINE);
    uint32_t requested;
    uint32_t aborted;
    uint32_t obeyed; /* the client's: last `requested` acted upon */
};

static inline uint32_t ring_len(const struct ring *r)
{
    return r->tail - r->head;
}

static inline void ring_push(struct ring *r, uint32_t value)
{
    r->at[r->tail++ & r->mask] = value;
}

static inline uint32_t ring_pop(struct ring *r)
{
    return r->at[r->head++ & r->mask];
}

static inline bool before(uint32_t a, uint32_t b)
{
    return (int32_t)(a - b) < 0;
}

static inline uint16_t place_after(uint16_t place, uint32_t n)
{
    uint32_t at = place + n;
    return (uint16_t)(at < CL_TCPLOAD_PATTERN ? at : at % CL_TCPLOAD_PATTERN);
}

static inline struct phase *phase_of(struct cl_tcpload *load, const struct conn *c)
{
    return &load->phases[c->phase];
}

/* Whether there are requests. */
static inline bool asks(const struct cl_tcpload *load)
{
    return load->config.traffic == CL_TCPLOAD_ASK || load->config.traffic == CL_TCPLOAD_CHURN;
}

/* Bytes of the request of a connection, and of its answer. */
static inline uint32_t request_bytes(const struct cl_tcpload *load, const struct conn *c)
{
    const struct cl_tcpload_script *s = load->config.script;
    return s ? s->request_at[c->out_place + 1] - s->request_at[c->out_place] : load->config.request_bytes;
}

static inline uint32_t answer_bytes(const struct cl_tcpload *load, const struct conn *c)
{
    const struct cl_tcpload_script *s = load->config.script;
    return s ? s->answer_at[c->out_place + 1] - s->answer_at[c->out_place] : load->config.request_bytes;
}

/* The bytes of c's stream from `seq` on, which is part of its request. */
static inline const uint8_t *bytes_out(const struct cl_tcpload *load, const struct conn *c, uint32_t seq)
{
    const struct cl_tcpload_script *s = load->config.script;
    return s ? s->requests + s->request_at[c->out_place + 1] - (c->end - seq) : load->pattern + c->out_place;
}

static inline bool closed_loop(const struct cl_tcpload *load)
{
    return load->config.arrivals == CL_ARRIVALS_CLOSED;
}

/* segment.c */
void cl_tcpload_prepare(struct cl_tcpload *load);
/* Write a segment of c: `len` bytes from its out_place on. */
void cl_tcpload_write(struct cl_tcpload *load, const struct conn *c, uint8_t flags, uint32_t seq, uint32_t len,
                      struct cl_frame *frame);
void cl_tcpload_write_forged(struct cl_tcpload *load, const struct forged *f, struct cl_frame *frame);
/* Our end of a flow. */
uint32_t cl_tcpload_ip_of(const struct cl_tcpload *load, uint32_t flow);
uint16_t cl_tcpload_port_of(const struct cl_tcpload *load, uint32_t flow);
/* The frame owed to a stranger. */
void cl_tcpload_write_owed(struct cl_tcpload *load, const struct owed *owed, struct cl_frame *frame);
/* Whether it is a segment of the server to one of our flows or to an attacker; else it is counted, or an answer
 * owed. */
bool cl_tcpload_read(struct cl_tcpload *load, const struct cl_frame *frame, struct segment *s);

/* conn.c */
void cl_tcpload_open_one(struct cl_tcpload *load, struct conn *c);
void cl_tcpload_ask(struct cl_tcpload *load, struct conn *c, uint64_t intended, uint32_t phase, uint64_t now);
void cl_tcpload_take(struct cl_tcpload *load, const struct segment *s, uint64_t now);
/* What c has to send now, into at most n frames; returns how many. */
unsigned cl_tcpload_emit(struct cl_tcpload *load, struct conn *c, struct cl_frame *frames, unsigned n);
/* Reset all that are open; or, if the others are kept, those that can ask no more. */
void cl_tcpload_reset(struct cl_tcpload *load, bool all);
/* Send again what one connection, the next in turn, has been waiting for too long. */
void cl_tcpload_look_for_losses(struct cl_tcpload *load);
void cl_tcpload_queue(struct cl_tcpload *load, struct conn *c);

/* attack.c */
/* How many segments of the attacker are due; write them. */
unsigned cl_tcpload_attack_due(const struct cl_tcpload *load, uint64_t now, unsigned n);
unsigned cl_tcpload_attack_now(struct cl_tcpload *load, uint64_t now, struct cl_frame *frames, unsigned n);

/* attackers.c */
/* n connections, none of them open. False: no memory. */
bool cl_tcpload_attackers_new(struct attack *a, uint32_t n);
/* No attack, and nothing of the one before. */
void cl_tcpload_attackers_free(struct attack *a);
/* What one of them sends in its turn. False: nothing. */
bool cl_tcpload_attackers_turn(struct cl_tcpload *load, struct cl_frame *frame);
/* What came for one of them. */
void cl_tcpload_attackers_take(struct cl_tcpload *load, const struct segment *s);

/* ring.c */
/* An empty ring of n places at least. False: no memory. */
bool cl_tcpload_make_ring(struct ring *r, uint32_t n);

/* schedule.c */
void cl_tcpload_obey(struct cl_tcpload *load, uint64_t now);
void cl_tcpload_step(struct cl_tcpload *load, uint64_t now);
/* Move what is due from the schedule to `pending`, at most up to n. */
void cl_tcpload_draw(struct cl_tcpload *load, uint64_t now, uint32_t n);

/* Relaxed: a change by the controller is acted upon when `requested` is seen, with acquire. */
static inline uint32_t state_of(const struct cl_tcpload *load)
{
    return cl_load_relaxed(&load->state);
}

/* No run is under way: the phases are the controller's. */
static inline bool between_runs(const struct cl_tcpload *load)
{
    uint32_t state = state_of(load);
    return state == CL_TCPLOAD_IDLE || state == CL_TCPLOAD_ASKED || state == CL_TCPLOAD_FAILED;
}

/* Whether a connection may be given a request in the next run. */
static inline bool is_fit(const struct conn *c)
{
    return c->state == OPEN && !(c->flags & (BUSY | SPOILED | FIN_IN));
}

#endif

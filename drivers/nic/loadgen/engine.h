/* The engine's state, and what its files offer each other. Private to drivers/load.
 *
 * Everything belongs to the engine's thread, except what says otherwise. A run's request number k (counting from the
 * run's first) has sequence number run_first + k; phases own contiguous ranges of sequence numbers, so a request's
 * phase need not be stored. What a request awaits is in slots[seq & slot_mask]; a slot that is overtaken by a later
 * request belongs to that one, and the earlier request stays unanswered. */
#ifndef CORELANE_DRIVERS_NIC_LOADGEN_ENGINE_H
#define CORELANE_DRIVERS_NIC_LOADGEN_ENGINE_H

#include "loadgen.h"
#include "arrivals.h"
#include "../../random.h"

#include "../../../runtime/net.h"
#include <errno.h>

#define CL_ITEM_SET (1u << 31) /* memcached: the request is a SET; the other bits are the key's number */
#define CL_ITEM_LONG 1u        /* echo: a long request */
#define CL_ITEM_GIVEN 2u       /* echo: one of a replay */
#define CL_ITEMS (1u << 20)    /* entries of the table of requests drawn beforehand */
#define CL_ARP_QUEUE 8
#define CL_NEVER UINT64_MAX

struct cl_slot {
    uint64_t intended; /* stamp; 0: nothing is awaited */
    uint32_t seq;
    uint32_t item;
};

/* One form of request, prebuilt for every flow: the first 64 bytes of the frame differ by flow, the rest does not. A
 * copy moves whole lines, hence the padding. */
struct cl_shape {
    uint32_t len;         /* bytes of the frame */
    uint32_t tail_lines;  /* lines beyond the first */
    uint8_t (*heads)[64]; /* [flow] */
    uint64_t *sums;       /* [flow] partial checksum of pseudo-header and UDP header */
    uint8_t *tail;
};

struct cl_phase {
    struct cl_loadgen_counts counts;
    struct cl_hist *latency;      /* NULL: not measured */
    struct cl_hist *latency_long; /* NULL: not measured, or there are no long requests */
    bool shares;                  /* the histograms are those of an earlier phase, which frees them */
    uint64_t start_tsc, end_tsc;
    uint64_t mean_gap;  /* ticks, 24 binary places; 0: a pause */
    uint64_t first_seq; /* of the requests that belong to it, once it has begun */
};

struct cl_echo {
    struct cl_shape request;
    uint8_t *expected;       /* payload with sequence number 0 */
    uint8_t *items;          /* CL_ITEM_LONG or 0 [CL_ITEMS]; NULL: there are no long requests */
    bool serves;             /* requests say what to spend */
    uint32_t service[2];     /* ns, by item */
    uint64_t payload_sum[3]; /* partial checksum of the payload with sequence number 0, by item; given: and no time */
};

/* Reassembly of an answer that comes in several datagrams. */
struct cl_parts {
    uint64_t got; /* bit i: datagram i has come */
    uint32_t seq;
    uint32_t bytes;
};

struct cl_memcached {
    struct cl_shape get, set;
    uint32_t get_key, set_key, set_value; /* offsets in the frame */
    uint32_t letters, value_letters;      /* leading bytes of key and value that differ from key to key: at most 8 */
    uint8_t *expected;                    /* answer to a GET that hits; key and value are patched in before comparing */
    uint32_t expected_len, expected_key, expected_value;
    uint32_t *items;
    struct cl_parts *parts; /* [slot] */
};

/* Setting every key, with a sliding window: keys [base, next) are under way, but for those marked done. */
struct cl_preload {
    uint32_t base, next, resend; /* resend: next key of [base, next) to be sent again; == next: none */
    uint8_t *done;               /* [key & (window - 1)] */
    uint64_t progress_tsc;       /* last answer, or last resending */
    uint64_t started_tsc;        /* last answer: for giving up */
    bool finished;
};

struct cl_arp_answer {
    uint8_t mac[6];
    uint32_t ip_be, own_ip_be;
};

struct cl_loadgen {
    struct cl_loadgen_config config;
    const struct cl_clock *clock;

    /* Schedule. */
    uint64_t next_tsc;              /* intended time of the next request not yet pending; CL_NEVER: none in this run */
    uint64_t due_q16;               /* the same since the run's start, with 16 binary places */
    uint64_t run_tsc;               /* the run's start */
    uint64_t pending[CL_NIC_BURST]; /* intended times taken from the schedule and not yet sent */
    uint32_t n_pending;
    uint32_t gap_at, gap_left;
    uint32_t gap_shift; /* table places + 24 - 16 */
    struct cl_gaps gaps;
    struct cl_random random;                      /* where each lap of the gap table begins */
    struct cl_phase *phases;                      /* replaced by cl_loadgen_run between runs */
    struct cl_phase *sched, *sending, *answering; /* phase of the schedule, of the last sent, of the last answered */
    uint32_t n_phases;
    uint64_t offered, sent, settled; /* of this run; settled: answered in any way */
    uint64_t next_seq, run_first;
    uint32_t window_used; /* closed: requests outstanding */
    uint64_t window_tsc;  /* closed: last answer */

    struct cl_loadgen_replay *replay; /* NULL: requests come by phases. Set before a run by the controlling thread */
    uint64_t looked_tsc;              /* replay: when the engine was polled last */

    /* What is awaited. */
    struct cl_slot *slots;
    uint32_t slot_mask;
    uint32_t flow_mask, flow_shift;

    /* Stamps of limits. */
    uint64_t late_ticks, drain_ticks, give_up_ticks, resend_ticks;

    /* Addresses in network order. */
    uint32_t server_ip_be, ip;
    uint16_t server_port_be;
    bool resolved;
    uint64_t arp_next_tsc, arp_until_tsc;
    struct cl_arp_answer arp[CL_ARP_QUEUE];
    uint32_t n_arp;

    struct cl_echo echo;
    struct cl_memcached memcached;
    struct cl_preload preload;
    struct cl_loadgen_other other;
    char reason[256]; /* why the state is FAILED */

    /* Who is to be woken when a run starts. Set before the first run by the NIC or the client. */
    struct cl_parker *wake;

    /* Between the engine's thread and the controlling thread.
     *   state     writer: the controller while IDLE or FAILED, else the engine. Release: phases and counts before it.
     *   requested writer: the controller (release: the phases are set); reader: the engine.
     *   aborted   writer: the controller; reader: the engine. */
    uint32_t state CL_ALIGNED(CL_CACHELINE);
    uint32_t requested;
    uint32_t aborted;
    uint32_t obeyed; /* the engine's: last `requested` acted upon */
};

/* wire.c */
int cl_shape_build(struct cl_loadgen *lg, struct cl_shape *shape, const uint8_t *payload, uint32_t payload_len);
void cl_shape_resolve(struct cl_loadgen *lg, struct cl_shape *shape);
void cl_shape_free(struct cl_shape *shape);
/* A frame that is no UDP answer from the server: ARP, or foreign. */
void cl_wire_other(struct cl_loadgen *lg, const struct cl_frame *frame);
unsigned cl_wire_arp(struct cl_loadgen *lg, uint64_t now, struct cl_frame *frames, unsigned n);

/* echo.c, memcached.c */
int cl_echo_init(struct cl_loadgen *lg, char *err);
void cl_echo_free(struct cl_loadgen *lg);
void cl_echo_fill(struct cl_loadgen *lg, struct cl_frame *frame, uint32_t seq, uint32_t item);
void cl_echo_take(struct cl_loadgen *lg, uint64_t now, const uint8_t *payload, uint32_t len, uint32_t flow);
int cl_memcached_init(struct cl_loadgen *lg, char *err);
void cl_memcached_free(struct cl_loadgen *lg);
void cl_memcached_fill(struct cl_loadgen *lg, struct cl_frame *frame, uint32_t seq, uint32_t item);
void cl_memcached_take(struct cl_loadgen *lg, uint64_t now, const uint8_t *payload, uint32_t len, uint32_t flow);

/* preload.c */
unsigned cl_preload_due(struct cl_loadgen *lg, uint64_t now, unsigned n);
unsigned cl_preload_take(struct cl_loadgen *lg, uint32_t *keys, unsigned n);
void cl_preload_stored(struct cl_loadgen *lg, uint64_t now, uint32_t key, bool well);

/* schedule.c */
struct cl_phase *cl_phase_of(struct cl_loadgen *lg, uint32_t seq);
/* Act upon a run that was asked for, or on the order to end it. */
void cl_run_obey(struct cl_loadgen *lg, uint64_t now);
/* What comes next: from resolving to preloading to running to draining to idle. */
void cl_run_step(struct cl_loadgen *lg, uint64_t now);
/* Take the next request from the schedule: returns its intended time and moves on. */
uint64_t cl_schedule_next(struct cl_loadgen *lg);

/* Index in the replay of a sequence number. */
static inline uint32_t cl_replay_at(const struct cl_loadgen *lg, uint32_t seq)
{
    return seq - (uint32_t)lg->run_first;
}

/* ns from the run's start to a stamp. */
static inline uint64_t cl_run_ns(const struct cl_loadgen *lg, uint64_t tsc)
{
    return (uint64_t)cl_ticks_to_ns(lg->clock, (int64_t)(tsc - lg->run_tsc));
}

/* Relaxed: a change by the controller is acted upon when `requested` is seen, with acquire. */
static inline uint32_t cl_state(const struct cl_loadgen *lg)
{
    return cl_load_relaxed(&lg->state);
}

/* What is awaited for a sequence number, or NULL if nothing is. */
static inline struct cl_slot *cl_slot_of(struct cl_loadgen *lg, uint32_t seq)
{
    struct cl_slot *slot = &lg->slots[seq & lg->slot_mask];
    return slot->seq == seq && slot->intended ? slot : NULL;
}

/* A request was answered in some way. */
static inline struct cl_phase *cl_settle(struct cl_loadgen *lg, uint64_t now, struct cl_slot *slot)
{
    struct cl_phase *phase = lg->answering;
    /* Nearly always the phase of the answer before. */
    if (cl_unlikely(slot->seq - (uint32_t)phase->first_seq >= (uint32_t)phase->counts.sent))
        phase = cl_phase_of(lg, slot->seq);
    slot->intended = 0;
    lg->settled++;
    lg->window_used -= lg->window_used > 0;
    lg->window_tsc = now;
    return phase;
}

/* A request was answered rightly. */
static inline struct cl_phase *cl_answered(struct cl_loadgen *lg, uint64_t now, struct cl_slot *slot)
{
    uint64_t intended = slot->intended;
    struct cl_phase *phase = cl_settle(lg, now, slot);
    cl_count(&phase->counts.answered, 1);
    cl_store_relaxed(&phase->counts.last_tsc, now);
    if (cl_unlikely(lg->replay))
        lg->replay->answered_ns[cl_replay_at(lg, slot->seq)] = cl_run_ns(lg, now);
    if (cl_likely(phase->latency != NULL)) {
        int64_t ns = now > intended ? cl_ticks_to_ns(lg->clock, (int64_t)(now - intended)) : 0;
        struct cl_hist *hist = phase->latency;
        if (cl_unlikely(phase->latency_long && (slot->item & CL_ITEM_LONG))) {
            hist = phase->latency_long;
            cl_count(&phase->counts.answered_long, 1);
        }
        cl_hist_record(hist, (uint64_t)ns);
    }
    return phase;
}

static inline void cl_copy_line(uint8_t *to, const uint8_t *from)
{
    memcpy(to, from, 64);
}

/* Write the prebuilt bytes of a flow's request. */
static inline void cl_shape_copy(const struct cl_shape *shape, struct cl_frame *frame, uint32_t flow)
{
    cl_copy_line(frame->data, shape->heads[flow]);
    for (uint32_t i = 0; i < shape->tail_lines; i++)
        cl_copy_line(frame->data + 64 * (i + 1), shape->tail + 64 * i);
    frame->len = (uint16_t)shape->len;
}

/* Fill in the UDP checksum of a finished request, if checksums are wanted. */
static inline void cl_shape_checksum(const struct cl_loadgen *lg, const struct cl_shape *shape, struct cl_frame *frame,
                                     uint32_t flow)
{
    if (cl_likely(!lg->config.checksum))
        return;
    uint64_t sum = cl_csum_add(shape->sums[flow], frame->data + CL_UDP_HEADERS, shape->len - CL_UDP_HEADERS);
    uint16_t check = cl_csum_finish(sum);
    ((struct cl_udp_frame *)frame->data)->udp.check = check ? check : 0xffff;
}

static inline uint32_t cl_own_ip_be(const struct cl_loadgen *lg, uint32_t flow)
{
    return cl_be32(lg->ip + (flow & (lg->config.ips - 1)));
}

#endif

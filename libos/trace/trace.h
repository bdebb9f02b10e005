/* Tracing, as a kthread does it: which messages are drawn, what is noted while they are handled, and their record. The
 * page of this folder says what it costs and why; runtime/trace.h what a record is.
 *
 *   poll       cl_tracer_poll; drawn messages are marked (left, cl_tracer_gap)
 *   handler    of a marked one start and end are stamped; one that waits is noted by cl_tracer_waited
 *   end        cl_tracer_message puts the record, which its doorbell completes; in mode full cl_tracer_open keeps it,
 *              and one stamp ends several, or cl_tracer_follow, where there are stamps (open.c)
 *   doorbell   cl_tracer_sent; what is slow is found there (oldest, slow_ticks)
 *
 * A tracer belongs to its kthread. NULL where a runtime does not trace at all. */
#ifndef CORELANE_LIBOS_TRACE_TRACE_H
#define CORELANE_LIBOS_TRACE_TRACE_H

#include <corelane/runtime/clock.h>
#include <corelane/runtime/cores.h>
#include "../../runtime/trace.h"

#define CL_TRACER_SLOWEST 16                   /* of a millisecond that can be kept, at most */
#define CL_TRACER_TOGETHER CL_TRACE_GROUP_MOST /* requests that share a stamp, at most */
#define CL_TRACER_NEVER (1ull << 62)           /* a stamp that does not come */

/* What is noted of a message while it is handled, by its runner. Zero, but for `longest`: nothing is. */
struct cl_trace_open {
    uint64_t id;    /* 0: nobody has needed one yet */
    uint64_t start; /* of its handler; 0: not stamped */
    uint64_t blocked, ready;
    uint32_t waits;
    bool drawn, guessed;
    struct cl_trace_wait longest; /* wait of one that is not drawn: whether it is told is known at its end */
};

/* A message at its end, in stamps. */
struct cl_trace_end {
    uint64_t begin, pickup, start, end;
    uint64_t sent; /* 0: it is not answered, or the doorbell is to come */
    uint32_t flags, flow;
    uint16_t service, bytes, shared;
};

/* What a connection stood still for, until `end`. */
struct cl_trace_stall {
    uint64_t end, ticks;
    uint32_t n; /* segments */
    uint32_t flow;
    uint16_t service, what; /* CL_TRACE_WAITS_* */
};

/* What somebody else answers than the handler that took it in. */
struct cl_trace_call {
    uint64_t begin;
    uint16_t service, what; /* CL_TRACE_WAITS_* */
    bool leaves;            /* its answer is put for the next doorbell; else it is sent as far as is known */
    bool failed;
    bool drawn;
    uint64_t ready;        /* of one that a uthread waited for: when that was made ready; 0: now */
    const uint64_t *parts; /* of the wait, as in cl_tracer_parts; NULL: it has none */
};

/* When a command of a group reached which stage, as stamps; 0: it did not. struct cl_trace_command says what they
 * are. */
struct cl_trace_stages {
    uint64_t gone, sent, flush, written, durable, others, agreed;
    uint64_t index;
    uint32_t node, flags;
};

static inline void cl_trace_forget(struct cl_trace_open *o)
{
    o->id = o->start = o->blocked = o->ready = 0;
    o->waits = 0;
    o->drawn = o->guessed = false;
}

/* What the kernel has counted of a thread, ever: time on a CPU, page faults, times that it took the CPU, and that the
 * thread slept; and how long it stood in line for a CPU, of which it is asked only where it has been switched away
 * from. */
struct cl_tracer_counts {
    uint64_t cpu_ns, faults, switches, sleeps, waited_ns;
};

/* Whose the core of a kthread was while it had none: by: slot + 1 of that one, cpu: + 1; 0: unknown. */
struct cl_trace_taken {
    uint64_t begin, end; /* 0: it was not */
    uint32_t by, cpu;
    bool parked; /* the kthread had no work when it lost it */
};

/* The last look at them. */
struct cl_tracer_seen {
    uint64_t looked;
    uint64_t at;           /* until then it is known to have run since; 0: there was no look */
    uint32_t brought_back; /* the kernel's word, then */
    struct cl_tracer_counts counts;
    uint64_t rested, away; /* as of the tracer, then */
};

/* The kernel's word when it was last looked at for how often it moves. */
struct cl_tracer_checked {
    uint64_t at;
    uint32_t word;
};

/* Samples that the handler of a signal has taken, until the kthread tells them (sampled.c). */
#define CL_TRACER_SAMPLES 64
struct cl_tracer_samples {
    uint32_t n;     /* writers: the handler, and the kthread by RMW */
    uint32_t place; /* of its timer, + 1; 0: it has none */
    uint64_t until; /* relaxed: whoever asks, on any thread */
    struct cl_trace_sample of[CL_TRACER_SAMPLES];
};

/* A request in mode full whose handler has ended and has not waited: the words of a cl_trace_member. */
struct cl_trace_plain {
    uint64_t times, what;
};

#define CL_TRACER_SOON (1ull << 30) /* ticks: what is below adds up to less than 32 bits */

/* One that came so long before the start, and was picked up so long before it. */
static inline struct cl_trace_plain cl_trace_plain(uint64_t start, uint64_t picked, uint16_t service, uint32_t flags,
                                                   uint32_t flow, uint16_t bytes)
{
    return (struct cl_trace_plain){start | picked << 32,
                                   flow | (uint64_t)bytes << 32 | (uint64_t)flags << 48 | (uint64_t)service << 56};
}

/* Whether such times fit: else it has waited for long, or was picked up by the counter of another core. */
static inline bool cl_trace_is_plain(uint64_t start, uint64_t picked)
{
    return (start | picked | (start - picked)) < CL_TRACER_SOON;
}

/* Requests that are handled, and that are written down together (open.c). There are n_open. Their end is to come, one
 * stamp for all of them; or they come in a row, each with its own, and their doorbell is to come. */
struct cl_trace_together {
    uint64_t start;   /* of their handlers; in a row of the first's */
    uint64_t end;     /* 0: not yet, or more may follow */
    uint64_t ended;   /* when the last ones had ended, or their doorbell was rung: no handler begins before it */
    uint64_t counted; /* what the kernel has counted meanwhile */
    uint64_t until;   /* in a row: the last one's end; else 0 */
    uint32_t alone;   /* so many requests more are ended each by itself */
    /* The last ones are not used, but copied. */
    struct cl_trace_plain of[CL_TRACER_TOGETHER + CL_TRACE_MORE_EACH];
    uint32_t ran[CL_TRACER_TOGETHER + CL_TRACE_MORE_EACH]; /* in a row: ticks that each ran */
};

struct cl_tracer {
    /* Read by each burst. */
    int64_t left;        /* messages until the next one that is drawn; below 0: as many back in the burst */
    uint64_t look_at;    /* when cl_tracer_window is due: ms_end, or 0, which the signal handler sets */
    uint64_t oldest;     /* since when the burst at hand has waited; CL_TRACER_NEVER: there is none */
    uint64_t slow_ticks; /* more than that is perhaps slow; CL_TRACER_NEVER: nothing is */
    uint64_t head;       /* records that are published */
    uint16_t pending;    /* and that are put behind them, below CL_TRACE_AHEAD: their doorbell is to come */
    uint16_t n_open;     /* requests without a record, whose end is to come, too */
    uint32_t mode;
    const uint64_t *time; /* cl_stamp's */
    uint64_t idle_at;     /* when the loop last looked at the clock for want of work; 0: something has run since */
    /* Read by records. */
    struct cl_trace_ring *ring;
    uint32_t records, index;
    uint64_t ids;
    uint64_t look_ticks;  /* what took longer may have been the kernel's doing, and is worth a system call */
    uint64_t short_ticks; /* a handler that takes no longer shares its stamp */
    uint64_t random;
    uint64_t ticks_per_ms, ms_end;
    const struct cl_trace_control *control;
    uint32_t slowest, n_top; /* of this millisecond: how many are wanted; found */
    uint32_t without;        /* milliseconds in a row that had none */
    uint64_t top[CL_TRACER_SLOWEST];
    /* Gaps (gaps.c). */
    uint32_t looks;                              /* at the kernel's counters, that are left in this millisecond */
    int (*counts)(struct cl_tracer_counts *out); /* all but waited_ns. NULL: they are not looked at */
    int (*waited)(int fd, uint64_t *ns);         /* that */
    int waited_fd;                               /* schedstat of its thread, see proc(5); -1: there is none */
    const struct perf_event_mmap_page *page;     /* of its thread; NULL: there is none */
    uint64_t page_again; /* 0; or the page is given up, at the next rest if it is still there, until then */
    struct cl_tracer_checked checked;
    const struct cl_clock *clock;
    struct cl_tracer_seen seen;
    uint64_t rested; /* ticks that the thread let go of itself, ever */
    uint64_t gap_ticks, stopped_ticks, rest_ticks;
    void *latency;  /* pages of all kthreads (latency.c) */
    int32_t untold; /* full: so many more are not recorded there */
    /* Its signal handler: when the core was lost first and had again last since the kthread looked; away_end 0: not. */
    uint64_t away_begin, away_end;
    uint32_t away_n, away_by, away_cpu;
    uint64_t away_ticks;    /* without a core, ever */
    struct cl_cores *cores; /* of which the kthread has one; NULL: nobody takes them */
    uint64_t had;           /* it has had its core since, and what was lost before is told; CL_TRACER_NEVER: unknown */
    struct cl_trace_taken taken;       /* while it was parked; told once a message is, that waited then */
    struct cl_tracer_samples *samples; /* NULL: there are none */
    uint64_t collects_from;            /* its interpreter collects garbage since then; 0: it does not */
    struct cl_trace_together open CL_ALIGNED(CL_CACHELINE); /* written by each request of mode full */
} CL_ALIGNED(CL_CACHELINE);

struct cl_trace;

struct cl_trace_config {
    uint32_t n_rings;                  /* one a kthread */
    uint32_t mode;                     /* CL_TRACE_* */
    uint32_t one_in, slowest, records; /* 0: 1024, 4, 4096 */
    uint32_t reserved;
};

/* A segment and its tracers. name: of the application. The clock's life is the trace's. -errno with one line in err. */
int cl_trace_new(const struct cl_trace_config *config, const struct cl_clock *clock, const char *name,
                 struct cl_trace **out, char err[256]);
void cl_trace_delete(struct cl_trace *trace);
/* Write into the header how far the counters of CPUs are apart, before kthreads run: other threads measure it, once a
 * process. A NULL trace: nothing. */
void cl_trace_measure_clocks(struct cl_trace *trace, const struct cl_clock *clock);
/* Of kthread k; NULL of a NULL trace. */
struct cl_tracer *cl_trace_tracer(struct cl_trace *trace, unsigned k);
/* The entry of what answers on a port; 0 of a NULL trace, and if there is no room. The same answers twice. Any
 * thread. */
uint16_t cl_trace_service_of(struct cl_trace *trace, uint16_t kind, uint16_t port);
/* The same of what has no port: one more of its kind, which are numbered from 1 on. */
uint16_t cl_trace_service_next(struct cl_trace *trace, uint16_t kind);
/* What a kthread is answering: requests of a service that it has not counted yet (cl_tracer_served). */
struct cl_trace_serving {
    uint64_t requests;
    uint16_t service;
};
/* Copy the latency of all services to what an iokernel reads of n_kthreads (cl_arena_latency). now: of each. Any
 * thread, one at a time. */
void cl_trace_tell_latency(const struct cl_trace *trace, void *out, uint32_t n_kthreads,
                           const struct cl_trace_serving *now);
/* From about a millisecond on, of kthreads that get messages. -EINVAL. Any thread. */
int cl_trace_set_mode(struct cl_trace *trace, uint32_t mode);
uint32_t cl_trace_mode(const struct cl_trace *trace);

/* A kthread's. */

/* A millisecond is over: the mode as it is by now, another threshold, what the signal handler has noted. */
void cl_tracer_window(struct cl_tracer *t, uint64_t now);
/* How many messages further on the next one is drawn, from 1 on. */
int64_t cl_tracer_gap(struct cl_tracer *t);
/* It took so many ticks, more than slow_ticks. Keeps count of the slowest. */
void cl_tracer_slow(struct cl_tracer *t, uint64_t ticks);
/* So many requests of a service were answered. */
void cl_tracer_served(struct cl_tracer *t, uint16_t service, uint64_t n);
/* An id for what is noted; it is recorded or not. */
uint64_t cl_tracer_id(struct cl_tracer *t);
/* A handler has waited: w has what, begin, object, holder and uthread. ready: when it was made ready; now: it runs. o:
 * of its message; NULL: of none. */
void cl_tracer_waited(struct cl_tracer *t, struct cl_trace_open *o, struct cl_trace_wait *w, uint64_t ready,
                      uint64_t now);
/* A connection goes on that had stood still: a message of its own. Sampled: if it is drawn, as requests are, or was
 * slow. */
void cl_tracer_stalled(struct cl_tracer *t, const struct cl_trace_stall *s);
/* A call is over. Whether it is to be recorded, by cl_tracer_put_call. Fills in `drawn`. */
bool cl_tracer_called(struct cl_tracer *t, struct cl_trace_call *c, uint64_t now);
/* stages: of a command of a group; NULL: it has waited for c->what, and more is not known. */
void cl_tracer_put_call(struct cl_tracer *t, const struct cl_trace_call *c, const struct cl_trace_stages *stages,
                        uint64_t now);
/* Of a wait that is over, made ready at `ready`: its parts by the stamps of its stages; 0: it was not reached. */
void cl_tracer_parts(struct cl_trace_wait *w, const uint64_t stages[2], uint64_t ready);
/* Its handler has ended. What is not drawn is recorded if it is slow. Nothing is noted in o afterwards. */
void cl_tracer_message(struct cl_tracer *t, struct cl_trace_open *o, const struct cl_trace_end *e);
/* One whose handler ran from `start` to `end`, for less than CL_TRACER_SOON, and whose doorbell is to come. */
void cl_tracer_follow(struct cl_tracer *t, struct cl_trace_plain m, uint64_t start, uint64_t end);
/* Those that are open have ended, at `at` if that was to come. If there are none, nothing. */
void cl_tracer_end_open(struct cl_tracer *t, uint64_t at);
/* Their doorbell is rung next. at: now; 0: that is not stamped yet. */
void cl_tracer_rings(struct cl_tracer *t, uint64_t at);
/* They have ended now, and their records are put: something else begins than the next one of their kind. */
void cl_tracer_close_open(struct cl_tracer *t);
/* What waits for a doorbell is answered, at `now`, and has ended then, if it was not said; 0: none was rung. */
void cl_tracer_sent(struct cl_tracer *t, uint64_t now);
/* What was sent with the doorbell of `rang` was taken by the iokernel, and given on. While no record waits for a
 * doorbell. */
void cl_tracer_burst(struct cl_tracer *t, uint64_t rang, uint64_t taken, uint64_t given);
/* Whoever may signal the process may have kthreads sampled from their start on. Before that; again does nothing.
 * -EBUSY: the signal is somebody else's; -ENOMEM. */
int cl_trace_sample_by_signal(struct cl_trace *trace);
/* The calling thread is the kthread's, and can be sampled until it ends. */
void cl_tracer_sample_thread(struct cl_tracer *t);
void cl_tracer_sample_ends(struct cl_tracer *t);
/* The calling thread is the kthread's for good, and is seldom switched away from: the kernel is to say when it was. */
void cl_tracer_watch_thread(struct cl_tracer *t);
/* Something stood still between two looks of the loop at the clock, with nothing of ours between them. */
void cl_tracer_stopped(struct cl_tracer *t, uint64_t from, uint64_t to);
/* The loop finds no work, some turns after the last time. */
void cl_tracer_idle(struct cl_tracer *t);
/* The thread has been at something else. */
static inline void cl_tracer_forget(struct cl_tracer *t)
{
    t->idle_at = t->seen.at = 0;
    cl_store_relaxed(&t->had, CL_TRACER_NEVER);
}
/* The thread has let its CPU go, of itself, from then until now. */
void cl_tracer_rested(struct cl_tracer *t, uint64_t from);
/* The core was another's from begin to end. Async-signal-safe, on the kthread's thread. */
void cl_tracer_away(struct cl_tracer *t, const struct cl_trace_taken *taken);
/* Whether the core was another's, and is the kthread's again by the iokernel's word, since that is known of it: it was
 * not on a CPU meanwhile to see that. Async-signal-safe, on the kthread's thread. */
bool cl_tracer_lost(const struct cl_tracer *t, const struct cl_core_owners *o, struct cl_trace_taken *taken);
/* The same as cl_tracer_away, while it was parked. */
void cl_tracer_taken(struct cl_tracer *t, const struct cl_trace_taken *taken);
/* The interpreter of its thread begins to collect garbage, or has done so, of which generation. */
void cl_tracer_collects(struct cl_tracer *t, bool begins, uint32_t generation);

static inline uint64_t cl_tracer_stamp(const struct cl_tracer *t)
{
    return cl_stamp(t->time);
}

/* Whether something waits for a doorbell, or is without its end. */
static inline bool cl_tracer_waits(const struct cl_tracer *t)
{
    return (t->pending | t->n_open) != 0;
}

/* One more, of CL_TRACER_TOGETHER at most, whose end is to come. */
static inline void cl_tracer_add(struct cl_tracer *t, struct cl_trace_plain m)
{
    t->open.of[t->n_open++] = m;
}

/* The same of a handler for one request. open.start is theirs. */
static inline void cl_tracer_open(struct cl_tracer *t, struct cl_trace_plain m)
{
    cl_tracer_add(t, m);
    if (cl_unlikely(t->n_open == CL_TRACER_TOGETHER || t->open.alone))
        cl_tracer_close_open(t);
}

/* At each poll that has brought something, at its stamp. since: of the oldest that has come. */
static inline void cl_tracer_poll(struct cl_tracer *t, uint64_t now, uint64_t since)
{
    uint64_t idle_at = t->idle_at;
    t->oldest = since;
    t->idle_at = 0;
    if (cl_unlikely(idle_at && (int64_t)(now - idle_at) > (int64_t)t->stopped_ticks))
        cl_tracer_stopped(t, idle_at, now);
    /* Relaxed: of this thread's signal handler. */
    if (cl_unlikely(now >= cl_load_relaxed(&t->look_at)))
        cl_tracer_window(t, now);
}

/* What begins outside of a poll, at a stamp that is returned; 0: it is not traced. Its kthread may be one that gets no
 * messages: so the mode is looked at. */
static inline uint64_t cl_tracer_begins(struct cl_tracer *t)
{
    if (t->mode == CL_TRACE_OFF && cl_load_relaxed(&t->control->mode) == CL_TRACE_OFF)
        return 0;
    uint64_t now = cl_tracer_stamp(t);
    if (cl_unlikely(now >= cl_load_relaxed(&t->look_at))) /* relaxed: as in cl_tracer_poll */
        cl_tracer_window(t, now);
    return t->mode == CL_TRACE_OFF ? 0 : now;
}

/* One message more. Whether it is drawn. */
static inline bool cl_tracer_draws(struct cl_tracer *t)
{
    if (cl_likely(--t->left >= 0))
        return false;
    if (t->mode != CL_TRACE_FULL)
        t->left = cl_tracer_gap(t) - 1;
    return true;
}

/* Whether what began so long ago is to be looked at; signed: nothing has begun, or on another core, a little later. */
static inline bool cl_tracer_late(const struct cl_tracer *t, uint64_t since, uint64_t now)
{
    return (int64_t)(now - since) > (int64_t)t->slow_ticks;
}

#endif

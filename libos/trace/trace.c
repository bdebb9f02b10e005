/* See trace.h. */
#include "internal.h"
#include "../../runtime/pages.h"
#include "../../runtime/skew.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ONE_IN 1024
#define SLOWEST 4
#define RECORDS 4096
#define WORTH_A_LOOK_US 20
#define SHORT_NS 500 /* a stamp is some 10 to 15: below that it is dear */
#define OFF_LEFT (1ll << 62)

struct cl_trace {
    struct cl_memory memory;
    pthread_mutex_t lock; /* of the services */
    uint32_t n;
    struct cl_tracer *tracers;
    void *latency;
};

static struct cl_trace_control *control_of(const struct cl_trace *trace)
{
    return cl_trace_control_of(trace->memory.base);
}

static void fill_header(struct cl_trace *trace, uint32_t records, const struct cl_clock *clock, const char *name)
{
    struct cl_trace_header *h = trace->memory.base;
    *h = (struct cl_trace_header){.magic = CL_TRACE_MAGIC,
                                  .version = CL_TRACE_VERSION,
                                  .n_rings = trace->n,
                                  .ring_records = records,
                                  .pid = (uint32_t)getpid(),
                                  .hz = clock->hz,
                                  .base_tsc = clock->base_tsc,
                                  .base_ns = clock->base_ns,
                                  .source = clock->source,
                                  .total_bytes = (uint64_t)cl_trace_bytes(trace->n, records)};
    snprintf(h->name, sizeof h->name, "%s", name ? name : "");
}

_Static_assert(CL_SKEW_CPUS == CL_TRACE_CPUS && CL_SKEW_UNKNOWN == UINT32_MAX &&
                   sizeof(struct cl_skew) == sizeof(struct cl_trace_clock),
               "told as it was measured");

void cl_trace_measure_clocks(struct cl_trace *trace, const struct cl_clock *clock)
{
    if (!trace || clock->word) /* a virtual one is one for all CPUs */
        return;
    struct cl_trace_clocks *out = cl_trace_clocks_of(trace->memory.base);
    const struct cl_skews *skews = cl_skews_default();
    out->reference = skews->reference;
    out->apart = skews->apart;
    out->measured = skews->measured;
    out->from = cl_clock_stamp(clock);
    for (unsigned c = 0; c < CL_TRACE_CPUS; c++)
        out->of[c] = (struct cl_trace_clock){skews->of[c].offset, skews->of[c].bound};
    cl_store_release(&out->version, 1); /* release: all of it */
}

static void init_tracer(struct cl_trace *trace, unsigned k, uint32_t records, const struct cl_clock *clock)
{
    struct cl_tracer *t = &trace->tracers[k];
    *t = (struct cl_tracer){.oldest = CL_TRACER_NEVER,
                            .slow_ticks = CL_TRACER_NEVER,
                            .left = OFF_LEFT,
                            .time = clock->word,
                            .ring = cl_trace_ring_of(trace->memory.base, records, k),
                            .records = records,
                            .index = k,
                            .ids = (uint64_t)(k + 1) << 48,
                            .had = cl_clock_stamp(clock),
                            .random = k + 1,
                            .ticks_per_ms = (uint64_t)cl_ns_to_ticks(clock, 1000000),
                            .look_ticks = (uint64_t)cl_ns_to_ticks(clock, WORTH_A_LOOK_US * 1000),
                            .short_ticks = (uint64_t)cl_ns_to_ticks(clock, SHORT_NS),
                            .latency = trace->latency,
                            .control = control_of(trace)};
    cl_tracer_watch(t, clock);
}

int cl_trace_new(const struct cl_trace_config *config, const struct cl_clock *clock, const char *name,
                 struct cl_trace **out, char err[256])
{
    uint32_t records = config->records ? config->records : RECORDS;
    int64_t bytes = cl_trace_bytes(config->n_rings, records);
    if (bytes < 0 || config->mode > CL_TRACE_FULL || config->slowest > CL_TRACER_SLOWEST) {
        snprintf(err, 256,
                 "a trace of mode %u, rings of %u records, the %u slowest cannot be: %u to %u records, a "
                 "power of two, and at most %u",
                 config->mode, records, config->slowest, CL_TRACE_MIN_RECORDS, CL_TRACE_MAX_RECORDS, CL_TRACER_SLOWEST);
        return -EINVAL;
    }
    struct cl_trace *trace = calloc(1, sizeof *trace);
    if (trace)
        trace->tracers = aligned_alloc(CL_CACHELINE, config->n_rings * sizeof *trace->tracers);
    if (!trace || !trace->tracers) {
        free(trace);
        snprintf(err, 256, "out of memory for a trace of %u kthreads", config->n_rings);
        return -ENOMEM;
    }
    trace->n = config->n_rings;
    pthread_mutex_init(&trace->lock, NULL);
    int rc = cl_tracer_latency_new(trace->n, &trace->latency);
    if (rc < 0)
        snprintf(err, 256, "out of memory for the latency of services of %u kthreads", trace->n);
    rc = rc ? rc : cl_memory_create(CL_TRACE_NAME, (uint64_t)bytes, CL_MEMORY_PEERS_READ, &trace->memory, err);
    if (rc < 0) {
        cl_trace_delete(trace);
        return rc;
    }
    fill_header(trace, records, clock, name);
    *control_of(trace) = (struct cl_trace_control){.mode = config->mode,
                                                   .one_in = config->one_in ? config->one_in : ONE_IN,
                                                   .slowest = config->slowest ? config->slowest : SLOWEST,
                                                   .n_services = 1};
    for (unsigned k = 0; k < trace->n; k++)
        init_tracer(trace, k, records, clock);
    (void)cl_pages_fetch(trace->memory.base, (uint64_t)bytes); /* else the first lap pays, request by request */
    *out = trace;
    return 0;
}

void cl_trace_delete(struct cl_trace *trace)
{
    if (!trace)
        return;
    for (unsigned k = 0; k < trace->n && trace->memory.base; k++) {
        cl_tracer_unwatch(&trace->tracers[k]);
        free(trace->tracers[k].samples);
    }
    cl_tracer_latency_delete(trace->latency, trace->n);
    cl_memory_close(&trace->memory);
    pthread_mutex_destroy(&trace->lock);
    free(trace->tracers);
    free(trace);
}

void cl_trace_tell_latency(const struct cl_trace *trace, void *out, uint32_t n_kthreads,
                           const struct cl_trace_serving *now)
{
    cl_tracer_latency_tell(trace->latency, out, cl_min(n_kthreads, trace->n), now);
}

struct cl_tracer *cl_trace_tracer(struct cl_trace *trace, unsigned k)
{
    return trace ? &trace->tracers[k] : NULL;
}

/* With the lock. */
static uint16_t service_of(struct cl_trace *trace, uint16_t kind, uint16_t port)
{
    struct cl_trace_control *c = control_of(trace);
    struct cl_trace_service *all = cl_trace_services_of(trace->memory.base);
    uint32_t i = 1;
    while (i < c->n_services && !(all[i].kind == kind && all[i].port == port))
        i++;
    if (i == c->n_services && i < CL_TRACE_SERVICES) {
        char name[24];
        static const char *const words[] = {
            [CL_TRACE_UDP] = "udp",   [CL_TRACE_TCP] = "tcp",           [CL_TRACE_RAFT] = "raft",
            [CL_TRACE_RESP] = "resp", [CL_TRACE_BLOCKING] = "blocking", [CL_TRACE_LOG] = "log"};
        const char *word = kind < sizeof words / sizeof words[0] && words[kind] ? words[kind] : "service";
        snprintf(name, sizeof name, "%s:%u", word, port);
        cl_tracer_latency_name(trace->latency, trace->n, (uint16_t)i, name);
        all[i] = (struct cl_trace_service){kind, port, 0};
        cl_store_release(&c->n_services, i + 1); /* release: the entry */
    }
    return i < CL_TRACE_SERVICES ? (uint16_t)i : 0;
}

uint16_t cl_trace_service_of(struct cl_trace *trace, uint16_t kind, uint16_t port)
{
    if (!trace)
        return 0;
    pthread_mutex_lock(&trace->lock);
    uint16_t service = service_of(trace, kind, port);
    pthread_mutex_unlock(&trace->lock);
    return service;
}

uint16_t cl_trace_service_next(struct cl_trace *trace, uint16_t kind)
{
    uint16_t n = 1;
    if (!trace)
        return 0;
    const struct cl_trace_service *all = cl_trace_services_of(trace->memory.base);
    pthread_mutex_lock(&trace->lock);
    for (uint32_t i = 1; i < control_of(trace)->n_services; i++)
        n += all[i].kind == kind;
    uint16_t service = service_of(trace, kind, n);
    pthread_mutex_unlock(&trace->lock);
    return service;
}

int cl_trace_set_mode(struct cl_trace *trace, uint32_t mode)
{
    if (!trace || mode > CL_TRACE_FULL)
        return -EINVAL;
    cl_store_relaxed(&control_of(trace)->mode, mode);
    return 0;
}

int cl_trace_sample_by_signal(struct cl_trace *trace)
{
    int rc = 0;
    for (unsigned k = 0; k < trace->n && rc == 0; k++)
        rc = cl_tracer_sampled(&trace->tracers[k]);
    if (rc == 0)
        cl_store_relaxed(&control_of(trace)->ask_signal, (uint32_t)SIGPROF);
    return rc;
}

uint32_t cl_trace_mode(const struct cl_trace *trace)
{
    return trace ? cl_load_relaxed(&control_of(trace)->mode) : CL_TRACE_OFF;
}

/* Records. */

uint64_t cl_tracer_id(struct cl_tracer *t)
{
    return ++t->ids;
}

static void put_core(struct cl_tracer *t, const struct cl_trace_taken *taken)
{
    cl_tracer_put(t, &(struct cl_trace_core){.kind = CL_TRACE_CORE,
                                             .kthread = (uint8_t)t->index,
                                             .parked = taken->parked,
                                             .n = 1,
                                             .begin = taken->begin,
                                             .end = taken->end,
                                             .by = taken->by,
                                             .cpu = taken->cpu});
}

bool cl_tracer_lost(const struct cl_tracer *t, const struct cl_core_owners *o, struct cl_trace_taken *taken)
{
    *taken = (struct cl_trace_taken){.begin = o->lost_tsc, .end = o->decided_tsc, .by = o->before, .cpu = o->cpu + 1};
    return o->mine && o->before && o->before != o->owner && o->lost_tsc > cl_load_relaxed(&t->had) &&
           o->decided_tsc > o->lost_tsc;
}

/* Of a slow message: what its thread did not see of its core, as it had no CPU while another had that. */
static void tell_lost(struct cl_tracer *t)
{
    struct cl_core_owners o;
    struct cl_trace_taken taken;
    if (!t->cores || !t->cores->ops->owners || !t->cores->ops->owners(t->cores, t->index, &o) ||
        !cl_tracer_lost(t, &o, &taken))
        return;
    cl_store_relaxed(&t->had, taken.end);
    __atomic_fetch_add(&t->away_ticks, taken.end - taken.begin, __ATOMIC_RELAXED); /* the signal handler adds to it */
    put_core(t, &taken);
}

uint64_t cl_tracer_counted(struct cl_tracer *t, uint64_t took, uint64_t id)
{
    if (cl_likely(took < t->look_ticks))
        return 0;
    tell_lost(t);
    if (t->looks)
        t->looks--;
    else if (!cl_tracer_switched(t)) /* no more than the kernel has, who is dearer */
        return 0;
    return cl_tracer_look(t, took, id);
}

CL_NOINLINE void cl_tracer_tell_taken(struct cl_tracer *t)
{
    put_core(t, &t->taken);
    t->taken.end = 0;
}

/* Word by word, for a record that was written in narrower pieces would have to be read back in wider ones. */
void cl_tracer_message(struct cl_tracer *t, struct cl_trace_open *o, const struct cl_trace_end *e)
{
    uint32_t pickup = cl_trace_ticks(e->begin, e->pickup);
    uint32_t start = cl_max(pickup, cl_trace_ticks(e->begin, e->start));
    uint32_t end = cl_max(start, cl_trace_ticks(e->begin, e->end));
    uint32_t flags = e->flags | (o->drawn ? CL_TRACE_DRAWN : 0) | (o->guessed ? CL_TRACE_GUESSED : 0);
    uint32_t sent = e->sent ? cl_max(end, cl_trace_ticks(e->begin, e->sent)) : end;
    uint32_t blocked = (uint32_t)cl_min(o->blocked, (uint64_t)(end - start));
    uint32_t ready = (uint32_t)cl_min(o->ready, (uint64_t)(end - start - blocked));
    flags |= (flags & CL_TRACE_ANSWERED) && !e->sent ? CL_TRACE_UNSENT : 0;
    bool slow = t->mode == CL_TRACE_SAMPLED && end > t->slow_ticks;
    if (slow)
        cl_tracer_slow(t, end);
    if (slow && o->waits && !o->drawn) {
        o->longest.n = o->waits;
        cl_tracer_put(t, &o->longest);
    }
    if (o->drawn || slow) {
        if (cl_unlikely(e->begin < t->taken.end))
            cl_tracer_tell_taken(t);
        uint64_t id = o->id ? o->id : cl_tracer_id(t), counted = cl_tracer_counted(t, end, id);
        cl_tracer_put_words(
            t, (uint64_t[CL_TRACE_WORDS]){
                   CL_TRACE_MESSAGE | (uint64_t)t->index << 8 | (uint64_t)e->service << 16 | (uint64_t)flags << 32, id,
                   e->begin, cl_trace_both(pickup, start), cl_trace_both(end, sent), cl_trace_both(blocked, ready),
                   e->flow | (uint64_t)e->bytes << 32 | (uint64_t)e->shared << 48, counted});
    }
    cl_trace_forget(o);
}

void cl_tracer_parts(struct cl_trace_wait *w, const uint64_t stages[2], uint64_t ready)
{
    uint64_t first = stages[0] ? cl_min(stages[0], ready) : ready,
             second = stages[1] ? cl_min(stages[1], ready) : ready;
    w->first = cl_trace_ticks(w->begin, first);
    w->second = cl_min(cl_trace_ticks(cl_max(first, w->begin), second), cl_trace_ticks(w->begin, ready) - w->first);
}

void cl_tracer_waited(struct cl_tracer *t, struct cl_trace_open *o, struct cl_trace_wait *w, uint64_t ready,
                      uint64_t now)
{
    w->kind = CL_TRACE_WAIT;
    w->kthread = (uint8_t)t->index;
    w->n = 1;
    w->id = o ? o->id : 0;
    w->blocked = cl_trace_ticks(w->begin, ready);
    w->ready = cl_trace_ticks(cl_max(ready, w->begin), now);
    if (o) {
        o->blocked += w->blocked;
        o->ready += w->ready;
        o->waits++;
    }
    if (!o || o->drawn)
        cl_tracer_put(t, w);
    else if (o->waits == 1 || (uint64_t)w->blocked + w->ready > (uint64_t)o->longest.blocked + o->longest.ready)
        o->longest = *w;
}

void cl_tracer_stalled(struct cl_tracer *t, const struct cl_trace_stall *s)
{
    uint32_t took = cl_trace_ticks(0, s->ticks);
    struct cl_trace_message m = {.kind = CL_TRACE_MESSAGE,
                                 .kthread = (uint8_t)t->index,
                                 .service = s->service,
                                 .flags = CL_TRACE_STALLED,
                                 .begin = s->end - took,
                                 .sent = took,
                                 .flow = s->flow,
                                 .shared = 1};
    struct cl_trace_wait w = {.kind = CL_TRACE_WAIT,
                              .kthread = (uint8_t)t->index,
                              .what = s->what,
                              .n = cl_max(s->n, 1u),
                              .begin = m.begin,
                              .blocked = took,
                              .object = s->flow};
    if (t->mode == CL_TRACE_OFF)
        return;
    bool drawn = cl_tracer_draws(t), slow = t->mode == CL_TRACE_SAMPLED && took > t->slow_ticks;
    if (slow)
        cl_tracer_slow(t, took);
    if (!drawn && !slow)
        return;
    m.flags |= drawn ? CL_TRACE_DRAWN : 0;
    m.id = w.id = cl_tracer_id(t);
    cl_tracer_put(t, &w);
    cl_tracer_put(t, &m);
}

/* The slowest. */

static uint32_t least_of(const struct cl_tracer *t)
{
    uint32_t least = 0;
    for (uint32_t i = 1; i < t->n_top; i++)
        if (t->top[i] < t->top[least])
            least = i;
    return least;
}

void cl_tracer_slow(struct cl_tracer *t, uint64_t took)
{
    if (t->n_top < t->slowest)
        t->top[t->n_top++] = took;
    else
        t->top[least_of(t)] = took;
    if (t->n_top == t->slowest)
        t->slow_ticks = cl_max(t->slow_ticks, t->top[least_of(t)]);
}

/* Where a millisecond begins: below the slowest of the last one, if that was full; lower, if it was not. Anew, if two
 * had none: what was slow before tells nothing of what is. */
static uint64_t threshold(const struct cl_tracer *t, bool follows)
{
    if (!follows || t->slow_ticks == CL_TRACER_NEVER || t->without > 1)
        return 0;
    return t->n_top == t->slowest ? t->slow_ticks / 4 * 3 : t->slow_ticks / 2;
}

static void tell_away(struct cl_tracer *t)
{
    struct cl_trace_core c = {.kind = CL_TRACE_CORE, .kthread = (uint8_t)t->index};
    /* In this order the handler, which writes `begin` only while `end` is 0, changes nothing that is read here. */
    c.begin = cl_load_relaxed(&t->away_begin);
    c.n = cl_load_relaxed(&t->away_n);
    c.by = cl_load_relaxed(&t->away_by);
    c.cpu = cl_load_relaxed(&t->away_cpu);
    c.end = cl_exchange(&t->away_end, 0);
    if (c.end && t->mode != CL_TRACE_OFF)
        cl_tracer_put(t, &c);
}

void cl_tracer_away(struct cl_tracer *t, const struct cl_trace_taken *taken)
{
    bool more = cl_load_relaxed(&t->away_end) != 0;
    cl_store_relaxed(&t->away_ticks, t->away_ticks + (taken->end - taken->begin));
    cl_store_relaxed(&t->had, taken->end);
    if (!more) {
        cl_store_relaxed(&t->away_begin, taken->begin);
        cl_store_relaxed(&t->away_by, taken->by);
        cl_store_relaxed(&t->away_cpu, taken->cpu);
    }
    cl_store_relaxed(&t->away_n, more ? t->away_n + 1 : 1);
    __atomic_signal_fence(__ATOMIC_SEQ_CST); /* of one thread: the compiler's order is enough */
    cl_store_relaxed(&t->away_end, cl_max(taken->end, taken->begin + 1));
    cl_store_relaxed(&t->look_at, 0); /* the next poll does */
    cl_store_relaxed(&t->idle_at, 0); /* no gap */
}

void cl_tracer_taken(struct cl_tracer *t, const struct cl_trace_taken *taken)
{
    t->taken = *taken;
}

int64_t cl_tracer_gap(struct cl_tracer *t)
{
    uint32_t one_in = cl_max(cl_load_relaxed(&t->control->one_in), 1u);
    t->random ^= t->random << 13; /* xorshift64, Marsaglia 2003 */
    t->random ^= t->random >> 7;
    t->random ^= t->random << 17;
    return one_in == 1 ? 1 : 1 + (int64_t)(t->random % (2 * (uint64_t)one_in - 1));
}

void cl_tracer_window(struct cl_tracer *t, uint64_t now)
{
    uint32_t mode = cl_load_relaxed(&t->control->mode);
    tell_away(t);
    if (cl_unlikely(t->samples != NULL))
        cl_tracer_tell_samples(t);
    cl_store_relaxed(&t->look_at, t->ms_end);
    if (now < t->ms_end)
        return;
    t->without = t->n_top ? 0 : t->without + 1;
    t->slow_ticks = mode == CL_TRACE_SAMPLED ? threshold(t, now - t->ms_end < t->ticks_per_ms) : CL_TRACER_NEVER;
    if (mode == CL_TRACE_FULL)
        t->left = -1;
    else if (mode == CL_TRACE_OFF)
        t->left = OFF_LEFT;
    else if (t->mode != mode)
        t->left = cl_tracer_gap(t) - 1;
    t->mode = mode;
    t->n_top = 0;
    t->slowest = cl_min(cl_max(cl_load_relaxed(&t->control->slowest), 1u), (uint32_t)CL_TRACER_SLOWEST);
    t->looks = t->slowest;
    if (mode != CL_TRACE_OFF)
        cl_tracer_check(t);
    t->ms_end = now + t->ticks_per_ms;
    cl_store_relaxed(&t->look_at, t->ms_end);
}

/* See trace.h. */
#include "trace.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define ONE_IN 1024
#define SLOWEST 4
#define RECORDS 4096
#define WORTH_A_LOOK_US 20 /* what took longer may have been the kernel's doing, and is worth a system call */
#define OFF_LEFT (1ll << 62)

struct cl_trace {
    struct cl_memory memory;
    pthread_mutex_t lock; /* of the services */
    uint32_t n;
    struct cl_tracer *tracers;
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
                                  .total_bytes = (uint64_t)cl_trace_bytes(trace->n, records)};
    snprintf(h->name, sizeof h->name, "%s", name ? name : "");
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
                            .random = k + 1,
                            .ticks_per_ms = (uint64_t)cl_ns_to_ticks(clock, 1000000),
                            .control = control_of(trace)};
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
    int rc = cl_memory_create(CL_TRACE_NAME, (uint64_t)bytes, CL_MEMORY_PEERS_READ, &trace->memory, err);
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
    *out = trace;
    return 0;
}

void cl_trace_delete(struct cl_trace *trace)
{
    if (!trace)
        return;
    cl_memory_close(&trace->memory);
    pthread_mutex_destroy(&trace->lock);
    free(trace->tracers);
    free(trace);
}

struct cl_tracer *cl_trace_tracer(struct cl_trace *trace, unsigned k)
{
    return trace ? &trace->tracers[k] : NULL;
}

uint16_t cl_trace_service_of(struct cl_trace *trace, uint16_t kind, uint16_t port)
{
    if (!trace)
        return 0;
    struct cl_trace_control *c = control_of(trace);
    struct cl_trace_service *all = cl_trace_services_of(trace->memory.base);
    uint32_t i = 1;
    pthread_mutex_lock(&trace->lock);
    while (i < c->n_services && !(all[i].kind == kind && all[i].port == port))
        i++;
    if (i == c->n_services && i < CL_TRACE_SERVICES) {
        all[i] = (struct cl_trace_service){kind, port, 0};
        cl_store_release(&c->n_services, i + 1); /* release: the entry */
    }
    pthread_mutex_unlock(&trace->lock);
    return i < CL_TRACE_SERVICES ? (uint16_t)i : 0;
}

int cl_trace_set_mode(struct cl_trace *trace, uint32_t mode)
{
    if (!trace || mode > CL_TRACE_FULL)
        return -EINVAL;
    cl_store_relaxed(&control_of(trace)->mode, mode);
    return 0;
}

uint32_t cl_trace_mode(const struct cl_trace *trace)
{
    return trace ? cl_load_relaxed(&control_of(trace)->mode) : CL_TRACE_OFF;
}

/* Records. */

static void publish(struct cl_tracer *t)
{
    t->head += t->pending;
    t->pending = 0;
    cl_trace_publish(t->ring, t->head);
}

/* One more, for its doorbell to be published; or when there are as many as may be. */
static void put(struct cl_tracer *t, const uint64_t words[CL_TRACE_WORDS])
{
    cl_trace_put(t->ring, t->records, t->head + t->pending, words);
    if (++t->pending == CL_TRACE_AHEAD)
        publish(t);
}

/* Of what waits for no doorbell. */
static void put_record(struct cl_tracer *t, const void *record)
{
    uint64_t words[CL_TRACE_WORDS];
    bool others_wait = t->pending != 0;
    memcpy(words, record, sizeof words);
    put(t, words);
    if (!others_wait)
        publish(t);
}

static uint32_t ticks(uint64_t from, uint64_t to)
{
    return to <= from ? 0 : (uint32_t)cl_min(to - from, (uint64_t)UINT32_MAX);
}

void cl_tracer_sent(struct cl_tracer *t, uint64_t now)
{
    for (uint32_t i = 0; now && i < t->pending; i++) {
        struct cl_trace_message *m = (struct cl_trace_message *)(void *)cl_trace_slot(t->ring, t->records, t->head + i);
        /* Our own stores; relaxed: a reader that is slow may look there. */
        uint32_t flags = cl_load_relaxed(&m->flags);
        if (cl_load_relaxed(&m->kind) != CL_TRACE_MESSAGE || !(flags & CL_TRACE_UNSENT))
            continue;
        cl_store_relaxed(&m->sent, cl_max(cl_load_relaxed(&m->end), ticks(cl_load_relaxed(&m->begin), now)));
        cl_store_relaxed(&m->flags, flags & ~(uint32_t)CL_TRACE_UNSENT);
    }
    publish(t);
}

uint64_t cl_tracer_id(struct cl_tracer *t)
{
    return ++t->ids;
}

/* What the kernel has counted of this thread since the last time, if a message took long. Of the first time nothing is
 * known; by a virtual clock nothing ever, for each run of a seed is the same. */
static uint64_t look_for(struct cl_tracer *t, uint32_t took)
{
    struct rusage u;
    if (!t->looks || t->time || took < t->ticks_per_ms / 1000 * WORTH_A_LOOK_US || getrusage(RUSAGE_THREAD, &u))
        return 0;
    uint64_t faults = (uint64_t)u.ru_minflt + (uint64_t)u.ru_majflt, switches = (uint64_t)u.ru_nivcsw;
    uint64_t since = t->looked ? (uint32_t)(faults - t->faults) | (switches - t->switches) << 32 : 0;
    t->looks--;
    t->looked = true;
    t->faults = faults;
    t->switches = switches;
    return since;
}

static inline uint64_t both(uint32_t low, uint32_t high)
{
    return low | (uint64_t)high << 32;
}

/* Word by word, for a record that was written in narrower pieces would have to be read back in wider ones. */
void cl_tracer_message(struct cl_tracer *t, struct cl_trace_open *o, const struct cl_trace_end *e)
{
    uint32_t pickup = ticks(e->begin, e->pickup);
    uint32_t start = cl_max(pickup, ticks(e->begin, e->start));
    uint32_t end = cl_max(start, ticks(e->begin, e->end));
    uint32_t flags = e->flags | (o->drawn ? CL_TRACE_DRAWN : 0) | (o->guessed ? CL_TRACE_GUESSED : 0);
    uint32_t sent = e->sent ? cl_max(end, ticks(e->begin, e->sent)) : end;
    uint32_t blocked = (uint32_t)cl_min(o->blocked, (uint64_t)(end - start));
    uint32_t ready = (uint32_t)cl_min(o->ready, (uint64_t)(end - start - blocked));
    flags |= (flags & CL_TRACE_ANSWERED) && !e->sent ? CL_TRACE_UNSENT : 0;
    bool slow = t->mode == CL_TRACE_SAMPLED && end > t->slow_ticks;
    if (slow)
        cl_tracer_slow(t, end);
    if (slow && o->waits && !o->drawn) {
        o->longest.n = o->waits;
        put_record(t, &o->longest);
    }
    if (o->drawn || slow)
        put(t,
            (uint64_t[CL_TRACE_WORDS]){
                CL_TRACE_MESSAGE | (uint64_t)t->index << 8 | (uint64_t)e->service << 16 | (uint64_t)flags << 32,
                o->id ? o->id : cl_tracer_id(t), e->begin, both(pickup, start), both(end, sent), both(blocked, ready),
                e->flow | (uint64_t)e->bytes << 32 | (uint64_t)e->shared << 48, look_for(t, end)});
    cl_trace_forget(o);
}

void cl_tracer_waited(struct cl_tracer *t, struct cl_trace_open *o, struct cl_trace_wait *w, uint64_t ready,
                      uint64_t now)
{
    w->kind = CL_TRACE_WAIT;
    w->kthread = (uint8_t)t->index;
    w->n = 1;
    w->id = o ? o->id : 0;
    w->blocked = ticks(w->begin, ready);
    w->ready = ticks(cl_max(ready, w->begin), now);
    if (o) {
        o->blocked += w->blocked;
        o->ready += w->ready;
        o->waits++;
    }
    if (!o || o->drawn)
        put_record(t, w);
    else if (o->waits == 1 || (uint64_t)w->blocked + w->ready > (uint64_t)o->longest.blocked + o->longest.ready)
        o->longest = *w;
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

/* Where a millisecond begins: below the slowest of the last one, if that was full; else lower each time. */
static uint64_t threshold(const struct cl_tracer *t, bool follows)
{
    if (!follows || t->slow_ticks == CL_TRACER_NEVER)
        return 0;
    return t->n_top == t->slowest ? t->slow_ticks / 4 * 3 : t->slow_ticks / 2;
}

static void tell_away(struct cl_tracer *t)
{
    struct cl_trace_core c = {.kind = CL_TRACE_CORE, .kthread = (uint8_t)t->index};
    /* In this order the handler, which writes `begin` only while `end` is 0, changes nothing that is read here. */
    c.begin = cl_load_relaxed(&t->away_begin);
    c.n = cl_load_relaxed(&t->away_n);
    c.end = cl_exchange(&t->away_end, 0);
    if (c.end && t->mode != CL_TRACE_OFF)
        put_record(t, &c);
}

void cl_tracer_away(struct cl_tracer *t, uint64_t begin, uint64_t end)
{
    bool more = cl_load_relaxed(&t->away_end) != 0;
    if (!more)
        cl_store_relaxed(&t->away_begin, begin);
    cl_store_relaxed(&t->away_n, more ? t->away_n + 1 : 1);
    __atomic_signal_fence(__ATOMIC_SEQ_CST); /* of one thread: the compiler's order is enough */
    cl_store_relaxed(&t->away_end, cl_max(end, begin + 1));
    cl_store_relaxed(&t->look_at, 0); /* the next poll does */
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
    cl_store_relaxed(&t->look_at, t->ms_end);
    if (now < t->ms_end)
        return;
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
    t->ms_end = now + t->ticks_per_ms;
    cl_store_relaxed(&t->look_at, t->ms_end);
}

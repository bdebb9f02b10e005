/* See writer.h. */
#include "writer.h"
#include "in_call.h"
#include <corelane/libos/complete.h>
#include <corelane/libos/sched.h>
#include <corelane/libos/uthread.h>
#include <corelane/runtime/counter.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define UTHREADS 4
#define PIECES 8            /* records of one batch that are under way */
#define LOOK_NS 20000000ull /* between looks whether the runtime stops */
#define STEP_BYTES 65536ull /* of a rewrite that go with a batch: a write of that costs no more than a short one */
#define MARGIN_BYTES 65536ull
#define GATHER_NS 4000 /* a client on another core asks again within this, as a rule */

struct cl_resp_writer {
    struct cl_resp *r;
    struct cl_mutex *lock;
    struct cl_log_shared *log;
    struct cl_mutex submit;
    struct cl_cond work;
    struct cl_resp_writer_counts count; /* under the engine's lock */
    bool pass_begins;                   /* the next batch is the first of a pass */
    uint64_t pass_index;                /* its first record */
    uint64_t since_pass;                /* bytes of units since that was */
    uint64_t under_way;                 /* bytes of units that were taken and are not durable */
    bool in_call;                       /* writes may be made in the call */
    uint64_t sent_turn;                 /* of the kthread's loop, in which something was sent to a client last */
    struct cl_resp_in_call calls;       /* with `submit` */
};

struct batch {
    const uint8_t *units;
    uint64_t len, unit, records;
    bool begins_pass, ends_pass;
    bool here; /* to be written in the call */
};

static void log_sizes(struct cl_resp_writer *w, uint64_t *ring, uint64_t *free_bytes)
{
    cl_spin_lock(&w->log->lock);
    *ring = w->log->log ? cl_log_ring_bytes(w->log->log) : 0;
    *free_bytes = w->log->log ? cl_log_free_bytes(w->log->log) : 0;
    cl_spin_unlock(&w->log->lock);
}

/* What a pass that begins now will put at most, or this one still: no more than what the last one has put and what
 * came since, nor more than what values take in memory, as a rule. */
static uint64_t pass_needs(const struct cl_resp_writer *w)
{
    uint64_t limit, used = cl_resp_used(w->r, &limit), put = cl_resp_rewrite_bytes(w->r);
    uint64_t all = cl_min(w->since_pass, used + used / 2);
    return cl_resp_rewrites(w->r) ? all - cl_min(all, put) : all;
}

/* Under both locks. Room is what is left beside the pass that will make some. */
static void look_at_room(struct cl_resp_writer *w)
{
    uint64_t ring, free_bytes;
    log_sizes(w, &ring, &free_bytes);
    uint64_t needs = pass_needs(w), kept = needs + needs / 8 + w->under_way + MARGIN_BYTES;
    cl_resp_log_room(w->r, ring - free_bytes, free_bytes > kept ? free_bytes - kept : 0);
}

/* Under both locks, when all units were taken. */
static void look_at_rewrite(struct cl_resp_writer *w)
{
    uint64_t ring, free_bytes;
    log_sizes(w, &ring, &free_bytes);
    if (cl_resp_rewrites(w->r) && free_bytes < 2 * MARGIN_BYTES) {
        cl_resp_rewrite_abort(w->r);
        cl_count(&w->count.aborted, 1);
    }
    if (!cl_resp_wants_rewrite(w->r, free_bytes < ring / 2 ? ring / 16 : UINT64_MAX))
        return;
    cl_resp_rewrite(w->r);
    w->pass_begins = true;
}

/* Under both locks. False: there is nothing to do. */
static bool take(struct cl_resp_writer *w, struct batch *b)
{
    *b = (struct batch){0};
    if (cl_resp_rewrites(w->r))
        b->ends_pass = cl_resp_rewrite_step(w->r, cl_max(STEP_BYTES, 2 * cl_resp_units_bytes(w->r)));
    b->units = cl_resp_units(w->r, &b->len, &b->unit);
    b->begins_pass = w->pass_begins;
    w->pass_begins = false;
    if (b->begins_pass)
        w->since_pass = 0;
    w->since_pass += b->len;
    w->under_way += b->len;
    look_at_room(w);
    look_at_rewrite(w);
    return b->units != NULL || cl_resp_units_bytes(w->r);
}

static uint64_t now_ns(void)
{
    return cl_sched_now_ns(cl_sched_self());
}

static bool calls(const struct cl_resp_writer *w)
{
    return w->in_call && cl_sched_alone() && cl_resp_in_call_may(&w->calls, now_ns());
}

/* With `submit`, which keeps others from it. Let what was answered in this turn leave, and those have their commands
 * run who are about to. */
static void gather(struct cl_resp_writer *w)
{
    uint64_t grew_ns = now_ns();
    uint32_t waiting = cl_resp_waiting(w->r);
    bool sends = w->sent_turn == cl_sched_turn();
    while ((sends || waiting < cl_resp_active(w->r)) && now_ns() - grew_ns < GATHER_NS && !cl_uthread_stopping()) {
        uint32_t before = waiting;
        for (uint64_t turn = cl_sched_turn(); cl_sched_turn() == turn;)
            (void)cl_uthread_yield();
        waiting = cl_resp_waiting(w->r);
        grew_ns = waiting > before ? now_ns() : grew_ns;
        sends = false;
    }
}

/* Takes `submit`, and keeps it. False: the runtime stops. */
static bool next(struct cl_resp_writer *w, struct batch *b)
{
    bool here = false;
    *b = (struct batch){0};
    if (cl_mutex_lock(&w->submit) || cl_mutex_lock(w->lock))
        return false;
    while (!cl_uthread_stopping()) {
        if (!here && cl_resp_units_bytes(w->r) && calls(w)) {
            (void)cl_mutex_unlock(w->lock);
            gather(w);
            here = true;
            if (cl_mutex_lock(w->lock))
                return false;
        }
        if (take(w, b) && b->units)
            break;
        if (!cl_resp_units_bytes(w->r))
            (void)cl_cond_wait_until(&w->work, w->lock, cl_sched_now_ns(cl_sched_self()) + LOOK_NS);
    }
    (void)cl_mutex_unlock(w->lock);
    b->here = here;
    return b->units != NULL;
}

/* Append them. Returns when the last record is on its way: *last, one of f; NULL: none is. */
static int append(struct cl_resp_writer *w, struct batch *b, struct cl_log_future f[PIECES],
                  struct cl_log_future **last)
{
    uint32_t most = cl_log_max_bytes(w->log->log);
    *last = NULL;
    for (uint64_t at = 0; at < b->len; b->records++) {
        struct cl_log_future *one = &f[b->records % PIECES];
        uint32_t bytes = (uint32_t)cl_min(b->len - at, (uint64_t)most);
        int rc = b->records >= PIECES ? cl_log_future_wait(one) : 0;
        if (rc)
            return rc;
        *one = (struct cl_log_future){
            .op = {.data = b->units + at, .bytes = bytes, .kind = at + bytes < b->len ? CL_RESP_PIECE : 0}};
        rc = cl_log_begin(w->log, one);
        if (rc)
            return rc;
        if (at == 0 && b->begins_pass)
            w->pass_index = one->op.index;
        *last = one;
        at += bytes;
    }
    return 0;
}

/* The pass is durable: what lies before it is not needed any more. */
static int end_pass(struct cl_resp_writer *w)
{
    uint64_t ring, free_bytes;
    int rc = cl_log_trim_wait(w->log, w->pass_index);
    log_sizes(w, &ring, &free_bytes);
    (void)cl_mutex_lock(w->lock);
    if (rc) {
        cl_resp_failed(w->r, -rc);
    } else {
        cl_count(&w->count.rewrites, 1);
        cl_resp_rewritten(w->r, ring - free_bytes);
        look_at_room(w);
    }
    (void)cl_mutex_unlock(w->lock);
    return rc;
}

static void finish(struct cl_resp_writer *w, const struct batch *b, int rc)
{
    (void)cl_mutex_lock(w->lock);
    w->under_way -= b->len;
    if (rc) {
        cl_resp_failed(w->r, -rc);
    } else {
        cl_count(&w->count.batches, 1);
        cl_count(&w->count.records, b->records);
        if (b->unit > w->count.units) /* a later batch may be told of first */
            cl_count(&w->count.units, b->unit - w->count.units);
        cl_count(&w->count.bytes, b->len);
        cl_resp_durable(w->r, b->unit);
        look_at_room(w);
    }
    (void)cl_mutex_unlock(w->lock);
    if (!rc && b->ends_pass)
        (void)end_pass(w);
}

/* Wait for what was appended; here: with `submit`. */
static int wait_for(struct cl_resp_writer *w, struct cl_log_future *last, bool here)
{
    uint64_t took;
    if (!here)
        return cl_log_future_wait(last);
    int rc = cl_log_future_call(last, &took);
    cl_count(&w->count.in_call, took != 0);
    cl_count(&w->count.call_ns, took);
    cl_resp_in_call_ended(&w->calls, took, now_ns());
    return rc;
}

static void write_units(void *arg)
{
    struct cl_resp_writer *w = arg;
    struct cl_log_future f[PIECES], *last;
    struct batch b;
    while (next(w, &b)) {
        int rc = append(w, &b, f, &last);
        bool here = b.here;
        if (!here)
            (void)cl_mutex_unlock(&w->submit);
        int waited = last ? wait_for(w, last, here) : 0;
        if (here)
            (void)cl_mutex_unlock(&w->submit);
        finish(w, &b, rc ? rc : waited);
    }
    (void)cl_mutex_unlock(&w->submit);
}

int cl_resp_writer_new(struct cl_runtime *rt, struct cl_resp *r, struct cl_mutex *lock, struct cl_log_shared *log,
                       bool in_call, struct cl_resp_writer **out)
{
    struct cl_resp_writer *w = calloc(1, sizeof *w);
    uint64_t ring, free_bytes;
    if (!w)
        return -ENOMEM;
    *w = (struct cl_resp_writer){.r = r, .lock = lock, .log = log, .in_call = in_call};
    log_sizes(w, &ring, &free_bytes);
    w->since_pass = ring - free_bytes;
    cl_resp_propagate(r);
    cl_resp_hold(r);
    look_at_room(w);
    for (unsigned i = 0; i < UTHREADS; i++) {
        int rc = cl_runtime_spawn(rt, write_units, w);
        if (rc)
            return rc; /* those that were made have w: the runtime is of no use any more */
    }
    *out = w;
    return 0;
}

void cl_resp_writer_signal(struct cl_resp_writer *w)
{
    cl_cond_signal(&w->work);
}

void cl_resp_writer_sent(struct cl_resp_writer *w)
{
    w->sent_turn = cl_sched_turn();
}

void cl_resp_writer_delete(struct cl_resp_writer *w)
{
    free(w);
}

const struct cl_resp_writer_counts *cl_resp_writer_counts(const struct cl_resp_writer *w)
{
    return w ? &w->count : NULL;
}

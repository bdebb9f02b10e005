/* The log for uthreads: see log_shared.h. */
#include <corelane/libos/log_shared.h>

#include "../../sched/internal.h"
#include <corelane/libos/scope.h>
#include <corelane/libos/uthread.h>
#include "internal.h"

#define LOOK_NS 1000000 /* between polls for what is in flight and nobody waits for */

#define PARTS 2     /* flushes of those who append: while one is in flight, those of the other one append */
#define PARTS_FOR 8 /* flushes, each time that the device had nothing to do while they gathered */

/* Take the sleeper of f off, to be brought back when the lock is free. */
static void rouse(struct cl_log_shared *s, struct cl_log_future *f)
{
    f->next = s->ready;
    s->ready = f;
    s->sleepers--;
    if (s->log && s->pump_gathers)
        s->log->gathers = true;
    __atomic_fetch_add(&s->roused, 1, __ATOMIC_RELAXED);
}

/* Into the trace of this kthread: an append that is told now. */
static void trace(struct cl_tracer *t, struct cl_log_future *f, uint64_t now)
{
    struct cl_trace_call c = {.begin = f->begun,
                              .service = (uint16_t)f->shared->service,
                              .what = CL_TRACE_WAITS_LOG,
                              .failed = f->op.result != 0,
                              .ready = f->done_at,
                              .parts = f->op.stamps};
    f->begun = 0;
    if (cl_tracer_called(t, &c, now))
        cl_tracer_put_call(t, &c, NULL, now);
}

/* One stamp for all that a pump brings. */
static uint64_t done_at(struct cl_log_shared *s)
{
    if (!s->done_at)
        s->done_at = cl_clock_stamp(s->sched->clock);
    return s->done_at;
}

static void done(struct cl_log_op *op)
{
    struct cl_log_future *f = cl_container_of(op, struct cl_log_future, op);
    const struct cl_kthread *k = cl_kthread_self(); /* NULL: its opener pumps, when the scheduler has stopped */
    if (f->begun)
        f->done_at = done_at(f->shared);
    if (f->t)
        rouse(f->shared, f);
    else if (f->begun && k && k->trace)
        trace(k->trace, f, f->done_at);
}

/* The log has got on: bring back as many as there is room for, in the order in which they came. If nobody is on the way
 * already, one of them in any case, who finds out what else has changed, and brings back the next one (ask_log). */
static void rouse_short(struct cl_log_shared *s)
{
    uint64_t room = s->log ? cl_log_buffer_room(s->log) : UINT64_MAX;
    while (s->short_first) {
        struct cl_log_future *f = s->short_first;
        uint64_t bytes = cl_log_record_bytes(f->op.bytes);
        if (s->due_bytes && s->due_bytes + bytes > room)
            return;
        s->due_bytes += bytes;
        s->short_first = f->next;
        rouse(s, f);
    }
}

/* With the lock, on a kthread. While somebody waits the scheduler's loop collects what is in flight; else the timer
 * does. */
static void arm_timer(struct cl_log_shared *s)
{
    bool look = s->log->in_flight && !s->sleepers;
    uint64_t at = cl_log_confirm_next_ns(s->log);
    if (s->timer_armed || (at == UINT64_MAX && !look))
        return;
    uint64_t now = cl_log_now_ns(s->log), in_ns = at > now ? at - now : 1;
    s->timer_armed = cl_timer_arm(&s->timer, cl_sched_now_ns(s->sched) + (look ? LOOK_NS : in_ns)) == 0;
}

/* With the lock. Whether this kthread has to re-check what was left to gather: nothing else might see to it. */
static void look_again(struct cl_log_shared *s, bool on)
{
    if (s->looks_again)
        cl_sched_landed(s->sched, s->looker, 1);
    s->looks_again = on;
    if (on) {
        s->looker = cl_kthread_self()->index;
        cl_sched_in_flight(1);
    }
}

/* With the lock. If it brings somebody back, and `gather`, what has not been sent waits for what they append: until the
 * last of them has run, or this kthread polls again. */
static unsigned pump(struct cl_log_shared *s, bool gather)
{
    struct cl_log *log = s->log;
    if (!log) {
        look_again(s, false);
        return 0;
    }
    log->gathers = false;
    s->done_at = 0;
    s->pump_gathers = gather;
    unsigned n = cl_log_pump(log);
    if (n)
        rouse_short(s);
    s->pump_gathers = false;
    if (log->gathers && !log->flights && !cl_log_unsent(log))
        s->parts = PARTS_FOR;
    look_again(s, log->gathers && cl_log_unsent(log));
    arm_timer(s);
    return n;
}

/* Free the lock, and bring back whom it has made ready. A future is gone once its uthread runs. */
static void release(struct cl_log_shared *s)
{
    struct cl_log_future *f = s->ready;
    s->ready = NULL;
    cl_spin_unlock(&s->lock);
    while (f) {
        struct cl_log_future *next = f->next;
        cl_sched_landed(s->sched, f->kthread, 1);
        cl_uthread_ready(f->t);
        f = next;
    }
}

static void on_timer(struct cl_timer *timer, void *arg)
{
    struct cl_log_shared *s = arg;
    (void)timer;
    cl_spin_lock(&s->lock);
    s->timer_armed = false;
    pump(s, false);
    release(s);
}

/* Sleep until somebody rouses f; the lock is held, and free afterwards. */
static void sleep_on(struct cl_log_shared *s, struct cl_log_future *f)
{
    struct cl_kthread *k = cl_kthread_self();
    f->t = k->current;
    f->kthread = k->index;
    s->sleepers++;
    cl_sched_in_flight(1);
    cl_waits_in_stages(k, CL_TRACE_WAITS_LOG, s, f->op.stamps);
    cl_block(k, CL_AFTER_UNLOCK, &s->lock); /* may block: asked by all who come here */
    __atomic_fetch_sub(&s->roused, 1, __ATOMIC_RELAXED);
}

/* The same until the log has got on; the lock is held afterwards. first: it has been brought back for nothing
 * before. */
static void sleep_short(struct cl_log_shared *s, struct cl_log_future *f, bool first)
{
    if (!s->short_first)
        s->short_last = f;
    if (first || !s->short_first) {
        f->next = s->short_first;
        s->short_first = f;
    } else {
        f->next = NULL;
        s->short_last->next = f;
        s->short_last = f;
    }
    sleep_on(s, f);
    cl_spin_lock(&s->lock);
    s->due_bytes -= cl_log_record_bytes(f->op.bytes);
}

static unsigned shared_poll(void *arg, unsigned self, unsigned k)
{
    struct cl_log_shared *s = arg;
    const struct cl_kthread *me = cl_kthread_self();
    if (self == k)
        cl_spin_lock(&s->lock);
    else if (!cl_spin_try(&s->lock))
        return 0;
    unsigned n = pump(s, self == k && !me->away && !cl_preempt_needed(me)); /* else it may not poll again soon */
    if (s->log && s->log->config.fixed_wait_ns && cl_log_busy(s->log))
        n++; /* time alone sends the flush: do not sleep */
    release(s);
    return n;
}

/* The queue is armed while any kthread sleeps; arming it again has it check for what is done already. */
static void shared_arm(void *arg, unsigned k, bool on)
{
    struct cl_log_shared *s = arg;
    cl_spin_lock(&s->lock);
    s->armed = on ? s->armed | 1ull << k : s->armed & ~(1ull << k);
    if (s->log && (on || !s->armed))
        s->log->blk->ops->arm(s->log->blk, s->log->config.queue, on);
    cl_spin_unlock(&s->lock);
}

static int shared_fd(void *arg, unsigned k)
{
    struct cl_log_shared *s = arg;
    (void)k;
    return s->log ? s->log->blk->ops->fd(s->log->blk, s->log->config.queue) : -1;
}

int cl_log_share(struct cl_log_shared *shared, struct cl_log *log, struct cl_sched *sched, char err[256])
{
    *shared = (struct cl_log_shared){
        .log = log, .sched = sched, .service = cl_trace_service_next(sched->trace, CL_TRACE_LOG)};
    log->merges = true;
    log->clock = sched->clock;
    cl_timer_init(&shared->timer, on_timer, shared);
    shared->completions = (struct cl_completions){
        .arg = shared, .one_queue = true, .poll = shared_poll, .arm = shared_arm, .fd = shared_fd};
    int rc = cl_sched_completions_add(sched, &shared->completions, err);
    if (rc) {
        log->merges = false;
        log->clock = NULL;
    }
    return rc;
}

void cl_log_unshare(struct cl_log_shared *shared)
{
    cl_timer_cancel(&shared->timer);
    cl_sched_completions_remove(shared->sched, &shared->completions);
    if (shared->log) { /* whoever pumps it now leaves nothing to others */
        shared->log->gathers = shared->log->merges = false;
        shared->log->clock = NULL;
    }
}

/* Whether the caller may wait here: whom it waits for is told to that scheduler. */
static bool may_wait(const struct cl_log_shared *s)
{
    const struct cl_kthread *k = cl_kthread_self();
    return cl_may_block(k) && k->sched == s->sched;
}

/* Ask the log for something by `submit`, again and again while its buffers are full. */
static int ask_log(struct cl_log_shared *s, struct cl_log_future *f,
                   int (*submit)(struct cl_log *log, struct cl_log_op *op))
{
    if (!may_wait(s))
        return -EDEADLK;
    f->shared = s;
    f->op.done = done;
    bool slept = false;
    int rc;
    cl_spin_lock(&s->lock);
    for (;;) {
        f->t = NULL;
        if (cl_uthread_cancelled()) { /* nothing of it is under way */
            rc = -ECANCELED;
            break;
        }
        rc = s->log ? submit(s->log, &f->op) : -ESHUTDOWN;
        if (rc != -EAGAIN)
            break;
        if (pump(s, false) == 0) {
            sleep_short(s, f, slept);
            slept = true;
        } else {
            release(s);
            cl_spin_lock(&s->lock);
        }
    }
    if (slept && !s->due_bytes)
        rouse_short(s);
    release(s);
    return rc == -EBUSY ? -ESHUTDOWN : rc; /* it is being closed: an open one is not busy */
}

int cl_log_begin(struct cl_log_shared *shared, struct cl_log_future *f)
{
    const struct cl_kthread *k = cl_kthread_self();
    f->begun = k && k->trace ? cl_tracer_begins(k->trace) : 0;
    return ask_log(shared, f, cl_log_append);
}

/* With the lock, by one who appended. Whether what gathers is its part of all who append: those who wait, those who are
 * about to run, and this one. */
static bool is_part(const struct cl_log_shared *s)
{
    const struct cl_log *log = s->log;
    if (!s->parts || !cl_log_width_parts(&log->width))
        return false;
    uint64_t all = s->sleepers + cl_load_relaxed(&s->roused) + 1; /* relaxed: a guess */
    return log->flights < PARTS && PARTS * cl_log_open_records(log) >= all;
}

/* With the lock. Whether what was appended is left to the loop's next poll: more is about to come, or the device has
 * something to do already. Relaxed: a guess. */
static bool gathers(const struct cl_log_shared *s)
{
    return cl_log_adapts(s->log) && (s->log->flights || cl_load_relaxed(&s->roused)) && !is_part(s);
}

int cl_log_future_wait(struct cl_log_future *f)
{
    struct cl_log_shared *s = f->shared;
    if (!may_wait(s))
        return -EDEADLK;
    cl_spin_lock(&s->lock);
    if (f->op.result == CL_LOG_PENDING && !gathers(s)) {
        s->parts -= s->parts > 0;
        pump(s, false);
        release(s);
        cl_spin_lock(&s->lock);
    }
    if (f->op.result != CL_LOG_PENDING) {
        cl_spin_unlock(&s->lock);
        return f->op.result;
    }
    sleep_on(s, f);
    struct cl_tracer *t = cl_kthread_self()->trace; /* not the one that it left, perhaps */
    if (f->begun)
        trace(t, f, cl_tracer_stamp(t));
    return f->op.result;
}

/* With the lock. What gathers goes now, and is done when this returns, unless the device keeps nothing. */
static uint64_t call(struct cl_log_shared *s)
{
    struct cl_log *log = s->log;
    uint64_t from = cl_sched_clock(s->sched);
    cl_blk_keep(log->blk, log->config.queue, true);
    pump(s, false);
    bool kept = cl_blk_settle(log->blk, log->config.queue, true);
    cl_blk_keep(log->blk, log->config.queue, false);
    if (!kept)
        return 0;
    pump(s, false);
    return cl_max(cl_sched_clock(s->sched) - from, 1ull);
}

int cl_log_future_call(struct cl_log_future *f, uint64_t *call_ns)
{
    struct cl_log_shared *s = f->shared;
    *call_ns = 0;
    if (!may_wait(s))
        return -EDEADLK;
    if (cl_sched_alone()) {
        cl_spin_lock(&s->lock);
        if (f->op.result == CL_LOG_PENDING && s->log && !s->log->in_flight)
            *call_ns = call(s);
        release(s);
    }
    return cl_log_future_wait(f);
}

int cl_log_append_wait(struct cl_log_shared *shared, const void *data, uint32_t bytes, uint64_t tag, uint64_t *index)
{
    struct cl_log_future f = {.op = {.data = data, .bytes = bytes, .tag = tag}};
    int rc = cl_log_begin(shared, &f);
    if (rc)
        return rc;
    if (index)
        *index = f.op.index;
    return cl_log_future_wait(&f);
}

/* op->tag is the first index that is kept: a trim has no use for a tag. */
static int trim(struct cl_log *log, struct cl_log_op *op)
{
    return cl_log_trim(log, op->tag, op);
}

int cl_log_trim_wait(struct cl_log_shared *shared, uint64_t first_kept)
{
    struct cl_log_future f = {.op.tag = first_kept};
    int rc = ask_log(shared, &f, trim);
    return rc ? rc : cl_log_future_wait(&f);
}

int cl_log_close_wait(struct cl_log_shared *s)
{
    struct cl_log_future f = {.shared = s};
    if (!may_wait(s))
        return -EDEADLK;
    cl_spin_lock(&s->lock);
    struct cl_log *log = s->log;
    if (!log || log->closing) {
        cl_spin_unlock(&s->lock);
        return -ESHUTDOWN;
    }
    cl_log_close_begin(log);
    while (cl_log_busy(log)) {
        if (pump(s, false) == 0) {
            sleep_short(s, &f, true);
        } else {
            release(s);
            cl_spin_lock(&s->lock);
        }
    }
    log->blk->ops->arm(log->blk, log->config.queue, false);
    s->log = NULL;
    rouse_short(s); /* they see that it is closed */
    release(s);
    cl_timer_cancel(&s->timer); /* without the lock, which its callback takes; nobody arms it any more */
    int rc = cl_log_error(log);
    cl_log_discard(log);
    return rc;
}

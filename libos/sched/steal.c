/* What a kthread without work takes from its siblings: half of a run queue, frames, timers that are overdue.
 *
 * Nothing is taken from a sibling that gets on with it. One ready uthread alone is left for some checks, since it
 * usually is the other half of a hand-over (signal, then wait) and would only drag its data along. Frames and timers
 * are taken only from a sibling whose loop has not turned for some checks: it is inside a long handler, or its core
 * runs something else. Both are counted in checks, not in time, so that they work the same on an injected clock. Of one
 * that is adopted it takes ADOPTED_STUCK_NS besides: between two turns its thread does the program's own work, for some
 * microseconds as a rule, and what waits is mostly for that thread.
 *
 * Frames are also taken from a sibling that gets on and still falls behind: CL_BEHIND_POLLS polls one after another
 * have brought it CL_BEHIND_FRAMES or more. Under a load that it can carry the polls of a loop bring few frames, for
 * what comes while one batch is handled is the next batch; so this is a queue that stays. It ends with the first
 * shorter poll.
 *
 * What the source says may be taken in any case (its takeable) is taken after as many checks.
 *
 * From a sibling that has lost its core (cede.c) everything is taken at once. */
#include "runq.h"

#define ALONE_LOOKS 12
#define STUCK_LOOKS 6
#define ADOPTED_STUCK_NS 50000

static unsigned steal_uthreads(struct cl_kthread *k, struct cl_kthread *v, struct cl_seen *seen, bool *promising)
{
    uint32_t len = cl_runq_len(&v->runq);
    struct cl_uthread *front = cl_take_front(v);
    if (front) {
        cl_count(&k->stats.stolen_uthreads, 1);
        cl_budget(k);
        cl_dispatch(k, front);
        return 1;
    }
    if (len == 0 || len > (1u << 31)) {
        seen->alone = 0;
        return 0;
    }
    if (len == 1 && !cl_load_relaxed(&v->ceded)) {
        uint32_t head = cl_load_relaxed(&v->runq.head); /* relaxed: only whether it has changed */
        seen->alone = head == seen->head ? seen->alone + 1 : 0;
        seen->head = head;
        if (seen->alone < ALONE_LOOKS) {
            *promising = true;
            return 0;
        }
    }
    unsigned n;
    struct cl_uthread *t = cl_runq_steal(&k->runq, &v->runq, &n);
    if (!t)
        return 0;
    seen->alone = 0;
    cl_store_relaxed(&v->stolen_from, 1);
    cl_note_taken(v);
    cl_note_ready(k);
    cl_count(&k->stats.stolen_uthreads, n);
    cl_budget(k);
    cl_dispatch(k, t);
    return n;
}

/* Once more it has not turned since. True: it is to be helped. */
static bool is_stuck(const struct cl_sched *s, const struct cl_kthread *v, struct cl_seen *seen)
{
    if (++seen->stuck < STUCK_LOOKS)
        return false;
    if (cl_likely(!v->wakefd))
        return true;
    uint64_t now = cl_sched_clock(s);
    if (seen->stuck == STUCK_LOOKS)
        seen->stuck_ns = now;
    return now - seen->stuck_ns >= ADOPTED_STUCK_NS;
}

static unsigned steal_from_stuck(struct cl_kthread *k, struct cl_kthread *v, struct cl_seen *seen, bool *promising)
{
    struct cl_sched *s = k->sched;
    uint64_t turns = cl_load_relaxed(&v->turns), next_ns = cl_load_relaxed(&v->timers.next_ns);
    if (turns != seen->turns && !cl_load_relaxed(&v->ceded)) {
        seen->turns = turns;
        seen->stuck = 0;
        return 0;
    }
    /* One that sleeps wakes by itself for its queue and its timers. Relaxed: a wrong guess costs a check. Where cores
     * are managed it may not have one to wake on. */
    bool managed = cl_managed(s);
    if (!managed && cl_load_relaxed(&s->parked) & 1ull << v->index)
        return 0;
    bool frames = s->has_source && s->source.ready(s->source.arg, v->index);
    bool timers = next_ns != CL_NEVER && next_ns <= cl_sched_clock(s);
    /* Our poll may have taken a frame from where it would have woken the owner, and the owner may have gone to sleep
     * since. Its bit is set before its last poll, and polls exclude each other: one of us sees the other. */
    cl_fence_seq_cst();
    if (frames && !managed && cl_load_relaxed(&s->parked) & 1ull << v->index) {
        cl_park_wake(v->parker);
        return 0;
    }
    bool in_flight = cl_load_relaxed(&v->in_flight);
    if (!frames && !timers && !in_flight)
        return 0;
    if (!cl_load_relaxed(&v->ceded) && !is_stuck(s, v, seen)) {
        *promising = true;
        return 0;
    }
    unsigned n = timers ? cl_timers_run(k, v, cl_sched_clock(s)) : 0;
    k->ran = true; /* what timers and poll have sent */
    if (in_flight && !n)
        n = cl_completions_poll(k, v);
    if (n || !frames)
        return n;
    n = s->source.poll(s->source.arg, k->index, v->index);
    cl_count(&k->stats.stolen_frames, n);
    return n;
}

/* Whether something has been there to be taken for some checks. */
static bool takeable(const struct cl_sched *s, const struct cl_kthread *v, struct cl_seen *seen, bool *promising)
{
    if (!s->source.takeable || s->source.takeable(s->source.arg, v->index) == 0) {
        seen->takeable = 0;
        return false;
    }
    *promising = true;
    return ++seen->takeable >= STUCK_LOOKS;
}

static unsigned steal_from_behind(struct cl_kthread *k, struct cl_kthread *v, struct cl_seen *seen, bool *promising)
{
    struct cl_sched *s = k->sched;
    /* Relaxed: a hint. One that sleeps is not behind: its last poll found nothing. */
    if (!s->has_source || (cl_load_relaxed(&v->behind) < CL_BEHIND_POLLS && !takeable(s, v, seen, promising)))
        return 0;
    unsigned n = s->source.poll(s->source.arg, k->index, v->index);
    k->ran = true;
    cl_count(&k->stats.stolen_frames, n);
    return n;
}

unsigned cl_steal(struct cl_kthread *k, bool *promising)
{
    struct cl_sched *s = k->sched;
    *promising = false;
    for (uint32_t i = 0; i + 1 < s->n_kthreads; i++) {
        struct cl_kthread *v = &s->kthreads[k->order[i]];
        struct cl_seen *seen = &k->seen[v->index];
        unsigned n = steal_uthreads(k, v, seen, promising);
        if (!n)
            n = steal_from_stuck(k, v, seen, promising);
        if (!n)
            n = steal_from_behind(k, v, seen, promising);
        if (n)
            return n;
    }
    return 0;
}

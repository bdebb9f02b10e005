/* See host.h. */
#include "host.h"

#include <corelane/runtime/clock.h>
#include "guard.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ERR_BYTES 256
#define TIMED_EVERY 16 /* of the decisions of a policy that is built in, one in so many is timed; of others each is */
/* What a policy only reads is the row's first part, compared by words. */
#define READ_ONLY_WORDS (offsetof(struct cl_policy_app, grant) / sizeof(uint64_t))

struct cl_policy_host {
    /* The loop's own; what others read is marked. */
    CL_ALIGNED(CL_CACHELINE) struct cl_policy_setting now;
    struct cl_policy_guard *guard;
    uint32_t nonsense_in_row;     /* decisions */
    struct cl_policy_stats stats; /* read by the controlling thread, relaxed */

    /* Writer: the loop. Reader: the controlling thread. `now.fn` (relaxed), `now.ticket` by `taken` (release, after the
     * loop has left the older setting for good; acquire). */
    CL_ALIGNED(CL_CACHELINE) uint64_t taken;
    uint64_t event_seq; /* odd while the event is being written (release); even and unchanged: a whole one (acquire) */
    struct cl_policy_event event;

    /* Writer: the controlling thread (a setting) and the loop (0, having taken it), both by exchange. Ticket and slot,
     * 0: nothing new. Acquire-release: the slot is written before and read after. */
    CL_ALIGNED(CL_CACHELINE) uint64_t pending;
    struct cl_policy_setting slots[2];

    /* The controlling thread's own. */
    CL_ALIGNED(CL_CACHELINE) uint64_t tickets;
    uint32_t last_slot;
};

int cl_policy_host_new(uint64_t limit_ns, uint64_t watch_ns, struct cl_policy_host **out, char *err)
{
    struct cl_policy_host *h = aligned_alloc(CL_CACHELINE, sizeof *h);
    if (!h)
        return snprintf(err, ERR_BYTES, "out of memory for a policy's host"), -ENOMEM;
    memset(h, 0, sizeof *h);
    h->now.fn = cl_policy_static;
    int rc = cl_policy_guard_new(limit_ns, watch_ns, &h->guard, err);
    if (rc < 0) {
        free(h);
        return rc;
    }
    *out = h;
    return 0;
}

void cl_policy_host_delete(struct cl_policy_host *h)
{
    if (!h)
        return;
    cl_policy_guard_delete(h->guard);
    free(h);
}

static void begin_setting(struct cl_policy_host *h, const struct cl_policy_view *view, struct cl_policy_app *apps)
{
    h->nonsense_in_row = 0;
    if (!h->now.guarded)
        cl_policy_guard_rest(h->guard);
    for (uint32_t i = 0; i < view->n_apps; i++)
        memset(apps[i].memory, 0, sizeof apps[i].memory);
}

/* The setting that the controlling thread has published, if it has not withdrawn it meanwhile. */
static CL_NOINLINE void take(struct cl_policy_host *h, const struct cl_policy_view *view, struct cl_policy_app *apps)
{
    uint64_t word = cl_exchange(&h->pending, 0);
    if (word == 0)
        return;
    const struct cl_policy_setting *slot = &h->slots[word & 1];
    memcpy(h->now.params, slot->params, sizeof h->now.params);
    h->now.guarded = slot->guarded;
    h->now.ticket = word >> 1;
    cl_store_relaxed(&h->now.fn, slot->fn);
    begin_setting(h, view, apps);
    cl_count(&h->stats.swaps, 1);
    /* Release: no call of the older function comes after. */
    cl_store_release(&h->taken, h->now.ticket);
}

/* `delay`, with its defaults, stands for a policy that did not behave. */
static CL_NOINLINE void eject(struct cl_policy_host *h, struct cl_policy_view *view, struct cl_policy_app *apps,
                              struct cl_policy_event *event)
{
    event->ticket = h->now.ticket;
    cl_store_relaxed(&h->event_seq, h->event_seq + 1);
    __atomic_thread_fence(__ATOMIC_RELEASE); /* the odd number before the words; readers: cl_policy_host_event */
    cl_store_relaxed(&h->event.reason, event->reason);
    cl_store_relaxed(&h->event.signal, event->signal);
    cl_store_relaxed(&h->event.ticket, event->ticket);
    cl_store_relaxed(&h->event.ticks, event->ticks);
    cl_store_relaxed(&h->event.offset, event->offset);
    cl_store_relaxed(&h->event.app, event->app);
    cl_store_relaxed(&h->event.grant, event->grant);
    cl_store_release(&h->event_seq, h->event_seq + 1);
    memset(h->now.params, 0, sizeof h->now.params);
    memset(view->params, 0, sizeof view->params);
    h->now.guarded = 0;
    cl_store_relaxed(&h->now.fn, cl_policy_delay);
    begin_setting(h, view, apps);
    cl_count(&h->stats.ejected, 1);
    cl_policy_delay(view, apps);
}

/* Whether a policy left what it may only read as it was. */
static bool kept(const struct cl_policy_app *row, const struct cl_policy_app *copy)
{
    const uint64_t *a = (const uint64_t *)row, *b = (const uint64_t *)copy;
    uint64_t differ = 0;
    for (unsigned i = 0; i < READ_ONLY_WORDS; i++)
        differ |= a[i] ^ b[i];
    return differ == 0;
}

/* A policy that is not trusted: on a copy. */
static CL_NOINLINE void run_guarded(struct cl_policy_host *h, struct cl_policy_view *view, struct cl_policy_app *apps)
{
    uint32_t n = cl_min(view->n_apps, (uint32_t)CL_POLICY_MAX_APPS), nonsense = 0, overwritten = 0;
    struct cl_policy_app *copy = cl_policy_guard_table(h->guard, n);
    for (uint32_t i = 0; i < n; i++) {
        copy[i] = apps[i];
        copy[i].grant = CL_POLICY_NO_GRANT;
    }
    struct cl_policy_event event;
    if (cl_unlikely(cl_policy_guard_call(h->guard, h->now.fn, view, copy, &event))) {
        eject(h, view, apps, &event);
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        bool makes_sense = copy[i].grant <= CL_POLICY_MOST_GRANT;
        if (cl_unlikely(!makes_sense && nonsense++ == 0))
            event = (struct cl_policy_event){.reason = copy[i].grant == CL_POLICY_NO_GRANT ? CL_POLICY_UNWRITTEN
                                                                                           : CL_POLICY_NONSENSE,
                                             .app = i,
                                             .grant = copy[i].grant};
        overwritten += !kept(&apps[i], &copy[i]);
        apps[i].grant = makes_sense ? copy[i].grant : apps[i].cores;
        memcpy(apps[i].memory, copy[i].memory, sizeof apps[i].memory);
    }
    if (cl_unlikely(nonsense | overwritten)) {
        cl_count(&h->stats.nonsense, nonsense);
        cl_count(&h->stats.overwritten, overwritten);
    }
    h->nonsense_in_row = nonsense ? h->nonsense_in_row + 1 : 0;
    if (cl_unlikely(h->nonsense_in_row >= CL_POLICY_MOST_NONSENSE))
        eject(h, view, apps, &event);
}

static CL_NOINLINE void note_time(struct cl_policy_host *h, uint64_t ticks)
{
    cl_count(&h->stats.timed, 1);
    cl_count(&h->stats.ticks, ticks);
    cl_store_relaxed(&h->stats.last_ticks, ticks);
    if (ticks > h->stats.most_ticks)
        cl_store_relaxed(&h->stats.most_ticks, ticks);
}

unsigned cl_policy_run(struct cl_policy_host *h, struct cl_policy_view *view, struct cl_policy_app *apps)
{
    /* Of a built-in policy, reading the clock would be a good part of it. */
    bool timed = h->now.guarded || h->stats.decisions % TIMED_EVERY == TIMED_EVERY / 4;
    uint64_t begin = timed ? cl_tsc() : 0;
    /* Relaxed: only whether to check; the exchange orders. */
    if (cl_unlikely(cl_load_relaxed(&h->pending)))
        take(h, view, apps);
    memcpy(view->params, h->now.params, sizeof view->params);
    if (h->now.guarded)
        run_guarded(h, view, apps);
    else
        h->now.fn(view, apps);
    unsigned cut = cl_policy_settle(view, apps);
    cl_count(&h->stats.decisions, 1);
    cl_count(&h->stats.cut, cut);
    if (cl_unlikely(timed))
        note_time(h, cl_tsc() - begin);
    return cut;
}

int64_t cl_policy_host_set(struct cl_policy_host *h, const struct cl_policy_setting *setting, char *err)
{
    if (!setting->fn)
        return snprintf(err, ERR_BYTES, "no function was given"), -EINVAL;
    if (setting->guarded) {
        int rc = cl_policy_guard_prepare(err);
        if (rc < 0)
            return rc;
    }
    /* Take back what the loop has not seen: its slot is free again. If it has seen it, it may still be reading that
     * slot, and the other one is free: the setting before that was read, or taken back, long ago. */
    uint64_t unseen = cl_exchange(&h->pending, 0);
    uint32_t slot = unseen ? (uint32_t)(unseen & 1) : !h->last_slot;
    h->slots[slot] = *setting;
    h->last_slot = slot;
    uint64_t ticket = ++h->tickets;
    cl_store_release(&h->pending, ticket << 1 | slot); /* the loop stores nothing while it is 0 */
    return (int64_t)ticket;
}

bool cl_policy_host_taken(struct cl_policy_host *h, int64_t ticket)
{
    return cl_load_acquire(&h->taken) >= (uint64_t)ticket;
}

void cl_policy_host_current(const struct cl_policy_host *h, struct cl_policy_setting *out)
{
    /* Relaxed, and not of one instant: for reports. */
    *out = (struct cl_policy_setting){.fn = cl_load_relaxed(&h->now.fn), .ticket = cl_load_acquire(&h->taken)};
}

void cl_policy_host_stats(const struct cl_policy_host *h, struct cl_policy_stats *out)
{
    const uint64_t *from = (const uint64_t *)&h->stats;
    uint64_t *to = (uint64_t *)out;
    for (unsigned i = 0; i < sizeof *out / sizeof *to; i++)
        to[i] = cl_load_relaxed(&from[i]);
}

bool cl_policy_host_event(const struct cl_policy_host *h, struct cl_policy_event *out)
{
    uint64_t seq;
    do {
        seq = cl_load_acquire(&h->event_seq);
        out->reason = cl_load_relaxed(&h->event.reason);
        out->signal = cl_load_relaxed(&h->event.signal);
        out->ticket = cl_load_relaxed(&h->event.ticket);
        out->ticks = cl_load_relaxed(&h->event.ticks);
        out->offset = cl_load_relaxed(&h->event.offset);
        out->app = cl_load_relaxed(&h->event.app);
        out->grant = cl_load_relaxed(&h->event.grant);
        __atomic_thread_fence(__ATOMIC_ACQUIRE); /* the words before the re-check of the number */
    } while ((seq & 1) || cl_load_relaxed(&h->event_seq) != seq);
    return seq != 0;
}

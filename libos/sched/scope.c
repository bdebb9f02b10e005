/* Scopes: see corelane/libos/scope.h.
 *
 * A cancel goes down the tree of scopes with the locks of those on its way held. In each it sets `cancelled`, and then
 * takes the owner and the members off what they wait for (cl_wait_cancel). A uthread about to wait looks at its
 * innermost scope under its cancel_lock and leaves there what it will wait for (cl_wait_register). So either it sees
 * the flag, or the cancel finds it. One that has opened a scope meanwhile is found as that scope's owner.
 *
 * tests/libos/sched/c/scope_model.c runs this file through the interleavings of a cancel with those who wait and
 * wake. */
#include "scope.h"
#include "wait.h"

#include <stdlib.h>

#define CACHE 64 /* free scopes that a kthread keeps; half of them move at a time */
#define SLAB 32  /* scopes allocated at a time */

struct cl_scope_slab {
    struct cl_scope_slab *next;
    struct cl_scope scopes[SLAB];
};

/* Cancelling. */

/* Under the scope's lock: take off whoever waits, and chain them to *woken. */
static void take_off(struct cl_uthread *t, struct cl_uthread **woken)
{
    cl_spin_lock(&t->cancel_lock);
    bool ours = t->waits && cl_wait_cancel(t->waits);
    cl_spin_unlock(&t->cancel_lock);
    if (ours) {
        t->next = *woken; /* in no queue: it sleeps until it is made ready */
        *woken = t;
    }
}

/* Under its lock. False: it was cancelled before. */
static bool cancel_one(struct cl_scope *s, int error, struct cl_uthread **woken)
{
    if (cl_load_relaxed(&s->cancelled))
        return false;
    cl_store_relaxed(&s->error, error);
    cl_store_relaxed(&s->cancelled, 1); /* published by cancel_lock of whoever it concerns */
    if (s->owner)
        take_off(s->owner, woken);
    for (struct cl_uthread *t = s->members; t; t = t->member_next)
        take_off(t, woken);
    return true;
}

/* The scope after `at` in the tree below `top`, with its lock in place of those that are left. NULL: that was the last,
 * and top's lock alone is held. */
static struct cl_scope *next_below(struct cl_scope *top, struct cl_scope *at, bool into)
{
    struct cl_scope *next = into ? at->child : NULL;
    for (; !next && at != top; at = at->parent) {
        next = at->next;
        cl_spin_unlock(&at->lock);
    }
    if (next)
        cl_spin_lock(&next->lock);
    return next;
}

void cl_scope_fail(struct cl_scope *s, int error)
{
    struct cl_uthread *woken = NULL;
    cl_spin_lock(&s->lock);
    bool into = cancel_one(s, error, &woken);
    for (struct cl_scope *at = s; (at = next_below(s, at, into));)
        into = cancel_one(at, -ECANCELED, &woken); /* what was cancelled before has seen to those in it */
    cl_spin_unlock(&s->lock);
    while (woken) {
        struct cl_uthread *next = woken->next; /* before it runs */
        cl_uthread_ready(woken);
        woken = next;
    }
}

void cl_scope_cancel(struct cl_scope *s)
{
    cl_scope_fail(s, -ECANCELED);
}

int cl_scope_why(const struct cl_scope *s)
{
    return cl_load_relaxed(&s->error);
}

uint32_t cl_scope_running(const struct cl_scope *s)
{
    return cl_load_relaxed(&s->n_running);
}

int cl_uthread_cancelled(void)
{
    const struct cl_kthread *k = cl_kthread_self();
    const struct cl_uthread *t = k ? k->current : NULL;
    return t && t->scope && !t->shields && cl_load_relaxed(&t->scope->cancelled);
}

void cl_shield_enter(void)
{
    struct cl_uthread *t = cl_uthread_self();
    if (t)
        t->shields++;
}

void cl_shield_leave(void)
{
    struct cl_uthread *t = cl_uthread_self();
    if (t)
        t->shields--;
}

/* The deadline. */

static void on_deadline(struct cl_timer *timer, void *arg)
{
    (void)timer;
    cl_scope_fail(arg, -ETIMEDOUT);
}

static int set_deadline(struct cl_scope *s, uint64_t deadline_ns)
{
    int rc = 0;
    if (deadline_ns == CL_NEVER) {
        if (s->timed)
            cl_timer_cancel(&s->timer);
    } else if (deadline_ns <= cl_sched_clock(s->sched)) {
        cl_scope_fail(s, -ETIMEDOUT);
    } else {
        rc = cl_timer_arm(&s->timer, deadline_ns);
        s->timed = true;
    }
    return rc;
}

/* Whether the caller is the owner, and this the last scope that it has opened. */
static bool is_owners(const struct cl_scope *s, const struct cl_kthread *k)
{
    return k && k->current && s->owner == k->current && k->current->scope == s;
}

int cl_scope_deadline(struct cl_scope *s, uint64_t deadline_ns)
{
    return is_owners(s, cl_kthread_self()) ? set_deadline(s, deadline_ns) : -EINVAL;
}

/* Life. */

static void move(struct cl_scope **from, struct cl_scope **to)
{
    struct cl_scope *s = *from;
    *from = s->next;
    s->next = *to;
    *to = s;
}

/* Under the scheduler's scope_lock. */
static void add_slab(struct cl_sched *sched)
{
    struct cl_scope_slab *slab = malloc(sizeof *slab);
    if (!slab)
        return;
    slab->next = sched->scope_slabs;
    sched->scope_slabs = slab;
    for (unsigned i = 0; i < SLAB; i++) {
        slab->scopes[i].next = sched->scopes;
        sched->scopes = &slab->scopes[i];
    }
}

/* Memory stays the scheduler's until that is deleted, as stacks do: also that of who is left behind by a stop. */
static struct cl_scope *take_memory(struct cl_kthread *k)
{
    struct cl_sched *sched = k->sched;
    if (cl_unlikely(!k->scopes)) {
        cl_spin_lock(&sched->scope_lock);
        if (!sched->scopes)
            add_slab(sched);
        for (; sched->scopes && k->n_scopes < CACHE / 2; k->n_scopes++)
            move(&sched->scopes, &k->scopes);
        cl_spin_unlock(&sched->scope_lock);
    }
    struct cl_scope *s = k->scopes;
    if (s) {
        k->scopes = s->next;
        k->n_scopes--;
    }
    return s;
}

static void give_memory(struct cl_kthread *k, struct cl_scope *s)
{
    s->next = k->scopes;
    k->scopes = s;
    if (cl_likely(++k->n_scopes <= CACHE))
        return;
    cl_spin_lock(&k->sched->scope_lock);
    for (; k->n_scopes > CACHE / 2; k->n_scopes--)
        move(&k->scopes, &k->sched->scopes);
    cl_spin_unlock(&k->sched->scope_lock);
}

void cl_scopes_delete(struct cl_sched *sched)
{
    for (struct cl_scope_slab *slab; (slab = sched->scope_slabs); free(slab))
        sched->scope_slabs = slab->next;
}

static void make(struct cl_scope *s, struct cl_sched *sched, struct cl_uthread *owner)
{
    *s = (struct cl_scope){.sched = sched, .owner = owner, .parent = owner ? owner->scope : NULL};
    cl_timer_init(&s->timer, on_deadline, s);
}

static void link_to_parent(struct cl_scope *s)
{
    struct cl_scope *parent = s->parent;
    if (!parent)
        return;
    cl_spin_lock(&parent->lock);
    s->next = parent->child;
    if (s->next)
        s->next->prev = s;
    parent->child = s;
    if (cl_load_relaxed(&parent->cancelled)) {
        s->error = -ECANCELED;
        s->cancelled = 1;
    }
    cl_spin_unlock(&parent->lock);
}

static void unlink_from_parent(struct cl_scope *s)
{
    struct cl_scope *parent = s->parent;
    if (!parent)
        return;
    cl_spin_lock(&parent->lock);
    if (s->next)
        s->next->prev = s->prev;
    *(s->prev ? &s->prev->next : &parent->child) = s->next;
    cl_spin_unlock(&parent->lock);
}

int cl_scope_open(uint64_t deadline_ns, struct cl_scope **out)
{
    struct cl_kthread *k = cl_kthread_self();
    if (!cl_may_block(k))
        return -EDEADLK;
    struct cl_scope *s = take_memory(k);
    if (!s)
        return -ENOMEM;
    make(s, k->sched, k->current);
    link_to_parent(s);
    k->current->scope = s;
    int rc = set_deadline(s, deadline_ns);
    if (rc)
        (void)cl_scope_close(s); /* nothing runs in it, so nothing is waited for */
    else
        *out = s;
    return rc;
}

int cl_scope_close(struct cl_scope *s)
{
    struct cl_kthread *k = cl_kthread_self();
    if (!cl_may_block(k))
        return -EDEADLK;
    if (!is_owners(s, k))
        return -EINVAL;
    cl_spin_lock(&s->lock);
    if (s->n_running) {
        s->closer = k->current;
        cl_waits_for(k, CL_TRACE_WAITS_JOIN, s, 0);
        cl_block(k, CL_AFTER_UNLOCK, &s->lock);
    } else {
        cl_spin_unlock(&s->lock);
    }
    if (s->timed)
        cl_timer_cancel(&s->timer);
    unlink_from_parent(s); /* from here on no cancel finds it */
    k = cl_kthread_self();
    k->current->scope = s->parent;
    int rc = s->error;
    give_memory(k, s);
    return rc;
}

int cl_scope_new(struct cl_sched *sched, struct cl_scope **out)
{
    cl_spin_lock(&sched->scope_lock);
    if (!sched->scopes)
        add_slab(sched);
    struct cl_scope *s = sched->scopes;
    if (s)
        sched->scopes = s->next;
    cl_spin_unlock(&sched->scope_lock);
    if (!s)
        return -ENOMEM;
    make(s, sched, NULL);
    *out = s;
    return 0;
}

void cl_scope_watch(struct cl_scope *s, void (*fn)(void *arg), void *arg)
{
    cl_spin_lock(&s->lock);
    s->watch = fn;
    s->watch_arg = arg;
    if (fn && !s->n_running)
        fn(arg);
    cl_spin_unlock(&s->lock);
}

int cl_scope_delete(struct cl_scope *s)
{
    if (!s)
        return 0;
    if (s->owner)
        return -EINVAL;
    cl_spin_lock(&s->lock); /* the last one to end may still hold it */
    bool busy = s->n_running != 0;
    cl_spin_unlock(&s->lock);
    if (busy)
        return -EBUSY;
    cl_spin_lock(&s->sched->scope_lock);
    s->next = s->sched->scopes;
    s->sched->scopes = s;
    cl_spin_unlock(&s->sched->scope_lock);
    return 0;
}

/* Uthreads. */

/* One less runs; `t` is it, or NULL: it could not be started. */
static void count_out(struct cl_scope *s, struct cl_uthread *t)
{
    struct cl_uthread *closer = NULL;
    cl_spin_lock(&s->lock);
    if (t) {
        if (t->member_next)
            t->member_next->member_prev = t->member_prev;
        *(t->member_prev ? &t->member_prev->member_next : &s->members) = t->member_next;
    }
    cl_store_relaxed(&s->n_running, s->n_running - 1);
    if (!s->n_running) {
        closer = s->closer;
        s->closer = NULL;
        if (s->watch)
            s->watch(s->watch_arg); /* under the lock: it is not freed before */
    }
    cl_spin_unlock(&s->lock);
    if (closer)
        cl_uthread_ready(closer);
}

static void count_in(struct cl_scope *s, struct cl_uthread *t)
{
    cl_spin_lock(&s->lock);
    t->member_prev = NULL;
    t->member_next = s->members;
    if (s->members)
        s->members->member_prev = t;
    s->members = t;
    cl_spin_unlock(&s->lock);
}

/* copy: bytes that the uthread is given in the place of arg. */
static int spawn(struct cl_scope *s, cl_scope_fn fn, void *arg, const void *copy, uint32_t bytes)
{
    struct cl_kthread *k = cl_kthread_self();
    bool here = k && k->sched == s->sched;
    if (!fn)
        return -EINVAL;
    if (!here && cl_load_relaxed(&s->sched->stopping))
        return -ESHUTDOWN;
    cl_spin_lock(&s->lock);
    bool cancelled = cl_load_relaxed(&s->cancelled);
    if (!cancelled)
        cl_store_relaxed(&s->n_running, s->n_running + 1); /* from here on closing waits for it */
    cl_spin_unlock(&s->lock);
    if (cancelled)
        return -ECANCELED;
    struct cl_uthread *t = here ? cl_stack_get(k) : cl_stack_get_foreign(s->sched);
    if (!t) {
        count_out(s, NULL);
        return -EAGAIN;
    }
    cl_uthread_prepare(t, (cl_uthread_fn)(void (*)(void))fn, arg, CL_JOIN_DETACHED);
    if (copy)
        memcpy(cl_uthread_take_stack(t, bytes), copy, bytes);
    t->home = t->scope = s;
    count_in(s, t); /* a cancel that came before: the uthread finds the flag */
    if (here)
        cl_uthread_start(k, t);
    else
        cl_inject(s->sched, t, true);
    return 0;
}

struct cl_scope *cl_scope_self(void)
{
    const struct cl_uthread *t = cl_uthread_self();
    return t ? t->scope : NULL;
}

void cl_scope_unwind(struct cl_scope *to)
{
    struct cl_uthread *t = cl_uthread_self();
    while (t && t->scope != to && t->scope != t->home) {
        cl_scope_cancel(t->scope);
        if (cl_scope_close(t->scope) == -EDEADLK)
            break;
    }
}

int cl_scope_spawn(struct cl_scope *s, cl_scope_fn fn, void *arg)
{
    return spawn(s, fn, arg, NULL, 0);
}

int cl_scope_spawn_copy(struct cl_scope *s, cl_scope_fn fn, const void *data, uint32_t bytes)
{
    return bytes > CL_SCOPE_COPY_BYTES ? -EMSGSIZE : spawn(s, fn, NULL, data, bytes);
}

void cl_scope_run_member(struct cl_uthread *t)
{
    cl_scope_fn fn = (cl_scope_fn)(void (*)(void))t->fn;
    cl_scope_end(t, fn(t->arg));
}

void cl_scope_end(struct cl_uthread *t, int64_t result)
{
    t->shields = 0;
    cl_scope_unwind(t->home);
    if (!t->home)
        return;
    if (result < 0)
        cl_scope_fail(t->home, result < INT32_MIN ? INT32_MIN : (int)result);
    struct cl_scope *home = t->home;
    t->scope = t->home = NULL;
    count_out(home, t);
}

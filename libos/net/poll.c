/* Poll sets: a list of members that may be ready, in the order in which they became so, and a semaphore on which
 * waiters sleep. A member is asked whether it is ready only when it is told of; who makes it ready lists it after that,
 * under the set's lock. So either the waiter sees that it is ready, or it is listed again. */
#include "poll.h"
#include "netif.h"
#include "../sched/sem.h"

#include <corelane/libos/scope.h>

#include <errno.h>
#include <stdlib.h>

#define NEVER UINT64_MAX
#define AT_ONCE                                                                                                        \
    32 /* waits that nobody slept in, until one yields: what is ready for ever keeps nobody from the kthread */

struct cl_poll {
    struct cl_netif *nif;
    struct cl_spin lock;
    struct cl_pollable *first, *last;
    uint32_t n_listed, n_members;
    uint32_t inside;        /* uthreads in cl_poll_wait: whoever posts has one of them to post for */
    uint32_t waiting;       /* uthreads that sleep, or are about to, and that nobody has posted for */
    uint32_t at_once;       /* waits in a row that had their events at once */
    struct cl_sem wake;     /* posted once for each that is taken off `waiting` */
    struct cl_poll *beside; /* of the same interface; under its table_lock */
};

const struct cl_netif *cl_poll_netif(const struct cl_poll *p)
{
    return p->nif;
}

static void enlist(struct cl_poll *p, struct cl_pollable *m)
{
    m->listed = true;
    m->next = NULL;
    m->prev = p->last;
    if (p->last)
        p->last->next = m;
    else
        p->first = m;
    p->last = m;
    p->n_listed++;
}

static void unlist(struct cl_poll *p, struct cl_pollable *m)
{
    if (!m->listed)
        return;
    *(m->prev ? &m->prev->next : &p->first) = m->next;
    *(m->next ? &m->next->prev : &p->last) = m->prev;
    m->listed = false;
    p->n_listed--;
}

/* Under the lock: whether a post is due. */
static bool take_waiter(struct cl_poll *p)
{
    if (!p->waiting)
        return false;
    p->waiting--;
    return true;
}

int cl_pollable_add(struct cl_pollable *m, struct cl_poll *p, uint32_t how, uint64_t data)
{
    if (m->set)
        return -EBUSY;
    cl_spin_lock(&p->lock);
    m->set = p;
    m->edge = how == CL_POLL_EDGE;
    m->data = data;
    p->n_members++;
    cl_spin_unlock(&p->lock);
    return 0;
}

void cl_pollable_remove(struct cl_pollable *m)
{
    struct cl_poll *p = m->set;
    if (!p)
        return;
    cl_spin_lock(&p->lock);
    unlist(p, m);
    m->set = NULL;
    p->n_members--;
    cl_spin_unlock(&p->lock);
}

struct cl_poll *cl_pollable_notify(struct cl_pollable *m)
{
    struct cl_poll *p = m->set;
    if (!p)
        return NULL;
    cl_spin_lock(&p->lock);
    if (!m->listed)
        enlist(p, m);
    bool post = take_waiter(p);
    cl_spin_unlock(&p->lock);
    return post ? p : NULL;
}

void cl_poll_tell(struct cl_poll *p)
{
    if (p)
        cl_sem_post(&p->wake);
}

/* Under the lock: what is ready, at most n. Each that is listed is looked at once. */
static int collect(struct cl_poll *p, struct cl_poll_event *events, int64_t n)
{
    int found = 0;
    for (uint32_t left = p->n_listed; left && found < n; left--) {
        struct cl_pollable *m = p->first;
        uint32_t ready = m->ready(m);
        unlist(p, m);
        if (!ready)
            continue;
        events[found++] = (struct cl_poll_event){.data = m->data, .ready = ready};
        if (!m->edge)
            enlist(p, m);
    }
    return found;
}

/* Sleep until posted for or the time is over; the lock is not held, and we are counted as waiting. */
static int sleep_until(struct cl_poll *p, uint64_t deadline_ns)
{
    int rc = cl_sem_wait_as(&p->wake, deadline_ns, CL_TRACE_WAITS_POLL, p);
    if (rc == 0)
        return 0;
    cl_spin_lock(&p->lock);
    bool posted = !take_waiter(p);
    cl_spin_unlock(&p->lock);
    /* It is there, or comes at once. Who may not block has not slept, and must not try to now. */
    cl_shield_enter();
    while (posted && (rc == -EDEADLK ? cl_sem_trywait(&p->wake) : cl_sem_wait(&p->wake)))
        cl_relax();
    cl_shield_leave();
    return posted ? 0 : rc;
}

/* Under the lock, which it lets go: events, or what is wrong, or 0 after a sleep (*again) or for a timeout of 0. */
static int look(struct cl_poll *p, struct cl_poll_event *events, int64_t n, bool may_wait, uint64_t deadline_ns,
                bool *again)
{
    int found = collect(p, events, n);
    /* Acquire: pairs with the release in cl_polls_shut; all members were listed before it, and we have looked at the
     * list without letting the lock go. */
    int rc = found ? found : cl_load_acquire(&p->nif->polls_shut) ? -ESHUTDOWN : 0;
    bool post = found && p->n_listed && take_waiter(p); /* more is listed than we took, or stays so */
    *again = rc == 0 && may_wait;
    if (*again)
        p->waiting++;
    cl_spin_unlock(&p->lock);
    if (post)
        cl_sem_post(&p->wake);
    return *again ? sleep_until(p, deadline_ns) : rc;
}

int cl_poll_wait(struct cl_poll *p, struct cl_poll_event *events, int64_t n, int64_t timeout_ns)
{
    if (n < 1)
        return -EINVAL;
    if (!cl_netq_self(p->nif))
        return -EPERM;
    uint64_t now = cl_sched_now_ns(p->nif->sched), deadline_ns = NEVER;
    if (timeout_ns >= 0 && (uint64_t)timeout_ns < NEVER - now)
        deadline_ns = now + (uint64_t)timeout_ns;
    bool again, slept = false;
    int rc;
    cl_spin_lock(&p->lock);
    p->inside++;
    if (timeout_ns != 0 && p->at_once >= AT_ONCE) {
        p->at_once = 0;
        cl_spin_unlock(&p->lock);
        (void)cl_uthread_yield(); /* who may not block does not */
        cl_spin_lock(&p->lock);
    }
    while ((rc = look(p, events, n, timeout_ns != 0, deadline_ns, &again)) == 0 && again) {
        slept = true;
        cl_spin_lock(&p->lock);
    }
    cl_spin_lock(&p->lock);
    p->inside--;
    p->at_once = slept ? 0 : p->at_once + 1;
    cl_spin_unlock(&p->lock);
    return rc == -ETIMEDOUT ? 0 : rc;
}

void cl_polls_shut(struct cl_netif *nif)
{
    cl_store_release(&nif->polls_shut, 1);
    for (struct cl_poll *p = nif->polls; p; p = p->beside) {
        cl_spin_lock(&p->lock);
        uint32_t n = p->waiting;
        p->waiting = 0;
        cl_spin_unlock(&p->lock);
        while (n--)
            cl_sem_post(&p->wake);
    }
}

int cl_poll_open(struct cl_netif *nif, struct cl_poll **out)
{
    struct cl_poll *p = calloc(1, sizeof *p);
    if (!p)
        return -ENOMEM;
    p->nif = nif;
    cl_sem_init(&p->wake, 0);
    cl_spin_lock(&nif->table_lock);
    p->beside = nif->polls;
    nif->polls = p;
    cl_spin_unlock(&nif->table_lock);
    *out = p;
    return 0;
}

int cl_poll_delete(struct cl_poll *p)
{
    if (!p)
        return 0;
    struct cl_netif *nif = p->nif;
    cl_spin_lock(&nif->table_lock);
    cl_spin_lock(&p->lock);
    bool busy = p->inside || p->n_members;
    cl_spin_unlock(&p->lock);
    struct cl_poll **at = &nif->polls;
    while (!busy && *at != p)
        at = &(*at)->beside;
    if (!busy)
        *at = p->beside;
    cl_spin_unlock(&nif->table_lock);
    if (busy)
        return -EBUSY;
    free(p);
    return 0;
}

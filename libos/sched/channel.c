/* Channels: see corelane/libos/channel.h.
 *
 * A call is a select of one or more cases. With the locks of all its channels held it does the first that can be done;
 * else it puts a `struct node` into the queue of each channel, and sleeps on a waiter of its own. Who serves a node
 * claims its whole select first, by `claimed`, copies the element, and wakes it. The claim is of one: other nodes of
 * the same select are skipped by who finds them, and taken out by their owner when it is awake.
 *
 * A time-out or a cancel wakes the owner by its waiter, too. Then it claims its select itself. If somebody else has
 * been quicker, he is through with it when the owner has had the lock of his channel, and the call has succeeded.
 *
 * Invariants: elements wait only if no receiver does, and senders only if it is full. Order of locks: channels by
 * address, then `guard` of a select. tests/libos/sched/c/channel_model.c runs this file through interleavings. */
#include "wait.h"

#include <corelane/libos/channel.h>
#include <corelane/libos/scope.h>

#include <stdlib.h>

#define NOBODY UINT32_MAX
#define GAVE_UP (UINT32_MAX - 1)

struct select;

/* A case that waits, in its channel's queue. On the stack of its uthread; under the channel's lock. */
struct node {
    struct node *next, *prev;
    struct select *of;
    uint32_t index; /* of its case */
    bool queued;
};

struct queue {
    struct node *first, *last;
};

struct select {
    struct cl_channel_case *cases;
    uint32_t n;
    uint32_t claimed; /* the case that was done, NOBODY or GAVE_UP; who leaves NOBODY behind has it, by CAS */
    struct cl_spin guard;
    struct cl_wait_list asleep; /* the owner's waiter; under guard */
};

struct cl_channel {
    struct cl_spin lock;
    uint32_t capacity, bytes; /* constant */
    uint32_t first, count;    /* of the ring; count is read by others, relaxed */
    uint32_t closed;          /* the same */
    struct queue waiting[2];  /* by CL_CHANNEL_SEND and _RECEIVE */
    struct cl_channel_stats stats;
    char elements[];
};

int cl_channel_new(uint32_t capacity, uint32_t bytes, struct cl_channel **out)
{
    if (bytes == 0 || bytes > CL_CHANNEL_ELEMENT_BYTES || (uint64_t)capacity * bytes > CL_CHANNEL_BYTES)
        return -EINVAL;
    struct cl_channel *c = malloc(sizeof *c + (uint64_t)capacity * bytes);
    if (!c)
        return -ENOMEM;
    *c = (struct cl_channel){.capacity = capacity, .bytes = bytes};
    *out = c;
    return 0;
}

int cl_channel_delete(struct cl_channel *c)
{
    if (!c)
        return 0;
    cl_spin_lock(&c->lock);
    bool busy = c->waiting[0].first || c->waiting[1].first;
    cl_spin_unlock(&c->lock);
    if (busy)
        return -EBUSY;
    free(c);
    return 0;
}

/* Queues of those who wait. Under the channel's lock. */

static void enqueue(struct queue *q, struct node *node)
{
    node->next = NULL;
    node->prev = q->last;
    *(q->last ? &q->last->next : &q->first) = node;
    q->last = node;
    node->queued = true;
}

static void dequeue(struct queue *q, struct node *node)
{
    *(node->prev ? &node->prev->next : &q->first) = node->next;
    *(node->next ? &node->next->prev : &q->last) = node->prev;
    node->queued = false;
}

static bool claim(struct select *s, uint32_t by)
{
    uint32_t nobody = NOBODY;
    /* Acquire: what the owner has put there; release: what a server does not undo. */
    return __atomic_compare_exchange_n(&s->claimed, &nobody, by, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

/* The first that waits there and is claimed for it. NULL: nobody. */
static struct node *take(struct queue *q)
{
    for (struct node *node; (node = q->first);) {
        dequeue(q, node);
        if (claim(node->of, node->index))
            return node;
    }
    return NULL;
}

/* Its case is done, under its channel's lock: its owner goes on. Returns whom to make ready. */
static struct cl_uthread *finish(struct node *node, int rc)
{
    struct select *s = node->of;
    s->cases[node->index].rc = rc;
    cl_spin_lock(&s->guard);
    struct cl_waiter *w = cl_wait_pop(&s->asleep);
    struct cl_uthread *t = w ? w->t : NULL; /* NULL: its time was over, and it is on its way */
    cl_spin_unlock(&s->guard);
    return t;
}

static void *element_of(const struct node *node)
{
    return node->of->cases[node->index].element;
}

/* Doing a case, under its channel's lock. False: it has to wait. *ready: whom to make ready when no lock is held. */

static char *at(struct cl_channel *c, uint32_t i)
{
    uint32_t index = i < c->capacity - c->first ? c->first + i : i - (c->capacity - c->first);
    return c->elements + (uint64_t)index * c->bytes;
}

static void push(struct cl_channel *c, const void *element)
{
    memcpy(at(c, c->count), element, c->bytes);
    cl_store_relaxed(&c->count, c->count + 1);
}

static bool do_send(struct cl_channel *c, struct cl_channel_case *one, struct cl_uthread **ready)
{
    if (c->closed) {
        one->rc = -EPIPE;
        return true;
    }
    struct node *receiver = c->count == 0 ? take(&c->waiting[CL_CHANNEL_RECEIVE]) : NULL;
    if (receiver) {
        memcpy(element_of(receiver), one->element, c->bytes);
        cl_count(&c->stats.received, 1);
        *ready = finish(receiver, 0);
    } else if (c->count < c->capacity) {
        push(c, one->element);
    } else {
        return false;
    }
    cl_count(&c->stats.sent, 1);
    one->rc = 0;
    return true;
}

static bool do_receive(struct cl_channel *c, struct cl_channel_case *one, struct cl_uthread **ready)
{
    if (c->count == 0) {
        struct node *sender = take(&c->waiting[CL_CHANNEL_SEND]); /* of a rendezvous */
        if (!sender) {
            one->rc = -EPIPE;
            return c->closed;
        }
        memcpy(one->element, element_of(sender), c->bytes);
        cl_count(&c->stats.sent, 1);
        *ready = finish(sender, 0);
    } else {
        memcpy(one->element, at(c, 0), c->bytes);
        c->first = c->first + 1 == c->capacity ? 0 : c->first + 1;
        cl_store_relaxed(&c->count, c->count - 1);
        struct node *sender = take(&c->waiting[CL_CHANNEL_SEND]);
        if (sender) {
            push(c, element_of(sender));
            cl_count(&c->stats.sent, 1);
            *ready = finish(sender, 0);
        }
    }
    cl_count(&c->stats.received, 1);
    one->rc = 0;
    return true;
}

static bool do_case(struct cl_channel_case *one, struct cl_uthread **ready)
{
    return one->how == CL_CHANNEL_SEND ? do_send(one->channel, one, ready) : do_receive(one->channel, one, ready);
}

/* Locks of all channels of a select, each once, by address. */

static void sort(struct cl_channel_case *const cases, uint32_t n, struct cl_channel *channels[CL_CHANNEL_CASES])
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t k = i;
        for (; k && channels[k - 1] > cases[i].channel; k--)
            channels[k] = channels[k - 1];
        channels[k] = cases[i].channel;
    }
}

static void lock_all(struct cl_channel *channels[CL_CHANNEL_CASES], uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (i == 0 || channels[i] != channels[i - 1])
            cl_spin_lock(&channels[i]->lock);
}

static void unlock_all(struct cl_channel *channels[CL_CHANNEL_CASES], uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (i == 0 || channels[i] != channels[i - 1])
            cl_spin_unlock(&channels[i]->lock);
}

/* Waiting. */

/* Sleep until a case is done, the time is over or the scope is cancelled; guard is held, and free afterwards. */
static int sleep_until(struct cl_kthread *k, struct select *s, struct cl_waiter *w, int64_t timeout_ns)
{
    uint64_t now = cl_sched_clock(k->sched);
    bool timed = timeout_ns >= 0 && (uint64_t)timeout_ns < CL_NEVER - now;
    cl_wait_push(&s->asleep, w, false);
    int rc = w->cancelled ? -ECANCELED : timed ? cl_wait_arm(k, w, now + (uint64_t)timeout_ns) : 0;
    if (rc) {
        cl_wait_remove(w);
        cl_spin_unlock(&s->guard);
        return rc;
    }
    cl_waits_for(k, CL_TRACE_WAITS_CHANNEL, s->cases[0].channel, 0);
    cl_block(k, CL_AFTER_UNLOCK, &s->guard);
    if (timed)
        cl_wait_disarm(w);
    return w->result;
}

static void withdraw(struct select *s, struct node nodes[CL_CHANNEL_CASES])
{
    for (uint32_t i = 0; i < s->n; i++) {
        struct cl_channel *c = s->cases[i].channel;
        cl_spin_lock(&c->lock);
        if (nodes[i].queued)
            dequeue(&c->waiting[s->cases[i].how], &nodes[i]);
        cl_spin_unlock(&c->lock);
    }
}

/* With all locks, which it lets go: wait in all queues. Returns the case that was done. */
static CL_NOINLINE int wait_for_one(struct cl_kthread *k, struct cl_waiter *w, struct cl_channel_case *cases,
                                    uint32_t n, struct cl_channel *channels[CL_CHANNEL_CASES], struct select *s,
                                    int64_t timeout_ns)
{
    struct node nodes[CL_CHANNEL_CASES];
    for (uint32_t i = 0; i < n; i++) {
        nodes[i] = (struct node){.of = s, .index = i};
        enqueue(&cases[i].channel->waiting[cases[i].how], &nodes[i]);
        cl_count(&cases[i].channel->stats.waits, 1);
    }
    cl_spin_lock(&s->guard); /* before anybody can find a node: who does waits until we sleep */
    unlock_all(channels, n);
    int rc = sleep_until(k, s, w, timeout_ns);
    bool done = rc == 0 || !claim(s, GAVE_UP);
    withdraw(s, nodes); /* and whoever has claimed it is through with it */
    return done ? (int)s->claimed : rc;
}

int cl_channel_select(struct cl_channel_case *cases, uint32_t n, uint32_t *next, int64_t timeout_ns)
{
    struct cl_channel *channels[CL_CHANNEL_CASES];
    struct cl_uthread *ready = NULL;
    uint32_t begin = next ? *next : 0;
    if (n < 1 || n > CL_CHANNEL_CASES)
        return -EINVAL;
    for (uint32_t i = 0; i < n; i++)
        if (cases[i].how > CL_CHANNEL_RECEIVE)
            return -EINVAL;
    sort(cases, n, channels);
    struct cl_kthread *k = cl_kthread_self();
    bool may_wait = timeout_ns != 0 && cl_may_block(k);
    struct select s = {.cases = cases, .n = n, .claimed = NOBODY};
    struct cl_waiter w;
    bool begun = may_wait;
    int rc = begun ? cl_wait_begin(&w, k->current, &s.guard) : timeout_ns ? -EDEADLK : -EAGAIN;
    lock_all(channels, n);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at_case = (begin + i) % n;
        if (!do_case(&cases[at_case], &ready))
            continue;
        rc = (int)at_case;
        may_wait = false;
        break;
    }
    if (may_wait && rc == 0)
        rc = wait_for_one(k, &w, cases, n, channels, &s, timeout_ns);
    else
        unlock_all(channels, n);
    if (ready)
        cl_uthread_ready(ready);
    if (begun)
        cl_wait_end(&w);
    if (rc < 0 || cases[rc].rc)
        __atomic_fetch_add(&cases[rc < 0 ? 0 : rc].channel->stats.refused, 1, __ATOMIC_RELAXED);
    if (rc >= 0 && next)
        *next = ((uint32_t)rc + 1) % n;
    return rc;
}

static int alone(struct cl_channel *c, void *element, uint32_t how, int64_t timeout_ns)
{
    struct cl_channel_case one = {.channel = c, .element = element, .how = how};
    int rc = cl_channel_select(&one, 1, NULL, timeout_ns);
    return rc ? rc : one.rc;
}

int cl_channel_send(struct cl_channel *c, const void *element, int64_t timeout_ns)
{
    return alone(c, (void *)(uintptr_t)element, CL_CHANNEL_SEND, timeout_ns);
}

int cl_channel_receive(struct cl_channel *c, void *element, int64_t timeout_ns)
{
    return alone(c, element, CL_CHANNEL_RECEIVE, timeout_ns);
}

int cl_channel_close(struct cl_channel *c)
{
    struct cl_uthread *woken = NULL;
    cl_spin_lock(&c->lock);
    bool was = c->closed;
    cl_store_relaxed(&c->closed, 1);
    for (uint32_t how = 0; how < 2; how++)
        for (struct node *node; (node = take(&c->waiting[how]));) {
            struct cl_uthread *t = finish(node, -EPIPE);
            if (t) {
                t->next = woken; /* it sleeps, in no queue */
                woken = t;
            }
        }
    cl_spin_unlock(&c->lock);
    while (woken) {
        struct cl_uthread *t = woken;
        woken = t->next; /* before it runs */
        cl_uthread_ready(t);
    }
    return was ? -EALREADY : 0;
}

uint32_t cl_channel_count(const struct cl_channel *c)
{
    return cl_load_relaxed(&c->count);
}

uint32_t cl_channel_capacity(const struct cl_channel *c)
{
    return c->capacity;
}

uint32_t cl_channel_element_bytes(const struct cl_channel *c)
{
    return c->bytes;
}

bool cl_channel_closed(const struct cl_channel *c)
{
    return cl_load_relaxed(&c->closed) != 0;
}

void cl_channel_stats(const struct cl_channel *c, struct cl_channel_stats *out)
{
    *out = (struct cl_channel_stats){cl_load_relaxed(&c->stats.sent), cl_load_relaxed(&c->stats.received),
                                     cl_load_relaxed(&c->stats.waits), cl_load_relaxed(&c->stats.refused)};
}

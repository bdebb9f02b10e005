/* Stream sockets: their life, waiting and waking, poll sets. See sockets.h. */
#include "sockets.h"
#include "flows.h"

#include <corelane/libos/scope.h>
#include "../../../runtime/pool.h"
#include "../../sched/sem.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define NEVER UINT64_MAX
#define IN_BITS (CL_STREAM_DATA | CL_STREAM_EOF | CL_STREAM_OVER | CL_STREAM_READ_OFF | CL_STREAM_CLOSED)
#define OUT_BITS                                                                                                       \
    (CL_STREAM_ROOM | CL_STREAM_OPENED | CL_STREAM_OVER | CL_STREAM_FLUSHED | CL_STREAM_WRITE_OFF | CL_STREAM_CLOSED | \
     CL_STREAM_RELEASED)

/* Life. */

static unsigned cache_of(struct cl_streams *all)
{
    struct cl_netq *q = cl_netq_self(all->nif);
    return q ? q->index : all->nif->n_queues;
}

static uint32_t take_index(struct cl_streams *all)
{
    unsigned cache = cache_of(all);
    uint32_t index = UINT32_MAX;
    if (cache < all->nif->n_queues) {
        (void)cl_pool_get_one(all->pool, cache, &index);
        return index;
    }
    cl_spin_lock(&all->outside);
    (void)cl_pool_get_one(all->pool, cache, &index);
    cl_spin_unlock(&all->outside);
    return index;
}

static void give_index(struct cl_streams *all, uint32_t index)
{
    unsigned cache = cache_of(all);
    if (cache < all->nif->n_queues) {
        cl_pool_put_one(all->pool, cache, index);
        return;
    }
    cl_spin_lock(&all->outside);
    cl_pool_put_one(all->pool, cache, index);
    cl_spin_unlock(&all->outside);
}

/* cl_streams_shut has set sockets_shut before it reads n_used: either it finds the socket, or whoever uses the socket
 * finds that (cl_stream_wait). */
static void note_used(struct cl_streams *all, uint32_t n)
{
    uint32_t was = cl_load_relaxed(&all->n_used);
    while (was < n && !__atomic_compare_exchange_n(&all->n_used, &was, n, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
        ;
    cl_fence_seq_cst();
}

struct cl_stream *cl_stream_new(struct cl_streams *all, enum cl_stream_kind kind, struct cl_port *port, uint32_t refs)
{
    uint32_t index = take_index(all);
    if (index == UINT32_MAX)
        return NULL;
    struct cl_stream *s = &all->all[index];
    note_used(all, index + 1);
    cl_spin_lock(&s->lock); /* cl_streams_shut may look at it */
    cl_store_relaxed(&s->life, s->life + 1);
    memset((char *)s + offsetof(struct cl_stream, guard), 0, sizeof *s - offsetof(struct cl_stream, guard));
    s->guard = kind == CL_STREAM_LISTENER ? &port->lock : &s->lock;
    s->nif = all->nif;
    s->port = port;
    s->refs = refs;
    cl_store_release(&s->kind, kind);
    cl_spin_unlock(&s->lock);
    return s;
}

void cl_stream_unref(struct cl_stream *s, uint32_t refs)
{
    bool last = (s->refs -= refs) == 0;
    if (last)
        cl_store_release(&s->kind, CL_STREAM_FREE);
    cl_spin_unlock(s->guard);
    if (last) {
        struct cl_streams *all = cl_streams_of(s->nif);
        give_index(all, (uint32_t)(s - all->all));
    }
}

void cl_stream_hold(struct cl_stream *s)
{
    cl_spin_lock(s->guard);
    s->refs++;
    cl_spin_unlock(s->guard);
}

void cl_stream_let_go(struct cl_stream *s)
{
    cl_spin_lock(s->guard);
    cl_stream_unref(s, 1);
}

int cl_stream_enter(struct cl_stream *s, enum cl_stream_kind kind)
{
    if (!cl_netq_self(s->nif))
        return -EPERM;
    cl_spin_lock(s->guard);
    int rc = s->kind == CL_STREAM_FREE || (s->told & CL_STREAM_CLOSED) ? -EBADF : s->kind != kind ? -EINVAL : 0;
    if (rc == 0)
        s->refs++;
    else
        cl_spin_unlock(s->guard);
    return rc;
}

/* It is not made anew while we have its lock, so its guard is what it is. In this order: nobody who has a port's lock
 * takes that of a listener. */
int cl_stream_keep(struct cl_stream *s, uint32_t life)
{
    cl_spin_lock(&s->lock);
    bool lives = s->life == life;
    if (lives && s->guard != &s->lock)
        cl_spin_lock(s->guard);
    lives = lives && s->kind != CL_STREAM_FREE && !(s->told & CL_STREAM_CLOSED);
    if (lives)
        s->refs++;
    if (s->life == life && s->guard != &s->lock)
        cl_spin_unlock(s->guard);
    cl_spin_unlock(&s->lock);
    return lives ? 0 : -EBADF;
}

void cl_stream_leave(struct cl_stream *s)
{
    cl_stream_unref(s, 1);
}

/* Waiting. */

struct cl_stream_until cl_stream_until(struct cl_stream *s, int64_t timeout_ns)
{
    uint64_t now = timeout_ns > 0 ? cl_sched_now_ns(s->nif->sched) : 0;
    bool ever = timeout_ns < 0 || (uint64_t)timeout_ns >= NEVER - now;
    return (struct cl_stream_until){timeout_ns, ever ? NEVER : now + (uint64_t)timeout_ns};
}

/* The sleep is over, but not by a post. True: a post is there, or comes at once, and it is taken. */
static bool was_posted(struct cl_stream *s, enum cl_stream_side side, int rc)
{
    if (s->waiting[side]) {
        s->waiting[side]--;
        return false;
    }
    cl_spin_unlock(s->guard);
    /* Who may not block has not slept, and must not try to now. */
    cl_shield_enter();
    while (rc == -EDEADLK ? cl_sem_trywait(&s->wake[side]) : cl_sem_wait(&s->wake[side]))
        cl_relax();
    cl_shield_leave();
    cl_spin_lock(s->guard);
    return true;
}

int cl_stream_wait(struct cl_stream *s, enum cl_stream_side side, uint16_t what, const struct cl_stream_until *until)
{
    /* Acquire: pairs with the release in cl_udp_sockets_shut, or we are found counted by cl_streams_shut. */
    if (cl_load_acquire(&s->nif->sockets_shut))
        return -ESHUTDOWN;
    if (until->timeout_ns == 0)
        return -EAGAIN;
    s->waiting[side]++;
    cl_spin_unlock(s->guard);
    int rc = cl_sem_wait_as(&s->wake[side], until->deadline_ns, what, s);
    cl_spin_lock(s->guard);
    return rc == 0 || was_posted(s, side, rc) ? 0 : rc;
}

/* How many are to be posted for, of those that wait on a side for one of `bits`. One connection is for one acceptor. */
static uint32_t take_waiters(struct cl_stream *s, enum cl_stream_side side, uint32_t bits)
{
    if (!(bits & (side == CL_STREAM_IN ? IN_BITS : OUT_BITS)))
        return 0;
    uint32_t n = s->waiting[side];
    if (s->kind == CL_STREAM_LISTENER && bits == CL_STREAM_DATA)
        n = cl_min(n, 1u);
    s->waiting[side] -= n;
    return n;
}

static void post(struct cl_stream *s, enum cl_stream_side side, uint32_t n)
{
    while (n--)
        cl_sem_post(&s->wake[side]);
}

void cl_stream_tell(struct cl_stream *s, uint32_t bits)
{
    cl_store_relaxed(&s->told, s->told | bits);
    uint32_t in = take_waiters(s, CL_STREAM_IN, bits), out = take_waiters(s, CL_STREAM_OUT, bits);
    struct cl_poll *set = cl_pollable_notify(&s->watch);
    if (s->told_fn)
        s->told_fn(s->told_arg);
    cl_spin_unlock(s->guard);
    cl_poll_tell(set);
    post(s, CL_STREAM_IN, in);
    post(s, CL_STREAM_OUT, out);
}

void cl_stream_clear(struct cl_stream *s, uint32_t bit)
{
    cl_spin_lock(s->guard);
    cl_store_relaxed(&s->told, s->told & ~bit);
    cl_spin_unlock(s->guard);
}

int cl_stream_why(const struct cl_stream *s, int otherwise)
{
    return s->error ? -s->error : otherwise;
}

/* Poll sets, and who watches one socket. */

void cl_stream_watch(struct cl_stream *s, void (*fn)(void *arg), void *arg)
{
    cl_spin_lock(s->guard);
    s->told_fn = fn;
    s->told_arg = arg;
    cl_spin_unlock(s->guard);
}

int cl_stream_set_home(struct cl_stream *s, int k)
{
    if (k >= (int)s->nif->n_queues)
        return -EINVAL;
    cl_spin_lock(s->guard);
    struct cl_tcp_conn *c = s->conn; /* which does not go away now: on_ended in visits.c */
    if (c)
        cl_tcp_set_home(c, (unsigned)cl_max(k, -1) + 1);
    cl_spin_unlock(s->guard);
    return c ? 0 : -ENOTCONN;
}

uint32_t cl_stream_ready(const struct cl_stream *s)
{
    uint32_t told = cl_load_relaxed(&s->told), what = 0; /* relaxed: who tells it calls the watcher afterwards */
    bool over = told & (CL_STREAM_OVER | CL_STREAM_CLOSED);
    bool in_ends = over || told & (CL_STREAM_EOF | CL_STREAM_READ_OFF), out_ends = over || told & CL_STREAM_WRITE_OFF;
    if (in_ends || told & CL_STREAM_DATA)
        what |= CL_POLL_IN;
    if (out_ends || told & CL_STREAM_ROOM)
        what |= CL_POLL_OUT;
    bool last = in_ends || told & CL_STREAM_LAST;
    if (last)
        what |= CL_STREAM_READY_LAST;
    if (last && out_ends)
        what |= CL_STREAM_READY_OVER;
    if ((told & CL_STREAM_OVER) && cl_load_relaxed(&s->error))
        what |= CL_POLL_ERROR;
    return what | (cl_load_relaxed(&s->nif->sockets_shut) ? CL_POLL_END : 0);
}

static uint32_t ready(const struct cl_pollable *member)
{
    const struct cl_stream *s = cl_container_of(member, struct cl_stream, watch);
    /* Relaxed: who makes it ready lists it afterwards, see ../poll.c. */
    uint32_t told = cl_load_relaxed(&s->told), what = 0;
    if (told & IN_BITS)
        what |= CL_POLL_IN;
    if (told & (CL_STREAM_ROOM | CL_STREAM_OVER | CL_STREAM_WRITE_OFF))
        what |= CL_POLL_OUT;
    if (told & CL_STREAM_RELEASED)
        what |= CL_POLL_RELEASED;
    what &= s->wants;
    if ((told & CL_STREAM_OVER) && cl_load_relaxed(&s->error))
        what |= CL_POLL_ERROR;
    return what | (cl_load_relaxed(&s->nif->sockets_shut) ? CL_POLL_END : 0);
}

int cl_poll_add_stream(struct cl_poll *set, struct cl_stream *s, uint32_t events, uint32_t how, uint64_t data)
{
    struct cl_poll *tell_set = NULL;
    if (how > CL_POLL_EDGE || events == 0 || (events & ~(uint32_t)(CL_POLL_IN | CL_POLL_OUT | CL_POLL_RELEASED)) ||
        s->nif != cl_poll_netif(set))
        return -EINVAL;
    cl_spin_lock(s->guard);
    bool open = s->kind != CL_STREAM_FREE && !(s->told & CL_STREAM_CLOSED);
    int rc = !open ? -EBADF : s->watch.set ? -EBUSY : 0;
    if (rc == 0) {
        s->wants = events;
        s->watch.ready = ready;
        rc = cl_pollable_add(&s->watch, set, how, data);
    }
    if (rc == 0 && ready(&s->watch))
        tell_set = cl_pollable_notify(&s->watch);
    cl_spin_unlock(s->guard);
    cl_poll_tell(tell_set);
    return rc;
}

int cl_poll_remove_stream(struct cl_poll *set, struct cl_stream *s)
{
    cl_spin_lock(s->guard);
    bool in = s->watch.set == set;
    if (in)
        cl_pollable_remove(&s->watch);
    cl_spin_unlock(s->guard);
    return in ? 0 : -ENOENT;
}

/* All of a runtime. */

struct cl_streams *cl_streams_of(struct cl_netif *nif)
{
    struct cl_connections *tcp = cl_load_acquire(&nif->tcp);
    return tcp ? cl_load_acquire(&tcp->streams) : NULL;
}

void cl_streams_delete(struct cl_streams *all)
{
    if (!all)
        return;
    for (unsigned i = 0; all->ports && i < CL_UDP_PORTS; i++)
        free(all->ports[i]);
    if (all->all)
        munmap(all->all, CL_STREAMS * sizeof *all->all);
    cl_pool_delete(all->pool);
    free(all->ports);
    free(all);
}

static struct cl_streams *make(struct cl_netif *nif)
{
    struct cl_streams *all = calloc(1, sizeof *all);
    if (!all)
        return NULL;
    all->nif = nif;
    /* Pages that are never needed are never touched. */
    void *memory = mmap(NULL, CL_STREAMS * sizeof *all->all, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    all->all = memory == MAP_FAILED ? NULL : memory;
    all->pool = cl_pool_new(0, CL_STREAMS, nif->n_queues + 1);
    all->ports = calloc(CL_UDP_PORTS, sizeof *all->ports);
    if (all->all && all->pool && all->ports)
        return all;
    cl_streams_delete(all);
    return NULL;
}

int cl_streams_ensure(struct cl_netif *nif, struct cl_streams **out)
{
    int rc = cl_tcp_ensure(nif);
    if (rc)
        return rc;
    if ((*out = cl_streams_of(nif)))
        return 0;
    pthread_mutex_lock(&nif->types_lock);
    if (!nif->tcp->streams)
        cl_store_release(&nif->tcp->streams, make(nif)); /* release: others find it without the lock */
    *out = nif->tcp->streams;
    pthread_mutex_unlock(&nif->types_lock);
    return *out ? 0 : -ENOMEM;
}

/* Whoever waits finds sockets_shut, which is set. */
static void wake_all(struct cl_stream *s)
{
    for (unsigned side = 0; side < 2; side++) {
        uint32_t n = s->waiting[side];
        s->waiting[side] = 0;
        post(s, (enum cl_stream_side)side, n); /* with the guard held, once in a runtime's life: s is still there */
    }
    cl_poll_tell(cl_pollable_notify(&s->watch));
}

void cl_streams_shut(struct cl_netif *nif)
{
    cl_fence_seq_cst(); /* see note_used */
    struct cl_streams *all = cl_streams_of(nif);
    for (uint32_t i = 0, n = all ? cl_load_relaxed(&all->n_used) : 0; i < n; i++) {
        struct cl_stream *s = &all->all[i];
        if (cl_load_acquire(&s->kind) != CL_STREAM_CONNECTION)
            continue;
        cl_spin_lock(&s->lock);
        if (s->kind == CL_STREAM_CONNECTION)
            wake_all(s);
        cl_spin_unlock(&s->lock);
    }
    for (unsigned i = 0; all && i < CL_UDP_PORTS; i++) {
        struct cl_port *port = cl_load_acquire(&all->ports[i]);
        if (!port)
            continue;
        cl_spin_lock(&port->lock);
        for (struct cl_stream *l = port->listeners; l; l = l->next)
            wake_all(l);
        cl_spin_unlock(&port->lock);
    }
}

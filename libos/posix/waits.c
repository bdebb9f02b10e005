/* See waits.h. */
#include "waits.h"
#include "kthreads.h"
#include "linux.h"
#include "memory.h"

#include <corelane/libos/udp.h>

#include <pthread.h>
#include <stdlib.h>

static pthread_mutex_t structure = PTHREAD_MUTEX_INITIALIZER;

int cl_posix_set_open(struct cl_posix_set *set)
{
    int fd = cl_posix_inner_eventfd();
    *set = (struct cl_posix_set){.event_fd = fd, .maker = cl_linux(SYS_getpid)};
    return fd < 0 ? fd : 0;
}

void cl_posix_set_close(struct cl_posix_set *set)
{
    (void)cl_posix_inner_close(set->event_fd);
}

/* The ready list. Under the set's lock. */

static void enlist(struct cl_posix_set *set, struct cl_posix_watch *w)
{
    w->listed = true;
    w->next = NULL;
    w->prev = set->last;
    *(set->last ? &set->last->next : &set->first) = w;
    set->last = w;
    set->n_listed++;
}

static void unlist(struct cl_posix_set *set, struct cl_posix_watch *w)
{
    if (!w->listed)
        return;
    *(w->prev ? &w->prev->next : &set->first) = w->next;
    *(w->next ? &w->next->prev : &set->last) = w->prev;
    w->listed = false;
    set->n_listed--;
}

static void wake(const struct cl_posix_set *set)
{
    uint64_t one = 1;
    (void)cl_linux(SYS_write, set->event_fd, &one, sizeof one);
}

static void quiet(const struct cl_posix_set *set)
{
    uint64_t times;
    (void)cl_linux(SYS_read, set->event_fd, &times, sizeof times);
}

/* Whether somebody sleeps who does not know that something is listed. Of a set that is lent he is told under the lock:
 * its eventfd is as the list is. */
static bool take_sleepers(struct cl_posix_set *set)
{
    bool call = set->first && (set->sleepers || set->lent) && !set->told;
    set->told |= call;
    if (call && set->lent)
        wake(set);
    return call && !set->lent;
}

/* The list has become shorter. */
static void untell(struct cl_posix_set *set)
{
    if (!set->lent || !set->told || set->first)
        return;
    set->told = false;
    quiet(set);
}

static uint32_t as_epoll(uint32_t ready)
{
    uint32_t events = 0;
    if (ready & CL_POLL_IN)
        events |= EPOLLIN | EPOLLRDNORM;
    if (ready & CL_POLL_OUT)
        events |= EPOLLOUT | EPOLLWRNORM;
    if (ready & CL_STREAM_READY_LAST)
        events |= EPOLLRDHUP;
    if (ready & (CL_STREAM_READY_OVER | CL_POLL_END))
        events |= EPOLLHUP;
    if (ready & CL_POLL_ERROR)
        events |= EPOLLERR;
    return events;
}

static uint32_t datagram_ready(const struct cl_posix_socket *s)
{
    /* Acquire: it was opened before. Relaxed: who shuts it tells of it afterwards. */
    const struct cl_udp_socket *udp = cl_load_acquire(&s->udp);
    uint32_t shut = cl_load_relaxed(&s->sides_shut), ready = CL_POLL_OUT | (udp ? cl_udp_socket_ready(udp) : 0);
    if (shut & CL_STREAM_READ)
        ready |= CL_POLL_IN | CL_STREAM_READY_LAST;
    return shut == (CL_STREAM_READ | CL_STREAM_WRITE) ? ready | CL_STREAM_READY_OVER : ready;
}

/* With the sides that were shut before there was a connection (net/ipv4/tcp.c: tcp_poll). */
static uint32_t with_early(const struct cl_posix_socket *s, uint32_t ready)
{
    uint32_t early = cl_load_relaxed(&s->shut_early), shut = early | cl_load_relaxed(&s->sides_shut);
    if (early & CL_STREAM_WRITE)
        ready |= CL_POLL_OUT;
    if (early & CL_STREAM_READ)
        ready |= CL_POLL_IN | CL_STREAM_READY_LAST;
    return ready & CL_STREAM_READY_LAST && shut & CL_STREAM_WRITE ? ready | CL_STREAM_READY_OVER : ready;
}

uint32_t cl_posix_socket_ready(const struct cl_posix_socket *s)
{
    /* Acquire: its stream was there before. */
    uint32_t state = cl_load_acquire(&s->state);
    const struct cl_stream *stream = cl_load_acquire(&s->stream);
    if (s->datagram)
        return datagram_ready(s);
    if (state <= CL_POSIX_BOUND)
        return with_early(s,
                          CL_POLL_OUT | CL_STREAM_READY_OVER | (cl_load_relaxed(&s->left_error) ? CL_POLL_ERROR : 0));
    uint32_t ready = stream ? cl_stream_ready(stream) : 0;
    if (state == CL_POSIX_LISTENS)
        return ready & (CL_POLL_IN | CL_POLL_END);
    if (cl_unlikely(cl_load_relaxed(&s->shut_early)))
        ready = with_early(s, ready);
    return cl_load_relaxed(&s->error_taken) ? ready & ~(uint32_t)CL_POLL_ERROR : ready;
}

bool cl_posix_socket_carries(const struct cl_posix_socket *s)
{
    /* Acquire: what it carries them by is there. */
    return s->datagram ? cl_load_acquire(&s->udp) != NULL : cl_load_acquire(&s->state) > CL_POSIX_LISTENS;
}

uint32_t cl_posix_watch_ready(const struct cl_posix_watch *w)
{
    return as_epoll(cl_posix_socket_ready(w->socket)) & (w->events | EPOLLERR | EPOLLHUP);
}

/* Under the socket's lock. True: somebody sleeps, and is woken by it. */
static bool list_if_ready(struct cl_posix_watch *w)
{
    struct cl_posix_set *set = w->set;
    cl_spin_lock(&set->lock);
    if (!w->off && !w->listed && cl_posix_watch_ready(w)) {
        enlist(set, w);
        if (set->lent && set->told)
            wake(set); /* who waits for edges is told of each */
    }
    bool call = w->listed && take_sleepers(set);
    cl_spin_unlock(&set->lock);
    if (call)
        wake(set);
    return call;
}

void cl_posix_told(struct cl_posix_socket *s)
{
    /* With EPOLLEXCLUSIVE as many are told as it takes to wake one; of an end all are (fs/eventpoll.c:
     * ep_poll_callback; net/core/sock.c: sock_def_readable, sock_def_wakeup). */
    bool over = cl_posix_socket_ready(s) & (CL_POLL_END | CL_STREAM_READY_OVER | CL_STREAM_READY_LAST), woken = false;
    cl_spin_lock(&s->lock);
    for (struct cl_posix_watch *w = s->watches; w; w = w->beside) {
        bool exclusive = w->events & EPOLLEXCLUSIVE && !over;
        if (!exclusive || !woken)
            woken |= list_if_ready(w) && exclusive;
    }
    cl_spin_unlock(&s->lock);
}

static void note_poller(struct cl_posix_socket *s, uint32_t poller)
{
    if (cl_unlikely(cl_load_relaxed(&s->poller) != poller)) /* others read the line */
        cl_store_relaxed(&s->poller, poller);
}

int cl_posix_collect(struct cl_posix_set *set, struct epoll_event *events, int n)
{
    int found = 0;
    uint32_t here = cl_posix_here();
    bool nowhere = false;
    cl_spin_lock(&set->lock);
    n = cl_min(n, (int)set->n_listed);
    int room = (int)(cl_posix_writable(events, (size_t)n * sizeof *events) / sizeof *events);
    for (uint32_t left = set->n_listed; left && found < n; left--) {
        struct cl_posix_watch *w = set->first;
        uint32_t ready = cl_posix_watch_ready(w);
        if (cl_unlikely(ready && found == room)) {
            nowhere = true;
            break;
        }
        unlist(set, w);
        if (!ready)
            continue;
        events[found++] = (struct epoll_event){.events = ready, .data.u64 = w->data};
        note_poller(w->socket, set->shared ? 0 : here);
        w->off = w->events & EPOLLONESHOT;
        if (!(w->events & (EPOLLET | EPOLLONESHOT)))
            enlist(set, w);
    }
    bool call = take_sleepers(set); /* more is listed than we took */
    untell(set);
    cl_spin_unlock(&set->lock);
    if (call)
        wake(set);
    return nowhere && found == 0 ? -EFAULT : found;
}

/* Those that Linux tells of. */

static struct cl_posix_set *lent; /* under the structure's mutex; read without */

void cl_posix_set_lend(struct cl_posix_set *set)
{
    pthread_mutex_lock(&structure);
    cl_spin_lock(&set->lock);
    bool before = set->lent;
    __atomic_store_n(&set->lent, true, __ATOMIC_SEQ_CST); /* before the look at the kthreads (epoll.c) */
    (void)take_sleepers(set);
    cl_spin_unlock(&set->lock);
    if (!before) {
        set->beside = lent;
        cl_store_relaxed(&lent, set);
    }
    pthread_mutex_unlock(&structure);
}

bool cl_posix_set_is_lent(const struct cl_posix_set *set)
{
    return __atomic_load_n(&set->lent, __ATOMIC_SEQ_CST);
}

static void take_back(struct cl_posix_set *set)
{
    struct cl_posix_set **at = &lent;
    while (*at && *at != set)
        at = &(*at)->beside;
    if (*at)
        cl_store_relaxed(at, set->beside);
}

/* Unlist what is not ready. */
static void look(struct cl_posix_set *set)
{
    cl_spin_lock(&set->lock);
    for (struct cl_posix_watch *w = set->first, *next; w; w = next) {
        next = w->next;
        if (!cl_posix_watch_ready(w))
            unlist(set, w);
    }
    untell(set);
    cl_spin_unlock(&set->lock);
}

bool cl_posix_lent_look(void)
{
    bool ours = false;
    if (!cl_load_relaxed(&lent))
        return false;
    pthread_mutex_lock(&structure);
    for (struct cl_posix_set *set = lent; set; set = set->beside) {
        ours |= set->all != NULL;
        look(set);
    }
    pthread_mutex_unlock(&structure);
    return ours;
}

/* Watches. */

void cl_posix_join(struct cl_posix_watch *w, struct cl_posix_socket *s, struct cl_posix_set *set)
{
    w->socket = s;
    w->set = set;
    cl_spin_lock(&s->lock);
    w->beside = s->watches;
    s->watches = w;
    list_if_ready(w);
    cl_spin_unlock(&s->lock);
}

static void part(struct cl_posix_watch *w, bool closes)
{
    struct cl_posix_socket *s = w->socket;
    cl_spin_lock(&s->lock);
    struct cl_posix_watch **at = &s->watches;
    while (*at != w)
        at = &(*at)->beside;
    *at = w->beside;
    cl_spin_lock(&w->set->lock);
    unlist(w->set, w);
    /* The eventfd of a child without a runtime is its parent's, too, where the socket is open still; if the child waits
     * for it, it looks before. */
    if (!closes || !w->set->lent || cl_linux(SYS_getpid) == w->set->maker)
        untell(w->set);
    cl_spin_unlock(&w->set->lock);
    cl_spin_unlock(&s->lock);
}

void cl_posix_part(struct cl_posix_watch *w)
{
    part(w, false);
}

/* Those of epoll descriptors. Under the structure's mutex. */

static struct cl_posix_watch *find(const struct cl_posix_set *set, struct cl_posix_socket *s, int fd)
{
    cl_spin_lock(&s->lock);
    struct cl_posix_watch *w = s->watches;
    while (w && !(w->lasts && w->set == set && w->fd == fd))
        w = w->beside;
    cl_spin_unlock(&s->lock);
    return w;
}

static int add(struct cl_posix_set *set, struct cl_posix_socket *s, int epfd, int fd, const struct epoll_event *event)
{
    if (cl_load_relaxed(&s->object.fds) == 0) /* closed meanwhile: whoever did forgets watches after that */
        return -EBADF;
    struct cl_posix_watch *w = malloc(sizeof *w);
    if (!w)
        return -ENOMEM;
    bool carries = cl_posix_socket_carries(s);
    *w = (struct cl_posix_watch){.events = event->events,
                                 .data = event->data.u64,
                                 .lasts = true,
                                 .carries = carries,
                                 .epfd = epfd,
                                 .fd = fd,
                                 .in_set = set->all};
    cl_store_relaxed(&set->all, w);
    cl_store_relaxed(&set->connections, set->connections + carries);
    cl_posix_join(w, s, set);
    return 0;
}

/* closes: its socket, or its set. */
static void drop(struct cl_posix_watch *w, bool closes)
{
    struct cl_posix_set *set = w->set;
    struct cl_posix_watch **at = &set->all;
    while (*at != w)
        at = &(*at)->in_set;
    cl_store_relaxed(at, w->in_set);
    cl_store_relaxed(&set->connections, set->connections - w->carries);
    part(w, closes);
    free(w);
}

static void change(struct cl_posix_watch *w, const struct epoll_event *event)
{
    struct cl_posix_set *set = w->set;
    bool carries = cl_posix_socket_carries(w->socket); /* it has been connected since, perhaps */
    cl_store_relaxed(&set->connections, set->connections + carries - w->carries);
    w->carries = carries;
    cl_spin_lock(&w->socket->lock);
    cl_spin_lock(&set->lock);
    w->events = event->events;
    w->data = event->data.u64;
    w->off = false;
    cl_spin_unlock(&set->lock);
    list_if_ready(w);
    cl_spin_unlock(&w->socket->lock);
}

/* EPOLLEXCLUSIVE: with what it goes (fs/eventpoll.c). */
static bool may_be_exclusive(int op, uint32_t events)
{
    const uint32_t with = EPOLLIN | EPOLLOUT | EPOLLERR | EPOLLHUP | EPOLLWAKEUP | EPOLLET | EPOLLEXCLUSIVE;
    return !(events & EPOLLEXCLUSIVE) || (op == EPOLL_CTL_ADD && !(events & ~with));
}

int cl_posix_watch(struct cl_posix_set *set, struct cl_posix_socket *s, int op, int epfd, int fd,
                   const struct epoll_event *event)
{
    int rc = 0;
    if (op != EPOLL_CTL_DEL && !may_be_exclusive(op, event->events))
        return -EINVAL;
    pthread_mutex_lock(&structure);
    struct cl_posix_watch *w = find(set, s, fd);
    if (op == EPOLL_CTL_MOD && w && w->events & EPOLLEXCLUSIVE)
        rc = -EINVAL;
    else if (op == EPOLL_CTL_ADD)
        rc = w ? -EEXIST : add(set, s, epfd, fd, event);
    else if (!w)
        rc = -ENOENT;
    else if (op == EPOLL_CTL_MOD)
        change(w, event);
    else
        drop(w, false);
    pthread_mutex_unlock(&structure);
    return rc;
}

static struct cl_posix_watch *first_lasting(struct cl_posix_socket *s)
{
    cl_spin_lock(&s->lock);
    struct cl_posix_watch *w = s->watches;
    while (w && !w->lasts)
        w = w->beside;
    cl_spin_unlock(&s->lock);
    return w;
}

void cl_posix_forget_socket(struct cl_posix_socket *s)
{
    struct cl_posix_watch *w;
    pthread_mutex_lock(&structure);
    while ((w = first_lasting(s)))
        drop(w, true);
    pthread_mutex_unlock(&structure);
}

void cl_posix_forget_set(struct cl_posix_set *set)
{
    pthread_mutex_lock(&structure);
    while (set->all)
        drop(set->all, true);
    take_back(set);
    pthread_mutex_unlock(&structure);
}

void cl_posix_watches_to_linux(struct cl_posix_socket *s)
{
    struct cl_posix_watch *w;
    pthread_mutex_lock(&structure);
    while ((w = first_lasting(s))) {
        struct epoll_event e = {.events = w->events, .data.u64 = w->data};
        (void)cl_linux(SYS_epoll_ctl, w->epfd, EPOLL_CTL_ADD, w->fd, &e);
        drop(w, false);
    }
    pthread_mutex_unlock(&structure);
}

/* Sleeping. */

bool cl_posix_set_arm(struct cl_posix_set *set)
{
    cl_spin_lock(&set->lock);
    bool may = !set->first;
    cl_store_relaxed(&set->sleepers, set->sleepers + may);
    cl_store_relaxed(&set->shared, set->shared || set->sleepers > 1);
    cl_spin_unlock(&set->lock);
    return may;
}

bool cl_posix_set_is_mine(const struct cl_posix_set *set)
{
    return !cl_load_relaxed(&set->shared) && !cl_load_relaxed(&set->sleepers); /* as of now: asked each time */
}

void cl_posix_set_arm_anyway(struct cl_posix_set *set)
{
    cl_spin_lock(&set->lock);
    cl_store_relaxed(&set->sleepers, set->sleepers + 1);
    cl_store_relaxed(&set->shared, set->shared || set->sleepers > 1);
    cl_spin_unlock(&set->lock);
}

void cl_posix_set_disarm(struct cl_posix_set *set)
{
    cl_spin_lock(&set->lock);
    cl_store_relaxed(&set->sleepers, set->sleepers - 1);
    bool told = set->told && !set->lent;
    set->told &= set->lent;
    cl_spin_unlock(&set->lock);
    if (told)
        quiet(set);
}

void cl_posix_set_call(struct cl_posix_set *set)
{
    cl_spin_lock(&set->lock);
    if (!set->told)
        wake(set);
    set->told = true; /* until who sleeps takes it back; of one that is lent, who finds nothing listed */
    cl_spin_unlock(&set->lock);
}

/* Who waits for which sockets. A watch joins a socket to a set; of a set the ready list has those that may be ready, in
 * the order in which they became so.
 *
 * A watch that is listed is looked at, and leaves the list if it is not ready; who makes a socket ready lists its
 * watches after that. So either it is found ready, or it is listed again (as in ../net/poll.c). Who sleeps for a set
 * counts itself under the set's lock after having seen the list empty; who lists a watch then writes the set's eventfd,
 * once.
 *
 * A thread that keeps a kthread, and is told of a socket, is its poller, unless several threads wait for the set. By
 * that a connection gets its home (transfer.c). */
#ifndef CORELANE_LIBOS_POSIX_WAITS_H
#define CORELANE_LIBOS_POSIX_WAITS_H

#include "socket.h"

struct cl_posix_set {
    struct cl_spin lock;
    struct cl_posix_watch *first, *last; /* that may be ready */
    struct cl_posix_watch *all;          /* of an epoll descriptor: under the structure's mutex, read without */
    uint32_t n_listed;
    uint32_t sleepers;    /* read without the lock, too */
    uint32_t connections; /* watches of sockets that carry bytes; under the structure's mutex, read without */
    bool told;            /* the eventfd was written for those that sleep */
    bool shared;          /* several threads have slept for it at one time, and may again. Read without the lock, too */
    bool lent;            /* Linux tells others of it: the eventfd is readable while something is listed. For good; read
                           * without the lock, too */
    int event_fd;
    int64_t maker;               /* the process */
    struct cl_posix_set *beside; /* of those that are lent. Under the structure's mutex */
};

struct cl_posix_watch {
    struct cl_posix_socket *socket;
    struct cl_posix_set *set;
    struct cl_posix_watch *beside; /* of the same socket: under its lock */
    struct cl_posix_watch *in_set; /* of the same epoll descriptor: under the structure's mutex */
    struct cl_posix_watch *next,
        *prev; /* in the ready list: under the set's lock, as what follows but for the numbers */
    uint64_t data;
    uint32_t events; /* EPOLL*, as asked */
    bool listed;
    bool off;     /* it was told once, and that is all that was asked */
    bool lasts;   /* it is an epoll descriptor's: on the heap, and freed when the socket or the set goes */
    bool carries; /* it counts in `connections` */
    int epfd, fd; /* as they were called */
};

/* -errno. */
int cl_posix_set_open(struct cl_posix_set *set);
void cl_posix_set_close(struct cl_posix_set *set);

/* Join a socket to a set, for events with their data, and part them. Whoever has joined them for a call parts them. */
void cl_posix_join(struct cl_posix_watch *w, struct cl_posix_socket *s, struct cl_posix_set *set);
void cl_posix_part(struct cl_posix_watch *w);
/* The same by epoll's operation (EPOLL_CTL_*), until one of the two goes. -EEXIST, -ENOENT, -ENOMEM, -EBADF. */
int cl_posix_watch(struct cl_posix_set *set, struct cl_posix_socket *s, int op, int epfd, int fd,
                   const struct epoll_event *event);
void cl_posix_forget_socket(struct cl_posix_socket *s);
void cl_posix_forget_set(struct cl_posix_set *set);
/* The socket turns out to be Linux': so do its watches. */
void cl_posix_watches_to_linux(struct cl_posix_socket *s);

/* Something was told of the socket: list its watches. May be called under a stream's guard. */
void cl_posix_told(struct cl_posix_socket *s);
/* What of its watch is ready now, EPOLL*. */
uint32_t cl_posix_watch_ready(const struct cl_posix_watch *w);
/* Take up to n that are ready. -EFAULT: of those the first cannot be told, for `events` is no memory; none is taken. */
int cl_posix_collect(struct cl_posix_set *set, struct epoll_event *events, int n);

/* Whether the calling thread, which does not sleep, is the only one that sleeps for it now and then. */
bool cl_posix_set_is_mine(const struct cl_posix_set *set);
/* Around a sleep by the set's eventfd. False: something may be ready, do not sleep. */
bool cl_posix_set_arm(struct cl_posix_set *set);
/* The same though something is listed, which the caller has looked at. */
void cl_posix_set_arm_anyway(struct cl_posix_set *set);
void cl_posix_set_disarm(struct cl_posix_set *set);
/* Have whoever sleeps for it look again, though nothing is ready. */
void cl_posix_set_call(struct cl_posix_set *set);

/* interrupted.c: around a sleep for an armed set, and nothing else. held: what is put if a handler leaves the call;
 * NULL. False: the thread was cancelled, and is to return -ECANCELED. */
bool cl_posix_interrupted_begin(struct cl_posix_set *set, struct cl_posix_object *held);
void cl_posix_interrupted_end(void);
/* The calling thread was cancelled, and may be. */
bool cl_posix_is_cancelled(void);
/* A handler has ended a sleep for which there is no time limit: whether Linux would go on with the call. */
bool cl_posix_handlers_restart(void);

/* An epoll descriptor's set is told of by Linux from now on, as that descriptor is in another one, or in a poll. */
void cl_posix_set_lend(struct cl_posix_set *set);
bool cl_posix_set_is_lent(const struct cl_posix_set *set);
/* Before Linux is asked for who may hold such a one: what is listed is ready. True: one of them has sockets of ours. */
bool cl_posix_lent_look(void);
/* epoll.c: the same of a descriptor, if it is one of epoll. */
void cl_posix_epoll_lend(int epfd);

/* The calling thread's own set. NULL: there is none to be had. */
struct cl_posix_set *cl_posix_own_set(void);
/* Memory for n watches of that set, of the thread's own: until the next call. NULL: there is none. */
struct cl_posix_watch *cl_posix_own_watches(struct cl_posix_set *set, nfds_t n);
/* The first n of them are joined, if they have a socket, which is held. */
void cl_posix_own_joined(struct cl_posix_set *set, nfds_t n);
/* A handler leaves the call: part them, and put their sockets. */
void cl_posix_own_part(void);

/* An instant; UINT64_MAX: never. */
uint64_t cl_posix_deadline(int64_t timeout_ns);
/* What is left until then: -1 for ever. */
int64_t cl_posix_left(uint64_t deadline_ns);
/* A handler has ended a sleep of a call with that deadline: whether Linux would go on with the call. */
bool cl_posix_goes_on(uint64_t deadline_ns);
/* Sleep by ppoll for fds, the set and the kthread that the thread keeps: fds[n] and fds[n + 1] are free for those two.
 * Turns the kthread first. Returns what Linux says of the first n: how many, -errno (-ECANCELED: preload/cancel.c); 0:
 * look again. */
int cl_posix_sleep(struct cl_posix_set *set, struct pollfd *fds, nfds_t n, uint64_t deadline_ns, const sigset_t *mask);
/* Wait until one of `events` is ready. 0, -EAGAIN: the time is over, -EINTR, -ECANCELED, -ENOMEM. */
int cl_posix_wait(struct cl_posix_socket *s, uint32_t events, uint64_t deadline_ns);
/* The same for events with EPOLLET, each time that there are some, until `waits` says no; NULL: it does. */
int cl_posix_wait_while(struct cl_posix_socket *s, uint32_t events, uint64_t deadline_ns, bool (*waits)(void *arg),
                        void *arg);

#endif

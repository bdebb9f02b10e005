/* What the programs that are compared say of their calls (calls.c, datagrams.c): one line each, the same whoever's
 * sockets they are. */
#ifndef TESTS_LIBOS_POSIX_SAID_H
#define TESTS_LIBOS_POSIX_SAID_H

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

struct sequence {
    const char *name; /* NULL: there are no more */
    void (*fn)(void);
};

static inline const char *name_of(int error)
{
    const char *name = strerrorname_np(error);
    return name ? name : "?";
}

/* Print what a call returned. */
static inline long say(const char *what, long rc)
{
    if (rc < 0)
        printf("%s: %s\n", what, name_of(errno));
    else
        printf("%s: %ld\n", what, rc);
    return rc;
}

/* The same of a descriptor, whose number is of no account. */
static inline int say_fd(const char *what, int fd)
{
    say(what, fd < 0 ? -1 : 0);
    return fd;
}

static inline void say_events(const char *what, unsigned events)
{
    printf("%s:%s%s%s%s%s\n", what, events & EPOLLIN ? " IN" : "", events & EPOLLOUT ? " OUT" : "",
           events & EPOLLERR ? " ERR" : "", events & EPOLLHUP ? " HUP" : "", events & EPOLLRDHUP ? " RDHUP" : "");
}

static inline void wait_for(int fd, short events)
{
    struct pollfd p = {fd, events, 0};
    if (poll(&p, 1, 10000) != 1)
        printf("waited in vain\n");
}

static inline int told(int epfd, unsigned *events, unsigned *data)
{
    struct epoll_event e = {0};
    int n = epoll_wait(epfd, &e, 1, 0);
    *events = e.events;
    *data = e.data.u32;
    return n;
}

static inline void say_told(const char *what, int epfd)
{
    unsigned events, data;
    int n = told(epfd, &events, &data);
    printf("%s: %d", what, n);
    if (n == 1) {
        printf(", of %u", data);
        say_events("", events);
    } else
        printf("\n");
}

static inline int watch(int epfd, int op, int fd, unsigned events, unsigned data)
{
    struct epoll_event e = {.events = events, .data.u32 = data};
    return epoll_ctl(epfd, op, fd, &e);
}

/* A program's exit status: 2, there is no such sequence. */
static inline int run_sequence(const struct sequence *sequences, const char *name)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (; sequences->name; sequences++)
        if (strcmp(name, sequences->name) == 0) {
            sequences->fn();
            return 0;
        }
    return 2;
}

#endif

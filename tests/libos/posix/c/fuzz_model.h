/* What the program that draws calls knows of its sockets (fuzz.c): both ends of all are of this process, so it knows
 * what is under way. After each call `settle` waits until that has come, so that no result depends on time. */
#ifndef TESTS_LIBOS_POSIX_FUZZ_MODEL_H
#define TESTS_LIBOS_POSIX_FUZZ_MODEL_H

#include "said.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define SLOTS 8
#define MOST 6000 /* bytes that wait in one direction */
#define QUEUED 12 /* datagrams, and connections, that wait */

enum kind { FREE, FRESH, BOUND, LISTENS, OPEN, DATAGRAM };

/* A socket, and what of it is known. */
struct slot {
    enum kind kind;
    int fds[2]; /* its descriptors; the second, a copy, or -1 */
    int peer;   /* the other end's slot; -1: it has none, or is not accepted yet; SLOTS: a port that is nobody's */
    /* LISTENS: slots that wait to be accepted, or of one that was closed -1 less the bytes that it had written;
     * DATAGRAM: lengths. First in, first out. */
    int queue[QUEUED];
    int n;
    int waits;             /* listener's slot; -1 */
    int to_read, written;  /* bytes; while nobody has accepted it, those that it has written */
    bool fin, shut, reset; /* the peer's end; our own; it was reset, or will be found so */
    bool deaf;             /* reading is shut */
    bool seen;             /* that it was reset has been told of */
    bool named, told;      /* it has a port; an error comes */
    bool early;            /* a shutdown failed before there was a connection */
    bool resets;           /* SO_LINGER, without a time */
    bool non_blocking;
    bool connected, listened; /* it was, or was asked to, once */
};

static struct sockaddr_in here; /* the address, port 0 */
static bool keeps_roles;        /* who has listened is not to connect, and the other way round */
static struct slot slots[SLOTS];
static uint64_t state;
static char data[MOST];

static unsigned draw(unsigned n)
{
    state += 0x9e3779b97f4a7c15u; /* splitmix64 */
    uint64_t z = (state ^ state >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (unsigned)((z ^ z >> 31) >> 32) % n;
}

static int index_of(const struct slot *s)
{
    return (int)(s - slots);
}

static long note(const struct slot *s, const char *what, long rc)
{
    printf("%d.", index_of(s));
    return say(what, rc);
}

/* One of its descriptors. */
static int fd_of(const struct slot *s)
{
    return s->fds[1] >= 0 && draw(2) ? s->fds[1] : s->fds[0];
}

static struct sockaddr_in name_of_slot(const struct slot *s)
{
    struct sockaddr_in at = here;
    socklen_t len = sizeof at;
    getsockname(s->fds[0], (struct sockaddr *)&at, &len);
    at.sin_addr = here.sin_addr;
    return at;
}

static bool eventually(const struct slot *s, short events)
{
    struct pollfd p = {s->fds[0], events, 0};
    return poll(&p, 1, 10000) == 1;
}

static int to_read(const struct slot *s)
{
    int n = -1;
    return ioctl(s->fds[0], FIONREAD, &n) ? -1 : n;
}

static bool has_to_read(const struct slot *s, int bytes)
{
    for (int i = 0; i < 10000; i++) {
        if (to_read(s) == bytes)
            return true;
        poll(NULL, 0, i > 100);
    }
    return false;
}

/* One that both sides have shut is over before that: what is left is why. Told once, it is not told again. */
static bool is_told_of_reset(struct slot *s)
{
    for (int i = 0; i < 300 && !s->seen; i++) {
        struct pollfd p = {s->fds[0], POLLIN, 0};
        poll(&p, 1, 0);
        s->seen = p.revents & POLLERR;
        poll(NULL, 0, !s->seen);
    }
    return s->seen = true;
}

/* Both sides are shut: until the last acknowledgement has come, by which it is over. It may be lost on a reset. */
static void wait_for_end(const struct slot *s)
{
    struct sockaddr_in at;
    for (int i = 0; i < 300; i++) {
        socklen_t len = sizeof at;
        if (getpeername(s->fds[0], (struct sockaddr *)&at, &len))
            return;
        eventually(s, POLLHUP); /* which turns what is to be turned */
        poll(NULL, 0, i > 10);
    }
}

static bool has_come(struct slot *s)
{
    if (s->kind == DATAGRAM)
        return (!s->told || eventually(s, POLLERR)) &&
               (!s->n || (eventually(s, POLLIN) && has_to_read(s, s->queue[0])));
    if (s->kind == LISTENS)
        return !s->n || eventually(s, POLLIN);
    if (s->kind != OPEN)
        return true;
    if (s->reset && s->deaf && s->shut)
        return is_told_of_reset(s);
    if (s->reset)
        return eventually(s, POLLHUP);
    if (!has_to_read(s, s->to_read) || (s->fin && !eventually(s, POLLRDHUP)))
        return false;
    if (s->fin && s->shut)
        wait_for_end(s);
    return true;
}

static void settle(void)
{
    for (struct slot *s = slots; s < slots + SLOTS; s++)
        if (s->kind != FREE && !has_come(s)) {
            printf("waited in vain for %d: kind %d, to read %d of %d, fin %d, shut %d, reset %d, deaf %d\n",
                   index_of(s), s->kind, to_read(s), s->kind == DATAGRAM ? s->queue[0] : s->to_read, s->fin, s->shut,
                   s->reset, s->deaf);
            exit(0);
        }
}

static struct slot *some(enum kind kind)
{
    unsigned first = draw(SLOTS);
    for (unsigned i = 0; i < SLOTS; i++)
        if (slots[(first + i) % SLOTS].kind == kind)
            return &slots[(first + i) % SLOTS];
    return NULL;
}

static struct slot *anyone(void)
{
    struct slot *s = &slots[draw(SLOTS)];
    return s->kind == FREE ? NULL : s;
}

static struct slot *put(struct slot *s, enum kind kind, int fd)
{
    *s = (struct slot){.kind = kind, .fds = {fd, -1}, .peer = -1, .waits = -1};
    return s;
}

/* A datagram socket's port is nobody's from now on. */
static void leave_port(const struct slot *s)
{
    for (struct slot *other = slots; other < slots + SLOTS; other++)
        if (other->kind == DATAGRAM && other->peer == index_of(s))
            other->peer = SLOTS;
}

static int take(struct slot *s)
{
    int first = s->queue[0];
    memmove(s->queue, s->queue + 1, (size_t)--s->n * sizeof first);
    return first;
}

#endif

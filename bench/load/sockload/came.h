/* When the kernel had received what a socket gave, as a stamp of the processor's clock. A program that is busy reads
 * its sockets late, and what it measures from its own reading counts its own delay as somebody else's (Kogias et al.,
 * Lancet, ATC'19, section 3).
 *
 * The kernel stamps by CLOCK_REALTIME (SO_TIMESTAMPNS, socket(7)), which others may set. So only the age is taken from
 * it, against that clock read now. A TCP socket gives the stamp of the last segment of which a call gave bytes. Used by
 * the load engine and by the reference server. Tests: tests/bench/load/sockload/test_came.py. */
#ifndef CORELANE_BENCH_LOAD_SOCKLOAD_CAME_H
#define CORELANE_BENCH_LOAD_SOCKLOAD_CAME_H

#include <corelane/runtime/clock.h>

#include <string.h>
#include <sys/socket.h>
#include <time.h>

/* Room for what is asked of recvmsg: msg_control of a call that is to be looked at. */
union cl_came {
    struct cmsghdr header;
    char room[CMSG_SPACE(sizeof(struct timespec))];
};

/* Have the kernel stamp what comes for this socket, or, if it listens, for those that are accepted from it. A kernel
 * that does not leaves the time of reading. */
static inline void cl_came_ask(int fd)
{
    int one = 1;
    (void)setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &one, sizeof(one));
}

/* What recvmsg has given into `m` came so many ns ago. */
static inline int64_t cl_came_age_ns(const struct msghdr *m, const struct timespec *real)
{
    const struct cmsghdr *c = m->msg_controllen ? CMSG_FIRSTHDR(m) : NULL;
    struct timespec at;
    if (!c || c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_TIMESTAMPNS)
        return 0;
    memcpy(&at, CMSG_DATA(c), sizeof(at));
    int64_t age = (real->tv_sec - at.tv_sec) * 1000000000 + real->tv_nsec - at.tv_nsec;
    return age > 0 ? age : 0; /* that clock was set back meanwhile */
}

/* The same as a stamp: call it soon after recvmsg. */
static inline uint64_t cl_came_at(const struct msghdr *m, const struct cl_clock *clock)
{
    struct timespec real;
    clock_gettime(CLOCK_REALTIME, &real);
    uint64_t now = cl_tsc(), age = (uint64_t)cl_ns_to_ticks(clock, cl_came_age_ns(m, &real));
    return now > age ? now - age : 0;
}

#endif

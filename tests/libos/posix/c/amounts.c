/* A program that knows nothing of corelane: what calls leave of times, and how much they take or look at. It prints the
 * results; the test runs it on Linux' sockets and on ours, and compares (../test_twin.py).
 *
 *   amounts ADDRESS SEQUENCE */
#include "pairs.h"

#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/time.h>
#include <sys/uio.h>

#define MOST 1024 /* pieces of a call */

static long select_in(int fd, struct timeval *t)
{
    fd_set in;
    FD_ZERO(&in);
    FD_SET(fd, &in);
    return select(fd + 1, &in, NULL, NULL, t);
}

/* Of select's time. */
static void time_left(void)
{
    struct timeval none = {0, 0}, some = {0, 20000}, much = {100, 1500000}, wrong = {1, -1}, before = {-1, 0};
    int c, s;
    pair(&c, &s);
    say("at once", select_in(s, &none));
    printf("left: %ld %ld\n", (long)none.tv_sec, (long)none.tv_usec);
    say("in time", select_in(s, &some));
    printf("left: %ld %ld\n", (long)some.tv_sec, (long)some.tv_usec);
    say("write", write(c, "x", 1));
    wait_for(s, POLLIN);
    say("ready", select_in(s, &much));
    printf("left, less than there was: %d, much of it: %d\n",
           much.tv_sec < 101 || much.tv_usec<500000, much.tv_sec> 50);
    say("a wrong time", select_in(s, &wrong));
    printf("left: %ld %ld\n", (long)wrong.tv_sec, (long)wrong.tv_usec);
    say("a time before now", select_in(s, &before));
    printf("left: %ld %ld\n", (long)before.tv_sec, (long)before.tv_usec);
}

static void *write_later(void *arg)
{
    poll(NULL, 0, 30);
    if (write(*(int *)arg, "cd", 2) != 2)
        printf("not written\n");
    return NULL;
}

/* To look at as much as was asked for, or at what there is by the end, or by then. */
static void looks(void)
{
    char data[16] = "";
    struct iovec in[3] = {{data, 1}, {data + 4, 2}, {data + 8, 4}};
    struct msghdr m = {.msg_iov = in, .msg_iovlen = 3};
    struct timeval soon = {0, 30000};
    pthread_t writer;
    int c, s;
    pair(&c, &s);
    say("write", write(c, "ab", 2));
    pthread_create(&writer, NULL, write_later, &c);
    say("at all of it", recv(s, data, 4, MSG_PEEK | MSG_WAITALL));
    printf("%.4s\n", data);
    pthread_join(writer, NULL);
    say("without waiting", recv(s, data, 9, MSG_PEEK | MSG_WAITALL | MSG_DONTWAIT));
    memset(data, '-', sizeof data - 1);
    say("by pieces", recvmsg(s, &m, MSG_PEEK));
    printf("%s\n", data);
    say("SO_RCVTIMEO", setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon));
    say("by then", recv(s, data, 9, MSG_PEEK | MSG_WAITALL));
    say("shutdown", shutdown(c, SHUT_WR));
    soon.tv_sec = 100;
    say("SO_RCVTIMEO", setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon));
    say("by the end", recv(s, data, 9, MSG_PEEK | MSG_WAITALL));
    say("read", read(s, data, 9));
    say("at the end", recv(s, data, 9, MSG_PEEK | MSG_WAITALL));
}

static volatile int below = -1; /* unknown to the compiler */

static void pieces_of(int out, int in)
{
    static char data[MOST + 1];
    static struct iovec vec[MOST + 1];
    struct msghdr m = {.msg_iov = vec, .msg_iovlen = MOST + 1};
    for (int i = 0; i <= MOST; i++)
        vec[i] = (struct iovec){data + i, 1};
    say("writev of too many", writev(out, vec, MOST + 1));
    say("pwritev2 of too many", pwritev2(out, vec, MOST + 1, -1, 0));
    say("sendmsg of too many", sendmsg(out, &m, 0));
    say("writev of a negative number", writev(out, vec, below));
    say("writev", writev(out, vec, MOST));
    say("readv of too many", readv(in, vec, MOST + 1));
    say("preadv2 of too many", preadv2(in, vec, MOST + 1, -1, 0));
    say("recvmsg of too many", recvmsg(in, &m, MSG_DONTWAIT));
    say("readv of a negative number", readv(in, vec, below));
    for (int i = 0, n = 0; i < 10000 && n < MOST; i++, poll(NULL, 0, 1))
        n = (int)recv(in, data, MOST, MSG_PEEK | MSG_DONTWAIT);
    say("readv", readv(in, vec, MOST));
    for (int i = 0; i <= MOST; i++)
        vec[i].iov_len = 0;
    say("writev of too many without a byte", writev(out, vec, MOST + 1));
}

static void too_many(void)
{
    int c, s;
    pair(&c, &s);
    pieces_of(c, s);
    struct sockaddr_in at = here;
    socklen_t len = sizeof at;
    int in = socket(AF_INET, SOCK_DGRAM, 0), out = socket(AF_INET, SOCK_DGRAM, 0);
    say("bind", bind(in, (struct sockaddr *)&at, sizeof at));
    getsockname(in, (struct sockaddr *)&at, &len);
    say("connect", connect(out, (struct sockaddr *)&at, sizeof at));
    pieces_of(out, in);
}

/* More than there can be. A number that the compiler does not know. */
static void far_too_many(void)
{
    static volatile unsigned all = ~0u;
    int c, s, epfd = epoll_create1(0);
    struct epoll_event e;
    pair(&c, &s);
    struct pollfd p = {s, POLLIN, 0};
    say("poll", poll(&p, all, 0));
    say("ppoll", ppoll(&p, all, &(struct timespec){0, 0}, NULL));
    say("ADD", watch(epfd, EPOLL_CTL_ADD, s, EPOLLIN, 1));
    say("epoll_wait", epoll_wait(epfd, &e, (int)(all >> 1), 0));
    say("TCP_NODELAY", setsockopt(c, IPPROTO_TCP, TCP_NODELAY, &(int){1}, all));
}

/* TCP_INFO as far as it is looked at here: libc knows the first part only. */
struct numbers {
    struct tcp_info first;
    uint64_t pacing[2], bytes[2];
    uint32_t segments[2], unsent, least_rtt_us, data_segments[2];
    uint64_t rate;
};

static struct numbers numbers_of(int fd)
{
    struct numbers n;
    memset(&n, 0xff, sizeof n);
    socklen_t len = sizeof n;
    say("TCP_INFO", getsockopt(fd, IPPROTO_TCP, TCP_INFO, &n, &len));
    printf("%u bytes\n", (unsigned)len);
    return n;
}

/* What libc's struct has no place for: a buffer that is full, and empty again. */
static void numbers(void)
{
    static char data[65536];
    struct pollfd room;
    int c, s, left;
    pair(&c, &s);
    fcntl(c, F_SETFL, O_NONBLOCK);
    fcntl(s, F_SETFL, O_NONBLOCK);
    while (write(c, data, sizeof data) > 0) {
    }
    struct numbers n = numbers_of(c);
    printf("unsent: %d, a round trip: %d, in recovery: %u\n", n.unsent > 0, n.least_rtt_us < 100000000,
           n.first.tcpi_ca_state);
    for (ioctl(c, SIOCOUTQ, &left); left; ioctl(c, SIOCOUTQ, &left)) {
        while (read(s, data, sizeof data) > 0) {
        }
        room = (struct pollfd){c, POLLOUT, 0};
        poll(&room, 1, 10);
    }
    n = numbers_of(c);
    printf("unsent: %u, a rate: %d\n", n.unsent, n.rate > 1000 && n.rate < UINT64_MAX);
    socklen_t few = 6;
    say("as much as there is room for", getsockopt(c, IPPROTO_TCP, TCP_INFO, &n, &few));
    printf("%u bytes\n", (unsigned)few);
}

static const struct sequence sequences[] = {{"time_left", time_left}, {"looks", looks},
                                            {"too_many", too_many},   {"far_too_many", far_too_many},
                                            {"numbers", numbers},     {NULL, NULL}};

int main(int argc, char **argv)
{
    return run_with_address(sequences, argc, argv);
}

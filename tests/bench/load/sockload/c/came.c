/* What came is as old as it has waited in its socket, over UDP and over an accepted TCP connection; without a stamp, or
 * with one of the future, it has come now. Usage: came */
#include "bench/load/sockload/came.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define WAIT_NS 3000000
#define SLACK_NS 500000
#define TRIES 3000

#define CHECK(what)                                                                                                    \
    do {                                                                                                               \
        if (!(what)) {                                                                                                 \
            printf("line %d: %s\n", __LINE__, #what);                                                                  \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static int bound(int kind, struct sockaddr_in *at)
{
    socklen_t len = sizeof(*at);
    int fd = socket(AF_INET, kind, 0);
    *at = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)at, sizeof(*at)) == 0);
    CHECK(getsockname(fd, (struct sockaddr *)at, &len) == 0);
    return fd;
}

static int connected(int kind, const struct sockaddr_in *to)
{
    int fd = socket(AF_INET, kind, 0);
    CHECK(fd >= 0 && connect(fd, (const struct sockaddr *)to, sizeof(*to)) == 0);
    return fd;
}

/* Send a byte, leave it in the socket for WAIT_NS, and read it: its stamp, and when it was sent. */
static uint64_t sent_and_read(int from, int to, const struct cl_clock *clock, uint64_t *sent)
{
    char byte = 'x';
    union cl_came control;
    struct iovec part = {&byte, 1};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
    *sent = cl_tsc();
    CHECK(send(from, &byte, 1, 0) == 1);
    nanosleep(&(struct timespec){0, WAIT_NS}, NULL);
    CHECK(recvmsg(to, &m, 0) == 1);
    return cl_came_at(&m, clock);
}

/* It came after it was sent, and before it was waited for. The two clocks are not read at once: SLACK_NS. The kernel
 * begins to stamp a while after it was asked. */
static void is_old(int from, int to, const struct cl_clock *clock)
{
    uint64_t sent, came;
    int64_t after = 0, age = 0;
    for (int i = 0; i < TRIES && age < WAIT_NS - SLACK_NS; i++) {
        came = sent_and_read(from, to, clock, &sent);
        after = cl_ticks_to_ns(clock, (int64_t)(came - sent));
        age = cl_ticks_to_ns(clock, (int64_t)(cl_tsc() - came));
    }
    CHECK(age >= WAIT_NS - SLACK_NS);
    CHECK(after >= -SLACK_NS);
}

static void ages(void)
{
    union cl_came control = {0};
    struct msghdr m = {.msg_control = &control, .msg_controllen = sizeof(control)};
    struct timespec at = {100, 999999000}, now = {101, 500}, past = {100, 0};
    control.header = (struct cmsghdr){CMSG_LEN(sizeof(at)), SOL_SOCKET, SCM_TIMESTAMPNS};
    memcpy(CMSG_DATA(&control.header), &at, sizeof(at));
    CHECK(cl_came_age_ns(&m, &now) == 1500);
    CHECK(cl_came_age_ns(&m, &past) == 0);
    control.header.cmsg_type = SCM_RIGHTS;
    CHECK(cl_came_age_ns(&m, &now) == 0);
    m.msg_controllen = 0;
    CHECK(cl_came_age_ns(&m, &now) == 0);
}

int main(void)
{
    const struct cl_clock *clock = cl_clock_default();
    struct sockaddr_in at;
    ages();

    int plain = bound(SOCK_DGRAM, &at), from = connected(SOCK_DGRAM, &at);
    uint64_t sent, came = sent_and_read(from, plain, clock, &sent);
    CHECK(cl_ticks_to_ns(clock, (int64_t)(came - sent)) >= WAIT_NS);
    cl_came_ask(plain);
    is_old(from, plain, clock);

    int listener = bound(SOCK_STREAM, &at);
    cl_came_ask(listener);
    CHECK(listen(listener, 1) == 0);
    int peer = connected(SOCK_STREAM, &at), accepted = accept(listener, NULL, NULL);
    CHECK(accepted >= 0);
    is_old(peer, accepted, clock);
    for (int i = 0, all[] = {plain, from, listener, peer, accepted}; i < 5; i++)
        close(all[i]);
    printf("passed\n");
    return 0;
}

/* A program that knows nothing of corelane: sizes that no buffer and no name has. It prints the results of its calls;
 * the test runs it on Linux' sockets and on ours, and compares (../test_twin.py).
 *
 *   huge ADDRESS SEQUENCE */
#include "pairs.h"

#include <fcntl.h>
#include <limits.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdbool.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/uio.h>

static char data[64];
static const size_t sizes[] = {
    INT_MAX, (size_t)INT_MAX + 1, (size_t)1 << 40, SSIZE_MAX, (size_t)SSIZE_MAX + 1, SIZE_MAX - 1, SIZE_MAX};
#define SIZES (sizeof sizes / sizeof *sizes)

static long say_of(const char *what, size_t size, long rc)
{
    char text[64];
    snprintf(text, sizeof text, "%s of %zx", what, size);
    return say(text, rc);
}

/* Nothing but six bytes is there to be read, or nothing. */
static void refill(int c, int s, bool full)
{
    int there = 0;
    while (recv(s, data, sizeof data, MSG_DONTWAIT) > 0)
        ;
    if (full && write(c, "abcdef", 6) == 6)
        while (there < 6 && ioctl(s, FIONREAD, &there) == 0)
            sched_yield();
}

/* Each of two pieces, and both. */
static void read_pieces(int s, size_t size)
{
    struct iovec first[2] = {{data, size}, {data, 1}}, second[2] = {{data, 1}, {data, size}},
                 both[2] = {{data, 1}, {data, SIZE_MAX}};
    struct msghdr m = {.msg_iov = first, .msg_iovlen = 1};
    say_of("readv", size, readv(s, first, 1));
    say_of("readv, the first", size, readv(s, first, 2));
    say_of("readv, the second", size, readv(s, second, 2));
    say_of("readv, nothing in all", size, readv(s, both, 2));
    say_of("preadv2", size, preadv2(s, second, 2, -1, 0));
    say_of("recvmsg", size, recvmsg(s, &m, MSG_DONTWAIT));
    m.msg_iovlen = 2;
    say_of("recvmsg, two", size, recvmsg(s, &m, MSG_DONTWAIT));
    say_of("recvmsg, to see", size, recvmsg(s, &m, MSG_DONTWAIT | MSG_PEEK));
}

static void read_all(int c, int s)
{
    fcntl(s, F_SETFL, O_NONBLOCK);
    for (unsigned i = 0; i < 2 * SIZES; i++) {
        size_t size = sizes[i / 2];
        bool full = i % 2;
        refill(c, s, full);
        say_of("read", size, read(s, data, size));
        refill(c, s, full);
        say_of("recv to see", size, recv(s, data, size, MSG_PEEK));
        say_of("recv to drop", size, recv(s, data, size, MSG_TRUNC));
        refill(c, s, full);
        say_of("recvfrom", size, recvfrom(s, data, size, 0, NULL, NULL));
        refill(c, s, full);
        read_pieces(s, size);
        printf("%.8s\n", data);
    }
}

static void reads(void)
{
    int c, s;
    pair(&c, &s);
    read_all(c, s);
}

static const size_t no_sizes[] = {(size_t)SSIZE_MAX + 1, SIZE_MAX};

/* What of them fails before a byte is looked at. */
static void writes(void)
{
    int c, s;
    pair(&c, &s);
    for (unsigned i = 0; i < 2; i++) {
        struct iovec one[2] = {{data, 1}, {data, no_sizes[i]}};
        struct msghdr m = {.msg_iov = one, .msg_iovlen = 2};
        struct mmsghdr mm = {.msg_hdr = m};
        say_of("write", no_sizes[i], write(c, data, no_sizes[i]));
        say_of("writev", no_sizes[i], writev(c, one, 2));
        say_of("pwritev2", no_sizes[i], pwritev2(c, one, 2, -1, 0));
        say_of("sendmsg", no_sizes[i], sendmsg(c, &m, 0));
        say_of("sendmmsg", no_sizes[i], sendmmsg(c, &mm, 1, 0));
        m.msg_iovlen = SIZE_MAX;
        say_of("sendmsg of as many", no_sizes[i], sendmsg(c, &m, 0));
        say_of("recvmsg of as many", no_sizes[i], recvmsg(c, &m, MSG_DONTWAIT));
    }
    say("nothing has come", recv(s, data, 1, MSG_DONTWAIT));
}

static void datagrams(void)
{
    struct sockaddr_in at = here;
    socklen_t len = sizeof at;
    int s = socket(AF_INET, SOCK_DGRAM, 0), c = socket(AF_INET, SOCK_DGRAM, 0);
    say("bind", bind(s, (struct sockaddr *)&at, sizeof at));
    getsockname(s, (struct sockaddr *)&at, &len);
    say("connect", connect(c, (struct sockaddr *)&at, sizeof at));
    read_all(c, s);
    for (unsigned i = 0; i < SIZES; i++) {
        struct iovec one[2] = {{data, 1}, {data, sizes[i]}};
        struct msghdr m = {.msg_iov = one, .msg_iovlen = 2};
        say_of("write", sizes[i], write(c, data, sizes[i]));
        say_of("send", sizes[i], send(c, data, sizes[i], 0));
        say_of("sendto", sizes[i], sendto(s, data, sizes[i], 0, (struct sockaddr *)&at, sizeof at));
        say_of("writev", sizes[i], writev(c, one, 2));
        say_of("sendmsg", sizes[i], sendmsg(c, &m, 0));
    }
    say("nothing has come", recv(s, data, 1, MSG_DONTWAIT));
}

static void files(void)
{
    int c, s, p[2];
    FILE *file = tmpfile();
    pair(&c, &s);
    say("pipe", pipe2(p, O_NONBLOCK));
    fputs("0123", file);
    fflush(file);
    fcntl(s, F_SETFL, O_NONBLOCK);
    for (unsigned i = 0; i < SIZES; i++) {
        off_t at = 0;
        if (say_of("sendfile", sizes[i], sendfile(c, fileno(file), &at, sizes[i])) > 0)
            wait_for(s, POLLIN);
        printf("at %ld\n", (long)at);
        say_of("splice into a pipe", sizes[i], splice(s, NULL, p[1], NULL, sizes[i], SPLICE_F_NONBLOCK));
        say_of("splice of a pipe", sizes[i], splice(p[0], NULL, s, NULL, sizes[i], SPLICE_F_NONBLOCK));
        while (recv(s, data, sizeof data, 0) > 0)
            ;
    }
}

static const socklen_t lengths[] = {127, 128, 129, 1000, INT_MAX, (socklen_t)INT_MAX + 1, (socklen_t)-1};
#define LENGTHS (sizeof lengths / sizeof *lengths)

static void say_name(const char *what, socklen_t asked, long rc, socklen_t len)
{
    say_of(what, asked, rc);
    printf("%u\n", len);
}

static void names(void)
{
    union {
        struct sockaddr any;
        struct sockaddr_in in;
        char room[256];
    } at = {0}, from;
    int c, s, udp = socket(AF_INET, SOCK_DGRAM, 0);
    struct iovec one = {data, 1};
    socklen_t len = sizeof at.in;
    pair(&c, &s);
    at.in = here;
    say("bind", bind(udp, &at.any, sizeof at.in));
    getsockname(udp, &at.any, &len);
    for (unsigned i = 0; i < LENGTHS; i++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0), l = listener(&from.in), fresh = socket(AF_INET, SOCK_DGRAM, 0);
        len = lengths[i];
        say_name("getsockname", len, getsockname(s, &from.any, &len), len);
        len = lengths[i];
        say_name("getpeername", len, getpeername(s, &from.any, &len), len);
        len = lengths[i];
        say_name("getpeername of none", len, getpeername(fd, &from.any, &len), len);
        at.in.sin_port = from.in.sin_port;
        len = sizeof from;
        getsockname(l, &from.any, &len);
        from.in.sin_family = AF_INET;
        say_of("connect", lengths[i], connect(fd, &from.any, lengths[i]));
        say_of("connect datagrams", lengths[i], connect(fresh, &from.any, lengths[i]));
        close(fd);
        fd = socket(AF_INET, SOCK_STREAM, 0);
        say("connect", connect(fd, &from.any, sizeof from.in));
        wait_for(l, POLLIN);
        len = lengths[i];
        int got = accept(l, &from.any, &len);
        say_name("accept", lengths[i], got < 0 ? -1 : 0, len);
        say("more to accept", poll(&(struct pollfd){l, POLLIN, 0}, 1, 0));
        close(got);
        close(fd);
        close(l);
        close(fresh);
        fd = socket(AF_INET, SOCK_STREAM, 0);
        from.in = here;
        say_of("bind", lengths[i], bind(fd, &from.any, lengths[i]));
        close(fd);
        getsockname(udp, &at.any, &(socklen_t){sizeof at});
        say_of("sendto", lengths[i], sendto(udp, "x", 1, 0, &at.any, lengths[i]));
        struct msghdr m = {.msg_name = &at, .msg_namelen = lengths[i], .msg_iov = &one, .msg_iovlen = 1};
        say_of("sendmsg", lengths[i], sendmsg(udp, &m, 0));
        say_of("sendmsg by a connection", lengths[i], sendmsg(c, &m, 0));
        (void)!sendto(udp, "y", 1, 0, &at.any, sizeof at.in);
        wait_for(udp, POLLIN);
        len = lengths[i];
        say_name("recvfrom", len, recvfrom(udp, data, 1, 0, &from.any, &len), len);
        m.msg_name = &from;
        m.msg_namelen = lengths[i];
        (void)!sendto(udp, "y", 1, 0, &at.any, sizeof at.in);
        wait_for(udp, POLLIN);
        say_of("recvmsg", lengths[i], recvmsg(udp, &m, MSG_DONTWAIT));
        printf("%u\n", m.msg_namelen);
        while (recv(udp, data, sizeof data, MSG_DONTWAIT) >= 0)
            ;
        m.msg_namelen = lengths[i];
        refill(c, s, true);
        len = lengths[i];
        say_name("recvfrom of a connection", len, recvfrom(s, data, 1, 0, &from.any, &len), len);
        say_of("recvmsg of a connection", lengths[i], recvmsg(s, &m, MSG_DONTWAIT));
        printf("%u\n", m.msg_namelen);
        while (recv(s, data, sizeof data, MSG_DONTWAIT) > 0)
            ;
    }
}

static void options(void)
{
    static const struct {
        int level, name;
    } all[] = {{SOL_SOCKET, SO_ERROR},     {SOL_SOCKET, SO_ACCEPTCONN}, {SOL_SOCKET, SO_REUSEADDR},
               {SOL_SOCKET, SO_REUSEPORT}, {SOL_SOCKET, SO_LINGER},     {SOL_SOCKET, SO_PEERNAME},
               {SOL_SOCKET, SO_RCVTIMEO},  {IPPROTO_TCP, TCP_NODELAY},  {IPPROTO_TCP, TCP_CORK},
               {IPPROTO_TCP, TCP_MAXSEG},  {IPPROTO_TCP, TCP_INFO},     {IPPROTO_IP, IP_MTU},
               {IPPROTO_TCP, TCP_KEEPIDLE}};
    int c, s, fds[4];
    pair(&c, &s);
    fds[0] = s;
    fds[1] = listener(&(struct sockaddr_in){0});
    fds[2] = socket(AF_INET, SOCK_STREAM, 0);
    fds[3] = socket(AF_INET, SOCK_DGRAM, 0);
    for (unsigned k = 0; k < 4; k++)
        for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
            for (unsigned n = 4; n < LENGTHS; n++) {
                char room[1024];
                socklen_t len = lengths[n];
                bool huge = len > INT_MAX;
                long rc = getsockopt(fds[k], all[i].level, all[i].name, room, &len);
                printf("%u, %d of %d in %u: %s, %u\n", k, all[i].name, all[i].level, lengths[n],
                       rc ? name_of(errno) : "0", huge ? len : 0);
                if (huge)
                    say("set", setsockopt(fds[k], all[i].level, all[i].name, room, lengths[n]));
            }
}

static const struct sequence sequences[] = {{"reads", reads}, {"writes", writes}, {"datagrams", datagrams},
                                            {"files", files}, {"names", names},   {"options", options},
                                            {NULL, NULL}};

int main(int argc, char **argv)
{
    return run_with_address(sequences, argc, argv);
}

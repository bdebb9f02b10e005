/* A program that knows nothing of corelane: sockets of IPv6 that serve IPv4, too. It prints the results of its calls;
 * the test runs it on Linux' sockets and on ours, and compares (../test_twin.py).
 *
 *   six ADDRESS SEQUENCE */
#include "here.h"

#include <sys/uio.h>
#include <stdbool.h>
#include <unistd.h>

static int new_socket(int type)
{
    int fd = socket(AF_INET6, type | SOCK_CLOEXEC, 0), off = 0;
    say("IPV6_V6ONLY", setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off));
    return fd;
}

/* `here` in disguise (RFC 4291, section 2.5.5.2). */
static struct sockaddr_in6 mapped(in_port_t port)
{
    struct sockaddr_in6 at = {.sin6_family = AF_INET6, .sin6_port = port};
    at.sin6_addr.s6_addr[10] = at.sin6_addr.s6_addr[11] = 0xff;
    memcpy(&at.sin6_addr.s6_addr[12], &here.sin_addr, 4);
    return at;
}

static void say_name(const char *what, int fd, int (*ask)(int, struct sockaddr *, socklen_t *))
{
    struct sockaddr_in6 at = {0}, own = mapped(0);
    socklen_t len = sizeof at;
    say(what, ask(fd, (struct sockaddr *)&at, &len));
    printf("family %d, %u bytes, any %d, ours %d\n", at.sin6_family, len, IN6_IS_ADDR_UNSPECIFIED(&at.sin6_addr) != 0,
           memcmp(&at.sin6_addr, &own.sin6_addr, 16) == 0);
}

static int ask_own(int fd, struct sockaddr *at, socklen_t *len)
{
    return getsockname(fd, at, len);
}

static int ask_peer(int fd, struct sockaddr *at, socklen_t *len)
{
    return getpeername(fd, at, len);
}

static void say_packets(const char *what, int fd)
{
    int bytes = 0;
    socklen_t len = sizeof bytes;
    say(what, getsockopt(fd, IPPROTO_IPV6, IPV6_MTU, &bytes, &len));
    printf("%d\n", bytes >= 1280);
}

/* Bound to `::`; its port, network byte order. */
static in_port_t bind_any(int fd)
{
    struct sockaddr_in6 at = {.sin6_family = AF_INET6};
    socklen_t len = sizeof at;
    say("bind", bind(fd, (struct sockaddr *)&at, sizeof at));
    say("IPV6_V6ONLY, too late", setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &(int){1}, sizeof(int)));
    getsockname(fd, (struct sockaddr *)&at, &len);
    return at.sin6_port;
}

static void streams(void)
{
    int l = new_socket(SOCK_STREAM), c = socket(AF_INET, SOCK_STREAM, 0), d = new_socket(SOCK_STREAM);
    char data[8];
    struct sockaddr_in at = here;
    at.sin_port = bind_any(l);
    struct sockaddr_in6 at6 = mapped(at.sin_port);
    say("listen", listen(l, 4));
    say_name("of the listener", l, ask_own);
    say("connect by IPv4", connect(c, (struct sockaddr *)&at, sizeof at));
    int s = say_fd("accept", accept(l, NULL, NULL));
    say_name("own", s, ask_own);
    say_name("peer", s, ask_peer);
    say_packets("packets", s);
    say_packets("of a listener", l);
    say("write", write(c, "abc", 3));
    wait_for(s, POLLIN);
    say("read", read(s, data, sizeof data));
    say("connect in disguise", connect(d, (struct sockaddr *)&at6, sizeof at6));
    s = say_fd("accept", accept(l, NULL, NULL));
    say_name("own", d, ask_own);
    say_name("peer", d, ask_peer);
    int too_short = new_socket(SOCK_STREAM);
    say("a short name", bind(too_short, (struct sockaddr *)&at6, 23));
    say("without a scope", bind(too_short, (struct sockaddr *)&at6, 24));
}

/* With where each came to, as IPv6 tells it. */
static void datagrams(void)
{
    int s = new_socket(SOCK_DGRAM), c = socket(AF_INET, SOCK_DGRAM, 0), d = new_socket(SOCK_DGRAM), on = 1;
    struct sockaddr_in at = here;
    at.sin_port = bind_any(s);
    struct sockaddr_in6 at6 = mapped(at.sin_port), from;
    say("IPV6_RECVPKTINFO", setsockopt(s, IPPROTO_IPV6, IPV6_RECVPKTINFO, &on, sizeof on));
    say("IP_PKTINFO", setsockopt(s, IPPROTO_IP, IP_PKTINFO, &on, sizeof on));
    for (int i = 0; i < 2; i++) {
        char data[8], control[256];
        struct iovec vec = {data, sizeof data};
        struct msghdr m = {.msg_name = &from,
                           .msg_namelen = sizeof from,
                           .msg_iov = &vec,
                           .msg_iovlen = 1,
                           .msg_control = control,
                           .msg_controllen = sizeof control};
        if (i)
            say("sendto in disguise", sendto(d, "xy", 2, 0, (struct sockaddr *)&at6, sizeof at6));
        else
            say("sendto by IPv4", sendto(c, "x", 1, 0, (struct sockaddr *)&at, sizeof at));
        wait_for(s, POLLIN);
        say("recvmsg", recvmsg(s, &m, 0));
        printf("name of %u bytes, from ours %d\n", m.msg_namelen, memcmp(&from.sin6_addr, &at6.sin6_addr, 16) == 0);
        for (struct cmsghdr *p = CMSG_FIRSTHDR(&m); p; p = CMSG_NXTHDR(&m, p)) {
            struct in6_pktinfo info = {0};
            bool six = p->cmsg_level == IPPROTO_IPV6 && p->cmsg_type == IPV6_PKTINFO;
            if (six)
                memcpy(&info, CMSG_DATA(p), sizeof info);
            printf("level %d, type %d, %zu bytes, to ours %d, interface %u\n", p->cmsg_level, p->cmsg_type,
                   (size_t)p->cmsg_len, memcmp(&info.ipi6_addr, &at6.sin6_addr, 16) == 0, info.ipi6_ifindex);
        }
    }
}

/* For IPv6 alone: Linux', whoever asks. */
static void alone(void)
{
    struct sockaddr_in6 at = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    socklen_t len = sizeof at;
    int l = socket(AF_INET6, SOCK_STREAM, 0), c = socket(AF_INET6, SOCK_STREAM, 0), on = 1;
    char data[8];
    say("IPV6_V6ONLY", setsockopt(l, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on));
    at.sin6_port = bind_any(l);
    say("listen", listen(l, 4));
    say("connect", connect(c, (struct sockaddr *)&at, len));
    int s = say_fd("accept", accept(l, NULL, NULL));
    say("write", write(c, "abc", 3));
    wait_for(s, POLLIN);
    say("read", read(s, data, sizeof data));
}

static const struct sequence sequences[] = {
    {"streams", streams}, {"datagrams", datagrams}, {"alone", alone}, {NULL, NULL}};

int main(int argc, char **argv)
{
    return run_with_address(sequences, argc, argv);
}

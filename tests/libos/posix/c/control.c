/* A program that knows nothing of corelane: what datagrams are told with, and sent with, in control data. It prints the
 * results of its calls; the test runs it on Linux' sockets and on ours, and compares (../test_twin.py).
 *
 *   control ADDRESS SEQUENCE */
#include "bound.h"

#include <sys/uio.h>
#include <unistd.h>

static void set(int fd, int level, int name, int value)
{
    say("set", setsockopt(fd, level, name, &value, sizeof value));
}

static void say_info(const struct in_pktinfo *info)
{
    printf("IP_PKTINFO: interface %d, from ours %d, to ours %d\n", info->ipi_ifindex,
           info->ipi_spec_dst.s_addr == here.sin_addr.s_addr, info->ipi_addr.s_addr == here.sin_addr.s_addr);
}

/* One piece; `port` is the receiver's, network byte order. */
static void say_piece(const struct cmsghdr *c, in_port_t port)
{
    struct in_pktinfo info = {0};
    struct sockaddr_in to = {0};
    int number = 0;
    size_t bytes = c->cmsg_len - CMSG_LEN(0);
    if (c->cmsg_level != IPPROTO_IP)
        printf("level %d, type %d\n", c->cmsg_level, c->cmsg_type);
    else if (c->cmsg_type == IP_PKTINFO)
        say_info(memcpy(&info, CMSG_DATA(c), bytes));
    else if (c->cmsg_type == IP_TTL)
        printf("IP_TTL: %d of %zu bytes\n", *(int *)memcpy(&number, CMSG_DATA(c), bytes), bytes);
    else if (c->cmsg_type == IP_TOS)
        printf("IP_TOS: %d of %zu bytes\n", *(int *)memcpy(&number, CMSG_DATA(c), bytes), bytes);
    else if (c->cmsg_type == IP_ORIGDSTADDR) {
        memcpy(&to, CMSG_DATA(c), bytes);
        printf("IP_ORIGDSTADDR: family %d, address %d, port %d\n", to.sin_family,
               to.sin_addr.s_addr == here.sin_addr.s_addr, to.sin_port == port);
    } else
        printf("type %d\n", c->cmsg_type);
}

/* Receive one with so much room for control data. */
static void receive(int fd, size_t room, int flags, in_port_t port)
{
    union {
        struct cmsghdr align;
        char bytes[512];
    } control;
    char data[16];
    struct iovec vec = {data, sizeof data};
    struct msghdr m = {.msg_iov = &vec, .msg_iovlen = 1, .msg_control = room ? &control : NULL, .msg_controllen = room};
    wait_for(fd, POLLIN);
    say("recvmsg", recvmsg(fd, &m, flags));
    printf("control: %zu bytes, cut %d\n", m.msg_controllen, (m.msg_flags & MSG_CTRUNC) != 0);
    struct cmsghdr *c = m.msg_control ? CMSG_FIRSTHDR(&m) : NULL;
    if (c && c->cmsg_len > m.msg_controllen)
        printf("a piece that says %zu bytes\n", (size_t)c->cmsg_len);
    for (; c && !(m.msg_flags & MSG_CTRUNC); c = CMSG_NXTHDR(&m, c))
        say_piece(c, port);
}

static void beside(void)
{
    static const int names[] = {IP_PKTINFO, IP_RECVTTL, IP_RECVTOS, IP_RECVORIGDSTADDR};
    struct sockaddr_in at;
    int s = bound(&at), c = new_socket();
    for (int i = 0; i < 4; i++) {
        set(s, IPPROTO_IP, names[i], 1);
        send_at(c, "x", 1, 0, &at);
        receive(s, 512, 0, at.sin_port);
    }
    send_at(c, "xy", 2, 0, &at);
    receive(s, 512, MSG_PEEK, at.sin_port);
    receive(s, 512, 0, at.sin_port);
    for (int i = 0; i < 3; i++) {
        say("off", setsockopt(s, IPPROTO_IP, names[i], "\0", 1)); /* a byte will do */
        send_at(c, "x", 1, 0, &at);
        receive(s, 512, 0, at.sin_port);
    }
}

static void cut(void)
{
    static const size_t rooms[] = {0, 8, 16, 20, 28, 32, 47, 48, 50, 56, 100};
    struct sockaddr_in at;
    int s = bound(&at), c = new_socket();
    set(s, IPPROTO_IP, IP_PKTINFO, 1);
    set(s, IPPROTO_IP, IP_RECVTTL, 1);
    for (unsigned i = 0; i < sizeof rooms / sizeof *rooms; i++) {
        send_at(c, "x", 1, 0, &at);
        receive(s, rooms[i], 0, at.sin_port);
    }
}

/* Send with one piece of so many bytes, which says that it has `says`. */
static void send_with(int fd, const struct sockaddr_in *to, int type, const void *value, size_t bytes, size_t says)
{
    union {
        struct cmsghdr align;
        char bytes[128];
    } control = {{0}};
    struct iovec vec = {"abc", 3};
    struct msghdr m = {.msg_name = (void *)to,
                       .msg_namelen = sizeof *to,
                       .msg_iov = &vec,
                       .msg_iovlen = 1,
                       .msg_control = &control,
                       .msg_controllen = CMSG_SPACE(bytes)};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    *c = (struct cmsghdr){.cmsg_len = says, .cmsg_level = IPPROTO_IP, .cmsg_type = type};
    memcpy(CMSG_DATA(c), value, bytes);
    say("sendmsg", sendmsg(fd, &m, 0));
}

static void sent(void)
{
    struct sockaddr_in at;
    struct in_pktinfo info = {0};
    char data[8];
    int s = bound(&at), c = new_socket();
    for (int own = 0; own < 2; own++) {
        info.ipi_spec_dst.s_addr = own ? here.sin_addr.s_addr : 0;
        send_with(c, &at, IP_PKTINFO, &info, sizeof info, CMSG_LEN(sizeof info));
        wait_for(s, POLLIN);
        say("recv", recv(s, data, 8, 0));
    }
    send_with(c, &at, IP_PKTINFO, &info, sizeof info, CMSG_LEN(4));
    send_with(c, &at, IP_PKTINFO, &info, sizeof info, 3);
    send_with(c, &at, IP_PKTINFO, &info, sizeof info, 1000);
    info.ipi_spec_dst.s_addr = htonl(0xc0000201); /* 192.0.2.1 is nobody's (RFC 5737) */
    send_with(c, &at, IP_PKTINFO, &info, sizeof info, CMSG_LEN(sizeof info));
    say("nothing has come", recv(s, data, 8, MSG_DONTWAIT));
}

static const struct sequence sequences[] = {{"beside", beside}, {"cut", cut}, {"sent", sent}, {NULL, NULL}};

int main(int argc, char **argv)
{
    return run_with_address(sequences, argc, argv);
}

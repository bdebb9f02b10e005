/* An arm of `corelane bench raft`: as udp_put.c, but all clients of the process share one socket of the kernel, as
 * etcd_put.c's share one connection. The benchmark compiles this file by itself with -DCORELANE_UDP_MUX_PUT; in
 * libcorelane it is empty.
 *
 *     udp_mux_put ADDRESS PORT CLIENTS SECONDS KEY_BYTES VALUE_BYTES
 *
 * All puts that are due leave with one system call and all answers that came together are taken with one (UDP_SEGMENT,
 * UDP_GRO: udp(7)), as with a TCP connection: each is a datagram of memcached's all the same, and tells by its
 * request's number whose it is. Resending, seconds and output are udp_put.c's. */
#ifdef CORELANE_UDP_MUX_PUT

#include "udp_put.h"
#include <netinet/udp.h>

#define MAX_BATCH 64 /* datagrams of one UDP_SEGMENT: older kernels' most */
#define CLIENT_BITS 10

static struct client clients[MAX_CLIENTS], *due[MAX_CLIENTS];
static unsigned n_due;
static int fd;

static void send_due(void)
{
    struct iovec pieces[MAX_BATCH];
    for (unsigned done = 0; done < n_due;) {
        struct msghdr message = {.msg_iov = pieces};
        uint64_t now = now_ns();
        while (message.msg_iovlen < MAX_BATCH && done < n_due) {
            struct client *c = due[done++];
            c->sent_ns = now;
            pieces[message.msg_iovlen++] = (struct iovec){c->datagram, c->bytes};
        }
        if (sendmsg(fd, &message, 0) < 0 && !may_pass(errno))
            die("send", strerror(errno));
    }
    n_due = 0;
}

static void put(struct client *c)
{
    make_put(c, (uint16_t)(c->request + (1u << CLIENT_BITS))); /* the low bits say whose */
    due[n_due++] = c;
}

/* What the kernel put together: datagrams of `size` bytes, of which the last may be shorter. */
static void take(const char *data, size_t bytes, size_t size)
{
    for (size_t at = 0; at < bytes; at += size) {
        uint16_t request;
        memcpy(&request, data + at, sizeof request);
        struct client *c = &clients[ntohs(request) % (1u << CLIENT_BITS)];
        if (c < clients + options.clients && take_answer(c, data + at, bytes - at < size ? bytes - at : size))
            put(c);
    }
}

/* All answers that are there, waiting for the first for 10 ms at most. */
static void receive(void)
{
    static char data[1 << 16];
    for (int flags = 0;; flags = MSG_DONTWAIT) {
        char control[CMSG_SPACE(sizeof(int))];
        struct iovec piece = {data, sizeof data};
        struct msghdr message = {
            .msg_iov = &piece, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
        ssize_t n = recvmsg(fd, &message, flags);
        if (n < 0 && may_pass(errno))
            return;
        if (n < 0)
            die("receive", strerror(errno));
        int size = (int)n;
        for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c))
            if (c->cmsg_level == SOL_UDP && c->cmsg_type == UDP_GRO)
                memcpy(&size, CMSG_DATA(c), sizeof size);
        if (size > HEADER)
            take(data, (size_t)n, (size_t)size);
    }
}

static void send_again(void)
{
    for (unsigned i = 0; i < options.clients; i++)
        if (is_late(&clients[i]))
            due[n_due++] = &clients[i];
}

int main(int argc, char **argv)
{
    struct sockaddr_in to = begin(argc, argv);
    struct timeval patience = {.tv_usec = 10000};
    int one = 1;
    fd = socket(AF_INET, SOCK_DGRAM, 0);
    for (unsigned i = 0; i < options.clients; i++) {
        clients[i].request = (uint16_t)i;
        put(&clients[i]);
    }
    int size = (int)clients[0].bytes; /* all puts are as long */
    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to) < 0 ||
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) < 0 ||
        setsockopt(fd, SOL_UDP, UDP_SEGMENT, &size, sizeof size) < 0 ||
        setsockopt(fd, SOL_UDP, UDP_GRO, &one, sizeof one) < 0)
        die("open a socket", strerror(errno));
    while (!is_over()) {
        send_due();
        receive();
        if (is_time_to_look())
            send_again();
    }
    return finish();
}

#else
typedef int cl_udp_mux_put_is_compiled_by_itself;
#endif

/* An arm of `corelane bench raft`: ordinary clients that put over memcached's UDP by sockets of the kernel, as fast as
 * they are answered. The benchmark compiles this file by itself with -DCORELANE_UDP_PUT, as it does etcd_put.c; in
 * libcorelane it is empty.
 *
 *     udp_put ADDRESS PORT CLIENTS SECONDS KEY_BYTES VALUE_BYTES
 *
 * Each client has a socket of its own and one put outstanding. One without an answer for 100 ms is sent again and keeps
 * its beginning; one that was not stored is put anew. SECONDS begin 0.3 s after the first answer. To stdout, as 64-bit
 * numbers: how many were answered, sent again and refused, and the answered ones' latencies in nanoseconds. */
#ifdef CORELANE_UDP_PUT

#include "udp_put.h"
#include <sys/epoll.h>

static struct client clients[MAX_CLIENTS];

static void send_put(struct client *c)
{
    c->sent_ns = now_ns();
    if (send(c->fd, c->datagram, c->bytes, 0) < 0 && !may_pass(errno))
        die("send", strerror(errno));
}

static void put(struct client *c)
{
    make_put(c, (uint16_t)(c->request + 1));
    send_put(c);
}

static void receive(struct client *c)
{
    char answer[2048];
    ssize_t n;
    while ((n = recv(c->fd, answer, sizeof answer, MSG_DONTWAIT)) > 0)
        if (take_answer(c, answer, (size_t)n))
            put(c);
}

static void send_again(void)
{
    for (unsigned i = 0; i < options.clients; i++)
        if (is_late(&clients[i]))
            send_put(&clients[i]);
}

int main(int argc, char **argv)
{
    struct epoll_event events[MAX_CLIENTS];
    struct sockaddr_in to = begin(argc, argv);
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    for (unsigned i = 0; i < options.clients; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.u32 = i};
        clients[i].fd = socket(AF_INET, SOCK_DGRAM, 0);
        if (clients[i].fd < 0 || connect(clients[i].fd, (struct sockaddr *)&to, sizeof to) < 0 ||
            epoll_ctl(epoll, EPOLL_CTL_ADD, clients[i].fd, &event) < 0)
            die("open a socket", strerror(errno));
        put(&clients[i]);
    }
    while (!is_over()) {
        int n = epoll_wait(epoll, events, MAX_CLIENTS, 10);
        if (n < 0 && errno != EINTR)
            die("wait", strerror(errno));
        for (int i = 0; i < n; i++)
            receive(&clients[events[i].data.u32]);
        if (is_time_to_look())
            send_again();
    }
    return finish();
}

#else
typedef int cl_udp_put_is_compiled_by_itself;
#endif

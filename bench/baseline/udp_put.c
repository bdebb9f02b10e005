/* An arm of `corelane bench raft`: ordinary clients that put over memcached's UDP by sockets of the kernel, as fast as they are
 * answered. The benchmark compiles this file by itself with -DCORELANE_UDP_PUT, as it does etcd_put.c; in libcorelane it is empty.
 *
 *     udp_put ADDRESS PORT CLIENTS SECONDS KEY_BYTES VALUE_BYTES
 *
 * Each client has a socket of its own and one put outstanding. One without an answer for 100 ms is sent again and keeps its
 * beginning; one that was not stored is put anew. SECONDS begin 0.3 s after the first answer. To stdout, as 64-bit numbers: how many
 * were answered, sent again and refused, and the answered ones' latencies in nanoseconds. */
#ifdef CORELANE_UDP_PUT

#include "load.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#define MAX_CLIENTS 1024
#define MAX_KEY 250
#define MAX_VALUE 1024
#define MAX_LATENCIES (16u << 20)
#define HEADER 8 /* memcached's, of a datagram: request, number, count, 0; 16 bits each */
#define PATIENCE_NS 100000000u
#define WARM_NS 300000000u
#define GIVE_UP_NS 10000000000u
#define KEYS 1000

struct client {
    int fd;
    uint16_t request;
    uint64_t begun_ns, sent_ns;
    size_t bytes;
    char datagram[HEADER + MAX_KEY + MAX_VALUE + 64];
};

static struct client clients[MAX_CLIENTS];
static uint64_t *latencies_ns, totals[3]; /* answered, sent again, refused */
static uint64_t started_ns, begin_ns, end_ns, n_puts;
static unsigned n_clients, key_bytes, value_bytes;

static void send_put(struct client *c)
{
    c->sent_ns = now_ns();
    if (send(c->fd, c->datagram, c->bytes, 0) < 0 && errno != EAGAIN && errno != ENOBUFS && errno != ECONNREFUSED)
        die("send", strerror(errno));
}

static void put(struct client *c)
{
    uint16_t header[4] = {htons(++c->request), 0, htons(1), 0};
    char *p = c->datagram + HEADER;
    memcpy(c->datagram, header, sizeof header);
    p += sprintf(p, "set %0*u 0 0 %u\r\n", (int)key_bytes, (unsigned)(n_puts++ % KEYS), value_bytes);
    memset(p, 'v', value_bytes);
    memcpy(p + value_bytes, "\r\n", 2);
    c->bytes = (size_t)(p + value_bytes + 2 - c->datagram);
    c->begun_ns = now_ns();
    send_put(c);
}

/* Take all that has come for a client. An answer to an earlier put, which was sent twice, is none. */
static void receive(struct client *c, double seconds)
{
    char answer[2048];
    uint16_t request;
    ssize_t n;
    while ((n = recv(c->fd, answer, sizeof answer, MSG_DONTWAIT)) > HEADER) {
        memcpy(&request, answer, sizeof request);
        if (ntohs(request) != c->request)
            continue;
        uint64_t now = now_ns();
        bool stored = n >= HEADER + 6 && !memcmp(answer + HEADER, "STORED", 6);
        if (stored && !end_ns) {
            begin_ns = now + WARM_NS;
            end_ns = begin_ns + (uint64_t)(seconds * 1e9);
        }
        if (end_ns && now >= begin_ns && now < end_ns) {
            totals[2] += !stored;
            if (stored && totals[0] < MAX_LATENCIES)
                latencies_ns[totals[0]++] = now - c->begun_ns;
        }
        put(c);
    }
}

static void send_again(void)
{
    uint64_t now = now_ns();
    if (!end_ns && now - started_ns > GIVE_UP_NS)
        die("put", "nothing was stored for 10 s");
    for (unsigned i = 0; i < n_clients; i++) {
        if (now - clients[i].sent_ns < PATIENCE_NS)
            continue;
        totals[1] += end_ns && now >= begin_ns;
        send_put(&clients[i]);
    }
}

static void run(int epoll, double seconds)
{
    struct epoll_event events[MAX_CLIENTS];
    uint64_t look_ns = started_ns = now_ns();
    for (unsigned i = 0; i < n_clients; i++)
        put(&clients[i]);
    for (uint64_t now = started_ns; !end_ns || now < end_ns; now = now_ns()) {
        int n = epoll_wait(epoll, events, MAX_CLIENTS, 10);
        if (n < 0 && errno != EINTR)
            die("wait", strerror(errno));
        for (int i = 0; i < n; i++)
            receive(&clients[events[i].data.u32], seconds);
        if (now - look_ns < PATIENCE_NS / 10)
            continue;
        look_ns = now;
        send_again();
    }
}

int main(int argc, char **argv)
{
    if (argc != 7)
        die("usage", "ADDRESS PORT CLIENTS SECONDS KEY_BYTES VALUE_BYTES");
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(argv[2]))};
    n_clients = (unsigned)atoi(argv[3]);
    key_bytes = (unsigned)atoi(argv[5]);
    value_bytes = (unsigned)atoi(argv[6]);
    if (!inet_aton(argv[1], &to.sin_addr) || n_clients < 1 || n_clients > MAX_CLIENTS || key_bytes < 3 ||
        key_bytes > MAX_KEY || value_bytes > MAX_VALUE)
        die("usage", "an IPv4 address, 1 to 1024 clients, keys of 3 to 250 bytes, values of at most 1024");
    latencies_ns = malloc(MAX_LATENCIES * sizeof *latencies_ns);
    int epoll = epoll_create1(0);
    if (!latencies_ns || epoll < 0)
        die("begin", strerror(errno));
    for (unsigned i = 0; i < n_clients; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.u32 = i};
        clients[i].fd = socket(AF_INET, SOCK_DGRAM, 0);
        if (clients[i].fd < 0 || connect(clients[i].fd, (struct sockaddr *)&to, sizeof to) < 0 ||
            epoll_ctl(epoll, EPOLL_CTL_ADD, clients[i].fd, &event) < 0)
            die("open a socket", strerror(errno));
    }
    run(epoll, atof(argv[4]));
    fwrite(totals, sizeof totals, 1, stdout);
    fwrite(latencies_ns, sizeof *latencies_ns, totals[0], stdout);
    return fflush(stdout) ? 1 : 0;
}

#else
typedef int cl_udp_put_is_compiled_by_itself;
#endif

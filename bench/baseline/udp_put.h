/* What the clients of udp_put.c and udp_mux_put.c share: their puts, by memcached's UDP, and what is counted of them.
 * Each is a program by itself. */
#ifndef CORELANE_BENCH_BASELINE_UDP_PUT_H
#define CORELANE_BENCH_BASELINE_UDP_PUT_H

#include "load.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>

#define MAX_VALUE 1024
#define HEADER 8 /* memcached's, of a datagram: request, number, count, 0; 16 bits each */
#define PATIENCE_NS 100000000u
#define WARM_NS 300000000u
#define GIVE_UP_NS 10000000000u

struct client {
    int fd; /* of its own, if it has one */
    uint16_t request;
    uint64_t begun_ns, sent_ns;
    size_t bytes;
    char datagram[HEADER + MAX_KEY + MAX_VALUE + 64];
};

static struct {
    unsigned clients, key_bytes, value_bytes;
    double seconds;
} options;
static uint64_t *latencies_ns, totals[3]; /* answered, sent again, refused */
static uint64_t started_ns, looked_ns, begin_ns, end_ns, n_puts;

/* Whether an error of a socket may be gone the next time: a datagram was lost, no more. */
static inline bool may_pass(int error)
{
    return error == EAGAIN || error == EINTR || error == ENOBUFS || error == ECONNREFUSED;
}

/* The client's next put, under a request of that number. */
static inline void make_put(struct client *c, uint16_t request)
{
    uint16_t header[4] = {htons(request), 0, htons(1), 0};
    char *p = c->datagram + HEADER;
    c->request = request;
    memcpy(c->datagram, header, sizeof header);
    p += sprintf(p, "set %0*u 0 0 %u\r\n", (int)options.key_bytes, (unsigned)(n_puts++ % KEYS), options.value_bytes);
    memset(p, 'v', options.value_bytes);
    memcpy(p + options.value_bytes, "\r\n", 2);
    c->bytes = (size_t)(p + options.value_bytes + 2 - c->datagram);
    c->begun_ns = now_ns();
}

/* Whether a datagram answers the client's put, and not one before it, which was sent twice. Counts it. */
static inline bool take_answer(const struct client *c, const char *answer, size_t n)
{
    uint16_t request;
    if (n <= HEADER)
        return false;
    memcpy(&request, answer, sizeof request);
    if (ntohs(request) != c->request)
        return false;
    uint64_t now = now_ns();
    bool stored = n >= HEADER + 6 && !memcmp(answer + HEADER, "STORED", 6);
    if (stored && !end_ns) {
        begin_ns = now + WARM_NS;
        end_ns = begin_ns + (uint64_t)(options.seconds * 1e9);
    }
    if (end_ns && now >= begin_ns && now < end_ns) {
        totals[2] += !stored;
        if (stored && totals[0] < MAX_LATENCIES)
            latencies_ns[totals[0]++] = now - c->begun_ns;
    }
    return true;
}

/* Whether it is to be sent again now. Counts it. */
static inline bool is_late(const struct client *c)
{
    uint64_t now = looked_ns;
    bool late = now >= c->sent_ns + PATIENCE_NS;
    totals[1] += late && end_ns && now >= begin_ns;
    return late;
}

/* Every 10 ms: who is late? */
static inline bool is_time_to_look(void)
{
    uint64_t now = now_ns();
    if (!end_ns && now - started_ns > GIVE_UP_NS)
        die("put", "nothing was stored for 10 s");
    if (now - looked_ns < PATIENCE_NS / 10)
        return false;
    looked_ns = now;
    return true;
}

static inline bool is_over(void)
{
    return end_ns && now_ns() >= end_ns;
}

/* Read the command line: ADDRESS PORT CLIENTS SECONDS KEY_BYTES VALUE_BYTES. Returns whom to ask. */
static inline struct sockaddr_in begin(int argc, char **argv)
{
    if (argc != 7)
        die("usage", "ADDRESS PORT CLIENTS SECONDS KEY_BYTES VALUE_BYTES");
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(argv[2]))};
    options.clients = (unsigned)atoi(argv[3]);
    options.seconds = atof(argv[4]);
    options.key_bytes = (unsigned)atoi(argv[5]);
    options.value_bytes = (unsigned)atoi(argv[6]);
    if (!inet_aton(argv[1], &to.sin_addr) || options.clients < 1 || options.clients > MAX_CLIENTS ||
        options.key_bytes < 3 || options.key_bytes > MAX_KEY || options.value_bytes > MAX_VALUE)
        die("usage", "an IPv4 address, 1 to 1024 clients, keys of 3 to 250 bytes, values of at most 1024");
    latencies_ns = malloc(MAX_LATENCIES * sizeof *latencies_ns);
    if (!latencies_ns)
        die("begin", "out of memory");
    looked_ns = started_ns = now_ns();
    return to;
}

/* Write what came of it to stdout. Returns the exit status. */
static inline int finish(void)
{
    fwrite(totals, sizeof totals, 1, stdout);
    fwrite(latencies_ns, sizeof *latencies_ns, totals[0], stdout);
    return fflush(stdout) ? 1 : 0;
}

#endif

/* Our TCP and Linux', with a bad wire in user space between them: both sides open, write, read late, half-close, close
 * and reset at any time; the wire loses, doubles, delays, overtakes, cuts, flips bits, marks congestion, makes data
 * urgent, shrinks windows, says old bytes again with other content, and makes segments up, both ways.
 *
 * A byte that a user gets is the one that was written there, always. In a round in which nobody resets, and the wire
 * makes nothing up, all bytes come, and both ends hear of the end. After each round ours goes on alone, by hours of a
 * clock of its own: no memory and no connection is left.
 *
 * Rounds are independent, and many run at once, each a host of ours with an address of its own. What is drawn follows
 * from a round's seed; when Linux does something is Linux' to say. argv: seed of the first, rounds, how many at once,
 * most bytes of a direction. ONLY=seed shows the segments of one of them. Prints what happened, and "ok". */
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>

static uint64_t now_ns, round_seed;
#define CHECK_CONTEXT "round %llu", (unsigned long long)round_seed
#include "tests/support/c/check.h"

#include <netinet/tcp.h>
#include "libos/net/tcp/host.h"
#include "libos/net/tcp/machine.h"
#include "tests/libos/net/tcp/c/kernel_end.h"
#include "tests/libos/net/tcp/c/packet.h"

#define IP_LINUX 0x0a400001u /* 10.64.0.1 of 10.64.0.0/10, where all hosts of ours are */
#define MASK 0xffc00000u
#define HOSTS (1u << 21)
#define PORT_OURS 1000
#define MOST_AT_ONCE 256
#define MOST_UNDER_WAY 1024
#define LIMIT_NS (120 * SECOND) /* of a clean round */
#define MS 1000000ull
#define SECOND 1000000000ull

struct packet {
    uint64_t at_ns, order;
    bool to_us;
    uint32_t len;
    uint8_t bytes[PACKET_MOST];
};

/* One end's user: what it has written and read of this connection. */
struct app {
    uint64_t wants, wrote, read; /* bytes */
    uint64_t slow;               /* it reads once in so many turns */
    bool open, shut, eof, over;
};

/* What the wire has seen of a direction. */
struct way {
    bool opened, any;
    uint32_t isn, edge; /* number of the SYN; behind the last byte that was sent */
    struct cl_tcp_segment last;
};

/* In 1/1000 of packets, and ns. */
struct wire {
    unsigned loss, twice, late, flip, cut, mark, urgent, shrink, lie;
    uint64_t delay_ns, jitter_ns, late_ns;
    bool spares_syns; /* Linux waits a second for an answer to one */
};

struct round {
    uint64_t seed, dice, skew_ns, began_ns, next_act_ns, until_ns, n_flown;
    bool lives, clean;
    enum { WE_OPEN, LINUX_OPENS, BOTH_OPEN } how;
    uint32_t ip;
    uint16_t port; /* of Linux */
    struct wire wire;
    struct way ways[2]; /* to Linux, to us */
    struct packet *flying[MOST_UNDER_WAY];
    unsigned n_flying;
    struct cl_tcp_host *host;
    int listener, sock;     /* ours; -1: none */
    int linux_listener, fd; /* Linux' */
    struct app ours, theirs;
};

static struct round rounds[MOST_AT_ONCE];
static uint64_t only_seed, most_bytes, n_clean, n_bytes, n_lost, n_forged, n_resets, longest_ns;

static unsigned chance(struct round *r)
{
    return (unsigned)(next_random(&r->dice) >> 11) % 1000;
}

static uint64_t below(struct round *r, uint64_t n)
{
    return n ? (next_random(&r->dice) >> 11) % n : 0;
}

static uint8_t byte_of(bool of_linux, uint64_t at)
{
    return (uint8_t)((uint32_t)(at * 2654435761u + (of_linux ? 77 : 0)) >> 24);
}

static uint64_t our_time(const struct round *r)
{
    return now_ns + r->skew_ns;
}

/* The wire. */

static void show(const struct round *r, const char *what, const uint8_t *packet, uint32_t len)
{
    struct cl_tcp_segment s;
    if (r->seed != only_seed || !cl_tcp_segment_read(packet + HEADERS, len - HEADERS, &s))
        return;
    printf("%10.6f %-12s flags %02x seq %u len %u ack %u win %u\n", (double)now_ns / 1e9, what, s.flags, s.seq, s.len,
           s.ack, s.window);
}

static void fly(struct round *r, bool to_us, const uint8_t *bytes, uint32_t len, uint64_t in_ns)
{
    struct packet *p = r->n_flying < MOST_UNDER_WAY ? malloc(sizeof *p) : NULL;
    if (!p) /* as if a queue was full */
        return;
    *p = (struct packet){.at_ns = now_ns + in_ns, .order = r->n_flown++, .to_us = to_us, .len = len};
    memcpy(p->bytes, bytes, len);
    if (chance(r) < r->wire.flip && !(r->wire.spares_syns && (bytes[HEADERS + 13] & CL_TCPF_SYN)))
        p->bytes[HEADERS + below(r, len - HEADERS)] ^= (uint8_t)(1u << below(r, 8));
    r->flying[r->n_flying++] = p;
}

/* What a peer or a router may do, and these two do not. */
static void change(struct round *r, uint8_t *packet, uint32_t len)
{
    uint8_t *tcp = packet + HEADERS;
    if (chance(r) < r->wire.urgent) {
        tcp[13] |= CL_TCPF_URG;
        cl_put16(tcp + 18, cl_be16((uint16_t)below(r, 2000)));
    }
    if (chance(r) < r->wire.shrink && !(tcp[13] & CL_TCPF_SYN))
        cl_put16(tcp + 14, cl_be16((uint16_t)below(r, cl_be16(cl_get16(tcp + 14)) + 1u)));
    if ((packet[1] & 3) && chance(r) < r->wire.mark)
        packet[1] |= CL_TCP_CE;
    packet_refresh(packet, len);
}

/* A segment as two, the second from a byte in the middle on. */
static void fly_in_two(struct round *r, bool to_us, uint8_t *packet, uint32_t len, uint64_t in_ns)
{
    uint8_t first[PACKET_MOST], *tcp = packet + HEADERS;
    uint32_t head = HEADERS + (uint32_t)(tcp[12] >> 4) * 4, at = 1 + (uint32_t)below(r, len - head - 1);
    memcpy(first, packet, head + at);
    first[HEADERS + 13] &= (uint8_t) ~(CL_TCPF_FIN | CL_TCPF_PSH);
    packet_refresh(first, head + at);
    cl_put32(tcp + 4, cl_be32(cl_be32(cl_get32(tcp + 4)) + at));
    memmove(packet + head, packet + head + at, len - head - at);
    packet_refresh(packet, len - at);
    fly(r, to_us, first, head + at, in_ns);
    fly(r, to_us, packet, len - at, in_ns + below(r, r->wire.late_ns));
}

/* Remember where a direction is. Returns the bytes of data in it. */
static uint32_t note(struct round *r, bool to_us, const uint8_t *packet, uint32_t len)
{
    struct way *w = &r->ways[to_us];
    struct cl_tcp_segment s;
    CHECK(packet_is_whole(packet, len) && cl_tcp_segment_read(packet + HEADERS, len - HEADERS, &s));
    if (s.flags & CL_TCPF_SYN) {
        w->isn = s.seq;
        w->edge = s.seq + 1;
        w->opened = true;
    } else if (w->opened && !(s.flags & CL_TCPF_RST)) {
        w->edge = cl_seq_max(w->edge, s.seq + s.len);
        w->last = s;
        w->any = true;
    }
    n_resets += !!(s.flags & CL_TCPF_RST);
    return s.len;
}

static void carry(struct round *r, bool to_us, const uint8_t *packet, uint32_t len)
{
    uint8_t copy[PACKET_MOST];
    uint64_t in_ns = r->wire.delay_ns + below(r, r->wire.jitter_ns);
    uint32_t data = note(r, to_us, packet, len);
    CHECK(len <= sizeof copy);
    memcpy(copy, packet, len);
    show(r, to_us ? "Linux sends" : "we send", packet, len);
    bool spared = r->wire.spares_syns && (packet[HEADERS + 13] & CL_TCPF_SYN);
    if (chance(r) < r->wire.loss && !spared) {
        n_lost++;
        return;
    }
    change(r, copy, len);
    if (chance(r) < r->wire.late)
        in_ns += below(r, r->wire.late_ns);
    if (chance(r) < r->wire.twice)
        fly(r, to_us, copy, len, in_ns + below(r, r->wire.late_ns + 1));
    if (data > 1 && chance(r) < r->wire.cut)
        fly_in_two(r, to_us, copy, len, in_ns);
    else
        fly(r, to_us, copy, len, in_ns);
}

static void send_ours(struct round *r)
{
    uint8_t packet[PACKET_MOST];
    uint64_t at_ns;
    for (uint32_t len; (len = cl_tcp_host_next(r->host, packet, sizeof packet, &at_ns));)
        carry(r, false, packet, len);
}

static void arrive(struct round *r, struct packet *p)
{
    show(r, p->to_us ? "we take" : "Linux takes", p->bytes, p->len);
    if (p->to_us) {
        cl_tcp_host_run(r->host, our_time(r));
        cl_tcp_host_take(r->host, p->bytes, p->len);
        send_ours(r);
    } else {
        kernel_take(p->bytes, p->len);
    }
    free(p);
}

/* What is due arrives. Returns whether anything was. */
static bool deliver(struct round *r)
{
    bool any = false;
    for (;;) {
        unsigned next = r->n_flying;
        for (unsigned i = 0; i < r->n_flying; i++) {
            const struct packet *p = r->flying[i], *n = next < r->n_flying ? r->flying[next] : NULL;
            if (p->at_ns <= now_ns && (!n || p->at_ns < n->at_ns || (p->at_ns == n->at_ns && p->order < n->order)))
                next = i;
        }
        if (next == r->n_flying)
            return any;
        struct packet *p = r->flying[next];
        r->flying[next] = r->flying[--r->n_flying];
        arrive(r, p);
        any = true;
    }
}

/* What comes from Linux is on its way to the host that it is for. */
static bool hear_linux(unsigned at_once)
{
    uint8_t packet[PACKET_MOST];
    bool any = false;
    for (uint32_t len; (len = kernel_next(packet, sizeof packet)); any = true) {
        uint32_t to = cl_be32(cl_get32(packet + 16));
        for (unsigned i = 0; i < at_once; i++)
            if (rounds[i].lives && rounds[i].ip == to) {
                round_seed = rounds[i].seed;
                carry(&rounds[i], true, packet, len);
            }
    }
    return any;
}

/* A segment of nobody's, with the ends of a direction. data: behind the header of len bytes. */
static void forge(struct round *r, bool to_us, struct cl_tcp_segment *s, const uint8_t *data, uint64_t in_ns)
{
    uint8_t packet[PACKET_MOST];
    uint16_t from = to_us ? r->port : PORT_OURS, to = to_us ? PORT_OURS : r->port;
    unsigned len = HEADERS + cl_tcp_segment_write(s, from, to, packet + HEADERS);
    if (s->len)
        memcpy(packet + len, data, s->len);
    packet_head(packet, len + s->len, to_us ? IP_LINUX : r->ip, to_us ? r->ip : IP_LINUX);
    n_forged++;
    fly(r, to_us, packet, len + s->len, in_ns);
}

/* Some of what was sent comes again, cut in another way. What the user there has had of it has another content now. */
static void say_again(struct round *r, bool to_us)
{
    const struct way *w = &r->ways[to_us];
    const struct app *reader = to_us ? &r->ours : &r->theirs, *writer = to_us ? &r->theirs : &r->ours;
    uint8_t data[1400];
    if (!w->any || chance(r) >= r->wire.lie)
        return;
    uint64_t sent = cl_min((uint64_t)(w->edge - w->isn - 1), writer->wrote), n = 1 + below(r, sizeof data), got = 0;
    if (!sent)
        return;
    uint64_t from = below(r, 2) ? below(r, sent) : reader->read - below(r, cl_min(reader->read, (uint64_t)3000) + 1);
    for (uint64_t at = from; got < n && at < sent; at++, got++)
        data[got] = at < reader->read ? (uint8_t)next_random(&r->dice) : byte_of(to_us, at);
    struct cl_tcp_segment s = w->last;
    s.flags = CL_TCPF_ACK;
    s.seq = w->isn + 1 + (uint32_t)from;
    s.len = (uint16_t)got;
    s.options.n_sack = 0;
    forge(r, to_us, &s, data, below(r, r->wire.late_ns + 1));
}

/* A segment that nobody sent, without data, near to where a connection is. */
static void make_up(struct round *r, bool to_us)
{
    static const int32_t steps[] = {0, 0, 0, 1, -1, 2, 1000, -1000, 65535, -65535, INT32_MAX, INT32_MIN};
    const unsigned n = sizeof steps / sizeof *steps;
    const struct way *w = &r->ways[to_us];
    if (!w->any)
        return;
    struct cl_tcp_segment s = w->last;
    s.flags = chance(r) < 500 ? CL_TCPF_ACK : (uint8_t)next_random(&r->dice);
    s.seq = w->edge + (uint32_t)steps[below(r, n)];
    s.ack += (uint32_t)steps[below(r, n)];
    s.window = (uint16_t)next_random(&r->dice);
    s.urgent = (uint16_t)next_random(&r->dice);
    s.len = 0;
    if (chance(r) < 300)
        s.options.has = (uint8_t)below(r, 16);
    s.options.mss = (uint16_t)next_random(&r->dice);
    s.options.wscale = (uint8_t)below(r, 16);
    s.options.ts_val += (uint32_t)steps[below(r, n)];
    s.options.n_sack = chance(r) < 200 ? (uint8_t)below(r, 4) : 0;
    for (unsigned i = 0; i < s.options.n_sack; i++)
        s.options.sack[i] = (struct cl_tcp_range){s.ack + (uint32_t)below(r, 3000), s.ack + (uint32_t)below(r, 6000)};
    forge(r, to_us, &s, NULL, below(r, 10 * MS));
}

/* Linux' user. */

static void linux_close(struct round *r, bool abort)
{
    if (abort)
        kernel_reset(r->fd);
    else
        close(r->fd);
    r->fd = -1;
    r->theirs.over = true;
}

static void linux_fails(struct round *r, const char *what)
{
    CHECK(!r->clean, "%s says %s", what, strerror(errno));
    linux_close(r, false);
}

static void linux_reads(struct round *r)
{
    uint8_t data[8192];
    ssize_t got = recv(r->fd, data, 1 + below(r, sizeof data), 0);
    if (got < 0 && errno != EAGAIN)
        linux_fails(r, "reading of Linux");
    for (ssize_t i = 0; i < got; i++, r->theirs.read++)
        CHECK(data[i] == byte_of(false, r->theirs.read), "byte %llu of ours", (unsigned long long)r->theirs.read);
    if (got > 0)
        n_bytes += (uint64_t)got;
    r->theirs.eof |= got == 0;
}

static void linux_writes(struct round *r)
{
    uint8_t data[8192];
    struct app *a = &r->theirs;
    uint64_t most = 1 + below(r, sizeof data), n = cl_min(most, a->wants - a->wrote);
    for (uint64_t i = 0; i < n; i++)
        data[i] = byte_of(true, a->wrote + i);
    ssize_t took = send(r->fd, data, n, MSG_NOSIGNAL | (below(r, 4) ? 0 : MSG_MORE));
    if (took > 0)
        a->wrote += (uint64_t)took;
    else if (errno != EAGAIN)
        linux_fails(r, "writing of Linux");
}

static bool linux_is_open(struct round *r)
{
    struct tcp_info info;
    socklen_t len = sizeof info;
    CHECK(getsockopt(r->fd, IPPROTO_TCP, TCP_INFO, &info, &len) == 0);
    return info.tcpi_state != TCP_SYN_SENT && info.tcpi_state != TCP_SYN_RECV;
}

static void linux_acts(struct round *r)
{
    struct app *a = &r->theirs;
    if (r->fd < 0 && r->linux_listener >= 0 && !a->over)
        r->fd = accept4(r->linux_listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (r->fd < 0)
        return;
    if (!r->clean && chance(r) < 3) {
        linux_close(r, below(r, 2));
        return;
    }
    if (!a->open && !(a->open = linux_is_open(r)))
        return;
    if (!a->eof && !below(r, a->slow))
        linux_reads(r);
    if (r->fd >= 0 && !a->shut && a->wrote < a->wants)
        linux_writes(r);
    if (r->fd >= 0 && !a->shut && a->wrote == a->wants) {
        CHECK(shutdown(r->fd, SHUT_WR) == 0 || !r->clean, "shutting of Linux says %s", strerror(errno));
        a->shut = true;
    }
    if (r->fd >= 0 && a->shut && a->eof)
        linux_close(r, false);
}

/* Our user. */

static void we_fail(struct round *r, const char *what, int64_t code)
{
    CHECK(!r->clean, "%s says %lld", what, (long long)code);
    r->ours.over = true;
}

static void we_read(struct round *r)
{
    uint8_t data[8192];
    int64_t got = cl_tcp_host_read(r->host, r->sock, data, 1 + (int64_t)below(r, sizeof data));
    for (int64_t i = 0; i < got; i++, r->ours.read++)
        CHECK(data[i] == byte_of(true, r->ours.read), "byte %llu of Linux'", (unsigned long long)r->ours.read);
    if (got > 0)
        n_bytes += (uint64_t)got;
    r->ours.eof |= got == 0;
    if (got < 0 && got != -EAGAIN)
        we_fail(r, "reading", got);
}

static void we_write(struct round *r)
{
    uint8_t data[8192];
    struct app *a = &r->ours;
    uint64_t most = 1 + below(r, sizeof data), n = cl_min(most, a->wants - a->wrote);
    for (uint64_t i = 0; i < n; i++)
        data[i] = byte_of(false, a->wrote + i);
    int64_t took = cl_tcp_host_write(r->host, r->sock, data, (int64_t)n);
    if (took > 0)
        a->wrote += (uint64_t)took;
    else if (took && took != -EAGAIN)
        we_fail(r, "writing", took);
}

static void we_close(struct round *r, bool abort)
{
    CHECK_EQ(cl_tcp_host_close(r->host, r->sock, abort), 0);
    r->sock = -1;
    r->ours.over = true;
}

/* Whether it is open by now. */
static bool we_are_open(struct round *r)
{
    uint32_t peer;
    uint16_t port;
    if (r->sock < 0 && r->listener >= 0 && !r->ours.over) {
        int s = cl_tcp_host_accept(r->host, r->listener, &peer, &port);
        r->sock = s >= 0 ? s : -1;
    }
    int rc = r->sock < 0 ? -EINPROGRESS : cl_tcp_host_connected(r->host, r->sock);
    if (rc && rc != -EINPROGRESS) {
        we_fail(r, "connecting", rc);
        we_close(r, false);
    }
    return rc == 0;
}

static void we_act(struct round *r)
{
    struct app *a = &r->ours;
    bool open = we_are_open(r);
    if (r->sock >= 0 && !r->clean && chance(r) < 3) {
        we_close(r, below(r, 2));
        return;
    }
    if (!open)
        return;
    if (!a->eof && !below(r, a->slow))
        we_read(r);
    if (!a->shut && !a->over && a->wrote < a->wants)
        we_write(r);
    if (!a->shut && !a->over && a->wrote == a->wants) {
        int code = cl_tcp_host_shutdown(r->host, r->sock);
        CHECK(code == 0 || !r->clean, "shutting says %d", code);
        a->shut = true;
    }
    if (a->over || (a->shut && a->eof))
        we_close(r, false);
}

/* A round. */

static void draw_wire(struct round *r)
{
    bool bad = below(r, 2);
    struct wire *w = &r->wire;
    w->loss = bad ? (unsigned)below(r, r->clean ? 40 : 250) : 0;
    w->twice = bad ? (unsigned)below(r, 100) : 0;
    w->late = bad ? (unsigned)below(r, 200) : 0;
    w->flip = bad ? (unsigned)below(r, r->clean ? 20 : 100) : 0;
    w->cut = (unsigned)(below(r, 2) * below(r, 200));
    w->mark = (unsigned)(below(r, 2) * below(r, 100));
    w->urgent = (unsigned)(below(r, 2) * below(r, 100));
    w->shrink = (unsigned)(below(r, 2) * below(r, 100));
    w->lie = (unsigned)(below(r, 2) * below(r, 300));
    w->delay_ns = below(r, 3) ? below(r, 2 * MS) : below(r, 20000);
    w->jitter_ns = w->delay_ns / 4 + 1;
    w->late_ns = 2 * w->delay_ns + 100000;
    w->spares_syns = r->clean || below(r, 4);
}

static void draw_host(struct round *r)
{
    static const unsigned mtus[] = {576, 1000, 1500, 9000};
    CHECK_EQ(cl_tcp_host_new(r->ip, mtus[below(r, 4)], our_time(r), &r->host), 0);
    uint32_t limit = (uint32_t)(3000 + below(r, 200000)), scale = (uint32_t)below(r, 15);
    while (1u << scale > limit / 4) /* else there is hardly a window that a field can tell */
        scale--;
    /* If SYNs cross, Linux scales its windows also for a peer that does not. */
    const uint64_t scales = r->how == BOTH_OPEN ? CL_TCPO_WSCALE : 0;
    const struct {
        int option;
        uint64_t value;
    } all[] = {{CL_TCP_SET_SEND_LIMIT, 1000 + below(r, 200000)},
               {CL_TCP_SET_RECEIVE_LIMIT, limit},
               {CL_TCP_SET_WSCALE, scale},
               {CL_TCP_SET_OPTIONS, (below(r, 16) & ~(uint64_t)CL_TCPO_MSS) | scales},
               {CL_TCP_SET_NO_DELAY, below(r, 2)},
               {CL_TCP_SET_ECN, below(r, 3)},
               {CL_TCP_SET_RULE, below(r, 3)},
               {CL_TCP_SET_RTO_LEAST, 2 + below(r, 20)},
               {CL_TCP_SET_DELAYED_ACK, 1 + below(r, 40)}};
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
        CHECK_EQ(cl_tcp_host_set(r->host, all[i].option, (uint32_t)all[i].value), 0);
}

static void set_linux(int fd, int level, int option, uint64_t value)
{
    int v = (int)value;
    CHECK(setsockopt(fd, level, option, &v, sizeof v) == 0, "option %d, %d: %s", option, v, strerror(errno));
}

static int draw_linux(struct round *r)
{
    int fd = kernel_socket(r->port);
    set_linux(fd, SOL_SOCKET, SO_OOBINLINE, 1); /* else urgent bytes are missing in the stream */
    set_linux(fd, IPPROTO_TCP, TCP_NODELAY, below(r, 2));
    if (below(r, 2))
        set_linux(fd, SOL_SOCKET, SO_RCVBUF, 4000 + below(r, 100000));
    if (below(r, 2))
        set_linux(fd, SOL_SOCKET, SO_SNDBUF, 4000 + below(r, 100000));
    if (!below(r, 4))
        set_linux(fd, IPPROTO_TCP, TCP_MAXSEG, 100 + below(r, 1300));
    if (!below(r, 4))
        set_linux(fd, IPPROTO_TCP, TCP_WINDOW_CLAMP, 3000 + below(r, 60000));
    if (below(r, 2))
        (void)setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
    return fd;
}

static void we_connect(struct round *r)
{
    r->sock = cl_tcp_host_connect(r->host, PORT_OURS, IP_LINUX, r->port);
    CHECK(r->sock >= 0, "connecting says %d", r->sock);
}

static void open_both(struct round *r)
{
    int fd = draw_linux(r);
    struct sockaddr_in to = kernel_address(r->ip, PORT_OURS);
    if (r->how == WE_OPEN) {
        CHECK(listen(fd, 4) == 0);
        r->linux_listener = fd;
        we_connect(r);
        return;
    }
    if (r->how == LINUX_OPENS)
        r->listener = cl_tcp_host_listen(r->host, PORT_OURS, 4);
    r->fd = fd;
    CHECK(connect(fd, (struct sockaddr *)&to, sizeof to) < 0 && errno == EINPROGRESS, "%s", strerror(errno));
    if (r->how == BOTH_OPEN)
        we_connect(r);
}

static void draw_app(struct round *r, struct app *a)
{
    *a = (struct app){0};
    a->slow = below(r, 2) ? 2 : 1 + below(r, 30);
    a->wants = below(r, below(r, 2) ? most_bytes : 2000);
}

static void begin_round(struct round *r, uint64_t seed)
{
    *r = (struct round){.seed = seed, .lives = true, .listener = -1, .sock = -1, .linux_listener = -1, .fd = -1};
    r->dice = seed * 0x9e3779b97f4a7c15ull + 1;
    for (unsigned i = 0; i < 10; i++)
        next_random(&r->dice);
    r->clean = below(r, 2);
    r->how = below(r, 3);
    r->skew_ns = below(r, 1ull << 44); /* our first number follows from it */
    r->ip = IP_LINUX + 1 + (uint32_t)(seed % HOSTS);
    r->port = (uint16_t)(2000 + seed % 30000);
    r->began_ns = now_ns;
    r->until_ns = now_ns + (r->clean ? LIMIT_NS : below(r, SECOND));
    draw_wire(r);
    draw_host(r);
    draw_app(r, &r->ours);
    draw_app(r, &r->theirs);
    open_both(r);
    send_ours(r);
}

/* Users let go of what they have, whatever it is. */
static void close_all(struct round *r)
{
    if (r->sock >= 0)
        we_close(r, below(r, 2));
    if (r->fd >= 0)
        linux_close(r, true);
    if (r->listener >= 0)
        CHECK_EQ(cl_tcp_host_close(r->host, r->listener, false), 0);
    if (r->linux_listener >= 0)
        close(r->linux_listener);
    while (r->n_flying)
        free(r->flying[--r->n_flying]);
}

/* Then time passes for ours alone, whose packets nobody answers, and nothing is left. */
static void expect_nothing(struct round *r)
{
    uint8_t none[1];
    uint64_t at_ns = our_time(r), until_ns = at_ns + 7200 * SECOND;
    while (at_ns < until_ns && cl_tcp_host_due_ns(r->host) != UINT64_MAX) {
        at_ns = cl_max(at_ns, cl_tcp_host_due_ns(r->host));
        cl_tcp_host_run(r->host, at_ns);
        while (cl_tcp_host_next(r->host, none, sizeof none, &(uint64_t){0}))
            ;
    }
    CHECK(at_ns < until_ns, "a connection of ours outlives its timers");
    CHECK_EQ(cl_tcp_host_held(r->host), 0);
    for (unsigned i = 0; i < CL_TCP_HOST_SOCKETS; i++) /* all sockets are free */
        CHECK(cl_tcp_host_listen(r->host, (uint16_t)(5000 + i), 1) >= 0, "socket %u of them", i);
    cl_tcp_host_delete(r->host);
}

static void expect_all(const struct round *r)
{
    CHECK(r->ours.over && r->theirs.over, "we: wrote %llu of %llu, read %llu; Linux: wrote %llu of %llu, read %llu",
          (unsigned long long)r->ours.wrote, (unsigned long long)r->ours.wants, (unsigned long long)r->ours.read,
          (unsigned long long)r->theirs.wrote, (unsigned long long)r->theirs.wants, (unsigned long long)r->theirs.read);
    CHECK_EQ(r->ours.read, r->theirs.wants);
    CHECK_EQ(r->theirs.read, r->ours.wants);
    n_clean++;
    longest_ns = cl_max(longest_ns, now_ns - r->began_ns);
}

/* What is due in a round now. Returns whether anything was. */
static bool step(struct round *r)
{
    bool any = deliver(r), due = cl_tcp_host_due_ns(r->host) <= our_time(r);
    if (due || any) {
        cl_tcp_host_run(r->host, our_time(r));
        send_ours(r);
    }
    if (now_ns < r->next_act_ns)
        return any || due;
    r->next_act_ns = now_ns + below(r, 2 * r->wire.delay_ns + MS / 2);
    cl_tcp_host_run(r->host, our_time(r));
    we_act(r);
    send_ours(r);
    linux_acts(r);
    say_again(r, below(r, 2));
    if (!r->clean && chance(r) < 30)
        make_up(r, below(r, 2));
    if ((r->ours.over && r->theirs.over) || now_ns > r->until_ns) {
        if (r->clean)
            expect_all(r);
        close_all(r);
        expect_nothing(r);
        r->lives = false;
    }
    return true;
}

static void run(uint64_t seed, uint64_t count, unsigned at_once)
{
    for (uint64_t begun = 0, live = 0; begun < count || live;) {
        bool any = false;
        live = 0;
        now_ns = kernel_now_ns();
        for (unsigned i = 0; i < at_once; i++) {
            if (!rounds[i].lives && begun < count) {
                round_seed = seed + begun;
                begin_round(&rounds[i], seed + begun++);
            }
            if (!rounds[i].lives)
                continue;
            live++;
            round_seed = rounds[i].seed;
            any |= step(&rounds[i]);
        }
        any |= hear_linux(at_once);
        if (!any)
            (void)poll(&(struct pollfd){kernel_tun, POLLIN, 0}, 1, 1);
    }
}

int main(int argc, char **argv)
{
    CHECK(argc == 5);
    uint64_t seed = strtoull(argv[1], NULL, 0), count = strtoull(argv[2], NULL, 0);
    unsigned at_once = (unsigned)strtoul(argv[3], NULL, 0);
    most_bytes = strtoull(argv[4], NULL, 0);
    CHECK(seed && at_once <= MOST_AT_ONCE);
    only_seed = getenv("ONLY") ? strtoull(getenv("ONLY"), NULL, 0) : 0;
    kernel_begin(IP_LINUX, MASK);
    (void)kernel_set("tcp_rto_min_us", "5000");
    (void)kernel_set("tcp_ecn", "1");
    run(seed, count, at_once);
    printf("%llu of %llu rounds clean, the longest took %.1f s\n", (unsigned long long)n_clean,
           (unsigned long long)count, (double)longest_ns / 1e9);
    printf("%llu bytes; %llu packets lost, %llu forged, %llu resets\n", (unsigned long long)n_bytes,
           (unsigned long long)n_lost, (unsigned long long)n_forged, (unsigned long long)n_resets);
    printf("ok\n");
    return 0;
}

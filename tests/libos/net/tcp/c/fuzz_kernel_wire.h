/* The wire of fuzz_kernel.c, and the segments that it makes up. */
#ifndef TESTS_LIBOS_TCP_FUZZ_KERNEL_WIRE_H
#define TESTS_LIBOS_TCP_FUZZ_KERNEL_WIRE_H

#include "tests/libos/net/tcp/c/fuzz_kernel_round.h"

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

#endif

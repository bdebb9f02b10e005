/* Our TCP and lwIP's, over a wire in memory and on a virtual clock: both sides open, write, read late, half-close, close
 * and reset at any time; the wire loses, doubles, delays, overtakes, flips bits, makes data urgent, shrinks windows, says
 * old bytes again with other content, and makes segments up.
 *
 * A byte that a user gets is the one that was written there, always. In a round in which nobody resets, and the wire
 * makes nothing up, all bytes come, and both ends hear of the end. After each round nothing is left of it: no memory, no
 * connection, on either side.
 *
 * A round follows from its seed alone. argv: seed of the first, rounds. SHOW=1 prints segments. Prints "ok". */
#include <stdbool.h>
#include <stdint.h>

static uint64_t now_ns = 1000000000, round_seed;
#define CHECK_CONTEXT "round %llu, at %.6f s", (unsigned long long)round_seed, (double)now_ns / 1e9
#include "tests/support/c/check.h"

#include <corelane/libos/tcp.h>
#include "libos/net/tcp/host.h"
#include "libos/net/tcp/machine.h"
#include "tests/libos/net/tcp/c/lwip_end.h"
#include "tests/libos/net/tcp/c/packet.h"

#include <errno.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define IP_OURS 0x0a4d0001u
#define IP_LWIP 0x0a4d0002u
#define PORT_OURS 1000
#define PORT_LWIP 2000
#define MS 1000000ull
#define SECOND 1000000000ull
#define MOST_UNDER_WAY 65536

struct packet {
    uint64_t at_ns, order;
    bool to_us;
    uint32_t len;
    uint8_t bytes[PACKET_MOST];
};

/* One end's user: what it has written and read of this connection. */
struct app {
    uint64_t wants, wrote, read, unread; /* bytes; unread: of lwIP's, taken and not told */
    uint64_t slow;                       /* it reads once in so many turns */
    bool shut, eof, over;
};

/* In 1/1000 of packets, and ns. */
static struct {
    unsigned loss, twice, late, flip, urgent, shrink, lie;
    uint64_t delay_ns, jitter_ns, late_ns;
} wire;

static uint64_t dice;
static struct packet *flying[MOST_UNDER_WAY];
static unsigned n_flying;
static uint64_t n_flown, tmr_ns, lwip_said_ns;
static struct cl_tcp_host *host;
static int listener, sock; /* ours; -1: none */
static struct tcp_pcb *pcb, *lwip_listener;
static struct app ours, theirs;
static bool clean, verbose;
static uint32_t irs; /* number of lwIP's SYN */
static bool irs_known;

static unsigned chance(void)
{
    return (unsigned)(next_random(&dice) >> 11) % 1000;
}

static uint64_t below(uint64_t n)
{
    return n ? (next_random(&dice) >> 11) % n : 0;
}

static uint8_t byte_of(bool lwip, uint64_t at)
{
    return (uint8_t)((uint32_t)(at * 2654435761u + (lwip ? 77 : 0)) >> 24);
}

/* The wire. */

static void show(const char *what, const uint8_t *packet, uint32_t len)
{
    struct cl_tcp_segment s;
    if (!verbose || !cl_tcp_segment_read(packet + HEADERS, len - HEADERS, &s))
        return;
    printf("%10.6f %-12s flags %02x seq %u len %u ack %u win %u\n", (double)now_ns / 1e9, what, s.flags, s.seq, s.len,
           s.ack, s.window);
}

static void fly(bool to_us, const uint8_t *bytes, uint32_t len, uint64_t in_ns)
{
    struct packet *p = malloc(sizeof *p);
    CHECK(p && n_flying < MOST_UNDER_WAY && len <= PACKET_MOST);
    p->at_ns = now_ns + in_ns;
    p->order = n_flown++;
    p->to_us = to_us;
    p->len = len;
    memcpy(p->bytes, bytes, len);
    if (chance() < wire.flip)
        p->bytes[HEADERS + below(len - HEADERS)] ^= (uint8_t)(1u << below(8));
    flying[n_flying++] = p;
}

/* What a peer may do, and lwIP does not. */
static void change(uint8_t *packet, uint32_t len)
{
    uint8_t *tcp = packet + HEADERS;
    if (chance() < wire.urgent) {
        tcp[13] |= CL_TCPF_URG;
        cl_put16(tcp + 18, cl_be16((uint16_t)below(2000)));
    }
    if (chance() < wire.shrink && !(tcp[13] & CL_TCPF_SYN))
        cl_put16(tcp + 14, cl_be16((uint16_t)below(cl_be16(cl_get16(tcp + 14)) + 1u)));
    packet_fix(packet, len);
}

static void carry(bool to_us, const uint8_t *packet, uint32_t len)
{
    uint8_t copy[PACKET_MOST];
    uint64_t in_ns = wire.delay_ns + below(wire.jitter_ns);
    CHECK(len <= sizeof copy);
    memcpy(copy, packet, len);
    show(to_us ? "lwIP sends" : "we send", packet, len);
    if (chance() < wire.loss)
        return;
    if (to_us)
        change(copy, len);
    if (chance() < wire.late)
        in_ns += below(wire.late_ns);
    fly(to_us, copy, len, in_ns);
    if (chance() < wire.twice)
        fly(to_us, copy, len, in_ns + below(wire.late_ns + 1));
}

static void from_lwip(const uint8_t *packet, uint32_t len)
{
    lwip_said_ns = now_ns;
    carry(true, packet, len);
}

static void send_ours(void)
{
    uint8_t packet[PACKET_MOST];
    uint64_t at_ns;
    for (uint32_t len; (len = cl_tcp_host_next(host, packet, sizeof packet, &at_ns));)
        carry(false, packet, len);
}

static void note(const struct packet *p)
{
    struct cl_tcp_segment s;
    if (!packet_is_whole(p->bytes, p->len) || !cl_tcp_segment_read(p->bytes + HEADERS, p->len - HEADERS, &s))
        return;
    if ((s.flags & CL_TCPF_SYN) && !irs_known) {
        irs = s.seq;
        irs_known = true;
    }
}

static void arrive(struct packet *p)
{
    show(p->to_us ? "we take" : "lwIP takes", p->bytes, p->len);
    if (p->to_us) {
        note(p);
        cl_tcp_host_take(host, p->bytes, p->len);
        send_ours();
    } else {
        lwip_take(p->bytes, p->len);
    }
    free(p);
}

/* Time. */

static unsigned next_packet(void)
{
    unsigned next = 0;
    for (unsigned i = 1; i < n_flying; i++)
        if (flying[i]->at_ns < flying[next]->at_ns ||
            (flying[i]->at_ns == flying[next]->at_ns && flying[i]->order < flying[next]->order))
            next = i;
    return next;
}

static void run_until(uint64_t until_ns)
{
    for (;;) {
        unsigned next = next_packet();
        uint64_t due_ns = cl_tcp_host_due_ns(host), at_ns = cl_min(due_ns, tmr_ns);
        bool packet = n_flying && flying[next]->at_ns <= at_ns;
        at_ns = packet ? flying[next]->at_ns : at_ns;
        if (at_ns > until_ns)
            break;
        now_ns = cl_max(now_ns, at_ns);
        cl_tcp_host_run(host, now_ns);
        send_ours();
        if (packet) {
            struct packet *p = flying[next];
            flying[next] = flying[--n_flying];
            arrive(p);
        } else if (at_ns == tmr_ns) {
            tmr_ns += LWIP_TMR_NS;
            tcp_tmr();
        }
    }
    now_ns = cl_max(now_ns, until_ns);
    cl_tcp_host_run(host, now_ns);
    send_ours();
}

/* The user of lwIP. */

static err_t lwip_recv(void *arg, struct tcp_pcb *p, struct pbuf *data, err_t err)
{
    (void)arg, (void)err;
    CHECK(p == pcb && !theirs.eof);
    if (!data) {
        theirs.eof = true;
        return ERR_OK;
    }
    /* lwIP keeps it, and asks again; but not in TIME_WAIT, to which our FIN may bring it with the last bytes. */
    if (chance() < 50 && theirs.read + data->tot_len < ours.wants)
        return ERR_MEM;
    for (struct pbuf *q = data; q; q = q->next)
        for (u16_t i = 0; i < q->len; i++, theirs.read++)
            CHECK(((uint8_t *)q->payload)[i] == byte_of(false, theirs.read), "byte %llu of ours",
                  (unsigned long long)theirs.read);
    theirs.unread += data->tot_len;
    pbuf_free(data);
    return ERR_OK;
}

static void lwip_err(void *arg, err_t err)
{
    (void)arg;
    CHECK(!clean || (err == ERR_CLSD && theirs.shut && theirs.eof), "lwIP says %d", err);
    pcb = NULL;
    theirs.over = true;
}

static err_t lwip_opened(void *arg, struct tcp_pcb *p, err_t err)
{
    (void)arg, (void)p;
    CHECK_EQ(err, ERR_OK);
    return ERR_OK;
}

static void lwip_adopt(struct tcp_pcb *p)
{
    pcb = p;
    tcp_arg(p, &theirs);
    tcp_recv(p, lwip_recv);
    tcp_err(p, lwip_err);
    if (below(2))
        tcp_nagle_disable(p);
}

static err_t lwip_accept(void *arg, struct tcp_pcb *p, err_t err)
{
    (void)arg;
    if (err != ERR_OK || !p)
        return ERR_VAL;
    if (pcb) { /* made-up segments may open more */
        tcp_abort(p);
        return ERR_ABRT;
    }
    lwip_adopt(p);
    return ERR_OK;
}

static void lwip_forget(void)
{
    tcp_arg(pcb, NULL);
    tcp_recv(pcb, NULL);
    tcp_err(pcb, NULL);
}

static void lwip_close(bool abort)
{
    struct tcp_pcb *p = pcb;
    lwip_forget();
    if (!abort && tcp_close(p) != ERR_OK) { /* no memory for a FIN: again later */
        lwip_adopt(p);
        return;
    }
    pcb = NULL;
    theirs.over = true;
    if (abort)
        tcp_abort(p);
}

static bool lwip_connected(void)
{
    return pcb && (pcb->state == ESTABLISHED || pcb->state == CLOSE_WAIT);
}

/* It may send beyond a window that an old acknowledgement moved. If that part is refused it says nothing any more,
 * although some of what it has sent is not acknowledged. */
static bool lwip_stands_still(void)
{
    return pcb && pcb->lastack != pcb->snd_nxt && now_ns - lwip_said_ns > 1000 * SECOND;
}

static void lwip_write(void)
{
    uint8_t data[4096];
    uint64_t n = 1 + below(sizeof data), room = tcp_sndbuf(pcb);
    n = cl_min(cl_min(n, theirs.wants - theirs.wrote), room);
    for (uint64_t i = 0; i < n; i++)
        data[i] = byte_of(true, theirs.wrote + i);
    if (n && tcp_write(pcb, data, (u16_t)n, TCP_WRITE_FLAG_COPY | (below(2) ? TCP_WRITE_FLAG_MORE : 0)) == ERR_OK)
        theirs.wrote += n;
    (void)tcp_output(pcb);
}

static void lwip_acts(void)
{
    if (!pcb)
        return;
    if (theirs.unread && !below(theirs.slow)) {
        uint64_t most = theirs.slow > 2 ? 3000 : 30000;
        u16_t n = (u16_t)(1 + below(cl_min(theirs.unread, most)));
        theirs.unread -= n;
        tcp_recved(pcb, n);
    }
    if (!clean && chance() < 3) {
        lwip_close(below(2));
        return;
    }
    if (lwip_connected() && !theirs.shut && theirs.wrote < theirs.wants)
        lwip_write();
    /* Not while something is unsent: of a segment with a FIN that lwIP cuts both halves may have it. */
    if (lwip_connected() && !theirs.shut && theirs.wrote == theirs.wants && !pcb->unsent)
        theirs.shut = tcp_shutdown(pcb, 0, 1) == ERR_OK;
    if (pcb && theirs.shut && theirs.eof && !theirs.unread)
        lwip_close(false);
}

/* Our user. */

static void we_read(void)
{
    uint8_t data[8192];
    int64_t got = cl_tcp_host_read(host, sock, data, 1 + (int64_t)below(sizeof data));
    if (got > 0)
        CHECK(!ours.eof);
    for (int64_t i = 0; i < got; i++, ours.read++)
        CHECK(data[i] == byte_of(true, ours.read), "byte %llu of lwIP's", (unsigned long long)ours.read);
    if (got == 0)
        ours.eof = true;
    if (got < 0 && got != -EAGAIN) {
        CHECK(!clean, "reading says %lld", (long long)got);
        ours.over = true;
    }
}

static void we_write(void)
{
    uint8_t data[8192];
    uint64_t n = 1 + below(sizeof data);
    n = cl_min(n, ours.wants - ours.wrote);
    for (uint64_t i = 0; i < n; i++)
        data[i] = byte_of(false, ours.wrote + i);
    int64_t took = cl_tcp_host_write(host, sock, data, (int64_t)n);
    if (took > 0)
        ours.wrote += (uint64_t)took;
    else if (took != -EAGAIN && took != 0) {
        CHECK(!clean, "writing says %lld", (long long)took);
        ours.over = true;
    }
}

static void we_close(bool abort)
{
    CHECK_EQ(cl_tcp_host_close(host, sock, abort), 0);
    sock = -1;
    ours.over = true;
}

static void we_act(void)
{
    uint32_t peer;
    uint16_t port;
    if (sock < 0 && listener >= 0 && !ours.over) {
        int s = cl_tcp_host_accept(host, listener, &peer, &port);
        sock = s >= 0 ? s : -1;
    }
    if (sock < 0)
        return;
    int rc = cl_tcp_host_connected(host, sock);
    if (!clean && chance() < 3) {
        we_close(below(2));
        return;
    }
    if (rc) {
        CHECK(rc == -EINPROGRESS || !clean, "connecting says %d", rc);
        if (rc != -EINPROGRESS)
            we_close(false);
        return;
    }
    if (!ours.eof && !ours.over && !below(ours.slow))
        we_read();
    if (!ours.shut && !ours.over && ours.wrote < ours.wants)
        we_write();
    if (!ours.shut && !ours.over && ours.wrote == ours.wants) {
        int code = cl_tcp_host_shutdown(host, sock);
        CHECK(code == 0 || !clean);
        ours.shut = true;
    }
    if (ours.over || (ours.shut && ours.eof))
        we_close(false);
}

/* Some of what lwIP has sent comes again, cut in another way. What our user has had of it has another content now. */
static void say_again(void)
{
    uint8_t packet[PACKET_MOST];
    if (!irs_known || !lwip_connected() || chance() >= wire.lie)
        return;
    uint64_t sent = pcb->snd_nxt - irs - 1, from;
    sent = cl_min(sent, theirs.wrote);
    if (!sent)
        return;
    from = below(2) ? below(sent) : ours.read - below(ours.read + 1 < 3000 ? ours.read + 1 : 3000);
    if (from >= sent)
        return;
    struct cl_tcp_segment s = {.seq = irs + 1 + (uint32_t)from, .ack = pcb->rcv_nxt, .flags = CL_TCPF_ACK};
    s.window = (uint16_t)(pcb->rcv_ann_wnd >> pcb->rcv_scale);
    unsigned len = HEADERS + cl_tcp_segment_write(&s, PORT_LWIP, PORT_OURS, packet + HEADERS);
    for (uint64_t at = from, n = 1 + below(1400); n && at < sent; at++, n--)
        packet[len++] = at < ours.read ? (uint8_t)next_random(&dice) : byte_of(true, at);
    packet_head(packet, len, IP_LWIP, IP_OURS);
    show("again", packet, len);
    fly(true, packet, len, below(wire.late_ns + 1));
}

/* A segment that nobody sent, without data, near to where a connection is. */
static void make_up(bool to_us)
{
    static const int32_t steps[] = {0, 0, 0, 1, -1, 2, 1000, -1000, 65535, -65535, INT32_MAX, INT32_MIN};
    struct cl_tcp_segment s = {.flags = chance() < 500 ? CL_TCPF_ACK : (uint8_t)next_random(&dice)};
    uint8_t packet[128];
    if (!pcb)
        return;
    uint32_t theirs_at = pcb->snd_nxt, ours_at = pcb->rcv_nxt;
    if (!to_us) /* a FIN out of order makes it count wrongly */
        s.flags &= (uint8_t) ~(CL_TCPF_FIN | CL_TCPF_SYN);
    unsigned far = to_us ? sizeof steps / sizeof *steps : 8; /* lwIP asserts that nobody does more, nor an MSS of 5 */
    s.seq = (to_us ? theirs_at : ours_at) + (uint32_t)steps[below(far)];
    s.ack = (to_us ? ours_at : theirs_at) + (uint32_t)steps[below(far)];
    s.window = to_us ? 0 : (uint16_t)next_random(&dice); /* it asserts that nobody sends beyond its own window, too */
    s.urgent = (uint16_t)next_random(&dice);
    s.options.has = to_us && chance() < 200 ? (uint8_t)below(16) : 0;
    s.options.mss = (uint16_t)next_random(&dice);
    s.options.n_sack = chance() < 200 ? (uint8_t)below(4) : 0;
    for (unsigned i = 0; i < s.options.n_sack; i++)
        s.options.sack[i] = (struct cl_tcp_range){s.ack + (uint32_t)below(3000), s.ack + (uint32_t)below(6000)};
    unsigned len = HEADERS + cl_tcp_segment_write(&s, to_us ? PORT_LWIP : PORT_OURS, to_us ? PORT_OURS : PORT_LWIP,
                                                  packet + HEADERS);
    packet_head(packet, len, to_us ? IP_LWIP : IP_OURS, to_us ? IP_OURS : IP_LWIP);
    show("made up", packet, len);
    fly(to_us, packet, len, below(10 * MS));
}

/* A round. */

static void draw_wire(void)
{
    bool bad = below(2);
    memset(&wire, 0, sizeof wire);
    wire.loss = bad ? (unsigned)below(clean ? 40 : 250) : 0;
    wire.twice = bad ? (unsigned)below(100) : 0;
    wire.late = bad ? (unsigned)below(200) : 0;
    wire.flip = bad ? (unsigned)below(clean ? 20 : 100) : 0;
    wire.urgent = (unsigned)(below(2) * below(100));
    wire.shrink = (unsigned)(below(2) * below(100));
    wire.lie = clean ? (unsigned)(below(2) * below(300)) : 0; /* it has to know where the connection is */
    wire.delay_ns = below(3) ? below(30 * MS) : below(100000);
    wire.jitter_ns = wire.delay_ns / 4 + 1;
    wire.late_ns = 2 * wire.delay_ns + 1000;
}

static void draw_host(void)
{
    /* Not beyond that of lwIP, which takes a second SYN's word for the largest segment, and sends fragments then. */
    static const unsigned mtus[] = {576, 1000, 1500};
    CHECK_EQ(cl_tcp_host_new(IP_OURS, mtus[below(3)], now_ns, &host), 0);
    CHECK_EQ(cl_tcp_host_set(host, CL_TCP_SET_SEND_LIMIT, (uint32_t)(1000 + below(200000))), 0);
    uint32_t limit = (uint32_t)(3000 + below(200000)), scale = (uint32_t)below(15);
    while (1u << scale > limit / 4) /* else there is hardly a window that a field can tell */
        scale--;
    CHECK_EQ(cl_tcp_host_set(host, CL_TCP_SET_RECEIVE_LIMIT, limit), 0);
    CHECK_EQ(cl_tcp_host_set(host, CL_TCP_SET_WSCALE, scale), 0);
    CHECK_EQ(cl_tcp_host_set(host, CL_TCP_SET_OPTIONS, (uint32_t)below(16) & ~(uint32_t)CL_TCPO_MSS), 0);
    CHECK_EQ(cl_tcp_host_set(host, CL_TCP_SET_NO_DELAY, (uint32_t)below(2)), 0);
}

static void we_connect(void)
{
    sock = cl_tcp_host_connect(host, PORT_OURS, IP_LWIP, PORT_LWIP);
    CHECK(sock >= 0 || !clean, "connecting says %d", sock);
    ours.over = sock < 0;
}

static void lwip_connect(void)
{
    const ip_addr_t to = IPADDR4_INIT(cl_be32(IP_OURS));
    struct tcp_pcb *p = tcp_new();
    CHECK(p && tcp_bind(p, IP4_ADDR_ANY, PORT_LWIP) == ERR_OK);
    lwip_adopt(p);
    CHECK_EQ(tcp_connect(p, &to, PORT_OURS, lwip_opened), ERR_OK);
}

static void open_both(void)
{
    unsigned how = (unsigned)below(3);
    memset(&ours, 0, sizeof ours);
    memset(&theirs, 0, sizeof theirs);
    irs_known = false;
    ours.slow = below(2) ? 2 : 1 + below(30);
    theirs.slow = below(2) ? 2 : 1 + below(30);
    ours.wants = below(below(2) ? 200000 : 2000);
    theirs.wants = below(below(2) ? 200000 : 2000);
    if (how == 0) {
        struct tcp_pcb *p = tcp_new();
        CHECK(p && tcp_bind(p, IP4_ADDR_ANY, PORT_LWIP) == ERR_OK);
        lwip_listener = tcp_listen(p);
        tcp_accept(lwip_listener, lwip_accept);
        we_connect();
    } else {
        if (how == 1)
            listener = cl_tcp_host_listen(host, PORT_OURS, 4);
        lwip_connect();
        if (how == 2) /* both open */
            we_connect();
    }
}

/* Users let go of what they have, whatever it is. */
static void close_all(void)
{
    if (sock >= 0)
        we_close(below(2));
    if (pcb)
        lwip_close(below(2));
    while (pcb) {
        run_until(now_ns + SECOND);
        if (pcb)
            lwip_close(true);
    }
    if (listener >= 0)
        CHECK_EQ(cl_tcp_host_close(host, listener, false), 0);
    if (lwip_listener)
        CHECK_EQ(tcp_close(lwip_listener), ERR_OK);
    listener = -1;
    lwip_listener = NULL;
}

/* Then time passes, and nothing is left. */
static void expect_nothing(void)
{
    uint64_t until_ns = now_ns + 7200 * SECOND;
    while (now_ns < until_ns && (n_flying || cl_tcp_host_due_ns(host) != UINT64_MAX || !lwip_is_quiet()))
        run_until(now_ns + SECOND);
    CHECK_EQ(n_flying, 0);
    CHECK(cl_tcp_host_due_ns(host) == UINT64_MAX, "a connection of ours outlives its timers");
    CHECK_EQ(cl_tcp_host_held(host), 0);
    CHECK(lwip_is_quiet(), "a connection of lwIP's is left");
    for (unsigned i = 0; i < CL_TCP_HOST_SOCKETS; i++) /* all sockets are free */
        CHECK(cl_tcp_host_listen(host, (uint16_t)(5000 + i), 1) >= 0, "socket %u of them", i);
    cl_tcp_host_delete(host);
}

static void one_round(void)
{
    clean = below(2);
    sock = listener = -1;
    pcb = lwip_listener = NULL;
    draw_wire();
    draw_host();
    open_both();
    send_ours();
    uint64_t until_ns = now_ns + (clean ? 3600 : below(120)) * SECOND;
    while (now_ns < until_ns && !(ours.over && theirs.over)) {
        run_until(now_ns + below(2 * wire.delay_ns + 2 * MS));
        we_act();
        send_ours();
        lwip_acts();
        say_again();
        if (!clean && chance() < 30)
            make_up(below(2));
    }
    if (clean && !lwip_stands_still()) {
        CHECK(ours.over && theirs.over, "we: wrote %llu of %llu, read %llu; lwIP: wrote %llu of %llu, read %llu",
              (unsigned long long)ours.wrote, (unsigned long long)ours.wants, (unsigned long long)ours.read,
              (unsigned long long)theirs.wrote, (unsigned long long)theirs.wants, (unsigned long long)theirs.read);
        CHECK_EQ(ours.read, theirs.wants);
        CHECK_EQ(theirs.read, ours.wants);
    }
    close_all();
    expect_nothing();
}

/* In a process of its own: lwIP keeps numbers and timers from one connection to the next. */
static void run_round(void)
{
    dice = round_seed * 0x9e3779b97f4a7c15ull + 1;
    for (unsigned i = 0; i < 10; i++)
        next_random(&dice);
    now_ns += below(1ull << 44); /* our first number follows from it, */
    tmr_ns = now_ns;
    lwip_begin(IP_LWIP, from_lwip);
    tcp_ticks =
        below(2) ? (uint32_t)next_random(&dice) : UINT32_MAX - (uint32_t)below(200000); /* and lwIP's from this */
    one_round();
    exit(0);
}

int main(int argc, char **argv)
{
    CHECK(argc == 3);
    uint64_t seed = strtoull(argv[1], NULL, 0), rounds = strtoull(argv[2], NULL, 0);
    verbose = getenv("SHOW") != NULL;
    for (round_seed = seed; round_seed < seed + rounds; round_seed++) {
        pid_t child = fork();
        int status;
        if (child == 0)
            run_round();
        CHECK(child > 0 && waitpid(child, &status, 0) == child);
        CHECK(status == 0, "it ended with %#x", (unsigned)status);
    }
    printf("ok\n");
    return 0;
}

/* The two ends of compare_kernel.c: what each is told, says and does for its user. */
#ifndef TESTS_TCP_COMPARE_ENDS_H
#define TESTS_TCP_COMPARE_ENDS_H

#include <setjmp.h>
#include <stdbool.h>
#include <stdint.h>

static uint64_t case_seed;
static unsigned step_number;
#define CHECK_CONTEXT "case %llu, step %u", (unsigned long long)case_seed, step_number
#include "tests/support/c/check.h"

#include <netinet/tcp.h>
#include "libos/net/tcp/host.h"
#include "libos/net/tcp/machine.h"
#include "tests/libos/net/tcp/c/kernel_end.h"
#include "tests/libos/net/tcp/c/packet.h"

#define IP_SELF 0x0a400001u /* of both: 10.64.0.1 of 10.64.0.0/10, where the peers are */
#define MASK 0xffc00000u
#define PORT 1000        /* that listens */
#define PORT_ACTIVE 1001 /* that opens */
#define STEPS 40
#define STREAM 65536           /* bytes of the peer's stream that may come */
#define FIRST 4000000000u      /* number of the peer's SYN: numbers wrap soon */
#define LONGEST_NS 15000000ull /* of a case in Linux: before its first timer, the delayed acknowledgement */
#define OPEN 20000             /* a window that bounds nothing here */
#define VERSIONS 3
#define TRIES 20 /* of a case, if they differ; that many times is enough: */
#define DIFFER 5

/* What one end has said. Numbers are relative: its own to its SYN, the peer's to FIRST. */
struct said {
    unsigned segments, again, resets; /* again: of what was sent before, which each decides for itself */
    uint32_t ack, reset_seq, reset_ack;
    bool reset_acks;
};

struct end {
    const char *name;
    bool opened, again, gone;                /* its SYN was seen; that of another connection; the user has closed it */
    uint32_t isn, ts_val, sent, acked, edge; /* sent: behind the last number; acked, edge: relative to FIRST */
    uint8_t scale;
    bool scales, times, fin, offers; /* offers: a window, by now */
    struct said said;                /* in this step */
    uint8_t stream[STREAM];
    uint32_t got, wrote;
    bool eof;
    int error;
    unsigned state; /* as Linux numbers them */
};

static struct end linux_end = {.name = "Linux"}, our_end = {.name = "ours"};
static const int window_most = 30000; /* of both: Linux takes more than an unscaled field can tell */
static int listener, fd;              /* of Linux; -1: none */
static struct cl_tcp_host *host;
static int sock; /* ours; -1: none */
static uint64_t dice, began_ns, n_held_up;
static uint64_t times_dice; /* of their own, so that seeds of before mean what they did */
static unsigned n_differ;   /* times that this case did */
static jmp_buf tried;
static uint32_t peer_ip;
static uint16_t peer_port;
static bool verbose, active, wide; /* we open; no window bounded anything yet */
static bool lazy;                  /* the peer acknowledges when it likes, up to `held`, relative to their SYN */
static uint32_t held;
static unsigned unanswered;         /* writes, at most */
static bool over;                   /* nobody has the connection any more */
static bool parted;                 /* the case is over: they differ */
static struct cl_tcp_options offer; /* of the peer's SYN */
static uint32_t next, ts_now;       /* the peer's next byte, relative; its clock */
static uint32_t last_byte, fin_at;  /* the peer's last byte, and the first number at which a FIN was; relative */
static uint8_t versions[STREAM];    /* bit v: that byte came with content v */
static char what[200];              /* the step, in words */

static unsigned chance(void)
{
    return (unsigned)(next_random(&dice) >> 11) % 1000;
}

static uint64_t below(uint64_t n)
{
    return n ? (next_random(&dice) >> 11) % n : 0;
}

static uint8_t byte_of(uint32_t at, unsigned version)
{
    return (uint8_t)((at * 2654435761u >> 24) + 85 * version);
}

/* Hearing. */

static void hear(struct end *e, const uint8_t *packet, uint32_t len)
{
    struct cl_tcp_segment s;
    CHECK(packet_is_whole(packet, len), "a broken sum of %s", e->name);
    CHECK(cl_tcp_segment_read(packet + HEADERS, len - HEADERS, &s));
    if (verbose)
        printf("    %-5s %s%s%s%s%s seq %d len %u ack %d win %u\n", e->name, s.flags & CL_TCPF_SYN ? "S" : "",
               s.flags & CL_TCPF_FIN ? "F" : "", s.flags & CL_TCPF_RST ? "R" : "", s.flags & CL_TCPF_PSH ? "P" : "",
               s.flags & CL_TCPF_ACK ? "." : "", s.flags & CL_TCPF_SYN ? 0 : (int)(s.seq - e->isn), s.len,
               (int)(s.ack - FIRST), s.window);
    if (s.flags & CL_TCPF_RST) {
        e->said.resets++;
        e->said.reset_seq = s.seq ? s.seq - e->isn : 0;
        e->said.reset_ack = s.ack - FIRST;
        e->said.reset_acks = s.flags & CL_TCPF_ACK;
        return;
    }
    e->again |= (s.flags & CL_TCPF_SYN) && e->opened && s.seq != e->isn;
    if (e->again)
        return;
    if ((s.flags & CL_TCPF_SYN) && !e->opened) {
        e->isn = s.seq;
        e->opened = true;
    }
    if ((s.flags & CL_TCPF_SYN) && (s.flags & CL_TCPF_ACK)) {
        e->scales = s.options.has & CL_TCPO_WSCALE;
        e->scale = s.options.wscale;
    }
    if (s.options.has & CL_TCPO_TIMES)
        e->ts_val = s.options.ts_val;
    uint32_t behind = s.seq - e->isn + cl_tcp_segment_space(&s);
    if (cl_tcp_segment_space(&s) && (int32_t)(e->sent - behind) >= 0) /* it was sent before */
        e->said.again++;
    else
        e->said.segments++;
    e->sent = (uint32_t)cl_max((int32_t)e->sent, (int32_t)behind);
    e->fin |= s.flags & CL_TCPF_FIN;
    if (s.flags & CL_TCPF_ACK) {
        uint32_t edge = s.ack - FIRST + ((uint32_t)s.window << (s.flags & CL_TCPF_SYN ? 0 : e->scale));
        CHECK(!e->offers || (int32_t)(edge + (1u << e->scale) - e->edge) >= 0, "the window of %s shrinks by %u",
              e->name, e->edge - edge);
        e->edge = e->offers ? cl_seq_max(e->edge, edge) : edge;
        e->offers = true;
        e->said.ack = e->acked = s.ack - FIRST;
    }
}

static void hear_both(void)
{
    uint8_t packet[PACKET_MOST];
    uint64_t at_ns;
    for (uint32_t len; (len = kernel_next(packet, sizeof packet));)
        if (cl_be32(cl_get32(packet + 16)) == peer_ip)
            hear(&linux_end, packet, len);
    for (uint32_t len; (len = cl_tcp_host_next(host, packet, sizeof packet, &at_ns));)
        hear(&our_end, packet, len);
}

/* Saying. Where a number is counted from. */
enum from { NEXT, EDGE, UNSENT };

struct saying {
    struct cl_tcp_segment s;
    enum from seq_from, ack_from; /* ack_from: NEXT is the SYN of the end itself */
    int32_t seq, ack;
    unsigned version;
    bool broken, old_times, ends; /* ends: its FIN is meant */
    unsigned n_sack;
    struct cl_tcp_range sack[3]; /* relative to the end's SYN */
};

static void say_to(struct end *e, const struct saying *y)
{
    uint8_t packet[PACKET_MOST];
    struct cl_tcp_segment s = y->s;
    uint32_t at = (y->seq_from == EDGE ? e->edge : next) + (uint32_t)y->seq;
    s.seq = FIRST + at;
    s.ack = s.flags & CL_TCPF_ACK ? e->isn + (y->ack_from == UNSENT ? e->sent : 0) + (uint32_t)y->ack : 0;
    s.options.n_sack = (uint8_t)y->n_sack;
    for (unsigned i = 0; i < y->n_sack; i++)
        s.options.sack[i] = (struct cl_tcp_range){e->isn + y->sack[i].from, e->isn + y->sack[i].to};
    if (s.options.has & CL_TCPO_TIMES)
        s.options.ts_ecr = s.flags & CL_TCPF_ACK ? e->ts_val : 0;
    unsigned len = HEADERS + cl_tcp_segment_write(&s, peer_port, active ? PORT_ACTIVE : PORT, packet + HEADERS);
    for (uint32_t i = 0; i < s.len; i++)
        packet[len++] = byte_of(at + i, y->version);
    packet_head(packet, len, peer_ip, IP_SELF);
    if (y->broken)
        packet[HEADERS + 16] ^= 0x55;
    if (e == &linux_end)
        kernel_take(packet, len);
    else
        cl_tcp_host_take(host, packet, len);
}

static struct saying now; /* of this step */

/* In each fourth case the peer leaves out its timestamp now and then. */
static bool leaves_times_out(void)
{
    return case_seed % 4 == 1 && (next_random(&times_dice) >> 11) % 5 == 0;
}

static void say(struct saying *y)
{
    now = *y;
    if (linux_end.times && !(y->s.options.has & CL_TCPO_TIMES) && !leaves_times_out())
        y->s.options = (struct cl_tcp_options){.has = CL_TCPO_TIMES, .ts_val = ts_now};
    uint32_t at = next + (uint32_t)y->seq;
    for (uint32_t i = 0; y->seq_from == NEXT && i < y->s.len; i++)
        if (at + i < STREAM)
            versions[at + i] |= (uint8_t)(1u << y->version);
    bool ends = y->ends && (y->s.flags & CL_TCPF_FIN);
    if (y->seq_from == NEXT && (y->s.len || ends))
        last_byte = (uint32_t)cl_max((int32_t)last_byte, (int32_t)(at + y->s.len));
    if (ends && (int32_t)(at + y->s.len - next) >= 0)
        fin_at = cl_min(fin_at, at + y->s.len);
    if (verbose)
        printf("    peer  %02x seq %d len %u ack %s%+d win %u\n", y->s.flags, (int)at, y->s.len,
               y->ack_from == UNSENT ? "sent" : "", y->ack, y->s.window);
    say_to(&linux_end, y);
    say_to(&our_end, y);
    hear_both();
}

/* The user. */

static void took(struct end *e, const uint8_t *data, int64_t n, int error)
{
    if (n == 0)
        e->eof = true;
    if (n < 0 && error != EAGAIN)
        e->error = error;
    for (int64_t i = 0; i < n; i++) {
        CHECK(e->got + 1 < STREAM);
        e->stream[e->got++] = data[i];
    }
}

static void users_read(void)
{
    uint8_t data[4096];
    for (ssize_t n = 1; fd >= 0 && n > 0;) {
        n = recv(fd, data, sizeof data, 0);
        took(&linux_end, data, n, errno);
    }
    for (int64_t n = 1; sock >= 0 && n > 0;) {
        n = cl_tcp_host_read(host, sock, data, sizeof data);
        took(&our_end, data, n, (int)-n);
    }
    hear_both();
}

static void users_write(uint32_t n)
{
    static uint8_t data[4096];
    if (fd >= 0) {
        ssize_t r = send(fd, data, n, MSG_NOSIGNAL);
        linux_end.wrote += r > 0 ? (uint32_t)r : 0;
        linux_end.error = r < 0 && errno != EAGAIN ? errno : linux_end.error;
    }
    if (sock >= 0) {
        int64_t r = cl_tcp_host_write(host, sock, data, n);
        our_end.wrote += r > 0 ? (uint32_t)r : 0;
        our_end.error = r < 0 && r != -EAGAIN ? (int)-r : our_end.error;
    }
    hear_both();
}

static void users_shut(void)
{
    if (fd >= 0)
        (void)shutdown(fd, SHUT_WR);
    if (sock >= 0)
        (void)cl_tcp_host_shutdown(host, sock);
    hear_both();
}

static void users_close(bool abort)
{
    if (fd >= 0 && abort)
        kernel_reset(fd);
    else if (fd >= 0)
        close(fd);
    if (sock >= 0)
        CHECK_EQ(cl_tcp_host_close(host, sock, abort), 0);
    fd = sock = -1;
    linux_end.gone = our_end.gone = true;
    hear_both();
}

static void users_accept(void)
{
    uint32_t peer;
    uint16_t port;
    if (active || linux_end.gone)
        return;
    if (fd < 0)
        fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (sock < 0) {
        int s = cl_tcp_host_accept(host, 0, &peer, &port);
        sock = s >= 0 ? s : -1;
    }
}

/* What our states are called in Linux (include/net/tcp_states.h). Of sockets that nobody has, 0. */
static void look(void)
{
    static const uint8_t names[] = {TCP_CLOSE,       TCP_LISTEN,    TCP_SYN_SENT,  TCP_SYN_RECV,
                                    TCP_ESTABLISHED, TCP_FIN_WAIT1, TCP_FIN_WAIT2, TCP_CLOSE_WAIT,
                                    TCP_CLOSING,     TCP_LAST_ACK,  TCP_TIME_WAIT};
    struct tcp_info info;
    struct cl_tcp_info ours;
    socklen_t len = sizeof info;
    linux_end.state = our_end.state = 0;
    if (fd >= 0) {
        CHECK(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) == 0);
        linux_end.state = info.tcpi_state;
    }
    if (sock >= 0 && cl_tcp_host_info(host, sock, &ours) == 0)
        our_end.state = names[ours.state];
}

#endif

/* The same segments and calls, one after the other, for a socket of Linux and one of ours: both say the same, or differ
 * in a way that is named below.
 *
 * A case is drawn from a seed: who opens, options, then some forty steps. Segments in order, with gaps, overlapping
 * with other content, old, beyond the window, with any flags, urgent; acknowledgements and SACK ranges of anything,
 * windows of any size, resets, SYNs, FINs, old timestamps, broken sums; and the user's writes, reads, shutdown and
 * close. After each is compared:
 *   kind of answer      nothing, an acknowledgement, a reset
 *   numbers             what is acknowledged, what a reset says, how far was sent
 *   window              its edge never moves left; what begins behind it is refused. How large it is each says for
 *                       itself: Linux begins small and grows
 *   state, user         TCP_INFO's; what can be read, the end, the error
 * Numbers are relative to each one's own first. Nobody's timers come into it: our clock stands, and a case in which
 * Linux was held up is drawn again.
 *
 * argv: seed of the first case, cases. SHOW=1 prints each step. Prints how often each difference was seen, and "ok". */
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
static unsigned n_differ; /* times that this case did */
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

/* Differences that are right. */

enum difference {
    LATER,
    LIMITED,
    NO_ACK,
    SMALL,
    TEXT_BEHIND_FIN,
    LEFT_OF_NEXT,
    RESET_NUMBER,
    GHOST,
    PASSED_FIN,
    REOPENED,
    NARROW,
    BEHIND_SACKED,
    RECOVERY,
    REFUSED,
    SECOND_SYN,
    CROSSED,
    OLD_ACK,
    DIFFERENCES
};
static const char *const reasons[DIFFERENCES] = {
    [LATER] = "an acknowledgement of data or a FIN in order may wait (RFC 9293, 3.8.6.3), and each has its own rule",
    [LIMITED] = "we challenge ten times a second and no more (RFC 5961, 7); Linux' limit is off here",
    [NO_ACK] = "outside of the window and without ACK: we answer (RFC 9293, 3.10.7.4, first), Linux drops it",
    [SMALL] = "TIME_WAIT, and FIN_WAIT_2 without a user, are a smaller block of Linux with rules of its own",
    [TEXT_BEHIND_FIN] = "data that goes on behind the peer's FIN: we ignore it (RFC 9293, 3.10.7.4), Linux resets",
    [LEFT_OF_NEXT] = "old, up to what is next: it is outside (RFC 9293, 3.4), Linux takes its ACK and flags",
    [RESET_NUMBER] = "for data after close: our reset has the newest number acknowledged, Linux' that segment's",
    [GHOST] = "acknowledges what is older than our SYN: RFC 5961, 5.2, lets a window of it pass, Linux does not",
    [PASSED_FIN] = "a peer that has sent a FIN and bytes behind it: the stream ends, or goes on, as segments overlap",
    [REOPENED] = "TIME_WAIT ends for a SYN: which numbers and times are new enough, each says for itself (RFC 6191)",
    [NARROW] = "how far a small window is filled; and Linux takes a smaller one with new numbers only, or if it is 0",
    [BEHIND_SACKED] = "a reset behind what came out of order: we challenge it (RFC 5961, 3.2), Linux takes it",
    [REFUSED] = "a reset when SYNs have crossed: it was refused (RFC 9293, 3.10.7.4, second); was reset, says Linux",
    [SECOND_SYN] = "another SYN before the first is acknowledged: we challenge it as later ones, Linux resets",
    [CROSSED] = "when SYNs have crossed Linux opens for an ACK of nothing; we reset (RFC 9293, 3.10.7.4, fifth)",
    [OLD_ACK] = "an ACK that says nothing, with a timestamp of a moment ago: we answer (RFC 7323, 5.3, R1)",
    [RECOVERY] = "what is sent again, when, and what else may leave then: each has its own recovery",
};
static uint64_t seen[DIFFERENCES];

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

static void say(struct saying *y)
{
    now = *y;
    if (linux_end.times && !(y->s.options.has & CL_TCPO_TIMES))
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

/* Comparing. */

static void tell(const struct end *e)
{
    fprintf(stderr, "  %-5s state %u, got %u%s error %d, acknowledged %u, sent %u; said %u, resets %u (%d, %d)\n",
            e->name, e->state, e->got, e->eof ? " and the end," : ",", e->error, e->acked, e->sent, e->said.segments,
            e->said.resets, (int)e->said.reset_seq, e->said.reset_acks ? (int)e->said.reset_ack : -1);
}

/* They differ. In Linux what is told may be late, or a timer of it due: so the case is tried again, and they differ if
 * they do so each time. */
static void differ(const char *words)
{
    bool timers = kernel_now_ns() - began_ns > LONGEST_NS;
    if (timers || ++n_differ < DIFFER)
        longjmp(tried, 1);
    fprintf(stderr, "after \"%s\" they differ: %s\n", what, words);
    tell(&linux_end);
    tell(&our_end);
    CHECK(false, "%s", words);
}

static void same(bool condition, const char *words)
{
    if (!condition)
        differ(words);
}

/* That reason holds. */
static bool allow(enum difference d, bool is)
{
    seen[d] += is;
    return is;
}

/* ... and what follows cannot be compared. */
static void part(enum difference d, bool is)
{
    parted |= allow(d, is);
}

static bool is_bare(void)
{
    return !(now.s.flags & (CL_TCPF_ACK | CL_TCPF_RST | CL_TCPF_SYN));
}

/* The peer has sent its FIN, in order. */
static bool peer_is_done(void)
{
    return our_end.state == TCP_CLOSE_WAIT || our_end.state == TCP_CLOSING || our_end.state == TCP_LAST_ACK;
}

static bool is_small(void)
{
    return our_end.gone || our_end.state == TCP_TIME_WAIT;
}

static bool is_ghost(void)
{
    return (int32_t)(now.ack_from == UNSENT ? our_end.sent : 0) + now.ack < 1;
}

static bool ends_at_next(void)
{
    return now.seq_from == NEXT && now.seq < 0 && now.seq + (int32_t)cl_tcp_segment_space(&now.s) == 0;
}

/* From here on each goes its own way, and may. */
static void look_for_parting(const struct said *l, const struct said *o)
{
    bool reset = now.s.flags & CL_TCPF_RST;
    part(NARROW, !wide && linux_end.sent != our_end.sent);
    part(RECOVERY, lazy && linux_end.sent != our_end.sent);
    part(BEHIND_SACKED, reset && next + (uint32_t)now.seq == last_byte && l->segments < o->segments);
    part(LEFT_OF_NEXT, ends_at_next() && linux_end.state != our_end.state);
    part(REOPENED, linux_end.again || our_end.again);
    part(PASSED_FIN, last_byte > fin_at && (l->ack != o->ack || linux_end.got != our_end.got));
    part(GHOST, is_ghost() && (!l->segments != !o->segments || l->ack != o->ack));
    part(TEXT_BEHIND_FIN, l->resets && !o->resets && now.s.len && peer_is_done());
    part(SECOND_SYN, l->resets && !o->resets && (now.s.flags & CL_TCPF_SYN) && our_end.state == 0);
    part(CROSSED, o->resets && !l->resets && our_end.state == TCP_SYN_RECV);
    part(SMALL, !l->resets != !o->resets && is_small());
}

/* One answers and the other does not. */
static bool may_be_silent(const struct said *l, const struct said *o, bool in_order, bool limited)
{
    return allow(LATER, in_order) || allow(LIMITED, limited && l->segments) ||
           allow(NO_ACK, o->segments && is_bare()) || allow(SMALL, is_small()) ||
           allow(RECOVERY, l->again || o->again) || allow(LEFT_OF_NEXT, l->segments && ends_at_next()) ||
           allow(OLD_ACK, o->segments && now.old_times && cl_tcp_segment_space(&now.s) == 0);
}

static bool same_reset(const struct said *l, const struct said *o)
{
    return l->reset_acks == o->reset_acks && l->reset_seq == o->reset_seq &&
           (!l->reset_acks || l->reset_ack == o->reset_ack);
}

/* A byte that came with one content only is that; else it is one of those. */
static void compare_bytes(void)
{
    for (uint32_t i = 0; i < linux_end.got && i < our_end.got; i++) {
        uint8_t l = linux_end.stream[i], o = our_end.stream[i];
        bool l_came = false, o_came = false;
        for (unsigned v = 0; v < VERSIONS; v++)
            if (versions[i + 1] >> v & 1) { /* behind the SYN */
                l_came |= l == byte_of(i + 1, v);
                o_came |= o == byte_of(i + 1, v);
            }
        CHECK(l_came && o_came, "byte %u: Linux %u, ours %u, came as %#x", i, l, o, versions[i + 1]);
    }
}

static void compare(bool in_order, bool limited)
{
    const struct said *l = &linux_end.said, *o = &our_end.said;
    look();
    look_for_parting(l, o);
    if (parted)
        return;
    same(!l->resets == !o->resets, "who resets");
    if (l->resets)
        same(same_reset(l, o) || allow(NARROW, !wide) ||
                 allow(RESET_NUMBER, our_end.gone && now.s.len && o->reset_seq > l->reset_seq),
             "what a reset says");
    if (!l->segments != !o->segments)
        same(may_be_silent(l, o, in_order, limited), "who answers");
    if (l->segments && o->segments)
        same(l->ack == o->ack, "what is acknowledged");
    same(linux_end.sent == our_end.sent, "how far was sent");
    same(linux_end.fin == our_end.fin, "who sent a FIN");
    same(linux_end.got == our_end.got, "what can be read");
    same(linux_end.eof == our_end.eof, "the end");
    same(linux_end.error == our_end.error ||
             allow(REFUSED, linux_end.error == ECONNRESET && our_end.error == ECONNREFUSED),
         "the error");
    same(linux_end.state == our_end.state || (linux_end.state == TCP_CLOSE && our_end.state == TCP_TIME_WAIT),
         "states"); /* a socket of Linux has no part in TIME_WAIT */
    compare_bytes();
}

/* Steps. */

/* An acknowledgement: of all, or of a lazy peer of what it feels like. */
static struct saying plain_ack(void)
{
    struct saying y = {.s = {.flags = CL_TCPF_ACK, .window = (uint16_t)OPEN}, .ack_from = UNSENT};
    if (lazy) {
        y.ack_from = NEXT;
        y.ack = (int32_t)held;
    }
    return y;
}

/* An old byte, which is always answered with an acknowledgement: so both say where they are. */
static void ask(void)
{
    struct saying y = plain_ack();
    snprintf(what, sizeof what, "an old byte");
    y.seq = -(int32_t)next - 1;
    y.s.len = 1;
    say(&y);
}

static uint32_t length(void)
{
    return 1 + (uint32_t)below(chance() < 500 ? 20 : 1000);
}

static bool say_data(struct saying *y)
{
    y->s.len = (uint16_t)length();
    y->s.flags |= chance() < 300 ? CL_TCPF_PSH : 0;
    y->version = (unsigned)below(VERSIONS);
    switch (below(5)) {
    case 0: /* with a gap */
        y->seq = 1 + (int32_t)below(3000);
        break;
    case 1: /* old in part or whole */
        y->seq = -(int32_t)below(cl_min(next, 2000u));
        break;
    case 2: /* right where much may wait already */
        y->s.len = (uint16_t)(1 + below(1400));
        break;
    default:
        y->version = 0;
    }
    snprintf(what, sizeof what, "%u bytes at %+d, content %u", y->s.len, y->seq, y->version);
    return true;
}

static void say_flags(struct saying *y)
{
    static const uint8_t kinds[] = {CL_TCPF_RST,
                                    CL_TCPF_RST | CL_TCPF_ACK,
                                    CL_TCPF_SYN,
                                    CL_TCPF_SYN | CL_TCPF_ACK,
                                    CL_TCPF_SYN | CL_TCPF_RST,
                                    CL_TCPF_SYN | CL_TCPF_FIN,
                                    CL_TCPF_FIN,
                                    CL_TCPF_PSH,
                                    0,
                                    0xff};
    static const int32_t steps[] = {0, 0, 1, -1, 100, -100, 70000, -70000, 1 << 30, INT32_MIN};
    y->s.flags = kinds[below(sizeof kinds)];
    y->seq_from = chance() < 800 ? NEXT : EDGE;
    y->seq = steps[below(sizeof steps / sizeof *steps)] + (y->seq_from == EDGE ? 5 : 0); /* as say_beyond */
    snprintf(what, sizeof what, "flags %02x at %s%+d", y->s.flags, y->seq_from == EDGE ? "edge" : "next", y->seq);
}

static void say_ack(struct saying *y)
{
    static const int32_t steps[] = {0, 0, 1, -1, 1000, -100000, 100000, 1 << 30, INT32_MIN};
    y->ack += steps[below(sizeof steps / sizeof *steps)];
    if (chance() < 300)
        y->s.len = (uint16_t)length();
    snprintf(what, sizeof what, "an acknowledgement of %d, with %u bytes", y->ack, y->s.len);
}

static void say_window(struct saying *y)
{
    static const uint16_t windows[] = {0, 0, 1, 100, 3000, OPEN, 65535};
    y->s.window = windows[below(sizeof windows / sizeof *windows)];
    wide &= y->s.window >= OPEN;
    snprintf(what, sizeof what, "a window of %u", y->s.window);
}

static void say_end(struct saying *y)
{
    y->s.flags |= CL_TCPF_FIN;
    y->ends = true;
    y->s.len = (uint16_t)(chance() < 500 ? 0 : length());
    y->seq = chance() < 600 ? 0 : (int32_t)below(1000) - 200;
    snprintf(what, sizeof what, "a FIN with %u bytes at %+d", y->s.len, y->seq);
}

static void say_sacks(struct saying *y)
{
    y->n_sack = 1 + (unsigned)below(3);
    for (unsigned i = 0; i < y->n_sack; i++) {
        uint32_t from = held + (uint32_t)below(our_end.sent - held + 3);
        y->sack[i] = (struct cl_tcp_range){from, from + (uint32_t)below(3000)};
    }
    snprintf(what, sizeof what, "%u SACK ranges, the first %u..%u", y->n_sack, y->sack[0].from, y->sack[0].to);
}

static void say_old_times(struct saying *y)
{
    y->s.len = (uint16_t)(chance() < 500 ? 0 : length());
    y->s.options.has = CL_TCPO_TIMES;
    y->s.options.ts_val = ts_now - 1000 - (uint32_t)below(1u << 30); /* Linux takes what is older by 1 */
    y->old_times = true;
    snprintf(what, sizeof what, "a timestamp of before, with %u bytes", y->s.len);
}

static void say_beyond(struct saying *y)
{
    y->seq_from = EDGE;
    y->seq = 1 + (int32_t)below(3); /* Linux takes what begins at the edge for inside, but its data */
    y->s.len = (uint16_t)length();
    snprintf(what, sizeof what, "%u bytes at edge%+d", y->s.len, y->seq);
}

static void say_urgent(struct saying *y)
{
    y->s.flags |= CL_TCPF_URG;
    y->s.urgent = (uint16_t)below(2000);
    y->s.len = (uint16_t)length();
    snprintf(what, sizeof what, "%u bytes, urgent up to %u", y->s.len, y->s.urgent);
}

static void say_broken(struct saying *y)
{
    y->broken = true;
    y->s.flags |= (uint8_t)next_random(&dice);
    y->s.flags &= (uint8_t)~CL_TCPF_SYN;
    snprintf(what, sizeof what, "a broken sum");
}

static void user_does(void)
{
    unsigned n = chance();
    if (n < 500) {
        uint32_t len = length();
        struct saying y = plain_ack();
        if (!lazy && ++unanswered > 3) { /* else congestion windows come into it, of segments and of bytes */
            unanswered = 0;
            say(&y);
        }
        snprintf(what, sizeof what, "a write of %u", len);
        users_write(len);
    } else if (n < 900) {
        snprintf(what, sizeof what, "a read");
        users_read();
    } else if (n < 960) {
        snprintf(what, sizeof what, "a shutdown");
        users_shut();
    } else {
        snprintf(what, sizeof what, "a close");
        users_close(chance() < 300);
    }
}

/* A peer sends nothing behind its FIN. Most of them. */
static void end_at_fin(struct saying *y)
{
    int64_t left = (int64_t)fin_at - (next + y->seq);
    if (y->seq_from != NEXT || (y->s.flags & (CL_TCPF_SYN | CL_TCPF_RST)) || chance() < 20)
        return;
    if ((y->s.flags & CL_TCPF_FIN) && fin_at == INT32_MAX && (int32_t)(last_byte - next) > y->seq + y->s.len)
        y->seq = (int32_t)(last_byte - next) - y->s.len;
    y->s.len = (uint16_t)cl_max(0, cl_min(left, (int64_t)y->s.len));
    if (y->s.len < left)
        y->s.flags &= fin_at == INT32_MAX ? 0xff : (uint8_t)~CL_TCPF_FIN;
}

/* A segment. Returns whether what is in it comes in order, so that its acknowledgement may wait. */
static bool say_something(void)
{
    struct saying y = plain_ack();
    unsigned n = chance();
    if (n < 400)
        say_data(&y);
    else if (n < 500)
        say_ack(&y);
    else if (n < 580)
        say_window(&y);
    else if (n < 620)
        say_end(&y);
    else if (n < 720)
        say_flags(&y);
    else if (n < 780 && linux_end.times)
        say_old_times(&y);
    else if (n < 820 && (offer.has & CL_TCPO_SACK_OK))
        say_sacks(&y);
    else if (n < 870)
        say_beyond(&y);
    else if (n < 930)
        say_urgent(&y);
    else
        say_broken(&y);
    end_at_fin(&y);
    say(&y);
    return (y.s.len || (y.s.flags & CL_TCPF_FIN)) && y.seq_from == NEXT;
}

static void begin_step(void)
{
    linux_end.said = our_end.said = (struct said){0};
    now = (struct saying){.s = {.flags = CL_TCPF_ACK}, .ack_from = UNSENT};
    step_number++;
    ts_now += (uint32_t)below(3);
    uint32_t more = 1 + (uint32_t)below(our_end.sent);
    if (chance() < 300)
        held = cl_max(held, more);
}

static uint64_t limited_so_far(void)
{
    struct cl_tcp_counts c;
    cl_tcp_host_counts(host, &c);
    return c.challenges_limited;
}

static void step(void)
{
    uint64_t limited = limited_so_far();
    bool in_order = false;
    begin_step();
    if (chance() < 250)
        user_does();
    else
        in_order = say_something();
    users_accept();
    users_read();
    if (verbose)
        printf("%u: %s\n", step_number, what);
    compare(in_order, limited_so_far() != limited);
    if (parted)
        return;
    begin_step();
    limited = limited_so_far();
    ask();
    compare(false, limited_so_far() != limited);
    next = (uint32_t)cl_max((int32_t)next, (int32_t)our_end.acked);
    over = linux_end.said.resets && our_end.said.resets;
}

/* A case. */

static void set_linux(int s) /* a listener's are what its connections begin with */
{
    const int on = 1;
    CHECK(setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0);
    CHECK(setsockopt(s, SOL_SOCKET, SO_OOBINLINE, &on, sizeof on) == 0);          /* else urgent bytes are missing */
    CHECK(setsockopt(s, SOL_SOCKET, SO_RCVBUF, &(int){30000}, sizeof(int)) == 0); /* else Linux tunes the clamp */
    CHECK(setsockopt(s, IPPROTO_TCP, TCP_WINDOW_CLAMP, &window_most, sizeof window_most) == 0);
}

static void reset_end(struct end *e)
{
    const char *name = e->name;
    memset(e, 0, sizeof *e);
    e->name = name;
}

static void draw(void)
{
    reset_end(&linux_end);
    reset_end(&our_end);
    memset(versions, 0, sizeof versions);
    versions[0] = 1;
    fd = sock = -1;
    step_number = 0;
    next = last_byte = 0;
    fin_at = INT32_MAX;
    wide = true;
    lazy = chance() < 300;
    held = 1;
    unanswered = 0;
    parted = over = false;
    ts_now = 1000000 + (uint32_t)below(1u << 31);
    active = below(2);
    peer_ip = IP_SELF + 1 + (uint32_t)(case_seed % (1u << 21));
    peer_port = (uint16_t)(2000 + case_seed % 30000);
    offer = (struct cl_tcp_options){.has = (uint8_t)below(16), .wscale = (uint8_t)below(8), .ts_val = ts_now};
    offer.has &= (uint8_t)~CL_TCPO_WSCALE; /* a window is what its field says */
    offer.mss = (uint16_t)(536 + below(924));
    CHECK_EQ(cl_tcp_host_new(IP_SELF, 1500, 1000000000, &host), 0);
    CHECK_EQ(cl_tcp_host_set(host, CL_TCP_SET_RECEIVE_LIMIT, (uint32_t)window_most), 0);
    CHECK_EQ(cl_tcp_host_set(host, CL_TCP_SET_ECN, 0), 0);
    CHECK_EQ(cl_tcp_host_set(host, CL_TCP_SET_NO_DELAY, 1), 0);
}

/* Something that does not belong into a handshake, now and then. */
static void maybe_say_strange(void)
{
    struct saying y = plain_ack();
    uint64_t limited = limited_so_far();
    if (chance() >= 300)
        return;
    begin_step();
    unsigned n = chance();
    if (n < 500)
        say_flags(&y);
    else if (n < 800)
        say_ack(&y);
    else
        say_data(&y);
    say(&y);
    users_accept();
    users_read();
    compare(false, limited_so_far() != limited);
    over = (linux_end.error && our_end.error) || (next == 0 && our_end.offers); /* refused; another stream than ours */
}

static void open_passively(void)
{
    struct saying y = {.s = {.flags = CL_TCPF_SYN, .window = OPEN, .options = offer}};
    snprintf(what, sizeof what, "a SYN with options %x", offer.has);
    CHECK_EQ(cl_tcp_host_listen(host, PORT, 4), 0);
    say(&y);
}

static void open_actively(void)
{
    struct sockaddr_in to = kernel_address(peer_ip, peer_port);
    bool crossing = chance() < 300;
    struct saying y = {.s = {.flags = CL_TCPF_SYN | CL_TCPF_ACK, .window = OPEN, .options = offer}, .ack_from = UNSENT};
    fd = kernel_socket(PORT_ACTIVE);
    set_linux(fd);
    CHECK(connect(fd, (struct sockaddr *)&to, sizeof to) < 0 && errno == EINPROGRESS, "%s", strerror(errno));
    sock = cl_tcp_host_connect(host, PORT_ACTIVE, peer_ip, peer_port);
    hear_both();
    maybe_say_strange();
    if (parted || over)
        return;
    begin_step();
    if (crossing) {
        y.s.flags = CL_TCPF_SYN;
        snprintf(what, sizeof what, "a SYN that crosses theirs");
    } else {
        snprintf(what, sizeof what, "an answer to the SYN, with options %x", offer.has);
    }
    say(&y);
}

static void run_case(void)
{
    draw();
    began_ns = kernel_now_ns();
    begin_step();
    if (active)
        open_actively();
    else
        open_passively();
    linux_end.times = our_end.times = offer.has & CL_TCPO_TIMES;
    if (!parted && !over)
        compare(false, false);
    next = 1;
    if (!parted && !over)
        maybe_say_strange();
    if (parted || over)
        return;
    struct saying y = plain_ack();
    begin_step();
    snprintf(what, sizeof what, "the acknowledgement of the SYN");
    say(&y);
    users_accept();
    compare(false, false);
    over = linux_end.said.resets && our_end.said.resets;
    for (unsigned i = 0; i < STEPS && !parted && !over; i++)
        step();
}

/* Nothing of it is left in Linux that would say something in another case. */
static void end_case(void)
{
    struct saying y = {.s = {.flags = CL_TCPF_RST}};
    if (!linux_end.gone)
        users_close(true);
    say(&y);
    for (int left; (left = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0;)
        kernel_reset(left);
    cl_tcp_host_delete(host);
}

static void try_case(void)
{
    n_differ = 0;
    for (volatile unsigned i = 0; i < TRIES; i++) {
        dice = case_seed * 0x9e3779b97f4a7c15ull + 1;
        for (unsigned j = 0; j < 10; j++)
            next_random(&dice);
        if (setjmp(tried) == 0) {
            run_case();
            end_case();
            return;
        }
        end_case();
    }
    n_held_up++;
}

int main(int argc, char **argv)
{
    CHECK(argc == 3);
    uint64_t seed = strtoull(argv[1], NULL, 0), cases = strtoull(argv[2], NULL, 0);
    verbose = getenv("SHOW") != NULL;
    kernel_begin(IP_SELF, MASK);
    (void)kernel_set("tcp_ecn", "0");
    (void)kernel_set("tcp_syncookies", "0");
    (void)kernel_set("tcp_invalid_ratelimit", "0");
    (void)kernel_set("tcp_challenge_ack_limit", "2147483647");
    (void)kernel_set("tcp_early_retrans", "0");
    (void)kernel_set("tcp_autocorking", "0");
    listener = kernel_socket(PORT);
    set_linux(listener);
    CHECK(listen(listener, 4096) == 0);
    for (case_seed = seed; case_seed < seed + cases; case_seed++)
        try_case();
    CHECK(n_held_up <= cases / 2, "this machine is too slow: %llu of %llu cases were held up",
          (unsigned long long)n_held_up, (unsigned long long)cases);
    for (unsigned i = 0; i < DIFFERENCES; i++)
        printf("%6llu  %s\n", (unsigned long long)seen[i], reasons[i]);
    printf("ok\n");
    return 0;
}

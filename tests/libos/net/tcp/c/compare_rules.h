/* What of the two ends of compare_kernel.c is compared after each step, and in what they may differ. */
#ifndef TESTS_TCP_COMPARE_RULES_H
#define TESTS_TCP_COMPARE_RULES_H

#include "compare_ends.h"

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

#endif

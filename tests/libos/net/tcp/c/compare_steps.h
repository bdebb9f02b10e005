/* Steps of a case of compare_kernel.c: what the peer says, and what the users do. */
#ifndef TESTS_TCP_COMPARE_STEPS_H
#define TESTS_TCP_COMPARE_STEPS_H

#include "compare_rules.h"

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

#endif

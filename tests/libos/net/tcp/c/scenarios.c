/* What a connection does, case by case, seen from the wire: opening, closing, refusing, time-outs, resets.
 *
 * argv[1]: the name of a case. Prints "ok". */
#include "scenario.h"

static void opens_and_closes(void)
{
    open_both();
    CHECK((conn_of(0)->flags & CL_TCP_TIMES) && (conn_of(1)->flags & CL_TCP_SACKS) && conn_of(0)->mss == 1460);
    ON(apps[0], cl_tcp_write(c, "hello", 5); cl_tcp_close(c));
    world_run(50 * MS);
    CHECK(apps[1].read == 5 && memcmp(apps[1].data, "hello", 5) == 0 && apps[1].eof == 1);
    CHECK(state_of(0) == CL_TCP_FIN_WAIT_2 && state_of(1) == CL_TCP_CLOSE_WAIT);
    CHECK_EQ(count(0, CL_TCPF_FIN), 1);
    CHECK_EQ(nth(0, CL_TCPF_FIN, 0, NULL)->len, 5); /* the FIN goes with the data */
    ON(apps[1], cl_tcp_close(c));
    world_run(50 * MS);
    CHECK(state_of(0) == CL_TCP_TIME_WAIT && state_of(1) == CL_TCP_CLOSED);
    CHECK(apps[0].ended == 1 && apps[1].ended == 1 && apps[0].error == 0 && apps[1].error == 0);
    CHECK_EQ(held(&hosts[0]) + held(&hosts[1]), 0);
    world_run(59 * SECOND);
    CHECK_EQ(state_of(0), CL_TCP_TIME_WAIT);
    world_run(2 * SECOND);
    CHECK_EQ(state_of(0), CL_TCP_CLOSED);
}

static void opens_at_once(void)
{
    apps[0].u = connect_from(&hosts[0], 1000, 80, &events, &apps[0]);
    apps[1].u = connect_from(&hosts[1], 80, 1000, &events, &apps[1]);
    world_run(100 * MS);
    CHECK(apps[0].opened == 1 && apps[1].opened == 1 && state_of(0) == CL_TCP_ESTABLISHED);
    CHECK_EQ(hosts[0].counts.timeouts + hosts[1].counts.timeouts, 0);
    ON(apps[0], cl_tcp_write(c, "a", 1));
    ON(apps[1], cl_tcp_write(c, "b", 1));
    world_run(100 * MS);
    CHECK(apps[0].data[0] == 'b' && apps[1].data[0] == 'a');
    ON(apps[0], cl_tcp_abort(c));
    world_run(100 * MS);
    CHECK(apps[0].error == ECONNABORTED && apps[1].error == ECONNRESET);
}

static void closes_at_once(void)
{
    open_both();
    ON(apps[0], cl_tcp_close(c));
    ON(apps[1], cl_tcp_close(c));
    world_run(11 * MS);
    CHECK(state_of(0) == CL_TCP_CLOSING && state_of(1) == CL_TCP_CLOSING);
    world_run(50 * MS);
    CHECK(state_of(0) == CL_TCP_TIME_WAIT && state_of(1) == CL_TCP_TIME_WAIT);
    CHECK(apps[0].ended == 1 && apps[1].ended == 1 && apps[0].error == 0);
    world_run(61 * SECOND);
}

static void half_closes(void)
{
    open_both();
    ON(apps[0], cl_tcp_shutdown(c));
    world_run(1 * SECOND);
    CHECK(apps[1].eof == 1 && state_of(0) == CL_TCP_FIN_WAIT_2);
    ON(apps[1], cl_tcp_write(c, "still here", 10));
    world_run(3600 * SECOND); /* not closed: it may wait */
    CHECK(apps[0].read == 10 && state_of(0) == CL_TCP_FIN_WAIT_2);
    ON(apps[1], cl_tcp_shutdown(c));
    world_run(61 * SECOND);
    CHECK(apps[0].ended == 1 && apps[1].ended == 1 && apps[0].error == 0);
}

static void is_refused(void)
{
    apps[0].u = connect_from(&hosts[0], 1000, 81, &events, &apps[0]);
    world_run(50 * MS);
    CHECK(apps[0].opened == 0 && apps[0].ended == 1 && apps[0].error == ECONNREFUSED);
}

static void nobody_answers(void)
{
    uint64_t from_ns = now_ns, at_ns;
    hosts[1].mute = true;
    connect_only();
    world_run(300 * SECOND);
    CHECK(apps[0].ended == 1 && apps[0].error == ETIMEDOUT);
    CHECK_EQ(count(0, CL_TCPF_SYN), 7);
    for (unsigned i = 0; i < 7; i++) { /* 1, 2, 4, ... s apart */
        nth(0, CL_TCPF_SYN, i, &at_ns);
        CHECK_EQ(at_ns - from_ns, ((1ull << i) - 1) * SECOND);
    }
    CHECK_EQ(count(0, CL_TCPF_RST), 0);
}

static unsigned to_lose;
static bool lose_first_synack(unsigned from, const struct cl_tcp_segment *s)
{
    return from == 1 && (s->flags & CL_TCPF_SYN) && to_lose && to_lose--;
}

static void synack_is_lost(void)
{
    to_lose = 2;
    loses = lose_first_synack;
    connect_only();
    world_run(10 * SECOND);
    CHECK(apps[0].opened == 1 && apps[1].opened == 1);
    CHECK_EQ(conn_of(0)->cc.window, conn_of(0)->cc.mss); /* RFC 5681: one segment */
}

static void half_open_ends(void)
{
    loses = lose_first_synack;
    to_lose = 1000;
    connect_only();
    world_run(1 * SECOND);
    CHECK_EQ(hosts[1].listener.pending, 1);
    hosts[0].mute = true;
    world_run(200 * SECOND);
    CHECK(apps[1].opened == 0 && apps[1].ended == 0 && hosts[1].listener.pending == 0 && !hosts[1].users[0].used);
    CHECK(count(1, CL_TCPF_SYN) >= 6);
}

/* Each SYN is answered, and the half-open connection is given up when its time is over nevertheless. */
static void syns_that_come_again_put_nothing_off(void)
{
    struct cl_tcp_segment syn = {.seq = 9, .flags = CL_TCPF_SYN, .window = 100};
    uint8_t bytes[64];
    listen_on(&hosts[1], 80, &events, &apps[1]);
    hosts[0].mute = true;
    for (unsigned i = 0; i < 200; i++) {
        arrive(&hosts[1], bytes, cl_tcp_segment_write(&syn, 2000, 80, bytes));
        world_run(SECOND / 2);
    }
    unsigned n = count(1, CL_TCPF_SYN);
    CHECK(n >= 200);
    CHECK(nth(1, CL_TCPF_SYN, 0, NULL)->seq == nth(1, CL_TCPF_SYN, 50, NULL)->seq);
    CHECK(nth(1, CL_TCPF_SYN, 0, NULL)->seq != nth(1, CL_TCPF_SYN, n - 1, NULL)->seq, "the first one lives");
    world_run(200 * SECOND);
    CHECK_EQ(hosts[1].listener.pending, 0);
}

static void backlog_is_bounded(void)
{
    struct cl_tcp_segment syn = {.seq = 9, .flags = CL_TCPF_SYN, .window = 100};
    uint8_t bytes[64];
    listen_on(&hosts[1], 80, &events, &apps[1]);
    hosts[0].mute = true;
    for (uint16_t port = 2000; port < 2100; port++)
        arrive(&hosts[1], bytes, cl_tcp_segment_write(&syn, port, 80, bytes));
    CHECK_EQ(hosts[1].listener.pending, hosts[1].listener.backlog);
    world_run(200 * SECOND);
    CHECK_EQ(hosts[1].listener.pending, 0);
}

static void resets_must_be_exact(void)
{
    open_both();
    struct cl_tcp_segment s = in_turn();
    s.flags = CL_TCPF_RST;
    s.seq += 1;
    say(s, NULL); /* in the window: a challenge */
    CHECK(state_of(1) == CL_TCP_ESTABLISHED && hosts[1].counts.challenges == 1 && count(1, CL_TCPF_ACK) == 1);
    s.seq -= 2;
    say(s, NULL); /* outside: nothing */
    CHECK(state_of(1) == CL_TCP_ESTABLISHED && count(1, CL_TCPF_ACK) == 1);
    s.seq += 1;
    say(s, NULL);
    CHECK(state_of(1) == CL_TCP_CLOSED && apps[1].ended == 1 && apps[1].error == ECONNRESET);
    ON(apps[0], cl_tcp_abort(c));
}

static void challenges_are_limited(void)
{
    open_both();
    struct cl_tcp_segment s = in_turn();
    s.flags = CL_TCPF_SYN;
    for (unsigned i = 0; i < 1000; i++)
        say(s, NULL);
    CHECK(hosts[1].counts.challenges == 10 && count(1, CL_TCPF_ACK) == 10 && hosts[1].counts.challenges_limited == 990);
    s = in_turn();
    s.ack += 5; /* of what was never sent */
    s.seq += 1;
    world_run(2 * SECOND);
    say(s, "forged");
    CHECK(state_of(1) == CL_TCP_ESTABLISHED && hosts[1].counts.challenges == 11 && !conn_of(1)->aside);
    s.ack = conn_of(1)->una - conn_of(1)->wnd_max - 1;
    say(s, "forged");
    CHECK(!conn_of(1)->aside);
    ON(apps[0], cl_tcp_abort(c));
    world_run(SECOND);
}

static void old_timestamps_are_dropped(void)
{
    open_both();
    struct cl_tcp_segment s = in_turn();
    s.options = (struct cl_tcp_options){.has = CL_TCPO_TIMES, .ts_val = conn_of(1)->ts_recent - 1};
    say(s, "old");
    CHECK(apps[1].read == 0 && hosts[1].counts.dropped_paws == 1 && count(1, CL_TCPF_ACK) == 1);
    s.options.ts_val += 1;
    say(s, "new");
    CHECK_EQ(apps[1].read, 3);
    ON(apps[0], cl_tcp_abort(c));
    world_run(SECOND);
    if (apps[1].u)
        ON(apps[1], cl_tcp_abort(c));
}

static void keep_alive_ends(void)
{
    hosts[0].stack.settings.flags |= CL_TCP_KEEP_ALIVE;
    open_both();
    world_run(7201 * SECOND);
    CHECK(hosts[0].counts.probes == 1 && apps[0].ended == 0); /* it was answered */
    hosts[1].mute = true;
    world_run((7200 + 9 * 75 + 10) * SECOND);
    CHECK(apps[0].ended == 1 && apps[0].error == ETIMEDOUT && hosts[0].counts.probes == 10);
    hosts[1].mute = false;
    ON(apps[1], cl_tcp_abort(c));
    world_run(SECOND);
}

/* Of one connection; as many sets of times as may be, and then no more. */
static void own_times_of_keep_alive(void)
{
    int rc = 0;
    open_both();
    ON(apps[0], rc = cl_tcp_keep_times(c, 10000, 2000, 3));
    CHECK_EQ(rc, 0);
    ON(apps[0], cl_tcp_keep_alive(c, true));
    world_run(9900 * MS);
    CHECK_EQ(hosts[0].counts.probes, 0);
    world_run(200 * MS);
    CHECK_EQ(hosts[0].counts.probes, 1);
    world_run(5 * SECOND);
    ON(apps[0], rc = cl_tcp_keep_times(c, 6000, 2000, 3)); /* counts from when it was heard of */
    world_run(1100 * MS);
    CHECK(rc == 0 && hosts[0].counts.probes == 2);
    CHECK_EQ(hosts[0].stack.keeps.n, 2);
    ON(apps[1], rc = cl_tcp_keep_times(c, 6000, 2000, 3));
    CHECK(rc == 0 && hosts[1].stack.keeps.n == 1 && conn_of(1)->settings->keep_idle_ms == 6000);
    for (uint32_t i = 1; rc == 0; i++)
        ON(apps[1], rc = cl_tcp_keep_times(c, 6000 + i, 2000, 3));
    CHECK(rc == -ENOBUFS && hosts[1].stack.keeps.n == CL_TCP_KEEPS);
    ON(apps[1], rc = cl_tcp_keep_times(c, 7200000, 75000, 9)); /* as it began */
    CHECK(rc == 0 && conn_of(1)->settings == &hosts[1].stack.settings);
    hosts[1].mute = true;
    world_run((6 + 3 * 2 + 1) * SECOND);
    CHECK(apps[0].ended == 1 && apps[0].error == ETIMEDOUT);
    hosts[1].mute = false;
    ON(apps[1], cl_tcp_abort(c));
    world_run(SECOND);
}

static void user_timeout_ends(void)
{
    hosts[0].stack.settings.user_timeout_ms = 5000;
    open_both();
    hosts[1].mute = true;
    ON(apps[0], cl_tcp_write(c, "x", 1));
    world_run(4900 * MS);
    CHECK_EQ(apps[0].ended, 0);
    world_run(200 * MS);
    CHECK(apps[0].ended == 1 && apps[0].error == ETIMEDOUT);
    hosts[1].mute = false;
    ON(apps[1], cl_tcp_abort(c));
    world_run(SECOND);
}

static void retransmission_backs_off(void)
{
    uint64_t last_ns = 0, at_ns;
    hosts[0].stack.settings.no_tail_probes = true;
    open_both();
    hosts[1].mute = true;
    ON(apps[0], cl_tcp_write(c, "x", 1));
    world_run(3000 * SECOND);
    CHECK(apps[0].ended == 1 && apps[0].error == ETIMEDOUT);
    CHECK_EQ(count(0, CL_TCPF_PSH), 16);
    uint64_t wait_ns = 0;
    for (unsigned i = 0; i < 16; i++, last_ns = at_ns) {
        nth(0, CL_TCPF_PSH, i, &at_ns);
        if (i > 1 && 2 * wait_ns < 120 * SECOND)
            CHECK_EQ(at_ns - last_ns, 2 * wait_ns);
        wait_ns = i ? at_ns - last_ns : 0;
        CHECK(wait_ns <= 120 * SECOND);
    }
    hosts[1].mute = false;
    ON(apps[1], cl_tcp_abort(c));
    world_run(SECOND);
}

static void fin_wait_2_ends_without_a_user(void)
{
    open_both();
    ON(apps[0], cl_tcp_close(c));
    world_run(SECOND);
    CHECK_EQ(state_of(0), CL_TCP_FIN_WAIT_2);
    world_run(61 * SECOND);
    CHECK(state_of(0) == CL_TCP_CLOSED && apps[0].ended == 1);
    ON(apps[1], cl_tcp_write(c, "x", 1)); /* nobody is there any more */
    world_run(SECOND);
    CHECK(apps[1].ended == 1 && apps[1].error == EPIPE);
}

static void data_for_a_closed_user_is_refused(void)
{
    open_both();
    ON(apps[0], cl_tcp_close(c));
    world_run(SECOND);
    ON(apps[1], cl_tcp_write(c, "too late", 8));
    world_run(SECOND);
    CHECK(apps[0].ended == 1 && apps[1].ended == 1 && apps[1].error == EPIPE && apps[0].read == 0);
    CHECK_EQ(count(0, CL_TCPF_RST), 1);
}

static void unread_data_resets(void)
{
    apps[1].keeps = true;
    open_both();
    ON(apps[0], cl_tcp_write(c, "unread", 6));
    world_run(SECOND);
    ON(apps[1], cl_tcp_close(c));
    world_run(SECOND);
    CHECK(count(1, CL_TCPF_RST) == 1 && apps[0].error == ECONNRESET && apps[1].ended == 1);
}

static void fin_of_old_is_answered_in_time_wait(void)
{
    open_both();
    ON(apps[0], cl_tcp_close(c));
    world_run(SECOND);
    ON(apps[1], cl_tcp_close(c));
    world_run(20 * MS);
    CHECK_EQ(state_of(0), CL_TCP_TIME_WAIT);
    world_run(50 * SECOND);
    /* B's last is said again: A waits anew. */
    struct cl_tcp_conn *a = conn_of(0);
    struct cl_tcp_segment s = {.seq = a->rcv_nxt - 1, .ack = a->nxt, .flags = CL_TCPF_FIN | CL_TCPF_ACK};
    s.options = (struct cl_tcp_options){.has = CL_TCPO_TIMES, .ts_val = a->ts_recent};
    uint8_t bytes[64];
    n_sent = 0;
    arrive(&hosts[0], bytes, cl_tcp_segment_write(&s, 80, 1000, bytes));
    CHECK_EQ(count(0, CL_TCPF_ACK), 1);
    world_run(50 * SECOND);
    CHECK_EQ(state_of(0), CL_TCP_TIME_WAIT);
    world_run(11 * SECOND);
    CHECK_EQ(state_of(0), CL_TCP_CLOSED);
}

/* The server closed first. Its client comes again from the same port, long before TIME_WAIT is over. */
static void time_wait_opens_again(void)
{
    open_both();
    ON(apps[1], cl_tcp_close(c));
    world_run(SECOND);
    ON(apps[0], cl_tcp_close(c));
    world_run(SECOND);
    CHECK(state_of(0) == CL_TCP_CLOSED && state_of(1) == CL_TCP_TIME_WAIT);
    uint32_t before = conn_of(1)->nxt;
    apps[0].opened = apps[1].opened = 0;
    apps[0].u = connect_from(&hosts[0], 1000, 80, &events, &apps[0]);
    world_run(SECOND);
    CHECK(apps[0].opened == 1 && apps[1].opened == 1 && hosts[1].listener.pending == 0);
    CHECK(cl_seq_before(before, conn_of(1)->nxt));
    ON(apps[0], cl_tcp_write(c, "again", 5); cl_tcp_close(c));
    world_run(SECOND);
    CHECK(apps[1].read == 5);
    ON(apps[1], cl_tcp_close(c));
    world_run(SECOND);
    CHECK(state_of(0) == CL_TCP_TIME_WAIT && state_of(1) == CL_TCP_CLOSED);
    world_run(100 * SECOND);
}

static void numbers_are_not_to_be_guessed(void)
{
    struct cl_tcp_turn *turn = &hosts[0].turn;
    struct cl_tcp_conn c;
    struct cl_flow_key key = {1, 2, 3, 4, 6};
    turn->now_ns = now_ns;
    cl_tcp_init(&c, turn, &key, &hosts[0].stack.settings);
    uint32_t first = c.nxt;
    turn->now_ns += 4096 * 1000;
    cl_tcp_init(&c, turn, &key, &hosts[0].stack.settings);
    CHECK_EQ(c.nxt - first, 1000); /* of one pair they grow by the clock */
    key.peer_port_be++;
    cl_tcp_init(&c, turn, &key, &hosts[0].stack.settings);
    CHECK(c.nxt - first > 1u << 20); /* of another they are elsewhere (but for one in 4000 secrets) */
}

static const struct scenario cases[] = {
    CASE(opens_and_closes),
    CASE(opens_at_once),
    CASE(closes_at_once),
    CASE(half_closes),
    CASE(is_refused),
    CASE(nobody_answers),
    CASE(synack_is_lost),
    CASE(half_open_ends),
    CASE(syns_that_come_again_put_nothing_off),
    CASE(backlog_is_bounded),
    CASE(resets_must_be_exact),
    CASE(challenges_are_limited),
    CASE(old_timestamps_are_dropped),
    CASE(keep_alive_ends),
    CASE(own_times_of_keep_alive),
    CASE(user_timeout_ends),
    CASE(retransmission_backs_off),
    CASE(fin_wait_2_ends_without_a_user),
    CASE(data_for_a_closed_user_is_refused),
    CASE(unread_data_resets),
    CASE(fin_of_old_is_answered_in_time_wait),
    CASE(time_wait_opens_again),
    CASE(numbers_are_not_to_be_guessed),
};

int main(int argc, char **argv)
{
    return run_scenarios(argc, argv, cases, sizeof cases / sizeof *cases);
}

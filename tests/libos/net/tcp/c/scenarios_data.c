/* The same of its data: acknowledgements, windows, what is missing, buffers, users.
 *
 * argv[1]: the name of a case. Prints "ok". */
#include "scenario.h"

static void first_bytes_win(void)
{
    open_both();
    struct cl_tcp_segment s = in_turn();
    uint32_t base = s.seq;
    s.seq = base + 4;
    say(s, "EFGH");
    s.seq = base + 2;
    say(s, "cdxxxxij"); /* overlaps with other content */
    s.seq = base + 1;
    say(s, "byyy");
    CHECK_EQ(conn_of(1)->aside->n, 1);
    const struct cl_tcp_segment *last = &sent[n_sent - 1].s;
    const struct cl_tcp_range *told = last->options.sack; /* what came twice, then what it is in (RFC 2883) */
    CHECK(last->options.n_sack == 2 && told[0].from == base + 2 && told[0].to == base + 5);
    CHECK(told[1].from == base + 1 && told[1].to == base + 10);
    s.seq = base;
    say(s, "azzzzzzzzz");
    CHECK(apps[1].read == 10 && memcmp(apps[1].data, "abcdEFGHij", 10) == 0, "%.10s", apps[1].data);
    say(s, "azzzzzzzzz");
    CHECK_EQ(apps[1].read, 10);
    CHECK_EQ(held(&hosts[1]), 0);
    ON(apps[1], cl_tcp_abort(c));
    world_run(SECOND);
    if (apps[0].u)
        ON(apps[0], cl_tcp_abort(c));
}

static void sacks_name_the_latest_first(void)
{
    open_both();
    struct cl_tcp_segment s = in_turn();
    uint32_t base = s.seq;
    for (unsigned i = 1; i <= 5; i++) {
        s.seq = base + 10 * i;
        say(s, "x");
    }
    const struct cl_tcp_options *o = &sent[n_sent - 1].s.options;
    CHECK_EQ(o->n_sack, 3); /* beside timestamps */
    for (unsigned i = 0; i < 3; i++)
        CHECK(o->sack[i].from == base + 10 * (5 - i) && o->sack[i].to == o->sack[i].from + 1);
    CHECK_EQ(count(1, CL_TCPF_ACK), 5); /* one for each */
    ON(apps[1], cl_tcp_abort(c));
    world_run(SECOND);
    if (apps[0].u)
        ON(apps[0], cl_tcp_abort(c));
}

static void holes_are_bounded(void)
{
    cl_chunks_delete(hosts[1].stack.chunks);
    hosts[1].stack.chunks = cl_chunks_new(4000ull * CL_CHUNK_BYTES, 1); /* of which its share is more than they take */
    open_both();
    struct cl_tcp_segment s = in_turn();
    uint32_t base = s.seq;
    for (unsigned i = 1; i <= 1000; i++) {
        s.seq = base + 2 * i;
        say(s, "x");
    }
    CHECK_EQ(conn_of(1)->aside->n, CL_TCP_RANGES);
    CHECK(held(&hosts[1]) <= (CL_TCP_RANGES + 1) * CL_CHUNK_BYTES);
    CHECK_EQ(conn_of(1)->aside->ranges[CL_TCP_RANGES - 1].from, base + 2 * CL_TCP_RANGES); /* the first to come stay */
    s.seq = base;
    say(s, "ab"); /* in order: always taken */
    CHECK_EQ(apps[1].read, 3);
    ON(apps[1], cl_tcp_abort(c));
    world_run(SECOND);
    if (apps[0].u)
        ON(apps[0], cl_tcp_abort(c));
}

/* The window closes, opens when the reader reads; probes ask meanwhile, further and further apart. */
static void window_closes(void)
{
    static uint8_t data[65536];
    apps[1].keeps = true;
    hosts[1].stack.settings.receive_limit = 20000;
    for (unsigned i = 0; i < sizeof data; i++)
        data[i] = (uint8_t)(i * 7);
    open_both();
    ON(apps[0], CHECK_EQ(cl_tcp_write(c, data, 60000), 60000));
    world_run(2 * SECOND);
    CHECK_EQ(conn_of(0)->wnd, 0);
    CHECK(conn_of(1)->receive.bytes <= 20000 + 127 && conn_of(1)->receive.bytes >= 20000 - 127);
    world_run(600 * SECOND);
    CHECK(hosts[0].counts.probes >= 8 && hosts[0].counts.probes < 30 && apps[0].ended == 0);
    apps[1].keeps = false;
    ON(apps[1], cl_tcp_resume(c));
    world_run(5 * SECOND);
    CHECK(apps[1].read == 60000 && memcmp(apps[1].data, data, 60000) == 0);
    ON(apps[0], cl_tcp_close(c));
    ON(apps[1], cl_tcp_close(c));
    world_run(100 * SECOND);
}

static bool lose_updates;
static bool lose_window_updates(unsigned from, const struct cl_tcp_segment *s)
{
    return lose_updates && from == 1 && s->window;
}

static void window_update_is_lost(void)
{
    static uint8_t data[60000];
    apps[1].keeps = true;
    hosts[1].stack.settings.receive_limit = 20000;
    loses = lose_window_updates;
    open_both();
    ON(apps[0], cl_tcp_write(c, data, 60000));
    world_run(2 * SECOND);
    lose_updates = true;
    apps[1].keeps = false;
    ON(apps[1], cl_tcp_resume(c));
    world_run(1 * SECOND);
    lose_updates = false;
    world_run(100 * SECOND); /* a probe finds it open */
    CHECK_EQ(apps[1].read, 60000);
    ON(apps[0], cl_tcp_abort(c));
    world_run(SECOND);
}

/* What comes late, or again, may have an old number and the newest acknowledgement: its window is the one that
 * counts. */
static void late_data_brings_the_window(void)
{
    static uint8_t data[40000];
    open_both();
    hosts[0].mute = true; /* from now on we speak for it */
    struct cl_tcp_segment s = in_turn();
    uint32_t unit = 1u << conn_of(1)->snd_scale;
    s.seq += 10; /* what was before it is late */
    s.window = (uint16_t)(12800 / unit);
    say(s, NULL);
    ON(apps[1], cl_tcp_write(c, data, sizeof data));
    CHECK(conn_of(1)->nxt - s.ack > 10000 && conn_of(1)->nxt - s.ack <= 12800);
    s.seq -= 10;
    s.ack = conn_of(1)->nxt;
    s.window = (uint16_t)(1280 / unit);
    say(s, "0123456789");
    CHECK_EQ(conn_of(1)->wnd, 1280);
    CHECK(conn_of(1)->nxt - s.ack <= 1280, "%u bytes beyond it", conn_of(1)->nxt - s.ack - 1280);
    hosts[0].mute = false;
    ON(apps[1], cl_tcp_abort(c));
    ON(apps[0], cl_tcp_abort(c));
    world_run(SECOND);
}

/* A window far below the largest waits for a time-out once. The peer's memory has become less, so the next one does
 * not. */
static void window_has_become_small(void)
{
    static uint8_t data[40000];
    open_both();
    hosts[0].mute = true; /* from now on we speak for it */
    struct cl_tcp_segment s = in_turn();
    uint32_t unit = 1u << conn_of(1)->snd_scale;
    s.window = (uint16_t)(12800 / unit);
    say(s, NULL);
    ON(apps[1], cl_tcp_write(c, data, sizeof data));
    for (unsigned i = 0; i < 3; i++) {
        s.ack = conn_of(1)->nxt;
        s.window = (uint16_t)(128 / unit);
        say(s, NULL);
        if (i == 0) {
            CHECK_EQ(conn_of(1)->nxt, s.ack);
            world_run(SECOND / 2);
        }
        CHECK_EQ(conn_of(1)->nxt - s.ack, 128);
    }
    hosts[0].mute = false;
    ON(apps[1], cl_tcp_abort(c));
    ON(apps[0], cl_tcp_abort(c));
    world_run(SECOND);
}

static void acks_are_delayed(void)
{
    uint64_t at_ns, from_ns;
    hosts[0].stack.settings.flags |= CL_TCP_NO_DELAY;
    open_both();
    for (unsigned i = 0; i < 20; i++) { /* the first ones are quick */
        ON(apps[0], cl_tcp_write(c, "x", 1));
        world_run(100 * MS);
    }
    CHECK_EQ(count(1, CL_TCPF_ACK), 20);
    n_sent = 0;
    from_ns = now_ns;
    ON(apps[0], cl_tcp_write(c, "x", 1));
    world_run(100 * MS);
    CHECK_EQ(count(1, CL_TCPF_ACK), 1);
    nth(1, CL_TCPF_ACK, 0, &at_ns);
    CHECK_EQ(at_ns - from_ns, 50 * MS); /* 10 on the way, and 40 */
    n_sent = 0;
    static uint8_t data[2 * 1448];
    ON(apps[0], cl_tcp_write(c, data, sizeof data));
    world_run(100 * MS);
    CHECK_EQ(count(1, CL_TCPF_ACK), 1); /* two full ones: at once */
    nth(1, CL_TCPF_ACK, 0, &at_ns);
    uint64_t sent_ns;
    nth(0, CL_TCPF_PSH, 0, &sent_ns);
    CHECK_EQ(at_ns - sent_ns, 10 * MS);
    ON(apps[0], cl_tcp_abort(c));
    world_run(SECOND);
}

static void nagle_waits(void)
{
    open_both();
    ON(apps[0], cl_tcp_write(c, "a", 1));
    ON(apps[0], cl_tcp_write(c, "b", 1));
    ON(apps[0], cl_tcp_write(c, "c", 1));
    CHECK_EQ(count(0, CL_TCPF_PSH), 1);
    world_run(100 * MS);
    CHECK(count(0, CL_TCPF_PSH) == 2 && apps[1].read == 3);
    CHECK_EQ(nth(0, CL_TCPF_PSH, 1, NULL)->len, 2);
    n_sent = 0;
    hosts[0].users[0].conn.flags |= CL_TCP_NO_DELAY;
    ON(apps[0], cl_tcp_write(c, "a", 1));
    ON(apps[0], cl_tcp_write(c, "b", 1));
    CHECK_EQ(count(0, CL_TCPF_PSH), 2);
    ON(apps[0], cl_tcp_abort(c));
    world_run(SECOND);
}

/* What does not fill a segment waits under a cork: until it is off, or no more than 200 ms and what a round trip
 * adds. */
static void cork_holds(void)
{
    static uint8_t data[3 * 1448 + 100];
    open_both();
    ON(apps[0], cl_tcp_cork(c, true));
    ON(apps[0], cl_tcp_write(c, data, 100));
    world_run(100 * MS);
    CHECK_EQ(apps[1].read, 0);
    ON(apps[0], cl_tcp_write(c, data, 1448)); /* a full one leaves, and 100 bytes stay */
    world_run(100 * MS);
    CHECK_EQ(apps[1].read, 1448);
    ON(apps[0], cl_tcp_cork(c, false));
    world_run(20 * MS);
    CHECK_EQ(apps[1].read, 1548);
    ON(apps[0], cl_tcp_cork(c, true));
    ON(apps[0], cl_tcp_write(c, data, sizeof data));
    ON(apps[0], cl_tcp_cork(c, false)); /* full ones under way are no reason to wait */
    world_run(11 * MS);
    CHECK_EQ(apps[1].read, 1548 + sizeof data);
    world_run(SECOND);
    ON(apps[0], cl_tcp_cork(c, true));
    ON(apps[0], cl_tcp_write(c, "x", 1));
    world_run(190 * MS);
    CHECK_EQ(apps[1].read, 1548 + sizeof data);
    world_run(100 * MS);
    CHECK_EQ(apps[1].read, 1549 + sizeof data);
    ON(apps[0], cl_tcp_write(c, "y", 1));
    ON(apps[0], cl_tcp_shutdown(c)); /* a FIN takes it along */
    world_run(20 * MS);
    CHECK(apps[1].read == 1550 + sizeof data && hosts[0].counts.timeouts == 0);
    ON(apps[0], cl_tcp_abort(c));
    world_run(SECOND);
}

/* Nagle's rule off lets out what waits, but holds it no less afterwards; with it, the cork's end does, too. */
static void no_delay_meets_a_cork(void)
{
    open_both();
    ON(apps[0], cl_tcp_cork(c, true));
    ON(apps[0], cl_tcp_write(c, "a", 1));
    ON(apps[0], cl_tcp_no_delay(c, true));
    CHECK_EQ(count(0, CL_TCPF_PSH), 1);
    ON(apps[0], cl_tcp_write(c, "b", 1));
    world_run(100 * MS);
    CHECK_EQ(apps[1].read, 1);
    ON(apps[0], cl_tcp_write(c, "c", 1));
    ON(apps[0], cl_tcp_cork(c, false));
    CHECK_EQ(count(0, CL_TCPF_PSH), 2);
    world_run(20 * MS);
    CHECK_EQ(apps[1].read, 3);
    ON(apps[0], cl_tcp_abort(c));
    world_run(SECOND);
}

/* A write that says that more follows, and the one that does not; or a segment that comes before. */
static void more_follows(void)
{
    open_both();
    ON(apps[0], cl_tcp_write(c, "a", 1); cl_tcp_more(c));
    ON(apps[0], cl_tcp_write(c, "b", 1); cl_tcp_more(c));
    world_run(100 * MS);
    CHECK_EQ(apps[1].read, 0);
    ON(apps[0], cl_tcp_write(c, "c", 1));
    CHECK_EQ(count(0, CL_TCPF_PSH), 1);
    world_run(100 * MS);
    CHECK_EQ(apps[1].read, 3);
    ON(apps[0], cl_tcp_write(c, "d", 1); cl_tcp_more(c));
    ON(apps[1], cl_tcp_write(c, "z", 1));
    world_run(21 * MS);
    CHECK_EQ(apps[1].read, 4);
    world_run(SECOND);
    ON(apps[0], cl_tcp_write(c, "e", 1); cl_tcp_more(c)); /* and then nothing */
    world_run(300 * MS);
    CHECK_EQ(apps[1].read, 5);
    ON(apps[0], cl_tcp_abort(c));
    world_run(SECOND);
}

static unsigned data_segments;
static bool lose_third(unsigned from, const struct cl_tcp_segment *s)
{
    return from == 0 && s->len && ++data_segments == 3;
}

static void duplicates_resend_at_once(void)
{
    static uint8_t data[14480];
    open_both();
    loses = lose_third;
    ON(apps[0], cl_tcp_write(c, data, sizeof data));
    world_run(150 * MS); /* less than a time-out */
    CHECK(apps[1].read == sizeof data && hosts[0].counts.timeouts == 0 && hosts[0].counts.fast_retransmits == 1);
    CHECK_EQ(hosts[0].counts.resent, 1);
    CHECK(!(conn_of(0)->flags & CL_TCP_RECOVERING) && conn_of(0)->cc.window < 10 * conn_of(0)->cc.mss);
    ON(apps[0], cl_tcp_abort(c));
    world_run(SECOND);
}

static void buffers_are_short(void)
{
    static uint8_t data[14480];
    open_both();
    hosts[0].no_buffers = hosts[1].no_buffers = true;
    ON(apps[0], cl_tcp_write(c, data, sizeof data));
    world_run(100 * MS);
    CHECK_EQ(apps[1].read, 0);
    hosts[0].no_buffers = hosts[1].no_buffers = false;
    world_run(200 * MS);
    CHECK_EQ(apps[1].read, sizeof data);
    hosts[0].no_buffers = true;
    ON(apps[0], cl_tcp_close(c));
    world_run(100 * MS);
    hosts[0].no_buffers = false;
    apps[1].closes_at_eof = true;
    world_run(100 * MS);
    CHECK(apps[1].ended == 0 || apps[1].error == 0);
    if (apps[1].u)
        ON(apps[1], cl_tcp_close(c));
    world_run(100 * SECOND);
    CHECK(apps[0].ended == 1 && apps[0].error == 0);
}

/* The chunks of records are full, and what would begin the next one cannot leave: none stays empty. */
static void no_buffer_behind_a_full_chunk_of_records(void)
{
    open_both();
    conn_of(0)->flags |= CL_TCP_NO_DELAY;
    conn_of(0)->cc.window = 10 * CL_TCP_BOARD_RECORDS * conn_of(0)->cc.mss;
    for (unsigned i = 0; i < 2 * CL_TCP_BOARD_RECORDS; i++)
        ON(apps[0], cl_tcp_write(c, "a", 1));
    CHECK_EQ(conn_of(0)->board->all.last->to, CL_TCP_BOARD_RECORDS);
    hosts[0].no_buffers = true;
    ON(apps[0], cl_tcp_write(c, "b", 1));
    hosts[0].no_buffers = false;
    world_run(SECOND);
    CHECK(apps[1].read == 2 * CL_TCP_BOARD_RECORDS + 1 && apps[1].data[apps[1].read - 1] == 'b');
    ON(apps[0], cl_tcp_abort(c));
    world_run(SECOND);
}

/* Whatever a user writes in its callbacks goes with the acknowledgement. */
static int64_t echo(struct cl_tcp_conn *c, const uint8_t *data, int64_t len, void *arg)
{
    (void)arg;
    return cl_tcp_write(c, data, len);
}

static void answers_carry_acknowledgements(void)
{
    static const struct cl_tcp_events echoing = {
        .opened = on_opened, .data = echo, .writable = on_writable, .eof = on_eof, .ended = on_ended};
    listen_on(&hosts[1], 80, &echoing, &apps[1]);
    apps[0].u = connect_from(&hosts[0], 1000, 80, &events, &apps[0]);
    world_run(50 * MS);
    n_sent = 0;
    ON(apps[0], cl_tcp_write(c, "ping", 4));
    world_run(15 * MS);
    CHECK(count(1, CL_TCPF_ACK) == 1 && nth(1, CL_TCPF_ACK, 0, NULL)->len == 4);
    world_run(100 * MS);
    CHECK(apps[0].read == 4 && memcmp(apps[0].data, "ping", 4) == 0);
    CHECK_EQ(hosts[1].stack.pressure_until_ns, 0);
    ON(apps[0], cl_tcp_abort(c));
    world_run(SECOND);
}

/* A user is called at the time that it asked for last, once, and not when it has taken that back or it is over. */
static unsigned dues;

static void on_timer(struct cl_tcp_conn *c, void *arg)
{
    (void)c, (void)arg;
    dues++;
}

static void users_are_called_in_time(void)
{
    static const struct cl_tcp_events timer_events = {.opened = on_opened,
                                                      .data = on_data,
                                                      .writable = on_writable,
                                                      .eof = on_eof,
                                                      .ended = on_ended,
                                                      .timer = on_timer};
    open_both();
    dues = 0;
    ON(apps[0], (cl_tcp_set_user(c, &timer_events, &apps[0]), cl_tcp_set_timer(c, SECOND)));
    world_run(900 * MS);
    CHECK_EQ(dues, 0);
    ON(apps[0], cl_tcp_set_timer(c, SECOND)); /* later */
    world_run(900 * MS);
    CHECK_EQ(dues, 0);
    world_run(200 * MS);
    CHECK_EQ(dues, 1);
    world_run(5 * SECOND);
    CHECK_EQ(dues, 1);
    ON(apps[0], cl_tcp_set_timer(c, 5 * SECOND));
    ON(apps[0], cl_tcp_set_timer(c, 100 * MS)); /* sooner */
    world_run(200 * MS);
    CHECK_EQ(dues, 2);
    ON(apps[0], cl_tcp_set_timer(c, 100 * MS));
    ON(apps[0], cl_tcp_set_timer(c, UINT64_MAX));
    world_run(SECOND);
    CHECK_EQ(dues, 2);
    ON(apps[0], cl_tcp_set_timer(c, 100 * MS));
    ON(apps[0], cl_tcp_abort(c));
    world_run(SECOND);
    CHECK(dues == 2 && apps[0].ended == 1);
}

static const struct scenario cases[] = {
    CASE(first_bytes_win),
    CASE(sacks_name_the_latest_first),
    CASE(holes_are_bounded),
    CASE(window_closes),
    CASE(window_update_is_lost),
    CASE(late_data_brings_the_window),
    CASE(window_has_become_small),
    CASE(acks_are_delayed),
    CASE(nagle_waits),
    CASE(cork_holds),
    CASE(no_delay_meets_a_cork),
    CASE(more_follows),
    CASE(duplicates_resend_at_once),
    CASE(buffers_are_short),
    CASE(no_buffer_behind_a_full_chunk_of_records),
    CASE(answers_carry_acknowledgements),
    CASE(users_are_called_in_time),
};

int main(int argc, char **argv)
{
    return run_scenarios(argc, argv, cases, sizeof cases / sizeof *cases);
}

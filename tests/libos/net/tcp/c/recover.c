/* Loss recovery case by case, with a made-up peer that acknowledges what the case wants, at times to the nanosecond.
 *
 * argv[1]: the name of a case. Prints "ok". Host A opens to host B and sends; after that B is mute, and the case speaks
 * for it. A round trip is 20 us. */
#include "world.h"

#define US 1000ull
#define RTT (20 * US)
#define MSS 1000u
#define SENT_MOST 4096

static struct user *a_user;
static uint64_t b_ended;
static struct {
    uint64_t at_ns;
    uint32_t seq, len; /* counted from the first byte */
} sent[SENT_MOST];
static unsigned n_sent;
static uint32_t first; /* number of the first byte */

static bool record(unsigned from, const struct cl_tcp_segment *s)
{
    if (from || s->len == 0)
        return false;
    CHECK(n_sent < SENT_MOST);
    sent[n_sent].at_ns = now_ns;
    sent[n_sent].seq = s->seq - first;
    sent[n_sent++].len = s->len;
    return false;
}

static void on_ended(struct cl_tcp_conn *c, int error, void *arg)
{
    (void)c, (void)error, (void)arg;
    b_ended++;
}

static const struct cl_tcp_events quiet = {.ended = on_ended};

static struct cl_tcp_conn *conn(void)
{
    return &a_user->conn;
}

static void open_to(uint8_t options, uint32_t chunks)
{
    network.delay_ns = RTT / 2;
    intercept = record;
    for (unsigned h = 0; h < 2; h++) {
        host_init(h, chunks);
        hosts[h].stack.settings.mss = MSS;
        hosts[h].stack.settings.options = options;
        hosts[h].stack.settings.flags = CL_TCP_NO_DELAY;
    }
    listen_on(&hosts[1], 80, &quiet, NULL);
    a_user = connect_from(&hosts[0], 1000, 80, &quiet, NULL);
    world_run(10 * RTT);
    CHECK_EQ(conn()->state, CL_TCP_ESTABLISHED);
    CHECK_EQ(conn()->rtt.least_ns, RTT);
    first = conn()->nxt;
    hosts[1].mute = true;
}

static void opens(void)
{
    open_to(CL_TCPO_SACK_OK | CL_TCPO_WSCALE, 1000);
}

static void write_bytes(uint32_t n)
{
    static uint8_t data[1 << 20];
    begin(a_user);
    CHECK_EQ(cl_tcp_write(conn(), data, n), n);
    finish(a_user);
}

/* B acknowledges what is before `ack` and tells of up to three ranges, all counted from the first byte. */
static void answer(uint32_t ack, unsigned n, const uint32_t (*sacks)[2])
{
    struct cl_tcp_segment s = {.seq = conn()->rcv_nxt, .ack = first + ack, .flags = CL_TCPF_ACK, .window = 30000};
    uint8_t bytes[64];
    for (unsigned i = 0; i < n; i++)
        s.options.sack[s.options.n_sack++] = (struct cl_tcp_range){first + sacks[i][0], first + sacks[i][1]};
    arrive(&hosts[0], bytes, cl_tcp_segment_write(&s, 80, 1000, bytes));
}

#define SACK(ack, ...)                                                                                                 \
    do {                                                                                                               \
        const uint32_t sacks_[][2] = {__VA_ARGS__};                                                                    \
        answer(ack, sizeof sacks_ / sizeof sacks_[0], sacks_);                                                         \
    } while (0)
#define ACK(ack) answer(ack, 0, NULL)

/* What is due then has happened, too. */
static void pass(uint64_t ns)
{
    uint64_t until_ns = now_ns + ns;
    world_run(ns + 1);
    now_ns = until_ns;
}

/* The i-th segment of data was the one at seq. */
static void was_sent(unsigned i, uint32_t seq, uint32_t len)
{
    CHECK(i < n_sent, "only %u segments were sent", n_sent);
    CHECK(sent[i].seq == seq && sent[i].len == len, "segment %u is %u, %u bytes", i, sent[i].seq, sent[i].len);
}

static void ends(void)
{
    begin(a_user);
    cl_tcp_abort(conn());
    finish(a_user);
    hosts[1].mute = false;
    struct user *b = &hosts[1].users[0];
    begin(b);
    cl_tcp_abort(&b->conn);
    finish(b);
    world_run(SECOND);
}

static void a_hole_waits_a_quarter_of_a_round_trip(void)
{
    opens();
    write_bytes(3 * MSS);
    pass(RTT);
    SACK(0, {MSS, 2 * MSS});
    pass(RTT / 4 - 1);
    CHECK_EQ(n_sent, 3);
    pass(1);
    CHECK_EQ(n_sent, 4);
    was_sent(3, 0, MSS);
    CHECK(conn()->flags & CL_TCP_RECOVERING);
    ACK(3 * MSS);
    CHECK(!(conn()->flags & CL_TCP_RECOVERING));
    CHECK_EQ(hosts[0].counts.timeouts + hosts[0].counts.tail_probes, 0);
    ends();
}

static void three_behind_a_hole_are_enough(void)
{
    opens();
    write_bytes(10 * MSS);
    pass(RTT);
    SACK(0, {MSS, 2 * MSS});
    SACK(0, {MSS, 3 * MSS});
    CHECK_EQ(n_sent, 10);
    SACK(0, {MSS, 4 * MSS});
    CHECK_EQ(n_sent, 11);
    was_sent(10, 0, MSS);
    ends();
}

/* What came twice says that the window was too small: the next hole waits two quarters, after a reordering. */
static void a_needless_retransmission_widens_the_window(void)
{
    opens();
    write_bytes(3 * MSS);
    pass(RTT);
    SACK(0, {MSS, 2 * MSS});
    pass(RTT / 4);
    CHECK_EQ(n_sent, 4);
    ACK(3 * MSS);
    SACK(3 * MSS, {0, MSS});
    CHECK_EQ(conn()->dsacks, 1);
    CHECK_EQ(hosts[0].counts.undone, 1);
    CHECK_EQ(conn()->cc.window, 10 * MSS);
    write_bytes(3 * MSS);
    pass(RTT);
    SACK(3 * MSS, {4 * MSS, 5 * MSS});
    pass(RTT / 2 - 1);
    CHECK_EQ(n_sent, 7);
    pass(1);
    CHECK_EQ(n_sent, 8);
    was_sent(7, 3 * MSS, MSS);
    ends();
}

static void what_the_network_doubles_undoes_nothing(void)
{
    opens();
    write_bytes(10 * MSS);
    pass(RTT);
    SACK(0, {MSS, 4 * MSS});
    was_sent(10, 0, MSS);
    SACK(0, {2 * MSS, 3 * MSS}, {MSS, 4 * MSS}); /* that was sent once */
    CHECK(conn()->dsacks == 1 && hosts[0].counts.undone == 0);
    SACK(4 * MSS, {0, MSS});
    CHECK(conn()->dsacks == 2 && hosts[0].counts.undone == 1);
    ACK(10 * MSS);
    ends();
}

static void a_lost_retransmission_is_lost_again_at_once(void)
{
    opens();
    write_bytes(15 * MSS);
    pass(RTT);
    SACK(0, {MSS, 4 * MSS});
    was_sent(10, 0, MSS);
    pass(RTT / 2);
    SACK(0, {MSS, 10 * MSS}); /* new data leaves, behind the retransmission */
    CHECK_EQ(n_sent, 16);
    pass(RTT);
    SACK(0, {MSS, 15 * MSS});
    CHECK_EQ(n_sent, 17);
    was_sent(16, 0, MSS);
    ACK(15 * MSS);
    CHECK(!(conn()->flags & CL_TCP_RECOVERING) && hosts[0].counts.timeouts == 0);
    CHECK_EQ(hosts[0].counts.fast_retransmits, 1);
    ends();
}

/* Segment by segment as they come: what leaves is threshold / flight of it, and never a burst. */
static void the_window_shrinks_in_proportion(void)
{
    opens();
    conn()->cc.window = 20 * MSS;
    write_bytes(100 * MSS);
    CHECK_EQ(n_sent, 20);
    pass(RTT);
    for (uint32_t i = 1; i < 20; i++) {
        unsigned before = n_sent;
        SACK(0, {MSS, (i + 1) * MSS});
        CHECK(n_sent - before <= 1, "a burst of %u", n_sent - before);
    }
    uint32_t threshold = conn()->cc.threshold;
    CHECK_EQ(threshold, 14 * MSS);
    CHECK(cl_tcp_in_flight(conn()) <= threshold && cl_tcp_in_flight(conn()) > threshold - 2 * MSS, "%u are in flight",
          cl_tcp_in_flight(conn()));
    pass(RTT);
    ACK(20 * MSS);
    CHECK(conn()->flags & CL_TCP_RECOVERING);
    ACK(conn()->nxt - first);
    CHECK(!(conn()->flags & CL_TCP_RECOVERING));
    ends();
}

/* ... without SACK, too: two holes, of which a partial acknowledgement shows the second (RFC 6582). */
static void without_sack_it_does_so_too(void)
{
    open_to(CL_TCPO_WSCALE, 1000);
    conn()->cc.window = 20 * MSS;
    write_bytes(100 * MSS);
    pass(RTT);
    for (uint32_t i = 0; i < 18; i++) {
        unsigned before = n_sent;
        ACK(0);
        CHECK(n_sent - before <= 1, "a burst of %u", n_sent - before);
    }
    CHECK_EQ(conn()->cc.threshold, 14 * MSS);
    CHECK(cl_tcp_in_flight(conn()) <= 14 * MSS);
    pass(RTT);
    unsigned before = n_sent;
    ACK(10 * MSS);
    was_sent(before, 10 * MSS, MSS);
    CHECK(n_sent - before <= 2 && cl_tcp_in_flight(conn()) <= 14 * MSS);
    ACK(conn()->nxt - first);
    CHECK(!(conn()->flags & CL_TCP_RECOVERING));
    CHECK(hosts[0].counts.fast_retransmits == 1 && conn()->resent == 2);
    ends();
}

/* The end of a flight is lost: two round trips, or LEAST_NS of probe.c, later it is sent again. */
static void the_tail_is_probed(void)
{
    opens();
    write_bytes(5 * MSS);
    pass(RTT);
    ACK(3 * MSS);
    pass(100 * US - 1);
    CHECK_EQ(n_sent, 5);
    pass(1);
    CHECK_EQ(n_sent, 6);
    was_sent(5, 4 * MSS, MSS);
    CHECK_EQ(conn()->cc.window, 13 * MSS); /* as it was */
    pass(RTT);
    SACK(3 * MSS, {4 * MSS, 5 * MSS}); /* and that finds what is lost before it */
    pass(RTT / 4);
    CHECK_EQ(n_sent, 7);
    was_sent(6, 3 * MSS, MSS);
    ACK(5 * MSS);
    CHECK(hosts[0].counts.timeouts == 0 && hosts[0].counts.tail_probes == 1);
    ends();
}

static void one_segment_is_probed_when_it_may_have_waited(void)
{
    opens();
    write_bytes(MSS / 2);
    pass(40 * MS + 100 * US - 1);
    CHECK_EQ(n_sent, 1);
    pass(1);
    CHECK_EQ(n_sent, 2);
    pass(SECOND); /* the probe, too: from now on the time-out */
    CHECK(hosts[0].counts.tail_probes == 1 && hosts[0].counts.timeouts >= 1);
    ends();
}

/* It is counted from what was acknowledged last. */
static void sacks_do_not_put_the_time_out_off(void)
{
    opens();
    hosts[0].stack.settings.no_tail_probes = true;
    write_bytes(3 * MSS);
    pass(150 * MS);
    SACK(0, {MSS, 2 * MSS});
    pass(MS);
    was_sent(3, 0, MSS);
    pass(48 * MS);
    CHECK_EQ(hosts[0].counts.timeouts, 0);
    pass(3 * MS);
    CHECK_EQ(hosts[0].counts.timeouts, 1);
    ends();
}

/* The retransmission is lost, and nothing left behind it: one more leaves long before the time-out. */
static void a_recovery_that_stands_still_is_probed(void)
{
    opens();
    write_bytes(5 * MSS);
    pass(RTT);
    SACK(0, {2 * MSS, 5 * MSS});
    was_sent(5, 0, MSS);
    was_sent(6, MSS, MSS);
    pass(100 * US);
    CHECK_EQ(n_sent, 8);
    was_sent(7, 0, MSS);
    pass(RTT);
    SACK(MSS, {2 * MSS, 5 * MSS}); /* so the other one was lost before it */
    CHECK_EQ(n_sent, 9);
    was_sent(8, MSS, MSS);
    pass(100 * US); /* something was acknowledged: it may be probed again */
    CHECK_EQ(n_sent, 10);
    was_sent(9, MSS, MSS);
    ACK(5 * MSS);
    CHECK(hosts[0].counts.timeouts == 0 && hosts[0].counts.fast_retransmits == 1);
    ends();
}

/* Without SACK, too, the second acknowledgement of what was sent once shows that the time-out was a mistake. */
static void a_late_network_undoes_the_time_out(void)
{
    open_to(CL_TCPO_WSCALE, 1000);
    write_bytes(14 * MSS);
    CHECK_EQ(n_sent, 10);
    pass(300 * MS);
    CHECK_EQ(hosts[0].counts.timeouts, 1);
    was_sent(10, 0, MSS);
    CHECK_EQ(conn()->cc.window, MSS);
    ACK(MSS);
    was_sent(11, 10 * MSS, MSS);
    was_sent(12, 11 * MSS, MSS);
    CHECK_EQ(n_sent, 13);
    ACK(2 * MSS);
    CHECK_EQ(hosts[0].counts.undone, 1);
    CHECK(!(conn()->flags & CL_TCP_RECOVERING) && conn()->cc.window >= 10 * MSS);
    for (uint32_t i = 3; i <= 14; i++)
        ACK(i * MSS);
    CHECK_EQ(conn()->resent, 1);
    ends();
}

/* What RACK knew is of the retransmission: after that was a mistake it begins anew. */
static void after_a_mistake_a_hole_waits_again(void)
{
    opens();
    hosts[0].stack.settings.no_tail_probes = true;
    write_bytes(12 * MSS);
    pass(300 * MS);
    ACK(MSS);
    ACK(2 * MSS);
    CHECK_EQ(hosts[0].counts.undone, 1);
    CHECK_EQ(n_sent, 13);
    SACK(2 * MSS, {4 * MSS, 5 * MSS});
    CHECK_EQ(n_sent, 13);
    ACK(5 * MSS);
    CHECK_EQ(conn()->resent, 1);
    ends();
}

static void a_lost_flight_does_not(void)
{
    open_to(CL_TCPO_WSCALE, 1000);
    write_bytes(14 * MSS);
    pass(300 * MS);
    ACK(MSS);
    CHECK_EQ(n_sent, 13);
    ACK(MSS); /* the new data, beyond what is missing */
    CHECK(hosts[0].counts.undone == 0 && (conn()->flags & CL_TCP_TIMED_OUT));
    was_sent(13, MSS, MSS);
    for (uint32_t i = 2; i <= 14; i++)
        ACK(i * MSS);
    CHECK_EQ(conn()->nxt - conn()->una, 0);
    CHECK(!(conn()->flags & CL_TCP_RECOVERING));
    ends();
}

static void a_hole_behind_a_retransmission_is_found(void)
{
    opens();
    write_bytes(10 * MSS);
    pass(RTT);
    SACK(0, {MSS, 4 * MSS});
    was_sent(10, 0, MSS);
    pass(1);
    SACK(0, {MSS, 4 * MSS}, {5 * MSS, 9 * MSS});
    was_sent(11, 4 * MSS, MSS);
    ACK(10 * MSS);
    CHECK_EQ(conn()->resent, 2);
    ends();
}

/* The first copy came right after the second had left: that says nothing of what was sent before the second. */
static void what_comes_too_soon_is_the_first_copy(void)
{
    opens();
    write_bytes(10 * MSS);
    pass(RTT);
    SACK(0, {MSS, 4 * MSS});
    was_sent(10, 0, MSS);
    pass(US);
    ACK(4 * MSS);
    CHECK_EQ(n_sent, 11);
    pass(US);
    ACK(10 * MSS);
    ends();
}

/* The peer throws away what it had told by SACK (RFC 2018, section 8): it is sent again after a time-out. */
static void what_was_sacked_and_thrown_away_is_sent_again(void)
{
    opens();
    write_bytes(5 * MSS);
    pass(RTT);
    SACK(0, {MSS, 5 * MSS});
    was_sent(5, 0, MSS);
    pass(RTT);
    ACK(MSS); /* no more than that */
    pass(SECOND);
    CHECK(hosts[0].counts.timeouts >= 1);
    was_sent(6, MSS, MSS);
    ACK(2 * MSS);
    was_sent(n_sent - 1, 3 * MSS, MSS);
    ACK(5 * MSS);
    CHECK(!(conn()->flags & CL_TCP_RECOVERING));
    ends();
}

static void blocks_of_nonsense_are_ignored(void)
{
    opens();
    write_bytes(10 * MSS);
    pass(RTT);
    SACK(0, {20 * MSS, 30 * MSS}, {5 * MSS, 5 * MSS}, {7 * MSS, 6 * MSS});
    SACK(0, {9 * MSS, 11 * MSS}, {1, MSS - 1}, {0x80000000u, 0x90000000u});
    SACK(0, {MSS + 1, 2 * MSS}, {3 * MSS, 4 * MSS - 1});
    CHECK_EQ(cl_tcp_board_sacked(conn()), 0);
    SACK(0, {MSS + 1, 5 * MSS + 1});
    CHECK_EQ(cl_tcp_board_sacked(conn()), 3 * MSS); /* the whole segments inside of it */
    ACK(MSS / 2);                                   /* within the first one */
    CHECK_EQ(conn()->board->records[conn()->board->from].len, MSS / 2);
    ACK(10 * MSS);
    CHECK(!conn()->board);
    ends();
}

/* Small segments that are lost leave as one. */
static void small_ones_are_put_together(void)
{
    opens();
    for (unsigned i = 0; i < 9; i++)
        write_bytes(100);
    CHECK_EQ(n_sent, 9);
    pass(RTT);
    SACK(0, {800, 900});
    pass(RTT / 4);
    CHECK_EQ(n_sent, 10);
    was_sent(9, 0, 800);
    ACK(900);
    CHECK(!conn()->board);
    ends();
}

/* Two chunks of records become one. */
static void many_small_ones_are_put_together(void)
{
    enum { N = CL_TCP_BOARD_RECORDS + 10 };
    opens();
    hosts[0].stack.settings.no_tail_probes = true;
    for (unsigned i = 0; i < N; i++)
        write_bytes(7);
    CHECK_EQ(n_sent, N);
    pass(300 * MS);
    was_sent(N, 0, 7 * N);
    CHECK_EQ(n_sent, N + 1);
    write_bytes(7);
    ACK(7 * N);
    was_sent(N + 1, 7 * N, 7);
    ACK(7 * N + 7);
    CHECK(!conn()->board);
    ends();
}

/* More than one chunk of records, every second segment lost. */
static void many_holes_in_a_long_flight(void)
{
    enum { N = 600 };
    opens();
    conn()->cc.window = N * MSS;
    conn()->wnd = conn()->wnd_max = N * MSS;
    conn()->send.limit = N * MSS;
    write_bytes(N * MSS);
    CHECK_EQ(n_sent, N);
    CHECK(conn()->board != conn()->board->all.last);
    pass(RTT);
    for (uint32_t i = 1; i < N; i += 2)
        SACK(0, {i * MSS, (i + 1) * MSS});
    for (uint32_t done = 0; done < N; done += 2) {
        CHECK_EQ(cl_tcp_board_sacked(conn()), (N / 2 - done / 2) * MSS);
        ACK((done + 2) * MSS); /* each retransmission has come */
    }
    CHECK(!conn()->board && hosts[0].counts.timeouts == 0);
    for (unsigned i = N; i < n_sent; i++)
        CHECK(sent[i].seq / MSS % 2 == 0, "what had come was sent again");
    ends();
}

/* The maximum is smaller by now: what is lost is cut anew. */
static void lost_segments_are_cut(void)
{
    opens();
    write_bytes(10 * MSS);
    pass(RTT);
    conn()->cc.mss = 300;
    SACK(0, {2 * MSS, 6 * MSS});
    SACK(0, {2 * MSS, 10 * MSS});
    uint32_t at = 0;
    for (unsigned i = 10; i < n_sent; at += sent[i++].len)
        was_sent(i, at, cl_min(300u, 2 * MSS - at));
    CHECK_EQ(at, 2 * MSS);
    ACK(10 * MSS);
    CHECK(!conn()->board);
    ends();
}

/* ... also where a chunk has no room for more records. */
static void a_long_lost_flight_is_cut(void)
{
    enum { N = CL_TCP_BOARD_RECORDS };
    opens();
    conn()->cc.window = conn()->wnd = conn()->wnd_max = 2 * N * MSS;
    write_bytes(N * MSS);
    CHECK(n_sent == N && conn()->board == conn()->board->all.last);
    pass(RTT);
    conn()->cc.mss = 600;
    SACK(0, {(N - 3) * MSS, N * MSS});
    for (uint32_t i = 0; i < N - 3; i++)
        ACK((i + 1) * MSS);
    uint32_t at = 0;
    for (unsigned i = N; i < n_sent; at += sent[i++].len)
        was_sent(i, at, cl_min(600u, (N - 3) * MSS - at));
    CHECK_EQ(at, (N - 3) * MSS);
    write_bytes(600); /* behind the last */
    was_sent(n_sent - 1, N * MSS, 600);
    ACK(N * MSS + 600);
    CHECK(!conn()->board);
    ends();
}

static void a_hole_near_the_end_is_cut(void)
{
    enum { N = CL_TCP_BOARD_RECORDS };
    opens();
    conn()->cc.window = conn()->wnd = conn()->wnd_max = 2 * N * MSS;
    write_bytes(N * MSS);
    pass(RTT);
    ACK((N - 10) * MSS);
    SACK((N - 10) * MSS, {(N - 9) * MSS, (N - 4) * MSS});
    was_sent(N, (N - 10) * MSS, MSS);
    conn()->cc.mss = 600;
    SACK((N - 10) * MSS, {(N - 9) * MSS, (N - 4) * MSS}, {(N - 3) * MSS, N * MSS});
    was_sent(N + 1, (N - 4) * MSS, 600);
    was_sent(N + 2, (N - 4) * MSS + 600, 400);
    CHECK_EQ(n_sent, N + 3);
    ACK(N * MSS);
    CHECK(!conn()->board);
    ends();
}

/* One chunk for the bytes, none for records: one segment at a time, and all leave. */
static void without_memory_for_records(void)
{
    open_to(CL_TCPO_SACK_OK, 2); /* a kthread's cache may hold half of them back */
    struct cl_chunk *other = cl_chunks_get(hosts[0].stack.chunks, 0, CL_CHUNKS_UDP);
    CHECK(other != NULL);
    write_bytes(2 * MSS);
    CHECK_EQ(n_sent, 1);
    CHECK(hosts[0].counts.refused_records >= 1);
    pass(RTT);
    ACK(MSS);
    CHECK_EQ(n_sent, 2);
    was_sent(1, MSS, MSS);
    ACK(2 * MSS);
    cl_chunks_free(hosts[0].stack.chunks, 0, CL_CHUNKS_UDP, other);
    ends();
}

#define CASE(name)                                                                                                     \
    {                                                                                                                  \
#name, name                                                                                                    \
    }
static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {
    CASE(a_hole_waits_a_quarter_of_a_round_trip),
    CASE(three_behind_a_hole_are_enough),
    CASE(a_needless_retransmission_widens_the_window),
    CASE(what_the_network_doubles_undoes_nothing),
    CASE(a_lost_retransmission_is_lost_again_at_once),
    CASE(the_window_shrinks_in_proportion),
    CASE(without_sack_it_does_so_too),
    CASE(the_tail_is_probed),
    CASE(one_segment_is_probed_when_it_may_have_waited),
    CASE(sacks_do_not_put_the_time_out_off),
    CASE(a_recovery_that_stands_still_is_probed),
    CASE(a_late_network_undoes_the_time_out),
    CASE(after_a_mistake_a_hole_waits_again),
    CASE(a_lost_flight_does_not),
    CASE(a_hole_behind_a_retransmission_is_found),
    CASE(what_comes_too_soon_is_the_first_copy),
    CASE(what_was_sacked_and_thrown_away_is_sent_again),
    CASE(blocks_of_nonsense_are_ignored),
    CASE(small_ones_are_put_together),
    CASE(many_small_ones_are_put_together),
    CASE(many_holes_in_a_long_flight),
    CASE(lost_segments_are_cut),
    CASE(a_long_lost_flight_is_cut),
    CASE(a_hole_near_the_end_is_cut),
    CASE(without_memory_for_records),
};

int main(int argc, char **argv)
{
    verbose = getenv("SHOW") != NULL;
    for (unsigned i = 0; argc == 2 && i < sizeof cases / sizeof cases[0]; i++)
        if (strcmp(argv[1], cases[i].name) == 0) {
            cases[i].run();
            world_end();
            printf("ok\n");
        }
    return 0;
}

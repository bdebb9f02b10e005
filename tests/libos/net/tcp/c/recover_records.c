/* Loss recovery case by case: what leaves again, and the records of what is under way.
 *
 * argv: the name of a case. Prints "ok". */
#include "recover.h"

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

static const struct recover_case cases[] = {
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
    return run_case(argc, argv, cases, sizeof cases / sizeof cases[0]);
}

/* Loss recovery case by case: what is lost, when that is found, and what turns out to have been a mistake.
 *
 * argv: the name of a case. Prints "ok". */
#include "recover.h"

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

/* Of a flight the first segment and the one at `hole` are lost, and there is no SACK: a partial acknowledgement shows
 * the second (RFC 6582). */
static void shrinks_without_sack(uint32_t flight, uint32_t hole)
{
    open_to(CL_TCPO_WSCALE, 4000);
    conn()->send.limit = 2 * flight * MSS;
    conn()->cc.window = flight * MSS;
    ACK(0); /* with its window */
    write_bytes(2 * flight * MSS);
    CHECK_EQ(n_sent, flight);
    pass(RTT);
    for (uint32_t i = 0; i < flight - 2; i++) {
        unsigned before = n_sent;
        ACK(0);
        CHECK(n_sent - before <= 1, "a burst of %u", n_sent - before);
    }
    uint32_t threshold = conn()->cc.threshold;
    CHECK_EQ(threshold, flight * 7 / 10 * MSS);
    CHECK(cl_tcp_in_flight(conn()) <= threshold && cl_tcp_in_flight(conn()) > threshold - 3 * MSS, "%u are in flight",
          cl_tcp_in_flight(conn()));
    pass(RTT);
    unsigned before = n_sent;
    ACK(hole * MSS);
    was_sent(before, hole * MSS, MSS);
    CHECK(n_sent - before <= 2, "a burst of %u", n_sent - before);
    CHECK(cl_tcp_in_flight(conn()) <= threshold && cl_tcp_in_flight(conn()) > threshold - 3 * MSS, "%u are in flight",
          cl_tcp_in_flight(conn()));
    ACK(conn()->nxt - first);
    CHECK(!(conn()->flags & CL_TCP_RECOVERING));
    CHECK(hosts[0].counts.fast_retransmits == 1 && hosts[0].counts.timeouts == 0 && conn()->resent == 2);
    ends();
}

static void without_sack_it_does_so_too(void)
{
    shrinks_without_sack(20, 10);
}

/* Duplicates are counted however many come. */
static void without_sack_a_large_window_does_so_too(void)
{
    shrinks_without_sack(520, 260);
}

/* A recovery that begins with one segment under way has no scoreboard yet: 255 duplicates let out so much behind it
 * that the FIN, which counts as a byte, lies one byte beyond the window. */
static void a_recovery_of_one_segment_is_proportional_too(void)
{
    open_to(CL_TCPO_WSCALE, 2000);
    write_bytes(MSS);
    pass(RTT);
    for (unsigned i = 0; i < 4; i++) /* the first one is of another window */
        ACK(0);
    CHECK_EQ(n_sent, 2);
    was_sent(1, 0, MSS);
    CHECK(conn()->flags & CL_TCP_RECOVERING);
    uint32_t behind = conn()->cc.threshold + (UINT8_MAX - 1) * MSS; /* with the first, which is under way, too */
    write_bytes(behind);
    begin(a_user);
    cl_tcp_close(conn());
    finish(a_user);
    for (unsigned i = 3; i < UINT8_MAX; i++)
        ACK(0);
    CHECK_EQ(conn()->nxt - first, MSS + behind + 1);
    CHECK_EQ(cl_tcp_in_flight(conn()), conn()->cc.threshold + 1);
    ACK(0);
    CHECK(conn()->flags & CL_TCP_RECOVERING);
    ACK(MSS);
    CHECK(!(conn()->flags & CL_TCP_RECOVERING));
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
    CHECK_EQ(conn()->cc.window, 10 * MSS); /* as it was: half of it was used */
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

static const struct recover_case cases[] = {
    CASE(a_hole_waits_a_quarter_of_a_round_trip),
    CASE(three_behind_a_hole_are_enough),
    CASE(a_needless_retransmission_widens_the_window),
    CASE(what_the_network_doubles_undoes_nothing),
    CASE(a_lost_retransmission_is_lost_again_at_once),
    CASE(the_window_shrinks_in_proportion),
    CASE(without_sack_it_does_so_too),
    CASE(without_sack_a_large_window_does_so_too),
    CASE(a_recovery_of_one_segment_is_proportional_too),
    CASE(the_tail_is_probed),
    CASE(one_segment_is_probed_when_it_may_have_waited),
    CASE(sacks_do_not_put_the_time_out_off),
    CASE(a_recovery_that_stands_still_is_probed),
    CASE(a_late_network_undoes_the_time_out),
    CASE(after_a_mistake_a_hole_waits_again),
    CASE(a_lost_flight_does_not),
    CASE(a_hole_behind_a_retransmission_is_found),
    CASE(what_comes_too_soon_is_the_first_copy),
};

int main(int argc, char **argv)
{
    return run_case(argc, argv, cases, sizeof cases / sizeof cases[0]);
}

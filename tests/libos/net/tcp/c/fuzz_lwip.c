/* Our TCP and lwIP's, over a wire in memory and on a virtual clock: both sides open, write, read late, half-close,
 * close and reset at any time; the wire loses, doubles, delays, overtakes, flips bits, makes data urgent, shrinks
 * windows, says old bytes again with other content, and makes segments up.
 *
 * A byte that a user gets is the one that was written there, always. In a round in which nobody resets, and the wire
 * makes nothing up, all bytes come, and both ends hear of the end. After each round nothing is left of it: no memory,
 * no connection, on either side.
 *
 * A round follows from its seed alone. argv: seed of the first, rounds. SHOW=1 prints segments. Prints "ok". */
#include "tests/libos/net/tcp/c/fuzz_lwip_users.h"

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

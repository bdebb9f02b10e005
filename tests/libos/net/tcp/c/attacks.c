/* Attacks on a runtime's connections, each as its own case: what they cost is bounded, counters say what happened, and
 * a connection that behaves goes on (wire.h).
 *
 * argv: the name of a case, a seed, kthreads of the runtime, and perhaps how many slow readers. Prints "ok". */
#include "bad.h"

#include "libos/net/tcp/conn.h"

#define LIMITS (512u << 10) /* what a connection may have waiting, both ways */

static uint8_t bytes[200000];

/* --- the good connection's numbers, which a blind attacker does not know --- */

static struct cl_tcp_segment of_good(uint8_t flags, uint32_t seq)
{
    return (struct cl_tcp_segment){.seq = seq, .flags = flags, .window = 1000};
}

/* Segments with these flags from the good peer's address and port, over all numbers. */
static void blind(uint8_t flags, const char *data)
{
    struct cl_tcp_info info;
    uint32_t stride = 1u << 18; /* its window: one or two land inside */
    CHECK_EQ(cl_tcp_host_info(good, good_socket, &info), 0);
    for (uint64_t seq = below(stride); seq < 1ull << 32; seq += stride) {
        struct cl_tcp_segment s = of_good(flags, (uint32_t)seq);
        s.ack = below(UINT32_MAX);
        say(GOOD, GOOD_PORT, s, data, data ? (unsigned)strlen(data) : 0);
        if (seq % (64 * stride) < stride)
            run_for(PING_NS / 4);
    }
    goes_on();
}

/* What came left nothing behind, once the good one has what it waits for. */
static void nothing_is_held(void)
{
    rest_for(SECOND);
    CHECK_EQ(held(), 0);
}

static void blind_reset(void)
{
    blind(CL_TCPF_RST, NULL);
    blind(CL_TCPF_RST | CL_TCPF_ACK, NULL);
    struct cl_tcp_counts c = counts();
    CHECK_EQ(c.resets_in, 0);
    CHECK(c.dropped_window > 0);
    CHECK_EQ(alive(), 1);
    nothing_is_held();
}

static void blind_syn(void)
{
    blind(CL_TCPF_SYN, NULL);
    struct cl_tcp_counts c = counts();
    CHECK(c.challenges > 0 && c.challenges <= 100 && c.challenges_limited > 10000);
    CHECK_EQ(c.resets_out + c.resets_in, 0);
    CHECK_EQ(alive(), 1);
    nothing_is_held();
}

static void blind_data(void)
{
    blind(CL_TCPF_ACK | CL_TCPF_PSH, "forged");
    CHECK(counts().dropped_ack > 0); /* in the window, and of what was never sent */
    CHECK(counts().dropped_window > 10000);
    nothing_is_held();
}

static void blind_icmp(void)
{
    for (unsigned i = 0; i < 2000; i++) {
        complain(GOOD, GOOD_PORT, CL_ICMP_UNREACHABLE, i % 2 ? CL_ICMP_CODE_PORT : 4, 600, below(UINT32_MAX));
        if (i % 50 == 0)
            run_for(PING_NS);
    }
    goes_on();
    struct cl_tcp_counts c = counts();
    CHECK_EQ(c.icmp_errors, 2000);
    CHECK_EQ(c.icmp_ignored, 2000);
    CHECK_EQ(c.mtu_shrunk, 0);
    nothing_is_held();
}

/* --- connections of the attacker's own --- */

static void syn_flood(void)
{
    uint64_t before = pongs;
    for (uint32_t i = 0; i < 20000; i++) {
        struct cl_tcp_segment syn = {.seq = below(UINT32_MAX), .flags = CL_TCPF_SYN, .window = 1000};
        syn.options = (struct cl_tcp_options){.has = CL_TCPO_MSS | CL_TCPO_TIMES, .mss = 1460, .ts_val = i};
        say(BAD + below(1u << 16), (uint16_t)(1 + below(65000)), syn, NULL, 0);
        if (i % 200 == 0)
            run_for(PING_NS);
        if (i == 10000) /* one that comes in the middle of it gets in, without being asked to wait */
            CHECK_EQ(cl_tcp_host_write(good, connect_good(GOOD_PORT + 1), "x", 1), 1);
    }
    struct cl_tcp_counts c = counts();
    CHECK(alive() <= BACKLOG + 2, "%llu exist", (unsigned long long)alive());
    CHECK(c.cookies_sent > 19000 && c.cookies_right == 1, "%llu", (unsigned long long)c.cookies_sent);
    CHECK(pongs > before + 90 * PING_BYTES);
    goes_on();
    rest_for(100 * SECOND); /* who does not answer is forgotten */
    CHECK_EQ(alive(), 2);
    CHECK_EQ(held(), 0);
}

static void ack_flood(void)
{
    struct cl_net_stats stats;
    struct cl_tcp_segment syn = {.seq = 1, .flags = CL_TCPF_SYN, .window = 1000};
    for (unsigned i = 0; i < BACKLOG + 1; i++) /* cookies were given out: guesses are looked at */
        say(BAD, (uint16_t)(1000 + i), syn, NULL, 0);
    run_for(MS);
    CHECK_EQ(counts().cookies_sent, 1);
    for (uint32_t i = 0; i < 20000; i++) {
        struct cl_tcp_segment ack = {.seq = below(UINT32_MAX), .ack = below(UINT32_MAX), .flags = CL_TCPF_ACK};
        say(BAD + 1 + below(1u << 16), (uint16_t)(1 + below(65000)), ack, NULL, 0);
        if (i % 200 == 0)
            run_for(PING_NS);
    }
    goes_on();
    CHECK_EQ(cl_runtime_net_stats(victim, -1, &stats), 0);
    CHECK_EQ(counts().cookies_wrong, 20000);
    CHECK_EQ(counts().cookies_right, 0);
    CHECK(alive() <= BACKLOG + 1);
    CHECK(stats.tcp_resets_sent > 0 && stats.tcp_rate_limited > 10000, "%llu resets",
          (unsigned long long)stats.tcp_resets_sent);
    nothing_is_held();
}

/* Connections that ask for something and never let it be sent. */
static void sockstress(void)
{
    unsigned n = 1000;
    for (unsigned i = 0; i < n; i++) {
        struct bad b = open_bad(i, 0);
        send_bad(&b, 0, bytes, 1000, 0);
    }
    run_for(SECOND);
    CHECK_EQ(alive(), n + 1);
    CHECK(held() <= 2 * n * CL_CHUNK_BYTES, "%llu bytes", (unsigned long long)held());
    goes_on();
    CHECK(counts().probes >= n);
    rest_for(3600 * SECOND); /* nobody answers their probes */
    CHECK_EQ(alive(), 1);
    CHECK_EQ(held(), 0);
}

/* Connections that the runtime has closed, and whose peer never lets the rest leave: windows that open and shut again,
 * none worth a segment. They are no progress, and put nothing off. */
static void toggled_windows(void)
{
    struct bad b[100];
    unsigned n = sizeof b / sizeof *b;
    for (unsigned i = 0; i < n; i++) {
        b[i] = open_bad(i, 1000);
        struct cl_tcp_segment s = {.seq = b[i].seq, .ack = b[i].ack, .flags = CL_TCPF_ACK | CL_TCPF_FIN};
        say(b[i].ip, b[i].port, s, bytes, 1000);
        b[i].seq += 1001;
    }
    run_for(SECOND);
    CHECK_EQ(alive(), n + 1);
    for (unsigned step = 0; step < 2000 && alive() > 1; step++) {
        for (unsigned i = 0; i < n; i++)
            send_bad(&b[i], 0, NULL, 0, step % 2 ? 0 : 400);
        rest_for(100 * MS);
    }
    CHECK_EQ(alive(), 1);
    CHECK_EQ(held(), 0);
    goes_on();
}

/* As many bytes as fit into the memory of all connections: who reads nothing leaves some to the others. */
static void memory_is_shared(void)
{
    struct cl_chunk_stats stats;
    unsigned n = 1000, each = 80;
    CHECK_EQ(cl_runtime_chunk_stats(victim, CL_CHUNKS_TCP_SEND, &stats), 0);
    CHECK((uint64_t)n * each * 1000 > stats.bound_bytes);
    for (unsigned i = 0; i < n; i++) {
        struct bad b = open_bad(i, 0);
        for (unsigned k = 0; k < each; k++)
            send_bad(&b, 1000 * k, bytes, 1000, 0);
        run_for(MS / 10);
    }
    CHECK_EQ(alive(), n + 1);
    CHECK(held() > stats.bound_bytes / 3, "%llu bytes", (unsigned long long)held());
    CHECK(held() <= stats.bound_bytes / 2 + 3 * n * CL_CHUNK_BYTES, "%llu bytes", (unsigned long long)held());
    goes_on();
}

#define READERS_MOST 10000

static unsigned n_readers = 100; /* or as argv says */
static struct bad readers[READERS_MOST];

/* Each reads what fits into its window, when it is told of it. */
static void all_read_slowly(uint32_t peer, uint16_t port, const struct cl_tcp_segment *s, const uint8_t *data)
{
    uint32_t i = (peer - BAD) * 60000 + port - 1024;
    (void)data;
    if (s->len && i < n_readers && cl_seq_before(readers[i].ack, s->seq + s->len))
        readers[i].ack = s->seq + s->len;
}

/* So many ask as fast as they can, and read the answers 64 bytes at a time: the memory of all connections bounds what
 * waits for them, who is there goes on, and who comes is served. */
static void slow_readers(void)
{
    struct cl_chunk_stats stats;
    CHECK_EQ(cl_runtime_chunk_stats(victim, CL_CHUNKS_TCP_SEND, &stats), 0);
    for (unsigned i = 0; i < n_readers; i++)
        readers[i] = open_bad(i, 64);
    hears = all_read_slowly;
    for (unsigned k = 0; k < 10; k++) {
        for (unsigned i = 0; i < n_readers; i++) {
            send_bad(&readers[i], 1000 * k, bytes, 1000, 64);
            if (i % 100 == 99)
                run_for(MS);
        }
        CHECK(held() <= stats.bound_bytes, "%llu bytes", (unsigned long long)held());
    }
    CHECK_EQ(alive(), n_readers + 1);
    CHECK(held() >= n_readers * CL_CHUNK_BYTES && held() <= stats.bound_bytes, "%llu bytes",
          (unsigned long long)held());
    CHECK(n_readers < READERS_MOST || counts().refused_memory > 0); /* what they ask for is more than there is */
    goes_on();
    CHECK_EQ(cl_tcp_host_write(good, connect_good(GOOD_PORT + 1), "x", 1), 1);
    run_for(SECOND);
    goes_on();
}

static struct bad slow;
static uint32_t slow_read;

/* Reads a byte now and then: acknowledges what comes, and opens its window by one. */
static void read_slowly(uint32_t peer, uint16_t port, const struct cl_tcp_segment *s, const uint8_t *data)
{
    (void)data;
    if (peer != slow.ip || port != slow.port || !s->len)
        return;
    slow.ack = s->seq + s->len;
    slow_read += s->len;
}

static void slow_reader(void)
{
    hears = read_slowly;
    slow = open_bad(0, 1);
    uint32_t at = 0;
    for (unsigned i = 0; i < 3000; i++) {
        send_bad(&slow, at, bytes, 1000, 1);
        run_for(i % 100 ? MS / 10 : 300 * MS);
        at = heard.ack - slow.seq; /* goes on where it is acknowledged */
    }
    CHECK(held() <= 2 * LIMITS + 2 * CL_CHUNK_BYTES, "%llu bytes", (unsigned long long)held());
    CHECK(at <= LIMITS + slow_read, "it took %u bytes of one that reads %u", at, slow_read);
    goes_on();
    CHECK_EQ(alive(), 2);
}

static void tiny_segments(void)
{
    struct bad b = open_bad(0, 1000);
    for (uint32_t at = 2; at < 40000; at += 2) { /* each second byte: all lie behind a gap */
        send_bad(&b, at, bytes + at, 1, 1000);
        if (at % 100 == 0)
            run_for(MS);
    }
    run_for(MS);
    CHECK(held() <= LIMITS, "%llu bytes", (unsigned long long)held());
    CHECK(counts().refused_memory > 0); /* only so many gaps are remembered */
    goes_on();
    CHECK_EQ(alive(), 2);
}

/* Windows of a few bytes: not every byte makes a segment. */
static void tiny_windows(void)
{
    hears = read_slowly;
    slow = open_bad(0, 4);
    uint64_t before = counts().segments_out;
    for (unsigned i = 0; i < 10; i++)
        send_bad(&slow, 1000 * i, bytes, 1000, 4);
    run_for(MS);
    uint64_t answers = counts().segments_out - before;
    run_for(10 * SECOND);
    CHECK(counts().segments_out - before < answers + 2 * 10 * SECOND / PING_NS + 200, "a segment for each few bytes");
    CHECK(slow_read < 200);
    CHECK(held() <= 10 * CL_CHUNK_BYTES, "%llu bytes", (unsigned long long)held()); /* of 10 segments */
    goes_on();
}

static void optimistic_acks(void)
{
    struct bad b = open_bad(0, 60000);
    uint32_t first = b.ack;
    send_bad(&b, 0, bytes, 1000, 60000);
    run_for(MS);
    for (unsigned i = 1; i < 1000; i++) { /* of what was never sent */
        b.ack = first + 1000 + 1460 * i;
        send_bad(&b, 1000, "x", 1, 60000);
        if (i % 50 == 0)
            run_for(MS);
    }
    run_for(MS);
    struct cl_tcp_counts c = counts();
    CHECK(c.dropped_ack >= 999, "%llu", (unsigned long long)c.dropped_ack);
    CHECK(c.challenges <= 10 && c.challenges_limited >= 900);
    b.ack = first + 1000; /* the connection itself stands, and took nothing of that */
    send_bad(&b, 1000, "y", 1, 60000);
    run_for(MS);
    CHECK(heard.ack == b.seq + 1001 && heard.len == 1);
    CHECK(held() <= 2 * CL_CHUNK_BYTES, "%llu bytes", (unsigned long long)held());
    goes_on();
}

static uint8_t echoed[100];

static void keep_echo(uint32_t peer, uint16_t port, const struct cl_tcp_segment *s, const uint8_t *data)
{
    (void)port;
    if (peer == slow.ip)
        for (unsigned i = 0; i < s->len && s->seq - slow.ack + i < sizeof echoed; i++)
            echoed[s->seq - slow.ack + i] = data[i];
}

/* What came first is what is read, whatever is said of it later. */
static void overlapping_data(void)
{
    hears = keep_echo;
    slow = open_bad(0, 60000);
    send_bad(&slow, 4, "AAAA", 4, 60000);
    send_bad(&slow, 2, "BBBBBBBBBB", 10, 60000);
    send_bad(&slow, 6, "CCCCCCCC", 8, 60000);
    send_bad(&slow, 0, "DDDDDDDD", 8, 60000);
    run_for(100 * MS);
    CHECK(memcmp(echoed, "DDBBAAAABBBBCC", 14) == 0, "%.14s", (const char *)echoed);
    CHECK(held() <= 4 * CL_CHUNK_BYTES, "%llu bytes", (unsigned long long)held());
    goes_on();
}

static void out_of_window(void)
{
    struct bad b = open_bad(0, 1000);
    struct cl_tcp_counts before = counts();
    for (unsigned i = 0; i < 20000; i++) {
        send_bad(&b, (1u << 20) + below(1u << 30), bytes, 100, 1000);
        if (i % 50 == 0)
            run_for(MS);
    }
    run_for(MS);
    CHECK_EQ(counts().dropped_window - before.dropped_window, 20000);
    rest_for(SECOND);
    CHECK_EQ(held(), 0);
    goes_on();
    CHECK_EQ(alive(), 2);
}

static unsigned out_of_ports, opened_out;
static const struct cl_tcp_events no_events;
static struct cl_tcp_conn *given_up;

static void keep_it(struct cl_tcp_conn *c, void *arg)
{
    (void)arg;
    given_up = c;
}

static void give_up(struct cl_tcp_conn *c, void *arg)
{
    (void)arg;
    cl_tcp_abort(c);
}

static void connect_out(void *arg)
{
    (void)arg;
    for (unsigned i = 0; i < 30000; i++) {
        const struct cl_tcp_addr to = {BAD, 80, 0};
        int rc = cl_runtime_open_tcp(victim, NULL, &to, &no_events, NULL, i == 20000 ? keep_it : NULL);
        CHECK(rc == 0 || rc == -EADDRNOTAVAIL, "%d", rc);
        opened_out += rc == 0;
        out_of_ports += rc != 0;
    }
    CHECK_EQ(cl_runtime_connect_tcp(victim, BAD, 81, &no_events, NULL), 0); /* another port of it has all of them */
    CHECK(cl_tcp_call(given_up, give_up, NULL)); /* the one that is free then is found, wherever it is */
    CHECK_EQ(cl_uthread_sleep_ns(200 * MS), 0);
    CHECK_EQ(cl_runtime_connect_tcp(victim, BAD, 80, &no_events, NULL), 0);
    CHECK_EQ(cl_runtime_connect_tcp(victim, BAD, 80, &no_events, NULL), -EADDRNOTAVAIL);
}

static void port_exhaustion(void)
{
    CHECK_EQ(cl_runtime_spawn(victim, connect_out, NULL), 0);
    run_for(SECOND);
    CHECK_EQ(opened_out, 28232);
    CHECK_EQ(out_of_ports, 30000 - 28232);
    CHECK_EQ(alive(), opened_out + 2);
    goes_on();
    CHECK(held() <= 2 * CL_CHUNK_BYTES, "%llu bytes", (unsigned long long)held()); /* of the good one */
    rest_for(200 * SECOND);
    CHECK_EQ(alive(), 1);
}

#define CASE(name)                                                                                                     \
    {                                                                                                                  \
#name, name                                                                                                    \
    }
static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {
    CASE(blind_reset),     CASE(blind_syn),    CASE(blind_data),      CASE(blind_icmp),       CASE(syn_flood),
    CASE(ack_flood),       CASE(sockstress),   CASE(toggled_windows), CASE(memory_is_shared), CASE(slow_reader),
    CASE(tiny_segments),   CASE(tiny_windows), CASE(optimistic_acks), CASE(overlapping_data), CASE(out_of_window),
    CASE(port_exhaustion), CASE(slow_readers),
};

int main(int argc, char **argv)
{
    CHECK(argc == 4 || argc == 5);
    if (argc == 5)
        n_readers = cl_min((unsigned)atoi(argv[4]), (unsigned)READERS_MOST);
    for (unsigned i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * 13);
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (strcmp(cases[i].name, argv[1]))
            continue;
        wire_begin(strtoull(argv[2], NULL, 0), (uint32_t)atoi(argv[3]),
                   CL_TCPO_WSCALE | CL_TCPO_TIMES | CL_TCPO_SACK_OK);
        cases[i].run();
        wire_end();
        printf("ok\n");
        return 0;
    }
    return 2;
}

/* Attacks on what a connection holds back (TCP_CORK) and asks by itself (keep-alive): what a stranger makes of either
 * is bounded, and who is gone is not kept by what others send in its name (wire.h).
 *
 * argv: the name of a case, a seed, kthreads of the runtime. Prints "ok". */
#include "bad.h"

#include "libos/net/tcp/machine.h"

#define IDLE_MS 1000
#define PROBES 3

static uint8_t bytes[1000];

static bool begun; /* the good one's is open */

static void corked_opened(struct cl_tcp_conn *c, void *arg)
{
    if (!begun) {
        echo_opened(c, arg);
        return;
    }
    cl_tcp_cork(c, true);
    CHECK_EQ(cl_tcp_keep_times(c, IDLE_MS, IDLE_MS, PROBES), 0);
    cl_tcp_keep_alive(c, true);
}

static const struct cl_tcp_events corked_events = {
    .opened = corked_opened, .data = echo_data, .writable = echo_writable, .eof = echo_eof, .ended = echo_ended};

/* They ask for what fills no segment, and acknowledge nothing. */
static void corked_and_silent(void)
{
    unsigned n = 500;
    for (unsigned i = 0; i < n; i++) {
        struct bad b = open_bad(i, 1000);
        send_bad(&b, 0, bytes, 100, 1000);
    }
    CHECK(held() <= 2 * n * CL_CHUNK_BYTES, "%llu bytes", (unsigned long long)held());
    run_for(SECOND);
    CHECK_EQ(alive(), n + 1);
    CHECK(held() <= 2 * n * CL_CHUNK_BYTES, "%llu bytes", (unsigned long long)held());
    goes_on();
    rest_for(3600 * SECOND);
    CHECK_EQ(alive(), 1);
    CHECK_EQ(held(), 0);
}

/* The same with no window for it, then with one of a byte less than what waits. */
static void corked_without_room(void)
{
    unsigned n = 200;
    for (unsigned i = 0; i < n; i++) {
        struct bad b = open_bad(i, i % 2 ? 0 : 99);
        send_bad(&b, 0, bytes, 100, i % 2 ? 0 : 99);
    }
    run_for(SECOND);
    CHECK(held() <= 2 * n * CL_CHUNK_BYTES, "%llu bytes", (unsigned long long)held());
    goes_on();
    rest_for(3600 * SECOND);
    CHECK_EQ(alive(), 1);
    CHECK_EQ(held(), 0);
}

static struct bad gone;
static unsigned asked; /* times that it was asked whether it lives */

static void count_probes(uint32_t peer, uint16_t port, const struct cl_tcp_segment *s, const uint8_t *data)
{
    (void)data;
    asked += peer == gone.ip && port == gone.port && s->seq + 1 == gone.ack && s->len == 0;
}

/* Who knows its ends, and neither of its numbers, speaks for one that is gone. */
static void signs_of_life_are_forged(void)
{
    static const uint8_t flags[] = {CL_TCPF_ACK, CL_TCPF_ACK | CL_TCPF_PSH, CL_TCPF_SYN, CL_TCPF_RST, 0};
    hears = count_probes;
    gone = open_bad(0, 1000);
    for (unsigned i = 0; i < 100 && alive() > 1; i++) {
        struct cl_tcp_segment s = {.seq = gone.seq + (1u << 30) + below(1u << 30),
                                   .ack = gone.ack + (1u << 30) + below(1u << 30),
                                   .flags = flags[i % sizeof flags],
                                   .window = 1000};
        if (i % 7 == 0) /* one of the two is right */
            s.seq = gone.seq;
        if (i % 7 == 1)
            s.ack = gone.ack;
        if (s.flags & CL_TCPF_RST) /* which would end it */
            s.seq = gone.seq + (1u << 30);
        say(gone.ip, gone.port, s, bytes, i % 2 ? 10 : 0);
        run_for(100 * MS);
    }
    CHECK_EQ(asked, PROBES);
    CHECK_EQ(alive(), 1);
    goes_on();
}

static void answer_probes(uint32_t peer, uint16_t port, const struct cl_tcp_segment *s, const uint8_t *data)
{
    count_probes(peer, port, s, data);
    if (peer == gone.ip && port == gone.port && s->seq + 1 == gone.ack)
        send_bad(&gone, 0, NULL, 0, 1000);
}

/* One that answers stays, however long it says nothing else. */
static void who_answers_stays(void)
{
    hears = answer_probes;
    gone = open_bad(0, 1000);
    rest_for(60 * SECOND);
    CHECK(asked >= 50, "%u", asked);
    CHECK_EQ(alive(), 2);
    hears = NULL;
    rest_for(10 * SECOND);
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
    CASE(corked_and_silent),
    CASE(corked_without_room),
    CASE(signs_of_life_are_forged),
    CASE(who_answers_stays),
};

int main(int argc, char **argv)
{
    CHECK(argc == 4);
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (strcmp(cases[i].name, argv[1]))
            continue;
        victim_events = &corked_events;
        wire_begin(strtoull(argv[2], NULL, 0), (uint32_t)atoi(argv[3]), CL_TCPO_WSCALE);
        begun = true;
        cases[i].run();
        wire_end();
        printf("ok\n");
        return 0;
    }
    return 2;
}

/* A made-up peer for loss recovery, case by case: it acknowledges what the case wants, at times to the nanosecond. Host
 * A opens to host B and sends; after that B is mute, and the case speaks for it. A round trip is 20 us. */
#ifndef TESTS_LIBOS_TCP_RECOVER_H
#define TESTS_LIBOS_TCP_RECOVER_H

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

static inline bool record(unsigned from, const struct cl_tcp_segment *s)
{
    if (from || s->len == 0)
        return false;
    CHECK(n_sent < SENT_MOST);
    sent[n_sent].at_ns = now_ns;
    sent[n_sent].seq = s->seq - first;
    sent[n_sent++].len = s->len;
    return false;
}

static inline void on_ended(struct cl_tcp_conn *c, int error, void *arg)
{
    (void)c, (void)error, (void)arg;
    b_ended++;
}

static const struct cl_tcp_events quiet = {.ended = on_ended};

static inline struct cl_tcp_conn *conn(void)
{
    return &a_user->conn;
}

static inline void open_to(uint8_t options, uint32_t chunks)
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

static inline void opens(void)
{
    open_to(CL_TCPO_SACK_OK | CL_TCPO_WSCALE, 1000);
}

static inline void write_bytes(uint32_t n)
{
    static uint8_t data[1 << 20];
    begin(a_user);
    CHECK_EQ(cl_tcp_write(conn(), data, n), n);
    finish(a_user);
}

/* B acknowledges what is before `ack` and tells of up to three ranges, all counted from the first byte. */
static inline void answer(uint32_t ack, unsigned n, const uint32_t (*sacks)[2])
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
static inline void pass(uint64_t ns)
{
    uint64_t until_ns = now_ns + ns;
    world_run(ns + 1);
    now_ns = until_ns;
}

/* The i-th segment of data was the one at seq. */
static inline void was_sent(unsigned i, uint32_t seq, uint32_t len)
{
    CHECK(i < n_sent, "only %u segments were sent", n_sent);
    CHECK(sent[i].seq == seq && sent[i].len == len, "segment %u is %u, %u bytes", i, sent[i].seq, sent[i].len);
}

static inline void ends(void)
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

struct recover_case {
    const char *name;
    void (*run)(void);
};
#define CASE(name)                                                                                                     \
    {                                                                                                                  \
#name, name                                                                                                    \
    }

/* Run the case that argv names. Prints "ok". */
static inline int run_case(int argc, char **argv, const struct recover_case *cases, unsigned n)
{
    verbose = getenv("SHOW") != NULL;
    for (unsigned i = 0; argc == 2 && i < n; i++)
        if (strcmp(argv[1], cases[i].name) == 0) {
            cases[i].run();
            world_end();
            printf("ok\n");
        }
    return 0;
}

#endif

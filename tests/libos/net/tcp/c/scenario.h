/* Cases seen from the wire: host A opens, host B listens on port 80. What users hear is noted, and the peer may be made
 * up: say(). */
#ifndef TESTS_TCP_SCENARIO_H
#define TESTS_TCP_SCENARIO_H

#include "world.h"

#define SENT_MOST 4096

/* What users heard. */
struct app {
    bool keeps;         /* it takes nothing */
    bool closes_at_eof; /* as most do */
    struct user *u;
    unsigned opened, eof, ended, writable;
    int error;
    uint64_t read;
    uint8_t data[70000];
};

static struct app apps[2];
static struct {
    unsigned from;
    uint64_t at_ns;
    struct cl_tcp_segment s;
} sent[SENT_MOST];
static unsigned n_sent;
static bool (*loses)(unsigned from, const struct cl_tcp_segment *s);

static bool record(unsigned from, const struct cl_tcp_segment *s)
{
    CHECK(n_sent < SENT_MOST);
    sent[n_sent].from = from;
    sent[n_sent].at_ns = now_ns;
    sent[n_sent++].s = *s;
    return loses && loses(from, s);
}

static void on_opened(struct cl_tcp_conn *c, void *arg)
{
    struct app *a = arg;
    a->opened++;
    a->u = cl_container_of(c, struct user, conn);
}

static int64_t on_data(struct cl_tcp_conn *c, const uint8_t *data, int64_t len, void *arg)
{
    struct app *a = arg;
    (void)c;
    if (a->keeps)
        return 0;
    CHECK(a->read + (uint64_t)len <= sizeof a->data);
    memcpy(a->data + a->read, data, (size_t)len);
    a->read += (uint64_t)len;
    return len;
}

static void on_writable(struct cl_tcp_conn *c, void *arg)
{
    (void)c;
    ((struct app *)arg)->writable++;
}

static void on_eof(struct cl_tcp_conn *c, void *arg)
{
    struct app *a = arg;
    a->eof++;
    if (a->closes_at_eof)
        cl_tcp_close(c);
}

static void on_ended(struct cl_tcp_conn *c, int error, void *arg)
{
    struct app *a = arg;
    (void)c;
    a->ended++;
    a->error = error;
    a->u = NULL;
}

static const struct cl_tcp_events events = {
    .opened = on_opened, .data = on_data, .writable = on_writable, .eof = on_eof, .ended = on_ended};

#define ON(app, call)                                                                                                  \
    do {                                                                                                               \
        struct user *u_ = (app).u;                                                                                     \
        begin(u_);                                                                                                     \
        struct cl_tcp_conn *c = &u_->conn;                                                                             \
        call;                                                                                                          \
        finish(u_);                                                                                                    \
    } while (0)

static unsigned state_of(unsigned host)
{
    return hosts[host].users[0].used ? hosts[host].users[0].conn.state : CL_TCP_CLOSED;
}

static struct cl_tcp_conn *conn_of(unsigned host)
{
    return &hosts[host].users[0].conn;
}

static void connect_only(void)
{
    listen_on(&hosts[1], 80, &events, &apps[1]);
    apps[0].u = connect_from(&hosts[0], 1000, 80, &events, &apps[0]);
}

static void open_both(void)
{
    connect_only();
    world_run(50 * MS);
    CHECK(apps[0].opened == 1 && apps[1].opened == 1);
    CHECK(state_of(0) == CL_TCP_ESTABLISHED && state_of(1) == CL_TCP_ESTABLISHED);
    n_sent = 0;
}

/* Segments of a host, since n_sent was 0, that have all of these flags; the i-th of them. */
static const struct cl_tcp_segment *nth(unsigned from, uint8_t flags, unsigned i, uint64_t *at_ns)
{
    for (unsigned k = 0; k < n_sent; k++)
        if (sent[k].from == from && (sent[k].s.flags & flags) == flags && i-- == 0) {
            if (at_ns)
                *at_ns = sent[k].at_ns;
            return &sent[k].s;
        }
    return NULL;
}

static unsigned count(unsigned from, uint8_t flags)
{
    unsigned n = 0;
    while (nth(from, flags, n, NULL))
        n++;
    return n;
}

/* A segment from A to B, or from whoever pretends to be A. Timestamps as B expects them. */
static void say(struct cl_tcp_segment s, const char *data)
{
    uint8_t bytes[256];
    const struct cl_tcp_conn *b = conn_of(1);
    if ((b->flags & CL_TCP_TIMES) && !(s.options.has & CL_TCPO_TIMES)) {
        s.options.has |= CL_TCPO_TIMES;
        s.options.ts_val = b->ts_recent;
    }
    s.len = (uint16_t)(data ? strlen(data) : 0);
    unsigned len = cl_tcp_segment_write(&s, 1000, 80, bytes);
    memcpy(bytes + len, data ? data : "", s.len);
    arrive(&hosts[1], bytes, len + s.len);
}

/* B's peer as it should go on: next number, all acknowledged. */
static struct cl_tcp_segment in_turn(void)
{
    const struct cl_tcp_conn *b = conn_of(1);
    return (struct cl_tcp_segment){.seq = b->rcv_nxt, .ack = b->nxt, .flags = CL_TCPF_ACK, .window = 500};
}

/* Cases. */

struct scenario {
    const char *name;
    void (*run)(void);
};

#define CASE(name)                                                                                                     \
    {                                                                                                                  \
#name, name                                                                                                    \
    }

/* main: the names of all, or the one that argv[1] names. */
static int run_scenarios(int argc, char **argv, const struct scenario *cases, unsigned n)
{
    verbose = getenv("SHOW") != NULL;
    intercept = record;
    for (unsigned i = 0; i < n; i++) {
        if (argc < 2) {
            printf("%s\n", cases[i].name);
        } else if (strcmp(argv[1], cases[i].name) == 0) {
            network.delay_ns = 10 * MS;
            for (unsigned h = 0; h < 2; h++)
                host_init(h, 2000);
            cases[i].run();
            world_end();
            printf("ok\n");
        }
    }
    return 0;
}

#endif

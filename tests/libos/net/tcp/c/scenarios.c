/* What a connection does, case by case, seen from the wire: opening, closing, refusing, time-outs, windows, attacks.
 *
 * argv[1]: the name of a case. Prints "ok". Host A opens, host B listens on port 80. Its peer may be made up: say(). */
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

/* What comes late, or again, may have an old number and the newest acknowledgement: its window is the one that counts. */
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

/* A window far below the largest waits for a time-out once. The peer's memory has become less, so the next one does not. */
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

#define CASE(name)                                                                                                     \
    {                                                                                                                  \
#name, name                                                                                                    \
    }
static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {
    CASE(opens_and_closes),
    CASE(opens_at_once),
    CASE(closes_at_once),
    CASE(half_closes),
    CASE(is_refused),
    CASE(nobody_answers),
    CASE(synack_is_lost),
    CASE(half_open_ends),
    CASE(backlog_is_bounded),
    CASE(resets_must_be_exact),
    CASE(challenges_are_limited),
    CASE(old_timestamps_are_dropped),
    CASE(first_bytes_win),
    CASE(sacks_name_the_latest_first),
    CASE(holes_are_bounded),
    CASE(window_closes),
    CASE(window_update_is_lost),
    CASE(late_data_brings_the_window),
    CASE(window_has_become_small),
    CASE(keep_alive_ends),
    CASE(user_timeout_ends),
    CASE(retransmission_backs_off),
    CASE(fin_wait_2_ends_without_a_user),
    CASE(data_for_a_closed_user_is_refused),
    CASE(unread_data_resets),
    CASE(acks_are_delayed),
    CASE(nagle_waits),
    CASE(duplicates_resend_at_once),
    CASE(buffers_are_short),
    CASE(no_buffer_behind_a_full_chunk_of_records),
    CASE(fin_of_old_is_answered_in_time_wait),
    CASE(time_wait_opens_again),
    CASE(numbers_are_not_to_be_guessed),
    CASE(answers_carry_acknowledgements),
    CASE(users_are_called_in_time),
};

int main(int argc, char **argv)
{
    verbose = getenv("SHOW") != NULL;
    intercept = record;
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
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

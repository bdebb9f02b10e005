/* Connections under anything: made-up segments near and far from where they are, true ones that were changed, users
 * that write, stop, read late, close and abort at any time, hosts without memory or buffers. After each turn a
 * connection is what it must be; in the end nothing is left: no memory, and none that outlives its timers.
 *
 * argv: seed, rounds, steps in each, and perhaps whether segments are predicted (1) or not (0). Prints "ok", or in the
 * last case a hash of all that left. */
#include "world.h"

#include "libos/net/icmp.h"

#define LEASES 50

static uint8_t memory[30000]; /* that is lent */
static struct cl_region *region;

struct app {
    bool keeps;
    unsigned n_leases;
    struct cl_lease leases[LEASES];
    int64_t released;
    unsigned opened, ended;
};
static struct app apps[2];
static void look_at(const uint8_t *data, int64_t len)
{
    volatile uint8_t sum = 0;
    for (int64_t i = 0; i < len; i++) /* the sanitizer sees all of it */
        sum = (uint8_t)(sum + data[i]);
}

static void lease_some(struct cl_tcp_conn *c, struct app *a)
{
    if (a->n_leases == LEASES)
        return;
    int rc = cl_tcp_lease(c, &a->leases[a->n_leases]);
    CHECK(rc == 0 || rc == -EAGAIN || rc == -ENOBUFS || rc == -EALREADY);
    a->n_leases += rc == 0;
}

static void return_one(unsigned h)
{
    struct app *a = &apps[h];
    if (a->n_leases == 0)
        return;
    struct cl_lease *one = &a->leases[below(a->n_leases)], last = a->leases[--a->n_leases], old = *one;
    *one = last;
    look_at(old.data, old.len);
    return_lease(&hosts[h], &old);
}

static void lend(struct cl_tcp_conn *c)
{
    int64_t from = (int64_t)below(sizeof memory), len = (int64_t)below(sizeof memory - (uint64_t)from + 1);
    int64_t rc = cl_tcp_write_from(c, region, from, len);
    CHECK(rc >= 0 || rc == -EPIPE);
}

static void on_released(struct cl_tcp_conn *c, int64_t bytes, void *arg)
{
    (void)c;
    CHECK(bytes > 0);
    ((struct app *)arg)->released += bytes;
}

static void on_opened(struct cl_tcp_conn *c, void *arg)
{
    struct app *a = arg;
    (void)c;
    a->opened++;
}

static int64_t on_data(struct cl_tcp_conn *c, const uint8_t *data, int64_t len, void *arg)
{
    struct app *a = arg;
    look_at(data, len);
    if (chance() < 300)
        lease_some(c, a);
    if (chance() < 100)
        lend(c);
    if (chance() < 30)
        cl_tcp_close(c);
    else if (chance() < 10)
        cl_tcp_abort(c);
    else if (chance() < 200)
        (void)cl_tcp_write(c, data, len);
    return a->keeps ? 0 : (int64_t)below((uint64_t)len + 1);
}

static void on_writable(struct cl_tcp_conn *c, void *arg)
{
    static const uint8_t zeros[5000];
    (void)arg;
    (void)cl_tcp_write(c, zeros, (int64_t)below(sizeof zeros));
}

static void on_eof(struct cl_tcp_conn *c, void *arg)
{
    (void)arg;
    if (chance() < 800)
        cl_tcp_close(c);
}

static void on_ended(struct cl_tcp_conn *c, int error, void *arg)
{
    struct app *a = arg;
    (void)c, (void)error;
    a->ended++;
}

static const struct cl_tcp_events events = {.opened = on_opened,
                                            .data = on_data,
                                            .writable = on_writable,
                                            .eof = on_eof,
                                            .ended = on_ended,
                                            .released = on_released};

static uint32_t near(uint32_t number)
{
    static const int32_t steps[] = {0, 0, 0, 0, 1, -1, 2, 1000, -1000, 65535, 100000, -100000, INT32_MAX, INT32_MIN};
    return number + (uint32_t)steps[below(sizeof steps / sizeof steps[0])] + (uint32_t)below(3);
}

/* Where some segment under way begins: what SACK blocks and acknowledgements really name. */
static uint32_t edge(struct cl_tcp_conn *c)
{
    struct cl_tcp_walk w;
    struct cl_tcp_record *r = cl_tcp_walk_first(c, &w);
    for (uint64_t i = below(20); r && i; i--)
        r = cl_tcp_walk_next(&w);
    return r ? r->seq : c->nxt;
}

/* A segment that may or may not make sense, for a connection of h. */
static void make_up(struct host *h)
{
    static uint8_t bytes[2048];
    struct user *u = &h->users[below(2)];
    struct cl_tcp_conn *c = &u->conn;
    bool aims = u->used && chance() < 500;
    struct cl_tcp_segment s = {
        .seq = near(c->rcv_nxt), .ack = near(c->nxt), .window = (uint16_t)next_random(&world_random)};
    s.flags = chance() < 700 ? CL_TCPF_ACK : (uint8_t)next_random(&world_random);
    if (chance() < 300)
        s.flags |= (uint8_t)(1u << below(8));
    if (chance() < 200)
        s.ack = near(c->una);
    if (chance() < 100)
        s.window = 0;
    s.urgent = (uint16_t)next_random(&world_random);
    s.options.has = chance() < 500 && (c->flags & CL_TCP_TIMES) ? CL_TCPO_TIMES : (uint8_t)below(16);
    s.options.mss = (uint16_t)next_random(&world_random);
    s.options.wscale = (uint8_t)below(15);
    s.options.ts_val = near(c->ts_recent);
    s.options.ts_ecr = near(cl_tcp_now_ms(c->turn ? c : &(struct cl_tcp_conn){.turn = &h->turn}) + c->ts_offset);
    s.options.n_sack = (uint8_t)below(5);
    for (unsigned i = 0; i < s.options.n_sack; i++)
        s.options.sack[i] =
            aims ? (struct cl_tcp_range){edge(c), edge(c)} : (struct cl_tcp_range){near(c->una), near(c->nxt)};
    if (aims && chance() < 500)
        s.ack = chance() < 700 ? c->una : edge(c);
    unsigned header = cl_tcp_segment_write(&s, cl_be16(u->key.peer_port_be), cl_be16(u->key.own_port_be), bytes);
    unsigned len = header + (chance() < 600 ? (unsigned)below(1400) : 0);
    arrive_with(h, bytes, len, (uint8_t)below(4));
}

/* An ICMP error that may or may not make sense. */
static void complain_to(struct host *h)
{
    static const int32_t errors[] = {ENETUNREACH, EHOSTUNREACH, ENOPROTOOPT, ECONNREFUSED, EMSGSIZE, EMSGSIZE};
    struct user *u = &h->users[below(2)];
    struct cl_icmp_about about = {.error = errors[below(6)],
                                  .seq = near(u->conn.una),
                                  .total_len = (uint16_t)below(1600),
                                  .mtu = (uint16_t)(below(2) * below(1600))};
    if (!u->used)
        return;
    begin(u);
    cl_tcp_complain(&u->conn, &about);
    finish(u);
}

/* One that is on its way changes. */
static void change_one(void)
{
    if (!n_flying)
        return;
    struct flying *f = &flying[below(n_flying)];
    unsigned at = (unsigned)below(f->len);
    if (at == 12) /* the header's length is what the parser's fuzzer is for */
        return;
    f->bytes[at] ^= (uint8_t)(1u << below(8));
}

/* Between two turns: it sends nothing, as it could not, and leaves nothing that a turn would. */
static void reads_quietly(struct user *u)
{
    static uint8_t data[20000];
    struct cl_tcp_turn none = {.stack = &u->host->stack, .now_ns = now_ns};
    struct cl_tcp_conn *c = &u->conn;
    int64_t room = (int64_t)below(sizeof data);
    if (!cl_tcp_reads_quietly(c, room))
        return;
    uint32_t flags = c->flags, bytes = c->receive.bytes;
    uint64_t due_ns = cl_tcp_due_ns(c);
    c->turn = &none;
    CHECK_EQ(cl_tcp_read(c, data, room), cl_min(room, (int64_t)bytes));
    c->turn = NULL;
    CHECK_EQ(c->flags, flags);
    CHECK_EQ(c->events, 0);
    CHECK_EQ(cl_tcp_due_ns(c), due_ns);
    settle(u);
}

static void user_does(struct user *u)
{
    static uint8_t data[20000];
    if (!u->used || u->conn.state < CL_TCP_SYN_SENT ||
        (u->conn.state == CL_TCP_SYN_RECEIVED && (u->conn.flags & CL_TCP_PASSIVE)))
        return;
    if (below(2))
        reads_quietly(u);
    begin(u);
    switch (below(15)) {
    case 0:
        cl_tcp_shutdown(&u->conn);
        break;
    case 1:
        cl_tcp_close(&u->conn);
        break;
    case 2:
        if (chance() < 200)
            cl_tcp_abort(&u->conn);
        break;
    case 3:
        (void)cl_tcp_read(&u->conn, data, (int64_t)below(sizeof data));
        break;
    case 4:
        cl_tcp_resume(&u->conn);
        break;
    case 5:
        lease_some(&u->conn, &apps[u->host->index]);
        break;
    case 6:
        lend(&u->conn);
        break;
    case 7:
        cl_tcp_keep_frames(&u->conn, below(2));
        break;
    default:
        (void)cl_tcp_write(&u->conn, data, (int64_t)below(sizeof data));
    }
    finish(u);
}

/* No more of it: users close, and time passes. */
static void end_all(void)
{
    intercept = NULL;
    for (unsigned h = 0; h < 2; h++) {
        hosts[h].no_buffers = false;
        apps[h].keeps = false;
        for (unsigned i = 0; i < HOST_CONNS; i++) {
            struct user *u = &hosts[h].users[i];
            if (!u->used)
                continue;
            begin(u);
            if (chance() < 500)
                cl_tcp_close(&u->conn);
            else
                cl_tcp_abort(&u->conn);
            finish(u);
        }
    }
    world_run(20000 * SECOND);
    for (unsigned h = 0; h < 2; h++)
        while (apps[h].n_leases) /* of connections that are over, too */
            return_one(h);
    CHECK_EQ(cl_region_lent(region), 0);
    CHECK(world_is_quiet(), "states %u %u %u", hosts[0].users[0].conn.state, hosts[1].users[0].conn.state,
          hosts[1].users[1].conn.state);
    world_end();
}

static void round_of(unsigned steps)
{
    memset(apps, 0, sizeof apps);
    uint32_t chunks = (uint32_t)(chance() < 300 ? 8 + below(30) : 500);
    for (unsigned h = 0; h < 2; h++) {
        host_init(h, chunks);
        hosts[h].stack.settings.receive_limit = (uint32_t)(1 + below(60000));
        hosts[h].stack.settings.send_limit = (uint32_t)(1 + below(60000));
        hosts[h].stack.settings.wscale = (uint8_t)below(15);
        hosts[h].stack.settings.ecn = (uint8_t)below(3);
        hosts[h].stack.settings.cc = below(2) ? &cl_tcp_cubic : &cl_tcp_dctcp;
        hosts[h].stack.settings.user_timeout_ms = (uint32_t)(below(2) * below(100000));
        hosts[h].stack.settings.flags = (uint32_t)(below(2) * CL_TCP_KEEP_ALIVE | below(2) * CL_TCP_NO_DELAY);
    }
    listen_on(&hosts[1], 80, &events, &apps[1]);
    connect_from(&hosts[0], 1000, 80, &events, &apps[0]);
    for (unsigned i = 0; i < steps; i++) {
        unsigned what = chance();
        if (what < 350)
            (void)world_step(now_ns + below(50 * MS));
        else if (what < 370)
            world_run(below(5 * SECOND));
        else if (what < 650)
            make_up(&hosts[below(2)]);
        else if (what < 700)
            change_one();
        else if (what < 900)
            user_does(&hosts[below(2)].users[below(2)]);
        else if (what < 920)
            hosts[below(2)].no_buffers ^= true;
        else if (what < 940)
            apps[below(2)].keeps ^= true;
        else if (what < 950)
            return_one((unsigned)below(2));
        else if (what < 970)
            complain_to(&hosts[below(2)]);
        else if (!hosts[0].users[0].used && !find_user(&hosts[0], 80, 1000))
            connect_from(&hosts[0], 1000, 80, &events, &apps[0]);
    }
    end_all();
}

/* Changed and made-up segments make numbers that the referee cannot follow. */
int main(int argc, char **argv)
{
    CHECK(argc == 4 || argc == 5);
    no_prediction = argc == 5 && atoi(argv[4]) == 0;
    uint64_t seed = strtoull(argv[1], NULL, 0);
    verbose = getenv("SHOW") != NULL;
    CHECK_EQ(cl_region_new(memory, sizeof memory, &region), 0);
    network = (struct network){
        .loss = 30, .twice = 30, .late = 30, .marked = 50, .delay_ns = 5 * MS, .jitter_ns = MS, .late_ns = 20 * MS};
    for (unsigned i = 0; i < (unsigned)atoi(argv[2]); i++) {
        world_random = seed * 0x9e3779b97f4a7c15ull + i * 0x2545f4914f6cdd1dull + 1;
        for (unsigned j = 0; j < 10; j++)
            next_random(&world_random);
        if (verbose)
            printf("round %u\n", i);
        round_of((unsigned)atoi(argv[3]));
    }
    CHECK_EQ(cl_region_delete(region), 0);
    if (argc == 5)
        printf("%016llx\n", (unsigned long long)said);
    else
        printf("ok\n");
    return 0;
}

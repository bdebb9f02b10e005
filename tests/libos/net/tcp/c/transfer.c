/* Two hosts send each other bytes through a bad network: all come, once and in order, both ends end, and no memory is
 * left. Writes and reads are of random sizes; readers pause; buffers are small or the pool is; one side half-closes.
 *
 * argv: seed, bytes, loss, twice, late (in 1/1000), delay in us, chunks of each host, rounds, and perhaps whether
 * segments are predicted (1) or not (0). Prints "ok", or in the last case a hash of all that left. */
#include "world.h"

#define LEASES 40

static uint8_t byte_at(unsigned host, uint64_t at)
{
    return (uint8_t)(at * 131 + (at >> 8) * 7 + host * 91 + 5);
}

struct app {
    struct user *u;
    unsigned host;
    uint64_t wants, wrote, read; /* bytes */
    uint64_t expects;
    bool opened, eof, ended, closed, paused, resets;
    int error;
    /* Without a copy. What is lent spoils as soon as it is released. */
    bool leases;
    struct cl_region *region; /* all that it wants to write; NULL: it copies */
    uint8_t *memory;
    uint64_t released;
    unsigned n_out;
    struct lent {
        struct cl_lease lease;
        uint64_t at;
    } out[LEASES];
};

static struct app apps[2];

static void check(const struct app *a, const uint8_t *data, int64_t len, uint64_t at)
{
    for (int64_t i = 0; i < len; i++)
        CHECK(data[i] == byte_at(!a->host, at + (uint64_t)i), "byte %llu", (unsigned long long)at + i);
}

static void return_one(struct app *a)
{
    if (a->n_out == 0)
        return;
    unsigned which = (unsigned)below(a->n_out);
    struct lent one = a->out[which];
    a->out[which] = a->out[--a->n_out];
    check(a, one.lease.data, one.lease.len, one.at);
    return_lease(&hosts[a->host], &one.lease);
}

/* What comes next is a lease. False: it has to be copied. */
static bool lease(struct app *a, struct cl_tcp_conn *c)
{
    struct lent *one = &a->out[a->n_out];
    if (!a->leases || a->n_out == LEASES || cl_tcp_lease(c, &one->lease))
        return false;
    one->at = a->read;
    a->n_out++;
    a->read += (uint64_t)one->lease.len;
    return true;
}

static void on_released(struct cl_tcp_conn *c, int64_t bytes, void *arg)
{
    struct app *a = arg;
    (void)c;
    CHECK(bytes > 0 && a->released + (uint64_t)bytes <= a->wrote && !a->ended);
    memset(a->memory + a->released, 0xee, (size_t)bytes);
    a->released += (uint64_t)bytes;
    CHECK_EQ(cl_region_lent(a->region), a->wrote - a->released);
}

static void write_more(struct app *a, struct cl_tcp_conn *c)
{
    uint8_t data[4096];
    while (a->wrote < a->wants) {
        uint64_t n = 1 + below(sizeof data);
        n = cl_min(n, a->wants - a->wrote);
        for (uint64_t i = 0; i < n; i++)
            data[i] = byte_at(a->host, a->wrote + i);
        int64_t took = a->region ? cl_tcp_write_from(c, a->region, (int64_t)a->wrote, (int64_t)n)
                                 : cl_tcp_write(c, data, (int64_t)n);
        CHECK(took >= 0 && (uint64_t)took <= n);
        a->wrote += (uint64_t)took;
        if ((uint64_t)took < n)
            return;
    }
    if (!a->closed) {
        a->closed = true;
        cl_tcp_shutdown(c);
        CHECK_EQ(cl_tcp_write(c, data, 1), -EPIPE);
    }
}

static void on_opened(struct cl_tcp_conn *c, void *arg)
{
    struct app *a = arg;
    CHECK(!a->opened && !a->ended);
    a->opened = true;
    a->u = cl_container_of(c, struct user, conn);
    cl_tcp_keep_frames(c, a->leases);
    write_more(a, c);
}

static int64_t on_data(struct cl_tcp_conn *c, const uint8_t *data, int64_t len, void *arg)
{
    struct app *a = arg;
    (void)c;
    CHECK(a->opened && !a->eof && !a->ended && len > 0);
    if (chance() < 50)
        a->paused = true;
    if (a->paused)
        len = (int64_t)below((uint64_t)len);
    if (chance() < 700 && !a->paused && lease(a, c))
        return len;
    check(a, data, len, a->read);
    a->read += (uint64_t)len;
    return len;
}

static void on_writable(struct cl_tcp_conn *c, void *arg)
{
    CHECK(!((struct app *)arg)->ended);
    write_more(arg, c);
}

static void on_eof(struct cl_tcp_conn *c, void *arg)
{
    struct app *a = arg;
    (void)c;
    CHECK(!a->eof && !a->ended);
    CHECK_EQ(a->read, a->expects);
    a->eof = true;
}

static void on_ended(struct cl_tcp_conn *c, int error, void *arg)
{
    struct app *a = arg;
    (void)c;
    CHECK(!a->ended);
    a->ended = true;
    a->error = error;
}

static const struct cl_tcp_events events = {.opened = on_opened,
                                            .data = on_data,
                                            .writable = on_writable,
                                            .eof = on_eof,
                                            .ended = on_ended,
                                            .released = on_released};

/* Whoever paused reads on, now and then. */
static void readers_go_on(void)
{
    for (unsigned h = 0; h < 2; h++) {
        struct app *a = &apps[h];
        hosts[h].no_buffers = chance() < 20;
        for (uint64_t n = below(4); n; n--)
            return_one(a);
        if (!a->paused || a->ended || !a->u)
            continue;
        a->paused = false;
        begin(a->u);
        if (chance() < 300)
            (void)lease(a, &a->u->conn);
        cl_tcp_resume(&a->u->conn);
        finish(a->u);
    }
}

/* All that it will write lies in a region. */
static void lend_all(struct app *a)
{
    a->memory = malloc(a->wants + 1);
    for (uint64_t i = 0; i < a->wants; i++)
        a->memory[i] = byte_at(a->host, i);
    CHECK_EQ(cl_region_new(a->memory, (int64_t)a->wants + 1, &a->region), 0);
}

static void transfer(uint64_t bytes, uint32_t chunks)
{
    memset(apps, 0, sizeof apps);
    bool large = below(4) == 0;
    most_kept = (unsigned)below(100);
    for (unsigned h = 0; h < 2; h++) {
        host_init(h, chunks);
        struct cl_tcp_settings *s = &hosts[h].stack.settings;
        s->send_limit = (uint32_t)(2000 + below(100000));
        s->receive_limit = (uint32_t)(2000 + below(200000));
        s->mss = (uint16_t)(large ? 8960 : 200 + below(1261)); /* an MTU of 9000 */
        s->wscale = (uint8_t)below(8);
        s->options = (uint8_t)(below(2) * CL_TCPO_TIMES + below(2) * CL_TCPO_SACK_OK + below(2) * CL_TCPO_WSCALE);
        s->flags = below(2) ? CL_TCP_NO_DELAY : 0;
        s->ecn = (uint8_t)below(3);
        s->cc = below(2) ? &cl_tcp_cubic : &cl_tcp_dctcp;
        s->time_wait_ms = 2000000; /* longer than a FIN is said again, whatever is lost */
        apps[h] = (struct app){.host = h, .wants = below(bytes), .leases = below(2)};
        if (below(2))
            lend_all(&apps[h]);
    }
    apps[0].expects = apps[1].wants;
    apps[1].expects = apps[0].wants;
    listen_on(&hosts[1], 80, &events, &apps[1]);
    bool both = below(4) == 0; /* two that open at the same time */
    hosts[1].listens = both ? 0 : 80;
    connect_from(&hosts[0], 1000, 80, &events, &apps[0]);
    if (both)
        connect_from(&hosts[1], 80, 1000, &events, &apps[1]);
    uint64_t end_ns = now_ns + 10000 * SECOND;
    while (now_ns < end_ns && !world_is_quiet()) {
        world_run(20 * MS);
        readers_go_on();
    }
    CHECK(world_is_quiet(), "states %u %u", hosts[0].users[0].conn.state, hosts[1].users[0].conn.state);
    for (unsigned h = 0; h < 2; h++) {
        CHECK(apps[h].ended && apps[h].eof, "host %u, error %d", h, apps[h].error);
        CHECK_EQ(apps[h].error, 0);
        CHECK_EQ(apps[h].read, apps[h].expects);
        CHECK_EQ(apps[h].released, apps[h].region ? apps[h].wants : 0);
        while (apps[h].n_out) /* of a connection that is over */
            return_one(&apps[h]);
        CHECK_EQ(cl_region_delete(apps[h].region), 0);
        free(apps[h].memory);
    }
    world_end();
}

int main(int argc, char **argv)
{
    CHECK(argc == 9 || argc == 10);
    no_prediction = argc == 10 && atoi(argv[9]) == 0;
    uint64_t seed = strtoull(argv[1], NULL, 0), bytes = strtoull(argv[2], NULL, 0);
    network = (struct network){.loss = (unsigned)atoi(argv[3]), .twice = (unsigned)atoi(argv[4]), .marked = 100};
    network.in_a_row = 3;
    network.late = (unsigned)atoi(argv[5]);
    network.delay_ns = strtoull(argv[6], NULL, 0) * 1000;
    network.jitter_ns = network.delay_ns / 10;
    network.late_ns = network.delay_ns * 3 + 1000;
    unsigned rounds = (unsigned)atoi(argv[8]);
    verbose = getenv("SHOW") != NULL;
    for (unsigned i = 0; i < rounds; i++) {
        world_random = seed * 0x9e3779b97f4a7c15ull + i * 0x2545f4914f6cdd1dull + 1;
        for (unsigned j = 0; j < 10; j++)
            next_random(&world_random);
        if (verbose)
            printf("round %u\n", i);
        transfer(bytes, (uint32_t)atoi(argv[7]));
    }
    if (argc == 10)
        printf("%016llx\n", (unsigned long long)said);
    else
        printf("ok\n");
    return 0;
}

/* All that can happen to a connection of two hosts, for small windows: each segment under way is delivered, in any
 * order, lost, or delivered and kept; any timer comes at any time; a host restarts and knows nothing any more. Up to a
 * number of each. States are told apart by what matters of them (digest), and each is reached by doing all again from
 * the start.
 *
 * In each state the invariants hold and no byte was wrong. From each state on, with a network that is good again, all
 * ends: no connection outlives its timers, nothing is held, and if no host restarted and nobody gave up, all bytes have
 * come.
 *
 * argv: who closes first (0: A, 1: B, 2: both), whether both open, lost, kept, timers, restarts. Prints the number of
 * states and "ok". */
#define CHECK_CONTEXT "at %.6f s, after%s", (double)now_ns / 1e9, path_text()
static const char *path_text(void);
#include "world.h"

#define DEPTH 48
#define TABLE (1u << 22)
#define UNDER_WAY 4
#define BYTES 128 /* two segments */

enum kind { DELIVER, LOSE, KEEP, TIMER, RESTART };

struct choice {
    uint8_t kind, index;
};

struct app {
    unsigned host, opened, ended, eof;
    uint32_t wrote, read;
    int error;
    bool closes_first;
};

static struct choice path[DEPTH];
static unsigned path_len;
static struct app apps[2];
static unsigned budget[5], closer;
static bool both_open, restarted;
static uint64_t table[TABLE];
static uint64_t n_states;

/* How a state was reached: what happened, and to which segment under way or host. */
static const char *path_text(void)
{
    static char text[8 * DEPTH + 1];
    for (unsigned i = 0; i < path_len; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), " %c%u", "DLKTR"[path[i].kind], path[i].index);
    return text;
}

static uint8_t byte_at(unsigned host, uint32_t at)
{
    return (uint8_t)(1 + at * 3 + host * 100);
}

static void write_all(struct app *a, struct cl_tcp_conn *c)
{
    uint8_t data[BYTES];
    while (a->wrote < BYTES) {
        for (uint32_t i = a->wrote; i < BYTES; i++)
            data[i] = byte_at(a->host, i);
        int64_t took = cl_tcp_write(c, data + a->wrote, BYTES - a->wrote);
        if (took <= 0)
            return;
        a->wrote += (uint32_t)took;
    }
    if (a->closes_first)
        cl_tcp_shutdown(c);
}

static void on_opened(struct cl_tcp_conn *c, void *arg)
{
    struct app *a = arg;
    a->opened++;
    a->wrote = a->read = 0; /* of a connection that a restarted peer opened anew, too */
    write_all(a, c);
}

static int64_t on_data(struct cl_tcp_conn *c, const uint8_t *data, int64_t len, void *arg)
{
    struct app *a = arg;
    (void)c;
    for (int64_t i = 0; i < len; i++)
        CHECK(data[i] == byte_at(!a->host, a->read + (uint32_t)i), "host %u byte %u", a->host, a->read + (uint32_t)i);
    a->read += (uint32_t)len;
    CHECK(a->read <= BYTES, "doubled");
    return len;
}

static void on_writable(struct cl_tcp_conn *c, void *arg)
{
    write_all(arg, c);
}

static void on_eof(struct cl_tcp_conn *c, void *arg)
{
    struct app *a = arg;
    a->eof++;
    CHECK(a->read == BYTES || restarted, "the end came before %u bytes", BYTES - a->read);
    cl_tcp_close(c);
}

static void on_ended(struct cl_tcp_conn *c, int error, void *arg)
{
    struct app *a = arg;
    (void)c;
    a->ended++;
    a->error = error;
}

static const struct cl_tcp_events events = {
    .opened = on_opened, .data = on_data, .writable = on_writable, .eof = on_eof, .ended = on_ended};

static void restart(struct host *h);

static void start(void)
{
    for (unsigned i = 0; i < n_flying; i++)
        free(flying[i].bytes);
    n_flying = 0;
    n_flown = 0;
    for (unsigned h = 0; h < 2; h++) {
        struct cl_chunks *chunks = hosts[h].stack.chunks;
        if (chunks)
            restart(&hosts[h]); /* what it has goes back */
        host_init(h, chunks ? 0 : 64);
        if (chunks) {
            cl_chunks_delete(hosts[h].stack.chunks);
            hosts[h].stack.chunks = chunks;
        }
        struct cl_tcp_settings *s = &hosts[h].stack.settings;
        s->options = 0;
        s->mss = CL_TCP_MSS_LEAST;
        s->receive_limit = BYTES;
        s->flags = CL_TCP_NO_DELAY;
        s->user_timeout_ms = 0;
        apps[h] = (struct app){.host = h, .closes_first = closer == h || closer == 2};
    }
    now_ns = 1000000000;
    restarted = false;
    connect_from(&hosts[0], 1000, 80, &events, &apps[0]);
    if (both_open)
        connect_from(&hosts[1], 80, 1000, &events, &apps[1]);
    else
        listen_on(&hosts[1], 80, &events, &apps[1]);
}

static struct user *first_due(unsigned h)
{
    struct user *first = NULL;
    for (unsigned i = 0; i < HOST_CONNS; i++) {
        struct user *u = &hosts[h].users[i];
        if (u->used && cl_tcp_due_ns(&u->conn) != CL_TCP_NEVER &&
            (!first || cl_tcp_due_ns(&u->conn) < cl_tcp_due_ns(&first->conn)))
            first = u;
    }
    return first;
}

static void restart(struct host *h)
{
    restarted = true;
    h->mute = true; /* what it says at its end nobody hears */
    for (unsigned i = 0; i < HOST_CONNS; i++) {
        struct user *u = &h->users[i];
        if (!u->used)
            continue;
        begin(u);
        cl_tcp_abort(&u->conn);
        finish(u);
        u->used = false;
    }
    h->mute = false;
}

static void apply(struct choice c)
{
    if (c.kind == TIMER) {
        struct user *u = first_due(c.index);
        now_ns = cl_max(now_ns, cl_tcp_due_ns(&u->conn));
        begin(u);
        cl_tcp_timers(&u->conn);
        finish(u);
        return;
    }
    if (c.kind == RESTART) {
        restart(&hosts[c.index]);
        return;
    }
    struct flying f = flying[c.index];
    /* No time passes here, and yet a later connection has other numbers. */
    hosts[f.to].stack.secret.k1 = 77 + hosts[f.to].counts.accepted;
    if (c.kind != KEEP)
        flying[c.index] = flying[--n_flying];
    if (c.kind != LOSE)
        arrive(&hosts[f.to], f.bytes, f.len);
    if (c.kind != KEEP)
        free(f.bytes);
}

static uint64_t mix(uint64_t hash, uint64_t value)
{
    hash ^= value + 0x9e3779b97f4a7c15ull + (hash << 6) + (hash >> 2);
    hash *= 0xff51afd7ed558ccdull;
    return hash ^ hash >> 32;
}

/* What matters of a connection: not the time, but which timers are set; numbers as they are, for they begin alike. */
static uint64_t digest_conn(uint64_t hash, const struct cl_tcp_conn *c)
{
    const uint32_t words[] = {c->state,
                              c->flags,
                              c->una,
                              c->nxt,
                              c->wnd,
                              c->wl1,
                              c->wl2,
                              c->mss,
                              c->rcv_nxt,
                              c->rcv_edge,
                              c->fin_seq,
                              c->last_ack_sent,
                              c->quick,
                              c->recover_seq,
                              c->send.bytes,
                              c->receive.bytes,
                              c->retries,
                              c->dup_acks,
                              c->cc.window / 64,
                              (uint32_t)c->error};
    for (unsigned i = 0; i < sizeof words / sizeof *words; i++)
        hash = mix(hash, words[i]);
    for (unsigned i = 0; i < CL_TCP_TIMERS; i++)
        hash = mix(hash, c->due_ns[i] != CL_TCP_NEVER);
    struct cl_tcp_walk w;
    struct cl_tcp_record *r = cl_tcp_walk_first((struct cl_tcp_conn *)c, &w);
    for (; r; r = cl_tcp_walk_next(&w))
        hash = mix(mix(hash, r->seq), (uint64_t)r->len << 8 | r->flags);
    for (unsigned i = 0; c->aside && i < c->aside->n; i++)
        hash = mix(mix(hash, c->aside->ranges[i].from), c->aside->ranges[i].to);
    return hash;
}

static uint64_t digest(const unsigned *used)
{
    uint64_t hash = 1, way = 0;
    for (unsigned h = 0; h < 2; h++) {
        for (unsigned i = 0; i < HOST_CONNS; i++)
            if (hosts[h].users[i].used)
                hash = digest_conn(mix(hash, i), &hosts[h].users[i].conn);
        hash = mix(hash, apps[h].read | apps[h].wrote << 16);
        hash = mix(hash, apps[h].opened | apps[h].ended << 8 | apps[h].eof << 16);
    }
    for (unsigned i = 0; i < n_flying; i++) { /* in no order */
        uint64_t one = flying[i].to;
        for (uint32_t k = 0; k < flying[i].len; k++)
            one = mix(one, flying[i].bytes[k]);
        way += one;
    }
    for (unsigned i = 0; i < 5; i++)
        hash = mix(hash, i ? used[i] : 0);
    return mix(hash, way) | 1;
}

static bool is_new(uint64_t hash)
{
    for (uint32_t at = (uint32_t)hash & (TABLE - 1);; at = (at + 1) & (TABLE - 1)) {
        if (table[at] == hash)
            return false;
        if (table[at] == 0) {
            CHECK(n_states < TABLE / 2, "more states than there is room for");
            table[at] = hash;
            n_states++;
            return true;
        }
    }
}

/* The network is good from now on: all must end, and well if nobody restarted. */
static void must_end(void)
{
    uint64_t end_ns = now_ns + 100000 * SECOND;
    while (!world_is_quiet() && now_ns < end_ns) {
        world_run(SECOND);
        while (n_flying == 0 && now_ns < end_ns && !world_is_quiet()) { /* straight to what is due */
            struct user *a = first_due(0), *b = first_due(1);
            if (!a && !b && restarted) { /* the one that did not restart waits for a user that has no reason to speak */
                for (unsigned h = 0; h < 2; h++)
                    restart(&hosts[h]);
                break;
            }
            CHECK(a || b, "states %u %u: nothing is due, and it is not over", hosts[0].users[0].conn.state,
                  hosts[1].users[0].conn.state);
            uint64_t due_ns =
                cl_min(a ? cl_tcp_due_ns(&a->conn) : CL_TCP_NEVER, b ? cl_tcp_due_ns(&b->conn) : CL_TCP_NEVER);
            world_run(due_ns > now_ns ? due_ns - now_ns + 1 : 1);
        }
    }
    CHECK(world_is_quiet());
    CHECK_EQ(held(&hosts[0]) + held(&hosts[1]), 0);
    CHECK_EQ(hosts[1].listener.pending, 0);
    for (unsigned h = 0; h < 2 && !restarted; h++)
        CHECK(apps[h].error || apps[h].read == BYTES, "host %u read %u", h, apps[h].read);
    if (!restarted)
        CHECK(apps[0].error == 0 && apps[1].error == 0, "errors %d %d", apps[0].error, apps[1].error);
}

static void replay(unsigned depth)
{
    start();
    path_len = depth;
    for (unsigned i = 0; i < depth; i++) {
        apply(path[i]);
        if (verbose)
            printf("-- %c%u\n", "DLKTR"[path[i].kind], path[i].index);
    }
}

static bool may(const unsigned *used, enum kind kind)
{
    return kind == DELIVER || used[kind] < budget[kind];
}

/* TIME_WAIT outlasts what is under way, and what the other host still says again. */
static bool may_be_due(unsigned h)
{
    const struct user *u = first_due(h), *other = first_due(!h);
    if (!u || u->conn.state != CL_TCP_TIME_WAIT)
        return u != NULL;
    return n_flying == 0 && (!other || cl_tcp_due_ns(&u->conn) < cl_tcp_due_ns(&other->conn));
}

static void explore(unsigned depth, const unsigned *used);

static void try_one(unsigned depth, const unsigned *used, enum kind kind, unsigned index)
{
    unsigned after[5];
    memcpy(after, used, sizeof after);
    after[kind]++;
    path[depth] = (struct choice){(uint8_t)kind, (uint8_t)index};
    replay(depth + 1);
    if (is_new(digest(after)))
        explore(depth + 1, after);
}

/* The world is in the state of the path. */
static void explore(unsigned depth, const unsigned *used)
{
    unsigned n = n_flying;
    bool due[2] = {may_be_due(0), may_be_due(1)};
    must_end();
    CHECK(depth < DEPTH, "it goes on for longer than is looked at");
    for (unsigned i = 0; i < n; i++)
        for (enum kind kind = DELIVER; kind <= KEEP; kind++)
            if (may(used, kind) && (kind != KEEP || n < UNDER_WAY))
                try_one(depth, used, kind, i);
    for (unsigned h = 0; h < 2; h++) {
        if (due[h] && may(used, TIMER))
            try_one(depth, used, TIMER, h);
        if (may(used, RESTART))
            try_one(depth, used, RESTART, h);
    }
}

int main(int argc, char **argv)
{
    static const unsigned none[5];
    CHECK(argc == 7);
    verbose = getenv("SHOW") != NULL;
    closer = (unsigned)atoi(argv[1]);
    both_open = atoi(argv[2]) != 0;
    for (unsigned i = 0; i < 4; i++)
        budget[LOSE + i] = (unsigned)atoi(argv[3 + i]);
    replay(0);
    explore(0, none);
    start();
    for (unsigned h = 0; h < 2; h++)
        restart(&hosts[h]);
    world_end();
    printf("%llu states\nok\n", (unsigned long long)n_states);
    return 0;
}

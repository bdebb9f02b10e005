/* Connections whose bytes come in pieces and whose peer reads in pieces are answered like one that is given all at
 * once.
 *
 * conn_pieces ROUNDS SEED. Each round is a script of random commands of one protocol, given to two stores: whole, to a
 * transport that takes everything, in turns without end; and cut anywhere, in turns of few commands, to one that takes
 * as much as chance says. Both answers are equal to
 * the byte, memory held is bounded meanwhile, and none is held in the end. A third store is given garbage: lines that
 * are too long end a connection by how they are cut, so it is not compared.
 * A fourth store's commands are executed elsewhere, later: each is measured, taken away, executed as a datagram would
 * be, and answered when chance says. It is answered like the first; a fifth of its kind is given garbage. */
#include "apps/kv/binary.h"
#include "apps/kv/stream/front.h"
#include "tests/support/c/check.h"
#include <string.h>

#define SCRIPT_MOST (3u << 20)
#define ANSWER_MOST (64u << 20)
#define ITEM_MOST 200000u
#define BUDGET (1u << 20)
#define TURN 3 /* commands */

static uint64_t state;
#define ENDS 5
static uint8_t script[SCRIPT_MOST], answers[ENDS][ANSWER_MOST], turn[SCRIPT_MOST], reply[2 * BUDGET];
static uint64_t script_len;

struct end {
    struct cl_kv *store;
    struct cl_kv_front *front;
    uint8_t *answer;
    uint64_t len;
    bool reads_all;
    uint64_t turn_len; /* of the command that is executed elsewhere */
    bool woken;
};
static struct end ends[ENDS]; /* given all at once, in pieces, garbage; executed elsewhere, the same of garbage */

static uint32_t below(uint32_t n)
{
    return (uint32_t)(next_random(&state) >> 20) % n;
}

static int64_t write_end(void *link, const void *data, int64_t len)
{
    struct end *e = link;
    uint64_t n = (uint64_t)len;
    if (!e->reads_all)
        n = below(3) ? below((uint32_t)len + 1) : 0;
    CHECK(e->len + n <= ANSWER_MOST);
    memcpy(e->answer + e->len, data, n);
    e->len += n;
    return (int64_t)n;
}

static void wake_end(void *link)
{
    ((struct end *)link)->woken = true;
}

static uint64_t executed(struct end *e, const uint8_t *text, uint64_t len, uint32_t protocol)
{
    struct cl_kv_session session = {.thread = cl_kv_thread(e->store, 0), .protocol = protocol};
    struct cl_kv_out out = {.data = reply, .room = sizeof(reply)};
    cl_kv_process_whole(&session, text, len, &out);
    return out.len;
}

static uint64_t take_away(void *arg, struct kv_conn *c, struct kv_side *side, const uint8_t *in, uint64_t len)
{
    struct end *e = arg;
    struct cl_kv_extent x;
    bool ends_here = cl_kv_measure(&c->session, in, len, &x) == CL_KV_QUIT;
    CHECK(x.from <= x.to && x.to <= len);
    if (ends_here) {
        kv_conn_say(c, side, reply, executed(e, in + x.from, len - x.from, c->session.protocol));
        c->over = true;
        return len;
    }
    e->turn_len = x.to - x.from;
    memcpy(turn, in + x.from, e->turn_len);
    c->waits = e->turn_len != 0;
    return x.to;
}

/* What waits is answered, or is told that there is room. */
static void settle(struct end *e, struct kv_conn *c)
{
    if (c->waits) {
        uint64_t len = executed(e, turn, e->turn_len, c->session.protocol);
        uint64_t at_once = below(3) ? 0 : len; /* as where nothing was there to be sent before */
        kv_conn_say(c, kv_front_side(e->front, 0), reply, at_once);
        kv_conn_answered(c, reply + at_once, len - at_once, false);
        CHECK(e->woken);
        e->woken = false;
    }
    (void)kv_conn_go_on(c, kv_front_side(e->front, 0));
}

static void make(struct end *e, unsigned i)
{
    static struct kv_elsewhere elsewhere[ENDS];
    struct cl_kv_config config = {.memory_bytes = 8 << 20, .item_max_bytes = ITEM_MOST, .seed = 1, .manual_clock = 1};
    struct cl_kv_front_config front = {
        .max_connections = 4, .budget_bytes = BUDGET, .requests_per_event = i == 0 ? UINT32_MAX : TURN};
    char err[256];
    CHECK_EQ(cl_kv_new(&config, &e->store, err), 0);
    CHECK_EQ(cl_kv_front_new(e->store, &front, &e->front), 0);
    if (i >= 3) {
        elsewhere[i] = (struct kv_elsewhere){e, take_away};
        e->front->elsewhere = &elsewhere[i];
    }
    e->answer = answers[i];
    e->reads_all = i == 0;
}

/* Scripts. */

static void put(const void *data, uint64_t len)
{
    if (script_len + len > SCRIPT_MOST)
        return;
    memcpy(script + script_len, data, len);
    script_len += len;
}

static uint32_t value_len(void)
{
    static const uint32_t most[] = {10, 100, 2000, 70000, 150000};
    return below(most[below(5)]);
}

static void put_value(uint32_t len)
{
    for (uint32_t i = 0; i < len; i++) {
        uint8_t c = (uint8_t)next_random(&state);
        put(&c, 1);
    }
}

static void text_command(void)
{
    char line[600];
    uint32_t len = value_len(), key = below(6);
    int n = 0;
    switch (below(9)) {
    case 0:
    case 1:
        n = snprintf(line, sizeof(line), "set k%u %u 0 %u%s\r\n", key, below(9), len, below(3) ? "" : " noreply");
        break;
    case 2:
        n = snprintf(line, sizeof(line), "ms k%u %u T0 c k\r\n", key, len);
        break;
    case 3:
        len = ITEM_MOST + below(1000);
        n = snprintf(line, sizeof(line), "add k%u 0 0 %u\r\n", key, len);
        break;
    default:
        n = below(2)   ? snprintf(line, sizeof(line), "get k0 k1 k2 none k%u\r\n", key)
            : below(2) ? snprintf(line, sizeof(line), "mg k%u v s f c k\r\nmn\r\n", key)
            : below(2) ? snprintf(line, sizeof(line), "incr k%u 3\r\nnonsense\r\nstats nothing\r\n", key)
                       : snprintf(line, sizeof(line), "delete k%u\r\nlru_crawler metadump all\r\n", key);
        put(line, (uint64_t)n);
        return;
    }
    put(line, (uint64_t)n);
    put_value(len);
    put("\r\n", 2);
}

static void binary_request(void)
{
    static const uint8_t opcodes[] = {0x00, 0x0c, 0x01, 0x11, 0x0e, 0x04, 0x0a, 0x05, 0x09, 0x10};
    uint8_t h[KV_BINARY_HEADER] = {KV_BINARY_REQUEST, opcodes[below(sizeof(opcodes))]}, extras[20] = {0};
    uint32_t extras_len = 0, value = 0, key_len = 2;
    char key[] = {'k', (char)('0' + below(6))};
    if (h[1] == 0x01 || h[1] == 0x11 || h[1] == 0x0e)
        value = below(20) ? value_len() : ITEM_MOST;
    if (h[1] == 0x01 || h[1] == 0x11)
        extras_len = 8;
    if (h[1] == 0x05)
        extras_len = 20;
    if (h[1] == 0x0a || h[1] == 0x10)
        key_len = 0;
    if (h[1] == 0x10) /* statistics differ: those that there are none of do not */
        key_len = 2;
    h[3] = (uint8_t)key_len;
    h[4] = (uint8_t)extras_len;
    kv_put_be(h + 8, extras_len + key_len + value, 4);
    put(h, sizeof(h));
    put(extras, extras_len);
    put(key, key_len);
    put_value(value);
}

static void make_script(void)
{
    bool binary = below(2);
    script_len = 0;
    for (uint32_t n = 1 + below(20); n && script_len < SCRIPT_MOST / 2; n--)
        (binary ? binary_request : text_command)();
}

static void spoil_script(void)
{
    for (uint32_t n = 1 + below(4); n; n--)
        script[below((uint32_t)script_len)] = (uint8_t)next_random(&state);
}

/* Giving them. */

static struct kv_conn *open_conn(struct end *e)
{
    struct kv_conn *c = kv_front_open(e->front, KV_TCP);
    CHECK(c);
    c->write = write_end;
    c->wake = wake_end;
    c->link = e;
    e->len = 0;
    return c;
}

/* Scratch of 64 KiB and spill of an item: what a turn may hold beyond what it took. */
static void check_held(const struct end *e)
{
    struct cl_kv_front_counts n;
    cl_kv_front_counts(e->front, &n);
    CHECK(n.held_bytes <= BUDGET);
}

static void give_all(struct end *e)
{
    struct kv_side *side = kv_front_side(e->front, 0);
    struct kv_conn *c = open_conn(e);
    CHECK_EQ(kv_conn_take(c, side, script, (int64_t)script_len), script_len);
    kv_front_close(c);
}

static void give_pieces(struct end *e)
{
    struct kv_side *side = kv_front_side(e->front, 0);
    struct kv_conn *c = open_conn(e);
    uint32_t most = 1 + below(below(2) ? 50 : 5000);
    uint64_t at = 0;
    while (at < script_len) {
        uint64_t n = 1 + below(most);
        n = cl_min(n, script_len - at);
        uint8_t *tight = malloc(n); /* so that a sanitizer sees each read behind it */
        memcpy(tight, script + at, n);
        if (below(2)) /* as those of a burst, whose bytes may be of any connection */
            kv_ahead_note(&side->ahead, e->store, tight, (uint32_t)n);
        CHECK(side->ahead.n <= KV_AHEAD_MOST);
        uint64_t took = (uint64_t)kv_conn_take(c, side, tight, (int64_t)n);
        CHECK(!c->yields || took < n);
        CHECK(c->session.done <= TURN);
        at += took;
        free(tight);
        check_held(e);
        while ((c->out.len || c->waits) && below(4))
            settle(e, c);
    }
    bool over = kv_conn_end(c);
    while (!over && !kv_conn_done(c))
        settle(e, c);
    kv_front_close(c);
}

static void check_end(struct end *e)
{
    struct cl_kv_front_counts n;
    char err[256];
    cl_kv_front_counts(e->front, &n);
    CHECK_EQ(n.held_bytes, 0);
    CHECK_EQ(n.connections, 0);
    CHECK_EQ(n.yields != 0, !e->reads_all && !e->front->elsewhere);
    CHECK(cl_kv_check(e->store, err) == 0, "%s", err);
}

int main(int argc, char **argv)
{
    CHECK_EQ(argc, 3);
    uint64_t rounds = strtoull(argv[1], NULL, 10), bytes = 0;
    state = strtoull(argv[2], NULL, 10) * 2654435761u + 1;
    for (unsigned i = 0; i < ENDS; i++)
        make(&ends[i], i);
    for (uint64_t i = 0; i < rounds; i++) {
        make_script();
        give_all(&ends[0]);
        give_pieces(&ends[1]);
        CHECK_EQ(ends[1].len, ends[0].len);
        CHECK(memcmp(ends[0].answer, ends[1].answer, ends[0].len) == 0);
        give_pieces(&ends[3]);
        CHECK_EQ(ends[3].len, ends[0].len);
        CHECK(memcmp(ends[0].answer, ends[3].answer, ends[0].len) == 0);
        bytes += ends[0].len;
        spoil_script();
        give_pieces(&ends[2]);
        give_pieces(&ends[4]);
    }
    for (unsigned i = 0; i < ENDS; i++) {
        check_end(&ends[i]);
        cl_kv_front_delete(ends[i].front);
        cl_kv_delete(ends[i].store);
    }
    printf("%llu rounds, %llu bytes\n", (unsigned long long)rounds, (unsigned long long)bytes);
    return 0;
}

/* The store as a state machine: one that did every command, was asked things in between, and one that was now and then
 * made anew from its image, must answer every command alike and be the same by cl_kv_digest. The store is full most of
 * the time.
 *
 * Usage: kv_replicas COMMANDS SEED mixed|tiny   (tiny: many small items, buckets that run over) */
#include "apps/kv/image.h"
#include "apps/raft/node/kv_machine.h"

#include "tests/support/c/check.h"

#include <string.h>

#define MEMORY (1u << 20)
#define ROOM 16384u
#define PIECE 100000u
#define LARGEST 7000u

struct replica {
    struct raft_kv kv;
    struct cl_raft_machine machine;
};

static uint64_t state;
static bool tiny;
static uint64_t clock_ms = 1000000;
static uint8_t text[2 * 8192], reply[2][ROOM], image[2 * MEMORY];

static uint64_t below(uint64_t n)
{
    return next_random(&state) % n;
}

static void make(struct replica *r)
{
    char err[256];
    CHECK(!raft_kv_new(&r->kv, MEMORY, &r->machine, err), "%s", err);
}

/* Meta commands: marks, wins and times are of the log alone, and what is not is refused. */
static uint32_t draw_meta(char *at, unsigned key)
{
    static const char *const commands[] = {
        "mg k%u v c f t l N%d R30\r\n",
        "mg k%u t v T%d\r\n",
        "mg k%u k c\r\nmg k%u h\r\n",
        "md k%u I T%d\r\n",
        "md k%u C5 k\r\n",
        "ma k%u N%d J7 v t c\r\n",
        "ma k%u MD D3 T%d\r\n",
        "ms k%u 2 T%d MA c\r\n12\r\n",
        "ms k%u 2 T%d I C9 c\r\n34\r\n",
        "me k%u\r\nmn\r\n",
    };
    unsigned which = (unsigned)below(sizeof(commands) / sizeof(commands[0]));
    int second = which == 2 ? (int)key : (int)below(50) - 1;
    return (uint32_t)sprintf(at, commands[which], key, second);
}

/* A command's text: mostly sets of sizes that differ, so that few are replaced in place. */
static uint32_t draw_command(uint8_t *out)
{
    static const char *const stores[] = {"set", "set", "set", "add", "replace", "append", "prepend"};
    unsigned key = (unsigned)below(tiny ? 30000 : 600);
    unsigned what = (unsigned)below(1000);
    char *at = (char *)out;
    if (what < 2 && (!tiny || !below(500)))
        return (uint32_t)sprintf(at, "flush_all %s\r\n", below(2) ? "3" : "");
    if (what < (tiny ? 10 : 60))
        return (uint32_t)sprintf(at, "delete k%u\r\n", key);
    if (what < (tiny ? 10 : 90))
        return (uint32_t)sprintf(at, "touch k%u %d\r\n", key, (int)below(60) - 3);
    if (what < 110)
        return (uint32_t)sprintf(at, "get k%u\r\nset k%u 0 0 1\r\n9\r\n", key, key);
    if (what < 140)
        return (uint32_t)sprintf(at, "incr k%u 999\r\n", key);
    if (what < 145)
        return (uint32_t)sprintf(at, "stats\r\nset k%u 0 0 2\r\n10\r\n", key);
    if (what < 150)
        return (uint32_t)sprintf(at, "gat 20 k%u\r\n", key);
    if (what < (tiny ? 152 : 200))
        return draw_meta(at, key);
    unsigned bytes = tiny ? 1 : (unsigned)below(below(4) ? 1500 : LARGEST);
    int exptime = below(tiny ? 500 : 12) ? 0 : (int)below(40) - 1;
    int n = sprintf(at, "%s k%u 1 %d %u\r\n", stores[below(sizeof(stores) / sizeof(stores[0]))], key, exptime, bytes);
    memset(out + n, 'a' + (int)(key % 26), bytes);
    memcpy(out + n + bytes, "\r\n", 2);
    return (uint32_t)n + bytes + 2;
}

/* What the leader alone does. Queries that would change something must not. */
static void ask(struct replica *r)
{
    static const char *const others[] = {"stats\r\n", "set k1 0 0 1\r\nx\r\n", "version\r\nflush_all\r\n",
                                         "gat 5 k1\r\n", "get k1\r\ndelete k1\r\n"};
    char query[64];
    unsigned key = (unsigned)below(tiny ? 30000 : 600);
    sprintf(query, "gets k%u k%u\r\n", key, key + 1);
    const char *it = below(8) ? query : others[below(sizeof(others) / sizeof(others[0]))];
    r->machine.query(r->machine.arg, clock_ms, (const uint8_t *)it, (uint32_t)strlen(it), reply[0], ROOM);
}

/* Make `to` what `from` is; it keeps its memory with what was in it, or is new. */
static void install(const struct replica *from, struct replica *to)
{
    uint64_t bytes = 0;
    int64_t n;
    while ((n = from->machine.save(from->machine.arg, bytes, image + bytes, 1 + below(PIECE))) > 0)
        bytes += (uint64_t)n;
    CHECK_EQ(n, 0);
    if (below(2)) {
        raft_kv_delete(&to->kv);
        make(to);
    }
    for (uint64_t at = 0; at < bytes; at += (uint64_t)n) {
        uint64_t piece = CL_KV_IMAGE_HEADER + below(PIECE);
        n = (int64_t)cl_min(bytes - at, piece);
        CHECK(!to->machine.load(to->machine.arg, at, image + at, (uint64_t)n, bytes), "(at %lu)", at);
    }
}

static void compare(const struct replica *a, const struct replica *b, uint64_t done)
{
    uint64_t left, right;
    char err[256];
    CHECK(!cl_kv_digest(a->kv.store, &left) && !cl_kv_digest(b->kv.store, &right));
    CHECK(left == right, "(after %lu commands)", done);
    CHECK(!cl_kv_check(b->kv.store, err), "(after %lu commands: %s)", done, err);
}

/* Both take new keys until there is no more room. Returns how many commands that took. */
static uint64_t fill(struct replica *a, struct replica *b)
{
    for (uint64_t i = 0;; i++) {
        int bytes = tiny ? 1 : 1000;
        int n = sprintf((char *)text, "set k%lu 0 0 %d\r\n", i, bytes);
        memset(text + n, 'f', (size_t)bytes);
        memcpy(text + n + bytes, "\r\n", 2);
        uint32_t all = (uint32_t)(n + bytes + 2);
        a->machine.apply(a->machine.arg, i, clock_ms, text, all, reply[0], ROOM);
        b->machine.apply(b->machine.arg, i, clock_ms, text, all, reply[1], ROOM);
        CHECK(!memcmp(reply[0], reply[1], 6));
        if (memcmp(reply[0], "STORED", 6))
            return i;
    }
}

/* What has expired and nobody asks for goes with the entries that come after it. */
static void expire(void)
{
    struct replica r;
    struct cl_kv_usage usage;
    make(&r);
    uint64_t index = 1, at = clock_ms;
    for (unsigned key = 0; key < 500; key++, index++) {
        uint32_t n = (uint32_t)sprintf((char *)text, "set short%u 0 2 1\r\nx\r\n", key);
        CHECK(r.machine.apply(r.machine.arg, index, at, text, n, reply[0], ROOM) > 0);
    }
    cl_kv_usage(r.kv.store, &usage);
    CHECK_EQ(usage.items, 500);
    at += 10000;
    for (unsigned i = 0; i < 500; i++, index++) {
        uint32_t n = (uint32_t)sprintf((char *)text, "get other\r\nset other 0 0 1\r\ny\r\n");
        CHECK(r.machine.apply(r.machine.arg, index, at, text, n, reply[0], ROOM) > 0);
    }
    cl_kv_usage(r.kv.store, &usage);
    CHECK_EQ(usage.items, 1);
    raft_kv_delete(&r.kv);
}

int main(int argc, char **argv)
{
    CHECK(argc == 4);
    uint64_t commands = strtoull(argv[1], NULL, 10), refused = 0, stored_when_full = 0, images = 0;
    state = strtoull(argv[2], NULL, 10) * 2 + 1;
    tiny = !strcmp(argv[3], "tiny");
    expire();
    struct replica a, b;
    make(&a);
    make(&b);
    uint64_t before = fill(&a, &b);
    for (uint64_t i = before + 1; i <= before + commands; i++) {
        uint32_t bytes = draw_command(text);
        clock_ms += below(100) ? 0 : below(2000);
        if (!below(500)) /* somebody sets it: seconds that were there come again */
            clock_ms -= cl_min(clock_ms - 1000000, below(5000));
        int64_t n = a.machine.apply(a.machine.arg, i, clock_ms, text, bytes, reply[0], ROOM);
        int64_t m = b.machine.apply(b.machine.arg, i, clock_ms, text, bytes, reply[1], ROOM);
        CHECK(n > 0 && n == m && !memcmp(reply[0], reply[1], (size_t)n), "(command %lu: %.*s, not %.*s)", i, (int)m,
              (const char *)reply[1], (int)n, (const char *)reply[0]);
        bool no_room = strstr((const char *)reply[0], "out of memory") != NULL;
        refused += no_room;
        stored_when_full += refused && !memcmp(reply[0], "STORED", 6);
        memset(reply[0], 0, 64);
        for (uint64_t k = below(4); k; k--)
            ask(&a);
        if (!below(500)) {
            install(&a, &b);
            images++;
        }
        if (!below(200))
            compare(&a, &b, i);
    }
    compare(&a, &b, before + commands);
    struct cl_kv_usage usage;
    cl_kv_usage(a.kv.store, &usage);
    CHECK(refused && stored_when_full && images,
          "(%lu refused, %lu stored after that, %lu images, %lu items, %lu live bytes of %lu)", refused,
          stored_when_full, images, usage.items, usage.live_bytes, usage.log_bytes);
    CHECK(tiny || usage.moved > 100, "(%lu moved)", usage.moved);
    CHECK(!tiny || usage.overflow_buckets);
    printf("%lu commands, %lu refused, %lu images, %lu moved\n", commands, refused, images, usage.moved);
    raft_kv_delete(&a.kv);
    raft_kv_delete(&b.kv);
    return 0;
}

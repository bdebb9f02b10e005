/* Random commands, whole and damaged, from several clients to one engine: replies are well-formed, memory stays bounded
 * and is given back.
 *
 * argv: rounds, seed. Prints how many commands there were. */
#include "apps/resp/command.h"
#include "apps/resp/engine.h"
#include "apps/resp/table.h"
#include "tests/support/c/check.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define CLIENTS 5
#define MEMORY (3u << 20)
#define ROOM (1 << 16)
#define DEPTH 12

static struct cl_resp *engine;
static struct cl_resp_client *clients[CLIENTS];
static uint64_t state;

static uint64_t draw(uint64_t n)
{
    return next_random(&state) % n;
}

static void connect(unsigned i)
{
    clients[i] = cl_resp_connect(engine, "10.0.0.1:1", "10.0.0.2:6379");
    CHECK(clients[i] != NULL);
}

/* The end of the reply at p; NULL: it is none. */
static const uint8_t *reply(const uint8_t *p, const uint8_t *end, unsigned depth)
{
    const uint8_t *line = memchr(p, '\n', (size_t)(end - p));
    if (!line || line == p || line[-1] != '\r' || depth > DEPTH)
        return NULL;
    long n = strtol((const char *)p + 1, NULL, 10);
    const uint8_t *at = line + 1;
    if (strchr("+-:,#_(", *p))
        return at;
    if (strchr("$=", *p))
        return n < 0 ? at : end - at >= n + 2 && memcmp(at + n, "\r\n", 2) == 0 ? at + n + 2 : NULL;
    if (!strchr("*~>%", *p))
        return NULL;
    for (long i = 0; at && i < (*p == '%' ? 2 * n : n); i++)
        at = at < end ? reply(at, end, depth + 1) : NULL;
    return at;
}

static uint8_t *taken;
static size_t taken_room;

/* All replies of a client, which have to be whole. */
static void take(unsigned i)
{
    size_t size = 0;
    uint64_t len;
    for (const uint8_t *at; (at = cl_resp_out(clients[i], &len));) {
        if (size + len + 1 > taken_room) {
            taken_room = 2 * (size + len + 1);
            taken = realloc(taken, taken_room);
            CHECK(taken != NULL);
        }
        memcpy(taken + size, at, len);
        size += len;
        cl_resp_taken(clients[i], len);
    }
    if (!size)
        return;
    taken[size] = 0;
    for (const uint8_t *p = taken; p < taken + size;) {
        const uint8_t *next = reply(p, taken + size, 0);
        CHECK(next != NULL, "no reply: %.200s", (const char *)p);
        p = next;
    }
}

/* Give bytes in a block of exactly their size, so that a sanitizer sees each read behind them. */
static void feed(unsigned i, const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size ? size : 1);
    CHECK(copy != NULL);
    memcpy(copy, data, size);
    (void)cl_resp_feed(clients[i], copy, size); /* what a blocked one does not take is lost: it is all the same here */
    free(copy);
}

static const char *const words[] = {
    "nx",      "xx",         "gt",           "lt",     "ch",     "incr",       "ex",      "px",       "exat",
    "keepttl", "get",        "limit",        "count",  "match",  "type",       "store",   "by",       "asc",
    "alpha",   "left",       "right",        "min",    "max",    "rank",       "maxlen",  "minid",    "~",
    "=",       "*",          "streams",      "block",  "$",      "withscores", "rev",     "bylex",    "byscore",
    "weights", "aggregate",  "sum",          "idx",    "len",    "bit",        "byte",    "overflow", "sat",
    "fail",    "u8",         "i64",          "#1",     "before", "after",      "replace", "db",       "on",
    "off",     "skip",       "addr",         "id",     "string", "and",        "not",     "-",        "+",
    "[a",      "(b",         "(1",           "inf",    "-inf",   "1-1",        "5-*",     "k*",       "h*->f",
    "list",    "withvalues", "withmatchlen", "persist"};

static size_t word(uint8_t *out)
{
    uint64_t kind = draw(8);
    if (kind < 3)
        return (size_t)sprintf((char *)out, "k%llu", (unsigned long long)draw(8));
    if (kind < 5)
        return (size_t)sprintf((char *)out, "%lld", (long long)draw(12) - 2);
    if (kind == 5 && draw(10) == 0)
        return (size_t)sprintf((char *)out, "%lld", (long long)(next_random(&state) >> draw(64)));
    if (kind < 7)
        return (size_t)sprintf((char *)out, "%s", words[draw(sizeof words / sizeof words[0])]);
    size_t n = draw(20) ? draw(40) : draw(8000);
    for (size_t i = 0; i < n; i++)
        out[i] = (uint8_t)next_random(&state);
    return n;
}

static size_t bulk(uint8_t *out, const uint8_t *p, size_t n)
{
    size_t head = (size_t)sprintf((char *)out, "$%zu\r\n", n);
    memcpy(out + head, p, n);
    memcpy(out + head + n, "\r\n", 2);
    return head + n + 2;
}

static bool left_out(const char *name)
{
    return !strcmp(name, "config") || !strcmp(name, "monitor") || !strcmp(name, "auth") || !strcmp(name, "command");
}

/* A command of the table, with so many arguments as it may have and some more. */
static size_t command(uint8_t *out, unsigned n_commands)
{
    static uint8_t text[16384];
    const struct cl_rcmd *cmd, *sub = NULL;
    do
        cmd = &cl_rtable[draw(n_commands)];
    while (left_out(cmd->name));
    if (cmd->subs) {
        unsigned n = 0;
        while (cmd->subs[n].name)
            n++;
        do
            sub = &cmd->subs[draw(n)];
        while (!strcmp(sub->name, "pause")); /* for years, perhaps */
    }
    int32_t arity = sub ? sub->arity : cmd->arity, argc = arity < 0 ? -arity + (int32_t)draw(4) : arity;
    size_t size = (size_t)sprintf((char *)out, "*%d\r\n", argc);
    size += bulk(out + size, (const uint8_t *)cmd->name, strlen(cmd->name));
    if (sub)
        size += bulk(out + size, (const uint8_t *)sub->name, strlen(sub->name));
    for (int32_t i = sub ? 2 : 1; i < argc; i++) {
        size_t n = word(text);
        size += bulk(out + size, text, n);
    }
    return size;
}

static void one_round(unsigned n_commands)
{
    static uint8_t data[ROOM * 2];
    unsigned i = (unsigned)draw(CLIENTS);
    size_t size = command(data, n_commands), cut = draw(4) ? size : draw(size);
    if (draw(50) == 0)
        data[draw(size)] ^= (uint8_t)(1 << draw(8));
    feed(i, data, cut);
    feed(i, data + cut, size - cut);
    for (unsigned k = 0; k < CLIENTS; k++) {
        take(k);
        if (cl_resp_ends(clients[k]) || draw(500) == 0) {
            cl_resp_disconnect(clients[k]);
            connect(k);
        }
    }
}

static void look(void)
{
    char err[256];
    uint64_t limit, used = cl_resp_used(engine, &limit);
    cl_resp_move(engine, (int64_t)draw(3000));
    (void)cl_resp_tick(engine);
    CHECK(cl_resp_check(engine, err) == 0, "%s", err);
    CHECK(used <= 2 * limit + (1 << 20), "%llu bytes are in use", (unsigned long long)used);
}

static uint64_t rest(void)
{
    uint64_t limit;
    struct cl_resp_client *c = cl_resp_connect(engine, "10.0.0.3:1", "10.0.0.2:6379");
    CHECK(c != NULL);
    (void)cl_resp_feed(c, (const uint8_t *)"FLUSHALL\r\n", 10);
    cl_resp_disconnect(c);
    return cl_resp_used(engine, &limit);
}

int main(int argc, char **argv)
{
    static const char *const policies[] = {"noeviction", "allkeys-lru", "allkeys-lfu", "volatile-ttl",
                                           "allkeys-random"};
    CHECK(argc == 3);
    uint64_t rounds = strtoull(argv[1], NULL, 0);
    state = strtoull(argv[2], NULL, 0) * 2 + 1;
    struct cl_resp_settings settings = {.memory_bytes = MEMORY, .seed = 7, .manual_ms = 1700000000000};
    settings.policy = policies[draw(sizeof policies / sizeof policies[0])];
    char err[256];
    unsigned n_commands = 0;
    CHECK(cl_resp_new(&settings, &engine, err) == 0, "%s", err);
    while (cl_rtable[n_commands].name)
        n_commands++;
    uint64_t before = rest();
    for (unsigned i = 0; i < CLIENTS; i++)
        connect(i);
    for (uint64_t n = 0; n < rounds; n++) {
        one_round(n_commands);
        if (n % 256 == 0)
            look();
    }
    for (unsigned i = 0; i < CLIENTS; i++)
        cl_resp_disconnect(clients[i]);
    cl_resp_move(engine, 1000000); /* whoever paused it does so no more */
    (void)cl_resp_tick(engine);
    uint64_t after = rest();
    CHECK(after <= before + 4096, "%llu bytes were not given back", (unsigned long long)(after - before));
    cl_resp_delete(engine);
    free(taken);
    printf("%llu commands\n", (unsigned long long)rounds);
    return 0;
}

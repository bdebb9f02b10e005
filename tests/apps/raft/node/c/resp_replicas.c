/* Typed values as a state machine: an engine executes drawn commands; what it says goes, in entries of drawn lengths,
 * to a replica that applies all of them, and to one that is now and then made anew from the other's image, also between
 * the pieces of a unit. All three must answer alike. Entries of another epoch, out of turn, or twice must change
 * nothing.
 *
 * Usage: resp_replicas COMMANDS SEED */
#include "apps/raft/core/bytes.h"
#include "apps/raft/node/resp_machine.h"

#include "tests/support/c/check.h"

#include <errno.h>
#include <string.h>

#define MEMORY (8u << 20)
#define KEYS 12u
#define ENTRY 4096u
#define IMAGE (32u << 20)

struct replica {
    struct raft_resp m;
    struct cl_raft_machine machine;
};

static uint64_t state, epoch = 1, number = 1, index_now;
static struct replica all, anew;
static uint8_t entry[RAFT_RESP_HEADER + ENTRY], image[IMAGE];

static uint64_t below(uint64_t n)
{
    return next_random(&state) % n;
}

static void make(struct replica *r)
{
    char err[256];
    CHECK(!raft_resp_new(&r->m, &(struct cl_resp_settings){.memory_bytes = MEMORY}, &r->machine, err), "%s", err);
}

static struct cl_resp *make_engine(void)
{
    struct cl_resp_settings settings = {.memory_bytes = MEMORY, .seed = 7, .manual_ms = 1000000};
    struct cl_resp *r;
    char err[256];
    CHECK(!cl_resp_new(&settings, &r, err), "%s", err);
    cl_resp_propagate(r);
    return r;
}

/* Make `anew` what `all` is, in pieces of drawn lengths. */
static void install(void)
{
    uint64_t bytes = 0;
    int64_t n;
    while ((n = all.machine.save(all.machine.arg, bytes, image + bytes, 1 + below(100000))) > 0)
        bytes += (uint64_t)n;
    CHECK_EQ(n, 0);
    if (below(2)) {
        raft_resp_delete(&anew.m);
        make(&anew);
    }
    for (uint64_t at = 0; at < bytes; at += (uint64_t)n) {
        uint64_t piece = 1 + below(100000);
        n = (int64_t)cl_min(bytes - at, piece);
        CHECK(!anew.machine.load(anew.machine.arg, at, image + at, (uint64_t)n, bytes), "(at %lu) %s", at, anew.m.why);
    }
}

/* What both say to an entry. */
static int64_t apply(uint32_t bytes)
{
    int64_t a = all.machine.apply(all.machine.arg, ++index_now, 1, entry, bytes, NULL, 0);
    int64_t b = anew.machine.apply(anew.machine.arg, index_now, 1, entry, bytes, NULL, 0);
    CHECK_EQ(a, b);
    return a;
}

/* Entries that are not to be done. */
static void intrude(void)
{
    static const char evil[] = "*1\r\n$8\r\nFLUSHALL\r\n";
    uint64_t of = below(2) ? epoch : epoch - 1, as = of == epoch ? number + 1 + below(3) : number;
    if (of == epoch && below(2) && number > 1)
        as = number - 1;
    raft_resp_header(entry, below(2) ? RAFT_RESP_UNITS : RAFT_RESP_PIECE, of, as);
    memcpy(entry + RAFT_RESP_HEADER, evil, sizeof evil - 1);
    CHECK_EQ(apply(RAFT_RESP_HEADER + sizeof evil - 1), CL_RAFT_REFUSES);
}

static void send(struct cl_resp *r)
{
    uint64_t left, unit;
    const uint8_t *at = cl_resp_units(r, &left, &unit);
    while (left) {
        uint64_t piece = 1 + below(below(4) ? ENTRY : 50);
        uint32_t n = (uint32_t)cl_min(left, piece);
        if (!below(10))
            intrude();
        if (!below(200))
            install();
        raft_resp_header(entry, n == left ? RAFT_RESP_UNITS : RAFT_RESP_PIECE, epoch, number++);
        memcpy(entry + RAFT_RESP_HEADER, at, n);
        CHECK_EQ(apply(RAFT_RESP_HEADER + n), 0);
        at += n;
        left -= n;
    }
}

static void open_epoch(void)
{
    uint8_t address[RAFT_RESP_ADDRESS] = {1, 2, 3, 4, 5, 0, 0, 0}, reply[8];
    raft_resp_header(entry, RAFT_RESP_OPEN, ++epoch, 0);
    memcpy(entry + RAFT_RESP_HEADER, address, sizeof address);
    CHECK_EQ(apply(RAFT_RESP_HEADER + sizeof address), 0);
    number = 1;
    CHECK_EQ(all.machine.query(all.machine.arg, 1, NULL, 0, reply, sizeof reply), 8);
    CHECK_EQ(get64(reply), epoch);
}

/* The executor dies after half of a unit; the next one begins with what was applied. */
static struct cl_resp *succeed(struct cl_resp *dead)
{
    char err[256];
    uint64_t len;
    raft_resp_header(entry, RAFT_RESP_PIECE, epoch, number);
    memcpy(entry + RAFT_RESP_HEADER, "*1\r\n", 4);
    CHECK_EQ(apply(RAFT_RESP_HEADER + 4), 0);
    if (below(2))
        install();
    cl_resp_delete(dead);
    open_epoch();
    struct cl_resp *r = make_engine();
    raft_resp_image_begin(&all.m);
    for (const uint8_t *units; (units = raft_resp_image_next(&all.m, &len));)
        CHECK(!cl_resp_apply(r, units, len, err), "%s", err);
    return r;
}

static uint32_t draw_command(char *out, uint32_t room)
{
    static const char *const forms[] = {"SET s%u %lu",
                                        "APPEND s%u x%lu",
                                        "INCRBY n%u %lu",
                                        "RPUSH l%u a b %lu",
                                        "LPUSH l%u %lu",
                                        "LPOP l%u %lu",
                                        "SADD e%u a b %lu",
                                        "SPOP e%u %lu",
                                        "SREM e%u %lu",
                                        "ZADD z%u %lu m",
                                        "ZADD z%u 5 n%lu",
                                        "ZPOPMIN z%u %lu",
                                        "HSET h%u f %lu",
                                        "HSET h%u g%lu 1",
                                        "HDEL h%u g%lu",
                                        "XADD x%u * f %lu",
                                        "XTRIM x%u MAXLEN %lu",
                                        "PEXPIRE s%u %lu",
                                        "PERSIST s%u",
                                        "DEL l%u",
                                        "DEL e%u",
                                        "RENAME s%u s%lu",
                                        "SETRANGE s%u %lu0 end",
                                        "SORT e%u ALPHA STORE l%lu",
                                        "EXPIRE h%u 1000",
                                        "SDIFFSTORE e%u e%lu e3",
                                        "SETRANGE s%u 9%lu00 long"};
    unsigned key = (unsigned)below(KEYS);
    int n = snprintf(out, room, forms[below(sizeof forms / sizeof *forms)], key, below(KEYS));
    return (uint32_t)snprintf(out + n, room - (uint32_t)n, "\r\n") + (uint32_t)n;
}

static void run(struct cl_resp *r, struct cl_resp_client *c)
{
    char text[256];
    uint32_t n = 0;
    for (uint64_t i = 1 + below(4); i; i--) /* some together: their units go as one */
        n += draw_command(text + n, sizeof text - n);
    CHECK_EQ(cl_resp_feed(c, (const uint8_t *)text, n), n);
    uint64_t len;
    while (cl_resp_out(c, &len))
        cl_resp_taken(c, len);
    if (!below(20)) {
        cl_resp_move(r, 300);
        cl_resp_tick(r);
    }
}

/* What an engine says of all keys, in an order that says nothing of its tables. */
static uint64_t tell(struct cl_resp *r, uint8_t *out)
{
    static const char *const questions[] = {
        "GET s%u",
        "PEXPIRETIME s%u",
        "GET n%u",
        "LRANGE l%u 0 -1",
        "SORT e%u ALPHA",
        "SCARD e%u",
        "HLEN h%u",
        "HMGET h%u f g0 g1 g2 g3 g4 g5 g6 g7 g8",
        "ZRANGE z%u 0 -1 WITHSCORES",
        "XRANGE x%u - +",
        "EXPIRETIME h%u",
        "XLEN x%u",
    };
    struct cl_resp_client *c = cl_resp_connect(r, "a", "b");
    uint64_t bytes = 0, len;
    char text[128];
    for (unsigned key = 0; key < KEYS; key++)
        for (unsigned q = 0; q < sizeof questions / sizeof *questions; q++) {
            int n = snprintf(text, sizeof text, questions[q], key);
            n += snprintf(text + n, sizeof text - (unsigned)n, "\r\n");
            CHECK_EQ(cl_resp_feed(c, (uint8_t *)text, (uint64_t)n), (uint64_t)n);
            for (const uint8_t *at; (at = cl_resp_out(c, &len)); bytes += len, cl_resp_taken(c, len))
                memcpy(out + bytes, at, len);
        }
    cl_resp_disconnect(c);
    return bytes;
}

static void compare(struct cl_resp *r)
{
    static uint8_t told[3][8u << 20];
    uint64_t n = tell(r, told[0]);
    struct cl_resp *replicas[] = {all.m.r, anew.m.r};
    for (unsigned i = 0; i < 2; i++) {
        /* Replicas expire nothing by themselves: asked in a copy, whose clock is that of who executes. */
        struct cl_resp *copy = make_engine();
        char err[256];
        uint64_t len;
        raft_resp_image_begin(i ? &anew.m : &all.m);
        for (const uint8_t *units; (units = raft_resp_image_next(i ? &anew.m : &all.m, &len));)
            CHECK(!cl_resp_apply(copy, units, len, err), "%s", err);
        CHECK(!cl_resp_check(replicas[i], err), "%s", err);
        CHECK_EQ(tell(copy, told[i + 1]), n);
        CHECK(!memcmp(told[0], told[i + 1], n), "a replica answers something else");
        cl_resp_delete(copy);
    }
}

static void refuses_what_is_no_entry(void)
{
    uint8_t reply[128];
    uint32_t good = RAFT_RESP_HEADER + 4;
    raft_resp_header(entry, RAFT_RESP_UNITS, epoch, number);
    CHECK_EQ(all.machine.check(all.machine.arg, entry, good, reply, sizeof reply), 0);
    CHECK(all.machine.check(all.machine.arg, entry, RAFT_RESP_HEADER, reply, sizeof reply) & CL_RAFT_REFUSES, "empty");
    CHECK(all.machine.check(all.machine.arg, entry, 3, reply, sizeof reply) & CL_RAFT_REFUSES, "short");
    raft_resp_header(entry, RAFT_RESP_OPEN, epoch, number);
    CHECK(all.machine.check(all.machine.arg, entry, good, reply, sizeof reply) & CL_RAFT_REFUSES, "no address");
    raft_resp_header(entry, (enum raft_resp_kind)4, epoch, number);
    CHECK(all.machine.check(all.machine.arg, entry, good, reply, sizeof reply) & CL_RAFT_REFUSES, "no kind");
    CHECK_EQ(anew.machine.load(anew.machine.arg, 0, entry, 4, 4), -EINVAL);
    CHECK_EQ(anew.machine.load(anew.machine.arg, 0, entry, 100 < sizeof entry ? 100 : 0, 100), -EINVAL);
    install();
}

int main(int argc, char **argv)
{
    CHECK_EQ(argc, 3);
    uint64_t commands = strtoull(argv[1], NULL, 10);
    state = strtoull(argv[2], NULL, 10) + 1;
    make(&all);
    make(&anew);
    open_epoch();
    refuses_what_is_no_entry();
    struct cl_resp *r = make_engine();
    for (uint64_t done = 0; done < commands;) {
        struct cl_resp_client *c = cl_resp_connect(r, "1.2.3.4:5", "1.2.3.4:6");
        for (uint64_t i = 200 + below(800); i; i--, done++) {
            run(r, c);
            send(r);
        }
        cl_resp_disconnect(c);
        install();
        compare(r);
        r = succeed(r);
        compare(r);
    }
    cl_resp_delete(r);
    raft_resp_delete(&all.m);
    raft_resp_delete(&anew.m);
    printf("%lu commands\n", commands);
    return 0;
}

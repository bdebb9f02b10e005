/* What the programs of threads share: uthreads of a runtime that ask a port of RESP at the other end of a memory link,
 * and a thread of Linux that looks at what is shown meanwhile. */
#ifndef CORELANE_TESTS_APPS_RESP_C_RESP_LINK_H
#define CORELANE_TESTS_APPS_RESP_C_RESP_LINK_H

#include <corelane/drivers/memory.h>
#include <corelane/libos/libos.h>
#include <corelane/libos/stream.h>

#include "tests/support/c/check.h"

#include <stdarg.h>
#include <string.h>

#define PORT 6379
#define SERVER_IP 0x0a000002u
#define CLIENTS 8 /* in pairs */
#define PATIENCE_NS 60000000000ll
#define REPLY_ROOM 4096

/* A connection, what came on it and was not taken, and the reply that was. */
struct link {
    struct cl_stream *stream;
    char got[REPLY_ROOM], reply[REPLY_ROOM];
    uint32_t bytes;
};

struct asking {
    struct cl_runtime *rt;
    unsigned number, rounds;
};

static struct cl_runtime *hosts[2]; /* the clients', the server's */
static struct cl_nic *ends[2];
static uint64_t done; /* clients that are; RMW, release: who sees it reads what they left */

static inline void make_hosts(uint32_t kthreads)
{
    struct cl_memory_config link = {.queues = {1, kthreads}, .ipv4 = {0x0a000001, SERVER_IP}, .ipv4_prefix = 24};
    char err[256] = "";
    CHECK(!cl_memory_link_new(&link, ends, err), "%s", err);
    for (unsigned i = 0; i < 2; i++) {
        struct cl_runtime_config config = {
            .nic = ends[i], .kthreads = i ? kthreads : 1, .poll = CL_SCHED_ADAPTIVE, .poll_set = 1};
        CHECK(!cl_runtime_new(&config, &hosts[i], err), "%s", err);
    }
}

static inline void start_hosts(void)
{
    char err[256] = "";
    for (unsigned i = 0; i < 2; i++)
        CHECK(!cl_runtime_start(hosts[i], err), "%s", err);
}

static inline void connect_link(struct link *l, struct cl_runtime *rt)
{
    const struct cl_tcp_addr to = {.ipv4 = SERVER_IP, .port = PORT};
    l->bytes = 0;
    CHECK_EQ(cl_stream_connect(rt, NULL, &to, PATIENCE_NS, &l->stream), 0);
}

/* How long the reply of RESP2 at the beginning is, 0 if it is not all there. */
static inline uint32_t reply_bytes(const char *p, uint32_t bytes)
{
    const char *line = bytes ? memchr(p, '\n', bytes) : NULL;
    if (!line)
        return 0;
    uint32_t head = (uint32_t)(line - p) + 1;
    long n = *p == '$' || *p == '*' ? strtol(p + 1, NULL, 10) : -1;
    if (n < 0)
        return head;
    if (*p == '$')
        return head + (uint32_t)n + 2 <= bytes ? head + (uint32_t)n + 2 : 0;
    for (uint32_t one; n; n--, head += one)
        if (!(one = reply_bytes(p + head, bytes - head)))
            return 0;
    return head;
}

/* The next reply. */
static inline const char *read_reply(struct link *l)
{
    uint32_t n;
    while (!(n = reply_bytes(l->got, l->bytes))) {
        CHECK(l->bytes < REPLY_ROOM, "a reply is too long");
        int64_t more = cl_stream_read(l->stream, l->got + l->bytes, REPLY_ROOM - l->bytes, PATIENCE_NS);
        CHECK(more > 0, "%lld instead of a reply", (long long)more);
        l->bytes += (uint32_t)more;
    }
    CHECK(n < REPLY_ROOM, "a reply is too long");
    memcpy(l->reply, l->got, n);
    l->reply[n] = 0;
    memmove(l->got, l->got + n, l->bytes -= n);
    return l->reply;
}

static inline void say(struct link *l, const char *form, ...)
{
    char text[512];
    va_list args;
    va_start(args, form);
    int n = vsnprintf(text, sizeof text, form, args);
    va_end(args);
    CHECK(n > 0 && n < (int)sizeof text, "a command is too long");
    CHECK_EQ(cl_stream_write(l->stream, text, n, PATIENCE_NS), n);
}

static inline long number(struct link *l)
{
    const char *reply = read_reply(l);
    CHECK(*reply == ':', "%s is no number", reply);
    return strtol(reply + 1, NULL, 10);
}

static inline void expect(struct link *l, const char *reply)
{
    const char *got = read_reply(l);
    CHECK(!strcmp(got, reply), "%s instead of %s", got, reply);
}

/* A client: its own key, one that all count up, a transaction on two of which nobody may see one alone, a queue in
 * which its partner waits, or it waits for that one, and messages to who subscribes. */
static inline void ask(void *arg)
{
    struct asking *a = arg;
    struct link l;
    long last = 0;
    unsigned pair = a->number / 2;
    connect_link(&l, a->rt);
    for (unsigned i = 0; i < a->rounds; i++) {
        say(&l, "INCR all\r\nSET own%u %u\r\nGET own%u\r\n", a->number, i + 10000, a->number);
        long now = number(&l);
        CHECK(now > last, "%ld behind %ld", now, last);
        last = now;
        expect(&l, "+OK\r\n");
        char own[32];
        snprintf(own, sizeof own, "$5\r\n%u\r\n", i + 10000);
        expect(&l, own);
        say(&l, "MULTI\r\nINCR left\r\nINCR right\r\nEXEC\r\n");
        expect(&l, "+OK\r\n");
        expect(&l, "+QUEUED\r\n");
        expect(&l, "+QUEUED\r\n");
        long left, right;
        const char *both = read_reply(&l);
        CHECK(sscanf(both, "*2\r\n:%ld\r\n:%ld", &left, &right) == 2 && left == right, "%s", both);
        if (a->number % 2) {
            say(&l, "BLPOP queue%u 0\r\n", pair);
            CHECK(!strncmp(read_reply(&l), "*2\r\n", 4), "%s", l.reply);
        } else {
            say(&l, "RPUSH queue%u %u\r\nPUBLISH news %u\r\n", pair, i, i);
            (void)number(&l);
            (void)number(&l);
        }
    }
    cl_stream_close(l.stream, 0);
    __atomic_add_fetch(&done, 1, __ATOMIC_RELEASE);
}

/* Hears what is published until somebody says that it is over. */
static inline void listen_to_news(void *arg)
{
    struct asking *a = arg;
    struct link l;
    connect_link(&l, a->rt);
    say(&l, "SUBSCRIBE news\r\n");
    while (!strstr(read_reply(&l), "over"))
        a->rounds++;
    cl_stream_close(l.stream, 0);
    __atomic_add_fetch(&done, 1, __ATOMIC_RELEASE);
}

/* Tells who listens that it is over, as soon as he listens. */
static inline void tell_the_end(void *arg)
{
    struct asking *a = arg;
    struct link l;
    connect_link(&l, a->rt);
    do {
        say(&l, "PUBLISH news over\r\n");
    } while (!number(&l));
    say(&l, "GET all\r\n");
    const char *all = read_reply(&l);
    CHECK(strtol(strchr(all, '\n') + 1, NULL, 10) == (long)CLIENTS * a->rounds, "%s of %u rounds", all, a->rounds);
    say(&l, "MGET left right\r\n");
    (void)read_reply(&l);
    cl_stream_close(l.stream, 0);
    __atomic_add_fetch(&done, 1, __ATOMIC_RELEASE);
}

/* All of them, while `look` is called again and again. */
static inline void ask_all(unsigned rounds, void (*look)(void))
{
    static struct asking all[CLIENTS], listener, last;
    listener.rt = last.rt = hosts[0];
    last.rounds = rounds;
    CHECK_EQ(cl_runtime_spawn(hosts[0], listen_to_news, &listener), 0);
    for (unsigned i = 0; i < CLIENTS; i++) {
        all[i] = (struct asking){hosts[0], i, rounds};
        CHECK_EQ(cl_runtime_spawn(hosts[0], ask, &all[i]), 0);
    }
    while (cl_load_acquire(&done) < CLIENTS)
        look();
    CHECK_EQ(cl_runtime_spawn(hosts[0], tell_the_end, &last), 0);
    while (cl_load_acquire(&done) < CLIENTS + 2)
        look();
    CHECK(listener.rounds, "nothing was heard");
}

static inline void end_hosts(void)
{
    for (unsigned i = 0; i < 2; i++)
        cl_runtime_delete(hosts[i]);
    for (unsigned i = 0; i < 2; i++)
        cl_nic_close(ends[i]);
}

#endif

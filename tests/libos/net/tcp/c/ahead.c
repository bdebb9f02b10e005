/* A listener's `ahead` sees the data of a whole burst, of all connections, before any of these is called with it; not
 * what has no data, and not what is for another port. On a virtual clock, with K kthreads.
 *
 * Usage: ahead K. Prints "ok". */
#include <corelane/drivers/memory.h>
#include <corelane/libos/libos.h>

#include "tests/libos/net/tcp/c/stepped.h"

#include <stdio.h>

#define IP_SERVER 0x0a4d0001u
#define IP_CLIENT 0x0a4d0002u
#define PORT 7
#define OTHER_PORT 8
#define CONNECTIONS 20
#define ROUNDS 5

static uint64_t now_ns = 1000000000;
static struct cl_nic *ends[2];
static unsigned seen, called; /* of the round */
static unsigned seen_before_all, together;
static bool over;
static char the_listeners;

static void look(const uint8_t *data, int64_t len, void *arg)
{
    CHECK(arg == &the_listeners);
    CHECK_EQ(len, 2);
    CHECK(data[0] == 'a' && data[1] < CONNECTIONS, "%c %u", data[0], data[1]);
    seen++;
}

static int64_t answer(struct cl_tcp_conn *c, const uint8_t *data, int64_t len, void *arg)
{
    (void)arg;
    CHECK_EQ(len, 2);
    called++;
    CHECK(called <= seen, "data that was not seen ahead");
    if (called == 1)
        seen_before_all = seen;
    CHECK_EQ(cl_tcp_write(c, data, len), len);
    return len;
}

static int64_t answer_other(struct cl_tcp_conn *c, const uint8_t *data, int64_t len, void *arg)
{
    (void)arg;
    CHECK_EQ(cl_tcp_write(c, data, len), len);
    return len;
}

static void ask_all(void *arg)
{
    static struct cl_stream *s[CONNECTIONS], *other;
    struct cl_tcp_addr to = {IP_SERVER, PORT, 0}, to_other = {IP_SERVER, OTHER_PORT, 0};
    char data[2];
    for (unsigned i = 0; i < CONNECTIONS; i++) {
        CHECK_EQ(cl_stream_connect(arg, NULL, &to, -1, &s[i]), 0);
        CHECK_EQ(cl_stream_set(s[i], CL_STREAM_NO_DELAY, 1), 0);
    }
    CHECK_EQ(cl_stream_connect(arg, NULL, &to_other, -1, &other), 0);
    for (unsigned r = 0; r < ROUNDS; r++) {
        cl_uthread_sleep_ns(1000000000); /* all is still: nothing is acknowledged late */
        seen = called = 0;
        for (unsigned i = 0; i < CONNECTIONS; i++)
            CHECK_EQ(cl_stream_write(s[i], (char[]){'a', (char)i}, 2, -1), 2);
        CHECK_EQ(cl_stream_write(other, "xx", 2, -1), 2);
        for (unsigned i = 0; i < CONNECTIONS; i++)
            CHECK_EQ(cl_stream_read(s[i], data, 2, -1), 2);
        CHECK_EQ(cl_stream_read(other, data, 2, -1), 2);
        CHECK_EQ(seen, CONNECTIONS);
        CHECK_EQ(called, CONNECTIONS);
        together += seen_before_all > 1;
    }
    for (unsigned i = 0; i < CONNECTIONS; i++)
        CHECK_EQ(cl_stream_abort(s[i]), 0);
    CHECK_EQ(cl_stream_abort(other), 0);
    over = true;
}

int main(int argc, char **argv)
{
    static const struct cl_tcp_events events = {.data = answer, .ahead = look}, other = {.data = answer_other};
    struct cl_clock clock;
    struct cl_stepper *stepper;
    char err[256] = "";
    CHECK_EQ(argc, 2);
    uint32_t kthreads = (uint32_t)strtoul(argv[1], NULL, 10);
    cl_clock_virtual(&clock, &now_ns);
    struct cl_memory_config m = {.clock = &clock, .queues = {kthreads, 1}};
    CHECK(cl_memory_link_new(&m, ends, err) == 0, "%s", err);
    CHECK_EQ(cl_stepper_new(&now_ns, &stepper), 0);
    struct cl_runtime *server = stepped_host(ends[0], IP_SERVER, kthreads, stepper);
    struct cl_runtime *client = stepped_host(ends[1], IP_CLIENT, 1, stepper);
    CHECK_EQ(cl_runtime_listen_tcp(server, PORT, CONNECTIONS, &events, &the_listeners), 0);
    CHECK_EQ(cl_runtime_listen_tcp(server, OTHER_PORT, CONNECTIONS, &other, NULL), 0);
    CHECK_EQ(cl_runtime_spawn(client, ask_all, client), 0);
    for (unsigned ms = 0; !over && ms < 60000; ms++)
        CHECK(cl_stepper_run(stepper, now_ns + 1000000, err) == 0, "%s", err);
    CHECK(over);
    CHECK_EQ(together, ROUNDS);
    stepped_end(stepper, client, server, ends);
    printf("ok\n");
    return 0;
}

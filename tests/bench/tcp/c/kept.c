/* Connections of the load that are kept between runs (load_steps.h), and servers that do there what nobody expects: one
 * says something, one ends them. */
#include "tests/libos/net/tcp/c/load_steps.h"

#define TALKS 9001
#define ENDS 9002
#define LATER_NS 100000000ull /* after the last answer: the run is over */
#define CONNECTIONS 8

static int64_t answer(struct cl_tcp_conn *c, const uint8_t *data, int64_t len, void *arg)
{
    (void)arg;
    cl_tcp_set_timer(c, LATER_NS);
    return cl_tcp_write(c, data, len);
}

static void talk(struct cl_tcp_conn *c, void *arg)
{
    (void)arg;
    CHECK_EQ(cl_tcp_write(c, "unasked", 7), 7);
}

static void end_it(struct cl_tcp_conn *c, void *arg)
{
    (void)arg;
    cl_tcp_shutdown(c);
}

static const struct cl_tcp_events talker = {.data = answer, .timer = talk, .eof = echo_eof};
static const struct cl_tcp_events ender = {.data = answer, .timer = end_it, .eof = echo_eof};

static struct cl_tcpload_counts run_once(void)
{
    struct cl_loadgen_phase phase = {.duration_ns = 5000000, .rate = 20000, .measured = 1};
    struct cl_tcpload_counts counts;
    open_all(&phase);
    finish();
    while (cl_tcpload_state(load) != CL_TCPLOAD_IDLE)
        pass(100000);
    CHECK_EQ(cl_tcpload_counts(load, 0, &counts), 0);
    return counts;
}

/* Two runs with a while between them. Returns the connections that both opened. */
static uint64_t runs(uint16_t port)
{
    begin(8u << 20, (struct cl_tcpload_config){.connections = CONNECTIONS, .server_port = port, .keep = 1});
    CHECK_EQ(cl_runtime_listen_tcp(rt, TALKS, 64, &talker, NULL), 0);
    CHECK_EQ(cl_runtime_listen_tcp(rt, ENDS, 64, &ender, NULL), 0);
    struct cl_tcpload_other other;
    for (int i = 0; i < 2; i++) {
        struct cl_tcpload_counts counts = run_once();
        CHECK(counts.offered > 50 && counts.answered == counts.offered, "%lu of %lu", counts.answered, counts.offered);
        CHECK_EQ(counts.wrong, 0);
        CHECK_EQ(cl_tcpload_open(load), CONNECTIONS);
        pass(2 * LATER_NS);
        CHECK_EQ(cl_tcpload_state(load), CL_TCPLOAD_IDLE);
        CHECK_EQ(cl_tcpload_open(load), port == PORT ? CONNECTIONS : 0);
    }
    cl_tcpload_other(load, &other);
    end();
    return other.opened;
}

int main(void)
{
    CHECK_EQ(runs(PORT), CONNECTIONS);
    CHECK_EQ(runs(TALKS), 2 * CONNECTIONS);
    CHECK_EQ(runs(ENDS), 2 * CONNECTIONS);
    puts("passed");
    return 0;
}

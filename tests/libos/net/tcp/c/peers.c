/* For test_kernel.py: users of connections as a shared library, on the runtime of the test. */
#include "tests/libos/net/tcp/c/endpoints.h"

#define MOST 64

static struct fetch fetches[MOST];
static struct {
    struct cl_runtime *rt;
    uint32_t ipv4;
    uint16_t port;
    uint32_t n;
} where;
static int refused;

CL_API const struct cl_tcp_events *peers_echo(void)
{
    return &echo_events;
}

static void connect_all(void *arg)
{
    (void)arg;
    for (uint32_t i = 0; i < where.n && !refused; i++)
        refused = cl_runtime_connect_tcp(where.rt, where.ipv4, where.port, &fetch_events, &fetches[i]);
}

/* n connections that send `bytes` each and want them back. */
CL_API int peers_fetch(struct cl_runtime *rt, uint32_t ipv4, uint16_t port, uint32_t n, uint64_t bytes)
{
    where.rt = rt;
    where.ipv4 = ipv4;
    where.port = port;
    where.n = n;
    fetched = 0;
    for (uint32_t i = 0; i < n; i++)
        fetches[i] = (struct fetch){.number = i, .bytes = bytes};
    return cl_runtime_spawn(rt, connect_all, NULL);
}

/* How many are over. */
CL_API uint64_t peers_fetched(void)
{
    return __atomic_load_n(&fetched, __ATOMIC_ACQUIRE);
}

/* What came of one: its errno, or EBADMSG if not all came. */
CL_API int peers_result(uint32_t i)
{
    const struct fetch *f = &fetches[i];
    return refused ? refused : f->error ? f->error : f->read == f->bytes && f->eof ? 0 : 74;
}

CL_API uint64_t peers_echo_errors(void)
{
    return __atomic_load_n(&echo_errors, __ATOMIC_RELAXED);
}

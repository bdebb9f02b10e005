/* The world of sockets_model.c: what its scenarios are, the state, and semaphores, connections and calls of the library
 * as the model has them. */
#ifndef TESTS_TCP_SOCKETS_MODEL_H
#define TESTS_TCP_SOCKETS_MODEL_H

#define EX_SHARES_STACKS /* visits lie on them */
#include "tests/libos/net/c/explore.h"

#ifndef POLL_C
#define POLL_C "libos/net/poll.c"
#define SOCKET_C "libos/net/socket.c"
#define QUEUE_C "libos/net/queue.c"
#define SOCKETS_C "libos/net/tcp/sockets.c"
#define VISITS_C "libos/net/tcp/visits.c"
#define STREAM_C "libos/net/tcp/stream.c"
#define ACCEPT_C "libos/net/tcp/accept.c"
#endif

static unsigned mutant; /* the fault that is in; 0: none (tests/libos/net/tcp/test_sockets_model.py) */

#include "libos/net/netif.h"
#include "libos/net/poll.h"
#include "libos/net/queue.h"
#include "libos/net/tcp/flows.h"
#include "libos/net/tcp/machine.h"
#include "libos/net/tcp/sockets.h"
#include "runtime/pool.h"

/* Words that are read or written without a lock: others may come in before. */
#undef cl_load_relaxed
#undef cl_load_acquire
#undef cl_store_relaxed
#undef cl_store_release
#define cl_load_relaxed(p) (ex_pause(NULL, 1), __atomic_load_n((p), __ATOMIC_RELAXED))
#define cl_load_acquire(p) (ex_pause(NULL, 1), __atomic_load_n((p), __ATOMIC_ACQUIRE))
#define cl_store_relaxed(p, v) (ex_pause(NULL, 1), __atomic_store_n((p), (v), __ATOMIC_RELAXED))
#define cl_store_release(p, v) (ex_pause(NULL, 1), __atomic_store_n((p), (v), __ATOMIC_RELEASE))

#define USERS (EX_THREADS - 1) /* threads from 1 on */
#define ROOM 1                 /* of the send buffer */
#define UDP_PORT 9
#define ACCEPTED 3 /* connections that may come */

enum form { BLOCK, TIMED, EDGE, EDGE_TIMED, EDGE_NO_SWITCH, LEVEL, NOBODY };

static const struct scenario {
    const char *name;
    enum form form[USERS];
    bool udp, accepts, writes, one_closes; /* one_closes: the last user closes the socket instead */
    unsigned n, errors;                    /* bytes, datagrams or connections that come, or are written; ICMP errors */
    bool resets, stops;                    /* at some time the connection is reset; the runtime stops */
} scenarios[] = {
    {.name = "alone", .form = {BLOCK, NOBODY}, .n = 3},
    {.name = "block", .form = {BLOCK, BLOCK}, .n = 2},
    {.name = "timed", .form = {BLOCK, TIMED}, .n = 2},
    {.name = "edge", .form = {EDGE, EDGE}, .n = 2},
    {.name = "edge_timed", .form = {EDGE, EDGE_TIMED}, .n = 2},
    {.name = "edge_no_switch", .form = {EDGE, EDGE_NO_SWITCH}, .n = 2},
    {.name = "level", .form = {LEVEL, LEVEL}, .n = 2},
    {.name = "edge_and_block", .form = {EDGE, BLOCK}, .n = 2},
    {.name = "write", .form = {BLOCK, BLOCK}, .writes = true, .n = 3},
    {.name = "write_edge", .form = {EDGE, EDGE}, .writes = true, .n = 3},
    {.name = "close", .form = {BLOCK, BLOCK}, .one_closes = true, .n = 1},
    {.name = "reset", .form = {BLOCK, EDGE}, .n = 1, .resets = true},
    {.name = "stop", .form = {BLOCK, EDGE}, .n = 1, .stops = true},
    {.name = "accept_block", .form = {BLOCK, BLOCK}, .accepts = true, .n = 2},
    {.name = "accept_timed", .form = {BLOCK, TIMED}, .accepts = true, .n = 2},
    {.name = "accept_edge", .form = {EDGE, EDGE}, .accepts = true, .n = 3},
    {.name = "accept_level", .form = {LEVEL, LEVEL}, .accepts = true, .n = 2},
    {.name = "accept_edge_and_block", .form = {EDGE, BLOCK}, .accepts = true, .n = 2},
    {.name = "accept_close", .form = {BLOCK, BLOCK}, .accepts = true, .one_closes = true, .n = 2},
    {.name = "udp_block", .form = {BLOCK, TIMED}, .udp = true, .n = 2},
    {.name = "udp_edge", .form = {EDGE, EDGE}, .udp = true, .n = 3},
    {.name = "udp_level", .form = {LEVEL, LEVEL}, .udp = true, .n = 2},
    {.name = "udp_edge_and_block", .form = {EDGE, BLOCK}, .udp = true, .n = 2},
    {.name = "udp_errors", .form = {EDGE, EDGE}, .udp = true, .n = 1, .errors = 2},
    {.name = "udp_close", .form = {BLOCK, BLOCK}, .udp = true, .one_closes = true, .n = 1},
    {.name = "udp_stop", .form = {BLOCK, EDGE}, .udp = true, .n = 1, .stops = true},
};

static const struct scenario *scenario;

static struct {
    struct cl_netif nif;
    struct cl_netq queue;
    struct cl_connections tcp;
    struct cl_streams all;
    struct cl_udp_socket *ports[1 << 16], *sockets[1];
    struct cl_udp_frame frame;
    struct cl_chunk chunk;
} fixed;

/* What the state is of. */
static struct {
    struct cl_spin bucket;
    struct cl_flow flow;
    struct cl_tcp_conn conn;
    struct cl_stream stream;
    struct cl_port port;
    struct cl_tcp_conn accepted[ACCEPTED]; /* of `made` */
    struct cl_stream made[ACCEPTED];
    struct cl_udp_socket socket;
    struct cl_udp_queue queue;
    struct cl_datagram ring[4];
    uint8_t come, errors_come, reset, stop, acked; /* by nobody */
    uint8_t brought, errors_brought, ended, stopped;
    uint8_t taken, begun, written, errors_taken, over[EX_THREADS]; /* by users */
    uint8_t busy, let_go, n_made, freed, cannot_wait[EX_THREADS];
} now;

/* The model's semaphores: `word` is a count. */

static void model_sem_init(struct cl_sem *s, uint32_t n)
{
    s->word = n;
}

static int model_sem_trywait(struct cl_sem *s)
{
    ex_pause(NULL, 1);
    if (!s->word)
        return -EAGAIN;
    s->word--;
    return 0;
}

static int model_sem_wait_until(struct cl_sem *s, uint64_t deadline_ns)
{
    if (now.cannot_wait[ex.running])
        return -EDEADLK;
    for (;;) {
        bool late = ex_pause(NULL, deadline_ns ? 2 : 1);
        if (s->word) {
            s->word--;
            return 0;
        }
        if (late)
            return -ETIMEDOUT;
    }
}

static int model_sem_wait(struct cl_sem *s)
{
    return model_sem_wait_until(s, 0);
}

static int model_sem_wait_as(struct cl_sem *s, uint64_t deadline_ns, uint16_t what, const void *object)
{
    (void)what;
    (void)object;
    return model_sem_wait_until(s, deadline_ns == UINT64_MAX ? 0 : deadline_ns);
}

static struct cl_uthread *model_sem_give(struct cl_sem *s)
{
    ex_pause(NULL, 1);
    if (++s->word > 8)
        ex_fail("posts pile up");
    return NULL;
}

static void model_sem_post(struct cl_sem *s)
{
    (void)model_sem_give(s);
}

/* The model's connection, and turns of it. */

static void hold(void)
{
    if (now.busy)
        ex_fail("two work on one connection");
    now.busy = 1;
}

static void release(void)
{
    cl_spin_lock(&now.bucket);
    now.busy = 0;
    (void)cl_flow_release(&now.flow, 0);
    cl_spin_unlock(&now.bucket);
}

static bool model_hold(struct cl_tcp_conn *c)
{
    (void)c;
    cl_spin_lock(&now.bucket);
    bool idle = now.flow.state == CL_FLOW_IDLE;
    if (idle)
        cl_flow_hold(&now.flow);
    else
        (void)cl_flow_wake(&now.flow);
    cl_spin_unlock(&now.bucket);
    return idle;
}

static void model_visit(struct cl_tcp_conn *c, void (*fn)(struct cl_tcp_conn *c, void *arg), void *arg)
{
    hold();
    fn(c, arg);
    release();
}

static bool model_try_hold(struct cl_tcp_conn *c)
{
    (void)c;
    cl_spin_lock(&now.bucket);
    bool idle = now.flow.state == CL_FLOW_IDLE;
    if (idle)
        cl_flow_hold(&now.flow);
    cl_spin_unlock(&now.bucket);
    return idle;
}

static int64_t model_read(struct cl_tcp_conn *c, void *data, int64_t room)
{
    uint32_t n = cl_min((uint32_t)room, c->receive.bytes);
    (void)data;
    c->receive.bytes -= n;
    now.taken = (uint8_t)(now.taken + n);
    return n;
}

static bool model_quietly(struct cl_tcp_conn *c, bool (*fn)(struct cl_tcp_conn *c, void *arg), void *arg)
{
    hold();
    bool done = fn(c, arg);
    if (done)
        release();
    else
        now.busy = 0; /* for the turn that follows */
    return done;
}

static int64_t model_write(struct cl_tcp_conn *c, const void *data, int64_t len)
{
    uint32_t n = cl_min((uint32_t)len, ROOM - c->send.bytes);
    (void)data;
    c->send.bytes += n;
    now.written = (uint8_t)(now.written + n);
    if (n < len)
        c->flags |= CL_TCP_WANTS_ROOM;
    return n;
}

static void model_set_user(struct cl_tcp_conn *c, const struct cl_tcp_events *events, void *arg)
{
    c->user = events;
    c->arg = arg;
    now.let_go = 1;
}

static void model_end(struct cl_tcp_conn *c)
{
    (void)c;
}

static struct cl_netq *model_self(const struct cl_netif *nif)
{
    (void)nif;
    return &fixed.queue;
}

static struct cl_chunk *model_copy(void)
{
    return &fixed.chunk;
}

#define cl_sem_init model_sem_init
#define cl_sem_trywait model_sem_trywait
#define cl_sem_wait model_sem_wait
#define cl_sem_wait_until model_sem_wait_until
#define cl_sem_wait_as model_sem_wait_as
#define cl_sem_give model_sem_give
#define cl_sem_post model_sem_post
#define cl_tcp_hold model_hold
#define cl_tcp_try_hold model_try_hold
#define cl_tcp_quietly model_quietly
#define cl_tcp_reads_quietly(c, room) ((void)(room), (c)->receive.bytes == 1) /* what is more by a turn */
#define cl_tcp_visit model_visit
#define cl_tcp_read model_read
#define cl_tcp_write model_write
#define cl_tcp_set_user model_set_user
#define cl_tcp_close model_end
#define cl_tcp_abort model_end
#define cl_netq_self model_self
#define cl_uthread_yield() (ex_pause(NULL, 1), 0)
#define cl_netif_running(nif) true
#define cl_sched_now_ns(sched) 1ull
#define cl_pool_get_one(pool, cache, out) ((void)(pool), (void)(cache), *(out) = now.n_made++, true)
#define cl_pool_put_one(pool, cache, index) ((void)(pool), (void)(cache), (void)(index), now.freed++)
#define cl_chunks_copy(...) model_copy()
#define cl_chunks_free(...) ((void)0)
#define cl_chunks_read(...) ((void)0)
#define cl_tcp_flow(c) ((void)(c), (const struct cl_flow *)&now.flow)
#define cl_tcp_unpublish(nif, port) ((void)(nif), (void)(port))
#define cl_udp_unpublish(nif, s) ((void)(nif), (void)(s))

#endif

/* Sockets, their waiters and poll sets (libos/net/{poll,socket,queue}.c, tcp/{sockets,visits,stream}.c), explored: two
 * uthreads that use a socket, and a kthread that brings what comes for it, in all interleavings (explore.h). The code is
 * the library's as it is; connections, semaphores and flows' turns are the model's.
 *
 *   sockets_model SCENARIO [mutant=N]
 *
 * Shown: from every state all that has come is taken, so nobody who waits, or was told of an edge, is forgotten; nobody
 * sleeps on when a socket has ended; two never work on one connection.
 * Not covered: more uthreads and bytes than a scenario has; a semaphore's order of waiters, since the model's lets anyone
 * through. */
#define EX_SHARES_STACKS /* visits lie on them */
#include "tests/libos/net/c/explore.h"

#ifndef POLL_C
#define POLL_C "libos/net/poll.c"
#define SOCKET_C "libos/net/socket.c"
#define QUEUE_C "libos/net/queue.c"
#define SOCKETS_C "libos/net/tcp/sockets.c"
#define VISITS_C "libos/net/tcp/visits.c"
#define STREAM_C "libos/net/tcp/stream.c"
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

enum form { BLOCK, TIMED, EDGE, EDGE_NO_SWITCH, LEVEL, NOBODY };

static const struct scenario {
    const char *name;
    enum form form[USERS];
    bool udp, writes, one_closes; /* one_closes: the last user closes the socket instead */
    unsigned n, errors;           /* bytes or datagrams that come, or are written; ICMP errors */
    bool resets, stops;           /* at some time the connection is reset; the runtime stops */
} scenarios[] = {
    {.name = "alone", .form = {BLOCK, NOBODY}, .n = 3},
    {.name = "block", .form = {BLOCK, BLOCK}, .n = 2},
    {.name = "timed", .form = {BLOCK, TIMED}, .n = 2},
    {.name = "edge", .form = {EDGE, EDGE}, .n = 2},
    {.name = "edge_no_switch", .form = {EDGE, EDGE_NO_SWITCH}, .n = 2},
    {.name = "level", .form = {LEVEL, LEVEL}, .n = 2},
    {.name = "edge_and_block", .form = {EDGE, BLOCK}, .n = 2},
    {.name = "write", .form = {BLOCK, BLOCK}, .writes = true, .n = 3},
    {.name = "write_edge", .form = {EDGE, EDGE}, .writes = true, .n = 3},
    {.name = "close", .form = {BLOCK, BLOCK}, .one_closes = true, .n = 1},
    {.name = "reset", .form = {BLOCK, EDGE}, .n = 1, .resets = true},
    {.name = "stop", .form = {BLOCK, EDGE}, .n = 1, .stops = true},
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
    struct cl_udp_socket socket;
    struct cl_udp_queue queue;
    struct cl_datagram ring[4];
    uint8_t come, errors_come, reset, stop, acked; /* by nobody */
    uint8_t brought, errors_brought, ended, stopped;
    uint8_t taken, begun, written, errors_taken, over[EX_THREADS]; /* by users */
    uint8_t busy, let_go, freed, cannot_wait[EX_THREADS];
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

static int64_t model_read(struct cl_tcp_conn *c, void *data, int64_t room)
{
    uint32_t n = cl_min((uint32_t)room, c->receive.bytes);
    (void)data;
    c->receive.bytes -= n;
    now.taken = (uint8_t)(now.taken + n);
    return n;
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
#define cl_sem_give model_sem_give
#define cl_sem_post model_sem_post
#define cl_tcp_hold model_hold
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
#define cl_pool_put_one(pool, cache, index) ((void)(pool), (void)(cache), (void)(index), now.freed++)
#define cl_chunks_copy(...) model_copy()
#define cl_chunks_free(...) ((void)0)
#define cl_chunks_read(...) ((void)0)
#define cl_udp_unpublish(nif, s) ((void)(nif), (void)(s))

#undef CL_UDP_PORTS
#define CL_UDP_PORTS 1 /* of those that cl_streams_shut looks through */

#include POLL_C
#include QUEUE_C
#include SOCKET_C
#include SOCKETS_C
#include STREAM_C
#include VISITS_C

static struct cl_poll set;

/* A turn: what has come, and the socket's. */

static void take_input(struct cl_tcp_conn *c)
{
    while (now.brought < now.come) {
        now.brought++;
        if (c->user)
            c->user->data(c, NULL, 1, c->arg);
        c->receive.bytes++; /* `data` is called before it is kept */
    }
    if (now.acked) {
        now.acked = 0;
        c->send.bytes = 0;
        if (c->user && c->flags & CL_TCP_WANTS_ROOM) {
            c->flags &= ~(uint32_t)CL_TCP_WANTS_ROOM;
            c->user->writable(c, c->arg);
        }
    }
    if (now.reset && !now.ended) {
        const struct cl_tcp_events *user = c->user;
        c->receive.bytes = 0;
        now.ended = 1;
        c->user = NULL;
        if (user)
            user->ended(c, ECONNRESET, c->arg);
    }
}

static void turn(void)
{
    cl_spin_lock(&now.bucket);
    bool ready = now.flow.state == CL_FLOW_READY;
    if (ready)
        cl_flow_hold(&now.flow);
    cl_spin_unlock(&now.bucket);
    if (!ready)
        return;
    hold();
    take_input(&now.conn);
    if (now.conn.user == &cl_stream_events)
        cl_streams_turn(&now.conn);
    release();
}

static void bring_datagram(void)
{
    struct cl_rx_item item = {
        .frame.data = (uint8_t *)&fixed.frame, .l4 = CL_ETH_HLEN + CL_IPV4_HLEN, .payload_len = 1};
    unsigned reason;
    now.brought++;
    (void)cl_udp_deliver(&fixed.queue, &now.socket, &item, &reason); /* dropped if it is closed */
}

static void bring_error(void)
{
    const struct cl_icmp_about about = {.dst_be = 1, .dst_port_be = 1, .src_port_be = cl_be16(UDP_PORT), .error = 1};
    now.errors_brought++;
    (void)cl_udp_tell_error(&fixed.nif, &about);
}

static void kthread(void)
{
    for (;;) {
        unsigned what = ex_pause(NULL, 3);
        if (what == 0 && scenario->udp && now.brought < now.come)
            bring_datagram();
        else if (what == 0 && !scenario->udp && now.flow.state == CL_FLOW_READY)
            turn();
        else if (what == 1 && now.errors_brought < now.errors_come)
            bring_error();
        else if (what == 2 && now.stop && !now.stopped) {
            now.stopped = 1;
            cl_udp_sockets_shut(&fixed.nif);
        }
    }
}

/* One byte or datagram. */
static int64_t step(int64_t timeout_ns)
{
    uint8_t byte = 0;
    if (scenario->udp) {
        int64_t n = cl_udp_recvfrom(&now.socket, &byte, 1, NULL, timeout_ns);
        now.taken += n > 0;
        now.errors_taken += n == -1;
        return n == -1 ? 1 : n; /* an error says that more may be there, too */
    }
    if (!scenario->writes)
        return cl_stream_read(&now.stream, &byte, 1, timeout_ns);
    if (now.begun == scenario->n)
        return -EAGAIN;
    now.begun++;
    int64_t n = cl_stream_write(&now.stream, &byte, 1, timeout_ns);
    now.begun -= n != 1;
    return n;
}

/* What a call on a socket that has ended says. */
static bool is_over(int64_t n)
{
    return n == -EBADF || n == -ESHUTDOWN || n == -ECONNRESET;
}

static int64_t polled(enum form form)
{
    struct cl_poll_event e;
    int64_t n = cl_poll_wait(&set, &e, 1, -1);
    if (n < 0)
        return n;
    now.cannot_wait[ex.running] = form == EDGE_NO_SWITCH;
    do
        n = step(0);
    while (n == 1 && form != LEVEL);
    now.cannot_wait[ex.running] = 0;
    return n;
}

static void close_it(void)
{
    (void)(scenario->udp ? cl_udp_close(&now.socket) : cl_stream_close(&now.stream, 0));
}

static void user(void)
{
    enum form form = scenario->form[ex.running - 1];
    ex_pause(NULL, 1);
    if (scenario->one_closes && ex.running == EX_THREADS - 1)
        close_it();
    else if (form != NOBODY)
        while (!is_over(form == BLOCK ? step(-1) : form == TIMED ? step(1000) : polled(form)))
            ex_pause(NULL, 1);
    now.over[ex.running] = 1;
    for (;;)
        ex_pause(NULL, 1);
}

static bool bring(uint8_t *what, unsigned most)
{
    if (*what >= most)
        return false;
    (*what)++;
    (void)cl_flow_wake(&now.flow);
    return true;
}

static bool ex_outside(unsigned which)
{
    if (now.bucket.word || which)
        return false;
    if (!scenario->writes && bring(&now.come, scenario->n))
        return true;
    if (scenario->writes && now.conn.send.bytes && bring(&now.acked, 1))
        return true;
    return bring(&now.errors_come, scenario->errors) || bring(&now.reset, scenario->resets) ||
           bring(&now.stop, scenario->stops);
}

static bool all_over(void)
{
    for (unsigned t = 1; t < EX_THREADS; t++)
        if (!now.over[t])
            return false;
    return true;
}

/* It is enough that nothing lies there: what came too late for a reader is dropped. */
static bool ex_done(void)
{
    const struct scenario *s = scenario;
    if (now.come < s->n && !s->writes)
        return false;
    if (now.errors_come < s->errors || now.reset < s->resets || now.stop < s->stops)
        return false;
    if (now.flow.state != CL_FLOW_IDLE && !s->udp)
        return false;
    if (s->one_closes)
        return all_over() && (s->udp ? now.queue.readers == 0 : now.let_go && now.freed == 1);
    if (s->resets || s->stops)
        return all_over();
    if (s->writes)
        return now.written == s->n && now.conn.send.bytes == 0;
    return now.taken == s->n && !now.conn.receive.bytes && !now.socket.error;
}

static void ex_canonical(void)
{
    now.queue.head %= 4;
    set.at_once = 0; /* a yield more or less */
}

static void begin_udp(void)
{
    static const uint8_t mac[6];
    uint64_t peer = cl_udp_flow(1, 1);
    now.queue = (struct cl_udp_queue){.size = 4, .ring = now.ring, .life = 1};
    now.socket = (struct cl_udp_socket){.nif = &fixed.nif,
                                        .port = UDP_PORT,
                                        .kind = CL_UDP_QUEUE,
                                        .queue = &now.queue,
                                        .has_sent = 1,
                                        .peer = peer,
                                        .watch.ready = cl_udp_ready};
    fixed.ports[cl_be16(UDP_PORT)] = fixed.sockets[0] = &now.socket;
    fixed.nif.n_sockets = 1;
    cl_udp_fill(&fixed.frame, mac, mac, 1, 2, 1, cl_be16(UDP_PORT), 1, false);
    (void)cl_poll_add(&set, &now.socket, scenario->form[0] == LEVEL ? CL_POLL_LEVEL : CL_POLL_EDGE, 1);
}

static void begin_stream(void)
{
    fixed.all = (struct cl_streams){.nif = &fixed.nif, .n_used = 1, .all = &now.stream};
    fixed.all.ports = calloc(CL_UDP_PORTS, sizeof *fixed.all.ports);
    fixed.tcp = (struct cl_connections){.shut = cl_streams_shut, .streams = &fixed.all};
    fixed.nif.tcp = &fixed.tcp;
    now.conn.user = &cl_stream_events;
    now.conn.arg = &now.stream;
    now.stream = (struct cl_stream){.kind = CL_STREAM_CONNECTION,
                                    .guard = &now.stream.lock,
                                    .nif = &fixed.nif,
                                    .refs = 2,
                                    .told = CL_STREAM_OPENED | CL_STREAM_ROOM,
                                    .conn = &now.conn};
    (void)cl_poll_add_stream(&set, &now.stream, scenario->writes ? CL_POLL_OUT : CL_POLL_IN,
                             scenario->form[0] == LEVEL ? CL_POLL_LEVEL : CL_POLL_EDGE, 1);
}

int main(int argc, char **argv)
{
    for (unsigned i = 0; argc > 1 && i < sizeof scenarios / sizeof *scenarios; i++)
        if (strcmp(argv[1], scenarios[i].name) == 0)
            scenario = &scenarios[i];
    if (argc > 2 && strncmp(argv[2], "mutant=", 7) == 0)
        mutant = (unsigned)atoi(argv[2] + 7);
    if (!scenario) {
        fprintf(stderr, "usage: sockets_model SCENARIO [mutant=N]\n");
        return 1;
    }
    ex.blob_slots = calloc(EX_SLOTS, sizeof *ex.blob_slots);
    ex.state_slots = calloc(EX_SLOTS, sizeof *ex.state_slots);
    fixed.nif.ports = fixed.ports;
    fixed.nif.all = fixed.sockets;
    fixed.nif.polls = &set;
    fixed.queue.nif = &fixed.nif;
    set.nif = &fixed.nif;
    (scenario->udp ? begin_udp : begin_stream)();
    ex_region(&now, sizeof now);
    ex_region(&set, sizeof set);
    ex_region(&fixed.nif.table_lock, sizeof fixed.nif.table_lock);
    ex_region(&fixed.nif.sockets_shut, sizeof fixed.nif.sockets_shut);
    ex_region(&fixed.nif.polls_shut, sizeof fixed.nif.polls_shut);
    ex.n_threads = EX_THREADS;
    for (unsigned t = 0; t < EX_THREADS; t++)
        ex_thread_new(t, t ? user : kthread);
    ex_explore(30000000);
    return 0;
}

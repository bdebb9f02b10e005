/* Sockets, their waiters and poll sets (libos/net/{poll,socket,queue}.c, tcp/{sockets,visits,stream,accept}.c),
 * explored: two uthreads that use a socket, and a kthread that brings what comes for it, in all interleavings
 * (explore.h). The code is the library's as it is; connections, semaphores and flows' turns are the model's.
 *
 *   sockets_model SCENARIO [mutant=N]
 *
 * Shown: from every state all that has come is taken, so nobody who waits, or was told of an edge, is forgotten; nobody
 * sleeps on when a socket has ended; two never work on one connection.
 * Not covered: more uthreads and bytes than a scenario has; a semaphore's order of waiters, since the model's lets
 * anyone through. */
#include "sockets_model.h"

#undef CL_UDP_PORTS
#define CL_UDP_PORTS 1 /* of those that cl_streams_shut looks through */

#include POLL_C
#include QUEUE_C
#include SOCKET_C
#include SOCKETS_C
#include STREAM_C
#include VISITS_C
#define on_opened on_accepted
#include ACCEPT_C

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

static void bring_connection(void)
{
    struct cl_tcp_conn *c = &now.accepted[now.brought++];
    c->listener = &now.port.listener;
    on_accepted(c, &now.port);
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
        else if (what == 0 && scenario->accepts && now.brought < now.come)
            bring_connection();
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
    if (scenario->accepts) {
        struct cl_stream *out;
        int64_t rc = cl_stream_accept(&now.stream, timeout_ns, &out);
        now.taken += rc == 0;
        return rc == 0 ? 1 : rc;
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
    int64_t n = cl_poll_wait(&set, &e, 1, form == EDGE_TIMED ? 1000 : -1);
    if (n <= 0)
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
    if (!scenario->udp && !scenario->accepts)
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
    if (now.flow.state != CL_FLOW_IDLE)
        return false;
    if (s->accepts && s->one_closes) /* who has been accepted has its user's reference */
        return all_over() && !now.port.listeners && now.brought == now.come && now.freed == now.n_made - now.taken + 1;
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

/* The socket listens instead. */
static void begin_listener(void)
{
    begin_stream();
    (void)cl_poll_remove_stream(&set, &now.stream);
    fixed.all.all = now.made;
    fixed.all.n_used = ACCEPTED;
    now.port = (struct cl_port){.streams = &fixed.all, .listeners = &now.stream, .n_listeners = 1};
    now.stream = (struct cl_stream){.kind = CL_STREAM_LISTENER,
                                    .guard = &now.port.lock,
                                    .nif = &fixed.nif,
                                    .refs = 1,
                                    .port = &now.port,
                                    .backlog = ACCEPTED};
    (void)cl_poll_add_stream(&set, &now.stream, CL_POLL_IN, scenario->form[0] == LEVEL ? CL_POLL_LEVEL : CL_POLL_EDGE,
                             1);
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
    (scenario->udp ? begin_udp : scenario->accepts ? begin_listener : begin_stream)();
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

/* See serve.h.
 *
 * Connections are of TCP's event form. Their callbacks run on whatever kthread works on them, and take the service's
 * lock around whatever touches the engine: so commands run one at a time, whole batches of a pipeline under one hold.
 * A callback that has to wait for the lock leaves its kthread to others. cl_tcp_write copies into memory of the
 * connection and never waits, so replies are written under the lock, too, and nobody else can add to them meanwhile.
 *
 * Back-pressure. What TCP does not take stays in the client's chain until `writable`. While too much of
 * that waits (CL_RESP_OUT_HIGH, CL_RESP_OUT_PART) the engine runs no commands of the client, `data` takes none of its
 * bytes, and TCP closes the window: a peer that does not read is not read from.
 *
 * Turns. After TURN_BYTES of a connection others that are ready have their turns (TCP would offer all that has come): a
 * long pipeline keeps nobody waiting for more than some hundred commands.
 *
 * Pushes and late answers. The engine says that a client has something to be sent by `wake`, under the lock, from the
 * turn of another connection or from the clock; cl_tcp_wake then has the client's own connection look. `ended` takes
 * the lock to let go of the client: so whoever has the lock and sees the client sees a connection that exists. */
#include "serve.h"
#include "../../runtime/trace.h"
#include "traced.h"
#include "writer.h"
#include <corelane/libos/sync.h>
#include <corelane/libos/tcp.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TICK_NS 10000000ull     /* how exact time-outs of blocking commands are */
#define TURN_BYTES 16384        /* as much as Redis reads at once */
#define LINGER_NS 1000000000ull /* how long one that is over is listened to */
#define FULL "-ERR max number of clients reached\r\n"

struct cl_resp_service {
    struct cl_resp *r;
    struct cl_mutex lock; /* of the engine, and of `port` */
    struct cl_resp_port port;
    struct cl_resp_writer *writer; /* NULL: there is no log */
    void (*after)(void *arg);      /* the engine was called into; NULL: nobody wants to know */
    void *after_arg;
    struct conn *conns; /* that have a client */
    struct cl_resp_traced traced;
    uint32_t ipv4;
};

struct conn {
    struct cl_resp_service *s;
    struct cl_tcp_conn *c;
    struct cl_resp_client *client; /* NULL: it was let go of */
    struct conn *next, *prev;      /* of those that have one */
    bool cut;                      /* its engine is gone: it ends at its next turn */
    bool eof;                      /* the peer says no more: it ends when its replies are sent */
    bool yields;                   /* its bytes wait for others' turns */
    bool left;                     /* bytes were left with TCP */
    uint32_t since;                /* it did so the last time: bytes taken */
    struct cl_resp_since waits;
};

/* When the runtime stops, connections end on the thread that stops it: nobody else is there then, and a mutex is for
 * uthreads. */
static bool lock(struct cl_resp_service *s)
{
    return cl_mutex_lock(&s->lock) == 0;
}

static void unlock(struct cl_resp_service *s, bool held)
{
    if (s->writer && cl_resp_units_bytes(s->r))
        cl_resp_writer_signal(s->writer);
    if (s->after)
        s->after(s->after_arg);
    if (held)
        (void)cl_mutex_unlock(&s->lock);
}

static void let_go(struct conn *k)
{
    struct cl_resp_client *client = k->client;
    if (!client)
        return;
    k->client = NULL;
    *(k->prev ? &k->prev->next : &k->s->conns) = k->next;
    if (k->next)
        k->next->prev = k->prev;
    cl_count(&k->s->port.closed, 1);
    cl_resp_disconnect(client);
}

/* Under the lock: write what waits. False: TCP takes no more for now, or the log has to come first. */
static bool flush(struct conn *k)
{
    uint64_t len;
    for (const uint8_t *at; (at = cl_resp_out(k->client, &len));) {
        int64_t n = cl_tcp_write(k->c, at, (int64_t)len);
        if (n < 0) { /* it is over, and `ended` will say so */
            cl_resp_taken(k->client, len);
            continue;
        }
        cl_resp_taken(k->client, (uint64_t)n);
        if (k->s->writer)
            cl_resp_writer_sent(k->s->writer);
        if ((uint64_t)n < len)
            return false;
    }
    return cl_resp_held(k->client) == 0;
}

/* Under the lock: give it bytes, and send its replies, as long as both go on: what was held back by its own replies
 * goes on when they have left. Returns how many bytes were taken. *sent: no reply waits. */
static int64_t run(struct conn *k, const uint8_t *data, int64_t len, bool *sent)
{
    int64_t done = 0;
    uint64_t waits;
    for (;;) {
        done += (int64_t)cl_resp_feed(k->client, data ? data + done : NULL, (uint64_t)(len - done));
        bool replies = cl_resp_out(k->client, &waits) != NULL;
        *sent = flush(k);
        if (!*sent || !replies || cl_resp_ends(k->client))
            return done;
    }
}

/* Under the lock: whether the connection is to be closed (1), reset (2), or stays (0). It is let go of then. */
static int ending(struct conn *k, bool sent)
{
    cl_resp_trace(&k->s->traced, &k->waits, k->client);
    int ends = cl_resp_ends(k->client);
    if (ends == 0 && k->eof)
        ends = 1;
    if (ends == 0 || (ends == 1 && !sent))
        return 0;
    let_go(k);
    return ends;
}

static int64_t drop_data(struct cl_tcp_conn *c, const uint8_t *data, int64_t len, void *arg)
{
    (void)c, (void)data, (void)arg;
    return len;
}

static void close_now(struct cl_tcp_conn *c, void *arg)
{
    (void)arg;
    cl_tcp_close(c);
}

static void on_ended(struct cl_tcp_conn *c, int error, void *arg);

static const struct cl_tcp_events leaving = {
    .data = drop_data, .eof = close_now, .timer = close_now, .ended = on_ended};

/* A FIN behind the last reply. What still comes is taken and thrown away for a while, as a reset might overtake the
 * reply (RFC 2525, section 2.17). */
static void finish(struct cl_tcp_conn *c, struct conn *k, int ends)
{
    if (ends == 2) {
        cl_tcp_abort(c);
    } else if (ends == 1 && k->eof) {
        cl_tcp_close(c);
    } else if (ends == 1) {
        cl_tcp_set_user(c, &leaving, k);
        cl_tcp_shutdown(c);
        cl_tcp_set_timer(c, LINGER_NS);
        cl_tcp_resume(c);
    }
}

static int64_t on_data(struct cl_tcp_conn *c, const uint8_t *data, int64_t len, void *arg)
{
    struct conn *k = arg;
    k->left = true;
    if (k->yields)
        return 0;
    bool sent = true, held = lock(k->s);
    int64_t took = k->client ? run(k, data, len, &sent) : len;
    int ends = k->client ? ending(k, sent) : 0;
    k->left = took < len;
    cl_count(&k->s->port.held_back, k->left);
    k->since += (uint32_t)took;
    k->yields = !ends && k->since >= TURN_BYTES && cl_tcp_wake(c) == 0;
    cl_count(&k->s->port.yields, k->yields);
    unlock(k->s, held);
    finish(c, k, ends);
    return ends ? len : took;
}

/* Go on: there is room to write, or somebody else has done something to the client. */
static void go_on(struct cl_tcp_conn *c, struct conn *k, bool woken)
{
    bool sent = true, held = lock(k->s);
    cl_count(&k->s->port.woken, woken && !k->yields);
    if (k->yields && woken) {
        k->yields = false;
        k->since = 0;
    }
    if (k->client) {
        (void)flush(k);
        run(k, NULL, 0, &sent);
    }
    int ends = k->client ? ending(k, sent) : k->cut;
    unlock(k->s, held);
    finish(c, k, ends);
    if (!ends && k->left)
        cl_tcp_resume(c);
}

static void on_writable(struct cl_tcp_conn *c, void *arg)
{
    go_on(c, arg, false);
}

static void on_woken(struct cl_tcp_conn *c, void *arg)
{
    go_on(c, arg, true);
}

static void on_eof(struct cl_tcp_conn *c, void *arg)
{
    struct conn *k = arg;
    k->eof = true;      /* its callbacks alone look at it */
    go_on(c, k, false); /* what was held back is still answered */
}

static void on_ended(struct cl_tcp_conn *c, int error, void *arg)
{
    struct conn *k = arg;
    (void)c, (void)error;
    bool held = lock(k->s);
    let_go(k);
    unlock(k->s, held);
    free(k);
}

static const struct cl_tcp_events events = {
    .data = on_data, .writable = on_writable, .eof = on_eof, .ended = on_ended, .woken = on_woken};

/* Under the lock. */
static void wake(void *arg)
{
    struct conn *k = arg;
    (void)cl_tcp_wake(k->c); /* not on a kthread: the runtime has stopped, and sends nothing any more */
}

static void address(char out[48], uint32_t ipv4, uint16_t port)
{
    snprintf(out, 48, "%u.%u.%u.%u:%u", ipv4 >> 24, ipv4 >> 16 & 255, ipv4 >> 8 & 255, ipv4 & 255, port);
}

static void refuse(struct cl_tcp_conn *c, struct conn *k)
{
    (void)cl_tcp_write(c, FULL, sizeof FULL - 1);
    finish(c, k, 1);
}

static void on_opened(struct cl_tcp_conn *c, void *arg)
{
    struct cl_resp_service *s = arg;
    struct conn *k = calloc(1, sizeof *k);
    char peer[48], own[48];
    uint32_t ipv4;
    uint16_t port, own_port;
    if (!k) {
        cl_tcp_abort(c);
        return;
    }
    cl_tcp_no_delay(c, true); /* replies are whole when they are written */
    cl_tcp_ends(c, &ipv4, &port, &own_port);
    address(peer, ipv4, port);
    address(own, s->ipv4, own_port);
    bool held = lock(s);
    *k = (struct conn){.s = s, .c = c, .client = cl_resp_connect(s->r, peer, own)};
    cl_count(k->client ? &s->port.accepted : &s->port.refused, 1);
    if (k->client) {
        cl_resp_on_wake(k->client, wake, k);
        k->next = s->conns;
        if (s->conns)
            s->conns->prev = k;
        s->conns = k;
    }
    unlock(s, held);
    if (k->client)
        cl_tcp_set_user(c, &events, k);
    else
        refuse(c, k);
}

static const struct cl_tcp_events arriving = {.opened = on_opened};

static int64_t tick(void *arg)
{
    struct cl_resp_service *s = arg;
    bool held = lock(s);
    (void)cl_resp_tick(s->r);
    unlock(s, held);
    return 0;
}

int cl_resp_serve(struct cl_runtime *rt, struct cl_resp *r, uint16_t port, uint32_t backlog, struct cl_log_shared *log,
                  uint32_t in_call, struct cl_resp_service **out, char err[256])
{
    const struct cl_every *every;
    struct cl_runtime_info info;
    struct cl_resp_service *s = calloc(1, sizeof *s);
    if (!s) {
        snprintf(err, 256, "out of memory");
        return -ENOMEM;
    }
    cl_runtime_info(rt, &info);
    *s = (struct cl_resp_service){
        .r = r,
        .traced = {.rt = rt, .port = port, .held_for = log ? CL_TRACE_WAITS_LOG : CL_TRACE_WAITS_COMMIT},
        .ipv4 = info.ipv4};
    int rc = log ? cl_resp_writer_new(rt, r, &s->lock, log, in_call != 0, &s->writer) : 0;
    if (rc) {
        snprintf(err, 256, "cannot start who writes the log: %s", strerror(-rc));
        free(s);
        return rc;
    }
    rc = cl_runtime_listen_tcp(rt, port, backlog, &arriving, s);
    if (rc) {
        snprintf(err, 256, "cannot serve TCP port %u: %s", port, strerror(-rc));
        if (!log) /* else its uthreads have it: the runtime is of no use any more */
            free(s);
        return rc;
    }
    rc = cl_runtime_every(rt, TICK_NS, tick, s, 0, &every);
    if (rc) { /* the port stays the service's: the runtime is of no use any more */
        snprintf(err, 256, "cannot start the clock of the engine: %s", strerror(-rc));
        return rc;
    }
    *out = s;
    return 0;
}

void cl_resp_service_after(struct cl_resp_service *s, void (*after)(void *arg), void *arg)
{
    s->after = after;
    s->after_arg = arg;
}

void cl_resp_service_become(struct cl_resp_service *s, struct cl_resp *r)
{
    for (struct conn *k; (k = s->conns);) {
        let_go(k);
        k->cut = true;
        (void)cl_tcp_wake(k->c);
    }
    s->r = r;
}

void cl_resp_service_delete(struct cl_resp_service *s)
{
    if (s)
        cl_resp_writer_delete(s->writer);
    free(s);
}

const struct cl_resp_writer_counts *cl_resp_service_writer(const struct cl_resp_service *s)
{
    return cl_resp_writer_counts(s->writer);
}

const struct cl_resp_port *cl_resp_service_port(const struct cl_resp_service *s)
{
    return &s->port;
}

/* Handlers of byte streams. See serve.h.
 *
 * A handler sees what waits of its connection in one piece. As a rule that is a frame, or a chunk, where it lies; only
 * what spans chunks is copied together, into memory that a kthread keeps for that. Its answer is written into a chunk
 * that becomes the last of the send buffer: nothing is copied, and it cannot be lost, for without a chunk, or without
 * room in the send buffer, the handler is not called. Then the connection asks to be told of room, and what has come
 * waits: a peer that does not read its answers is not read from. */
#include "serve.h"
#include "flows.h"
#include "machine.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FAILED (-2)

struct cl_tcp_serving {
    struct cl_udp_socket socket; /* no socket, but what cl_current_request and cl_runtime_stuck look at */
    struct cl_netif *nif;
    cl_tcp_handler fn;
    void *arg;
    uint32_t window;
    struct cl_tcp_serving *next; /* of the interface */
    uint8_t *spare[];            /* of each kthread: memory of `window` bytes, or NULL. Exchanged */
};

/* One call of the handler. */
struct outcome {
    int64_t took, answered; /* took FAILED: it is to be reset */
};

/* Say who is served, and that `socket` does it. Turns of connections are run by runners. */
static void open_request(const struct cl_tcp_conn *c, const struct cl_udp_socket *socket)
{
    struct cl_running *running = cl_runner_local();
    struct cl_udp_req *req = &running->req;
    uint16_t own_port;
    cl_tcp_ends(c, &req->peer.ipv4, &req->peer.port, &own_port);
    req->port = own_port;
    req->broadcast = req->faulted = req->looped = 0;
    req->rx_tsc = 0;
    req->room = 0; /* there is nothing for cl_udp_reply_more */
    req->rx = req->tx = (struct cl_frame){0};
    cl_store_relaxed(&req->socket, (struct cl_udp_socket *)(uintptr_t)socket);
}

void cl_tcp_handler_begin(struct cl_tcp_conn *c)
{
    static const struct cl_udp_socket none; /* of the event form there is no more to say */
    open_request(c, &none);
}

bool cl_tcp_handler_end(struct cl_tcp_conn *c)
{
    struct cl_running *running = cl_runner_local();
    cl_store_relaxed(&running->req.socket, NULL);
    c->turn->called(c->turn); /* it may have blocked, and this be another kthread */
    return running->req.faulted;
}

static struct outcome call(struct cl_tcp_conn *c, const struct cl_tcp_serving *sv, const uint8_t *data, int64_t len,
                           uint8_t *reply)
{
    open_request(c, &sv->socket);
    struct outcome o = {0, 0};
    o.took = sv->fn(data, len, reply, CL_CHUNK_ROOM, &o.answered, sv->arg);
    bool faulted = cl_tcp_handler_end(c);
    struct cl_netq *q = cl_netq_self(sv->nif);
    cl_count(&q->stats.handled, 1);
    if (faulted || o.took == CL_HANDLER_RAISED)
        cl_count(&q->stats.handler_faults, 1);
    if (faulted || o.took < -1 || o.took > len || o.answered < 0 || o.answered > CL_CHUNK_ROOM)
        return (struct outcome){FAILED, 0};
    cl_count(o.answered ? &q->stats.replied : &q->stats.unanswered, 1);
    return o;
}

static void fail(struct cl_tcp_conn *c, const struct cl_tcp_serving *sv)
{
    cl_count(&cl_netq_self(sv->nif)->stats.handler_errors, 1);
    cl_tcp_abort(c);
}

/* A chunk for an answer. NULL: there is no room, and `writable` will tell of it. */
static struct cl_chunk *room_for_answer(struct cl_tcp_conn *c)
{
    struct cl_chunk *chunk = cl_tcp_buffer_spare(c);
    if (!chunk && c->send.bytes + CL_CHUNK_ROOM <= c->send.limit)
        chunk = cl_tcp_chunk_for_bytes(c, CL_TCP_SEND);
    if (chunk)
        return chunk;
    c->flags |= CL_TCP_WANTS_ROOM;
    if (c->send.bytes == 0) /* no acknowledgement will tell */
        cl_tcp_set(c, CL_TCP_TIMER_SEND, CL_TCP_RETRY_NS);
    return NULL;
}

static void put_answer(struct cl_tcp_conn *c, struct cl_chunk *chunk, int64_t answered)
{
    chunk->from = 0;
    chunk->len = (uint16_t)answered;
    chunk->seq = cl_tcp_data_end(c);
    chunk->next = NULL;
    if (answered)
        cl_tcp_buffer_link(c, CL_TCP_SEND, chunk);
    else
        cl_tcp_chunks_free(c, CL_TCP_SEND, chunk);
}

/* Have it handled as far as it goes. Returns how many bytes were taken. *more: it waits for more of them, not for
 * room. */
static int64_t handle(struct cl_tcp_conn *c, const struct cl_tcp_serving *sv, const uint8_t *data, int64_t len,
                      bool *more)
{
    int64_t done = 0;
    *more = false;
    while (done < len) {
        struct cl_chunk *reply = room_for_answer(c);
        if (!reply)
            break;
        struct outcome o = call(c, sv, data + done, len - done, reply->data);
        put_answer(c, reply, o.answered);
        if (o.took == FAILED) {
            fail(c, sv);
            return len;
        }
        if (o.took < 0) { /* it is done: what waits is not refused, for a reset might overtake the answer */
            cl_tcp_close(c);
            return len;
        }
        if (o.took == 0) {
            *more = true;
            break;
        }
        done += o.took;
    }
    return done;
}

/* Memory for what spans chunks. */

static uint8_t *take_spare(struct cl_tcp_serving *sv)
{
    uint8_t *memory = cl_exchange(&sv->spare[cl_netq_self(sv->nif)->index], (uint8_t *)NULL);
    return memory ? memory : malloc(sv->window);
}

static void give_spare(struct cl_tcp_serving *sv, uint8_t *memory)
{
    free(cl_exchange(&sv->spare[cl_netq_self(sv->nif)->index], memory));
}

static void gather(const struct cl_tcp_conn *c, uint8_t *to, uint32_t n)
{
    for (const struct cl_chunk *chunk = c->receive.first; n; chunk = chunk->next) {
        uint32_t part = cl_min(n, (uint32_t)chunk->len);
        memcpy(to, chunk->bytes + chunk->from, part);
        to += part;
        n -= part;
    }
}

/* Of what waits, the first n bytes. Returns as `handle`. */
static int64_t handle_first(struct cl_tcp_conn *c, struct cl_tcp_serving *sv, uint32_t n, bool *more)
{
    const struct cl_chunk *first = c->receive.first;
    if (n <= first->len)
        return handle(c, sv, first->bytes + first->from, n, more);
    uint8_t *memory = take_spare(sv);
    if (!memory) {
        fail(c, sv);
        return n;
    }
    gather(c, memory, n);
    int64_t done = handle(c, sv, memory, n, more);
    give_spare(sv, memory);
    return done;
}

/* What waits is dropped by us, inside of `data`, which says that it has taken none: tell.c then looks at what
 * is left. */
static void handle_waiting(struct cl_tcp_conn *c, struct cl_tcp_serving *sv)
{
    bool more = false;
    while (c->receive.bytes && !more) {
        uint32_t waits = c->receive.bytes, n = cl_min(waits, sv->window);
        int64_t done = handle_first(c, sv, n, &more);
        bool closed = c->flags & CL_TCP_READ_SHUT;
        uint32_t drop = closed ? c->receive.bytes : (uint32_t)done;
        if (drop) {
            cl_tcp_buffer_drop(c, CL_TCP_RECEIVE, drop);
            cl_tcp_window_opened(c);
        }
        if (closed)
            return;
        if (done == 0 && (!more || n == sv->window || (c->flags & CL_TCP_FIN_CAME))) {
            if (more) /* nothing will complete it */
                fail(c, sv);
            return;
        }
        more = more && (n == waits || done == 0);
    }
    if (c->receive.bytes && more && (c->flags & CL_TCP_FIN_CAME) && !(c->flags & CL_TCP_READ_SHUT))
        fail(c, sv);
}

/* Events. */

static void on_opened(struct cl_tcp_conn *c, void *arg)
{
    (void)arg;
    cl_tcp_no_delay(c, true); /* an answer is whole when it is written */
}

static int64_t on_data(struct cl_tcp_conn *c, const uint8_t *data, int64_t len, void *arg)
{
    struct cl_tcp_serving *sv = arg;
    bool more;
    if (c->receive.bytes == 0) /* it lies in a frame */
        return handle(c, sv, data, len, &more);
    handle_waiting(c, sv);
    return 0;
}

static void on_writable(struct cl_tcp_conn *c, void *arg)
{
    (void)arg;
    cl_tcp_resume(c);
}

static void on_eof(struct cl_tcp_conn *c, void *arg)
{
    (void)arg;
    cl_tcp_close(c);
}

static const struct cl_tcp_events events = {
    .opened = on_opened, .data = on_data, .writable = on_writable, .eof = on_eof};

int cl_tcp_serve_on(struct cl_netif *nif, uint16_t port, uint32_t backlog, uint32_t window, cl_tcp_handler fn,
                    void *arg)
{
    if (!fn || window > CL_TCP_WINDOW_MOST)
        return -EINVAL;
    int rc = cl_tcp_ensure(nif);
    struct cl_tcp_serving *sv = rc ? NULL : calloc(1, sizeof *sv + nif->n_queues * sizeof sv->spare[0]);
    if (!sv)
        return rc ? rc : -ENOMEM;
    sv->nif = nif;
    sv->fn = fn;
    sv->arg = arg;
    sv->window = window ? window : CL_TCP_WINDOW;
    sv->socket = (struct cl_udp_socket){.port = port, .nif = nif};
    sv->socket.arg = arg;
    sv->socket.fn.plain = (cl_udp_handler)(uintptr_t)fn; /* for cl_runtime_stuck, which names it */
    if ((rc = cl_tcp_listen_on(nif, port, backlog, &events, sv))) {
        free(sv);
        return rc;
    }
    pthread_mutex_lock(&nif->types_lock);
    sv->next = nif->tcp->serving;
    nif->tcp->serving = sv;
    pthread_mutex_unlock(&nif->types_lock);
    return 0;
}

void cl_tcp_serving_delete(struct cl_tcp_serving *all)
{
    for (struct cl_tcp_serving *sv; (sv = all);) {
        all = sv->next;
        for (unsigned k = 0; k < sv->nif->n_queues; k++)
            free(sv->spare[k]);
        free(sv);
    }
}

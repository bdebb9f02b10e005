/* Handlers of byte streams that are called for many connections at once, on the kthread's own stack: callbacks into a
 * language run-time (corelane/libos/stream.h). On stream sockets: one uthread a port waits for all of its connections
 * in a poll set, looks at what those that are ready have, calls once, and then takes and writes what the handler has
 * said. So no connection is held while the handler waits for its interpreter.
 *
 * A client of which something may be there stands on the list. The set is told of edges: what has come after a look
 * puts the client on the list again. What did not fit into its send buffer is kept, up to a bound for all; until it has
 * gone the client is not looked at, so one that does not read its answers is not read from. */
#include "serve.h"
#include "sockets.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REST_MOST (64 << 20) /* bytes that are kept of answers, for all clients together: then one is reset */
#define STATE_CLOSE_WAIT 7   /* and those behind it: the peer's FIN has come */

struct client {
    struct cl_stream *s;
    struct cl_tcp_addr peer;
    uint64_t number;
    uint8_t *rest; /* of an answer */
    int64_t rest_bytes, rest_done;
    bool closes; /* once that has gone */
    bool listed;
    struct client *next;        /* on the list */
    struct client *after, **at; /* of all */
};

struct server {
    struct cl_netif *nif;
    struct cl_stream *listener;
    struct cl_poll *set;
    cl_tcp_burst_handler fn;
    void *arg;
    uint32_t window;
    char what[48]; /* of `doing` */
    struct cl_doing doing;
    uint64_t last_number;
    int64_t rest_bytes;                /* of all clients */
    struct client *all, *first, *last; /* the list */
    struct client *of[CL_TCP_ITEMS];   /* of the items */
    struct cl_tcp_item items[CL_TCP_ITEMS];
    unsigned n;
    uint8_t *memory; /* for data and reply of each item */
};

static void put_on_list(struct server *sv, struct client *client)
{
    if (client->listed)
        return;
    client->listed = true;
    client->next = NULL;
    *(sv->last ? &sv->last->next : &sv->first) = client;
    sv->last = client;
}

static struct client *take_off_list(struct server *sv)
{
    struct client *client = sv->first;
    sv->first = client->next;
    if (!sv->first)
        sv->last = NULL;
    client->listed = false;
    return client;
}

static void drop_rest(struct server *sv, struct client *client)
{
    if (client->rest)
        sv->rest_bytes -= client->rest_bytes;
    free(client->rest);
    client->rest = NULL;
}

/* It is in the hands of the caller, and not on the list. */
static void forget(struct server *sv, struct client *client, bool reset)
{
    (void)(reset ? cl_stream_abort(client->s) : cl_stream_close(client->s, 0));
    *client->at = client->after;
    if (client->after)
        client->after->at = client->at;
    drop_rest(sv, client);
    free(client);
}

static void welcome(struct server *sv, struct cl_stream *s)
{
    struct client *client = calloc(1, sizeof *client);
    if (!client ||
        cl_poll_add_stream(sv->set, s, CL_POLL_IN | CL_POLL_OUT, CL_POLL_EDGE, (uint64_t)(uintptr_t)client)) {
        free(client);
        (void)cl_stream_abort(s);
        return;
    }
    (void)cl_stream_set(s, CL_STREAM_NO_DELAY, 1);
    (void)cl_stream_ends(s, NULL, &client->peer);
    client->s = s;
    client->number = ++sv->last_number;
    client->after = sv->all;
    client->at = &sv->all;
    if (sv->all)
        sv->all->at = &client->after;
    sv->all = client;
}

/* Whether it may be asked more: the last answer has gone. */
static bool write_rest(struct server *sv, struct client *client)
{
    while (client->rest) {
        int64_t left = client->rest_bytes - client->rest_done;
        int64_t n = cl_stream_write(client->s, client->rest + client->rest_done, left, 0);
        if (n == -EAGAIN)
            return false;
        client->rest_done += n;
        if (n < 0 || n == left) /* over: the next look says so */
            drop_rest(sv, client);
    }
    return true;
}

/* False: there is no memory for what does not fit into its send buffer. */
static bool answer(struct server *sv, struct client *client, const uint8_t *data, int64_t len)
{
    int64_t n = cl_stream_write(client->s, data, len, 0);
    n = cl_max(n, (int64_t)0); /* an error comes again with the next look */
    if (n == len)
        return true;
    if (sv->rest_bytes + len > REST_MOST || !(client->rest = malloc((size_t)(len - n))))
        return false;
    memcpy(client->rest, data + n, (size_t)(len - n));
    client->rest_bytes = len - n;
    client->rest_done = 0;
    sv->rest_bytes += client->rest_bytes;
    return true;
}

/* Look at those on the list, and make items of what they have. */
static void look(struct server *sv)
{
    for (sv->n = 0; sv->first && sv->n < CL_TCP_ITEMS;) {
        struct client *client = take_off_list(sv);
        uint8_t *data = sv->memory + (size_t)sv->n * (sv->window + CL_TCP_ITEM_ROOM);
        if (!write_rest(sv, client))
            continue;
        if (client->closes) { /* what waits is not refused, for a reset might overtake the answer */
            while (cl_stream_read(client->s, data, sv->window, 0) > 0)
                ;
            forget(sv, client, false);
            continue;
        }
        int64_t len = cl_stream_peek(client->s, data, sv->window, 0);
        if (len == -EAGAIN)
            continue;
        sv->items[sv->n] = (struct cl_tcp_item){.data = data,
                                                .len = cl_max(len, (int64_t)0), /* 0: it is over */
                                                .reply = data + sv->window,
                                                .room = CL_TCP_ITEM_ROOM,
                                                .connection = client->number,
                                                .peer = client->peer};
        sv->of[sv->n++] = client;
    }
}

/* The handler has seen all that will ever come. If more has come since it looked, it looks again. */
static bool was_last(struct cl_stream *s, int64_t len)
{
    struct cl_tcp_info info;
    return cl_stream_info(s, &info) < 0 || (info.state >= STATE_CLOSE_WAIT && info.to_read == len);
}

/* What the handler has said of an item. False: it is to be reset. */
static bool settle(struct server *sv, struct client *client, struct cl_tcp_item *item)
{
    int64_t took = item->took;
    if (took < -1 || took > item->len || item->answered < 0 || item->answered > item->room)
        return false;
    if (item->answered && !answer(sv, client, item->reply, item->answered))
        return false;
    if (took == -1) {
        client->closes = true;
        took = item->len;
    }
    if (took > 0 && cl_stream_read(client->s, (uint8_t *)(uintptr_t)item->data, took, 0) != took)
        return client->closes; /* over meanwhile: the next look says so */
    if (took == 0 && (item->len == sv->window || was_last(client->s, item->len)))
        return false; /* nothing will complete it */
    if (took > 0)
        put_on_list(sv, client); /* there may be more */
    return true;
}

static void call_handler(void *arg)
{
    struct server *sv = arg;
    sv->fn(sv->items, sv->n, sv->arg);
}

static void handle(struct server *sv)
{
    if (sv->n == 0)
        return;
    cl_uthread_doing(&sv->doing);
    (void)cl_kthread_call(call_handler, sv);
    cl_uthread_doing(NULL);
    struct cl_netq *q = cl_netq_self(sv->nif);
    for (unsigned i = 0; i < sv->n; i++) {
        struct cl_tcp_item *item = &sv->items[i];
        struct client *client = sv->of[i];
        if (item->len == 0) {
            forget(sv, client, false);
            continue;
        }
        bool fine = settle(sv, client, item);
        q = cl_netq_self(sv->nif); /* a call on a socket may have slept */
        cl_count(&q->stats.handled, 1);
        cl_count(!fine ? &q->stats.handler_errors : item->answered ? &q->stats.replied : &q->stats.unanswered, 1);
        if (!fine)
            forget(sv, client, true);
    }
}

static void accept_all(struct server *sv)
{
    struct cl_stream *s;
    while (cl_stream_accept(sv->listener, 0, &s) == 0)
        welcome(sv, s);
}

static void delete (struct server *sv)
{
    cl_poll_delete(sv->set);
    free(sv->memory);
    free(sv);
}

static void serve(void *arg)
{
    struct server *sv = arg;
    struct cl_poll_event events[CL_TCP_ITEMS];
    int n;
    while ((n = cl_poll_wait(sv->set, events, CL_TCP_ITEMS, sv->first ? 0 : -1)) >= 0 &&
           !cl_load_acquire(&sv->nif->sockets_shut)) {
        for (int i = 0; i < n; i++) {
            if (events[i].data)
                put_on_list(sv, (struct client *)(uintptr_t)events[i].data);
            else
                accept_all(sv);
        }
        look(sv);
        handle(sv);
        if (sv->first)
            cl_uthread_yield();
    }
    while (sv->all)
        forget(sv, sv->all, false);
    (void)cl_stream_close(sv->listener, 0);
    delete (sv);
}

int cl_tcp_serve_bursts_on(struct cl_netif *nif, uint16_t port, uint32_t backlog, uint32_t window,
                           cl_tcp_burst_handler fn, void *arg)
{
    if (!fn || window > CL_TCP_WINDOW_MOST)
        return -EINVAL;
    struct server *sv = calloc(1, sizeof *sv);
    if (!sv)
        return -ENOMEM;
    sv->nif = nif;
    sv->fn = fn;
    sv->arg = arg;
    sv->window = window ? window : CL_TCP_WINDOW;
    snprintf(sv->what, sizeof sv->what, "the handler of TCP port %u", port);
    sv->doing = (struct cl_doing){.what = sv->what, .fn = (void *)(uintptr_t)fn, .arg = arg, .port = port};
    sv->memory = malloc((size_t)CL_TCP_ITEMS * (sv->window + CL_TCP_ITEM_ROOM));
    int rc = sv->memory ? cl_poll_open(nif, &sv->set) : -ENOMEM;
    if (rc == 0)
        rc = cl_streams_listen(nif, port, backlog, &sv->listener);
    if (rc == 0 && (rc = cl_poll_add_stream(sv->set, sv->listener, CL_POLL_IN, CL_POLL_LEVEL, 0)) == 0 &&
        (rc = cl_sched_spawn(nif->sched, serve, sv)) == 0)
        return 0;
    if (sv->listener)
        (void)cl_stream_close(sv->listener, 0);
    delete (sv);
    return rc;
}

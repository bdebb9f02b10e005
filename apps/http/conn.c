/* See conn.h. */
#include "conn.h"
#include "files.h"
#include "respond.h"

#include <stdlib.h>

#define CONTINUE "HTTP/1.1 100 Continue\r\n\r\n"
#define LINGER_BYTES (1u << 20) /* that are dropped at most */

static struct cl_http_counts *counts_of(const struct cl_http_conn *c)
{
    return &cl_http_here(c->service)->counts;
}

static void enter(struct cl_http_conn *c, enum cl_http_state state)
{
    c->state = (uint8_t)state;
    c->ticks = 0;
    c->moved = 0;
}

static bool passed(const struct cl_http_conn *c, uint32_t ms)
{
    return (uint64_t)c->ticks * c->service->options.tick_ms >= ms;
}

static void drop_exchange(struct cl_http_conn *c)
{
    if (c->now)
        cl_http_exchange_delete(c->now);
    c->now = NULL;
}

static void abort_now(struct cl_http_conn *c)
{
    enter(c, CL_HTTP_OVER);
    c->link->abort(c->wire);
}

static void close_now(struct cl_http_conn *c)
{
    enter(c, CL_HTTP_OVER);
    c->link->close(c->wire);
}

/* Answers. */

static void count_answer(struct cl_http_conn *c)
{
    struct cl_http_counts *n = counts_of(c);
    unsigned status = c->now->status;
    cl_count(&n->requests, 1);
    cl_count(status < 300   ? &n->ok
             : status < 400 ? &n->redirects
             : status < 500 ? &n->client_errors
                            : &n->server_errors,
             1);
    if (status == 304)
        cl_count(&n->not_modified, 1);
    else if (status == 206)
        cl_count(&n->partial, 1);
}

/* The answer has left. */
static void finish(struct cl_http_conn *c)
{
    bool closes = c->now->closes;
    drop_exchange(c);
    enter(c, CL_HTTP_IDLE);
    if (c->eof) {
        close_now(c);
    } else if (closes) {
        enter(c, CL_HTTP_LINGERS);
        c->link->shutdown(c->wire);
    }
}

/* Bytes of a file in memory are sent from there. A connection lends of one file at a time: of the next one, asked for
 * before the peer has acknowledged the one before, they are copied. */
static bool may_lend(const struct cl_http_conn *c)
{
    const struct cl_http_exchange *x = c->now;
    const struct cl_http_file *f = x->file;
    return c->link->lend && f && f->region && x->span_len >= CL_HTTP_LEND_LEAST && (!c->lent || c->lent == f) &&
           x->span >= f->data && x->span < f->data + f->size;
}

static int64_t lend(struct cl_http_conn *c)
{
    struct cl_http_exchange *x = c->now;
    int64_t n = c->link->lend(c->wire, x->file, (uint64_t)(x->span - x->file->data), (int64_t)x->span_len);
    if (n > 0) {
        if (!c->lent)
            c->lent = cl_http_file_get(x->file);
        c->lent_bytes += (uint64_t)n;
    }
    return n;
}

void cl_http_released(struct cl_http_conn *c, int64_t bytes)
{
    c->lent_bytes -= (uint64_t)bytes;
    if (c->lent_bytes)
        return;
    cl_http_file_put(c->lent);
    c->lent = NULL;
}

/* Write what there is room for. */
static void push(struct cl_http_conn *c)
{
    struct cl_http_exchange *x = c->now;
    for (;;) {
        if (x->span_len == 0) {
            int rc = x->next ? x->next(x) : CL_HTTP_END;
            if (rc == CL_HTTP_END) {
                finish(c);
                return;
            }
            if (rc == CL_HTTP_FAILED) {
                cl_count(&counts_of(c)->cut, 1);
                abort_now(c);
                return;
            }
        }
        int64_t n = may_lend(c) ? lend(c) : c->link->write(c->wire, x->span, (int64_t)x->span_len);
        if (n < 0) {
            enter(c, CL_HTTP_OVER);
            return;
        }
        cl_count(&counts_of(c)->bytes, (uint64_t)n);
        x->span += n;
        x->span_len -= (uint64_t)n;
        c->moved += (uint64_t)n;
        if (x->span_len)
            return;
    }
}

static void send_answer(struct cl_http_conn *c)
{
    enter(c, CL_HTTP_ANSWERS);
    count_answer(c);
    push(c);
}

/* Say what the head alone has earned. */
static void refuse_early(struct cl_http_exchange *x)
{
    if (x->route)
        cl_http_route_refuse(x, x->early);
    else
        cl_http_files_refuse(x, x->early);
}

/* Answer with an error, and end the connection: where the next request would begin is not known. */
static void refuse(struct cl_http_conn *c, int status)
{
    c->now->closes = true;
    c->now->next = NULL;
    if (status == c->now->early)
        refuse_early(c->now);
    else
        cl_http_refuse(c->now, status, status == 503 ? "Retry-After: 1\r\n" : NULL);
    send_answer(c);
}

static void answer(struct cl_http_conn *c)
{
    struct cl_http_exchange *x = c->now;
    if (x->early) {
        refuse_early(x);
    } else if (x->route) {
        x->around = &c->link->around;
        x->around_wire = c->wire;
        cl_http_handler_answer(x);
    } else {
        cl_http_files_answer(x);
    }
    send_answer(c);
}

/* Requests. */

static struct cl_http_exchange *exchange_of(struct cl_http_request *r)
{
    return cl_container_of(r, struct cl_http_exchange, request);
}

static int on_head(struct cl_http_request *r)
{
    struct cl_http_exchange *x = exchange_of(r);
    struct cl_http_service *s = x->service;
    x->closes = !r->keep_alive || cl_load_relaxed(&s->draining);
    x->early = cl_http_route(x);
    if (!x->route)
        x->early = cl_http_files_early(x);
    return r->expects ? x->early : 0; /* it is not told to go on, and whether its body comes then is not known */
}

static int on_body(struct cl_http_request *r, const uint8_t *data, uint32_t len)
{
    struct cl_http_exchange *x = exchange_of(r);
    if (x->wants_body)
        return cl_http_exchange_keep(x, data, len);
    x->body_len += len;
    return x->body_len > x->service->options.body_most ? 413 : 0;
}

static const struct cl_http_asks asks = {.head = on_head, .body = on_body};

static bool begin(struct cl_http_conn *c)
{
    c->now = cl_http_exchange_new(c->service);
    if (!c->now)
        return false;
    cl_http_request_begin(&c->now->request, &asks, &c->service->limits);
    enter(c, CL_HTTP_HEAD_STATE);
    c->requests++;
    return true;
}

/* The head has come, and the body has not: the client may wait to be told to go on (RFC 9110, section 10.1.1). */
static void body_goes_on(struct cl_http_conn *c)
{
    struct cl_http_request *r = &c->now->request;
    if (c->state != CL_HTTP_HEAD_STATE)
        return;
    enter(c, CL_HTTP_BODY_STATE);
    if (!r->expects)
        return;
    /* Without room it is not told: it goes on when it has waited long enough. */
    int64_t n = c->link->write(c->wire, CONTINUE, sizeof CONTINUE - 1);
    if (n && n < (int64_t)sizeof CONTINUE - 1)
        abort_now(c);
}

/* What of a request has come was read. */
static void look(struct cl_http_conn *c)
{
    struct cl_http_exchange *x = c->now;
    uint32_t most = c->service->options.requests;
    switch (x->request.stage) {
    case CL_HTTP_READS_BODY:
        body_goes_on(c);
        break;
    case CL_HTTP_WHOLE:
        x->closes |= c->eof || (most && c->requests >= most);
        answer(c);
        break;
    case CL_HTTP_REFUSED:
        refuse(c, x->request.status);
        break;
    default:
        break;
    }
}

static int64_t linger(struct cl_http_conn *c, int64_t len)
{
    c->moved += (uint64_t)len;
    if (c->state == CL_HTTP_LINGERS && c->moved > LINGER_BYTES)
        abort_now(c);
    return len;
}

int64_t cl_http_take(struct cl_http_conn *c, const uint8_t *data, int64_t len)
{
    int64_t done = 0;
    while (done < len && c->state != CL_HTTP_ANSWERS) {
        if (c->state >= CL_HTTP_LINGERS)
            return done + linger(c, len - done);
        if (!c->now) {
            if (done)
                cl_count(&counts_of(c)->pipelined, 1);
            if (!begin(c)) {
                abort_now(c);
                return len;
            }
        }
        int64_t n = cl_http_request_feed(&c->now->request, data + done, len - done);
        done += n;
        if (c->state == CL_HTTP_BODY_STATE)
            c->moved += (uint64_t)n;
        look(c);
    }
    return done;
}

bool cl_http_room(struct cl_http_conn *c)
{
    if (c->state == CL_HTTP_ANSWERS)
        push(c);
    return c->state != CL_HTTP_ANSWERS;
}

void cl_http_eof(struct cl_http_conn *c)
{
    c->eof = true;
    if (c->state == CL_HTTP_ANSWERS)
        return;
    if (c->state != CL_HTTP_OVER)
        close_now(c);
}

/* Time. */

/* Bodies and answers: so much has to move in each window. */
static void end_window(struct cl_http_conn *c)
{
    const struct cl_http_options *o = &c->service->options;
    if (!passed(c, o->window_ms))
        return;
    if (c->moved >= o->window_bytes) {
        enter(c, c->state);
    } else if (c->state == CL_HTTP_BODY_STATE) {
        cl_count(&counts_of(c)->slow_bodies, 1);
        refuse(c, 408);
    } else {
        cl_count(&counts_of(c)->slow_readers, 1);
        abort_now(c);
    }
}

void cl_http_tick(struct cl_http_conn *c)
{
    const struct cl_http_options *o = &c->service->options;
    c->ticks++;
    switch (c->state) {
    case CL_HTTP_IDLE:
        if (!passed(c, o->keep_alive_ms) && !cl_load_relaxed(&c->service->draining))
            return;
        cl_count(&counts_of(c)->idle, 1);
        close_now(c);
        break;
    case CL_HTTP_HEAD_STATE:
        if (!passed(c, o->head_ms))
            return;
        cl_count(&counts_of(c)->late_heads, 1);
        refuse(c, 408);
        break;
    case CL_HTTP_LINGERS:
        if (passed(c, o->linger_ms))
            close_now(c);
        break;
    case CL_HTTP_BODY_STATE:
    case CL_HTTP_ANSWERS:
        end_window(c);
        break;
    default:
        break;
    }
}

/* From the beginning to the end. */

struct cl_http_conn *cl_http_conn_new(struct cl_http_service *s, const struct cl_http_link *link, void *wire)
{
    struct cl_http_conn *c = NULL;
    bool room = __atomic_add_fetch(&s->alive, 1, __ATOMIC_RELAXED) <= s->options.connections;
    if (room && !cl_load_relaxed(&s->draining))
        c = calloc(1, sizeof *c);
    if (!c) {
        __atomic_sub_fetch(&s->alive, 1, __ATOMIC_RELAXED);
        cl_count(&cl_http_here(s)->counts.refused_connections, 1);
        return NULL;
    }
    c->link = link;
    c->wire = wire;
    c->service = s;
    cl_count(&counts_of(c)->opened, 1);
    return c;
}

void cl_http_conn_delete(struct cl_http_conn *c, bool failed)
{
    drop_exchange(c);
    cl_count(&counts_of(c)->ended, 1);
    if (failed)
        cl_count(&counts_of(c)->failed_connections, 1);
    __atomic_sub_fetch(&c->service->alive, 1, __ATOMIC_RELAXED);
    free(c);
}

/* Calling handlers, and what they answer. See handler.h. */
#include "handler.h"
#include "exchange.h"
#include "path.h"
#include "respond.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define FRAME 32 /* bytes around a chunk: its length in hexadecimal, and two ends of lines */

static const char *const method_names[CL_HTTP_METHODS] = {"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"};

static void drop_reply(struct cl_http_exchange *x)
{
    if (!x->reply)
        return;
    free(x->reply);
    cl_http_refund(x->service, x->reply_room);
    x->reply = NULL;
    x->reply_room = 0;
}

/* Memory for an answer, of the exchange. */
static uint8_t *make_room(struct cl_http_exchange *x, uint64_t bytes)
{
    drop_reply(x);
    if (!cl_http_charge(x->service, bytes))
        return NULL;
    x->reply = malloc(bytes ? bytes : 1);
    if (x->reply)
        x->reply_room = bytes;
    else
        cl_http_refund(x->service, bytes);
    return x->reply;
}

static void no_memory(struct cl_http_exchange *x)
{
    x->next = NULL;
    cl_http_refuse(x, 503, "Retry-After: 1\r\n");
}

static void fail(struct cl_http_exchange *x)
{
    cl_count(&cl_http_here(x->service)->counts.handler_errors, 1);
    x->next = NULL;
    cl_http_refuse(x, 500, NULL);
}

static int next_of_reply(struct cl_http_exchange *x)
{
    if (x->left == 0)
        return CL_HTTP_END;
    x->span = x->reply;
    x->span_len = x->left;
    x->left = 0;
    return CL_HTTP_SPAN;
}

/* Whether an answer with this status has a body (RFC 9110, section 6.4.1). */
static bool has_body(int status)
{
    return status >= 200 && status != 204 && status != 205 && status != 304;
}

/* The body lies in x->reply. */
static void answer_whole(struct cl_http_exchange *x, uint64_t len)
{
    bool body = has_body(x->status);
    cl_http_head_end(x, body ? len : x->status == 205 ? 0 : CL_HTTP_NO_LENGTH); /* 205 says so (RFC 9110, 15.3.6) */
    if (!body || x->request.method == CL_HTTP_HEAD || cl_http_head_with(x, x->reply, len))
        return;
    x->left = len;
    x->next = next_of_reply;
}

/* Compiled. */

static void call_compiled(struct cl_http_exchange *x)
{
    const struct cl_http_route *route = x->route;
    struct cl_http_text target = cl_http_target_origin(cl_http_target(&x->request));
    int64_t answered = 0;
    uint8_t *reply = make_room(x, route->room);
    if (!reply) {
        no_memory(x);
        return;
    }
    x->around->begin(x->around_wire);
    cl_uthread_doing(&route->doing);
    int64_t status =
        route->handler((const uint8_t *)target.at, target.len, x->body ? x->body : reply,
                       x->body ? (int64_t)x->body_len : 0, reply, (int64_t)route->room, &answered, route->arg);
    cl_uthread_doing(NULL);
    bool faulted = x->around->end(x->around_wire);
    if (faulted || status < 200 || status > 599 || answered < 0 || (uint64_t)answered > route->room) {
        fail(x);
        return;
    }
    cl_http_head_begin(x, (int)status);
    if (!cl_http_head_field(x, "Content-Type", route->type)) {
        fail(x);
        return;
    }
    answer_whole(x, (uint64_t)answered);
}

/* Foreign. */

struct call {
    struct cl_http_exchange *x;
    int op, rc;
};

static void call_it(void *arg)
{
    struct call *c = arg;
    const struct cl_http_route *route = c->x->route;
    c->rc = route->foreign(&c->x->call, c->op, route->arg);
}

static int call_foreign(struct cl_http_exchange *x, int op)
{
    struct call c = {.x = x, .op = op};
    cl_uthread_doing(&x->route->doing);
    if (cl_kthread_call(call_it, &c)) /* no uthread: the thread's own stack is large */
        call_it(&c);
    cl_uthread_doing(NULL);
    return c.rc;
}

static struct cl_http_exchange *exchange_of(struct cl_http_call *call)
{
    return cl_container_of(call, struct cl_http_exchange, call);
}

/* What only the server may say. */
static bool is_ours(const char *line, size_t name_len)
{
    static const char *const ours[] = {"content-length", "transfer-encoding", "connection", "date", "server"};
    struct cl_http_text name = {line, (uint32_t)name_len};
    for (unsigned i = 0; i < sizeof ours / sizeof *ours; i++)
        if (cl_http_is_any_case(name, (struct cl_http_text){ours[i], (uint32_t)strlen(ours[i])}))
            return true;
    return false;
}

static bool is_name(const char *at, size_t len)
{
    size_t n = 0;
    while (n < len && cl_http_is_token_char(at[n]))
        n++;
    return len && n == len;
}

/* Lines of a handler: each ends as it should, has a name, and says nothing of the framing. With a space in front of the
 * colon a name would be another one for us, and for who reads it perhaps not. */
static bool lines_are_right(const char *lines, uint64_t len)
{
    for (const char *end = lines + len; lines < end;) {
        const char *lf = memchr(lines, '\n', (size_t)(end - lines));
        if (!lf || lf - lines < 2 || lf[-1] != '\r' || memchr(lines, '\r', (size_t)(lf - 1 - lines)) ||
            memchr(lines, 0, (size_t)(lf - lines)))
            return false;
        const char *colon = memchr(lines, ':', (size_t)(lf - lines));
        if (!colon || !is_name(lines, (size_t)(colon - lines)) || is_ours(lines, (size_t)(colon - lines)))
            return false;
        lines = lf + 1;
    }
    return true;
}

/* A piece of a stream, framed if the peer knows chunks (RFC 9112, section 7.1). */
static int put_piece(struct cl_http_exchange *x, const uint8_t *data, uint64_t len)
{
    bool chunks = x->request.minor > 0;
    uint8_t *to = make_room(x, len + FRAME);
    if (!to)
        return -ENOMEM;
    int head = chunks ? snprintf((char *)to, FRAME, "%llx\r\n", (unsigned long long)len) : 0;
    memcpy(to + head, data, len);
    memcpy(to + head + len, "\r\n", 2);
    x->left = len ? (uint64_t)head + len + (chunks ? 2 : 0) : 0;
    return 0;
}

int cl_http_reply_piece(struct cl_http_call *call, const uint8_t *data, uint64_t len)
{
    return put_piece(exchange_of(call), data, len);
}

static int end_of_stream(struct cl_http_exchange *x)
{
    x->streams = false;
    x->next = NULL;
    if (x->request.minor == 0) /* the end of the connection is that of the answer */
        return CL_HTTP_END;
    x->span = (const uint8_t *)"0\r\n\r\n";
    x->span_len = 5;
    return CL_HTTP_SPAN;
}

static int next_of_stream(struct cl_http_exchange *x)
{
    int rc = next_of_reply(x);
    if (rc != CL_HTTP_END)
        return rc;
    if (call_foreign(x, CL_HTTP_CALL_NEXT) < 0) {
        x->streams = false;
        cl_count(&cl_http_here(x->service)->counts.handler_errors, 1);
        return CL_HTTP_FAILED;
    }
    rc = next_of_reply(x);
    return rc == CL_HTTP_END ? end_of_stream(x) : rc;
}

static int begin_stream(struct cl_http_exchange *x, const uint8_t *body, uint64_t len)
{
    if (x->request.minor == 0)
        x->closes = true;
    else
        (void)cl_http_head_field(x, "Transfer-Encoding", "chunked");
    cl_http_head_end(x, CL_HTTP_NO_LENGTH);
    x->next = x->request.method == CL_HTTP_HEAD ? NULL : next_of_stream;
    return len ? put_piece(x, body, len) : 0;
}

int cl_http_reply(struct cl_http_call *call, int status, const char *headers, uint64_t headers_len, const uint8_t *body,
                  uint64_t len, bool stream)
{
    struct cl_http_exchange *x = exchange_of(call);
    if (status < 200 || status > 599 || !lines_are_right(headers, headers_len))
        return -EINVAL;
    if (stream && x->request.minor == 0)
        x->closes = true;
    cl_http_head_begin(x, status);
    if (!cl_http_head_add(x, headers, headers_len))
        return -EINVAL;
    x->answered = true;
    x->streams = stream; /* one that has no body is ended, too */
    if (stream && has_body(status))
        return begin_stream(x, body, len);
    if (!make_room(x, len))
        return -ENOMEM;
    memcpy(x->reply, body, len);
    answer_whole(x, len);
    return 0;
}

static void describe(struct cl_http_exchange *x)
{
    const struct cl_http_request *r = &x->request;
    struct cl_http_text target = cl_http_target_origin(cl_http_target(r));
    uint32_t first = r->n ? r->header[0].name_at : 0;
    x->call = (struct cl_http_call){.method = method_names[r->method],
                                    .target = target.at,
                                    .target_len = target.len,
                                    .headers = r->bytes + first,
                                    .headers_len = r->n ? r->head_end - 2 - first : 0,
                                    .body = x->body,
                                    .body_len = x->body ? x->body_len : 0};
}

void cl_http_handler_answer(struct cl_http_exchange *x)
{
    if (x->route->handler) {
        call_compiled(x);
        return;
    }
    describe(x);
    x->answered = false;
    int rc = call_foreign(x, CL_HTTP_CALL_BEGIN);
    if (rc == -ENOMEM)
        no_memory(x);
    else if (rc < 0 || !x->answered)
        fail(x);
}

void cl_http_handler_end(struct cl_http_exchange *x)
{
    if (x->streams)
        (void)call_foreign(x, CL_HTTP_CALL_END);
    x->streams = false;
    drop_reply(x);
}

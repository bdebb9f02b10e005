/* See reply.h. */
#include "reply.h"
#include "durable.h"
#include "number.h"

#include <ctype.h>
#include <math.h>
#include <stdarg.h>

#define CHUNK_BYTES 4096
#define CHUNK_MOST 65536
#define HEADER_ROOM 32
#define ABORTED "EXECABORT Transaction discarded because of: "

void cl_client_wake(struct cl_resp_client *c)
{
    if (c == c->r->running || (c->flags & CL_RC_WOKEN))
        return;
    c->flags |= CL_RC_WOKEN;
    c->next_woken = c->r->woken;
    c->r->woken = c;
}

static struct cl_rchunk *add_chunk(struct cl_resp_client *c, uint32_t bytes)
{
    struct cl_rchunk *chunk = cl_rmem_new(&c->r->mem, bytes);
    *chunk = (struct cl_rchunk){.room = (uint32_t)(cl_rmem_round(bytes) - sizeof *chunk)};
    if (c->out.last)
        c->out.last->next = chunk;
    else
        c->out.first = chunk;
    c->out.last = chunk;
    return chunk;
}

static bool silent(const struct cl_resp_client *c)
{
    if (c->flags & CL_RC_CLOSE_NOW)
        return true;
    return (c->flags & (CL_RC_REPLY_OFF | CL_RC_REPLY_SKIP)) && !(c->flags & CL_RC_PUSHING);
}

/* A client that does not read: over the hard limit, or over the soft one for too long, it is cut off; and whoever has
 * much waiting while there is twice as much in use as may be. */
static void check_limits(struct cl_resp_client *c)
{
    if (c->r->unread > cl_resp_limit(c->r) / CL_RESP_OUT_PART)
        c->r->crowded = true;
    const struct cl_rconfig *f = &c->r->config;
    bool subscriber = c->n_channels + c->n_patterns || (c->flags & CL_RC_MONITOR);
    int64_t hard = subscriber ? f->pubsub_hard : f->normal_hard, soft = subscriber ? f->pubsub_soft : f->normal_soft;
    int64_t soft_s = subscriber ? f->pubsub_soft_s : f->normal_soft_s, waits = (int64_t)c->out.bytes;
    bool over = (hard && waits > hard) || c->r->mem.used > 2 * c->r->limit;
    if (soft && waits > soft) {
        if (!c->soft_since_ms)
            c->soft_since_ms = c->r->now_ms;
        over |= c->r->now_ms - c->soft_since_ms > soft_s * 1000;
    } else {
        c->soft_since_ms = 0;
    }
    if (!over)
        return;
    c->r->stats.pubsub_dropped++;
    c->flags |= CL_RC_CLOSE_NOW;
    if (c != c->r->running) /* else its command may still have to fill in a header: client.c drops them behind it */
        cl_reply_drop(c);
    cl_client_wake(c);
}

void cl_reply_raw(struct cl_resp_client *c, const void *p, uint64_t n)
{
    const uint8_t *from = p;
    if (silent(c))
        return;
    c->out.bytes += n;
    c->r->unread += n;
    while (n) {
        struct cl_rchunk *chunk = c->out.last;
        if (!chunk || chunk->len == chunk->room) /* with room for all of it if it is not too long */
            chunk =
                add_chunk(c, (uint32_t)cl_min(cl_max(n + sizeof *chunk, (uint64_t)CHUNK_BYTES), (uint64_t)CHUNK_MOST));
        uint32_t part = (uint32_t)cl_min(n, (uint64_t)(chunk->room - chunk->len));
        memcpy(chunk->data + chunk->len, from, part);
        chunk->len += part;
        from += part;
        n -= part;
    }
    cl_client_wake(c);
    if (cl_unlikely(c->out.bytes > CL_RESP_OUT_HIGH))
        check_limits(c);
}

void cl_reply_left(struct cl_resp *r, uint64_t n)
{
    r->unread -= n;
    if (cl_likely(!r->crowded) || r->unread > cl_resp_limit(r) / CL_RESP_OUT_PART / 2)
        return;
    r->crowded = false;
    for (struct cl_resp_client *c = r->clients; c; c = c->next)
        cl_client_wake(c);
}

void cl_reply_drop(struct cl_resp_client *c)
{
    cl_reply_left(c->r, c->out.bytes);
    for (struct cl_rchunk *chunk = c->out.first, *next; chunk; chunk = next) {
        next = chunk->next;
        cl_rmem_free(&c->r->mem, chunk, sizeof *chunk + chunk->room);
    }
    c->out = (struct cl_rchain){0};
    cl_rdurable_forget(c);
    c->held = (struct cl_rheld){0};
}

void cl_reply_line(struct cl_resp_client *c, const char *text)
{
    cl_reply_raw(c, text, strlen(text));
    cl_reply_raw(c, "\r\n", 2);
}

void cl_reply_status(struct cl_resp_client *c, const char *text)
{
    cl_reply_raw(c, "+", 1);
    cl_reply_line(c, text);
}

void cl_reply_ok(struct cl_resp_client *c)
{
    cl_reply_raw(c, "+OK\r\n", 5);
}

void cl_reply_error(struct cl_resp_client *c, const char *fmt, ...)
{
    char text[1024];
    const char *from = text;
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    n = cl_min(n, (int)sizeof text - 1);
    for (int i = 0; i < n; i++)
        if (text[i] == '\r' || text[i] == '\n')
            text[i] = ' ';
    c->flags |= CL_RC_FAILED;
    c->r->stats.errors++;
    cl_reply_raw(c, "-", 1);
    if (c->flags & CL_RC_ABORTS) {
        cl_reply_raw(c, ABORTED, sizeof ABORTED - 1);
        if (n > 4 && memcmp(text, "ERR ", 4) == 0) {
            from += 4;
            n -= 4;
        }
    }
    cl_reply_raw(c, from, (uint64_t)n);
    cl_reply_raw(c, "\r\n", 2);
}

static void header(struct cl_resp_client *c, char type, int64_t n)
{
    char text[HEADER_ROOM];
    unsigned len = cl_rnum_format(text + 1, n);
    text[0] = type;
    text[len + 1] = '\r';
    text[len + 2] = '\n';
    cl_reply_raw(c, text, len + 3);
}

void cl_reply_int(struct cl_resp_client *c, int64_t v)
{
    header(c, ':', v);
}

void cl_reply_bulk(struct cl_resp_client *c, const void *p, uint64_t n)
{
    header(c, '$', (int64_t)n);
    cl_reply_raw(c, p, n);
    cl_reply_raw(c, "\r\n", 2);
}

void cl_reply_slice(struct cl_resp_client *c, struct cl_slice s)
{
    cl_reply_bulk(c, s.p, s.len);
}

void cl_reply_text(struct cl_resp_client *c, const char *text)
{
    cl_reply_bulk(c, text, strlen(text));
}

void cl_reply_bulk_int(struct cl_resp_client *c, int64_t v)
{
    char text[CL_RNUM_ROOM];
    cl_reply_bulk(c, text, cl_rnum_format(text, v));
}

void cl_reply_null(struct cl_resp_client *c)
{
    cl_reply_raw(c, c->protocol == 3 ? "_\r\n" : "$-1\r\n", c->protocol == 3 ? 3 : 5);
}

void cl_reply_null_array(struct cl_resp_client *c)
{
    cl_reply_raw(c, c->protocol == 3 ? "_\r\n" : "*-1\r\n", c->protocol == 3 ? 3 : 5);
}

void cl_reply_array(struct cl_resp_client *c, int64_t n)
{
    header(c, '*', n);
}

void cl_reply_map(struct cl_resp_client *c, int64_t n)
{
    header(c, c->protocol == 3 ? '%' : '*', c->protocol == 3 ? n : 2 * n);
}

void cl_reply_set(struct cl_resp_client *c, int64_t n)
{
    header(c, c->protocol == 3 ? '~' : '*', n);
}

void cl_reply_push(struct cl_resp_client *c, int64_t n)
{
    header(c, c->protocol == 3 ? '>' : '*', n);
}

void cl_reply_double(struct cl_resp_client *c, double v)
{
    char text[CL_RNUM_DOUBLE_ROOM];
    unsigned n = cl_rnum_format_double(text, v);
    if (c->protocol != 3) {
        cl_reply_bulk(c, text, n);
        return;
    }
    cl_reply_raw(c, ",", 1);
    cl_reply_raw(c, text, n);
    cl_reply_raw(c, "\r\n", 2);
}

void cl_reply_big(struct cl_resp_client *c, const char *digits)
{
    if (c->protocol != 3) {
        cl_reply_text(c, digits);
        return;
    }
    cl_reply_raw(c, "(", 1);
    cl_reply_line(c, digits);
}

void cl_reply_bool(struct cl_resp_client *c, bool v)
{
    if (c->protocol == 3)
        cl_reply_raw(c, v ? "#t\r\n" : "#f\r\n", 4);
    else
        cl_reply_int(c, v);
}

void cl_reply_verbatim(struct cl_resp_client *c, const char *p, uint64_t n, const char *kind)
{
    if (c->protocol != 3) {
        cl_reply_bulk(c, p, n);
        return;
    }
    header(c, '=', (int64_t)n + 4);
    cl_reply_raw(c, kind, 3);
    cl_reply_raw(c, ":", 1);
    cl_reply_raw(c, p, n);
    cl_reply_raw(c, "\r\n", 2);
}

struct cl_rchunk *cl_reply_defer(struct cl_resp_client *c)
{
    if (silent(c))
        return NULL;
    struct cl_rchunk *at = add_chunk(c, sizeof *at + HEADER_ROOM);
    add_chunk(c, CHUNK_BYTES);
    return at;
}

void cl_reply_deferred(struct cl_resp_client *c, struct cl_rchunk *at, char type, int64_t n)
{
    if (!at)
        return;
    if (c->protocol != 3 && type == '%')
        n *= 2;
    if (c->protocol != 3)
        type = '*';
    at->data[0] = (uint8_t)type;
    unsigned len = cl_rnum_format((char *)at->data + 1, n);
    at->data[len + 1] = '\r';
    at->data[len + 2] = '\n';
    at->len = len + 3;
    c->out.bytes += at->len;
    c->r->unread += at->len;
}

void cl_reply_syntax(struct cl_resp_client *c)
{
    cl_reply_error(c, "ERR syntax error");
}

void cl_reply_wrong_type(struct cl_resp_client *c)
{
    cl_reply_error(c, "WRONGTYPE Operation against a key holding the wrong kind of value");
}

void cl_reply_not_integer(struct cl_resp_client *c)
{
    cl_reply_error(c, "ERR value is not an integer or out of range");
}

void cl_reply_wrong_part(struct cl_resp_client *c)
{
    char upper[64];
    snprintf(upper, sizeof upper, "%.*s", (int)cl_min(ARG(c, 0).len, 63u), ARG(c, 0).p);
    for (char *p = upper; *p; p++)
        *p = (char)toupper(*p);
    cl_reply_error(c, "ERR unknown subcommand or wrong number of arguments for '%.*s'. Try %s HELP.",
                   (int)cl_min(ARG(c, 1).len, 128u), ARG(c, 1).p, upper);
}

/* A connection: opening, sending, receiving, and how it ends; over whatever carries it (carrier.h), with TLS between or
 * without. What cannot be sent yet is kept in `out`: plain bytes until a handshake is over, what goes over the wire
 * from then on. */
#include "engine.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define IN_ROOM 16384u
#define IN_MOST (1u << 30) /* an answer that is longer is not read */
#define OUT_KEPT (1u << 20)

int cl_sockload_conn_init(struct cl_worker *w, struct cl_conn *c, uint32_t ring)
{
    (void)w;
    memset(c, 0, sizeof(*c));
    c->fd = -1;
    c->ring = calloc(ring, sizeof(*c->ring));
    c->in_room = IN_ROOM;
    c->in = malloc(c->in_room);
    return c->ring && c->in ? 0 : -ENOMEM;
}

void cl_sockload_conn_free(struct cl_conn *c)
{
    free(c->ring);
    free(c->in);
    free(c->out);
    memset(c, 0, sizeof(*c));
}

void cl_sockload_worker_explain(struct cl_worker *w, int error, const char *what, const char *why)
{
    w->error = w->connecting && !w->error ? error : w->error;
    if (w->connecting && !w->reason[0])
        snprintf(w->reason, sizeof(w->reason), "%s %s", what, why);
}

static int keep(struct cl_conn *c, const uint8_t *data, uint64_t n)
{
    if (c->out_len + n > c->out_room) {
        uint64_t room = cl_max(2ull * c->out_room, c->out_len + n);
        uint8_t *grown = room < IN_MOST ? realloc(c->out, room) : NULL;
        if (!grown)
            return -ENOMEM;
        c->out = grown;
        c->out_room = (uint32_t)room;
    }
    memcpy(c->out + c->out_len, data, n);
    c->out_len += (uint32_t)n;
    return 0;
}

static int want_room(struct cl_worker *w, struct cl_conn *c, bool wanted)
{
    if (c->wants_out == wanted)
        return 0;
    c->wants_out = wanted;
    return w->s->carrier->want_room(w, c, wanted);
}

static void forget_out(struct cl_conn *c)
{
    free(c->out);
    c->out = NULL;
    c->out_at = c->out_len = c->out_room = 0;
}

/* Send what was kept. */
static int flush(struct cl_worker *w, struct cl_conn *c)
{
    while (c->out_at < c->out_len) {
        int64_t n = w->s->carrier->send(w, c, c->out + c->out_at, c->out_len - c->out_at);
        if (n <= 0)
            return n < 0 ? (int)n : want_room(w, c, true);
        c->out_at += (uint32_t)n;
    }
    c->out_at = c->out_len = 0;
    if (c->out_room > OUT_KEPT) /* of a large value; the next may be small */
        forget_out(c);
    return want_room(w, c, false);
}

/* Send bytes as they go over the wire, behind those that wait: now as far as they go, and keep the rest. */
static int carry(struct cl_worker *w, struct cl_conn *c, const uint8_t *data, uint64_t n)
{
    if (c->out_len)
        return keep(c, data, n);
    int64_t sent = w->s->carrier->send(w, c, data, n);
    if (sent < 0 || (uint64_t)sent == n)
        return sent < 0 ? (int)sent : 0;
    int rc = keep(c, data + sent, n - (uint64_t)sent);
    return rc ? rc : want_room(w, c, true);
}

static int carry_tls(struct cl_worker *w, struct cl_conn *c)
{
    uint8_t *data;
    int64_t n = cl_tls_out(c->tls, &data);
    int rc = n ? carry(w, c, data, (uint64_t)n) : 0;
    cl_tls_sent(c->tls);
    return rc;
}

static int encrypt(struct cl_worker *w, struct cl_conn *c, const uint8_t *data, uint64_t n)
{
    return cl_tls_write(c->tls, data, (int64_t)n) < 0 ? -EPROTO : carry_tls(w, c);
}

static int send_kept(struct cl_worker *w, struct cl_conn *c)
{
    if (!c->tls || !c->out_len)
        return flush(w, c);
    uint8_t *plain = c->out;
    uint32_t n = c->out_len;
    c->out = NULL;
    forget_out(c);
    int rc = encrypt(w, c, plain, n);
    free(plain);
    return rc ? rc : flush(w, c);
}

/* It can be written to: the greeting leaves before all else. */
static int ready(struct cl_worker *w, struct cl_conn *c)
{
    c->greetings = w->s->greeting ? w->s->config.greeting_replies : 0;
    c->state = c->greetings ? CL_CONN_GREETING : CL_CONN_READY;
    cl_count(&w->open, !c->greetings);
    return send_kept(w, c);
}

/* A step of the handshake. What it sends is short, and the first that the connection sends: it is taken whole. */
static int shake(struct cl_worker *w, struct cl_conn *c)
{
    uint8_t *data;
    int rc = cl_tls_shake(c->tls);
    if (rc < 0)
        cl_sockload_worker_explain(w, -EPROTO, "TLS:", cl_tls_why(c->tls));
    int64_t n = cl_tls_out(c->tls, &data), sent = n ? w->s->carrier->send(w, c, data, (uint64_t)n) : 0;
    cl_tls_sent(c->tls);
    if (rc < 0 || sent != n)
        return rc < 0 ? rc : -EIO;
    return rc == 1 ? ready(w, c) : 0;
}

static int established(struct cl_worker *w, struct cl_conn *c)
{
    if (!c->tls)
        return ready(w, c);
    c->state = CL_CONN_SHAKING;
    int rc = shake(w, c);
    return rc ? rc : want_room(w, c, false);
}

static int begin(struct cl_worker *w, struct cl_conn *c)
{
    const struct cl_sockload *s = w->s;
    if (s->tls && !(c->tls = cl_tls_new(s->tls, s->tls_host)))
        return -ENOMEM;
    if (s->greeting && keep(c, (const uint8_t *)s->greeting, strlen(s->greeting)))
        return -ENOMEM;
    int rc = s->carrier->open(w, c);
    c->wants_out = rc == -EINPROGRESS;
    return c->wants_out ? 0 : rc ? rc : established(w, c);
}

int cl_sockload_conn_open(struct cl_worker *w, struct cl_conn *c)
{
    c->state = CL_CONN_OPENING;
    int rc = begin(w, c);
    if (rc)
        cl_sockload_conn_close(w, c);
    return rc;
}

void cl_sockload_conn_close(struct cl_worker *w, struct cl_conn *c)
{
    w->s->carrier->close(w, c);
    cl_tls_delete(c->tls);
    c->tls = NULL;
    if (c->state == CL_CONN_READY)
        cl_count(&w->open, (uint64_t)-1);
    c->state = CL_CONN_CLOSED;
    c->wants_out = c->last = false;
    c->in_at = c->in_len = c->out_at = c->out_len = c->need = 0;
}

int cl_sockload_conn_writable(struct cl_worker *w, struct cl_conn *c)
{
    if (c->state == CL_CONN_OPENING) {
        int rc = w->s->carrier->opened(w, c);
        return rc == -EINPROGRESS ? 0 : rc ? rc : established(w, c);
    }
    return c->state == CL_CONN_SHAKING ? 0 : flush(w, c);
}

int cl_sockload_conn_send(struct cl_worker *w, struct cl_conn *c, const uint8_t *data, uint64_t n)
{
    if (c->state == CL_CONN_OPENING || c->state == CL_CONN_SHAKING)
        return keep(c, data, n);
    return c->tls ? encrypt(w, c, data, n) : carry(w, c, data, n);
}

/* Room for at least as much as the answer needs, or a good read. */
static int make_room(struct cl_conn *c)
{
    if (c->in_at == c->in_len)
        c->in_at = c->in_len = 0;
    uint32_t have = c->in_len - c->in_at;
    uint64_t want = cl_max((uint64_t)c->need, (uint64_t)have + IN_ROOM / 4);
    if (c->in_at && c->in_room - c->in_len < IN_ROOM / 4) {
        memmove(c->in, c->in + c->in_at, have);
        c->in_at = 0;
        c->in_len = have;
    }
    if (want <= c->in_room - c->in_at)
        return 0;
    uint64_t room = cl_max(2ull * c->in_room, want + c->in_at);
    uint8_t *grown = room < IN_MOST ? realloc(c->in, room) : NULL;
    if (!grown)
        return -EMSGSIZE;
    c->in = grown;
    c->in_room = (uint32_t)room;
    return 0;
}

/* A stream that ends without the session's end was cut, if something was to come (RFC 8446, section 6.1). */
static int64_t decrypt(struct cl_worker *w, struct cl_conn *c, bool more)
{
    for (;;) {
        int64_t n = -EAGAIN;
        if (cl_tls_is_open(c->tls))
            n = cl_tls_read(c->tls, c->in + c->in_len, c->in_room - c->in_len);
        if (n != -EAGAIN || !more)
            return n;
        n = w->s->carrier->receive(w, c, w->wire, CL_SOCKLOAD_WIRE_ROOM);
        if (n <= 0)
            return n || !c->outstanding ? n : -ECONNRESET;
        int rc = cl_tls_put(c->tls, w->wire, n);
        if (!rc && !cl_tls_is_open(c->tls))
            rc = shake(w, c);
        if (rc)
            return rc;
    }
}

int64_t cl_sockload_conn_receive(struct cl_worker *w, struct cl_conn *c, bool more)
{
    int rc = make_room(c);
    if (rc)
        return rc;
    int64_t n = -EAGAIN;
    if (c->tls)
        n = decrypt(w, c, more);
    else if (more)
        n = w->s->carrier->receive(w, c, c->in + c->in_len, c->in_room - c->in_len);
    if (n > 0) {
        c->in_len += (uint32_t)n;
        w->counts.bytes_in += (uint64_t)n;
    }
    return n;
}

int cl_sockload_conn_greeted(struct cl_conn *c)
{
    while (c->greetings) {
        const uint8_t *from = c->in + c->in_at, *end = memchr(from, '\n', c->in_len - c->in_at);
        if (!end)
            return 0;
        if (*from != '+')
            return -EPROTO;
        c->in_at = (uint32_t)(end + 1 - c->in);
        c->greetings--;
    }
    return 1;
}

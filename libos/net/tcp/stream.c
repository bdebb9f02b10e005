/* The calls of a stream socket that has a connection: opening, reading, writing, ending (corelane/libos/stream.h). */
#include "sockets.h"
#include "flows.h"
#include "machine.h"

#include <errno.h>
#include <string.h>

/* Opening. */

static void made(struct cl_tcp_conn *c, void *arg)
{
    struct cl_stream *s = arg;
    s->conn = c;
    cl_stream_note_ends(s, cl_tcp_flow(c));
}

/* Wait until it is open. Under the guard. */
static int wait_open(struct cl_stream *s, int64_t timeout_ns)
{
    struct cl_stream_until until = cl_stream_until(s, timeout_ns);
    int rc = 0;
    while (rc == 0 && !(s->told & (CL_STREAM_OPENED | CL_STREAM_OVER)))
        rc = s->told & CL_STREAM_CLOSED ? -EBADF : cl_stream_wait(s, CL_STREAM_OUT, CL_TRACE_WAITS_CONNECT, &until);
    if (rc == -EAGAIN)
        return -EINPROGRESS;
    return rc || (s->told & CL_STREAM_OPENED) ? rc : cl_stream_why(s, -ECONNABORTED);
}

int cl_streams_connect(struct cl_netif *nif, const struct cl_tcp_addr *from, const struct cl_tcp_addr *to,
                       int64_t timeout_ns, struct cl_stream **out)
{
    struct cl_streams *all;
    if (!cl_netq_self(nif))
        return -EPERM;
    int rc = cl_streams_ensure(nif, &all);
    struct cl_stream *s = rc ? NULL : cl_stream_new(all, CL_STREAM_CONNECTION, NULL, 3); /* the user, it, this call */
    if (!s)
        return rc ? rc : -EMFILE;
    rc = cl_tcp_open_from(nif, from, to, &cl_stream_events, s, made);
    cl_spin_lock(s->guard);
    if (rc) {
        cl_stream_unref(s, 3);
        return rc;
    }
    rc = wait_open(s, timeout_ns);
    if (rc == 0 || rc == -EINPROGRESS) {
        *out = s;
        cl_stream_leave(s);
        return rc;
    }
    cl_stream_end(s, CL_STREAM_ABORTS);
    cl_spin_lock(s->guard);
    cl_stream_unref(s, 2);
    return rc;
}

int cl_stream_wait_open(struct cl_stream *s, int64_t timeout_ns)
{
    int rc = cl_stream_enter(s, CL_STREAM_CONNECTION);
    if (rc)
        return rc;
    rc = wait_open(s, timeout_ns);
    cl_stream_leave(s);
    return rc;
}

int cl_stream_error(struct cl_stream *s)
{
    int rc = 0;
    cl_spin_lock(s->guard);
    if (s->kind == CL_STREAM_FREE || (s->told & CL_STREAM_CLOSED))
        rc = -EBADF;
    else if (s->told & CL_STREAM_OVER)
        rc = cl_stream_why(s, 0);
    else if (s->kind == CL_STREAM_CONNECTION && !(s->told & CL_STREAM_OPENED))
        rc = -EINPROGRESS;
    cl_spin_unlock(s->guard);
    return rc;
}

/* Reading and writing. */

struct transfer {
    struct cl_visit visit; /* first */
    const struct cl_iovec *vec;
    int64_t n, done; /* pieces; bytes that were taken before */
    int64_t room;    /* of a read: bytes in all */
    bool peek;
    /* Without a copy. */
    struct cl_lease *lease;
    struct cl_region *region;
    int64_t offset, len;
};

/* Bytes of all pieces; -EINVAL. */
static int64_t length_of(const struct cl_iovec *vec, int64_t n)
{
    int64_t sum = 0;
    if (n < 0 || n > CL_STREAM_VECTORS)
        return -EINVAL;
    for (int64_t i = 0; i < n; i++)
        if (vec[i].len < 0 || __builtin_add_overflow(sum, vec[i].len, &sum))
            return -EINVAL;
    return sum;
}

static int64_t peek(const struct cl_tcp_conn *c, uint8_t *to, int64_t room)
{
    int64_t done = 0;
    for (const struct cl_chunk *chunk = c->receive.first; chunk && done < room; chunk = chunk->next) {
        int64_t n = cl_min(room - done, (int64_t)chunk->len);
        memcpy(to + done, chunk->bytes + chunk->from, (size_t)n);
        done += n;
    }
    return done;
}

static void take(struct transfer *t, struct cl_tcp_conn *c)
{
    t->visit.result = 0;
    for (int64_t i = 0; i < t->n && c->receive.bytes; i++) {
        const struct cl_iovec *to = &t->vec[i];
        t->visit.result += t->peek ? peek(c, to->base, to->len) : cl_tcp_read(c, to->base, to->len);
    }
}

static void read_now(struct cl_visit *v, struct cl_tcp_conn *c)
{
    take((struct transfer *)v, c);
    if (c->receive.bytes == 0)
        cl_stream_clear(v->s, CL_STREAM_DATA);
}

static bool read_quietly(struct cl_visit *v, struct cl_tcp_conn *c)
{
    struct transfer *t = (struct transfer *)v;
    if (!cl_tcp_reads_quietly(c, t->room))
        return false;
    take(t, c);
    if (c->receive.bytes == 0)
        cl_store_relaxed(&v->s->told, v->s->told & ~(uint32_t)CL_STREAM_DATA);
    return true;
}

static void lease_now(struct cl_visit *v, struct cl_tcp_conn *c)
{
    struct transfer *t = (struct transfer *)v;
    int rc = cl_tcp_lease(c, t->lease);
    v->result = rc == -EAGAIN ? 0 : rc ? rc : t->lease->len;
    if (c->receive.bytes == 0)
        cl_stream_clear(v->s, CL_STREAM_DATA);
}

static void write_from_now(struct cl_visit *v, struct cl_tcp_conn *c)
{
    struct transfer *t = (struct transfer *)v;
    int64_t left = t->len - t->done;
    v->result = cl_tcp_write_from(c, t->region, t->offset + t->done, left);
    if (v->result >= 0 && v->result < left)
        cl_stream_clear(v->s, CL_STREAM_ROOM);
}

static void write_now(struct cl_visit *v, struct cl_tcp_conn *c)
{
    struct transfer *t = (struct transfer *)v;
    int64_t skip = t->done;
    v->result = 0;
    for (int64_t i = 0; i < t->n; i++) {
        int64_t len = t->vec[i].len, took;
        if (skip >= len) {
            skip -= len;
            continue;
        }
        took = cl_tcp_write(c, (const uint8_t *)t->vec[i].base + skip, len - skip);
        if (took < 0) {
            v->result = v->result ? v->result : took;
            return;
        }
        v->result += took;
        if (took < len - skip) {
            cl_stream_clear(v->s, CL_STREAM_ROOM);
            return;
        }
        skip = 0;
    }
}

/* A visit for one that may give up at once: somebody works on the connection, so there is nothing yet. */
static int visit(struct transfer *t, struct cl_stream *s, const struct cl_stream_until *until)
{
    int rc = cl_stream_visit(s, &t->visit);
    return rc == -EDEADLK && until->timeout_ns == 0 ? -EAGAIN : rc;
}

/* One step of a read. Under the guard. > 0: bytes; 0 with *over: no more come; 0: look again. */
static int64_t read_step(struct transfer *t, struct cl_stream *s, const struct cl_stream_until *until, bool *over)
{
    int rc;
    if (s->told & CL_STREAM_CLOSED)
        return -EBADF;
    *over = s->told & CL_STREAM_READ_OFF;
    if (*over)
        return 0;
    if ((s->told & (CL_STREAM_DATA | CL_STREAM_EOF)) == CL_STREAM_EOF) { /* all was read: no error can change that */
        *over = true;
        return 0;
    }
    if (s->told & CL_STREAM_OVER) {
        *over = true;
        return cl_stream_why(s, 0);
    }
    if (!(s->told & CL_STREAM_DATA))
        return cl_stream_wait(s, CL_STREAM_IN, CL_TRACE_WAITS_READ, until);
    rc = visit(t, s, until);
    return rc == 0 ? t->visit.result : rc == -ENOTCONN ? 0 : rc;
}

static int64_t read_as(struct transfer *t, struct cl_stream *s, bool over, int64_t timeout_ns)
{
    struct cl_stream_until until = cl_stream_until(s, timeout_ns);
    int64_t rc = cl_stream_enter(s, CL_STREAM_CONNECTION);
    if (rc)
        return rc;
    while (rc == 0 && !over)
        rc = read_step(t, s, &until, &over);
    cl_stream_leave(s);
    return rc;
}

static int64_t read_into(struct cl_stream *s, const struct cl_iovec *vec, int64_t n, bool peek, int64_t timeout_ns)
{
    int64_t sum = length_of(vec, n);
    struct transfer t = {
        .visit.fn = read_now, .visit.quietly = read_quietly, .vec = vec, .n = n, .room = sum, .peek = peek};
    return sum < 0 ? sum : read_as(&t, s, sum == 0, timeout_ns);
}

int cl_stream_lease(struct cl_stream *s, struct cl_lease *out, int64_t timeout_ns)
{
    struct transfer t = {.visit.fn = lease_now, .lease = out};
    *out = (struct cl_lease){0};
    int64_t rc = read_as(&t, s, false, timeout_ns);
    return rc < 0 ? (int)rc : 0;
}

/* One step of a write. Under the guard. > 0: bytes; 0: look again. */
static int64_t write_step(struct transfer *t, struct cl_stream *s, const struct cl_stream_until *until)
{
    int rc;
    if (s->told & CL_STREAM_CLOSED)
        return -EBADF;
    if (s->told & CL_STREAM_OVER)
        return cl_stream_why(s, -EPIPE);
    if (s->told & CL_STREAM_WRITE_OFF)
        return -EPIPE;
    if (!(s->told & CL_STREAM_ROOM))
        return cl_stream_wait(s, CL_STREAM_OUT, CL_TRACE_WAITS_WRITE, until);
    rc = visit(t, s, until);
    return rc == 0 ? t->visit.result : rc == -ENOTCONN ? 0 : rc;
}

/* All `sum` bytes of it. */
static int64_t write_as(struct transfer *t, struct cl_stream *s, int64_t sum, int64_t timeout_ns)
{
    struct cl_stream_until until = cl_stream_until(s, timeout_ns);
    int64_t rc = cl_stream_enter(s, CL_STREAM_CONNECTION);
    if (rc)
        return rc;
    while (t->done < sum && (rc = write_step(t, s, &until)) >= 0)
        t->done += rc;
    if (t->region)
        s->lent += t->done;
    cl_stream_leave(s);
    return t->done || rc >= 0 ? t->done : rc;
}

int64_t cl_stream_writev(struct cl_stream *s, const struct cl_iovec *from, int64_t n, int64_t timeout_ns)
{
    struct transfer t = {.visit.fn = write_now, .vec = from, .n = n};
    int64_t sum = length_of(from, n);
    return sum < 0 ? sum : write_as(&t, s, sum, timeout_ns);
}

static void write_more_now(struct cl_visit *v, struct cl_tcp_conn *c)
{
    write_now(v, c);
    cl_tcp_more(c);
}

int64_t cl_stream_writev_more(struct cl_stream *s, const struct cl_iovec *from, int64_t n, int64_t timeout_ns)
{
    struct transfer t = {.visit.fn = write_more_now, .vec = from, .n = n};
    int64_t sum = length_of(from, n);
    return sum < 0 ? sum : write_as(&t, s, sum, timeout_ns);
}

int64_t cl_stream_write_from(struct cl_stream *s, struct cl_region *region, int64_t offset, int64_t len,
                             int64_t timeout_ns)
{
    struct transfer t = {.visit.fn = write_from_now, .region = region, .offset = offset, .len = len};
    return !cl_region_has(region, offset, len) ? -EINVAL : write_as(&t, s, len, timeout_ns);
}

int cl_stream_wait_released(struct cl_stream *s, int64_t bytes, int64_t timeout_ns)
{
    struct cl_stream_until until = cl_stream_until(s, timeout_ns);
    int rc = cl_stream_enter(s, CL_STREAM_CONNECTION);
    if (rc)
        return rc;
    bytes = bytes < 0 ? s->lent : bytes;
    while (rc == 0 && s->released < bytes && !(s->told & (CL_STREAM_OVER | CL_STREAM_CLOSED)))
        rc = cl_stream_wait(s, CL_STREAM_OUT, CL_TRACE_WAITS_WRITE, &until);
    if (rc == 0 && s->told & CL_STREAM_CLOSED)
        rc = -EBADF;
    else if (rc == 0 && s->told & CL_STREAM_OVER)
        rc = cl_stream_why(s, 0);
    cl_stream_leave(s);
    return rc;
}

int64_t cl_stream_released(struct cl_stream *s)
{
    int64_t bytes = -EBADF;
    cl_spin_lock(s->guard);
    if (s->kind == CL_STREAM_CONNECTION && !(s->told & CL_STREAM_CLOSED)) {
        cl_store_relaxed(&s->told, s->told & ~(uint32_t)CL_STREAM_RELEASED);
        bytes = s->released;
    }
    cl_spin_unlock(s->guard);
    return bytes;
}

int64_t cl_stream_write(struct cl_stream *s, const void *data, int64_t len, int64_t timeout_ns)
{
    struct cl_iovec from = {(void *)(uintptr_t)data, len};
    return cl_stream_writev(s, &from, 1, timeout_ns);
}

int64_t cl_stream_readv(struct cl_stream *s, const struct cl_iovec *to, int64_t n, int64_t timeout_ns)
{
    return read_into(s, to, n, false, timeout_ns);
}

int64_t cl_stream_read(struct cl_stream *s, void *data, int64_t room, int64_t timeout_ns)
{
    struct cl_iovec to = {data, room};
    return read_into(s, &to, 1, false, timeout_ns);
}

int64_t cl_stream_peek(struct cl_stream *s, void *data, int64_t room, int64_t timeout_ns)
{
    struct cl_iovec to = {data, room};
    return read_into(s, &to, 1, true, timeout_ns);
}

/* Ending. */

static void shut_now(struct cl_visit *v, struct cl_tcp_conn *c)
{
    v->result = 0;
    cl_tcp_shutdown(c);
}

static void shut_and_reset_now(struct cl_visit *v, struct cl_tcp_conn *c)
{
    shut_now(v, c);
    c->deaf = true;
}

static int shut_what_comes(struct cl_stream *listener)
{
    int rc = cl_stream_enter(listener, CL_STREAM_LISTENER);
    if (rc)
        return rc;
    listener->options.shut = true;
    cl_stream_leave(listener);
    return 0;
}

int cl_stream_shutdown(struct cl_stream *s, int sides)
{
    struct cl_visit v = {.fn = sides & CL_STREAM_RESET ? shut_and_reset_now : shut_now};
    uint32_t bits = sides & CL_STREAM_READ ? CL_STREAM_READ_OFF : 0;
    if (sides < CL_STREAM_READ || sides > (CL_STREAM_READ | CL_STREAM_WRITE | CL_STREAM_RESET))
        return -EINVAL;
    sides |= sides & CL_STREAM_RESET ? CL_STREAM_WRITE : 0;
    if (sides == CL_STREAM_WRITE && cl_load_acquire(&s->kind) == CL_STREAM_LISTENER)
        return shut_what_comes(s);
    int rc = cl_stream_enter(s, CL_STREAM_CONNECTION);
    if (rc)
        return rc;
    if ((s->told & (CL_STREAM_OPENED | CL_STREAM_OVER)) != CL_STREAM_OPENED)
        rc = -ENOTCONN;
    else if (sides & CL_STREAM_WRITE)
        rc = cl_stream_visit(s, &v);
    if (rc == 0) {
        bits |= sides & CL_STREAM_WRITE ? CL_STREAM_WRITE_OFF : 0;
        cl_stream_tell(s, bits);
        cl_spin_lock(s->guard);
    }
    cl_stream_leave(s);
    return rc;
}

/* All is acknowledged, or it has ended, or the time is over. Under the guard. */
static int linger(struct cl_stream *s, int64_t linger_ns)
{
    struct cl_stream_until until = cl_stream_until(s, linger_ns);
    int rc = 0;
    while (rc == 0 && !(s->told & (CL_STREAM_FLUSHED | CL_STREAM_OVER)))
        rc = cl_stream_wait(s, CL_STREAM_OUT, CL_TRACE_WAITS_WRITE, &until);
    return rc || !(s->told & CL_STREAM_OVER) ? rc : cl_stream_why(s, 0);
}

/* Under the guard, which is let go: the user has no more to do with it. */
static int close_connection(struct cl_stream *s, enum cl_stream_ending how, int64_t linger_ns)
{
    int rc = 0;
    s->refs++;
    cl_stream_end(s, how);
    cl_spin_lock(s->guard);
    if (how == CL_STREAM_LINGERS) {
        rc = linger(s, linger_ns);
        cl_stream_end(s, CL_STREAM_CLOSES);
        cl_spin_lock(s->guard);
    }
    cl_stream_unref(s, 2);
    return rc;
}

static int close_as(struct cl_stream *s, enum cl_stream_ending how, int64_t linger_ns)
{
    if (!cl_netq_self(s->nif) && cl_netif_running(s->nif))
        return -EPERM;
    cl_spin_lock(s->guard);
    if (s->kind == CL_STREAM_FREE || (s->told & CL_STREAM_CLOSED)) {
        cl_spin_unlock(s->guard);
        return -EBADF;
    }
    return s->kind == CL_STREAM_LISTENER ? cl_stream_close_listener(s) : close_connection(s, how, linger_ns);
}

int cl_stream_close(struct cl_stream *s, int64_t linger_ns)
{
    return close_as(s, linger_ns ? CL_STREAM_LINGERS : CL_STREAM_CLOSES, linger_ns);
}

int cl_stream_abort(struct cl_stream *s)
{
    return close_as(s, CL_STREAM_ABORTS, 0);
}

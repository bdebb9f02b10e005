/* Stream sockets: visits to connections, the user's end, and what connections tell. See sockets.h. */
#include "sockets.h"
#include "flows.h"

#include <corelane/libos/scope.h>

#include <errno.h>

/* Visits. */

static struct cl_visit *take_visits(struct cl_stream *s)
{
    struct cl_visit *all = s->visits;
    cl_store_relaxed(&s->visits, NULL);
    s->last = NULL;
    return all;
}

static void put_visit(struct cl_stream *s, struct cl_visit *v)
{
    if (s->last)
        s->last->next = v;
    else
        cl_store_relaxed(&s->visits, v);
    s->last = v;
}

/* Take a visit back. False: someone has taken it to run it. */
static bool withdraw(struct cl_stream *s, struct cl_visit *v)
{
    struct cl_visit *before = NULL, *at = s->visits;
    while (at && at != v) {
        before = at;
        at = at->next;
    }
    if (!at)
        return false;
    if (before)
        before->next = v->next;
    else
        cl_store_release(&s->visits, v->next); /* release: who finds none finds gave_up */
    if (s->last == v)
        s->last = before;
    return true;
}

static void fail_visits(struct cl_visit *all)
{
    for (struct cl_visit *v = all, *next; v; v = next) {
        next = v->next; /* before it may go */
        v->s = NULL;
        cl_sem_post(&v->done);
    }
}

static int wait_done(struct cl_stream *s, struct cl_visit *v)
{
    cl_shield_enter(); /* v is the caller's; and one who is cancelled still closes what he has opened */
    int rc = cl_sem_wait(&v->done);
    cl_shield_leave();
    if (rc == 0)
        return 0;
    cl_spin_lock(s->guard);
    cl_store_relaxed(&s->gave_up, true);
    bool back = withdraw(s, v);
    cl_spin_unlock(s->guard);
    while (!back && cl_sem_trywait(&v->done)) /* another kthread is in the middle of it */
        cl_relax();
    return back ? -EDEADLK : 0;
}

static bool run_quietly(struct cl_tcp_conn *c, void *arg)
{
    struct cl_visit *v = arg;
    return v->quietly(v, c);
}

static void run_own(struct cl_tcp_conn *c, void *arg)
{
    struct cl_visit *v = arg;
    v->fn(v, c);
}

int cl_stream_visit(struct cl_stream *s, struct cl_visit *v)
{
    struct cl_tcp_conn *c = s->conn;
    int rc = 0;
    if (!c)
        return -ENOTCONN;
    v->s = s;
    if (cl_likely(cl_tcp_try_hold(c))) {
        if (v->quietly && cl_tcp_quietly(c, run_quietly, v))
            return 0;
        cl_spin_unlock(s->guard);
        cl_tcp_visit(c, run_own, v);
        cl_spin_lock(s->guard);
        return 0;
    }
    v->next = NULL;
    cl_sem_init(&v->done, 0);
    put_visit(s, v); /* before we look whether somebody works on it: the turn that he has then, or has next, finds it */
    if (cl_tcp_hold(c)) {
        (void)withdraw(s, v);
        cl_spin_unlock(s->guard);
        cl_tcp_visit(c, run_own, v);
    } else {
        cl_spin_unlock(s->guard);
        rc = wait_done(s, v);
    }
    cl_spin_lock(s->guard);
    return rc ? rc : v->s ? 0 : -ENOTCONN;
}

static void run_visits(struct cl_stream *s, struct cl_tcp_conn *c)
{
    cl_spin_lock(s->guard);
    struct cl_visit *v = take_visits(s);
    struct cl_poll *set = s->gave_up ? cl_pollable_notify(&s->watch) : NULL; /* an edge has led him here */
    if (s->gave_up && s->told_fn)
        s->told_fn(s->told_arg);
    cl_store_relaxed(&s->gave_up, false);
    cl_spin_unlock(s->guard);
    cl_poll_tell(set);
    for (struct cl_visit *next; v; v = next) {
        next = v->next;
        v->fn(v, c);
        cl_sem_post(&v->done);
    }
}

/* The end. */

/* In a turn: the connection goes on without its socket. */
static void let_go(struct cl_stream *s, struct cl_tcp_conn *c)
{
    cl_tcp_set_user(c, NULL, NULL);
    cl_spin_lock(s->guard);
    s->conn = NULL;
    struct cl_visit *left = take_visits(s);
    cl_stream_unref(s, 1);
    fail_visits(left);
}

/* In a turn: what the user's end asks for. */
static void end(struct cl_stream *s, struct cl_tcp_conn *c)
{
    uint32_t how = cl_load_relaxed(&s->ending); /* set under the guard, before this turn began */
    cl_store_relaxed(&s->ending, CL_STREAM_STAYS);
    if (how == CL_STREAM_ABORTS)
        cl_tcp_abort(c);
    else
        cl_tcp_close(c);
    if (how == CL_STREAM_LINGERS)
        s->lingers = true;
    else
        let_go(s, c);
}

/* In a turn: all that was written is acknowledged, and the FIN. */
static void look_at_fin(struct cl_stream *s, const struct cl_tcp_conn *c)
{
    if (!(c->flags & CL_TCP_FIN_OUT) || c->una != c->nxt)
        return;
    s->lingers = false;
    cl_spin_lock(s->guard);
    cl_stream_tell(s, CL_STREAM_FLUSHED);
}

static void end_own(struct cl_tcp_conn *c, void *arg)
{
    struct cl_stream *s = arg;
    if (!cl_load_relaxed(&s->ending))
        return;
    end(s, c);
    if (c->arg == s && s->lingers)
        look_at_fin(s, c);
}

void cl_streams_turn(struct cl_tcp_conn *c)
{
    struct cl_stream *s = c->arg; /* which lives: the connection has a reference, and lets go of it in a turn */
    /* Whoever has put one there for this turn to see has been in the bucket's lock before us. Acquire: see withdraw. */
    if (cl_load_acquire(&s->visits) || cl_unlikely(cl_load_relaxed(&s->gave_up)))
        run_visits(s, c);
    if (cl_unlikely(cl_load_relaxed(&s->ending)))
        end(s, c);
    if (c->arg == s && cl_unlikely(s->lingers))
        look_at_fin(s, c);
}

void cl_stream_end(struct cl_stream *s, enum cl_stream_ending how)
{
    struct cl_tcp_conn *c = s->conn;
    cl_pollable_remove(&s->watch);
    s->told_fn = NULL;
    if (c)
        cl_store_relaxed(&s->ending, (uint32_t)how);
    bool ours = c && cl_tcp_hold(c);
    cl_stream_tell(s, CL_STREAM_CLOSED);
    if (ours)
        cl_tcp_visit(c, end_own, s);
}

/* What connections tell. */

void cl_stream_note_ends(struct cl_stream *s, const struct cl_flow *flow)
{
    const struct cl_flow_key *key = &flow->key;
    s->ends[0] = (struct cl_tcp_addr){cl_be32(key->own_be), cl_be16(key->own_port_be), 0};
    s->ends[1] = (struct cl_tcp_addr){cl_be32(key->peer_be), cl_be16(key->peer_port_be), 0};
}

static void on_opened(struct cl_tcp_conn *c, void *arg)
{
    struct cl_stream *s = arg;
    c->flags |= CL_TCP_ANSWERED_LATER;
    cl_spin_lock(s->guard);
    cl_stream_tell(s, CL_STREAM_OPENED | CL_STREAM_ROOM);
}

/* What has come waits, for cl_tcp_read. */
static int64_t on_data(struct cl_tcp_conn *c, const uint8_t *data, int64_t len, void *arg)
{
    struct cl_stream *s = arg;
    (void)data, (void)len;
    cl_spin_lock(s->guard);
    cl_stream_tell(s, c->flags & CL_TCP_FIN_CAME ? CL_STREAM_DATA | CL_STREAM_LAST : CL_STREAM_DATA);
    return 0;
}

static void on_writable(struct cl_tcp_conn *c, void *arg)
{
    struct cl_stream *s = arg;
    (void)c;
    cl_spin_lock(s->guard);
    cl_stream_tell(s, CL_STREAM_ROOM);
}

static void on_released(struct cl_tcp_conn *c, int64_t bytes, void *arg)
{
    struct cl_stream *s = arg;
    (void)c;
    cl_spin_lock(s->guard);
    s->released += bytes;
    cl_stream_tell(s, CL_STREAM_RELEASED);
}

static void on_eof(struct cl_tcp_conn *c, void *arg)
{
    struct cl_stream *s = arg;
    (void)c;
    cl_spin_lock(s->guard);
    cl_stream_tell(s, CL_STREAM_EOF);
}

static void on_ended(struct cl_tcp_conn *c, int error, void *arg)
{
    struct cl_stream *s = arg;
    (void)c;
    uint32_t refs = 1 + cl_stream_unqueue(s); /* which nobody accepts any more */
    cl_spin_lock(s->guard);
    s->conn = NULL;
    cl_store_relaxed(&s->error, error);
    struct cl_visit *left = take_visits(s);
    cl_stream_tell(s, CL_STREAM_OVER);
    fail_visits(left);
    cl_spin_lock(s->guard);
    cl_stream_unref(s, refs);
}

const struct cl_tcp_events cl_stream_events = {.opened = on_opened,
                                               .data = on_data,
                                               .writable = on_writable,
                                               .eof = on_eof,
                                               .ended = on_ended,
                                               .released = on_released};

/* Options, ends and numbers of stream sockets (corelane/libos/stream.h). */
#include "sockets.h"
#include "flows.h"
#include "machine.h"

#include <errno.h>

#define KEEP_MOST_S 32767 /* as Linux has it (include/net/tcp.h) */
#define KEEP_MOST_PROBES 127

struct question {
    struct cl_visit visit; /* first */
    int option;
    int64_t value;
    const struct cl_tcp_cc_ops *cc;
    struct cl_tcp_info *info;
};

static int check(int option, int64_t value)
{
    switch (option) {
    case CL_STREAM_NO_DELAY:
    case CL_STREAM_KEEP_ALIVE:
    case CL_STREAM_KEEP_FRAMES:
    case CL_STREAM_CORK:
        return value == 0 || value == 1 ? 0 : -EINVAL;
    case CL_STREAM_KEEP_IDLE_S:
    case CL_STREAM_KEEP_INTERVAL_S:
        return value >= 1 && value <= KEEP_MOST_S ? 0 : -EINVAL;
    case CL_STREAM_KEEP_PROBES:
        return value >= 1 && value <= KEEP_MOST_PROBES ? 0 : -EINVAL;
    case CL_STREAM_SEND_BUFFER:
    case CL_STREAM_RECEIVE_BUFFER:
        return value >= CL_STREAM_BUFFER_LEAST && value <= CL_STREAM_BUFFER_MOST ? 0 : -EINVAL;
    case CL_STREAM_USER_TIMEOUT_MS:
        return value >= 0 && value <= INT32_MAX ? 0 : -EINVAL;
    default:
        return -ENOPROTOOPT;
    }
}

/* In a turn. */

static int apply_keep(struct cl_tcp_conn *c, int option, uint32_t value)
{
    const struct cl_tcp_settings *s = c->settings;
    return cl_tcp_keep_times(c, option == CL_STREAM_KEEP_IDLE_S ? value * 1000 : s->keep_idle_ms,
                             option == CL_STREAM_KEEP_INTERVAL_S ? value * 1000 : s->keep_interval_ms,
                             option == CL_STREAM_KEEP_PROBES ? value : s->keep_probes);
}

/* 0, or -errno. */
static int apply(struct cl_tcp_conn *c, int option, int64_t value)
{
    switch (option) {
    case CL_STREAM_NO_DELAY:
        cl_tcp_no_delay(c, value);
        break;
    case CL_STREAM_KEEP_ALIVE:
        cl_tcp_keep_alive(c, value);
        break;
    case CL_STREAM_KEEP_FRAMES:
        cl_tcp_keep_frames(c, value);
        break;
    case CL_STREAM_CORK:
        cl_tcp_cork(c, value);
        break;
    case CL_STREAM_SEND_BUFFER:
        c->send.limit = (uint32_t)value;
        break;
    case CL_STREAM_RECEIVE_BUFFER:
        c->receive.limit = (uint32_t)value;
        cl_tcp_window_opened(c);
        break;
    case CL_STREAM_KEEP_IDLE_S:
    case CL_STREAM_KEEP_INTERVAL_S:
    case CL_STREAM_KEEP_PROBES:
        return apply_keep(c, option, (uint32_t)value);
    default:
        c->user_timeout_ms = (uint32_t)value;
    }
    return 0;
}

/* DCTCP goes by marks, and there are none where ECN was not agreed. */
static bool fits_path(const struct cl_tcp_conn *c, const struct cl_tcp_cc_ops *cc)
{
    return cc != &cl_tcp_dctcp || (c->marks & CL_TCP_MARKS_ECN);
}

static bool is_large(int option)
{
    return option >= CL_STREAM_SEND_BUFFER && option < CL_STREAM_SEND_BUFFER + CL_STREAM_LARGE_OPTIONS;
}

static int place_of(int option)
{
    return option < CL_STREAM_SEND_BUFFER
               ? option
               : option - (is_large(option) ? CL_STREAM_SEND_BUFFER : CL_STREAM_LARGE_OPTIONS);
}

static void put(struct cl_stream_options *o, int option, int64_t value)
{
    o->set |= (uint16_t)(1u << option);
    if (is_large(option))
        o->large[place_of(option)] = (int32_t)value;
    else
        o->small[place_of(option)] = (int16_t)value;
}

static int64_t handed_on(const struct cl_stream_options *o, int option)
{
    return is_large(option) ? o->large[place_of(option)] : o->small[place_of(option)];
}

void cl_stream_apply(const struct cl_stream_options *o, struct cl_tcp_conn *c)
{
    for (int option = 0; option < CL_STREAM_OPTIONS; option++)
        if (o->set & 1u << option)
            (void)apply(c, option,
                        handed_on(o, option)); /* as many have times of their own as may: then it has the others' */
    if (o->shut)
        cl_tcp_shutdown(c);
    if (o->cc && fits_path(c, o->cc))
        cl_tcp_cc_choose(&c->cc, o->cc);
}

static int64_t value_of(const struct cl_tcp_conn *c, int option)
{
    switch (option) {
    case CL_STREAM_NO_DELAY:
        return !!(c->flags & CL_TCP_NO_DELAY);
    case CL_STREAM_KEEP_ALIVE:
        return !!(c->flags & CL_TCP_KEEP_ALIVE);
    case CL_STREAM_KEEP_FRAMES:
        return !!(c->flags & CL_TCP_KEEP_FRAMES);
    case CL_STREAM_CORK:
        return !!(c->flags & CL_TCP_CORK);
    case CL_STREAM_KEEP_IDLE_S:
        return c->settings->keep_idle_ms / 1000;
    case CL_STREAM_KEEP_INTERVAL_S:
        return c->settings->keep_interval_ms / 1000;
    case CL_STREAM_KEEP_PROBES:
        return c->settings->keep_probes;
    case CL_STREAM_SEND_BUFFER:
        return c->send.limit;
    case CL_STREAM_RECEIVE_BUFFER:
        return c->receive.limit;
    default:
        return c->user_timeout_ms;
    }
}

int cl_tcp_set_option(struct cl_tcp_conn *c, int option, int64_t value)
{
    int rc = check(option, value);
    return rc ? rc : apply(c, option, value);
}

int64_t cl_tcp_option(const struct cl_tcp_conn *c, int option)
{
    return option < 0 || option >= CL_STREAM_OPTIONS ? -ENOPROTOOPT : value_of(c, option);
}

static void set_now(struct cl_visit *v, struct cl_tcp_conn *c)
{
    struct question *q = (struct question *)v;
    int rc = apply(c, q->option, q->value);
    v->result = rc ? rc : c->send.limit > c->send.bytes && c->state >= CL_TCP_ESTABLISHED;
}

/* What holds small segments back, while there are none: the others may open windows, or set timers. */
static bool set_quietly(struct cl_visit *v, struct cl_tcp_conn *c)
{
    struct question *q = (struct question *)v;
    if ((q->option != CL_STREAM_NO_DELAY && q->option != CL_STREAM_CORK) || !cl_tcp_has_left(c))
        return false;
    v->result = apply(c, q->option, q->value);
    return true;
}

static void get_now(struct cl_visit *v, struct cl_tcp_conn *c)
{
    v->result = value_of(c, ((struct question *)v)->option);
}

static bool get_quietly(struct cl_visit *v, struct cl_tcp_conn *c)
{
    v->fn(v, c);
    return true;
}

static void set_cc_now(struct cl_visit *v, struct cl_tcp_conn *c)
{
    const struct cl_tcp_cc_ops *cc = ((struct question *)v)->cc;
    v->result = fits_path(c, cc) ? 0 : -EOPNOTSUPP;
    if (v->result == 0)
        cl_tcp_cc_choose(&c->cc, cc);
}

static void get_cc_now(struct cl_visit *v, struct cl_tcp_conn *c)
{
    ((struct question *)v)->cc = cl_tcp_cc_ops(&c->cc);
    v->result = 0;
}

static void info_now(struct cl_visit *v, struct cl_tcp_conn *c)
{
    cl_tcp_get_info(c, ((struct question *)v)->info);
    v->result = 0;
}

/* On a uthread. */

static bool listens(const struct cl_stream *s)
{
    return cl_load_acquire(&s->kind) == CL_STREAM_LISTENER;
}

/* Ask a connection. */
static int64_t ask(struct cl_stream *s, struct question *q)
{
    int rc = cl_stream_enter(s, CL_STREAM_CONNECTION);
    if (rc)
        return rc;
    rc = cl_stream_visit(s, &q->visit);
    if (rc == 0 && q->visit.fn == set_now && q->option == CL_STREAM_SEND_BUFFER && q->visit.result) {
        cl_stream_tell(s, CL_STREAM_ROOM); /* a larger buffer has some */
        cl_spin_lock(s->guard);
    }
    cl_stream_leave(s);
    return rc ? rc : q->visit.result;
}

int cl_stream_set(struct cl_stream *s, int option, int64_t value)
{
    struct question q = {.visit.fn = set_now, .visit.quietly = set_quietly, .option = option, .value = value};
    int rc = check(option, value);
    if (rc)
        return rc;
    if (!listens(s)) {
        int64_t set = ask(s, &q);
        return set < 0 ? (int)set : 0;
    }
    if ((rc = cl_stream_enter(s, CL_STREAM_LISTENER)))
        return rc;
    put(&s->options, option, value);
    cl_stream_leave(s);
    return 0;
}

static int64_t default_of(struct cl_stream *s, int option)
{
    const struct cl_tcp_settings *settings = cl_tcp_default_settings(s->nif);
    switch (option) {
    case CL_STREAM_SEND_BUFFER:
        return settings->send_limit;
    case CL_STREAM_RECEIVE_BUFFER:
        return settings->receive_limit;
    case CL_STREAM_USER_TIMEOUT_MS:
        return settings->user_timeout_ms;
    case CL_STREAM_KEEP_IDLE_S:
        return settings->keep_idle_ms / 1000;
    case CL_STREAM_KEEP_INTERVAL_S:
        return settings->keep_interval_ms / 1000;
    case CL_STREAM_KEEP_PROBES:
        return settings->keep_probes;
    default:
        return 0;
    }
}

int64_t cl_stream_get(struct cl_stream *s, int option)
{
    struct question q = {.visit.fn = get_now, .visit.quietly = get_quietly, .option = option};
    if (option < 0 || option >= CL_STREAM_OPTIONS)
        return -ENOPROTOOPT;
    if (!listens(s))
        return ask(s, &q);
    int64_t rc = cl_stream_enter(s, CL_STREAM_LISTENER);
    if (rc)
        return rc;
    rc = s->options.set & 1u << option ? handed_on(&s->options, option) : default_of(s, option);
    cl_stream_leave(s);
    return rc;
}

int cl_stream_set_congestion(struct cl_stream *s, const char *name)
{
    struct question q = {.visit.fn = set_cc_now, .cc = cl_tcp_cc_find(name)};
    if (!q.cc)
        return -ENOENT;
    if (!listens(s))
        return (int)ask(s, &q);
    int rc = cl_stream_enter(s, CL_STREAM_LISTENER);
    if (rc)
        return rc;
    s->options.cc = q.cc;
    cl_stream_leave(s);
    return 0;
}

const char *cl_stream_congestion(struct cl_stream *s)
{
    struct question q = {.visit.fn = get_cc_now, .visit.quietly = get_quietly};
    if (!listens(s))
        return ask(s, &q) ? NULL : q.cc->name;
    if (cl_stream_enter(s, CL_STREAM_LISTENER))
        return NULL;
    q.cc = s->options.cc;
    cl_stream_leave(s);
    return q.cc ? q.cc->name : NULL;
}

int cl_stream_info(struct cl_stream *s, struct cl_tcp_info *out)
{
    struct question q = {.visit.fn = info_now, .visit.quietly = get_quietly, .info = out};
    return (int)ask(s, &q);
}

int cl_stream_ends(struct cl_stream *s, struct cl_tcp_addr *own, struct cl_tcp_addr *peer)
{
    static const struct cl_tcp_addr nobody;
    cl_spin_lock(s->guard);
    bool listener = s->kind == CL_STREAM_LISTENER, open = s->kind != CL_STREAM_FREE && !(s->told & CL_STREAM_CLOSED);
    if (open && own)
        *own = listener ? (struct cl_tcp_addr){0, s->port->number, 0} : s->ends[0];
    if (open && peer)
        *peer = listener ? nobody : s->ends[1];
    cl_spin_unlock(s->guard);
    return open ? 0 : -EBADF;
}

/* See outside_stream.h. */
#include "outside_stream.h"
#include "internal.h"
#include "net/tcp/sockets.h"

#include <errno.h>

struct errand {
    struct cl_runtime *rt;
    struct cl_stream_call *call;
    struct cl_stream *kept; /* it is not made anew meanwhile */
};

static void let_go(struct errand *e)
{
    if (!e->kept)
        return;
    cl_spin_lock(e->kept->guard);
    cl_stream_leave(e->kept);
    e->kept = NULL;
}

static int64_t transfer(struct cl_stream_call *c)
{
    switch (c->what) {
    case CL_STREAM_DO_READ:
        return cl_stream_read(c->s, c->data, c->len, c->timeout_ns);
    case CL_STREAM_DO_PEEK:
        return cl_stream_peek(c->s, c->data, c->len, c->timeout_ns);
    case CL_STREAM_DO_WRITE:
        return cl_stream_write(c->s, c->data, c->len, c->timeout_ns);
    case CL_STREAM_DO_LEASE:
        return cl_stream_lease(c->s, &c->lease, c->timeout_ns);
    case CL_STREAM_DO_WRITE_FROM:
        return cl_stream_write_from(c->s, c->region, c->value, c->len, c->timeout_ns);
    default:
        return cl_stream_wait_released(c->s, c->value, c->timeout_ns);
    }
}

static int64_t ask(struct cl_stream_call *c)
{
    switch (c->what) {
    case CL_STREAM_DO_SET:
        return cl_stream_set(c->s, c->option, c->value);
    case CL_STREAM_DO_GET:
        return cl_stream_get(c->s, c->option);
    case CL_STREAM_DO_SET_CONGESTION:
        return cl_stream_set_congestion(c->s, c->name);
    case CL_STREAM_DO_CONGESTION:
        c->name = cl_stream_congestion(c->s);
        return 0;
    case CL_STREAM_DO_INFO:
        return cl_stream_info(c->s, &c->info);
    default:
        return -EINVAL;
    }
}

static int64_t perform(struct cl_runtime *rt, struct cl_stream_call *c)
{
    switch (c->what) {
    case CL_STREAM_DO_ACCEPT:
        return cl_stream_accept(c->s, c->timeout_ns, &c->s);
    case CL_STREAM_DO_CONNECT:
        return cl_stream_connect(rt, &c->from, &c->to, c->timeout_ns, &c->s);
    case CL_STREAM_DO_WAIT_OPEN:
        return cl_stream_wait_open(c->s, c->timeout_ns);
    case CL_STREAM_DO_READ:
    case CL_STREAM_DO_PEEK:
    case CL_STREAM_DO_WRITE:
    case CL_STREAM_DO_LEASE:
    case CL_STREAM_DO_WRITE_FROM:
    case CL_STREAM_DO_WAIT_RELEASED:
        return transfer(c);
    case CL_STREAM_DO_SHUTDOWN:
        return cl_stream_shutdown(c->s, (int)c->value);
    case CL_STREAM_DO_CLOSE:
        return cl_stream_close(c->s, c->timeout_ns);
    case CL_STREAM_DO_ABORT:
        return cl_stream_abort(c->s);
    default:
        return ask(c);
    }
}

static void run(void *arg)
{
    struct errand *e = arg;
    e->call->rc = perform(e->rt, e->call);
    let_go(e); /* here: if it was closed its memory goes to a kthread */
}

/* What needs no kthread. */
static int64_t look(struct cl_stream_call *c)
{
    switch (c->what) {
    case CL_STREAM_DO_ERROR:
        return cl_stream_error(c->s);
    case CL_STREAM_DO_ENDS:
        return cl_stream_ends(c->s, &c->from, &c->to);
    case CL_STREAM_DO_RELEASED:
        return cl_stream_released(c->s);
    case CL_STREAM_DO_POLL_ADD:
        return cl_poll_add_stream(c->poll, c->s, (uint32_t)c->option, (uint32_t)c->value, (uint64_t)(uintptr_t)c->data);
    default:
        return cl_poll_remove_stream(c->poll, c->s);
    }
}

static int64_t on_uthread(struct errand *e)
{
    struct cl_runtime *rt = e->rt;
    bool ends = e->call->what == CL_STREAM_DO_CLOSE || e->call->what == CL_STREAM_DO_ABORT;
    /* On a kthread it is run where it is: a Python handler may write, and is refused what would block. */
    if (cl_sched_self() == rt->sched || (ends && !cl_netif_running(rt->nif))) {
        run(e);
        return e->call->rc;
    }
    int rc = cl_sched_run(rt->sched, run, e);
    return rc ? rc : e->call->rc;
}

int64_t cl_outside_stream(struct cl_runtime *rt, struct cl_stream_call *call)
{
    struct cl_stream *s = call->what == CL_STREAM_DO_CONNECT ? NULL : call->s;
    struct errand e = {rt, call, s};
    if (s && cl_stream_keep(s, call->life))
        return -EBADF;
    int64_t rc = call->what >= CL_STREAM_DO_ERROR ? look(call) : on_uthread(&e);
    if (call->s && call->s != s)
        call->life = cl_stream_life(call->s);
    let_go(&e);
    return rc;
}

uint32_t cl_stream_life(const struct cl_stream *s)
{
    return cl_load_relaxed(&s->life);
}

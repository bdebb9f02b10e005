/* See block.h. */
#include "block.h"
#include "db.h"
#include "durable.h"
#include "reply.h"

struct cl_rargs *cl_rargs_new(struct cl_resp *r, const struct cl_rcmd *cmd, const struct cl_slice *argv, uint32_t argc)
{
    uint64_t bytes = sizeof(struct cl_rargs) + argc * sizeof *argv;
    for (uint32_t i = 0; i < argc; i++)
        bytes += argv[i].len;
    struct cl_rargs *args = cl_rmem_new(&r->mem, bytes);
    *args = (struct cl_rargs){.cmd = cmd, .argc = argc, .bytes = bytes};
    uint8_t *to = (uint8_t *)&args->argv[argc];
    for (uint32_t i = 0; i < argc; i++) {
        memcpy(to, argv[i].p, argv[i].len);
        args->argv[i] = (struct cl_slice){to, argv[i].len};
        to += argv[i].len;
    }
    return args;
}

void cl_rargs_free(struct cl_resp *r, struct cl_rargs *args)
{
    if (args)
        cl_rmem_free(&r->mem, args, args->bytes);
}

static void enlist(struct cl_resp_client *c)
{
    struct cl_resp *r = c->r;
    c->next_blocked = NULL;
    c->prev_blocked = r->blocked_last;
    *(r->blocked_last ? &r->blocked_last->next_blocked : &r->blocked) = c;
    r->blocked_last = c;
    r->n_blocked++;
}

static void delist(struct cl_resp_client *c)
{
    struct cl_resp *r = c->r;
    *(c->prev_blocked ? &c->prev_blocked->next_blocked : &r->blocked) = c->next_blocked;
    *(c->next_blocked ? &c->next_blocked->prev_blocked : &r->blocked_last) = c->prev_blocked;
    r->n_blocked--;
}

bool cl_rblock_on(struct cl_resp_client *c, const struct cl_slice *keys, uint32_t n, int64_t deadline_ms)
{
    struct cl_rtopics *blocked = &cl_rdb_of(c)->blocked;
    if (c->flags & CL_RC_EXEC)
        return false;
    if (c->flags & CL_RC_RETRY) {
        c->r->still_blocked = 1;
        return true;
    }
    c->blocked_call = cl_rargs_new(c->r, c->cmd, c->argv, c->argc);
    c->deadline_ms = deadline_ms;
    for (uint32_t i = 0; i < n; i++)
        if (!cl_rlink_find(c->waits_for, blocked, keys[i]))
            cl_rlink_add(blocked, keys[i], c, &c->waits_for);
    c->flags |= CL_RC_BLOCKED;
    enlist(c);
    return true;
}

void cl_rblock_end(struct cl_resp_client *c)
{
    if (!(c->flags & CL_RC_BLOCKED))
        return;
    while (c->waits_for)
        cl_rlink_remove(c->waits_for);
    cl_rargs_free(c->r, c->blocked_call);
    c->blocked_call = NULL;
    c->flags &= ~(uint32_t)CL_RC_BLOCKED;
    delist(c);
    cl_client_wake(c);
}

/* Whether the command found what it waits for. */
static bool retry(struct cl_resp_client *c)
{
    struct cl_rargs *call = c->blocked_call;
    c->r->still_blocked = 0;
    c->flags |= CL_RC_RETRY;
    c->argc = call->argc;
    c->argv = call->argv;
    c->cmd = call->cmd;
    cl_rdurable_run(c, call->cmd);
    c->flags &= ~(uint32_t)CL_RC_RETRY;
    return !c->r->still_blocked;
}

static void serve_key(struct cl_resp *r, struct cl_rdb *db, struct cl_slice key)
{
    struct cl_rtopic *t = cl_rtopic_find(&db->blocked, key);
    for (struct cl_rlink *link = t ? t->first : NULL, *next; link; link = next) {
        struct cl_resp_client *c = link->client;
        next = link->next;
        if (!cl_rdb_peek(db, key))
            return;
        if (retry(c))
            cl_rblock_end(c);
    }
    (void)r;
}

void cl_rblock_serve(struct cl_resp *r)
{
    for (struct cl_rready *ready; (ready = r->ready);) {
        r->ready = ready->next;
        if (!r->ready)
            r->ready_last = NULL;
        serve_key(r, &r->db[ready->db], (struct cl_slice){ready->key, ready->key_len});
        cl_rmem_free(&r->mem, ready, sizeof *ready + ready->key_len);
    }
}

void cl_rblock_timeouts(struct cl_resp *r)
{
    for (struct cl_resp_client *c = r->blocked, *next; c; c = next) {
        next = c->next_blocked;
        if (!c->deadline_ms || c->deadline_ms > r->now_ms)
            continue;
        cl_reply_null_array(c);
        cl_rblock_end(c);
    }
}

int64_t cl_rblock_next_ms(const struct cl_resp *r)
{
    int64_t next = 0;
    for (const struct cl_resp_client *c = r->blocked; c; c = c->next_blocked)
        if (c->deadline_ms && (!next || c->deadline_ms < next))
            next = c->deadline_ms;
    return next;
}

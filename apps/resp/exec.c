/* Transactions: MULTI, EXEC, DISCARD, WATCH, UNWATCH. */
#include "block.h"
#include "call.h"
#include "commands.h"
#include "db.h"
#include "durable.h"
#include "evict.h"
#include "reply.h"

void cl_cmd_multi(struct cl_resp_client *c)
{
    if (c->flags & CL_RC_MULTI) {
        cl_reply_error(c, "ERR MULTI calls can not be nested");
        return;
    }
    c->flags |= CL_RC_MULTI;
    cl_reply_ok(c);
}

void cl_cmd_discard(struct cl_resp_client *c)
{
    if (!(c->flags & CL_RC_MULTI)) {
        cl_reply_error(c, "ERR DISCARD without MULTI");
        return;
    }
    cl_rcall_discard(c);
    cl_reply_ok(c);
}

/* A watched key whose time came after it was watched has changed. */
static bool watched_expired(struct cl_resp_client *c)
{
    for (struct cl_rlink *link = c->watching; link; link = link->next_mine) {
        struct cl_rdb *db = link->topic->home->owner;
        struct cl_entry *e = cl_rdb_peek(db, cl_rtopic_name(link->topic));
        if (!link->note && e && cl_entry_expired(c->r, e))
            return true;
    }
    return false;
}

static void run_queue(struct cl_resp_client *c)
{
    struct cl_rargs *queue = c->queue;
    const struct cl_slice *argv = c->argv;
    uint32_t n = c->queued, argc = c->argc;
    c->queue = c->queue_last = NULL;
    cl_rcall_discard(c);
    c->flags |= CL_RC_EXEC;
    cl_reply_array(c, n);
    for (struct cl_rargs *args = queue, *next; args; args = next) {
        next = args->next;
        c->argc = args->argc;
        c->argv = args->argv;
        cl_rcall_run(c, args->cmd);
        cl_rargs_free(c->r, args);
    }
    c->flags &= ~(uint32_t)CL_RC_EXEC;
    c->argv = argv;
    c->argc = argc;
}

/* What was queued was checked for memory one by one; now it is all at once. */
static bool fits(struct cl_resp_client *c)
{
    bool takes = false;
    for (struct cl_rargs *args = c->queue; args; args = args->next)
        takes |= (args->cmd->flags & CL_RF_DENYOOM) != 0;
    return !takes || cl_evict_for(c->r, 2 * c->queue_bytes);
}

static bool may_write(struct cl_resp_client *c)
{
    const struct cl_rcmd *write = NULL;
    for (struct cl_rargs *args = c->queue; args; args = args->next)
        if ((args->cmd->flags & CL_RF_WRITE) && (!write || (args->cmd->flags & CL_RF_DENYOOM)))
            write = args->cmd;
    return !write || cl_rdurable_may_write(c, write);
}

void cl_cmd_exec(struct cl_resp_client *c)
{
    if (!(c->flags & CL_RC_MULTI)) {
        cl_reply_error(c, "ERR EXEC without MULTI");
        return;
    }
    if (watched_expired(c))
        c->flags |= CL_RC_DIRTY_CAS;
    uint32_t dirty = c->flags & (CL_RC_DIRTY_CAS | CL_RC_DIRTY_EXEC);
    if (dirty & CL_RC_DIRTY_EXEC) {
        cl_rcall_discard(c);
        cl_reply_error(c, "EXECABORT Transaction discarded because of previous errors.");
    } else if (dirty) {
        cl_reply_null_array(c);
        cl_rcall_discard(c);
    } else if (!fits(c)) {
        cl_evict_refuse(c);
        cl_rcall_discard(c);
    } else if (!may_write(c)) {
        cl_rcall_discard(c);
    } else {
        run_queue(c);
    }
}

void cl_cmd_watch(struct cl_resp_client *c)
{
    if (c->flags & CL_RC_MULTI) {
        cl_reply_error(c, "ERR WATCH inside MULTI is not allowed");
        return;
    }
    for (uint32_t i = 1; i < c->argc; i++) {
        struct cl_rtopics *watched = &cl_rdb_of(c)->watched;
        if (cl_rlink_find(c->watching, watched, ARG(c, i)))
            continue;
        struct cl_entry *e = cl_rdb_peek(cl_rdb_of(c), ARG(c, i));
        cl_rlink_add(watched, ARG(c, i), c, &c->watching)->note = e && cl_entry_expired(c->r, e);
    }
    cl_reply_ok(c);
}

void cl_cmd_unwatch(struct cl_resp_client *c)
{
    cl_rcall_unwatch(c);
    c->flags &= ~(uint32_t)CL_RC_DIRTY_CAS;
    cl_reply_ok(c);
}

/* See call.h. The checks and their order are Redis' processCommand: a client sees the same error of two. */
#include "call.h"
#include "block.h"
#include "db.h"
#include "durable.h"
#include "evict.h"
#include "propagate.h"
#include "reply.h"

#include <ctype.h>

#define NAME_MOST 64
/* What a command may take beyond its arguments: nodes, links, its reply's first chunk. */
#define NEED_BYTES 8192
#define NEED_PER_ARG 256

static const struct cl_rcmd *find_sub(const struct cl_rcmd *cmd, struct cl_slice name)
{
    for (const struct cl_rcmd *sub = cmd->subs; sub->name; sub++)
        if (cl_slice_is(name, sub->name))
            return sub;
    return NULL;
}

const struct cl_rcmd *cl_rcall_find(struct cl_resp *r, const struct cl_slice *argv, uint32_t argc, bool *sub)
{
    uint8_t name[NAME_MOST];
    struct cl_slice key = {name, argv[0].len};
    *sub = false;
    if (key.len > NAME_MOST)
        return NULL;
    for (uint32_t i = 0; i < key.len; i++)
        name[i] = (uint8_t)tolower(argv[0].p[i]);
    struct cl_rname *n = (struct cl_rname *)cl_rdict_find(&r->by_name, cl_rdict_hash(&r->secret, key), key);
    if (!n || !n->cmd->subs || argc < 2)
        return n ? n->cmd : NULL;
    *sub = true;
    return find_sub(n->cmd, argv[1]);
}

static bool is_sub_of(const struct cl_rcmd *cmd, const struct cl_rcmd *container)
{
    for (const struct cl_rcmd *sub = container->subs; sub && sub->name; sub++)
        if (sub == cmd)
            return true;
    return false;
}

void cl_rcall_name(struct cl_resp *r, const struct cl_rcmd *cmd, char name[64])
{
    snprintf(name, 64, "%s", cmd->name);
    if (cmd >= r->commands && cmd < r->commands + r->n_commands)
        return;
    for (uint32_t i = 0; i < r->n_commands; i++)
        if (is_sub_of(cmd, &r->commands[i])) {
            snprintf(name, 64, "%s|%s", r->commands[i].name, cmd->name);
            return;
        }
}

uint32_t cl_rcall_number(const struct cl_resp *r, const struct cl_rcmd *cmd)
{
    uint32_t number = r->n_commands;
    if (cl_likely(cmd >= r->commands && cmd < r->commands + r->n_commands))
        return (uint32_t)(cmd - r->commands);
    for (uint32_t i = 0; i < r->n_commands; i++)
        for (const struct cl_rcmd *sub = r->commands[i].subs; sub && sub->name; sub++, number++)
            if (sub == cmd)
                return number;
    return number;
}

bool cl_rcall_arity(const struct cl_rcmd *cmd, uint32_t argc)
{
    return cmd->arity >= 0 ? argc == (uint32_t)cmd->arity : argc >= (uint32_t)-cmd->arity;
}

/* Not run, and not queued: a transaction will not be either. Of EXEC it ends here. */
static void reject(struct cl_resp_client *c)
{
    if (c->flags & CL_RC_ABORTS)
        cl_rcall_discard(c);
    else if (c->flags & CL_RC_MULTI)
        c->flags |= CL_RC_DIRTY_EXEC;
}

static void unknown(struct cl_resp_client *c, bool sub)
{
    char args[160];
    int n = 0;
    if (sub) {
        char upper[NAME_MOST];
        snprintf(upper, sizeof upper, "%.*s", (int)cl_min(ARG(c, 0).len, 63u), ARG(c, 0).p);
        for (char *p = upper; *p; p++)
            *p = (char)toupper(*p);
        cl_reply_error(c, "ERR unknown subcommand '%.*s'. Try %s HELP.", (int)cl_min(ARG(c, 1).len, 128u), ARG(c, 1).p,
                       upper);
        return;
    }
    args[0] = 0;
    for (uint32_t i = 1; i < c->argc && n < 128; i++)
        n += snprintf(args + n, sizeof args - (size_t)n, "'%.*s' ", (int)cl_min(ARG(c, i).len, (uint32_t)(128 - n)),
                      ARG(c, i).p);
    cl_reply_error(c, "ERR unknown command '%.*s', with args beginning with: %s", (int)cl_min(ARG(c, 0).len, 128u),
                   ARG(c, 0).p, args);
    /* Words of HTTP: a page has somebody's browser send it, with a body of commands. As in Redis that is not read. */
    if (ARG_IS(c, 0, "POST") || ARG_IS(c, 0, "Host:"))
        c->flags |= CL_RC_CLOSE_NOW;
}

/* What a command may take at most, but for those that ask for more themselves. */
static uint64_t most_bytes(const struct cl_resp_client *c)
{
    uint64_t bytes = NEED_BYTES + c->argc * (uint64_t)NEED_PER_ARG;
    for (uint32_t i = 1; i < c->argc; i++)
        bytes += 2 * (uint64_t)c->argv[i].len;
    return bytes;
}

/* Whether it is about the connection or this server, and no matter of keys (as WATCH is) or of who listens elsewhere:
 * Redis does it while it loads them. */
static bool is_local(const struct cl_rcmd *cmd)
{
    return cmd->group == CL_RG_CONNECTION || ((cmd->flags & CL_RF_LOADING) && !cmd->first &&
                                              !(cmd->flags & (CL_RF_WRITE | CL_RF_READONLY | CL_RF_PUBSUB)));
}

/* Whether it may be called now; else that was answered. */
static bool allowed(struct cl_resp_client *c, const struct cl_rcmd *cmd)
{
    char name[NAME_MOST];
    if (!cl_rcall_arity(cmd, c->argc)) {
        cl_rcall_name(c->r, cmd, name);
        cl_reply_error(c, "ERR wrong number of arguments for '%s' command", name);
        return false;
    }
    if (!c->authenticated && !(cmd->flags & CL_RF_NO_AUTH)) {
        cl_reply_error(c, "NOAUTH Authentication required.");
        return false;
    }
    if (cl_unlikely(c->r->elsewhere.error[0]) && !is_local(cmd)) {
        cl_reply_error(c, "%s", c->r->elsewhere.error);
        return false;
    }
    if ((c->flags & CL_RC_MULTI) && (cmd->flags & CL_RF_NO_MULTI)) {
        cl_reply_error(c, "ERR Command not allowed inside a transaction");
        return false;
    }
    bool kept = (c->flags & CL_RC_MULTI) && !(cmd->flags & CL_RF_NOW);
    if ((kept || (cmd->flags & (CL_RF_DENYOOM | CL_RF_GROWS))) && !cl_evict_or_refuse(c, most_bytes(c)))
        return false;
    if (!cl_rdurable_may_write(c, cmd))
        return false;
    if (c->protocol == 2 && c->n_channels + c->n_patterns && !(cmd->flags & CL_RF_SUBSCRIBED)) {
        cl_rcall_name(c->r, cmd, name);
        cl_reply_error(c,
                       "ERR Can't execute '%s': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are "
                       "allowed in this context",
                       name);
        return false;
    }
    return true;
}

static bool is(const struct cl_rcmd *cmd, const char *name)
{
    return strcmp(cmd->name, name) == 0;
}

static bool writes_or_publishes(const struct cl_rcmd *cmd)
{
    return (cmd->flags & CL_RF_WRITE) || is(cmd, "publish");
}

/* Whether CLIENT PAUSE keeps it from running. */
static bool paused(struct cl_resp_client *c, const struct cl_rcmd *cmd)
{
    struct cl_resp *r = c->r;
    if (cl_likely(r->paused_until_ms <= r->now_ms))
        return false;
    bool held = r->pause_all || writes_or_publishes(cmd);
    for (struct cl_rargs *args = is(cmd, "exec") ? c->queue : NULL; args && !held; args = args->next)
        held = writes_or_publishes(args->cmd);
    return held;
}

static void queue(struct cl_resp_client *c, const struct cl_rcmd *cmd)
{
    struct cl_rargs *args = cl_rargs_new(c->r, cmd, c->argv, c->argc);
    if (c->queue_last)
        c->queue_last->next = args;
    else
        c->queue = args;
    c->queue_last = args;
    c->queued++;
    c->queue_bytes += args->bytes;
    cl_reply_status(c, "QUEUED");
}

/* Whether an argument is, or may be, a name or password: all of AUTH, and what follows that word in HELLO. */
static bool secret(const struct cl_resp_client *c, const struct cl_rcmd *cmd, uint32_t n)
{
    if (!(cmd->flags & CL_RF_SECRET) || n == 0)
        return false;
    return is(cmd, "auth") || (n > 2 && ARG_IS(c, n - 1, "auth")) || (n > 3 && ARG_IS(c, n - 2, "auth"));
}

static void show_argument(struct cl_resp_client *to, struct cl_slice arg)
{
    char text[8];
    for (uint32_t i = 0; i < arg.len; i++) {
        const char *at = strchr("\n\r\t\a\b", arg.p[i]);
        int n;
        if (arg.p[i] == '"' || arg.p[i] == '\\')
            n = snprintf(text, sizeof text, "\\%c", arg.p[i]);
        else if (arg.p[i] && at)
            n = snprintf(text, sizeof text, "\\%c", "nrtab"[at - "\n\r\t\a\b"]);
        else
            n = snprintf(text, sizeof text, isprint(arg.p[i]) ? "%c" : "\\x%02x", arg.p[i]);
        cl_reply_raw(to, text, (uint64_t)n);
    }
}

/* One line of MONITOR. */
static void show(struct cl_resp_client *c, const struct cl_rcmd *cmd, struct cl_resp_client *to)
{
    char head[96];
    int n = snprintf(head, sizeof head, "+%lld.%06lld [%u %s]", (long long)(c->r->now_ms / 1000),
                     (long long)(c->r->now_ms % 1000 * 1000), c->db, c->peer);
    cl_reply_raw(to, head, (uint64_t)n);
    for (uint32_t i = 0; i < c->argc; i++) {
        cl_reply_raw(to, " \"", 2);
        show_argument(to, secret(c, cmd, i) ? cl_slice_of("(redacted)") : ARG(c, i));
        cl_reply_raw(to, "\"", 1);
    }
    cl_reply_raw(to, "\r\n", 2);
}

/* As Redis does it a command is shown when it was run, so EXEC after what it ran, and SELECT in its new database. */
static void monitor(struct cl_resp_client *c, const struct cl_rcmd *cmd)
{
    if (cmd->flags & (CL_RF_SKIP_MONITOR | CL_RF_ADMIN))
        return;
    for (struct cl_resp_client *to = c->r->clients; to; to = to->next)
        if (to->flags & CL_RC_MONITOR)
            show(c, cmd, to);
}

void cl_rcall_run(struct cl_resp_client *c, const struct cl_rcmd *cmd)
{
    struct cl_resp *r = c->r;
    c->cmd = c->last_cmd = cmd;
    c->flags &= ~(uint32_t)CL_RC_FAILED;
    cl_rdurable_run(c, cmd);
    if (cl_unlikely(r->n_monitors))
        monitor(c, cmd);
    r->stats.commands++;
    struct cl_rcmd_stats *s = &r->command_stats[cl_rcall_number(r, cmd)];
    s->calls++;
    s->failed += (c->flags & CL_RC_FAILED) != 0;
}

void cl_rcall(struct cl_resp_client *c)
{
    bool sub;
    const struct cl_rcmd *cmd = cl_rcall_find(c->r, c->argv, c->argc, &sub);
    if (cl_unlikely(!cmd)) {
        unknown(c, sub);
        reject(c);
        return;
    }
    if (cl_unlikely(c->flags & CL_RC_MULTI) && is(cmd, "exec"))
        c->flags |= CL_RC_ABORTS;
    if (!allowed(c, cmd)) {
        reject(c);
        c->r->command_stats[cl_rcall_number(c->r, cmd)].rejected++;
        return;
    }
    if (cl_unlikely(paused(c, cmd))) {
        c->flags |= CL_RC_POSTPONED;
        c->r->n_postponed++;
        return;
    }
    if ((c->flags & CL_RC_MULTI) && !(cmd->flags & CL_RF_NOW)) {
        queue(c, cmd);
        return;
    }
    cl_rcall_run(c, cmd);
    if (cl_unlikely(c->r->ready != NULL))
        cl_rblock_serve(c->r);
    cl_rprop_end(c->r);
}

void cl_rcall_unpause(struct cl_resp *r)
{
    r->paused_until_ms = 0;
    r->pause_all = false;
    r->n_postponed = 0;
    for (struct cl_resp_client *c = r->clients; c; c = c->next) {
        c->flags &= ~(uint32_t)CL_RC_POSTPONED;
        cl_client_wake(c);
    }
}

void cl_rcall_unwatch(struct cl_resp_client *c)
{
    while (c->watching)
        cl_rlink_remove(c->watching);
}

void cl_rcall_discard(struct cl_resp_client *c)
{
    for (struct cl_rargs *args = c->queue, *next; args; args = next) {
        next = args->next;
        cl_rargs_free(c->r, args);
    }
    c->queue = c->queue_last = NULL;
    c->queued = 0;
    c->queue_bytes = 0;
    c->flags &= ~(uint32_t)(CL_RC_MULTI | CL_RC_DIRTY_CAS | CL_RC_DIRTY_EXEC | CL_RC_ABORTS);
    cl_rcall_unwatch(c);
}

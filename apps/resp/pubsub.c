/* See pubsub.h. */
#include "pubsub.h"
#include "command.h"
#include "commands.h"
#include "reply.h"

static void head(struct cl_resp_client *to, const char *kind, int64_t n)
{
    to->flags |= CL_RC_PUSHING;
    cl_reply_push(to, n);
    cl_reply_text(to, kind);
}

static void done(struct cl_resp_client *to)
{
    to->flags &= ~(uint32_t)CL_RC_PUSHING;
}

uint32_t cl_pubsub_publish(struct cl_resp *r, struct cl_slice channel, struct cl_slice message)
{
    struct cl_rtopic *t = cl_rtopic_find(&r->channels, channel);
    uint32_t n = 0;
    for (struct cl_rlink *link = t ? t->first : NULL; link; link = link->next, n++) {
        head(link->client, "message", 3);
        cl_reply_slice(link->client, channel);
        cl_reply_slice(link->client, message);
        done(link->client);
    }
    CL_RDICT_EACH(&r->patterns.by_name, node)
    {
        t = (struct cl_rtopic *)node;
        if (!cl_glob(cl_rtopic_name(t), channel, false))
            continue;
        for (struct cl_rlink *link = t->first; link; link = link->next, n++) {
            head(link->client, "pmessage", 4);
            cl_reply_slice(link->client, cl_rtopic_name(t));
            cl_reply_slice(link->client, channel);
            cl_reply_slice(link->client, message);
            done(link->client);
        }
    }
    return n;
}

static void tell(struct cl_resp_client *c, const char *kind, const struct cl_slice *name)
{
    head(c, kind, 3);
    if (name)
        cl_reply_slice(c, *name);
    else
        cl_reply_null(c);
    cl_reply_int(c, c->n_channels + c->n_patterns);
    done(c);
}

static void subscribe(struct cl_resp_client *c, bool pattern)
{
    for (uint32_t i = 1; i < c->argc; i++) {
        struct cl_rtopics *all = pattern ? &c->r->patterns : &c->r->channels;
        struct cl_rlink **mine = pattern ? &c->patterns : &c->channels;
        if (!cl_rlink_find(*mine, all, ARG(c, i))) {
            cl_rlink_add(all, ARG(c, i), c, mine);
            (*(pattern ? &c->n_patterns : &c->n_channels))++;
        }
        tell(c, pattern ? "psubscribe" : "subscribe", &ARG(c, i));
    }
}

static void drop(struct cl_resp_client *c, struct cl_rlink *link, bool pattern)
{
    cl_rlink_remove(link);
    (*(pattern ? &c->n_patterns : &c->n_channels))--;
}

static void leave_all(struct cl_resp_client *c, bool pattern, bool say)
{
    struct cl_rlink **mine = pattern ? &c->patterns : &c->channels;
    const char *kind = pattern ? "punsubscribe" : "unsubscribe";
    if (!*mine && say)
        tell(c, kind, NULL);
    while (*mine) {
        struct cl_slice name = cl_rtopic_name((*mine)->topic);
        uint8_t *copy = cl_rmem_new(&c->r->mem, name.len + 1ull);
        memcpy(copy, name.p, name.len);
        drop(c, *mine, pattern);
        if (say)
            tell(c, kind, &(struct cl_slice){copy, name.len});
        cl_rmem_free(&c->r->mem, copy, name.len + 1ull);
    }
}

void cl_pubsub_leave(struct cl_resp_client *c, bool channels, bool patterns, bool say)
{
    if (channels)
        leave_all(c, false, say);
    if (patterns)
        leave_all(c, true, say);
}

static void unsubscribe(struct cl_resp_client *c, bool pattern)
{
    if (c->argc == 1)
        leave_all(c, pattern, true);
    for (uint32_t i = 1; i < c->argc; i++) {
        struct cl_rlink *link =
            cl_rlink_find(pattern ? c->patterns : c->channels, pattern ? &c->r->patterns : &c->r->channels, ARG(c, i));
        if (link)
            drop(c, link, pattern);
        tell(c, pattern ? "punsubscribe" : "unsubscribe", &ARG(c, i));
    }
}

void cl_cmd_subscribe(struct cl_resp_client *c)
{
    subscribe(c, false);
}

void cl_cmd_psubscribe(struct cl_resp_client *c)
{
    subscribe(c, true);
}

void cl_cmd_unsubscribe(struct cl_resp_client *c)
{
    unsubscribe(c, false);
}

void cl_cmd_punsubscribe(struct cl_resp_client *c)
{
    unsubscribe(c, true);
}

void cl_cmd_publish(struct cl_resp_client *c)
{
    cl_reply_int(c, cl_pubsub_publish(c->r, ARG(c, 1), ARG(c, 2)));
}

void cl_cmd_pubsub_channels(struct cl_resp_client *c)
{
    struct cl_rchunk *at = cl_reply_defer(c);
    int64_t n = 0;
    CL_RDICT_EACH(&c->r->channels.by_name, node)
    {
        struct cl_slice name = cl_rtopic_name((struct cl_rtopic *)node);
        if (c->argc > 2 && !cl_glob(ARG(c, 2), name, false))
            continue;
        cl_reply_slice(c, name);
        n++;
    }
    cl_reply_deferred(c, at, '*', n);
}

void cl_cmd_pubsub_numsub(struct cl_resp_client *c)
{
    cl_reply_array(c, 2 * (int64_t)(c->argc - 2));
    for (uint32_t i = 2; i < c->argc; i++) {
        struct cl_rtopic *t = cl_rtopic_find(&c->r->channels, ARG(c, i));
        cl_reply_slice(c, ARG(c, i));
        cl_reply_int(c, t ? t->n : 0);
    }
}

void cl_cmd_pubsub_numpat(struct cl_resp_client *c)
{
    cl_reply_int(c, c->r->patterns.by_name.count);
}

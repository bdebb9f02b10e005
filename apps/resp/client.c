/* See client.h. */
#include "client.h"
#include "block.h"
#include "bytes.h"
#include "call.h"
#include "evict.h"
#include "parse.h"
#include "reply.h"

#define SMALL_IN 65536 /* so much is always kept of an incomplete command */
#define ARGV_LEAST 16u

struct cl_resp_client *cl_client_new(struct cl_resp *r, const char *peer, const char *own)
{
    struct cl_resp_client *c = cl_rmem_zero(&r->mem, sizeof *c);
    c->r = r;
    c->id = ++r->next_id;
    c->protocol = 2;
    c->authenticated = !r->config.password[0];
    c->parser.bulk_len = -1;
    c->made_ms = c->used_ms = r->now_ms;
    snprintf(c->peer, sizeof c->peer, "%s", peer);
    snprintf(c->own, sizeof c->own, "%s", own);
    c->next = r->clients;
    if (r->clients)
        r->clients->prev = c;
    r->clients = c;
    r->n_clients++;
    r->stats.connections++;
    return c;
}

static void forget_woken(struct cl_resp_client *c)
{
    if (!(c->flags & CL_RC_WOKEN))
        return;
    struct cl_resp_client **at = &c->r->woken;
    while (*at != c)
        at = &(*at)->next_woken;
    *at = c->next_woken;
}

void cl_client_reset(struct cl_resp_client *c)
{
    cl_rcall_discard(c);
    c->r->n_monitors -= (c->flags & CL_RC_MONITOR) != 0;
    c->flags &= ~(uint32_t)(CL_RC_MONITOR | CL_RC_REPLY_OFF | CL_RC_REPLY_SKIP | CL_RC_REPLY_SKIP_NEXT |
                            CL_RC_NO_EVICT | CL_RC_NO_TOUCH);
    c->db = 0;
    c->protocol = 2;
    c->authenticated = !c->r->config.password[0];
}

void cl_client_free(struct cl_resp_client *c)
{
    struct cl_resp *r = c->r;
    cl_rblock_end(c);
    r->n_postponed -= (c->flags & CL_RC_POSTPONED) != 0;
    cl_client_reset(c);
    while (c->channels)
        cl_rlink_remove(c->channels);
    while (c->patterns)
        cl_rlink_remove(c->patterns);
    cl_reply_drop(c);
    cl_rparse_end(c);
    cl_bytes_free(&r->mem, c->in);
    cl_bytes_free(&r->mem, c->name);
    forget_woken(c);
    *(c->prev ? &c->prev->next : &r->clients) = c->next;
    if (c->next)
        c->next->prev = c->prev;
    r->n_clients--;
    cl_rmem_free(&r->mem, c, sizeof *c);
}

bool cl_client_stalled(const struct cl_resp_client *c)
{
    const struct cl_resp *r = c->r;
    if (cl_unlikely(r->propagation.open.len > CL_RESP_UNITS_HIGH))
        return true;
    return (c->flags & (CL_RC_BLOCKED | CL_RC_POSTPONED | CL_RC_CLOSE_AFTER | CL_RC_CLOSE_NOW)) ||
           (c->r->crowded && c->out.bytes > CL_RESP_OUT_HIGH);
}

/* The arguments of the command at buf. */
static void take_args(struct cl_resp_client *c, const uint8_t *buf)
{
    struct cl_resp *r = c->r;
    const struct cl_rparser *p = &c->parser;
    if (p->argc > r->argv_room) {
        uint32_t room = cl_max(p->argc, ARGV_LEAST);
        r->argv = cl_rmem_resize(&r->mem, r->argv, r->argv_room * sizeof *r->argv, room * sizeof *r->argv);
        r->argv_room = room;
    }
    for (uint32_t i = 0; i < p->argc; i++)
        r->argv[i] = (struct cl_slice){buf + p->args[i].at, p->args[i].len};
    c->argc = p->argc;
    c->argv = r->argv;
}

static void run(struct cl_resp_client *c, const uint8_t *buf)
{
    take_args(c, buf);
    c->used_ms = c->r->now_ms;
    c->r->running = c;
    cl_rcall(c);
    c->r->running = NULL;
    if (cl_unlikely(c->flags & CL_RC_POSTPONED))
        return;
    if (cl_unlikely(c->flags & CL_RC_CLOSE_NOW))
        cl_reply_drop(c);
    uint32_t skip = c->flags & CL_RC_REPLY_SKIP_NEXT;
    c->flags &= ~(uint32_t)(CL_RC_REPLY_SKIP | CL_RC_REPLY_SKIP_NEXT);
    if (skip)
        c->flags |= CL_RC_REPLY_SKIP;
}

static void refuse(struct cl_resp_client *c, const char *error)
{
    c->r->running = c;
    cl_reply_error(c, "ERR Protocol error: %s", error);
    c->r->running = NULL;
    c->flags |= CL_RC_CLOSE_AFTER;
}

/* Run what is complete. Returns how many bytes that were. */
static uint64_t consume(struct cl_resp_client *c, uint8_t *own, const uint8_t *buf, uint64_t len)
{
    uint64_t done = 0;
    char error[128];
    while (done < len && !cl_client_stalled(c)) {
        enum cl_rparse rc = cl_rparse(c, buf + done, len - done, error);
        if (rc == CL_RP_INLINE && own)
            rc = cl_rparse_inline(c, own + done, len - done, error);
        if (rc == CL_RP_ERROR) {
            refuse(c, error);
            return len;
        }
        if (rc != CL_RP_COMMAND)
            break;
        uint64_t at = done;
        done += c->parser.at;
        if (c->parser.argc)
            run(c, buf + at);
        if (cl_unlikely(c->flags & CL_RC_POSTPONED))
            done = at;
        cl_rparse_reset(c);
    }
    return c->flags & (CL_RC_CLOSE_AFTER | CL_RC_CLOSE_NOW) ? len : done;
}

/* Keep what is incomplete. False: there is no room for it. */
static bool keep(struct cl_resp_client *c, const uint8_t *data, uint64_t len)
{
    uint64_t has = c->in ? c->in->len : 0;
    if (has + len > (uint64_t)c->r->config.query_most) {
        c->flags |= CL_RC_CLOSE_NOW;
        return false;
    }
    if (has + len > SMALL_IN && has + len > (c->in ? c->in->room : 0) && !cl_evict_for(c->r, (has + len) / 4 + len)) {
        cl_evict_refuse(c);
        c->flags |= CL_RC_CLOSE_AFTER;
        return false;
    }
    c->in = cl_bytes_append(&c->r->mem, c->in, data, len);
    return true;
}

/* Run what is complete in c->in. */
static void consume_kept(struct cl_resp_client *c)
{
    uint64_t done = consume(c, c->in->data, c->in->data, c->in->len);
    if (done == c->in->len) {
        cl_bytes_free(&c->r->mem, c->in);
        c->in = NULL;
    } else if (done) {
        memmove(c->in->data, c->in->data + done, c->in->len - done);
        c->in->len -= (uint32_t)done;
    }
}

uint64_t cl_client_feed(struct cl_resp_client *c, const uint8_t *data, uint64_t len)
{
    uint64_t done = 0;
    if (c->flags & (CL_RC_CLOSE_AFTER | CL_RC_CLOSE_NOW))
        return len;
    if (c->in)
        consume_kept(c);
    if (cl_client_stalled(c) || !len)
        return c->flags & (CL_RC_CLOSE_AFTER | CL_RC_CLOSE_NOW) ? len : 0;
    if (!c->in) {
        done = consume(c, NULL, data, len);
        if (done == len || cl_client_stalled(c))
            return done;
    }
    if (!keep(c, data + done, len - done))
        return len;
    consume_kept(c);
    return len;
}

/* Redis' protocols in front of a group of nodes: the port of ../../resp, with the engine of ../node/ahead.h behind it,
 * which the node that leads has.
 *
 * All on one kthread, so the port's lock is never waited for. */
#include "internal.h"
#include "../node/ahead.h"
#include "../../resp/serve.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

struct serve_resp {
    struct cl_raft_service *s;
    struct cl_resp_service *port;
    struct raft_ahead ahead;
};

static uint64_t random_word(void *arg)
{
    uint64_t word;
    (void)arg;
    return getrandom(&word, sizeof word, 0) == sizeof word ? word : 0;
}

static uint32_t address(void *arg, uint32_t id)
{
    const struct cl_raft_service *s = ((struct serve_resp *)arg)->s;
    for (uint32_t i = 0; i < s->config.n_peers; i++)
        if (s->config.peers[i].id == id)
            return s->config.peers[i].ipv4;
    return 0;
}

static void become(void *arg, struct cl_resp *r)
{
    cl_resp_service_become(((struct serve_resp *)arg)->port, r);
}

bool serve_resp_turn(struct cl_raft_service *s)
{
    return raft_ahead_turn(&s->resp->ahead);
}

static bool give(struct cl_raft_service *s)
{
    return raft_ahead_give(&s->resp->ahead, s->now_ns);
}

void serve_resp_answer(struct cl_raft_service *s, const struct cl_raft_token *token, int status, const uint8_t *reply,
                       uint32_t bytes)
{
    if (status != CL_RAFT_BUSY) /* which comes again */
        serve_traced(s, s->traced.resp, token->words[3], false);
    raft_ahead_answer(&s->resp->ahead, token, status, reply, bytes);
}

void serve_resp_counters(const struct cl_raft_service *s, struct cl_raft_serve_counters *out)
{
    if (!s->resp)
        return;
    const struct raft_ahead_counters *c = &s->resp->ahead.count;
    out->resp_opened = cl_load_relaxed(&c->opened);
    out->resp_lost = cl_load_relaxed(&c->lost);
    out->resp_entries = cl_load_relaxed(&c->entries);
    out->resp_bytes = cl_load_relaxed(&c->bytes);
    out->resp_queries = cl_load_relaxed(&c->queries);
    out->resp_put_off = cl_load_relaxed(&c->put_off);
    out->resp_late = cl_load_relaxed(&c->late);
    out->resp_leads = cl_load_relaxed(&c->leads);
}

/* The port has called the engine. */
static void after(void *arg)
{
    struct serve_resp *f = arg;
    struct cl_raft_service *s = f->s;
    if (cl_kthread_index() < 0 || !raft_ahead_has(&f->ahead))
        return;
    serve_begin(s);
    serve_poll(s);
    cl_raft_in_call_work(&s->in_call, s->now_ns, cl_sched_turn());
}

int serve_resp_bind(struct cl_raft_service *s, char err[256])
{
    const struct cl_raft_resp_config *c = &s->config.resp;
    struct serve_resp *f = calloc(1, sizeof *f);
    if (!f) {
        snprintf(err, 256, "no memory for the port of RESP");
        return -ENOMEM;
    }
    struct cl_runtime_info info;
    cl_runtime_info(s->rt, &info);
    const struct raft_ahead_config config = {
        .node = s->node,
        .values = &s->values,
        .settings = {.policy = c->policy, .password = c->password},
        .log = s->config.node.log,
        .entry_bytes = s->config.node.raft.entry_bytes,
        .ipv4 = info.ipv4,
        .port = c->port,
        .kind = SERVE_RESP_CLIENT,
        .arg = f,
        .random = random_word,
        .address = address,
        .become = become,
    };
    f->s = s;
    s->resp = f;
    s->give = give;
    int rc = raft_ahead_new(&f->ahead, &config, err);
    rc = rc ? rc : cl_resp_serve(s->rt, f->ahead.front, c->port, c->backlog, NULL, 0, &f->port, err);
    if (!rc)
        cl_resp_service_after(f->port, after, f);
    return rc;
}

void serve_resp_delete(struct serve_resp *f)
{
    if (!f)
        return;
    cl_resp_service_delete(f->port);
    raft_ahead_delete(&f->ahead);
    free(f);
}

struct cl_resp_service *cl_raft_service_resp(struct cl_raft_service *s)
{
    return s->resp ? s->resp->port : NULL;
}

/* See pick.h. */
#include "pick.h"
#include "number.h"
#include "reply.h"

bool cl_arg_count(struct cl_resp_client *c, uint32_t n, int64_t *out)
{
    if (!cl_arg_int(c, n, out))
        return false;
    if (*out >= -(INT64_MAX / 2) && *out <= INT64_MAX / 2)
        return true;
    if (*out == INT64_MIN)
        cl_reply_error(c, "ERR value is out of range, value must between %lld and %lld", (long long)-INT64_MAX,
                       (long long)INT64_MAX);
    else
        cl_reply_error(c, "ERR value is out of range");
    return false;
}

/* Each node with the probability (wanted) / (left): Knuth, The Art of Computer Programming, 3.4.2, algorithm S. */
uint64_t cl_rpick(struct cl_resp *r, const struct cl_rdict *d, uint64_t n, struct cl_rnode **out)
{
    uint64_t left = d->count, got = 0;
    for (uint32_t i = 0; i < d->buckets && got < n; i++)
        for (struct cl_rnode *node = cl_rdict_bucket(d, i); node && got < n; node = node->next, left--)
            if (cl_resp_random(r) % left < n - got)
                out[got++] = node;
    return got;
}

static void shuffle(struct cl_resp *r, struct cl_rnode **nodes, uint64_t n)
{
    for (uint64_t i = n; i > 1; i--) {
        uint64_t k = cl_resp_random(r) % i;
        struct cl_rnode *other = nodes[k];
        nodes[k] = nodes[i - 1];
        nodes[i - 1] = other;
    }
}

void cl_rpick_reply(struct cl_resp_client *c, const struct cl_rdict *d, int64_t count, bool with,
                    void (*emit)(struct cl_resp_client *c, struct cl_rnode *n, bool with))
{
    int64_t texts = with && c->protocol == 2 ? 2 : 1;
    if (!d || count == 0) {
        cl_reply_array(c, 0);
        return;
    }
    if (count < 0) {
        cl_reply_array(c, -count * texts);
        for (; count < 0 && !(c->flags & CL_RC_CLOSE_NOW); count++)
            emit(c, cl_rdict_random(d, cl_resp_random, c->r), with);
        return;
    }
    uint64_t n = cl_min((uint64_t)count, (uint64_t)d->count);
    struct cl_rnode **nodes = cl_rmem_new(&c->r->mem, n * sizeof *nodes);
    n = cl_rpick(c->r, d, n, nodes);
    shuffle(c->r, nodes, n);
    cl_reply_array(c, (int64_t)n * texts);
    for (uint64_t i = 0; i < n; i++)
        emit(c, nodes[i], with);
    cl_rmem_free(&c->r->mem, nodes, cl_min((uint64_t)count, (uint64_t)d->count) * sizeof *nodes);
}

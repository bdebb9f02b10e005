/* What a request asks for: an operation of the mix, a key by its popularity. */
#include "engine.h"

void cl_sockload_what_init(struct cl_sockload *s)
{
    double sum = 0, so_far = 0;
    for (unsigned i = 0; i < CL_SOCKLOAD_OPS; i++)
        sum += s->config.mix[i];
    if (sum <= 0) {
        s->config.mix[CL_SOCKLOAD_GET] = sum = 1;
    }
    for (unsigned i = 0; i < CL_SOCKLOAD_OPS; i++) {
        so_far += s->config.mix[i];
        s->upto[i] = so_far / sum;
    }
    s->upto[CL_SOCKLOAD_OPS - 1] = 1;
    if (s->config.zipf > 0)
        cl_zipf_init(&s->zipf, s->config.zipf, (uint32_t)s->config.keys);
}

static uint8_t draw_op(struct cl_worker *w)
{
    double u = cl_random_unit(&w->random);
    uint8_t op = 0;
    while (u > w->s->upto[op])
        op++;
    return op;
}

/* Popular keys are spread over all of them, as YCSB's scrambled Zipf does, unless the latest are the popular ones. */
static uint64_t draw_key(struct cl_worker *w)
{
    const struct cl_sockload *s = w->s;
    uint64_t keys = s->config.keys;
    if (s->config.zipf <= 0)
        return cl_random_below(&w->random, keys);
    uint64_t rank = cl_zipf_draw(&s->zipf, &w->random);
    if (!s->config.latest)
        return cl_sockload_mix64(rank) % keys;
    /* This worker's own insertions first, the newest before all, then what was there from the beginning. */
    if (rank < w->stored)
        return keys + (w->stored - 1 - rank) * s->n_workers + w->number;
    rank -= w->stored;
    return keys - 1 - cl_min(rank, keys - 1);
}

void cl_sockload_what_draw(struct cl_worker *w, struct cl_request *r)
{
    const struct cl_sockload *s = w->s;
    r->id = w->ids++;
    r->second = r->held = r->live = 0;
    r->count = 1;
    r->hold_ns = s->hold_ns ? s->hold_ns[cl_random_next(&w->random) & (s->config.n_hold_ns - 1)] : 0;
    if (s->mode == CL_MODE_PRELOAD) {
        r->op = CL_SOCKLOAD_SET;
        r->key = w->preload_next;
        w->preload_next += s->n_workers;
        return;
    }
    r->op = draw_op(w);
    if (r->op == CL_SOCKLOAD_INSERT) {
        r->key = s->config.keys + w->inserted++ * s->n_workers + w->number;
        return;
    }
    r->key = draw_key(w);
    if (r->op == CL_SOCKLOAD_SCAN)
        r->count = 1 + (uint32_t)cl_random_below(&w->random, s->config.scan_most);
}

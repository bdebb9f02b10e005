/* See fault.h: the power goes, or the process ends and the power stays. */
#include "fault_internal.h"

/* Of what was in flight everything may have happened, in any order: the order in which it is taken here. NULL: nothing
 * is left. */
static struct flight *take_any(struct fault_blk *f, struct queue *q)
{
    struct flight **at = &q->first;
    if (!q->in_flight)
        return NULL;
    for (uint64_t skip = cl_random_below(&f->crashes, q->in_flight); skip; skip--)
        at = &(*at)->next;
    struct flight *t = *at;
    *at = t->next;
    q->in_flight--;
    f->counts.vanished++;
    return t;
}

static void crash_queue(struct fault_blk *f, struct queue *q, const struct cl_blk_fault_config *config)
{
    for (struct flight *t; (t = take_any(f, q));) {
        if (t->write && (t->fate == FATE_NO_SPACE || t->fate == FATE_DROP)) {
            cl_blk_cache_free(&f->cache, t->write);
        } else if (t->write) {
            f->counts.pieces_written += cl_blk_cache_pieces(&f->cache, t->write);
            cl_blk_cache_crash_one(&f->cache, t->write, config, &f->crashes);
        }
        flight_put(f, t);
    }
}

uint64_t cl_blk_fault_crash(struct cl_blk *blk)
{
    struct fault_blk *f = (struct fault_blk *)blk;
    pthread_mutex_lock(&f->lock);
    uint64_t before = f->counts.pieces_lost;
    struct cl_blk_fault_config config = f->config;
    if (f->cache.left == 0)
        config.survive = 0; /* the power went earlier: what it left is there already */
    f->cache.left = UINT64_MAX;
    cl_blk_cache_crash(&f->cache, &config, &f->crashes);
    for (unsigned i = 0; i < blk->n_queues; i++)
        crash_queue(f, &f->queues[i], &config);
    f->counts.crashes++;
    cl_store_relaxed(&blk->gone, f->failed);
    pthread_mutex_unlock(&f->lock);
    return f->counts.pieces_lost - before;
}

/* A write that nobody waits for any more. As with a crash, something of it may be left, or all. */
static void kill_write(struct fault_blk *f, struct flight *t)
{
    bool survives = cl_random_unit(&f->crashes) <= f->config.survive;
    if (!survives || f->blk.gone || t->fate == FATE_NO_SPACE || t->fate == FATE_DROP) {
        cl_blk_cache_free(&f->cache, t->write);
        return;
    }
    bool torn = t->fate == FATE_ERROR || cl_random_unit(&f->crashes) <= f->config.torn;
    bool durable = t->req->flags & CL_BLK_DURABLE && !torn && cl_random_next(&f->crashes) & 1;
    if (torn)
        cl_blk_cache_tear(&f->cache, t->write, &f->crashes);
    uint64_t pieces = cl_blk_cache_pieces(&f->cache, t->write);
    f->counts.pieces_written += pieces;
    if (durable) {
        cl_blk_cache_supersede(&f->cache, t->write, UINT64_MAX);
        (void)cl_blk_cache_store(&f->cache, 0, t->write, CL_BLK_DURABLE); /* nobody hears of an error */
    } else if (pieces) {
        cl_blk_cache_add(&f->cache, t->write);
    } else {
        cl_blk_cache_free(&f->cache, t->write);
    }
    if (f->unreadable && !torn)
        set_unreadable(f, t->req->offset, t->req->bytes, false);
}

void cl_blk_fault_kill(struct cl_blk *blk)
{
    struct fault_blk *f = (struct fault_blk *)blk;
    pthread_mutex_lock(&f->lock);
    for (unsigned i = 0; i < blk->n_queues; i++)
        for (struct flight *t; (t = take_any(f, &f->queues[i]));) {
            if (t->write)
                kill_write(f, t);
            else if (t->req->op == CL_BLK_FLUSH && !f->blk.gone && cl_random_next(&f->crashes) & 1)
                (void)do_flush(f, 0, t);
            flight_put(f, t);
        }
    f->counts.kills++;
    if (f->cache.left == 0)
        cl_store_relaxed(&blk->gone, 1); /* the power went in what was in flight */
    pthread_mutex_unlock(&f->lock);
}

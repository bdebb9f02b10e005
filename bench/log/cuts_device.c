/* See cuts_internal.h: stores the sectors of what is in flight one by one, in an order drawn from the seed, and keeps
 * each. */
#include "cuts_internal.h"

#include <string.h>

static void note(struct cuts_recorder *r, uint32_t write, bool done)
{
    if (r->n_events < r->room)
        r->events[r->n_events++] = (struct cuts_event){write, done, r->now};
}

static unsigned submit(struct cl_blk *blk, unsigned queue, struct cl_blk_req **reqs, unsigned n)
{
    struct cuts_recorder *r = (struct cuts_recorder *)blk;
    unsigned taken = 0;
    (void)queue;
    for (; taken < n && r->n < CUTS_FLIGHTS; taken++) {
        reqs[taken]->result = cl_blk_check(blk, reqs[taken]);
        r->at[r->n] = 0;
        r->write[r->n] = reqs[taken]->op == CL_BLK_WRITE ? r->n_writes++ : UINT32_MAX;
        if (reqs[taken]->op == CL_BLK_WRITE)
            note(r, r->write[r->n], false);
        r->flights[r->n++] = reqs[taken];
    }
    return taken;
}

/* Store one sector of a flight; true when that was the last one. */
static bool store(struct cuts_recorder *r, unsigned i)
{
    struct cl_blk_req *q = r->flights[i];
    uint8_t *data = cl_blk_memory_data(r->memory);
    if (q->result || q->op == CL_BLK_FLUSH)
        return true;
    if (q->op == CL_BLK_READ) {
        memcpy(q->buf, data + q->offset, q->bytes);
        return true;
    }
    if (r->n_stored == r->room) {
        q->result = -ENOMEM;
        return true;
    }
    struct cuts_stored *s = &r->all[r->n_stored++];
    *s = (struct cuts_stored){.offset = q->offset + r->at[i], .then = r->now, .write = r->write[i]};
    memcpy(s->bytes, (uint8_t *)q->buf + r->at[i], CUTS_SECTOR);
    memcpy(data + s->offset, s->bytes, CUTS_SECTOR);
    r->at[i] += CUTS_SECTOR;
    return r->at[i] == q->bytes;
}

static unsigned poll(struct cl_blk *blk, unsigned queue, struct cl_blk_req **done, unsigned n)
{
    struct cuts_recorder *r = (struct cuts_recorder *)blk;
    unsigned got = 0;
    (void)queue;
    for (uint64_t sectors = 1 + cl_random_below(&r->random, 12); sectors && r->n && got < n; sectors--) {
        unsigned i = (unsigned)cl_random_below(&r->random, r->n);
        if (!store(r, i))
            continue;
        if (r->flights[i]->op == CL_BLK_WRITE)
            note(r, r->write[i], true);
        done[got++] = r->flights[i];
        r->n--;
        memmove(&r->flights[i], &r->flights[i + 1], (r->n - i) * sizeof r->flights[0]);
        memmove(&r->at[i], &r->at[i + 1], (r->n - i) * sizeof r->at[0]);
        memmove(&r->write[i], &r->write[i + 1], (r->n - i) * sizeof r->write[0]);
    }
    return got;
}

static int wait(struct cl_blk *blk, unsigned queue, int64_t timeout_ns)
{
    (void)blk;
    (void)queue;
    (void)timeout_ns;
    return 0;
}

static const struct cl_blk_ops recorder_ops = {.name = "recorder", .submit = submit, .poll = poll, .wait = wait};

void cuts_recorder_begin(struct cuts_recorder *r, struct cl_blk *memory)
{
    r->memory = memory;
    r->blk = *memory;
    r->blk.ops = &recorder_ops;
}

/* The log as an object: format, open, pump, close, failing. */
#include "internal.h"

#include <corelane/libos/sched.h>

#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>

static int say(char *err, int rc, const char *format, ...) CL_PRINTF(3, 4);
static int say(char *err, int rc, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (err)
        vsnprintf(err, CL_LOG_WHY_BYTES, format, args);
    va_end(args);
    return rc;
}

void *cl_log_blocks(uint64_t bytes)
{
    void *p;
    return posix_memalign(&p, CL_LOG_BLOCK_BYTES, bytes) ? NULL : p;
}

int cl_log_register(struct cl_log *log, void *blocks, uint64_t bytes)
{
    return cl_blk_register_memory(log->blk, log->config.queue, blocks, bytes);
}

void cl_log_forget(struct cl_log *log, void *blocks)
{
    if (blocks)
        cl_blk_unregister_memory(log->blk, log->config.queue, blocks);
}

static int check_device(const struct cl_blk *blk, uint32_t queue, char *err)
{
    if (queue >= blk->n_queues)
        return say(err, -EINVAL, "the device has %u queues, there is no queue %u", blk->n_queues, queue);
    if (CL_LOG_BLOCK_BYTES % blk->block_bytes)
        return say(err, -EINVAL, "the device has blocks of %u bytes; the log needs a divisor of 4096",
                   blk->block_bytes);
    return 0;
}

/* Divide the area: 0, or say why it cannot be. */
static int lay_out(const struct cl_blk *blk, const struct cl_log_layout *layout, struct cl_log_disk_super *s, char *err)
{
    uint64_t whole = blk->bytes & ~(uint64_t)(CL_LOG_BLOCK_BYTES - 1), before = 2 * CL_LOG_BLOCK_BYTES;
    uint64_t pieces = (layout->snapshot_bytes + CL_LOG_PIECE_DATA - 1) / CL_LOG_PIECE_DATA;
    if (layout->snapshot_bytes > whole || before + 2 * pieces * CL_LOG_PIECE_BYTES > whole)
        return say(err, -ENOSPC, "two snapshots of %llu bytes do not fit into an area of %llu",
                   (unsigned long long)layout->snapshot_bytes, (unsigned long long)blk->bytes);
    s->snapshot_offset = before;
    s->snapshot_bytes = pieces * CL_LOG_PIECE_BYTES;
    s->ring_offset = before + 2 * s->snapshot_bytes;
    s->ring_bytes = whole - s->ring_offset;
    uint64_t flush = cl_min(s->ring_bytes / 16, 256u << 10) & ~(uint64_t)(CL_LOG_BLOCK_BYTES - 1);
    s->flush_bytes = layout->flush_bytes ? layout->flush_bytes : (uint32_t)cl_max(flush, CL_LOG_FLUSH_LEAST);
    if (s->flush_bytes < CL_LOG_FLUSH_LEAST || s->flush_bytes > CL_LOG_FLUSH_MOST ||
        s->flush_bytes % CL_LOG_BLOCK_BYTES)
        return say(err, -EINVAL, "flush_bytes is %u: expected a multiple of 4096 from %u to %u", s->flush_bytes,
                   CL_LOG_FLUSH_LEAST, CL_LOG_FLUSH_MOST);
    if (s->ring_bytes < (uint64_t)CL_LOG_RING_FLUSHES * s->flush_bytes)
        return say(
            err, -ENOSPC, "an area of %llu bytes leaves %llu for records: at least %u flushes of %u bytes are needed",
            (unsigned long long)blk->bytes, (unsigned long long)s->ring_bytes, CL_LOG_RING_FLUSHES, s->flush_bytes);
    return 0;
}

int cl_log_format(struct cl_blk *blk, unsigned queue, const struct cl_log_layout *layout, char *err)
{
    int rc = check_device(blk, queue, err);
    if (!rc && cl_load_relaxed(&blk->claimed)) /* relaxed: who opens a log meanwhile does so against the rules */
        rc = say(err, -EBUSY, "a log is open on that device: close it first");
    if (rc)
        return rc;
    struct cl_log_disk_super s = {.magic = CL_LOG_SUPER_MAGIC,
                                  .version = CL_LOG_VERSION,
                                  .area_id = layout->area_id,
                                  .area_bytes = blk->bytes,
                                  .generation = 2,
                                  .epoch_lsn = 1,
                                  .head_lsn = 1,
                                  .first_index = 1,
                                  .next_index = 1};
    rc = lay_out(blk, layout, &s, err);
    if (rc)
        return rc;
    while (s.area_id == 0)
        if (getrandom(&s.area_id, sizeof s.area_id, 0) != sizeof s.area_id)
            return say(err, -errno, "no random number for the area's id");
    s.crc = cl_log_super_crc(&s);
    uint8_t *block = cl_log_blocks(CL_LOG_BLOCK_BYTES);
    if (!block)
        return say(err, -ENOMEM, "no memory for a superblock");
    /* Nothing of an older log may be taken for this one's newer half: the other slot goes first. */
    memset(block, 0, CL_LOG_BLOCK_BYTES);
    rc = cl_blk_write(blk, queue, CL_LOG_BLOCK_BYTES, block, CL_LOG_BLOCK_BYTES, CL_BLK_DURABLE);
    memcpy(block, &s, sizeof s);
    if (rc == 0)
        rc = cl_blk_write(blk, queue, 0, block, CL_LOG_BLOCK_BYTES, CL_BLK_DURABLE);
    free(block);
    return rc ? say(err, rc, "writing the superblocks failed: %s", strerror(-rc)) : 0;
}

void cl_log_done(struct cl_log *log, struct cl_log_op *first, int result)
{
    (void)log;
    while (first) {
        struct cl_log_op *op = first;
        first = op->next; /* before it may go */
        op->result = result;
        if (op->done)
            op->done(op);
    }
}

void cl_log_fail(struct cl_log *log, int error, const char *format, ...)
{
    if (log->state == CL_LOG_FAILED)
        return;
    va_list args;
    va_start(args, format);
    vsnprintf(log->why, sizeof log->why, format, args);
    va_end(args);
    log->state = CL_LOG_FAILED;
    /* Of these a submit says that it may be asked again; a device that answers so has failed all the same, as `why`
     * says. */
    log->error = error == -ENOSPC || error == -EAGAIN || error == -EBUSY ? -EIO : error;
    cl_log_flushes_fail(log);
    cl_log_super_fail(log);
    cl_log_snapshot_fail(log);
}

void cl_log_post(struct cl_log *log, struct cl_log_io *io, int op, unsigned flags, uint64_t offset, void *buf,
                 uint64_t bytes)
{
    io->req = (struct cl_blk_req){
        .op = (uint8_t)op, .flags = (uint8_t)flags, .offset = offset, .bytes = (uint32_t)bytes, .buf = buf};
    if (log->outbox)
        log->outbox_last->next = &io->req;
    else
        log->outbox = &io->req;
    log->outbox_last = &io->req;
    log->in_flight++;
}

/* Hand the posted requests to the device; what it does not take stays for the next pump. After a failure nothing is
 * sent that was not yet: those requests come back as if the device had refused them. */
void cl_log_doorbell(struct cl_log *log)
{
    struct cl_blk_req *reqs[64];
    while (log->outbox) {
        unsigned n = 0;
        for (struct cl_blk_req *r = log->outbox; r && n < 64; r = r->next)
            reqs[n++] = r;
        struct cl_blk_req *rest = reqs[n - 1]->next;
        if (log->state == CL_LOG_FAILED) {
            log->outbox = rest;
            for (unsigned i = 0; i < n; i++) {
                log->in_flight--;
                reqs[i]->result = -ECANCELED;
                ((struct cl_log_io *)reqs[i])->complete(log, (struct cl_log_io *)reqs[i]);
            }
            continue;
        }
        cl_sched_call_begin();
        unsigned taken = log->blk->ops->submit(log->blk, log->config.queue, reqs, n);
        cl_sched_call_end();
        log->outbox = taken < n ? reqs[taken] : rest;
        if (taken < n)
            return;
    }
}

static unsigned collect(struct cl_log *log)
{
    struct cl_blk_req *done[32];
    unsigned all = 0;
    for (;;) {
        unsigned n = log->blk->ops->poll(log->blk, log->config.queue, done, 32);
        for (unsigned i = 0; i < n; i++) {
            struct cl_log_io *io = (struct cl_log_io *)done[i];
            log->in_flight--;
            io->complete(log, io);
        }
        all += n;
        if (n < 32)
            return all;
    }
}

/* The end of closing: what waits goes first, then the superblock that says that nothing follows. */
static bool close_step(struct cl_log *log)
{
    if (!log->closing || log->in_flight || log->super.wanted || log->super.second || log->super.meta_op ||
        cl_log_unsent(log) || log->snap.committing)
        return false;
    if (!log->closed && log->config.on_damage != CL_LOG_READ_ONLY) {
        log->closed = true;
        cl_log_super_want(log, NULL);
    } else {
        log->state = CL_LOG_CLOSED;
    }
    return true;
}

unsigned cl_log_pump(struct cl_log *log)
{
    unsigned all = log->in_flight ? collect(log) : 0;
    for (bool any = true; any; all += any) {
        any = false;
        if (log->state == CL_LOG_OPENING && (any = cl_log_recover_step(log)) && log->in_flight)
            all += collect(log); /* after each segment: the next read goes when one is done, not when all are checked */
        if (log->state == CL_LOG_READY) {
            any |= cl_log_flushes_step(log);
            any |= cl_log_snapshot_step(log);
            any |= cl_log_repack_step(log);
            any |= cl_log_confirm_step(log);
            any |= cl_log_super_step(log);
            any |= close_step(log);
        }
    }
    cl_log_doorbell(log);
    return all;
}

bool cl_log_busy(const struct cl_log *log)
{
    if (log->in_flight || log->state == CL_LOG_OPENING)
        return true;
    return log->state == CL_LOG_READY &&
           (log->closing || log->repack.phase != REPACK_REST || log->super.wanted || log->super.second ||
            log->super.meta_op || log->snap.committing || cl_log_unsent(log));
}

uint64_t cl_log_next_ns(const struct cl_log *log)
{
    const struct cl_blk_ops *ops = log->blk->ops;
    uint64_t next = log->in_flight && ops->next_ns ? ops->next_ns(log->blk, log->config.queue) : UINT64_MAX;
    if (log->config.fixed_wait_ns && log->state == CL_LOG_READY) {
        const struct cl_log_flush *f = &log->flushes[log->open_lsn % log->n_flushes];
        if (f->lsn == log->open_lsn && f->records)
            next = cl_min(next, f->first_ns + log->config.fixed_wait_ns);
    }
    if (log->state == CL_LOG_READY)
        next = cl_min(next, cl_log_confirm_next_ns(log));
    return next;
}

static uint64_t monotonic(void *arg)
{
    struct timespec t;
    (void)arg;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int check_config(struct cl_log_config *c, char *err)
{
    int rc = check_device(c->blk, c->queue, err);
    if (rc)
        return rc;
    c->in_flight = c->in_flight ? c->in_flight : 8;
    c->buffers = c->buffers ? c->buffers : 16;
    c->confirm_ns = c->confirm_ns ? c->confirm_ns : CL_LOG_CONFIRM_NS;
    c->now_ns = c->now_ns ? c->now_ns : monotonic;
    if (c->on_damage > CL_LOG_READ_ONLY || c->in_flight > 1024 || c->buffers < 2 || c->buffers > 65536)
        return say(err, -EINVAL, "on_damage %u, in_flight %u, buffers %u: expected at most 2, 1 to 1024, 2 to 65536",
                   c->on_damage, c->in_flight, c->buffers);
    if (c->blk->bytes < 2 * CL_LOG_BLOCK_BYTES)
        return say(err, -EINVAL, "the device has %llu bytes, and the superblocks alone take %u",
                   (unsigned long long)c->blk->bytes, 2 * CL_LOG_BLOCK_BYTES);
    return 0;
}

int cl_log_open(const struct cl_log_config *config, struct cl_log **out, char *err)
{
    struct cl_log_config c = *config;
    int rc = check_config(&c, err);
    if (rc)
        return rc;
    if (!cl_blk_claim(c.blk))
        return say(err, -EBUSY, "a log is open on that device: close it first, or use that one");
    struct cl_log *log = calloc(1, sizeof *log);
    if (!log) {
        cl_blk_unclaim(c.blk);
        return say(err, -ENOMEM, "no memory for the log");
    }
    log->config = c;
    log->first_flights = config->in_flight ? config->in_flight : 1;
    log->blk = c.blk;
    log->n_flushes = c.buffers;
    log->super.block = cl_log_blocks(CL_LOG_BLOCK_BYTES);
    if (!log->super.block || cl_log_recover_start(log)) {
        cl_log_discard(log);
        return say(err, -ENOMEM, "no memory for the log");
    }
    memset(log->super.block, 0, CL_LOG_BLOCK_BYTES);
    *out = log;
    return 0;
}

/* Pump, and block the thread until the device has something if there was nothing to do. A device whose wait fails is
 * asked again and again: what is in flight has our buffers. */
static void wait_pumping(struct cl_log *log)
{
    if (cl_log_pump(log) == 0 && log->in_flight && log->blk->ops->wait(log->blk, log->config.queue, -1))
        sched_yield();
}

int cl_log_wait(struct cl_log *log, const struct cl_log_op *op)
{
    while (op->result == CL_LOG_PENDING)
        wait_pumping(log);
    return op->result;
}

int cl_log_open_wait(const struct cl_log_config *config, struct cl_log **out, struct cl_log_report *report, char *err)
{
    struct cl_log *log;
    int rc = cl_log_open(config, &log, err);
    if (rc)
        return rc;
    while (log->state == CL_LOG_OPENING)
        wait_pumping(log);
    if (report)
        *report = log->report;
    if (log->state == CL_LOG_READY) {
        *out = log;
        return 0;
    }
    rc = say(err, log->error, "%s", log->why);
    cl_log_close(log, NULL);
    return rc;
}

void cl_log_discard(struct cl_log *log)
{
    cl_log_cursors_free(log); /* a node that crashed while it recovered has one */
    cl_log_recover_free(log);
    cl_log_snapshot_free(log);
    cl_log_repack_free(log);
    free(log->super.block);
    free(log->view.spans);
    free(log->flushes);
    cl_log_forget(log, log->arena);
    free(log->arena);
    cl_blk_unclaim(log->blk);
    free(log);
}

void cl_log_close_begin(struct cl_log *log)
{
    log->closing = true;
    cl_log_snapshot_abort(log);
}

int cl_log_close(struct cl_log *log, char *err)
{
    cl_log_close_begin(log);
    while (cl_log_busy(log))
        wait_pumping(log);
    int rc = log->error ? say(err, log->error, "%s", log->why) : 0;
    cl_log_discard(log);
    return rc;
}

void cl_log_stamped(struct cl_log *log, const struct cl_clock *clock)
{
    log->clock = clock;
}

int cl_log_state(const struct cl_log *log)
{
    return log->state;
}

int cl_log_error(const struct cl_log *log)
{
    return log->error;
}

const char *cl_log_why(const struct cl_log *log)
{
    return log->why;
}

void cl_log_report(const struct cl_log *log, struct cl_log_report *out)
{
    *out = log->report;
}

void cl_log_stats(const struct cl_log *log, struct cl_log_stats *out)
{
    *out = log->stats;
    out->last_flush = log->view.lsn;
    out->said_flush = log->confirm.said_lsn;
    out->width = cl_log_adapts(log) ? log->width.now : log->config.in_flight;
}

uint32_t cl_log_meta_get(const struct cl_log *log, void *buf)
{
    memcpy(buf, log->view.meta, log->view.meta_bytes);
    return log->view.meta_bytes;
}

uint64_t cl_log_first_index(const struct cl_log *log)
{
    return log->view.first_index;
}

uint64_t cl_log_durable_index(const struct cl_log *log)
{
    return log->view.next_index - 1;
}

uint64_t cl_log_next_index(const struct cl_log *log)
{
    return log->open_index;
}

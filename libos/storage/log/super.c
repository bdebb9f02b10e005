/* The superblocks: where recovery begins, the epoch, the meta blob as of then, which snapshot is the one.
 *
 * There are two slots, written in turns and one at a time, so the last whole one is there whatever a crash tears. After
 * what was asked for the other slot follows, so that at rest both are of today and either may rot. What was asked for
 * is acknowledged, and what a superblock frees or makes valid counts, when both slots have it: until then nothing is
 * written over what the older one needs.
 *
 * A meta blob comes here as well when the ring is short of room. Nothing else frees it from the ring: of records of
 * which none may be trimmed, votes between them would fill the ring for good. It waits until all before it is
 * acknowledged and holds back what comes after it, so that the order of acknowledgements is that of the calls, and is
 * acknowledged when both slots have it, for either may rot. */
#include "internal.h"

uint32_t cl_log_super_crc(const struct cl_log_disk_super *s)
{
    struct cl_log_disk_super copy = *s;
    copy.crc = 0;
    return cl_crc32c(cl_log_seed(s->generation & 1, 0, 0), &copy, sizeof copy);
}

void cl_log_super_want(struct cl_log *log, struct cl_log_op *op)
{
    struct cl_log_super *s = &log->super;
    s->wanted = true;
    if (!op)
        return;
    op->next = NULL;
    op->result = CL_LOG_PENDING;
    if (s->waiting)
        s->waiting_last->next = op;
    else
        s->waiting = op;
    s->waiting_last = op;
}

void cl_log_super_meta(struct cl_log *log, struct cl_log_op *op)
{
    struct cl_log_super *s = &log->super;
    if (op->bytes)
        memcpy(s->meta, op->data, op->bytes);
    s->meta_op = op;
    s->meta_slots = 0;
    op->index = ++log->meta_number;
    op->next = NULL;
    op->result = CL_LOG_PENDING;
}

/* Whether the meta blob's turn has come: all that was submitted before it is acknowledged. */
static bool may_ride(const struct cl_log *log)
{
    return log->view.lsn == log->sent_lsn && !cl_log_unsent(log);
}

/* A superblock with the meta blob is durable. */
static void meta_written(struct cl_log *log)
{
    struct cl_log_super *s = &log->super;
    struct cl_log_op *op = s->meta_op;
    if (++s->meta_slots < 2)
        return;
    log->view.meta_number = s->now.meta_number;
    log->view.meta_bytes = s->now.meta_bytes;
    memcpy(log->view.meta, s->now.meta, s->now.meta_bytes);
    s->meta_op = NULL;
    cl_log_done(log, op, 0);
}

/* The superblock that says what is durable at this moment. */
static void fill(struct cl_log *log, struct cl_log_disk_super *out)
{
    struct cl_log_view *v = &log->view;
    *out = log->super.now;
    if (log->repack.phase != REPACK_REST)
        out->version = CL_LOG_VERSION_COPIES;
    out->generation++;
    out->closed = log->closed;
    out->epoch = log->epoch;
    out->durable_lsn = v->lsn;
    out->durable_index = v->next_index - 1;
    if (!cl_log_view_head(v, &out->head_lsn, &out->head_place)) {
        out->head_lsn = v->lsn + 1;
        out->head_place = v->end_place;
    }
    out->first_index = v->first_index;
    out->next_index = v->next_index;
    out->meta_number = v->meta_number;
    out->meta_bytes = v->meta_bytes;
    memset(out->meta, 0, sizeof out->meta);
    memcpy(out->meta, v->meta, v->meta_bytes);
    if (log->super.meta_op && may_ride(log)) {
        out->meta_number = log->meta_number;
        out->meta_bytes = log->super.meta_op->bytes;
        memset(out->meta, 0, sizeof out->meta);
        memcpy(out->meta, log->super.meta, out->meta_bytes);
    }
    if (log->snap.publish) {
        const struct cl_log_snapshot *n = &log->snap.next;
        out->snapshot_number = n->number;
        out->snapshot_index = n->index;
        out->snapshot_tag = n->tag;
        out->snapshot_length = n->bytes;
    }
    out->crc = cl_log_super_crc(out);
}

static void completed(struct cl_log *log, struct cl_log_io *io)
{
    struct cl_log_super *s = &log->super;
    s->busy = false;
    if (io->req.result) {
        cl_log_fail(log, io->req.result, "writing the superblock at offset %llu failed: %s",
                    (unsigned long long)io->req.offset, strerror(-io->req.result));
        return;
    }
    uint64_t older = s->now.snapshot_number;
    bool published =
        log->snap.publish && older == log->snap.next.number && s->block->snapshot_number == log->snap.next.number;
    log->head_place = s->now.head_place; /* what the older slot needs */
    s->now = *s->block;
    cl_log_confirm_said(log, s->now.durable_lsn);
    log->stats.superblocks++;
    struct cl_log_op *ops = s->half;
    s->half = s->riding;
    s->riding = NULL;
    if (published)
        cl_log_snapshot_published(log);
    cl_log_done(log, ops, 0);
    if (s->meta_op && s->now.meta_number == log->meta_number)
        meta_written(log);
}

bool cl_log_super_step(struct cl_log *log)
{
    struct cl_log_super *s = &log->super;
    bool meta = s->meta_op && may_ride(log);
    if (s->busy || (!s->wanted && !s->second && !meta))
        return false;
    s->second = s->wanted;
    s->wanted = false;
    s->busy = true;
    s->riding = s->waiting;
    s->waiting = s->waiting_last = NULL;
    fill(log, s->block);
    s->io.complete = completed;
    cl_log_post(log, &s->io, CL_BLK_WRITE, CL_BLK_DURABLE, (s->block->generation & 1) * CL_LOG_BLOCK_BYTES, s->block,
                CL_LOG_BLOCK_BYTES);
    return true;
}

void cl_log_super_fail(struct cl_log *log)
{
    struct cl_log_op *riding = log->super.riding, *waiting = log->super.waiting, *meta = log->super.meta_op;
    struct cl_log_op *half = log->super.half;
    log->super.half = log->super.riding = log->super.waiting = log->super.meta_op = NULL;
    cl_log_done(log, half, log->error);
    cl_log_done(log, riding, log->error);
    cl_log_done(log, waiting, log->error);
    cl_log_done(log, meta, log->error);
}

int cl_log_trim(struct cl_log *log, uint64_t first_kept, struct cl_log_op *op)
{
    if (log->state != CL_LOG_READY)
        return log->state == CL_LOG_FAILED ? log->error : -EBUSY;
    if (log->config.on_damage == CL_LOG_READ_ONLY)
        return -EROFS;
    /* open_index: a truncation that is under way may have gone below what is durable. */
    if (first_kept > cl_min(log->view.next_index, log->open_index))
        return -ERANGE;
    if (first_kept > log->view.first_index)
        cl_log_view_trim(&log->view, first_kept);
    log->stats.trims++;
    cl_log_super_want(log, op);
    return 0;
}

/* Opening: take the newest superblock, apply the flushes behind its head one after another, and scan for what ended
 * them.
 *
 * The ring is read once around from the head on, in segments that are read while those before them are checked. The
 * first flush that is not whole, or is not the one that comes next, ends the log. Then the rest of the lap is searched
 * for proof that there was more: a later flush of this epoch that says the bad one had been acknowledged when it was
 * sent, a flush of an epoch that the superblock does not know, or the superblock's own word. With proof it is damage;
 * without, a write that a crash cut short.
 *
 * What was found is written again where no flush says that it was acknowledged: it may be in a cache alone. Before the
 * log takes appends a superblock with a higher epoch is made durable, which says where that epoch begins. Flushes that
 * were in flight at the crash and became durable behind the gap that another one left are of an older epoch: they never
 * match. */
#include "recover.h"

#include <stdlib.h>

int cl_log_recover_start(struct cl_log *log)
{
    struct cl_log_recover *r = log->recover = calloc(1, sizeof *r);
    if (!r || !(r->blocks = cl_log_blocks(2 * CL_LOG_BLOCK_BYTES)))
        return -ENOMEM;
    cl_log_read_supers(log);
    return 0;
}

void cl_log_recover_free(struct cl_log *log)
{
    if (!log->recover)
        return;
    cl_log_lap_free(log);
    free(log->recover->blocks);
    free(log->recover);
    log->recover = NULL;
}

/* The device says that flushes up to `lsn` had been acknowledged, the last index of which was then this one: the latest
 * word counts, as truncations take indexes back. The same word again says nothing new. */
static void acknowledged(struct cl_log *log, uint64_t lsn, uint64_t index)
{
    struct cl_log_recover *r = log->recover;
    if (r->acknowledged_told && lsn <= r->acknowledged_lsn)
        return;
    r->acknowledged_told = true;
    r->acknowledged_lsn = lsn;
    log->report.acknowledged_index = index;
}

static int adopt(struct cl_log *log, const struct cl_log_disk_super *s)
{
    struct cl_log_recover *r = log->recover;
    struct cl_log_view *v = &log->view;
    log->super.now = *s;
    log->area_id = s->area_id;
    log->ring_offset = s->ring_offset;
    log->ring_bytes = s->ring_bytes;
    log->ring_shift = s->ring_shift;
    log->flush_bytes = s->flush_bytes;
    log->head_place = s->head_place;
    v->first_index = s->first_index;
    v->next_index = s->durable_lsn >= s->head_lsn ? s->first_index : s->next_index;
    v->lsn = s->head_lsn - 1;
    v->end_place = s->head_place;
    v->meta_number = s->meta_number;
    v->meta_bytes = s->meta_bytes;
    memcpy(v->meta, s->meta, s->meta_bytes);
    r->highest_epoch = s->epoch;
    acknowledged(log, s->durable_lsn, s->durable_index);
    r->at = r->read_place = r->again.place = r->again_next.place = s->head_place;
    r->again.lsn = r->again_next.lsn = s->head_lsn;
    r->end = s->head_place + s->ring_bytes;
    return cl_log_lap_start(log);
}

/* Why a header is not that of the next flush; NULL: it is. */
static const char *unexpected(const struct cl_log *log, const struct cl_log_disk_flush *h, uint64_t place)
{
    const struct cl_log_disk_super *s = &log->super.now;
    if (h->magic != cl_log_magic(log->area_id))
        return "no flush begins there";
    if (!cl_log_flush_ours(log, h, cl_log_offset_of(log, place)))
        return "the header of the flush has a wrong checksum";
    if (h->lsn != log->view.lsn + 1 || h->place != place)
        return "what lies there is a flush of an earlier time";
    if (h->lsn < s->epoch_lsn ? h->epoch >= s->epoch : h->epoch != s->epoch)
        return "what lies there is a flush of another epoch";
    if (h->lsn != s->head_lsn && h->first_index != log->view.next_index)
        return "the flush does not begin at the index at which the one before it ended";
    if ((place - log->ring_shift) % log->ring_bytes + cl_log_round(h->bytes) > log->ring_bytes)
        return "the flush runs past the end of the ring";
    return NULL;
}

/* Whether what lies there is a bad copy of the next flush's header, and not a good one of an earlier time or another
 * log. */
static bool remains(const struct cl_log *log, const struct cl_log_disk_flush *h, uint64_t place)
{
    return __builtin_popcount(h->magic ^ cl_log_magic(log->area_id)) <= 4 &&
           (h->lsn == log->view.lsn + 1 || h->place == place) &&
           !cl_log_flush_ours(log, h, cl_log_offset_of(log, place));
}

/* The log ends before r->at. */
static void end_at(struct cl_log *log, const struct cl_log_disk_flush *h, const char *why, uint64_t in_flush)
{
    struct cl_log_recover *r = log->recover;
    const struct cl_log_disk_super *s = &log->super.now;
    uint64_t lsn = log->view.lsn + 1;
    r->bad_place = r->at;
    r->bad_why = why;
    log->report.bad_offset = cl_log_offset_of(log, r->at) + in_flush;
    r->torn = in_flush || remains(log, h, r->at);
    r->proof = lsn < s->epoch_lsn || lsn <= s->durable_lsn;
    uint64_t end = r->at + (in_flush ? cl_log_round(h->bytes) : CL_LOG_BLOCK_BYTES);
    r->unread_place = cl_log_unreadable_from(r, r->at, end);
    r->unread = r->unread_place < end;
    r->searching = true;
    if (log->config.search_bytes)
        r->end = cl_min(r->end, r->at + log->config.search_bytes);
    /* Nothing was written since it was closed: nothing to look for. But a bad superblock may have been of an opening
     * since. */
    if (s->closed && lsn == s->durable_lsn + 1 && !log->report.bad_superblocks) {
        r->end = r->at;
        r->unread = false;
    }
}

/* Apply the flushes of a segment. False: the rest of it belongs to one that ends in the next segment, or nothing is
 * left. */
static void scan(struct cl_log *log, const struct cl_log_segment *g)
{
    struct cl_log_recover *r = log->recover;
    uint64_t seg_end = g->place + g->bytes;
    while (r->at < seg_end && r->at < r->end) {
        const struct cl_log_disk_flush *h = (const struct cl_log_disk_flush *)cl_log_at_place(g, r->at);
        const char *why = unexpected(log, h, r->at);
        uint64_t in_flush = 0;
        if (!why && r->at + cl_log_round(h->bytes) > seg_end && seg_end < r->end)
            return;
        if (!why && r->at + cl_log_round(h->bytes) > r->end)
            why = "the flush runs into the head of the log";
        if (!why)
            why = cl_log_flush_records(log, (const uint8_t *)h, &in_flush);
        if (why) {
            end_at(log, h, why, in_flush);
            return;
        }
        if (h->lsn == log->super.now.head_lsn)
            log->view.next_index = h->first_index;
        if (cl_log_view_apply(log, (const uint8_t *)h)) {
            cl_log_fail(log, -ENOMEM, "no memory for the index of the records");
            return;
        }
        log->report.flushes++;
        log->report.records += h->records;
        acknowledged(log, h->durable_lsn, h->durable_index);
        if (r->again_next.lsn <= r->acknowledged_lsn + 1) {
            r->again = r->again_next;
            r->again_next.lsn = h->lsn;
            r->again_next.place = r->at;
        }
        if (h->lsn > r->acknowledged_lsn) /* what it truncated is given up, not lost */
            log->report.acknowledged_index = cl_min(log->report.acknowledged_index, log->view.next_index - 1);
        r->at = log->view.end_place;
    }
}

/* Look in a segment for what proves that the log went on behind the bad flush. */
static void search(struct cl_log *log, const struct cl_log_segment *g)
{
    struct cl_log_recover *r = log->recover;
    const struct cl_log_disk_super *s = &log->super.now;
    uint64_t seg_end = cl_min(g->place + g->bytes, r->end), lsn = log->view.lsn + 1;
    for (; r->at < seg_end; r->at += CL_LOG_BLOCK_BYTES) {
        const struct cl_log_disk_flush *h = (const struct cl_log_disk_flush *)cl_log_at_place(g, r->at);
        if (h->lsn < lsn || h->epoch < s->epoch || h->place != r->at ||
            !cl_log_flush_ours(log, h, cl_log_offset_of(log, r->at)))
            continue;
        r->torn = true;
        log->report.beyond_flushes++;
        r->highest_epoch = cl_max(r->highest_epoch, h->epoch);
        acknowledged(log, h->durable_lsn, h->durable_index);
        if ((h->epoch > s->epoch || h->durable_lsn >= lsn) && r->beyond_place == 0) {
            r->proof = true;
            r->beyond_place = r->at;
            log->report.beyond_offset = cl_log_offset_of(log, r->at);
        }
    }
}

/* All is read: refuse, or begin a new epoch. */
static void conclude(struct cl_log *log)
{
    struct cl_log_recover *r = log->recover;
    cl_log_judge(log);
    if (log->report.tail == CL_LOG_TAIL_DAMAGED && log->config.on_damage == CL_LOG_REFUSE) {
        cl_log_fail(log, -EBADMSG, "%.*s", CL_LOG_WHY_BYTES - 1, log->report.why);
        return;
    }
    cl_log_grow(log, r->n_unreadable == 0);
    log->epoch = r->highest_epoch + 1;
    if (log->epoch > UINT32_MAX) {
        cl_log_fail(log, -EOVERFLOW, "the log has been opened 2^32 times: copy it to a new one");
        return;
    }
    if (cl_log_flushes_start(log)) {
        cl_log_fail(log, -ENOMEM, "no memory for %u flushes of %u bytes", log->n_flushes, log->flush_bytes);
        return;
    }
    r->phase = log->config.on_damage == CL_LOG_READ_ONLY ? CL_LOG_EPOCH : CL_LOG_MEND;
}

static void looked(struct cl_log *log, struct cl_log_io *io)
{
    struct cl_log_recover *r = log->recover;
    const struct cl_log_disk_flush *h = io->req.buf;
    uint64_t in_flush;
    r->looking = false;
    if (io->req.result || log->state == CL_LOG_FAILED || unexpected(log, h, r->bad_place) ||
        cl_log_round(h->bytes) > io->req.bytes || cl_log_flush_records(log, io->req.buf, &in_flush))
        return; /* as was found before */
    cl_log_fail(
        log, -EIO,
        "the flush at offset %llu, where index %llu was to come, was read twice, and only the second time it was "
        "whole: open the log again",
        (unsigned long long)io->req.offset, (unsigned long long)log->view.next_index);
}

/* What ended the log is read once more: a read that was wrong that once would else cost for good what had been
 * acknowledged. */
static void look_again(struct cl_log *log)
{
    struct cl_log_recover *r = log->recover;
    uint64_t offset = cl_log_offset_of(log, r->bad_place);
    uint64_t bytes = cl_min(log->flush_bytes, log->super.now.head_place + log->ring_bytes - r->bad_place);
    r->phase = CL_LOG_SCAN;
    if (!r->searching || r->end == r->bad_place)
        return;
    r->look.complete = looked;
    r->looking = true;
    cl_log_post(log, &r->look, CL_BLK_READ, 0, offset, r->room,
                cl_min(bytes, log->ring_offset + log->ring_bytes - offset));
}

static void mended(struct cl_log *log, struct cl_log_io *io)
{
    log->recover->mending = false;
    if (io->req.result)
        cl_log_fail(log, io->req.result, "the block at offset %llu could not be read, and writing it failed: %s",
                    (unsigned long long)io->req.offset, strerror(-io->req.result));
}

/* Blocks that cannot be read are written, so that the disk replaces their sectors: else one of them lies right behind
 * the end one day and is taken for a flush that is lost. One in a flush that is whole all the same holds zeros. False:
 * none is left. */
static bool mend_next(struct cl_log *log)
{
    struct cl_log_recover *r = log->recover;
    if (r->n_mended < r->n_unreadable) {
        uint64_t place = r->unreadable[r->n_mended++];
        memset(r->blocks, 0, CL_LOG_BLOCK_BYTES);
        r->mend.complete = mended;
        r->mending = true;
        cl_log_post(log, &r->mend, CL_BLK_WRITE, CL_BLK_DURABLE, cl_log_offset_of(log, place), r->blocks,
                    CL_LOG_BLOCK_BYTES);
        return true;
    }
    return false;
}

static void begin_epoch(struct cl_log *log)
{
    log->recover->phase = CL_LOG_EPOCH;
    log->super.now.epoch_lsn = log->view.lsn + 1;
    cl_log_super_want(log, NULL);
    cl_log_super_step(log);
}

static void stream(struct cl_log *log)
{
    struct cl_log_recover *r = log->recover;
    struct cl_log_segment *g = &r->segments[r->current];
    struct cl_log_segment *before = &r->segments[(r->current + r->n_segments - 1) % r->n_segments];
    if (!r->searching && r->at < g->place) /* the beginning of a flush, in the segment before */
        memcpy(g->base - (g->place - r->at), cl_log_at_place(before, r->at), g->place - r->at);
    if (!r->searching)
        scan(log, g);
    if (r->searching)
        search(log, g);
    r->current = (r->current + 1) % r->n_segments;
    r->posted--;
}

bool cl_log_recover_step(struct cl_log *log)
{
    struct cl_log_recover *r = log->recover;
    if (r->phase == CL_LOG_SUPERS) {
        if (r->waiting)
            return false;
        const struct cl_log_disk_super *s = cl_log_choose(log);
        if (s && adopt(log, s))
            cl_log_fail(log, -ENOMEM, "no memory for reading the log");
        if (log->state == CL_LOG_FAILED)
            return true;
        r->phase = CL_LOG_STREAM;
        return true;
    }
    if (r->phase == CL_LOG_STREAM) {
        cl_log_lap_ahead(log);
        if (r->posted && r->segments[r->current].waiting)
            return false;
        if (r->posted && r->at < r->end)
            stream(log);
        else
            r->phase = CL_LOG_DRAIN;
        return true;
    }
    if (r->phase == CL_LOG_DRAIN) {
        if (r->reading)
            return false;
        look_again(log);
        return true;
    }
    if (r->phase == CL_LOG_SCAN) {
        if (r->looking)
            return false;
        conclude(log);
        return true;
    }
    if (r->phase == CL_LOG_MEND) {
        if (r->mending)
            return false;
        if (!mend_next(log) && !cl_log_write_again(log))
            begin_epoch(log);
        return true;
    }
    if (log->super.busy)
        return false;
    if (log->super
            .second) /* either may rot, and the old one knows neither flushes of this epoch nor where the ring grew */
        return cl_log_super_step(log);
    log->state = CL_LOG_READY;
    cl_log_recover_free(log);
    return true;
}

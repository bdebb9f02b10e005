/* Opening: find the newest superblock, apply the flushes behind its head one after another, and judge what ends them.
 *
 * The ring is read once around from the head on, in segments that are read while those before them are checked. The first
 * flush that is not whole, or is not the one that comes next, ends the log. Then the rest of the lap is searched for proof that there was
 * more: a later flush of this epoch that says the bad one had been acknowledged when it was sent, a flush of an epoch that the
 * superblock does not know, or the superblock's own word. With proof it is damage; without, a write that a crash cut short.
 *
 * Before the log takes appends a superblock with a higher epoch is made durable, which says where that epoch begins. Flushes that
 * were in flight at the crash and became durable behind the gap that another one left are of an older epoch: they never match. */
#include "log_internal.h"

#include <stdio.h>
#include <stdlib.h>

/* Disks differ, and one disk from minute to minute, in whether they like 1 MiB on its way better or 4: half of the segments is 2. The
 * other half is for checking, which so never keeps the device waiting. Where flushes are large, segments are fewer and larger. */
#define SEGMENT_LEAST (256u << 10)
#define SEGMENT_MOST (1u << 20)
#define SEGMENTS_LEAST 4 /* one is checked while the others are read */
#define SEGMENTS 16
#define ROOM_BYTES (8u << 20)
#define LARGE_BYTES (32u << 20) /* smaller rings are read before huge pages and registering them pay */
#define READ_TRIES 3            /* of a block alone */
#define UNREADABLE_MOST 1024    /* blocks: with more, it is the device that fails */

/* Of a superblock or a segment. If it fails it is done again block by block, so that one bad sector costs its block only. */
struct read {
    struct cl_log_io io;
    struct segment *segment; /* NULL: of a superblock */
    uint64_t left;           /* bytes behind the block that is being read alone */
    bool alone;
    unsigned tries; /* of that block, that failed */
};

struct segment {
    struct read read;
    uint8_t *base; /* flush_bytes before it: the beginning of a flush that ends in this segment */
    uint64_t place, bytes;
    bool waiting;
};

struct cl_log_recover {
    enum { SUPERS, STREAM, DRAIN, MEND, EPOCH } phase;
    struct read supers[2];
    uint8_t *blocks; /* of the two */
    unsigned waiting;
    struct segment segments[SEGMENTS];
    uint8_t *room; /* of all segments */
    unsigned n_segments;
    uint64_t segment_bytes;
    unsigned current, posted, reading; /* checked next; asked for, from that one on; not there yet of those */
    uint64_t read_place;               /* where the next segment begins */
    uint64_t end;                      /* of the lap, or of the search */
    uint64_t at;                       /* place of the next flush, or of the next block to look at */
    bool searching, proof, torn;
    bool unread; /* the flush that is bad, or what might tell whether it is damaged, cannot be read at unread_place */
    uint64_t bad_place, beyond_place, unread_place;
    const char *bad_why;
    uint64_t highest_epoch;
    uint64_t unreadable[UNREADABLE_MOST]; /* places */
    unsigned n_unreadable;
    struct cl_log_io mend;
    unsigned n_mended;
    bool mending;
};

/* Say that a block could not be read; what is taken for its content is zero. False: no more of them are put up with. */
static bool unreadable(struct cl_log *log, const struct cl_log_io *io)
{
    struct cl_log_report *p = &log->report;
    if (log->state == CL_LOG_FAILED)
        return false;
    if (log->blk->gone || p->unreadable_blocks == UNREADABLE_MOST) {
        cl_log_fail(log, io->req.result, "reading %u bytes at offset %llu failed: %s%s", (unsigned)io->req.bytes,
                    (unsigned long long)io->req.offset, strerror(-io->req.result),
                    log->blk->gone ? "; the device answers nothing any more" : "; so did too many others");
        return false;
    }
    memset(io->req.buf, 0, io->req.bytes);
    if (p->unreadable_blocks++ == 0) {
        p->unreadable_offset = io->req.offset;
        p->unreadable_error = io->req.result;
    }
    return true;
}

/* The lowest place from `from` to before `to` at which a block could not be read; `to`: none. */
static uint64_t unreadable_from(const struct cl_log_recover *r, uint64_t from, uint64_t to)
{
    for (unsigned i = 0; i < r->n_unreadable; i++)
        if (r->unreadable[i] >= from && r->unreadable[i] < to)
            to = r->unreadable[i];
    return to;
}

static void read_done(struct cl_log *log, struct cl_log_io *io)
{
    struct read *r = (struct read *)io;
    struct cl_log_recover *recover = log->recover;
    uint64_t offset = io->req.offset, bytes = io->req.bytes;
    uint8_t *buf = io->req.buf;
    if (io->req.result == 0) {
        log->report.read_bytes += bytes;
        r->tries = 0;
    } else if (log->state != CL_LOG_FAILED && !r->alone) {
        r->alone = true;
        r->left = bytes;
        bytes = 0;
    } else if (log->state != CL_LOG_FAILED && !log->blk->gone && ++r->tries < READ_TRIES) {
        r->left += bytes;
        bytes = 0;
    } else if (unreadable(log, io)) {
        r->tries = 0;
        if (r->segment)
            recover->unreadable[recover->n_unreadable++] = r->segment->place + (uint64_t)(buf - r->segment->base);
        else
            log->report.bad_superblocks |= 1u << (offset / CL_LOG_BLOCK_BYTES);
    }
    if (!r->left || log->state == CL_LOG_FAILED) {
        if (r->segment) {
            r->segment->waiting = false;
            recover->reading--;
        } else {
            recover->waiting--;
        }
        return;
    }
    r->left -= CL_LOG_BLOCK_BYTES;
    cl_log_post(log, io, CL_BLK_READ, 0, offset + bytes, buf + bytes, CL_LOG_BLOCK_BYTES);
}

int cl_log_recover_start(struct cl_log *log)
{
    struct cl_log_recover *r = log->recover = calloc(1, sizeof *r);
    if (!r || !(r->blocks = cl_log_blocks(2 * CL_LOG_BLOCK_BYTES)))
        return -ENOMEM;
    for (unsigned i = 0; i < 2; i++) {
        r->supers[i].io.complete = read_done;
        cl_log_post(log, &r->supers[i].io, CL_BLK_READ, 0, i * CL_LOG_BLOCK_BYTES, r->blocks + i * CL_LOG_BLOCK_BYTES,
                    CL_LOG_BLOCK_BYTES);
    }
    r->waiting = 2;
    return 0;
}

void cl_log_recover_free(struct cl_log *log)
{
    if (!log->recover)
        return;
    cl_log_forget(log, log->recover->room);
    free(log->recover->room);
    free(log->recover->blocks);
    free(log->recover);
    log->recover = NULL;
}

/* Whether a superblock's fields make sense together: checksums say that we wrote it, this that it is of this area. */
static bool fits(const struct cl_log *log, const struct cl_log_disk_super *s)
{
    uint64_t mask = CL_LOG_BLOCK_BYTES - 1;
    return s->area_bytes <= log->blk->bytes && s->flush_bytes >= CL_LOG_FLUSH_LEAST &&
           s->flush_bytes <= CL_LOG_FLUSH_MOST && !((s->flush_bytes | s->ring_offset | s->ring_bytes) & mask) &&
           s->ring_bytes >= (uint64_t)CL_LOG_RING_FLUSHES * s->flush_bytes && s->ring_offset <= s->area_bytes &&
           s->ring_bytes <= s->area_bytes - s->ring_offset && s->meta_bytes <= CL_LOG_META_BYTES &&
           !((s->snapshot_offset | s->snapshot_bytes | s->head_place) & mask) &&
           s->snapshot_bytes <= s->ring_offset / 2 && s->snapshot_offset + 2 * s->snapshot_bytes <= s->ring_offset &&
           s->snapshot_length <= s->snapshot_bytes && s->first_index && s->next_index && s->head_lsn &&
           s->head_lsn <= s->durable_lsn + 1 && s->ring_shift <= s->head_place && !(s->ring_shift & mask) &&
           (s->version == CL_LOG_VERSION_GROWN || s->ring_shift == 0);
}

/* Why a superblock is not whole. NULL: it is. */
static const char *what_is_wrong(const struct cl_log *log, const struct cl_log_disk_super *s, unsigned i, bool zero)
{
    if (log->report.bad_superblocks >> i & 1)
        return "it cannot be read";
    if (zero)
        return "it is zero";
    if (s->magic != CL_LOG_SUPER_MAGIC)
        return "it is something else";
    if (s->crc != cl_log_super_crc(s))
        return "its checksum is wrong";
    return (s->generation & 1) != i ? "it belongs in the other place" : NULL;
}

/* The newer of the whole superblocks; NULL: the log has failed. */
static const struct cl_log_disk_super *choose(struct cl_log *log)
{
    static const struct cl_log_disk_super zeros;
    const struct cl_log_disk_super *best = NULL;
    const char *why[2];
    bool zero[2];
    for (unsigned i = 0; i < 2; i++) {
        const struct cl_log_disk_super *s = (const void *)(log->recover->blocks + i * CL_LOG_BLOCK_BYTES);
        zero[i] = !(log->report.bad_superblocks >> i & 1) && memcmp(s, &zeros, sizeof zeros) == 0;
        if ((why[i] = what_is_wrong(log, s, i, zero[i]))) {
            log->report.bad_superblocks |= 1u << i;
            continue;
        }
        if (s->version != CL_LOG_VERSION && s->version != CL_LOG_VERSION_GROWN) {
            cl_log_fail(
                log, -EPROTO,
                "the superblock at offset %u is of format version %u, and this program knows versions %u and %u",
                i * CL_LOG_BLOCK_BYTES, s->version, CL_LOG_VERSION, CL_LOG_VERSION_GROWN);
            return NULL;
        }
        if (s->area_bytes <= log->blk->bytes && !fits(log, s)) {
            cl_log_fail(log, -EINVAL, "the fields of the superblock at offset %u contradict each other",
                        i * CL_LOG_BLOCK_BYTES);
            return NULL;
        }
        if (s->area_bytes > log->blk->bytes) {
            cl_log_fail(log, -EBADMSG,
                        "it was cut short: it ends at offset %llu, and by the superblock at offset %u it is %llu bytes "
                        "long",
                        (unsigned long long)log->blk->bytes, i * CL_LOG_BLOCK_BYTES, (unsigned long long)s->area_bytes);
            return NULL;
        }
        if (!best || s->generation > best->generation)
            best = s;
    }
    if (!best)
        cl_log_fail(log, -EBADMSG, "%sneither of the superblocks is whole: at offset 0 (%s) and at offset %u (%s)%s%s",
                    zero[0] && zero[1] ? "there is no log: " : "", why[0], CL_LOG_BLOCK_BYTES, why[1],
                    log->report.unreadable_blocks ? ": " : "",
                    log->report.unreadable_blocks ? strerror(-log->report.unreadable_error) : "");
    else if (best->generation == 2 && zero[1])
        log->report.bad_superblocks = 0; /* as cl_log_format leaves it */
    return best;
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
    r->at = r->read_place = s->head_place;
    r->end = s->head_place + s->ring_bytes;
    bool large = s->ring_bytes >= LARGE_BYTES;
    r->segment_bytes = cl_min(cl_max(s->flush_bytes, SEGMENT_LEAST), SEGMENT_MOST);
    uint64_t each = s->flush_bytes + r->segment_bytes, needed = s->ring_bytes / r->segment_bytes + 2;
    r->n_segments = (unsigned)cl_min(cl_max(cl_min(ROOM_BYTES / each, needed), (uint64_t)SEGMENTS_LEAST), SEGMENTS);
    r->room = large ? cl_log_large_blocks(r->n_segments * each) : cl_log_blocks(r->n_segments * each);
    if (!r->room)
        return -ENOMEM;
    for (unsigned i = 0; i < r->n_segments; i++)
        r->segments[i].base = r->room + i * each + s->flush_bytes;
    if (large)
        cl_log_register(log, r->room, r->n_segments * each); /* if it is refused reads cost more, that is all */
    return 0;
}

/* Send the read of the next segment, up to the end of the ring or of the lap. */
static void read_next(struct cl_log *log, struct segment *g)
{
    struct cl_log_recover *r = log->recover;
    uint64_t left = log->ring_bytes - (r->read_place - log->ring_shift) % log->ring_bytes;
    g->place = r->read_place;
    g->bytes = cl_min(cl_min(left, r->end - r->read_place), r->segment_bytes);
    g->waiting = true;
    g->read = (struct read){.io.complete = read_done, .segment = g};
    cl_log_post(log, &g->read.io, CL_BLK_READ, 0, cl_log_offset_of(log, g->place), g->base, g->bytes);
    r->read_place += g->bytes;
    r->posted++;
    r->reading++;
}

/* Keep the device busy. The segment before the current one stays: a flush may begin in it that ends in the current one. */
static void read_ahead(struct cl_log *log)
{
    struct cl_log_recover *r = log->recover;
    unsigned most = cl_max(r->n_segments / 2, SEGMENTS_LEAST - 1u);
    while (r->reading < most && r->posted < r->n_segments - 1 && r->read_place < r->end)
        read_next(log, &r->segments[(r->current + r->posted) % r->n_segments]);
    cl_log_doorbell(log);
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

static const uint8_t *at_place(const struct segment *g, uint64_t place)
{
    return g->base + (int64_t)(place - g->place);
}

/* Whether what lies there is a bad copy of the next flush's header, and not a good one of an earlier time or another log. */
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
    r->unread_place = unreadable_from(r, r->at, end);
    r->unread = r->unread_place < end;
    r->searching = true;
    if (log->config.search_bytes)
        r->end = cl_min(r->end, r->at + log->config.search_bytes);
    /* Nothing was written since it was closed: nothing to look for. But a bad superblock may have been of an opening since. */
    if (s->closed && lsn == s->durable_lsn + 1 && !log->report.bad_superblocks) {
        r->end = r->at;
        r->unread = false;
    }
}

/* Apply the flushes of a segment. False: the rest of it belongs to one that ends in the next segment, or nothing is left. */
static void scan(struct cl_log *log, const struct segment *g)
{
    struct cl_log_recover *r = log->recover;
    uint64_t seg_end = g->place + g->bytes;
    while (r->at < seg_end && r->at < r->end) {
        const struct cl_log_disk_flush *h = (const struct cl_log_disk_flush *)at_place(g, r->at);
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
        log->report.acknowledged_index = cl_max(log->report.acknowledged_index, h->durable_index);
        r->at = log->view.end_place;
    }
}

/* Look in a segment for what proves that the log went on behind the bad flush. */
static void search(struct cl_log *log, const struct segment *g)
{
    struct cl_log_recover *r = log->recover;
    const struct cl_log_disk_super *s = &log->super.now;
    uint64_t seg_end = cl_min(g->place + g->bytes, r->end), lsn = log->view.lsn + 1;
    for (; r->at < seg_end; r->at += CL_LOG_BLOCK_BYTES) {
        const struct cl_log_disk_flush *h = (const struct cl_log_disk_flush *)at_place(g, r->at);
        if (h->lsn < lsn || h->epoch < s->epoch || h->place != r->at ||
            !cl_log_flush_ours(log, h, cl_log_offset_of(log, r->at)))
            continue;
        r->torn = true;
        log->report.beyond_flushes++;
        r->highest_epoch = cl_max(r->highest_epoch, h->epoch);
        log->report.acknowledged_index = cl_max(log->report.acknowledged_index, h->durable_index);
        if ((h->epoch > s->epoch || h->durable_lsn >= lsn) && r->beyond_place == 0) {
            r->proof = true;
            r->beyond_place = r->at;
            log->report.beyond_offset = cl_log_offset_of(log, r->at);
        }
    }
}

/* The superblock promises records from first_index on: what the flushes begin with must not be later. Nothing that we write looks like
 * this, but what is given out has to be there. */
static void check_beginning(struct cl_log *log)
{
    struct cl_log_recover *r = log->recover;
    struct cl_log_view *v = &log->view;
    uint64_t have = v->begin < v->end ? v->spans[v->begin].first_index : v->next_index;
    if (have <= v->first_index)
        return;
    if (!r->proof) {
        r->proof = true;
        r->bad_why = "the records from there on are missing";
        log->report.bad_offset = cl_log_offset_of(log, log->super.now.head_place);
    }
    v->first_index = have;
}

/* A block that cannot be read ended the log, or may hide what proves that a torn flush is damaged: that is not told apart in silence. */
static void judge_unreadable(struct cl_log *log)
{
    struct cl_log_recover *r = log->recover;
    struct cl_log_report *p = &log->report;
    if (!r->unread && r->torn && !r->proof) {
        r->unread_place = unreadable_from(r, r->bad_place, r->end);
        r->unread = r->unread_place < r->end;
    }
    if (!r->unread)
        return;
    r->proof = true;
    p->unreadable_offset = cl_log_offset_of(log, r->unread_place);
    if (r->unread_place >= r->bad_place && r->unread_place - r->bad_place < log->flush_bytes)
        p->bad_offset = p->unreadable_offset;
}

static void judge(struct cl_log *log)
{
    struct cl_log_recover *r = log->recover;
    struct cl_log_report *p = &log->report;
    const struct cl_log_disk_super *s = &log->super.now;
    struct cl_log_view *v = &log->view;
    v->next_index = cl_max(v->next_index, v->first_index);
    check_beginning(log);
    judge_unreadable(log);
    p->tail = r->proof ? CL_LOG_TAIL_DAMAGED : r->torn ? CL_LOG_TAIL_TORN : CL_LOG_TAIL_CLEAN;
    if (p->tail == CL_LOG_TAIL_CLEAN)
        p->bad_offset = 0;
    p->area_id = log->area_id;
    p->epoch = s->epoch;
    p->last_flush = v->lsn;
    p->last_offset = cl_log_offset_of(log, v->end_place);
    p->bad_index = p->tail == CL_LOG_TAIL_CLEAN ? 0 : v->next_index;
    p->acknowledged_index = cl_max(p->acknowledged_index, s->durable_index);
    p->first_index = v->first_index;
    p->next_index = v->next_index;
    if (p->tail == CL_LOG_TAIL_TORN)
        snprintf(
            p->why, sizeof p->why,
            "the last flush is torn at offset %llu, where index %llu was to come: %s; nothing says that it had been "
            "acknowledged",
            (unsigned long long)p->bad_offset, (unsigned long long)p->bad_index, r->bad_why);
    if (p->tail == CL_LOG_TAIL_DAMAGED && r->unread)
        snprintf(
            p->why, sizeof p->why,
            "the block at offset %llu cannot be read: %s; index %llu was to come at offset %llu, and what had been "
            "acknowledged from there on is not known",
            (unsigned long long)p->unreadable_offset, strerror(-p->unreadable_error), (unsigned long long)p->bad_index,
            (unsigned long long)cl_log_offset_of(log, r->bad_place));
    else if (p->tail == CL_LOG_TAIL_DAMAGED && p->beyond_offset)
        snprintf(
            p->why, sizeof p->why,
            "damage at offset %llu, where index %llu was to come: %s; the flush at offset %llu was written after it "
            "had been acknowledged",
            (unsigned long long)p->bad_offset, (unsigned long long)p->bad_index, r->bad_why,
            (unsigned long long)p->beyond_offset);
    else if (p->tail == CL_LOG_TAIL_DAMAGED)
        snprintf(p->why, sizeof p->why,
                 "damage at offset %llu, where index %llu was to come: %s; the superblock says that it had been "
                 "acknowledged",
                 (unsigned long long)p->bad_offset, (unsigned long long)p->bad_index, r->bad_why);
}

/* All is read: refuse, or begin a new epoch. */
static void conclude(struct cl_log *log)
{
    struct cl_log_recover *r = log->recover;
    judge(log);
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
    r->phase = log->config.on_damage == CL_LOG_READ_ONLY ? EPOCH : MEND;
}

static void mended(struct cl_log *log, struct cl_log_io *io)
{
    log->recover->mending = false;
    if (io->req.result)
        cl_log_fail(log, io->req.result, "the block at offset %llu could not be read, and writing it failed: %s",
                    (unsigned long long)io->req.offset, strerror(-io->req.result));
}

/* Blocks behind the end that cannot be read are written, so that the disk replaces their sectors: else one of them lies right behind the
 * end one day and is taken for a flush that is lost. False: none is left. */
static bool mend_next(struct cl_log *log)
{
    struct cl_log_recover *r = log->recover;
    while (r->n_mended < r->n_unreadable) {
        uint64_t place = r->unreadable[r->n_mended++];
        if (place < log->view.end_place)
            continue;
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
    log->recover->phase = EPOCH;
    log->super.now.epoch_lsn = log->view.lsn + 1;
    cl_log_super_want(log, NULL);
    cl_log_super_step(log);
}

static void stream(struct cl_log *log)
{
    struct cl_log_recover *r = log->recover;
    struct segment *g = &r->segments[r->current];
    struct segment *before = &r->segments[(r->current + r->n_segments - 1) % r->n_segments];
    if (!r->searching && r->at < g->place) /* the beginning of a flush, in the segment before */
        memcpy(g->base - (g->place - r->at), at_place(before, r->at), g->place - r->at);
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
    if (r->phase == SUPERS) {
        if (r->waiting)
            return false;
        const struct cl_log_disk_super *s = choose(log);
        if (s && adopt(log, s))
            cl_log_fail(log, -ENOMEM, "no memory for reading the log");
        if (log->state == CL_LOG_FAILED)
            return true;
        r->phase = STREAM;
        return true;
    }
    if (r->phase == STREAM) {
        read_ahead(log);
        if (r->posted && r->segments[r->current].waiting)
            return false;
        if (r->posted && r->at < r->end)
            stream(log);
        else
            r->phase = DRAIN;
        return true;
    }
    if (r->phase == DRAIN) {
        if (r->reading)
            return false;
        conclude(log);
        return true;
    }
    if (r->phase == MEND) {
        if (r->mending)
            return false;
        if (!mend_next(log))
            begin_epoch(log);
        return true;
    }
    if (log->super.busy) /* the second copy follows while the log is in use */
        return false;
    if (log->report.grown_bytes && log->super.second) /* but the old one would not look where the ring grew */
        return cl_log_super_step(log);
    log->state = CL_LOG_READY;
    cl_log_recover_free(log);
    return true;
}

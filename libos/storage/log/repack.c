/* Copying what is kept to the end of the ring, so that what lies between is free.
 *
 * The ring is free from its end to its head, the oldest flush with a record that is kept. What was truncated behind
 * that, blobs of meta, and the rest of the block in which each flush ends are not: a log of one record would be full
 * after some hundred truncations. So when little of the ring is free and enough of it can be won, a pass goes from the
 * head on through the flushes that were there when it began. It reads each that has records which are kept, and appends
 * these again, all of a flush in one flush, as copies (CL_LOG_COPY): of a record that has its index, and lies there
 * from now on. When they are acknowledged, both superblocks get the new head, and then what is before it is free.
 *
 * A crash before that leaves the old head, behind which the originals are; copies say nothing new then. Behind the new
 * head every copy was acknowledged, so recovery misses none that it needs. It does not begin with the first index then:
 * that may come later, as a copy.
 *
 * Nothing is copied while a truncation is in flight: it comes before the copy in the log, and may be of that record.
 * Copies need no room of their own but the end of the ring, which is kept for them (append.c): what is copied takes no
 * more than it did, and one end of a lap.
 *
 * Programs of version 2 do not know copies, so both superblocks have version 3 before the first one is written. */
#include "internal.h"

#include <stdlib.h>

#define LOW_PART                                                                                                       \
    8 /* with less of the ring free than one part in so many a pass is considered: later than others trim */
#define WIN_PART 8 /* and made if it can win one part in so many, or a flush where there is no room for a record */
#define ENOUGH_PART 2
#define AGAIN_PART 16 /* of the ring are filled until it is considered again */

static bool super_at_rest(const struct cl_log *log)
{
    return !log->super.busy && !log->super.wanted && !log->super.second;
}

/* Where the ring is free up to, once both superblocks say so. */
static uint64_t head_to_be(struct cl_log *log)
{
    uint64_t lsn, place;
    return cl_log_view_head(&log->view, &lsn, &place) ? place : log->view.end_place;
}

/* What could be won if all that is kept were copied into full flushes; less than that is, where flushes cannot be
 * filled. What a trim that is under way frees is not to be won. */
static uint64_t winnings(struct cl_log *log)
{
    uint64_t head = super_at_rest(log) ? log->head_place : head_to_be(log);
    uint64_t used = log->open_place - head, kept = cl_log_view_bytes(&log->view);
    return used > kept ? used - kept : 0;
}

static void rest(struct cl_log *log)
{
    log->repack.phase = REPACK_REST;
    log->repack.look_place = log->open_place + log->ring_bytes / AGAIN_PART;
}

int cl_log_repack_start(struct cl_log *log)
{
    struct cl_log_repack *r = &log->repack;
    r->buf = cl_log_blocks(log->flush_bytes);
    r->gather = cl_log_blocks(log->flush_bytes);
    r->sources = calloc(CL_LOG_SOURCES, sizeof *r->sources);
    r->look_place = log->open_place + 1; /* opening a log alone copies nothing */
    return r->buf && r->gather && r->sources ? 0 : -ENOMEM;
}

static void begin(struct cl_log *log)
{
    struct cl_log_repack *r = &log->repack;
    r->phase = REPACK_VERSION;
    r->lsn = 0;
    r->sources_lsn = 0;
    r->until_lsn = log->view.lsn;
    r->copied_lsn = r->free_place = 0;
    r->freed_place = log->head_place;
    r->begun_place = log->view.end_place;
    r->copied_bytes = 0;
    r->rest_kept = cl_log_view_most_bytes(&log->view);
    r->gathered = r->n_units = 0;
    log->stats.repacks++;
    if (log->super.now.version != CL_LOG_VERSION_COPIES)
        cl_log_super_want(log, NULL);
}

/* Begin a pass if it wins so much. */
static bool consider(struct cl_log *log, uint64_t least)
{
    struct cl_log_repack *r = &log->repack;
    uint64_t win = winnings(log);
    if (r->rest_first != log->view.first_index || cl_log_view_bytes(&log->view) < r->rest_kept)
        r->rest_bytes = 0; /* what was trimmed or truncated may have been what kept it from being won */
    r->rest_bytes = cl_min(r->rest_bytes, win);
    if (win - r->rest_bytes < least)
        return false;
    begin(log);
    return true;
}

bool cl_log_repack_helps(struct cl_log *log)
{
    struct cl_log_repack *r = &log->repack;
    if (r->phase != REPACK_REST || log->view.lsn < log->sent_lsn || cl_log_unsent(log))
        return true; /* of what is in flight it shows when that is done whether it can be won */
    if (r->refused_place == log->open_place && r->refused_lsn == log->view.lsn &&
        r->rest_first == log->view.first_index)
        return false;
    bool helps = consider(log, log->flush_bytes);
    r->refused_place = log->open_place;
    r->refused_lsn = log->view.lsn;
    r->rest_first = log->view.first_index;
    return helps;
}

/* All that could be copied was, or no more can be: what is to be won still cannot be, as long as all is kept that is
 * now, but for what others have appended since, or had on its way when the pass began. */
static void finish(struct cl_log *log)
{
    struct cl_log_repack *r = &log->repack;
    uint64_t since = log->open_place - r->begun_place, win = winnings(log);
    uint64_t others = since > r->copied_bytes ? since - r->copied_bytes : 0;
    r->rest_bytes = win > others ? win - others : 0;
    r->rest_first = log->view.first_index;
    rest(log);
}

/* The flushes behind `lsn` that have records which are kept, up to CL_LOG_SOURCES after the first of them. False: there
 * are none. */
static bool find_sources(struct cl_log *log, uint64_t lsn)
{
    struct cl_log_repack *r = &log->repack;
    const struct cl_log_view *v = &log->view;
    uint64_t first = UINT64_MAX;
    for (uint64_t i = v->begin; i < v->end; i++)
        if (v->spans[i].lsn > lsn)
            first = cl_min(first, v->spans[i].lsn);
    if (first > r->until_lsn)
        return false;
    memset(r->sources, 0, CL_LOG_SOURCES * sizeof *r->sources);
    r->sources_lsn = first;
    for (uint64_t i = v->begin; i < v->end; i++) {
        const struct cl_log_span *s = &v->spans[i];
        if (s->lsn < first || s->lsn - first >= CL_LOG_SOURCES)
            continue;
        r->sources[s->lsn - first].place = s->place;
        r->sources[s->lsn - first].bytes = cl_max(r->sources[s->lsn - first].bytes, s->at + (s->bytes & ~7u));
    }
    return true;
}

static void read_done(struct cl_log *log, struct cl_log_io *io)
{
    if (io->req.result)
        finish(log); /* whoever reads the record is told */
    else
        log->repack.phase = REPACK_COPY;
}

/* Read the next flush that has records which are kept, or have what was copied freed. */
static bool next_source(struct cl_log *log)
{
    struct cl_log_repack *r = &log->repack;
    do {
        r->lsn++;
        if (!r->sources_lsn || r->lsn - r->sources_lsn >= CL_LOG_SOURCES) {
            if (!find_sources(log, r->lsn - 1)) {
                r->lsn = r->until_lsn + 1;
                break;
            }
            r->lsn = r->sources_lsn;
        }
    } while (r->lsn <= r->until_lsn && !r->sources[r->lsn - r->sources_lsn].bytes);
    if (r->lsn > r->until_lsn) {
        r->phase = REPACK_REST_GATHERED;
        return true;
    }
    uint64_t place = r->sources[r->lsn - r->sources_lsn].place;
    r->phase = REPACK_READING;
    r->io.complete = read_done;
    cl_log_post(log, &r->io, CL_BLK_READ, 0, cl_log_offset_of(log, place), r->buf,
                cl_log_round(r->sources[r->lsn - r->sources_lsn].bytes));
    return true;
}

/* Whether a record that lies there in that flush is kept. */
static bool is_kept(const struct cl_log *log, const struct cl_log_disk_record *d, uint64_t lsn, uint32_t at)
{
    const struct cl_log_span *s = cl_log_view_find(&log->view, d->index);
    return s && s->lsn == lsn && s->at <= at && at < s->at + (s->bytes & ~7u);
}

/* Go through the records of the flush that was read: how many bytes those take that are kept, and with `into`, put them
 * there. In the place of their checksum is where they lay. 0: none is kept, or one is damaged. */
static uint32_t kept_records(struct cl_log *log, uint8_t *into)
{
    const struct cl_log_repack *r = &log->repack;
    const struct cl_log_disk_flush *h = (const struct cl_log_disk_flush *)r->buf;
    uint32_t seed = cl_log_seed(log->area_id, h->epoch, h->lsn), end = r->sources[r->lsn - r->sources_lsn].bytes, n = 0;
    if (!cl_log_flush_ours(log, h, cl_log_offset_of(log, r->sources[r->lsn - r->sources_lsn].place)) ||
        h->lsn != r->lsn || h->bytes < end)
        return 0;
    for (uint32_t at = sizeof *h; at < end;) {
        const struct cl_log_disk_record *d = (const struct cl_log_disk_record *)(r->buf + at);
        if (end - at < sizeof *d || d->bytes > end - at - sizeof *d || d->crc != cl_log_record_crc(seed, d))
            return 0;
        uint32_t whole = (uint32_t)cl_log_record_bytes(d->bytes);
        if ((d->what == CL_LOG_DATA || d->what == CL_LOG_COPY) && is_kept(log, d, h->lsn, at)) {
            if (into) {
                memcpy(into + n, d, whole);
                ((struct cl_log_disk_record *)(into + n))->crc = at;
            }
            n += whole;
        }
        at += whole;
    }
    return n;
}

/* Have the log append what was gathered, if it is kept still, all in one flush. 0, -EAGAIN or -ENOSPC. */
static int append_gathered(struct cl_log *log)
{
    struct cl_log_repack *r = &log->repack;
    struct cl_log_flush *f;
    if (log->cut_lsn > log->view.lsn)
        return -EAGAIN; /* until the truncation is acknowledged */
    int rc = r->gathered ? cl_log_make_room(log, r->gathered, CL_LOG_FOR_COPY, &f) : 0;
    if (rc)
        return rc;
    for (unsigned i = 0; i < r->n_units; i++) {
        const struct cl_log_unit *u = &r->units[i];
        for (uint32_t at = u->begin; at < u->end;) {
            const struct cl_log_disk_record *d = (const struct cl_log_disk_record *)(r->gather + at);
            uint32_t whole = (uint32_t)cl_log_record_bytes(d->bytes);
            if (is_kept(log, d, u->lsn, d->crc)) {
                cl_log_put(log, f, d, CL_LOG_COPY, d + 1);
                r->copied_lsn = f->lsn;
                log->stats.repacked_bytes += whole;
            }
            at += whole;
        }
    }
    r->copied_bytes += cl_log_round(r->gathered + sizeof(struct cl_log_disk_flush));
    r->gathered = r->n_units = 0;
    return 0;
}

/* There is no room for what was gathered: it waits until that is freed which was copied before. */
static void want_room(struct cl_log *log)
{
    log->repack.short_of_room = true;
    log->repack.phase = REPACK_FREE;
}

/* Take what is kept of the flush that was read to what was gathered, which goes first if it does not fit. */
static bool gather_source(struct cl_log *log)
{
    struct cl_log_repack *r = &log->repack;
    uint32_t bytes = kept_records(log, NULL), room = log->flush_bytes - (uint32_t)sizeof(struct cl_log_disk_flush);
    if (bytes > room - r->gathered || r->n_units == CL_LOG_UNITS) {
        int rc = append_gathered(log);
        if (rc == -ENOSPC)
            want_room(log);
        if (rc)
            return rc == -ENOSPC;
    }
    if (bytes) {
        kept_records(log, r->gather + r->gathered);
        r->units[r->n_units++] = (struct cl_log_unit){r->lsn, r->gathered, r->gathered + bytes};
        r->gathered += bytes;
    }
    r->phase = REPACK_NEXT;
    return true;
}

/* All was read: the rest of what was gathered goes. */
static bool append_rest(struct cl_log *log)
{
    struct cl_log_repack *r = &log->repack;
    int rc = append_gathered(log);
    r->short_of_room = rc == -ENOSPC;
    if (rc != -EAGAIN)
        r->phase = REPACK_FREE;
    return rc != -EAGAIN;
}

/* There is no room for all that was gathered, as in a log of before there was a reserve for it: the first flush
 * alone. */
static void want_fewer(struct cl_log *log)
{
    struct cl_log_repack *r = &log->repack;
    r->lsn = r->units[0].lsn; /* the others are read again */
    r->n_units = 1;
    r->gathered = r->units[0].end;
    r->phase = REPACK_FEWER;
}

static bool append_fewer(struct cl_log *log)
{
    int rc = append_gathered(log);
    if (rc == -ENOSPC)
        finish(log);
    else if (rc == 0)
        log->repack.phase = REPACK_NEXT;
    return rc != -EAGAIN;
}

/* What was copied is acknowledged: have both superblocks say where the head is now, and then go on or rest. */
static bool free_copied(struct cl_log *log)
{
    struct cl_log_repack *r = &log->repack;
    if (r->copied_lsn > log->view.lsn || !super_at_rest(log))
        return false;
    if (!r->free_place)
        r->free_place = head_to_be(log);
    if (log->head_place < r->free_place) {
        cl_log_super_want(log, NULL);
        return true;
    }
    bool more = r->freed_place < log->head_place;
    r->freed_place = log->head_place;
    r->free_place = 0;
    if (!r->short_of_room || (!more && r->n_units <= 1))
        finish(log); /* all was copied; or nothing was won that would make room for what comes next */
    else if (cl_log_free_bytes(log) >= log->ring_bytes / ENOUGH_PART)
        rest(log);
    else if (more)
        r->phase = r->lsn > r->until_lsn ? REPACK_REST_GATHERED : REPACK_COPY;
    else
        want_fewer(log);
    return true;
}

bool cl_log_repack_step(struct cl_log *log)
{
    struct cl_log_repack *r = &log->repack;
    if (r->phase == REPACK_REST) {
        if (log->open_place < r->look_place || log->config.on_damage == CL_LOG_READ_ONLY || log->closing)
            return false;
        if (cl_log_free_bytes(log) >= log->ring_bytes / LOW_PART) {
            r->look_place = log->open_place + CL_LOG_BLOCK_BYTES;
            return false;
        }
        if (!consider(log, log->ring_bytes / WIN_PART))
            rest(log);
        return r->phase != REPACK_REST;
    }
    if (r->phase == REPACK_READING)
        return false;
    if (log->closing) {
        rest(log);
        return true;
    }
    switch (r->phase) {
    case REPACK_VERSION:
        if (log->super.now.version != CL_LOG_VERSION_COPIES || !super_at_rest(log))
            return false;
        r->phase = REPACK_NEXT;
        return true;
    case REPACK_NEXT:
        return next_source(log);
    case REPACK_COPY:
        return gather_source(log);
    case REPACK_REST_GATHERED:
        return append_rest(log);
    case REPACK_FEWER:
        return append_fewer(log);
    default:
        return free_copied(log);
    }
}

void cl_log_repack_free(struct cl_log *log)
{
    free(log->repack.buf);
    free(log->repack.gather);
    free(log->repack.sources);
}

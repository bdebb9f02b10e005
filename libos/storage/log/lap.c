/* Reading a lap of the ring ahead of those who check it, in segments, and scanning block by block for what cannot be
 * read.
 *
 * Segments are a ring of buffers: the current one is being checked, the one before it stays, since a flush may begin in
 * it that ends in the current one, and those behind it are on their way. */
#include "recover.h"

#include "../../../runtime/pages.h"

#include <stdlib.h>

/* Disks differ, and one disk from minute to minute, in whether they like 1 MiB on its way better or 4: half of the
 * segments is 2. The other half is for checking, which so never keeps the device waiting. Where flushes are large,
 * segments are fewer and larger. */
#define SEGMENT_LEAST (256u << 10)
#define SEGMENT_MOST (1u << 20)
#define SEGMENTS_LEAST 4 /* one is checked while the others are read */
#define ROOM_BYTES (8u << 20)
#define LARGE_BYTES (32u << 20) /* smaller rings are read before huge pages and registering them pay */
#define READ_TRIES 3            /* of a block alone */

/* Say that a block could not be read; what is taken for its content is zero. False: no more of them are put up with. */
static bool unreadable(struct cl_log *log, const struct cl_log_io *io)
{
    struct cl_log_report *p = &log->report;
    if (log->state == CL_LOG_FAILED)
        return false;
    if (log->blk->gone || p->unreadable_blocks == CL_LOG_UNREADABLE_MOST) {
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

uint64_t cl_log_unreadable_from(const struct cl_log_recover *r, uint64_t from, uint64_t to)
{
    for (unsigned i = 0; i < r->n_unreadable; i++)
        if (r->unreadable[i] >= from && r->unreadable[i] < to)
            to = r->unreadable[i];
    return to;
}

static void read_done(struct cl_log *log, struct cl_log_io *io)
{
    struct cl_log_read *r = (struct cl_log_read *)io;
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

void cl_log_read_supers(struct cl_log *log)
{
    struct cl_log_recover *r = log->recover;
    for (unsigned i = 0; i < 2; i++) {
        r->supers[i].io.complete = read_done;
        cl_log_post(log, &r->supers[i].io, CL_BLK_READ, 0, i * CL_LOG_BLOCK_BYTES, r->blocks + i * CL_LOG_BLOCK_BYTES,
                    CL_LOG_BLOCK_BYTES);
    }
    r->waiting = 2;
}

int cl_log_lap_start(struct cl_log *log)
{
    struct cl_log_recover *r = log->recover;
    bool large = log->ring_bytes >= LARGE_BYTES;
    r->segment_bytes = cl_min(cl_max(log->flush_bytes, SEGMENT_LEAST), SEGMENT_MOST);
    uint64_t each = log->flush_bytes + r->segment_bytes, needed = log->ring_bytes / r->segment_bytes + 2;
    r->n_segments =
        (unsigned)cl_min(cl_max(cl_min(ROOM_BYTES / each, needed), (uint64_t)SEGMENTS_LEAST), CL_LOG_SEGMENTS);
    r->room = large ? cl_pages_new(r->n_segments * each) : cl_log_blocks(r->n_segments * each);
    if (!r->room)
        return -ENOMEM;
    for (unsigned i = 0; i < r->n_segments; i++)
        r->segments[i].base = r->room + i * each + log->flush_bytes;
    if (large)
        cl_log_register(log, r->room, r->n_segments * each); /* if it is refused reads cost more, that is all */
    return 0;
}

void cl_log_lap_free(struct cl_log *log)
{
    cl_log_forget(log, log->recover->room);
    free(log->recover->room);
    log->recover->room = NULL;
}

/* Send the read of the next segment, up to the end of the ring or of the lap. */
static void read_next(struct cl_log *log, struct cl_log_segment *g)
{
    struct cl_log_recover *r = log->recover;
    uint64_t left = log->ring_bytes - (r->read_place - log->ring_shift) % log->ring_bytes;
    g->place = r->read_place;
    g->bytes = cl_min(cl_min(left, r->end - r->read_place), r->segment_bytes);
    g->waiting = true;
    g->read = (struct cl_log_read){.io.complete = read_done, .segment = g};
    cl_log_post(log, &g->read.io, CL_BLK_READ, 0, cl_log_offset_of(log, g->place), g->base, g->bytes);
    r->read_place += g->bytes;
    r->posted++;
    r->reading++;
}

/* Keep the device busy. The segment before the current one stays: a flush may begin in it that ends in the current
 * one. */
void cl_log_lap_ahead(struct cl_log *log)
{
    struct cl_log_recover *r = log->recover;
    unsigned most = cl_max(r->n_segments / 2, SEGMENTS_LEAST - 1u);
    while (r->reading < most && r->posted < r->n_segments - 1 && r->read_place < r->end)
        read_next(log, &r->segments[(r->current + r->posted) % r->n_segments]);
    cl_log_doorbell(log);
}

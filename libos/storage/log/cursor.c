/* Reading durable records by index: one span of the index is read at a time, and each record's checksum checked. */
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>

struct cl_log_cursor {
    struct cl_log_io io;
    struct cl_log *log;
    struct cl_log_cursor *next;
    uint64_t index; /* of the record to give next */
    uint8_t *buf;   /* flush_bytes */
    bool reading, loaded, stale;
    struct cl_log_span span; /* what buf holds, from the block on in which its first record begins */
    uint32_t done;           /* records of it given or skipped */
    uint32_t pos;            /* in buf, of the one after them */
    char why[CL_LOG_WHY_BYTES];
};

int cl_log_cursor_open(struct cl_log *log, uint64_t index, struct cl_log_cursor **out)
{
    if (log->state != CL_LOG_READY)
        return log->state == CL_LOG_FAILED ? log->error : -EBUSY;
    if (index < log->view.first_index || index > log->view.next_index)
        return -ENOENT;
    struct cl_log_cursor *c = calloc(1, sizeof *c);
    if (!c || !(c->buf = cl_log_blocks(log->flush_bytes))) {
        free(c);
        return -ENOMEM;
    }
    c->log = log;
    c->index = index;
    c->next = log->cursors;
    log->cursors = c;
    *out = c;
    return 0;
}

int cl_log_cursor_close(struct cl_log_cursor *cursor)
{
    if (cursor->reading)
        return -EBUSY;
    struct cl_log_cursor **link = &cursor->log->cursors;
    while (*link != cursor)
        link = &(*link)->next;
    *link = cursor->next;
    free(cursor->buf);
    free(cursor);
    return 0;
}

const char *cl_log_cursor_why(const struct cl_log_cursor *cursor)
{
    return cursor->why;
}

void cl_log_cursors_free(struct cl_log *log)
{
    while (log->cursors) {
        struct cl_log_cursor *cursor = log->cursors;
        log->cursors = cursor->next;
        free(cursor->buf);
        free(cursor);
    }
}

void cl_log_cursors_cut(struct cl_log *log, uint64_t from)
{
    for (struct cl_log_cursor *c = log->cursors; c; c = c->next) {
        c->stale |= c->index > from;
        c->loaded = false;
        c->span.count = 0; /* what is being read now is not for us any more */
    }
}

static void read_done(struct cl_log *log, struct cl_log_io *io)
{
    struct cl_log_cursor *c = (struct cl_log_cursor *)io;
    const struct cl_log_span *now = cl_log_view_find(&log->view, c->index);
    c->reading = false;
    /* What was copied meanwhile may have been overwritten before it was read. */
    c->loaded = io->req.result == 0 && c->span.count && now && now->place == c->span.place;
    if (io->req.result)
        snprintf(c->why, sizeof c->why, "reading %u bytes at offset %llu failed: %s", (unsigned)io->req.bytes,
                 (unsigned long long)io->req.offset, strerror(-io->req.result));
}

static int load(struct cl_log_cursor *c)
{
    struct cl_log *log = c->log;
    const struct cl_log_span *s = cl_log_view_find(&log->view, c->index);
    uint32_t block = ~(uint32_t)(CL_LOG_BLOCK_BYTES - 1), from, to;
    if (!s)
        return -ESTALE;
    c->span = *s;
    from = s->at & block;
    to = (uint32_t)cl_log_round(s->at + (s->bytes & ~7u));
    c->done = 0;
    c->pos = s->at - from;
    c->reading = true;
    c->io.complete = read_done;
    cl_log_post(log, &c->io, CL_BLK_READ, 0, cl_log_offset_of(log, s->place) + from, c->buf, to - from);
    return -EAGAIN;
}

/* Of the record at pos. */
static uint64_t index_at(const struct cl_log_cursor *c)
{
    return c->span.first_index - c->span.skip + c->done;
}

static int damaged(struct cl_log_cursor *c, uint64_t offset)
{
    snprintf(c->why, sizeof c->why, "the record of index %llu at offset %llu is damaged",
             (unsigned long long)index_at(c), (unsigned long long)offset);
    return -EBADMSG;
}

/* Give the next record of the span, checked. */
static int step(struct cl_log_cursor *c, struct cl_log_record *out)
{
    const struct cl_log *log = c->log;
    const struct cl_log_disk_record *r = (const struct cl_log_disk_record *)(c->buf + c->pos);
    uint32_t in_flush = (c->span.at & ~(uint32_t)(CL_LOG_BLOCK_BYTES - 1)) + c->pos;
    uint64_t offset = cl_log_offset_of(log, c->span.place) + in_flush;
    uint32_t left = log->flush_bytes - in_flush;
    if (left < sizeof *r || r->bytes > left - sizeof *r || r->index != index_at(c) ||
        r->crc != cl_log_record_crc(cl_log_seed(log->area_id, r->epoch, c->span.lsn), r))
        return damaged(c, offset);
    *out = (struct cl_log_record){.index = r->index,
                                  .tag = r->tag,
                                  .epoch = r->epoch,
                                  .offset = offset,
                                  .data = r + 1,
                                  .bytes = r->bytes,
                                  .kind = r->kind};
    c->pos += (uint32_t)cl_log_record_bytes(r->bytes);
    c->done++;
    return 1;
}

int cl_log_cursor_next(struct cl_log_cursor *cursor, struct cl_log_record *out)
{
    struct cl_log_cursor *c = cursor;
    const struct cl_log_view *v = &c->log->view;
    if (c->reading)
        return -EAGAIN;
    if (c->log->state == CL_LOG_FAILED)
        return c->log->error;
    if (c->stale || c->index < v->first_index)
        return -ESTALE;
    int failed = c->io.req.result;
    c->io.req.result = 0; /* the next call tries anew: a read that failed harms nothing */
    if (failed)
        return failed;
    if (c->index == v->next_index)
        return 0;
    if (!c->loaded || c->done == c->span.skip + c->span.count)
        return load(c);
    for (;;) {
        int rc = step(c, out);
        if (rc < 0)
            c->loaded = false;
        if (rc < 0 || out->index == c->index) {
            c->index += rc == 1;
            return rc;
        }
    }
}

/* Submitting records, flushes and when they go, acknowledgement.
 *
 * Records are copied into the flush being filled. Whether it goes is decided when the log is pumped, and by what is in
 * flight alone: with nothing in flight it goes at once, so that a lone append waits for nobody; while as many are in
 * flight as the device does side by side for the price of one, records gather, and the next completion takes them all.
 * No timer holds anything back. For uthreads shared.c says when the log is pumped, and lets records gather for those
 * who are about to append.
 *
 * Flushes of one log complete in any order and are acknowledged in their own: what is acknowledged is applied to the
 * view. */
#include "internal.h"

#include <stdlib.h>

#define RESERVE_FLUSHES 3
#define META_PART 4 /* with less of the ring free than one part in so many, meta blobs go into the superblocks */

/* A flush waits for more, or for the next completion, that holds less than one part in so many of what one in flight
 * has in the mean: right behind another one a small one gains little, and those who wait for the large one come back
 * together. It waits, too, with less than its part of what is in flight, which is one in as many as the device does at
 * once: flushes are spread evenly over a write's time then, and what comes has to wait for such a part of it only.
 * Sent as soon as they may, all go within a part of that time, and what comes in the rest waits for the first to be
 * done. */
#define FEW 2

static void begin_flush(struct cl_log *log)
{
    struct cl_log_flush *f = cl_log_flush_of(log, log->open_lsn);
    f->lsn = log->open_lsn;
    f->place = log->open_place;
    f->first_index = log->open_index;
    f->bytes = sizeof(struct cl_log_disk_flush);
    f->records = 0;
    f->done = false;
    f->first = f->last = NULL;
}

/* Whether the buffer of the flush to be filled is free: that of the one n_flushes before it. */
static bool has_buffer(const struct cl_log *log)
{
    return log->open_lsn - log->view.lsn <= log->n_flushes;
}

static void seal(struct cl_log *log)
{
    const struct cl_log_flush *f = cl_log_flush_of(log, log->open_lsn);
    log->open_place = cl_log_next_place(log, f->place, f->bytes);
    log->open_lsn++;
    if (has_buffer(log))
        begin_flush(log);
}

int cl_log_flushes_start(struct cl_log *log)
{
    log->flushes = calloc(log->n_flushes, sizeof *log->flushes);
    uint64_t bytes = (uint64_t)log->n_flushes * log->flush_bytes;
    log->arena = cl_log_blocks(bytes);
    if (!log->flushes || !log->arena)
        return -ENOMEM;
    if (log->config.on_damage != CL_LOG_READ_ONLY) {
        int rc = cl_log_register(log, log->arena, bytes);
        log->stats.registered = rc ? rc : (int64_t)bytes;
    }
    for (uint32_t i = 0; i < log->n_flushes; i++)
        log->flushes[i].buf = log->arena + (uint64_t)i * log->flush_bytes;
    log->sent_lsn = log->view.lsn;
    log->open_lsn = log->view.lsn + 1;
    log->open_place = log->view.end_place;
    log->open_index = log->view.next_index;
    log->meta_number = log->view.meta_number;
    cl_log_width_init(&log->width, log->config.in_flight, log->first_flights);
    begin_flush(log);
    return log->config.on_damage == CL_LOG_READ_ONLY ? 0 : cl_log_repack_start(log);
}

/* Whether anything is taken now at all: 0, or why not. */
static int takes(struct cl_log *log)
{
    if (log->state != CL_LOG_READY || log->closing)
        return log->state == CL_LOG_FAILED ? log->error : -EBUSY;
    if (log->config.on_damage == CL_LOG_READ_ONLY)
        return -EROFS;
    if (!has_buffer(log) || log->super.meta_op) {
        log->stats.no_buffer++;
        return -EAGAIN;
    }
    return 0;
}

/* What is left at the end of the ring for truncations and copies, half of a ring of few flushes at most. Copies need
 * two of the largest flushes less a block: one for what is copied, and what the end of a lap may cost. Truncations
 * never take that while copies can help. */
static uint64_t reserve_bytes(const struct cl_log *log)
{
    uint64_t flush = log->flush_bytes;
    return cl_min(RESERVE_FLUSHES * flush, log->ring_bytes / 2);
}

/* Where the ring ends for records of that use. */
static uint64_t end_place(const struct cl_log *log, enum cl_log_use use)
{
    uint64_t reserve = reserve_bytes(log);
    uint64_t left = use == CL_LOG_FOR_DATA  ? reserve
                    : use == CL_LOG_FOR_CUT ? 2 * log->flush_bytes - CL_LOG_BLOCK_BYTES
                                            : 0;
    return log->head_place + log->ring_bytes - left;
}

int cl_log_make_room(struct cl_log *log, uint64_t need, enum cl_log_use use, struct cl_log_flush **out)
{
    int rc = takes(log);
    if (rc)
        return rc;
    if (need > log->flush_bytes - sizeof(struct cl_log_disk_flush))
        return -EMSGSIZE;
    const struct cl_log_flush *f = cl_log_flush_of(log, log->open_lsn);
    bool next = f->bytes + need > log->flush_bytes;
    uint64_t place = next ? cl_log_next_place(log, f->place, f->bytes) : f->place;
    uint64_t bytes = next ? sizeof(struct cl_log_disk_flush) : f->bytes;
    uint64_t end = place + cl_log_round(bytes + need);
    if (end > end_place(log, use) && use != CL_LOG_FOR_COPY && cl_log_repack_helps(log)) {
        log->stats.no_buffer++;
        return -EAGAIN;
    }
    /* What copies cannot help, a truncation can: of a log that was filled when less was kept in reserve. */
    if (end > end_place(log, use == CL_LOG_FOR_CUT ? CL_LOG_FOR_COPY : use)) {
        log->stats.full += use != CL_LOG_FOR_COPY;
        return -ENOSPC;
    }
    if (next && log->open_lsn + 1 - log->view.lsn > log->n_flushes) {
        log->stats.no_buffer++;
        return -EAGAIN;
    }
    if (next)
        seal(log);
    *out = cl_log_flush_of(log, log->open_lsn);
    return 0;
}

void cl_log_put(struct cl_log *log, struct cl_log_flush *f, const struct cl_log_disk_record *from, uint8_t what,
                const void *data)
{
    struct cl_log_disk_record *r = (struct cl_log_disk_record *)(f->buf + f->bytes);
    uint64_t whole = cl_log_record_bytes(from->bytes);
    *r = (struct cl_log_disk_record){.bytes = from->bytes,
                                     .index = from->index,
                                     .tag = from->tag,
                                     .epoch = (uint32_t)log->epoch,
                                     .what = what,
                                     .kind = from->kind};
    if (r->bytes)
        memcpy(r + 1, data, r->bytes);
    memset((uint8_t *)(r + 1) + r->bytes, 0, whole - sizeof *r - r->bytes);
    r->crc = cl_log_record_crc(cl_log_seed(log->area_id, log->epoch, f->lsn), r);
    if (f->records++ == 0 && log->config.fixed_wait_ns)
        f->first_ns = cl_log_now_ns(log);
    f->bytes += (uint32_t)whole;
}

static int submit(struct cl_log *log, struct cl_log_op *op, uint8_t what, uint64_t index)
{
    struct cl_log_flush *f = NULL;
    int rc = cl_log_make_room(log, cl_log_record_bytes(op->bytes),
                              what == CL_LOG_DATA ? CL_LOG_FOR_DATA : CL_LOG_FOR_CUT, &f);
    if (rc)
        return rc;
    struct cl_log_disk_record r = {.bytes = op->bytes, .index = index, .tag = op->tag, .kind = op->kind};
    cl_log_put(log, f, &r, what, op->data);
    op->index = index;
    op->lsn = f->lsn;
    op->result = CL_LOG_PENDING;
    op->next = NULL;
    op->stamps[0] = op->stamps[1] = 0;
    if (f->last)
        f->last->next = op;
    else
        f->first = op;
    f->last = op;
    return 0;
}

int cl_log_append(struct cl_log *log, struct cl_log_op *op)
{
    if (log->state == CL_LOG_READY && log->open_index > CL_LOG_INDEX_MOST)
        return -EOVERFLOW;
    int rc = submit(log, op, CL_LOG_DATA, log->open_index);
    log->open_index += rc == 0;
    return rc;
}

/* What first_index is or will be when all that was submitted is durable. */
static uint64_t lowest(const struct cl_log *log)
{
    return cl_max(log->view.first_index, log->open_first);
}

int cl_log_truncate(struct cl_log *log, uint64_t from, struct cl_log_op *op)
{
    if (log->state == CL_LOG_READY && (from < lowest(log) || from > log->open_index))
        return -ERANGE;
    op->bytes = 0;
    int rc = submit(log, op, CL_LOG_TRUNCATE, from);
    if (rc == 0) {
        log->open_index = from;
        log->cut_lsn = op->lsn;
        log->stats.truncates++;
    }
    return rc;
}

int cl_log_restart(struct cl_log *log, uint64_t index, struct cl_log_op *op)
{
    if (log->state == CL_LOG_READY && (index < lowest(log) || index > CL_LOG_INDEX_MOST))
        return -ERANGE;
    op->bytes = 0;
    int rc = submit(log, op, CL_LOG_RESTART, index);
    if (rc == 0) {
        log->open_index = log->open_first = index;
        log->cut_lsn = op->lsn;
        log->stats.restarts++;
    }
    return rc;
}

int cl_log_meta_set(struct cl_log *log, struct cl_log_op *op)
{
    if (op->bytes > CL_LOG_META_BYTES)
        return -EMSGSIZE;
    int rc = takes(log);
    if (rc)
        return rc;
    if (cl_log_free_bytes(log) < log->ring_bytes / META_PART) {
        cl_log_super_meta(log, op);
    } else {
        rc = submit(log, op, CL_LOG_META, log->meta_number + 1);
        if (rc)
            return rc;
        log->meta_number++;
    }
    log->stats.metas++;
    return 0;
}

uint32_t cl_log_max_bytes(const struct cl_log *log)
{
    return log->flush_bytes - (uint32_t)(sizeof(struct cl_log_disk_flush) + sizeof(struct cl_log_disk_record));
}

uint64_t cl_log_ring_bytes(const struct cl_log *log)
{
    return log->ring_bytes;
}

uint64_t cl_log_free_bytes(const struct cl_log *log)
{
    if (!log->flushes)
        return 0;
    uint64_t end = end_place(log, CL_LOG_FOR_DATA);
    const struct cl_log_flush *f = &log->flushes[log->open_lsn % log->n_flushes];
    uint64_t at = log->open_place + (has_buffer(log) && f->records ? cl_log_round(f->bytes) : 0);
    return at < end ? end - at : 0;
}

void cl_log_usage(const struct cl_log *log, struct cl_log_usage *out)
{
    const struct cl_log_flush *f = &log->flushes[log->open_lsn % log->n_flushes];
    uint64_t end = log->open_place + (has_buffer(log) && f->records ? cl_log_round(f->bytes) : 0);
    uint64_t used = cl_min(end - log->head_place, log->ring_bytes);
    *out = (struct cl_log_usage){.ring_bytes = log->ring_bytes,
                                 .kept_bytes = cl_min(cl_log_view_bytes(&log->view), used),
                                 .free_bytes = cl_log_free_bytes(log)};
    out->dead_bytes = used - out->kept_bytes;
    out->reserved_bytes = log->ring_bytes - used - out->free_bytes;
}

uint64_t cl_log_open_records(const struct cl_log *log)
{
    return has_buffer(log) ? log->flushes[log->open_lsn % log->n_flushes].records : 0;
}

bool cl_log_unsent(const struct cl_log *log)
{
    return log->sent_lsn + 1 != log->open_lsn || cl_log_open_records(log);
}

uint64_t cl_log_buffer_room(const struct cl_log *log)
{
    if (log->state != CL_LOG_READY || log->closing)
        return UINT64_MAX;
    if (!has_buffer(log))
        return 0;
    uint64_t behind = log->n_flushes - (log->open_lsn - log->view.lsn); /* buffers of the flushes after the open one */
    return log->flush_bytes - log->flushes[log->open_lsn % log->n_flushes].bytes +
           behind * (log->flush_bytes - sizeof(struct cl_log_disk_flush));
}

static void completed(struct cl_log *log, struct cl_log_io *io)
{
    struct cl_log_flush *f = (struct cl_log_flush *)io;
    log->flights--;
    log->flight_records -= f->records;
    f->done = true;
    f->stamps[1] = cl_log_stamp(log);
    if (cl_log_adapts(log))
        cl_log_width_done(&log->width, &f->flown, cl_log_now_ns(log));
    if (io->req.result)
        cl_log_fail(log, io->req.result,
                    "the flush of %u bytes at offset %llu, from index %llu on, failed: %s; what it left there is known "
                    "when the log is opened again",
                    (unsigned)io->req.bytes, (unsigned long long)io->req.offset, (unsigned long long)f->first_index,
                    strerror(-io->req.result));
}

static void send(struct cl_log *log, struct cl_log_flush *f)
{
    uint64_t whole = cl_log_round(f->bytes), offset = cl_log_offset_of(log, f->place);
    struct cl_log_disk_flush *h = (struct cl_log_disk_flush *)f->buf;
    *h = (struct cl_log_disk_flush){.magic = cl_log_magic(log->area_id),
                                    .lsn = f->lsn,
                                    .place = f->place,
                                    .epoch = log->epoch,
                                    .first_index = f->first_index,
                                    .durable_lsn = log->view.lsn,
                                    .durable_index = log->view.next_index - 1,
                                    .bytes = f->bytes,
                                    .records = f->records};
    h->crc = cl_crc32c(cl_log_seed(log->area_id, offset, 0), &h->lsn, sizeof *h - 8);
    memset(f->buf + f->bytes, 0, whole - f->bytes);
    f->io.complete = completed;
    f->stamps[0] = cl_log_stamp(log);
    if (cl_log_adapts(log))
        cl_log_width_sent(&log->width, &f->flown, &cl_log_flush_of(log, f->lsn - 1)->flown, log->flights,
                          (uint32_t)whole, cl_log_now_ns(log));
    cl_log_post(log, &f->io, CL_BLK_WRITE, CL_BLK_DURABLE, offset, f->buf, whole);
    log->flights++;
    log->flight_records += f->records;
    log->sent_lsn = f->lsn;
}

/* Whether a flush of so many records should rather wait for more, or for the next completion. */
static bool is_small(const struct cl_log *log, uint64_t records)
{
    uint64_t in_flight = log->flight_records;
    return records * FEW * log->flights < in_flight || records * log->width.now < in_flight;
}

/* Whether the flush being filled should go though it is not full. */
static bool ripe(const struct cl_log *log, const struct cl_log_flush *f)
{
    const struct cl_log_config *c = &log->config;
    if (f->records == 0)
        return false;
    if (log->closing || log->super.meta_op)
        return true;
    if (cl_log_adapts(log))
        return !log->gathers && !(log->merges && is_small(log, f->records));
    return (c->fixed_records && f->records >= c->fixed_records) || cl_log_now_ns(log) - f->first_ns >= c->fixed_wait_ns;
}

static uint32_t most_flights(const struct cl_log *log)
{
    return cl_log_adapts(log) ? cl_log_width_limit(&log->width) : log->config.in_flight;
}

static bool send_what_should(struct cl_log *log)
{
    bool any = false;
    while (log->flights < most_flights(log)) {
        if (log->sent_lsn + 1 == log->open_lsn) {
            if (!has_buffer(log) || !ripe(log, cl_log_flush_of(log, log->open_lsn)))
                break;
            seal(log);
        }
        send(log, cl_log_flush_of(log, log->sent_lsn + 1));
        any = true;
    }
    return any;
}

/* Acknowledge the flushes that are done and have none before them that is not. */
static bool acknowledge(struct cl_log *log)
{
    bool any = false;
    while (log->state == CL_LOG_READY && log->view.lsn < log->sent_lsn) {
        struct cl_log_flush *f = cl_log_flush_of(log, log->view.lsn + 1);
        if (!f->done)
            break;
        bool had = has_buffer(log);
        if (cl_log_view_apply(log, f->buf)) {
            cl_log_fail(log, -ENOMEM, "no memory for the index of the records; open the log again");
            return true;
        }
        cl_log_confirm_said(log, ((const struct cl_log_disk_flush *)f->buf)->durable_lsn);
        log->stats.flushes++;
        log->stats.flush_bytes += cl_log_round(f->bytes);
        for (struct cl_log_op *op = f->first; op; op = op->next) {
            log->stats.appends++;
            log->stats.append_bytes += op->bytes;
            memcpy(op->stamps, f->stamps, sizeof op->stamps);
        }
        struct cl_log_op *ops = f->first;
        f->first = f->last = NULL;
        if (!had) /* its buffer is the one that the flush being filled waits for */
            begin_flush(log);
        cl_log_done(log, ops, 0);
        any = true;
    }
    return any;
}

bool cl_log_flushes_step(struct cl_log *log)
{
    bool any = acknowledge(log);
    if (log->state == CL_LOG_READY)
        any |= send_what_should(log);
    return any;
}

void cl_log_flushes_fail(struct cl_log *log)
{
    for (uint64_t lsn = log->view.lsn + 1;
         log->flushes && lsn <= log->open_lsn && lsn - log->view.lsn <= log->n_flushes; lsn++) {
        struct cl_log_flush *f = cl_log_flush_of(log, lsn);
        struct cl_log_op *ops = f->first;
        f->first = f->last = NULL;
        cl_log_done(log, ops, log->error);
    }
}

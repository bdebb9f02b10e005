/* Snapshots: streamed in pieces into the slot that holds none or the older one, then named by a superblock, which is
 * atomic. */
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>

static uint64_t piece_offset(const struct cl_log *log, uint64_t number, uint64_t piece)
{
    const struct cl_log_disk_super *s = &log->super.now;
    return s->snapshot_offset + (number & 1) * s->snapshot_bytes + piece * CL_LOG_PIECE_BYTES;
}

static uint32_t piece_crc(const struct cl_log *log, uint64_t number, const struct cl_log_disk_piece *p)
{
    return cl_crc32c(cl_log_seed(log->area_id, number, p->at), &p->bytes, sizeof *p - 4 + p->bytes);
}

void cl_log_snapshot_get(const struct cl_log *log, struct cl_log_snapshot *out)
{
    const struct cl_log_disk_super *s = &log->super.now;
    *out = (struct cl_log_snapshot){
        .index = s->snapshot_index, .tag = s->snapshot_tag, .bytes = s->snapshot_length, .number = s->snapshot_number};
}

static int usable(const struct cl_log *log)
{
    if (log->state != CL_LOG_READY)
        return log->state == CL_LOG_FAILED ? log->error : -EBUSY;
    return log->config.on_damage == CL_LOG_READ_ONLY ? -EROFS : 0;
}

int cl_log_snapshot_begin(struct cl_log *log, uint64_t index, uint64_t tag)
{
    struct cl_log_snap *n = &log->snap;
    int rc = usable(log);
    if (rc)
        return rc;
    if (index > CL_LOG_INDEX_MOST)
        return -ERANGE;
    if (log->super.now.snapshot_bytes == 0)
        return -ENOTSUP;
    if (n->in_flight || n->committing)
        return -EAGAIN;
    for (unsigned i = 0; i < CL_LOG_PIECES; i++)
        if (!n->pieces[i].block && !(n->pieces[i].block = cl_log_blocks(CL_LOG_PIECE_BYTES)))
            return -ENOMEM;
    n->begun = true;
    n->fill = 0;
    n->filled = 0;
    n->next = (struct cl_log_snapshot){.index = index, .tag = tag, .number = log->super.now.snapshot_number + 1};
    return 0;
}

static void written(struct cl_log *log, struct cl_log_io *io)
{
    ((struct cl_log_piece *)io)->busy = false;
    log->snap.in_flight--;
    if (io->req.result)
        cl_log_fail(log, io->req.result, "writing a snapshot at offset %llu failed: %s",
                    (unsigned long long)io->req.offset, strerror(-io->req.result));
}

static void send_piece(struct cl_log *log)
{
    struct cl_log_snap *n = &log->snap;
    struct cl_log_piece *p = &n->pieces[n->filled % CL_LOG_PIECES];
    *p->block = (struct cl_log_disk_piece){
        .bytes = n->fill, .number = n->next.number, .at = n->filled * (uint64_t)CL_LOG_PIECE_DATA};
    p->block->crc = piece_crc(log, n->next.number, p->block);
    uint64_t used = sizeof *p->block + n->fill, whole = cl_log_round(used);
    memset((uint8_t *)p->block + used, 0, whole - used);
    p->busy = true;
    p->io.complete = written;
    cl_log_post(log, &p->io, CL_BLK_WRITE, CL_BLK_DURABLE, piece_offset(log, n->next.number, n->filled), p->block,
                whole);
    n->in_flight++;
    n->filled++;
    n->fill = 0;
}

uint64_t cl_log_snapshot_room(const struct cl_log *log)
{
    return log->super.now.snapshot_bytes / CL_LOG_PIECE_BYTES * CL_LOG_PIECE_DATA;
}

int64_t cl_log_snapshot_write(struct cl_log *log, const void *data, uint64_t bytes)
{
    struct cl_log_snap *n = &log->snap;
    int rc = usable(log);
    if (rc)
        return rc;
    if (!n->begun || n->committing)
        return -EINVAL;
    if (bytes > cl_log_snapshot_room(log) - n->next.bytes)
        return -ENOSPC;
    uint64_t taken = 0;
    while (taken < bytes) {
        struct cl_log_piece *p = &n->pieces[n->filled % CL_LOG_PIECES];
        if (p->busy)
            break;
        uint32_t take = (uint32_t)cl_min(bytes - taken, (uint64_t)(CL_LOG_PIECE_DATA - n->fill));
        memcpy((uint8_t *)(p->block + 1) + n->fill, (const uint8_t *)data + taken, take);
        n->fill += take;
        taken += take;
        if (n->fill == CL_LOG_PIECE_DATA)
            send_piece(log);
    }
    n->next.bytes += taken;
    return (int64_t)taken;
}

int cl_log_snapshot_commit(struct cl_log *log, struct cl_log_op *op)
{
    struct cl_log_snap *n = &log->snap;
    int rc = usable(log);
    if (rc)
        return rc;
    if (!n->begun)
        return -EINVAL;
    if (n->committing)
        return -EBUSY;
    n->committing = true;
    n->commit = op;
    if (op)
        op->result = CL_LOG_PENDING;
    if (n->fill)
        send_piece(log);
    return 0;
}

void cl_log_snapshot_abort(struct cl_log *log)
{
    if (!log->snap.committing)
        log->snap.begun = false;
}

bool cl_log_snapshot_step(struct cl_log *log)
{
    struct cl_log_snap *n = &log->snap;
    if (!n->committing || n->publish || n->in_flight)
        return false;
    n->publish = true;
    cl_log_super_want(log, n->commit);
    n->commit = NULL;
    return true;
}

void cl_log_snapshot_published(struct cl_log *log)
{
    log->snap.begun = log->snap.committing = log->snap.publish = false;
    log->stats.snapshots++;
}

void cl_log_snapshot_fail(struct cl_log *log)
{
    struct cl_log_op *op = log->snap.commit;
    log->snap.commit = NULL;
    if (op)
        op->next = NULL;
    cl_log_done(log, op, log->error);
}

void cl_log_snapshot_free(struct cl_log *log)
{
    for (unsigned i = 0; i < CL_LOG_PIECES; i++)
        free(log->snap.pieces[i].block);
    free(log->snap.read_buf);
}

/* What is wrong with a piece that was read: 0, -EBADMSG. */
static int check_piece(const struct cl_log *log, uint64_t number, uint64_t piece, const struct cl_log_disk_piece *p)
{
    uint64_t at = piece * CL_LOG_PIECE_DATA,
             want = cl_min(log->super.now.snapshot_length - at, (uint64_t)CL_LOG_PIECE_DATA);
    bool good = p->number == number && p->at == at && p->bytes == want && p->crc == piece_crc(log, number, p);
    return good ? 0 : -EBADMSG;
}

static void read_done(struct cl_log *log, struct cl_log_io *io)
{
    struct cl_log_snap *n = &log->snap;
    n->reading = false;
    n->read_result = io->req.result;
    if (n->read_result == 0 && n->read_number == log->super.now.snapshot_number)
        n->read_result = check_piece(log, n->read_number, n->read_piece, (const void *)n->read_buf);
    else if (n->read_result)
        snprintf(n->why, sizeof n->why, "reading %u bytes of the snapshot at offset %llu failed: %s",
                 (unsigned)io->req.bytes, (unsigned long long)io->req.offset, strerror(-n->read_result));
    if (n->read_result == -EBADMSG)
        snprintf(n->why, sizeof n->why, "piece %llu of the snapshot of index %llu, at offset %llu, is damaged",
                 (unsigned long long)n->read_piece, (unsigned long long)log->super.now.snapshot_index,
                 (unsigned long long)io->req.offset);
}

const char *cl_log_snapshot_why(const struct cl_log *log)
{
    return log->snap.why;
}

int64_t cl_log_snapshot_read(struct cl_log *log, uint64_t number, uint64_t at, void *buf, uint64_t room)
{
    struct cl_log_snap *n = &log->snap;
    const struct cl_log_disk_super *s = &log->super.now;
    if (log->state != CL_LOG_READY)
        return log->state == CL_LOG_FAILED ? log->error : -EBUSY;
    if (number == 0 || number != s->snapshot_number)
        return -ESTALE;
    if (at >= s->snapshot_length)
        return 0;
    if (n->reading)
        return -EAGAIN;
    if (!n->read_buf && !(n->read_buf = cl_log_blocks(CL_LOG_PIECE_BYTES)))
        return -ENOMEM;
    uint64_t piece = at / CL_LOG_PIECE_DATA, from = at % CL_LOG_PIECE_DATA;
    if (n->read_number != number || n->read_piece != piece) {
        uint64_t data = cl_min(s->snapshot_length - piece * CL_LOG_PIECE_DATA, (uint64_t)CL_LOG_PIECE_DATA);
        n->read_number = number;
        n->read_piece = piece;
        n->reading = true;
        n->read.complete = read_done;
        cl_log_post(log, &n->read, CL_BLK_READ, 0, piece_offset(log, number, piece), n->read_buf,
                    cl_log_round(sizeof(struct cl_log_disk_piece) + data));
        return -EAGAIN;
    }
    if (n->read_result) {
        n->read_number = 0; /* the next call tries anew */
        return n->read_result;
    }
    const struct cl_log_disk_piece *p = (const struct cl_log_disk_piece *)n->read_buf;
    uint64_t give = cl_min(room, p->bytes - from);
    memcpy(buf, (const uint8_t *)(p + 1) + from, give);
    return (int64_t)give;
}

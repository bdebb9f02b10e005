/* Writing again what was found at opening and may not be durable.
 *
 * What reads back whole need not be: after a write that failed, and a process that was started again without a loss of
 * power, it may be in a cache alone. So the flushes from the first on of which nobody says that it was acknowledged are
 * written again where they lie, as they are: a write that tears changes nothing. Superblocks need none of that: what
 * the newest one says, both of them say durably before the log takes anything (recover.c), and until then the older one
 * is as good.
 *
 * The flushes are read for it once more, as the tail may be longer than the memory there is, and looked at once more: a
 * cache may have dropped meanwhile what it had failed to write, and a read may be wrong that once. Who wrote that back
 * would overwrite what had been acknowledged, or count what is nowhere. */
#include "recover.h"

static void done(struct cl_log *log, struct cl_log_io *io)
{
    bool read = io->req.op == CL_BLK_READ;
    log->recover->mending = false;
    log->recover->again_loaded = read;
    if (io->req.result)
        cl_log_fail(log, io->req.result, "%s again the %llu bytes at offset %llu, which may not be durable, failed: %s",
                    read ? "reading" : "writing", (unsigned long long)io->req.bytes, (unsigned long long)io->req.offset,
                    strerror(-io->req.result));
}

static void post(struct cl_log *log, int op, uint64_t offset, void *buf, uint64_t bytes)
{
    struct cl_log_recover *r = log->recover;
    r->mend.complete = done;
    r->mending = true;
    cl_log_post(log, &r->mend, op, op == CL_BLK_WRITE ? CL_BLK_DURABLE : 0, offset, buf, bytes);
}

/* Whether the flush that was found at r->again_next is there still, whole, in the `bytes` at h. */
static bool still_there(const struct cl_log *log, const struct cl_log_disk_flush *h, uint64_t bytes)
{
    const struct cl_log_recover *r = log->recover;
    const struct cl_log_disk_super *s = &log->super.now;
    uint64_t in_flush;
    return cl_log_flush_ours(log, h, cl_log_offset_of(log, r->again_next.place)) && h->lsn == r->again_next.lsn &&
           h->place == r->again_next.place && (h->lsn < s->epoch_lsn ? h->epoch < s->epoch : h->epoch == s->epoch) &&
           cl_log_round(h->bytes) <= bytes && !cl_log_flush_records(log, (const uint8_t *)h, &in_flush);
}

/* Write what was read, `bytes` of it, up to the last flush that is in it as a whole. */
static void write_whole(struct cl_log *log, uint64_t bytes)
{
    struct cl_log_recover *r = log->recover;
    uint64_t used = 0;
    r->again_next = r->again;
    for (uint64_t at = 0; at < bytes; at = r->again_next.place - r->again.place) {
        const struct cl_log_disk_flush *h = (const struct cl_log_disk_flush *)(r->room + at);
        if (used && h->bytes > bytes - at) /* its other part is read next, and then what is wrong shows */
            break;
        if (!still_there(log, h, bytes - at)) {
            cl_log_fail(log, -EIO,
                        "the flush at offset %llu, which may not be durable, was read twice, and only the first time "
                        "it was whole: "
                        "open the log again",
                        (unsigned long long)cl_log_offset_of(log, r->again_next.place));
            return;
        }
        used = at + cl_log_round(h->bytes);
        r->again_next.lsn++;
        r->again_next.place = cl_log_next_place(log, r->again_next.place, h->bytes);
    }
    post(log, CL_BLK_WRITE, cl_log_offset_of(log, r->again.place), r->room, used);
    r->again = r->again_next;
}

bool cl_log_write_again(struct cl_log *log)
{
    struct cl_log_recover *r = log->recover;
    if (r->again_next.lsn <= r->acknowledged_lsn + 1)
        r->again = r->again_next;
    if (r->acknowledged_lsn >= log->view.lsn || r->again.lsn > log->view.lsn)
        return false;
    uint64_t offset = cl_log_offset_of(log, r->again.place);
    uint64_t bytes = cl_max(r->segment_bytes, log->flush_bytes); /* room has more */
    bytes = cl_min(bytes, cl_min(log->view.end_place - r->again.place, log->ring_offset + log->ring_bytes - offset));
    if (r->again_loaded)
        write_whole(log, bytes);
    else
        post(log, CL_BLK_READ, offset, r->room, bytes);
    return true;
}

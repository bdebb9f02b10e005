/* Which superblock is taken when a log is opened: the newer of those that are whole. What a whole one says is taken or
 * refused with a reason; one that is not whole is passed over, since it may have been torn by a crash while the other
 * one was good. */
#include "recover.h"

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
           (s->version != CL_LOG_VERSION || s->ring_shift == 0);
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

const struct cl_log_disk_super *cl_log_choose(struct cl_log *log)
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
        if (s->version < CL_LOG_VERSION || s->version > CL_LOG_VERSION_COPIES) {
            cl_log_fail(log, -EPROTO,
                        "the superblock at offset %u is of format version %u, and this program knows versions %u to %u",
                        i * CL_LOG_BLOCK_BYTES, s->version, CL_LOG_VERSION, CL_LOG_VERSION_COPIES);
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

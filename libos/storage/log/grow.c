/* Taking into use what an area grew by, when the log is opened.
 *
 * The ring is the end of the area, so it can grow at its end, if what is in use lies in one lap of the old ring: then
 * every flush keeps its offset when the places are counted anew from the beginning of that lap (ring_shift). What wraps
 * around the old end stays in the old ring until an opening at which it does not any more; the report says how much is
 * unused.
 *
 * The superblock that begins the new epoch has the new size, and both copies of it are durable before the first append:
 * the old one would not have recovery scan behind the old end. */
#include "internal.h"

void cl_log_grow(struct cl_log *log, bool allowed)
{
    struct cl_log_view *v = &log->view;
    struct cl_log_disk_super *s = &log->super.now;
    uint64_t whole = log->blk->bytes & ~(uint64_t)(CL_LOG_BLOCK_BYTES - 1), old = log->ring_bytes;
    uint64_t lap = s->head_place - (s->head_place - log->ring_shift) % old;
    uint64_t used_end = v->flush_end ? v->flush_end : v->end_place;
    if (whole - log->ring_offset <= old)
        return;
    log->report.unused_bytes = whole - log->ring_offset - old;
    if (!allowed || log->config.on_damage == CL_LOG_READ_ONLY || used_end - lap > old)
        return;
    log->report.grown_bytes = log->report.unused_bytes;
    log->report.unused_bytes = 0;
    log->ring_bytes = s->ring_bytes = whole - log->ring_offset;
    log->ring_shift = s->ring_shift = lap;
    s->area_bytes = whole;
    if (s->version != CL_LOG_VERSION_COPIES)
        s->version = lap ? CL_LOG_VERSION_GROWN : CL_LOG_VERSION;
    if (v->flush_end) /* the place behind it was perhaps the beginning of a lap, and is not any more */
        v->end_place = cl_log_next_place(log, v->flush_end, 0);
}

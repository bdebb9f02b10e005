/* What the end of the log means, once the ring has been read: nothing came behind it, a crash tore what did, or damage
 * took what had been acknowledged. The report says it in words, with the evidence. */
#include "recover.h"

#include <stdio.h>

/* The superblock promises records from first_index on: what the flushes begin with must not be later. Nothing that we
 * write looks like this, but what is given out has to be there. */
static void check_beginning(struct cl_log *log)
{
    struct cl_log_recover *r = log->recover;
    struct cl_log_view *v = &log->view;
    uint64_t have = cl_log_view_whole_from(v);
    if (have <= v->first_index)
        return;
    if (!r->proof) {
        r->proof = true;
        r->bad_why = "the records from there on are missing";
        log->report.bad_offset = cl_log_offset_of(log, log->super.now.head_place);
    }
    cl_log_view_trim(v, have);
}

/* A block that cannot be read ended the log, or may hide what proves that a torn flush is damaged: that is not told
 * apart in silence. */
static void judge_unreadable(struct cl_log *log)
{
    struct cl_log_recover *r = log->recover;
    struct cl_log_report *p = &log->report;
    if (!r->unread && r->torn && !r->proof) {
        r->unread_place = cl_log_unreadable_from(r, r->bad_place, r->end);
        r->unread = r->unread_place < r->end;
    }
    if (!r->unread)
        return;
    r->proof = true;
    p->unreadable_offset = cl_log_offset_of(log, r->unread_place);
    if (r->unread_place >= r->bad_place && r->unread_place - r->bad_place < log->flush_bytes)
        p->bad_offset = p->unreadable_offset;
}

void cl_log_judge(struct cl_log *log)
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

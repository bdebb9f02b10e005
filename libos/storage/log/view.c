/* What is durable: applying a flush, live and in recovery by the same code, and finding a record. */
#include "internal.h"

#include <stdlib.h>

bool cl_log_flush_ours(const struct cl_log *log, const struct cl_log_disk_flush *h, uint64_t offset)
{
    if (h->magic != cl_log_magic(log->area_id) || h->bytes < sizeof *h || h->bytes > log->flush_bytes)
        return false;
    return h->crc == cl_crc32c(cl_log_seed(log->area_id, offset, 0), &h->lsn, sizeof *h - 8);
}

/* Index of the next append after a record, or 0 if it cannot follow: the sequence that all records form. */
static uint64_t follows(const struct cl_log_disk_record *r, uint64_t next)
{
    switch (r->what) {
    case CL_LOG_DATA:
        return r->index == next ? next + 1 : 0;
    case CL_LOG_TRUNCATE:
        return r->index <= next ? r->index : 0;
    case CL_LOG_RESTART:
        return r->index;
    case CL_LOG_META:
        return r->bytes <= CL_LOG_META_BYTES ? next : 0;
    default:
        return 0;
    }
}

const char *cl_log_flush_records(const struct cl_log *log, const uint8_t *buf, uint64_t *at)
{
    const struct cl_log_disk_flush *h = (const struct cl_log_disk_flush *)buf;
    uint32_t seed = cl_log_seed(log->area_id, h->epoch, h->lsn), pos = sizeof *h;
    uint64_t next = h->first_index;
    for (uint32_t i = 0; i < h->records; i++) {
        const struct cl_log_disk_record *r = (const struct cl_log_disk_record *)(buf + pos);
        *at = pos;
        if (h->bytes - pos < sizeof *r || r->bytes > h->bytes - pos - sizeof *r ||
            cl_log_record_bytes(r->bytes) > h->bytes - pos)
            return "a record runs past the end of its flush";
        if (r->crc != cl_log_record_crc(seed, r))
            return "a record has a wrong checksum";
        next = r->epoch == (uint32_t)h->epoch ? follows(r, next) : 0;
        if (next == 0)
            return "a record does not follow the one before it";
        pos += (uint32_t)cl_log_record_bytes(r->bytes);
    }
    *at = pos;
    return pos == h->bytes ? NULL : "the flush is longer than its records";
}

static int push(struct cl_log_view *v, struct cl_log_span span)
{
    if (v->end == v->room) {
        if (v->begin > v->room / 2) {
            memmove(v->spans, v->spans + v->begin, (v->end - v->begin) * sizeof *v->spans);
        } else {
            uint64_t room = v->room ? 2 * v->room : 64;
            struct cl_log_span *grown = malloc(room * sizeof *grown);
            if (!grown)
                return -ENOMEM;
            if (v->end > v->begin) /* memcpy of NULL is undefined, even of nothing */
                memcpy(grown, v->spans + v->begin, (v->end - v->begin) * sizeof *grown);
            free(v->spans);
            v->spans = grown;
            v->room = room;
        }
        v->end -= v->begin;
        v->begin = 0;
    }
    v->spans[v->end++] = span;
    return 0;
}

static int add(struct cl_log_view *v, const struct cl_log_disk_flush *h, uint32_t at,
               const struct cl_log_disk_record *r)
{
    uint32_t bytes = (uint32_t)cl_log_record_bytes(r->bytes);
    struct cl_log_span *last = v->end > v->begin ? &v->spans[v->end - 1] : NULL;
    if (last && last->lsn == h->lsn && last->at + last->bytes == at && last->bytes < CL_LOG_SPAN_BYTES &&
        last->first_index + last->count == r->index) {
        last->count++;
        last->bytes += bytes;
        return 0;
    }
    return push(v, (struct cl_log_span){h->lsn, h->place, r->index, at, 1, bytes});
}

/* Records from `from` on are gone. What is left of a span keeps its bytes: a walk over it counts. */
static void cut(struct cl_log_view *v, uint64_t from)
{
    if (from <= v->first_index) /* of a span that a trim went into nothing is left either */
        v->end = v->begin;
    while (v->end > v->begin && v->spans[v->end - 1].first_index >= from)
        v->end--;
    struct cl_log_span *last = v->end > v->begin ? &v->spans[v->end - 1] : NULL;
    if (last && last->first_index + last->count > from) {
        last->count = (uint32_t)(from - last->first_index);
        last->bytes |= 1; /* odd: nothing is ever added to it */
    }
    v->next_index = from;
}

int cl_log_view_apply(struct cl_log *log, const uint8_t *buf)
{
    const struct cl_log_disk_flush *h = (const struct cl_log_disk_flush *)buf;
    struct cl_log_view *v = &log->view;
    uint32_t pos = sizeof *h;
    for (uint32_t i = 0; i < h->records; i++) {
        const struct cl_log_disk_record *r = (const struct cl_log_disk_record *)(buf + pos);
        if (r->what == CL_LOG_DATA) {
            if (r->index >= v->first_index && add(v, h, pos, r))
                return -ENOMEM;
            v->next_index = r->index + 1;
        } else if (r->what == CL_LOG_TRUNCATE) {
            cut(v, r->index);
            cl_log_cursors_cut(log, r->index);
        } else if (r->what == CL_LOG_RESTART) {
            cut(v, 0);
            cl_log_cursors_cut(log, 0);
            v->next_index = r->index;
            v->first_index = cl_max(v->first_index, r->index);
        } else if (r->index > v->meta_number) {
            v->meta_number = r->index;
            v->meta_bytes = r->bytes;
            memcpy(v->meta, r + 1, r->bytes);
        }
        pos += (uint32_t)cl_log_record_bytes(r->bytes);
    }
    v->lsn = h->lsn;
    v->flush_end = h->place + cl_log_round(h->bytes);
    v->end_place = cl_log_next_place(log, h->place, h->bytes);
    return 0;
}

void cl_log_view_trim(struct cl_log_view *view, uint64_t first_kept)
{
    view->first_index = first_kept;
    while (view->begin < view->end &&
           view->spans[view->begin].first_index + view->spans[view->begin].count <= first_kept)
        view->begin++;
}

const struct cl_log_span *cl_log_view_find(const struct cl_log_view *view, uint64_t index)
{
    uint64_t low = view->begin, high = view->end; /* the last span that begins at or before index */
    if (index < view->first_index || index >= view->next_index)
        return NULL;
    while (high - low > 1) {
        uint64_t mid = low + (high - low) / 2;
        if (view->spans[mid].first_index <= index)
            low = mid;
        else
            high = mid;
    }
    return low < high ? &view->spans[low] : NULL;
}

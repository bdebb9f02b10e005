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
    case CL_LOG_COPY:
        return r->index < next ? next : 0;
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

/* Room for so many more spans. Those there are may move. */
static int make_room(struct cl_log_view *v, uint64_t more)
{
    if (v->end + more > v->room) {
        if (v->begin > v->room / 2) {
            memmove(v->spans, v->spans + v->begin, (v->end - v->begin) * sizeof *v->spans);
        } else { /* which is more than any that is asked for */
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
    return 0;
}

static int push(struct cl_log_view *v, struct cl_log_span span)
{
    int rc = v->end == v->room ? make_room(v, 1) : 0;
    if (!rc)
        v->spans[v->end++] = span;
    return rc;
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
    return push(v, (struct cl_log_span){h->lsn, h->place, r->index, at, 1, bytes, 0});
}

/* The first span that ends behind `index`; end: there is none. */
static uint64_t first_behind(const struct cl_log_view *v, uint64_t index)
{
    uint64_t low = v->begin, high = v->end;
    while (low < high) {
        uint64_t mid = low + (high - low) / 2;
        if (v->spans[mid].first_index + v->spans[mid].count > index)
            high = mid;
        else
            low = mid + 1;
    }
    return low;
}

/* Records that were copied are where this span says. Of the spans they were in, what lies before and behind them is
 * left; in recovery they may have been in none, since it begins behind the place that they were copied from. */
static int move_to(struct cl_log_view *v, const struct cl_log_span *span)
{
    uint64_t from = span->first_index, to = from + span->count;
    struct cl_log_span now[3];
    unsigned n = 0;
    if (make_room(v, 2))
        return -ENOMEM;
    uint64_t at = first_behind(v, from), behind = at;
    if (at < v->end && v->spans[at].first_index < from && v->first_index < from) { /* else it is trimmed */
        now[n] = v->spans[at];
        now[n].count = (uint32_t)(from - now[n].first_index);
        now[n++].bytes |= 1;
    }
    now[n++] = *span;
    while (behind < v->end && v->spans[behind].first_index < to)
        behind++;
    const struct cl_log_span *last = behind > at ? &v->spans[behind - 1] : NULL;
    if (last && last->first_index + last->count > to) {
        now[n] = *last;
        now[n].skip += (uint32_t)(to - last->first_index);
        now[n].count -= (uint32_t)(to - last->first_index);
        now[n++].first_index = to;
    }
    if (at - v->begin <= v->end - behind && behind - at >= n) { /* what is shorter is moved */
        uint64_t fewer = behind - at - n;
        memmove(v->spans + v->begin + fewer, v->spans + v->begin, (at - v->begin) * sizeof *now);
        v->begin += fewer;
        at += fewer;
    } else {
        memmove(v->spans + at + n, v->spans + behind, (v->end - behind) * sizeof *now);
        v->end += at + n - behind;
    }
    memcpy(v->spans + at, now, n * sizeof *now);
    v->copies = true;
    return 0;
}

/* A record that was copied joins those before it, which are not in the view yet; those of another span are now. */
static int copied(struct cl_log_view *v, struct cl_log_span *span, const struct cl_log_disk_flush *h, uint32_t at,
                  const struct cl_log_disk_record *r)
{
    uint32_t bytes = (uint32_t)cl_log_record_bytes(r->bytes);
    bool joins = span->count && span->at + span->bytes == at && span->bytes < CL_LOG_SPAN_BYTES &&
                 span->first_index + span->count == r->index;
    if (joins) {
        span->count++;
        span->bytes += bytes;
        return 0;
    }
    int rc = span->count ? move_to(v, span) : 0;
    *span = (struct cl_log_span){h->lsn, h->place, r->index, at, 1, bytes, 0};
    return rc;
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
    struct cl_log_span copies = {0};
    uint32_t pos = sizeof *h;
    for (uint32_t i = 0; i < h->records;
         i++, pos += (uint32_t)cl_log_record_bytes(((const struct cl_log_disk_record *)(buf + pos))->bytes)) {
        const struct cl_log_disk_record *r = (const struct cl_log_disk_record *)(buf + pos);
        if (r->what == CL_LOG_COPY) {
            if (r->index >= v->first_index && copied(v, &copies, h, pos, r))
                return -ENOMEM;
            continue;
        }
        if (copies.count && move_to(v, &copies))
            return -ENOMEM;
        copies.count = 0;
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
    }
    if (copies.count && move_to(v, &copies))
        return -ENOMEM;
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

uint64_t cl_log_view_bytes(const struct cl_log_view *v)
{
    uint64_t all = 0;
    for (uint64_t i = v->begin; i < v->end; i++) {
        const struct cl_log_span *s = &v->spans[i];
        all += s->bytes & 1 || s->skip ? s->count * cl_log_record_bytes(0) : s->bytes;
    }
    return all;
}

uint64_t cl_log_view_most_bytes(const struct cl_log_view *v)
{
    uint64_t all = 0;
    for (uint64_t i = v->begin; i < v->end; i++)
        all += v->spans[i].bytes & ~7u;
    return all;
}

bool cl_log_view_head(struct cl_log_view *v, uint64_t *lsn, uint64_t *place)
{
    if (v->begin == v->end)
        return false;
    const struct cl_log_span *head = v->spans + v->begin;
    bool in_order = true;
    for (uint64_t i = v->begin + 1; v->copies && i < v->end; i++) {
        in_order &= v->spans[i].lsn >= v->spans[i - 1].lsn;
        if (v->spans[i].lsn < head->lsn)
            head = &v->spans[i];
    }
    v->copies = !in_order;
    *lsn = head->lsn;
    *place = head->place;
    return true;
}

uint64_t cl_log_view_whole_from(const struct cl_log_view *v)
{
    uint64_t from = v->next_index;
    for (uint64_t i = v->end; i > v->begin && v->spans[i - 1].first_index + v->spans[i - 1].count == from; i--)
        from = v->spans[i - 1].first_index;
    return from;
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

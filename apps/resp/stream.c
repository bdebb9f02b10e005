/* See stream.h. */
#include "stream.h"

#define ROOM_FIRST 8u

struct cl_rstream *cl_rstream_new(struct cl_rmem *m)
{
    return cl_rmem_zero(m, sizeof(struct cl_rstream));
}

static void free_entry(struct cl_rmem *m, struct cl_rsentry *e)
{
    cl_rmem_free(m, e, e->bytes);
}

void cl_rstream_free(struct cl_rmem *m, struct cl_rstream *s)
{
    for (uint64_t i = 0; i < s->n; i++)
        free_entry(m, cl_rstream_at(s, i));
    cl_rmem_free(m, s->items, s->room * sizeof *s->items);
    cl_rmem_free(m, s, sizeof *s);
}

static void make_room(struct cl_rmem *m, struct cl_rstream *s)
{
    if (s->from + s->n < s->room)
        return;
    if (s->from > s->n) {
        memmove(s->items, s->items + s->from, s->n * sizeof *s->items);
        s->from = 0;
        return;
    }
    uint64_t room = cl_max(s->room + s->room / 2, (uint64_t)ROOM_FIRST);
    s->items = cl_rmem_resize(m, s->items, s->room * sizeof *s->items, room * sizeof *s->items);
    s->room = room;
}

void cl_rstream_add(struct cl_rmem *m, struct cl_rstream *s, struct cl_rid id, const struct cl_slice *texts, uint32_t n)
{
    uint64_t bytes = sizeof(struct cl_rsentry);
    for (uint32_t i = 0; i < n; i++)
        bytes += 4 + texts[i].len;
    struct cl_rsentry *e = cl_rmem_new(m, bytes);
    *e = (struct cl_rsentry){.id = id, .n = n, .bytes = (uint32_t)bytes};
    uint8_t *to = e->data;
    for (uint32_t i = 0; i < n; i++) {
        memcpy(to, &texts[i].len, 4);
        memcpy(to + 4, texts[i].p, texts[i].len);
        to += 4 + texts[i].len;
    }
    make_room(m, s);
    s->items[s->from + s->n++] = e;
    s->last_id = id;
    s->added++;
}

uint64_t cl_rstream_seek(const struct cl_rstream *s, struct cl_rid id)
{
    uint64_t low = 0, high = s->n;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (cl_rid_order(cl_rstream_at(s, middle)->id, id) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void cl_rstream_remove(struct cl_rmem *m, struct cl_rstream *s, uint64_t i)
{
    struct cl_rsentry **at = s->items + s->from + i;
    free_entry(m, *at);
    memmove(at, at + 1, (s->n - i - 1) * sizeof *at);
    s->n--;
}

void cl_rstream_trim(struct cl_rmem *m, struct cl_rstream *s, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        free_entry(m, cl_rstream_at(s, i));
    s->from += n;
    s->n -= n;
    if (s->n == 0)
        s->from = 0;
}

struct cl_slice cl_rsentry_text(const struct cl_rsentry *e, uint32_t *at)
{
    struct cl_slice s = {e->data + *at + 4, 0};
    memcpy(&s.len, e->data + *at, 4);
    *at += 4 + s.len;
    return s;
}

/* A stream: entries in order of their IDs, which only grow, in one vector of pointers. Appending and trimming at the
 * front take constant time, finding an ID takes a binary search. */
#ifndef CORELANE_APPS_RESP_STREAM_H
#define CORELANE_APPS_RESP_STREAM_H

#include "resp.h"

struct cl_rid {
    uint64_t ms, seq;
};

struct cl_rsentry {
    struct cl_rid id;
    uint32_t n;     /* texts: fields and values */
    uint32_t bytes; /* of the block */
    uint8_t data[]; /* of each its length in 4 bytes, and its bytes */
};

struct cl_rstream {
    struct cl_rsentry **items; /* [room], in use from `from` on */
    uint64_t from, n, room;
    struct cl_rid last_id, max_deleted;
    uint64_t added;
};

static inline int cl_rid_order(struct cl_rid a, struct cl_rid b)
{
    if (a.ms != b.ms)
        return a.ms < b.ms ? -1 : 1;
    return a.seq < b.seq ? -1 : a.seq > b.seq;
}

struct cl_rstream *cl_rstream_new(struct cl_rmem *m);
void cl_rstream_free(struct cl_rmem *m, struct cl_rstream *s);
/* id is above last_id. */
void cl_rstream_add(struct cl_rmem *m, struct cl_rstream *s, struct cl_rid id, const struct cl_slice *texts,
                    uint32_t n);
/* How many entries have an ID below `id`: the index of the first that has not. */
uint64_t cl_rstream_seek(const struct cl_rstream *s, struct cl_rid id);
static inline struct cl_rsentry *cl_rstream_at(const struct cl_rstream *s, uint64_t i)
{
    return s->items[s->from + i];
}
void cl_rstream_remove(struct cl_rmem *m, struct cl_rstream *s, uint64_t i);
/* Remove the first n. */
void cl_rstream_trim(struct cl_rmem *m, struct cl_rstream *s, uint64_t n);
/* The text at *at, an offset in data, which moves on. */
struct cl_slice cl_rsentry_text(const struct cl_rsentry *e, uint32_t *at);

#endif

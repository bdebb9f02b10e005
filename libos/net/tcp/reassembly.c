/* See reassembly.h. */
#include "reassembly.h"

#include <string.h>

static struct cl_chunk *home_of(struct cl_tcp_reassembly *r)
{
    return cl_container_of(r, struct cl_chunk, data);
}

static bool make(struct cl_tcp_conn *c)
{
    if (c->aside)
        return true;
    struct cl_chunk *home = cl_tcp_chunk_get(c, CL_TCP_RECEIVE);
    if (!home)
        return false;
    c->aside = (struct cl_tcp_reassembly *)(void *)home->data;
    c->aside->n = c->aside->order = 0;
    c->aside->since_ns = c->turn->now_ns;
    return true;
}

static void remove_range(struct cl_tcp_reassembly *r, unsigned i)
{
    r->n--;
    memmove(&r->ranges[i], &r->ranges[i + 1], (r->n - i) * sizeof r->ranges[0]);
}

/* Give back its one chunk when nothing is in it. */
static void unmake(struct cl_tcp_conn *c)
{
    if (!c->aside || c->aside->n)
        return;
    cl_tcp_chunks_free(c, CL_TCP_RECEIVE, home_of(c->aside));
    c->aside = NULL;
}

/* The range that was added to last makes room for what is next in order. False: there is none but the first, if `first`
 * is to stay. */
static bool evict(struct cl_tcp_conn *c, bool keep_first)
{
    struct cl_tcp_reassembly *r = c->aside;
    unsigned latest = keep_first;
    if (r->n <= latest)
        return false;
    for (unsigned i = latest + 1; i < r->n; i++)
        if ((int32_t)(r->ranges[i].order - r->ranges[latest].order) > 0)
            latest = i;
    cl_tcp_chunks_free(c, CL_TCP_RECEIVE, r->ranges[latest].first);
    remove_range(r, latest);
    return true;
}

/* Append bytes to range i. Returns how many; for what is next in order others make room. */
static uint32_t append(struct cl_tcp_conn *c, unsigned i, const uint8_t *data, uint32_t len, bool next)
{
    struct cl_tcp_aside *range = &c->aside->ranges[i];
    uint32_t done = 0;
    while (done < len) {
        struct cl_chunk *last = range->last;
        uint32_t room = last ? CL_CHUNK_ROOM - (uint32_t)last->from - last->len : 0;
        if (room == 0) {
            while (!(last = cl_tcp_chunk_for_bytes(c, CL_TCP_RECEIVE)))
                if (!next || !evict(c, true))
                    return done;
            if (range->last)
                range->last->next = last;
            else
                range->first = last;
            range->last = last;
            room = CL_CHUNK_ROOM;
        }
        uint32_t n = cl_min(room, len - done);
        memcpy(last->data + last->from + last->len, data + done, n);
        last->len = (uint16_t)(last->len + n);
        range->to += n;
        done += n;
    }
    return done;
}

/* Put bytes into the gap before range i, where they fit. *i: the range in which they are. Returns how many. */
static uint32_t put(struct cl_tcp_conn *c, unsigned *i, uint32_t seq, const uint8_t *data, uint32_t len)
{
    struct cl_tcp_reassembly *r = c->aside;
    bool next = seq == c->rcv_nxt;
    if (*i == 0 || r->ranges[*i - 1].to != seq) {
        if (r->n == CL_TCP_RANGES && !(next && evict(c, false)))
            return 0;
        memmove(&r->ranges[*i + 1], &r->ranges[*i], (r->n - *i) * sizeof r->ranges[0]);
        r->ranges[*i] = (struct cl_tcp_aside){.from = seq, .to = seq};
        r->n++;
    } else {
        (*i)--;
    }
    r->ranges[*i].order = ++r->order;
    uint32_t done = append(c, *i, data, len, next);
    if (r->ranges[*i].from == r->ranges[*i].to)
        remove_range(r, *i);
    return done;
}

/* Range i and the next one touch: make one of them. */
static void join(struct cl_tcp_conn *c, unsigned i)
{
    struct cl_tcp_reassembly *r = c->aside;
    struct cl_tcp_aside *a = &r->ranges[i], *b = a + 1;
    if (i + 1 >= r->n || a->to != b->from)
        return;
    struct cl_chunk *small = b->first;
    if (small->len <= CL_CHUNK_ROOM - (uint32_t)a->last->from - a->last->len) {
        memcpy(a->last->data + a->last->from + a->last->len, small->data + small->from, small->len);
        a->last->len = (uint16_t)(a->last->len + small->len);
        b->first = small->next;
        b->last = b->first ? b->last : a->last;
        small->next = NULL;
        cl_tcp_chunks_free(c, CL_TCP_RECEIVE, small);
    }
    a->last->next = b->first;
    a->last = b->last;
    a->to = b->to;
    a->order = (int32_t)(b->order - a->order) > 0 ? b->order : a->order;
    remove_range(r, i + 1);
}

uint32_t cl_tcp_aside_put(struct cl_tcp_conn *c, uint32_t seq, const uint8_t *data, uint32_t len)
{
    struct cl_tcp_range twice = {0};
    uint32_t has = 0;
    if (!make(c))
        return 0;
    struct cl_tcp_reassembly *r = c->aside;
    unsigned i = 0;
    while (has < len) {
        uint32_t at = seq + has;
        while (i < r->n && cl_seq_upto(r->ranges[i].to, at))
            i++;
        if (i < r->n && cl_seq_upto(r->ranges[i].from, at)) { /* the first to come is kept */
            uint32_t again = cl_min(len - has, r->ranges[i].to - at);
            r->ranges[i].order = ++r->order;
            if (twice.from == twice.to) /* the first of several (RFC 2883, section 4.2) */
                twice = (struct cl_tcp_range){at, at + again};
            has += again;
            continue;
        }
        uint32_t gap = i < r->n ? cl_min(len - has, r->ranges[i].from - at) : len - has;
        unsigned in = i;
        uint32_t done = put(c, &in, at, data + has, gap);
        has += done;
        if (done < gap)
            break;
        join(c, in);
        i = in; /* ranges behind it may have gone, or moved */
    }
    if (twice.from != twice.to)
        c->turn->twice = twice;
    unmake(c);
    return has;
}

void cl_tcp_aside_take(struct cl_tcp_conn *c)
{
    struct cl_tcp_reassembly *r = c->aside;
    if (!r || r->ranges[0].from != c->rcv_nxt)
        return;
    struct cl_chunk *chunk = r->ranges[0].first;
    c->rcv_nxt = r->ranges[0].to;
    remove_range(r, 0);
    while (chunk) {
        struct cl_chunk *after = chunk->next;
        cl_tcp_buffer_link(c, CL_TCP_RECEIVE, chunk);
        chunk = after;
    }
    unmake(c);
}

/* Keep the first len bytes of a range, which is longer. */
static void shorten(struct cl_tcp_conn *c, struct cl_tcp_aside *range, uint32_t len)
{
    struct cl_chunk *chunk = range->first;
    range->to = range->from + len;
    for (; chunk->len < len; chunk = chunk->next)
        len -= chunk->len;
    chunk->len = (uint16_t)len;
    if (chunk->next)
        cl_tcp_chunks_free(c, CL_TCP_RECEIVE, chunk->next);
    chunk->next = NULL;
    range->last = chunk;
}

void cl_tcp_aside_cut(struct cl_tcp_conn *c, uint32_t seq)
{
    struct cl_tcp_reassembly *r = c->aside;
    while (r && r->n && cl_seq_before(seq, r->ranges[r->n - 1].to)) {
        struct cl_tcp_aside *last = &r->ranges[r->n - 1];
        if (cl_seq_before(last->from, seq)) {
            shorten(c, last, seq - last->from);
        } else {
            cl_tcp_chunks_free(c, CL_TCP_RECEIVE, last->first);
            r->n--;
        }
    }
    unmake(c);
}

void cl_tcp_aside_free(struct cl_tcp_conn *c)
{
    if (!c->aside)
        return;
    for (unsigned i = 0; i < c->aside->n; i++)
        cl_tcp_chunks_free(c, CL_TCP_RECEIVE, c->aside->ranges[i].first);
    c->aside->n = 0;
    unmake(c);
}

unsigned cl_tcp_aside_sacks(const struct cl_tcp_conn *c, struct cl_tcp_range *out, unsigned room)
{
    const struct cl_tcp_reassembly *r = c->aside;
    uint64_t told = 0; /* bit i: range i */
    unsigned n = 0;
    _Static_assert(CL_TCP_RANGES <= 64, "bits of a word");
    for (; r && n < room && n < r->n; n++) {
        int best = -1;
        for (unsigned i = 0; i < r->n; i++)
            if (!(told >> i & 1) && (best < 0 || (int32_t)(r->ranges[i].order - r->ranges[best].order) > 0))
                best = (int)i;
        told |= 1ull << best;
        out[n] = (struct cl_tcp_range){r->ranges[best].from, r->ranges[best].to};
    }
    return n;
}

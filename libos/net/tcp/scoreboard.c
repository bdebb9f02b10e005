/* See scoreboard.h. */
#include "buffer.h"
#include "rack.h"
#include "scoreboard.h"

#include <string.h>

/* Walking. */

static struct cl_tcp_record *at(const struct cl_tcp_walk *w)
{
    return &w->board->records[w->at];
}

struct cl_tcp_record *cl_tcp_walk_first(struct cl_tcp_conn *c, struct cl_tcp_walk *w)
{
    *w = (struct cl_tcp_walk){c->board, c->board ? c->board->from : 0};
    if (w->board)
        return at(w);
    return c->one.len ? &c->one : NULL;
}

struct cl_tcp_record *cl_tcp_walk_skip(struct cl_tcp_walk *w)
{
    w->board = w->board ? w->board->next : NULL;
    if (!w->board)
        return NULL;
    w->at = w->board->from;
    return at(w);
}

struct cl_tcp_record *cl_tcp_walk_next(struct cl_tcp_walk *w)
{
    if (w->board && ++w->at < w->board->to)
        return at(w);
    return cl_tcp_walk_skip(w);
}

struct cl_tcp_record *cl_tcp_walk_to(struct cl_tcp_conn *c, struct cl_tcp_walk *w, uint32_t seq)
{
    if (!c->board)
        return cl_tcp_walk_first(c, w);
    struct cl_tcp_board *b = c->board;
    while (b->next && cl_seq_upto(cl_tcp_record_end(&b->records[b->to - 1]), seq))
        b = b->next;
    unsigned low = b->from, high = b->to - 1u; /* it is one of low..high */
    while (low < high) {
        unsigned middle = (low + high) / 2;
        if (cl_seq_upto(cl_tcp_record_end(&b->records[middle]), seq))
            low = middle + 1;
        else
            high = middle;
    }
    *w = (struct cl_tcp_walk){b, low};
    return at(w);
}

/* Chunks. */

static struct cl_tcp_board *new_board(struct cl_tcp_conn *c)
{
    struct cl_chunk *home = cl_tcp_chunk_get(c, CL_TCP_SEND);
    if (!home) {
        cl_count(&c->turn->counts->refused_records, 1);
        return NULL;
    }
    struct cl_tcp_board *b = (struct cl_tcp_board *)(void *)home->data;
    b->next = NULL;
    b->from = b->to = b->sacked_n = 0;
    return b;
}

static void free_board(struct cl_tcp_conn *c, struct cl_tcp_board *b)
{
    cl_tcp_chunks_free(c, CL_TCP_SEND, cl_container_of(b, struct cl_chunk, data));
}

void cl_tcp_board_free(struct cl_tcp_conn *c)
{
    c->one.len = 0;
    while (c->board) {
        struct cl_tcp_board *b = c->board;
        c->board = b->next;
        free_board(c, b);
    }
}

/* The first chunk has no records any more. */
static void drop_first(struct cl_tcp_conn *c)
{
    struct cl_tcp_board *b = c->board;
    c->board = b->next;
    if (c->board)
        c->board->all = b->all;
    free_board(c, b);
}

/* A scoreboard, and the record of the connection in it. */
static bool begin(struct cl_tcp_conn *c)
{
    struct cl_tcp_board *b = new_board(c);
    if (!b)
        return false;
    b->all = (struct cl_tcp_board_state){
        .last = b, .highest = c->one.seq, .dsack_round = c->una, .prr_flight = c->one.len}; /* a recovery may be on */
    b->records[b->to++] = c->one;
    if (c->one.flags & CL_TCP_RECORD_LOST) {
        b->all.lost = c->one.len;
        b->all.lost_from = c->one.seq;
    }
    c->one.len = 0;
    c->board = b;
    return true;
}

bool cl_tcp_board_room(struct cl_tcp_conn *c)
{
    if (!c->board)
        return c->one.len == 0 || begin(c);
    if (c->board->all.last->to < CL_TCP_BOARD_RECORDS)
        return true;
    struct cl_tcp_board *b = new_board(c);
    if (!b)
        return false;
    c->board->all.last->next = b;
    c->board->all.last = b;
    return true;
}

void cl_tcp_board_unused(struct cl_tcp_conn *c)
{
    if (!c->board || c->board->all.last->to > 0)
        return;
    struct cl_tcp_board *b = c->board;
    while (b->next != c->board->all.last)
        b = b->next;
    free_board(c, b->next);
    b->next = NULL;
    c->board->all.last = b;
}

void cl_tcp_board_add(struct cl_tcp_conn *c, uint32_t seq, uint32_t end)
{
    struct cl_tcp_record *r = &c->one;
    if (c->board) {
        struct cl_tcp_board *b = c->board->all.last;
        r = &b->records[b->to++];
    }
    *r = (struct cl_tcp_record){.sent_ns = c->turn->now_ns, .seq = seq, .len = (uint16_t)(end - seq)};
}

/* Marks. */

void cl_tcp_board_lose(struct cl_tcp_conn *c, struct cl_tcp_record *r)
{
    if (r->flags & (CL_TCP_RECORD_LOST | CL_TCP_RECORD_SACKED))
        return;
    r->flags |= CL_TCP_RECORD_LOST;
    if (!c->board)
        return;
    struct cl_tcp_board_state *all = &c->board->all;
    if (all->lost == 0 || cl_seq_before(r->seq, all->lost_from))
        all->lost_from = r->seq;
    all->lost += r->len;
}

void cl_tcp_board_find(struct cl_tcp_conn *c, struct cl_tcp_record *r)
{
    if ((r->flags & CL_TCP_RECORD_LOST) && c->board)
        c->board->all.lost -= r->len;
    r->flags &= (uint8_t)~CL_TCP_RECORD_LOST;
}

static void unsack(struct cl_tcp_conn *c, struct cl_tcp_board *b, struct cl_tcp_record *r)
{
    if (!(r->flags & CL_TCP_RECORD_SACKED))
        return;
    r->flags &= (uint8_t)~CL_TCP_RECORD_SACKED;
    c->board->all.sacked -= r->len;
    c->board->all.sacked_n--;
    b->sacked_n--;
}

void cl_tcp_board_reneged(struct cl_tcp_conn *c)
{
    struct cl_tcp_walk w;
    for (struct cl_tcp_record *r = cl_tcp_walk_first(c, &w); r; r = cl_tcp_walk_next(&w))
        if (w.board)
            unsack(c, w.board, r);
}

/* What comes. */

/* A record has come, which was not known. */
static void deliver(struct cl_tcp_conn *c, const struct cl_tcp_record *r, const struct cl_tcp_segment *s,
                    struct cl_tcp_told *told)
{
    told->delivered += r->len;
    if (!(r->flags & CL_TCP_RECORD_AGAIN)) {
        told->latest_ns = cl_max(told->latest_ns, r->sent_ns);
        if (cl_seq_upto(cl_tcp_record_end(r), c->recover_seq))
            told->original = true;
    }
    if (c->board)
        cl_tcp_rack_came(c, r, s);
}

/* The first n bytes of a record are acknowledged. */
static void take_front(struct cl_tcp_conn *c, struct cl_tcp_record *r, uint32_t n)
{
    if (c->board && (r->flags & CL_TCP_RECORD_LOST))
        c->board->all.lost -= n;
    if (c->board && (r->flags & CL_TCP_RECORD_SACKED))
        c->board->all.sacked -= n;
    r->seq += n;
    r->len = (uint16_t)(r->len - n);
}

/* It is acknowledged, as a whole. */
static void acknowledge(struct cl_tcp_conn *c, struct cl_tcp_board *b, struct cl_tcp_record *r,
                        const struct cl_tcp_segment *s, struct cl_tcp_told *told)
{
    if (r->flags & CL_TCP_RECORD_AGAIN)
        told->again = true;
    if (r->flags & CL_TCP_RECORD_SACKED) {
        unsack(c, b, r);
        return;
    }
    deliver(c, r, s, told);
    if (!(r->flags & CL_TCP_RECORD_AGAIN) && (told->oldest_ns == 0 || r->sent_ns < told->oldest_ns))
        told->oldest_ns = r->sent_ns;
    cl_tcp_board_find(c, r);
}

static void take_una(struct cl_tcp_conn *c, const struct cl_tcp_segment *s, struct cl_tcp_told *told)
{
    struct cl_tcp_walk w;
    struct cl_tcp_record *r;
    while ((r = cl_tcp_walk_first(c, &w)) && cl_seq_upto(cl_tcp_record_end(r), c->una)) {
        acknowledge(c, w.board, r, s, told);
        if (!w.board)
            r->len = 0;
        else if (++w.board->from == w.board->to)
            drop_first(c);
    }
    if (r && cl_seq_before(r->seq, c->una)) {
        if (!(r->flags & CL_TCP_RECORD_SACKED))
            told->delivered += c->una - r->seq;
        take_front(c, r, c->una - r->seq);
    }
}

/* One block. What it covers of a record in part is not told by it. */
static void take_block(struct cl_tcp_conn *c, const struct cl_tcp_range *block, const struct cl_tcp_segment *s,
                       struct cl_tcp_told *told)
{
    struct cl_tcp_walk w;
    if (!cl_seq_before(c->una, block->from) || !cl_seq_before(block->from, block->to) ||
        cl_seq_before(c->nxt, block->to))
        return; /* old, twice (RFC 2883), or never sent */
    struct cl_tcp_record *r = cl_tcp_walk_to(c, &w, block->from);
    if (r->seq != block->from)
        r = cl_tcp_walk_next(&w);
    while (r && cl_seq_upto(cl_tcp_record_end(r), block->to)) {
        struct cl_tcp_board *b = w.board;
        if (w.at == b->from && b->sacked_n == b->to - b->from) {
            r = cl_tcp_walk_skip(&w);
            continue;
        }
        if (!(r->flags & CL_TCP_RECORD_SACKED)) {
            deliver(c, r, s, told);
            cl_tcp_board_find(c, r);
            r->flags |= CL_TCP_RECORD_SACKED;
            c->board->all.sacked += r->len;
            c->board->all.sacked_n++;
            b->sacked_n++;
            told->sacked = true;
        }
        r = cl_tcp_walk_next(&w);
    }
}

/* RFC 2883, section 4: the first block lies below the acknowledgement, or in the second one. */
static void take_duplicate(const struct cl_tcp_conn *c, const struct cl_tcp_segment *s, struct cl_tcp_told *told)
{
    const struct cl_tcp_range *first = s->options.sack, *second = first + 1;
    bool inside = s->options.n_sack > 1 && cl_seq_upto(second->from, first->from) && cl_seq_upto(first->to, second->to);
    if (!cl_seq_before(first->from, first->to) || cl_seq_before(c->nxt, first->to))
        return;
    told->duplicate = cl_seq_upto(first->to, s->ack) || inside;
    told->twice = *first;
}

void cl_tcp_board_take(struct cl_tcp_conn *c, const struct cl_tcp_segment *s, struct cl_tcp_told *told)
{
    *told = (struct cl_tcp_told){0};
    take_una(c, s, told);
    if (!(c->flags & CL_TCP_SACKS) || s->options.n_sack == 0)
        return;
    take_duplicate(c, s, told);
    for (unsigned i = 0; i < s->options.n_sack && c->board; i++)
        take_block(c, &s->options.sack[i], s, told);
}

/* What leaves again. */

/* Its records begin at its first place. */
static void move_down(struct cl_tcp_board *b, unsigned *i)
{
    memmove(b->records, b->records + b->from, (b->to - b->from) * sizeof b->records[0]);
    *i -= b->from;
    b->to = (uint16_t)(b->to - b->from);
    b->from = 0;
}

/* Half of its records, the later ones, go to a new chunk behind it. */
static bool split(struct cl_tcp_conn *c, struct cl_tcp_board **in, unsigned *i)
{
    struct cl_tcp_board *b = *in, *half = new_board(c);
    unsigned keep = CL_TCP_BOARD_RECORDS / 2;
    if (!half)
        return false;
    half->to = (uint16_t)(b->to - keep);
    memcpy(half->records, b->records + keep, half->to * sizeof half->records[0]);
    for (unsigned k = 0; k < half->to; k++)
        half->sacked_n = (uint16_t)(half->sacked_n + !!(half->records[k].flags & CL_TCP_RECORD_SACKED));
    b->to = (uint16_t)keep;
    b->sacked_n = (uint16_t)(b->sacked_n - half->sacked_n);
    half->next = b->next;
    b->next = half;
    if (c->board->all.last == b)
        c->board->all.last = half;
    if (*i >= keep) {
        *in = half;
        *i -= keep;
    }
    return true;
}

/* Room for one record more behind record i of b, which stays where it is, or where *b and *i say then. */
static bool make_gap(struct cl_tcp_conn *c, struct cl_tcp_board **in, unsigned *i)
{
    if ((*in)->to == CL_TCP_BOARD_RECORDS && (*in)->from)
        move_down(*in, i);
    else if ((*in)->to == CL_TCP_BOARD_RECORDS && !split(c, in, i))
        return false;
    struct cl_tcp_board *b = *in;
    memmove(&b->records[*i + 2], &b->records[*i + 1], (b->to - *i - 1) * sizeof b->records[0]);
    b->to++;
    return true;
}

/* Cut a record after n bytes. Returns the first part; without memory the whole. */
static struct cl_tcp_record *cut(struct cl_tcp_conn *c, struct cl_tcp_walk *w, uint32_t n)
{
    if (!w->board) {
        if (!begin(c))
            return &c->one;
        *w = (struct cl_tcp_walk){c->board, c->board->from};
    }
    if (make_gap(c, &w->board, &w->at)) {
        struct cl_tcp_record *r = at(w);
        r[1] = r[0];
        r[0].len = (uint16_t)n;
        r[1].seq += n;
        r[1].len = (uint16_t)(r[1].len - n);
    }
    return at(w);
}

/* Remove the record behind b's i-th. */
static void remove_behind(struct cl_tcp_conn *c, struct cl_tcp_board *b, unsigned i)
{
    struct cl_tcp_board *n = b->next;
    if (i + 1u < b->to) {
        b->to--;
        memmove(&b->records[i + 1], &b->records[i + 2], (b->to - i - 1u) * sizeof b->records[0]);
    } else if (++n->from == n->to) {
        b->next = n->next;
        if (c->board->all.last == n)
            c->board->all.last = b;
        free_board(c, n);
    }
}

void cl_tcp_board_again(struct cl_tcp_conn *c, uint32_t seq, uint32_t end)
{
    struct cl_tcp_walk w;
    struct cl_tcp_record *r = cl_tcp_walk_to(c, &w, seq);
    if (cl_seq_before(end, cl_tcp_record_end(r)))
        r = cut(c, &w, end - seq);
    while (cl_seq_before(cl_tcp_record_end(r), end)) { /* several left as one */
        struct cl_tcp_walk behind = w;
        struct cl_tcp_record *next = cl_tcp_walk_next(&behind);
        uint32_t n = cl_min((uint32_t)next->len, end - cl_tcp_record_end(r));
        r->len = (uint16_t)(r->len + n);
        next->seq += n;
        next->len = (uint16_t)(next->len - n);
        if (next->len == 0)
            remove_behind(c, w.board, w.at);
    }
    cl_tcp_board_find(c, r);
    r->flags |= CL_TCP_RECORD_AGAIN;
    r->sent_ns = c->turn->now_ns;
    if (c->board)
        c->board->all.lost_from = end;
}

/* What holds. */

const char *cl_tcp_board_invariant(const struct cl_tcp_conn *c)
{
    uint32_t end = c->una, sacked = 0, lost = 0, sacked_n = 0, lost_from = c->nxt;
    const struct cl_tcp_board *b = c->board, *last = NULL;
    if (!b)
        return c->nxt - c->una != c->one.len ? "the record is not what is under way" : NULL;
    if (c->one.len)
        return "a record beside the scoreboard";
    for (; b; last = b, b = b->next) {
        unsigned of_board = 0;
        if (b->from >= b->to || b->to > CL_TCP_BOARD_RECORDS)
            return "a chunk without records";
        for (unsigned i = b->from; i < b->to; i++) {
            const struct cl_tcp_record *r = &b->records[i];
            bool is_lost = r->flags & CL_TCP_RECORD_LOST, is_sacked = r->flags & CL_TCP_RECORD_SACKED;
            if (r->seq != end || r->len == 0)
                return "records with a gap between";
            if (is_lost && is_sacked)
                return "a record that is lost and has come";
            end += r->len;
            sacked += is_sacked ? r->len : 0;
            of_board += is_sacked;
            if (is_lost && lost == 0)
                lost_from = r->seq;
            lost += is_lost ? r->len : 0;
        }
        if (of_board != b->sacked_n)
            return "a chunk counts wrong what has come";
        sacked_n += of_board;
    }
    const struct cl_tcp_board_state *all = &c->board->all;
    if (end != c->nxt || last != all->last)
        return "records are not what is under way";
    if (all->prr_flight == 0)
        return "a recovery would be in proportion to nothing";
    if (sacked != all->sacked || sacked_n != all->sacked_n || lost != all->lost)
        return "the scoreboard counts wrong";
    return lost && cl_seq_before(lost_from, all->lost_from) ? "something is lost before what is to be sent" : NULL;
}

/* See loans.h. */
#include "loans.h"
#include "machine.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct cl_tcp_loans *make(struct cl_tcp_conn *c)
{
    struct cl_tcp_loans *l = cl_tcp_loans(c);
    if (l)
        return l;
    struct cl_chunk *home = cl_tcp_chunk_get(c, CL_TCP_RECEIVE);
    if (!home)
        return NULL;
    c->loans = cl_chunk_number(c->turn->stack->chunks, home) + 1;
    l = cl_tcp_loans(c);
    *l = (struct cl_tcp_loans){.refs = 1, .conn = c};
    return l;
}

static struct cl_chunk *home_of(struct cl_tcp_loans *l)
{
    return (struct cl_chunk *)((uint8_t *)l - offsetof(struct cl_chunk, data));
}

void cl_tcp_loans_leave(struct cl_tcp_conn *c)
{
    struct cl_tcp_loans *l = cl_tcp_loans(c);
    if (!l)
        return;
    cl_spin_lock(&l->lock);
    l->conn = NULL;
    bool last = --l->refs == 0;
    cl_spin_unlock(&l->lock);
    c->loans = 0;
    if (last)
        cl_tcp_chunks_free(c, CL_TCP_RECEIVE, home_of(l));
}

/* Leases. */

/* What one counts. */
static uint32_t charge_of(const struct cl_chunk *chunk)
{
    return cl_max((uint32_t)chunk->len, (uint32_t)CL_CHUNK_BYTES);
}

/* A chunk that stands for the frame of now. NULL: there is none. */
static struct cl_chunk *keep(struct cl_tcp_conn *c, const uint8_t *data, uint32_t len)
{
    struct cl_tcp_turn *turn = c->turn;
    if (!turn->keep || len < CL_TCP_KEEP_LEAST)
        return NULL;
    struct cl_chunk *chunk = cl_tcp_chunk_for_bytes(c, CL_TCP_RECEIVE);
    if (!chunk)
        return NULL;
    if (!turn->keep(turn, chunk)) {
        cl_tcp_chunks_free(c, CL_TCP_RECEIVE, chunk);
        cl_count(&turn->counts->frames_refused, 1);
        return NULL;
    }
    chunk->bytes = data;
    chunk->len = (uint16_t)len;
    cl_count(&turn->counts->frames_kept, 1);
    return chunk;
}

bool cl_tcp_put_frame(struct cl_tcp_conn *c, const uint8_t *data, uint32_t len)
{
    struct cl_chunk *chunk = keep(c, data, len);
    if (chunk)
        cl_tcp_buffer_put(c, CL_TCP_RECEIVE, chunk);
    return chunk != NULL;
}

/* What the user is being offered, and lies in a frame. NULL: there is no memory for it in one piece. */
static struct cl_chunk *take_offered(struct cl_tcp_conn *c)
{
    const struct cl_tcp_turn *turn = c->turn;
    uint32_t len = turn->offered_len;
    struct cl_chunk *chunk = keep(c, turn->offered, len);
    if (chunk || len > CL_CHUNK_ROOM || !(chunk = cl_tcp_chunk_for_bytes(c, CL_TCP_RECEIVE)))
        return chunk;
    memcpy(chunk->data, turn->offered, len);
    chunk->len = (uint16_t)len;
    return chunk;
}

int cl_tcp_lease(struct cl_tcp_conn *c, struct cl_lease *out)
{
    bool offering = c->flags & CL_TCP_OFFERING;
    if (offering && c->turn->leased)
        return -EALREADY;
    if (!offering && c->receive.bytes == 0)
        return -EAGAIN;
    struct cl_tcp_loans *l = make(c);
    if (!l || cl_load_relaxed(&l->leased) >= c->receive.limit) /* relaxed: only we add to it */
        return -ENOBUFS;
    struct cl_chunk *chunk = c->receive.bytes ? cl_tcp_buffer_take(c) : take_offered(c);
    if (!chunk)
        return -ENOBUFS;
    c->turn->leased = offering;
    cl_spin_lock(&l->lock);
    l->refs++;
    cl_store_relaxed(&l->leased, l->leased + charge_of(chunk));
    cl_spin_unlock(&l->lock);
    cl_count(&c->turn->counts->leased, 1);
    *out = (struct cl_lease){.data = chunk->bytes + chunk->from, .len = chunk->len, .chunk = chunk, .home = l};
    return 0;
}

void cl_tcp_keep_frames(struct cl_tcp_conn *c, bool on)
{
    c->flags = on ? c->flags | CL_TCP_KEEP_FRAMES : c->flags & ~(uint32_t)CL_TCP_KEEP_FRAMES;
}

void cl_tcp_lease_end(struct cl_tcp_stack *stack, unsigned kthread, struct cl_tcp_counts *counts,
                      struct cl_lease *lease, void (*hold)(struct cl_tcp_conn *c, void *arg), void *arg)
{
    struct cl_chunk *chunk = lease->chunk;
    struct cl_tcp_loans *l = lease->home;
    uint32_t charge = charge_of(chunk);
    *lease = (struct cl_lease){0};
    cl_chunks_free(stack->chunks, kthread, CL_CHUNKS_TCP_RECEIVE, chunk);
    cl_count(&counts->unleased, 1);
    cl_spin_lock(&l->lock);
    cl_store_relaxed(&l->leased, l->leased - charge);
    bool last = --l->refs == 0;
    if (l->conn)
        hold(l->conn, arg);
    cl_spin_unlock(&l->lock);
    if (last)
        cl_chunks_free(stack->chunks, kthread, CL_CHUNKS_TCP_RECEIVE, home_of(l));
}

/* Regions. */

struct cl_region {
    const uint8_t *base;
    int64_t bytes;
    int64_t lent; /* added to and taken from by kthreads */
};

/* In the chunk that stands for a piece of one. */
struct piece {
    struct cl_chunk_owner owner; /* first */
    struct cl_region *region;
    int64_t bytes;
};

int cl_region_new(const void *base, int64_t bytes, struct cl_region **out)
{
    if (!base || bytes <= 0)
        return -EINVAL;
    struct cl_region *region = calloc(1, sizeof *region);
    if (!region)
        return -ENOMEM;
    *region = (struct cl_region){.base = base, .bytes = bytes};
    *out = region;
    return 0;
}

int cl_region_delete(struct cl_region *region)
{
    if (region && cl_region_lent(region))
        return -EBUSY;
    free(region);
    return 0;
}

bool cl_region_has(const struct cl_region *region, int64_t offset, int64_t len)
{
    return offset >= 0 && len >= 0 && offset <= region->bytes && len <= region->bytes - offset;
}

/* Acquire: who sees that nothing is lent writes to it after all that read it. */
int64_t cl_region_lent(const struct cl_region *region)
{
    return cl_load_acquire(&region->lent);
}

static void piece_done(struct cl_chunk_owner *owner, unsigned kthread)
{
    const struct piece *p = (const struct piece *)owner;
    (void)kthread;
    __atomic_fetch_sub(&p->region->lent, p->bytes, __ATOMIC_RELEASE); /* what was read of it comes first */
}

/* The piece at the end of `send` goes on where the next begins, and has room: how many bytes more it takes. */
static uint32_t stretch(struct cl_tcp_conn *c, struct cl_region *region, const uint8_t *from, uint32_t len)
{
    struct cl_chunk *last = c->send.last;
    if (!last || !cl_chunk_is_foreign(last))
        return 0;
    struct piece *p = (struct piece *)cl_chunk_owner(last);
    uint32_t used = (uint32_t)last->from + last->len;
    if (p->region != region || last->bytes + used != from)
        return 0;
    uint32_t n = cl_min(len, CL_TCP_PIECE_MOST - used);
    last->len = (uint16_t)(last->len + n);
    p->bytes += n;
    c->send.bytes += n;
    return n;
}

static uint32_t put_piece(struct cl_tcp_conn *c, struct cl_region *region, const uint8_t *from, uint32_t len)
{
    struct cl_chunk *chunk = cl_tcp_chunk_for_bytes(c, CL_TCP_SEND);
    if (!chunk)
        return 0;
    uint32_t n = cl_min(len, (uint32_t)CL_TCP_PIECE_MOST);
    *(struct piece *)cl_chunk_owner(chunk) = (struct piece){{piece_done}, region, n};
    chunk->bytes = from;
    chunk->len = (uint16_t)n;
    chunk->seq = cl_tcp_data_end(c);
    cl_tcp_buffer_put(c, CL_TCP_SEND, chunk);
    return n;
}

int64_t cl_tcp_write_from(struct cl_tcp_conn *c, struct cl_region *region, int64_t offset, int64_t len)
{
    uint32_t done = 0;
    if (!cl_region_has(region, offset, len))
        return -EINVAL;
    int64_t room = cl_tcp_write_room(c, len);
    if (room < 0)
        return room;
    while (done < room && make(c)) {
        const uint8_t *from = region->base + offset + done;
        uint32_t left = (uint32_t)room - done, n = stretch(c, region, from, left);
        if (n == 0 && (n = put_piece(c, region, from, left)) == 0)
            break;
        done += n;
    }
    __atomic_fetch_add(&region->lent, done, __ATOMIC_RELAXED); /* none of it is released before this turn goes on */
    cl_count(&c->turn->counts->bytes_lent, done);
    cl_tcp_wrote(c, len, room, done);
    return done;
}

void cl_tcp_released(struct cl_tcp_conn *c, uint32_t bytes)
{
    cl_tcp_loans(c)->released += bytes;
    c->events |= CL_TCP_EVENT_RELEASED;
}

int64_t cl_tcp_take_released(struct cl_tcp_conn *c)
{
    struct cl_tcp_loans *l = cl_tcp_loans(c);
    int64_t bytes = l->released;
    l->released = 0;
    return bytes;
}

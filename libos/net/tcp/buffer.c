/* See buffer.h. */
#include "loans.h"
#include "reassembly.h"

#include <string.h>

static unsigned holder_of(unsigned which)
{
    return which == CL_TCP_SEND ? CL_CHUNKS_TCP_SEND : CL_CHUNKS_TCP_RECEIVE;
}

/* The caller's cache of chunks. */
static unsigned cache_of(struct cl_tcp_conn *c)
{
    if (c->turn->here)
        c->turn->here(c->turn);
    return c->turn->kthread;
}

struct cl_chunk *cl_tcp_chunk_get(struct cl_tcp_conn *c, unsigned which)
{
    struct cl_tcp_stack *stack = c->turn->stack;
    struct cl_chunk *chunk = cl_chunks_get(stack->chunks, cache_of(c), holder_of(which));
    if (cl_unlikely(!chunk)) /* relaxed: a hint, for windows */
        cl_store_relaxed(&stack->pressure_until_ns, c->turn->now_ns + CL_TCP_PRESSURE_NS);
    return chunk;
}

static uint64_t held_bytes(const struct cl_tcp_conn *c)
{
    uint64_t held = (uint64_t)c->send.bytes + c->receive.bytes + cl_tcp_leased(c);
    for (unsigned i = 0; c->aside && i < c->aside->n; i++)
        held += CL_CHUNK_BYTES + (c->aside->ranges[i].to - c->aside->ranges[i].from);
    return held;
}

bool cl_tcp_has_its_share(const struct cl_tcp_conn *c)
{
    uint64_t held = held_bytes(c), bound, left;
    if (held <= CL_CHUNK_ROOM)
        return false;
    left = cl_chunks_left(c->turn->stack->chunks, &bound);
    return left <= bound / 2 || held > (left - bound / 2) * CL_TCP_SHARE;
}

struct cl_chunk *cl_tcp_chunk_for_bytes(struct cl_tcp_conn *c, unsigned which)
{
    return cl_unlikely(cl_tcp_has_its_share(c)) ? NULL : cl_tcp_chunk_get(c, which);
}

void cl_tcp_chunks_free(struct cl_tcp_conn *c, unsigned which, struct cl_chunk *chain)
{
    for (struct cl_chunk *chunk = which == CL_TCP_SEND && c->loans ? chain : NULL; chunk; chunk = chunk->next)
        if (cl_chunk_is_foreign(chunk))
            cl_tcp_released(c, (uint32_t)chunk->from + chunk->len);
    if (chain)
        cl_chunks_free(c->turn->stack->chunks, cache_of(c), holder_of(which), chain);
}

static void fill(struct cl_chunk *chunk, const uint8_t *data, uint32_t n)
{
    memcpy(chunk->data + chunk->from + chunk->len, data, n);
    chunk->len = (uint16_t)(chunk->len + n);
}

static void put_last(struct cl_tcp_buffer *b, struct cl_chunk *chunk)
{
    chunk->next = NULL;
    if (b->last)
        b->last->next = chunk;
    else
        b->first = chunk;
    b->last = chunk;
}

uint32_t cl_tcp_buffer_append(struct cl_tcp_conn *c, unsigned which, uint32_t seq, const uint8_t *data, uint32_t len)
{
    struct cl_tcp_buffer *b = cl_tcp_buffer(c, which);
    uint32_t done = 0;
    if (b->bytes == 0 && b->last) /* cl_tcp_buffer_acked */
        b->last->seq = seq;
    while (done < len) {
        if (cl_tcp_room_behind(b->last) == 0) {
            struct cl_chunk *chunk = cl_tcp_chunk_for_bytes(c, which);
            if (!chunk)
                break;
            chunk->seq = seq + done;
            put_last(b, chunk);
        }
        uint32_t n = cl_min(len - done, cl_tcp_room_behind(b->last));
        fill(b->last, data + done, n);
        done += n;
    }
    b->bytes += done;
    return done;
}

void cl_tcp_buffer_put(struct cl_tcp_conn *c, unsigned which, struct cl_chunk *chunk)
{
    struct cl_tcp_buffer *b = cl_tcp_buffer(c, which);
    if (which == CL_TCP_SEND)
        cl_tcp_buffer_tidy(c);
    b->bytes += chunk->len;
    put_last(b, chunk);
}

struct cl_chunk *cl_tcp_buffer_take(struct cl_tcp_conn *c)
{
    struct cl_tcp_buffer *b = &c->receive;
    struct cl_chunk *chunk = b->first;
    b->first = chunk->next;
    if (!b->first)
        b->last = NULL;
    b->bytes -= chunk->len;
    chunk->next = NULL;
    return chunk;
}

void cl_tcp_buffer_link(struct cl_tcp_conn *c, unsigned which, struct cl_chunk *chunk)
{
    struct cl_tcp_buffer *b = cl_tcp_buffer(c, which);
    if (which == CL_TCP_SEND)
        cl_tcp_buffer_tidy(c);
    b->bytes += chunk->len;
    if (chunk->len <= cl_tcp_room_behind(b->last)) {
        fill(b->last, chunk->bytes + chunk->from, chunk->len);
        chunk->next = NULL;
        cl_tcp_chunks_free(c, which, chunk);
    } else {
        put_last(b, chunk);
    }
}

void cl_tcp_buffer_drop(struct cl_tcp_conn *c, unsigned which, uint32_t n)
{
    struct cl_tcp_buffer *b = cl_tcp_buffer(c, which);
    b->bytes -= n;
    while (b->first && (n || b->bytes == 0)) {
        struct cl_chunk *chunk = b->first;
        if (n < chunk->len) {
            chunk->from = (uint16_t)(chunk->from + n);
            chunk->len = (uint16_t)(chunk->len - n);
            return;
        }
        n -= chunk->len;
        b->first = chunk->next;
        chunk->next = NULL;
        if (chunk == c->send_at)
            c->send_at = NULL;
        cl_tcp_chunks_free(c, which, chunk);
    }
    if (!b->first)
        b->last = NULL;
}

struct cl_tcp_bytes cl_tcp_buffer_at(struct cl_tcp_conn *c, uint32_t seq, uint32_t len)
{
    struct cl_chunk *chunk = c->send_at && cl_seq_upto(c->send_at->seq, seq) ? c->send_at : c->send.first;
    if (len == 0)
        return (struct cl_tcp_bytes){0};
    while (seq - chunk->seq >= (uint32_t)chunk->from + chunk->len)
        chunk = chunk->next;
    c->send_at = chunk;
    return (struct cl_tcp_bytes){chunk, seq - chunk->seq, len};
}

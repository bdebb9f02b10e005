/* Bytes of a connection in order: a chain of chunks, as long as there are bytes, of the holder CL_CHUNKS_TCP_SEND or
 * _RECEIVE, some of which may stand for frames or regions (loans.h). `seq` of a chunk in `send` is the number of its
 * data[0], so that a byte is found by its number. */
#ifndef CORELANE_LIBOS_NET_TCP_BUFFER_H
#define CORELANE_LIBOS_NET_TCP_BUFFER_H

#include "conn.h"

/* Which buffer is meant: CL_TCP_SEND or CL_TCP_RECEIVE. */
static inline struct cl_tcp_buffer *cl_tcp_buffer(struct cl_tcp_conn *c, unsigned which)
{
    return which == CL_TCP_SEND ? &c->send : &c->receive;
}

/* Whether it has as much of the pool as one connection may: more than a chunk, and more than CL_TCP_SHARE times what
 * is left of the pool's first half. So one alone may have four fifths of that half. The other half is for those that
 * hold next to nothing: whoever reads nothing cannot keep them from being served, unless there are as many of him as
 * half of the pool has chunks. A share of what is left, not a fixed one: few may have much (Choudhury and Hahne,
 * "Dynamic queue length thresholds for shared-memory packet switches", IEEE/ACM Transactions on Networking 6(2),
 * 1998). */
bool cl_tcp_has_its_share(const struct cl_tcp_conn *c);
/* A chunk for it, or NULL: the pool is used up, and the connection is told so. */
struct cl_chunk *cl_tcp_chunk_get(struct cl_tcp_conn *c, unsigned which);
/* The same for bytes of it; NULL also where it has its share. */
struct cl_chunk *cl_tcp_chunk_for_bytes(struct cl_tcp_conn *c, unsigned which);
void cl_tcp_chunks_free(struct cl_tcp_conn *c, unsigned which, struct cl_chunk *chain);

/* Bytes that fit behind those of a chunk; of NULL none. */
static inline uint32_t cl_tcp_room_behind(const struct cl_chunk *chunk)
{
    return chunk && !cl_chunk_is_foreign(chunk) ? CL_CHUNK_ROOM - (uint32_t)chunk->from - chunk->len : 0;
}

/* Append up to len bytes, the first of which is number seq. Returns how many there was memory for. */
uint32_t cl_tcp_buffer_append(struct cl_tcp_conn *c, unsigned which, uint32_t seq, const uint8_t *data, uint32_t len);
/* Append a chunk as it is. Takes it. */
void cl_tcp_buffer_put(struct cl_tcp_conn *c, unsigned which, struct cl_chunk *chunk);
/* Take the first chunk out of `receive`, which has one. */
struct cl_chunk *cl_tcp_buffer_take(struct cl_tcp_conn *c);
/* Append a whole chunk, or its bytes where they fit behind the last. Takes it. */
void cl_tcp_buffer_link(struct cl_tcp_conn *c, unsigned which, struct cl_chunk *chunk);
/* The first n bytes are no longer needed. */
void cl_tcp_buffer_drop(struct cl_tcp_conn *c, unsigned which, uint32_t n);
/* The first n bytes of `send`, which it has, are acknowledged. If that is all, who has asked writes the next answer in
 * the same turn, as a rule: a last chunk of its own stays in the buffer for that, empty, to the end of the turn
 * (cl_tcp_buffer_tidy). */
static inline void cl_tcp_buffer_acked(struct cl_tcp_conn *c, uint32_t n)
{
    struct cl_chunk *chunk = c->send.last;
    if (cl_likely(n == c->send.bytes && chunk == c->send.first && !cl_chunk_is_foreign(chunk))) {
        c->send.bytes = 0;
        chunk->from = chunk->len = 0;
    } else {
        cl_tcp_buffer_drop(c, CL_TCP_SEND, n);
    }
}
static inline void cl_tcp_buffer_tidy(struct cl_tcp_conn *c)
{
    if (c->send.bytes == 0 && c->send.first)
        cl_tcp_buffer_drop(c, CL_TCP_SEND, 0);
}
/* Take the chunk that stayed. NULL: there is none. */
static inline struct cl_chunk *cl_tcp_buffer_spare(struct cl_tcp_conn *c)
{
    struct cl_chunk *chunk = c->send.bytes == 0 ? c->send.first : NULL;
    if (chunk)
        c->send.first = c->send.last = c->send_at = NULL;
    return chunk;
}
/* Where `len` bytes from number seq on lie in `send`, which has them. */
struct cl_tcp_bytes cl_tcp_buffer_at(struct cl_tcp_conn *c, uint32_t seq, uint32_t len);

#endif

/* Byte strings in counted memory. */
#ifndef CORELANE_APPS_RESP_BYTES_H
#define CORELANE_APPS_RESP_BYTES_H

#include "resp.h"

#define CL_BYTES_NEAR 4096 /* so long a string may become without asking for memory: each command has asked for that */

static inline struct cl_slice cl_bytes_slice(const struct cl_bytes *b)
{
    return (struct cl_slice){b->data, b->len};
}

static inline struct cl_bytes *cl_bytes_room(struct cl_rmem *m, uint32_t room)
{
    uint64_t whole = cl_rmem_round(sizeof(struct cl_bytes) + room);
    struct cl_bytes *b = cl_rmem_new(m, whole);
    b->len = 0;
    b->room = (uint32_t)(whole - sizeof *b);
    return b;
}

static inline struct cl_bytes *cl_bytes_new(struct cl_rmem *m, struct cl_slice s)
{
    struct cl_bytes *b = cl_bytes_room(m, s.len);
    if (s.len) /* else there may be no p */
        memcpy(b->data, s.p, s.len);
    b->len = s.len;
    return b;
}

static inline void cl_bytes_free(struct cl_rmem *m, struct cl_bytes *b)
{
    if (b)
        cl_rmem_free(m, b, sizeof *b + b->room);
}

/* Room for `len` bytes; with some to spare if it has to grow. b NULL is allowed. */
static inline struct cl_bytes *cl_bytes_reserve(struct cl_rmem *m, struct cl_bytes *b, uint64_t len)
{
    if (!b)
        return cl_bytes_room(m, (uint32_t)len);
    if (len <= b->room)
        return b;
    uint64_t want = len + cl_min(len / 4, (uint64_t)1 << 20), whole = cl_rmem_round(sizeof *b + want);
    b = cl_rmem_resize(m, b, sizeof *b + b->room, whole);
    b->room = (uint32_t)(whole - sizeof *b);
    return b;
}

static inline struct cl_bytes *cl_bytes_append(struct cl_rmem *m, struct cl_bytes *b, const void *p, uint64_t n)
{
    b = cl_bytes_reserve(m, b, (b ? b->len : 0) + n);
    memcpy(b->data + b->len, p, n);
    b->len += (uint32_t)n;
    return b;
}

#endif

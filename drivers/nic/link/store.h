/* The frames of a path: copies in slots of one size, and lists of slots. Memory is reserved once, and touched as it
 * fills. */
#ifndef CORELANE_DRIVERS_NIC_LINK_STORE_H
#define CORELANE_DRIVERS_NIC_LINK_STORE_H

#include <corelane/runtime/base.h>

#define CL_LINK_NONE UINT32_MAX

struct cl_link_slot {
    uint64_t at;     /* stamp: when it came; once it has left the queue: when it is to be delivered */
    uint32_t next;   /* in its list */
    uint32_t passed; /* held back: it goes on when the flight has counted so many, modulo 2^32 */
    uint32_t hash;   /* the NIC's of the frame */
    uint16_t len;
    uint8_t queue; /* of the NIC */
    uint8_t priority;
};

struct cl_link_list {
    uint32_t first, last;
};

struct cl_link_store {
    struct cl_link_slot *slots;
    uint8_t *bytes;
    uint32_t n, stride;
    uint32_t used;            /* slots that were ever taken */
    struct cl_link_list free; /* of these; the last freed is the first taken, since it is warm */
};

/* n slots of up to `bytes` each. 0 or -ENOMEM. */
int cl_link_store_new(struct cl_link_store *s, uint32_t n, uint32_t bytes);
void cl_link_store_delete(struct cl_link_store *s);

static inline void cl_link_list_init(struct cl_link_list *l)
{
    l->first = l->last = CL_LINK_NONE;
}

static inline void cl_link_push(struct cl_link_store *s, struct cl_link_list *l, uint32_t i)
{
    s->slots[i].next = CL_LINK_NONE;
    if (l->first == CL_LINK_NONE)
        l->first = i;
    else
        s->slots[l->last].next = i;
    l->last = i;
}

/* The list holds one at least. */
static inline uint32_t cl_link_pop(struct cl_link_store *s, struct cl_link_list *l)
{
    uint32_t i = l->first;
    l->first = s->slots[i].next;
    return i;
}

static inline uint8_t *cl_link_bytes(const struct cl_link_store *s, uint32_t i)
{
    return s->bytes + (size_t)i * s->stride;
}

/* A slot for a frame; CL_LINK_NONE: all are taken. */
static inline uint32_t cl_link_get(struct cl_link_store *s)
{
    if (s->free.first != CL_LINK_NONE)
        return cl_link_pop(s, &s->free);
    return s->used < s->n ? s->used++ : CL_LINK_NONE;
}

static inline void cl_link_put(struct cl_link_store *s, uint32_t i)
{
    s->slots[i].next = s->free.first;
    s->free.first = i;
}

#endif

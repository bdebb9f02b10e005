/* Requests between the NIC and their handlers: one inbox a kthread, which siblings may take from.
 *
 * A bounded ring with one producer (the kthread, in poll) and many consumers (its runner, thieves). A consumer copies
 * the items first and then claims them by one compare-and-swap of `head`; if the swap fails the copies may be torn and
 * are thrown away. The producer cannot overwrite an item whose position `head` has not passed. Positions are 32-bit and
 * never reset, so a stale swap cannot succeed.
 *
 *   tail   writer: the kthread (release after the items); readers: anybody (acquire)
 *   head   writers: anybody (swap, release after the copy); readers: the kthread (acquire, before it overwrites)
 *   items  words stored and loaded relaxed: what is torn is never used
 *
 * Taking one request at a time leaves the others to siblings when a handler turns out to be long: that is worth the
 * swap. */
#ifndef CORELANE_LIBOS_NET_INBOX_H
#define CORELANE_LIBOS_NET_INBOX_H

#include <corelane/libos/udp.h>

#include <stdlib.h>
#include <string.h>

#define CL_INBOX_ITEMS 256 /* a frame that finds it full waits in the NIC's queue */

struct cl_udp_socket;
struct cl_uthread;

/* A datagram on its way to its handler; in queues by type (typed.h) also a uthread in the middle of one. */
struct cl_rx_item {
    struct cl_frame frame;
    union {
        struct cl_udp_socket *socket;
        struct cl_uthread *uthread; /* frame.data is NULL */
    };
    uint64_t rx_tsc;
    uint16_t l4; /* offset of the UDP header: what precedes it may hold IP options */
    uint16_t payload_len;
    uint8_t broadcast;
    uint8_t looped; /* from ourselves (loop.c): the answer goes there */
    uint8_t traced; /* it is to be recorded */
    uint8_t stolen; /* by a sibling of who picked it up */
};
#define CL_RX_ITEM_WORDS 6
#define CL_RX_ITEM_TSC 4 /* the word of rx_tsc */

typedef uint64_t cl_inbox_item[CL_RX_ITEM_WORDS];

struct cl_inbox {
    uint32_t tail CL_ALIGNED(CL_CACHELINE);
    uint32_t mask;        /* constant: places - 1 */
    cl_inbox_item *items; /* constant */
    uint32_t head CL_ALIGNED(CL_CACHELINE);
};

/* Its memory with that of its items, which it owns: n places, a power of two. NULL: out of memory. End it with
 * free(). */
static inline struct cl_inbox *cl_inbox_new(unsigned n)
{
    size_t bytes = sizeof(struct cl_inbox) + n * sizeof(cl_inbox_item);
    struct cl_inbox *in =
        (struct cl_inbox *)aligned_alloc(CL_CACHELINE, (bytes + CL_CACHELINE - 1) & -(size_t)CL_CACHELINE);
    if (!in)
        return NULL;
    memset(in, 0,
           sizeof *in); /* items are not read before they are written: a page that is never needed is never touched */
    in->mask = n - 1;
    in->items = (cl_inbox_item *)(in + 1);
    return in;
}

/* Producer: places free. */
static inline unsigned cl_inbox_space(const struct cl_inbox *in)
{
    /* Acquire: the consumers' copies happen before we overwrite. tail is our own. */
    return in->mask + 1 - (cl_load_relaxed(&in->tail) - cl_load_acquire(&in->head));
}

/* An item as words and back. Word by word, of what is at hand in registers: an item that was just written field by
 * field and is read in wider pieces, as compilers like to, waits until the fields have left for the cache, 5 ns a
 * request. */
static inline void cl_rx_words(uint64_t *words, const struct cl_frame *f, const void *owner, uint64_t rx_tsc,
                               uint64_t about)
{
    words[0] = (uint64_t)(uintptr_t)f->data;
    words[1] = f->buf | (uint64_t)f->len << 32 | (uint64_t)f->room << 48;
    words[2] = f->hash | (uint64_t)f->tag << 32;
    words[3] = (uint64_t)(uintptr_t)owner;
    words[CL_RX_ITEM_TSC] = rx_tsc;
    words[5] = about;
}

/* The last word. */
static inline uint64_t cl_rx_about(uint32_t l4, uint32_t payload_len, bool broadcast, bool looped, bool traced,
                                   bool stolen)
{
    return l4 | (uint64_t)payload_len << 16 | (uint64_t)broadcast << 32 | (uint64_t)looped << 40 |
           (uint64_t)traced << 48 | (uint64_t)stolen << 56;
}

static inline void cl_rx_item_pack(const struct cl_rx_item *item, uint64_t *words)
{
    cl_rx_words(words, &item->frame, item->socket, item->rx_tsc,
                cl_rx_about(item->l4, item->payload_len, item->broadcast, item->looped, item->traced, item->stolen));
}

static inline void cl_rx_item_unpack(const uint64_t *words, struct cl_rx_item *item)
{
    item->frame = (struct cl_frame){.data = (uint8_t *)(uintptr_t)words[0],
                                    .buf = (uint32_t)words[1],
                                    .len = (uint16_t)(words[1] >> 32),
                                    .room = (uint16_t)(words[1] >> 48),
                                    .hash = (uint32_t)words[2],
                                    .tag = (uint32_t)(words[2] >> 32)};
    item->socket = (struct cl_udp_socket *)(uintptr_t)words[3];
    item->rx_tsc = words[CL_RX_ITEM_TSC];
    item->l4 = (uint16_t)words[5];
    item->payload_len = (uint16_t)(words[5] >> 16);
    item->broadcast = (uint8_t)(words[5] >> 32);
    item->looped = (uint8_t)(words[5] >> 40);
    item->traced = (uint8_t)(words[5] >> 48);
    item->stolen = (uint8_t)(words[5] >> 56);
}

/* Producer: put an item at tail + ahead, to be published by cl_inbox_publish. The caller has checked the space. */
static inline void cl_inbox_put_words(struct cl_inbox *in, unsigned ahead, const uint64_t *words)
{
    uint64_t *to = in->items[(cl_load_relaxed(&in->tail) + ahead) & in->mask];
    /* No loop, here and in cl_inbox_copy: so the words stay in registers, which is 12 ns of a request's 70. */
    cl_store_relaxed(&to[0], words[0]);
    cl_store_relaxed(&to[1], words[1]);
    cl_store_relaxed(&to[2], words[2]);
    cl_store_relaxed(&to[3], words[3]);
    cl_store_relaxed(&to[4], words[4]);
    cl_store_relaxed(&to[5], words[5]);
}

static inline void cl_inbox_put(struct cl_inbox *in, unsigned ahead, const struct cl_rx_item *item)
{
    uint64_t words[CL_RX_ITEM_WORDS];
    cl_rx_item_pack(item, words);
    cl_inbox_put_words(in, ahead, words);
}

/* Producer: one that was put there, and not published, is to be recorded. */
static inline void cl_inbox_mark(struct cl_inbox *in, unsigned ahead)
{
    uint64_t *word = &in->items[(cl_load_relaxed(&in->tail) + ahead) & in->mask][5];
    cl_store_relaxed(word, cl_load_relaxed(word) | 1ull << 48);
}

static inline void cl_inbox_publish(struct cl_inbox *in, unsigned n)
{
    cl_store_release(&in->tail, cl_load_relaxed(&in->tail) + n);
}

/* Anybody: items waiting, at this instant. */
static inline unsigned cl_inbox_count(const struct cl_inbox *in)
{
    uint32_t head = cl_load_acquire(&in->head); /* head first: it never passes a tail read later */
    return cl_load_acquire(&in->tail) - head;
}

static inline void cl_inbox_copy(const struct cl_inbox *in, uint32_t pos, struct cl_rx_item *out)
{
    const uint64_t *from = in->items[pos & in->mask];
    const uint64_t words[CL_RX_ITEM_WORDS] = {cl_load_relaxed(&from[0]), cl_load_relaxed(&from[1]),
                                              cl_load_relaxed(&from[2]), cl_load_relaxed(&from[3]),
                                              cl_load_relaxed(&from[4]), cl_load_relaxed(&from[5])};
    cl_rx_item_unpack(words, out);
}

/* Anybody: take up to n items, those at the head that belong to `socket` (NULL: to whom the first belongs). Returns how
 * many. */
static inline unsigned cl_inbox_take_of(struct cl_inbox *in, struct cl_rx_item *out, unsigned n,
                                        const struct cl_udp_socket *socket)
{
    for (;;) {
        uint32_t head = cl_load_acquire(&in->head);
        uint32_t avail = cl_load_acquire(&in->tail) - head;
        unsigned want = cl_min(n, cl_min(avail, in->mask + 1)), got = 0;
        const struct cl_udp_socket *of = socket;
        for (; got < want; got++) {
            cl_inbox_copy(in, head + got, &out[got]);
            of = of ? of : out[got].socket;
            if (out[got].socket != of)
                break;
        }
        if (got == 0)
            return 0;
        /* Release: the copies come before the place is free; acquire on failure to read a fresh head. */
        if (__atomic_compare_exchange_n(&in->head, &head, head + got, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
            return got;
    }
}

/* Anybody: take the oldest item. */
static inline bool cl_inbox_take_one(struct cl_inbox *in, struct cl_rx_item *out)
{
    uint32_t head = cl_load_acquire(&in->head);
    for (;;) {
        if (cl_load_acquire(&in->tail) == head)
            return false;
        cl_inbox_copy(in, head, out);
        /* As above. */
        if (__atomic_compare_exchange_n(&in->head, &head, head + 1, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
            return true;
    }
}

#endif

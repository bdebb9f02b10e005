/* Requests between the NIC and their handlers: one inbox a kthread, which siblings may take from.
 *
 * A bounded ring with one producer (the kthread, in poll) and many consumers (its runner, thieves). A consumer copies the
 * items first and then claims them by one compare-and-swap of `head`; if the swap fails the copies may be torn and are thrown
 * away. The producer cannot overwrite an item whose position `head` has not passed. Positions are 32-bit and never reset,
 * so a stale swap cannot succeed.
 *
 *   tail   writer: the kthread (release after the items); readers: anybody (acquire)
 *   head   writers: anybody (swap, release after the copy); readers: the kthread (acquire, before it overwrites)
 *   items  words stored and loaded relaxed: what is torn is never used
 *
 * Taking one request at a time leaves the others to siblings when a handler turns out to be long: that is worth the swap. */
#ifndef CORELANE_LIBOS_NET_INBOX_H
#define CORELANE_LIBOS_NET_INBOX_H

#include "../../drivers/nic.h"

#define CL_INBOX_ITEMS 256 /* power of two; a frame that finds it full waits in the NIC's queue */

struct cl_udp_socket;

/* A datagram on its way to its handler. */
struct cl_rx_item {
    struct cl_frame frame;
    struct cl_udp_socket *socket;
    uint64_t rx_tsc;
    uint16_t l4; /* offset of the UDP header: what precedes it may hold IP options */
    uint16_t payload_len;
    uint16_t broadcast;
    uint16_t pad;
};
_Static_assert(sizeof(struct cl_rx_item) == 48, "six words");
#define CL_RX_ITEM_WORDS 6

struct cl_inbox {
    uint32_t tail CL_ALIGNED(CL_CACHELINE);
    uint32_t head CL_ALIGNED(CL_CACHELINE);
    uint64_t items[CL_INBOX_ITEMS][CL_RX_ITEM_WORDS] CL_ALIGNED(CL_CACHELINE);
};

/* Producer: places free. */
static inline unsigned cl_inbox_space(const struct cl_inbox *in)
{
    /* Acquire: the consumers' copies happen before we overwrite. tail is our own. */
    return CL_INBOX_ITEMS - (cl_load_relaxed(&in->tail) - cl_load_acquire(&in->head));
}

/* Producer: put an item at tail + ahead, to be published by cl_inbox_publish. The caller has checked the space. */
static inline void cl_inbox_put(struct cl_inbox *in, unsigned ahead, const struct cl_rx_item *item)
{
    uint64_t *to = in->items[(cl_load_relaxed(&in->tail) + ahead) & (CL_INBOX_ITEMS - 1)];
    uint64_t words[CL_RX_ITEM_WORDS];
    __builtin_memcpy(words, item, sizeof words);
    for (unsigned i = 0; i < CL_RX_ITEM_WORDS; i++)
        cl_store_relaxed(&to[i], words[i]);
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
    const uint64_t *from = in->items[pos & (CL_INBOX_ITEMS - 1)];
    uint64_t words[CL_RX_ITEM_WORDS];
    for (unsigned i = 0; i < CL_RX_ITEM_WORDS; i++)
        words[i] = cl_load_relaxed(&from[i]);
    __builtin_memcpy(out, words, sizeof words);
}

/* Anybody: take up to n items, those at the head that belong to `socket` (NULL: to whom the first belongs). Returns how
 * many. */
static inline unsigned cl_inbox_take_of(struct cl_inbox *in, struct cl_rx_item *out, unsigned n,
                                        const struct cl_udp_socket *socket)
{
    for (;;) {
        uint32_t head = cl_load_acquire(&in->head);
        uint32_t avail = cl_load_acquire(&in->tail) - head;
        unsigned want = cl_min(n, cl_min(avail, (unsigned)CL_INBOX_ITEMS)), got = 0;
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

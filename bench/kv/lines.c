/* See lines.h. */
#include "lines.h"

#include "../harness/pinned.h"
#include "../harness/send.h"
#include "../../drivers/nic/headers.h"
#include "../../runtime/net.h"
#include "../../runtime/pages.h"

#include <stdlib.h>

#define KEY CL_KV_LINES_KEY
#define HEADER 8                       /* memcached's, in front of each datagram */
#define TEXT (CL_UDP_HEADERS + HEADER) /* where a request begins */
#define WORD 4                         /* "get ", "set " */
#define ITEM_HEADER 32                 /* of apps/kv/layout.h */
#define LINE_WORDS (CL_CACHELINE / 8)
#define KEYS_A_LINE 4
#define VALUE_MOST 1300
#define STORED "STORED\r\n"
#define END "\r\nEND\r\n"

struct cl_kv_lines {
    struct cl_nic *nic;
    uint32_t keys, value_bytes, item_bytes, line_mask;
    uint64_t *index; /* words to be added to a key's number, which gives its item; all 0, which only we know */
    uint8_t *items;
    char after_get[24], after_set[24]; /* what stands between key and value: " 7 64\r\n", " 7 0 64\r\n" */
    uint32_t after_get_len, after_set_len, answer_len;
    pthread_t thread;
    uint32_t stop;              /* writer: stop; reader: the thread. Relaxed: it guards nothing */
    uint64_t answered, ignored; /* writer: the thread; readers: counts (relaxed) */
};

/* What was found out of a request. */
struct look {
    const uint64_t *word; /* in the index; NULL: it is no request */
    uint8_t *item;
    uint32_t key;
    bool set;
};

/* The number of eight letters 'a'..'p', the lowest four bits first; UINT32_MAX: others are among them. */
static inline uint32_t number_of(uint64_t letters)
{
    uint64_t x = letters - 0x6161616161616161ull;
    if (cl_unlikely(x & ~0x0f0f0f0f0f0f0f0full))
        return UINT32_MAX;
    x = (x | x >> 4) & 0x00ff00ff00ff00ffull;
    x = (x | x >> 8) & 0x0000ffff0000ffffull;
    return (uint32_t)(x | x >> 16);
}

/* First stage. */
static inline void look_at(const struct cl_kv_lines *s, const struct cl_frame *f, struct look *l)
{
    l->word = NULL;
    if (cl_unlikely(f->len < TEXT + WORD + KEY))
        return;
    l->set = f->data[TEXT] == 's';
    l->key = number_of(cl_get64(f->data + TEXT + WORD));
    if (cl_unlikely(l->key >= s->keys || (l->set && f->len < TEXT + WORD + KEY + s->after_set_len + s->value_bytes)))
        return;
    uint64_t line = l->key * 0x9e3779b97f4a7c15ull >> 32 & s->line_mask;
    l->word = s->index + line * LINE_WORDS + l->key % LINE_WORDS;
    cl_prefetch(l->word);
}

/* Second stage. */
static inline void look_further(const struct cl_kv_lines *s, struct cl_frame *f, struct look *l)
{
    l->item = s->items + (l->key + *l->word) * s->item_bytes;
    cl_prefetch_span(l->item, s->item_bytes);
    cl_prefetch(l->item + s->item_bytes - 1);
    for (uint32_t at = (f->len + CL_CACHELINE - 1) & ~(CL_CACHELINE - 1u); at < s->answer_len; at += CL_CACHELINE)
        cl_prefetch_write(f->data + at);
}

static inline uint8_t *put(uint8_t *to, const void *from, uint32_t n)
{
    memcpy(to, from, n);
    return to + n;
}

/* Third stage: the answer, over the request. */
static inline void answer(const struct cl_kv_lines *s, struct cl_frame *f, const struct look *l)
{
    struct cl_udp_frame *h = (struct cl_udp_frame *)f->data;
    uint8_t *at = f->data + TEXT, *value = l->item + ITEM_HEADER + KEY;
    if (l->set) {
        memcpy(value, at + WORD + KEY + s->after_set_len, s->value_bytes);
        at = put(at, STORED, sizeof STORED - 1);
    } else {
        uint8_t key[KEY];
        memcpy(key, at + WORD, KEY);
        at = put(put(at, "VALUE ", 6), key, KEY);
        at = put(put(at, s->after_get, s->after_get_len), value, s->value_bytes);
        at = put(at, END, sizeof END - 1);
    }
    turn_addresses(h);
    f->len = (uint16_t)(at - f->data);
    uint16_t was_be = h->ip.total_len_be;
    h->ip.total_len_be = cl_be16(f->len - CL_ETH_HLEN);
    h->ip.check = cl_csum_update16(h->ip.check, was_be, h->ip.total_len_be);
    h->udp.len_be = cl_be16(f->len - CL_ETH_HLEN - CL_IPV4_HLEN);
    h->udp.check = 0; /* none was made (RFC 768) */
}

static void *lines_main(void *arg)
{
    struct cl_kv_lines *s = arg;
    const struct cl_nic_ops *ops = s->nic->ops;
    struct cl_frame frames[CL_NIC_BURST];
    struct look looks[CL_NIC_BURST];
    while (!cl_load_relaxed(&s->stop)) {
        unsigned got = ops->rx_burst(s->nic, 0, frames, CL_NIC_BURST), kept = 0;
        for (unsigned i = 0; i < got; i++)
            look_at(s, &frames[i], &looks[i]);
        for (unsigned i = 0; i < got; i++)
            if (cl_likely(looks[i].word))
                look_further(s, &frames[i], &looks[i]);
        for (unsigned i = 0; i < got; i++) {
            if (cl_likely(looks[i].word)) {
                answer(s, &frames[i], &looks[i]);
                frames[kept++] = frames[i];
            } else {
                ops->free(s->nic, 0, &frames[i], 1);
            }
        }
        if (!got)
            continue;
        cl_count(&s->answered, kept);
        cl_count(&s->ignored, got - kept);
        cl_bench_send_all(s->nic, frames, kept, &s->stop);
    }
    return NULL;
}

int cl_kv_lines_new(uint32_t keys, uint32_t value_bytes, struct cl_kv_lines **out)
{
    if (!keys || value_bytes > VALUE_MOST)
        return -EINVAL;
    struct cl_kv_lines *s = calloc(1, sizeof *s);
    if (!s)
        return -ENOMEM;
    uint32_t lines = 1;
    while (lines < keys / KEYS_A_LINE)
        lines *= 2;
    s->keys = keys;
    s->value_bytes = value_bytes;
    s->item_bytes = (ITEM_HEADER + KEY + value_bytes + 7) & ~7u;
    s->line_mask = lines - 1;
    s->after_get_len = (uint32_t)snprintf(s->after_get, sizeof s->after_get, " 7 %u\r\n", value_bytes);
    s->after_set_len = (uint32_t)snprintf(s->after_set, sizeof s->after_set, " 7 0 %u\r\n", value_bytes);
    s->answer_len = TEXT + 6 + KEY + s->after_get_len + value_bytes + sizeof END - 1;
    s->index = cl_pages_new((uint64_t)lines * CL_CACHELINE);
    s->items = cl_pages_new((uint64_t)keys * s->item_bytes);
    if (!s->index || !s->items) {
        cl_kv_lines_delete(s);
        return -ENOMEM;
    }
    *out = s;
    return 0;
}

int cl_kv_lines_start(struct cl_kv_lines *s, struct cl_nic *nic, int cpu, char *err)
{
    s->nic = nic;
    s->stop = 0;
    return cl_bench_start_pinned(&s->thread, cpu, lines_main, s, err);
}

void cl_kv_lines_stop(struct cl_kv_lines *s)
{
    cl_store_relaxed(&s->stop, 1);
    pthread_join(s->thread, NULL);
}

void cl_kv_lines_delete(struct cl_kv_lines *s)
{
    free(s->index);
    free(s->items);
    free(s);
}

void cl_kv_lines_counts(const struct cl_kv_lines *s, uint64_t *answered, uint64_t *ignored)
{
    *answered = cl_load_relaxed(&s->answered);
    *ignored = cl_load_relaxed(&s->ignored);
}

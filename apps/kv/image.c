/* See image.h. The image: a header, the buckets, the overflow buckets, and what the log holds between tail and head. */
#include "image.h"
#include "base64.h"
#include "layout.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define MAGIC 0x31474d49564b4c43ull /* "CLKVIMG1" */
#define PIECES 4

struct image_header {
    uint64_t magic, bytes, buckets, n_overflow, log_bytes;
    uint64_t head, tail, cursor, live_bytes, cas_count, items, flush_cas;
    uint32_t flush_at_s, overflow_free, overflow_used, overflow_fresh;
    uint64_t secret_check;
    uint64_t seed; /* of the hash secret; 0: not told, the store that loads it has the same */
};
_Static_assert(sizeof(struct image_header) == CL_KV_IMAGE_HEADER, "what image.h says");

struct image_piece {
    uint8_t *data;
    uint64_t bytes;
};

/* Where the parts behind the header lie. */
static void find_pieces(struct kv_partition *p, struct image_piece out[PIECES])
{
    uint64_t used = p->head - p->tail, from = p->tail % p->log_bytes;
    uint64_t first = cl_min(used, p->log_bytes - from);
    out[0] = (struct image_piece){(uint8_t *)p->buckets, (p->bucket_mask + 1) * sizeof(struct kv_bucket)};
    out[1] = (struct image_piece){(uint8_t *)p->overflow, (uint64_t)p->n_overflow * sizeof(struct kv_bucket)};
    out[2] = (struct image_piece){p->log + from, first};
    out[3] = (struct image_piece){p->log, used - first};
}

/* Differs between stores of different hash secrets, but for luck: their buckets mean nothing to each other. */
static uint64_t secret_check(const struct cl_kv *store)
{
    static const uint8_t word[8] = "corelane";
    return cl_kv_hash_of(store, word, sizeof(word));
}

static struct image_header header_of(const struct cl_kv *store)
{
    struct kv_partition *p = &store->partitions[0];
    return (struct image_header){.magic = MAGIC,
                                 .bytes = (uint64_t)cl_kv_image_bytes(store),
                                 .buckets = p->bucket_mask + 1,
                                 .n_overflow = p->n_overflow,
                                 .log_bytes = p->log_bytes,
                                 .head = p->head,
                                 .tail = p->tail,
                                 .cursor = p->cursor,
                                 .live_bytes = p->live_bytes,
                                 .cas_count = p->cas_count,
                                 .items = p->items,
                                 .flush_cas = p->flush_cas,
                                 .flush_at_s = p->flush_at_s,
                                 .overflow_free = p->overflow_free,
                                 .overflow_used = p->overflow_used,
                                 .overflow_fresh = p->overflow_fresh,
                                 .secret_check = secret_check(store),
                                 .seed = store->seed};
}

int64_t cl_kv_image_bytes(const struct cl_kv *store)
{
    struct image_piece pieces[PIECES];
    uint64_t bytes = sizeof(struct image_header);
    if (store->n_partitions != 1)
        return -EINVAL;
    find_pieces(&store->partitions[0], pieces);
    for (int i = 0; i < PIECES; i++)
        bytes += pieces[i].bytes;
    return (int64_t)bytes;
}

int64_t cl_kv_image_most(const struct cl_kv *store)
{
    const struct kv_partition *p = &store->partitions[0];
    int64_t now = cl_kv_image_bytes(store);
    return now < 0 ? now : now + (int64_t)(p->log_bytes - kv_reserve_of(p) - (p->head - p->tail));
}

/* The part of [at, at + n) of the image that lies in a piece which begins at `begin`: its place in both. */
static uint64_t overlap(uint64_t begin, uint64_t bytes, uint64_t at, uint64_t n, uint64_t *in_piece, uint64_t *in_range)
{
    uint64_t from = cl_max(begin, at), to = cl_min(begin + bytes, at + n);
    if (from >= to)
        return 0;
    *in_piece = from - begin;
    *in_range = from - at;
    return to - from;
}

int64_t cl_kv_image_save(const struct cl_kv *store, uint64_t at, uint8_t *out, uint64_t room)
{
    int64_t all = cl_kv_image_bytes(store);
    if (all < 0 || at >= (uint64_t)all)
        return all < 0 ? all : 0;
    struct image_header header = header_of(store);
    struct image_piece pieces[PIECES];
    uint64_t n = cl_min(room, (uint64_t)all - at), begin = sizeof(header), from, to;
    find_pieces(&store->partitions[0], pieces);
    uint64_t part = overlap(0, sizeof(header), at, n, &from, &to);
    if (part)
        memcpy(out + to, (uint8_t *)&header + from, part);
    for (int i = 0; i < PIECES; i++) {
        part = overlap(begin, pieces[i].bytes, at, n, &from, &to);
        if (part)
            memcpy(out + to, pieces[i].data + from, part);
        begin += pieces[i].bytes;
    }
    return (int64_t)n;
}

static int load_header(struct cl_kv *store, const uint8_t *data, uint64_t bytes)
{
    struct kv_partition *p = &store->partitions[0];
    struct image_header h;
    if (bytes < sizeof(h) || store->n_partitions != 1)
        return -EINVAL;
    memcpy(&h, data, sizeof(h));
    if (h.magic != MAGIC || h.buckets != p->bucket_mask + 1 || h.n_overflow != p->n_overflow ||
        h.log_bytes != p->log_bytes || h.tail > h.head || h.head - h.tail > h.log_bytes)
        return -EINVAL;
    if (h.seed)
        kv_set_seed(store, h.seed); /* what hung on the other one is overwritten */
    if (h.secret_check != secret_check(store))
        return -EINVAL;
    p->head = h.head;
    p->tail = h.tail;
    p->cursor = h.cursor;
    p->live_bytes = h.live_bytes;
    p->looked_s = 0;
    p->cas_count = h.cas_count;
    p->items = h.items;
    p->flush_cas = h.flush_cas;
    p->flush_at_s = h.flush_at_s;
    p->overflow_free = h.overflow_free;
    p->overflow_used = h.overflow_used;
    p->overflow_fresh = h.overflow_fresh;
    return 0;
}

int cl_kv_image_load(struct cl_kv *store, uint64_t at, const uint8_t *data, uint64_t bytes)
{
    int rc = at ? 0 : load_header(store, data, bytes);
    if (rc)
        return rc;
    struct image_piece pieces[PIECES];
    uint64_t begin = sizeof(struct image_header), to, from;
    find_pieces(&store->partitions[0], pieces);
    for (int i = 0; i < PIECES; i++) {
        uint64_t part = overlap(begin, pieces[i].bytes, at, bytes, &to, &from);
        if (part)
            memcpy(pieces[i].data + to, data + from, part);
        begin += pieces[i].bytes;
    }
    return at + bytes <= begin ? 0 : -EINVAL;
}

static uint64_t mix(uint64_t sum, uint64_t word)
{
    sum = (sum ^ word) * 0x9e3779b97f4a7c15ull;
    return sum ^ (sum >> 29);
}

static uint64_t mix_item(uint64_t sum, const struct kv_item *it)
{
    uint64_t words = kv_key_words(kv_item_key_len(it)) + ((it->lengths & UINT32_MAX) + 7) / 8;
    sum = mix(mix(mix(mix(sum, it->size_hash), it->flags_exp), it->cas), it->lengths);
    for (uint64_t i = 0; i < words; i++)
        sum = mix(sum, it->body[i]);
    return sum;
}

int cl_kv_digest(const struct cl_kv *store, uint64_t *out)
{
    const struct kv_partition *p = &store->partitions[0];
    if (store->n_partitions != 1)
        return -EINVAL;
    struct image_header header = header_of(store);
    uint64_t sum = 0, words[sizeof(header) / 8];
    memcpy(words, &header, sizeof(header));
    for (unsigned i = 0; i < sizeof(header) / 8; i++)
        sum = mix(sum, words[i]);
    for (uint64_t at = p->tail; at < p->head;) {
        const struct kv_item *it = (struct kv_item *)(p->log + at % p->log_bytes);
        uint64_t rest = p->log_bytes - at % p->log_bytes;
        bool headerless = rest < KV_HEADER_BYTES;
        if (!headerless && kv_item_state(it) == KV_LIVE)
            sum = mix_item(mix(sum, at), it);
        at += headerless ? rest : kv_item_bytes(it);
    }
    *out = sum;
    return 0;
}

/* Whether a key can stand in a line of text as it is. */
static bool is_word(const uint8_t *key, uint32_t len)
{
    for (uint32_t i = 0; i < len; i++)
        if (key[i] <= ' ' || key[i] == 0x7f)
            return false;
    return true;
}

/* The command that stores an item, set, or ms of a key that is no word; 0: it has no room. */
static uint64_t export_item(const struct kv_item *it, int64_t unix_base_s, uint8_t *out, uint64_t room)
{
    uint32_t key_len = kv_item_key_len(it), value = (uint32_t)it->lengths, expires = (uint32_t)(it->flags_exp >> 32);
    const uint8_t *key = (const uint8_t *)it->body;
    bool word = is_word(key, key_len);
    long long time = expires ? (long long)(expires + unix_base_s) : 0ll;
    char line[96];
    int n = word ? snprintf(line, sizeof(line), " %u %lld %u\r\n", (uint32_t)it->flags_exp, time, value)
                 : snprintf(line, sizeof(line), " %u b F%u T%lld\r\n", value, (uint32_t)it->flags_exp, time);
    if ((uint64_t)value + KV_BASE64_BYTES(key_len) + (uint32_t)n + 6 > room)
        return 0;
    uint8_t *p = out;
    if (word) {
        memcpy(p, "set ", 4);
        memcpy(p += 4, key, key_len);
        p += key_len;
    } else {
        memcpy(p, "ms ", 3);
        p = kv_base64_encode(p + 3, key, key_len);
    }
    memcpy(p, line, (uint64_t)n);
    memcpy(p += n, kv_item_value(it), value);
    memcpy(p += value, "\r\n", 2);
    return (uint64_t)(p + 2 - out);
}

int64_t cl_kv_export(const struct cl_kv *store, uint64_t *at, uint32_t now_s, int64_t unix_base_s, uint8_t *out,
                     uint64_t room)
{
    const struct kv_partition *p = &store->partitions[0];
    uint64_t used = 0;
    if (store->n_partitions != 1)
        return -EINVAL;
    for (*at = cl_max(*at, p->tail); *at < p->head;) {
        const struct kv_item *it = (struct kv_item *)(p->log + *at % p->log_bytes);
        uint64_t rest = p->log_bytes - *at % p->log_bytes;
        bool headerless = rest < KV_HEADER_BYTES;
        if (!headerless && kv_item_state(it) == KV_LIVE && !kv_item_gone(p, it->flags_exp, it->cas, now_s)) {
            uint64_t n = export_item(it, unix_base_s, out + used, room - used);
            if (!n)
                return used ? (int64_t)used : -EINVAL;
            used += n;
        }
        *at += headerless ? rest : kv_item_bytes(it);
    }
    return (int64_t)used;
}

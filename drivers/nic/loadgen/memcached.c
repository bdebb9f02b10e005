/* memcached's ASCII protocol over UDP (memcached, doc/protocol.txt, "UDP protocol"): an 8-byte big-endian header
 * {request id, sequence, datagrams, 0} before each datagram.
 *
 * The request id is the part of the sequence number above the flow's bits, so (port, id) together tell flows * 65536
 * requests apart. A value is a function of its key, and SETs write just that: so every hit can be compared byte by
 * byte, whatever the order of requests. Keys are eight letters that encode the number, then filler; values begin with
 * the same letters. Answers of several datagrams are accepted in any order; all but the last must have equal length. */
#include "engine.h"
#include "zipf.h"

#include <stdio.h>
#include <stdlib.h>

#define HEADER 8
#define MAX_KEY 250
#define MAX_VALUE 65536
#define FLAGS "7"
#define WORDS_BYTES 24 /* flags, a zero and a length between key and value */

/* Eight letters 'a'..'p' of a number, the lowest four bits first. */
static inline uint64_t letters_of(uint32_t k)
{
    uint64_t x = k;
    x = (x | x << 16) & 0x0000ffff0000ffffull;
    x = (x | x << 8) & 0x00ff00ff00ff00ffull;
    x = (x | x << 4) & 0x0f0f0f0f0f0f0f0full;
    return x + 0x6161616161616161ull;
}

static inline void put_letters(uint8_t *to, uint64_t letters, uint32_t n)
{
    if (cl_likely(n == 8))
        cl_put64(to, letters);
    else
        for (uint32_t i = 0; i < n; i++, letters >>= 8)
            to[i] = (uint8_t)letters;
}

/* Key and value with the letters of key 0. */
static void write_key(const struct cl_loadgen *lg, uint8_t *out)
{
    memset(out, 'k', lg->config.key_bytes);
    put_letters(out, letters_of(0), lg->memcached.letters);
}

static void write_value(const struct cl_loadgen *lg, uint8_t *out)
{
    for (uint32_t i = 0; i < lg->config.value_bytes; i++)
        out[i] = (uint8_t)('A' + i % 26);
    put_letters(out, letters_of(0), lg->memcached.value_letters);
}

unsigned cl_loadgen_key(const struct cl_loadgen *lg, uint32_t k, uint8_t *out)
{
    write_key(lg, out);
    put_letters(out, letters_of(k), lg->memcached.letters);
    return lg->config.key_bytes;
}

unsigned cl_loadgen_value(const struct cl_loadgen *lg, uint32_t k, uint8_t *out)
{
    write_value(lg, out);
    put_letters(out, letters_of(k), lg->memcached.value_letters);
    return lg->config.value_bytes;
}

/* " 7 0 LEN\r\n" of a set, " 7 LEN\r\n" of the answer to a get, at `at`; returns its length. */
static uint32_t put_words(uint8_t *at, const char *before_length, uint32_t value_bytes)
{
    char words[WORDS_BYTES + 1];
    int n = snprintf(words, sizeof(words), "%s%u\r\n", before_length, value_bytes);
    memcpy(at, words, (size_t)n);
    return (uint32_t)n;
}

/* "get KEY\r\n" and "set KEY 7 0 LEN\r\nVALUE\r\n" behind their headers. */
static int build_requests(struct cl_loadgen *lg, uint8_t *text)
{
    struct cl_memcached *m = &lg->memcached;
    const struct cl_loadgen_config *c = &lg->config;
    static const uint8_t header[HEADER] = {0, 0, 0, 0, 0, 1, 0, 0};
    memcpy(text, header, HEADER);
    memcpy(text + HEADER, "get ", 4);
    m->get_key = HEADER + 4;
    write_key(lg, text + m->get_key);
    memcpy(text + m->get_key + c->key_bytes, "\r\n", 2);
    int rc = cl_shape_build(lg, &m->get, text, m->get_key + c->key_bytes + 2);
    memcpy(text + HEADER, "set ", 4);
    m->set_key = HEADER + 4;
    m->set_value = m->set_key + c->key_bytes;
    m->set_value += put_words(text + m->set_value, " " FLAGS " 0 ", c->value_bytes);
    write_value(lg, text + m->set_value);
    memcpy(text + m->set_value + c->value_bytes, "\r\n", 2);
    uint32_t len = m->set_value + c->value_bytes + 2;
    /* Values longer than a datagram can be got but not set: memcached takes no request of several datagrams either. */
    if (!rc && (c->get_fraction < 1 || c->preload))
        rc = cl_shape_build(lg, &m->set, text, len);
    m->get_key += CL_UDP_HEADERS;
    m->set_key += CL_UDP_HEADERS;
    m->set_value += CL_UDP_HEADERS;
    return rc;
}

static int build_expected(struct cl_loadgen *lg)
{
    struct cl_memcached *m = &lg->memcached;
    const struct cl_loadgen_config *c = &lg->config;
    m->expected = malloc(c->key_bytes + c->value_bytes + 64);
    if (!m->expected)
        return -ENOMEM;
    memcpy(m->expected, "VALUE ", 6);
    m->expected_key = 6;
    write_key(lg, m->expected + 6);
    m->expected_value = 6 + c->key_bytes;
    m->expected_value += put_words(m->expected + m->expected_value, " " FLAGS " ", c->value_bytes);
    write_value(lg, m->expected + m->expected_value);
    memcpy(m->expected + m->expected_value + c->value_bytes, "\r\nEND\r\n", 7);
    m->expected_len = m->expected_value + c->value_bytes + 7;
    return 0;
}

static uint64_t gcd(uint64_t a, uint64_t b)
{
    return b ? gcd(b, a % b) : a;
}

/* Requests drawn beforehand: which key, and whether to set it. Popular keys are scattered over the key space (by a
 * multiplier coprime to the number of keys), so that they do not lie side by side in the server's memory. */
static int draw_items(struct cl_loadgen *lg)
{
    struct cl_memcached *m = &lg->memcached;
    const struct cl_loadgen_config *c = &lg->config;
    m->items = malloc(CL_ITEMS * sizeof(*m->items));
    if (!m->items)
        return -ENOMEM;
    int rc = cl_load_draw_zipf(c->seed, c->zipf, c->keys, m->items, CL_ITEMS);
    uint64_t scatter = (uint64_t)(c->keys * 0.6180339887);
    while (gcd(scatter, c->keys) != 1)
        scatter++;
    struct cl_random r = {c->seed ^ 0x6765747365740000ull};
    for (uint32_t i = 0; !rc && i < CL_ITEMS; i++) {
        uint32_t key = (uint32_t)(m->items[i] * scatter % c->keys);
        m->items[i] = key | (cl_random_unit(&r) > c->get_fraction ? CL_ITEM_SET : 0);
    }
    return rc;
}

static int check_config(const struct cl_loadgen_config *c, char *err)
{
    uint32_t letters = cl_min(c->key_bytes, 8u);
    uint32_t longest = HEADER + c->key_bytes + c->value_bytes + 32;
    if (c->key_bytes < 1 || c->key_bytes > MAX_KEY)
        snprintf(err, 256, "key_bytes must be from 1 to %d, which is memcached's limit", MAX_KEY);
    else if (c->value_bytes < 1 || c->value_bytes > MAX_VALUE)
        snprintf(err, 256, "value_bytes must be from 1 to %d", MAX_VALUE);
    else if (c->keys < 1 || c->keys >= CL_ITEM_SET || (letters < 8 && c->keys > 1u << (4 * letters)))
        snprintf(err, 256, "%u keys cannot be told apart by keys of %u bytes (16 for each byte)", c->keys,
                 c->key_bytes);
    else if (!(c->get_fraction >= 0 && c->get_fraction <= 1))
        snprintf(err, 256, "get_fraction must be from 0 to 1");
    else if (!(c->zipf >= 0 && c->zipf < 100))
        snprintf(err, 256, "zipf must be from 0 to 100");
    else if ((c->get_fraction < 1 || c->preload) && longest > CL_LOAD_MTU - 28)
        snprintf(err, 256, "a SET of %u bytes does not fit into a datagram of the MTU %u: only GETs, with preload off",
                 longest, CL_LOAD_MTU);
    else
        return 0;
    return -EINVAL;
}

int cl_memcached_init(struct cl_loadgen *lg, char *err)
{
    struct cl_memcached *m = &lg->memcached;
    int rc = check_config(&lg->config, err);
    if (rc)
        return rc;
    m->letters = cl_min(lg->config.key_bytes, 8u);
    m->value_letters = cl_min(lg->config.value_bytes, 8u);
    uint8_t *text = malloc(lg->config.key_bytes + lg->config.value_bytes + 64);
    m->parts = calloc((size_t)lg->slot_mask + 1, sizeof(*m->parts));
    lg->preload.done = calloc(lg->config.preload_window, 1);
    rc = text && m->parts && lg->preload.done ? build_requests(lg, text) : -ENOMEM;
    free(text);
    rc = rc ? rc : build_expected(lg);
    return rc ? rc : draw_items(lg);
}

void cl_memcached_free(struct cl_loadgen *lg)
{
    struct cl_memcached *m = &lg->memcached;
    cl_shape_free(&m->get);
    cl_shape_free(&m->set);
    free(m->expected);
    free(m->items);
    free(m->parts);
    free(lg->preload.done);
}

CL_HOT void cl_memcached_fill(struct cl_loadgen *lg, struct cl_frame *frame, uint32_t seq, uint32_t item)
{
    struct cl_memcached *m = &lg->memcached;
    uint32_t flow = seq & lg->flow_mask;
    uint64_t letters = letters_of(item & ~CL_ITEM_SET);
    const struct cl_shape *shape = &m->get;
    if (item & CL_ITEM_SET) {
        shape = &m->set;
        cl_shape_copy(shape, frame, flow);
        put_letters(frame->data + m->set_key, letters, m->letters);
        put_letters(frame->data + m->set_value, letters, m->value_letters);
    } else {
        cl_shape_copy(shape, frame, flow);
        put_letters(frame->data + m->get_key, letters, m->letters);
    }
    cl_put16(frame->data + CL_UDP_HEADERS, cl_be16(seq >> lg->flow_shift));
    cl_shape_checksum(lg, shape, frame, flow);
}

/* Whether bytes [at, at + len) of the answer to a GET of this key are these. */
static inline bool value_is(struct cl_memcached *m, uint32_t key, const uint8_t *text, uint32_t at, uint32_t len)
{
    uint64_t letters = letters_of(key);
    put_letters(m->expected + m->expected_key, letters, m->letters);
    put_letters(m->expected + m->expected_value, letters, m->value_letters);
    return memcmp(m->expected + at, text, len) == 0;
}

enum verdict { WRONG, ERROR, MISS, STORED, HIT, MORE };

static bool starts(const uint8_t *text, uint32_t len, const char *with)
{
    size_t n = strlen(with);
    return len >= n && memcmp(text, with, n) == 0;
}

/* Datagram i of n of an answer longer than one. */
static enum verdict take_part(struct cl_memcached *m, struct cl_slot *slot, struct cl_parts *parts, const uint8_t *text,
                              uint32_t len, uint32_t i, uint32_t n)
{
    if (n > 64 || i >= n || len == 0 || len > m->expected_len || (slot->item & CL_ITEM_SET))
        return WRONG;
    if (parts->seq != slot->seq)
        *parts = (struct cl_parts){.seq = slot->seq};
    if (parts->got >> i & 1)
        return MORE; /* a duplicate */
    uint64_t at = i == n - 1 ? m->expected_len - len : (uint64_t)i * len;
    if (at + len > m->expected_len || !value_is(m, slot->item, text, (uint32_t)at, len))
        return WRONG;
    parts->got |= 1ull << i;
    parts->bytes += len;
    if (parts->got != (n == 64 ? ~0ull : (1ull << n) - 1))
        return MORE;
    return parts->bytes == m->expected_len ? HIT : WRONG;
}

static enum verdict take_whole(struct cl_memcached *m, const struct cl_slot *slot, const uint8_t *text, uint32_t len)
{
    if (slot->item & CL_ITEM_SET) {
        if (cl_likely(len == 8 && memcmp(text, "STORED\r\n", 8) == 0))
            return STORED;
    } else {
        if (cl_likely(len == m->expected_len && value_is(m, slot->item, text, 0, len)))
            return HIT;
        if (len == 5 && memcmp(text, "END\r\n", 5) == 0)
            return MISS;
    }
    bool failed = starts(text, len, "SERVER_ERROR") || starts(text, len, "CLIENT_ERROR") || starts(text, len, "ERROR");
    return failed ? ERROR : WRONG;
}

/* The sequence number that a request id means: the latest one of this flow with that id. */
static inline uint32_t seq_of(const struct cl_loadgen *lg, uint32_t id, uint32_t flow)
{
    uint32_t low = id << lg->flow_shift | flow, bits = 16 + lg->flow_shift;
    uint32_t last = (uint32_t)lg->next_seq - 1;
    return bits >= 32 ? low : last - ((last - low) & ((1u << bits) - 1));
}

CL_HOT void cl_memcached_take(struct cl_loadgen *lg, uint64_t now, const uint8_t *payload, uint32_t len, uint32_t flow)
{
    struct cl_memcached *m = &lg->memcached;
    if (cl_unlikely(len < HEADER)) {
        cl_count(&lg->other.foreign, 1);
        return;
    }
    uint32_t seq = seq_of(lg, cl_be16(cl_get16(payload)), flow);
    struct cl_slot *slot = cl_slot_of(lg, seq);
    if (cl_unlikely(!slot)) {
        cl_count(&lg->other.stray, 1);
        return;
    }
    uint32_t i = cl_be16(cl_get16(payload + 2)), n = cl_be16(cl_get16(payload + 4));
    enum verdict verdict = cl_likely(n == 1 && i == 0) ? take_whole(m, slot, payload + HEADER, len - HEADER)
                                                       : take_part(m, slot, &m->parts[seq & lg->slot_mask],
                                                                   payload + HEADER, len - HEADER, i, n);
    if (verdict == MORE)
        return;
    if (cl_unlikely(cl_state(lg) == CL_LOAD_PRELOADING)) {
        slot->intended = 0;
        cl_preload_stored(lg, now, slot->item & ~CL_ITEM_SET, verdict == STORED);
        return;
    }
    if (cl_unlikely(verdict <= ERROR)) {
        struct cl_loadgen_counts *counts = &cl_settle(lg, now, slot)->counts;
        cl_count(verdict == WRONG ? &counts->wrong : &counts->errors, 1);
        return;
    }
    struct cl_loadgen_counts *counts = &cl_answered(lg, now, slot)->counts;
    cl_count(verdict == HIT ? &counts->hits : verdict == MISS ? &counts->misses : &counts->stored, 1);
}

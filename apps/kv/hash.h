/* Keyed hash of a byte string, for tables whose keys come from strangers.
 *
 * Words of the key are folded two at a time by a 64x64 -> 128 bit multiply whose halves are xored (a "multiply-mix").
 * Each operand is first xored with secret words drawn at start, so that a client cannot choose keys that collide. It is
 * not a cryptographic hash: it resists flooding by a party that sees neither the secret nor the hash values.
 * Short keys (16 bytes or fewer) take two loads and two multiplies. */
#ifndef CORELANE_APPS_KV_HASH_H
#define CORELANE_APPS_KV_HASH_H

#include <corelane/runtime/base.h>
#include <string.h>

/* Secret words; every byte from the kernel's random generator. */
struct kv_secret {
    uint64_t word[4];
};

static inline uint64_t kv_read64(const uint8_t *p)
{
    uint64_t w;
    memcpy(&w, p, 8);
    return w;
}

static inline uint32_t kv_read32(const uint8_t *p)
{
    uint32_t w;
    memcpy(&w, p, 4);
    return w;
}

/* The last n (1..7) bytes of a string of `len` bytes as the low bytes of a word, without reading outside of it. */
static inline uint64_t kv_read_tail(const uint8_t *p, size_t len, unsigned n)
{
    if (len >= 8)
        return kv_read64(p + len - 8) >> (8 * (8 - n));
    const uint8_t *t = p + len - n;
    if (n >= 4)
        return kv_read32(t) | (uint64_t)kv_read32(t + n - 4) << (8 * (n - 4));
    uint64_t w = t[0];
    w |= (uint64_t)t[n >> 1] << (8 * (n >> 1));
    return w | (uint64_t)t[n - 1] << (8 * (n - 1));
}

static inline uint64_t kv_mix(uint64_t a, uint64_t b)
{
    unsigned __int128 m = (unsigned __int128)a * b;
    return (uint64_t)m ^ (uint64_t)(m >> 64);
}

static inline uint64_t kv_hash(const struct kv_secret *s, const uint8_t *key, size_t len)
{
    uint64_t state = s->word[0] ^ len;
    const uint8_t *p = key;
    size_t left = len;
    while (left > 16) {
        state = kv_mix(kv_read64(p) ^ s->word[1], kv_read64(p + 8) ^ state);
        p += 16;
        left -= 16;
    }
    uint64_t a, b;
    if (left > 8) {
        a = kv_read64(p);
        b = kv_read64(p + left - 8);
    } else if (left == 8) {
        a = kv_read64(p);
        b = 0;
    } else {
        a = left ? kv_read_tail(p, left, (unsigned)left) : 0;
        b = 0;
    }
    state = kv_mix(a ^ s->word[1], b ^ state);
    return kv_mix(state ^ s->word[2], len ^ s->word[3]);
}

#endif

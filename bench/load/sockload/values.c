/* Keys and values. A key's name, its length and its value follow from its number, so that every answer can be checked
 * whoever stored it: "k", the number in 16 hexadecimal digits, filled up with letters. */
#include "engine.h"

#include <string.h>

#define CHECKED 64 /* of a long value, at both ends: all of it would take longer than to receive it */

uint64_t cl_mix64(uint64_t x)
{
    struct cl_random r = {x};
    return cl_random_next(&r);
}

unsigned cl_key_write(const struct cl_sockload *s, uint64_t key, uint8_t *out)
{
    static const char digits[] = "0123456789abcdef";
    unsigned n = s->key_bytes[cl_mix64(key ^ 0x6b65797362797465ull) & (s->config.n_key_bytes - 1)];
    unsigned shortest = 1; /* names differ: as many digits as the number has */
    while (shortest < 16 && key >> (4 * shortest))
        shortest++;
    n = cl_max(n, shortest + 1);
    out[0] = 'k';
    for (unsigned i = 1; i < n; i++)
        out[i] = '_';
    unsigned used = cl_min(n - 1, 16u);
    for (unsigned i = 0; i < used; i++)
        out[1 + i] = (uint8_t)digits[key >> (4 * (used - 1 - i)) & 15];
    return n;
}

uint32_t cl_sockload_value_bytes(const struct cl_sockload *s, uint64_t key)
{
    return s->value_bytes[cl_mix64(key ^ 0x76616c7565736279ull) & (s->config.n_value_bytes - 1)];
}

/* Eight letters, which the value repeats. */
static uint64_t word_of(uint64_t key)
{
    return (cl_mix64(key) & 0x0f0f0f0f0f0f0f0full) + 0x6161616161616161ull;
}

void cl_value_write(uint64_t key, uint8_t *out, uint32_t n)
{
    uint64_t word = word_of(key);
    uint32_t i = 0;
    for (; i + 8 <= n; i += 8)
        memcpy(out + i, &word, 8);
    memcpy(out + i, &word, n - i);
}

static bool part_is(uint64_t word, const uint8_t *in, uint32_t from, uint32_t to)
{
    const uint8_t *bytes = (const uint8_t *)&word;
    for (uint32_t i = from; i < to; i++)
        if (in[i] != bytes[i & 7])
            return false;
    return true;
}

bool cl_value_is(uint64_t key, const uint8_t *in, uint32_t n)
{
    uint64_t word = word_of(key);
    if (n <= 2 * CHECKED)
        return part_is(word, in, 0, n);
    return part_is(word, in, 0, CHECKED) && part_is(word, in, n - CHECKED, n);
}

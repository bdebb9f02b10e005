/* Decimal numbers as memcached reads and writes them.
 *
 * Reading follows the C library's strtol family in base 10, as the protocol's reference server uses it: leading white
 * space and a sign are taken; the number must end at white space or at the end of the text; out of range is refused; a
 * minus sign on an unsigned number negates it modulo 2^n and is refused only if the outcome looks negative. */
#ifndef CORELANE_APPS_KV_NUMBER_H
#define CORELANE_APPS_KV_NUMBER_H

#include <corelane/runtime/base.h>

#define KV_DECIMAL_MAX 20 /* digits of 2^64 - 1 */

static inline bool kv_is_space(uint8_t c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Sign and magnitude at the start of a text. False if there is no digit, the magnitude is over 2^64 - 1, or something
 * other than white space follows the digits. */
static inline bool kv_parse_magnitude(const uint8_t *p, size_t len, uint64_t *magnitude, bool *minus)
{
    size_t i = 0;
    while (i < len && kv_is_space(p[i]))
        i++;
    *minus = false;
    if (i < len && (p[i] == '-' || p[i] == '+'))
        *minus = p[i++] == '-';
    size_t first = i;
    uint64_t v = 0;
    bool over = false;
    for (; i < len && p[i] >= '0' && p[i] <= '9'; i++)
        over |= __builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, (uint64_t)(p[i] - '0'), &v);
    *magnitude = v;
    return i > first && !over && (i == len || kv_is_space(p[i]) || p[i] == 0);
}

static inline bool kv_parse_u64(const uint8_t *p, size_t len, uint64_t *out)
{
    uint64_t v;
    bool minus;
    if (!kv_parse_magnitude(p, len, &v, &minus))
        return false;
    if (minus)
        v = 0 - v;
    if (minus && (int64_t)v < 0)
        return false;
    *out = v;
    return true;
}

/* A signed number that must be in the range of 64 bits, of which the low 32 are taken, as memcached does on 64-bit
 * machines. */
static inline bool kv_parse_i32(const uint8_t *p, size_t len, int32_t *out)
{
    uint64_t v;
    bool minus;
    if (!kv_parse_magnitude(p, len, &v, &minus) || v > (minus ? 1ull << 63 : (uint64_t)INT64_MAX))
        return false;
    *out = (int32_t)(uint32_t)(minus ? 0 - v : v);
    return true;
}

/* Write v in decimal at p (KV_DECIMAL_MAX bytes at most); returns how many bytes. */
static inline unsigned kv_format_u64(uint8_t *p, uint64_t v)
{
    if (v < 10) {
        *p = (uint8_t)('0' + v);
        return 1;
    }
    unsigned n = 1;
    for (uint64_t x = v; x >= 10; x /= 10)
        n++;
    for (unsigned i = n; i-- > 0; v /= 10)
        p[i] = (uint8_t)('0' + v % 10);
    return n;
}

#endif

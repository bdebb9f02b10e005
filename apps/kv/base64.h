/* Base64 (RFC 4648, section 4) of keys, as memcached's meta commands take it.
 *
 * Reading is as lenient as memcached's: bytes that are no digits are passed over, and the first group of four that is
 * padded ends the text. What it does not take: a number of digits that is no multiple of four, no digits, or a group
 * with more than two pads. */
#ifndef CORELANE_APPS_KV_BASE64_H
#define CORELANE_APPS_KV_BASE64_H

#include <corelane/runtime/base.h>

#define KV_BASE64_BYTES(n) (((n) + 2) / 3 * 4) /* of n bytes */

/* A digit's six bits, 0 for a pad, -1 for a byte that is neither. */
static inline int kv_base64_digit(uint8_t c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : c == '=' ? 0 : -1;
}

/* Bytes written to out (3/4 of len at most); 0: it is no base64. */
static inline uint32_t kv_base64_decode(const uint8_t *in, uint32_t len, uint8_t *out)
{
    uint32_t digits = 0, group = 0, n = 0, pads = 0;
    for (uint32_t i = 0; i < len; i++)
        digits += kv_base64_digit(in[i]) >= 0;
    if (digits % 4)
        return 0;
    digits = 0;
    for (uint32_t i = 0; i < len && !pads; i++) {
        int digit = kv_base64_digit(in[i]);
        if (digit < 0)
            continue;
        group = group << 6 | (uint32_t)digit;
        if (++digits % 4)
            continue;
        for (uint32_t k = i, seen = 0; seen < 4; k--) {
            seen += kv_base64_digit(in[k]) >= 0;
            pads += in[k] == '=';
        }
        if (pads > 2)
            return 0;
        for (uint32_t k = 0; k < 3 - pads; k++)
            out[n++] = (uint8_t)(group >> (16 - 8 * k));
    }
    return n;
}

/* Write KV_BASE64_BYTES(len) bytes; returns their end. */
static inline uint8_t *kv_base64_encode(uint8_t *out, const uint8_t *in, uint32_t len)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (uint32_t i = 0; i < len; i += 3) {
        uint32_t left = len - i;
        uint32_t group = (uint32_t)in[i] << 16 | (left > 1 ? (uint32_t)in[i + 1] << 8 : 0) | (left > 2 ? in[i + 2] : 0);
        *out++ = (uint8_t)digits[group >> 18];
        *out++ = (uint8_t)digits[group >> 12 & 63];
        *out++ = left > 1 ? (uint8_t)digits[group >> 6 & 63] : '=';
        *out++ = left > 2 ? (uint8_t)digits[group & 63] : '=';
    }
    return out;
}

#endif

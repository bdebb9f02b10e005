/* memcached's binary protocol: layout of requests and answers. Numbers are big endian. Private to apps/kv.
 *
 *   0 magic   1 opcode   2 key bytes (2)   4 extras bytes   5 data type   6 status, or reserved (2)
 *   8 body bytes: extras + key + value (4)   12 opaque (4)   16 unique (8)   24 extras, key, value */
#ifndef CORELANE_APPS_KV_BINARY_H
#define CORELANE_APPS_KV_BINARY_H

#include "command_layout.h"

#define KV_BINARY_HEADER 24
#define KV_BINARY_REQUEST 0x80
#define KV_BINARY_ANSWER 0x81

enum kv_status {
    KV_S_OK = 0,
    KV_S_NOT_FOUND = 1,
    KV_S_EXISTS = 2,
    KV_S_TOO_LARGE = 3,
    KV_S_INVALID = 4,
    KV_S_NOT_STORED = 5,
    KV_S_NON_NUMERIC = 6,
    KV_S_FORBIDDEN = 0x20,
    KV_S_UNKNOWN = 0x81,
    KV_S_NO_MEMORY = 0x82,
    KV_S_NOT_SUPPORTED = 0x83
};

static inline void kv_put_be(uint8_t *p, uint64_t v, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++)
        p[i] = (uint8_t)(v >> 8 * (bytes - 1 - i));
}

static inline uint64_t kv_get_be(const uint8_t *p, unsigned bytes)
{
    uint64_t v = 0;
    for (unsigned i = 0; i < bytes; i++)
        v = v << 8 | p[i];
    return v;
}

/* The header of an answer to a request; returns where its body begins. */
static inline uint8_t *kv_binary_header(uint8_t *p, const uint8_t *request, enum kv_status status, uint32_t extras,
                                        uint32_t key_len, uint64_t value_len, uint64_t cas)
{
    p[0] = KV_BINARY_ANSWER;
    p[1] = request[1];
    kv_put_be(p + 2, key_len, 2);
    p[4] = (uint8_t)extras;
    p[5] = 0;
    kv_put_be(p + 6, status, 2);
    kv_put_be(p + 8, extras + key_len + value_len, 4);
    memcpy(p + 12, request + 12, 4);
    kv_put_be(p + 16, cas, 8);
    return p + KV_BINARY_HEADER;
}

#endif

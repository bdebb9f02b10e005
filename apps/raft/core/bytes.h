/* Integers in little-endian bytes, wherever they lie. */
#ifndef CORELANE_APPS_RAFT_CORE_BYTES_H
#define CORELANE_APPS_RAFT_CORE_BYTES_H

#include <endian.h>
#include <stdint.h>
#include <string.h>

static inline void put32(uint8_t *p, uint32_t v)
{
    v = htole32(v);
    memcpy(p, &v, 4);
}

static inline void put64(uint8_t *p, uint64_t v)
{
    v = htole64(v);
    memcpy(p, &v, 8);
}

static inline uint32_t get32(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, 4);
    return le32toh(v);
}

static inline uint64_t get64(const uint8_t *p)
{
    uint64_t v;
    memcpy(&v, p, 8);
    return le64toh(v);
}

#endif

/* CRC32C of a message, bit by bit of a nibble table. */
#ifndef CORELANE_APPS_RAFT_CRC_H
#define CORELANE_APPS_RAFT_CRC_H

#include "../../runtime/base.h"

/* Checksum of data behind what `crc` is the checksum of; crc 0 to begin. */
static inline uint32_t raft_crc32c(uint32_t crc, const void *data, uint64_t bytes)
{
    static const uint32_t nibble[16] = {0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1, 0x417b1dbc, 0x5125dad3,
                                        0x61c69362, 0x7198540d, 0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9,
                                        0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75};
    const uint8_t *p = data;
    crc = ~crc;
    for (uint64_t i = 0; i < bytes; i++) {
        crc ^= p[i];
        crc = crc >> 4 ^ nibble[crc & 15];
        crc = crc >> 4 ^ nibble[crc & 15];
    }
    return ~crc;
}

#endif

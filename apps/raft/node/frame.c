/* See frame.h. */
#include "frame.h"
#include "../../../libos/storage/crc32c.h"
#include "../core/bytes.h"

#define REQUEST 0x51524c43u
#define ANSWER 0x41524c43u
#define VERSION 1

bool node_frame_is(const uint8_t *data, uint64_t bytes)
{
    return bytes >= NODE_FRAME_HEADER && (get32(data) == REQUEST || get32(data) == ANSWER);
}

uint32_t node_frame_encode(uint64_t cluster, const struct node_frame *f, uint8_t *p)
{
    uint32_t all = NODE_FRAME_HEADER + f->bytes;
    put32(p, f->answer ? ANSWER : REQUEST);
    put32(p + 4, VERSION | (uint32_t)f->kind << 8);
    put32(p + 8, 0);
    put32(p + 12, all);
    put64(p + 16, cluster);
    put32(p + 24, f->from);
    put32(p + 28, f->to);
    put64(p + 32, f->ticket);
    put64(p + 40, f->session);
    put64(p + 48, f->sequence);
    if (f->bytes)
        memcpy(p + NODE_FRAME_HEADER, f->data, f->bytes);
    put32(p + 8, cl_crc32c(0, p, all));
    return all;
}

bool node_frame_begins(uint64_t cluster, const uint8_t *data, uint64_t there, uint64_t bytes, struct node_frame *f)
{
    if (!node_frame_is(data, there) || bytes != get32(data + 12) || data[4] != VERSION || data[6] || data[7] ||
        get64(data + 16) != cluster)
        return false;
    *f = (struct node_frame){.answer = get32(data) == ANSWER,
                             .kind = data[5],
                             .from = get32(data + 24),
                             .to = get32(data + 28),
                             .ticket = get64(data + 32),
                             .session = get64(data + 40),
                             .sequence = get64(data + 48),
                             .bytes = (uint32_t)bytes - NODE_FRAME_HEADER};
    return true;
}

bool node_frame_decode(uint64_t cluster, const uint8_t *data, uint64_t bytes, struct node_frame *f)
{
    static const uint8_t zeros[4];
    if (!node_frame_begins(cluster, data, bytes, bytes, f))
        return false;
    f->data = data + NODE_FRAME_HEADER;
    uint32_t crc = cl_crc32c(cl_crc32c(0, data, 8), zeros, 4);
    return cl_crc32c(crc, data + 12, bytes - 12) == get32(data + 8);
}

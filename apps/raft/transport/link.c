/* See link.h. */
#include "link.h"
#include "../core/bytes.h"
#include <errno.h>

#define MAGIC 0x4c524c43u
#define UDP_HEADERS 28 /* IPv4 and UDP, of the MTU */

void raft_link_init(struct raft_link *link, uint32_t mtu, uint32_t frame_max)
{
    memset(link, 0, sizeof(*link));
    link->pieces.frame_max = frame_max;
    link->pieces.most = RAFT_LINK_PARTIAL;
    link->piece = cl_min(mtu - UDP_HEADERS - RAFT_LINK_HEADER, 65000u);
}

void raft_link_free(struct raft_link *link)
{
    raft_pieces_free(&link->pieces);
}

void raft_link_send(struct raft_link *link, struct cl_udp_socket *socket, const struct cl_udp_addr *to,
                    const uint8_t *data, uint32_t bytes)
{
    uint8_t datagram[9216];
    uint32_t piece = cl_min(link->piece, (uint32_t)sizeof(datagram) - RAFT_LINK_HEADER);
    put32(datagram, MAGIC);
    put32(datagram + 4, link->number++);
    put32(datagram + 8, bytes);
    for (uint32_t i = 0, at = 0; at < bytes || !i; i++, at += piece) {
        uint32_t n = cl_min(piece, bytes - at);
        put32(datagram + 12, i | piece << 16);
        memcpy(datagram + RAFT_LINK_HEADER, data + at, n);
        if (cl_udp_sendto(socket, datagram, RAFT_LINK_HEADER + n, to) < 0) {
            cl_count(&link->not_sent, 1);
            return;
        }
        cl_count(&link->datagrams_out, 1);
    }
    cl_count(&link->frames_out, 1);
}

const uint8_t *raft_link_receive(struct raft_link *link, const struct cl_udp_addr *from, const uint8_t *data,
                                 int64_t len, uint32_t *bytes)
{
    cl_count(&link->datagrams_in, 1);
    if (len < RAFT_LINK_HEADER || get32(data) != MAGIC) {
        cl_count(&link->malformed, 1);
        return NULL;
    }
    struct raft_piece piece = {.sender = (uint64_t)from->ipv4 << 16 | from->port,
                               .frame = get32(data + 4),
                               .bytes = get32(data + 8),
                               .index = get32(data + 12) & 0xffff,
                               .size = get32(data + 12) >> 16,
                               .data = data + RAFT_LINK_HEADER,
                               .n = (uint32_t)len - RAFT_LINK_HEADER};
    const uint8_t *frame = NULL;
    *bytes = piece.bytes;
    if (!piece.index && piece.n == piece.bytes) {
        frame = piece.data; /* the usual case: one datagram, not copied */
    } else {
        int rc = raft_pieces_enter(&link->pieces, &piece, &frame);
        if (rc == -ENOBUFS) {
            cl_count(&link->given_up, 1);
            raft_pieces_give_up(&link->pieces);
            rc = raft_pieces_enter(&link->pieces, &piece, &frame);
        }
        if (rc < 0)
            cl_count(piece.bytes > link->pieces.frame_max ? &link->too_long : &link->malformed, 1);
    }
    if (frame)
        cl_count(&link->frames_in, 1);
    return frame;
}

const uint8_t *raft_link_too_long(const struct raft_link *link, const uint8_t *data, int64_t len, uint32_t *bytes)
{
    if (len < RAFT_LINK_HEADER || get32(data) != MAGIC || get32(data + 8) <= link->pieces.frame_max ||
        (get32(data + 12) & 0xffff))
        return NULL;
    *bytes = get32(data + 8);
    return data + RAFT_LINK_HEADER;
}

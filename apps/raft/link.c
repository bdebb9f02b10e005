/* See link.h. */
#include "link.h"
#include "bytes.h"
#include <stdlib.h>

#define MAGIC 0x4c524c43u
#define UDP_HEADERS 28 /* IPv4 and UDP, of the MTU */

void raft_link_init(struct raft_link *link, uint32_t mtu, uint32_t frame_max)
{
    memset(link, 0, sizeof(*link));
    link->frame_max = frame_max;
    link->piece = cl_min(mtu - UDP_HEADERS - RAFT_LINK_HEADER, 65000u);
}

void raft_link_free(struct raft_link *link)
{
    for (int i = 0; i < RAFT_LINK_PARTIAL; i++)
        free(link->partial[i].data);
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

static struct raft_partial *find_partial(struct raft_link *link, const struct cl_udp_addr *from, uint32_t number)
{
    for (int i = 0; i < RAFT_LINK_PARTIAL; i++) {
        struct raft_partial *p = &link->partial[i];
        if (p->pieces && p->number == number && p->from.ipv4 == from->ipv4 && p->from.port == from->port)
            return p;
    }
    return NULL;
}

static struct raft_partial *begin_partial(struct raft_link *link, const struct cl_udp_addr *from, uint32_t number,
                                          uint32_t bytes, uint32_t size)
{
    struct raft_partial *p = &link->partial[link->next++ % RAFT_LINK_PARTIAL];
    if (p->pieces)
        cl_count(&link->given_up, 1);
    p->pieces = 0;
    if (!p->data)
        p->data = malloc(link->frame_max);
    if (!p->data)
        return NULL;
    memset(p->seen, 0, sizeof(p->seen));
    p->from = *from;
    p->number = number;
    p->bytes = bytes;
    p->size = size;
    p->pieces = (bytes + size - 1) / size;
    p->got = 0;
    return p;
}

/* Enter a piece. The frame if it is whole. */
static const uint8_t *enter_piece(struct raft_link *link, struct raft_partial *p, uint32_t i, const uint8_t *data,
                                  uint32_t n)
{
    uint64_t at = (uint64_t)i * p->size;
    if (i >= p->pieces || n != cl_min((uint64_t)p->size, p->bytes - at)) {
        cl_count(&link->malformed, 1);
        return NULL;
    }
    if (p->seen[i / 64] >> (i % 64) & 1)
        return NULL;
    p->seen[i / 64] |= 1ull << (i % 64);
    memcpy(p->data + at, data, n);
    if (++p->got < p->pieces)
        return NULL;
    p->pieces = 0;
    return p->data;
}

const uint8_t *raft_link_receive(struct raft_link *link, const struct cl_udp_addr *from, const uint8_t *data,
                                 int64_t len, uint32_t *bytes)
{
    cl_count(&link->datagrams_in, 1);
    if (len < RAFT_LINK_HEADER || get32(data) != MAGIC) {
        cl_count(&link->malformed, 1);
        return NULL;
    }
    uint32_t number = get32(data + 4), all = get32(data + 8), word = get32(data + 12);
    uint32_t i = word & 0xffff, size = word >> 16, n = (uint32_t)len - RAFT_LINK_HEADER;
    *bytes = all;
    const uint8_t *frame = NULL;
    if (!i && n == all) {
        frame = data + RAFT_LINK_HEADER; /* the usual case: one datagram, not copied */
    } else if (size && all <= link->frame_max && (all + size - 1) / size <= RAFT_LINK_PIECES) {
        struct raft_partial *p = find_partial(link, from, number);
        if (!p)
            p = begin_partial(link, from, number, all, size);
        if (p && (p->bytes != all || p->size != size))
            cl_count(&link->malformed, 1);
        else if (p)
            frame = enter_piece(link, p, i, data + RAFT_LINK_HEADER, n);
    } else {
        cl_count(&link->malformed, 1);
    }
    if (frame)
        cl_count(&link->frames_in, 1);
    return frame;
}

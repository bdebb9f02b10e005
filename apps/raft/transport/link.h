/* Frames of any length over UDP datagrams, to and from clients; nodes have channel.h between them. A datagram is a
 * piece of a frame, behind 16 bytes, little endian:
 *
 *     0  u32 magic "CLRL"   4  u32 number of the frame, the sender's count   8  u32 bytes of the frame
 *    12  u16 number of the piece   14  u16 bytes of every piece but the last
 *
 * A frame that is not whole when RAFT_LINK_PARTIAL others have been begun since is given up, and so is one of which a
 * piece is lost: a client asks again. There is no acknowledgement here, and no order. */
#ifndef CORELANE_APPS_RAFT_TRANSPORT_LINK_H
#define CORELANE_APPS_RAFT_TRANSPORT_LINK_H

#include <corelane/libos/udp.h>
#include "pieces.h"

#define RAFT_LINK_HEADER 16
#define RAFT_LINK_PARTIAL 8

struct raft_link {
    uint32_t piece; /* bytes of a frame in one datagram */
    uint32_t number;
    struct raft_pieces pieces;
    uint64_t frames_in, frames_out, datagrams_in, datagrams_out, malformed, too_long, given_up, not_sent;
};

void raft_link_init(struct raft_link *link, uint32_t mtu, uint32_t frame_max);
void raft_link_free(struct raft_link *link);
/* Send a frame; what the NIC does not take is lost, counted. On a kthread. */
void raft_link_send(struct raft_link *link, struct cl_udp_socket *socket, const struct cl_udp_addr *to,
                    const uint8_t *data, uint32_t bytes);
/* A datagram came. Returns the frame that it completes (its bytes in *bytes, good until the next call), or NULL. */
const uint8_t *raft_link_receive(struct raft_link *link, const struct cl_udp_addr *from, const uint8_t *data,
                                 int64_t len, uint32_t *bytes);
/* The beginning of a frame longer than any that is taken, if a datagram that completed none is that. *bytes: of the
 * whole frame. */
const uint8_t *raft_link_too_long(const struct raft_link *link, const uint8_t *data, int64_t len, uint32_t *bytes);

#endif

/* Many datagrams of one flow as one super-frame, as Linux passes them over a tap (UDP segmentation offload): taken
 * apart on their way in, put together on their way out, so that a burst costs one system call.
 *
 * A super-frame has the headers of its first datagram, with lengths for all of it, and the datagrams' payloads behind
 * each other: each `size` bytes, the last one maybe fewer. Its struct virtio_net_hdr says so. Taken apart, each gets
 * headers and checksums of its own. Only datagrams that follow each other are put together, of equal headers but for
 * lengths, identification and checksums, and only those whose checksums are right, since Linux will not look at them
 * again: whoever gets them makes new ones.
 *
 * Implemented: UDP over IPv4 (with options, only taken apart) and over IPv6 without extension headers (only taken
 * apart). Not: TCP. Source: VIRTIO 1.3, section 5.1.6; kernel, include/linux/virtio_net.h and drivers/net/tun.c. */
#ifndef CORELANE_DRIVERS_NIC_TAP_SEGMENTS_H
#define CORELANE_DRIVERS_NIC_TAP_SEGMENTS_H

#include <corelane/drivers/nic.h>
#include "../../../runtime/net.h"

#include <linux/virtio_net.h>

#define TAP_SUPER_BYTES (1u << 17) /* more than a super-frame may have: 64 KiB and its headers */
#define TAP_JOIN_MAX 64            /* datagrams of one super-frame: the most that all of Linux' versions take */

/* A super-frame that is being taken apart. Its owner's alone. */
struct tap_super {
    uint8_t *data; /* TAP_SUPER_BYTES */
    uint32_t len, at;
    uint32_t size; /* of payload in each datagram */
    uint32_t udp;  /* where that header begins, behind which the payloads are */
    uint32_t number;
};

/* Begin with a frame of len bytes in s->data. False: it is none that could be taken apart into frames of `most`
 * bytes. */
bool tap_super_begin(struct tap_super *s, uint32_t len, const struct virtio_net_hdr *h, uint32_t most);

static inline bool tap_super_left(const struct tap_super *s)
{
    return s->at < s->len;
}

/* The next frame of it into `out`; returns its bytes. */
uint32_t tap_super_next(struct tap_super *s, uint8_t *out);

/* Make the checksum that Linux left to the device. False: it would be outside of the frame. */
bool tap_checksum(uint8_t *frame, uint32_t len, const struct virtio_net_hdr *h);

/* How many of the frames from the first on may go as one: 1 to TAP_JOIN_MAX. */
unsigned tap_joinable(const struct cl_frame *frames, unsigned n);

/* The headers of n such frames as one: what goes before the payloads. */
void tap_join(const struct cl_frame *frames, unsigned n, struct virtio_net_hdr *h, struct cl_udp_frame *headers);

#endif

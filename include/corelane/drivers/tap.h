/* A TAP device as a NIC: the wire end of a network interface of this host, for machines and containers without XDP.
 *
 *   Linux's stack <-> interface (tapN) <-> /dev/net/tun descriptors, one a queue <-> this NIC
 *
 * What costs: a system call a frame, in both directions, about a microsecond each; io_uring would change the number of
 * calls, not the copies. But datagrams of UDP that a socket sent at once (UDP_SEGMENT) come by one call, and those of
 * one flow that leave one after the other leave by one, and reach a socket that asks for it (UDP_GRO) as one
 * (drivers/nic/tap/segments.h; since Linux 6.2). The contract's "one system call a burst" cannot be kept here; tap is
 * for reach, af_xdp for speed. Linux leaves checksums to this NIC, which makes them: frames are whole and right for its
 * user.
 *
 * Buffers are private memory with one pool, a cache for each queue. A frame that Linux has no room for is counted as
 * dropped by the device. Threads: queue q belongs to its thread, as in nic.h.
 * Source: kernel, Documentation/networking/tuntap.rst. */
#ifndef CORELANE_DRIVERS_TAP_H
#define CORELANE_DRIVERS_TAP_H

#include <corelane/drivers/nic.h>

CL_EXTERN_C_BEGIN

// cffi: begin
struct cl_tap_config {
    const char *ifname; /* "" or with %d lets the kernel choose */
    uint32_t n_queues;
    uint32_t n_buffers;
    uint32_t mtu;
    uint8_t mac[6]; /* of the NIC, which is not the interface's: they are two ends of a wire */
};

/* New NIC on a tap of the calling thread's network namespace, made if it does not exist (needs CAP_NET_ADMIN) or opened
 * if it does and this user owns it. The interface's name goes to ifname (16 bytes). -errno with the reason and the
 * remedy in err (256 bytes). */
CL_API int cl_tap_nic_new(const struct cl_tap_config *config, struct cl_nic **out, char *ifname, char *err);
/* MTU, then address (network byte order, 0: none) and prefix, then up. -errno with the step that failed in err. */
CL_API int cl_tap_set_up(const char *ifname, uint32_t mtu, uint32_t address, uint32_t prefix, char *err);
// cffi: end

CL_EXTERN_C_END
#endif

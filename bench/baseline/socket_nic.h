/* A NIC over a kernel UDP socket: lets the load generator reach a server on this machine's own addresses, without root.
 *
 * One queue, one server. Outgoing frames lose their Ethernet, IPv4 and UDP headers and leave by the socket; what
 * arrives gets headers that say it came from the server to the generator's address. The kernel's stack is then part of
 * what is measured on the client's side too: fit for peaks and for comparing servers that are loaded the same way, not
 * for latencies beside those of other arms. */
#ifndef CORELANE_BENCH_BASELINE_SOCKET_NIC_H
#define CORELANE_BENCH_BASELINE_SOCKET_NIC_H

#include <corelane/drivers/nic.h>

// cffi: begin
struct cl_socket_nic_config {
    uint32_t server_ipv4; /* host byte order */
    uint16_t server_port;
    uint16_t client_port;  /* what the generator takes for its port (its first_port, with one flow) */
    uint32_t client_ipv4;  /* what the generator takes for its address */
    uint8_t client_mac[6]; /* what the generator takes for its MAC */
    uint8_t server_mac[6]; /* and for the server's */
    uint32_t buffers;      /* 0: 4096 */
};

/* -errno with a reason in err. */
CL_API int cl_socket_nic_new(const struct cl_socket_nic_config *config, struct cl_nic **out, char err[256]);
// cffi: end

#endif

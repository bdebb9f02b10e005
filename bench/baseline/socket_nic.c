/* See socket_nic.h. */
#include "socket_nic.h"
#include "../../drivers/nic/single.h"
#include "../../runtime/net.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define BUFFER_BYTES 2048
#define SOCKET_BYTES (4 << 20)

struct socket_nic {
    struct cl_single_nic single;
    struct cl_socket_nic_config config;
    int fd;
};

static unsigned socket_rx(struct cl_nic *nic, unsigned queue, struct cl_frame *frames, unsigned n)
{
    struct socket_nic *s = (struct socket_nic *)nic;
    const struct cl_socket_nic_config *c = &s->config;
    struct mmsghdr msgs[CL_NIC_BURST];
    struct iovec iov[CL_NIC_BURST];
    uint32_t index[CL_NIC_BURST];
    (void)queue;
    unsigned have = cl_pool_get(s->single.pool, 0, index, cl_min(n, (unsigned)CL_NIC_BURST));
    for (unsigned i = 0; i < have; i++) {
        iov[i] = (struct iovec){cl_single_buffer(&s->single, index[i]) + CL_UDP_HEADERS, BUFFER_BYTES - CL_UDP_HEADERS};
        msgs[i].msg_hdr = (struct msghdr){.msg_iov = &iov[i], .msg_iovlen = 1};
    }
    cl_count(&s->single.stats.syscalls, 1); /* relaxed: one writer */
    int got = have ? recvmmsg(s->fd, msgs, have, MSG_DONTWAIT, NULL) : 0;
    unsigned kept = got > 0 ? (unsigned)got : 0; /* errors of earlier sends (refused) are reported here: no frames */
    for (unsigned i = 0; i < kept; i++) {
        uint8_t *data = cl_single_buffer(&s->single, index[i]);
        /* Headers as if the payload had come over a wire. */
        cl_udp_headers((struct cl_udp_frame *)data, c->server_mac, c->client_mac, c->server_ipv4, c->client_ipv4,
                       c->server_port, c->client_port, (uint16_t)msgs[i].msg_len);
        frames[i] = (struct cl_frame){
            .data = data, .buf = index[i], .len = (uint16_t)(CL_UDP_HEADERS + msgs[i].msg_len), .room = BUFFER_BYTES};
        cl_count(&s->single.stats.rx_bytes, frames[i].len);
    }
    cl_count(&s->single.stats.rx_frames, kept);
    cl_pool_put(s->single.pool, 0, index + kept, have - kept);
    return kept;
}

static unsigned socket_tx(struct cl_nic *nic, unsigned queue, struct cl_frame *frames, unsigned n)
{
    struct socket_nic *s = (struct socket_nic *)nic;
    struct mmsghdr msgs[CL_NIC_BURST];
    struct iovec iov[CL_NIC_BURST];
    unsigned taken = 0;
    n = cl_min(n, (unsigned)CL_NIC_BURST);
    for (unsigned i = 0; i < n; i++) {
        bool whole = frames[i].len > CL_UDP_HEADERS;
        iov[i] = (struct iovec){frames[i].data + CL_UDP_HEADERS, whole ? frames[i].len - CL_UDP_HEADERS : 0};
        msgs[i].msg_hdr = (struct msghdr){.msg_iov = &iov[i], .msg_iovlen = 1};
    }
    while (taken < n) {
        int put = sendmmsg(s->fd, msgs + taken, n - taken, MSG_DONTWAIT);
        cl_count(&s->single.stats.syscalls, 1);
        if (put < 0 && errno != ECONNREFUSED) /* that one is an earlier datagram's, told late */
            break;
        taken += put > 0 ? (unsigned)put : 0;
    }
    for (unsigned i = 0; i < taken; i++)
        cl_count(&s->single.stats.tx_bytes, frames[i].len);
    cl_count(&s->single.stats.tx_frames, taken);
    cl_count(&s->single.stats.tx_full, taken < n);
    cl_single_free(nic, queue, frames, taken);
    return taken;
}

static int socket_wait(struct cl_nic *nic, unsigned queue, int64_t timeout_ns)
{
    struct socket_nic *s = (struct socket_nic *)nic;
    (void)queue;
    cl_count(&s->single.stats.syscalls, 1);
    return cl_park_wait_fd(&s->single.parker, s->fd, timeout_ns);
}

static int socket_fd(struct cl_nic *nic, unsigned queue)
{
    (void)queue;
    return ((struct socket_nic *)nic)->fd;
}

static void socket_close(struct cl_nic *nic)
{
    struct socket_nic *s = (struct socket_nic *)nic;
    if (s->fd >= 0)
        close(s->fd);
    if (s->single.parker.event_fd >= 0)
        close(s->single.parker.event_fd);
    cl_single_exit(&s->single);
    free(s);
}

static const struct cl_nic_ops OPS = {.name = "socket",
                                      .rx_burst = socket_rx,
                                      .tx_burst = socket_tx,
                                      .alloc = cl_single_alloc,
                                      .free = cl_single_free,
                                      .parker = cl_single_parker,
                                      .wait = socket_wait,
                                      .stats = cl_single_stats,
                                      .buffers_free = cl_single_buffers_free,
                                      .fd = socket_fd,
                                      .close = socket_close};

static int open_all(struct socket_nic *s)
{
    int bytes = SOCKET_BYTES;
    struct sockaddr_in server = {.sin_family = AF_INET,
                                 .sin_port = htons(s->config.server_port),
                                 .sin_addr.s_addr = htonl(s->config.server_ipv4)};
    s->single.parker.event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    s->fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (s->single.parker.event_fd < 0 || s->fd < 0)
        return -errno;
    setsockopt(s->fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes)); /* or as much as net.core.rmem_max allows */
    return connect(s->fd, (struct sockaddr *)&server, sizeof(server)) == 0 ? 0 : -errno;
}

int cl_socket_nic_new(const struct cl_socket_nic_config *config, struct cl_nic **out, char err[256])
{
    struct socket_nic *s = aligned_alloc(CL_CACHELINE, sizeof(*s));
    if (!s) {
        snprintf(err, 256, "out of memory");
        return -ENOMEM;
    }
    memset(s, 0, sizeof(*s));
    s->config = *config;
    s->fd = -1;
    s->single.nic = (struct cl_nic){.ops = &OPS,
                                    .n_queues = 1,
                                    .n_buffers = config->buffers ? config->buffers : 4096,
                                    .buffer_bytes = BUFFER_BYTES,
                                    .mtu = 1500,
                                    .ipv4 = config->client_ipv4,
                                    .ipv4_prefix = 32};
    memcpy(s->single.nic.mac, config->client_mac, 6);
    int rc = cl_single_init(&s->single);
    if (!rc)
        rc = open_all(s);
    if (rc) {
        snprintf(err, 256, "cannot open a UDP socket to the server: %s", strerror(-rc));
        socket_close(&s->single.nic);
        return rc;
    }
    *out = &s->single.nic;
    return 0;
}

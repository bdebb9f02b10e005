/* See socket_nic.h. */
#include "socket_nic.h"
#include "../../runtime/net.h"
#include "../../runtime/pool.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define BUFFER_BYTES 2048
#define SOCKET_BYTES (4 << 20)

struct socket_nic {
    struct cl_nic nic;
    struct cl_socket_nic_config config;
    struct cl_nic_stats stats; /* writer: the thread that uses the queue; readers: anybody (relaxed) */
    struct cl_pool *pool;
    uint8_t *memory;
    size_t memory_bytes;
    int fd;
    uint32_t park_word;
    struct cl_parker parker;
};

static uint8_t *buffer_of(struct socket_nic *s, uint32_t index)
{
    return s->memory + (size_t)index * BUFFER_BYTES;
}

static unsigned socket_rx(struct cl_nic *nic, unsigned queue, struct cl_frame *frames, unsigned n)
{
    struct socket_nic *s = (struct socket_nic *)nic;
    const struct cl_socket_nic_config *c = &s->config;
    struct mmsghdr msgs[CL_NIC_BURST];
    struct iovec iov[CL_NIC_BURST];
    uint32_t index[CL_NIC_BURST];
    (void)queue;
    unsigned have = cl_pool_get(s->pool, 0, index, cl_min(n, (unsigned)CL_NIC_BURST));
    for (unsigned i = 0; i < have; i++) {
        iov[i] = (struct iovec){buffer_of(s, index[i]) + CL_UDP_HEADERS, BUFFER_BYTES - CL_UDP_HEADERS};
        msgs[i].msg_hdr = (struct msghdr){.msg_iov = &iov[i], .msg_iovlen = 1};
    }
    cl_count(&s->stats.syscalls, 1); /* relaxed: one writer */
    int got = have ? recvmmsg(s->fd, msgs, have, MSG_DONTWAIT, NULL) : 0;
    unsigned kept = got > 0 ? (unsigned)got : 0; /* errors of earlier sends (refused) are reported here: no frames */
    for (unsigned i = 0; i < kept; i++) {
        uint8_t *data = buffer_of(s, index[i]);
        /* Headers as if the payload had come over a wire. */
        cl_udp_headers((struct cl_udp_frame *)data, c->server_mac, c->client_mac, c->server_ipv4, c->client_ipv4,
                       c->server_port, c->client_port, (uint16_t)msgs[i].msg_len);
        frames[i] = (struct cl_frame){
            .data = data, .buf = index[i], .len = (uint16_t)(CL_UDP_HEADERS + msgs[i].msg_len), .room = BUFFER_BYTES};
        cl_count(&s->stats.rx_bytes, frames[i].len);
    }
    cl_count(&s->stats.rx_frames, kept);
    cl_pool_put(s->pool, 0, index + kept, have - kept);
    return kept;
}

static unsigned socket_alloc(struct cl_nic *nic, unsigned queue, struct cl_frame *frames, unsigned n)
{
    struct socket_nic *s = (struct socket_nic *)nic;
    uint32_t index[CL_NIC_BURST];
    (void)queue;
    unsigned got = cl_pool_get(s->pool, 0, index, cl_min(n, (unsigned)CL_NIC_BURST));
    for (unsigned i = 0; i < got; i++)
        frames[i] = (struct cl_frame){.data = buffer_of(s, index[i]), .buf = index[i], .room = BUFFER_BYTES};
    return got;
}

static void socket_free(struct cl_nic *nic, unsigned queue, struct cl_frame *frames, unsigned n)
{
    struct socket_nic *s = (struct socket_nic *)nic;
    (void)queue;
    for (unsigned i = 0; i < n; i++)
        cl_pool_put(s->pool, 0, &frames[i].buf, 1);
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
        cl_count(&s->stats.syscalls, 1);
        if (put < 0 && errno != ECONNREFUSED) /* that one is an earlier datagram's, told late */
            break;
        taken += put > 0 ? (unsigned)put : 0;
    }
    for (unsigned i = 0; i < taken; i++)
        cl_count(&s->stats.tx_bytes, frames[i].len);
    cl_count(&s->stats.tx_frames, taken);
    cl_count(&s->stats.tx_full, taken < n);
    socket_free(nic, queue, frames, taken);
    return taken;
}

static struct cl_parker *socket_parker(struct cl_nic *nic, unsigned queue)
{
    (void)queue;
    return &((struct socket_nic *)nic)->parker;
}

static int socket_wait(struct cl_nic *nic, unsigned queue, int64_t timeout_ns)
{
    struct socket_nic *s = (struct socket_nic *)nic;
    (void)queue;
    cl_count(&s->stats.syscalls, 1);
    return cl_park_wait_fd(&s->parker, s->fd, timeout_ns);
}

static void socket_stats(struct cl_nic *nic, unsigned queue, struct cl_nic_stats *out)
{
    const uint64_t *from = (const uint64_t *)&((struct socket_nic *)nic)->stats;
    (void)queue;
    for (unsigned i = 0; i < sizeof(*out) / 8; i++)
        ((uint64_t *)out)[i] = cl_load_relaxed(&from[i]);
}

static uint32_t socket_buffers_free(struct cl_nic *nic)
{
    return cl_pool_available(((struct socket_nic *)nic)->pool);
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
    if (s->parker.event_fd >= 0)
        close(s->parker.event_fd);
    if (s->pool)
        cl_pool_delete(s->pool);
    if (s->memory && s->memory != MAP_FAILED)
        munmap(s->memory, s->memory_bytes);
    free(s);
}

static const struct cl_nic_ops OPS = {.name = "socket",
                                      .rx_burst = socket_rx,
                                      .tx_burst = socket_tx,
                                      .alloc = socket_alloc,
                                      .free = socket_free,
                                      .parker = socket_parker,
                                      .wait = socket_wait,
                                      .stats = socket_stats,
                                      .buffers_free = socket_buffers_free,
                                      .fd = socket_fd,
                                      .close = socket_close};

static int open_all(struct socket_nic *s)
{
    int bytes = SOCKET_BYTES;
    struct sockaddr_in server = {.sin_family = AF_INET,
                                 .sin_port = htons(s->config.server_port),
                                 .sin_addr.s_addr = htonl(s->config.server_ipv4)};
    s->memory_bytes = (size_t)s->nic.n_buffers * BUFFER_BYTES;
    s->memory = mmap(NULL, s->memory_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    s->pool = cl_pool_new(0, s->nic.n_buffers, 1);
    if (s->memory == MAP_FAILED || !s->pool)
        return -ENOMEM;
    s->parker.event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    s->fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (s->parker.event_fd < 0 || s->fd < 0)
        return -errno;
    setsockopt(s->fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes)); /* or as much as net.core.rmem_max allows */
    return connect(s->fd, (struct sockaddr *)&server, sizeof(server)) == 0 ? 0 : -errno;
}

int cl_socket_nic_new(const struct cl_socket_nic_config *config, struct cl_nic **out, char err[256])
{
    struct socket_nic *s = calloc(1, sizeof(*s));
    if (!s) {
        snprintf(err, 256, "out of memory");
        return -ENOMEM;
    }
    s->config = *config;
    s->fd = -1;
    s->parker = (struct cl_parker){&s->park_word, -1};
    s->nic = (struct cl_nic){.ops = &OPS,
                             .n_queues = 1,
                             .n_buffers = config->buffers ? config->buffers : 4096,
                             .buffer_bytes = BUFFER_BYTES,
                             .mtu = 1500,
                             .ipv4 = config->client_ipv4,
                             .ipv4_prefix = 32};
    memcpy(s->nic.mac, config->client_mac, 6);
    int rc = open_all(s);
    if (rc) {
        snprintf(err, 256, "cannot open a UDP socket to the server: %s", strerror(-rc));
        socket_close(&s->nic);
        return rc;
    }
    *out = &s->nic;
    return 0;
}

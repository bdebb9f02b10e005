/* A driver of your own: a NIC whose wire is a SOCK_SEQPACKET socket, a frame a packet. Two processes that have an end
 * each of a socketpair, or of a connection by a path, have a link, without root and without an iokernel.
 *
 *   cc -O2 -shared -fPIC examples/socket_nic.c -o socket_nic.so $(corelane config --cflags --libs)
 *   config.nic = socket_nic_new(fd, mac, ipv4, 24);             in C: struct cl_runtime_config
 *   nic = Nic.at(library.socket_nic_new(...))                   in Python: docs/tutorial.md
 *
 * It has one queue, and whoever owns that calls all functions but `stats`: nothing here is locked. The contract is that
 * of corelane/drivers/nic.h, and tests/drivers/nic/test_nic.py holds this driver to it as it does all others. */
#include <corelane/drivers/nic.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define BUFFERS 512
#define BUFFER_BYTES 2048
#define MTU 1500
#define ETHERNET_BYTES 14

struct socket_nic {
    struct cl_nic nic; /* first: a pointer to it is one to all of this */
    int fd;
    uint32_t n_free, free[BUFFERS]; /* buffers that nobody has */
    uint32_t park_word;
    struct cl_parker parker;
    struct cl_nic_stats stats;
    uint8_t area[BUFFERS][BUFFER_BYTES];
};

static struct socket_nic *self(struct cl_nic *nic)
{
    return (struct socket_nic *)nic;
}

static unsigned alloc_frames(struct cl_nic *nic, unsigned queue, struct cl_frame *frames, unsigned n)
{
    struct socket_nic *s = self(nic);
    unsigned got = 0;
    (void)queue;
    while (got < n && s->n_free) {
        uint32_t buf = s->free[--s->n_free];
        frames[got++] = (struct cl_frame){.data = s->area[buf], .buf = buf, .room = BUFFER_BYTES};
    }
    cl_count(&s->stats.alloc_short, got < n);
    return got;
}

static void free_frames(struct cl_nic *nic, unsigned queue, struct cl_frame *frames, unsigned n)
{
    struct socket_nic *s = self(nic);
    (void)queue;
    for (unsigned i = 0; i < n; i++)
        s->free[s->n_free++] = frames[i].buf;
}

static unsigned rx_burst(struct cl_nic *nic, unsigned queue, struct cl_frame *frames, unsigned n)
{
    struct socket_nic *s = self(nic);
    unsigned got = 0;
    while (got < n && s->n_free && !nic->gone) { /* without a buffer nothing is read: frames wait in the socket */
        uint32_t buf = s->free[s->n_free - 1];
        ssize_t len = recv(s->fd, s->area[buf], BUFFER_BYTES, MSG_DONTWAIT | MSG_TRUNC);
        cl_count(&s->stats.syscalls, 1);
        if (len == 0 || (len < 0 && errno != EAGAIN && errno != EINTR))
            cl_store_relaxed(&nic->gone, 1); /* the other end has closed; relaxed: it orders nothing */
        if (len <= 0)
            break;
        if (len < ETHERNET_BYTES || len > MTU + ETHERNET_BYTES) {
            cl_count(&s->stats.rx_dropped_malformed, 1);
            continue;
        }
        s->n_free--;
        frames[got++] = (struct cl_frame){.data = s->area[buf], .buf = buf, .len = (uint16_t)len, .room = BUFFER_BYTES};
        cl_count(&s->stats.rx_bytes, (uint64_t)len);
    }
    cl_count(&s->stats.rx_frames, got);
    (void)queue;
    return got;
}

/* False: the socket is full, and the frame stays the caller's. */
static bool send_frame(struct socket_nic *s, const struct cl_frame *frame)
{
    if (frame->len < ETHERNET_BYTES || frame->len > MTU + ETHERNET_BYTES) {
        cl_count(&s->stats.tx_dropped_malformed, 1);
        return true;
    }
    cl_count(&s->stats.syscalls, 1);
    if (send(s->fd, frame->data, frame->len, MSG_DONTWAIT | MSG_NOSIGNAL) == frame->len) {
        cl_count(&s->stats.tx_frames, 1);
        cl_count(&s->stats.tx_bytes, frame->len);
        return true;
    }
    if (errno == EAGAIN || errno == ENOBUFS || errno == EINTR)
        return false;
    cl_count(&s->stats.tx_dropped_error, 1);
    return true;
}

static unsigned tx_burst(struct cl_nic *nic, unsigned queue, struct cl_frame *frames, unsigned n)
{
    unsigned taken = 0;
    while (taken < n && send_frame(self(nic), &frames[taken]))
        taken++;
    cl_count(&self(nic)->stats.tx_full, taken < n);
    free_frames(nic, queue, frames, taken);
    return taken;
}

static struct cl_parker *parker(struct cl_nic *nic, unsigned queue)
{
    (void)queue;
    return &self(nic)->parker;
}

static int wait_frames(struct cl_nic *nic, unsigned queue, int64_t timeout_ns)
{
    (void)queue;
    cl_count(&self(nic)->stats.syscalls, 1);
    return cl_park_wait_fd(&self(nic)->parker, nic->gone ? -1 : self(nic)->fd, timeout_ns);
}

static int socket_fd(struct cl_nic *nic, unsigned queue)
{
    (void)queue;
    return self(nic)->fd;
}

static void stats(struct cl_nic *nic, unsigned queue, struct cl_nic_stats *out)
{
    (void)queue;
    cl_nic_stats_read(&self(nic)->stats, out);
}

static uint32_t buffers_free(struct cl_nic *nic)
{
    return self(nic)->n_free;
}

static void close_nic(struct cl_nic *nic)
{
    close(self(nic)->fd);
    cl_park_close_fd(&self(nic)->parker);
    free(nic);
}

static const struct cl_nic_ops OPS = {
    .name = "socket",
    .rx_burst = rx_burst,
    .tx_burst = tx_burst,
    .alloc = alloc_frames,
    .free = free_frames,
    .parker = parker,
    .wait = wait_frames,
    .stats = stats,
    .buffers_free = buffers_free,
    .fd = socket_fd,
    .close = close_nic,
};

/* A NIC on an end of a link, which is the NIC's from now on. mac: six bytes. ipv4: in host byte order, with its prefix
 * in bits. NULL: no memory, or no descriptor is left; then fd is still the caller's. */
__attribute__((visibility("default"))) struct cl_nic *socket_nic_new(int fd, const uint8_t *mac, uint32_t ipv4,
                                                                     uint32_t prefix)
{
    struct socket_nic *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    if (cl_park_open_fd(&s->parker, &s->park_word) < 0) {
        free(s);
        return NULL;
    }
    s->nic = (struct cl_nic){.ops = &OPS,
                             .n_queues = 1,
                             .n_buffers = BUFFERS,
                             .buffer_bytes = BUFFER_BYTES,
                             .mtu = MTU,
                             .ipv4 = ipv4,
                             .ipv4_prefix = prefix};
    memcpy(s->nic.mac, mac, sizeof s->nic.mac);
    s->fd = fd;
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &(int){1 << 20}, sizeof(int)); /* as much of it as Linux allows */
    for (uint32_t i = 0; i < BUFFERS; i++)
        s->free[s->n_free++] = i;
    return &s->nic;
}

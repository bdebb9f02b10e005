/* See tap.h. */
#include <corelane/drivers/tap.h>

#include "../../../runtime/pool.h"
#include "../../linux/netdev.h"
#include "segments.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define ERR_BYTES 256
#define ETHERNET_BYTES 14
#ifndef TUN_F_USO4 /* since Linux 6.2 */
#define TUN_F_USO4 0x20
#define TUN_F_USO6 0x40
#endif

/* Private to the queue's thread, but for `stats` (read by anybody, relaxed). */
struct queue {
    int fd;
    struct cl_parker parker;
    struct tap_super super;                      /* what rx_burst has not handed out yet */
    uint32_t park_word CL_ALIGNED(CL_CACHELINE); /* written by wakers too: a line of its own */
    struct cl_nic_stats stats CL_ALIGNED(CL_CACHELINE);
} CL_ALIGNED(CL_CACHELINE);

struct tap {
    struct cl_nic nic;
    struct cl_pool *pool;
    uint8_t *area;
    size_t area_bytes;
    int netlink; /* asks for the interface's counters */
    int ifindex;
    bool joins;            /* Linux takes and gives super-frames; constant */
    uint64_t kernel_drops; /* as last answered. Writers: whoever reads statistics. Relaxed: a counter */
    struct queue *queues;
};

static inline struct tap *self(struct cl_nic *nic)
{
    return cl_container_of(nic, struct tap, nic);
}

static inline uint8_t *buffer(const struct tap *t, uint32_t index)
{
    return t->area + (size_t)index * t->nic.buffer_bytes;
}

static void want_gone_check(struct tap *t, int error)
{
    if (error == EBADFD)                   /* the interface was deleted under us */
        cl_store_relaxed(&t->nic.gone, 1); /* relaxed: a flag that only says "stop", it orders nothing */
}

/* The next frame into a buffer. Returns its bytes; 0: it was malformed; < 0: -errno, there is none. */
static int next_frame(struct tap *t, struct queue *q, uint8_t *data)
{
    struct virtio_net_hdr h;
    uint32_t room = t->nic.buffer_bytes, most = t->nic.mtu + ETHERNET_BYTES;
    if (tap_super_left(&q->super))
        return (int)tap_super_next(&q->super, data);
    struct iovec parts[] = {{&h, sizeof h}, {data, room}, {q->super.data + room, TAP_SUPER_BYTES - room}};
    ssize_t got = readv(q->fd, parts, 3);
    cl_count(&q->stats.syscalls, 1);
    if (got < 0)
        return -errno;
    if (got < (ssize_t)sizeof h + ETHERNET_BYTES)
        return 0;
    uint32_t len = (uint32_t)got - (uint32_t)sizeof h;
    if (h.gso_type != VIRTIO_NET_HDR_GSO_NONE) {
        memcpy(q->super.data, data, cl_min(len, room));
        return tap_super_begin(&q->super, len, &h, most) ? (int)tap_super_next(&q->super, data) : 0;
    }
    if (len > most || ((h.flags & VIRTIO_NET_HDR_F_NEEDS_CSUM) && !tap_checksum(data, len, &h)))
        return 0;
    return (int)len;
}

static unsigned rx_burst(struct cl_nic *nic, unsigned queue, struct cl_frame *frames, unsigned n)
{
    struct tap *t = self(nic);
    struct queue *q = &t->queues[queue];
    unsigned got = 0, cache = nic->n_queues + queue; /* whoever steals, while the owner sends and frees by its own */
    uint64_t bytes = 0;
    uint32_t index;
    /* Without a buffer nothing is read: the frames wait in the kernel, and the rest of a super-frame here. */
    while (got < n && cl_pool_get(t->pool, cache, &index, 1)) {
        uint8_t *data = buffer(t, index);
        int len = next_frame(t, q, data);
        if (cl_unlikely(len <= 0))
            cl_pool_put(t->pool, cache, &index, 1);
        if (len < 0) {
            want_gone_check(t, -len);
            break;
        }
        if (cl_unlikely(!len)) {
            cl_count(&q->stats.rx_dropped_malformed, 1);
            continue;
        }
        frames[got++] =
            (struct cl_frame){.data = data, .buf = index, .len = (uint16_t)len, .room = (uint16_t)nic->buffer_bytes};
        bytes += (uint64_t)len;
    }
    cl_count(&q->stats.rx_frames, got);
    cl_count(&q->stats.rx_bytes, bytes);
    return got;
}

/* The rest of a super-frame waits for buffers, and announces itself no more. */
static uint64_t next_tsc(struct cl_nic *nic, unsigned queue)
{
    return tap_super_left(&self(nic)->queues[queue].super) ? 0 : UINT64_MAX;
}

/* Send frames, more than one as a super-frame. False: the device takes no more now. */
static bool send_frames(struct tap *t, struct queue *q, const struct cl_frame *frames, unsigned n)
{
    struct virtio_net_hdr h = {0};
    struct cl_udp_frame headers;
    struct iovec parts[2 + TAP_JOIN_MAX] = {{&h, sizeof h}};
    unsigned n_parts = 1, skip = 0;
    ssize_t all = sizeof h;
    uint64_t bytes = 0;
    if (cl_unlikely(frames->len < ETHERNET_BYTES || frames->len > t->nic.mtu + ETHERNET_BYTES)) {
        cl_count(&q->stats.tx_dropped_malformed, 1); /* it goes alone: such a one is never joined */
        return true;
    }
    if (n > 1) {
        tap_join(frames, n, &h, &headers);
        parts[n_parts++] = (struct iovec){&headers, CL_UDP_HEADERS};
        all += skip = CL_UDP_HEADERS;
    }
    for (unsigned i = 0; i < n; i++) {
        parts[n_parts++] = (struct iovec){frames[i].data + skip, frames[i].len - skip};
        all += frames[i].len - skip;
        bytes += frames[i].len;
    }
    ssize_t sent = writev(q->fd, parts, (int)n_parts);
    cl_count(&q->stats.syscalls, 1);
    if (cl_likely(sent == all)) {
        cl_count(&q->stats.tx_frames, n);
        cl_count(&q->stats.tx_bytes, bytes);
        return true;
    }
    if (sent < 0 && (errno == EAGAIN || errno == ENOBUFS || errno == EINTR))
        return false;
    if (sent < 0)
        want_gone_check(t, errno); /* EIO: the interface is only down */
    cl_count(&q->stats.tx_dropped_error, n);
    return true;
}

static unsigned tx_burst(struct cl_nic *nic, unsigned queue, struct cl_frame *frames, unsigned n)
{
    struct tap *t = self(nic);
    struct queue *q = &t->queues[queue];
    unsigned taken = 0;
    while (taken < n) {
        bool fits = frames[taken].len <= nic->mtu + ETHERNET_BYTES;
        unsigned together = t->joins && fits ? tap_joinable(&frames[taken], n - taken) : 1;
        if (!send_frames(t, q, &frames[taken], together)) {
            cl_count(&q->stats.tx_full, 1);
            break;
        }
        for (; together; together--)
            cl_pool_put(t->pool, queue, &frames[taken++].buf, 1);
    }
    return taken;
}

static unsigned alloc_frames(struct cl_nic *nic, unsigned queue, struct cl_frame *frames, unsigned n)
{
    struct tap *t = self(nic);
    uint32_t index[CL_NIC_BURST];
    n = cl_min(n, (unsigned)CL_NIC_BURST);
    unsigned got = cl_pool_get(t->pool, queue, index, n);
    if (cl_unlikely(got < n))
        cl_count(&t->queues[queue].stats.alloc_short, 1);
    for (unsigned i = 0; i < got; i++)
        frames[i] =
            (struct cl_frame){.data = buffer(t, index[i]), .buf = index[i], .room = (uint16_t)nic->buffer_bytes};
    return got;
}

static void free_frames(struct cl_nic *nic, unsigned queue, struct cl_frame *frames, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        cl_pool_put(self(nic)->pool, queue, &frames[i].buf, 1);
}

static struct cl_parker *parker(struct cl_nic *nic, unsigned queue)
{
    return &self(nic)->queues[queue].parker;
}

static int wait_frames(struct cl_nic *nic, unsigned queue, int64_t timeout_ns)
{
    struct queue *q = &self(nic)->queues[queue];
    bool gone = cl_load_relaxed(&nic->gone); /* then its descriptor shows an error for ever */
    if (tap_super_left(&q->super))
        timeout_ns = 0;
    cl_count(&q->stats.syscalls, 1);
    return cl_park_wait_fd(&q->parker, gone ? -1 : q->fd, timeout_ns);
}

static void stats(struct cl_nic *nic, unsigned queue, struct cl_nic_stats *out)
{
    cl_nic_stats_read(&self(nic)->queues[queue].stats, out);
    if (queue == 0) { /* the kernel does not say for which queue it dropped */
        struct tap *t = self(nic);
        uint64_t drops = cl_load_relaxed(&t->kernel_drops);
        if (cl_netdev_tx_dropped(t->netlink, t->ifindex, &drops) == 0)
            cl_store_relaxed(&t->kernel_drops, drops);
        out->rx_dropped_ring_full += drops; /* of a deleted interface: as last answered */
    }
}

static uint32_t buffers_free(struct cl_nic *nic)
{
    return cl_pool_available(self(nic)->pool);
}

static int queue_fd(struct cl_nic *nic, unsigned queue)
{
    return self(nic)->queues[queue].fd;
}

static void destroy(struct cl_nic *nic)
{
    struct tap *t = self(nic);
    for (unsigned i = 0; t->queues && i < nic->n_queues; i++) {
        if (t->queues[i].fd >= 0) {
            ioctl(t->queues[i].fd, TUNSETOFFLOAD, 0ul); /* of an interface that stays: for whoever opens it next */
            close(t->queues[i].fd);
        }
        cl_park_close_fd(&t->queues[i].parker);
    }
    if (t->netlink >= 0)
        close(t->netlink);
    if (t->area)
        munmap(t->area, t->area_bytes);
    cl_pool_delete(t->pool);
    free(t->queues);
    free(t);
}

static const struct cl_nic_ops OPS = {
    .name = "tap",
    .rx_burst = rx_burst,
    .tx_burst = tx_burst,
    .alloc = alloc_frames,
    .free = free_frames,
    .parker = parker,
    .wait = wait_frames,
    .stats = stats,
    .buffers_free = buffers_free,
    .fd = queue_fd,
    .close = destroy,
    .next_tsc = next_tsc,
};

static int open_queue(struct queue *q, const char *ifname, bool several, char *chosen, char *err)
{
    int rc = cl_park_open_fd(&q->parker, &q->park_word);
    if (rc) {
        snprintf(err, ERR_BYTES, "an eventfd for tap %s: %s", ifname, strerror(-rc));
        return rc;
    }
    q->fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (q->fd < 0) {
        int code = -errno;
        bool missing = code == -ENOENT || code == -ENODEV || code == -ENXIO || code == -EPERM;
        snprintf(err, ERR_BYTES, "/dev/net/tun: %s%s", strerror(-code),
                 missing ? " (the tun driver is missing: `modprobe tun`; in a container give it the device)"
                 : code == -EACCES
                     ? " (as root let this user open it: `setfacl -m u:NAME:rw /dev/net/tun`, of package acl; and, "
                       "if he has no network namespace, make a tap for him: `ip tuntap add dev cl0 mode tap user NAME`)"
                     : "");
        return code;
    }
    struct ifreq request = {.ifr_flags = (short)(IFF_TAP | IFF_NO_PI | IFF_VNET_HDR | (several ? IFF_MULTI_QUEUE : 0))};
    snprintf(request.ifr_name, sizeof request.ifr_name, "%s", ifname);
    if (ioctl(q->fd, TUNSETIFF, &request)) {
        int code = -errno;
        const char *hint = code == -EPERM
                               ? ": needs CAP_NET_ADMIN, or a tap made for you: `ip tuntap add dev NAME mode "
                                 "tap user $USER`"
                           : code == -EBUSY  ? ": somebody holds it; taps with one queue have one user"
                           : code == -EINVAL ? ": it exists with another number of queues (multi_queue) or is no tap"
                           : code == -E2BIG  ? ": it has no more queues"
                                             : "";
        snprintf(err, ERR_BYTES, "tap %s: %s%s", ifname, strerror(-code), hint);
        return code;
    }
    memcpy(chosen, request.ifr_name, IFNAMSIZ);
    return 0;
}

static int allocate(struct tap *t, const struct cl_tap_config *c, char *err)
{
    size_t bytes = c->n_queues * sizeof(struct queue), frames = (size_t)c->n_buffers * t->nic.buffer_bytes;
    t->queues = aligned_alloc(CL_CACHELINE, bytes);
    t->pool = cl_pool_new(0, c->n_buffers, 2 * c->n_queues); /* of the queues, then of receiving */
    t->area_bytes = frames + (size_t)c->n_queues * TAP_SUPER_BYTES;
    void *area = mmap(NULL, t->area_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    t->area = area == MAP_FAILED ? NULL : area;
    if (t->queues) {
        memset(t->queues, 0, bytes);
        for (unsigned i = 0; i < c->n_queues; i++) {
            t->queues[i].fd = t->queues[i].parker.event_fd = -1;
            if (t->area)
                t->queues[i].super.data = t->area + frames + (size_t)i * TAP_SUPER_BYTES;
        }
    }
    if (t->queues && t->pool && t->area)
        return 0;
    snprintf(err, ERR_BYTES, "out of memory for %u buffers of %u bytes", c->n_buffers, t->nic.buffer_bytes);
    return -ENOMEM;
}

static int check(const struct cl_tap_config *c, char *err)
{
    if (c->n_queues < 1 || c->n_queues > CL_NIC_MAX_QUEUES)
        snprintf(err, ERR_BYTES, "%u queues: from 1 to %d are possible", c->n_queues, CL_NIC_MAX_QUEUES);
    else if (c->mtu < 68 || c->mtu > 16000)
        snprintf(err, ERR_BYTES, "MTU %u: from 68 to 16000 are possible", c->mtu);
    else if (c->n_buffers < c->n_queues * CL_NIC_BURST)
        snprintf(err, ERR_BYTES, "%u buffers: at least %u are needed", c->n_buffers, c->n_queues * CL_NIC_BURST);
    else if (strlen(c->ifname) >= IFNAMSIZ)
        snprintf(err, ERR_BYTES, "interface name %.32s: at most 15 characters are possible", c->ifname);
    else
        return 0;
    return -EINVAL;
}

int cl_tap_nic_new(const struct cl_tap_config *c, struct cl_nic **out, char *ifname, char *err)
{
    int r = check(c, err);
    if (r)
        return r;
    struct tap *t = calloc(1, sizeof *t);
    if (!t)
        return -ENOMEM;
    t->nic = (struct cl_nic){.ops = &OPS, .n_queues = c->n_queues, .n_buffers = c->n_buffers, .mtu = c->mtu};
    /* One byte more than the longest frame, so that a longer one shows; then whole cache lines. */
    t->nic.buffer_bytes = (c->mtu + ETHERNET_BYTES + 1 + CL_CACHELINE - 1) / CL_CACHELINE * CL_CACHELINE;
    memcpy(t->nic.mac, c->mac, 6);
    t->netlink = -1;
    r = allocate(t, c, err);
    snprintf(ifname, IFNAMSIZ, "%s", c->ifname);
    for (unsigned i = 0; !r && i < c->n_queues; i++) {
        char name[IFNAMSIZ];
        memcpy(name, ifname, IFNAMSIZ); /* from the second queue on the name that the kernel chose */
        r = open_queue(&t->queues[i], name, c->n_queues > 1, ifname, err);
    }
    if (r) {
        destroy(&t->nic);
        return r;
    }
    /* Linux' stack hands over bursts of a socket as they are, and lets us make checksums. Since 6.2; before, one by
     * one. */
    t->joins = !ioctl(t->queues[0].fd, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_USO4 | TUN_F_USO6);
    t->nic.tx_joins = t->joins;
    t->ifindex = (int)if_nametoindex(ifname);
    t->netlink = cl_netdev_open(); /* without it that counter stays 0 */
    *out = &t->nic;
    return 0;
}

static int set_address(int fd, struct ifreq *request, unsigned long command, uint32_t address)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = address};
    memcpy(&request->ifr_addr, &a, sizeof a);
    return ioctl(fd, command, request);
}

/* Whether the interface has this address and prefix already. */
static bool has_address(int fd, struct ifreq *request, uint32_t address, uint32_t mask)
{
    struct sockaddr_in a = {0}, m = {0};
    if (ioctl(fd, SIOCGIFADDR, request))
        return false;
    memcpy(&a, &request->ifr_addr, sizeof a);
    if (ioctl(fd, SIOCGIFNETMASK, request))
        return false;
    memcpy(&m, &request->ifr_netmask, sizeof m);
    return a.sin_addr.s_addr == address && m.sin_addr.s_addr == mask;
}

/* What root is to type for it. */
static void by_root(char *out, size_t room, const char *ifname, uint32_t mtu, uint32_t address, uint32_t prefix)
{
    char text[INET_ADDRSTRLEN], add[96] = "";
    if (address && inet_ntop(AF_INET, &address, text, sizeof text))
        snprintf(add, sizeof add, "ip address replace %s/%u dev %s && ", text, prefix, ifname);
    snprintf(out, room, "as root run `%sip link set %s up mtu %u`", add, ifname, mtu);
}

int cl_tap_set_up(const char *ifname, uint32_t mtu, uint32_t address, uint32_t prefix, char *err)
{
    struct ifreq request = {0};
    uint32_t mask = htonl(prefix ? ~0u << (32 - prefix) : 0);
    snprintf(request.ifr_name, sizeof request.ifr_name, "%s", ifname);
    const char *step = "socket";
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    int r = fd < 0 ? -1 : 0;
    /* What is so already takes no privilege: root may have prepared the interface for this user. */
    if (!r && (ioctl(fd, SIOCGIFMTU, &request) || request.ifr_mtu != (int)mtu)) {
        step = "setting the MTU";
        request.ifr_mtu = (int)mtu;
        r = ioctl(fd, SIOCSIFMTU, &request);
    }
    if (!r && address && !has_address(fd, &request, address, mask)) {
        step = "setting the address";
        r = set_address(fd, &request, SIOCSIFADDR, address);
        if (!r)
            r = set_address(fd, &request, SIOCSIFNETMASK, mask);
    }
    if (!r) {
        step = "setting it up";
        r = ioctl(fd, SIOCGIFFLAGS, &request);
        bool up = request.ifr_flags & IFF_UP;
        request.ifr_flags |= IFF_UP;
        if (!r && !up)
            r = ioctl(fd, SIOCSIFFLAGS, &request);
    }
    int code = r ? -errno : 0;
    char hint[192] = "";
    if (code == -EPERM)
        by_root(hint, sizeof hint, ifname, mtu, address, prefix);
    if (code)
        snprintf(err, ERR_BYTES, "tap %s: %s: %s%s%s", ifname, step, strerror(-code), *hint ? ": " : "", hint);
    if (fd >= 0)
        close(fd);
    return code;
}

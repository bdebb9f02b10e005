/* See xsk.h. Set-up only: nothing here is on a hot path but cl_xsk_kick. */
#include "xsk.h"

#include <errno.h>
#include <linux/if_xdp.h>
#include <net/if.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Newer than the headers of Debian 12. */
#ifndef SO_PREFER_BUSY_POLL
#define SO_PREFER_BUSY_POLL 69
#define SO_BUSY_POLL_BUDGET 70
#endif
#define OPT_MAX_TX_SKB_BUDGET 9 /* XDP_MAX_TX_SKB_BUDGET, Linux 6.17 */

#define HUGE_BYTES (2u << 20)

CL_PRINTF(3, 4)
static int fail(char err[CL_ERR_BYTES], int code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(err, CL_ERR_BYTES, format, args);
    va_end(args);
    return code;
}

int cl_umem_init(struct cl_umem *u, uint32_t n_chunks, uint32_t chunk_bytes, char err[CL_ERR_BYTES])
{
    *u = (struct cl_umem){.fd = -1, .chunk_bytes = chunk_bytes, .n_chunks = n_chunks};
    if (chunk_bytes != 2048 && chunk_bytes != 4096)
        return fail(err, -EINVAL, "UMEM frames of %u bytes: AF_XDP takes 2048 or 4096", chunk_bytes);
    u->area_bytes = (uint64_t)n_chunks * chunk_bytes;
    u->map_bytes = u->area_bytes + HUGE_BYTES;
    u->map = mmap(NULL, u->map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (u->map == MAP_FAILED) {
        u->map = NULL;
        return fail(err, -ENOMEM, "no memory for a UMEM of %llu bytes: ask for fewer buffers",
                    (unsigned long long)u->area_bytes);
    }
    u->area = (uint8_t *)(((uintptr_t)u->map + HUGE_BYTES - 1) & ~(uintptr_t)(HUGE_BYTES - 1));
    /* A hint: with huge pages one TLB entry covers 1024 frames. Only whole ones, so that no memory is taken in vain. */
    if (u->area_bytes >= HUGE_BYTES)
        madvise(u->area, u->area_bytes & ~(uint64_t)(HUGE_BYTES - 1), MADV_HUGEPAGE);
    return 0;
}

void cl_umem_exit(struct cl_umem *u)
{
    if (u->map)
        munmap(u->map, u->map_bytes);
    u->map = NULL;
    u->area = NULL;
    u->fd = -1;
}

static int map_ring(struct cl_xsk_ring *r, int fd, const struct xdp_ring_offset *at, uint32_t size, size_t entry_bytes,
                    uint64_t page_offset)
{
    size_t bytes = at->desc + size * entry_bytes;
    void *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, (off_t)page_offset);
    if (map == MAP_FAILED)
        return -errno;
    char *base = map;
    *r = (struct cl_xsk_ring){
        .producer = (uint32_t *)(base + at->producer),
        .consumer = (uint32_t *)(base + at->consumer),
        .flags = (uint32_t *)(base + at->flags),
        .entries = base + at->desc,
        .mask = size - 1,
        .size = size,
        .map = map,
        .map_bytes = bytes,
    };
    return 0;
}

static int size_rings(int fd, const struct cl_xsk_config *c, char err[CL_ERR_BYTES])
{
    const struct {
        int option;
        uint32_t size;
        const char *name;
    } rings[] = {
        {XDP_UMEM_FILL_RING, c->fill_size, "fill"},
        {XDP_UMEM_COMPLETION_RING, c->tx_size, "completion"},
        {XDP_RX_RING, c->rx_size, "rx"},
        {XDP_TX_RING, c->tx_size, "tx"},
    };
    for (unsigned i = 0; i < 4; i++)
        if (setsockopt(fd, SOL_XDP, rings[i].option, &rings[i].size, sizeof rings[i].size))
            return fail(err, -errno, "%s ring of %u entries: %s (a power of two is needed)", rings[i].name,
                        rings[i].size, strerror(errno));
    return 0;
}

static int map_rings(struct cl_xsk *x, const struct cl_xsk_config *c, char err[CL_ERR_BYTES])
{
    struct xdp_mmap_offsets at;
    socklen_t length = sizeof at;
    if (getsockopt(x->fd, SOL_XDP, XDP_MMAP_OFFSETS, &at, &length))
        return fail(err, -errno, "XDP_MMAP_OFFSETS: %s", strerror(errno));
    if (length < sizeof at)
        return fail(err, -ENOTSUP, "this kernel's AF_XDP is too old (ring flags are missing): Linux 5.10 is needed");
    int r = map_ring(&x->fill, x->fd, &at.fr, c->fill_size, sizeof(uint64_t), XDP_UMEM_PGOFF_FILL_RING);
    if (!r)
        r = map_ring(&x->completion, x->fd, &at.cr, c->tx_size, sizeof(uint64_t), XDP_UMEM_PGOFF_COMPLETION_RING);
    if (!r)
        r = map_ring(&x->rx, x->fd, &at.rx, c->rx_size, sizeof(struct xdp_desc), XDP_PGOFF_RX_RING);
    if (!r)
        r = map_ring(&x->tx, x->fd, &at.tx, c->tx_size, sizeof(struct xdp_desc), XDP_PGOFF_TX_RING);
    return r ? fail(err, r, "mapping the rings: %s", strerror(-r)) : 0;
}

static int register_umem(struct cl_xsk *x, struct cl_umem *u, char err[CL_ERR_BYTES])
{
    /* Without the tx_metadata_len field: the kernel takes the older, shorter struct as well. */
    struct xdp_umem_reg reg = {.addr = (uintptr_t)u->area, .len = u->area_bytes, .chunk_size = u->chunk_bytes};
    if (setsockopt(x->fd, SOL_XDP, XDP_UMEM_REG, &reg, sizeof reg)) {
        int code = -errno;
        if (code == -ENOBUFS || code == -ENOMEM)
            return fail(err, code,
                        "registering %llu bytes of UMEM: %s: locked memory is too small; raise `ulimit -l`, run with "
                        "CAP_IPC_LOCK, or ask for fewer buffers",
                        (unsigned long long)u->area_bytes, strerror(-code));
        return fail(err, code, "registering the UMEM: %s", strerror(-code));
    }
    u->fd = x->fd;
    return 0;
}

/* Everything optional: a kernel that does not know one of these works without it. */
static void tune(int fd, const struct cl_xsk_config *c)
{
    /* In copy mode every frame in flight charges an skb to the socket. */
    int bytes = (int)c->tx_size * 2048;
    if (setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof bytes))
        setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
    /* Frames that one sendto sends in copy mode; 32 unless said, which would make two calls of a burst of 64. */
    uint32_t budget = c->tx_size;
    setsockopt(fd, SOL_XDP, OPT_MAX_TX_SKB_BUDGET, &budget, sizeof budget);
    if (c->busy_poll_us) {
        int one = 1, us = (int)c->busy_poll_us, frames = 64;
        setsockopt(fd, SOL_SOCKET, SO_PREFER_BUSY_POLL, &one, sizeof one);
        setsockopt(fd, SOL_SOCKET, SO_BUSY_POLL, &us, sizeof us);
        setsockopt(fd, SOL_SOCKET, SO_BUSY_POLL_BUDGET, &frames, sizeof frames);
    }
}

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static int bind_error(char err[CL_ERR_BYTES], int code, const struct cl_xsk_config *c, uint32_t queue)
{
    const char *hint = "";
    if (code == -EBUSY)
        hint = ": another socket holds this queue; end its owner (`ss -lx` and `bpftool net` help to find it)";
    else if (code == -EINVAL)
        hint = ": the device has no such queue (see `ethtool -l`), or its MTU is too large for the UMEM frames";
    else if (code == -ENETDOWN)
        hint = ": the interface is down; `ip link set DEV up`";
    else if (code == -EOPNOTSUPP || code == -EPROTONOSUPPORT)
        hint = ": the driver has no zero-copy AF_XDP; use copy mode";
    else if (code == -EPERM)
        hint = ": needs CAP_NET_RAW (run as root)";
    else if (code == -ENOBUFS || code == -ENOMEM)
        hint = ": locked memory is too small; raise `ulimit -l`";
    return fail(err, code, "binding to %s queue %u: %s%s", c->ifname, queue, strerror(-code), hint);
}

static int bind_queue(struct cl_xsk *x, const struct cl_umem *u, const struct cl_xsk_config *c, uint32_t queue,
                      bool shared, char err[CL_ERR_BYTES])
{
    struct sockaddr_xdp a = {.sxdp_family = AF_XDP, .sxdp_ifindex = if_nametoindex(c->ifname), .sxdp_queue_id = queue};
    if (shared) { /* the other flags are inherited */
        a.sxdp_flags = XDP_SHARED_UMEM;
        a.sxdp_shared_umem_fd = (uint32_t)u->fd;
    } else {
        a.sxdp_flags = c->need_wakeup ? XDP_USE_NEED_WAKEUP : 0;
        if (c->copy_mode == CL_XSK_COPY)
            a.sxdp_flags |= XDP_COPY;
        else if (c->copy_mode == CL_XSK_ZEROCOPY)
            a.sxdp_flags |= XDP_ZEROCOPY;
    }
    int64_t deadline = now_ms() + c->bind_deadline_ms;
    for (;;) {
        if (!bind(x->fd, (struct sockaddr *)&a, sizeof a))
            return 0;
        int code = -errno;
        /* The kernel frees a queue in a work item some time (20 ms were seen) after its last socket was closed. */
        if (code != -EBUSY || now_ms() >= deadline)
            return bind_error(err, code, c, queue);
        nanosleep(&(struct timespec){0, 500000}, NULL);
    }
}

int cl_xsk_open(struct cl_xsk *x, struct cl_umem *u, const struct cl_xsk_config *c, uint32_t queue,
                char err[CL_ERR_BYTES])
{
    *x = (struct cl_xsk){.fd = -1, .need_wakeup = c->need_wakeup};
    if (!if_nametoindex(c->ifname))
        return fail(err, -ENODEV, "no interface %s in this network namespace (see `ip link`)", c->ifname);
    x->fd = socket(AF_XDP, SOCK_RAW | SOCK_CLOEXEC, 0);
    if (x->fd < 0) {
        int code = -errno;
        const char *hint = code == -EPERM          ? ": needs CAP_NET_RAW (run as root)"
                           : code == -EAFNOSUPPORT ? ": the kernel was built without CONFIG_XDP_SOCKETS"
                                                   : "";
        return fail(err, code, "opening an AF_XDP socket: %s%s", strerror(-code), hint);
    }
    bool shared = u->fd >= 0;
    int r = shared ? 0 : register_umem(x, u, err);
    if (!r)
        r = size_rings(x->fd, c, err);
    if (!r)
        r = map_rings(x, c, err);
    if (!r) {
        tune(x->fd, c);
        r = bind_queue(x, u, c, queue, shared, err);
    }
    if (r) {
        if (u->fd == x->fd)
            u->fd = -1;
        cl_xsk_close(x);
        return r;
    }
    struct xdp_options options = {0};
    socklen_t length = sizeof options;
    if (!getsockopt(x->fd, SOL_XDP, XDP_OPTIONS, &options, &length))
        x->zero_copy = options.flags & XDP_OPTIONS_ZEROCOPY;
    return 0;
}

void cl_xsk_close(struct cl_xsk *x)
{
    struct cl_xsk_ring *rings[] = {&x->fill, &x->completion, &x->rx, &x->tx};
    for (unsigned i = 0; i < 4; i++) {
        if (rings[i]->map)
            munmap(rings[i]->map, rings[i]->map_bytes);
        rings[i]->map = NULL;
    }
    if (x->fd >= 0)
        close(x->fd);
    x->fd = -1;
}

/* Not through sendto(): that is a cancellation point, whose book-keeping shows in the round trip of an echo. */
int cl_xsk_kick(struct cl_xsk *x)
{
    return syscall(SYS_sendto, x->fd, NULL, 0, MSG_DONTWAIT, NULL, 0) < 0 ? -errno : 0;
}

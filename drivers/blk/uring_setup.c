/* Rings: making and freeing them, and registering memory. See uring.h. */
#include "uring.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define LOOK_NS 10000000 /* between polls for completions while closing */

static long enroll(const struct cl_uring_ring *r, unsigned what, const void *arg, unsigned n)
{
    return syscall(__NR_io_uring_register, r->fd, what, arg, n) < 0 ? -errno : 0;
}

static int put_region(const struct cl_uring_ring *r, uint32_t at, const struct iovec *iov)
{
    struct io_uring_rsrc_update2 update = {.offset = at, .data = (uintptr_t)iov, .nr = 1};
    return (int)enroll(r, IORING_REGISTER_BUFFERS_UPDATE, &update, sizeof update);
}

static int uring_register(struct cl_blk *blk, unsigned queue, void *ptr, uint64_t bytes)
{
    struct cl_uring_ring *r = cl_uring_ring_of(blk, queue);
    struct iovec iov = {ptr, bytes};
    uint32_t at = 0;
    while (at < r->n_regions && r->regions[at].iov_len)
        at++;
    if (!r->fixed_buffers)
        return -EOPNOTSUPP;
    if (at == CL_URING_REGIONS)
        return -ENOSPC;
    int rc = put_region(r, at, &iov);
    if (rc)
        return rc;
    r->regions[at] = iov;
    r->n_regions = cl_max(r->n_regions, at + 1);
    return 0;
}

static void uring_unregister(struct cl_blk *blk, unsigned queue, void *ptr)
{
    struct cl_uring_ring *r = cl_uring_ring_of(blk, queue);
    struct iovec none = {0};
    for (uint32_t i = 0; i < r->n_regions; i++) {
        if (r->regions[i].iov_len == 0 || r->regions[i].iov_base != ptr)
            continue;
        put_region(r, i, &none); /* if it is refused the kernel keeps the pages, and we make no use of them */
        r->regions[i] = none;
        return;
    }
}

static void ring_delete(struct cl_uring_ring *r)
{
    if (r->map)
        munmap(r->map, r->map_bytes);
    if (r->sqe_map)
        munmap(r->sqe_map, r->sqe_bytes);
    if (r->fd >= 0) {
        /* A ring is taken down some time after its close: until then it would hold the file open, and a device
         * claimed. */
        syscall(__NR_io_uring_register, r->fd, IORING_UNREGISTER_FILES, NULL, 0);
        close(r->fd);
    }
    if (r->event_fd >= 0)
        close(r->event_fd);
}

static void uring_delete(struct cl_uring *u, unsigned n)
{
    for (unsigned i = 0; u && u->rings && i < n; i++)
        ring_delete(&u->rings[i]);
    if (u)
        free(u->rings);
    free(u);
}

static uint64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* Whether all of a queue's requests came back. What fails to wait is tried again, since the kernel goes on with
 * them. */
static bool drain(struct cl_blk *blk, unsigned queue)
{
    const struct cl_uring_ring *r = cl_uring_ring_of(blk, queue);
    struct cl_blk_req *done[64];
    for (uint64_t last_ms = now_ms(); r->in_flight && now_ms() - last_ms < CL_BLK_CLOSE_MS;) {
        if (blk->ops->poll(blk, queue, done, 64))
            last_ms = now_ms();
        else if (blk->ops->wait(blk, queue, LOOK_NS))
            nanosleep(&(struct timespec){.tv_nsec = LOOK_NS}, NULL);
    }
    return !r->in_flight;
}

/* Closing a ring does not wait for what is in flight: the kernel gives up a ring in a worker, and until then writes to
 * the buffers. So where completions do not come (a disk that hangs, a ring that somebody closed) the ring, the memory
 * mapped from it and the file with its lock stay as they are, for good. */
static int uring_close(struct cl_blk *blk)
{
    struct cl_blk_file *f = (struct cl_blk_file *)blk;
    for (unsigned i = 0; i < blk->n_queues; i++)
        if (!drain(blk, i))
            return -EBUSY;
    uring_delete(f->engine, blk->n_queues);
    cl_blk_file_delete(f);
    return 0;
}

static int map_ring(struct cl_uring_ring *r, const struct io_uring_params *p)
{
    r->map_bytes = cl_max(p->sq_off.array + p->sq_entries * sizeof(uint32_t),
                          p->cq_off.cqes + p->cq_entries * sizeof(struct io_uring_cqe));
    r->sqe_bytes = p->sq_entries * sizeof(struct io_uring_sqe);
    int prot = PROT_READ | PROT_WRITE, flags = MAP_SHARED | MAP_POPULATE;
    void *map = mmap(NULL, r->map_bytes, prot, flags, r->fd, IORING_OFF_SQ_RING);
    r->map = map == MAP_FAILED ? NULL : map;
    void *sqes = mmap(NULL, r->sqe_bytes, prot, flags, r->fd, IORING_OFF_SQES);
    r->sqe_map = sqes == MAP_FAILED ? NULL : sqes;
    if (!r->map || !r->sqe_map)
        return -errno;
    uint8_t *base = r->map;
    r->sq_head = (uint32_t *)(void *)(base + p->sq_off.head);
    r->sq_tail = (uint32_t *)(void *)(base + p->sq_off.tail);
    r->sq_flags = (uint32_t *)(void *)(base + p->sq_off.flags);
    r->sq_mask = *(uint32_t *)(void *)(base + p->sq_off.ring_mask);
    r->cq_head = (uint32_t *)(void *)(base + p->cq_off.head);
    r->cq_tail = (uint32_t *)(void *)(base + p->cq_off.tail);
    r->cq_flags = (uint32_t *)(void *)(base + p->cq_off.flags);
    r->cq_mask = *(uint32_t *)(void *)(base + p->cq_off.ring_mask);
    r->cqes = (struct io_uring_cqe *)(void *)(base + p->cq_off.cqes);
    r->sqes = r->sqe_map;
    uint32_t *array = (uint32_t *)(void *)(base + p->sq_off.array);
    for (uint32_t i = 0; i < p->sq_entries; i++)
        array[i] = i;
    return 0;
}

/* A request has two entries at most. Completions are to run in our own thread when it enters the kernel, and to say
 * that they wait (kernel 5.19); without that the kernel interrupts the thread for each. */
static int ring_new(struct cl_blk_file *f, struct cl_uring_ring *r, const struct cl_blk_file_config *c)
{
    uint32_t flags = IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG | IORING_SETUP_SUBMIT_ALL;
    struct io_uring_params p = {.flags = c->sqpoll ? IORING_SETUP_SQPOLL | IORING_SETUP_SUBMIT_ALL : flags,
                                .sq_thread_idle = c->sqpoll_idle_ms ? c->sqpoll_idle_ms : 10};
    r->fd = (int)syscall(__NR_io_uring_setup, 2 * f->blk.depth, &p);
    if (r->fd < 0 && errno == EINVAL) {
        uint32_t idle = p.sq_thread_idle;
        p = (struct io_uring_params){.flags = c->sqpoll ? IORING_SETUP_SQPOLL : 0, .sq_thread_idle = idle};
        r->fd = (int)syscall(__NR_io_uring_setup, 2 * f->blk.depth, &p);
    }
    if (r->fd < 0)
        return -errno;
    uint32_t needed = IORING_FEAT_SINGLE_MMAP | IORING_FEAT_NODROP | IORING_FEAT_EXT_ARG;
    if ((p.features & needed) != needed)
        return -ENOSYS;
    r->sqpoll = c->sqpoll;
    int rc = map_ring(r, &p);
    if (rc)
        return rc;
    return syscall(__NR_io_uring_register, r->fd, IORING_REGISTER_FILES, &f->fd, 1) < 0 ? -errno : 0;
}

static bool sparse_buffers(const struct cl_uring_ring *r)
{
    struct io_uring_rsrc_register table = {.nr = CL_URING_REGIONS, .flags = IORING_RSRC_REGISTER_SPARSE};
    return syscall(__NR_io_uring_register, r->fd, IORING_REGISTER_BUFFERS2, &table, sizeof table) == 0;
}

/* A ring whose thread that looks for submissions is refused (a limit of processes, an old kernel that allows it to root
 * alone) does without one, and says so. */
static int ring_start(struct cl_blk_file *f, struct cl_uring_ring *r, struct cl_blk_file_config *c)
{
    int rc = ring_new(f, r, c);
    if (!rc || !c->sqpoll || rc == -ENOSYS)
        return rc;
    ring_delete(r);
    *r = (struct cl_uring_ring){.fd = -1, .event_fd = -1};
    c->sqpoll = 0;
    int without = ring_new(f, r, c);
    if (without == 0) {
        char why[128];
        snprintf(why, sizeof why, "the kernel's polling thread is refused (%s): submissions enter the kernel",
                 strerror(-rc));
        cl_blk_file_remark(f, why);
    }
    return without;
}

static const struct cl_blk_ops uring_ops = {
    .name = "file",
    .submit = cl_uring_submit,
    .poll = cl_uring_poll,
    .wait = cl_uring_wait,
    .fd = cl_uring_fd,
    .arm = cl_uring_arm,
    .register_memory = uring_register,
    .unregister_memory = uring_unregister,
    .stats = cl_uring_stats,
    .close = uring_close,
    .ready = cl_uring_ready,
    .wait_word = cl_uring_wait_word,
    .keep = cl_uring_keep,
    .settle = cl_uring_settle,
};

int cl_blk_uring_start(struct cl_blk_file *f, const struct cl_blk_file_config *config, char *err)
{
    unsigned n = f->blk.n_queues;
    struct cl_blk_file_config c = *config;
    struct cl_uring *u = calloc(1, sizeof(*u));
    if (!u || !(u->rings = aligned_alloc(CL_CACHELINE, n * sizeof(*u->rings)))) {
        free(u);
        return cl_blk_file_refuse(err, -ENOMEM, "out of memory");
    }
    for (unsigned i = 0; i < n; i++)
        u->rings[i] = (struct cl_uring_ring){.fd = -1, .event_fd = -1};
    for (unsigned i = 0; i < n; i++) {
        int rc = ring_start(f, &u->rings[i], &c);
        if (rc) {
            uring_delete(u, n);
            return cl_blk_file_refuse(err, rc, "io_uring is refused (%s)%s", strerror(-rc),
                                      rc == -EPERM ? ": see kernel.io_uring_disabled, or the container's seccomp filter"
                                      : rc == -ENOSYS ? ": it needs Linux 5.11"
                                                      : "");
        }
        u->rings[i].fixed_buffers = sparse_buffers(&u->rings[i]);
    }
    f->engine = u;
    f->blk.ops = &uring_ops;
    f->info.engine = CL_BLK_ENGINE_URING;
    f->info.sqpoll = c.sqpoll != 0;
    return 0;
}

/* Making, starting, stopping and taking apart an iokernel. By the controlling thread. */
#include "../state/internal.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

#define DEFAULT_SPIN_US 50
#define DEFAULT_PAUSE_US 200
#define DEFAULT_COMMAND_TIMEOUT_MS 5000
#define DEFAULT_FLOODS_PER_S 250
#define DEFAULT_FLOODS_BURST 64
#define HEARTBEAT_NS 1000000
#define FENCE_NS 1000    /* see wake.c */
#define QUIET_NS 1000000 /* see ../switch/doorbell.h */

static int make_state(struct cl_io *io, char *err)
{
    uint64_t loops = CL_SHM_PAGE, cores = loops + io->config.n_loops * sizeof(struct cl_state_loop);
    cores = (cores + CL_SHM_PAGE - 1) / CL_SHM_PAGE * CL_SHM_PAGE;
    uint64_t kthreads = cores + CL_SHM_MAX_CORES * sizeof(struct cl_state_core);
    uint64_t bytes = kthreads + CL_SHM_MAX_SLOTS * sizeof(struct cl_state_kthread);
    int rc = cl_memory_create("corelane-state", bytes, CL_MEMORY_PEERS_READ, &io->state, err);
    if (rc < 0)
        return rc;
    *(struct cl_state_header *)io->state.base = (struct cl_state_header){.magic = CL_STATE_MAGIC,
                                                                         .version = CL_SHM_VERSION,
                                                                         .n_loops = io->config.n_loops,
                                                                         .generation = io->config.generation,
                                                                         .never_sleeps = io->config.poll == CL_IO_SPIN,
                                                                         .pid = (uint32_t)getpid(),
                                                                         .loops_offset = loops,
                                                                         .cores_offset = cores,
                                                                         .total_bytes = bytes,
                                                                         .n_cores = CL_SHM_MAX_CORES,
                                                                         .manages_cores = io->config.manage_cores,
                                                                         .kthreads_offset = kthreads};
    return 0;
}

static struct io_handover *handover_new(uint32_t stride)
{
    struct io_handover *h = aligned_alloc(CL_CACHELINE, sizeof *h);
    if (!h)
        return NULL;
    memset(h, 0, sizeof *h);
    h->stride = stride;
    h->frames = malloc((size_t)IO_HANDOVER_SLOTS * stride);
    cl_ring_tx_init(&h->tx, h->slots, &h->head, IO_HANDOVER_SLOTS);
    cl_ring_rx_init(&h->rx, h->slots, &h->head, IO_HANDOVER_SLOTS);
    return h;
}

static int make_loop(struct cl_io *io, uint32_t index, char *err)
{
    struct io_loop *loop = &io->loops[index];
    loop->io = io;
    loop->index = index;
    loop->epoll_fd = loop->event_fd = -1;
    loop->mtu_frame = io->config.mtu + CL_ETH_HLEN;
    loop->state = (struct cl_state_loop *)((uint8_t *)io->state.base + CL_SHM_PAGE) + index;
    cl_ring_rx_init(&loop->commands, loop->command_slots, &loop->command_head, IO_COMMANDS);
    cl_ring_tx_init(&loop->commands_tx, loop->command_slots, &loop->command_head, IO_COMMANDS);
    /* Every kthread that can exist; touched only as far as they do. */
    loop->touched = malloc((size_t)CL_IO_MAX_APPS * CL_SHM_MAX_KTHREADS * sizeof *loop->touched);
    loop->uplinks = calloc(CL_IO_MAX_UPLINKS, sizeof *loop->uplinks);
    loop->in = calloc(io->config.n_loops, sizeof *loop->in);
    loop->out = calloc(io->config.n_loops, sizeof *loop->out);
    if (!loop->touched || !loop->uplinks || !loop->in || !loop->out)
        return snprintf(err, IO_ERR_BYTES, "out of memory for loop %u", index), -ENOMEM;
    int rc = io->config.manage_cores ? io_cores_init(loop, err) : 0;
    return rc < 0 ? rc : io_idle_init(loop, err);
}

static int connect_loops(struct cl_io *io, char *err)
{
    uint32_t stride = (io->config.mtu + CL_ETH_HLEN + CL_CACHELINE) / CL_CACHELINE * CL_CACHELINE + CL_CACHELINE;
    for (uint32_t from = 0; from < io->config.n_loops; from++)
        for (uint32_t to = 0; to < io->config.n_loops; to++) {
            if (from == to)
                continue;
            struct io_handover *h = handover_new(stride);
            io->loops[from].out[to] = io->loops[to].in[from] = h;
            if (!h || !h->frames)
                return snprintf(err, IO_ERR_BYTES, "out of memory for rings between loops"), -ENOMEM;
        }
    return 0;
}

static int check_config(struct cl_io_config *c, char *err)
{
    c->n_loops = c->n_loops ? c->n_loops : 1;
    c->mtu = c->mtu ? c->mtu : 1500;
    c->spin_us = c->spin_us == CL_IO_NO_TIME ? 0 : c->spin_us ? c->spin_us : DEFAULT_SPIN_US;
    c->pause_us = c->pause_us == CL_IO_NO_TIME ? 0 : c->pause_us ? c->pause_us : DEFAULT_PAUSE_US;
    c->command_timeout_ms = c->command_timeout_ms ? c->command_timeout_ms : DEFAULT_COMMAND_TIMEOUT_MS;
    c->rss_key = c->rss_key ? c->rss_key : CL_RSS_KEY;
    c->floods_per_s = c->floods_per_s ? c->floods_per_s : DEFAULT_FLOODS_PER_S;
    c->floods_burst = c->floods_burst ? c->floods_burst : DEFAULT_FLOODS_BURST;
    while (c->generation == 0)
        if (getrandom(&c->generation, sizeof c->generation, 0) < 0) {
            int code = errno;
            snprintf(err, IO_ERR_BYTES, "getrandom: %s", strerror(code));
            return -code;
        }
    if (c->n_loops > CL_SHM_MAX_LOOPS || c->poll > CL_IO_BLOCK || c->mtu < 68 || c->mtu > CL_SHM_MAX_BUFFER_BYTES - 64)
        return snprintf(err, IO_ERR_BYTES, "at most %d loops, a polling mode of 0 to %d, an MTU of 68 to %d",
                        CL_SHM_MAX_LOOPS, CL_IO_BLOCK, CL_SHM_MAX_BUFFER_BYTES - 64),
               -EINVAL;
    return io_cores_check(c, err);
}

int cl_io_new(const struct cl_io_config *config, struct cl_io **out, char *err)
{
    struct cl_io *io = calloc(1, sizeof *io);
    if (!io)
        return snprintf(err, IO_ERR_BYTES, "out of memory for an iokernel"), -ENOMEM;
    io->config = *config;
    int rc = check_config(&io->config, err);
    if (rc == 0 && io->config.tsc_hz)
        rc = cl_clock_from_hz(&io->own_clock, io->config.tsc_hz, 0, 0);
    if (rc == 0) {
        io->clock = io->config.tsc_hz ? &io->own_clock : cl_clock_default();
        io->spin_ticks = (uint64_t)cl_ns_to_ticks(io->clock, (int64_t)io->config.spin_us * 1000);
        io->pause_ticks = (uint64_t)cl_ns_to_ticks(io->clock, (int64_t)io->config.pause_us * 1000);
        io->heartbeat_ticks = (uint64_t)cl_ns_to_ticks(io->clock, HEARTBEAT_NS);
        io->quiet_ticks = (uint64_t)cl_ns_to_ticks(io->clock, QUIET_NS);
        io->fence_ticks = (uint64_t)cl_ns_to_ticks(io->clock, FENCE_NS);
        io->greedy_ticks = (uint64_t)cl_ns_to_ticks(io->clock, GREEDY_NS);
        io->loops = aligned_alloc(CL_CACHELINE, io->config.n_loops * sizeof *io->loops);
        rc = io->loops ? make_state(io, err) : -ENOMEM;
    }
    if (io->loops)
        memset(io->loops, 0, io->config.n_loops * sizeof *io->loops);
    for (uint32_t i = 0; rc == 0 && i < io->config.n_loops; i++)
        rc = make_loop(io, i, err);
    if (rc == 0)
        rc = connect_loops(io, err);
    if (rc < 0) {
        cl_io_delete(io);
        return rc;
    }
    *out = io;
    return 0;
}

/* Each loop that polls queues of the uplink has its part. */
static void init_floods(const struct cl_io *io, struct io_uplink *u)
{
    uint32_t per_s = io->config.floods_per_s, loops = cl_min(io->config.n_loops, u->nic->n_queues);
    uint64_t now = io->config.tsc_hz ? 0 : cl_tsc(); /* a clock of the caller's starts at 0 */
    cl_bucket_init(&u->floods, per_s == CL_IO_NO_LIMIT ? 0 : cl_max(per_s / loops, 1u), io->config.floods_burst, true,
                   io->clock->hz, now);
}

int cl_io_add_uplink(struct cl_io *io, struct cl_nic *nic, bool share_mac, char *err)
{
    if (io->running || io->n_uplinks == CL_IO_MAX_UPLINKS)
        return snprintf(err, IO_ERR_BYTES, "uplinks, at most %d, are added before the start", CL_IO_MAX_UPLINKS),
               -EBUSY;
    if (nic->mtu < io->config.mtu)
        return snprintf(err, IO_ERR_BYTES, "the uplink carries packets of %u bytes, the iokernel's MTU is %u: lower it",
                        nic->mtu, io->config.mtu),
               -EINVAL;
    for (uint32_t l = 0; l < io->config.n_loops; l++) {
        struct io_loop *loop = &io->loops[l];
        struct io_uplink *u = &loop->uplinks[loop->n_uplinks];
        u->nic = nic;
        u->mac = io_mac(nic->mac);
        u->share_mac = share_mac;
        loop->shares_mac |= share_mac;
        init_floods(io, u);
        u->has_tx = l < nic->n_queues;
        u->tx_queue = l % nic->n_queues; /* without a queue of its own: the loop that sends for this one */
        for (uint32_t q = l; q < nic->n_queues; q += io->config.n_loops) {
            int fd = nic->ops->fd(nic, q);
            struct cl_parker *p = fd < 0 ? nic->ops->parker(nic, q) : NULL;
            if (p) {
                cl_store_relaxed(&p->event_fd, loop->event_fd); /* whoever fills this queue wakes our epoll_wait */
                loop->event_fd_shared = true;
            }
            int rc = fd >= 0 ? io_idle_watch(loop, fd, false) : 0;
            if (rc < 0 && rc != -EEXIST)
                return snprintf(err, IO_ERR_BYTES, "cannot watch the uplink's descriptor: %s", strerror(-rc)), rc;
        }
        loop->n_uplinks++;
    }
    io->nics[io->n_uplinks++] = nic;
    return 0;
}

/* Start one loop's thread; it inherits no signal, those are the controlling thread's. */
static int start_loop(struct io_loop *loop, char *err)
{
    int cpu = loop->io->config.cpus[loop->index];
    if (cpu >= CPU_SETSIZE)
        return snprintf(err, IO_ERR_BYTES, "CPU %d does not exist", cpu), -EINVAL;
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    if (cpu >= 0) {
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET((unsigned)cpu, &set);
        pthread_attr_setaffinity_np(&attr, sizeof set, &set);
    }
    int rc = pthread_create(&loop->thread, &attr, io_loop_main, loop);
    pthread_attr_destroy(&attr);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (rc)
        return snprintf(err, IO_ERR_BYTES, "cannot start loop %u on CPU %d: %s", loop->index, cpu, strerror(rc)), -rc;
    char name[16];
    snprintf(name, sizeof name, "cl-loop-%u", loop->index);
    pthread_setname_np(loop->thread, name);
    loop->running = true;
    return 0;
}

int cl_io_start(struct cl_io *io, char *err)
{
    if (io->running)
        return snprintf(err, IO_ERR_BYTES, "already running"), -EALREADY;
    io->running = true;
    for (uint32_t l = 0; l < io->config.n_loops; l++) {
        cl_store_relaxed(&io->loops[l].stop, 0);
        int rc = start_loop(&io->loops[l], err);
        if (rc < 0) {
            cl_io_stop(io);
            return rc;
        }
    }
    return 0;
}

void cl_io_stop(struct cl_io *io)
{
    for (uint32_t l = 0; l < io->config.n_loops; l++) {
        struct io_loop *loop = &io->loops[l];
        if (!loop->running)
            continue;
        cl_store_relaxed(&loop->stop, 1);
        uint64_t one = 1;
        ssize_t ignored = write(loop->event_fd, &one, sizeof one);
        (void)ignored;
    }
    for (uint32_t l = 0; l < io->config.n_loops; l++) {
        if (io->loops[l].running)
            pthread_join(io->loops[l].thread, NULL);
        io->loops[l].running = false;
    }
    io->running = false;
}

void cl_io_give_back(struct cl_io *io)
{
    cl_io_stop(io);
    io->given_back = true;
    for (struct io_app *app = io->config.manage_cores ? io->apps : NULL; app; app = app->next)
        for (uint32_t k = 0; k < app->n_kthreads && app->cores.pid; k++)
            io_before_restore(&app->kthreads[k]);
}

/* Frames that wait in our hands belong to the uplink's NIC, and its parkers no longer lead to us. */
static void return_frames(struct io_loop *loop, struct io_uplink *u)
{
    for (uint32_t q = loop->index; q < u->nic->n_queues; q += loop->io->config.n_loops) {
        struct cl_parker *p = u->nic->ops->fd(u->nic, q) < 0 ? u->nic->ops->parker(u->nic, q) : NULL;
        if (p)
            cl_store_relaxed(&p->event_fd,
                             CL_PARK_FUTEX); /* relaxed: who reads the old one writes to a descriptor that stays */
    }
    if (!u->has_tx)
        return;
    for (uint32_t i = 0; i < u->n_staged; i += CL_NIC_BURST)
        u->nic->ops->free(u->nic, u->tx_queue, u->staged + i, cl_min(u->n_staged - i, (uint32_t)CL_NIC_BURST));
    if (u->n_spare)
        u->nic->ops->free(u->nic, u->tx_queue, u->spare, u->n_spare);
    u->n_staged = u->n_spare = 0;
}

static void free_loop(struct cl_io *io, struct io_loop *loop)
{
    for (uint32_t i = 0; loop->uplinks && i < loop->n_uplinks; i++)
        return_frames(loop, &loop->uplinks[i]);
    for (uint32_t i = 0; loop->out && i < io->config.n_loops; i++)
        if (loop->out[i]) {
            free(loop->out[i]->frames);
            free(loop->out[i]);
        }
    if (loop->io)
        io_idle_close(loop);
    io_cores_free(loop);
    free(loop->touched);
    free(loop->uplinks);
    free(loop->in);
    free(loop->out);
}

void cl_io_delete(struct cl_io *io)
{
    char err[IO_ERR_BYTES];
    if (!io)
        return;
    if (io->loops) {
        cl_io_give_back(io);
        while (io->apps && cl_io_app_remove(io, io->apps->id, NULL, err) == 0)
            continue;
        for (uint32_t l = 0; l < io->config.n_loops; l++)
            free_loop(io, &io->loops[l]);
    }
    free(io->loops);
    cl_memory_close(&io->state);
    free(io);
}

int cl_io_state_fd(const struct cl_io *io)
{
    return io->state.fd;
}

uint64_t cl_io_state_bytes(const struct cl_io *io)
{
    return io->state.bytes;
}

uint64_t cl_io_generation(const struct cl_io *io)
{
    return io->config.generation;
}

uint32_t cl_io_mtu(const struct cl_io *io)
{
    return io->config.mtu;
}

bool cl_io_step(struct cl_io *io, uint32_t loop, uint64_t now)
{
    return io_round(&io->loops[loop], now);
}

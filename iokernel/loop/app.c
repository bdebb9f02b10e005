/* Registration and removal, by the controlling thread: everything that allocates or may block. The loops are told by
 * commands (command.c).
 *
 * Removal: every loop forgets the application and says so; only then is its memory unmapped. A loop whose core was
 * taken away does not say so in time: the application is then doomed, keeps its address, and removing it is tried
 * again. */
#include "../switch/members.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define WAKES_PER_S 250000
#define WAKES_BURST 64
/* What has its pages from the start, lest the loop pay for them: not more, whatever was asked for. All else takes
 * memory when it is used. */
#define PREFAULT_BUFFERS 256 /* receive buffers, but not more than so many bytes */
#define PREFAULT_BUFFER_BYTES (1u << 20)
#define PREFAULT_RING_BYTES (512u << 10) /* all rings together: a page takes a microsecond */

static void app_free(struct io_app *app)
{
    if (!app)
        return;
    cl_memory_close(&app->memory);
    if (app->doorbell_fd >= 0)
        close(app->doorbell_fd);
    if (app->group)
        io_group_leave(app);
    free(app->kthreads);
    free(app->free);
    free(app->lent);
    free(app->asking);
    cl_hist_delete(app->cores.detection);
    cl_hist_delete(app->cores.actuation);
    free(app);
}

static uint32_t first_buffers(const struct cl_arena_layout *l)
{
    return cl_min(l->n_rx, cl_min((uint32_t)PREFAULT_BUFFERS, PREFAULT_BUFFER_BYTES / l->buffer_stride));
}

/* The first slots of the rings of a kind, as many of each. */
static void populate_rings(struct io_app *app, uint64_t offset, uint32_t slots)
{
    uint32_t kthreads = app->layout.n_kthreads;
    uint64_t ring = (uint64_t)slots * sizeof(struct cl_desc), most = PREFAULT_RING_BYTES / (2 * kthreads);
    if (ring <= most) {
        cl_memory_populate(&app->memory, offset, ring * kthreads);
        return;
    }
    for (uint32_t k = 0; k < kthreads; k++)
        cl_memory_populate(&app->memory, offset + k * ring, most);
}

static void prefault(struct io_app *app)
{
    const struct cl_arena_layout *l = &app->layout;
    cl_memory_populate(&app->memory, 0, l->rx_offset);
    populate_rings(app, l->rx_offset, l->rx_slots);
    populate_rings(app, l->tx_offset, l->tx_slots);
    cl_memory_populate(&app->memory, l->buffers_offset, (uint64_t)first_buffers(l) * l->buffer_stride);
}

static int make_arena(struct cl_io *io, struct io_app *app, const char *name, char *err)
{
    struct cl_arena_layout *l = &app->layout;
    int rc = cl_memory_create("corelane-arena", l->total_bytes, io->config.memory_flags, &app->memory, err);
    if (rc < 0)
        return rc;
    struct cl_arena_header *h = app->memory.base;
    *h = (struct cl_arena_header){.magic = CL_ARENA_MAGIC,
                                  .version = CL_SHM_VERSION,
                                  .n_kthreads = l->n_kthreads,
                                  .rx_slots = l->rx_slots,
                                  .tx_slots = l->tx_slots,
                                  .n_rx = l->n_rx,
                                  .n_tx = l->n_tx,
                                  .buffer_bytes = l->buffer_bytes,
                                  .buffer_stride = l->buffer_stride,
                                  .lines_offset = l->lines_offset,
                                  .rx_offset = l->rx_offset,
                                  .tx_offset = l->tx_offset,
                                  .buffers_offset = l->buffers_offset,
                                  .total_bytes = l->total_bytes,
                                  .generation = io->config.generation,
                                  .doorbell_offset = cl_doorbell_offset(io->next_id)};
    app->doorbell = (struct cl_arena_doorbell *)((uint8_t *)app->memory.base + h->doorbell_offset);
    memcpy(h->name, name, sizeof h->name - 1);
    prefault(app);
    app->doorbell_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (app->doorbell_fd < 0) {
        rc = -errno;
        snprintf(err, IO_ERR_BYTES, "cannot make a doorbell: %s", strerror(-rc));
        return rc;
    }
    return 0;
}

static void make_kthreads(struct io_app *app)
{
    const struct cl_arena_layout *l = &app->layout;
    struct cl_arena_kthread *lines = (struct cl_arena_kthread *)((uint8_t *)app->memory.base + l->lines_offset);
    struct cl_desc *rx = (struct cl_desc *)((uint8_t *)app->memory.base + l->rx_offset);
    struct cl_desc *tx = (struct cl_desc *)((uint8_t *)app->memory.base + l->tx_offset);
    for (uint32_t k = 0; k < l->n_kthreads; k++) {
        struct io_kthread *kt = &app->kthreads[k];
        cl_ring_tx_init(&kt->rx, rx + (size_t)k * l->rx_slots, &lines[k].rx_head, l->rx_slots);
        cl_ring_rx_init(&kt->tx, tx + (size_t)k * l->tx_slots, &lines[k].tx_head, l->tx_slots);
        kt->park = &lines[k].park;
        kt->lines = &lines[k];
        kt->app = app;
        kt->sampled = true;
    }
    app->fresh = app->n_free = first_buffers(l);
    for (uint32_t i = 0; i < app->n_free; i++)
        app->free[i] = app->n_free - 1 - i; /* low indices first */
}

static struct io_app *app_new(struct cl_io *io, const struct cl_io_app_config *c, int *rc, char *err)
{
    struct cl_arena_layout l = c->layout;
    *rc = cl_arena_layout_init(&l);
    if (*rc < 0) {
        snprintf(err, IO_ERR_BYTES, "impossible arena: %u kthreads, rings of %u and %u, %u and %u buffers of %u bytes",
                 l.n_kthreads, l.rx_slots, l.tx_slots, l.n_rx, l.n_tx, l.buffer_bytes);
        return NULL;
    }
    struct io_app *app = aligned_alloc(CL_CACHELINE, sizeof *app);
    *rc = -ENOMEM;
    snprintf(err, IO_ERR_BYTES, "out of memory for an application");
    if (!app)
        return NULL;
    memset(app, 0, sizeof *app);
    app->doorbell_fd = -1;
    app->layout = l;
    app->mac = io_mac(c->mac);
    app->ip_be = cl_be32(c->ipv4);
    app->loop = c->loop;
    app->n_kthreads = l.n_kthreads;
    app->n_rx = l.n_rx;
    app->n_buffers = l.n_rx + l.n_tx;
    app->buffer_bytes = l.buffer_bytes;
    app->stride = l.buffer_stride;
    app->any_ethertype = c->any_ethertype;
    app->kthreads = aligned_alloc(CL_CACHELINE, l.n_kthreads * sizeof *app->kthreads);
    app->free = malloc(l.n_rx * sizeof *app->free);
    app->lent = calloc(l.n_rx, 1);
    if (app->kthreads)
        memset(app->kthreads, 0, l.n_kthreads * sizeof *app->kthreads);
    if (app->kthreads && app->free && app->lent)
        *rc = make_arena(io, app, c->name, err);
    if (*rc < 0) {
        app_free(app);
        return NULL;
    }
    app->buffers = (uint8_t *)app->memory.base + l.buffers_offset;
    make_kthreads(app);
    const struct cl_io_limits *lim = &c->limits;
    uint64_t hz = io->clock->hz, now = io->config.tsc_hz ? 0 : cl_tsc(); /* a clock of the caller's starts at 0 */
    cl_bucket_init(&app->frames, lim->frames_per_s, lim->burst_frames ? lim->burst_frames : 64, true, hz, now);
    cl_bucket_init(&app->bytes, lim->bytes_per_s, cl_max(lim->burst_bytes ? lim->burst_bytes : 65536, l.buffer_bytes),
                   false, hz, now);
    cl_bucket_init(&app->wakes, WAKES_PER_S, WAKES_BURST, true, hz, now);
    uint32_t floods_per_s = io->config.floods_per_s;
    cl_bucket_init(&app->floods, floods_per_s == CL_IO_NO_LIMIT ? 0 : floods_per_s, io->config.floods_burst, true, hz,
                   now);
    *rc = c->members > 1 ? io_group_enter(io, app, c, err) : 0;
    if (*rc == 0 && io->config.manage_cores)
        *rc = io_allot(io, app, c, err);
    if (*rc < 0) {
        app_free(app);
        return NULL;
    }
    return app;
}

/* What an application may not have, since another has it or it makes no sense. */
static int check_config(const struct cl_io *io, const struct cl_io_app_config *c, char *err)
{
    if (io->n_apps == CL_IO_MAX_APPS)
        return snprintf(err, IO_ERR_BYTES, "%d applications are attached already", CL_IO_MAX_APPS), -ENOSPC;
    if (c->loop >= io->config.n_loops || cl_mac_is_group(c->mac) || io_mac(c->mac) == 0 || c->ipv4 == 0)
        return snprintf(err, IO_ERR_BYTES, "no such loop, or an impossible address"), -EINVAL;
    for (const struct io_app *a = io->apps; a; a = a->next)
        if (a->mac == io_mac(c->mac) || a->ip_be == cl_be32(c->ipv4)) {
            if (a->group && c->members > 1 && a->mac == io_mac(c->mac) && a->ip_be == cl_be32(c->ipv4))
                continue;
            snprintf(err, IO_ERR_BYTES, "%s",
                     a->doomed ? "the last application with this address is still leaving: try again"
                               : "another application has this address: give one of them another");
            return a->doomed ? -EBUSY : -EEXIST;
        }
    return 0;
}

int cl_io_app_add(struct cl_io *io, const struct cl_io_app_config *config, struct cl_io_app_grant *grant, char *err)
{
    int rc = check_config(io, config, err);
    grant->app = 0;
    if (rc < 0)
        return rc;
    struct io_app *app = app_new(io, config, &rc, err);
    if (!app)
        return rc;
    rc = io_idle_watch(&io->loops[app->loop], app->doorbell_fd, true);
    if (rc < 0) {
        snprintf(err, IO_ERR_BYTES, "cannot watch a doorbell: %s", strerror(-rc));
        io_unallot(io, app);
        app_free(app);
        return rc;
    }
    app->id = ++io->next_id;
    app->next = io->apps;
    io->apps = app;
    io->n_apps++;
    *grant = (struct cl_io_app_grant){.app = app->id,
                                      .arena_fd = app->memory.fd,
                                      .doorbell_fd = app->doorbell_fd,
                                      .layout = app->layout,
                                      .slot = app->kthreads[0].member.slot,
                                      .place = app->place};
    for (uint32_t l = 0; rc == 0 && l < io->config.n_loops; l++)
        rc = io_tell_loop(io, &io->loops[l], IO_ADD, app, err);
    if (rc == 0)
        rc = io_await_loops(io, io->config.command_timeout_ms, err);
    app->doomed = rc < 0; /* a loop may have it, or get it yet, so that it can only be removed */
    return rc;
}

/* Receive buffers that are neither in the free list, once, nor lent. */
static uint32_t count_lost(struct io_app *app)
{
    uint32_t found = app->n_rx - app->fresh;
    for (uint32_t i = 0; i < app->fresh; i++)
        found += app->lent[i] != IO_NOT_LENT;
    for (uint32_t i = 0; i < app->n_free; i++) {
        found += app->lent[app->free[i]] == IO_NOT_LENT;
        app->lent[app->free[i]] = IO_LENT;
    }
    return app->n_rx - found;
}

static void copy_stats(void *to, const void *from, size_t bytes)
{
    /* Word by word, so that no counter is torn. */
    for (size_t i = 0; i < bytes / 8; i++)
        ((uint64_t *)to)[i] = cl_load_relaxed((const uint64_t *)from + i);
}

static void app_stats(const struct io_app *app, struct cl_io_app_stats *out)
{
    copy_stats(out, &app->stats, sizeof *out);
    for (uint32_t k = 0; k < app->n_kthreads; k++)
        out->lies += cl_load_relaxed(&app->kthreads[k].rx.lies);
    out->buffers_free = cl_load_relaxed(&app->n_free) + app->n_rx - cl_load_relaxed(&app->fresh);
    out->buffers_lent = out->rx_delivered - out->frees;
}

int cl_io_app_remove(struct cl_io *io, uint32_t id, struct cl_io_app_final *final, char *err)
{
    struct io_app **at = &io->apps;
    while (*at && (*at)->id != id)
        at = &(*at)->next;
    struct io_app *app = *at;
    if (!app)
        return snprintf(err, IO_ERR_BYTES, "no application has id %u", id), -ENOENT;
    int rc = 0;
    uint32_t wait_ms = app->doomed ? 0 : io->config.command_timeout_ms; /* it was waited for once */
    app->doomed = true;
    for (uint32_t l = 0; l < io->config.n_loops; l++) {
        int told = app->removing >> l & 1 ? 0 : io_tell_loop(io, &io->loops[l], IO_REMOVE, app, err);
        app->removing |= told == 0 ? 1u << l : 0;
        rc = told < 0 ? told : rc;
    }
    if (rc == 0)
        rc = io_await_loops(io, wait_ms, err);
    if (rc < 0)
        return rc; /* a loop may still use it: it stays */
    io_idle_forget(&io->loops[app->loop], app->doorbell_fd);
    *at = app->next;
    io->n_apps--;
    if (final) {
        app_stats(app, &final->stats);
        final->buffers_lost = count_lost(app);
    }
    io_before_leave(io, app);
    io_unallot(io, app);
    app_free(app);
    return 0;
}

int cl_io_app_state(struct cl_io *io, uint32_t id, uint32_t state, char *err)
{
    struct io_app *app = io_app_by_id(io, id);
    if (!app || app->doomed)
        return snprintf(err, IO_ERR_BYTES, "no application has id %u", id), -ENOENT;
    if (state != CL_MEMBER_READY && state != CL_MEMBER_DRAINING)
        return snprintf(err, IO_ERR_BYTES, "an application is ready or drains; %u is neither", state), -EINVAL;
    if (!app->group)
        return 0;
    int rc = io_tell_loop(io, &io->loops[app->loop], IO_STATE | (uint64_t)state << IO_STATE_SHIFT, app, err);
    return rc < 0 ? rc : io_await_loops(io, io->config.command_timeout_ms, err);
}

static struct cl_arena_preempt *line_of(struct cl_io *io, uint32_t id)
{
    struct io_app *app = io_app_by_id(io, id);
    return app ? (void *)((uint8_t *)app->memory.base + CL_ARENA_PREEMPT_OFFSET) : NULL;
}

int cl_io_app_memory(struct cl_io *io, uint32_t id, uint64_t bytes)
{
    struct cl_arena_preempt *line = line_of(io, id);
    if (!line)
        return -ENOENT;
    cl_store_relaxed(&line->memory_bytes, bytes);
    return 0;
}

int cl_io_app_ask_drain(struct cl_io *io, uint32_t id)
{
    struct cl_arena_preempt *line = line_of(io, id);
    if (!line)
        return -ENOENT;
    cl_store_relaxed(&line->drain, 1);
    return 0;
}

int cl_io_app_ask_trace(struct cl_io *io, uint32_t id, uint32_t how)
{
    struct cl_arena_preempt *line = line_of(io, id);
    if (!line)
        return -ENOENT;
    uint32_t number = (cl_load_relaxed(&line->trace) >> 8) + 1; /* whatever the application made of it */
    cl_store_relaxed(&line->trace, number << 8 | (how & 0xff));
    return 0;
}

int cl_io_app_stats(const struct cl_io *io, uint32_t id, struct cl_io_app_stats *out)
{
    for (const struct io_app *a = io->apps; a; a = a->next)
        if (a->id == id) {
            app_stats(a, out);
            return 0;
        }
    return -ENOENT;
}

int cl_io_app_counters(const struct cl_io *io, uint32_t id, struct cl_arena_counters *out)
{
    for (const struct io_app *a = io->apps; a; a = a->next)
        if (a->id == id) {
            const struct cl_arena_counters *theirs = cl_arena_counters_of(a->memory.base, &a->layout);
            /* Acquire: the entries were written before their number. */
            uint32_t n = cl_min(cl_load_acquire(&theirs->n), (uint32_t)CL_ARENA_MAX_COUNTERS);
            memcpy(out->counter, theirs->counter, n * sizeof *out->counter);
            out->published_ns = cl_load_relaxed(&theirs->published_ns);
            out->n = n;
            return 0;
        }
    return -ENOENT;
}

int cl_io_loop_stats(const struct cl_io *io, uint32_t loop, struct cl_io_loop_stats *out)
{
    if (loop >= io->config.n_loops)
        return -ENOENT;
    copy_stats(out, &io->loops[loop].stats, sizeof *out);
    return 0;
}

/* One that cannot be watched could keep cores that are others': then none is managed. */
static int open_threads(struct io_app *app, const int32_t *tids, char *err)
{
    int rc = 0;
    for (uint32_t k = 0; k < app->n_kthreads; k++) {
        app->kthreads[k].member.tid = tids[k];
        io_thread_close(&app->kthreads[k]); /* of an attempt that failed */
        int opened = io_thread_open(&app->kthreads[k]);
        rc = rc < 0 ? rc : opened;
    }
    for (uint32_t k = 0; rc < 0 && k < app->n_kthreads; k++)
        io_thread_close(&app->kthreads[k]);
    if (rc < 0)
        snprintf(err, IO_ERR_BYTES, "there are no descriptors for its %u kthreads, which take three each",
                 app->n_kthreads);
    return rc;
}

int cl_io_app_threads(struct cl_io *io, uint32_t id, int32_t pid, const int32_t *tids, uint32_t n, int32_t signal,
                      char *err)
{
    struct io_app *app = io_app_by_id(io, id);
    if (!app || !io->config.manage_cores || app->cores.pid || app->doomed)
        return snprintf(err, IO_ERR_BYTES, "the threads of application %u cannot be told, or not again", id), -EINVAL;
    bool good = n == app->n_kthreads && pid > 0 && signal >= 0 && signal <= 64;
    for (uint32_t k = 0; good && k < n; k++)
        good = tids[k] > 0;
    if (!good)
        return snprintf(err, IO_ERR_BYTES, "application %u has %u kthreads; these are %u, or not all exist", id,
                        app->n_kthreads, n),
               -EINVAL;
    if (!app->cores.before && !(app->cores.before = calloc(n, sizeof *app->cores.before)))
        return snprintf(err, IO_ERR_BYTES, "out of memory for %u kthreads", n), -ENOMEM;
    app->cores.pid = pid;
    app->cores.signal = signal;
    int rc = open_threads(app, tids, err);
    if (rc < 0) {
        app->cores.pid = 0;
        return rc;
    }
    for (uint32_t k = 0; k < n; k++)
        io_before_note(&app->kthreads[k]);
    rc = io_tell_loop(io, &io->loops[app->loop], IO_THREADS, app, err);
    if (rc < 0)
        app->cores.pid = 0;
    return rc < 0 ? rc : io_await_loops(io, io->config.command_timeout_ms, err);
}

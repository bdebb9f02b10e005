/* Managed cores: set-up, registration, and what the control thread reads. See cores.h. */
#include "../state/internal.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#define DEFAULT_INTERVAL_US 5
#define DEFAULT_CEDE_US 10
#define DEFAULT_INTERRUPT_US 50
#define DEFAULT_START_US 5000
#define DEFAULT_YIELD_WAIT_US 50000
#define DEFAULT_BLOCKED_US 1000
#define URGENT_GAP_NS 1000    /* decisions that applications bring about, from one to the next */
#define HOLD_BATCH_NS 1000000 /* see allocate.c */
#define HOLD_LATENCY_NS 20000
#define CROSSED_MEMORY_NS 1000000 /* after that what moves cost counts half */
#define ACCOUNT_TRIES 100
#define HIST_DIGITS 2
#define HIST_LIMIT_NS 10000000000ull

static uint64_t ticks(const struct cl_io *io, uint64_t ns)
{
    return (uint64_t)cl_ns_to_ticks(io->clock, (int64_t)ns);
}

int io_cores_check(struct cl_io_config *c, char *err)
{
    c->interval_us = c->interval_us ? c->interval_us : DEFAULT_INTERVAL_US;
    c->cede_us = c->cede_us ? c->cede_us : DEFAULT_CEDE_US;
    c->interrupt_us = c->interrupt_us ? c->interrupt_us : DEFAULT_INTERRUPT_US;
    c->yield_wait_us = c->yield_wait_us ? c->yield_wait_us : DEFAULT_YIELD_WAIT_US;
    c->blocked_us = c->blocked_us ? c->blocked_us : DEFAULT_BLOCKED_US;
    c->start_us = cl_max(c->start_us ? c->start_us : DEFAULT_START_US, 2 * (c->cede_us + c->interrupt_us));
    if (!c->manage_cores)
        return 0;
    if (c->n_worker_cpus < c->n_loops || c->n_worker_cpus > CL_SHM_MAX_CORES)
        return snprintf(err, IO_ERR_BYTES,
                        "%u worker CPUs for %u loops: give each loop one at least, %d at most in all", c->n_worker_cpus,
                        c->n_loops, CL_SHM_MAX_CORES),
               -EINVAL;
    for (uint32_t i = 0; i < c->n_worker_cpus; i++) {
        bool twice = c->worker_cpus[i] < 0 || c->worker_cpus[i] >= CL_SHM_MAX_CORES;
        for (uint32_t j = 0; j < i; j++)
            twice |= c->worker_cpus[i] == c->worker_cpus[j];
        if (twice)
            return snprintf(err, IO_ERR_BYTES, "worker CPU %d: name each of 0 to %d at most once", c->worker_cpus[i],
                            CL_SHM_MAX_CORES - 1),
                   -EINVAL;
    }
    return 0;
}

static int make_histograms(struct io_cores *c)
{
    bool all = true;
    for (unsigned i = 0; i < CL_IO_STEPS; i++)
        all &= (c->actuation[i] = cl_hist_new(HIST_DIGITS, HIST_LIMIT_NS)) != NULL;
    all &= (c->late_decision = cl_hist_new(HIST_DIGITS, HIST_LIMIT_NS)) != NULL;
    all &= (c->reading = cl_hist_new(HIST_DIGITS, HIST_LIMIT_NS)) != NULL;
    return all && (c->decision = cl_hist_new(HIST_DIGITS, HIST_LIMIT_NS)) ? 0 : -ENOMEM;
}

int io_cores_init(struct io_loop *loop, char *err)
{
    const struct cl_io *io = loop->io;
    const struct cl_io_config *config = &io->config;
    const struct cl_state_header *h = io->state.base;
    struct cl_state_core *shared = (struct cl_state_core *)((uint8_t *)io->state.base + h->cores_offset);
    struct io_cores *c = &loop->cores;
    for (uint32_t i = loop->index; i < config->n_worker_cpus; i += config->n_loops)
        c->n++;
    c->core = calloc(c->n, sizeof *c->core);
    c->table = aligned_alloc(CL_CACHELINE, CL_IO_MAX_APPS * sizeof *c->table);
    c->log = calloc(IO_MOVES_LOG, sizeof *c->log);
    if (!c->core || !c->table || !c->log || make_histograms(c) < 0)
        return snprintf(err, IO_ERR_BYTES, "out of memory for the cores of loop %u", loop->index), -ENOMEM;
    for (uint32_t i = 0; i < c->n; i++) {
        uint32_t cpu = (uint32_t)config->worker_cpus[loop->index + i * config->n_loops];
        c->core[i].cpu = c->core[i].stats.cpu = cpu;
        c->core[i].stats.loop = loop->index;
        c->core[i].state = &shared[cpu];
    }
    c->interval = ticks(io, config->interval_us * 1000ull);
    c->cede = ticks(io, config->cede_us * 1000ull);
    c->interrupt = ticks(io, config->interrupt_us * 1000ull);
    c->start = ticks(io, config->start_us * 1000ull);
    c->yield_wait = ticks(io, config->yield_wait_us * 1000ull);
    c->blocked = ticks(io, config->blocked_us * 1000ull);
    c->urgent_gap = ticks(io, URGENT_GAP_NS);
    c->hold_batch = ticks(io, HOLD_BATCH_NS);
    c->hold_latency = ticks(io, HOLD_LATENCY_NS);
    c->crossed_memory = ticks(io, CROSSED_MEMORY_NS);
    c->next_due = UINT64_MAX;
    c->view = (struct cl_policy_view){.interval_ns = config->interval_us * 1000ull, .n_cores = c->n};
    return cl_policy_host_new(0, 0, &c->host, err);
}

void io_cores_free(struct io_loop *loop)
{
    struct io_cores *c = &loop->cores;
    for (unsigned i = 0; i < CL_IO_STEPS; i++)
        cl_hist_delete(c->actuation[i]);
    cl_hist_delete(c->decision);
    cl_hist_delete(c->reading);
    cl_hist_delete(c->late_decision);
    cl_policy_host_delete(c->host);
    free(c->core);
    free(c->table);
    free(c->log);
}

/* A run of free slots; first fit. -ENOSPC. */
static int take_slots(struct cl_io *io, uint32_t n)
{
    for (uint32_t at = 0, run = 0; at < CL_SHM_MAX_SLOTS; at++) {
        run = io->slots_used[at / 64] >> at % 64 & 1 ? 0 : run + 1;
        if (run < n)
            continue;
        for (uint32_t i = at + 1 - n; i <= at; i++)
            io->slots_used[i / 64] |= 1ull << i % 64;
        return (int)(at + 1 - n);
    }
    return -ENOSPC;
}

int io_allot(struct cl_io *io, struct io_app *app, const struct cl_io_app_config *config, char *err)
{
    const struct cl_state_header *h = io->state.base;
    struct cl_state_kthread *states = (struct cl_state_kthread *)((uint8_t *)io->state.base + h->kthreads_offset);
    struct cl_arena_kthread *lines =
        (struct cl_arena_kthread *)((uint8_t *)app->memory.base + app->layout.lines_offset);
    struct io_allotment *a = &app->cores;
    if (config->kind > CL_POLICY_BATCH)
        return snprintf(err, IO_ERR_BYTES, "an application is of latency or batch class, not %u", config->kind),
               -EINVAL;
    int slot = take_slots(io, app->n_kthreads);
    if (slot < 0)
        return snprintf(err, IO_ERR_BYTES, "%d kthreads are attached already", CL_SHM_MAX_SLOTS), -ENOSPC;
    a->kind = config->kind;
    a->maximum = cl_min(config->maximum ? config->maximum : app->n_kthreads, app->n_kthreads);
    a->guaranteed = cl_min(config->guaranteed, a->maximum);
    a->weight = cl_min(cl_max(config->weight, 1u), 65536u);
    a->deadline_ns = config->deadline_us * 1000ull;
    a->quantum_ticks = ticks(io, config->quantum_us * 1000ull);
    a->quantum_signal = config->quantum_signal;
    a->shared_preempt = (uint64_t *)((uint8_t *)app->memory.base + CL_ARENA_PREEMPT_OFFSET);
    io_rings_init(io, a);
    a->kthreads = app->kthreads;
    a->n_kthreads = (uint16_t)app->n_kthreads;
    for (uint32_t k = 0; k < app->n_kthreads; k++) {
        struct io_member *m = &app->kthreads[k].member;
        m->slot = (uint32_t)slot + k;
        m->state = &states[m->slot];
        m->grant = m->state->grant; /* counts on from whoever had the slot before */
        m->state->cpu = -1;         /* nobody reads it before the application is answered */
        m->state->yield_wait = 0;
        m->state->quantum_over = m->state->quantum_signals = 0;
        m->pinned = -1;
        m->account_fd = m->status_fd = m->tasks_fd = -1;
        m->signals.shared = &lines[k].signals;
        app->kthreads[k].sampled = false;
    }
    a->detection = cl_hist_new(HIST_DIGITS, HIST_LIMIT_NS);
    a->actuation = cl_hist_new(HIST_DIGITS, HIST_LIMIT_NS);
    if (a->detection && a->actuation)
        return 0;
    io_unallot(io, app);
    return snprintf(err, IO_ERR_BYTES, "out of memory for an application"), -ENOMEM;
}

void io_unallot(struct cl_io *io, struct io_app *app)
{
    for (uint32_t k = 0; k < app->n_kthreads && app->kthreads[k].member.state; k++) {
        uint32_t slot = app->kthreads[k].member.slot;
        io->slots_used[slot / 64] &= ~(1ull << slot % 64);
        io_thread_close(&app->kthreads[k]);
    }
    free(app->cores.before);
    app->cores.before = NULL;
}

void io_cores_add(struct io_loop *loop, struct io_app *app)
{
    struct io_cores *c = &loop->cores;
    struct io_allotment *a = &app->cores;
    a->told = true;
    cl_store_relaxed(&a->told_at, c->stats.decisions + 1);
    a->row = c->n_apps;
    c->apps[c->n_apps++] = app;
    c->view.n_apps = c->n_apps;
    c->table[a->row] = (struct cl_policy_app){.kind = a->kind,
                                              .guaranteed = a->guaranteed,
                                              .maximum = a->maximum,
                                              .weight = a->weight,
                                              .deadline_ns = a->deadline_ns};
    c->urgent = true;
}

void io_cores_remove(struct io_loop *loop, struct io_app *app)
{
    struct io_cores *c = &loop->cores;
    for (uint32_t i = 0; i < c->n; i++) {
        struct io_core *core = &c->core[i];
        bool owns = core->owner && core->owner->app == app;
        if (core->dying && core->dying->app == app)
            core->dying = NULL;
        if (core->from && core->from->app == app) {
            io_move_demote(loop, core->from, core); /* should it run on, then not on that core */
            io_move_forget(core);
        }
        io_yield_wait_forget(core, app);
        if (!owns)
            continue;
        struct io_kthread *k = core->owner;
        io_move_release(loop, core, CL_IO_LOG_LEFT, loop->now);
        if (cl_load_relaxed(k->park) == CL_KTHREAD_RUNNING)
            io_move_demote(loop, k, core);
    }
    for (uint32_t i = 0; i < app->n_kthreads; i++) {
        struct io_kthread *k = &app->kthreads[i];
        c->n_quantum -= k->member.preempt_quantum;
        if (k->blocked && !k->member.core && !k->member.demoted) /* as one that has not ceded */
            io_move_demote(loop, k, k->member.last);
        io_blocked_over(loop, k, loop->now);
    }
    c->n_apps--;
    for (uint32_t i = app->cores.row; i < c->n_apps; i++) {
        c->apps[i] = c->apps[i + 1];
        c->table[i] = c->table[i + 1];
        c->apps[i]->cores.row = i;
    }
    c->view.n_apps = c->n_apps;
    c->urgent = true;
}

struct cl_policy_host *cl_io_policy_host(struct cl_io *io, uint32_t loop)
{
    return loop < io->config.n_loops ? io->loops[loop].cores.host : NULL;
}

/* Ticks since a stamp. A loop that is stepped has a clock of its own, which stands still: 0. */
static uint64_t since(const struct io_loop *loop, uint64_t stamp)
{
    uint64_t ticks = loop->io->running ? cl_tsc() - stamp : 0;
    return (int64_t)ticks > 0 ? ticks : 0;
}

static void copy_words(void *to, const void *from, size_t bytes)
{
    for (size_t i = 0; i < bytes / 8; i++)
        ((uint64_t *)to)[i] = cl_load_relaxed((const uint64_t *)from + i);
}

/* Ticks for which an application has had cores since they were last accounted for. Returns a number that stays as long
 * as none of them is; 0: one is at this moment. */
static uint64_t unaccounted(const struct io_loop *loop, uint32_t id, uint64_t *ticks)
{
    uint64_t mark = 1;
    *ticks = 0;
    for (uint32_t i = 0; i < loop->cores.n; i++) {
        const struct io_core *core = &loop->cores.core[i];
        uint64_t accounted = cl_load_acquire(&core->accounted); /* acquire: before what it is the end of */
        if (cl_load_relaxed(&core->stats.app) != id || !cl_load_relaxed(&core->stats.busy))
            continue;
        if (accounted == 0)
            return 0;
        mark = mark * 31 + accounted;
        *ticks += since(loop, accounted);
    }
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    return mark;
}

/* Decisions that found something waiting. Those that read nothing anew, since the last row stood, found what that
 * said. */
static uint64_t congested_of(const struct io_loop *loop, const struct io_allotment *a)
{
    uint64_t looked_at, all, done;
    unsigned tries = 0;
    do {
        looked_at = cl_load_acquire(&a->looked_at); /* acquire: before what it is the end of */
        all = cl_load_relaxed(&a->stats.congested);
        done = cl_load_relaxed(&loop->cores.stats.decisions);
        if (cl_load_relaxed(&a->waits) && (int64_t)(done - looked_at) > 0)
            all += done - looked_at;
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
    } while ((looked_at == 0 || cl_load_relaxed(&a->looked_at) != looked_at) && ++tries < ACCOUNT_TRIES);
    return tries < ACCOUNT_TRIES ? all : cl_load_relaxed(&a->stats.congested);
}

/* As of the last decision. */
static void ages_of(const struct io_loop *loop, const struct io_allotment *a, struct cl_io_app_cores *out)
{
    uint64_t last = cl_load_relaxed(&loop->cores.last_check);
    out->packet_age_ns = io_age_ns(loop, cl_load_relaxed(&a->packet_since), last);
    out->thread_age_ns = io_age_ns(loop, cl_load_relaxed(&a->thread_since), last);
    out->timer_age_ns = io_age_ns(loop, cl_load_relaxed(&a->timer_since), last);
    out->storage_age_ns = io_age_ns(loop, cl_load_relaxed(&a->stored_since), last);
}

int cl_io_app_cores(const struct cl_io *io, uint32_t id, struct cl_io_app_cores *out)
{
    const struct io_app *app = io_app_by_id(io, id);
    if (!app)
        return -ENOENT;
    const struct io_loop *loop = &io->loops[app->loop];
    uint64_t mark, ticks;
    unsigned tries = 0;
    do { /* until it was not accounted for in between, which takes a moment once an interval */
        mark = unaccounted(loop, id, &ticks);
        copy_words(out, &app->cores.stats, sizeof *out);
    } while ((mark == 0 || unaccounted(loop, id, &ticks) != mark) && ++tries < ACCOUNT_TRIES);
    if (tries < ACCOUNT_TRIES)
        out->core_ns += (uint64_t)cl_ticks_to_ns(io->clock, (int64_t)ticks);
    out->congested = congested_of(loop, &app->cores);
    ages_of(loop, &app->cores, out);
    uint64_t told_at = cl_load_relaxed(&app->cores.told_at);
    out->checks = told_at ? cl_load_relaxed(&loop->cores.stats.decisions) + 1 - told_at : 0;
    return 0;
}

int cl_io_cores_stats(const struct cl_io *io, uint32_t loop, struct cl_io_cores_stats *out)
{
    if (loop >= io->config.n_loops)
        return -ENOENT;
    copy_words(out, &io->loops[loop].cores.stats, sizeof *out);
    return 0;
}

int cl_io_core_stats(const struct cl_io *io, uint32_t index, struct cl_io_core_stats *out)
{
    if (!io->config.manage_cores || index >= io->config.n_worker_cpus)
        return -ENOENT;
    const struct io_loop *loop = &io->loops[index % io->config.n_loops];
    const struct io_core *core = &loop->cores.core[index / io->config.n_loops];
    uint64_t accounted;
    unsigned tries = 0;
    do {
        accounted = cl_load_acquire(&core->accounted);
        copy_words(out, &core->stats, sizeof *out);
        __atomic_thread_fence(__ATOMIC_ACQUIRE); /* the words before the re-check */
    } while ((accounted == 0 || cl_load_relaxed(&core->accounted) != accounted) && ++tries < ACCOUNT_TRIES);
    if (tries < ACCOUNT_TRIES && out->busy)
        out->busy_ns += (uint64_t)cl_ticks_to_ns(io->clock, (int64_t)since(loop, accounted));
    return 0;
}

const struct cl_hist *cl_io_detection(const struct cl_io *io, uint32_t id)
{
    const struct io_app *app = io_app_by_id(io, id);
    return app ? app->cores.detection : NULL;
}

const struct cl_hist *cl_io_app_actuation(const struct cl_io *io, uint32_t id)
{
    const struct io_app *app = io_app_by_id(io, id);
    return app ? app->cores.actuation : NULL;
}

const struct cl_hist *cl_io_actuation(const struct cl_io *io, uint32_t loop, uint32_t step)
{
    return loop < io->config.n_loops && step < CL_IO_STEPS ? io->loops[loop].cores.actuation[step] : NULL;
}

const struct cl_hist *cl_io_decision_time(const struct cl_io *io, uint32_t loop)
{
    return loop < io->config.n_loops ? io->loops[loop].cores.decision : NULL;
}

const struct cl_hist *cl_io_reading_time(const struct cl_io *io, uint32_t loop)
{
    return loop < io->config.n_loops ? io->loops[loop].cores.reading : NULL;
}

const struct cl_hist *cl_io_late_decision(const struct cl_io *io, uint32_t loop)
{
    return loop < io->config.n_loops ? io->loops[loop].cores.late_decision : NULL;
}

/* The log. Writer: the loop. The count is published after an entry, and a fence keeps the next entry's words behind it:
 * a reader who finds afterwards that the count is less than a lap ahead has read a whole entry. */
void io_cores_log(struct io_loop *loop, uint64_t now, const struct io_core *core, uint32_t from, uint32_t to,
                  unsigned what, unsigned step, const struct io_kthread *about)
{
    struct io_cores *c = &loop->cores;
    const struct cl_io_move move = {.tsc = now,
                                    .after = (uint32_t)cl_min(since(loop, now), (uint64_t)UINT32_MAX),
                                    .core = core->cpu,
                                    .from = (uint16_t)from,
                                    .to = (uint16_t)to,
                                    .what = (uint8_t)what,
                                    .step = (uint8_t)step,
                                    .leaving = core->from != NULL,
                                    .decided = core->stamps.decided,
                                    .stored = core->stamps.stored,
                                    .lost = core->stamps.lost,
                                    .left = core->stamps.left,
                                    .back = core->stamps.back,
                                    .about = (uint16_t)io_owner_word(about)};
    uint64_t words[sizeof move / 8], *to_words = (uint64_t *)&c->log[c->logged % IO_MOVES_LOG];
    memcpy(words, &move, sizeof move);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    for (unsigned i = 0; i < sizeof move / 8; i++)
        cl_store_relaxed(&to_words[i], words[i]);
    cl_store_release(&c->logged, c->logged + 1);
}

uint32_t cl_io_moves(struct cl_io *io, uint32_t loop, uint64_t *next, struct cl_io_move *out, uint32_t n,
                     uint64_t *lost)
{
    uint32_t got = 0;
    if (loop >= io->config.n_loops || !io->config.manage_cores)
        return 0;
    const struct io_cores *c = &io->loops[loop].cores;
    while (got < n) {
        uint64_t logged = cl_load_acquire(&c->logged);
        if (*next >= logged)
            break;
        copy_words(&out[got], &c->log[*next % IO_MOVES_LOG], sizeof out[got]);
        __atomic_thread_fence(__ATOMIC_ACQUIRE); /* the words before the re-check of the count */
        logged = cl_load_relaxed(&c->logged);
        if (logged - *next >= IO_MOVES_LOG) { /* it may have been written over meanwhile */
            if (got)
                break; /* what is lost comes before the first entry of a call */
            uint64_t oldest = logged - IO_MOVES_LOG + IO_MOVES_LOG / 16;
            *lost += oldest - *next;
            *next = oldest;
            continue;
        }
        ++*next;
        got++;
    }
    return got;
}

uint64_t cl_io_moves_end(const struct cl_io *io, uint32_t loop)
{
    if (loop >= io->config.n_loops || !io->config.manage_cores)
        return 0;
    return cl_load_acquire(&io->loops[loop].cores.logged); /* acquire: as cl_io_moves */
}

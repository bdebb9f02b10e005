/* Random applications on managed cores, and what must hold at every instant: a core has one owner, an application no
 * more than its maximum, one that wants what it was guaranteed gets it within the time of the steps, no core idles
 * beside an application that waits, and the log tells all of it.
 *
 *   cores_random POLICY SEED STEPS
 *
 * Kthreads answer promptly, late, by signal only, or not at all; are stopped for a while; and applications come and
 * go. */
#include "../../../../iokernel/state/internal.h"
#include "world.h"

#define CORES 3
#define APPS 6
#define BOUND (90 * US) /* a move that nobody answers, an interval, and a core that had just been given away */

enum manner { PROMPT, LATE, BY_SIGNAL, DEAF, MANNERS };

struct actor {
    enum manner manner;
    uint64_t frozen_until;
    uint32_t grant;   /* last one acted on */
    uint64_t handles; /* BY_SIGNAL: when the handler of a signal that has come runs; 0: none has */
};

struct part {
    struct wish wish;
    struct actor actor[MAX_KTHREADS];
    uint64_t wants_since; /* something waits and it holds less than it was guaranteed; 0: no */
};

static uint64_t seed, state, sent_to_deaf;
static struct part parts[APPS];
static struct world w;
static uint32_t owner_by_log[CORES];
static bool evicting[CORES]; /* by the log: the last move has come to that step, and not ended */
static bool begun[CORES];
static uint64_t logged_evictions;

static uint32_t rnd(uint32_t n) /* xorshift64*: Vigna 2016 */
{
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return (uint32_t)((state * 0x2545f4914f6cdd1dull) >> 33) % n;
}

/* An application comes. manner: of its kthreads; MANNERS: any. */
static void enter(uint32_t at, enum manner manner)
{
    struct part *p = &parts[at];
    *p = (struct part){.wish = {.kind = at < 3 ? CL_POLICY_LATENCY : CL_POLICY_BATCH,
                                .kthreads = 1 + rnd(MAX_KTHREADS),
                                .guaranteed = at == 0 || at == 3, /* two of three cores */
                                .maximum = 1 + rnd(MAX_KTHREADS),
                                .weight = 1 + rnd(4),
                                .quantum_us = rnd(2) * 20}};
    if (manner == MANNERS)
        manner = rnd(2) ? PROMPT : rnd(MANNERS);
    if (p->wish.guaranteed)
        manner = PROMPT; /* what it does with its own cores is its own affair */
    p->wish.blocks = manner == DEAF;
    app_at(&w, at, p->wish);
    for (uint32_t i = 0; i < MAX_KTHREADS; i++)
        p->actor[i].manner = manner;
}

static uint64_t signals_to(const struct app *a)
{
    struct cl_io_app_cores s = cores_of(&w, a);
    return s.interrupted + s.roused;
}

/* Instead of what the kernel says of a thread: whether one had run since its handler was called depends on what else
 * the machine does. To the iokernel they all sleep, as they do but for that. (--wrap of the linker.) */
bool __wrap_io_thread_account(struct io_loop *loop, struct io_kthread *k, struct io_account *out);
bool __wrap_io_thread_account(struct io_loop *loop, struct io_kthread *k, struct io_account *out)
{
    (void)loop;
    (void)k;
    *out = (struct io_account){0};
    return true;
}

bool __wrap_io_thread_status(struct io_loop *loop, const struct io_kthread *k, struct io_thread_status *out);
bool __wrap_io_thread_status(struct io_loop *loop, const struct io_kthread *k, struct io_thread_status *out)
{
    (void)loop;
    (void)k;
    *out = (struct io_thread_status){.state = 'S'};
    return true;
}

bool __wrap_io_thread_in_line(struct io_loop *loop, const struct io_kthread *k);
bool __wrap_io_thread_in_line(struct io_loop *loop, const struct io_kthread *k)
{
    (void)loop;
    (void)k;
    return false;
}

/* Wait for the handlers of all signals that were sent, so that only the seed decides what happens when. */
static void await_signals(void)
{
    uint64_t to_deaf = sent_to_deaf;
    for (uint32_t i = 0; i < APPS; i++)
        if (w.apps[i].id && parts[i].wish.blocks)
            to_deaf += signals_to(&w.apps[i]);
    uint64_t expected = stats_of(&w).interrupted + stats_of(&w).roused - to_deaf;
    while ((uint64_t)seen_signals() < expected)
        sem_wait(&signalled);
}

/* Whether k looks at its core in this microsecond, though it runs. */
static bool looks(struct app *a, struct kthread *k, struct actor *actor)
{
    if (__atomic_exchange_n(&k->interrupted, 0, __ATOMIC_RELAXED))
        actor->handles = w.now + (rnd(4) ? 0 : rnd(300) * US);
    bool interrupted = actor->handles && w.now >= actor->handles;
    actor->handles = interrupted ? 0 : actor->handles;
    switch (actor->manner) {
    case PROMPT:
        return (*a->preempt >> (k - a->k) & 1) && rnd(3) == 0;
    case LATE:
        return rnd(30) == 0;
    case BY_SIGNAL:
        return interrupted;
    default:
        return rnd(500) == 0;
    }
}

static bool has_ready(const struct kthread *k)
{
    return k->line->signals.runq_tail != k->line->signals.runq_head;
}

static void work(struct part *p, struct kthread *k)
{
    struct cl_signals *s = &k->line->signals;
    if (rnd(4) == 0) {
        s->switches++;
        s->runq_head += has_ready(k);
    }
    s->in_uthread = 1;
    if (p->wish.kind == CL_POLICY_BATCH && rnd(3000) && !has_ready(k))
        s->runq_tail++;
    if (!has_ready(k) && rnd(20) == 0)
        park(k);
}

static void act(struct part *p, struct app *a, uint32_t i)
{
    struct kthread *k = &a->k[i];
    struct actor *actor = &p->actor[i];
    if (w.now < actor->frozen_until)
        return;
    if (!p->wish.guaranteed && rnd(20000) == 0)
        actor->frozen_until = w.now + rnd(20000) * US; /* SIGSTOP */
    if (k->line->park == CL_KTHREAD_RUNNING && k->line->signals.acted) {
        if (owns(&w, k))
            work(p, k);
        if (looks(a, k, actor))
            acts(&w, k);
    } else if (owns(&w, k) && k->state->grant != actor->grant && rnd(3) == 0) {
        actor->grant = k->state->grant;
        acts(&w, k);
    }
}

static void check_owners(void)
{
    uint32_t held[APPS] = {0}, owned = 0;
    for (uint32_t c = 0; c < CORES; c++) {
        uint32_t owner = w.cores[c].owner;
        owned += owner != 0;
        for (uint32_t d = 0; d < c; d++)
            CHECK(owner == 0 || w.cores[d].owner != owner);
        for (uint32_t at = 0; at < APPS; at++) {
            const struct app *a = &w.apps[at];
            bool ours = a->id && owner > a->k[0].slot && owner <= a->k[0].slot + a->n;
            owned -= ours;
            held[at] += ours && a->k[owner - 1 - a->k[0].slot].line->park == CL_KTHREAD_RUNNING;
        }
    }
    CHECK(owned == 0); /* nobody who is gone */
    for (uint32_t at = 0; at < APPS; at++)
        CHECK(held[at] <= cl_min(parts[at].wish.maximum, w.apps[at].n));
}

static void check_guarantee(struct part *p, const struct app *a)
{
    uint32_t ready = 0, owned = 0;
    for (uint32_t i = 0; i < a->n; i++) {
        ready += has_ready(&a->k[i]) || a->k[i].line->park == CL_KTHREAD_CEDED ||
                 a->k[i].line->park == CL_KTHREAD_CEDED_YIELDING;
        owned += owns(&w, &a->k[i]);
    }
    if (ready == 0 || owned > 0)
        p->wants_since = 0;
    else if (p->wants_since == 0)
        p->wants_since = w.now;
    CHECK(p->wants_since == 0 || w.now - p->wants_since <= BOUND);
}

static void check_log(void)
{
    struct cl_io_move m[256];
    uint32_t n;
    while ((n = cl_io_moves(w.io, 0, &w.log_next, m, 256, &w.log_lost)) > 0)
        for (uint32_t i = 0; i < n; i++) {
            CHECK(m[i].core < CORES && m[i].from == owner_by_log[m[i].core]);
            owner_by_log[m[i].core] = m[i].to;
            logged_evictions += m[i].what == CL_IO_LOG_EVICTED;
            if (m[i].what != CL_IO_LOG_CEDED)
                evicting[m[i].core] =
                    m[i].what == CL_IO_LOG_EVICTED && m[i].to && m[i].step == CL_IO_STEP_EVICT && !begun[m[i].core];
            begun[m[i].core] = m[i].what == CL_IO_LOG_DONE || (begun[m[i].core] && m[i].what >= CL_IO_LOG_EVICTED);
        }
    CHECK(w.log_lost == 0);
    for (uint32_t c = 0; c < CORES; c++)
        CHECK(w.cores[c].owner == owner_by_log[c]);
}

/* The low words of the machine's clock come around every second or two. A stamp that stands may look new then, and
 * its kthread would get an interval more (extend in steps.c). No old owner has seen its request, at any time. */
static void keep_stamps_old(void)
{
    for (uint32_t c = 0; c < CORES; c++) {
        const struct io_core *core = &w.io->loops[0].cores.core[c];
        if (core->from)
            core->from->member.signals.shared->lost_tsc = core->stamps.decided - 1;
    }
}

static void step(void)
{
    uint32_t at = rnd(APPS);
    struct app *a = &w.apps[at];
    if (rnd(parts[at].wish.kind == CL_POLICY_BATCH ? 100 : 10) == 0)
        ready(&a->k[rnd(a->n)], 1 + rnd(3));
    if (rnd(500) == 0)
        send_frame(&w.apps[rnd(APPS)], a, (uint16_t)rnd(64));
    for (uint32_t i = 0; i < APPS; i++)
        for (uint32_t k = 0; k < w.apps[i].n; k++) {
            act(&parts[i], &w.apps[i], k);
            if (rnd(8) == 0)
                receive(&w.apps[i], k);
        }
    run(&w, 1 * US);
    keep_stamps_old();
    await_signals();
    check_owners();
    for (uint32_t i = 0; i < APPS; i++)
        if (parts[i].wish.guaranteed)
            check_guarantee(&parts[i], &w.apps[i]);
}

int main(int argc, char **argv)
{
    static char name[64];
    CHECK(argc == 4);
    seed = strtoull(argv[2], NULL, 0);
    state = seed * 0x9e3779b97f4a7c15ull | 1;
    snprintf(name, sizeof name, "%s, seed %s", argv[1], argv[2]);
    scenario = name;
    alarm(100);
    world_new(&w, (struct setting){.policy = argv[1], .cores = CORES});
    w.n_apps = APPS;
    for (uint32_t i = 0; i < APPS; i++)
        enter(i, i == 4 ? DEAF : i == 5 ? BY_SIGNAL : MANNERS); /* so that each step is taken, whatever the seed */
    for (uint64_t i = strtoull(argv[3], NULL, 0); i; i--) {
        step();
        if (rnd(20000) == 0) {
            uint32_t at = rnd(APPS);
            sent_to_deaf += parts[at].wish.blocks ? signals_to(&w.apps[at]) : 0;
            app_remove(&w, &w.apps[at]);
            check_log();
            enter(at, MANNERS);
        }
        if (i % 64 == 0)
            check_log();
    }
    check_log();
    struct cl_io_cores_stats s = stats_of(&w);
    CHECK(s.violations == 0 && s.late_decisions == 0);
    /* Each eviction is one of a move that ended by it, of one that never ended, or after the end. */
    uint64_t under_way = 0, ended = cl_hist_count(cl_io_actuation(w.io, 0, CL_IO_STEP_EVICT));
    for (uint32_t c = 0; c < CORES; c++)
        under_way += evicting[c];
    CHECK(s.evicted == ended + s.evicted_late + s.evicted_void + under_way);
    CHECK(s.evicted == logged_evictions);
    CHECK(s.moves > 100 && s.asked && s.interrupted && s.evicted);
    printf("%llu moves, %llu asked, %llu interrupted, %llu evicted, %llu not started, %llu violations\n",
           (unsigned long long)s.moves, (unsigned long long)s.asked, (unsigned long long)s.interrupted,
           (unsigned long long)s.evicted, (unsigned long long)s.not_started, (unsigned long long)s.violations);
    world_delete(&w);
    return 0;
}

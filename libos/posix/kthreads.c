/* See kthreads.h.
 *
 * keeper[k] changes under `keeping`. A keeper that goes to sleep says so in asleep[k], fences, and looks whether it
 * still is the keeper; the caretaker takes a kthread back, fences, and looks whether its keeper sleeps: if so he has it
 * again. So of the two at least one sees the other, and a kthread is watched by its keeper or by the caretaker.
 *
 * Others call on a kept kthread, too. Such a call leaves it up: it says so in lent[k], fences, and looks whether the
 * keeper sleeps. If so it turns the kthread to its sleep; else that is the keeper's, who looks at lent[k] in the same
 * way, and turns once more before he sleeps.
 *
 * What a keeper gathers waits for its next call or wait. If it does neither, others turn the kthread for it: keepers
 * that turn theirs look at one other one at a time, and the caretaker at all. A thread that makes something wait for
 * long in one wait of LATE_SHARE, or more often, goes on without for as many waits as it has `caution`: twice as many
 * each time, fewer again as all goes well. A machine that takes the core away now and then makes something wait, too:
 * that is borne. */
#include "kthreads.h"
#include "counts.h"
#include "linux.h"
#include "posix.h"

#include <corelane/libos/adopt.h>

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>

#define TICK_MS 20       /* between two looks at kthreads that are kept, */
#define GATHER_TICK_MS 2 /* ... and at what they have gathered, while they do */
#define GATHER_MOST 16   /* answers that leave together: then a doorbell costs each little, and few wait for many */
#define GATHER_NS 100000 /* that an answer waits at most for others, while the thread goes on calling */
#define LATE_NS 200000   /* what has waited so long was to leave before */
#define LOOK_EVERY 8     /* turns, between two looks at what others have gathered */
#define LATE_SHARE 8     /* one wait of so many in which something was late is borne, */
#define LATE_MOST 2      /* ... and so many more */
#define CAUTION_MOST 127
#define GOOD_WAITS 16     /* after so many in which all that was gathered left in time, less caution */
#define TURNS_MOST 256    /* of a kthread that was borrowed, at one time */
#define ROUNDS 3          /* of all kthreads: a segment comes, what answers it, and what answers that */
#define CALLED UINT32_MAX /* the caretaker's own eventfd, among the kthreads */

_Static_assert(CL_POSIX_KTHREADS >= CL_SCHED_MAX_KTHREADS, "each has its counts");

struct keeper {
    int kthread; /* -1: none. It is the thread's if keeper_of[kthread] says so */
    bool known;  /* its end is told of */
    /* Of the thread alone: */
    uint32_t answers;     /* that are still to come of what its last wait told, if that was more than one */
    const void *answered; /* whom it has answered last since that wait */
    uint32_t held;        /* answers that wait for others, since the last that left */
    uint32_t rescued;     /* the kthread's `rescues`, as last seen */
    uint32_t caution;     /* waits without gathering, each time that something has waited for long */
    uint32_t pause;       /* of those, still to come */
    uint32_t good;        /* waits in which all went well, since there was less caution */
    uint32_t late;        /* LATE_SHARE for each wait in which something was late, less one for each other */
    uint32_t looks;       /* a count for LOOK_EVERY */
    bool calls;           /* it is inside of `run` */
};

struct kept {
    struct keeper *keeper; /* NULL: the caretaker. Writers: under `keeping`; readers: anybody */
    uint32_t asleep;       /* the keeper sleeps by the descriptor. Writer: the keeper */
    uint32_t lent;         /* others have called on it since the keeper looked. Writers: those, and the keeper */
    uint32_t turns;        /* writer: the keeper */
    uint32_t seen;         /* the caretaker's: turns as of its last look, */
    uint32_t seen_gathers; /* ... and gathers */
    uint32_t gathers;      /* calls whose answer waits for others. Writer: the keeper */
    uint32_t rescues;      /* turns by others, of what had waited for long. RMW */
} CL_ALIGNED(CL_CACHELINE);

static struct cl_runtime *runtime;
static struct cl_sched *sched; /* NULL: there is none yet */
static bool managed;           /* its kthreads have threads of their own: none is kept, and there is no caretaker */
static unsigned n_kthreads;
static struct kept kept[CL_SCHED_MAX_KTHREADS];
static pthread_mutex_t keeping = PTHREAD_MUTEX_INITIALIZER;
static int caretaker_epoll, caretaker_call;
static uint32_t n_kept; /* under `keeping`; read by the caretaker without */
static pthread_key_t thread_ends;
static __thread struct keeper mine __attribute__((tls_model("initial-exec")));

static bool is_mine(void)
{
    /* Seq_cst loads: in cl_posix_sleep_begin this comes after the store of `asleep`. */
    return mine.known && mine.kthread >= 0 && __atomic_load_n(&kept[mine.kthread].keeper, __ATOMIC_SEQ_CST) == &mine;
}

int cl_posix_kthread_fd(unsigned k)
{
    return cl_kthread_fd(sched, k);
}

unsigned cl_posix_kept(void)
{
    return (unsigned)mine.kthread;
}

uint32_t cl_posix_here(void)
{
    return is_mine() && n_kthreads > 1 ? (uint32_t)mine.kthread + 1 : 0; /* which it keeps since there are any */
}

void cl_posix_count_told(uint32_t home)
{
    int k = cl_kthread_index_in(sched);
    if (k < 0)
        return;
    struct cl_posix_told_counts *told = &cl_posix_counts()->told[k];
    bool here = (uint32_t)k + 1 == home;
    cl_count(here ? &told->home : &told->away, 1);
    if (!here && mine.calls)
        cl_count(&told->away_in_call, 1);
}

bool cl_posix_turn_for(unsigned k)
{
    const struct keeper *of = cl_load_acquire(&kept[k].keeper);
    if (of && of != &mine)
        (void)cl_kthread_borrow_turn(sched, k);
    return of;
}

/* Turn it until it has nothing to do. False: it still has, or somebody else is inside. */
static bool settle(unsigned k)
{
    int rc = 1;
    for (unsigned i = 0; rc > 0 && i < TURNS_MOST; i++)
        rc = cl_kthread_borrow_turn(sched, k);
    return rc == 0;
}

/* What its keeper has gathered has waited for long: it is served for him. */
static void rescue(unsigned k)
{
    uint64_t since_ns = cl_kthread_gathered_ns(sched, k);
    if (!since_ns || cl_sched_now_ns(sched) < since_ns + GATHER_NS || cl_kthread_borrow_turn(sched, k) < 0)
        return; /* or whoever is inside of it sends it */
    __atomic_fetch_add(&kept[k].rescues, 1, __ATOMIC_RELAXED);
}

static void call_caretaker(void)
{
    uint64_t one = 1;
    (void)cl_linux(SYS_write, caretaker_call, &one, sizeof one);
}

/* What it gathered has waited for long: it computes, or blocks elsewhere, or had no core. */
static void note_late(void)
{
    mine.answers = 0;
    mine.late += LATE_SHARE;
    if (mine.late <= LATE_MOST * LATE_SHARE)
        return;
    mine.late = LATE_MOST * LATE_SHARE;
    mine.caution = cl_min(2 * mine.caution + 1, (uint32_t)CAUTION_MOST);
    mine.pause = mine.caution;
    mine.good = 0;
}

/* How long what the thread has gathered waits: 0, nothing does. Its kthread is its own. */
static uint64_t waited_ns(void)
{
    uint64_t since_ns = cl_kthread_gathered_ns(sched, (unsigned)mine.kthread);
    return since_ns ? cl_max(cl_sched_now_ns(sched) - since_ns, (uint64_t)1) : 0;
}

/* Whether that was for long, as of now, or before others saw to it. */
static bool was_late(uint64_t ns)
{
    uint32_t rescues = cl_load_relaxed(&kept[mine.kthread].rescues);
    bool late = ns >= LATE_NS || rescues != mine.rescued;
    mine.rescued = rescues;
    return late;
}

/* Before the thread waits. */
static void look_back(void)
{
    uint64_t ns = waited_ns();
    if (cl_unlikely(was_late(ns))) {
        note_late();
    } else if (ns) {
        mine.late -= mine.late > 0;
        if (cl_unlikely(mine.caution && ++mine.good == GOOD_WAITS)) {
            mine.caution /= 2;
            mine.good = 0;
        }
    }
}

void cl_posix_gathered(uint64_t *gathers, uint64_t *rescues)
{
    *gathers = *rescues = 0;
    for (unsigned k = 0; k < n_kthreads; k++) {
        *gathers += cl_load_relaxed(&kept[k].gathers);
        *rescues += cl_load_relaxed(&kept[k].rescues);
    }
}

void cl_posix_told_of(int n)
{
    mine.answers = n > 1 && mine.pause == 0 ? (uint32_t)n : 0;
    mine.answered = NULL;
    mine.held = 0; /* the turn before it has sent them */
    mine.pause -= n > 1 && mine.pause > 0;
}

/* Whether what a call sends may wait for what the next ones do. to: whom it answers, perhaps in several pieces; NULL:
 * it sends nothing, and looks at no clock. */
static bool gathers(const void *to)
{
    if (mine.answers == 0 || !to)
        return mine.answers;
    uint64_t ns = waited_ns();
    if (was_late(ns))
        note_late();
    mine.answers -= to != mine.answered && mine.answers;
    mine.answered = to;
    bool more = mine.answers && ns < GATHER_NS && mine.held + 1 < GATHER_MOST;
    mine.held = more ? mine.held + 1 : 0; /* else all leave with this one */
    if (more)
        cl_count(&kept[mine.kthread].gathers, 1);
    return more;
}

bool cl_posix_gathers(void)
{
    return is_mine() && mine.answers;
}

bool cl_posix_keeps(void)
{
    return managed || is_mine();
}

bool cl_posix_kthreads_managed(void)
{
    return managed;
}

/* Somebody else will turn it until it has nothing to do. */
static bool keeper_is_up(unsigned k)
{
    if (!cl_load_acquire(&kept[k].keeper))
        return false;
    __atomic_store_n(&kept[k].lent, 1, __ATOMIC_SEQ_CST); /* before the look at `asleep`, and at the keeper again */
    return !__atomic_load_n(&kept[k].asleep, __ATOMIC_SEQ_CST) && __atomic_load_n(&kept[k].keeper, __ATOMIC_SEQ_CST);
}

/* After a call on one that is not the thread's own, which has left it up. */
static void leave(unsigned k)
{
    if (keeper_is_up(k))
        (void)cl_kthread_borrow_turn(sched, k); /* he may compute for long */
    else if (!settle(k))
        call_caretaker();
}

static int run_on_some(void (*fn)(void *arg), void *arg, const void *to)
{
    bool own = is_mine(), more = own && gathers(to);
    unsigned first = own ? (unsigned)mine.kthread : 0;
    for (;;) {
        for (unsigned i = 0; i < n_kthreads; i++) {
            unsigned k = (first + i) % n_kthreads;
            int rc = more && i == 0 ? cl_kthread_borrow_more(sched, k, fn, arg) : cl_kthread_borrow(sched, k, fn, arg);
            if (rc == -EBUSY)
                continue;
            if (rc == 0 && !(own && k == first))
                leave(k);
            return rc;
        }
        sched_yield();
    }
}

static int run(void (*fn)(void *arg), void *arg, const void *to)
{
    if (cl_unlikely(managed))
        return cl_sched_run(sched, fn, arg);
    mine.calls = true;
    int rc = run_on_some(fn, arg, to);
    mine.calls = false;
    return rc;
}

int cl_posix_run(void (*fn)(void *arg), void *arg)
{
    return run(fn, arg, NULL);
}

int cl_posix_run_sender(void (*fn)(void *arg), void *arg, const void *to)
{
    return run(fn, arg, to);
}

void cl_posix_turn_all(void)
{
    for (unsigned k = 0; k < n_kthreads && !managed; k++)
        (void)cl_kthread_borrow_turn(sched, k);
    sched_yield(); /* whoever is inside of one may need the core to leave it */
}

void cl_posix_deliver(void)
{
    unsigned tries = 0; /* of all: a yield may take as long as others like */
    for (unsigned i = 0; i < ROUNDS * n_kthreads && !managed; i++)
        for (; cl_kthread_borrow_turn(sched, i % n_kthreads) == -EBUSY && tries < TURNS_MOST; tries++)
            sched_yield(); /* whoever is inside may need the core to leave it */
}

/* Keeping. */

static void watch(unsigned k, int op)
{
    struct epoll_event e = {.events = EPOLLIN, .data.u32 = k};
    (void)cl_linux(SYS_epoll_ctl, caretaker_epoll, op, cl_kthread_fd(sched, k), &e);
}

/* Under `keeping`. */
static void take_back(unsigned k)
{
    __atomic_store_n(&kept[k].keeper, NULL, __ATOMIC_SEQ_CST);
    cl_store_relaxed(&n_kept, n_kept - 1);
    watch(k, EPOLL_CTL_ADD);
}

/* Under `keeping`. */
static void give(unsigned k, struct keeper *to)
{
    __atomic_store_n(&kept[k].keeper, to, __ATOMIC_SEQ_CST);
    cl_store_relaxed(&n_kept, n_kept + 1);
    watch(k, EPOLL_CTL_DEL);
}

static void on_thread_end(void *arg)
{
    struct keeper *k = arg;
    pthread_mutex_lock(&keeping);
    if (k->kthread >= 0 && kept[k->kthread].keeper == k) {
        cl_store_relaxed(&kept[k->kthread].asleep, 0);
        take_back((unsigned)k->kthread);
    }
    pthread_mutex_unlock(&keeping);
    k->known = false;
    call_caretaker(); /* it may be up, and then its descriptor says nothing */
}

void cl_posix_keep(void)
{
    if (managed || is_mine() || cl_load_relaxed(&n_kept) == n_kthreads)
        return;
    if (!mine.known) {
        mine = (struct keeper){.kthread = -1, .known = true};
        pthread_setspecific(thread_ends, &mine);
    }
    pthread_mutex_lock(&keeping);
    for (unsigned k = 0; k < n_kthreads && !is_mine(); k++)
        if (!kept[k].keeper) {
            mine.kthread = (int)k;
            mine.rescued = cl_load_relaxed(&kept[k].rescues);
            give(k, &mine);
        }
    pthread_mutex_unlock(&keeping);
    call_caretaker(); /* it looks after those that are kept, too */
}

bool cl_posix_turn(bool alone)
{
    if (!is_mine())
        return false;
    unsigned own = (unsigned)mine.kthread;
    cl_count(&kept[own].turns, 1);
    look_back();
    if (++mine.looks % LOOK_EVERY == 0 && n_kthreads > 1) {
        unsigned other = mine.looks / LOOK_EVERY % n_kthreads;
        if (other != own)
            rescue(other);
    }
    cl_kthread_alone(sched, own, alone);
    int rc = cl_kthread_borrow_turn(sched, own);
    return rc > 0 || rc == -EBUSY;
}

bool cl_posix_sleep_begin(int *fd)
{
    *fd = -1;
    if (!is_mine())
        return true;
    struct kept *k = &kept[mine.kthread];
    __atomic_store_n(&k->asleep, 1, __ATOMIC_SEQ_CST); /* before the look at the keeper */
    if (__atomic_load_n(&k->lent, __ATOMIC_SEQ_CST) || !is_mine()) {
        cl_store_relaxed(&k->lent, 0); /* the turn that follows is after whatever set it */
        cl_store_relaxed(&k->asleep, 0);
        return false;
    }
    *fd = cl_kthread_fd(sched, (unsigned)mine.kthread);
    return true;
}

void cl_posix_sleep_end(void)
{
    if (!mine.known || mine.kthread < 0)
        return;
    struct kept *k = &kept[mine.kthread];
    if (cl_load_relaxed(&k->keeper) != &mine)
        return;
    cl_count(&k->turns, 1);
    cl_store_release(&k->asleep, 0);
}

/* The caretaker. */

static void look_at_kept(unsigned k)
{
    struct kept *at = &kept[k];
    uint32_t turns = cl_load_relaxed(&at->turns);
    bool still = turns == at->seen && !cl_load_relaxed(&at->asleep);
    at->seen = turns;
    if (!still)
        return;
    pthread_mutex_lock(&keeping);
    struct keeper *was = at->keeper;
    if (was) {
        take_back(k);
        if (__atomic_load_n(&at->asleep, __ATOMIC_SEQ_CST))
            give(k, was);
    }
    pthread_mutex_unlock(&keeping);
}

/* Of all kthreads that are kept. Whether one of them has gathered something since the last look. */
static bool look_at_gathered(void)
{
    bool some = false;
    for (unsigned k = 0; k < n_kthreads; k++) {
        uint32_t gathers = cl_load_relaxed(&kept[k].gathers);
        some |= gathers != kept[k].seen_gathers;
        kept[k].seen_gathers = gathers;
        rescue(k);
    }
    return some;
}

static void show_flows(void)
{
    struct cl_net_stats stats;
    if (n_kthreads == 1 || cl_runtime_net_stats(runtime, -1, &stats))
        return;
    cl_store_relaxed(&cl_posix_counts()->sent_home, stats.flows_sent_home);
    cl_store_relaxed(&cl_posix_counts()->stolen, stats.flows_stolen);
}

/* Turn those that nobody keeps. Whether they have something to do still. */
static bool turn_free(void)
{
    bool busy = false;
    for (unsigned k = 0; k < n_kthreads; k++)
        if (!cl_load_acquire(&kept[k].keeper))
            busy |= !settle(k);
    return busy;
}

static void *care(void *arg)
{
    struct epoll_event events[CL_SCHED_MAX_KTHREADS + 1];
    uint64_t calls, looked_ns = 0;
    bool busy = true, gather = false; /* at first all are up, and are to say that they wait: else nobody wakes them */
    (void)arg;
    for (;;) {
        int wait_ms = busy ? 0 : !cl_load_relaxed(&n_kept) ? -1 : gather ? GATHER_TICK_MS : TICK_MS;
        (void)cl_linux(SYS_epoll_pwait, caretaker_epoll, events, CL_SCHED_MAX_KTHREADS + 1, wait_ms, NULL, 0);
        (void)cl_linux(SYS_read, caretaker_call, &calls, sizeof calls);
        gather = look_at_gathered();
        uint64_t now_ns = cl_sched_now_ns(sched);
        if (now_ns - looked_ns >= TICK_MS * 1000000ull) {
            looked_ns = now_ns;
            for (unsigned k = 0; k < n_kthreads; k++)
                look_at_kept(k);
            show_flows();
        }
        busy = turn_free();
        if (busy)
            sched_yield();
    }
    return NULL;
}

static int start_caretaker(void)
{
    pthread_t thread;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* the program's signals are not for it */
    int rc = -pthread_create(&thread, NULL, care, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc == 0)
        pthread_detach(thread);
    return rc;
}

static void nothing(void *arg)
{
    (void)arg;
}

int cl_posix_kthreads_open(struct cl_runtime *rt)
{
    struct epoll_event e = {.events = EPOLLIN, .data.u32 = CALLED};
    runtime = rt;
    sched = cl_runtime_sched(rt);
    n_kthreads = cl_sched_kthreads(sched);
    int rc = cl_kthread_borrow(sched, 0, nothing, NULL);
    managed = rc == -EINVAL; /* it has a thread of its own */
    if (rc)
        return managed ? 0 : rc;
    caretaker_epoll = cl_posix_inner((int)cl_linux(SYS_epoll_create1, EPOLL_CLOEXEC));
    caretaker_call = cl_posix_inner_eventfd();
    if (caretaker_epoll < 0 || caretaker_call < 0)
        return caretaker_epoll < 0 ? caretaker_epoll : caretaker_call;
    rc = (int)cl_linux(SYS_epoll_ctl, caretaker_epoll, EPOLL_CTL_ADD, caretaker_call, &e);
    if (rc || (rc = -pthread_key_create(&thread_ends, on_thread_end)))
        return rc;
    for (unsigned k = 0; k < n_kthreads; k++)
        watch(k, EPOLL_CTL_ADD);
    return 0;
}

int cl_posix_kthreads_care(void)
{
    return managed ? 0 : start_caretaker();
}

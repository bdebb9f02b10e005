/* The scheduler's structures. Private to libos/sched. */
#ifndef CORELANE_LIBOS_SCHED_INTERNAL_H
#define CORELANE_LIBOS_SCHED_INTERNAL_H

#include <corelane/runtime/clock.h>
#include <corelane/runtime/cores.h>
#include "../../runtime/shm.h"
#include <corelane/libos/timer.h>
#include "linger.h"
#include <corelane/libos/sched.h>
#include "switch.h"
#include "wheel.h"
#include "../trace/trace.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>

#define CL_RUNQ_SIZE 256u /* slots of a run queue's ring */
#define CL_BUDGET 64      /* uthreads run one after another before the loop polls timers and the network again */
#define CL_STACK_CACHE 64 /* free uthreads that a kthread keeps; half of them move at a time */
#define CL_STACK_SLAB 64  /* stacks mapped at a time */
#define CL_TIMERS_MAX (1u << 20)
#define CL_NEVER UINT64_MAX
#define CL_SCHED_SIGNAL SIGURG /* asks for the core; ignored by default, used by nobody else in a process as a rule */
#define CL_BEHIND_FRAMES 16    /* of one poll, and */
#define CL_BEHIND_POLLS 8      /* polls in a row: a kthread falls behind, see steal.c */
#define CL_RETRY_NS                                                                                                    \
    50000 /* first sleep while the source has frames that the NIC did not take; doubles up to 16 times that */

/* cl_uthread.join: 0, the address of the joiner, or one of these. */
#define CL_JOIN_DONE 1ull
#define CL_JOIN_DETACHED 2ull
#define CL_JOIN_CLAIMED 3ull
#define CL_JOIN_IN_SCOPE 4ull /* added to the joiner's address: a cancel may take it back, so it is taken by CAS */

/* A uthread object: it keeps its stack for life, and is recycled through LIFO caches. All of it belongs to the kthread
 * that runs it, or to who holds it in a queue, but for `join` and `gen`. */
struct CL_ALIGNED(64) cl_uthread {
    struct cl_context context; /* while it does not run */
    struct cl_uthread *next;   /* link in a cache, the depot, an overflow list, the inject queue */
    /* While it waits and that is traced: CL_READY_ASKED, or the stamp of when it was made ready; else 0. Its own, then
     * of who makes it ready. */
    uint64_t ready_tsc;
    cl_uthread_fn fn;
    void *arg;
    uint64_t join;  /* writers: joiner, detacher and the context after its end, by CAS and exchange (acq_rel) */
    uint32_t gen;   /* bumped when recycled; read by joiners (relaxed: an id comes to them by some synchronisation) */
    uint32_t index; /* constant: place in cl_sched.uthreads */
    void *local;    /* the user's, see cl_uthread_local */
    void *memory;   /* see cl_uthread_memory */
    void *runner;   /* the work source's, see cl_runner_local */
    const struct cl_doing *doing; /* see cl_uthread_doing; writer: its kthread; readers: anybody, relaxed: a guess */
    char *stack_lo;               /* constant: lowest usable byte; the guard page is below */
    char *stack_top;              /* constant: where its first frame goes */
    struct cl_sched *sched;
    int32_t result;            /* of a join that could not be, set before the joiner is resumed */
    uint32_t shields;          /* its own, see cl_shield_enter */
    uint64_t in_scope;         /* CL_JOIN_IN_SCOPE while it joins in a scope, else 0 */
    struct cl_spin join_guard; /* while it joins in a scope: held until finish_join is through */
    /* See scope.c. scope: the innermost that it is in, home: in which it was started; NULL: none. Both are its own. */
    struct cl_scope *scope, *home;
    struct cl_uthread *member_next, *member_prev; /* of home; under that one's lock */
    struct cl_spin cancel_lock;
    struct cl_waiter *waits; /* under cancel_lock: what a cancel takes it off */
    bool preemptible;        /* between cl_preemptible_begin and _end; read by the handler of the thread that runs it */
    uint32_t stack_id;       /* valgrind */
    void *fake_stack;        /* ASan */
    void *fiber;             /* TSan */
};

#define CL_READY_ASKED 1ull

enum cl_after_op {
    CL_AFTER_NOTHING,
    CL_AFTER_READY,  /* push t to the run queue */
    CL_AFTER_OVER,   /* the quantum of t is over: the loop queues it behind what waits by then */
    CL_AFTER_FRONT,  /* t is the next to run here, and siblings may take it */
    CL_AFTER_UNLOCK, /* release the lock p */
    CL_AFTER_JOIN,   /* t wants to join p */
    CL_AFTER_EXIT,   /* t has ended */
    CL_AFTER_FREE,   /* t has ended and is nobody's: recycle it */
    CL_AFTER_CALL,   /* the loop shall run call_fn(p) on its stack and come back to t */
};

/* What the context switched to has to do for the one that switched away, now that that one's state is saved. */
struct cl_after {
    enum cl_after_op op;
    struct cl_uthread *t;
    void *p;
};

struct cl_runq {
    uint32_t head;
    uint32_t tail;
    uint32_t n_overflow; /* writers: under the lock; readers: all */
    /* What makes of tail and head the positions that are exported (cl_signals): tail + beyond and head + passed, which
     * count uthreads that went past the ring, too. Writers: under the lock; readers: all, relaxed. */
    uint32_t beyond, passed;
    struct cl_spin lock;
    struct cl_uthread *first, *last; /* overflow, under the lock */
    uint64_t overflowed;             /* owner */
    bool shared;                     /* constant */
    struct cl_uthread *ring[CL_RUNQ_SIZE];
} CL_ALIGNED(128);

struct cl_timer_slot {
    uint64_t deadline_ns;
    struct cl_timer *timer;
};

/* Timers armed on a kthread: a 4-ary heap in memory that is reserved once and touched as it fills. */
struct cl_timers {
    struct cl_spin lock;
    uint32_t n;
    uint64_t next_ns; /* deadline of the first; writers: under the lock; readers: all, relaxed: a hint, checked again */
    struct cl_timer_slot *heap;
} CL_ALIGNED(64);

/* What a thief remembers of a sibling between two checks. */
struct cl_seen {
    uint32_t head;     /* of its run queue, when that held one uthread */
    uint32_t alone;    /* checks for which that one has been there */
    uint64_t turns;    /* of its loop */
    uint32_t stuck;    /* checks for which the loop has not turned */
    uint64_t stuck_ns; /* since when, of one that is adopted */
    uint32_t takeable; /* checks for which the source had something to take */
};

/* A kthread that parks while something is in flight. */
struct cl_flights {
    struct cl_kthread *kthread;
    struct cl_completions *only; /* the one queue that it sleeps on by itself */
    bool armed;                  /* the watcher tells, instead */
};

/* What a kthread that sleeps keeps until it is up. */
struct cl_sleep {
    bool managed; /* for a core; else on its parker */
    struct cl_flights flights;
    struct cl_trace_taken taken; /* as far as it was known when the sleep began */
};

/* What a wait is about, for the trace. */
struct cl_waits_for {
    uint16_t what; /* CL_TRACE_WAITS_* */
    const void *object;
    uint64_t holder;
    const uint64_t *stages; /* two stamps that are there when it is over (cl_tracer_parts); NULL: it has no parts */
};

struct cl_kthread {
    /* Private to the kthread. */
    struct cl_sched *sched;
    struct cl_uthread *current; /* NULL in the loop */
    struct cl_after after;
    struct cl_tracer *trace; /* constant; NULL: nothing is traced */
    int32_t budget; /* switches until the loop's turn; negative while something is in flight: see cl_sched_in_flight */
    uint32_t no_switch;
    uint32_t index;
    bool searching;             /* counted in sched->searching */
    bool ran;                   /* something ran since the last flush of the source, or that left frames behind */
    bool more;                  /* inside cl_kthread_borrow_more */
    bool on_loop_stack;         /* inside cl_kthread_call */
    bool network_first;         /* a uthread's quantum is over: poll the network before the run queue */
    bool away;                  /* waits for its core. Read by the handler of the thread itself, as the next one */
    struct cl_uthread *over;    /* its quantum is over, and it is in no queue yet: see cl_requeue */
    bool watched;               /* constant: an iokernel reads the signals, or there is a quantum */
    uint32_t preempt_pending;   /* an interrupt came where it could not be answered: the loop sees to it */
    const uint64_t *preempt;    /* word of cl_cores, or a zero, and ... */
    uint64_t preempt_bit;       /* ... our bit in it */
    struct cl_signals *signals; /* exported to the iokernel, or own_signals */
    uint64_t quantum_ticks;     /* copy of the scheduler's */
    uint64_t switched_tsc;      /* with a quantum: when the uthread that runs was switched to */
    void (*call_fn)(void *arg);
    struct cl_waits_for waits_for; /* set right before a wait */
    struct cl_uthread loop;        /* the loop's own context */
    struct cl_uthread *idle_runner;
    struct cl_uthread *cache;
    uint32_t n_cache;
    uint32_t n_scopes;
    struct cl_scope *scopes; /* free ones */
    uint32_t idle_turns;     /* turns of the loop without work */
    uint64_t idle_since_ns;  /* adaptive: when they began */
    uint64_t idle_yield_ns;  /* managed: when it last yielded for those that wait for its core */
    uint64_t watch_ns;       /* how long to sleep at most, while it doubles */
    uint64_t retry_ns;       /* the same while frames wait for room in the NIC's queue */
    uint64_t resend_ns;  /* managed and parked: when it is to try them again, 0: none wait; under its timers' lock */
    uint64_t service_ns; /* moving average of a frame's handling */
    uint64_t last_lone_wake_ns, lone_wake_ns;
    uint64_t looked_ns;      /* while something is in flight: when completions were last collected, or it began */
    uint64_t let_go_tsc;     /* while something is in flight: when it last let the CPU go, or began to wait for it */
    struct cl_linger linger; /* of a kthread that collects completions, see cl_idle */
    struct cl_seen seen[CL_SCHED_MAX_KTHREADS];
    uint8_t order[CL_SCHED_MAX_KTHREADS]; /* siblings, nearest first */
    struct cl_sleep sleep;
    bool asleep;                /* adopted: its descriptor tells when there is something to do; see adopt.c */
    bool offered;               /* adopted: up, and its descriptor is readable for who comes first */
    struct cl_wakefd *wakefd;   /* constant after new; NULL: it has a thread of its own */
    uint32_t turning;           /* adopted: CL_TURN_*. RMW: its adopter, and who stops */
    struct cl_adopter *adopter; /* of the thread that turns it, or NULL. Writers: under adopt.c's lock; readers: any */
    int32_t cpu;
    pthread_t thread;            /* not of an adopted one */
    int32_t tid;                 /* futex: 0 until the thread runs */
    uint32_t ended;              /* it has left the loop. Writer: the kthread (release) */
    sigset_t signals_blocked;    /* constant once the thread runs: outside of handlers */
    struct cl_sched_stats stats; /* writer: the kthread; readers: all, relaxed */

    /* Read by siblings. */
    uint64_t
        turns CL_ALIGNED(128); /* of the loop; writer: the kthread; readers: thieves, relaxed: only change matters */
    uint32_t behind; /* polls in a row that brought CL_BEHIND_FRAMES; writer: the kthread; readers: thieves, relaxed */
    uint32_t stolen_from; /* writers: thieves (1) and the kthread (0); relaxed */
    uint32_t
        ceded; /* it has lost its core: all that it has may be taken. Writer: the kthread; readers: thieves, relaxed */
    uint32_t
        in_flight; /* requests in complete.h's queues. Writers: the kthread, and who collects for it; RMW, relaxed */
    const struct cl_doing *doing; /* the loop itself, outside of uthreads, as of one. Writer: the kthread (release) */
    struct cl_uthread *front; /* that ran when it lost its core. Writers: the kthread, and who takes it, by exchange */
    uint64_t gathered_ns;    /* adopted: since when something sent in cl_kthread_borrow_more waits, or 0. Writer: who is
                               * inside; readers: any, relaxed: a hint */
    struct cl_timer *firing; /* writer: the kthread; readers: cl_timer_cancel (acquire) */
    struct cl_parker *parker; /* constant after new */
    struct cl_parker own_parker;
    struct cl_timers timers;
    struct cl_wheel wheel;
    struct cl_runq runq;
    uint32_t park_word CL_ALIGNED(64); /* of own_parker */
    struct cl_signals own_signals CL_ALIGNED(64);
} CL_ALIGNED(128);

struct cl_sched {
    /* Constant after cl_sched_new. */
    uint32_t n_kthreads;
    uint32_t poll; /* CL_SCHED_... */
    bool has_source;
    bool oversubscribed; /* more kthreads than CPUs */
    bool smt;            /* hyper-threads share cores on this machine */
    bool sleeps;         /* kthreads may park: not in mode spin */
    bool helped;         /* the same, and there are siblings who would be woken to help */
    bool started;
    uint64_t adopted; /* bit k: kthread k has no thread of its own */
    uint32_t forks;   /* of adopt.c, when it was made */
    uint64_t spin_ns, watch_ns;
    const struct cl_clock *clock;
    uint64_t fp_control;
    struct cl_work_source source;
    struct cl_cores *cores; /* NULL: nobody manages them */
    struct cl_trace *trace; /* NULL: nothing is traced */
    uint64_t quantum_ticks; /* 0: none */
    const uint64_t *probe_word;
    uint64_t let_go_ticks;              /* CL_LET_GO_NS */
    uint64_t linger_ticks;              /* CL_LINGER_NS */
    struct cl_completions *completions; /* writers: add, remove; readers: kthreads, acquire */
    struct cl_watcher *watcher;         /* of those who add */
    struct cl_kthread *kthreads;
    struct cl_uthread *uthreads; /* max_uthreads objects, touched as they are needed */
    char **slabs;                /* mappings of CL_STACK_SLAB stacks each */
    uint32_t max_uthreads, stack_bytes, guard_bytes;
    size_t stack_stride, slab_bytes, uthreads_bytes, slabs_bytes;

    /* Sleeping and waking; see idle.c. All RMW. */
    uint64_t parked CL_ALIGNED(64); /* bit k: kthread k sleeps or is about to */
    uint32_t searching;             /* kthreads awake that search for work */
    uint32_t help_asked; /* the iokernel was asked for help, and no kthread has come since. Relaxed: a hint */

    /* uthreads made ready by foreign threads. */
    struct cl_spin inject_lock CL_ALIGNED(64);
    uint32_t n_inject; /* writers: under the lock; readers: all */
    struct cl_uthread *inject_first, *inject_last;
    uint64_t foreign_spawned; /* under the lock; readers relaxed */

    /* Free uthreads behind the kthreads' caches. Under the lock. */
    struct cl_spin depot_lock CL_ALIGNED(64);
    struct cl_uthread *depot;
    uint32_t n_depot;
    struct cl_scope *scopes; /* free ones behind the kthreads' caches, under scope_lock, as all of them */
    struct cl_scope_slab *scope_slabs;
    struct cl_spin scope_lock;
    uint32_t created;  /* objects ever made; readers: all, relaxed */
    bool light_guards; /* the kernel has guard pages without mappings of their own */
    bool valgrind;     /* constant: it runs us, and is told of stacks */

    /* Stopping: writers under nothing but order (cl_sched_stop); readers: kthreads, relaxed at each turn. */
    uint32_t stopping CL_ALIGNED(64); /* drain */
    uint32_t drained;                 /* futex: nothing alive was seen while stopping */
    uint32_t ending;                  /* leave the loop */
    uint32_t go;                      /* futex: kthreads may begin */
    uint32_t n_ended;                 /* futex: kthreads that have left the loop. RMW, release */
    uint64_t stop_ns;                 /* for which a stop waits for kthreads */
    bool overdue;                     /* it has waited in vain */
    int stopped;                      /* result of the first stop + 1 */

    cpu_set_t allowed; /* of the thread that started the kthreads; constant from then on */
};

/* The calling kthread, NULL on a foreign thread. Never inlined and never assumed unchanged: a uthread that has switched
 * may be on another kthread, and compilers keep addresses of thread-locals across calls. */
struct cl_kthread *cl_kthread_self(void);
void cl_kthread_bind(struct cl_kthread *k);

/* stack.c */
int cl_stacks_new(struct cl_sched *s, const struct cl_sched_config *config, char err[256]);
void cl_stacks_delete(struct cl_sched *s);
struct cl_uthread *cl_stack_get(struct cl_kthread *k); /* NULL: none left */
void cl_stack_put(struct cl_kthread *k, struct cl_uthread *t);
struct cl_uthread *cl_stack_get_foreign(struct cl_sched *s);

/* uthread.c */
void cl_uthread_prepare(struct cl_uthread *t, cl_uthread_fn fn, void *arg, uint64_t join);
/* Of one that was prepared: its function gets the address of so many bytes above its first frame, which are
 * returned. */
void *cl_uthread_take_stack(struct cl_uthread *t, uint32_t bytes);
/* Let one run that was prepared on k. */
void cl_uthread_start(struct cl_kthread *k, struct cl_uthread *t);
/* Switch from the running context to `next`; the caller has filled k->after. Returns when the caller is resumed. */
void cl_switch_to(struct cl_kthread *k, struct cl_uthread *me, struct cl_uthread *next);
int cl_block(struct cl_kthread *k, enum cl_after_op op, void *p);
/* The same for the loop to go on, whoever is ready. */
int cl_block_to_loop(struct cl_kthread *k, enum cl_after_op op);

/* timer.c */
int cl_timers_new(struct cl_timers *h);
void cl_timers_delete(struct cl_timers *h);
/* Run what is due in the heap of `owner` on k; at most a bounded number. Returns how many. */
unsigned cl_timers_run(struct cl_kthread *k, struct cl_kthread *owner, uint64_t now_ns);
/* The scheduler stops (`stopping` is set): uthreads that sleep go on, and are told. Any thread. */
void cl_timers_end_sleeps(struct cl_timers *h);
/* Tell the iokernel when the first is due. */
void cl_timers_export(struct cl_kthread *k);
/* k only: a time at which it is to have a core as for a timer; 0: none. */
void cl_timers_resend(struct cl_kthread *k, uint64_t at_ns);
/* Arm on k and leave the heap locked, for cl_block(.., CL_AFTER_UNLOCK, &k->timers.lock). Not armed: 0 or -ENOSPC. */
int cl_timer_arm_locked(struct cl_kthread *k, struct cl_timer *timer, uint64_t deadline_ns);

/* steal.c, order.c, idle.c, runner.c, kthread.c, guard.c */
unsigned cl_steal(struct cl_kthread *k, bool *promising);
void cl_order_init(struct cl_sched *s);
void cl_wake_one(struct cl_sched *s, struct cl_kthread *waker);
void cl_wake_for_lone(struct cl_kthread *k);
void cl_wake_all(struct cl_sched *s);
void cl_idle(struct cl_kthread *k);
void cl_idle_over(struct cl_kthread *k);
void cl_park_kthread(struct cl_kthread *k);
bool cl_work_visible(struct cl_kthread *k);
void cl_drain_check(struct cl_sched *s);
bool cl_run_runner(struct cl_kthread *k);
void cl_dispatch(struct cl_kthread *k, struct cl_uthread *t);
/* Queue the uthread whose quantum is over, if there is one. */
void cl_requeue(struct cl_kthread *k);
unsigned cl_turn(struct cl_kthread *k);
/* Once round the loop: a turn, and what one does who had nothing to do in it. An adopted kthread may be asleep then. */
void cl_round(struct cl_kthread *k);
/* An adopted kthread that sleeps: be up again if there is something to do. False: it sleeps on. */
bool cl_rise(struct cl_kthread *k);
/* The same, whether there is something to do or not. */
void cl_get_up(struct cl_kthread *k);
/* k has left the loop for good. */
void cl_kthread_ended(struct cl_kthread *k);
void cl_short_slices(void);
/* Doorbells for what uthreads, timers and polls have sent since the last time, or could not be sent then. */
void cl_flush(struct cl_kthread *k);
void *cl_kthread_main(void *arg);
void cl_inject(struct cl_sched *s, struct cl_uthread *t, bool spawned);
/* Of the calling thread. NULL: it has none, which only costs handlers that ask for one. */
void *cl_signal_stack_install(void);
void cl_signal_stack_remove(void *installed);
void cl_loop_stack_bounds(struct cl_kthread *k);

/* complete.c. What is done on the queues of `of`; for ourselves; before and after sleeping. */
#define CL_LET_GO_NS 50000      /* while something is in flight and there is work: how often the CPU is let go */
#define CL_COMPLETIONS_NS 20000 /* the same: how long uthreads run one after another before completions are polled */
unsigned cl_completions_poll(struct cl_kthread *k, struct cl_kthread *of);
unsigned cl_completions_check(struct cl_kthread *k);
void cl_completions_arm(struct cl_kthread *k, bool on);
void cl_completions_export(struct cl_kthread *k);
/* The one queue on which something of k is in flight, if k can sleep on it by itself; NULL otherwise. */
struct cl_completions *cl_completions_only(const struct cl_kthread *k);
/* done and sleep of struct cl_park_poll; their arg is a struct cl_flights. */
bool cl_flights_done(void *arg);
bool cl_flights_sleep(void *arg, const uint32_t *word, uint32_t value, int64_t timeout_ns);
void cl_watcher_stop(struct cl_sched *s);

/* sched.c: tell the iokernel who the kthreads are, and let them begin. */
int cl_sched_register(struct cl_sched *s, char err[256]);

/* adopt.c. Before the kthreads start, and after they have ended. */
int cl_adopt_init(struct cl_sched *s, char err[256]);
void cl_adopt_delete(struct cl_sched *s);
/* Run adopted kthreads that nobody turns, until nothing is alive or cl_monotonic_raw_ns() is `until`. By who stops. */
void cl_adopted_drain(struct cl_sched *s, uint64_t until);
/* End adopted kthreads that nobody turns at this moment; `ending` is set. */
void cl_adopted_end(struct cl_sched *s);
/* Whether the calling thread is an adopter of a kthread of s. */
bool cl_adopts(const struct cl_sched *s);
/* The signal that takes a core came to a thread outside of its kthreads' loops. Async-signal-safe. */
void cl_adopted_interrupt(void (*wait)(struct cl_kthread *k, int signal), int signal);

/* rseq.c: have the kernel switch to this thread sooner. */
void cl_rseq_give_up(void);
/* cede.c: cores that others may take. */
/* The preemption flag is set: if the core is lost, cede it, and come back with it. Returns whether a uthread was run
 * then. */
bool cl_cede(struct cl_kthread *k);
/* The same where the uthread cannot be switched away from. Async-signal-safe. */
void cl_cede_in_place(struct cl_kthread *k);
/* What is known at this moment of who has the core of k, which traces. Async-signal-safe. */
void cl_taken_begin(struct cl_kthread *k, struct cl_trace_taken *taken);
/* Take the uthread that ran when v lost its core. */
struct cl_uthread *cl_take_front(struct cl_kthread *v);
void cl_export(struct cl_kthread *k);
/* interrupt.c: the signal by which an iokernel takes a core from code that does not poll. */
int cl_interrupt_install(int signal, char err[256]);
/* Trampoline's call: the uthread was interrupted where that is safe. */
void cl_preempted(void);

static inline uint64_t cl_sched_clock(const struct cl_sched *s)
{
    return (uint64_t)cl_clock_ns(s->clock);
}

/* Release: whoever sees this end (cl_sched_live) sees the start that came before it, on whatever kthread. */
static inline void cl_count_finished(struct cl_kthread *k)
{
    cl_store_release(&k->stats.finished, k->stats.finished + 1);
}

/* The loop has polled all there is: uthreads may run one after another again. Relaxed: a sibling that collects
 * completions makes what is in flight less, and we then poll sooner than we need. */
static inline void cl_budget(struct cl_kthread *k)
{
    k->budget = cl_unlikely(cl_load_relaxed(&k->in_flight)) ? -CL_BUDGET : CL_BUDGET;
}

static inline bool cl_managed(const struct cl_sched *s)
{
    return cl_unlikely(s->cores != NULL) && s->cores->ops->managed(s->cores);
}

/* Whether k's preemption flag is set. Relaxed: it only says that the owner word is to be read. */
static inline bool cl_preempt_needed(const struct cl_kthread *k)
{
    return cl_unlikely(k->watched) &&
           cl_unlikely(((cl_load_relaxed(k->preempt) & k->preempt_bit) | k->preempt_pending) != 0);
}

/* Export run queue positions: uthreads made ready, and taken. Relaxed, see cl_signals. Where nobody reads them they are
 * not stored: that would be an eighth of a switch. */
static inline void cl_note_ready(struct cl_kthread *k)
{
    if (cl_unlikely(k->watched))
        cl_store_relaxed(&k->signals->runq_tail, k->runq.tail + cl_load_relaxed(&k->runq.beyond));
}

static inline void cl_note_taken(struct cl_kthread *k)
{
    if (cl_unlikely(k->watched))
        cl_store_relaxed(&k->signals->runq_head, cl_load_relaxed(&k->runq.head) + cl_load_relaxed(&k->runq.passed));
}

/* A uthread is about to be switched to. */
static inline void cl_note_switch(struct cl_kthread *k)
{
    cl_count(&k->stats.switches, 1);
    if (cl_likely(!k->watched))
        return;
    cl_store_relaxed(&k->signals->switches, k->signals->switches + 1); /* the work source adds to it, too */
    if (k->quantum_ticks)
        k->switched_tsc = cl_clock_stamp(k->sched->clock);
}

/* Say what the uthread is about to wait for. Nothing may come between this and cl_block. */
static inline void cl_waits_for(struct cl_kthread *k, uint16_t what, const void *object, uint64_t holder)
{
    if (k->trace)
        k->waits_for = (struct cl_waits_for){what, object, holder, NULL};
}

/* The same of a wait that goes through two stages: whoever ends it leaves a stamp of the scheduler's clock for each. */
static inline void cl_waits_in_stages(struct cl_kthread *k, uint16_t what, const void *object, const uint64_t *stages)
{
    if (k->trace)
        k->waits_for = (struct cl_waits_for){what, object, 0, stages};
}

/* Whether its waits are noted: of a handler, or of anybody. */
static inline bool cl_traces_waits(const struct cl_kthread *k, const struct cl_uthread *me)
{
    uint32_t mode = k->trace ? k->trace->mode : CL_TRACE_OFF;
    return mode != CL_TRACE_OFF && (me->runner || mode == CL_TRACE_FULL);
}

/* Whether the caller is on a uthread that may switch. */
static inline bool cl_may_block(const struct cl_kthread *k)
{
    return cl_likely(k && k->current && !k->no_switch);
}

#endif

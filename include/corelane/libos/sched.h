/* The scheduler: user-level threads (uthreads) multiplexed over N kernel threads (kthreads), with work stealing.
 *
 * Its files: libos/sched/README.md. Start reading at kthread.c, the loop. What code on a uthread calls: uthread.h,
 * sync.h, timer.h.
 *
 * Threads: kthread k is one pthread, which runs the scheduler loop on its own stack and uthreads on theirs. It alone
 * pushes to its run queue; siblings take from it. A uthread runs on one kthread at a time and may resume on another
 * after any call that blocks or yields, so nothing that belongs to a kthread (its index, thread-locals, errno) may be
 * kept across such a call.
 *
 * Invariants
 *   - A uthread is in at most one of: running, a run queue, a wait list. It enters a queue or list only after its
 *     context has been saved, which the context switched to sees to (struct cl_after in internal.h).
 *   - Work is never lost to sleep: whoever publishes work that somebody else should take does so before a full fence
 *     and before checking for sleepers; whoever goes to sleep says so before a full fence and before checking for work
 *     (idle.c).
 *   - spawned = finished + live, summed over the kthreads; steals out of a queue = steals into another.
 *   - After start-up a kthread makes no system call while it has work, or ever in mode `spin`, but for the yield of a
 *     contended spinlock (spin.h), what completions in flight take (complete.h), the first use of more stacks (stack.c)
 *     and waking a sleeping sibling.
 *
 * Does not deal with: preemption inside a runtime of a uthread that reaches no scheduling point and no probe,
 * priorities, more than one scheduler a kthread, fork (the child has no kthreads: only exec and _exit are
 * useful there), CET shadow stacks (switch.h says why the library never carries the mark that would turn them on). */
#ifndef CORELANE_LIBOS_SCHED_H
#define CORELANE_LIBOS_SCHED_H

#include <corelane/runtime/base.h>
#include <corelane/runtime/clock.h>
#include <corelane/runtime/park.h>
#include <corelane/libos/uthread.h>
#include <corelane/libos/spin.h>

CL_EXTERN_C_BEGIN

// cffi: begin
#define CL_SCHED_MAX_KTHREADS 64
#define CL_SCHED_STACK_FLOOR_BYTES 16384

/* What an idle kthread does. spin: polls for ever. adaptive: polls for spin_ns, then sleeps. block: sleeps at once.
 * With more kthreads than CPUs the process may use, spin calls sched_yield() between polls and adaptive polls briefly.
 */
#define CL_SCHED_SPIN 0
#define CL_SCHED_ADAPTIVE 1
#define CL_SCHED_BLOCK 2

#define CL_SCHED_STOP_NS 5000000000ull /* default of cl_sched_config.stop_ns */

struct cl_sched;
struct cl_trace;      /* libos/trace: what a runtime writes down of its requests */
struct cl_trace_open; /* and what is noted of one that is being handled */

/* Where work other than uthreads comes from: the network, seen through callbacks. Kthread k owns queue k. Frames go
 *
 *     queue q (NIC) --poll--> inbox of a kthread --run--> handlers, on a runner uthread
 *
 * An inbox belongs to the source; there is one per kthread. Context of each call: S = scheduler loop of kthread `self`
 * (no uthread is current, blocking calls answer -EDEADLK); U = on a uthread of kthread `self`. No callback but `run`
 * and `wait` may take long. All are called by kthreads of this scheduler only, between cl_sched_start and the end of
 * cl_sched_stop (or inside cl_sched_step). Any of them but poll, ready, pending and run may be NULL. */
struct cl_work_source {
    void *arg;
    /* S. Move frames into the inbox of `self`, as many as fit and a burst at most, and return how many were moved.
     * queue == self: from its NIC queue. queue != self: steal for self, from the sibling's inbox first (older) and
     * then its NIC queue. Thieves and owner run at the same time: the callee takes the queue's lock by trylock and
     * returns 0 if it is held. */
    unsigned (*poll)(void *arg, unsigned self, unsigned queue);
    /* S, any kthread: whether poll(.., queue) would find something, in the NIC queue or in the inbox of `queue`. Waits
     * for no lock: a callee that has to lock the queue to check tries once, and returns true if the lock is held. May
     * be wrong while others run, but says false only if after a full fence it has seen that nothing was there before
     * it. What it had to take out of the NIC's queue in order to check stays visible to every later call. */
    bool (*ready)(void *arg, unsigned queue);
    /* S, any kthread: how many frames wait in the inbox of `queue`. The same rules as for ready. */
    unsigned (*pending)(void *arg, unsigned queue);
    /* U. Handle frames of the inbox of the calling kthread until it is empty. `self` is that kthread on entry only: a
     * handler may block, the runner then may resume elsewhere, and must read cl_kthread_index() again after each
     * handler and go on with that kthread's inbox. While it was blocked another runner was started for the rest. Hence:
     * take a frame out of the inbox before its handler is called, and keep nothing of the kthread in variables across
     * it. Several runners may be inside run at the same time, at most one of them running on each kthread. */
    void (*run)(void *arg, unsigned self);
    /* S. Ring doorbells for what was queued for sending on kthread `self`, and return whether something had to stay
     * because the NIC's queue is full. Called after uthreads, timers and polls that found something, before the next
     * poll and before sleeping; cheap when there is nothing. While something stays it is called each turn, and the
     * kthread sleeps briefly only, for nobody wakes it when the NIC's queue drains. May be NULL. */
    bool (*flush)(void *arg, unsigned self);
    /* S. `self` has found nothing to do: a few us of what may be done at any time. False: there is nothing of that,
     * too. May be NULL. */
    bool (*idle)(void *arg, unsigned self);
    /* The place where kthread k sleeps, constant for the life of the source; called once at cl_sched_new. NULL (or a
     * NULL result): the scheduler brings futexes of its own. */
    struct cl_parker *(*parker)(void *arg, unsigned k);
    /* S, after cl_park_begin on parker k and a re-check: sleep until woken, until a frame comes, or for timeout_ns
     * (negative: for ever). Returns with the park word RUNNING; a result < 0 is counted in wait_errors. NULL:
     * cl_park_wait is called. */
    int (*wait)(void *arg, unsigned k, int64_t timeout_ns);
    /* S. Store the positions of the inbox of `self` in its signals (runtime/shm.h), where cores are managed. */
    void (*export_positions)(void *arg, unsigned self);
    /* S. The quantum of uthread `t`, which is inside run, is over. `runner` is its cl_runner_local, not NULL. True: the
     * source keeps it, counts it as pending, and has run call cl_uthread_ready(t) when its turn comes; false: it goes
     * to the run queue. May be NULL. */
    bool (*preempted)(void *arg, unsigned self, struct cl_uthread *t, void *runner);
    /* S, any kthread: how many of what is pending at `queue` a sibling without work should take although its owner gets
     * on with others. May be NULL. */
    unsigned (*takeable)(void *arg, unsigned queue);
    /* For adopted kthreads (adopt.h), which sleep elsewhere; the next three may be NULL.
     * A descriptor of kthread k that poll() reports readable when a frame waits, or -1: then whoever brings one wakes
     * the parker. Below -1: an error. Called once at cl_sched_new, after the parker was given an eventfd. NULL: -1. */
    int (*fd)(void *arg, unsigned k);
    /* S. The park word of kthread k is set, and all work is about to be looked at again. */
    void (*parked)(void *arg, unsigned k);
    /* S. In how many ns `poll` may find frames of queue k that nothing announces; -1: never. NULL: never. */
    int64_t (*unannounced_ns)(void *arg, unsigned k);
    /* U. What is noted of the message that uthread's `runner` (its cl_runner_local) is in, which is about to wait;
     * NULL: it is in none. May be NULL. */
    struct cl_trace_open *(*message)(void *arg, unsigned self, void *runner);
};

/* Everything that a scheduler is told. Start from cl_sched_config_init. */
struct cl_sched_config {
    uint32_t n_kthreads;   /* 1..64; default 1 */
    uint32_t adopted;      /* the first so many have no thread of their own (adopt.h); default 0 */
    uint32_t poll;         /* what a kthread without work does: CL_SCHED_*; default adaptive */
    uint32_t stack_bytes;  /* a uthread's stack, rounded up to pages; default 65536, least 16384 */
    uint32_t max_uthreads; /* that can exist at one time, runners included; default 65536 */
    uint64_t spin_ns;      /* adaptive: time without work before sleeping; default 20 us */
    uint64_t watch_ns;     /* longest first sleep; doubles up to 64 times that. 0: no limit. default 1 ms */
    const int32_t *cpus;   /* CPU of kthread k, -1 for unpinned; NULL: none pinned. Copied. */
    const struct cl_work_source *source; /* NULL: none. Copied. */
    struct cl_cores *cores; /* who owns the kthreads' cores (corelane/runtime/cores.h); NULL: nobody manages them */
    uint64_t stop_ns;       /* how long a stop waits for kthreads whose code does not come back; 0: 5 s, the default */
    uint64_t quantum_ns;    /* a uthread that ran for so long lets others go first, at its next probe; 0: never */
    /* Its time: of timers, sleeps, quanta. NULL: the machine's. By a virtual clock (clock.h) it is stepped, for a
     * kthread that sleeps does so by the machine's time. Kept, not copied. */
    const struct cl_clock *clock;
    struct cl_trace *trace; /* NULL: nothing is traced. Kept, not copied */
};

/* Counters of a kthread. Writer: that kthread (relaxed); readers: anybody. */
struct cl_sched_stats {
    uint64_t spawned, finished; /* uthreads started and ended by code on this kthread (foreign spawns: kthread 0) */
    uint64_t switches;          /* context switches to a uthread */
    uint64_t polls, frames;     /* calls of the source's poll for its own queue, and frames so found */
    uint64_t stolen_uthreads;   /* taken from siblings' run queues */
    uint64_t stolen_frames;     /* taken from siblings' queues and inboxes */
    uint64_t stolen_timers;     /* run for siblings */
    uint64_t timers;            /* run, own and stolen */
    uint64_t alarms;            /* called, of wheels whose timers it has run */
    uint64_t runners;           /* runner uthreads started */
    uint64_t runners_refused;   /* times that no uthread was left for a runner; its frames wait */
    uint64_t parks;             /* times that it slept */
    uint64_t parks_cancelled;   /* work seen at the re-check before sleeping */
    uint64_t wakes_sent;        /* siblings woken */
    uint64_t injected;          /* uthreads taken from the queue that foreign threads fill */
    uint64_t overflowed;        /* uthreads that did not fit into the ring of the run queue */
    uint64_t wait_errors;       /* source->wait failed */
    uint64_t preempted;         /* uthreads whose quantum was over while others waited */
    uint64_t cedes;             /* uthreads that found at a probe that the core was lost */
    uint64_t interrupts;        /* signals that found the core lost */
    uint64_t quantum_signals;   /* that had a uthread let others go first, since its quantum was over */
    uint64_t quantum_held;      /* that came for that where code may not be interrupted: it went on */
    uint64_t quantum_late;      /* that found neither: what they were sent for had ended */
    uint64_t idle_turns;        /* turns of the loop that found nothing to do; `polls` counts nearly all turns */
};

/* Defaults into *config. */
CL_API void cl_sched_config_init(struct cl_sched_config *config);
/* New scheduler, not running. -EINVAL (err says which field and what was expected), -ENOMEM. Any thread. */
CL_API int cl_sched_new(const struct cl_sched_config *config, struct cl_sched **out, char err[256]);
/* Start the kthreads and pin them. -errno with nothing left running; -EALREADY. Any foreign thread, once. */
CL_API int cl_sched_start(struct cl_sched *sched, char err[256]);
/* Pin the kthreads anew: kthread k to cpus[k], -1 or cpus NULL: to where the thread that started them might run.
 * Returns how many may not run there, and stay where they are. Any foreign thread, after cl_sched_start and before
 * cl_sched_stop begins. Not where cores are managed. */
CL_API unsigned cl_sched_place(struct cl_sched *sched, const int32_t *cpus);
/* Let uthreads go on until none is left or timeout_ns is over (< 0: no limit), then end and join the kthreads. Frames
 * still in inboxes stay there. Stepped, on a virtual clock: uthreads go on here, by turns, while that finds anything to
 * do. Returns the number of uthreads that were still alive (their stacks go with
 * cl_sched_delete), or -EDEADLK from a kthread of this scheduler. A second call returns the same number. -ETIMEDOUT:
 * stop_ns later a kthread is still in code that does not come back (cl_sched_running says in which); it may be called
 * again, and then waits for a moment only. */
CL_API int cl_sched_stop(struct cl_sched *sched, int64_t timeout_ns);
/* Code of the application that a uthread is in, for who waits for it in vain. It stays as long as the scheduler
 * does. */
struct cl_doing {
    const char *what; /* as in "the handler of TCP port 7000" */
    void *fn, *arg;   /* the function, and what it is given */
    uint32_t port;    /* of a handler; 0: it has none */
    uint32_t pad;
};
/* Say what the calling uthread does from here on, or the loop that is called back; NULL: nothing of the application's.
 * Off a kthread nothing is said. */
CL_API void cl_uthread_doing(const struct cl_doing *doing);
/* What a kthread runs, for who waits for it in vain. */
struct cl_sched_running {
    uint32_t kthread;
    int32_t tid;
    cl_uthread_fn fn;             /* the uthread's; NULL: none runs, the loop does */
    void *arg;                    /* the uthread's */
    void *runner;                 /* its cl_runner_local: the work source's */
    const struct cl_doing *doing; /* what it has said; NULL: nothing */
};
/* False: kthread k has ended, or was not started. A guess while it switches. Any thread. */
CL_API bool cl_sched_running(const struct cl_sched *sched, unsigned k, struct cl_sched_running *out);
/* Stop (timeout 0) if need be, and free everything. From a foreign thread, while no other is inside a call that wakes a
 * uthread of this scheduler. NULL is allowed. If the stop fails with -ETIMEDOUT nothing is freed: it is in use. */
CL_API void cl_sched_delete(struct cl_sched *sched);
/* A detached uthread from any thread, before or after cl_sched_start. -EAGAIN: max_uthreads; -ESHUTDOWN: stopped. */
CL_API int cl_sched_spawn(struct cl_sched *sched, cl_uthread_fn fn, void *arg);
/* The same, and sleep until it has ended. From a foreign thread, after cl_sched_start; -EDEADLK on a uthread, and on a
 * thread that has adopted a kthread of it. */
CL_API int cl_sched_run(struct cl_sched *sched, cl_uthread_fn fn, void *arg);
/* Something was put where the work source of kthread k looks for it, by somebody else: if k sleeps, wake it. Where an
 * iokernel manages the cores it sees to that, by the signals of k. Any thread. */
CL_API void cl_sched_wake_kthread(struct cl_sched *sched, unsigned k);
/* Deterministic mode, instead of cl_sched_start: the calling thread is kthread k for one turn of the loop (timers due,
 * a bounded number of uthreads, poll, one check of siblings). Never sleeps. Returns how many things were done; 0: idle.
 * -EBUSY if started, -EDEADLK on a kthread. The calls must not overlap. */
CL_API int cl_sched_step(struct cl_sched *sched, unsigned k);
/* When a stepped scheduler has something to do by itself: its first timer is due, or frames that the source's queue did
 * not take are to be tried again. UINT64_MAX: never. */
CL_API uint64_t cl_sched_next_ns(const struct cl_sched *sched);
/* Counters of kthread k, whole but not all of one instant. -EINVAL if there is no such kthread. */
CL_API int cl_sched_stats(const struct cl_sched *sched, unsigned k, struct cl_sched_stats *out);
/* uthreads that exist (idle runners not counted). Exact when no kthread runs. */
CL_API uint64_t cl_sched_live(const struct cl_sched *sched);
/* Time of this scheduler's clock, ns. Any thread. */
CL_API uint64_t cl_sched_now_ns(const struct cl_sched *sched);
/* Around a call of the kernel that may take longer than the iokernel's `cede_us`, such as the submission of a write:
 * the kthread gets a preemption request, but no signal, until it comes back, or has been away for longer than
 * `interrupt_us`. On any thread; does nothing on one that is no kthread. */
CL_API void cl_sched_call_begin(void);
CL_API void cl_sched_call_end(void);
CL_API unsigned cl_sched_kthreads(const struct cl_sched *sched);
/* Whether kthread k has lost its core and waits for one: what it has is its siblings' then. Any thread; it may be wrong
 * by now. */
CL_API bool cl_sched_has_ceded(const struct cl_sched *sched, unsigned k);
/* Where its work comes from; NULL: from nowhere. Any thread. */
CL_API const struct cl_work_source *cl_sched_source(const struct cl_sched *sched);

/* Of the calling thread: its scheduler (NULL on a foreign thread) and kthread index (-1). Never keep the index across a
 * call that may block. */
CL_API struct cl_sched *cl_sched_self(void);
CL_API int cl_kthread_index(void);
/* The same index if the calling thread is a kthread of that scheduler; else -1. */
CL_API int cl_kthread_index_in(const struct cl_sched *sched);

/* Between enter and leave the calling kthread switches no stacks: every call that would block or yield answers -EDEADLK
 * instead. For callbacks with frames of a language run-time that keeps the C stack in order (CPython). Nests. */
CL_API void cl_sched_no_switch_enter(void);
CL_API void cl_sched_no_switch_leave(void);
/* Run fn(arg) on the kthread's own large stack (8 MiB unless the process limits it), to completion, under the no-switch
 * rule, and return. For code that needs more stack than a uthread has. On a uthread; -EDEADLK under no-switch. */
CL_API int cl_kthread_call(void (*fn)(void *arg), void *arg);

/* What cl_probe_slow does (probe.h): cede the core if it is not ours any more, or yield if the quantum is over. */
CL_API void cl_sched_preempt_poll(void);

/* Code that an interrupt may switch away from, since it holds nothing that others wait for, has no thread-local's
 * address in a register and calls nothing outside of the range (outside it waits in place): compiled numeric code.
 * -ENOSPC, -EINVAL. Any thread. Remove it before the memory is used for something else. */
CL_API int cl_preemptible_add(const void *begin, const void *end);
CL_API void cl_preemptible_remove(const void *begin);
/* The same for what the calling uthread runs between these two: no calls but probes, no spinlocks, no thread-locals.
 * -EPERM in a place that may not switch. */
CL_API int cl_preemptible_begin(void);
CL_API void cl_preemptible_end(void);

/* The primitive under all blocking calls: put the caller to sleep and release `held` once its context is saved, so that
 * a waker that takes the lock finds a uthread that can be resumed. It is resumed by cl_uthread_ready, once. -EDEADLK,
 * with the lock still held, in a place that may not block. */
CL_API int cl_sched_block(struct cl_spin *held);
/* Let a uthread that sleeps in cl_sched_block run. Any thread, foreign ones too; may not be called twice for one sleep.
 */
CL_API void cl_uthread_ready(struct cl_uthread *t);

/* A second pointer of the calling uthread, like cl_uthread_local, that belongs to the work source: inside run it finds
 * there what it is working on, whatever the handler keeps in its own. NULL elsewhere than on a uthread. */
CL_API void *cl_runner_local(void);
CL_API void cl_runner_set_local(void *local);

/* Ask that a uthread which overruns its stack is named on stderr before the process dies of SIGSEGV as it would anyway.
 * Installs a SIGSEGV handler for the process that passes every other fault on to the one before it. -errno. */
CL_API int cl_sched_report_overflow(void);
// cffi: end

CL_EXTERN_C_END
#endif

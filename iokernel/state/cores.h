/* Private to the iokernel: a loop's share of the worker CPUs, and who has them. docs/cores.md is the protocol.
 * The files of iokernel/cores: its README.md.
 *
 * Invariants, checked by tests/iokernel/cores/c/random.c. A core has at most one owner and a kthread at most one core.
 * A core whose last move has not ended (`moving`) changes hands only after all three steps were taken, or, once, where
 * the old owner has ceded and the new one has not begun. All of it is the loop thread's own, but for what is marked. */
#ifndef CORELANE_IOKERNEL_STATE_CORES_H
#define CORELANE_IOKERNEL_STATE_CORES_H

#include "../../runtime/hist.h"
#include "../../runtime/scheduling.h"
#include "iokernel.h"
#include "limits.h"
#include "../policy/host.h"
#include "signals.h"

#include <sched.h>

struct io_loop;
struct io_app;
struct io_kthread;

#define IO_STEER 64 /* entries of the table that spreads an application's flows over its kthreads */
#define IO_MOVES_LOG CL_IO_MOVES_LOG
#define IO_TIMED 16 /* one decision in so many is timed */

/* What overrun.c knows of a kthread. All times in ticks, but for ran_ns. */
struct io_overrun {
    uint64_t
        entitled; /* for which it might run: it had a core, or had not been able to cede yet, or nobody used its core */
    uint64_t idle_mark;                /* idle time of its last core, up to which `entitled` has it */
    uint64_t begin, entitled_at_begin; /* of the window that is being judged; begin 0: there is none */
    uint32_t lost, lost_at_begin;      /* times that it lost a core */
    uint32_t strikes;                  /* windows in a row in which it used more than it might */
    uint32_t bans;                     /* times that it was banned, as far as they are not forgiven */
    int64_t ran_ns;                    /* CPU time at the beginning of the window, by the kernel */
    uint64_t banned_until;
};

/* What blocked.c knows of a kthread. Times in ticks, but for ran_ns. */
struct io_block {
    uint32_t mark;         /* of its words, when somebody waited beside it last */
    int64_t ran_ns;        /* its CPU time, and the turns that it had by then, both as they are since `since` */
    uint64_t turns, since; /* since 0: not known */
    uint64_t next;         /* when to check it again */
    uint64_t found;        /* blocked, last */
    uint64_t looked;       /* as it was blocked, last */
    uint64_t patience;     /* for how long it has no CPU time until it is checked whether it is */
    uint32_t offered;      /* mark of what waits behind it, which siblings might take */
    uint64_t runs; /* times that kthreads of its application had been given a core when that was offered first */
    uint64_t offer,
        gap; /* not before that stamp again, and by how much that was put off, since they left it; 0: at once */
};

/* Managed side of a kthread. */
struct io_member {
    struct io_signals signals;
    struct cl_state_kthread *state;     /* shared, we write */
    struct io_core *core;               /* that it owns, or NULL */
    struct io_core *last;               /* that it had last; NULL: none yet */
    struct io_core *yield_wait_core;    /* where it was told to yield-wait, or NULL */
    uint64_t yield_wait_move;           /* which of that core's moves it was last part of */
    uint32_t slot, grant;               /* grant: as in state */
    int32_t tid;                        /* 0: not told yet */
    int account_fd, status_fd;          /* thread.c; -1: none. Controlling thread, but for reading */
    int tasks_fd;                       /* of its process; the same */
    int32_t pinned;                     /* CPU that we bound it to, or tried to; -1: unknown */
    bool bound;                         /* it was, as far as we know */
    bool usable;                        /* as of the last decision: could be given a core */
    bool leaving;                       /* its core went to another, and it has not ceded */
    bool evicted;                       /* it never did; until its park word says so, or `evicted_until` */
    bool demoted;                       /* SCHED_IDLE, until it is given a core again */
    bool stays_classed;                 /* not to be made SCHED_IDLE: nobody could undo it */
    bool had_sched;                     /* `sched` is what it had when it was demoted */
    bool dead;                          /* no such thread */
    bool preempt_move, preempt_quantum; /* why its preemption flag is set */
    bool stalled;                       /* it was given a core and did not begin; until it does anything, or `retry` */
    bool banned;                        /* it used a core that was another's; until overrun.banned_until */
    uint32_t stall_mark, stalls;
    uint64_t not_begun; /* ticks for which it had cores, since it last began, that went on to others before it did */
    uint64_t retry, evicted_until;
    uint64_t sched[6];      /* struct sched_attr of sched_setattr(2), first version, as the kernel gave it */
    uint64_t next_affinity; /* when affinity.c checks next */
    uint32_t switches;      /* at the last decision, and since when */
    uint64_t switches_since;
    uint32_t quantum_signals;     /* as in state */
    uint32_t signalled;           /* `switches` of what the last one was for */
    uint64_t next_quantum_signal; /* to the same, not before that; 0: the last one was not found seen yet */
    struct io_overrun overrun;
    struct io_block block;
};

/* What promise.c knows of an application's promise. Times in ticks; the loop's own, but for what is marked. */
struct io_promise {
    uint32_t share_ppm;         /* cores, millionths; 0: nothing is promised. Writer: controlling thread (relaxed) */
    uint32_t share;             /* the same, as of the last decision */
    bool kept;                  /* it was promised something at the last decision */
    bool turn;                  /* it is guaranteed a core more, until it is owed nothing */
    uint64_t since, core_ticks; /* the last decision, and what it had attained by then */
    int64_t owed;               /* core time; negative: it had that much more, up to CREDIT_NS */
    uint64_t promised;          /* core time that it was promised and could use; stats.promised_ns */
};

/* Managed side of an application. */
struct io_allotment {
    /* Line 0: all that a decision reads where the last row stands. */
    uint32_t held CL_ALIGNED(CL_CACHELINE); /* cores whose owner is one of its kthreads and has work or is on its way */
    uint32_t usable;                        /* kthreads that could be given a core, those that have one included */
    uint32_t demand;                        /* cores that it could use at this moment, those held included */
    uint32_t help;                          /* last heeded */
    bool stands;         /* the last row is so still, but for ages, while the application's words do not change */
    bool waits;          /* at the last decision anything waited */
    uint16_t n_kthreads; /* as in struct io_app, and the next, too */
    uint32_t row;        /* of the loop's table */
    struct io_kthread *kthreads;
    /* Stamps: since when the oldest of each waits, by the last decision; 0: none does. */
    uint64_t packet_since, thread_since, timer_since, stored_since;

    uint64_t looked_at;  /* decisions by the last row, its own included. Readers: anybody (demand.c, publish) */
    uint64_t next_timer; /* the first of its kthreads', when they were last read; UINT64_MAX: none */
    uint16_t next_look;  /* of many kthreads the one whose words are read next */
    bool told;           /* its threads are known: it is in the loop's list */
    bool steered;        /* its frames go by `steer` */
    int32_t pid, signal;
    struct cl_scheduling *before; /* of its kthreads, when they were named; NULL: they are not. Controlling thread */
    uint32_t kind, guaranteed, maximum, weight;
    uint64_t deadline_ns, quantum_ticks;
    bool quantum_signal; /* and by the signal */
    uint64_t preempt;    /* copy of the arena's preemption flag, which we write */
    uint64_t *shared_preempt;
    uint64_t help_since;         /* when it was said, of what is not heeded the first that was seen; 0: all is */
    uint64_t help_last;          /* and when it was seen last */
    uint64_t told_at;            /* the loop's next decision when it was; 0: it is not. Readers: anybody (relaxed) */
    uint64_t core_ticks;         /* attained */
    struct cl_bucket rings;      /* rung.c: calls for help that are decided about at once */
    bool ring_waits;             /* the one that is there does, and was counted */
    uint64_t starves_since;      /* it could use more cores at each decision while one was idle; 0: it is not so */
    uint64_t starves_spell;      /* the spell of idle cores that this is about */
    uint64_t given;              /* when it got its only core from another, until it sends a frame; 0: it has */
    uint64_t answer_ns;          /* as in struct cl_policy_app */
    struct io_kthread *last_run; /* the kthread that was given a core last, or woken on one */
    struct cl_hist *detection, *actuation;
    struct cl_io_app_cores stats; /* writer: loop; readers: anybody (relaxed) */
    struct io_promise promise;
    bool denied;           /* it goes last (denied.c). Writer: controlling thread (relaxed) */
    uint64_t denied_since; /* when the loop first saw that; 0: it did not */
    uint32_t steerings;    /* times that `steer` was changed, for io_deliver: each frame has it with it */
    uint8_t steer[IO_STEER];
};

struct io_stamps {
    uint32_t decided, stored, lost, left, back;
};

/* What starved.c knows of the old owner of a core. */
struct io_starved {
    bool on;                     /* it was found not to have had its time */
    bool ended;                  /* its last turn on the CPU has */
    bool counted;                /* a turn has begun since it was interrupted: from there on its time is known */
    uint64_t turns;              /* that it had, that one included */
    int64_t begin_ns;            /* its CPU time when it was interrupted */
    int64_t ran_ns;              /* and when its last turn was seen first, which was at `since` */
    int64_t seen_ns;             /* and when its last turn was found to go on; -1: it was not */
    uint64_t since, next, until; /* next: when to check again; until: up to when its eviction may be put off */
    uint64_t peek;               /* when to check before it matters; 0: not again */
};

#define IO_YIELD_WAITERS 4 /* kthreads that yield-wait for one core at most */

/* A worker CPU. */
struct io_core {
    struct cl_state_core *state; /* shared, we write */
    struct io_kthread *owner;    /* NULL: nobody */
    struct io_kthread *from;     /* moving: who must cede first; NULL: nobody */
    uint32_t cpu;
    bool moving;                  /* the owner, if any, has not begun, or `from` has not ceded */
    bool begun;                   /* the owner has begun */
    bool turned;                  /* it was on its way to another when it was given to the owner, who has not begun */
    bool extended;                /* `from` has had its second interval to cede in */
    bool woken;                   /* a wake of the loop's found somebody asleep: the owner, as a rule */
    bool busy;                    /* as of the last decision: the owner has work, or is on its way */
    bool wanted;                  /* as in state */
    uint8_t step;                 /* CL_IO_STEP_* that was taken last */
    uint8_t stage;                /* of the escalation: 0 preemption request, 1 interrupt, 2 eviction */
    uint8_t kicks;                /* made of `dying` */
    uint8_t late;                 /* times start_us for which the owner was waited for beyond the first */
    uint64_t decided, next_stage; /* next_stage 0: its time begins with the next round */
    uint64_t requested;           /* when the time of the first step began */
    uint64_t yield_wait_until;    /* 0: nobody yield-waits for it */
    struct io_kthread
        *yield_waiters[IO_YIELD_WAITERS]; /* who was part of its last moves first; NULL from some place on */
    struct io_kthread
        *dying; /* an old owner that may be in the way, or threads beside it, as they were killed, or NULL */
    uint64_t next_kick;
    uint32_t kicked; /* threads that exit, among those checked since */
    bool kicking;    /* some are yet to be checked */
    struct io_starved starved;
    struct io_stamps stamps; /* of the last hand-over, see struct cl_io_move */
    bool crosses;            /* that was between a batch and a latency application */
    uint64_t accounted;      /* up to when; 0: being changed, see io_core_account. Writer: loop; readers: anybody */
    uint64_t idle;           /* ticks in which its owner, if it had one, had no work */
    uint64_t idle_since;     /* found so at each decision, as of its end; 0: it is not so */
    struct cl_io_core_stats stats; /* writer: loop; readers: anybody (relaxed) */
};

/* A loop's share. */
struct io_cores {
    uint32_t n, n_apps, n_moving, n_quantum, n_waiting;
    struct io_core *core;
    struct io_app *apps[CL_IO_MAX_APPS]; /* in the order of the table */
    uint32_t n_active;
    struct io_app *active[CL_IO_MAX_APPS]; /* where anything waits or changed, in that order; during a decision only */
    uint32_t n_resting;                    /* kthreads of the others that could be given a core */
    struct cl_policy_app *table;
    struct cl_policy_view view;
    struct cl_policy_host *host;
    bool urgent;    /* decide as soon as it may be */
    bool contested; /* somebody could use a core that somebody else has: poll the owners' park words */
    bool awake;     /* the loop must not sleep */
    bool lost_one;  /* of those that were to get a core at this decision: it was found dead */
    bool held_up;   /* somebody did not get a core at the last decision since it was on its way to another */
    uint64_t next_check, next_urgent;
    uint64_t last_check; /* readers: anybody (relaxed) */
    uint64_t next_due;   /* first timer that nobody runs for, or end of a time of yield-waiting */
    uint64_t interval, cede, interrupt, start, yield_wait, urgent_gap, hold_batch, hold_latency; /* ticks */
    uint64_t crossed_memory;
    uint64_t batch, crossing; /* core time of batch work, and of moves between it and latency applications, lately */
    uint64_t halved;          /* when those two were, which is done every `crossed_memory` */
    uint64_t next_overrun;    /* when overrun.c checks next */
    uint32_t overrun_app, overrun_kthread; /* whose turn it is there */
    uint64_t idle_spell;                   /* counts decisions after which no core is idle: it stays while one is */
    struct cl_io_cores_stats stats;        /* writer: loop; readers: anybody (relaxed) */
    struct cl_hist *actuation[CL_IO_STEPS], *decision, *reading, *late_decision;
    uint64_t blocked, next_blocked, blocked_due; /* ticks; when blocked.c checks next; and one that is blocked */
    uint32_t n_blocked, blocked_core;            /* kthreads that are; whose owner's turn it is there */
    /* Applications that are promised something. Writer: controlling thread (relaxed); and whether any was at the last
     * decision. */
    uint32_t n_promises;
    bool promises;
    /* How often cl_io_app_deny said something. Writer: controlling thread (release, after what it said); and up to
     * which of these the last decision knew it, and whether any application was denied then. */
    uint32_t denials, denials_seen;
    bool denied;
    struct cl_io_move *log;
    uint64_t logged; /* writer: loop (release); readers: anybody (acquire) */
};

/* cores.c */
int io_cores_init(struct io_loop *loop, char *err);
void io_cores_free(struct io_loop *loop);
int io_cores_check(struct cl_io_config *c, char *err);
/* Controlling thread: the managed side of an application that is being registered, and its end. */
int io_allot(struct cl_io *io, struct io_app *app, const struct cl_io_app_config *c, char *err);
void io_unallot(struct cl_io *io, struct io_app *app);
/* Loop: the application's threads are known; it is removed. */
void io_cores_add(struct io_loop *loop, struct io_app *app);
void io_cores_remove(struct io_loop *loop, struct io_app *app);
void io_cores_log(struct io_loop *loop, uint64_t now, const struct io_core *core, uint32_t from, uint32_t to,
                  unsigned what, unsigned step, const struct io_kthread *about);

/* demand.c: of the kthreads without a core, whose words have changed since the last decision, and the first of their
 * timers, while the words of those that run are on their way. Then rows of the table, and who has anything to do. */
void io_demand_changes(struct io_loop *loop);
void io_demand_apps(struct io_loop *loop);

/* quantum.c */
/* Of a kthread that owns a core, once a decision: whether what it runs has run for a quantum while others wait. */
void io_check_quantum(struct io_loop *loop, struct io_kthread *k, uint64_t now);
/* Kthreads whose preemption flag was set for that, and which have polled it: at once, lest others poll it for
 * nothing. */
void io_watch_quanta(struct io_cores *c);
void io_end_quantum(struct io_cores *c, struct io_kthread *k);

/* lines.c: time of reading, in c->reading, before a decision. */
void io_lines_time(struct io_loop *loop);

/* rung.c. `app`, which has cores managed or not, says that it has called for help. */
void io_rings_init(const struct cl_io *io, struct io_allotment *a);
void io_cores_rung(struct io_loop *loop, struct io_app *app);

/* allocate.c: once a round. */
void io_cores_round(struct io_loop *loop, uint64_t now);
/* It sent frames, the first since `given`. */
void io_cores_answered(struct io_loop *loop, struct io_app *app);
void io_fetch_words(const struct io_cores *c);
/* Core time up to now goes to whoever had work on it at the last decision; before its owner changes. */
void io_core_account(struct io_loop *loop, struct io_core *core, uint64_t now);

/* move.c */
/* Give `core` to k. False: it cannot have it now. */
bool io_move(struct io_loop *loop, struct io_core *core, struct io_kthread *k, uint64_t now);
/* k owns a core, has parked, and has work. False: it must wait for its bucket. */
bool io_move_wake(struct io_loop *loop, struct io_kthread *k, uint64_t now);
/* See how the moves that are under way go on. True if a decision is due: a core came free, or one has arrived for which
 * somebody else waits. */
bool io_moves_poll(struct io_loop *loop, uint64_t now);
/* Take a core from its owner, for nobody. */
void io_move_release(struct io_loop *loop, struct io_core *core, unsigned what, uint64_t now);
/* The old owner need not be waited for any more. */
void io_move_forget(struct io_core *core);
/* Whether the core may be given to another: its last move has ended, or all three steps of it have been taken. */
bool io_core_settled(const struct io_core *core);
/* Or the old owner is out of the way, and the new one has not begun: it may turn to another, once. */
bool io_core_turns(const struct io_core *core);
void io_move_set_moving(struct io_cores *c, struct io_core *core, bool moving);
/* An entry of the log that does not change the owner; `about` somebody else, or NULL. */
void io_move_note(struct io_loop *loop, const struct io_core *core, unsigned what, const struct io_kthread *about,
                  uint64_t now);
/* Store the preemption flag that follows from why it should be set. */
void io_preempt_store(struct io_kthread *k);
void io_preempt_move(struct io_kthread *k, bool on);

/* steps.c */
void io_steps_begin(struct io_core *core);
/* A step's time is over. Returns whether the core came free. */
bool io_steps_escalate(struct io_loop *loop, struct io_core *core, uint64_t now);
void io_step_request(struct io_loop *loop, struct io_core *core);
/* The core goes on to another before its owner has begun: for one that is stopped, that may be so each time. */
void io_step_overtaken(struct io_loop *loop, const struct io_core *core, uint64_t now);
void io_step_evict(struct io_loop *loop, struct io_core *core, uint64_t now);
void io_step_evict_unless_starved(struct io_loop *loop, struct io_core *core, uint64_t now);
/* k says that it runs, and has no core: it must leave `core`, of which no move is under way. */
void io_move_oust(struct io_loop *loop, struct io_core *core, struct io_kthread *k);
/* The core's owner is dead. */
void io_move_died(struct io_loop *loop, struct io_core *core, uint64_t now);
/* False: it is dead. */
bool io_move_demote(struct io_loop *loop, struct io_kthread *k, const struct io_core *off);

/* yield_wait.c */
/* `core` goes from one (NULL: nobody) to the other. */
void io_yield_wait_moved(const struct io_cores *c, struct io_core *core, struct io_kthread *to, struct io_kthread *from,
                         uint64_t now);
void io_yield_wait_clear(struct io_core *core);
/* Without a word to them: the application goes. */
void io_yield_wait_forget(struct io_core *core, const struct io_app *app);

/* flows.c */
/* Spread flows over the kthreads that have cores and do not sleep in the kernel. */
void io_steer(struct io_loop *loop, struct io_app *app);

/* starved.c */
/* From here on the old owner has the time of the last step. */
void io_starved_begin(struct io_loop *loop, struct io_core *core, uint64_t now);
/* It is time to check, so that io_starved need not. */
void io_starved_peek(struct io_loop *loop, struct io_core *core, uint64_t now);
/* That time is over. Whether the old owner did not have the CPU for so long; then core->starved says when to ask
 * again. */
bool io_starved(struct io_loop *loop, struct io_core *core, uint64_t now);

/* dying.c */
/* The old owner is dead, or may be dying: if it is, all threads of its process that exit give way until the new one
 * begins. */
void io_dying_begin(const struct io_loop *loop, struct io_core *core, uint64_t now);
/* core->dying is not NULL, and the new owner has not begun. */
void io_dying_round(struct io_loop *loop, struct io_core *core, uint64_t now);
/* Whether a kthread's thread has ended or exits, which takes a few us to find out; all of a process take as many times
 * that. */
bool io_dying_exits(const struct io_kthread *k);

/* before.c, by the controlling thread. */
/* k's thread is known, and nobody has changed anything of it for us. */
void io_before_note(struct io_kthread *k);
/* Give it back. The loop manages it no more. */
void io_before_restore(struct io_kthread *k);
/* Control thread: an application leaves, and no loop knows it any more. Those of its threads that do not exit get it
 * back: they may be the program's own. */
void io_before_leave(const struct cl_io *io, const struct io_app *app);

/* thread.c */
/* By the kernel. */
struct io_account {
    int64_t ran_ns; /* CPU time; up to date when a turn has ended */
    uint64_t turns; /* times that it was switched to */
};

struct io_thread_status {
    char state;    /* as ps shows it */
    uint64_t left; /* turns that have ended */
};

/* Controlling thread: k's thread is known; it goes. -EMFILE, -ENFILE, -ENOMEM: it cannot be watched. */
int io_thread_open(struct io_kthread *k);
void io_thread_close(struct io_kthread *k);
/* By its futex. Whether somebody slept there: as a rule it did. */
bool io_thread_wake(struct io_loop *loop, struct io_kthread *k);
/* signal 0: only ask whether it is there. -errno. A thread's number may be another process's by now: this is the one
 * call that asks for both. */
int io_thread_signal(struct io_loop *loop, struct io_kthread *k, int signal);
bool io_thread_alive(struct io_loop *loop, struct io_kthread *k);
/* False: the kernel refused. */
bool io_thread_bind(struct io_loop *loop, struct io_kthread *k, const cpu_set_t *set);
/* To that CPU, and to no other. */
bool io_thread_is_bound(struct io_loop *loop, const struct io_kthread *k, int32_t cpu);
/* SCHED_IDLE, -errno; and back to the policy, the priority and the slice that it had. */
int io_thread_demote(struct io_loop *loop, struct io_kthread *k);
void io_thread_restore(struct io_loop *loop, struct io_kthread *k);
/* False: it cannot be read; k is dead, if that is why. */
bool io_thread_account(struct io_loop *loop, struct io_kthread *k, struct io_account *out);
bool io_thread_status(struct io_loop *loop, const struct io_kthread *k, struct io_thread_status *out);
/* Whether the kernel has it in line for its CPU, or in the middle of a call that will end: it is late since others use
 * the CPU, of whom the loop need not know. One that was stopped, or sleeps, is not. */
bool io_thread_in_line(struct io_loop *loop, const struct io_kthread *k);

/* affinity.c */
/* Have k run on that core's CPU, as far as the kernel lets us. */
void io_affinity_bind(struct io_loop *loop, struct io_kthread *k, const struct io_core *core);
/* Whether it is bound as it was left, if it is time. */
void io_affinity_check(struct io_loop *loop, struct io_kthread *k, uint64_t now);

/* blocked.c */
/* Check an owner beside whom somebody waits, and one that was blocked, if it is time. After a decision. */
void io_blocked_round(struct io_loop *loop, uint64_t now);
/* Whether k, which is blocked as far as is known, still is. If not, and it has lost its core, it is made to leave. */
bool io_blocked_still(struct io_loop *loop, struct io_kthread *k, uint64_t now);
/* Whether what waits behind k, which is blocked, is to get a sibling a core: not for now what one has come for and
 * left. */
bool io_blocked_offers(const struct io_loop *loop, struct io_kthread *k, uint64_t now);
/* It is not, or not any more. */
void io_blocked_over(struct io_loop *loop, struct io_kthread *k, uint64_t now);

/* promise.c: have the table say what is guaranteed now to those that are promised a share. Once a decision, after
 * io_demand_apps. */
void io_promises_keep(struct io_loop *loop, uint64_t now);

/* denied.c: have the table say that those that are denied cores want none. Once a decision, after io_promises_keep. */
void io_denied_keep(struct io_loop *loop, uint64_t now);

/* overrun.c */
/* Check some kthreads, if it is time. After io_core_account of all cores. */
void io_overrun_round(struct io_loop *loop, uint64_t now);
/* When it must have checked, where there is anything to check. */
uint64_t io_overrun_due(const struct io_loop *loop);
/* Time of a core up to now that its owner had, or did not need. */
void io_overrun_account(const struct io_loop *loop, struct io_core *core, uint64_t ticks, uint64_t now);
/* k is about to own `core`, for which its last core may be exchanged; or loses the one that it has (NULL). */
void io_overrun_moved(struct io_kthread *k, const struct io_core *core);

#endif

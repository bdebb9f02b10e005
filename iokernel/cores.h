/* Private to the iokernel: a loop's share of the worker CPUs, and who has them. docs/cores.md is the protocol.
 *
 *   signals.c    what waits in an application, and for how long
 *   allocate.c   decides: table, policy, which kthread gets which core
 *   move.c       carries it out: owner, ask, interrupt, evict
 *   cores.c      set-up, registration, statistics (controlling thread)
 *
 * Invariants, checked by tests/iokernel/c/cores_random.c. A core has at most one owner and a kthread at most one core. A
 * core whose last move has not ended (`moving`) changes hands only after all three steps have been taken. All of it is the
 * loop thread's own, but for what is marked. */
#ifndef CORELANE_IOKERNEL_CORES_H
#define CORELANE_IOKERNEL_CORES_H

#include "../runtime/hist.h"
#include "iokernel.h"
#include "policy_host.h"
#include "signals.h"

struct io_loop;
struct io_app;
struct io_kthread;

#define IO_STEER 64        /* entries of the table that spreads an application's flows over its kthreads */
#define IO_MOVES_LOG 65536 /* entries of a loop's log */
#define IO_TIMED 16        /* one decision in so many is timed */

/* Managed side of a kthread. */
struct io_member {
    struct cl_state_kthread *state; /* shared, we write */
    struct io_signals signals;
    struct io_core *core;         /* that it owns, or NULL */
    struct io_core *last;         /* that it had last; NULL: none yet */
    struct io_core *hot_core;     /* where it was told to wait hot, or NULL */
    uint32_t slot, grant;         /* grant: as in state */
    int32_t tid;                  /* 0: not told yet */
    int32_t pinned;               /* CPU that we bound it to; -1: unknown */
    bool usable;                  /* as of the last decision: could be given a core */
    bool leaving;                 /* its core went to another, and it has not stepped aside */
    bool evicted;                 /* it never did; until its park word says so */
    bool demoted;                 /* SCHED_IDLE, until it is given a core again */
    bool dead;                    /* no such thread */
    bool look_move, look_quantum; /* why its look bit is set */
    bool stalled;                 /* it was given a core and did not begin; until it does anything, or `retry` */
    uint32_t stall_mark, stalls;
    uint64_t retry;
    uint32_t switches; /* at the last look, and since when */
    uint64_t switches_since;
};

/* Managed side of an application. */
struct io_allotment {
    bool told;    /* its threads are known: it is in the loop's list */
    uint32_t row; /* of the loop's table */
    int32_t pid, signal;
    uint32_t kind, guaranteed, maximum, weight;
    uint64_t deadline_ns, quantum_ticks;
    uint64_t look; /* copy of the arena's look word, which we write */
    uint64_t *shared_look;
    const uint32_t *shared_help;
    uint32_t help;               /* last seen */
    uint64_t help_since;         /* when it was said first; 0: heeded */
    uint64_t help_last;          /* and last */
    uint32_t held;               /* cores whose owner is one of its kthreads and has work or is on its way */
    uint32_t usable;             /* kthreads that could be given a core, those that have one included */
    uint32_t demand;             /* cores that it could use at this moment, those held included */
    bool wanted;                 /* demand was more than 0 at the last look */
    bool steered;                /* its frames go by `steer` */
    uint64_t core_ticks;         /* attained */
    uint64_t lift_ns;            /* what the policy sees on top of it, see allocate.c */
    uint64_t over_weight;        /* 2^16 / weight */
    struct io_kthread *last_run; /* the kthread that was given a core last */
    struct cl_hist *detection;
    struct cl_io_app_cores stats; /* writer: loop; readers: anybody (relaxed) */
    uint8_t steer[IO_STEER];
};

struct io_stamps {
    uint32_t decided, stored, lost, left, back;
};

/* A worker CPU. */
struct io_core {
    struct cl_state_core *state; /* shared, we write */
    struct io_kthread *owner;    /* NULL: nobody */
    struct io_kthread *from;     /* moving: who must step aside first; NULL: nobody */
    uint32_t cpu;
    bool moving;   /* the owner, if any, has not begun, or `from` has not stepped aside */
    bool begun;    /* the owner has begun */
    bool busy;     /* as of the last decision: the owner has work, or is on its way */
    bool wanted;   /* as in state */
    uint8_t step;  /* CL_IO_STEP_* that was taken last */
    uint8_t stage; /* of the escalation: 0 asked, 1 interrupted, 2 evicted */
    uint64_t decided, next_stage;
    uint64_t hot_until; /* 0: it is not hot */
    struct io_kthread *hot[2];
    struct io_stamps stamps; /* of the last hand-over, see struct cl_io_move */
    uint64_t accounted;      /* up to when; 0: being changed, see io_core_account. Writer: loop; readers: anybody */
    struct cl_io_core_stats stats; /* writer: loop; readers: anybody (relaxed) */
};

/* A loop's share. */
struct io_cores {
    uint32_t n, n_apps, n_moving, n_quantum, n_waiting;
    struct io_core *core;
    struct io_app *apps[CL_IO_MAX_APPS]; /* in the order of the table */
    struct cl_policy_app *table;
    struct cl_policy_view view;
    struct cl_policy_host *host;
    bool urgent;    /* decide as soon as it may be */
    bool contested; /* somebody could use a core that somebody else has: watch the owners' park words */
    bool awake;     /* the loop must not sleep */
    uint64_t next_check, last_check, next_urgent;
    uint64_t next_due;   /* first timer that nobody runs for, or end of a hot spell */
    uint64_t idle_waits; /* since when a core is idle beside an application that waits; 0: it is not so */
    uint64_t floor_ns;   /* least attained over weight of those that want cores */
    uint64_t interval, ask, interrupt, start, hot, urgent_gap, hold_batch, hold_latency; /* ticks */
    struct cl_io_cores_stats stats; /* writer: loop; readers: anybody (relaxed) */
    struct cl_hist *actuation[CL_IO_STEPS], *decision;
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
                  unsigned what, unsigned step);

/* allocate.c: once a round. */
void io_cores_round(struct io_loop *loop, uint64_t now);
/* Core time up to now goes to whoever had work on it at the last look; before its owner changes. */
void io_core_account(struct io_loop *loop, struct io_core *core, uint64_t now);

/* move.c */
/* Give `core` to k. False: it cannot have it now. */
bool io_move(struct io_loop *loop, struct io_core *core, struct io_kthread *k, uint64_t now);
/* k owns a core, has parked, and has work. False: it must wait for its bucket. */
bool io_move_wake(struct io_loop *loop, struct io_kthread *k, uint64_t now);
/* See how the moves that are under way go on. True if a core came free. */
bool io_moves_poll(struct io_loop *loop, uint64_t now);
/* Take a core from its owner, for nobody. */
void io_move_release(struct io_loop *loop, struct io_core *core, unsigned what, uint64_t now);
/* False: it is dead. */
bool io_move_demote(struct io_loop *loop, struct io_kthread *k, const struct io_core *off);
/* Whether the core may be given to another: its last move has ended, or all three steps of it have been taken. */
bool io_core_settled(const struct io_core *core);
void io_core_cool(struct io_core *core);
/* Store the look bit that follows from why it should be set. */
void io_look(struct io_kthread *k);
void io_end_quantum(struct io_cores *c, struct io_kthread *k);
/* Spread flows over the kthreads that have cores. */
void io_steer(struct io_loop *loop, struct io_app *app);

#endif

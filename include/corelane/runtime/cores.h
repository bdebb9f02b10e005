/* A kthread's view of who owns its core, where cores are managed (docs/cores.md).
 *
 * The port driver implements it (drivers/port/cores.c) and hands it out with its NIC; the scheduler uses it
 * (libos/sched/cede.c). NIC drivers that know of no iokernel have none.
 *
 * All calls take the kthread's index k. `lost` to `park_wait`, and the two about quanta, are made by kthread k only,
 * and are async-signal-safe: they store words, yield and wait on futexes. Whoever waits comes back when it owns its
 * core, when nobody manages cores any more (the iokernel went away), or after `release`. */
#ifndef CORELANE_RUNTIME_CORES_H
#define CORELANE_RUNTIME_CORES_H

#include <corelane/runtime/base.h>

CL_EXTERN_C_BEGIN

// cffi: begin
struct cl_signals;
struct cl_cores;
// cffi: end

/* What a parked kthread sees by itself while it waits for a core, so that nobody has to tell it. */
struct cl_park_poll {
    void *arg;
    int64_t yield_ns; /* for so long it is waited for by sched_yield(), and then by `sleep` */
    /* Whether it is there. Then its signals have said so when this returns, and a kthread that has kept its core gets
     * up. */
    bool (*done)(void *arg);
    /* Sleep until that may have changed, or *word, on which a FUTEX_WAKE is made then, is not `value`, or timeout_ns (<
     * 0: none) is over. False: it cannot be waited for so; somebody else will tell. */
    bool (*sleep)(void *arg, const uint32_t *word, uint32_t value, int64_t timeout_ns);
};

/* A core, and whose it is: slots of kthreads + 1, 0: nobody's. */
struct cl_core_owners {
    uint32_t cpu;
    uint32_t owner, before;           /* before: until decided_tsc */
    uint64_t decided_tsc, before_tsc; /* when they were given it */
    uint64_t lost_tsc;                /* when k lost a core last; 0: it never has, or it is not told */
    bool mine;                        /* `owner` is k */
};

struct cl_cores_ops {
    /* Whether an iokernel manages the cores at this moment: changes when it goes away and when another comes. */
    bool (*managed)(struct cl_cores *c);
    /* Whether k runs on a core that it does not own. */
    bool (*lost)(struct cl_cores *c, unsigned k);
    /* Whether somebody else could use k's core: without work it parks at once. Called again and again while k has
     * none. */
    bool (*wanted)(struct cl_cores *c, unsigned k);
    /* Cede the core, and return when k owns one again. */
    void (*cede)(struct cl_cores *c, unsigned k);
    /* k has no work: say so. False: nobody manages cores, sleep in another way. After it re-check all work, then cancel
     * or wait. */
    bool (*park_begin)(struct cl_cores *c, unsigned k);
    /* There is work after all. Returns when k owns a core. */
    void (*park_cancel)(struct cl_cores *c, unsigned k);
    /* Wait until the iokernel wakes k, or until timeout_ns is over (< 0: never), or until `polled` (NULL: none) has
     * seen something and k still owns its core. */
    void (*park_wait)(struct cl_cores *c, unsigned k, int64_t timeout_ns, const struct cl_park_poll *polled);
    /* Instead of park_wait, for one that sleeps elsewhere. park_leave: it lets the core go now. park_try: it is up
     * again, if it owns its core and has been given it anew, or (`called`) wants to go on. False: it waits on; its
     * parker's eventfd is written when it is to try again. */
    void (*park_leave)(struct cl_cores *c, unsigned k);
    bool (*park_try)(struct cl_cores *c, unsigned k, bool called);
    /* There is work for more kthreads than run. Any thread. */
    void (*help)(struct cl_cores *c);
    /* That will be said in a moment: have the words for it come meanwhile. NULL: nothing can be done. */
    void (*help_soon)(struct cl_cores *c);
    /* Where k exports its signals (shm.h); the same address for the life of the object. */
    struct cl_signals *(*signals)(struct cl_cores *c, unsigned k);
    /* Of the core that k is to run on or waits for. False: it has none, or nobody manages cores. NULL: it is not
     * told. */
    bool (*owners)(struct cl_cores *c, unsigned k, struct cl_core_owners *out);
    /* Tell the iokernel the kthreads' thread ids and the signal that makes one cede. From then on kthreads are
     * managed; told again, by the object, to each iokernel that comes later. -errno and one line in err. */
    int (*threads)(struct cl_cores *c, const int32_t *tids, unsigned n, int signal, char err[256]);
    /* Whether what k runs has run for a quantum while others wait, as the iokernel says. Only while its preemption flag
     * is set, and not of what ran before. */
    bool (*quantum_over)(struct cl_cores *c, unsigned k);
    /* k's handler of the signal runs: the iokernel may send another one when a quantum is over. */
    void (*signalled)(struct cl_cores *c, unsigned k);
    /* The kthreads are to end: nobody waits any more. Returns when nobody does. Any thread but a kthread. */
    void (*release)(struct cl_cores *c);
};

struct cl_cores {
    const struct cl_cores_ops *ops;
    /* The preemption flags. Bit k: the core of kthread k may be lost, or its quantum over. The address is constant, and
     * the iokernel writes the word (cl_arena_preempt). Without an iokernel it is 0, or with a quantum not 0, so that
     * each probe reads the clock: bits of no kthread. */
    const uint64_t *preempt;
};

CL_EXTERN_C_END
#endif

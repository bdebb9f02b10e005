/* Everything that an iokernel and an application share, and nothing else is shared between them.
 *
 * Two memory files a registration:
 *
 *   arena   one sealed memfd an application: header, one block of lines a kthread, rx and tx rings, packet buffers.
 *           Both map it writable. Applications never see each other's arenas.
 *   state   one memfd an iokernel: its sleeping flags, heartbeats, the owner of each core. Applications get a
 *           descriptor that can be mapped read-only only (F_SEAL_FUTURE_WRITE).
 *
 * How a core moves from one kthread to another is told in docs/cores.md; the words are declared here.
 *
 * Who trusts whom: the application trusts its iokernel (it hands it its packets). The iokernel trusts nothing in an
 * arena: it keeps geometry, free lists and ring positions in private memory, never reads the header back, copies each
 * word that it does read exactly once, and checks the copy. A lie costs the liar its packets and is counted.
 *
 * Arena, in file order; each part begins on a page:
 *
 *   cl_arena_header                            constant after creation; in its page cl_arena_preempt, cl_arena_doorbell
 *   cl_arena_kthread[n_kthreads]               see there
 *   cl_arena_counters                          what the application counts, for people; right before the rx rings
 *   rx rings: cl_desc[n_kthreads][rx_slots]    producer: iokernel; consumer: kthread k, or its thief under k's lock
 *   tx rings: cl_desc[n_kthreads][tx_slots]    producer: kthread k; consumer: iokernel
 *   buffers: [n_rx + n_tx] of buffer_stride    [0, n_rx) receive, the rest send
 *   latency of its services (latency.h)        what the application says of it, for people; the last pages
 *
 * Buffers. The iokernel owns the receive buffers and lends one with every RX descriptor; it comes back by a FREE
 * descriptor, piggybacked on a SEND, or by being sent itself. The application owns the send buffers. The iokernel
 * COPIES a frame before it publishes the tx ring's head, so a send is complete when the head has passed its slot, and
 * no completion messages exist. The stride is an odd number of cache lines: with a power of two all frames would start
 * in a few sets of the L1 cache. At least 64 bytes after buffer_bytes are slack, so that a 64-byte read of a header
 * stays in the buffer. Behind a frame that an iokernel puts into a receive buffer, on the next multiple of 8 bytes, is
 * the stamp (cl_tsc) of the round in which it had it: nic.h, rx_stamped.
 *
 * Layouts are checked below and, against cffi and DWARF, by tests/runtime/test_shm.py. */
#ifndef CORELANE_RUNTIME_SHM_H
#define CORELANE_RUNTIME_SHM_H

#include <corelane/runtime/counter.h>
#include "latency.h"
#include "ring.h"

// cffi: begin
/* What a member of a group says of itself (docs/groups.md). */
#define CL_MEMBER_JOINED 0   /* it has no listeners yet, or says nothing */
#define CL_MEMBER_READY 1    /* new flows may come */
#define CL_MEMBER_DRAINING 2 /* no new flows: it ends when those that it has have ended */
#define CL_SHM_VERSION 12
#define CL_SHM_PAGE 4096
#define CL_SHM_NAME_BYTES 32 /* an application's name with its terminating zero */
#define CL_SHM_MAX_KTHREADS 64
#define CL_SHM_MAX_LOOPS 16
#define CL_SHM_MAX_APPS 256   /* of an iokernel */
#define CL_SHM_MAX_MEMBERS 16 /* applications under one name */
/* Ports that nobody is bound to by number (RFC 6335, section 6), and how many of them each member of a group has. */
#define CL_SHM_OWN_PORTS 49152
#define CL_SHM_MEMBER_PORTS 1024
#define CL_SHM_MAX_CORES 256
#define CL_SHM_MAX_SLOTS 1024 /* kthreads of all applications of an iokernel */
#define CL_SHM_MIN_BUFFER_BYTES 256
#define CL_SHM_MAX_BUFFER_BYTES 16384
#define CL_SHM_NO_BUFFER 0xffffff /* "no buffer" in a 24-bit index field */
#define CL_SHM_TX_STAMPS 128      /* of a kthread; a power of two */

/* First page of an arena. Writer: iokernel, before it passes the descriptor; reader: application, once. */
struct cl_arena_header {
    uint64_t magic;      /* CL_ARENA_MAGIC */
    uint32_t version;    /* CL_SHM_VERSION */
    uint32_t n_kthreads; /* 1..CL_SHM_MAX_KTHREADS */
    uint32_t rx_slots, tx_slots;
    uint32_t n_rx, n_tx;
    uint32_t buffer_bytes;  /* longest frame that fits */
    uint32_t buffer_stride; /* bytes from one buffer to the next */
    uint64_t lines_offset, rx_offset, tx_offset, buffers_offset, total_bytes;
    uint64_t generation; /* of the iokernel that made it, equal to cl_state_header.generation */
    char name[32];
    uint64_t doorbell_offset; /* of cl_arena_doorbell */
};

/* Second line pair of the header's page, at CL_ARENA_PREEMPT_OFFSET in every arena, so that a port can map this page at
 * one address for its whole life, whichever iokernel it is attached to (drivers/port/port.h). */
#define CL_ARENA_PREEMPT_OFFSET 128
struct cl_arena_preempt {
    /* Bit k: the preemption flag of kthread k (cl_probe_slow). It is set if the kthread lost its core, or if its
     * uthread has run for a quantum while others wait. Writer: the home loop (relaxed, after the words that it
     * announces, which are stored with release). Readers: scheduling points and probes of the kthreads, often. The line
     * changes only when a core moves or a quantum is over. */
    uint64_t preempt CL_ALIGNED(64);
    /* 1: another member of its group has taken over, and it is to drain. Writer: the iokernel's controlling thread,
     * once (relaxed: it announces nothing). Reader: the port's watcher, some times a second. */
    uint32_t drain;
    /* How its requests are to be traced from now on: CL_RUNTIME_TRACE_... in the lowest byte, above it a number that
     * changes each time; 0: nobody has asked. Writer and reader: the same. */
    uint32_t trace;
    /* Bytes that it may hold of memory that it can give back (corelane/libos/elastic.h); 0: as many as it likes.
     * Writer: the controlling thread (relaxed), seldom. Readers: the application's code, as often as it likes. */
    uint64_t memory_bytes;
};

/* The doorbell word: further on in the header's page, in a pair of lines of its own. Which one differs from arena to
 * arena: the loop reads those of all applications, and at one and the same place in its page they would push each other
 * out of the cache. */
struct cl_arena_doorbell {
    /* Bit k: kthread k says that there is something in its tx ring, and the home loop polls that. Writers: kthread k
     * sets it (atomic or, seq_cst), after the descriptor, if it is not set; the loop takes it back when nothing has
     * come for long (atomic and, relaxed). Readers: both. iokernel/switch/doorbell.h says why nothing is lost. The line
     * changes only when a kthread becomes active, or stops being so. */
    uint64_t rung CL_ALIGNED(64);
    /* 1: it has called for help (cl_arena_kthread.help) since the loop took this back, which reads this line each round
     * and then decides at once, and not when the interval is over. A hint: a call that rings for nothing, or is not
     * heard, is found by the next decision. Writers: any thread of the application sets it (relaxed, after `help` and a
     * seq_cst fence), if it is not set; the loop takes it back (relaxed, before it reads `help`). Readers: both.
     * iokernel/cores/rung.c says how often it is heeded. */
    uint32_t help_rung;
};

/* Values of cl_arena_kthread.park. Without managed cores only the first two occur (park.h). */
#define CL_KTHREAD_RUNNING 0
#define CL_KTHREAD_PARKED 1          /* without work, asleep on its futex or about to be */
#define CL_KTHREAD_PARKED_YIELDING 2 /* without work, waits for its core by sched_yield() */
#define CL_KTHREAD_CEDED 3           /* has work but lost its core; asleep on its futex or about to be */
#define CL_KTHREAD_CEDED_YIELDING 4  /* the same, waits by sched_yield() */

/* Congestion signals of a kthread: positions only, so that a store costs a cycle. The iokernel notes when it first saw
 * each position and so knows how old the oldest entry is (iokernel/state/signals.c). Writer: kthread (relaxed); reader:
 * iokernel (relaxed): a stale or torn view delays a decision by one interval, no more. All positions count modulo
 * 2^32. */
struct cl_signals {
    uint32_t inbox_tail, inbox_head; /* frames put into the inbox of this kthread, and taken out of it */
    uint32_t runq_tail, runq_head;   /* uthreads made ready here, overflow included, and taken to run or stolen */
    uint32_t
        switches;   /* uthreads switched to, and requests that a runner went on to: unchanged, one and the same runs */
    uint32_t acted; /* last cl_state_kthread.grant that it acts on: "I run" */
    uint64_t timer_tsc;                  /* when its first timer is due; UINT64_MAX: none is armed */
    uint32_t storage_done, storage_seen; /* completions on its storage queues, and those collected */
    uint32_t in_uthread;                 /* 1: a uthread runs, 0: the scheduler's loop does */
    uint32_t preempted;                  /* times that it ceded, for people */
    /* Low words of cl_tsc() at the steps of its last hand-overs, for who measures: it saw that its core was another's
     * (the iokernel gives one that said so since the decision one interval more); it was about to yield or sleep, for
     * that one to run; it was back as the owner of a core. */
    uint32_t lost_tsc, left_tsc, back_tsc;
    uint32_t in_call; /* 1: in a call of the kernel that may take longer than a step, and is given time to come back */
};

/* When the iokernel had taken a descriptor with CL_TX_STAMP, and those before it, from the tx ring; and when it had
 * given their frames on, to an uplink's NIC, another loop or another application. Stamps of its clock. */
struct cl_arena_tx_stamp {
    uint64_t taken, given;
};

/* The lines of one kthread. Lines of one writer are paired, since the hardware prefetches lines in pairs of 128 bytes.
 */
struct cl_arena_kthread {
    /* Line 0: park word, the handshake of park.h: CL_KTHREAD_*. Writers: kthread (relaxed store, then seq_cst fence)
     * and, without managed cores, iokernel and siblings (exchange PARKED -> RUNNING). Readers: the same. Changes only
     * when the kthread goes to sleep or wakes. */
    uint32_t park CL_ALIGNED(64);
    /* The call for help: "there is work for more kthreads than run" (uthreads spawned from outside, a sibling with too
     * much). It is beside `park`, since the loop reads both, and both change seldom. Writers: any thread of the
     * application (atomic add, release: after help_tsc; then a seq_cst fence, help_rung and a load of the loop's
     * `sleeping`). Reader: iokernel (acquire). Of kthread 0 only. */
    uint32_t help;
    uint64_t help_tsc; /* cl_tsc() when that was said last. Any thread (relaxed); the iokernel judges ages by it */
    uint64_t rung_tsc; /* cl_tsc() when the loop was last seen asleep and was rung for. Likewise */
    /* Line 1: slots consumed from the rx ring, modulo 2^32. Writer: kthread (release). Reader: iokernel (acquire), only
     * when its copy says that the ring is full, and for the signals. */
    uint32_t rx_head CL_ALIGNED(64);
    /* Line 2: slots consumed from the tx ring. Writer: iokernel (release: the frames before it have been copied out).
     * Reader: kthread (acquire): these send buffers are free again. */
    uint32_t tx_head CL_ALIGNED(64);
    /* Descriptors with CL_TX_STAMP that it has stamped, modulo 2^32: the i-th in tx_stamps[i % CL_SHM_TX_STAMPS].
     * Writer: iokernel (release: the stamps). Reader: kthread (acquire), who has no more under way than there is room
     * for. */
    uint32_t tx_stamped;
    /* Line 3: reserved for words that the iokernel writes for this kthread. Zero. */
    uint8_t reserved_iokernel[64] CL_ALIGNED(64);
    /* Line 4: see there. */
    struct cl_signals signals CL_ALIGNED(64);
    /* Line 5: the last cl_state_kthread.quantum_signals that its handler has seen. Writer: kthread, in that handler
     * (relaxed). Reader: iokernel (relaxed), which sends no other before: a lie costs who tells it. */
    uint32_t quantum_seen CL_ALIGNED(64);
    /* Lines 5 to 7: reserved. Zero. */
    uint8_t reserved[188];
    /* Lines 8 to 39: see tx_stamped. Untouched while nobody traces. Writer: iokernel (relaxed); reader: kthread. */
    struct cl_arena_tx_stamp tx_stamps[CL_SHM_TX_STAMPS];
};

/* What an application counts of itself, by name: the iokernel shows it to whoever asks for statistics. Writer: the
 * port's watcher, some times a second (relaxed; `n` last, release). Reader: the iokernel's control thread (n: acquire),
 * which reads each word once and takes only names of small letters, digits and '_'. Each number is right by itself. */
#define CL_ARENA_MAX_COUNTERS 200
struct cl_arena_counters {
    uint32_t n; /* entries that hold something */
    uint32_t reserved;
    uint64_t published_ns; /* CLOCK_MONOTONIC */
    struct cl_counter counter[CL_ARENA_MAX_COUNTERS];
};

/* First page of the state segment. Writer: iokernel, before the first application; readers: applications. Constant. */
struct cl_state_header {
    uint64_t magic; /* CL_STATE_MAGIC */
    uint32_t version;
    uint32_t n_loops;
    uint64_t generation;   /* random, never 0: tells one run of an iokernel from the next */
    uint32_t never_sleeps; /* 1: polling mode is "spin", an application need not read `sleeping` */
    uint32_t pid;          /* of the iokernel, for messages only */
    uint64_t loops_offset, cores_offset, total_bytes;
    uint32_t n_cores;         /* cl_state_core entries, indexed by CPU id */
    uint32_t manages_cores;   /* 1: kthreads run only while they own a core (docs/cores.md) */
    uint64_t kthreads_offset; /* cl_state_kthread[CL_SHM_MAX_SLOTS] */
    uint64_t reserved[7];
};

/* A loop's words. Writer: that loop. */
struct cl_state_loop {
    /* Line 0: while the loop sleeps or is about to, which sleep this is, from 1 on; else 0. Writer: loop (relaxed
     * store, seq_cst fence, then a re-check of all rings). Readers: applications (seq_cst fence after publishing to a
     * tx ring, then relaxed). An application that has rung in this sleep need not ring again. Changes rarely. */
    uint64_t sleeping CL_ALIGNED(64);
    /* Line 1: cl_tsc() of a recent round. Writer: loop, about once a millisecond while awake (relaxed). Readers: the
     * port's watcher, a few times a second. Stale, with sleeping = 0: the loop is stopped or starved. */
    uint64_t heartbeat_tsc CL_ALIGNED(64);
};

/* Who has a core. Writer: the loop that manages it. Readers: kthreads (owner: acquire). Changes when the core moves.
 *
 * `owner` is the one authority: a kthread runs uthreads only while it is the owner of its core. It changes at the
 * moment of the decision. The old owner cedes when it polls its preemption flag, the new one begins when the old one
 * has ceded. */
struct cl_state_core {
    uint32_t owner CL_ALIGNED(64); /* slot + 1 of a kthread; 0: nobody */
    uint32_t wake;                 /* the owner sleeps on the futex of its slot: who cedes for it wakes it */
    uint32_t wanted;               /* somebody else could use this core: an owner without work parks at once */
    uint32_t moves;                /* times that the owner changed */
    uint64_t decided_tsc;          /* when it last did */
    uint64_t before_tsc;           /* when it did the time before: from then until decided_tsc ... */
    uint32_t before;               /* ... the core was this one's, as `owner`. Both relaxed, before `owner` */
};

/* Words of a kthread, by slot. Writer: its home loop. Readers: the kthread (acquire). */
struct cl_state_kthread {
    /* Futex. Bumped (release, after `cpu` and the core's `owner`) each time the kthread is given a core, or is woken
     * while it has one. FUTEX_WAIT and FUTEX_WAKE work on a read-only shared mapping, and so does FUTEX_REQUEUE: who
     * relies on a wake has another way out (docs/cores.md). */
    uint32_t grant CL_ALIGNED(64);
    int32_t cpu;         /* the core it is to run on or wait for */
    uint32_t yield_wait; /* 1: wait by sched_yield(), this core changes hands often; 0: wait on the futex */
    /* cl_signals.switches of what has run for a quantum, stored (relaxed) before the preemption flag that says so, so
     * that whoever sees the flag late, or takes the signal late, finds another number there than what runs. */
    uint32_t quantum_over;
    uint32_t quantum_signals; /* signals sent since a quantum was over, this one included (relaxed, before the call) */
    /* When the core that it had became another's, or nobody's (relaxed, before it is an owner again); 0: never. In a
     * line of its own: it changes just when the kthread reads the other one, to see whether its core is lost. */
    uint64_t lost_tsc CL_ALIGNED(64);
};

/* Geometry of an arena: what was requested, and what follows from it. */
struct cl_arena_layout {
    uint32_t n_kthreads, rx_slots, tx_slots, n_rx, n_tx, buffer_bytes;
    uint32_t buffer_stride;
    uint32_t reserved;
    uint64_t lines_offset, rx_offset, tx_offset, buffers_offset, total_bytes;
};
// cffi: end

#define CL_ARENA_MAGIC 0x616e6572616c63ull   /* "clarena" */
#define CL_STATE_MAGIC 0x6574617473006c63ull /* "cl", 0, "state" */

_Static_assert(sizeof(struct cl_arena_header) == 128, "no hidden padding, one page is plenty");
_Static_assert(offsetof(struct cl_arena_header, lines_offset) == 40, "64-bit fields aligned");
_Static_assert(sizeof(((struct cl_arena_header *)0)->name) == CL_SHM_NAME_BYTES, "name");
_Static_assert(sizeof(struct cl_arena_kthread) == 512 + CL_SHM_TX_STAMPS * sizeof(struct cl_arena_tx_stamp),
               "eight lines a kthread, and its stamps");
_Static_assert(offsetof(struct cl_arena_kthread, tx_stamps) == 512, "line 8, a pair of its own");
_Static_assert(offsetof(struct cl_arena_kthread, park) == 0, "line 0");
_Static_assert(offsetof(struct cl_arena_kthread, rx_head) == 64, "line 1, the same writer as line 0");
_Static_assert(offsetof(struct cl_arena_kthread, tx_head) == 128, "line 2, another pair: another writer");
_Static_assert(offsetof(struct cl_arena_kthread, reserved_iokernel) == 192, "line 3, the same writer as line 2");
_Static_assert(offsetof(struct cl_arena_kthread, signals) == 256, "line 4");
_Static_assert(offsetof(struct cl_arena_kthread, rung_tsc) < 64, "line 0");
_Static_assert(offsetof(struct cl_arena_kthread, quantum_seen) == 320, "line 5, the same writer as line 4");
_Static_assert(sizeof(struct cl_signals) == 64, "one line");
_Static_assert(sizeof(struct cl_arena_counters) == 16 + 40 * CL_ARENA_MAX_COUNTERS, "no hidden padding");
_Static_assert(sizeof(struct cl_state_header) == 128, "no hidden padding");
_Static_assert(sizeof(struct cl_state_loop) == 128, "two lines");
_Static_assert(offsetof(struct cl_state_loop, heartbeat_tsc) == 64,
               "the heartbeat does not disturb readers of sleeping");
_Static_assert(sizeof(struct cl_state_core) == 64, "one line a core");
_Static_assert(sizeof(struct cl_arena_header) <= CL_ARENA_PREEMPT_OFFSET, "the look line comes after it");
_Static_assert(sizeof(struct cl_arena_preempt) == 64, "one line");
_Static_assert(offsetof(struct cl_arena_preempt, memory_bytes) % 8 == 0, "64-bit fields aligned");
_Static_assert(sizeof(struct cl_arena_doorbell) == 64, "one line: a round reads both words at once");
_Static_assert(CL_SHM_MAX_KTHREADS <= 64, "a bit each");
_Static_assert(sizeof(struct cl_state_kthread) == 128, "two lines a kthread");
_Static_assert(offsetof(struct cl_state_kthread, lost_tsc) == 64, "a loss leaves alone what is read to see it");

/* Work out the layout from its first six fields. -EINVAL if one of them is out of bounds. */
static inline int cl_arena_layout_init(struct cl_arena_layout *l)
{
    const uint64_t page = CL_SHM_PAGE;
    uint32_t most = cl_max(l->rx_slots, l->tx_slots), least = cl_min(l->rx_slots, l->tx_slots);
    if (l->n_kthreads < 1 || l->n_kthreads > CL_SHM_MAX_KTHREADS || least < 16 || most > (1u << 20) ||
        (l->rx_slots & (l->rx_slots - 1)) || (l->tx_slots & (l->tx_slots - 1)) || l->n_rx < 16 || l->n_tx < 16 ||
        l->n_rx >= CL_SHM_NO_BUFFER || l->n_tx >= CL_SHM_NO_BUFFER || l->n_rx + l->n_tx >= CL_SHM_NO_BUFFER ||
        l->buffer_bytes < CL_SHM_MIN_BUFFER_BYTES || l->buffer_bytes > CL_SHM_MAX_BUFFER_BYTES)
        return -EINVAL;
    uint32_t lines = (l->buffer_bytes + 2 * CL_CACHELINE - 1) / CL_CACHELINE; /* with 64 bytes of slack */
    l->buffer_stride = (lines | 1) * CL_CACHELINE;
    l->lines_offset = page;
    uint64_t counters = sizeof(struct cl_arena_counters);
    l->rx_offset =
        (l->lines_offset + l->n_kthreads * sizeof(struct cl_arena_kthread) + counters + page - 1) / page * page;
    uint64_t rx_bytes = (uint64_t)l->n_kthreads * l->rx_slots * sizeof(struct cl_desc);
    uint64_t tx_bytes = (uint64_t)l->n_kthreads * l->tx_slots * sizeof(struct cl_desc);
    l->tx_offset = l->rx_offset + (rx_bytes + page - 1) / page * page;
    l->buffers_offset = l->tx_offset + (tx_bytes + page - 1) / page * page;
    uint64_t buffers = (uint64_t)(l->n_rx + l->n_tx) * l->buffer_stride;
    l->total_bytes = l->buffers_offset + (buffers + page - 1) / page * page + cl_latency_bytes(l->n_kthreads);
    return 0;
}

/* Where in an arena the latency of its services is (cl_latency_of): the end. */
static inline void *cl_arena_latency(void *base, const struct cl_arena_layout *l)
{
    return (uint8_t *)base + l->total_bytes - cl_latency_bytes(l->n_kthreads);
}

/* Where in an arena its counters are: the end of the lines' part. */
static inline struct cl_arena_counters *cl_arena_counters_of(void *base, const struct cl_arena_layout *l)
{
    return (struct cl_arena_counters *)((uint8_t *)base + l->rx_offset - sizeof(struct cl_arena_counters));
}

/* Descriptors (ring.h: bit 63 of `word` is the ring's phase).
 *
 *   rx       word     0..31 RSS hash, 32..47 length, 48 CL_RX_ASKS, 49..62 zero
 *            payload  0..23 buffer, 24..39 offset of the frame in it, 40..63 how often the application's flows had
 *                     been steered anew by then (iokernel/cores/flows.c), modulo 2^24
 *   tx SEND  word     0..15 length, 16..31 offset, 32..55 buffer, 56..62 CL_TX_SEND
 *            payload  0..23 and 24..47 buffers given back (CL_SHM_NO_BUFFER: none), 48 CL_TX_STAMP, 49..63 zero
 *            A receive buffer may be sent: it is given back thereby. One that asks may be sent as it came:
 *            the next member is asked.
 *   tx FREE  word     32..55 buffer given back, 56..62 CL_TX_FREE
 *            payload  as for SEND: up to three buffers in all */
#define CL_RX_ASKS (1ull << 48)  /* is its flow this member's? Another one may have it (docs/groups.md) */
#define CL_TX_STAMP (1ull << 48) /* stamp it: cl_arena_kthread.tx_stamps */
#define CL_TX_SEND 1u
#define CL_TX_FREE 2u

/* Where the doorbell word of the arena with this id is. For who makes the arena. */
static inline uint64_t cl_doorbell_offset(uint32_t id)
{
    const uint32_t pair = 2 * CL_CACHELINE, first = CL_ARENA_PREEMPT_OFFSET / pair + 1;
    return (first + id % (CL_SHM_PAGE / pair - first)) * pair;
}

/* For an application, which trusts the header. */
static inline struct cl_arena_doorbell *cl_arena_doorbell_of(void *arena)
{
    const struct cl_arena_header *h = arena;
    return (struct cl_arena_doorbell *)((uint8_t *)arena + h->doorbell_offset);
}

/* Kthread k has put something into its tx ring: a load, while the loop polls that anyway. */
static inline void cl_doorbell_set(struct cl_arena_doorbell *d, unsigned k)
{
    uint64_t bit = 1ull << k;
    if (cl_unlikely(!(cl_load_relaxed(&d->rung) & bit)))
        __atomic_fetch_or(&d->rung, bit, __ATOMIC_SEQ_CST);
}

/* The application has called for help: a load, while the loop has not heard the last call yet. */
static inline void cl_help_ring(struct cl_arena_doorbell *d)
{
    if (!cl_load_relaxed(&d->help_rung))
        cl_store_relaxed(&d->help_rung, 1);
}

static inline uint64_t cl_rx_word(uint32_t hash, uint32_t len)
{
    return hash | (uint64_t)len << 32;
}

static inline uint64_t cl_rx_payload(uint32_t buffer, uint32_t offset, uint32_t steering)
{
    return buffer | (uint64_t)offset << 24 | (uint64_t)steering << 40;
}

static inline uint32_t cl_rx_steering(uint64_t payload)
{
    return (uint32_t)(payload >> 40);
}

static inline uint64_t cl_tx_word(uint32_t kind, uint32_t buffer, uint32_t offset, uint32_t len)
{
    return (uint64_t)kind << 56 | (uint64_t)buffer << 32 | (uint64_t)offset << 16 | len;
}

static inline uint64_t cl_tx_payload(uint32_t free0, uint32_t free1)
{
    return free0 | (uint64_t)free1 << 24;
}

// cffi: begin
/* As cl_arena_layout_init, for bindings. */
CL_API int cl_shm_layout(struct cl_arena_layout *layout);
// cffi: end

#endif

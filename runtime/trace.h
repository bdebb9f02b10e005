/* What a runtime writes down of its requests, for others to read: the layout of a trace segment, and its reader.
 *
 * A segment is a memory file of one runtime (memory.h, named CL_TRACE_NAME), never a part of the arena, in which
 * packets are. The runtime alone has it mapped writable (F_SEAL_FUTURE_WRITE); readers map it read-only, see nothing of
 * the runtime but this, and may end at any point: no word of theirs is in it, and the writer never waits for them.
 *
 *   cl_trace_header                    first page; constant, but for cl_trace_control and cl_trace_clocks in it
 *   cl_trace_service[CL_TRACE_SERVICES]
 *   for each kthread: cl_trace_ring in a page of its own, then its ring_records records of CL_TRACE_RECORD bytes
 *
 * A ring has one writer, its kthread, which overwrites the oldest. Record i lies in slot i modulo ring_records:
 *
 *   writer   a release fence, its words (relaxed), then or up to CL_TRACE_AHEAD records later `head` (release)
 *   reader   `head` (acquire), copies words (relaxed), an acquire fence, `head` again. A reader that has seen a word of
 *            record j sees a head above j - CL_TRACE_AHEAD then, by the two fences. So what lies below the second head
 *            + CL_TRACE_AHEAD - ring_records may have been overwritten while it was copied, and is thrown away.
 *
 * Trust. What is in a segment is the runtime's word about itself, and perhaps nonsense: a reader bounds the geometry by
 * the size of the file before it follows it, and takes each record only if it is one (cl_trace_valid); the others are
 * counted. Stamps are those of the runtime's clock (clock.h), for which the header has rate and base; they are never
 * rewritten, and no wall time is stored, so that a step of the system clock changes nothing.
 *
 * Several messages may be written as a group, which is a run of records that are published together. A reader makes of
 * it what it would have read of each alone.
 *
 * Stages of a message, in order; each boundary is in ticks after `begin`, so that they add up to the last by
 * construction:
 *
 *   begin --ring--> pickup --inbox--> start --handler--> end --reply--> sent
 *
 * What comes behind its doorbell, the BURST record has whose begin that is: messages with one doorbell share it. It is
 * written later, when it is known; of one that was overwritten or never written, nothing is.
 *
 * `begin` is the first moment known: an iokernel took the frame, or (CL_TRACE_FROM_KTHREAD) the kthread did, and then
 * ring is 0. What a handler waited for is in `blocked` (until somebody made it ready) and `ready` (until it ran again),
 * parts of handler; its WAIT records say what for. Of a command of a group that wait is taken apart by a COMMAND
 * record, with its id. What a connection waited for on the wire is a message of its own
 * (CL_TRACE_STALLED): begin is when its bytes should have gone on, sent when they did, and all of it is reply.
 *
 * Tests: tests/runtime/test_trace.py (garbage, overwriting), tests/runtime/c/trace_ring.c (TSan). */
#ifndef CORELANE_RUNTIME_TRACE_H
#define CORELANE_RUNTIME_TRACE_H

#include <corelane/runtime/base.h>
#include "memory.h"

#define CL_TRACE_MAGIC 0x6563617274636cull /* "cltrace" */
#define CL_TRACE_NAME "corelane-trace"     /* of the memory file */

// cffi: begin
#define CL_TRACE_VERSION 6
#define CL_TRACE_RECORD 64 /* bytes */
#define CL_TRACE_WORDS 8   /* the same */
#define CL_TRACE_PAGE 4096
#define CL_TRACE_SERVICES 256
#define CL_TRACE_MAX_RINGS 64
#define CL_TRACE_AHEAD 64 /* records that a writer may have put and not published */
#define CL_TRACE_MIN_RECORDS 256
#define CL_TRACE_MAX_RECORDS 1048576
#define CL_TRACE_STAMP_MOST 0x4000000000000000 /* stamps are below it: some 30 years of any machine's counter */

/* cl_trace_control.mode */
#define CL_TRACE_OFF 0
#define CL_TRACE_SAMPLED 1 /* 1 of one_in, and about the slowest so many of each millisecond */
#define CL_TRACE_FULL 2    /* all */

/* The first byte of a record: what it is. */
#define CL_TRACE_MESSAGE 1
#define CL_TRACE_WAIT 2
#define CL_TRACE_CORE 3
#define CL_TRACE_GAP 4
#define CL_TRACE_COMMAND 5
#define CL_TRACE_SAMPLE 6
#define CL_TRACE_GROUP 7 /* several messages; cl_trace_read makes them of it */
#define CL_TRACE_MORE 8  /* and more of them */
#define CL_TRACE_BURST 9

/* cl_trace_message.flags */
#define CL_TRACE_FROM_KTHREAD 1 /* begin is the kthread's pick-up: nothing is known of before */
#define CL_TRACE_DRAWN 2        /* it was to be recorded whatever came of it; else it is here for being slow */
#define CL_TRACE_STOLEN 4       /* another kthread had picked it up */
#define CL_TRACE_ANSWERED 8     /* something was sent for it; else sent is end */
#define CL_TRACE_ERROR 16       /* its handler failed */
#define CL_TRACE_SHARED 32      /* start and end are those of `shared` requests that were handled together */
#define CL_TRACE_GUESSED 64     /* start is the last moment known before it: a doorbell, or the pick-up */
#define CL_TRACE_UNSENT 128     /* answered, but when its doorbell was rung is not known; sent is end */
#define CL_TRACE_STALLED 256    /* no request, but bytes of a connection that stood still: its WAIT says why */

/* cl_trace_service.kind */
#define CL_TRACE_UDP 1
#define CL_TRACE_TCP 2
#define CL_TRACE_RAFT 3     /* commands and queries of a node's clients */
#define CL_TRACE_RESP 4     /* replies of Redis' protocols that were held until a log had what they tell of */
#define CL_TRACE_BLOCKING 5 /* commands of theirs that waited for keys */
#define CL_TRACE_LOG 6      /* appends to a log that uthreads share; port: the how-many-th of the runtime's */

/* cl_trace_wait.what */
#define CL_TRACE_WAITS_OTHER 0
#define CL_TRACE_WAITS_SLEEP 1
#define CL_TRACE_WAITS_MUTEX 2
#define CL_TRACE_WAITS_COND 3
#define CL_TRACE_WAITS_SEM 4
#define CL_TRACE_WAITS_JOIN 5 /* uthreads to end: one, a scope's, a wait group's */
#define CL_TRACE_WAITS_CHANNEL 6
#define CL_TRACE_WAITS_YIELD 7
#define CL_TRACE_WAITS_QUANTUM 8  /* it had run for a quantum */
#define CL_TRACE_WAITS_CORE 9     /* its kthread lost its core */
#define CL_TRACE_WAITS_LOG 10     /* an append to become durable */
#define CL_TRACE_WAITS_DISK 11    /* a read or write of a device */
#define CL_TRACE_WAITS_CONNECT 12 /* a connection of its own to open */
#define CL_TRACE_WAITS_ACCEPT 13  /* one of others to come */
#define CL_TRACE_WAITS_READ 14    /* bytes or datagrams to come */
#define CL_TRACE_WAITS_WRITE 15   /* room for bytes to send */
#define CL_TRACE_WAITS_POLL 16    /* one of a poll set to be ready */
/* What a connection stood still for, of messages with CL_TRACE_STALLED: */
#define CL_TRACE_WAITS_RESEND 17 /* segments were lost: from when the first had left until the peer had all */
#define CL_TRACE_WAITS_WINDOW 18 /* the peer's window was shut, or too small */
#define CL_TRACE_WAITS_HOLE 19   /* a segment of the peer was missing, and others behind it were there */
/* Of a call (cl_runtime_trace_call): */
#define CL_TRACE_WAITS_COMMIT 20 /* a command to be agreed on and applied */
#define CL_TRACE_WAITS_KEYS 21   /* one of some keys to be given something */
#define CL_TRACE_WAITS 22        /* kinds */

/* cl_trace_command.flags */
#define CL_TRACE_COMMAND_READ 1      /* it was a query: nothing went into the log */
#define CL_TRACE_COMMAND_FORWARDED 2 /* another node led, and was asked: only `gone` is known */

/* cl_trace_gap.how */
#define CL_TRACE_GAP_STAMPS 1   /* two looks of the loop at the clock, with nothing of ours between them */
#define CL_TRACE_GAP_COUNTERS 2 /* the kernel's counters of its thread, between two looks at them */
#define CL_TRACE_GAP_COLLECTS 3 /* the interpreter of its thread collected garbage, by its own word */

struct cl_trace_header {
    uint64_t magic;        /* CL_TRACE_MAGIC */
    uint32_t version;      /* CL_TRACE_VERSION */
    uint32_t n_rings;      /* 1..CL_TRACE_MAX_RINGS */
    uint32_t ring_records; /* a power of two from CL_TRACE_MIN_RECORDS to CL_TRACE_MAX_RECORDS */
    uint32_t pid;
    uint64_t hz;       /* of the stamps */
    uint64_t base_tsc; /* a stamp ... */
    int64_t base_ns;   /* ... and CLOCK_MONOTONIC then (a virtual clock's time); later ones are asked of the machine */
    uint64_t total_bytes;
    char name[32];     /* of the application; zero-terminated */
    uint32_t source;   /* of the stamps: CL_CLOCK_* (clock.h). CL_CLOCK_VIRTUAL: nobody else has that clock */
    uint32_t reserved; /* 0 */
};

/* At CL_TRACE_CONTROL_OFFSET. Writer: the runtime's process (relaxed); readers: its kthreads, about once a millisecond,
 * and everybody, relaxed. */
#define CL_TRACE_CONTROL_OFFSET 256
struct cl_trace_control {
    uint32_t mode;
    uint32_t one_in;     /* sampled: 1 or more */
    uint32_t slowest;    /* sampled: of each millisecond */
    uint32_t n_services; /* entries that are filled in (release; readers: acquire) */
    uint32_t ask_signal; /* by which samples are asked for (cl_trace_ask_samples); 0: by none */
};

/* What the signal's value says: how many samples a second of CPU time; for how many ms. */
#define CL_TRACE_ASK_HZ 0xfff
#define CL_TRACE_ASK_MS_SHIFT 12
#define CL_TRACE_ASK_MS_MOST 0xfffff

/* At CL_TRACE_CLOCKS_OFFSET: how far the counters of CPUs are apart, as it was measured (clock.h). A stamp of CPU c,
 * less `offset`, is what the counter of `reference` said then, give or take `bound`. Stamps are never rewritten: who
 * reads them may subtract. Writer: the runtime, before kthreads run; a later measurement is another version, for stamps
 * from then on. */
#define CL_TRACE_CLOCKS_OFFSET 512
#define CL_TRACE_CPUS 256
struct cl_trace_clock {
    int32_t offset; /* ticks */
    uint32_t bound; /* ticks; UINT32_MAX: not measured */
};
struct cl_trace_clocks {
    uint32_t version; /* measurements (release); 0: none, and what follows is 0 */
    uint32_t reference;
    uint32_t apart;    /* two stamps of any CPUs that were measured lie wrong to each other by so many ticks at most */
    uint32_t measured; /* CPUs, of those that the process might run on */
    uint64_t from;     /* stamps from then on */
    struct cl_trace_clock of[CL_TRACE_CPUS];
};

/* What answers: entry 0 stands for all that find no place. */
struct cl_trace_service {
    uint16_t kind, port;
    uint32_t reserved;
};

/* Line 0 of a ring's page. Writer: the kthread. */
struct cl_trace_ring {
    uint64_t head CL_ALIGNED(64); /* records ever written (release) */
};

/* A message: a datagram, what a connection's turn took in, a call (cl_runtime_trace_call). Ticks after begin rise:
 * pickup, start, end, sent; one that would not fit is UINT32_MAX. */
struct cl_trace_message {
    uint8_t kind;    /* CL_TRACE_MESSAGE */
    uint8_t kthread; /* on which its handler ended */
    uint16_t service;
    uint32_t flags;
    uint64_t id; /* unique in the segment, never 0 */
    uint64_t begin;
    uint32_t pickup, start, end, sent;
    uint32_t blocked, ready; /* of end - start */
    uint32_t flow;           /* hash of its flow, 0: unknown */
    uint16_t bytes;          /* of the request */
    uint16_t shared;         /* requests that share its boundaries; 1: its own */
    /* Of one of 20 us or more, perhaps: since the last such one, page faults of its thread, and times that the kernel
     * took its CPU. */
    uint32_t faults, switches;
};

/* One wait of a handler. */
struct cl_trace_wait {
    uint8_t kind;    /* CL_TRACE_WAIT */
    uint8_t kthread; /* on which it was resumed */
    uint16_t what;   /* CL_TRACE_WAITS_* */
    uint32_t n;      /* how many waits it stands for: it was the longest of them; 1: itself. RESEND, WINDOW: segments */
    uint64_t id;     /* of the message */
    uint64_t begin;
    uint32_t blocked; /* ticks until it was made ready, ... */
    uint32_t ready;   /* ... and from then until it ran */
    uint64_t object;  /* address of what it waited for; 0: none. STALLED: the flow, as in its message */
    uint64_t holder;  /* of a mutex: address of the uthread that had it; 0: unknown */
    uint64_t uthread; /* address of its own: names it as a holder */
    /* Parts of `blocked`. LOG: until its flush was given to the device, and from then until that had written it; what
     * is left is for flushes before it, and to be told. Else 0. */
    uint32_t first, second;
};

/* The kthread's core was another's, by the iokernel's word (cl_state_core), until the kthread had one again. */
struct cl_trace_core {
    uint8_t kind; /* CL_TRACE_CORE */
    uint8_t kthread;
    uint16_t parked; /* 1: it had no work when it lost the core; told where a message waited for it */
    uint32_t n;      /* times that are told as one: who has the core is told of the first */
    uint64_t id;     /* 0 */
    uint64_t begin, end;
    uint32_t by;  /* slot + 1 of the kthread that had it, the last of them; 0: unknown */
    uint32_t cpu; /* + 1; 0: unknown */
    uint64_t unused[3];
};

/* The kthread did nothing of ours for `gone` ticks somewhere between begin and end: its thread had no CPU, or
 * (COLLECTS) its interpreter collected garbage there. Not what it slept of itself, nor what an iokernel took
 * (cl_trace_core). */
struct cl_trace_gap {
    uint8_t kind; /* CL_TRACE_GAP */
    uint8_t kthread;
    uint16_t how; /* CL_TRACE_GAP_*; STAMPS, COLLECTS: gone is all of it */
    uint32_t n;   /* 1; COLLECTS: the generation, + 1 */
    uint64_t id;  /* of the message that was slow then; 0: of none */
    uint64_t begin, end, gone;
    /* Of the thread between begin and end, by COUNTERS: page faults; times that the kernel took its CPU; that it slept
     * in the kernel. */
    uint32_t faults, switches, sleeps;
    /* Of gone, ticks in which the thread could have run and stood in line for its CPU, by the kernel's count: others
     * ran there. The rest it slept, or the machine had no CPU. */
    uint32_t waited;
    uint32_t cpu; /* on which it is at `end`, + 1; 0: unknown */
    uint32_t unused;
};

/* What a command of a group waited for, between the begin and the end of its message. Ticks after begin, UINT32_MAX
 * where it did not get there before it was agreed on. Of one that was refused all but `gone` are that.
 *
 *   begin --batch--> gone --> flush --> written --> durable   its leader's own log
 *                         --> sent --> others                 a majority's, but for the leader's own
 *                    agreed: both, or the others alone; then it is applied, and the message ends */
struct cl_trace_command {
    uint8_t kind; /* CL_TRACE_COMMAND */
    uint8_t kthread;
    uint16_t flags;                   /* CL_TRACE_COMMAND_* */
    uint32_t node;                    /* the last of the others that a majority needed; 0: none, or not known */
    uint64_t id;                      /* of the message */
    uint64_t begin;                   /* the same */
    uint32_t gone;                    /* its batch: to the log, and to the others */
    uint32_t sent;                    /* the first message that had it was given to the network */
    uint32_t flush, written, durable; /* given to the device; that had written it; and all before it */
    uint32_t others;
    uint32_t agreed;
    uint32_t reserved; /* 0 */
    uint64_t index;    /* of its entry, the same on all nodes; READ: that it waited for */
};

/* Where the kthread was when a sample of its CPU time was taken that was asked for. */
#define CL_TRACE_CHAIN 5
struct cl_trace_sample {
    uint8_t kind; /* CL_TRACE_SAMPLE */
    uint8_t kthread;
    uint16_t stands;                /* for so many that were asked for */
    uint32_t n;                     /* of chain, that are known; 1 or more */
    uint64_t id;                    /* 0 */
    uint64_t begin;                 /* when */
    uint64_t chain[CL_TRACE_CHAIN]; /* program counters, the innermost first; those of callers are return addresses */
};

/* What became of the frames that were sent with a doorbell: by the word of the iokernel, which takes them. */
struct cl_trace_burst {
    uint8_t kind;    /* CL_TRACE_BURST */
    uint8_t kthread; /* which rang it */
    uint16_t reserved[3];
    uint64_t id;    /* 0 */
    uint64_t begin; /* when it was rung: begin + sent of its messages */
    uint32_t taken; /* ticks, until the last of them was taken out of the tx ring, ... */
    uint32_t given; /* ... and given to a NIC, to another loop or to another application */
    uint64_t unused[4];
};

/* Messages with one doorbell, all DRAWN, whose handlers have one start and one end between them (CL_TRACE_SHARED), or
 * come in a row: each begins where the one before it has ended. The first is in the group; of the others
 * CL_TRACE_MORE_EACH are in each of the records behind it. Readers get each as a cl_trace_message (cl_trace_read). */
#define CL_TRACE_GROUP_MOST 32
#define CL_TRACE_MORE_EACH 3
struct cl_trace_member {
    uint32_t start, picked; /* ticks from begin, and from its pick-up, to its start */
    uint32_t flow;
    uint16_t bytes;
    uint8_t flags; /* those that are below 256 */
    uint8_t service;
};
struct cl_trace_group {
    uint8_t kind; /* CL_TRACE_GROUP */
    uint8_t kthread;
    uint16_t n;      /* messages, 2 to CL_TRACE_GROUP_MOST */
    uint32_t in_row; /* 1: they come in a row; 0: they share their boundaries */
    uint64_t id;     /* of the first; the others have the next ones */
    uint64_t start;
    uint64_t sent;             /* the doorbell of those that are answered; 0: it is to come, or not known */
    uint32_t faults, switches; /* of the first, in a row of the last */
    struct cl_trace_member first;
    uint32_t ran; /* ticks: all of them, in a row the first */
    uint32_t reserved;
};
struct cl_trace_more {
    uint8_t kind; /* CL_TRACE_MORE */
    uint8_t kthread;
    uint16_t reserved;
    uint32_t ran[CL_TRACE_MORE_EACH]; /* in a row: ticks that each ran */
    struct cl_trace_member of[CL_TRACE_MORE_EACH];
};

/* Ask a process for samples of its kthreads, by the signal that its segment names (ask_signal): hz a second, for ms.
 * They come as records. -EINVAL: numbers that cannot be; -EPERM: it is another user's; -ESRCH. */
CL_API int cl_trace_ask_samples(int32_t pid, int32_t signal, uint32_t hz, uint32_t ms);
/* Geometry: how many bytes a segment has. -EINVAL: n_rings or ring_records is none. */
CL_API int64_t cl_trace_bytes(uint32_t n_rings, uint32_t ring_records);
/* Whether a mapping of so many bytes is a segment whose parts lie in it. 0, or -EPROTO with one line in err. */
CL_API int cl_trace_check(const void *base, uint64_t bytes, char err[256]);
/* Whether 64 bytes are a record: its kind is known, its service may exist, its boundaries rise, below
 * CL_TRACE_STAMP_MOST. */
CL_API bool cl_trace_valid(const void *record);
/* Copy records of a ring of a segment of so many bytes that was checked, from number *next on, into out, which has room
 * for n, 0 or CL_TRACE_GROUP_MOST and more; of a group come its messages. *next is what comes after them, *lost is
 * increased by those that had been overwritten, *garbage by those that were no records. Returns how many are in `out`;
 * there may be more while *next rises. */
CL_API uint32_t cl_trace_read(const void *base, uint64_t bytes, uint32_t ring, uint64_t *next, void *out, uint32_t n,
                              uint64_t *lost, uint64_t *garbage);
/* Of a ring of such a segment: records ever written, and how many of these were overwritten, the newest unpublished
 * ones aside. A lie is told as it is. */
CL_API void cl_trace_counts(const void *base, uint64_t bytes, uint32_t ring, uint64_t *written, uint64_t *overwritten);
// cffi: end

_Static_assert(sizeof(struct cl_trace_header) == 96 && sizeof(struct cl_trace_header) <= CL_TRACE_CONTROL_OFFSET,
               "no hidden padding; the control line comes after it");
_Static_assert(sizeof(struct cl_trace_service) == 8, "no hidden padding");
_Static_assert(sizeof(struct cl_trace_message) == CL_TRACE_RECORD, "one line");
_Static_assert(sizeof(struct cl_trace_wait) == CL_TRACE_RECORD, "one line");
_Static_assert(sizeof(struct cl_trace_core) == CL_TRACE_RECORD, "one line");
_Static_assert(sizeof(struct cl_trace_gap) == CL_TRACE_RECORD, "one line");
_Static_assert(sizeof(struct cl_trace_command) == CL_TRACE_RECORD, "one line");
_Static_assert(sizeof(struct cl_trace_sample) == CL_TRACE_RECORD, "one line");
_Static_assert(sizeof(struct cl_trace_burst) == CL_TRACE_RECORD, "one line");
_Static_assert(sizeof(struct cl_trace_group) == CL_TRACE_RECORD && offsetof(struct cl_trace_group, first) == 40,
               "one line");
_Static_assert(sizeof(struct cl_trace_more) == CL_TRACE_RECORD && sizeof(struct cl_trace_member) == 16 &&
                   offsetof(struct cl_trace_more, of) == 16,
               "one line");
_Static_assert(CL_TRACE_SERVICES <= 256, "a byte in cl_trace_member");
_Static_assert(CL_TRACE_CLOCKS_OFFSET + sizeof(struct cl_trace_clocks) <= CL_TRACE_PAGE, "in the header's page");
_Static_assert(CL_TRACE_RECORD == CL_CACHELINE && CL_TRACE_WORDS * 8 == CL_TRACE_RECORD, "one line");
_Static_assert(offsetof(struct cl_trace_message, id) == 8 && offsetof(struct cl_trace_wait, id) == 8,
               "the second word");
_Static_assert(offsetof(struct cl_trace_message, begin) == 16 && offsetof(struct cl_trace_message, end) == 32 &&
                   offsetof(struct cl_trace_message, sent) == 36 && offsetof(struct cl_trace_message, flags) == 4,
               "known to the writer, which fills in `sent` last");

/* Where things are; base is a segment that was checked, or is our own. */
static inline struct cl_trace_control *cl_trace_control_of(const void *base)
{
    return (struct cl_trace_control *)((uint8_t *)(uintptr_t)base + CL_TRACE_CONTROL_OFFSET);
}

static inline struct cl_trace_clocks *cl_trace_clocks_of(const void *base)
{
    return (struct cl_trace_clocks *)((uint8_t *)(uintptr_t)base + CL_TRACE_CLOCKS_OFFSET);
}

static inline struct cl_trace_service *cl_trace_services_of(const void *base)
{
    return (struct cl_trace_service *)((uint8_t *)(uintptr_t)base + CL_TRACE_PAGE);
}

/* Bytes of a ring with its page. */
static inline uint64_t cl_trace_ring_bytes(uint32_t ring_records)
{
    return CL_TRACE_PAGE + (uint64_t)ring_records * CL_TRACE_RECORD;
}

/* Where ring `ring` begins; of one more than there are, where the segment ends. */
static inline uint64_t cl_trace_ring_offset(uint32_t ring_records, uint32_t ring)
{
    uint64_t services = CL_TRACE_SERVICES * sizeof(struct cl_trace_service);
    return CL_TRACE_PAGE + (services + CL_TRACE_PAGE - 1) / CL_TRACE_PAGE * CL_TRACE_PAGE +
           ring * cl_trace_ring_bytes(ring_records);
}

static inline struct cl_trace_ring *cl_trace_ring_of(const void *base, uint32_t ring_records, uint32_t ring)
{
    return (struct cl_trace_ring *)((uint8_t *)(uintptr_t)base + cl_trace_ring_offset(ring_records, ring));
}

/* Record `number`'s place. */
static inline uint64_t *cl_trace_slot(struct cl_trace_ring *ring, uint32_t ring_records, uint64_t number)
{
    return (uint64_t *)((uint8_t *)ring + CL_TRACE_PAGE) + (number & (ring_records - 1)) * CL_TRACE_WORDS;
}

/* Writer: put the words of record `number`, which is not published before cl_trace_publish. */
static inline void cl_trace_put(struct cl_trace_ring *ring, uint32_t ring_records, uint64_t number,
                                const uint64_t words[CL_TRACE_WORDS])
{
    uint64_t *to = cl_trace_slot(ring, ring_records, number);
    /* Release: a reader that sees one of these words sees the head before it. No instruction on x86-64. */
    __atomic_thread_fence(__ATOMIC_RELEASE);
    for (unsigned i = 0; i < CL_TRACE_WORDS; i++)
        cl_store_relaxed(&to[i], words[i]);
}

/* Writer: records below `head` are there. */
static inline void cl_trace_publish(struct cl_trace_ring *ring, uint64_t head)
{
    cl_store_release(&ring->head, head);
}

#endif

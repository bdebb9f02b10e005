/* What an application's kthreads say about waiting work: positions in, ages out.
 *
 * A kthread exports how far each of its queues was filled and emptied (runtime/shm.h, cl_signals), no times. Here each
 * queue has a short list of samples "by this stamp the tail was there". The entry at the head is as old as the first
 * sample beyond it: too young by at most the time between two decisions, never too old. A list that is full forgets its
 * newest sample for the one that comes, so the oldest entry keeps its age.
 *
 * Nothing that is read here is believed: a head beyond its tail means an empty queue, a tail that goes back starts
 * anew, times are bounded. A lie gets the liar a core that the policy would give to a batch application for the asking,
 * or none.
 *
 * Tests: tests/iokernel/cores/c/choice.c. */
#ifndef CORELANE_IOKERNEL_STATE_SIGNALS_H
#define CORELANE_IOKERNEL_STATE_SIGNALS_H

#include <corelane/runtime/base.h>
#include "../../runtime/shm.h"

#include <string.h>

#define IO_SAMPLES 8
#define IO_MOST_AGE (1ull << 36) /* ticks, some twenty seconds: an age is no more than that */

struct io_ages {
    uint32_t first, n; /* samples: s[first], s[first + 1], ... modulo IO_SAMPLES */
    uint32_t tail;     /* position of the last sample */
    uint32_t pos[IO_SAMPLES];
    uint64_t tsc[IO_SAMPLES];
};

enum { IO_RX, IO_INBOX, IO_RUNQ, IO_STORAGE, IO_QUEUES };

/* A queue's words, as they were read; side by side as in struct cl_signals, where both are compared at once. */
struct io_position {
    uint32_t tail, head;
};

#define IO_PAIR(s, a, b) (offsetof(s, a) % 8 == 0 && offsetof(s, b) == offsetof(s, a) + 4)
_Static_assert(IO_PAIR(struct cl_arena_kthread, park, help), "read in one load");
_Static_assert(IO_PAIR(struct cl_signals, inbox_tail, inbox_head), "read in one load");
_Static_assert(IO_PAIR(struct cl_signals, runq_tail, runq_head), "read in one load");
_Static_assert(IO_PAIR(struct cl_signals, storage_done, storage_seen), "read in one load");

/* The queues of one kthread as the home loop sees them, and what it found at its last decision. */
struct io_signals {
    /* Line 0: all that io_signals_still needs. */
    struct cl_signals *shared CL_ALIGNED(CL_CACHELINE); /* in the arena, where its other lines lie beside it */
    uint32_t park, help;                                /* copies of its words, not checked beyond comparisons */
    struct io_position position[IO_QUEUES];             /* of IO_RX: the tail is ours */
    uint64_t due;                                       /* timer_tsc as it was read */
    uint64_t next_timer;                                /* stamp, UINT64_MAX: none that is not due */

    uint32_t waiting;                       /* things that wait */
    uint64_t packet, thread, timer, stored; /* ages in ticks, 0: nothing waits */
    uint64_t ceded_since; /* when it was first seen to wait for a core with work in hand; 0: it does not */
    uint32_t sampled;     /* bits: queues of which there are samples; others' lines are not touched */
    struct io_ages queue[IO_QUEUES];
};

/* The receive ring's tail was there at `tsc`, not later than the next decision. */
void io_signals_sample(struct io_signals *s, uint32_t rx_tail, uint64_t tsc);
/* Look at everything of one kthread. rx_head, rx_tail: of its receive ring, of rx_slots. Returns lies found. */
uint32_t io_signals_read(struct io_signals *s, const uint32_t *park, const uint32_t *rx_head, uint32_t rx_tail,
                         uint32_t rx_slots, uint64_t now);
/* A number that changes when the kthread itself runs a uthread, parks, or acts on a grant: not of the heads of its
 * queues, which siblings that steal from it move, too. */
uint32_t io_signals_mark(const struct io_signals *s, const uint32_t *park);

/* A number that changes when anything comes to wait in its queues, or is taken from them, by whomever, as of the last
 * decision. */
uint32_t io_signals_waiting_mark(const struct io_signals *s);

/* Two words in one load, against their copies. */
static inline uint64_t io_differ(const uint32_t *words, const uint32_t *copies)
{
    uint64_t were;
    memcpy(&were, copies, sizeof were);
    return cl_load_relaxed((const uint64_t *)words) ^ were;
}

/* Whether no word has changed since the last decision, and no timer has become due: without a branch a word, since that
 * is so of most applications most of the time. The loop knows by itself whether it has put anything into the receive
 * ring. Relaxed: as if the words had been read earlier. */
static inline bool io_signals_still(const struct io_signals *s, uint64_t now)
{
    const struct cl_signals *shared = s->shared;
    const struct cl_arena_kthread *lines = cl_container_of(shared, const struct cl_arena_kthread, signals);
    const struct io_position *rx = &s->position[IO_RX];
    uint64_t changed = io_differ(&lines->park, &s->park);
    if (cl_unlikely(rx->head != rx->tail)) /* of an empty ring only lies can change it: its line is not touched */
        changed |= cl_load_relaxed(&lines->rx_head) ^ rx->head;
    changed |= io_differ(&shared->inbox_tail, &s->position[IO_INBOX].tail);
    changed |= io_differ(&shared->runq_tail, &s->position[IO_RUNQ].tail);
    changed |= io_differ(&shared->storage_done, &s->position[IO_STORAGE].tail);
    changed |= cl_load_relaxed(&shared->timer_tsc) ^ s->due;
    return changed == 0 && (s->next_timer == UINT64_MAX || (int64_t)(now - s->next_timer) < 0);
}

static inline bool io_park_is_ceded(uint32_t park)
{
    return park == CL_KTHREAD_CEDED || park == CL_KTHREAD_CEDED_YIELDING;
}

static inline bool io_park_yields(uint32_t park)
{
    return park == CL_KTHREAD_PARKED_YIELDING || park == CL_KTHREAD_CEDED_YIELDING;
}

#endif

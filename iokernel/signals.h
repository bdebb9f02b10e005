/* What an application's kthreads say about waiting work: positions in, ages out.
 *
 * A kthread exports how far each of its queues was filled and emptied (runtime/shm.h, cl_signals), no times. Here each
 * queue has a short list of samples "by this stamp the tail was there". The entry at the head is as old as the first
 * sample beyond it: too young by at most the time between two looks, never too old. A list that is full forgets its
 * newest sample for the one that comes, so the oldest entry keeps its age.
 *
 * Nothing that is read here is believed: a head beyond its tail means an empty queue, a tail that goes back starts anew,
 * times are bounded. A lie gets the liar a core that the policy would give to a batch application for the asking, or
 * none.
 *
 * Tests: tests/iokernel/c/cores_choice.c. */
#ifndef CORELANE_IOKERNEL_SIGNALS_H
#define CORELANE_IOKERNEL_SIGNALS_H

#include "../runtime/base.h"
#include "../runtime/shm.h"

#define IO_SAMPLES 8

struct io_ages {
    uint32_t first, n; /* samples: s[first], s[first + 1], ... modulo IO_SAMPLES */
    uint32_t tail;     /* position of the last sample */
    uint32_t pos[IO_SAMPLES];
    uint64_t tsc[IO_SAMPLES];
};

enum { IO_RX, IO_INBOX, IO_RUNQ, IO_STORAGE, IO_QUEUES };

/* The queues of one kthread as the home loop sees them, and what it found at its last look. */
struct io_signals {
    struct cl_signals *shared; /* in the arena */
    uint64_t aside_since;      /* when it was first seen to wait for a core with work in hand; 0: it does not */
    uint32_t park;             /* copy of its park word, not checked beyond comparisons */
    uint32_t waiting;
    uint64_t packet, thread, timer, stored; /* ages in ticks, 0: nothing waits */
    uint64_t next_timer;                    /* stamp, UINT64_MAX: none */
    uint32_t sampled;                       /* bits: queues of which there are samples; others' lines are not touched */
    struct io_ages queue[IO_QUEUES];
};

/* The receive ring's tail was there at `tsc`, not later than the next look. */
void io_signals_sample(struct io_signals *s, uint32_t rx_tail, uint64_t tsc);
/* Look at everything of one kthread. rx_head, rx_tail: of its receive ring, of rx_slots. Returns lies found. */
uint32_t io_signals_look(struct io_signals *s, const uint32_t *park, const uint32_t *rx_head, uint32_t rx_tail,
                         uint32_t rx_slots, uint64_t now);
/* A number that changes when the kthread does anything. */
uint32_t io_signals_mark(const struct io_signals *s, const uint32_t *park, const uint32_t *rx_head);

/* Whether what a look found, parked and nothing waiting, is so still, and no timer has come or become due: without a branch a
 * word, since most applications rest most of the time. Relaxed: as if an older look had been made. */
static inline bool io_signals_still(const struct io_signals *s, const uint32_t *park, const uint32_t *rx_head,
                                    uint32_t rx_tail, uint64_t now)
{
    const struct cl_signals *shared = s->shared;
    uint32_t changed = cl_load_relaxed(park) ^ s->park;
    changed |= cl_load_relaxed(rx_head) ^ rx_tail;
    changed |= cl_load_relaxed(&shared->inbox_head) ^ cl_load_relaxed(&shared->inbox_tail);
    changed |= cl_load_relaxed(&shared->runq_head) ^ cl_load_relaxed(&shared->runq_tail);
    changed |= cl_load_relaxed(&shared->storage_seen) ^ cl_load_relaxed(&shared->storage_done);
    uint64_t due = cl_load_relaxed(&shared->timer_tsc);
    return changed == 0 && due == s->next_timer && (due == UINT64_MAX || (int64_t)(now - due) < 0);
}

static inline bool io_park_is_aside(uint32_t park)
{
    return park == CL_KTHREAD_ASIDE || park == CL_KTHREAD_ASIDE_HOT;
}

static inline bool io_park_is_hot(uint32_t park)
{
    return park == CL_KTHREAD_PARKED_HOT || park == CL_KTHREAD_ASIDE_HOT;
}

#endif

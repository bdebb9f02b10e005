/* See signals.h. */
#include "signals.h"

#define MOST_WAITING 65536u /* in one queue; more says nothing more */
#define SLOT(a, i) (((a)->first + (i)) & (IO_SAMPLES - 1))

static void add_sample(struct io_ages *a, uint32_t tail, uint64_t tsc)
{
    if (a->n && a->tail == tail)
        return;
    uint32_t at = a->n < IO_SAMPLES ? SLOT(a, a->n++) : SLOT(a, IO_SAMPLES - 1);
    a->pos[at] = a->tail = tail;
    a->tsc[at] = tsc;
}

/* Age in ticks, at least 1, of the entry at `head` of a queue that was filled up to `tail`; 0 if it is empty. */
static uint64_t age_at(struct io_ages *a, uint32_t head, uint32_t tail, uint64_t now)
{
    if ((int32_t)(tail - head) <= 0) { /* empty, or a torn read, or a lie */
        a->n = 0;
        return 0;
    }
    add_sample(a, tail, now);
    while (a->n && (int32_t)(a->pos[a->first] - head) <= 0) {
        a->first = (a->first + 1) & (IO_SAMPLES - 1);
        a->n--;
    }
    if (a->n == 0) /* the tail went back: no honest one does */
        add_sample(a, tail, now);
    uint64_t age = now - a->tsc[a->first];
    return (int64_t)age <= 0 ? 1 : cl_min(age, IO_MOST_AGE);
}

static inline uint32_t waiting(uint32_t head, uint32_t tail)
{
    uint32_t n = tail - head;
    return (int32_t)n <= 0 ? 0 : cl_min(n, MOST_WAITING);
}

void io_signals_sample(struct io_signals *s, uint32_t rx_tail, uint64_t tsc)
{
    add_sample(&s->queue[IO_RX], rx_tail, tsc);
    s->sampled |= 1u << IO_RX;
}

static inline void forget(struct io_signals *s, unsigned queue)
{
    if (cl_likely(!(s->sampled & 1u << queue)))
        return;
    s->queue[queue].n = 0;
    s->sampled &= ~(1u << queue);
}

static inline uint64_t age_of(struct io_signals *s, unsigned queue, uint32_t head, uint32_t tail, uint64_t now)
{
    s->sampled |= 1u << queue;
    return age_at(&s->queue[queue], head, tail, now);
}

/* A queue of the signals line. The head is read first: an entry that comes and goes between the two loads then seems to
 * wait still, for one decision, and none is missed. Relaxed: shm.h says why a torn read does no harm. */
static inline uint64_t look_at(struct io_signals *s, unsigned queue, const uint32_t *head_at, const uint32_t *tail_at,
                               uint64_t now)
{
    uint32_t head = cl_load_acquire(head_at), tail = cl_load_relaxed(tail_at);
    s->position[queue] = (struct io_position){tail, head};
    if (cl_likely(head == tail)) {
        forget(s, queue);
        return 0;
    }
    s->waiting += waiting(head, tail);
    return age_of(s, queue, head, tail, now);
}

static void check_timer(struct io_signals *s, uint64_t now)
{
    uint64_t due = cl_load_relaxed(&s->shared->timer_tsc);
    s->due = due;
    s->timer = 0;
    s->next_timer = UINT64_MAX;
    if (due == 0) /* as the arena was made: it never said anything */
        return;
    if ((int64_t)(now - due) < 0 || due == UINT64_MAX) {
        s->next_timer = due;
        return;
    }
    s->timer = cl_min(cl_max(now - due, 1u), IO_MOST_AGE);
    s->waiting++;
}

uint32_t io_signals_read(struct io_signals *s, const uint32_t *park, const uint32_t *rx_head, uint32_t rx_tail,
                         uint32_t rx_slots, uint64_t now)
{
    const struct cl_signals *shared = s->shared;
    uint32_t lies = 0, head = cl_load_relaxed(rx_head);
    s->park = cl_load_relaxed(park);
    s->help = cl_load_relaxed(&cl_container_of(shared, const struct cl_arena_kthread, signals)->help);
    s->position[IO_RX] = (struct io_position){rx_tail, head};
    s->waiting = 0;
    s->packet = s->thread = 0;
    if (cl_unlikely(rx_tail - head > rx_slots)) {
        lies++;
        forget(s, IO_RX);
    } else if (rx_tail != head) {
        s->waiting += rx_tail - head;
        s->packet = age_of(s, IO_RX, head, rx_tail, now);
    } else {
        forget(s, IO_RX);
    }
    uint64_t inbox = look_at(s, IO_INBOX, &shared->inbox_head, &shared->inbox_tail, now);
    s->packet = cl_max(s->packet, inbox);
    s->thread = look_at(s, IO_RUNQ, &shared->runq_head, &shared->runq_tail, now);
    s->stored = look_at(s, IO_STORAGE, &shared->storage_seen, &shared->storage_done, now);
    check_timer(s, now);
    if (io_park_is_ceded(s->park)) {
        s->ceded_since = s->ceded_since ? s->ceded_since : now;
        s->thread = cl_max(s->thread, cl_max(now - s->ceded_since, 1u));
        s->waiting++;
    } else {
        s->ceded_since = 0;
    }
    return lies;
}

uint32_t io_signals_mark(const struct io_signals *s, const uint32_t *park)
{
    const struct cl_signals *shared = s->shared;
    return (cl_load_relaxed(park) * 31 + cl_load_relaxed(&shared->acted)) * 31 + cl_load_relaxed(&shared->switches);
}

uint32_t io_signals_waiting_mark(const struct io_signals *s)
{
    uint32_t mark = (uint32_t)s->due;
    for (unsigned i = 0; i < IO_QUEUES; i++)
        mark = (mark * 31 + s->position[i].head) * 31 + s->position[i].tail;
    return mark;
}

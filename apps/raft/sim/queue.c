/* The heap of events (see queue.h). */
#include "queue.h"
#include <errno.h>
#include <stdlib.h>

#define WAYS 4

static bool earlier(const struct sim_event *a, const struct sim_event *b)
{
    return a->at_ns < b->at_ns || (a->at_ns == b->at_ns && a->order < b->order);
}

int sim_queue_put(struct sim_queue *q, struct sim_event event)
{
    if (q->n == q->room) {
        uint32_t room = q->room ? q->room * 2 : 256;
        struct sim_event *heap = realloc(q->heap, room * sizeof(*heap));
        if (!heap)
            return -ENOMEM;
        q->heap = heap;
        q->room = room;
    }
    if (event.at_ns < q->now_ns)
        event.at_ns = q->now_ns;
    event.order = q->puts++;
    uint32_t at = q->n++;
    for (; at; at = (at - 1) / WAYS) {
        struct sim_event *parent = &q->heap[(at - 1) / WAYS];
        if (!earlier(&event, parent))
            break;
        q->heap[at] = *parent;
    }
    q->heap[at] = event;
    return 0;
}

/* Let `event` sink from the root of a heap of n. */
static void sink(struct sim_event *heap, uint32_t n, struct sim_event event)
{
    uint32_t at = 0;
    for (uint32_t child = 1; child < n; child = at * WAYS + 1) {
        uint32_t end = child + WAYS < n ? child + WAYS : n, least = child;
        for (uint32_t c = child + 1; c < end; c++)
            if (earlier(&heap[c], &heap[least]))
                least = c;
        if (!earlier(&heap[least], &event))
            break;
        heap[at] = heap[least];
        at = least;
    }
    heap[at] = event;
}

bool sim_queue_take(struct sim_queue *q, struct sim_event *out)
{
    if (!q->n)
        return false;
    *out = q->heap[0];
    q->n--;
    if (q->n)
        sink(q->heap, q->n, q->heap[q->n]);
    q->now_ns = out->at_ns;
    return true;
}

void sim_queue_clear(struct sim_queue *q)
{
    q->n = 0;
    q->puts = 0;
    q->now_ns = 0;
}

void sim_queue_free(struct sim_queue *q)
{
    free(q->heap);
    *q = (struct sim_queue){0};
}

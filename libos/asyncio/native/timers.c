/* Timers of a loop: a heap by time, and by the order of their making. One that is cancelled stays in it until it comes
 * to the top, or until most are such. See native.h. */
#include "native.h"

#include <stdlib.h>

#define ROOM_FIRST 64
#define CANCELLED_LEAST 100 /* until there are so many, and more than half, nobody looks for them */

static bool is_before(const struct timer *a, const struct timer *b)
{
    return a->when < b->when || (a->when == b->when && a->number < b->number);
}

static void sift_up(struct timers *t, size_t i)
{
    struct timer moved = t->at[i];
    for (size_t above; i && is_before(&moved, &t->at[above = (i - 1) / 2]); i = above)
        t->at[i] = t->at[above];
    t->at[i] = moved;
}

static void sift_down(struct timers *t, size_t i)
{
    struct timer moved = t->at[i];
    for (size_t below; (below = 2 * i + 1) < t->n; i = below) {
        below += below + 1 < t->n && is_before(&t->at[below + 1], &t->at[below]);
        if (!is_before(&t->at[below], &moved))
            break;
        t->at[i] = t->at[below];
    }
    t->at[i] = moved;
}

int timers_put(struct timers *t, PyObject *handle)
{
    struct handle *h = handle_of(handle);
    if (t->n == t->room) {
        size_t room = t->room ? 2 * t->room : ROOM_FIRST;
        struct timer *at = realloc(t->at, room * sizeof *at);
        if (!at) {
            PyErr_NoMemory();
            return -1;
        }
        t->at = at;
        t->room = room;
    }
    t->at[t->n] = (struct timer){h->when, t->made++, Py_NewRef(handle)};
    h->scheduled = true;
    sift_up(t, t->n++);
    return 0;
}

/* The first of those there are. The reference is the caller's. */
static PyObject *take(struct timers *t)
{
    PyObject *handle = t->at[0].handle;
    struct handle *h = handle_of(handle);
    t->at[0] = t->at[--t->n];
    if (t->n)
        sift_down(t, 0);
    h->scheduled = false;
    t->n_cancelled -= h->cancelled && t->n_cancelled;
    return handle;
}

/* All that are cancelled go. What ends with them may call anything: so they end when the heap is whole. */
static void sweep(struct timers *t)
{
    size_t n = 0, n_gone = 0;
    PyObject **gone = malloc(t->n * sizeof(PyObject *));
    if (!gone)
        return; /* another time */
    for (size_t i = 0; i < t->n; i++) {
        if (handle_of(t->at[i].handle)->cancelled)
            gone[n_gone++] = t->at[i].handle;
        else
            t->at[n++] = t->at[i];
    }
    t->n = n;
    t->n_cancelled = 0;
    for (size_t i = n / 2; i-- > 0;)
        sift_down(t, i);
    for (size_t i = 0; i < n_gone; i++) {
        handle_of(gone[i])->scheduled = false;
        Py_DECREF(gone[i]);
    }
    free(gone);
}

void timers_drop_cancelled(struct timers *t)
{
    if (t->n_cancelled > CANCELLED_LEAST && t->n_cancelled > t->n / 2)
        sweep(t);
    while (t->n && handle_of(t->at[0].handle)->cancelled)
        Py_DECREF(take(t));
}

int timers_take_due(struct timers *t, double end, struct ready *ready)
{
    int rc = 0;
    while (rc == 0 && t->n && t->at[0].when < end) {
        PyObject *handle = take(t);
        rc = ready_put(ready, handle);
        Py_DECREF(handle);
    }
    return rc;
}

void timers_clear(struct timers *t)
{
    while (t->n)
        Py_DECREF(take(t));
    free(t->at);
    t->at = NULL;
    t->room = 0;
}

/* All states that some threads of real C code can come to which share memory under locks: sequentially consistent.
 *
 * Each thread has a stack of its own and runs until it is about to do what others can notice: take a lock, look whether
 * one is free, or what the model calls ex_pause for. There the explorer goes on with any thread that can. What
 * the memory regions that the model names (ex_region) and the stacks hold is the state. A state is a number for each
 * stack and one for the numbers of the regions, so that what was seen before is stored once.
 *
 * A model that defines EX_SHARES_STACKS has threads that write to each other's stacks.
 *
 * For code whose shared words are guarded by locks, or read without one as a hint only. What is to hold with store
 * buffers is explored by tests/iokernel/cores/c/interleave.h. */
#ifndef TESTS_LIBOS_EXPLORE_H
#define TESTS_LIBOS_EXPLORE_H

#include <corelane/runtime/base.h>

#define CORELANE_LIBOS_SPIN_H /* these instead */

struct cl_spin {
    uint32_t word;
};

static unsigned ex_pause(const struct cl_spin *wants, unsigned choices);

static inline bool cl_spin_try(struct cl_spin *l)
{
    ex_pause(NULL, 1);
    if (l->word)
        return false;
    l->word = 1;
    return true;
}

static inline void cl_spin_lock(struct cl_spin *l)
{
    ex_pause(l, 1);
    l->word = 1;
}

static inline void cl_spin_unlock(struct cl_spin *l)
{
    l->word = 0; /* nobody can tell that from a moment later, when this thread next pauses */
}

/* What nobody shares is not locked. */
static inline void cl_spin_lock_if(struct cl_spin *l, bool shared)
{
    if (shared)
        cl_spin_lock(l);
}

static inline void cl_spin_unlock_if(struct cl_spin *l, bool shared)
{
    if (shared)
        cl_spin_unlock(l);
}

#include "libos/sched/switch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EX_THREADS 3
#ifdef EX_SHARES_STACKS
#define EX_ALL_STACKS 1
#else
#define EX_ALL_STACKS 0
#endif
#define EX_STACK (32 << 10)
#define EX_REGIONS 48
#define EX_PARTS (EX_THREADS + 1) /* the last are the regions */

struct ex_thread {
    struct cl_context context;
    const struct cl_spin *wants; /* goes on when this is free; NULL: at any time */
    unsigned choices;
};

struct ex_blob {
    uint64_t hash;
    uint32_t bytes, next; /* of those in its slot: number + 1 */
    uint8_t *data;
};

struct ex_state {
    uint32_t part[EX_PARTS];
    uint32_t parent;
    uint16_t label; /* thread << 8 | choice of the step from there */
};

static struct {
    unsigned n_threads, n_regions, choice, most;
    int running;
    const char *failed;
    struct ex_thread thread[EX_THREADS];
    struct cl_context explorer;
    struct {
        void *at;
        size_t bytes;
    } region[EX_REGIONS];
    struct ex_blob *blobs;
    uint32_t n_blobs, room_blobs, n_states, room_states, n_edges, room_edges;
    struct ex_state *states;
    uint32_t (*edges)[2];
    uint32_t *blob_slots, *state_slots; /* [EX_SLOTS] */
    uint8_t buffer[EX_STACK + sizeof(struct ex_thread)];
} ex = {.running = -1};

#define EX_SLOTS (1u << 22)

static uint8_t ex_stacks[EX_THREADS][EX_STACK] CL_ALIGNED(64);

/* The model's: a step that no thread takes (a frame comes), the number `which`. False: there is no such step now. */
static bool ex_outside(unsigned which);
/* Whether all that was to come about has. */
static bool ex_done(void);
/* Make states one that differ in nothing that matters: counts that only grow. */
static void ex_canonical(void);

static void ex_region(void *at, size_t bytes)
{
    if (ex.n_regions == EX_REGIONS)
        abort();
    ex.region[ex.n_regions].at = at;
    ex.region[ex.n_regions++].bytes = bytes;
}

/* Clear the stack below, where calls have left what would tell states apart that are the same. */
static CL_NOINLINE void ex_wipe(void)
{
    uint8_t below[8192];
    memset(below, 0, sizeof below);
    __asm__ volatile("" : : "r"(below) : "memory");
}

static CL_NOINLINE unsigned ex_pause(const struct cl_spin *wants, unsigned choices)
{
    if (ex.running < 0)
        return 0;
    struct ex_thread *me = &ex.thread[ex.running];
    me->wants = wants;
    me->choices = choices;
    ex_wipe();
    cl_context_switch(&me->context, &ex.explorer);
    return ex.choice;
}

static CL_NOINLINE void ex_fail(const char *what)
{
    ex.failed = what;
    for (;;)
        ex_pause(NULL, 1);
}

static inline uint64_t ex_mixed(uint64_t h, const uint8_t *p)
{
    uint64_t word;
    memcpy(&word, p, sizeof word);
    h = (h ^ word) * 0xff51afd7ed558ccdull;
    return h ^ h >> 32;
}

/* Exploring is mostly hashing: of four words at a time, none waits for another one's product. */
static uint64_t ex_hash(const void *data, size_t bytes)
{
    const uint8_t *p = data;
    uint64_t a = 0x9e3779b97f4a7c15ull + bytes, b = 1, c = 2, d = 3;
    uint8_t rest[32] = {0};
    for (; bytes > sizeof rest; p += sizeof rest, bytes -= sizeof rest) {
        a = ex_mixed(a, p);
        b = ex_mixed(b, p + 8);
        c = ex_mixed(c, p + 16);
        d = ex_mixed(d, p + 24);
    }
    memcpy(rest, p, bytes);
    a = ex_mixed(a, rest) ^ ex_mixed(b, rest + 8) << 1;
    c = ex_mixed(c, rest + 16) ^ ex_mixed(d, rest + 24) << 1;
    return ex_mixed(a, (const uint8_t *)&c);
}

static void *ex_grow(void *list, uint32_t n, uint32_t *room, size_t each)
{
    if (n < *room)
        return list;
    *room = 2 * *room + 1024;
    list = realloc(list, *room * each);
    if (!list)
        abort();
    return list;
}

/* The number of these bytes. */
static uint32_t ex_intern(const void *data, size_t bytes)
{
    uint64_t hash = ex_hash(data, bytes);
    uint32_t *slot = &ex.blob_slots[hash % EX_SLOTS];
    for (uint32_t i = *slot; i; i = ex.blobs[i - 1].next)
        if (ex.blobs[i - 1].hash == hash && ex.blobs[i - 1].bytes == bytes &&
            memcmp(ex.blobs[i - 1].data, data, bytes) == 0)
            return i - 1;
    ex.blobs = ex_grow(ex.blobs, ex.n_blobs, &ex.room_blobs, sizeof *ex.blobs);
    struct ex_blob *b = &ex.blobs[ex.n_blobs];
    *b = (struct ex_blob){hash, (uint32_t)bytes, *slot, malloc(bytes + 1)};
    memcpy(b->data, data, bytes);
    *slot = ++ex.n_blobs;
    return *slot - 1;
}

static uint32_t ex_capture_thread(unsigned t)
{
    const struct ex_thread *thread = &ex.thread[t];
    size_t used = (size_t)(ex_stacks[t] + EX_STACK - (uint8_t *)thread->context.sp);
    memcpy(ex.buffer, thread, sizeof *thread);
    memcpy(ex.buffer + sizeof *thread, thread->context.sp, used);
    return ex_intern(ex.buffer, sizeof *thread + used);
}

/* The numbers of the regions of a state, by the number of all of them. */
static const uint32_t *ex_regions_of(uint32_t part)
{
    return (const uint32_t *)ex.blobs[part].data;
}

/* before: of the state that this one follows, or NULL. Most regions are as they were: to compare them is cheap. */
static uint32_t ex_capture_regions(const uint32_t *before)
{
    uint32_t number[EX_REGIONS];
    ex_canonical();
    for (unsigned i = 0; i < ex.n_regions; i++) {
        size_t bytes = ex.region[i].bytes;
        bool same = before && memcmp(ex.blobs[before[i]].data, ex.region[i].at, bytes) == 0;
        number[i] = same ? before[i] : ex_intern(ex.region[i].at, bytes);
    }
    return ex_intern(number, ex.n_regions * sizeof *number);
}

static void ex_restore(const uint32_t part[EX_PARTS])
{
    const uint32_t *number = ex_regions_of(part[EX_THREADS]);
    for (unsigned i = 0; i < ex.n_regions; i++)
        memcpy(ex.region[i].at, ex.blobs[number[i]].data, ex.region[i].bytes);
    for (unsigned t = 0; t < ex.n_threads; t++) {
        const struct ex_blob *b = &ex.blobs[part[t]];
        memcpy(&ex.thread[t], b->data, sizeof ex.thread[t]);
        memcpy(ex.thread[t].context.sp, b->data + sizeof ex.thread[t], b->bytes - sizeof ex.thread[t]);
    }
}

static uint32_t ex_state(const struct ex_state *new)
{
    uint32_t slot = (uint32_t)(ex_hash(new->part, sizeof new->part) % EX_SLOTS);
    for (; ex.state_slots[slot]; slot = (slot + 1) % EX_SLOTS)
        if (memcmp(ex.states[ex.state_slots[slot] - 1].part, new->part, sizeof new->part) == 0)
            return ex.state_slots[slot] - 1;
    if (ex.n_states == ex.most) {
        fprintf(stderr, "more than %u states, of %u parts\n", ex.most, ex.n_blobs);
        exit(1);
    }
    ex.states = ex_grow(ex.states, ex.n_states, &ex.room_states, sizeof *ex.states);
    ex.states[ex.n_states] = *new;
    ex.state_slots[slot] = ++ex.n_states;
    return ex.n_states - 1;
}

static void ex_found(uint32_t at, const char *what)
{
    printf("found: %s; the steps that lead there, the last first:", what);
    for (uint32_t s = at; s; s = ex.states[s].parent)
        printf(" %u.%u", ex.states[s].label >> 8, ex.states[s].label & 255);
    printf("\n");
    exit(2);
}

/* What the memory holds now follows from state `from`. */
static void ex_follow(uint32_t from, const uint32_t before[EX_PARTS], unsigned moved, unsigned choice)
{
    struct ex_state new = {.parent = from, .label = (uint16_t)(moved << 8 | choice)};
    memcpy(new.part, before, sizeof new.part);
    for (unsigned t = 0; t < ex.n_threads; t++)
        if (t == moved || EX_ALL_STACKS)
            new.part[t] = ex_capture_thread(t);
    new.part[EX_THREADS] = ex_capture_regions(ex_regions_of(before[EX_THREADS]));
    uint32_t to = ex_state(&new);
    if (ex.failed)
        ex_found(to, ex.failed);
    ex.edges = ex_grow(ex.edges, ex.n_edges, &ex.room_edges, sizeof *ex.edges);
    ex.edges[ex.n_edges][0] = from;
    ex.edges[ex.n_edges++][1] = to;
}

static void ex_take(uint32_t s)
{
    uint32_t part[EX_PARTS];
    memcpy(part, ex.states[s].part, sizeof part);
    for (unsigned t = 0; t < ex.n_threads; t++) {
        ex_restore(part);
        unsigned choices = ex.thread[t].choices;
        if (ex.thread[t].wants && ex.thread[t].wants->word)
            continue;
        for (unsigned c = 0; c < choices; c++) {
            ex_restore(part);
            ex.running = (int)t;
            ex.choice = c;
            cl_context_switch(&ex.explorer, &ex.thread[t].context);
            ex.running = -1;
            ex_follow(s, part, t, c);
        }
    }
    ex_restore(part);
    for (unsigned which = 0; ex_outside(which); which++, ex_restore(part))
        ex_follow(s, part, EX_THREADS, which);
}

/* From every state all that is to come about does if the steps are chosen well, so whoever is fair comes there. */
static void ex_check_done(void)
{
    uint8_t *leads = calloc(ex.n_states, 1);
    bool more = true;
    for (uint32_t s = 0; s < ex.n_states; s++) {
        ex_restore(ex.states[s].part);
        leads[s] = ex_done();
    }
    while (more) {
        more = false;
        for (uint32_t e = ex.n_edges; e-- > 0;)
            if (leads[ex.edges[e][1]] && !leads[ex.edges[e][0]]) {
                leads[ex.edges[e][0]] = 1;
                more = true;
            }
    }
    for (uint32_t s = 0; s < ex.n_states; s++)
        if (!leads[s])
            ex_found(s, "from here not all is ever done");
    free(leads);
}

static void ex_thread_new(unsigned t, void (*entry)(void))
{
    cl_context_prepare(&ex.thread[t].context, (char *)ex_stacks[t] + EX_STACK, entry, cl_context_fp_control());
    ex.running = (int)t;
    cl_context_switch(&ex.explorer, &ex.thread[t].context);
    ex.running = -1;
}

/* The threads have come to their first pause. */
static void ex_explore(unsigned most)
{
    struct ex_state first = {0};
    ex.most = most;
    for (unsigned t = 0; t < ex.n_threads; t++)
        first.part[t] = ex_capture_thread(t);
    first.part[EX_THREADS] = ex_capture_regions(NULL);
    ex_state(&first);
    for (uint32_t s = 0; s < ex.n_states; s++)
        ex_take(s);
    ex_check_done();
    printf("%u states, %u steps, %u parts\n", ex.n_states, ex.n_edges, ex.n_blobs);
}

#endif

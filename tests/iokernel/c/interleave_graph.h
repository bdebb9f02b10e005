/* All states that the threads of interleave.h can come to, and what can be reached from each of them.
 *
 * A state is four parts: each thread's (registers, the stack in use, its private memory) and the shared one. Parts are kept
 * once, whatever number of states they occur in, compared byte by byte; so a step costs a copy of the parts of the one that
 * takes it, and a state costs some thirty bytes.
 *
 * Names. Numbers that are counted up and only compared (the grants of a kthread) would make the graph infinite. They begin
 * with an upper half that nothing else has, and are found in a part wherever they are; those that occur in a state are
 * counted anew from 1, in their order, which gives a state that differs from it by nothing that the code can see.
 *
 * Reaching. `Within reach` does not use edges by which somebody is killed or stopped: nothing may depend on that. Ends of times
 * are counted: a state is as far from what is to come as the path with the fewest of them. */
#ifndef CORELANE_TESTS_INTERLEAVE_GRAPH_H
#define CORELANE_TESTS_INTERLEAVE_GRAPH_H

#include "interleave.h"

#define IL_NAMES 2
#define IL_PARTS (IL_THREADS + 1)
#define IL_PART_BYTES (IL_STACK + 8192)
#define IL_GOALS 4
#define IL_NEVER 255
#define IL_UNCOUNTED 255 /* as a number of cuts: any */

struct il_part {
    uint64_t hash, at; /* at: in `bytes` */
    uint64_t names[IL_NAMES];
    uint32_t length;
};

struct il_state {
    uint32_t part[IL_PARTS];
    uint32_t parent;
    uint16_t label;        /* of the step from there: thread << 8 | how << 4 | choice */
    uint8_t goals, exempt; /* bit g: the goal is there; it need not be reached from here */
};

static struct {
    struct il_part *parts;
    uint32_t *part_table, n_parts, part_mask;
    uint8_t *bytes;
    uint64_t n_bytes, room_bytes;
    struct il_state *states;
    uint32_t *state_table, n_states, state_mask, most_states;
    uint32_t *edges, *first_edge; /* of each state, in the order of states */
    uint8_t *edge_how;
    uint64_t n_edges, room_edges;
    uint16_t upper[IL_NAMES];
    unsigned mortal, freezable, kills; /* bits of threads; at most so many deaths and stops */
    unsigned together;                 /* so many threads may be in the middle of something at a time */
    unsigned cuts;                     /* so many times on a path another one goes on instead */
    unsigned ends;                     /* so many times may end on a path */
    unsigned left;                     /* and what is to be reached is, from where so many may still end */
} ig;

/* The model's: which goals the state in memory has reached, and which need not be reached from it. Whether a thread that
 * waits by IL_EVENT may go on. */
static void il_goals(uint8_t *goals, uint8_t *exempt);
static bool il_event(void);

static void *ig_grow(void *p, size_t bytes)
{
    p = realloc(p, bytes);
    if (!p) {
        fprintf(stderr, "out of memory for the graph of states\n");
        exit(1);
    }
    return p;
}

static uint64_t ig_hash(const void *at, size_t bytes) /* a multiple of 8 */
{
    const uint64_t *w = at;
    uint64_t h = bytes;
    for (size_t i = 0; i < bytes / 8; i++) {
        h = (h ^ w[i]) * 0x9e3779b97f4a7c15ull;
        h ^= h >> 29;
    }
    return h ^ h >> 32;
}

/* Upper halves that occur in no address of this program, which the loader puts somewhere else each time. */
static void ig_choose_names(void)
{
    extern char __executable_start[], _end[];
    uint32_t from = (uint32_t)((uintptr_t)__executable_start >> 16) & 0xffff;
    uint32_t n = (uint32_t)(((uintptr_t)_end - (uintptr_t)__executable_start) >> 16) + 2;
    uint16_t at = 0x5a00;
    for (unsigned i = 0; i < IL_NAMES; at++)
        if ((uint16_t)(at - from) > n)
            ig.upper[i++] = at;
}

static uint64_t ig_find_name(uint32_t word, unsigned *which)
{
    for (unsigned i = 0; i < IL_NAMES; i++)
        if (word >> 16 == ig.upper[i]) {
            *which = i;
            if ((word & 0xffff) == 0 || (word & 0xffff) > 63) {
                fprintf(stderr, "more than 63 names at a time\n");
                exit(1);
            }
            return 1ull << (word & 0xffff);
        }
    return 0;
}

static void ig_grow_part_table(void)
{
    ig.part_mask = ig.part_mask ? 2 * ig.part_mask + 1 : 0xffff;
    ig.parts = ig_grow(ig.parts, (size_t)(ig.part_mask + 1) / 2 * sizeof *ig.parts);
    ig.part_table = ig_grow(ig.part_table, ((size_t)ig.part_mask + 1) * sizeof *ig.part_table);
    memset(ig.part_table, 0, ((size_t)ig.part_mask + 1) * sizeof *ig.part_table);
    for (uint32_t i = 0; i < ig.n_parts; i++) {
        uint32_t slot = (uint32_t)ig.parts[i].hash & ig.part_mask;
        while (ig.part_table[slot])
            slot = (slot + 1) & ig.part_mask;
        ig.part_table[slot] = i + 1;
    }
}

/* The number of a part with these contents. */
static uint32_t ig_intern(const uint8_t *from, uint32_t length)
{
    uint64_t hash = ig_hash(from, length);
    if (ig.n_parts >= ig.part_mask / 2)
        ig_grow_part_table();
    uint32_t slot = (uint32_t)hash & ig.part_mask;
    for (; ig.part_table[slot]; slot = (slot + 1) & ig.part_mask) {
        const struct il_part *p = &ig.parts[ig.part_table[slot] - 1];
        if (p->hash == hash && p->length == length && memcmp(ig.bytes + p->at, from, length) == 0)
            return ig.part_table[slot] - 1;
    }
    if (ig.n_bytes + length > ig.room_bytes) {
        ig.room_bytes = 2 * ig.room_bytes + (1 << 20);
        ig.bytes = ig_grow(ig.bytes, ig.room_bytes);
    }
    struct il_part *p = &ig.parts[ig.n_parts];
    *p = (struct il_part){.hash = hash, .at = ig.n_bytes, .length = length};
    memcpy(ig.bytes + ig.n_bytes, from, length);
    ig.n_bytes += length;
    for (uint32_t i = 0; i < length; i += 4) {
        unsigned which = 0;
        uint64_t bit = ig_find_name(*(const uint32_t *)(from + i), &which);
        p->names[which] |= bit;
    }
    ig.part_table[slot] = ++ig.n_parts;
    return ig.n_parts - 1;
}

static uint8_t ig_buffer[IL_PART_BYTES] CL_ALIGNED(8);

static void ig_put(uint32_t *n, const void *from, size_t bytes)
{
    memcpy(ig_buffer + *n, from, bytes);
    memset(ig_buffer + *n + bytes, 0, (8 - bytes % 8) % 8);
    *n += (uint32_t)(bytes + 7) & ~7u;
}

static void ig_get(const uint8_t **from, void *to, size_t bytes)
{
    memcpy(to, *from, bytes);
    *from += (bytes + 7) & ~7ull;
}

static uint32_t ig_capture_thread(unsigned t)
{
    uint32_t n = 0;
    char *sp = il.thread[t].context.sp, *top = il_stacks[t] + IL_STACK;
    if (il.m.dead[t])
        return ig_intern((const uint8_t *)"dead....", 8);
    ig_put(&n, &il.thread[t], sizeof il.thread[t]);
    ig_put(&n, sp, (size_t)(top - sp));
    for (unsigned i = 0; i < il.n_regions[t]; i++)
        ig_put(&n, il.regions[t][i].at, il.regions[t][i].bytes);
    return ig_intern(ig_buffer, n);
}

/* The stack below is cleared, so that what was left there by calls long ago does not tell states apart. */
static void ig_load_thread(unsigned t, uint32_t part)
{
    const uint8_t *from = ig.bytes + ig.parts[part].at;
    ig_get(&from, &il.thread[t], sizeof il.thread[t]);
    char *sp = il.thread[t].context.sp, *top = il_stacks[t] + IL_STACK;
    memset(sp - 4096, 0, 4096);
    ig_get(&from, sp, (size_t)(top - sp));
    for (unsigned i = 0; i < il.n_regions[t]; i++)
        ig_get(&from, il.regions[t][i].at, il.regions[t][i].bytes);
}

static uint32_t ig_capture_shared(void)
{
    uint32_t n = 0;
    ig_put(&n, &il.m, sizeof il.m);
    for (unsigned w = 0; w < il.n_words; w++)
        ig_put(&n, il.words[w].at, il.words[w].bytes);
    return ig_intern(ig_buffer, n);
}

static void ig_load_shared(uint32_t part)
{
    const uint8_t *from = ig.bytes + ig.parts[part].at;
    ig_get(&from, &il.m, sizeof il.m);
    for (unsigned w = 0; w < il.n_words; w++)
        ig_get(&from, il.words[w].at, il.words[w].bytes);
}

static uint32_t ig_rename(uint32_t part, uint64_t all[IL_NAMES])
{
    static uint8_t copy[IL_PART_BYTES] CL_ALIGNED(8);
    uint32_t length = ig.parts[part].length;
    memcpy(copy, ig.bytes + ig.parts[part].at, length);
    for (uint32_t i = 0; i < length; i += 4) {
        uint32_t *word = (uint32_t *)(copy + i);
        unsigned which = 0;
        uint64_t bit = ig_find_name(*word, &which);
        if (bit)
            *word = (uint32_t)ig.upper[which] << 16 | (uint32_t)(1 + __builtin_popcountll(all[which] & (bit - 1)));
    }
    return ig_intern(copy, length);
}

static void ig_canonical(uint32_t part[IL_PARTS])
{
    uint64_t all[IL_NAMES] = {0};
    bool dense = true;
    for (unsigned i = 0; i < IL_NAMES; i++) {
        for (unsigned p = 0; p < IL_PARTS; p++)
            all[i] |= ig.parts[part[p]].names[i];
        uint64_t without = all[i] >> 1; /* bit 0 is never set */
        dense &= (without & (without + 1)) == 0;
    }
    for (unsigned p = 0; !dense && p < IL_PARTS; p++)
        part[p] = ig_rename(part[p], all);
}

static void ig_grow_state_table(void)
{
    ig.state_mask = ig.state_mask ? 2 * ig.state_mask + 1 : 0xffff;
    size_t half = ((size_t)ig.state_mask + 1) / 2;
    ig.states = ig_grow(ig.states, half * sizeof *ig.states);
    ig.first_edge = ig_grow(ig.first_edge, (half + 1) * sizeof *ig.first_edge);
    ig.state_table = ig_grow(ig.state_table, 2 * half * sizeof *ig.state_table);
    memset(ig.state_table, 0, 2 * half * sizeof *ig.state_table);
    for (uint32_t i = 0; i < ig.n_states; i++) {
        uint32_t slot = (uint32_t)ig_hash(ig.states[i].part, sizeof ig.states[i].part) & ig.state_mask;
        while (ig.state_table[slot])
            slot = (slot + 1) & ig.state_mask;
        ig.state_table[slot] = i + 1;
    }
}

/* The number of this state; the memory is as it is there. */
static uint32_t ig_state(const uint32_t part[IL_PARTS], uint32_t parent, uint16_t label)
{
    if (ig.n_states >= ig.state_mask / 2)
        ig_grow_state_table();
    uint32_t slot = (uint32_t)ig_hash(part, IL_PARTS * sizeof *part) & ig.state_mask;
    for (; ig.state_table[slot]; slot = (slot + 1) & ig.state_mask)
        if (memcmp(ig.states[ig.state_table[slot] - 1].part, part, IL_PARTS * sizeof *part) == 0)
            return ig.state_table[slot] - 1;
    if (ig.n_states == ig.most_states) {
        fprintf(stderr, "more than %u states\n", ig.most_states);
        exit(1);
    }
    struct il_state *s = &ig.states[ig.n_states];
    *s = (struct il_state){.parent = parent, .label = label};
    memcpy(s->part, part, sizeof s->part);
    il_goals(&s->goals, &s->exempt);
    if (ig.ends && il.m.ends + ig.left > ig.ends)
        s->exempt = 0xff;
    ig.state_table[slot] = ++ig.n_states;
    return ig.n_states - 1;
}

static void ig_trace(uint32_t at);

static void ig_resume(uint32_t part[IL_PARTS], unsigned t, enum il_how how, unsigned choice)
{
    ig_load_thread(t, part[t]);
    if (how != IL_RUN)
        il.m.asleep[t] = 0;
    il.running = (int)t;
    il.how = how;
    il.choice = choice;
    cl_context_switch(&il.explorer, &il.thread[t].context);
    il.running = IL_NOBODY;
    part[t] = ig_capture_thread(t);
}

/* Take a step from the state in memory: its parts are changed. */
static CL_NOINLINE void ig_do(uint32_t part[IL_PARTS], unsigned t, enum il_how how, unsigned choice)
{
    if (how == IL_DRAIN) {
        il_drain(t);
        if (!il.m.dead[t] && !il.m.frozen[t]) {
            ig_load_thread(t, part[t]);
            if (il.thread[t].need == IL_ROOM || (il.thread[t].need == IL_FENCE && il.m.buffer[t].n == 0))
                ig_resume(part, t, IL_RUN, 0);
        }
    } else if (how == IL_KILL || how == IL_FREEZE) {
        if (il.tracing)
            printf("    %s %s\n", il_names[t], how == IL_KILL ? "is killed" : "is stopped for ever");
        il.m.deaths++;
        *(how == IL_KILL ? &il.m.dead[t] : &il.m.frozen[t]) = 1;
        if (how == IL_KILL)
            il.m.asleep[t] = il.m.signal[t] = 0;
        part[t] = how == IL_KILL ? ig_capture_thread(t) : part[t];
    } else {
        if (how == IL_SIGNAL)
            il.m.signal[t] = 0;
        ig_resume(part, t, how, choice);
        il.m.last = ig.cuts < IL_UNCOUNTED && il.thread[t].need < IL_CHOICE ? (uint8_t)(t + 1) : 0;
    }
    if (il.m.last && (il.m.dead[il.m.last - 1] || il.m.frozen[il.m.last - 1]))
        il.m.last = 0;
    part[IL_THREADS] = ig_capture_shared();
}

static void ig_edge(uint32_t from, unsigned t, enum il_how how, unsigned choice, bool timed)
{
    uint32_t part[IL_PARTS];
    uint16_t label = (uint16_t)(t << 8 | (unsigned)how << 4 | choice);
    memcpy(part, ig.states[from].part, sizeof part);
    ig_load_shared(part[IL_THREADS]);
    il.m.ends += timed;
    bool step = how == IL_RUN || how == IL_SIGNAL || how == IL_TIMEOUT;
    il.m.cuts += step && il.m.last && il.m.last != t + 1;
    ig_do(part, t, how, choice);
    if (il.failed) {
        const char *what = il.failed;
        ig_trace(from);
        memcpy(part, ig.states[from].part, sizeof part);
        ig_load_shared(part[IL_THREADS]);
        il.tracing = true;
        ig_do(part, t, how, choice);
        printf("found: %s\n", what);
        exit(2);
    }
    ig_canonical(part);
    uint32_t to = ig_state(part, from, label);
    if (ig.n_edges == ig.room_edges) {
        ig.room_edges = 2 * ig.room_edges + 65536;
        ig.edges = ig_grow(ig.edges, ig.room_edges * sizeof *ig.edges);
        ig.edge_how = ig_grow(ig.edge_how, ig.room_edges);
    }
    ig.edge_how[ig.n_edges] = how == IL_KILL || how == IL_FREEZE ? 2 : timed;
    ig.edges[ig.n_edges++] = to;
}

static bool ig_ready(unsigned t)
{
    switch ((enum il_need)il.thread[t].need) {
    case IL_DRAINED:
        return il.m.buffer[t].n == 0;
    case IL_FENCE:
    case IL_ROOM:
        return false; /* it goes on as its stores leave the buffer */
    case IL_SLEEP:
        return !il.m.asleep[t];
    case IL_EVENT:
        return il_event();
    default:
        return true;
    }
}

/* Threads other than t that are in the middle of something. */
static unsigned ig_others_busy(uint32_t from, unsigned t)
{
    unsigned n = 0;
    for (unsigned i = 0; i < IL_THREADS; i++) {
        const struct il_thread *other = (const void *)(ig.bytes + ig.parts[ig.states[from].part[i]].at);
        n += i != t && !il.m.dead[i] && !il.m.frozen[i] && other->need < IL_CHOICE;
    }
    return n;
}

static void ig_expand_thread(uint32_t from, unsigned t)
{
    uint32_t part[IL_PARTS];
    memcpy(part, ig.states[from].part, sizeof part);
    ig_load_shared(part[IL_THREADS]);
    bool time_left = il.m.ends < ig.ends;
    bool may_end = il.m.deaths < ig.kills && !il.m.dead[t] && !il.m.frozen[t], signal = il.m.signal[t];
    if (il.m.buffer[t].n)
        ig_edge(from, t, IL_DRAIN, 0, false);
    ig_load_shared(part[IL_THREADS]);
    if (il.m.dead[t] || il.m.frozen[t] || ig_others_busy(from, t) >= ig.together ||
        (il.m.last && il.m.last != t + 1 && il.m.cuts == ig.cuts))
        return;
    ig_load_thread(t, part[t]);
    const struct il_thread now = il.thread[t];
    if (ig_ready(t))
        for (unsigned c = 0; c < now.choices; c++)
            if (time_left || !(now.need == IL_CHOICE && now.timed >> c & 1))
                ig_edge(from, t, IL_RUN, c, now.need == IL_CHOICE && now.timed >> c & 1);
    if ((now.need == IL_SLEEP || now.need == IL_EVENT) && now.timed && (now.timed == 2 || time_left))
        ig_edge(from, t, IL_TIMEOUT, 0, now.timed == 1);
    if (signal && !now.in_handler)
        ig_edge(from, t, IL_SIGNAL, 0, false);
    if (may_end && ig.mortal >> t & 1)
        ig_edge(from, t, IL_KILL, 0, false);
    if (may_end && ig.freezable >> t & 1)
        ig_edge(from, t, IL_FREEZE, 0, false);
}

/* The threads have begun (il_thread_new). */
static void ig_explore(void)
{
    uint32_t part[IL_PARTS];
    for (unsigned t = 0; t < IL_THREADS; t++)
        part[t] = ig_capture_thread(t);
    part[IL_THREADS] = ig_capture_shared();
    ig_canonical(part);
    ig_state(part, 0, 0);
    for (uint32_t s = 0; s < ig.n_states; s++) {
        ig.first_edge[s] = (uint32_t)ig.n_edges;
        for (unsigned t = 0; t < IL_THREADS; t++)
            ig_expand_thread(s, t);
    }
    ig.first_edge[ig.n_states] = (uint32_t)ig.n_edges;
}

/* How one gets to this state. */
static void ig_trace(uint32_t at)
{
    static uint32_t path[100000];
    unsigned n = 0;
    for (uint32_t s = at; s && n < 100000; s = ig.states[s].parent)
        path[n++] = s;
    il.tracing = true;
    for (uint32_t part[IL_PARTS]; n-- > 0;) {
        const struct il_state *s = &ig.states[path[n]];
        memcpy(part, ig.states[s->parent].part, sizeof part);
        ig_load_shared(part[IL_THREADS]);
        ig_do(part, s->label >> 8, (enum il_how)(s->label >> 4 & 15), s->label & 15);
    }
    il.tracing = false;
}

/* The fewest ends of times from each state to the goal; IL_NEVER: it cannot be reached. */
static uint8_t *ig_distances(unsigned goal)
{
    uint32_t n = ig.n_states;
    uint64_t *first = calloc((size_t)n + 2, sizeof *first), *at = ig_grow(NULL, ((size_t)n + 1) * sizeof *at);
    uint32_t *into = ig_grow(NULL, (ig.n_edges + 1) * sizeof *into), *now = ig_grow(NULL, (size_t)n * 4 + 4);
    uint32_t *next = ig_grow(NULL, (ig.n_edges + 1) * sizeof *next), n_now = 0, n_next = 0;
    uint8_t *how = ig_grow(NULL, ig.n_edges + 1), *distance = ig_grow(NULL, n);
    for (uint64_t e = 0; e < ig.n_edges; e++)
        first[ig.edges[e] + 1]++;
    for (uint32_t s = 0; s < n; s++)
        first[s + 1] += first[s];
    memcpy(at, first, (size_t)n * sizeof *at);
    for (uint32_t s = 0; s < n; s++)
        for (uint32_t e = ig.first_edge[s]; e < ig.first_edge[s + 1]; e++) {
            how[at[ig.edges[e]]] = ig.edge_how[e];
            into[at[ig.edges[e]]++] = s;
        }
    memset(distance, IL_NEVER, n);
    for (uint32_t s = 0; s < n; s++)
        if (ig.states[s].goals >> goal & 1) {
            distance[s] = 0;
            now[n_now++] = s;
        }
    for (uint8_t d = 0; n_now; d++) {
        for (uint32_t i = 0; i < n_now; i++)
            for (uint64_t e = first[now[i]]; e < first[now[i] + 1]; e++) {
                if (how[e] == 0 && distance[into[e]] == IL_NEVER) {
                    distance[into[e]] = d;
                    now[n_now++] = into[e];
                } else if (how[e] == 1 && distance[into[e]] == IL_NEVER) {
                    next[n_next++] = into[e];
                }
            }
        n_now = 0;
        for (uint32_t i = 0; i < n_next; i++)
            if (distance[next[i]] == IL_NEVER) {
                distance[next[i]] = (uint8_t)(d + 1);
                now[n_now++] = next[i];
            }
        n_next = 0;
    }
    free(first), free(at), free(into), free(now), free(next), free(how);
    return distance;
}

/* Whether `goal` is within reach from everywhere; prints how one gets to where it is not. Returns the ends of times that it
 * takes at most. */
static unsigned ig_check(unsigned goal, const char *what)
{
    uint8_t *distance = ig_distances(goal);
    uint32_t never = 0, bad = 0;
    unsigned most = 0;
    for (uint32_t s = 0; s < ig.n_states; s++) {
        if (ig.states[s].exempt >> goal & 1)
            continue;
        if (distance[s] == IL_NEVER)
            bad = never++ ? bad : s;
        else
            most = cl_max(most, (unsigned)distance[s]);
    }
    free(distance);
    if (never == 0)
        return most;
    ig_trace(bad);
    printf("found: from %u of %u states it can never be that %s\n", never, ig.n_states, what);
    exit(2);
}

/* The memory is that of the beginning. The thread begins, and comes to its first pause. */
static CL_NOINLINE void il_thread_new(unsigned t, void (*entry)(void))
{
    il.thread[t] = (struct il_thread){.need = IL_CHOICE, .choices = 1};
    memset(il_stacks[t], 0, IL_STACK);
    cl_context_prepare(&il.thread[t].context, il_stacks[t] + IL_STACK, entry, cl_context_fp_control());
    il.running = (int)t;
    il.how = IL_RUN;
    cl_context_switch(&il.explorer, &il.thread[t].context);
    il.running = IL_NOBODY;
}

#endif

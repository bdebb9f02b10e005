/* All states that the threads of interleave.h can come to.
 *
 * A step changes the part of the thread that takes it and the shared one, and depends on nothing else. So the steps
 * that a thread may take are found once for each pair of the two, by having it run, and looked up for all other states
 * in which the pair occurs. A state then costs some eighty bytes, and a step about a microsecond.
 *
 * Bounds are of a path, and part of a state: deaths and stops, ends of times, and, if asked for, how often a thread is
 * put aside for another one in the middle of something. */
#ifndef CORELANE_TESTS_IOKERNEL_CORES_C_INTERLEAVE_GRAPH_H
#define CORELANE_TESTS_IOKERNEL_CORES_C_INTERLEAVE_GRAPH_H

#include "interleave_parts.h"

#define IL_UNCOUNTED 255 /* as a number of cuts: any */
#define IL_AHEAD 32      /* states whose steps are looked up side by side */

/* A step: what becomes of the thread's part and the shared one. */
struct il_move {
    uint32_t thread, shared;
    uint8_t how, choice;
    bool timed; /* it is the end of a time */
    bool fails;
};

/* On the path to a state. */
struct il_tally {
    uint8_t ends, deaths; /* of times; and stops */
    uint8_t cuts;         /* times that another one went on instead of `last` */
    uint8_t last; /* the thread that took the last step and is in the middle of something, from 1; 0: none, or not
               * counted */
};

struct il_state {
    uint32_t part[IL_PARTS];
    struct il_tally tally;
    uint32_t parent;
    uint16_t label; /* of the step from there: thread << 8 | how << 4 | choice */
};

/* Edges: the number of a state, and what kind of a step leads there. */
#define IL_EDGE_TIMED (1u << 30)
#define IL_EDGE_DEATH (1u << 31)
#define IL_EDGE_TO (IL_EDGE_TIMED - 1)

static struct {
    struct il_state *states;
    uint32_t *state_table; /* a state's number, plus 1, and above it as many bits of its hash as there is room for */
    uint32_t n_states, state_mask, most_states;
    uint32_t *edges;
    uint64_t *first_edge, n_edges, room_edges; /* of each state, in the order of states */
    struct il_move *moves;
    uint64_t *pairs; /* thread's part << 32 | shared part, plus 1; 0: a free slot of the table */
    uint32_t *pair_first, n_pairs, pair_mask, n_moves, room_moves;
    uint8_t *pair_n;
    unsigned mortal, freezable, kills; /* bits of threads; at most so many deaths and stops */
    unsigned cuts;                     /* so many times on a path another one goes on instead */
    unsigned ends;                     /* so many times may end on a path */
} ig;

/* The model's: whether a thread that waits by IL_EVENT may go on. */
static bool il_event(void);

static void ig_trace(uint32_t at);

static void ig_resume(uint32_t part[IL_PARTS], unsigned t, enum il_how how, unsigned choice)
{
    ip_load_thread(t, part[t]);
    if (how != IL_RUN)
        il.m.asleep[t] = 0;
    il.running = (int)t;
    il.how = how;
    il.choice = choice;
    cl_context_switch(&il.explorer, &il.thread[t].context);
    il.running = IL_NOBODY;
    part[t] = ip_capture_thread(t);
}

/* Take a step from these parts, which are changed; the memory becomes that of thread and shared words. */
static CL_NOINLINE void ig_do(uint32_t part[IL_PARTS], unsigned t, enum il_how how, unsigned choice)
{
    ip_load_shared(part[IL_SHARED]);
    if (how == IL_DRAIN) {
        il_drain(t);
        if (!il_gone(t)) {
            ip_load_thread(t, part[t]);
            if (il.thread[t].need == IL_ROOM || (il.thread[t].need == IL_FENCE && il.m.buffer[t].n == 0))
                ig_resume(part, t, IL_RUN, 0);
        }
    } else if (how == IL_KILL || how == IL_FREEZE) {
        if (il.tracing)
            printf("    %s %s\n", il_names[t], how == IL_KILL ? "is killed" : "is stopped for ever");
        *(how == IL_KILL ? &il.m.dead[t] : &il.m.frozen[t]) = 1;
        if (how == IL_KILL)
            il.m.asleep[t] = il.m.signal[t] = 0;
        part[t] = ip_capture_thread(t);
    } else {
        if (how == IL_SIGNAL)
            il.m.signal[t] = 0;
        ig_resume(part, t, how, choice);
    }
    part[IL_SHARED] = ip_capture_shared();
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

static void ig_add_move(unsigned t, uint32_t thread, uint32_t shared, enum il_how how, unsigned choice, bool timed)
{
    uint32_t part[IL_PARTS] = {0};
    part[t] = thread;
    part[IL_SHARED] = shared;
    il.failed = NULL;
    ig_do(part, t, how, choice);
    if (ig.n_moves == ig.room_moves) {
        ig.room_moves = 2 * ig.room_moves + 65536;
        ig.moves = il_grow(ig.moves, ig.room_moves * sizeof *ig.moves);
    }
    ig.moves[ig.n_moves++] =
        (struct il_move){part[t], part[IL_SHARED], (uint8_t)how, (uint8_t)choice, timed, il.failed != NULL};
}

/* All steps that thread t may take where it and the shared words are so, whatever a path has left. */
static void ig_find_moves(unsigned t, uint32_t thread, uint32_t shared)
{
    ip_load_shared(shared);
    bool gone = il_gone(t), signal = il.m.signal[t];
    if (il.m.buffer[t].n)
        ig_add_move(t, thread, shared, IL_DRAIN, 0, false);
    if (gone)
        return;
    ip_load_shared(shared);
    ip_load_thread(t, thread);
    const struct il_thread now = il.thread[t];
    bool ready = ig_ready(t);
    for (unsigned c = 0; ready && c < now.choices; c++)
        ig_add_move(t, thread, shared, IL_RUN, c, now.need == IL_CHOICE && now.timed >> c & 1);
    if ((now.need == IL_SLEEP || now.need == IL_EVENT) && now.timed)
        ig_add_move(t, thread, shared, IL_TIMEOUT, 0, now.timed == 1);
    if (signal && !now.in_handler)
        ig_add_move(t, thread, shared, IL_SIGNAL, 0, false);
    if (ig.mortal >> t & 1)
        ig_add_move(t, thread, shared, IL_KILL, 0, false);
    if (ig.freezable >> t & 1)
        ig_add_move(t, thread, shared, IL_FREEZE, 0, false);
}

static uint64_t ig_pair_key(uint32_t thread, uint32_t shared)
{
    return ((uint64_t)thread << 32 | shared) + 1;
}

static uint32_t ig_pair_home(uint64_t key)
{
    return (uint32_t)(key * 0x9e3779b97f4a7c15ull >> 32) & ig.pair_mask;
}

static uint32_t ig_pair_slot(uint64_t key)
{
    uint32_t slot = ig_pair_home(key);
    while (ig.pairs[slot] && ig.pairs[slot] != key)
        slot = (slot + 1) & ig.pair_mask;
    return slot;
}

static void ig_grow_pairs(void)
{
    uint64_t *old = ig.pairs;
    uint32_t *first = ig.pair_first, slots = ig.pair_mask ? ig.pair_mask + 1 : 0;
    uint8_t *n = ig.pair_n;
    ig.pair_mask = slots ? 2 * slots - 1 : 0xffff;
    ig.pairs = calloc((size_t)ig.pair_mask + 1, sizeof *ig.pairs);
    ig.pair_first = il_grow(NULL, ((size_t)ig.pair_mask + 1) * sizeof *first);
    ig.pair_n = il_grow(NULL, (size_t)ig.pair_mask + 1);
    for (uint32_t i = 0; i < slots; i++)
        if (old[i]) {
            uint32_t slot = ig_pair_slot(old[i]);
            ig.pairs[slot] = old[i];
            ig.pair_first[slot] = first[i];
            ig.pair_n[slot] = n[i];
        }
    free(old), free(first), free(n);
}

/* The same, looked up. Returns how many, from ig.moves[*first] on. */
static unsigned ig_moves(unsigned t, uint32_t thread, uint32_t shared, uint32_t *first)
{
    uint64_t key = ig_pair_key(thread, shared);
    if (ig.n_pairs >= ig.pair_mask / 2)
        ig_grow_pairs();
    uint32_t slot = ig_pair_slot(key);
    if (!ig.pairs[slot]) {
        ig.pairs[slot] = key;
        ig.pair_first[slot] = ig.n_moves;
        ig_find_moves(t, thread, shared);
        ig.pair_n[slot] = (uint8_t)(ig.n_moves - ig.pair_first[slot]);
        ig.n_pairs++;
    }
    *first = ig.pair_first[slot];
    return ig.pair_n[slot];
}

static uint64_t ig_state_hash(const uint32_t part[IL_PARTS], const struct il_tally *tally)
{
    struct {
        uint32_t part[IL_PARTS];
        struct il_tally tally;
    } key;
    memcpy(key.part, part, sizeof key.part);
    key.tally = *tally;
    return il_hash(&key, sizeof key);
}

/* What the table has for a state but its number: most states that are not the one looked for need not be read. */
static uint32_t ig_mark(uint64_t hash)
{
    return (uint32_t)(hash >> 32) & ~ig.state_mask;
}

/* Whether in this slot there is another state, or none. */
static bool ig_differs(uint32_t slot, uint64_t hash)
{
    return (ig.state_table[slot] & ~ig.state_mask) != ig_mark(hash);
}

static struct il_state *ig_state_in(uint32_t slot)
{
    return &ig.states[(ig.state_table[slot] & ig.state_mask) - 1];
}

static void ig_enter(uint32_t state, uint64_t hash)
{
    uint32_t slot = (uint32_t)hash & ig.state_mask;
    while (ig.state_table[slot])
        slot = (slot + 1) & ig.state_mask;
    ig.state_table[slot] = ig_mark(hash) | (state + 1);
}

static void ig_grow_states(void)
{
    ig.state_mask = ig.state_mask ? 2 * ig.state_mask + 1 : 0xffff;
    size_t half = ((size_t)ig.state_mask + 1) / 2;
    ig.states = il_grow(ig.states, half * sizeof *ig.states);
    ig.first_edge = il_grow(ig.first_edge, (half + 1) * sizeof *ig.first_edge);
    free(ig.state_table);
    ig.state_table = calloc(2 * half, sizeof *ig.state_table);
    uint64_t hash[IL_AHEAD];
    for (uint32_t from = 0; from < ig.n_states; from += IL_AHEAD) {
        uint32_t n = cl_min(ig.n_states - from, (uint32_t)IL_AHEAD);
        for (uint32_t i = 0; i < n; i++) {
            hash[i] = ig_state_hash(ig.states[from + i].part, &ig.states[from + i].tally);
            __builtin_prefetch(&ig.state_table[hash[i] & ig.state_mask]);
        }
        for (uint32_t i = 0; i < n; i++)
            ig_enter(from + i, hash[i]);
    }
}

/* The number of this state. */
static uint32_t ig_state(const uint32_t part[IL_PARTS], struct il_tally tally, uint64_t hash, uint32_t parent,
                         uint16_t label)
{
    if (ig.n_states >= ig.state_mask / 2)
        ig_grow_states();
    for (uint32_t slot = (uint32_t)hash & ig.state_mask; ig.state_table[slot]; slot = (slot + 1) & ig.state_mask) {
        if (ig_differs(slot, hash))
            continue;
        const struct il_state *s = ig_state_in(slot);
        if (memcmp(s->part, part, sizeof s->part) == 0 && memcmp(&s->tally, &tally, sizeof tally) == 0)
            return (uint32_t)(s - ig.states);
    }
    if (ig.n_states == ig.most_states) {
        fprintf(stderr, "more than %u states\n", ig.most_states);
        exit(1);
    }
    struct il_state *s = &ig.states[ig.n_states];
    *s = (struct il_state){.tally = tally, .parent = parent, .label = label};
    memcpy(s->part, part, sizeof s->part);
    ig_enter(ig.n_states, hash);
    return ig.n_states++;
}

/* Whether a path may go on so; and what is counted on it then. */
static bool ig_allowed(unsigned t, const struct il_move *m, struct il_tally *tally)
{
    bool death = m->how == IL_KILL || m->how == IL_FREEZE;
    if (m->how == IL_DRAIN)
        return true;
    if ((m->timed && tally->ends == ig.ends) || (death && tally->deaths == ig.kills))
        return false;
    if (tally->last && tally->last != t + 1) {
        if (tally->cuts == ig.cuts)
            return false;
        tally->cuts += !death;
    }
    tally->ends += m->timed;
    tally->deaths += death;
    if (death)
        tally->last = tally->last == t + 1 ? 0 : tally->last;
    else
        tally->last = ig.cuts < IL_UNCOUNTED && ip.list[m->thread].busy ? (uint8_t)(t + 1) : 0;
    return true;
}

/* A step to a state that was not looked up yet. */
struct il_step {
    uint32_t part[IL_PARTS];
    struct il_tally tally;
    uint32_t from, kind; /* kind: of the edge */
    uint64_t hash;
    uint16_t label;
};

/* The steps of the next states. Nearly every look into the tables goes to memory: they go there side by side. */
static struct {
    struct il_step *list;
    uint32_t n, room;
} ahead;

static void ig_step(uint32_t from, unsigned t, const struct il_move *m)
{
    if (ahead.n == ahead.room) {
        ahead.room = 2 * ahead.room + 256;
        ahead.list = il_grow(ahead.list, ahead.room * sizeof *ahead.list);
    }
    struct il_step *step = &ahead.list[ahead.n];
    step->tally = ig.states[from].tally;
    if (!ig_allowed(t, m, &step->tally))
        return;
    memcpy(step->part, ig.states[from].part, sizeof step->part);
    if (m->fails) {
        ig_trace(from);
        il.tracing = true;
        ig_do(step->part, t, (enum il_how)m->how, m->choice);
        printf("found: %s\n", il.failed);
        exit(2);
    }
    step->part[t] = m->thread;
    step->part[IL_SHARED] = m->shared;
    ip_canonical(step->part);
    bool death = m->how == IL_KILL || m->how == IL_FREEZE;
    step->from = from;
    step->kind = (m->timed ? IL_EDGE_TIMED : 0) | (death ? IL_EDGE_DEATH : 0);
    step->label = (uint16_t)(t << 8 | (unsigned)m->how << 4 | m->choice);
    step->hash = ig_state_hash(step->part, &step->tally);
    __builtin_prefetch(&ig.state_table[step->hash & ig.state_mask]);
    ahead.n++;
}

static void ig_edge(const struct il_step *step)
{
    uint32_t to = ig_state(step->part, step->tally, step->hash, step->from, step->label);
    if (ig.n_edges == ig.room_edges) {
        ig.room_edges = 2 * ig.room_edges + 65536;
        ig.edges = il_grow(ig.edges, ig.room_edges * sizeof *ig.edges);
    }
    ig.edges[ig.n_edges++] = to | step->kind;
}

/* Take all steps from n states. */
static void ig_take(uint32_t begin, uint32_t n)
{
    for (uint32_t s = begin; s < begin + n; s++)
        for (unsigned t = 0; t < IL_THREADS; t++)
            __builtin_prefetch(
                &ig.pairs[ig_pair_home(ig_pair_key(ig.states[s].part[t], ig.states[s].part[IL_SHARED]))]);
    ahead.n = 0;
    for (uint32_t s = begin; s < begin + n; s++)
        for (unsigned t = 0; t < IL_THREADS; t++) {
            uint32_t first, moves = ig_moves(t, ig.states[s].part[t], ig.states[s].part[IL_SHARED], &first);
            for (uint32_t i = 0; i < moves; i++)
                ig_step(s, t, &ig.moves[first + i]);
        }
    for (uint32_t i = 0; i < ahead.n; i++) {
        uint32_t slot = (uint32_t)ahead.list[i].hash & ig.state_mask;
        if (ig.state_table[slot] && !ig_differs(slot, ahead.list[i].hash))
            __builtin_prefetch(ig_state_in(slot));
    }
    for (uint32_t i = 0, s = begin; s < begin + n; s++)
        for (ig.first_edge[s] = ig.n_edges; i < ahead.n && ahead.list[i].from == s; i++)
            ig_edge(&ahead.list[i]);
}

/* The threads have begun (il_thread_new). */
static void ig_explore(void)
{
    uint32_t part[IL_PARTS];
    for (unsigned t = 0; t < IL_THREADS; t++)
        part[t] = ip_capture_thread(t);
    part[IL_SHARED] = ip_capture_shared();
    ip_canonical(part);
    struct il_tally none = {0};
    ig_state(part, none, ig_state_hash(part, &none), 0, 0);
    for (uint32_t s = 0, n; s < ig.n_states; s += n) {
        n = cl_min(ig.n_states - s, (uint32_t)IL_AHEAD);
        ig_take(s, n);
    }
    ig.first_edge[ig.n_states] = ig.n_edges;
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
        ig_do(part, s->label >> 8, (enum il_how)(s->label >> 4 & 15), s->label & 15);
    }
    il.tracing = false;
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

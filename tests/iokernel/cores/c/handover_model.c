/* The hand-over of a core (docs/cores.md), explored: a loop and the kthreads of two applications, each with the code of
 * the library that does it, compiled into this program as it is. handover_iokernel.h and handover_app.h say what is its
 * own and what is the model's, interleave.h what machine it runs on, interleave_graph.h and interleave_reach.h how it
 * is explored.
 *
 *   handover_model SCENARIO [NAME=VALUE]...
 *
 * One worker core, a latency application with a request now and then, a batch application that always has work. Shown:
 *
 *   always     word, log and loop name one owner; nobody runs uthreads beside it whom no step of a move is after, and
 *              who was not evicted
 *   served     from every state: the latency application, if it lives and is not stopped, handles its requests
 *   runs       from every state: the batch application, if it lives and is not stopped, has the core again and runs, or
 *              the latency application has it and computes (or was stopped in that, which nobody can tell from it)
 *   reclaimed  from every state: a process that is gone owns nothing
 *   ended      from every state: each move that the loop waits for has ended, if both applications live and are not
 *   stopped
 *
 * `From every state` is: there is a way, without another death or stop, so whoever schedules fairly comes there. How
 * many time-outs of the loop that takes at most is printed: in scenarios without times none, so that no wake-up is
 * lost.
 *
 * Covered. All interleavings of three threads at each load of a word that another one writes, each store that reaches
 * memory, each fence, system call and sleep, each place where a signal may come; memory as x86-TSO has it, with a store
 * buffer of `depth` stores (1, at most 2; 0: sequentially consistent) that drains at any time; each of a round's times
 * over or not. Not covered. What lies beyond the bounds of a path: `cuts`, how often a thread is put aside in the
 * middle of something for another (without that bound by default; at rest, between two rounds, probes or waits, anybody
 * may go on); `ends`, how many times end; `deaths`; `frames`, requests. More than one core, and than one kthread an
 * application; orders of memory weaker than x86's; the policy, limits on system calls, overrun.c and starved.c,
 * switching stacks. */
#include "handover_app.h"

static const char *const il_names[IL_THREADS] = {"loop", "latency", "batch"};

enum { SERVED, RUNS, RECLAIMED, ENDED, GOALS };
static const char *const goal_names[GOALS] = {"the latency application is served",
                                              "the batch application runs on the core",
                                              "no process that is gone owns the core", "no move is under way"};

static const struct scenario {
    const char *name;
    enum manner manner;
    bool times, sleeps, timer, fickle, endless, outside, stolen_from;
    uint8_t mortal, freezable; /* bits of threads */
} scenarios[] = {
    {"asked", IN_PLACE, .times = false},
    {"asked_in_loop", BY_LOOP, .times = false},
    {"loop_sleeps", IN_PLACE, .sleeps = true},
    {"spawned_from_outside", IN_PLACE, .sleeps = true, .outside = true},
    {"own_timer", IN_PLACE, .timer = true},
    {"computes_on", IN_PLACE, .times = true, .timer = true, .endless = true},
    {"fickle_policy", IN_PLACE, .fickle = true},
    {"interrupted", BY_SIGNAL, .times = true, .sleeps = true},
    {"evicted", DEAF, .times = true},
    {"stolen_from", IN_PLACE, .times = true, .stolen_from = true},
    {"robbed_in_handler", BY_SIGNAL, .times = true, .stolen_from = true},
    {"batch_dies", BY_SIGNAL, .times = true, .mortal = 1 << BATCH},
    {"latency_dies", BY_SIGNAL, .times = true, .mortal = 1 << LATENCY},
    {"batch_stops", BY_SIGNAL, .times = true, .freezable = 1 << BATCH},
    {"latency_stops", BY_SIGNAL, .times = true, .freezable = 1 << LATENCY},
    {"anybody_dies", IN_PLACE, .times = true, .sleeps = true, .mortal = 1 << BATCH | 1 << LATENCY},
};

static uint8_t il_goals(unsigned part, uint8_t *exempt)
{
    if (part == LOOP)
        return (uint8_t) ~(core.moving << ENDED);
    if (part != IL_SHARED)
        return 0xff;
    uint32_t owner = shared.core.owner;
    bool runs_on = setting.outside ||
                   (setting.manner == DEAF && il.m.user[DEMOTED] & 2); /* it never waits for a core, and so gets none */
    bool served = shared.arena[0].line.rx_head == setting.frames, inside = il.m.user[INSIDE] & 2;
    /* One that was stopped while it ran, and is more important, looks as if it computed. */
    bool computes = il.m.frozen[LATENCY] && owner == 1 && shared.arena[0].line.park == CL_KTHREAD_RUNNING &&
                    shared.arena[0].line.signals.acted == shared.slot[0].grant;
    bool runs = (owner == 2 && inside) || runs_on || computes, reclaimed = !(owner && il.m.dead[owner]);
    bool latency = il_gone(LATENCY), batch_too = il_gone(BATCH);
    *exempt = (uint8_t)(latency << SERVED | batch_too << RUNS | (latency | batch_too) << ENDED);
    if (il.m.user[ENDLESS]) /* it asks for nothing, and goes first */
        served = runs = true;
    return (uint8_t)(served << SERVED | runs << RUNS | reclaimed << RECLAIMED | 1 << ENDED);
}

/* What wakes a loop that sleeps. */
static bool il_event(void)
{
    return il.m.user[DOORBELL] || il.m.user[SENT] < setting.frames || ended(0) || ended(1);
}

static void share_words(void)
{
    static const char *const names[2][8] = {{"grant of latency", "yield of latency", "look of latency",
                                             "park of latency", "acted of latency", "head", "help of latency",
                                             "lost of latency"},
                                            {"grant of batch", "yield of batch", "look of batch", "park of batch",
                                             "acted of batch", "", "help of batch", "lost of batch"}};
    il_share(&shared.core.owner, 4, LOOP, false, "owner");
    il_share(&shared.core.wake, 4, LOOP, false, "wake");
    il_share(&shared.core.wanted, 4, LOOP, true, "wanted");
    il_share(&shared.frames, 4, setting.outside ? BATCH : LOOP, false, "frames");
    if (setting.sleeps)
        il_share(&shared.loop.sleeping, 8, LOOP, false, "sleeping");
    for (unsigned i = 0; i < 2; i++) {
        struct cl_arena_kthread *line = &shared.arena[i].line;
        il_share(&shared.slot[i].grant, 4, LOOP, false, names[i][0]);
        il_share(&shared.slot[i].yield_wait, 4, LOOP, true, names[i][1]);
        il_share(&shared.arena[i].preempt.preempt, 8, LOOP, false, names[i][2]);
        il_share(&line->park, 4, (int)i + 1, false, names[i][3]);
        il_share(&line->signals.acted, 4, (int)i + 1, false, names[i][4]);
        if (i == 0)
            il_share(&line->rx_head, 4, LATENCY, false, names[i][5]);
        il_share(&line->help, 4, IL_NOBODY, true, names[i][6]);
        il_share(&line->signals.lost_tsc, 4, IL_NOBODY, true, names[i][7]);
    }
}

static void run(const struct scenario *s)
{
    ig.ends = s->times ? ig.ends : 0;
    ig.mortal = s->mortal;
    ig.freezable = s->freezable;
    setting.sleeps = s->sleeps;
    setting.timer = s->timer;
    setting.fickle = s->fickle;
    setting.endless = s->endless;
    setting.outside = s->outside;
    setting.stolen_from = s->stolen_from;
    setting.manner = s->manner;
    ip_choose_names();
    share_words();
    begin_applications();
    begin_iokernel();
    il_thread_new(LOOP, loop_main);
    il_thread_new(LATENCY, latency_main);
    il_thread_new(BATCH, batch_main);
    ig_explore();
    printf("%s: %u states, %llu steps of %u kinds in %u parts", s->name, ig.n_states, (unsigned long long)ig.n_edges,
           ig.n_moves, ip.n);
    for (unsigned g = 0; g < GOALS; g++)
        printf(", %u time-outs at most until %s", ir_check(g, goal_names[g]), goal_names[g]);
    printf("\n");
}

/* NAME=VALUE. */
static bool set(const char *text)
{
    static const struct {
        const char *name;
        unsigned *value;
    } numbers[] = {{"frames", &setting.frames}, {"depth", &il.depth}, {"deaths", &ig.kills},
                   {"ends", &ig.ends},          {"left", &ir_left},   {"states", &ig.most_states},
                   {"mutant", &il.mutant},      {"cuts", &ig.cuts}};
    const char *value = strchr(text, '=');
    size_t n = value ? (size_t)(value - text) : 0;
    if (value && strncmp(text, "without_fence_of", n) == 0) {
        il.no_fence = value + 1;
        return true;
    }
    for (unsigned i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (value && strlen(numbers[i].name) == n && strncmp(text, numbers[i].name, n) == 0) {
            *numbers[i].value = (unsigned)atoi(value + 1);
            return il.depth <= IL_DEPTH;
        }
    return false;
}

int main(int argc, char **argv)
{
    const struct scenario *s = NULL;
    ip_fix_addresses(argv);
    setting.frames = 1;
    il.depth = 1;
    ig.kills = 1;
    ig.cuts = IL_UNCOUNTED;
    ig.ends = 6;
    ir_left = 3;
    ig.most_states = 60000000;
    for (unsigned i = 0; argc > 1 && i < sizeof scenarios / sizeof *scenarios; i++)
        if (strcmp(argv[1], scenarios[i].name) == 0)
            s = &scenarios[i];
    for (int i = 2; i < argc; i++)
        if (!set(argv[i]))
            s = NULL;
    if (!s) {
        fprintf(stderr, "usage: handover_model SCENARIO [NAME=VALUE]...\n");
        return 1;
    }
    run(s);
    return 0;
}

/* Every interleaving of a few threads, up to a number of preemptions: a program that compiles a file of libos/sched
 * into itself, with its locks and its loads and stores of shared words as points at which another thread may go on.
 *
 * One thread runs at a time, so this explores orders of execution, not of memory. THREADS is defined before; the
 * program has thread_run, and calls explore. */
#ifndef TESTS_LIBOS_SCHED_EXPLORE_H
#define TESTS_LIBOS_SCHED_EXPLORE_H

#include <corelane/libos/spin.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#define MAX_POINTS 4000
#define STACK (64 << 10)

static void thread_run(unsigned me); /* the program's: what thread `me` does */

static unsigned scenario; /* the program's, for the message of a failure */
/* The explorer: `choice` is the thread to run at each point at which several can; replayed and then extended. */
static ucontext_t contexts[THREADS], explorer;
static char stacks[THREADS][STACK];
static bool finished[THREADS];
static unsigned running;
static bool exploring; /* false while the program sets up */
static unsigned char choice[MAX_POINTS], options[MAX_POINTS];
static unsigned depth, known, preemptions, limit;
static unsigned idle; /* times in a row that a thread could not go on */

static void fail(const char *what)
{
    fprintf(stderr, "scenario %u: %s, after the choices", scenario, what);
    for (unsigned i = 0; i < depth; i++)
        fprintf(stderr, " %u", choice[i]);
    fprintf(stderr, "\n");
    exit(1);
}

static void go_to(unsigned next)
{
    unsigned me = running;
    if (next == me)
        return;
    running = next;
    swapcontext(&contexts[me], &contexts[next]);
}

/* The running thread goes on (choice 0), or it is preempted by another one. */
static void point(void)
{
    unsigned others[THREADS], n = 0;
    idle = 0;
    for (unsigned i = 0; i < THREADS; i++)
        if (i != running && !finished[i])
            others[n++] = i;
    if (!exploring || !n || preemptions == limit)
        return;
    if (depth == MAX_POINTS)
        fail("no end");
    if (depth == known)
        choice[known++] = 0;
    else if (choice[depth] > n)
        fail("the run before does not repeat: what it does hangs on more than the choices");
    options[depth] = (unsigned char)(n + 1);
    unsigned c = choice[depth++];
    if (c == 0)
        return;
    preemptions++;
    go_to(others[c - 1]);
}

/* The running thread cannot go on: the next one in a circle does, which is no choice, or there were no end of them. */
static void wait_point(void)
{
    if (++idle == 1000)
        fail("all wait for ever");
    for (unsigned i = 1; i < THREADS; i++)
        if (!finished[(running + i) % THREADS]) {
            go_to((running + i) % THREADS);
            return;
        }
    if (!finished[running])
        fail("it waits for ever");
}

static void model_lock(struct cl_spin *l)
{
    point();
    while (l->word)
        wait_point();
    l->word = 1;
}

static void model_unlock(struct cl_spin *l)
{
    l->word = 0;
    point();
}

static void thread_main(int me)
{
    thread_run((unsigned)me);
    finished[me] = true;
    wait_point();
    swapcontext(&contexts[me], &explorer);
}

/* The next sequence of choices in depth-first order; false: that was the last. */
static bool advance(void)
{
    known = depth;
    while (known && choice[known - 1] + 1 >= options[known - 1])
        known--;
    if (!known)
        return false;
    choice[known - 1]++;
    return true;
}

/* Run all of them, each from what set_up makes. Returns how many. */
static unsigned long explore(void (*set_up)(void))
{
    static unsigned long runs; /* static: swapcontext returns twice, as setjmp does */
    runs = 0;
    known = 0;
    do {
        memset(finished, 0, sizeof finished);
        depth = preemptions = running = 0;
        exploring = false;
        set_up();
        exploring = true;
        for (int i = 0; i < THREADS; i++) {
            getcontext(&contexts[i]);
            contexts[i].uc_stack = (stack_t){.ss_sp = stacks[i], .ss_size = STACK};
            makecontext(&contexts[i], (void (*)(void))thread_main, 1, i);
        }
        swapcontext(&explorer, &contexts[0]);
        runs++;
    } while (advance());
    return runs;
}

#endif

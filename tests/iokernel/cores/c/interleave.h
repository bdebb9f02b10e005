/* Threads of real C code that take one step at a time, on a machine with store buffers (x86-TSO) and futexes.
 *
 * The code under test is compiled with its atomics, fences and system calls replaced by the il_* functions
 * (handover_words.h). Each thread has a stack of its own and runs until it is about to do what others can notice, or
 * could have changed: load a word that another thread writes, fence or call the kernel with stores under way, sleep, or
 * make a choice. There it pauses, and the explorer (interleave_graph.h) goes on with any thread.
 *
 * Stores to shared words go into a buffer of the thread's, from where they leave in order at any later time; a thread
 * sees its own first. With depth 0 there are no buffers, and a thread pauses before each store. What a thread does
 * between two pauses touches nothing that others see, so that no interleaving is left out. */
#ifndef CORELANE_TESTS_IOKERNEL_CORES_C_INTERLEAVE_H
#define CORELANE_TESTS_IOKERNEL_CORES_C_INTERLEAVE_H

#include "libos/sched/switch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define IL_THREADS 3
#define IL_WORDS 24
#define IL_DEPTH 2
#define IL_STACK (16 << 10)
#define IL_REGIONS 24
#define IL_NOBODY -1

/* What a thread waits for at a pause. */
enum il_need {
    IL_STEP,    /* nothing */
    IL_DRAINED, /* its store buffer is empty */
    IL_FENCE,   /* the same, and what it does then nobody else can tell from nothing: it goes on with the last store */
    IL_ROOM,    /* its store buffer is not full; likewise */
    IL_CHOICE, /* nothing, and any of `choices` comes back. It rests: is in the middle of nothing, as in the next two */
    IL_SLEEP,  /* somebody wakes its futex */
    IL_EVENT,  /* the caller of il_pause says so, by il_event */
};

/* How it goes on. The last three are not done by the thread. */
enum il_how { IL_RUN, IL_SIGNAL, IL_TIMEOUT, IL_DRAIN, IL_KILL, IL_FREEZE };

#define IL_AGAIN 0xffu /* a sleep ended by a signal */

/* A word that several threads use. `plain`: it may be seen at any time, and no thread pauses for it. */
struct il_word {
    void *at;
    const char *name;
    uint8_t bytes;
    int8_t writer; /* the one thread that stores to it, which need not pause to load it */
    bool plain;
};

struct il_thread {
    struct cl_context context;
    uint8_t need, choices,
        timed; /* timed: bit c: choice c is the end of a time. Of a sleep: it may end by time, 1: which counts */
    bool in_handler;
};

struct il_region {
    void *at;
    uint32_t bytes;
};

/* What all threads share beside the words. */
struct il_machine {
    struct {
        uint64_t value[IL_DEPTH];
        uint8_t word[IL_DEPTH], n;
    } buffer[IL_THREADS];
    uint8_t dead[IL_THREADS], frozen[IL_THREADS];
    uint8_t asleep[IL_THREADS]; /* word slept on, from 1; 0: none */
    uint8_t signal[IL_THREADS]; /* one is to be delivered */
    uint8_t burst;              /* bit t: t goes on without a pause until it sleeps or makes a choice */
    uint8_t user[6];            /* the model's own */
};

static struct {
    struct il_word words[IL_WORDS];
    struct il_region regions[IL_THREADS][IL_REGIONS]; /* private memory that counts */
    unsigned n_words, n_regions[IL_THREADS], depth;
    struct il_thread thread[IL_THREADS];
    struct cl_context explorer;
    int running; /* IL_NOBODY: the explorer */
    enum il_how how;
    unsigned choice;
    const char *failed;
    bool tracing;
    unsigned mutant;
    const char *no_fence; /* the function whose fence is left out */

    struct il_machine m;
} il = {.running = IL_NOBODY};

static char il_stacks[IL_THREADS][IL_STACK] CL_ALIGNED(64);
static const char *const il_names[IL_THREADS];

/* The model's: a signal arrived; a thread stores to a word. */
static void il_on_signal(unsigned thread);
static void il_on_store(unsigned thread, const void *at, uint64_t value);

static void il_say(const char *what, const char *name, uint64_t value)
{
    if (il.tracing && il.running >= 0)
        printf("    %s: %s %s %llx\n", il_names[il.running], what, name, (unsigned long long)value);
}

static void il_share(void *at, unsigned bytes, int writer, bool plain, const char *name)
{
    if (il.n_words == IL_WORDS)
        abort();
    il.words[il.n_words++] = (struct il_word){at, name, (uint8_t)bytes, (int8_t)writer, plain};
}

static void il_own(unsigned thread, void *at, size_t bytes)
{
    if (il.n_regions[thread] == IL_REGIONS)
        abort();
    il.regions[thread][il.n_regions[thread]++] = (struct il_region){at, (uint32_t)bytes};
}

static int il_find(const void *at)
{
    for (unsigned w = 0; w < il.n_words; w++)
        if (il.words[w].at == at)
            return (int)w;
    return -1;
}

static uint64_t il_read(const void *at, unsigned bytes)
{
    uint64_t value = 0;
    memcpy(&value, at, bytes);
    return value;
}

static void il_drain(unsigned t);

/* The registers have what the explorer left in them, which calls would spread over the stack. All count as overwritten
 * by the switch. */
static inline __attribute__((always_inline)) void il_clear_registers(void)
{
#if defined(__x86_64__)
    __asm__ volatile("xorl %%eax, %%eax\n\txorl %%ecx, %%ecx\n\txorl %%edx, %%edx\n\txorl %%ebx, %%ebx\n\t"
                     "xorl %%esi, %%esi\n\txorl %%edi, %%edi\n\txorl %%r8d, %%r8d\n\txorl %%r9d, %%r9d\n\t"
                     "xorl %%r10d, %%r10d\n\txorl %%r11d, %%r11d\n\txorl %%r12d, %%r12d\n\t"
                     "xorl %%r13d, %%r13d\n\txorl %%r14d, %%r14d\n\txorl %%r15d, %%r15d"
                     :
                     :
                     : "rax", "rcx", "rdx", "rbx", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15",
                       "cc");
#endif
}

/* Stop here until the explorer goes on with this thread. Returns the choice, or IL_AGAIN. */
static CL_NOINLINE unsigned il_pause(enum il_need need, unsigned choices, unsigned timed)
{
    for (;;) {
        unsigned me = (unsigned)il.running;
        if (il.m.burst >> me & 1 && need < IL_CHOICE) {
            while (need != IL_STEP && il.m.buffer[me].n)
                il_drain(me);
            return 0;
        }
        unsigned stores = il.m.buffer[me].n; /* they leave while a handler runs, too */
        if ((need == IL_FENCE && stores == 0) || (need == IL_ROOM && stores < il.depth))
            return 0;
        il.thread[me].need = (uint8_t)need;
        il.thread[me].choices = (uint8_t)choices;
        il.thread[me].timed = (uint8_t)timed;
        cl_context_switch(&il.thread[me].context, &il.explorer);
        il_clear_registers();
        if (il.how == IL_RUN)
            return il.choice;
        if (il.how == IL_TIMEOUT)
            return 1;
        me = (unsigned)il.running;
        il.thread[me].in_handler = true;
        il_say("takes", "signal", 0);
        il_on_signal(me);
        il.thread[me].in_handler = false;
        if (need == IL_SLEEP)
            return IL_AGAIN;
    }
}

static CL_NOINLINE void il_fail(const char *what)
{
    il.failed = what;
    for (;;)
        il_pause(IL_STEP, 1, 0);
}

/* Clear the stack below, where calls have left what would tell states apart that are the same. */
static CL_NOINLINE void il_wipe(void)
{
    char below[768];
    memset(below, 0, sizeof below);
    __asm__ volatile("" : : "r"(below) : "memory");
}

static unsigned il_choose(unsigned n, unsigned timed)
{
    il_wipe();
    return il_pause(IL_CHOICE, n, timed);
}

/* What the running thread sees, without a pause. */
static uint64_t il_peek(const void *at, unsigned bytes)
{
    int w = il_find(at);
    if (w >= 0 && il.running >= 0)
        for (unsigned i = il.m.buffer[il.running].n; i-- > 0;)
            if (il.m.buffer[il.running].word[i] == w)
                return il.m.buffer[il.running].value[i];
    return il_read(at, bytes);
}

static uint64_t il_load(const void *at, unsigned bytes)
{
    int w = il.running < 0 ? -1 : il_find(at);
    il_wipe();
    if (w < 0)
        return il_read(at, bytes);
    if (!il.words[w].plain && il.words[w].writer != il.running)
        il_pause(IL_STEP, 1, 0);
    uint64_t value = il_peek(at, bytes);
    if (!il.words[w].plain)
        il_say("sees", il.words[w].name, value);
    return value;
}

static void il_store(void *at, unsigned bytes, uint64_t value)
{
    int w = il.running < 0 ? -1 : il_find(at);
    il_wipe();
    if (w >= 0)
        il_on_store((unsigned)il.running, at, value);
    if (w < 0 || il.words[w].plain) {
        memcpy(at, &value, bytes);
        return;
    }
    if (il.depth == 0) {
        il_pause(IL_STEP, 1, 0);
        memcpy(at, &value, bytes);
    } else {
        if (il.m.buffer[il.running].n >= il.depth)
            il_pause(IL_ROOM, 1, 0);
        unsigned n = il.m.buffer[il.running].n++;
        il.m.buffer[il.running].word[n] = (uint8_t)w;
        il.m.buffer[il.running].value[n] = value & (~0ull >> (64 - 8 * bytes));
    }
    il_say("stores", il.words[w].name, value);
}

/* The oldest store of t's buffer reaches memory. */
static void il_drain(unsigned t)
{
    const struct il_word *w = &il.words[il.m.buffer[t].word[0]];
    if (il.tracing)
        printf("    %s's store of %s %llx is seen\n", il_names[t], w->name,
               (unsigned long long)il.m.buffer[t].value[0]);
    memcpy(w->at, &il.m.buffer[t].value[0], w->bytes);
    for (unsigned i = 1; i < IL_DEPTH; i++) {
        il.m.buffer[t].word[i - 1] = il.m.buffer[t].word[i];
        il.m.buffer[t].value[i - 1] = il.m.buffer[t].value[i];
    }
    il.m.buffer[t].word[IL_DEPTH - 1] = 0;
    il.m.buffer[t].value[IL_DEPTH - 1] = 0;
    il.m.buffer[t].n--;
}

static void il_fence(const char *function)
{
    il_wipe();
    if (il.running < 0 || (il.no_fence && strcmp(function, il.no_fence) == 0))
        return;
    if (il.m.buffer[il.running].n)
        il_pause(IL_FENCE, 1, 0);
}

/* A system call, or what is as ordered. */
static void il_call(void)
{
    il_wipe();
    if (il.running >= 0)
        il_pause(IL_DRAINED, 1, 0);
}

/* 0, EAGAIN or ETIMEDOUT. A signal whose handler has returned restarts the call (SA_RESTART). */
static int il_futex_wait(const uint32_t *at, uint32_t value, bool timed)
{
    for (;;) {
        il_call();
        unsigned me = (unsigned)il.running;
        if (il_read(at, 4) != value)
            return EAGAIN;
        il.m.asleep[me] = (uint8_t)(il_find(at) + 1);
        il_say("sleeps on", il.words[il_find(at)].name, value);
        unsigned how = il_pause(IL_SLEEP, 1, timed ? 2 : 0);
        if (how != IL_AGAIN)
            return how ? ETIMEDOUT : 0;
        il.m.asleep[il.running] = 0;
    }
}

/* How many. */
static int il_futex_wake(const uint32_t *at)
{
    int woken = 0;
    il_call();
    int w = il_find(at);
    il_say("wakes", il.words[w].name, il_read(at, 4));
    for (unsigned t = 0; t < IL_THREADS; t++)
        if (il.m.asleep[t] == w + 1) {
            il.m.asleep[t] = 0;
            woken++;
        }
    return woken;
}

#endif

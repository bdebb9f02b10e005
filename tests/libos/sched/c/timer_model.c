/* Every interleaving, up to a number of preemptions, of the code of libos/sched/timer.c on two kthreads that run timers, of
 * their own and each other's, and a thread that cancels. After cancel the timer is in no heap, no callback of it is running,
 * and none begins: what the caller needs to free it. Usage: timer_model PREEMPTIONS
 *
 * timer.c is compiled into this program, with its locks and its loads and stores of shared words as points at which another
 * thread may go on. One thread runs at a time, so this explores orders of execution, not of memory. */
#include "libos/sched/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

#define THREADS 3 /* kthreads 0 and 1, and the canceller */
#define MAX_POINTS 4000
#define STACK (64 << 10)

static void point(void);
static void wait_point(void);
static void model_lock(struct cl_spin *l);
static void model_unlock(struct cl_spin *l);
static struct cl_kthread *model_self(void);
void model_ready(struct cl_uthread *t);
int model_block(struct cl_kthread *k, enum cl_after_op op, void *p);

/* clang-format off */
#define cl_spin_lock model_lock
#define cl_spin_unlock model_unlock
#define cl_kthread_self model_self
#define cl_relax wait_point
#define sched_yield() wait_point()
#undef cl_load_acquire
#define cl_load_acquire(p) (point(), __atomic_load_n(p, __ATOMIC_ACQUIRE))
#undef cl_store_release
#define cl_store_release(p, v) (__atomic_store_n(p, v, __ATOMIC_RELEASE), point())
#define cl_timer_init model_timer_init
#define cl_timer_arm model_timer_arm
#define cl_timer_arm_locked model_timer_arm_locked
#define cl_timer_cancel model_timer_cancel
#define cl_timers_new model_timers_new
#define cl_timers_delete model_timers_delete
#define cl_timers_export model_timers_export
#define cl_timers_run model_timers_run
#define cl_timers_resend model_timers_resend
#define cl_timers_end_sleeps model_end_sleeps
#define cl_uthread_sleep_ns model_sleep_ns
#define cl_uthread_sleep_until_ns model_sleep_until_ns
#define cl_block model_block
#define cl_uthread_ready model_ready
#include "libos/sched/timer.c"
/* clang-format on */

int model_block(struct cl_kthread *k, enum cl_after_op op, void *p)
{
    (void)k, (void)op, (void)p;
    abort(); /* nobody sleeps here */
}

void model_ready(struct cl_uthread *t)
{
    (void)t;
    abort();
}

static struct cl_sched sched;
static struct cl_kthread kthreads[2];
static struct cl_timer timer;
static unsigned again; /* times that the callback is still to arm the timer */
static int inside;     /* callbacks that are running */
static unsigned fired; /* callbacks that began */
static bool freed;     /* cancel has returned */
static unsigned scenario;

/* The explorer: `choice` is the thread to run at each point at which several can; replayed and then extended. */
static ucontext_t contexts[THREADS], explorer;
static char stacks[THREADS][STACK];
static bool finished[THREADS];
static unsigned running;
static unsigned char choice[MAX_POINTS], options[MAX_POINTS];
static unsigned depth, known, preemptions, limit;

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
    for (unsigned i = 0; i < THREADS; i++)
        if (i != running && !finished[i])
            others[n++] = i;
    if (!n || preemptions == limit)
        return;
    if (depth == MAX_POINTS)
        fail("no end");
    if (depth == known)
        choice[known++] = 0;
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

static struct cl_kthread *model_self(void)
{
    return running < 2 ? &kthreads[running] : NULL;
}

static void on_fire(struct cl_timer *t, void *arg)
{
    (void)arg;
    if (freed)
        fail("a callback began after cancel had returned");
    fired++;
    inside++;
    point();
    if (again) {
        again--;
        if (cl_timer_arm(t, 0))
            fail("cannot arm");
        point();
    }
    if (freed)
        fail("cancel returned during a callback");
    inside--;
}

static void run_kthread(unsigned me)
{
    for (unsigned i = 0; i < 3; i++) {
        cl_timers_run(&kthreads[me], &kthreads[me], 1);
        cl_timers_run(&kthreads[me], &kthreads[1 - me], 1);
    }
}

static void run_canceller(void)
{
    int rc = cl_timer_cancel(&timer);
    if (inside)
        fail("a callback runs after cancel has returned");
    if (timer.pos || kthreads[0].timers.n || kthreads[1].timers.n)
        fail("the timer is armed after cancel has returned");
    if (fired + (unsigned)rc + again != 1 + scenario)
        fail("fired, cancelled and not armed again do not add up");
    freed = true;
}

static void thread_main(int me)
{
    if (me < 2)
        run_kthread((unsigned)me);
    else
        run_canceller();
    finished[me] = true;
    wait_point();
    swapcontext(&contexts[me], &explorer);
}

static void run_once(void)
{
    static struct cl_timer_slot heaps[2][4];
    memset(kthreads, 0, sizeof kthreads);
    for (unsigned k = 0; k < 2; k++) {
        kthreads[k].sched = &sched;
        kthreads[k].index = k;
        kthreads[k].timers.heap = heaps[k];
        kthreads[k].timers.next_ns = CL_NEVER;
    }
    sched.kthreads = kthreads;
    memset(finished, 0, sizeof finished);
    depth = preemptions = fired = 0;
    inside = 0;
    freed = false;
    again = scenario;
    limit = 0; /* arming is not explored */
    running = 0;
    cl_timer_init(&timer, on_fire, NULL);
    if (cl_timer_arm(&timer, 0))
        fail("cannot arm");
    for (int i = 0; i < THREADS; i++) {
        getcontext(&contexts[i]);
        contexts[i].uc_stack = (stack_t){.ss_sp = stacks[i], .ss_size = STACK};
        makecontext(&contexts[i], (void (*)(void))thread_main, 1, i);
    }
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

int main(int argc, char **argv)
{
    unsigned bound = argc > 1 ? (unsigned)atoi(argv[1]) : 2;
    for (scenario = 0; scenario <= 2; scenario++) {
        unsigned long runs = 0;
        known = 0;
        do {
            run_once();
            limit = bound;
            swapcontext(&explorer, &contexts[0]);
            runs++;
        } while (advance());
        printf("armed again %u times: %lu interleavings\n", scenario, runs);
    }
    return 0;
}

/* Every interleaving, up to a number of preemptions, of the code of libos/sched/timer.c on two kthreads that run
 * timers, of their own and each other's, and a thread that cancels. After cancel the timer is in no heap, no callback
 * of it is running, and none begins: what the caller needs to free it. Usage: timer_model PREEMPTIONS
 *
 * timer.c is compiled into this program: see explore.h. */
#include "libos/sched/internal.h"

#define THREADS 3 /* kthreads 0 and 1, and the canceller */
#include "explore.h"

static struct cl_kthread *model_self(void);
void model_ready(struct cl_uthread *t);
int model_block(struct cl_kthread *k, enum cl_after_op op, void *p);
int model_sleep(struct cl_kthread *k, uint64_t deadline_ns);
void model_sleep_over(struct cl_timer *timer, void *arg);

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
#define cl_wait_sleep model_sleep
#define cl_wait_sleep_over model_sleep_over
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

int model_sleep(struct cl_kthread *k, uint64_t deadline_ns)
{
    (void)k, (void)deadline_ns;
    abort();
}

void model_sleep_over(struct cl_timer *timer, void *arg)
{
    (void)timer, (void)arg;
    abort();
}

static struct cl_sched sched;
static struct cl_kthread kthreads[2];
static struct cl_timer timer;
static unsigned again; /* times that the callback is still to arm the timer */
static int inside;     /* callbacks that are running */
static unsigned fired; /* callbacks that began */
static bool freed;     /* cancel has returned */

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

static void thread_run(unsigned me)
{
    if (me < 2)
        run_kthread(me);
    else
        run_canceller();
}

static void set_up(void)
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
    fired = 0;
    inside = 0;
    freed = false;
    again = scenario;
    cl_timer_init(&timer, on_fire, NULL);
    if (cl_timer_arm(&timer, 0))
        fail("cannot arm");
}

int main(int argc, char **argv)
{
    limit = argc > 1 ? (unsigned)atoi(argv[1]) : 2;
    for (scenario = 0; scenario <= 2; scenario++)
        printf("armed again %u times: %lu interleavings\n", scenario, explore(set_up));
    return 0;
}

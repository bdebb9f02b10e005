/* Adopted kthreads: what each call answers where it may not be made; turns, the descriptor, timers, signals; who stops
 * when.
 * Usage: adopt KTHREADS MODE */
#include "adopted.h"

#include <signal.h>

static struct cl_sched_config config;
static unsigned ran;

static struct cl_sched *started(uint32_t adopted)
{
    config.adopted = adopted;
    return sched_started(&config);
}

static void count(void *arg)
{
    (void)arg;
    __atomic_fetch_add(&ran, 1, __ATOMIC_RELEASE);
}

static unsigned turns_until_asleep(struct cl_sched *s, unsigned k)
{
    unsigned n = 0;
    int rc;
    while ((rc = cl_kthread_turn(s, k)) == 1)
        n++;
    CHECK_EQ(rc, 0);
    return n;
}

/* Whatever is not the loop itself. */
static void turn_inside(void *arg)
{
    struct cl_sched *s = arg;
    char err[256];
    CHECK_EQ(cl_kthread_turn(s, 0), -EDEADLK);
    CHECK_EQ(cl_kthread_let_go(s, 0), -EDEADLK);
    CHECK_EQ(cl_kthread_adopt(s, 0, err), -EDEADLK);
    CHECK_EQ(cl_sched_stop(s, 0), -EDEADLK);
    count(NULL);
}

static void *wrong_thread(void *arg)
{
    struct cl_sched *s = arg;
    char err[256];
    CHECK_EQ(cl_kthread_turn(s, 0), -EPERM);
    CHECK_EQ(cl_kthread_let_go(s, 0), -EPERM);
    CHECK_EQ(cl_kthread_adopt(s, 0, err), -EBUSY);
    CHECK(strstr(err, "another thread has adopted"));
    return NULL;
}

static void in_another_thread(void *(*fn)(void *arg), void *arg)
{
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, fn, arg), 0);
    pthread_join(thread, NULL);
}

static void in_child(struct cl_sched *s)
{
    char err[256];
    pid_t child = fork();
    if (child == 0) {
        _exit(cl_kthread_turn(s, 0) == -ECHILD && cl_kthread_let_go(s, 0) == -ECHILD &&
                      cl_kthread_adopt(s, 0, err) == -ECHILD
                  ? 0
                  : 1);
    }
    int status;
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK_EQ(status, 0);
}

static void contract(void)
{
    char err[256];
    config.adopted = config.n_kthreads + 1;
    struct cl_sched *s;
    CHECK_EQ(cl_sched_new(&config, &s, err), -EINVAL);
    config.adopted = 1;
    s = sched_new(&config);
    CHECK_EQ(cl_kthread_adopt(s, 0, err), -ESHUTDOWN);
    CHECK_EQ(cl_sched_start(s, err), 0);
    CHECK_EQ(cl_kthread_adopt(s, 64, err), -EINVAL);
    CHECK_EQ(cl_kthread_fd(s, 64), -EINVAL);
    if (config.n_kthreads > 1) {
        CHECK_EQ(cl_kthread_adopt(s, 1, err), -EINVAL);
        CHECK_EQ(cl_kthread_turn(s, 1), -EINVAL);
        CHECK_EQ(cl_kthread_fd(s, 1), -EINVAL);
    }
    CHECK_EQ(cl_kthread_turn(s, 0), -EPERM);
    CHECK(readable(s, 0, 0)); /* whoever waits for it comes and turns it */
    adopt(s, 0);
    CHECK_EQ(cl_kthread_adopt(s, 0, err), -EALREADY);
    CHECK_EQ(cl_kthread_index(), -1); /* outside of a turn it is a thread like any other */
    CHECK_EQ(cl_sched_run(s, count, NULL), -EDEADLK);
    in_another_thread(wrong_thread, s);
    in_child(s);
    CHECK_EQ(cl_sched_spawn(s, turn_inside, s), 0);
    while (__atomic_load_n(&ran, __ATOMIC_ACQUIRE) == 0)
        CHECK(cl_kthread_turn(s, 0) >= 0); /* unless a sibling runs it: that may not turn kthread 0 either */
    CHECK_EQ(cl_kthread_let_go(s, 0), 0);
    CHECK_EQ(cl_kthread_turn(s, 0), -EPERM);
    CHECK_EQ(cl_sched_stop(s, 1000000000), 0);
    CHECK_EQ(cl_kthread_turn(s, 0), -ESHUTDOWN);
    CHECK_EQ(cl_kthread_adopt(s, 0, err), -ESHUTDOWN);
    cl_sched_delete(s);
    static const int errors[] = {EPERM, EDEADLK, ECHILD, ESHUTDOWN, EBUSY, EALREADY, EINVAL, ENOMEM};
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        for (size_t j = 0; j < i; j++)
            CHECK(strcmp(cl_adopt_error(-errors[i]), cl_adopt_error(-errors[j])));
}

static uint64_t fired_at;

static void on_timer(struct cl_timer *timer, void *arg)
{
    (void)timer;
    fired_at = cl_sched_now_ns(arg);
}

static void arm(void *arg)
{
    static struct cl_timer timer;
    cl_timer_init(&timer, on_timer, arg);
    CHECK_EQ(cl_timer_arm(&timer, cl_sched_now_ns(arg) + 3000000), 0);
}

/* Asleep it is not readable, by a spawn and by a timer it is, and nothing stays readable. */
static void descriptor(void)
{
    struct cl_sched *s = started(1);
    adopt(s, 0);
    turns_until_asleep(s, 0);
    CHECK(!readable(s, 0, 0));
    CHECK_EQ(turns_until_asleep(s, 0), 0); /* still asleep */
    CHECK(!readable(s, 0, 0));
    ran = 0;
    CHECK_EQ(cl_sched_spawn(s, count, NULL), 0);
    CHECK(readable(s, 0, -1));
    CHECK(turns_until_asleep(s, 0) > 0);
    CHECK_EQ(ran, 1);
    CHECK(!readable(s, 0, 0));
    uint64_t armed_at = cl_sched_now_ns(s);
    CHECK_EQ(cl_sched_spawn(s, arm, s), 0);
    while (!fired_at) {
        turns_until_asleep(s, 0);
        if (!fired_at)
            CHECK(readable(s, 0, -1));
    }
    CHECK(fired_at - armed_at >= 3000000);
    turns_until_asleep(s, 0);
    CHECK(!readable(s, 0, 0));
    sched_stop_clean(s); /* by the adopter itself, which runs what is left */
}

static void *adopt_and_end(void *arg)
{
    adopt(arg, 0);
    turns_until_asleep(arg, 0);
    return NULL;
}

static void *adopt_busy_and_end(void *arg)
{
    adopt(arg, 0);
    CHECK_EQ(cl_sched_spawn(arg, count, NULL), 0);
    CHECK_EQ(cl_kthread_turn(arg, 0), 1);
    return NULL;
}

/* The thread that adopted it ends, asleep or not: another adopts it, or it is stopped as it is. */
static void adopter_ends(bool asleep, bool again)
{
    struct cl_sched *s = started(1);
    ran = 0;
    in_another_thread(asleep ? adopt_and_end : adopt_busy_and_end, s);
    CHECK_EQ(cl_sched_spawn(s, count, NULL), 0);
    CHECK(readable(s, 0, -1)); /* whoever sees it may adopt it */
    if (again) {
        adopt(s, 0);
        turns_until_asleep(s, 0);
        CHECK_EQ(ran, asleep ? 1 : 2);
    }
    sched_stop_clean(s);
    CHECK_EQ(ran, asleep ? 1 : 2);
}

/* Stopped by another thread while it sleeps in epoll: what is left runs, and the loop learns of it. */
static void stopped_while_asleep(void)
{
    struct cl_sched *s = started(1);
    struct driver d = {.sched = s, .n = 1};
    ran = 0;
    CHECK_EQ(pthread_create(&d.thread, NULL, drive, &d), 0);
    CHECK_EQ(cl_sched_spawn(s, count, NULL), 0);
    while (!__atomic_load_n(&ran, __ATOMIC_ACQUIRE))
        usleep(100);
    CHECK_EQ(cl_sched_spawn(s, count, NULL), 0);
    CHECK_EQ(cl_sched_stop(s, -1), 0);
    CHECK_EQ(ran, 2);
    pthread_join(d.thread, NULL);
    cl_sched_delete(s);
}

static uint32_t enough;

static void yield_on(void *arg)
{
    while (!cl_load_relaxed(&enough))
        cl_uthread_yield();
    count(arg);
}

/* A turn ends though there is always something to do. */
static void always_more(void)
{
    struct cl_sched *s = started(1);
    adopt(s, 0);
    ran = 0;
    for (unsigned i = 0; i < 2; i++)
        CHECK_EQ(cl_sched_spawn(s, yield_on, NULL), 0);
    for (unsigned i = 0; i < 100; i++)
        CHECK_EQ(cl_kthread_turn(s, 0), 1);
    CHECK_EQ(ran, 0);
    cl_store_relaxed(&enough, 1);
    turns_until_asleep(s, 0);
    CHECK_EQ(ran, 2);
    sched_stop_clean(s);
}

static uint8_t signal_stack[64 << 10];
static uintptr_t handled_at[2]; /* by a handler that asks for the stack; by one that does not */

static void note_where(int signal)
{
    handled_at[signal == SIGUSR2] = (uintptr_t)__builtin_frame_address(0);
}

static bool on_signal_stack(uintptr_t at)
{
    return at - (uintptr_t)signal_stack < sizeof signal_stack;
}

static void raise_both(void *arg)
{
    sigset_t mask;
    CHECK_EQ(pthread_sigmask(SIG_SETMASK, NULL, &mask), 0);
    CHECK(sigismember(&mask, SIGWINCH) && !sigismember(&mask, SIGUSR1));
    raise(SIGUSR1);
    raise(SIGUSR2);
    count(arg);
}

/* The thread's own signals, in the middle of a turn and after it: its mask and its signal stack are as it has them. */
static void own_signals(void)
{
    stack_t stack = {.ss_sp = signal_stack, .ss_size = sizeof signal_stack}, before, now;
    struct sigaction asks = {.sa_handler = note_where, .sa_flags = SA_ONSTACK}, plain = {.sa_handler = note_where};
    sigset_t winch, mask;
    sigemptyset(&winch);
    sigaddset(&winch, SIGWINCH);
    CHECK_EQ(sigaltstack(&stack, &before), 0);
    CHECK_EQ(pthread_sigmask(SIG_BLOCK, &winch, &mask), 0);
    CHECK_EQ(sigaction(SIGUSR1, &asks, NULL), 0);
    CHECK_EQ(sigaction(SIGUSR2, &plain, NULL), 0);
    struct cl_sched *s = started(1);
    adopt(s, 0);
    ran = 0;
    CHECK_EQ(cl_sched_spawn(s, raise_both, NULL), 0);
    turns_until_asleep(s, 0);
    CHECK_EQ(ran, 1);
    CHECK(on_signal_stack(handled_at[0]));
    CHECK(handled_at[1] && !on_signal_stack(handled_at[1]));
    sched_stop_clean(s);
    CHECK_EQ(sigaltstack(&before, &now), 0);
    CHECK(now.ss_sp == signal_stack);
    CHECK_EQ(pthread_sigmask(SIG_SETMASK, &mask, &winch), 0);
    CHECK(sigismember(&winch, SIGWINCH) && !sigismember(&winch, SIGUSR1));
}

static void never_adopted(void)
{
    struct cl_sched *s = started(1);
    ran = 0;
    CHECK_EQ(cl_sched_spawn(s, count, NULL), 0);
    sched_stop_clean(s);
    CHECK_EQ(ran, 1);
}

/* Two of one thread, of which one ends. */
static void two_schedulers(void)
{
    struct cl_sched *a = started(1), *b = started(1);
    adopt(a, 0);
    adopt(b, 0);
    ran = 0;
    CHECK_EQ(cl_sched_spawn(a, count, NULL), 0);
    CHECK_EQ(cl_sched_spawn(b, count, NULL), 0);
    turns_until_asleep(a, 0);
    turns_until_asleep(b, 0);
    CHECK_EQ(ran, 2);
    sched_stop_clean(a);
    CHECK_EQ(cl_sched_spawn(b, count, NULL), 0);
    CHECK(readable(b, 0, -1));
    turns_until_asleep(b, 0);
    CHECK_EQ(ran, 3);
    sched_stop_clean(b);
}

static unsigned polls;

static unsigned nothing_polled(void *arg, unsigned self, unsigned queue)
{
    (void)arg, (void)self, (void)queue;
    polls++;
    return 0;
}

static unsigned nothing_pending(void *arg, unsigned queue)
{
    (void)arg, (void)queue;
    return 0;
}

static bool nothing_ready(void *arg, unsigned queue)
{
    (void)arg, (void)queue;
    return false;
}

static void nothing_run(void *arg, unsigned self)
{
    (void)arg, (void)self;
}

/* One that polls looks twice in a turn for nothing; one that sleeps looks once. */
static void looks_of_a_turn(void)
{
    struct cl_work_source source = {
        .poll = nothing_polled, .ready = nothing_ready, .pending = nothing_pending, .run = nothing_run};
    struct cl_sched_config given = config;
    config.source = &source;
    config.n_kthreads = 1; /* siblings poll its queue, too */
    struct cl_sched *s = started(1);
    adopt(s, 0);
    polls = 0;
    CHECK_EQ(cl_kthread_turn(s, 0), config.poll == CL_SCHED_SPIN);
    CHECK_EQ(polls, config.poll == CL_SCHED_SPIN ? 2 : 1);
    sched_stop_clean(s);
    config = given;
}

int main(int argc, char **argv)
{
    config = config_from(argc, argv);
    contract();
    if (config.poll != CL_SCHED_ADAPTIVE)
        looks_of_a_turn();
    if (config.n_kthreads == 1 &&
        config.poll != CL_SCHED_SPIN) { /* siblings would take some of it; spin never sleeps */
        descriptor();
        two_schedulers();
        always_more();
        own_signals();
        for (int i = 0; i < 4; i++)
            adopter_ends(i & 1, i & 2);
    }
    never_adopted();
    stopped_while_asleep();
    return 0;
}

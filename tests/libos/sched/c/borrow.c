/* Kthreads that nobody adopts, which threads borrow: what each call answers where it may not be made; no two are inside
 * of one at a time, whoever adopts it between; what a call leaves undone is done by turns, and a timer that it arms
 * while the kthread sleeps rings; when a NIC's frames are told of.
 * Usage: borrow KTHREADS MODE */
#include "adopted.h"

#include <sched.h>
#include <sys/eventfd.h>

#define THREADS 3
#define CALLS 2000
#define ADOPTIONS 200
#define BUSY_TURNS 100 /* more than wakefd.c waits for */

static struct cl_sched_config config;
static uint32_t inside[CL_SCHED_MAX_KTHREADS]; /* RMW */
static uint64_t calls, ran;                    /* RMW */

static void count(void *arg)
{
    (void)arg;
    __atomic_fetch_add(&ran, 1, __ATOMIC_RELEASE);
}

static void spawn_inside(void *arg)
{
    int k = cl_kthread_index();
    CHECK(cl_sched_self() == arg && k >= 0);
    CHECK_EQ(__atomic_fetch_add(&inside[k], 1, __ATOMIC_ACQ_REL), 0);
    CHECK_EQ(cl_kthread_borrow_turn(arg, (unsigned)k), -EDEADLK);
    CHECK_EQ(cl_uthread_yield(), -EDEADLK); /* no uthread, and so nothing that could block */
    CHECK_EQ(cl_uthread_spawn(count, NULL, NULL), 0);
    __atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED);
    CHECK_EQ(__atomic_fetch_sub(&inside[k], 1, __ATOMIC_ACQ_REL), 1);
}

static void settle(struct cl_sched *s, unsigned k)
{
    int rc;
    while ((rc = cl_kthread_borrow_turn(s, k)))
        if (rc < 0) {
            CHECK_EQ(rc, -EBUSY);
            sched_yield();
        }
}

static void *borrow(void *arg)
{
    struct cl_sched *s = arg;
    for (unsigned i = 0; i < CALLS; i++) {
        unsigned k = i % config.n_kthreads;
        int rc;
        while ((rc = cl_kthread_borrow(s, k, spawn_inside, s)) == -EBUSY)
            sched_yield();
        CHECK_EQ(rc, 0);
        if (i % 3 == 0)
            settle(s, k);
    }
    return NULL;
}

/* Beside those who borrow: whoever has adopted one turns it, or is told to turn it again. */
static void *adopt_between(void *arg)
{
    char err[256];
    for (unsigned i = 0; i < ADOPTIONS; i++) {
        unsigned k = i % config.n_kthreads;
        int rc;
        while ((rc = cl_kthread_adopt(arg, k, err)) == -EBUSY)
            sched_yield();
        CHECK_EQ(rc, 0);
        for (unsigned turns = 0; turns < 4; turns++)
            CHECK(cl_kthread_turn(arg, k) >= 0);
        CHECK_EQ(cl_kthread_let_go(arg, k), 0);
    }
    return NULL;
}

static void many(struct cl_sched *s)
{
    pthread_t threads[THREADS + 1];
    for (int i = 0; i <= THREADS; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, i < THREADS ? borrow : adopt_between, s), 0);
    for (int i = 0; i <= THREADS; i++)
        pthread_join(threads[i], NULL);
    while (__atomic_load_n(&ran, __ATOMIC_ACQUIRE) < THREADS * CALLS)
        for (unsigned k = 0; k < config.n_kthreads; k++)
            settle(s, k);
    CHECK_EQ(calls, THREADS * CALLS);
}

static uint64_t fired;

static void on_timer(struct cl_timer *timer, void *arg)
{
    (void)timer, (void)arg;
    fired++;
}

static void arm(void *arg)
{
    static struct cl_timer timer;
    cl_timer_init(&timer, on_timer, arg);
    CHECK_EQ(cl_timer_arm(&timer, cl_sched_now_ns(arg) + 2000000), 0);
}

static void timers(struct cl_sched *s)
{
    settle(s, 0);
    CHECK(!readable(s, 0, 0));
    CHECK_EQ(cl_kthread_borrow(s, 0, arm, s), 0); /* it slept */
    while (!fired) {
        settle(s, 0);
        if (!fired)
            CHECK(readable(s, 0, -1));
    }
    CHECK_EQ(fired, 1);
}

static void *wrong(void *arg)
{
    CHECK_EQ(cl_kthread_borrow_turn(arg, 0), -EBUSY);
    CHECK_EQ(cl_kthread_borrow(arg, 0, count, NULL), -EBUSY);
    return NULL;
}

static void *adopt_too_soon(void *arg)
{
    char err[256];
    CHECK_EQ(cl_kthread_adopt(arg, 0, err), -EBUSY);
    return NULL;
}

static void while_another_adopts(void *arg)
{
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, adopt_too_soon, arg), 0);
    pthread_join(thread, NULL);
}

static void contract(struct cl_sched *s)
{
    pthread_t thread;
    CHECK_EQ(cl_kthread_borrow_turn(s, 64), -EINVAL);
    CHECK_EQ(cl_kthread_borrow(s, 0, while_another_adopts, s), 0);
    adopt(s, 0);
    CHECK_EQ(cl_kthread_borrow(s, 0, count, NULL), 0); /* its own */
    CHECK_EQ(cl_kthread_borrow_more(s, 0, count, NULL), 0);
    CHECK_EQ(ran, 2);
    ran = 0;
    CHECK_EQ(pthread_create(&thread, NULL, wrong, s), 0);
    pthread_join(thread, NULL);
    CHECK_EQ(cl_kthread_let_go(s, 0), 0);
    pid_t child = fork();
    if (child == 0)
        _exit(cl_kthread_borrow_turn(s, 0) != -ECHILD);
    int status;
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK_EQ(status, 0);
}

/* A NIC that the kernel serves. */
static int device;       /* an eventfd: readable, a frame waits, or has waited */
static uint32_t waiting; /* frames */

static unsigned poll_device(void *arg, unsigned self, unsigned queue)
{
    (void)arg, (void)self, (void)queue;
    unsigned n = waiting > 0;
    waiting -= n;
    return n;
}

static bool ready(void *arg, unsigned queue)
{
    (void)arg, (void)queue;
    return waiting > 0;
}

static unsigned pending(void *arg, unsigned queue)
{
    (void)arg, (void)queue;
    return 0;
}

static void run(void *arg, unsigned self)
{
    (void)arg, (void)self;
}

static int device_fd(void *arg, unsigned k)
{
    (void)arg, (void)k;
    return device;
}

static void comes(uint32_t frames)
{
    waiting += frames;
    CHECK_EQ(eventfd_write(device, 1), 0);
}

static void all_came(void)
{
    eventfd_t times;
    CHECK_EQ(eventfd_read(device, &times), 0);
}

/* One that is turned by who alone sleeps for its descriptor is not told of frames after many turns with work, until it
 * sleeps; then it is, also of what came before. Told again as soon as others sleep for it. */
static void device_of_one_that_is_up(void)
{
    const struct cl_work_source source = {
        .poll = poll_device, .ready = ready, .pending = pending, .run = run, .fd = device_fd};
    struct cl_sched_config c = config;
    char err[256];
    device = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    c.source = &source;
    struct cl_sched *s = sched_new(&c);
    CHECK_EQ(cl_sched_start(s, err), 0);
    settle(s, 0);
    CHECK(!readable(s, 0, 0));
    for (int alone = 0; alone < 2; alone++) {
        cl_kthread_alone(s, 0, alone);
        comes(BUSY_TURNS + 1);
        for (int i = 0; i < BUSY_TURNS; i++) {
            CHECK(readable(s, 0, 0) || i);
            CHECK_EQ(cl_kthread_borrow_turn(s, 0), 1);
        }
        CHECK_EQ(readable(s, 0, 0), !alone);
    }
    cl_kthread_alone(s, 0, false);
    CHECK_EQ(cl_kthread_borrow_turn(s, 0), 1); /* the last frame but those that none took */
    CHECK(readable(s, 0, 0));
    cl_kthread_alone(s, 0, true);
    comes(BUSY_TURNS);
    settle(s, 0);
    CHECK_EQ(waiting, 0);
    CHECK(readable(s, 0, 0)); /* nobody has taken what the device says */
    all_came();
    CHECK(!readable(s, 0, 0));
    comes(1);
    CHECK(readable(s, 0, 0));
    settle(s, 0);
    CHECK_EQ(waiting, 0);
    CHECK_EQ(cl_sched_stop(s, 1000000000), 0);
    cl_sched_delete(s);
    close(device);
}

int main(int argc, char **argv)
{
    config = config_from(argc, argv);
    config.adopted = config.n_kthreads;
    struct cl_sched *s = sched_new(&config);
    char err[256];
    CHECK_EQ(cl_kthread_borrow_turn(s, 0), -ESHUTDOWN);
    CHECK_EQ(cl_sched_start(s, err), 0);
    contract(s);
    many(s);
    if (config.n_kthreads == 1) {
        timers(s);
        device_of_one_that_is_up();
    }
    CHECK_EQ(cl_sched_stop(s, 1000000000), 0);
    CHECK_EQ(cl_kthread_borrow_turn(s, 0), -ESHUTDOWN);
    cl_sched_delete(s);
    CHECK(strcmp(cl_adopt_error(-EOPNOTSUPP), cl_adopt_error(-EINVAL)));
    return 0;
}

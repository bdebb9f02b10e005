/* A busy scheduler makes no system call: after a warm-up a filter is laid on the kthread that kills the process at any
 * call but write and exit_group, and then every primitive runs some 100 000 times. */
#include "check.h"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

static struct cl_mutex m;
static struct cl_cond c;
static struct cl_sem s;
static struct cl_timer timer;
static int turn;
static unsigned fired;

static void count(void *arg)
{
    *(unsigned *)arg += 1;
}

static void on_timer(struct cl_timer *t, void *arg)
{
    count(arg);
    cl_timer_arm(t, cl_sched_now_ns(cl_sched_self()) + 10000);
}

static void partner(void *arg)
{
    for (uintptr_t n = (uintptr_t)arg; n; n--) {
        cl_mutex_lock(&m);
        while (turn != 1)
            cl_cond_wait(&c, &m);
        turn = 0;
        cl_cond_signal(&c);
        cl_mutex_unlock(&m);
        cl_sem_post(&s);
    }
}

static void loop(unsigned n)
{
    cl_uthread_id id, child;
    unsigned ran = 0;
    CHECK_EQ(cl_uthread_spawn(partner, (void *)(uintptr_t)n, &id), 0);
    for (unsigned i = 0; i < n; i++) {
        CHECK_EQ(cl_uthread_spawn(count, &ran, &child), 0);
        CHECK_EQ(cl_uthread_join(child), 0);
        cl_mutex_lock(&m);
        while (turn != 0)
            cl_cond_wait(&c, &m);
        turn = 1;
        cl_cond_signal(&c);
        cl_mutex_unlock(&m);
        cl_sem_wait(&s);
        cl_uthread_yield();
        CHECK_EQ(cl_uthread_sleep_ns(i % 512 ? 0 : 20000), 0);
    }
    CHECK_EQ(cl_uthread_join(id), 0);
    CHECK_EQ(ran, n);
}

#if defined(__x86_64__)
#define ARCH AUDIT_ARCH_X86_64
#else
#define ARCH AUDIT_ARCH_AARCH64
#endif

static void forbid_system_calls(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCH, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    CHECK_EQ(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    CHECK_EQ(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

static void root(void *arg)
{
    static const char done[] = "no system call\n";
    (void)arg;
    cl_timer_init(&timer, on_timer, &fired);
    cl_timer_arm(&timer, cl_sched_now_ns(cl_sched_self()) + 10000);
    loop(1000);
    forbid_system_calls(); /* this thread alone */
    loop(100000);
    CHECK(fired > 10);
    CHECK_EQ(write(STDOUT_FILENO, done, sizeof done - 1), sizeof done - 1);
    _exit(0);
}

int main(void)
{
    struct cl_sched_config config;
    cl_sched_config_init(&config);
    config.poll = CL_SCHED_SPIN;
    cl_sched_run(sched_started(&config), root, NULL);
    return 1;
}

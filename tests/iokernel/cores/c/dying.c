/* Old owners that are killed (iokernel/cores/dying.c): pair.h. A process that has exited and is not waited for stands
 * for one that takes long to: to the kernel its thread is there, and exits. Prints the names of the scenarios that
 * passed.
 *
 *   cores_dying [NAME] */
#include "pair.h"

#include <linux/futex.h>
#include <sys/resource.h>
#include <sys/wait.h>

#define CEDE_US 10
#define INTERRUPT_US 50
#define KICKS 4
#define FIRST_NICE 16

/* A process of one thread that has exited. */
static pid_t exited(void)
{
    siginfo_t info;
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0)
        _exit(0);
    CHECK(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT) == 0);
    return pid;
}

/* As pair_new; the batch application's only kthread, which has the core, is the thread of `pid`. */
static void pair_of(struct pair *p, pid_t pid)
{
    world_new(&p->w, (struct setting){0});
    p->lat = app_add(&p->w, (struct wish){.kind = LATENCY});
    p->bat = app_add(&p->w, (struct wish){.kind = BATCH, .mute = true});
    CHECK(cl_io_app_threads(p->w.io, p->bat->id, pid, &pid, 1, SIGNAL, err) == 0);
    p->l = &p->lat->k[0];
    p->b = &p->bat->k[0];
    start(&p->w, p->b);
    CHECK(owns(&p->w, p->b));
}

/* Both steps, and the demotion, as of anybody. */
static void evict_old(struct pair *p)
{
    ready(p->l, 1);
    for (unsigned us = 0; us < 2 * (CEDE_US + INTERRUPT_US) && stats_of(&p->w).evicted == 0; us++)
        run(&p->w, 1 * US);
    CHECK(stats_of(&p->w).interrupted == 1 && stats_of(&p->w).evicted == 1 && stats_of(&p->w).starved == 0);
    CHECK(owns(&p->w, p->l));
}

static int own;

__attribute__((constructor)) static void read_own(void)
{
    own = getpriority(PRIO_PROCESS, 0);
}

/* 0: as this program was started. */
static int nice_of(pid_t tid)
{
    int nice = getpriority(PRIO_PROCESS, (id_t)tid);
    return nice == own ? 0 : nice;
}

/* After its eviction, until the new owner begins. */
static void one_that_exits_gives_way(void)
{
    struct pair p;
    pid_t pid = exited();
    pair_of(&p, pid);
    evict_old(&p);
    CHECK(stats_of(&p.w).dying == 0 && nice_of(pid) == 0); /* who was demoted goes by itself if the new owner slept */
    run(&p.w, CEDE_US * US);
    CHECK(stats_of(&p.w).dying == 1 && nice_of(pid) == FIRST_NICE && sched_getscheduler(pid) == SCHED_IDLE);
    run(&p.w, CEDE_US * US);
    CHECK(nice_of(pid) == FIRST_NICE + 1);
    CHECK(owns(&p.w, p.l) && acts(&p.w, p.l));
    run(&p.w, 10 * CEDE_US * US);
    CHECK(moves_by(&p.w, CL_IO_STEP_EVICT) == 1 && stats_of(&p.w).dying == 1 && nice_of(pid) == FIRST_NICE + 1);
    world_delete(&p.w);
    CHECK(waitpid(pid, NULL, 0) == pid);
}

static void it_is_asked_to_no_more_than_so_often(void)
{
    struct pair p;
    pid_t pid = exited();
    pair_of(&p, pid);
    evict_old(&p);
    run(&p.w, KICKS * CEDE_US * US);
    CHECK(nice_of(pid) == 19);
    uint64_t calls = stats_of(&p.w).syscalls;
    run(&p.w, 10 * CEDE_US * US);
    CHECK(stats_of(&p.w).syscalls == calls && stats_of(&p.w).dying == 1);
    CHECK(owns(&p.w, p.l));
    world_delete(&p.w);
    CHECK(waitpid(pid, NULL, 0) == pid);
}

/* Its application goes in the middle, and its memory here with it. */
static void it_is_removed(void)
{
    struct pair p;
    pid_t pid = exited();
    pair_of(&p, pid);
    evict_old(&p);
    app_remove(&p.w, p.bat);
    run(&p.w, 10 * CEDE_US * US);
    CHECK(stats_of(&p.w).dying == 0 && nice_of(pid) == 0 && owns(&p.w, p.l) && acts(&p.w, p.l));
    CHECK(sched_getscheduler(pid) == SCHED_IDLE); /* it does not go on, and need not be an ordinary one again */
    world_delete(&p.w);
    CHECK(waitpid(pid, NULL, 0) == pid);
}

/* One that lives is demoted, and nothing is done to it that could not be undone; nor to the others of its process. */
static void one_that_lives_is_only_evicted(void)
{
    struct pair p;
    pair_new(&p, (struct setting){0}, (struct wish){.blocks = true});
    ready(p.l, 1);
    run(&p.w, 10 * (CEDE_US + INTERRUPT_US) * US);
    CHECK(stats_of(&p.w).evicted == 1 && sched_getscheduler(p.b->tid) == SCHED_IDLE);
    CHECK(stats_of(&p.w).dying == 0 && nice_of(p.b->tid) == 0 && nice_of(p.l->tid) == 0);
    world_delete(&p.w);
}

struct waiter {
    const struct kthread *k;
    struct kthread thread; /* tid, born */
};

/* Sleeps as k would, until it is woken. */
static void *wait_for_grant(void *arg)
{
    struct waiter *w = arg;
    uint32_t grant = w->k->state->grant;
    w->thread.tid = (int32_t)syscall(SYS_gettid);
    sem_post(&w->thread.born);
    CHECK(syscall(SYS_futex, &w->k->state->grant, FUTEX_WAIT, grant, NULL, NULL, 0) == 0);
    sem_post(&w->thread.may_end);
    return NULL;
}

/* Who should have woken it is gone, as the step shows that would have interrupted it: the loop does it then, not a step
 * later. The other threads of that process go on as before. */
static void the_new_owner_of_a_dead_one_is_woken_at_once(void)
{
    struct pair p;
    struct waiter one;
    pthread_t thread;
    pair_new(&p, (struct setting){0}, (struct wish){0});
    ready(p.l, 1);
    run(&p.w, 5 * US);
    CHECK(owns(&p.w, p.l) && p.w.cores[0].wake == 1);
    one.k = p.l;
    sem_init(&one.thread.born, 0, 0);
    sem_init(&one.thread.may_end, 0, 0);
    CHECK(pthread_create(&thread, NULL, wait_for_grant, &one) == 0);
    while (sem_wait(&one.thread.born) < 0)
        continue;
    await_sleep(one.thread.tid);
    end_thread(p.b);
    run(&p.w, CEDE_US * US);
    CHECK(stats_of(&p.w).interrupted == 0);
    while (sem_wait(&one.thread.may_end) < 0) /* scenarios.h bounds it */
        continue;
    pthread_join(thread, NULL);
    CHECK(acts(&p.w, p.l));
    run(&p.w, 2 * US);
    CHECK(stats_of(&p.w).evicted == 0 && stats_of(&p.w).dying == 0 && nice_of(p.l->tid) == 0);
    world_delete(&p.w);
}

SCENARIOS_MAIN(SCENARIO(one_that_exits_gives_way), SCENARIO(it_is_asked_to_no_more_than_so_often),
               SCENARIO(it_is_removed), SCENARIO(one_that_lives_is_only_evicted),
               SCENARIO(the_new_owner_of_a_dead_one_is_woken_at_once))

/* Every interleaving, up to a number of preemptions, of a cancel with those who wait, those who wake them and a timer:
 * the code of libos/sched/{scope,wait,mutex,cond,sem}.c on four threads. Nobody is made ready twice or never, nobody
 * who is not cancelled loses a wake-up, and what a cancelled call has not done it has not done.
 * Usage: scope_model PREEMPTIONS
 *
 * See model.h. */
#define THREADS 4
#include "model.h"

/* Thread 0 is in a scope, which thread 3 cancels; 1 and 2 are in none. */
static struct cl_mutex m, held; /* m is held by thread 1 at the start of some */
static struct cl_cond cond;
static struct cl_sem sem;
static struct cl_wait_group group;
static struct cl_scope *scope;
static unsigned ready_threads, done, inside;
static int result;
static bool ran;

static void set_up(void)
{
    set_up_uthreads();
    cl_mutex_init(&held);
    m = (struct cl_mutex){.word = scenario == 0 || scenario >= 7 ? (uint64_t)(uintptr_t)&uthreads[1] : 0};
    cl_cond_init(&cond);
    cl_sem_init(&sem, 0);
    group = (struct cl_wait_group){.word = scenario == 9 ? 2 : 0};
    ready_threads = done = inside = 0;
    result = 1;
    ran = false;
    check(cl_scope_open(CL_SCOPE_FOREVER, &scope) == 0, "no scope");
}

/* 0: a mutex that 1 holds and 2 wants, too. */
static void of_mutex(unsigned me)
{
    if (me == 3) {
        cl_scope_cancel(scope);
        return;
    }
    if (me == 1) {
        check(cl_mutex_unlock(&m) == 0, "it was not held");
        return;
    }
    int rc = cl_mutex_lock(&m);
    check(rc == 0 || (me == 0 && rc == -ECANCELED), "an odd result");
    if (rc == 0) {
        check(inside++ == 0, "two hold the mutex");
        point();
        inside--;
        check(cl_mutex_unlock(&m) == 0, "it was not held");
    }
}

/* 1 and 2: a semaphore that 2 posts twice; the wait of thread 0 is timed in 2, and 3 lets the time be over. */
static void of_sem(unsigned me)
{
    if (me == 2) {
        cl_sem_post(&sem);
        cl_sem_post(&sem);
    } else if (me == 3) {
        if (scenario == 2)
            expire_now();
        cl_scope_cancel(scope);
    } else if (me == 1) {
        check(cl_sem_wait(&sem) == 0, "who is not cancelled does not get one");
    } else {
        result = scenario == 2 ? cl_sem_wait_until(&sem, 5) : cl_sem_wait(&sem);
        check(result == 0 || result == -ECANCELED || (scenario == 2 && result == -ETIMEDOUT), "an odd result");
    }
}

/* 3: a condition variable, signalled twice when both wait. */
static void of_cond(unsigned me)
{
    if (me == 3) {
        cl_scope_cancel(scope);
        return;
    }
    check(cl_mutex_lock(&m) == 0 || me == 0, "cannot lock"); /* thread 0 may be cancelled there */
    if (me == 2) {
        done = 2;
        cl_cond_signal(&cond);
        cl_cond_signal(&cond);
    }
    int rc = 0;
    if ((m.word & ~BITS) == (uint64_t)(uintptr_t)&uthreads[me]) {
        while (rc == 0 && done < 2)
            rc = cl_cond_wait(&cond, &m);
        check(rc == 0 || me == 0, "who is not cancelled is");
        check(cl_mutex_unlock(&m) == 0, "it is not held after the wait");
    }
}

/* 4: a wait group, and a scope that thread 0 opens while the one around it is cancelled. */
static void of_group(unsigned me)
{
    if (me == 1) {
        (void)cl_wait_group_add(&group, 1);
        ready_threads = 1;
        cl_scope_cancel(scope);
    } else if (me == 2) {
        while (!ready_threads)
            wait_point();
        check(cl_wait_group_done(&group) == 0, "an odd count");
    } else if (me == 0) {
        struct cl_scope *inner;
        while (!ready_threads)
            wait_point();
        check(cl_scope_open(CL_SCOPE_FOREVER, &inner) == 0, "no scope");
        int rc = cl_wait_group_wait(&group);
        check(rc == 0 || rc == -ECANCELED, "an odd result");
        check(cl_sem_wait(&sem) == -ECANCELED, "a cancel got lost");
        check(cl_scope_close(inner) == -ECANCELED, "it is not cancelled");
    }
}

/* 5: thread 0 closes the scope while its uthreads 1 and 2 end, one of them with an error, and 3 cancels. */
static void of_close(unsigned me)
{
    if (me == 0) {
        while (ready_threads < 2)
            wait_point();
        result = cl_scope_close(scope);
        check(done == 2, "a uthread has outlived its scope");
        check(result == -EIO || result == -ECANCELED, "the reason is lost");
    } else if (me < 3) {
        cl_spin_lock(&scope->lock);
        scope->n_running++;
        cl_spin_unlock(&scope->lock);
        uthreads[me].home = uthreads[me].scope = scope;
        count_in(scope, &uthreads[me]);
        ready_threads++;
        int rc = cl_sem_wait(&sem);
        check(rc == -ECANCELED || (rc == 0 && !inside++), "a cancel got lost"); /* there is one post */
        done++;
        cl_scope_end(&uthreads[me], me == 1 ? -EIO : 0);
    } else {
        while (ready_threads < 2)
            wait_point();
        cl_sem_post(&sem);
        cl_scope_cancel(scope); /* still open: thread 2 is in it until then */
    }
}

/* 6: thread 0 sleeps; the time is over, and it is cancelled. */
static void of_sleep(unsigned me)
{
    if (me == 0) {
        result = cl_wait_sleep(&kthreads[0], 5);
        check(result == 0 || result == -ECANCELED, "an odd result");
        check(!armed && !firing, "its timer lives on");
    } else if (me == 1) {
        expire_now();
    } else if (me == 3) {
        cl_scope_cancel(scope);
    }
}

/* 7, 8, 9: a mutex, a condition variable, a wait group that nobody wakes thread 0 from before it has been cancelled. */
static void of_one_way(unsigned me)
{
    if (me == 0) {
        int rc = cl_mutex_lock(scenario == 7 ? &m : &held);
        if (scenario == 8 && rc == 0) {
            rc = cl_cond_wait(&cond, &held);
            check(cl_mutex_unlock(&held) == 0, "it is not held after the wait");
        } else if (scenario == 9) {
            rc = cl_wait_group_wait(&group);
        }
        check(rc == -ECANCELED, "an odd result");
        result = rc;
    } else if (me == 1) {
        while (result == 1)
            wait_point();
        check(cl_mutex_unlock(&m) == 0, "it was not held");
    } else if (me == 2) {
        check(cl_mutex_lock(&m) == 0 && cl_mutex_unlock(&m) == 0, "who is not cancelled does not get it");
    } else {
        cl_scope_cancel(scope);
    }
}

static void (*const scenarios[])(unsigned me) = {of_mutex, of_sem,   of_sem,     of_cond,    of_group,
                                                 of_close, of_sleep, of_one_way, of_one_way, of_one_way};

static void thread_run(unsigned me)
{
    ran = true;
    scenarios[scenario](me);
}

/* Afterwards, by scenario. */
static void set_up_next(void)
{
    if (ran && (scenario == 0 || scenario >= 7))
        check(m.word == 0, "the mutex is not free in the end");
    if (ran && (scenario == 1 || scenario == 2) && result <= 0)
        check(cl_sem_value(&sem) == (result ? 1 : 0), "posts do not add up");
    set_up();
}

int main(int argc, char **argv)
{
    unsigned bound = argc > 1 ? (unsigned)atoi(argv[1]) : 2;
    for (scenario = 0; scenario < sizeof scenarios / sizeof *scenarios; scenario++) {
        limit = scenario == 5 ? bound : bound + 1; /* in 5 all four have much to do */
        set_up();
        printf("scenario %u: %lu interleavings\n", scenario, explore(set_up_next));
    }
    set_up();
    cl_scopes_delete(&sched);
    return 0;
}

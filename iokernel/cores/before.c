/* What a kthread had before its cores were managed: scheduling class, nice value and CPUs; and giving it back.
 *
 * A loop binds kthreads to CPUs and demotes those that do not cede. When the iokernel stops, every kthread gets back
 * what it had when it was named (cl_io_give_back), before its application sees the end of its connection. When the
 * iokernel is killed, the application gives it back itself (drivers/port/cores.c). When an application leaves, its
 * threads that live on get it back: the program's own, which it had lent to kthreads (corelane/libos/adopt.h). To leave
 * SCHED_IDLE takes a right: so it is seen to when a kthread is named that the application has it
 * (runtime/scheduling.h), and a kthread that nobody could bring back is not demoted, only moved away.
 *
 * Tests: tests/iokernel/cores/test_before.py. */
#include "../state/internal.h"

#include <sys/syscall.h>
#include <unistd.h>

/* One that is named in SCHED_IDLE was left so by an iokernel that was killed, unless that is how its whole process
 * runs. Meanwhile it is an ordinary one. */
static void leave_idle(const struct io_kthread *k, struct cl_scheduling *before)
{
    struct cl_scheduling now;
    if (sched_getscheduler(k->member.tid) != SCHED_IDLE)
        return;
    sched_setscheduler(k->member.tid, SCHED_OTHER, &(struct sched_param){0});
    cl_scheduling_read(k->member.tid, &now);
    if (sched_getscheduler(k->app->cores.pid) != SCHED_IDLE)
        memcpy(before->attr, now.attr, sizeof now.attr);
}

void io_before_note(struct io_kthread *k)
{
    struct cl_scheduling *before = &k->app->cores.before[k - k->app->kthreads];
    cl_scheduling_read(k->member.tid, before);
    k->member.stays_classed = !cl_scheduling_returns(k->app->cores.pid, k->member.tid);
    leave_idle(k, before);
}

void io_before_restore(struct io_kthread *k)
{
    const struct io_allotment *a = &k->app->cores;
    if (!a->before || k->member.dead || syscall(SYS_tgkill, a->pid, k->member.tid, 0) < 0)
        return; /* its number may be a stranger's by now */
    cl_scheduling_restore(k->member.tid, &a->before[k - k->app->kthreads]);
}

void io_before_leave(const struct cl_io *io, const struct io_app *app)
{
    if (io->given_back || !app->cores.pid)
        return;
    for (uint32_t k = 0; k < app->n_kthreads; k++)
        if (!io_dying_exits(&app->kthreads[k]))
            io_before_restore(&app->kthreads[k]);
}

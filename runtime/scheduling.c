/* See scheduling.h. */
#include "scheduling.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NICE_RANGE 20 /* RLIMIT_NICE is 20 less the lowest nice value that is permitted */
#define LOWEST_NICE (-20)

_Static_assert(sizeof(((struct cl_scheduling *)0)->attr) == 48, "struct sched_attr, first version");

static uint32_t policy_of(const struct cl_scheduling *s)
{
    return (uint32_t)(s->attr[0] >> 32); /* behind its size; both machines that we know are little-endian */
}

struct cl_scheduling *cl_scheduling_new(void)
{
    return calloc(1, sizeof(struct cl_scheduling));
}

void cl_scheduling_delete(struct cl_scheduling *s)
{
    free(s);
}

void cl_scheduling_read(int32_t tid, struct cl_scheduling *out)
{
    out->has_attr = syscall(SYS_sched_getattr, tid, out->attr, sizeof out->attr, 0) == 0;
    out->has_cpus = sched_getaffinity(tid, sizeof out->cpus, &out->cpus) == 0;
}

int cl_scheduling_restore(int32_t tid, const struct cl_scheduling *s)
{
    struct cl_scheduling now;
    int rc = 0;
    if (s->has_cpus && sched_setaffinity(tid, sizeof s->cpus, &s->cpus) < 0)
        rc = -errno;
    cl_scheduling_read(tid, &now);
    if (!s->has_attr || !now.has_attr || policy_of(&now) == policy_of(s))
        return rc;
    if (syscall(SYS_sched_setattr, tid, s->attr, 0) < 0 &&
        sched_setscheduler(tid, SCHED_OTHER, &(struct sched_param){0}) < 0)
        return -errno;
    return rc;
}

/* Whether we may lower a thread's nice value, which is undone at once, by whoever. */
static bool may_lower(int32_t tid, int nice)
{
    if (nice == LOWEST_NICE || setpriority(PRIO_PROCESS, (id_t)tid, nice - 1) < 0)
        return false;
    setpriority(PRIO_PROCESS, (id_t)tid, nice);
    return true;
}

/* Whether we have CAP_SYS_NICE where it counts, which in a user namespace of our own it does not. */
static bool may_all(void)
{
    struct rlimit ours;
    int32_t self = (int32_t)syscall(SYS_gettid);
    int nice = getpriority(PRIO_PROCESS, (id_t)self);
    bool by_limit = getrlimit(RLIMIT_NICE, &ours) < 0 || ours.rlim_cur >= (rlim_t)(NICE_RANGE - nice + 1);
    return !by_limit && may_lower(self, nice);
}

bool cl_scheduling_returns(int32_t pid, int32_t tid)
{
    struct rlimit has, more;
    errno = 0;
    int nice = getpriority(PRIO_PROCESS, (id_t)tid);
    if (errno)
        return false;
    rlim_t needed = (rlim_t)(NICE_RANGE - nice);
    if (prlimit(pid, RLIMIT_NICE, NULL, &has) == 0) {
        more = (struct rlimit){cl_max(has.rlim_cur, needed), cl_max(has.rlim_max, needed)};
        if (has.rlim_cur >= needed || prlimit(pid, RLIMIT_NICE, &more, NULL) == 0)
            return true;
    }
    return may_lower(tid, nice) || (nice == LOWEST_NICE && may_all());
}

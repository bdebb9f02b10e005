/* Policies that do what a policy must not, for tests/iokernel/policy/test_host.py and
 * tests/iokernel/policy/test_trial.py. */
#include <corelane/iokernel/policy.h>

#define N (view->n_apps)

static void well(const struct cl_policy_view *view, struct cl_policy_app *apps)
{
    for (uint32_t i = 0; i < N; i++)
        apps[i].grant = apps[i].cores;
}

/* The one that behaves: `spare` cores more than are busy. */
CL_API void headroom(const struct cl_policy_view *view, struct cl_policy_app *apps)
{
    for (uint32_t i = 0; i < N; i++)
        apps[i].grant = apps[i].cores - cl_min(apps[i].idle, apps[i].cores) + (uint32_t)view->params[0];
}
CL_POLICY(headroom, "spare")

CL_API void loops(const struct cl_policy_view *view, struct cl_policy_app *apps)
{
    well(view, apps);
    for (volatile uint64_t i = 0; apps[0].grant < UINT32_MAX; i++)
        continue;
}
CL_POLICY(loops, "")

/* Loops only once its params say so, so that it passes for one that behaves first. */
CL_API void loops_later(const struct cl_policy_view *view, struct cl_policy_app *apps)
{
    well(view, apps);
    for (volatile uint64_t i = 0; view->now_ns > 2000000000000000000u; i++)
        continue;
}
CL_POLICY(loops_later, "")

CL_API void beyond(const struct cl_policy_view *view, struct cl_policy_app *apps)
{
    well(view, apps);
    apps[N].grant = 1;
}
CL_POLICY(beyond, "")

CL_API void before(const struct cl_policy_view *view, struct cl_policy_app *apps)
{
    well(view, apps);
    ((volatile struct cl_policy_app *)apps)[-1].grant = 1;
}
CL_POLICY(before, "")

CL_API void null_pointer(const struct cl_policy_view *view, struct cl_policy_app *apps)
{
    well(view, apps);
    volatile uint32_t *volatile nothing = NULL;
    *nothing = 1;
}
CL_POLICY(null_pointer, "")

CL_API void divides(const struct cl_policy_view *view, struct cl_policy_app *apps)
{
    volatile uint32_t zero = 0;
    for (uint32_t i = 0; i < N; i++)
        apps[i].grant = apps[i].maximum / zero;
}
CL_POLICY(divides, "")

CL_API void illegal(const struct cl_policy_view *view, struct cl_policy_app *apps)
{
    well(view, apps);
    __builtin_trap();
}
CL_POLICY(illegal, "")

__attribute__((noinline)) static uint64_t deeper(volatile uint64_t *above)
{
    volatile uint64_t here[8192]; /* touched sparsely: soon through the stack */
    here[0] = *above + 1;
    return here[0] ? deeper(here) + here[0] : 0;
}

CL_API void recurses(const struct cl_policy_view *view, struct cl_policy_app *apps)
{
    uint64_t one = 1;
    well(view, apps);
    apps[0].grant = (uint32_t)deeper(&one);
}
CL_POLICY(recurses, "")

CL_API void nonsense(const struct cl_policy_view *view, struct cl_policy_app *apps)
{
    for (uint32_t i = 0; i < N; i++)
        apps[i].grant = apps[i].cores - apps[i].maximum - 1;
}
CL_POLICY(nonsense, "")

CL_API void one_less(const struct cl_policy_view *view, struct cl_policy_app *apps)
{
    for (uint32_t i = 0; i < N; i++)
        apps[i].grant = apps[i].cores - 1 - apps[i].cores;
}
CL_POLICY(one_less, "")

/* But for one decision in as many as are borne in a row. */
CL_API void sometimes_nonsense(const struct cl_policy_view *view, struct cl_policy_app *apps)
{
    well(view, apps);
    for (uint32_t i = 0; i < N && view->now_ns % 100; i++)
        apps[i].grant = UINT32_MAX;
}
CL_POLICY(sometimes_nonsense, "")

CL_API void writes_nothing(const struct cl_policy_view *view, struct cl_policy_app *apps)
{
    (void)view;
    (void)apps;
}
CL_POLICY(writes_nothing, "")

CL_API void overwrites(const struct cl_policy_view *view, struct cl_policy_app *apps)
{
    well(view, apps);
    for (uint32_t i = 0; i < N; i++)
        apps[i].maximum = 1000, apps[i].guaranteed = 1000;
}
CL_POLICY(overwrites, "")

/* Another answer to the same question each time. */
CL_API void moody(const struct cl_policy_view *view, struct cl_policy_app *apps)
{
    static uint32_t mood;
    for (uint32_t i = 0; i < N; i++)
        apps[i].grant = ++mood & 1;
}
CL_POLICY(moody, "")

/* In O(n^3). */
CL_API void slow(const struct cl_policy_view *view, struct cl_policy_app *apps)
{
    well(view, apps);
    volatile uint32_t work = 0;
    for (uint32_t i = 0; i < N; i++)
        for (uint32_t j = 0; j < N; j++)
            for (uint32_t k = 0; k < N; k++)
                work++;
}
CL_POLICY(slow, "")

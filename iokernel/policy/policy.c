/* See policy.h: finding a policy, cutting what is too much. */
#include <corelane/iokernel/policy.h>

#include <string.h>

static const struct {
    const char *name;
    cl_policy_fn fn;
} builtin[] = {
    {"static", cl_policy_static}, {"shenango", cl_policy_shenango}, {"delay", cl_policy_delay},
    {"fair", cl_policy_fair},     {"attained", cl_policy_attained},
};

cl_policy_fn cl_policy_find(const char *name)
{
    for (unsigned i = 0; i < sizeof builtin / sizeof *builtin; i++)
        if (strcmp(builtin[i].name, name) == 0)
            return builtin[i].fn;
    return NULL;
}

const char *cl_policy_name(unsigned index)
{
    return index < sizeof builtin / sizeof *builtin ? builtin[index].name : NULL;
}

/* What is taken away when more was granted than there is: */
enum reach {
    UNUSED,     /* what is over the guarantee, and not demanded */
    BURST,      /* what is over the guarantee */
    GUARANTEED, /* that, too */
};

struct tier {
    enum reach reach;
    uint32_t kind;
};

static uint32_t floor_of(const struct cl_policy_app *a, const struct tier *t)
{
    if (t->reach == GUARANTEED)
        return 0;
    uint32_t keeps = t->reach == UNUSED ? cl_max(a->guaranteed, a->demand) : a->guaranteed;
    return cl_min(keeps, a->grant);
}

/* Cores that come free when nobody of the tier keeps more than `level` over its guarantee. */
static uint64_t freed_at(const struct cl_policy_view *view, const struct cl_policy_app *apps, const struct tier *t,
                         int64_t level)
{
    uint64_t freed = 0;
    for (uint32_t i = 0; i < view->n_apps; i++) {
        const struct cl_policy_app *a = &apps[i];
        int64_t over = (int64_t)a->grant - a->guaranteed - level, room = (int64_t)a->grant - floor_of(a, t);
        if (a->kind == t->kind)
            freed += (uint64_t)cl_max(cl_min(over, room), (int64_t)0);
    }
    return freed;
}

/* Take at most `most` cores from whoever of the tier has more than `level` over its guarantee. */
static uint64_t take_down(const struct cl_policy_view *view, struct cl_policy_app *apps, const struct tier *t,
                          int64_t level, uint64_t most)
{
    uint64_t taken = 0;
    for (uint32_t i = 0; i < view->n_apps && taken < most; i++) {
        struct cl_policy_app *a = &apps[i];
        int64_t over = (int64_t)a->grant - a->guaranteed - level, room = (int64_t)a->grant - floor_of(a, t);
        if (a->kind != t->kind || over <= 0 || room <= 0)
            continue;
        uint64_t cut = cl_min((uint64_t)cl_min(over, room), most - taken);
        a->grant -= (uint32_t)cut;
        taken += cut;
    }
    return taken;
}

/* Take `excess` cores from a tier, or all that it has: one by one from whoever is most over its guarantee, the first of
 * several, but found by bisection. Returns how many were taken. */
static uint64_t cut_tier(const struct cl_policy_view *view, struct cl_policy_app *apps, const struct tier *t,
                         uint64_t excess)
{
    int64_t lo = INT32_MAX, hi = INT32_MIN;
    for (uint32_t i = 0; i < view->n_apps; i++) {
        const struct cl_policy_app *a = &apps[i];
        if (a->kind != t->kind || a->grant <= floor_of(a, t))
            continue;
        lo = cl_min(lo, (int64_t)floor_of(a, t) - a->guaranteed);
        hi = cl_max(hi, (int64_t)a->grant - a->guaranteed);
    }
    if (lo > hi)
        return 0;
    /* From here on freed_at(lo) >= excess > freed_at(hi). */
    if (freed_at(view, apps, t, lo) <= excess)
        return take_down(view, apps, t, lo, excess);
    while (hi - lo > 1) {
        int64_t middle = lo + (hi - lo) / 2;
        *(freed_at(view, apps, t, middle) >= excess ? &lo : &hi) = middle;
    }
    uint64_t taken = take_down(view, apps, t, hi, excess);
    return taken + take_down(view, apps, t, lo, excess - taken);
}

unsigned cl_policy_settle(const struct cl_policy_view *view, struct cl_policy_app *apps)
{
    unsigned changed = 0;
    uint64_t sum = 0;
    for (uint32_t i = 0; i < view->n_apps; i++) {
        struct cl_policy_app *a = &apps[i];
        if ((a->grant | a->demand) == 0) /* it rests, as most do */
            continue;
        uint32_t most = cl_min(a->maximum, view->n_cores), grant = cl_min(a->grant, most);
        grant = cl_max(grant, cl_min(cl_min(a->guaranteed, a->demand), most));
        changed += grant != a->grant;
        a->grant = grant;
        sum += grant;
    }
    static const struct tier order[] = {{UNUSED, CL_POLICY_BATCH},     {UNUSED, CL_POLICY_LATENCY},
                                        {BURST, CL_POLICY_BATCH},      {BURST, CL_POLICY_LATENCY},
                                        {GUARANTEED, CL_POLICY_BATCH}, {GUARANTEED, CL_POLICY_LATENCY}};
    for (unsigned t = 0; sum > view->n_cores && t < sizeof order / sizeof *order; t++) {
        uint64_t taken = cut_tier(view, apps, &order[t], sum - view->n_cores);
        changed += (unsigned)taken;
        sum -= taken;
    }
    return changed;
}

/* See policy.h: finding a policy, sharing what is left, cutting what is too much. */
#include "policy.h"

#include <string.h>

static const struct {
    const char *name;
    cl_policy_fn fn;
} builtin[] = {
    {"static", cl_policy_static},
    {"shenango", cl_policy_shenango},
    {"delay", cl_policy_delay},
    {"fair", cl_policy_fair},
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

void cl_policy_share_rest(const struct cl_policy_view *view, struct cl_policy_app *apps)
{
    uint32_t used = 0;
    for (uint32_t i = 0; i < view->n_apps; i++) {
        if (apps[i].kind == CL_POLICY_BATCH)
            apps[i].grant = cl_min(apps[i].guaranteed, apps[i].maximum);
        used += apps[i].grant;
    }
    while (used < view->n_cores) {
        struct cl_policy_app *least = NULL;
        for (uint32_t i = 0; i < view->n_apps; i++) {
            struct cl_policy_app *a = &apps[i];
            if (a->kind != CL_POLICY_BATCH || a->grant >= a->maximum)
                continue;
            /* grant / weight compared without division */
            if (!least ||
                (uint64_t)a->grant * cl_max(least->weight, 1u) < (uint64_t)least->grant * cl_max(a->weight, 1u))
                least = a;
        }
        if (!least)
            return;
        least->grant++;
        used++;
    }
}

/* The application to take a core from: batch before latency, then the one most over its guarantee. */
static struct cl_policy_app *most_over(const struct cl_policy_view *view, struct cl_policy_app *apps)
{
    struct cl_policy_app *worst = NULL;
    for (uint32_t i = 0; i < view->n_apps; i++) {
        struct cl_policy_app *a = &apps[i];
        if (a->grant == 0)
            continue;
        if (!worst || a->kind > worst->kind ||
            (a->kind == worst->kind && (int64_t)a->grant - a->guaranteed > (int64_t)worst->grant - worst->guaranteed))
            worst = a;
    }
    return worst;
}

unsigned cl_policy_settle(const struct cl_policy_view *view, struct cl_policy_app *apps)
{
    unsigned changed = 0;
    uint64_t sum = 0;
    for (uint32_t i = 0; i < view->n_apps; i++) {
        struct cl_policy_app *a = &apps[i];
        uint32_t most = cl_min(a->maximum, view->n_cores), grant = cl_min(a->grant, most);
        /* A guarantee is for who wants it: something waits, or batch, which always does. */
        if (a->kind == CL_POLICY_BATCH || cl_policy_oldest_ns(a))
            grant = cl_max(grant, cl_min(a->guaranteed, most));
        changed += grant != a->grant;
        a->grant = grant;
        sum += grant;
    }
    while (sum > view->n_cores) {
        struct cl_policy_app *worst = most_over(view, apps);
        worst->grant--;
        changed++;
        sum--;
    }
    return changed;
}

/* See deal.h. */
#include "deal.h"

#include <string.h>

#define CL_INLINE static inline __attribute__((always_inline))

#define SLICE_NS 200000.0 /* of batch work under the policies that are not about it: a move is one per cent of that */
#define CREDIT_NS 10000000.0 /* ten milliseconds: the jitter of a machine, and no long memory */
/* Of latency applications under them: turns of 20 us, from one slice behind to one ahead; and what one can fall behind
 * by others' slow moves it makes up for, but keeps no equal waiting for long. */
#define LATENCY_SLICE_NS 10000.0
#define LATENCY_CREDIT_NS 200000.0
/* What a move takes, about. Of two that are as close as that, first the one that has let the CPU go longest ago: it is
 * the one that the kernel runs next where both yield-wait (docs/cores.md), so that no switch is wasted on the other. */
#define TIE_NS 3000.0
#define BISECTIONS 64 /* more than enough for the range of a double's exponent that occurs */

/* One that competes. The key of its g-th core (from 0) is lag + (g + 1) * step, less `slice` for a core that it holds;
 * the next core goes to the lowest key. All per unit of weight. */
struct claim {
    struct cl_policy_app *app;
    double lag, step, slice, key;
    uint32_t granted, held, want;
};

static double key_of(const struct claim *c, uint32_t g)
{
    return c->lag + (double)(g + 1) * c->step - (g < c->held ? c->slice : 0);
}

static double lag_of(const struct cl_policy_app *a)
{
    double lag;
    memcpy(&lag, &a->memory[3], sizeof lag);
    return lag;
}

static void keep_lag(struct cl_policy_app *a, double lag)
{
    memcpy(&a->memory[3], &lag, sizeof lag);
}

/* Cores in the middle of a turn on which it is: those that it holds and, of a batch application, those that it was
 * dealt last. A latency application may have them for a while: were the turn over by that, the core would go to another
 * job each time. */
static uint32_t turn_of(const struct cl_policy_app *a)
{
    return a->kind == CL_POLICY_BATCH ? (uint32_t)cl_max((uint64_t)a->cores, a->memory[1]) : a->cores;
}

struct claims {
    uint32_t n;
    double interval_ns, sum, weights; /* of the lags, weighted; of the weights */
    struct claim claim[CL_POLICY_MAX_APPS];
};

/* No more than there is room for, whoever calls. */
CL_INLINE uint32_t rows_of(const struct cl_policy_view *view)
{
    return cl_min(view->n_apps, (uint32_t)CL_POLICY_MAX_APPS);
}

CL_INLINE void claims_begin(struct claims *c, const struct cl_policy_view *view)
{
    c->n = 0;
    c->interval_ns = cl_max((double)view->interval_ns, 1.0);
    c->sum = c->weights = 0;
}

/* Bring its lag up to now; list it if it wants more than it was granted. */
CL_INLINE void claims_add(struct claims *c, struct cl_policy_app *a, uint32_t wanted)
{
    double weight = a->weight > 1 ? (double)a->weight : 1.0, per_weight = a->weight > 1 ? 1.0 / weight : 1.0;
    /* Signed: from unsigned takes a branch more. */
    double lag = lag_of(a) + (double)(int64_t)(a->attained_ns - a->memory[2]) * per_weight;
    a->memory[2] = a->attained_ns;
    if (wanted <= a->grant) {
        keep_lag(a, cl_max(lag, 0.0)); /* what it did not want it is not owed */
        if (a->kind == CL_POLICY_BATCH)
            a->memory[1] = 0;
        return;
    }
    c->sum += lag * weight;
    c->weights += weight;
    c->claim[c->n++] = (struct claim){.app = a,
                                      .lag = lag,
                                      .step = c->interval_ns * per_weight,
                                      .slice = per_weight,
                                      .granted = a->grant,
                                      .held = turn_of(a),
                                      .want = wanted};
}

static void set_key(struct claim *c)
{
    c->key = c->granted < c->want ? key_of(c, c->granted) : __builtin_inf();
}

/* The least key of those seen, and the one that goes first: whose it is, or another that is tied with it. */
struct least {
    double key;
    struct claim *claim;
};

/* When it may give way to an equal for the core at hand: one that it has not got. */
static bool may_wait(const struct claim *c)
{
    return c->granted >= c->held && c->app->rested_ns;
}

/* By branches: whose it is changes seldom, and nothing waits for it then. */
CL_INLINE void note_key(struct least *l, struct claim *c)
{
    if (cl_likely(l->claim && !(c->key < l->key + TIE_NS)))
        return;
    bool less = !l->claim || c->key < l->key;
    if (l->claim && l->claim->key < c->key + TIE_NS && may_wait(c) && may_wait(l->claim))
        l->claim = c->app->rested_ns > l->claim->app->rested_ns ? c : l->claim;
    else if (less)
        l->claim = c;
    if (less)
        l->key = c->key;
}

/* Returns the one that goes first. */
CL_INLINE struct claim *bound_lags(struct claim *claims, uint32_t n, double average, double slice_ns, double credit_ns)
{
    struct least least = {0, NULL};
    for (uint32_t i = 0; i < n; i++) {
        struct claim *c = &claims[i];
        c->lag = cl_min(cl_max(c->lag - average, -credit_ns), credit_ns);
        keep_lag(c->app, c->lag);
        c->slice *= slice_ns;
        set_key(c);
        note_key(&least, c);
    }
    return least.claim;
}

static struct claim *least_of(struct claim *claims, uint32_t n)
{
    struct least least = {0, NULL};
    for (uint32_t i = 0; i < n; i++)
        note_key(&least, &claims[i]);
    return least.claim;
}

/* What an application has once every core with a key below `level` was dealt: by division, and then exactly. */
static uint32_t below(const struct claim *c, double level)
{
    double plain = (level - c->lag) / c->step - 1, held = plain + c->slice / c->step;
    double about = cl_max(plain, cl_min(held, (double)c->held));
    uint32_t g = about <= (double)c->granted ? c->granted : about >= (double)c->want ? c->want : (uint32_t)about;
    while (g > c->granted && key_of(c, g - 1) >= level)
        g--;
    while (g < c->want && key_of(c, g) < level)
        g++;
    return g;
}

/* Deal most of many cores at once: all with a key below the highest level found for which they do not exceed `left`.
 * Returns what is left, mostly fewer cores than there are claims. */
static uint32_t deal_level(struct claim *claims, uint32_t n, uint32_t left)
{
    double lo = key_of(&claims[0], claims[0].granted), hi = lo;
    for (uint32_t i = 0; i < n; i++) {
        lo = cl_min(lo, key_of(&claims[i], claims[i].granted));
        hi = cl_max(hi, key_of(&claims[i], claims[i].granted + left));
    }
    uint32_t fits = 0;
    for (unsigned k = 0; k < BISECTIONS && left - fits > n; k++) {
        double middle = lo + (hi - lo) / 2;
        uint64_t dealt = 0;
        for (uint32_t i = 0; i < n; i++)
            dealt += below(&claims[i], middle) - claims[i].granted;
        if (dealt <= left) {
            lo = middle;
            fits = (uint32_t)dealt;
        } else {
            hi = middle;
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        claims[i].app->grant = claims[i].granted = below(&claims[i], lo);
        set_key(&claims[i]);
    }
    return left - fits;
}

/* Returns what is left. */
static uint32_t deal(struct claims *of, uint32_t cores, double slice_ns, double credit_ns)
{
    struct claim *claims = of->claim;
    uint32_t n = of->n;
    if (n == 0)
        return cores;
    struct claim *least = bound_lags(claims, n, of->sum / of->weights, slice_ns, credit_ns);
    if (cores == 0)
        return 0;
    if (cores > 2 * n) {
        cores = deal_level(claims, n, cores);
        least = least_of(claims, n);
    }
    while (cores && least->granted < least->want) {
        least->app->grant = ++least->granted;
        if (--cores == 0)
            break;
        set_key(least);
        least = least_of(claims, n);
    }
    for (uint32_t i = 0; i < n; i++)
        if (claims[i].app->kind == CL_POLICY_BATCH)
            claims[i].app->memory[1] = claims[i].granted;
    return cores;
}

uint32_t cl_policy_deal(const struct cl_policy_view *view, struct cl_policy_app *apps, uint32_t kind,
                        uint32_t (*want)(const struct cl_policy_app *), uint32_t cores, double slice_ns,
                        double credit_ns)
{
    struct claims claims;
    claims_begin(&claims, view);
    for (uint32_t i = 0; i < rows_of(view); i++)
        if (apps[i].kind == kind)
            claims_add(&claims, &apps[i], want(&apps[i]));
    return deal(&claims, cores, slice_ns, credit_ns);
}

uint32_t cl_policy_wanted(const struct cl_policy_app *a)
{
    if (a->kind == CL_POLICY_BATCH)
        return a->demand;
    uint32_t busy = a->cores - cl_min(a->idle, a->cores);
    return cl_min(a->demand, cl_policy_oldest_ns(a) ? a->cores + 1 : busy);
}

uint32_t cl_policy_latency_first(const struct cl_policy_view *view, struct cl_policy_app *apps, double slice_ns,
                                 double credit_ns)
{
    uint32_t left = view->n_cores;
    for (uint32_t kind = CL_POLICY_LATENCY; kind <= CL_POLICY_BATCH; kind++)
        for (uint32_t i = 0; i < view->n_apps; i++) {
            struct cl_policy_app *a = &apps[i];
            if (a->kind != kind)
                continue;
            a->grant = cl_min(cl_min(cl_policy_wanted(a), a->guaranteed), left);
            left -= a->grant;
        }
    return cl_policy_deal(view, apps, CL_POLICY_LATENCY, cl_policy_wanted, left, slice_ns, credit_ns);
}

/* The latency applications want more than the cores that are left. */
static CL_NOINLINE void share_latency(const struct cl_policy_view *view, struct cl_policy_app *apps, uint64_t left)
{
    struct claims claims;
    uint64_t sure = 0;
    claims_begin(&claims, view);
    for (uint32_t i = 0; i < rows_of(view); i++) {
        struct cl_policy_app *a = &apps[i];
        if (a->kind == CL_POLICY_BATCH)
            continue;
        uint32_t asked = a->grant;
        a->grant = cl_min(asked, a->guaranteed);
        sure += a->grant;
        claims_add(&claims, a, asked);
    }
    double credit_ns = cl_max(LATENCY_CREDIT_NS, 4.0 * (double)view->interval_ns);
    deal(&claims, (uint32_t)(cl_max(left, sure) - sure), LATENCY_SLICE_NS, credit_ns);
}

uint32_t cl_policy_share(const struct cl_policy_view *view, struct cl_policy_app *apps)
{
    struct cl_policy_app
        *owed[CL_POLICY_MAX_APPS]; /* latency applications that have a lag, or ran since the last call */
    struct claims claims;
    uint32_t n_owed = 0;
    uint64_t wanted = 0, kept = 0;
    claims_begin(&claims, view);
    for (uint32_t i = 0; i < rows_of(view); i++) {
        struct cl_policy_app *a = &apps[i];
        if (a->kind == CL_POLICY_BATCH) {
            a->grant = cl_min(a->guaranteed, a->demand);
            kept += a->grant;
            claims_add(&claims, a, a->demand);
        } else {
            wanted += a->grant;
            if (a->memory[2] != a->attained_ns || a->memory[3])
                owed[n_owed++] = a;
        }
    }
    uint64_t left = cl_max(view->n_cores, kept) - kept;
    if (cl_unlikely(wanted > left)) {
        share_latency(view, apps, left);
        left = wanted; /* they have all of it */
    } else {
        for (uint32_t i = 0; i < n_owed; i++) { /* nobody goes without, so nobody is owed anything */
            owed[i]->memory[2] = owed[i]->attained_ns;
            keep_lag(owed[i], 0);
        }
    }
    return deal(&claims, (uint32_t)(left - wanted), SLICE_NS, CREDIT_NS);
}

void cl_policy_share_left(const struct cl_policy_view *view, struct cl_policy_app *apps)
{
    struct claims claims;
    uint64_t used = 0;
    claims_begin(&claims, view);
    for (uint32_t i = 0; i < rows_of(view); i++) {
        used += apps[i].grant;
        if (apps[i].kind == CL_POLICY_BATCH)
            claims_add(&claims, &apps[i], apps[i].demand);
    }
    deal(&claims, used < view->n_cores ? (uint32_t)(view->n_cores - used) : 0, SLICE_NS, CREDIT_NS);
}

void cl_policy_share_rest(const struct cl_policy_view *view, struct cl_policy_app *apps, uint32_t left)
{
    for (uint32_t i = 0; i < view->n_apps && left; i++) {
        struct cl_policy_app *a = &apps[i];
        if (a->kind == CL_POLICY_BATCH || a->grant > a->cores || a->grant >= a->demand || !cl_policy_oldest_ns(a))
            continue;
        a->grant++;
        left--;
    }
}

/* attained: batch applications by the service that they have attained, in levels: whoever has had least goes first, and
 * need not say how long its work is.
 *
 * After the discretised two-dimensional least attained service of Tiresias (NSDI 2019). Service is core time, cores
 * times time, so that an application on four cores rises four times as fast; over its weight. Its level is how many of
 * the limits `first_us`, first_us * ratio, first_us * ratio^2, ... it has gone beyond, `levels` - 1 of them. The lowest
 * level has the cores that it can use; within a level whoever counted as new first, so that equals take no cores from
 * each other. An application above the first level that has been without a core for `promote` times its service, but
 * for no more than that many times the last limit, counts as new, whether it waited or had nothing to do. So of n of
 * them none waits for longer than promote * the last limit + (n - 1) * first_us, on a core that batch work has.
 *
 * Latency applications go before, as under `fair` (deal.h).
 *
 * params[0]: first limit, ns (default 10 ms). params[1]: ratio (10). params[2]: levels, 2 to 16 (3). params[3]:
 * promote (8). Words of memory: below, of batch applications; of latency applications deal.h's. */
#include "deal.h"

#define DEFAULT_FIRST_NS 10000000
#define DEFAULT_RATIO 10
#define DEFAULT_LEVELS 3
#define DEFAULT_PROMOTE 8
#define MOST_LEVELS 16
#define LATENCY_SLICE_NS 50000.0
#define LATENCY_CREDIT_NS 10000000.0

enum {
    FROM,    /* attained_ns when it counted as new last */
    SINCE,   /* and when that was; 0: it has not been seen yet */
    WITHOUT, /* ns that it has been without a core since then */
    SEEN,    /* now_ns of the last call */
};

struct levels {
    uint32_t n;
    uint64_t promote;
    uint64_t limit_ns[MOST_LEVELS]; /* of each level but the last, which has none */
};

struct turn {
    struct cl_policy_app *app;
    uint32_t level;
    uint64_t since;
};

static uint64_t times(uint64_t a, uint64_t b)
{
    uint64_t product;
    return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

static void levels_of(struct levels *l, const uint64_t *params)
{
    uint64_t ratio = params[1] ? params[1] : DEFAULT_RATIO, n = params[2] ? params[2] : DEFAULT_LEVELS;
    l->n = (uint32_t)cl_max(cl_min(n, (uint64_t)MOST_LEVELS), (uint64_t)2);
    l->promote = params[3] ? params[3] : DEFAULT_PROMOTE;
    l->limit_ns[0] = params[0] ? params[0] : DEFAULT_FIRST_NS;
    for (uint32_t i = 1; i < l->n; i++)
        l->limit_ns[i] = times(l->limit_ns[i - 1], ratio);
}

static uint32_t level_of(const struct levels *l, uint64_t served_ns)
{
    uint32_t level = 0;
    while (level + 1 < l->n && served_ns >= l->limit_ns[level])
        level++;
    return level;
}

static void count_as_new(struct cl_policy_app *a, uint64_t now)
{
    a->memory[FROM] = a->attained_ns;
    a->memory[SINCE] = now;
    a->memory[WITHOUT] = 0;
}

/* Bring what is known of it up to now. Returns its level. */
static uint32_t note(const struct levels *l, struct cl_policy_app *a, uint64_t now)
{
    uint64_t *m = a->memory;
    if (m[SINCE] == 0)
        count_as_new(a, now);
    else if (a->cores == 0)
        m[WITHOUT] += now - m[SEEN];
    m[SEEN] = now;
    uint64_t served_ns = (a->attained_ns - m[FROM]) / cl_max(a->weight, 1u);
    uint32_t level = level_of(l, served_ns);
    uint64_t last_ns = l->limit_ns[l->n - 2];
    if (level == 0 || a->cores || m[WITHOUT] <= times(l->promote, cl_min(served_ns, last_ns)))
        return level;
    count_as_new(a, now);
    return 0;
}

static bool goes_before(const struct turn *a, const struct turn *b)
{
    if (a->level != b->level)
        return a->level < b->level;
    return a->since != b->since ? a->since < b->since : a->app < b->app; /* the order of the table */
}

/* A heap, whose first goes before all others: of `n`, turn `at` may belong further down. */
static void sift(struct turn *turns, uint32_t n, uint32_t at)
{
    struct turn moved = turns[at];
    for (uint32_t next; (next = 2 * at + 1) < n; at = next) {
        if (next + 1 < n && goes_before(&turns[next + 1], &turns[next]))
            next++;
        if (goes_before(&moved, &turns[next]))
            break;
        turns[at] = turns[next];
    }
    turns[at] = moved;
}

static void give_in_turn(struct turn *turns, uint32_t n, uint32_t left)
{
    for (uint32_t i = n / 2; i-- > 0;)
        sift(turns, n, i);
    while (n && left) {
        struct cl_policy_app *a = turns[0].app;
        uint32_t more = cl_min(a->demand - a->grant, left);
        a->grant += more;
        left -= more;
        turns[0] = turns[--n];
        sift(turns, n, 0);
    }
}

void cl_policy_attained(const struct cl_policy_view *view, struct cl_policy_app *apps)
{
    struct turn turns[CL_POLICY_MAX_APPS];
    struct levels levels;
    uint32_t n = 0, left = cl_policy_latency_first(view, apps, LATENCY_SLICE_NS, LATENCY_CREDIT_NS);
    levels_of(&levels, view->params);
    for (uint32_t i = 0; i < cl_min(view->n_apps, (uint32_t)CL_POLICY_MAX_APPS); i++) {
        struct cl_policy_app *a = &apps[i];
        if (a->kind != CL_POLICY_BATCH)
            continue;
        uint32_t level = note(&levels, a, cl_max(view->now_ns, (uint64_t)1));
        if (a->demand > a->grant)
            turns[n++] = (struct turn){a, level, a->memory[SINCE]};
    }
    give_in_turn(turns, n, left);
}

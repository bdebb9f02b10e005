/* See arrivals.h.
 *
 *   Poisson  exponential gaps.
 *   uniform  constant gaps.
 *   bursty   bursts of a geometric number of requests (mean `burst`). Within a burst gaps are exponential with mean
 * `duty`, and between bursts another exponential gap of mean (1 - duty) * burst: the mean over all requests is 1, and
 *            bursts take the fraction `duty` of time. duty 0 is batch Poisson, duty 1 is Poisson. */
#include "arrivals.h"

#include "loadgen.h"
#include "../../random.h"

#include <errno.h>
#include <stdlib.h>

static double draw_one(struct cl_random *r, uint32_t arrivals, uint32_t burst, double duty)
{
    switch (arrivals) {
    case CL_ARRIVALS_POISSON:
        return cl_random_exp(r);
    case CL_ARRIVALS_BURSTY: {
        double gap = duty > 0 ? duty * cl_random_exp(r) : 0;
        if (cl_random_unit(r) * burst <= 1) /* a burst ends with probability 1 / burst */
            gap += (1 - duty) * burst * cl_random_exp(r);
        return gap;
    }
    default:
        return 1;
    }
}

int cl_load_draw_gaps(uint32_t arrivals, uint64_t seed, uint32_t burst, double duty, double *out, uint32_t n)
{
    if (arrivals > CL_ARRIVALS_CLOSED || burst == 0 || !(duty >= 0 && duty <= 1))
        return -EINVAL;
    struct cl_random r = {seed ^ 0x6172726976616c73ull}; /* so that gaps, keys and faults of one seed are unrelated */
    for (uint32_t i = 0; i < n; i++)
        out[i] = draw_one(&r, arrivals, burst, duty);
    return 0;
}

int cl_gaps_draw(struct cl_gaps *g, uint32_t arrivals, uint64_t seed, uint32_t burst, double duty)
{
    bool constant = arrivals == CL_ARRIVALS_UNIFORM || arrivals == CL_ARRIVALS_CLOSED;
    uint32_t n = constant ? 1 : CL_GAPS;
    double *drawn = malloc(n * sizeof(*drawn));
    g->table = malloc(n * sizeof(*g->table));
    int rc = drawn && g->table ? cl_load_draw_gaps(arrivals, seed, burst, duty, drawn, n) : -ENOMEM;
    if (rc) {
        free(drawn);
        cl_gaps_free(g);
        return rc;
    }
    double sum = 0, largest = 0;
    for (uint32_t i = 0; i < n; i++) {
        sum += drawn[i];
        largest = cl_max(largest, drawn[i]);
    }
    /* Scaled so that the mean is exactly 1: the offered rate is the one asked for, not its estimate by n draws. The
     * largest gap decides how many binary places fit into 32 bits. */
    double scale = n / sum;
    g->shift = 31;
    while (g->shift > 0 && ldexp(largest * scale, (int)g->shift) >= 4294967295.0)
        g->shift--;
    for (uint32_t i = 0; i < n; i++)
        g->table[i] = (uint32_t)(ldexp(drawn[i] * scale, (int)g->shift) + 0.5);
    g->mask = n - 1;
    free(drawn);
    return 0;
}

void cl_gaps_free(struct cl_gaps *g)
{
    free(g->table);
    g->table = NULL;
}

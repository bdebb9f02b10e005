/* How many of the requests that wait are handled together, and which of them come too late: the rule, without queues.
 *
 * A batch of n requests takes about fixed + each * n (Nexus, SOSP 2019, calls it the batch latency profile of a model). It is
 * fitted online by least squares over batches that ran, in which old ones count less and less. An answer has
 * to be out `limit` after its request came. So a batch whose oldest request came at `since` and starts at `now` may have as
 * many as fit into since + limit - now.
 *
 * Early drop, after the same paper: if the oldest can have small batches only, it would cost many others their answers,
 * since what a batch takes at least is paid for few. So the largest batch that is in time for all that are in it is looked
 * for, from the oldest on; who came before it is dropped. A request that can no longer be answered in time is the
 * simplest case of this. Dropping only those that are late already would leave at the head, in overload, requests
 * whose time is nearly over: each batch would be small, or late.
 *
 * Tests: tests/libos/net/test_batching.py (the rule against a search, the fit against known profiles). */
#ifndef CORELANE_LIBOS_NET_BATCHING_H
#define CORELANE_LIBOS_NET_BATCHING_H

#include <corelane/libos/udp.h>

#define CL_BATCH_MEMORY 32   /* batches: those before count for less than a third */
#define CL_BATCH_PRIOR 0.25  /* requests squared: the least spread of sizes that tells what a request adds */
#define CL_BATCH_SPREADS 2.0 /* how many times its usual error a batch is allowed to take longer */
#define CL_BATCH_WAKING 8    /* the part of the limit by which waiting ends early */
#define CL_BATCH_OUTLIER 4.0 /* as many times what was expected a batch counts at most: a core may have been lost */

/* What a batch takes, in ticks. Zeroed: nothing is known. */
struct cl_batch_model {
    double fixed, each; /* both >= 0 */
    double spread;      /* mean distance of what a batch took from that */
    double mean_n, mean_t, var_n, cov;
    uint64_t seen; /* batches */
};

/* A batch of n is expected to take so many ticks, with some to spare. */
static inline double cl_batch_cost(const struct cl_batch_model *m, unsigned n)
{
    return m->fixed + m->each * n + CL_BATCH_SPREADS * m->spread;
}

/* A batch of n took so many ticks. */
static inline void cl_batch_learn(struct cl_batch_model *m, unsigned n, double ticks)
{
    double expected = m->fixed + m->each * n, weight = 1.0 / (double)cl_min(m->seen + 1, (uint64_t)CL_BATCH_MEMORY);
    if (m->seen && ticks > CL_BATCH_OUTLIER * expected)
        ticks = CL_BATCH_OUTLIER * expected;
    double dn = n - m->mean_n, dt = ticks - m->mean_t;
    m->mean_n += weight * dn;
    m->mean_t += weight * dt;
    m->var_n = (1 - weight) * (m->var_n + weight * dn * dn);
    m->cov = (1 - weight) * (m->cov + weight * dn * dt);
    /* Where all batches are of one size nothing is said of what a request adds: then what was known of it stays. At
     * first that is nothing, so a larger batch is tried soon. */
    double each = (m->cov + CL_BATCH_PRIOR * m->each) / (m->var_n + CL_BATCH_PRIOR);
    m->each = each < 0 ? 0 : cl_min(each, m->mean_t / m->mean_n);
    m->fixed = m->mean_t - m->each * m->mean_n;
    double error =
        ticks - m->fixed - m->each * n; /* by what is known now: the first guesses say nothing of the handler */
    m->spread += weight * ((error < 0 ? -error : error) - m->spread);
    m->seen++;
}

/* What a handler asks for. */
struct cl_batch_rule {
    uint32_t batch;       /* most at a time, 1..CL_UDP_BURST */
    bool drops;           /* those that cannot be answered in time */
    uint64_t limit_ticks; /* from when a request came to when its answer is out; 0: there is none */
    uint64_t wait_ticks;  /* how long one waits for others while a kthread is free */
};

/* So many are dropped from the oldest on, and so many of the next are handled together. */
struct cl_batch_choice {
    unsigned drop, take;
};

/* How many of a batch are in time if its oldest came at `since`; 0: not even one. What is to spare is at most half of what
 * one that comes now could wait: a handler whose batches differ much is to have some all the same. */
static inline unsigned cl_batch_fits(const struct cl_batch_rule *r, const struct cl_batch_model *m, uint64_t since,
                                     uint64_t now)
{
    double room = (double)r->limit_ticks - m->fixed - m->each, spare = CL_BATCH_SPREADS * m->spread;
    double left = (double)(int64_t)(since + r->limit_ticks - now) - m->fixed - cl_min(spare, room / 2);
    if (room <= 0 || left < m->each || left <= 0)
        return 0;
    return left >= m->each * r->batch ? r->batch : (unsigned)(left / m->each);
}

/* n >= 1 requests came at since[first], since[first + 1], ... (modulo mask + 1), in this order. */
static inline struct cl_batch_choice cl_batch_choose(const struct cl_batch_rule *r, const struct cl_batch_model *m,
                                                     const uint64_t *since, uint32_t first, uint32_t mask, unsigned n,
                                                     uint64_t now)
{
    struct cl_batch_choice best = {n, 0};
    if (!r->limit_ticks)
        return (struct cl_batch_choice){0, cl_min(n, r->batch)};
    if (!r->drops) {
        unsigned fits = cl_batch_fits(r, m, since[first & mask], now);
        return (struct cl_batch_choice){0, cl_min(n, fits ? fits : r->batch)}; /* late: soon over with */
    }
    if (cl_batch_fits(r, m, now, now) == 0)
        /* Not even one that comes now would be in time: the handler is too slow, or was for a moment. One is handled, with
         * the best chance, for else nobody would ever know better. */
        return (struct cl_batch_choice){n - 1, 1};
    for (unsigned at = 0; at < n; at++) {
        unsigned most = cl_min(n - at, r->batch);
        if (most <= best.take)
            break; /* later ones leave no more */
        unsigned fits = cl_min(most, cl_batch_fits(r, m, since[(first + at) & mask], now));
        if (fits > best.take)
            best = (struct cl_batch_choice){at, fits};
        if (fits == most)
            break;
    }
    return best;
}

/* When n requests, fewer than a batch, of which the oldest came at `since`, are to be handled although others may come.
 * Some of the limit is left, for the kthread may sleep meanwhile, and wakes late. */
static inline uint64_t cl_batch_start_by(const struct cl_batch_rule *r, const struct cl_batch_model *m, uint64_t since,
                                         unsigned n)
{
    uint64_t by = since + r->wait_ticks, left = r->limit_ticks - r->limit_ticks / CL_BATCH_WAKING;
    double cost = cl_batch_cost(m, n);
    if (!r->limit_ticks)
        return by;
    if (!m->seen || cost >= (double)left)
        return since; /* the first ones tell what they take */
    return cl_min(by, since + left -
                          (uint64_t)cost); /* one that comes until then makes it longer, and is there to be seen */
}

#endif

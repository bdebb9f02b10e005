/* How many of the requests that wait are handled together, and which of them come too late: the rule, without queues.
 *
 * What a batch of n requests takes is learnt while they run. A line, fixed + each * n (Nexus, SOSP 2019, calls it the
 * batch latency profile of a model), is fitted by least squares over batches that ran, in which old ones count less and
 * less. It says what sizes take that have not been seen of late. Of those that have, the mean is known: one request
 * alone may be computed in another way, and registers have so many lanes.
 *
 * An answer has to be out `limit` after its request came. A batch that is in time for its oldest request is so for all
 * in it. Of the batches that are, the one that answers most requests a tick is the best; where a batch gains nothing
 * that is one request. Which of the waiting begin it is the question:
 *
 *   If all that wait are in time when they are handled in their order, each time the best batch that is, nobody is
 *   dropped. Else, early drop, after the same paper: the oldest may have so little time left that it allows only
 *   batches that answer few a tick, and would cost many others their answers. So the best batch is looked for, from the
 *   oldest on; who came before it is dropped. A request that can no longer be answered in time is the simplest case of
 *   this.
 *
 * Where nobody is in time by what is expected, the youngest is handled, unless its time is over: it costs nobody
 * anything, and shows whether what is expected still holds.
 *
 * A size that was never seen may be better than what the line says of it. So now and then one is tried, not larger than
 * twice what is known.
 *
 * Tests: tests/libos/net/test_batching.py (the rule against a search, the fit against known profiles, and against every
 * fixed rule in virtual time). */
#ifndef CORELANE_LIBOS_NET_BATCHING_H
#define CORELANE_LIBOS_NET_BATCHING_H

#include <corelane/libos/udp.h>

#include <math.h>

#define CL_BATCH_MEMORY 32     /* batches: those before count for less than a third */
#define CL_BATCH_PRIOR 0.25    /* requests squared: the least spread of sizes that tells what a request adds */
#define CL_BATCH_SPREADS 2.0   /* how many times its usual error a batch is allowed to take longer */
#define CL_BATCH_WAKING 8      /* the part of the limit by which waiting ends early */
#define CL_BATCH_OF_SIZE 4.0   /* batches of a size that are remembered of it, about */
#define CL_BATCH_ANEW 8        /* batches, until what all sizes take is worked out anew */
#define CL_BATCH_KEPT 0.984    /* of what is remembered of sizes, in that time: 350 batches to forget half */
#define CL_BATCH_LINE 0.25     /* batches of a size that the line counts for */
#define CL_BATCH_KNOWN 0.5     /* batches of a size that are left of memory: below, it is not known */
#define CL_BATCH_TRY 16        /* batches of known sizes between two that are tried; doubled where one was no better */
#define CL_BATCH_TRIES 1024    /* at most */
#define CL_BATCH_BETTER 1.01   /* as many times another's rate is a better one; below, the smaller batch is as good */
#define CL_BATCH_OUTLIER 2.0   /* as many times what was expected a batch counts at most: a core may have been lost */
#define CL_BATCH_SURPRISE 64.0 /* the same of a size that is not known: it may take as many times what one does */
#define CL_BATCH_STRAY 3.0     /* as many times the usual error one counts at most, for the same reason */

/* What a batch takes, in ticks. Zeroed: nothing is known. */
struct cl_batch_model {
    double fixed, each; /* the line; both >= 0 */
    double spread;      /* mean distance of what a batch took from what was expected of it */
    double mean_n, mean_t, var_n, cov;
    uint64_t seen;    /* batches */
    uint32_t untried; /* batches since one was of a size that was not known */
    uint32_t gap;     /* of these, until one is tried */
    /* By size. mean: of what they took, old ones count less and less. weight: their number, of which less and less is
     * left when a size is not seen. takes: what is expected; rate: requests a tick by that. */
    double mean[CL_UDP_BURST + 1], weight[CL_UDP_BURST + 1], takes[CL_UDP_BURST + 1], rate[CL_UDP_BURST + 1];
    double least;                   /* of takes */
    uint8_t best[CL_UDP_BURST + 1]; /* of the sizes up to each: the one with the best rate */
};

/* A batch of n is expected to take so many ticks, with some to spare. */
static inline double cl_batch_cost(const struct cl_batch_model *m, unsigned n)
{
    return m->takes[n] + CL_BATCH_SPREADS * m->spread;
}

static inline bool cl_batch_known(const struct cl_batch_model *m, unsigned n)
{
    return m->weight[n] >= CL_BATCH_KNOWN;
}

static inline void cl_batch_expect_of(struct cl_batch_model *m, unsigned n)
{
    double line = CL_BATCH_LINE * (m->fixed + m->each * n);
    m->takes[n] = (m->weight[n] * m->mean[n] + line) / (m->weight[n] + CL_BATCH_LINE);
    m->rate[n] = n / (m->takes[n] + 1); /* a tick: of what takes none, more are better */
}

/* What follows from the line and what is known of sizes. */
static inline void cl_batch_expect(struct cl_batch_model *m)
{
    m->least = INFINITY;
    for (unsigned n = 1; n <= CL_UDP_BURST; n++) {
        cl_batch_expect_of(m, n);
        m->least = cl_min(m->least, m->takes[n]);
        m->best[n] = m->rate[n] > CL_BATCH_BETTER * m->rate[m->best[n - 1]] ? (uint8_t)n : m->best[n - 1];
    }
}

static inline void cl_batch_fit(struct cl_batch_model *m, unsigned n, double ticks)
{
    double weight = 1.0 / (double)cl_min(m->seen + 1, (uint64_t)CL_BATCH_MEMORY);
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
}

/* A batch of n, 1..CL_UDP_BURST, took so many ticks. */
static inline void cl_batch_learn(struct cl_batch_model *m, unsigned n, double ticks)
{
    bool known = cl_batch_known(m, n);
    if (m->seen)
        ticks = cl_min(ticks, (known ? CL_BATCH_OUTLIER : CL_BATCH_SURPRISE) * m->takes[n]);
    m->untried = known ? m->untried + 1 : 0;
    cl_batch_fit(m, n, ticks);
    m->weight[n] += 1 - m->weight[n] / CL_BATCH_OF_SIZE;
    m->mean[n] += (ticks - m->mean[n]) / cl_max(m->weight[n], 1.0);
    cl_batch_expect_of(m, n);
    if (!known || m->seen % CL_BATCH_ANEW == 0) { /* for all sizes, seldom: a batch may take less than this does */
        cl_batch_expect(m);
        for (unsigned i = 1; i <= CL_UDP_BURST; i++)
            m->weight[i] *= CL_BATCH_KEPT;
    }
    if (!known)
        m->gap =
            m->best[CL_UDP_BURST] == n ? CL_BATCH_TRY : cl_min(2 * m->gap + CL_BATCH_TRY, (uint32_t)CL_BATCH_TRIES);
    /* By what is known now: the first guesses say nothing of the handler. */
    double error = ticks > m->takes[n] ? ticks - m->takes[n] : m->takes[n] - ticks;
    error = cl_min(error, CL_BATCH_STRAY * m->spread + m->takes[n] / CL_BATCH_MEMORY);
    m->spread += (error - m->spread) / (double)cl_min(m->seen + 1, (uint64_t)CL_BATCH_MEMORY);
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

/* Ticks that a batch may be expected to take if its oldest request came at `since`; what is to spare is at most half of
 * what one that comes now could wait: a handler whose batches differ much is to have some all the same. */
static inline double cl_batch_left(const struct cl_batch_rule *r, const struct cl_batch_model *m, uint64_t since,
                                   uint64_t now)
{
    double spare = CL_BATCH_SPREADS * m->spread, room = (double)r->limit_ticks - m->takes[1];
    return (double)(int64_t)(since + r->limit_ticks - now) - cl_min(spare, cl_max(room, 0.0) / 2);
}

/* Of 1..most the size with the best rate that takes no longer than `left`; 0: there is none. */
static inline unsigned cl_batch_best(const struct cl_batch_model *m, unsigned most, double left)
{
    if (left <= m->least)
        return 0;
    unsigned best = m->seen ? m->best[most] : most;
    if (cl_likely(m->takes[best] < left))
        return best;
    best = 0; /* whose rate is 0 */
    for (unsigned n = 1; n <= most; n++)
        if (m->takes[n] < left && m->rate[n] > CL_BATCH_BETTER * m->rate[best])
            best = n;
    return best;
}

/* Requests that wait came at since[first], since[first + 1], ... (modulo mask + 1), in this order. */
struct cl_batch_queue {
    const uint64_t *since;
    uint32_t first, mask;
    unsigned n;
};

static inline uint64_t cl_batch_since(const struct cl_batch_queue *q, unsigned at)
{
    return q->since[(q->first + at) & q->mask];
}

/* Whether all from `at` on are in time, in their order. */
static inline bool cl_batch_all(const struct cl_batch_rule *r, const struct cl_batch_model *m,
                                const struct cl_batch_queue *q, unsigned at, uint64_t now)
{
    double later = 0;
    while (at < q->n) {
        double left = cl_batch_left(r, m, cl_batch_since(q, at), now) - later;
        unsigned take = cl_batch_best(m, cl_min(q->n - at, r->batch), left);
        if (!take)
            return false;
        later += m->takes[take];
        at += take;
    }
    return true;
}

/* A larger batch than was chosen, of a size that is not known yet; or the one that was chosen. */
static inline unsigned cl_batch_try(const struct cl_batch_model *m, unsigned chosen, unsigned most, double left)
{
    unsigned known = chosen;
    if (most == chosen || m->untried < m->gap)
        return chosen;
    for (unsigned n = chosen + 1; n <= most; n++)
        known = cl_batch_known(m, n) ? n : known;
    unsigned size = cl_min(2 * known, most);
    while (size > chosen && cl_batch_known(m, size))
        size--;
    /* If it takes what the line says it is in time, and not much worse. */
    return size > chosen && m->takes[size] < left && m->rate[size] > m->rate[chosen] / 2 ? size : chosen;
}

/* n >= 1 requests wait. */
static inline struct cl_batch_choice cl_batch_choose(const struct cl_batch_rule *r, const struct cl_batch_model *m,
                                                     const struct cl_batch_queue *q, uint64_t now)
{
    struct cl_batch_choice best = {q->n, 0};
    unsigned n = q->n, late = 0;
    if (!r->limit_ticks)
        return (struct cl_batch_choice){0, cl_min(n, r->batch)};
    if (!r->drops) {
        unsigned most = cl_min(n, r->batch);
        unsigned fits = cl_batch_best(m, most, cl_batch_left(r, m, cl_batch_since(q, 0), now));
        return (struct cl_batch_choice){0, fits ? fits : most}; /* late: soon over with */
    }
    if (!cl_batch_best(m, r->batch, cl_batch_left(r, m, now, now)))
        /* Not even one that comes now would be in time: the handler is too slow, or was for a moment. One is handled,
         * with the best chance, for else nobody would ever know better. */
        return (struct cl_batch_choice){n - 1, 1};
    for (unsigned at = 0; at < n; at++) {
        unsigned most = cl_min(n - at, r->batch);
        if (best.take && m->rate[m->best[most]] <= CL_BATCH_BETTER * m->rate[best.take])
            break; /* later ones leave nothing better */
        unsigned take = cl_batch_best(m, most, cl_batch_left(r, m, cl_batch_since(q, at), now));
        late += !take && late == at;
        if (take && (!best.take || m->rate[take] > CL_BATCH_BETTER * m->rate[best.take]))
            best = (struct cl_batch_choice){at, take};
    }
    if (best.drop > late && cl_batch_all(r, m, q, late, now)) {
        double left = cl_batch_left(r, m, cl_batch_since(q, late), now);
        best = (struct cl_batch_choice){late, cl_batch_best(m, cl_min(n - late, r->batch), left)};
    }
    if (!best.take && (int64_t)(cl_batch_since(q, n - 1) + r->limit_ticks - now) > 0)
        /* Nobody else is kept waiting, and what is expected may be wrong: if nobody were handled it would stay so. */
        return (struct cl_batch_choice){n - 1, 1};
    if (best.take)
        best.take = cl_batch_try(m, best.take, cl_min(n - best.drop, r->batch),
                                 cl_batch_left(r, m, cl_batch_since(q, best.drop), now));
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

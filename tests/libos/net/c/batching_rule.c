/* The inline functions of net/batching.h for tests/libos/net/test_batching.py. */
#include "libos/net/batching.h"

CL_API void rule_learn(struct cl_batch_model *m, uint32_t n, double ticks)
{
    cl_batch_learn(m, n, ticks);
}

CL_API double rule_cost(const struct cl_batch_model *m, uint32_t n)
{
    return cl_batch_cost(m, n);
}

/* How many are dropped << 32, and how many taken; no size is tried out. The n requests lie in `since` from
 * places[first] on, mask + 1 places. */
CL_API uint64_t rule_choose(uint32_t batch, uint32_t drops, uint64_t limit, double fixed, double each,
                            const uint64_t *since, uint32_t first, uint32_t mask, uint32_t n, uint64_t now)
{
    struct cl_batch_rule rule = {.batch = batch, .drops = drops != 0, .limit_ticks = limit};
    struct cl_batch_model model = {.fixed = fixed, .each = each, .seen = 1, .gap = 1};
    cl_batch_expect(&model);
    struct cl_batch_queue queue = {since, first, mask, n};
    struct cl_batch_choice choice = cl_batch_choose(&rule, &model, &queue, now);
    return (uint64_t)choice.drop << 32 | choice.take;
}

CL_API uint64_t rule_start_by(uint64_t limit, uint64_t wait, double fixed, double each, uint64_t since, uint32_t n)
{
    struct cl_batch_rule rule = {.batch = 32, .limit_ticks = limit, .wait_ticks = wait};
    struct cl_batch_model model = {.fixed = fixed, .each = each, .seen = 1};
    cl_batch_expect(&model);
    return cl_batch_start_by(&rule, &model, since, n);
}

#define PLACES 512

/* A service in virtual time, that works whenever somebody is to be handled. */
struct service {
    const uint64_t *came; /* ascending; n in all, of which `next` is the first that has not come */
    uint32_t n, next;
    uint64_t since[PLACES];
    struct cl_batch_queue q;
    uint32_t room;
};

static void arrive(struct service *s, uint64_t now, bool drops)
{
    for (; s->next < s->n && s->came[s->next] <= now; s->next++) {
        if (s->q.n == s->room && !drops)
            continue;
        if (s->q.n == s->room) {
            s->q.first++;
            s->q.n--;
        }
        s->since[(s->q.first + s->q.n++) & (PLACES - 1)] = s->came[s->next];
    }
}

/* Until a batch is full, or the oldest has waited for so long. */
static uint64_t gather(struct service *s, const struct cl_batch_rule *rule, uint64_t now)
{
    uint64_t by = cl_batch_since(&s->q, 0) + rule->wait_ticks;
    while (s->q.n < rule->batch && now < by) {
        now = s->next < s->n ? cl_min(by, s->came[s->next]) : by;
        arrive(s, now, false);
    }
    return now;
}

/* How many of n requests are answered within `limit`. takes: ticks of batches of 1, 2, ...; each differs by up to the
 * part `noise`. room: how many may wait. fixed: batches of up to `batch` that wait for `wait` ticks, and nobody is
 * dropped who found room; else the rule, which learns what they take. */
CL_API uint32_t rule_served(const uint64_t *came, uint32_t n, const double *takes, double noise, uint64_t limit,
                            uint32_t batch, uint64_t wait, uint32_t room, uint32_t fixed)
{
    struct service s = {.came = came, .n = n, .room = room};
    struct cl_batch_rule rule = {.batch = batch, .drops = !fixed, .limit_ticks = fixed ? 0 : limit, .wait_ticks = wait};
    struct cl_batch_model model = {0};
    uint64_t now = 0, random = 88172645463325252u;
    uint32_t good = 0;
    s.q.since = s.since;
    s.q.mask = PLACES - 1;
    while (s.next < n || s.q.n) {
        if (s.q.n == 0)
            now = cl_max(now, came[s.next]);
        arrive(&s, now, !fixed);
        if (fixed)
            now = gather(&s, &rule, now);
        struct cl_batch_choice choice = cl_batch_choose(&rule, &model, &s.q, now);
        s.q.first += choice.drop;
        s.q.n -= choice.drop;
        if (choice.take == 0)
            continue;
        random = random * 6364136223846793005u + 1442695040888963407u;
        double took = takes[choice.take - 1] * (1 + noise * (2.0 * (double)(random >> 32) / 4294967296.0 - 1));
        uint64_t end = now + (uint64_t)took;
        cl_batch_learn(&model, choice.take, took);
        for (; choice.take; choice.take--, s.q.first++, s.q.n--)
            good += end - cl_batch_since(&s.q, 0) <= limit;
        now = end;
    }
    return good;
}

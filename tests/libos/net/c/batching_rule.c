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

/* How many are dropped << 32, and how many taken. The n requests lie in `since` from places[first] on, mask + 1 places. */
CL_API uint64_t rule_choose(uint32_t batch, uint32_t drops, uint64_t limit, double fixed, double each,
                            const uint64_t *since, uint32_t first, uint32_t mask, uint32_t n, uint64_t now)
{
    struct cl_batch_rule rule = {.batch = batch, .drops = drops != 0, .limit_ticks = limit};
    struct cl_batch_model model = {.fixed = fixed, .each = each, .seen = 1};
    struct cl_batch_choice choice = cl_batch_choose(&rule, &model, since, first, mask, n, now);
    return (uint64_t)choice.drop << 32 | choice.take;
}

CL_API uint64_t rule_start_by(uint64_t limit, uint64_t wait, double fixed, double each, uint64_t since, uint32_t n)
{
    struct cl_batch_rule rule = {.batch = 32, .limit_ticks = limit, .wait_ticks = wait};
    struct cl_batch_model model = {.fixed = fixed, .each = each, .seen = 1};
    return cl_batch_start_by(&rule, &model, since, n);
}

/* The inline functions of net/typed.h for tests/libos/handlers/test_typed.py, which compares them with a model. */
#include "libos/net/typed.h"

#include <stdlib.h>
#include <string.h>

struct rule {
    struct cl_types types;
    struct cl_typed queues;
};

CL_API struct rule *rule_new(uint32_t n, const uint64_t *targets)
{
    struct rule *r = aligned_alloc(CL_CACHELINE, sizeof *r);
    memset(r, 0, sizeof *r);
    r->queues.types = &r->types;
    for (uint32_t i = 0; i < n; i++) {
        r->types.target_ticks[i] = targets[i];
        r->queues.ring[i] = cl_inbox_new(CL_UDP_TYPE_QUEUE);
    }
    r->types.n = n;
    return r;
}

CL_API bool rule_put(struct rule *r, uint32_t type, uint64_t tsc, uint32_t number)
{
    struct cl_rx_item item = {.frame.buf = number, .rx_tsc = tsc};
    return cl_typed_put(&r->queues, type, &item);
}

/* The number of what was taken; -1: nothing waits. */
CL_API int64_t rule_take(struct rule *r, uint64_t now_tsc)
{
    struct cl_rx_item item;
    int type = cl_typed_choose(&r->queues, now_tsc);
    if (type < 0)
        return cl_typed_count(&r->queues) ? -2 : -1;
    return cl_typed_take(&r->queues, (unsigned)type, &item) ? (int64_t)item.frame.buf : -3;
}

CL_API void rule_delete(struct rule *r)
{
    for (uint32_t i = 0; i < r->types.n; i++)
        free(r->queues.ring[i]);
    free(r);
}

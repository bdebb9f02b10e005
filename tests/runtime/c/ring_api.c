/* The ring's inline functions as symbols, for tests from Python. */
#include "runtime/ring.h"

CL_API int test_tx_init(struct cl_ring_tx *r, struct cl_desc *slots, uint32_t *head, uint32_t size)
{
    return cl_ring_tx_init(r, slots, head, size);
}

CL_API int test_rx_init(struct cl_ring_rx *r, struct cl_desc *slots, uint32_t *head, uint32_t size)
{
    return cl_ring_rx_init(r, slots, head, size);
}

CL_API uint32_t test_space(struct cl_ring_tx *r, uint32_t want)
{
    return cl_ring_tx_space(r, want);
}

CL_API bool test_push(struct cl_ring_tx *r, uint64_t word, uint64_t payload)
{
    return cl_ring_push(r, word, payload);
}

CL_API bool test_ready(const struct cl_ring_rx *r)
{
    return cl_ring_ready(r);
}

CL_API unsigned test_pop(struct cl_ring_rx *r, struct cl_desc *out, unsigned n)
{
    return cl_ring_pop(r, out, n);
}

CL_API unsigned test_peek(const struct cl_ring_rx *r, struct cl_desc *out, unsigned n)
{
    return cl_ring_peek(r, out, n);
}

CL_API bool test_look(const struct cl_ring_rx *r, unsigned at, uint64_t *word)
{
    return cl_ring_look(r, at, word);
}

CL_API void test_publish(struct cl_ring_rx *r)
{
    cl_ring_publish(r);
}

CL_API uint64_t test_phase(uint32_t size, uint32_t pos)
{
    return cl_ring_phase(size, pos);
}

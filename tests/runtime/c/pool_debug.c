/* With CORELANE_DEBUG a pool refuses what it did not hand out, and goes on. Includes the source: the switch must be
 * on. */
#define CORELANE_DEBUG 1
#include "runtime/pool.c"

#include <stdio.h>

int main(void)
{
    struct cl_pool *pool = cl_pool_new(100, 64, 2);
    uint32_t held[8], strangers[] = {99, 164, 0, UINT32_MAX};
    if (cl_pool_get(pool, 0, held, 8) != 8)
        return 1;
    cl_pool_put(pool, 1, held, 8);
    if (cl_pool_errors(pool) != 0)
        return 2;
    cl_pool_put(pool, 0, held, 8); /* double */
    if (cl_pool_errors(pool) != 8)
        return 3;
    cl_pool_put(pool, 0, strangers, 4);
    if (cl_pool_errors(pool) != 12 || cl_pool_available(pool) != 64)
        return 4;
    cl_pool_delete(pool);
    printf("12 refused\n");
    return 0;
}

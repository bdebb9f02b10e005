/* See shm.h. */
#include "shm.h"

int cl_shm_layout(struct cl_arena_layout *layout)
{
    return cl_arena_layout_init(layout);
}

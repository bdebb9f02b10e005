/* The loop: one round (round.c) after the other, on a core of its own. Start reading here; iokernel.h says what a round
 * does. */
#include "../state/internal.h"

void *io_loop_main(void *arg)
{
    struct io_loop *loop = arg;
    loop->idle_since = loop->woke = cl_tsc();
    /* Relaxed: `stop` orders nothing; the controlling thread joins us before it touches anything of ours. */
    while (!cl_load_relaxed(&loop->stop))
        io_idle(loop, io_round(loop, cl_tsc()));
    io_flush_uplinks(loop); /* what waits for more */
    return NULL;
}

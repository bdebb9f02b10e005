/* Uthreads that switch to and fro, and one mistake on one of them, which memcheck is to name: a byte behind a block of
 * the heap, if the argument is `mistake`. */
#include "check.h"

static bool mistaken;
static volatile size_t block_bytes = 32; /* not known to the compiler, which would refuse */

static void worker(void *arg)
{
    char *block = malloc(block_bytes);
    for (int i = 0; i < 20; i++) {
        volatile char frame[4096];
        frame[i] = (char)i; /* what another wrote on its own stack is not seen on this one */
        cl_uthread_yield();
        CHECK_EQ(frame[i], i);
    }
    if (mistaken && arg)
        ((volatile char *)block)[block_bytes] = 1;
    free(block);
}

static void root(void *arg)
{
    cl_uthread_id ids[8];
    for (int i = 0; i < 8; i++)
        CHECK_EQ(cl_uthread_spawn(worker, i ? NULL : arg, &ids[i]), 0);
    for (int i = 0; i < 8; i++)
        CHECK_EQ(cl_uthread_join(ids[i]), 0);
}

int main(int argc, char **argv)
{
    struct cl_sched_config c;
    cl_sched_config_init(&c);
    mistaken = argc > 1 && !strcmp(argv[1], "mistake");
    c.n_kthreads = 2;
    for (int i = 0; i < 2; i++) { /* stacks of the second lie where those of the first were */
        struct cl_sched *s = sched_started(&c);
        CHECK_EQ(cl_sched_run(s, root, &c), 0);
        CHECK_EQ(cl_sched_stop(s, -1), 0);
        cl_sched_delete(s);
    }
    puts("ok");
    return 0;
}

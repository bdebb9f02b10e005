/* A batch application that is given work by a thread which is none of its kthreads, now and then, for
 * test_work_conserving.py:
 *
 *   cores_outside SOCKET TIMES SEED
 *
 * Each time it waits for a moment, of a microsecond to some milliseconds, spawns a uthread, and waits until that has
 * run. PORT_CORES_C: a copy of drivers/port/cores.c with a fault in it, to be used instead of the library's. */
#ifdef PORT_CORES_C
#include PORT_CORES_C
#endif

#include <corelane/libos/libos.h>

#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static void job(void *done)
{
    sem_post(done);
}

int main(int argc, char **argv)
{
    char err[256] = "";
    struct cl_runtime *rt;
    sem_t done;
    if (argc != 4)
        return fprintf(stderr, "cores_outside SOCKET TIMES SEED\n"), 2;
    struct cl_runtime_config config = {
        .socket_path = argv[1], .name = "outside", .kthreads = 1, .kind = CL_RUNTIME_BATCH};
    if (sem_init(&done, 0, 0) < 0 || cl_runtime_new(&config, &rt, err) < 0 || cl_runtime_start(rt, err) < 0)
        return fprintf(stderr, "%s\n", err), 1;
    srand48(atol(argv[3]));
    for (int i = atoi(argv[2]); i > 0; i--) {
        long ns = 1000L << lrand48() % 12; /* 1 us to 4 ms, each size as often as the next */
        nanosleep(&(struct timespec){.tv_nsec = ns / 2 + lrand48() % ns}, NULL);
        if (cl_runtime_spawn(rt, job, &done) < 0)
            return fprintf(stderr, "no uthread\n"), 1;
        while (sem_wait(&done) < 0)
            continue;
    }
    cl_runtime_delete(rt);
    return 0;
}

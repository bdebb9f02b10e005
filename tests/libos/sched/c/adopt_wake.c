/* Lost wake-ups of adopted kthreads, whose threads sleep in epoll without a timeout between two pieces of work
 * (wakes.h). Usage: adopt_wake KTHREADS MODE ADOPTED THREADS ROUNDS */
#include "adopted.h"
#include "wakes.h"

int main(int argc, char **argv)
{
    struct cl_sched_config c = config_from(argc, argv);
    struct driver drivers[CL_SCHED_MAX_KTHREADS] = {0};
    c.adopted = (uint32_t)atoi(argv[3]);
    unsigned n = (unsigned)atoi(argv[4]);
    struct cl_sched *s = sched_started(&c);
    for (unsigned i = 0; i < n; i++) {
        drivers[i] = (struct driver){.sched = s, .first = i * c.adopted / n, .n = c.adopted / n};
        CHECK_EQ(pthread_create(&drivers[i].thread, NULL, drive, &drivers[i]), 0);
    }
    wakes_run(s, (unsigned)atoi(argv[5]));
    sched_stop_checked(s);
    for (unsigned i = 0; i < n; i++) {
        pthread_join(drivers[i].thread, NULL);
        printf("driver %u: sleeps %llu, for nothing %llu\n", i, (unsigned long long)drivers[i].sleeps,
               (unsigned long long)drivers[i].for_nothing);
    }
    wakes_check();
    cl_sched_delete(s);
    return 0;
}

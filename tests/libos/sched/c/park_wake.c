/* Lost wake-ups of kthreads that sleep between two pieces of work (wakes.h). Usage: park_wake KTHREADS MODE ROUNDS */
#include "wakes.h"

int main(int argc, char **argv)
{
    struct cl_sched_config c = config_from(argc, argv);
    struct cl_sched *s = sched_started(&c);
    wakes_run(s, argc > 3 ? (unsigned)atoi(argv[3]) : 2000);
    sched_stop_clean(s);
    wakes_check();
    return 0;
}

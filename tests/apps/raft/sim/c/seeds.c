/* Some seeds of simulated clusters, for the sanitizers.
 * usage: seeds MODE FIRST COUNT NODES [OUTCOMES_ONLY] */
#include "apps/raft/sim/run.h"
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    if (argc < 5)
        return 2;
    struct cl_raft_sim_options options = {.mode = (uint32_t)atoi(argv[1]), .seed = strtoull(argv[2], NULL, 10)};
    options.nodes = (uint32_t)atoi(argv[4]);
    options.trace = 1;
    options.outcomes_only = argc > 5 && atoi(argv[5]);
    struct cl_raft_sim_result result = {0};
    struct cl_raft_sim *sim = cl_raft_sim_new();
    int rc = sim ? cl_raft_sim_many(sim, &options, strtoull(argv[3], NULL, 10), &result) : -1;
    if (rc)
        fprintf(stderr, "%s\n%s\n", cl_raft_sim_trace(sim), result.reason);
    printf("%lu runs, %lu steps, hash %016lx\n", (unsigned long)result.runs, (unsigned long)result.steps,
           (unsigned long)result.hash);
    cl_raft_sim_delete(sim);
    return rc != 0;
}

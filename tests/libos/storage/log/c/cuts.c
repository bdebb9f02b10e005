/* Every sector-wise cut of a run and subsets of what was in flight, by the loop behind `corelane bench log`. argv:
 * seed, appends, flushes in flight. */
#include "bench/log/cuts.h"

#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    struct cl_bench_log_cuts cuts;
    char err[256] = "usage";
    if (argc != 4 ||
        cl_bench_log_cuts(strtoull(argv[1], NULL, 10), (uint32_t)atoi(argv[2]), (uint32_t)atoi(argv[3]), &cuts, err)) {
        fprintf(stderr, "%s\n", err);
        return 1;
    }
    if (cuts.appends >= 1000 && (cuts.laps < 3 || !cuts.truncates || !cuts.restarts || !cuts.metas || !cuts.trims ||
                                 !cuts.snapshots || !cuts.repacks))
        return 1;
    if (cuts.recovered != cuts.cuts || cuts.cuts != cuts.sectors || cuts.torn == 0 || cuts.confirms == 0 ||
        cuts.beyond == 0 || cuts.subsets < cuts.appends || cuts.subsets_recovered != cuts.subsets ||
        cuts.subsets_torn == 0 || cuts.rotten < cuts.appends / 2 || cuts.rotten_recovered != cuts.rotten)
        return 1;
    printf("%llu cuts, %llu torn; %llu subsets, %llu torn\nok\n", (unsigned long long)cuts.cuts,
           (unsigned long long)cuts.torn, (unsigned long long)cuts.subsets, (unsigned long long)cuts.subsets_torn);
    return 0;
}

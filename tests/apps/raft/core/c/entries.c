/* A core that gets entries until its log is full.
 * Prints: how many it took, of ENTRY_BYTES each, and the page faults of taking them. */
#include "apps/raft/core/raft.h"

#include "tests/support/c/check.h"

#include <errno.h>
#include <sys/resource.h>

#define ENTRY_BYTES 1000u

static long faults(void)
{
    struct rusage usage;
    CHECK(getrusage(RUSAGE_SELF, &usage) == 0);
    return usage.ru_minflt;
}

int main(void)
{
    static uint8_t data[ENTRY_BYTES];
    struct cl_raft_config config = {.id = 1, .members = {.n_voters = 1, .voters = {1}}};
    struct cl_raft *raft;
    char err[256];
    CHECK(cl_raft_new(&config, &raft, err) == 0, "%s", err);
    CHECK_EQ(cl_raft_restore(raft, 1, 1, 0, 0, 0, NULL), 0);
    long before = faults(), entries = 0, rc;
    while ((rc = cl_raft_restore_entry(raft, 1, CL_RAFT_COMMAND, data, ENTRY_BYTES)) == 0)
        entries++;
    long taken = faults() - before;
    CHECK_EQ(rc, -ENOSPC);
    printf("%ld %ld\n", entries, taken);
    cl_raft_delete(raft);
    return 0;
}

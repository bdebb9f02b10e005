/* What programs of scenarios share: each scenario is run as it is, and with the mistake that it is there to find
 * (test_mistakes.py). */
#ifndef CORELANE_TESTS_APPS_RAFT_C_SCENARIOS_H
#define CORELANE_TESTS_APPS_RAFT_C_SCENARIOS_H

#include "apps/raft/core/raft.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(cond, ...)                                                                                               \
    do {                                                                                                               \
        if (!(cond)) {                                                                                                 \
            fprintf(stderr, "%s: ", #cond);                                                                            \
            fprintf(stderr, __VA_ARGS__);                                                                              \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static char err[256] = "no memory";

static inline void step(struct cl_raft *raft, struct cl_raft_msg m)
{
    m.to = 1;
    CHECK(!cl_raft_step(raft, &m), "a message of type %u is refused\n", m.type);
}

struct scenario {
    const char *name;
    void (*run)(void);
};

/* Run the one that argv[1] names; main's result. */
static int run_scenario(int argc, char **argv, const struct scenario *all, unsigned count)
{
    for (unsigned i = 0; argc == 2 && i < count; i++) {
        if (strcmp(argv[1], all[i].name))
            continue;
        all[i].run();
        printf("ok\n");
        return 0;
    }
    return 2;
}

#endif

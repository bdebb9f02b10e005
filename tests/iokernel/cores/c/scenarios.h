/* A C test of scenarios, each a function that CHECKs what it expects: `main` runs all, or the one that is named, and
 * prints the names of those that passed. */
#ifndef SCENARIOS_H
#define SCENARIOS_H

#define CHECK_CONTEXT "(%s; %s)", scenario, err
#include "tests/support/c/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LONGEST_S 60 /* each of them, on a machine with much else to do */

static const char *scenario = ""; /* the one that runs */
static char err[256];

struct scenario {
    const char *name;
    void (*fn)(void);
};

#define SCENARIO(fn)                                                                                                   \
    {                                                                                                                  \
#fn, fn                                                                                                        \
    }

static inline int scenarios_run(const struct scenario *s, size_t n, int argc, char **argv)
{
    for (size_t i = 0; i < n; i++) {
        if (argc > 1 && strcmp(argv[1], s[i].name) != 0)
            continue;
        alarm(LONGEST_S);
        scenario = s[i].name;
        s[i].fn();
        printf("passed %s\n", scenario);
        fflush(stdout);
    }
    return 0;
}

#define SCENARIOS_MAIN(...)                                                                                            \
    int main(int argc, char **argv)                                                                                    \
    {                                                                                                                  \
        static const struct scenario all[] = {__VA_ARGS__};                                                            \
        return scenarios_run(all, sizeof all / sizeof *all, argc, argv);                                               \
    }

#endif

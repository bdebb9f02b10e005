/* Whether another thread of the test sleeps. */
#ifndef TESTS_ASLEEP_H
#define TESTS_ASLEEP_H

#include "check.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

/* R, S, D and so on, of a thread of this process. */
static inline char state_of_thread(int tid)
{
    char path[64], text[256];
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", tid);
    FILE *f = fopen(path, "r");
    CHECK(f && fgets(text, sizeof text, f));
    fclose(f);
    const char *end = strrchr(text, ')'); /* of its name */
    CHECK(end);
    return end[2];
}

/* The thread `tid` of this process is told to wait, and is on its way there, perhaps without the CPU: wait until it
 * does. */
static inline void await_sleep(int tid)
{
    while (state_of_thread(tid) != 'S')
        sched_yield();
}

#endif

/* In which order a kthread checks its siblings: first those on the same physical core, then those that share the last
 * level cache, then the same package, then the rest; within each group starting behind itself, so that thieves
 * spread. */
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>

static long read_number(const char *path)
{
    long value = -1;
    FILE *f = fopen(path, "re");
    if (!f)
        return -1;
    if (fscanf(f, "%ld", &value) != 1)
        value = -1;
    fclose(f);
    return value;
}

static long read_long(int cpu, const char *file)
{
    char path[128];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/%s", cpu, file);
    return read_number(path);
}

struct place {
    long core, cache, package;
};

static struct place place_of(int cpu)
{
    if (cpu < 0)
        return (struct place){-1, -1, -1};
    return (struct place){read_long(cpu, "topology/core_id"), read_long(cpu, "cache/index3/id"),
                          read_long(cpu, "topology/physical_package_id")};
}

/* 0: nearest. What is unknown is far. */
static int distance(struct place a, struct place b)
{
    bool package = a.package >= 0 && a.package == b.package;
    if (package && a.core >= 0 && a.core == b.core)
        return 0;
    if (a.cache >= 0 && a.cache == b.cache)
        return 1;
    return package ? 2 : 3;
}

void cl_order_init(struct cl_sched *s)
{
    struct place places[CL_SCHED_MAX_KTHREADS];
    s->smt = read_number("/sys/devices/system/cpu/smt/active") != 0; /* unknown: as if there were */
    for (uint32_t k = 0; k < s->n_kthreads; k++)
        places[k] = place_of(s->kthreads[k].cpu);
    for (uint32_t k = 0; k < s->n_kthreads; k++) {
        uint32_t n = 0;
        for (int d = 0; d <= 3; d++)
            for (uint32_t i = 1; i < s->n_kthreads; i++) {
                uint32_t other = (k + i) % s->n_kthreads;
                if (distance(places[k], places[other]) == d)
                    s->kthreads[k].order[n++] = (uint8_t)other;
            }
    }
}

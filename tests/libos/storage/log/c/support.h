/* What the log's C tests share: a bad disk with a clock of its own, opening, pumping, and a generator of numbers. */
#ifndef TESTS_LIBOS_STORAGE_C_LOG_SUPPORT_H
#define TESTS_LIBOS_STORAGE_C_LOG_SUPPORT_H

#include "drivers/blk/fault.h"
#include "drivers/blk/memory.h"
#include "drivers/random.h"
#include <corelane/libos/log.h>
#include "libos/storage/log/disk.h"

#include "tests/support/c/check.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t rng_state;
static inline uint64_t rng(void)
{
    struct cl_random random = {rng_state};
    uint64_t drawn = cl_random_next(&random);
    rng_state = random.state;
    return drawn;
}
static inline uint64_t below(uint64_t n)
{
    return rng() % n;
}

/* For programs that open logs by the ten thousand: what one opening frees is the next one's, and not given back to the
 * kernel, which would take most of the time. */
static inline void keep_heap(void)
{
    mallopt(M_MMAP_THRESHOLD, 16 << 20);
    mallopt(M_TRIM_THRESHOLD, 64 << 20);
}

struct named {
    const char *name;
    void (*run)(void);
};

/* A program's work, by its arguments: the seed, and the name of what is to run. */
static inline int run_named(int argc, char **argv, const struct named *all, size_t n)
{
    CHECK(argc == 3, "usage");
    rng_state = strtoull(argv[1], NULL, 10);
    for (size_t i = 0; i < n; i++)
        if (!strcmp(argv[2], all[i].name)) {
            all[i].run();
            printf("ok\n");
            return 0;
        }
    return 2;
}

static uint64_t now_ns;

static inline struct cl_blk *memory_disk(uint64_t bytes)
{
    struct cl_blk_memory_config config = {.bytes = bytes};
    struct cl_blk *blk;
    char err[256];
    CHECK(cl_blk_memory_new(&config, &blk, err) == 0, "%s", err);
    return blk;
}

static inline struct cl_blk *bad_disk(struct cl_blk *inner, struct cl_blk_fault_config config)
{
    struct cl_blk *blk;
    char err[256];
    config.clock = cl_blk_fault_clock_word;
    config.clock_arg = &now_ns;
    CHECK(cl_blk_fault_new(inner, &config, &blk, err) == 0, "%s", err);
    return blk;
}

/* Pump until nothing is in flight. */
static inline void settle(struct cl_log *log)
{
    while (cl_log_busy(log))
        if (cl_log_pump(log) == 0 && cl_log_next_ns(log) != UINT64_MAX)
            now_ns = cl_max(now_ns, cl_log_next_ns(log));
}

/* Pump until it is not opening; virtual time goes on as the device asks. */
static inline struct cl_log *open_log(const struct cl_log_config *config, int expect, struct cl_log_report *report)
{
    struct cl_log *log;
    char err[256];
    struct cl_log_config c = *config;
    c.now_ns = cl_blk_fault_clock_word;
    c.now_arg = &now_ns;
    CHECK(cl_log_open(&c, &log, err) == 0, "%s", err);
    while (cl_log_state(log) == CL_LOG_OPENING)
        if (cl_log_pump(log) == 0 && cl_log_next_ns(log) != UINT64_MAX)
            now_ns = cl_max(now_ns, cl_log_next_ns(log));
    struct cl_log_report mine;
    cl_log_report(log, report ? report : &mine);
    CHECK(cl_log_error(log) == expect, "%d: %s", cl_log_error(log), cl_log_why(log));
    if (expect == 0)
        return log;
    CHECK(strlen(cl_log_why(log)) > 10, "no reason");
    settle(log);
    cl_log_discard(log);
    return NULL;
}

/* Let go of it as a crash would, but with nothing in flight. */
static inline void drop(struct cl_log *log)
{
    settle(log);
    cl_log_discard(log);
}

static inline int close_log(struct cl_log *log)
{
    cl_log_close_begin(log);
    settle(log);
    int rc = cl_log_error(log);
    cl_log_discard(log);
    return rc;
}

/* The next record of a cursor, waiting for reads. */
static inline int next_record(struct cl_log *log, struct cl_log_cursor *cursor, struct cl_log_record *record)
{
    int rc;
    while ((rc = cl_log_cursor_next(cursor, record)) == -EAGAIN)
        if (cl_log_pump(log) == 0 && cl_log_next_ns(log) != UINT64_MAX)
            now_ns = cl_max(now_ns, cl_log_next_ns(log));
    return rc;
}

#endif

/* What servers in virtual time share whose requests are delayed (delays.c, commands.c): runtimes that a stepper drives,
 * a log whose device takes a known time, and what was written down.
 * Threads: the caller's, alone. */
#ifndef CORELANE_BENCH_TRACE_VIRTUAL_H
#define CORELANE_BENCH_TRACE_VIRTUAL_H

#include <corelane/libos/stepper.h>
#include <corelane/drivers/blk.h>

#define CL_BENCH_VIRTUAL_RECORDS (1u << 16) /* all of a run's */

struct cl_log;

/* A runtime on a NIC of the stepper's clock. *rc: -errno with one line in err; if it is one already, nothing is
 * made. */
struct cl_runtime *cl_bench_virtual_host(struct cl_stepper *stepper, struct cl_nic *nic, uint32_t ipv4, uint32_t trace,
                                         int *rc, char *err);
/* Copy what a runtime has written down, up to room records, to out. Returns how many; -ENOBUFS: some are lost. */
int64_t cl_bench_virtual_records(const struct cl_runtime *rt, void *out, uint32_t room);

/* A log on a device of bytes in memory, each of whose requests takes ns. */
struct cl_bench_virtual_log {
    uint64_t *now_ns;
    struct cl_blk *disk;
    struct cl_log *log;
    struct cl_stepped part; /* moves the clock for it */
};

/* Opened, and driven by the stepper. -errno with one line in err. */
int cl_bench_virtual_log_open(struct cl_bench_virtual_log *l, struct cl_stepper *stepper, uint64_t *now_ns,
                              uint64_t bytes, uint64_t ns, char *err);
/* Its device takes so long from now on. */
int cl_bench_virtual_log_takes(struct cl_bench_virtual_log *l, uint64_t ns, char *err);
/* The log alone, or the device too; what was never opened may be closed. */
void cl_bench_virtual_log_close(struct cl_bench_virtual_log *l);
void cl_bench_virtual_log_delete(struct cl_bench_virtual_log *l);

#endif

/* A block device in memory: for tests, for the simulation, and for what need not outlive the process.
 *
 * A request is done within the submit that takes it, by a copy; poll gives it back. What is done is as durable as the
 * device ever makes it: until it is closed. Queues share nothing but the bytes. The memory is zero at first and is
 * touched as it is written.
 *
 * Does not deal with: losing anything at a crash (wrap it in a fault device, fault.h), other processes.
 * Tests: tests/drivers/blk/test_blk.py, c/stress.c. */
#ifndef CORELANE_DRIVERS_BLK_MEMORY_H
#define CORELANE_DRIVERS_BLK_MEMORY_H

#include <corelane/drivers/blk.h>

// cffi: begin
/* Zero means the default, given in brackets. */
struct cl_blk_memory_config {
    uint64_t bytes;        /* a multiple of block_bytes [64 MiB] */
    uint32_t queues;       /* 1..64 [1] */
    uint32_t depth;        /* 1..65536 [1024] */
    uint32_t block_bytes;  /* a power of two, 512..65536 [4096] */
    uint32_t atomic_bytes; /* a power of two, 1..block_bytes [512] */
};

/* -errno with a reason in err[256] (may be NULL). */
CL_API int cl_blk_memory_new(const struct cl_blk_memory_config *config, struct cl_blk **out, char *err);
/* The device's bytes, for tests that look at them or change them while nothing is in flight. */
CL_API uint8_t *cl_blk_memory_data(struct cl_blk *blk);
// cffi: end

#endif

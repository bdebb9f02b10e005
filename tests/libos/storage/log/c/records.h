/* A small area, and records whose content follows from their index: what tests of a log's damage and of its limits have
 * in common. */
#ifndef TESTS_LIBOS_STORAGE_C_LOG_RECORDS_H
#define TESTS_LIBOS_STORAGE_C_LOG_RECORDS_H

#include "support.h"

#define AREA (256u << 10)

static inline uint32_t make(uint64_t index, uint8_t out[600])
{
    uint32_t bytes = (uint32_t)(index * 97 % 600);
    for (uint32_t i = 0; i < bytes; i++)
        out[i] = (uint8_t)(index + i);
    return bytes;
}

static inline void append(struct cl_log *log, struct cl_log_op *op, uint64_t index)
{
    uint8_t data[600];
    *op = (struct cl_log_op){.data = data, .tag = index * 3, .bytes = make(index, data)};
    CHECK(cl_log_append(log, op) == 0 && op->index == index, "append");
}

/* As cl_log_append, and again as long as the log makes room. */
static inline int take(struct cl_log *log, struct cl_log_op *op)
{
    int rc;
    while ((rc = cl_log_append(log, op)) == -EAGAIN)
        settle(log);
    return rc;
}

static inline void append_alone(struct cl_log *log, uint64_t index)
{
    uint8_t data[600];
    struct cl_log_op op = {.data = data, .tag = index * 3, .bytes = make(index, data)};
    CHECK(take(log, &op) == 0, "record %llu: full, of %llu bytes that are kept", (unsigned long long)index,
          (unsigned long long)cl_log_ring_bytes(log));
    settle(log);
    CHECK(op.result == 0 && op.index == index, "%d", op.result);
}

/* How many records it holds; each must be what `make` made of it. */
static inline uint64_t verify(struct cl_log *log)
{
    struct cl_log_cursor *c;
    struct cl_log_record r;
    uint8_t want[600];
    uint64_t index = cl_log_first_index(log);
    CHECK(cl_log_cursor_open(log, index, &c) == 0, "cursor");
    int rc;
    for (; (rc = next_record(log, c, &r)) == 1; index++)
        CHECK(r.index == index && r.tag == index * 3 && r.bytes == make(index, want) && !memcmp(r.data, want, r.bytes),
              "record %llu", (unsigned long long)index);
    CHECK(rc == 0 && index == cl_log_durable_index(log) + 1, "%d: %s", rc, cl_log_cursor_why(c));
    CHECK(cl_log_cursor_close(c) == 0, "close");
    return index - cl_log_first_index(log);
}

static inline struct cl_blk *fresh(uint64_t area_id)
{
    struct cl_blk *disk = memory_disk(AREA);
    struct cl_log_layout layout = {.area_id = area_id, .flush_bytes = 8192};
    char err[256];
    CHECK(cl_log_format(disk, 0, &layout, err) == 0, "%s", err);
    return disk;
}

#endif

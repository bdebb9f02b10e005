/* A tail that nobody says was durable is read twice when the log is opened, and the two reads give different things:
 * what was acknowledged is not written over or taken for torn for that, and what is gone by then is not taken for
 * durable. Usage: log_twice SEED SCENARIO */
#include "records.h"

#define RECORDS 3 /* of which the last is in the flush that is read twice */

/* A memory disk, of which a block is something else from a read on, or for that once. */
static struct cl_blk *memory, spy;
static uint64_t watched; /* offset of the block; 0: none */
static unsigned reads;   /* of it */
static unsigned odd;     /* the read that gives something else */
static bool forgets;     /* from then on it is zero; else a bit is wrong that once */

static unsigned spy_submit(struct cl_blk *blk, unsigned queue, struct cl_blk_req **reqs, unsigned n)
{
    (void)blk;
    for (unsigned i = 0; i < n; i++) {
        struct cl_blk_req *r = reqs[i];
        bool covers = watched && r->offset <= watched && watched < r->offset + r->bytes;
        bool now = covers && r->op == CL_BLK_READ && ++reads == odd;
        if (now && forgets)
            memset(cl_blk_memory_data(memory) + watched, 0, CL_LOG_BLOCK_BYTES);
        CHECK(memory->ops->submit(memory, queue, &r, 1) == 1, "submit");
        if (now && !forgets)
            ((uint8_t *)r->buf)[watched - r->offset + 100] ^= 1; /* in a record: the memory disk has read it by now */
    }
    return n;
}

static unsigned spy_poll(struct cl_blk *blk, unsigned queue, struct cl_blk_req **done, unsigned n)
{
    (void)blk;
    return memory->ops->poll(memory, queue, done, n);
}

static struct cl_log_config up(void)
{
    static const struct cl_blk_ops ops = {.name = "spy", .submit = spy_submit, .poll = spy_poll};
    struct cl_log_op op;
    memory = fresh(7);
    spy = *memory;
    spy.ops = &ops;
    struct cl_log_config config = {.blk = &spy, .confirm_ns = UINT64_MAX};
    struct cl_log *log = open_log(&config, 0, NULL);
    for (unsigned i = 1; i <= RECORDS; i++) {
        append(log, &op, i);
        settle(log);
        CHECK(op.result == 0, "%d", op.result);
    }
    struct cl_log_cursor *cursor;
    struct cl_log_record record;
    CHECK(cl_log_cursor_open(log, RECORDS, &cursor) == 0 && next_record(log, cursor, &record) == 1, "the last record");
    watched = record.offset & ~(uint64_t)(CL_LOG_BLOCK_BYTES - 1);
    reads = 0;
    CHECK(cl_log_cursor_close(cursor) == 0, "close");
    drop(log);
    return config;
}

/* Opened while one read is odd, and then again. */
static void opened_twice(unsigned odd_read, uint64_t left)
{
    odd = odd_read;
    struct cl_log_config config = up();
    open_log(&config, -EIO, NULL);
    CHECK(reads == 2, "%u reads", reads);
    watched = 0;
    struct cl_log *log = open_log(&config, 0, NULL);
    CHECK(verify(log) == left, "of %u records %llu are left", RECORDS, (unsigned long long)cl_log_durable_index(log));
    struct cl_log_op op;
    append(log, &op, left + 1);
    settle(log);
    CHECK(op.result == 0, "%d", op.result);
    CHECK(close_log(log) == 0, "close");
    log = open_log(&config, 0, NULL);
    CHECK(verify(log) == left + 1, "%llu records", (unsigned long long)cl_log_durable_index(log));
    CHECK(close_log(log) == 0, "close");
    cl_blk_close(memory);
}

static void wrong_once(void)
{
    forgets = false;
    opened_twice(2, RECORDS);
}

/* What ends the log because a read was wrong that once does not end it. */
static void wrong_at_first(void)
{
    forgets = false;
    opened_twice(1, RECORDS);
}

/* As after a flush that failed: nobody was told that the last record is durable, so it may go, but not while the log is
 * being opened. */
static void forgotten(void)
{
    forgets = true;
    opened_twice(2, RECORDS - 1);
}

int main(int argc, char **argv)
{
    static const struct named all[] = {
        {"wrong_once", wrong_once}, {"wrong_at_first", wrong_at_first}, {"forgotten", forgotten}};
    return run_named(argc, argv, all, sizeof all / sizeof *all);
}

/* A log at its limits: a full area, many laps, a device without space, more votes than room, what may not be asked for,
 * and what is free only when both superblocks say so. argv: seed, then full, votes, no_space, reserve, ranges, freed,
 * snapshots, behind, emptied or older. */
#include "records.h"

/* A device that has no space: the log has failed, and does not look like one that is full and wants to be trimmed,
 * whichever of its writes it was. */
static void no_space(void)
{
    for (unsigned super = 0; super < 2; super++) {
        struct cl_blk *memory = fresh(8);
        struct cl_blk *disk = bad_disk(memory, (struct cl_blk_fault_config){.latency_max_ns = 1000});
        struct cl_log_config config = {.blk = disk};
        struct cl_log_op op = {0}, trim = {0};
        char err[256];
        struct cl_log *log = open_log(&config, 0, NULL);
        append(log, &op, 1);
        settle(log);
        CHECK(cl_blk_fault_set(disk, &(struct cl_blk_fault_config){.no_space = 1}, err) == 0, "%s", err);
        if (super)
            CHECK(cl_log_trim(log, 2, &trim) == 0, "trim");
        else
            append(log, &trim, 2);
        settle(log);
        CHECK(trim.result == -EIO && cl_log_error(log) == -EIO && strstr(cl_log_why(log), strerror(ENOSPC)), "%d: %s",
              trim.result, cl_log_why(log));
        CHECK(cl_log_append(log, &op) == -EIO && cl_log_trim(log, 1, NULL) == -EIO, "it looks full");
        drop(log);
        cl_blk_close(disk);
    }
}

/* Fill it up, find it unharmed and still able to vote, trim, and go round many times. */
static void full(void)
{
    struct cl_blk *disk = fresh(4);
    struct cl_log_config config = {.blk = disk};
    struct cl_log *log = open_log(&config, 0, NULL);
    uint64_t next = 1;
    unsigned laps = 0;
    for (unsigned round = 0; round < 100; round++) {
        uint8_t data[600], vote[8];
        uint64_t voted;
        struct cl_log_op op, meta = {.data = &voted, .bytes = 8};
        int rc;
        do {
            op = (struct cl_log_op){.data = data, .tag = next * 3, .bytes = make(next, data)};
            rc = take(log, &op);
            next += rc == 0;
            settle(log);
        } while (rc == 0);
        CHECK(rc == -ENOSPC && cl_log_error(log) == 0, "%d", rc);
        voted = next;
        CHECK(cl_log_meta_set(log, &meta) == 0, "a full log must still take a vote");
        settle(log);
        if (round % 10 == 0) {
            drop(log);
            log = open_log(&config, 0, NULL);
            rc = take(log, &op); /* it may win a little more */
            next += rc == 0;
            settle(log);
            CHECK(rc == 0 || rc == -ENOSPC, "%d", rc);
        }
        CHECK(verify(log) && cl_log_durable_index(log) == next - 1, "all is there");
        CHECK(cl_log_meta_get(log, vote) == 8 && !memcmp(vote, &voted, 8), "the vote is there");
        CHECK(cl_log_trim(log, next - below(20), NULL) == 0, "trim");
        settle(log);
        laps++;
    }
    CHECK(close_log(log) == 0, "close");
    cl_blk_close(disk);
    printf("%u laps, %llu records\n", laps, (unsigned long long)next);
}

/* Far more votes than the area has room for, and no record that may be trimmed: each is durable and in order with what
 * is around it, survives the loss of either superblock, and leaves room for records. */
static void votes(void)
{
    struct cl_blk *disk = fresh(5);
    struct cl_log_config config = {.blk = disk};
    struct cl_log_report report;
    struct cl_log *log = open_log(&config, 0, NULL);
    struct cl_log_op op = {0}, later = {0};
    uint64_t next = 1, found;
    append(log, &op, next++);
    while (cl_log_free_bytes(log) > cl_log_ring_bytes(log) / 8)
        append_alone(log, next++);
    for (uint64_t vote = 1; vote <= 1000; vote++) {
        struct cl_log_op meta = {.data = &vote, .bytes = 8};
        if (vote % 100 == 0)
            append(log, &op, next++);
        CHECK(cl_log_meta_set(log, &meta) == 0, "vote %llu", (unsigned long long)vote);
        if (vote % 100 == 50) /* the ring is short: what comes behind a vote waits for it */
            CHECK(cl_log_truncate(log, next, &later) == -EAGAIN, "not in order");
        settle(log);
        CHECK(meta.result == 0 && op.result == 0, "not durable");
        if (vote % 7)
            continue;
        drop(log);
        uint64_t slot = below(2);
        memset((uint8_t *)cl_blk_memory_data(disk) + slot * CL_LOG_BLOCK_BYTES, 0, CL_LOG_BLOCK_BYTES);
        log = open_log(&config, 0, &report);
        CHECK(report.bad_superblocks == 1u << slot, "%u", report.bad_superblocks);
        CHECK(cl_log_meta_get(log, &found) == 8 && found == vote, "%llu for %llu", (unsigned long long)found,
              (unsigned long long)vote);
        CHECK(verify(log) == next - 1, "records");
    }
    CHECK(cl_log_free_bytes(log) > 4 * CL_LOG_BLOCK_BYTES, "no room is left");
    struct cl_log_op last = {.data = &next, .bytes = 8};
    CHECK(cl_log_meta_set(log, &last) == 0 && close_log(log) == 0 && last.result == 0, "closing writes it");
    log = open_log(&config, 0, NULL);
    CHECK(cl_log_meta_get(log, &found) == 8 && found == next, "after closing");
    drop(log);
    cl_blk_close(disk);
}

/* Append a record of so many bytes, alone in its flush. */
static int put(struct cl_log *log, struct cl_log_op *op, uint32_t bytes)
{
    static const uint8_t data[8192];
    *op = (struct cl_log_op){.data = data, .bytes = bytes};
    int rc = take(log, op);
    settle(log);
    CHECK(rc || op->result == 0, "%d", op->result);
    return rc;
}

/* However it was filled, and wherever its head lies, a full log takes a truncation. */
static void reserve(void)
{
    for (unsigned size = 0; size < 3; size++) {
        struct cl_blk *disk = fresh(10);
        struct cl_log_config config = {.blk = disk};
        struct cl_log_op op;
        struct cl_log *log = open_log(&config, 0, NULL);
        for (unsigned round = 0; round < 40; round++) {
            uint32_t bytes = size == 0 ? 900 : size == 1 ? cl_log_max_bytes(log) : (uint32_t)below(8000);
            int rc;
            do
                rc = put(log, &op, bytes);
            while (rc == 0);
            CHECK(rc == -ENOSPC, "%d", rc);
            uint64_t from = cl_log_next_index(log) - below(3);
            CHECK(cl_log_truncate(log, from, &op) == 0, "a full log must still take a truncation");
            settle(log);
            CHECK(op.result == 0 && cl_log_durable_index(log) == from - 1, "%d", op.result);
            if (round % 10 == 0) {
                drop(log);
                log = open_log(&config, 0, NULL);
                CHECK(cl_log_durable_index(log) == from - 1, "it is not there");
            }
            CHECK(cl_log_trim(log, from - below(5), NULL) == 0, "trim");
            settle(log);
        }
        drop(log);
        cl_blk_close(disk);
    }
}

/* What is out of range is so by what was asked for before, durable or not. */
static void ranges(void)
{
    struct cl_blk *disk = fresh(11);
    struct cl_log_config config = {.blk = disk};
    struct cl_log_op ops[10], trim = {0}, cut = {0}, other = {0}, restart = {0};
    struct cl_log *log = open_log(&config, 0, NULL);
    for (unsigned i = 0; i < 10; i++)
        append(log, &ops[i], i + 1);
    settle(log);
    CHECK(cl_log_trim(log, 3, &trim) == 0, "trim");
    settle(log);
    CHECK(cl_log_truncate(log, 2, &other) == -ERANGE && cl_log_truncate(log, 12, &other) == -ERANGE, "truncate");
    CHECK(cl_log_restart(log, 2, &other) == -ERANGE && cl_log_trim(log, 12, &other) == -ERANGE, "restart, trim");
    CHECK(cl_log_truncate(log, 6, &cut) == 0, "truncate");
    CHECK(cl_log_trim(log, 7, &other) == -ERANGE, "a trim beyond a truncation that is under way");
    CHECK(cl_log_trim(log, 6, &trim) == 0, "trim");
    CHECK(cl_log_restart(log, 100, &restart) == 0, "restart");
    CHECK(cl_log_restart(log, 99, &other) == -ERANGE && cl_log_truncate(log, 50, &other) == -ERANGE &&
              cl_log_truncate(log, 101, &other) == -ERANGE,
          "of records that a restart which is under way gives up");
    CHECK(cl_log_truncate(log, 100, &other) == 0, "truncate");
    settle(log);
    CHECK(cut.result == 0 && trim.result == 0 && restart.result == 0 && other.result == 0, "not durable");
    CHECK(cl_log_first_index(log) == 100 && cl_log_next_index(log) == 100, "indexes");
    drop(log);
    log = open_log(&config, 0, NULL);
    CHECK(cl_log_first_index(log) == 100 && cl_log_next_index(log) == 100, "indexes");
    CHECK(cl_log_restart(log, CL_LOG_INDEX_MOST + 1ull, &restart) == -ERANGE, "beyond all indexes");
    CHECK(cl_log_restart(log, CL_LOG_INDEX_MOST, &restart) == 0, "restart");
    append(log, &ops[0], CL_LOG_INDEX_MOST);
    CHECK(cl_log_append(log, &ops[1]) == -EOVERFLOW, "no index is left");
    settle(log);
    for (unsigned again = 0; again < 2; again++) {
        CHECK(cl_log_durable_index(log) == CL_LOG_INDEX_MOST, "the last record is not there");
        CHECK(cl_log_append(log, &ops[1]) == -EOVERFLOW, "no index is left");
        drop(log);
        log = open_log(&config, 0, NULL);
    }
    CHECK(cl_log_truncate(log, CL_LOG_INDEX_MOST, &cut) == 0, "truncate");
    append(log, &ops[0], CL_LOG_INDEX_MOST);
    settle(log);
    drop(log);
    cl_blk_close(disk);
}

/* A full log of which everything was trimmed or truncated is empty, however the two met: what it took is free again. */
static void emptied(void)
{
    for (unsigned round = 0; round < 20; round++) {
        struct cl_blk *disk = fresh(15);
        struct cl_log_config config = {.blk = disk};
        struct cl_log *log = open_log(&config, 0, NULL);
        struct cl_log_op op, ops[8];
        uint64_t next = 1;
        for (; next <= 8; next++) /* in one flush */
            append(log, &ops[next - 1], next);
        settle(log);
        uint64_t first = 2 + below(7);
        CHECK(cl_log_trim(log, first, NULL) == 0, "trim");
        while (put(log, &op, cl_log_max_bytes(log)) == 0)
            ;
        CHECK(cl_log_truncate(log, first, &op) == 0, "truncate");
        settle(log);
        CHECK(op.result == 0 && cl_log_next_index(log) == first, "not empty");
        if (round % 2) {
            drop(log);
            log = open_log(&config, 0, NULL);
        }
        CHECK(cl_log_trim(log, first, NULL) == 0, "trim");
        settle(log);
        CHECK(put(log, &op, cl_log_max_bytes(log)) == 0, "nothing is in it, and it is full");
        drop(log);
        cl_blk_close(disk);
    }
}

/* The log as it is on the disk now must open, whichever superblock rots, with all up to `acknowledged`. */
static void whole_without_either(struct cl_blk *memory, uint64_t acknowledged)
{
    for (uint64_t slot = 0; slot < 2; slot++) {
        struct cl_blk *left = memory_disk(AREA);
        struct cl_log_config config = {.blk = left};
        uint8_t *data = cl_blk_memory_data(left);
        memcpy(data, cl_blk_memory_data(memory), AREA);
        data[slot * CL_LOG_BLOCK_BYTES + below(512)] ^= 1;
        struct cl_log *log = open_log(&config, 0, NULL);
        CHECK(verify(log) && cl_log_durable_index(log) >= acknowledged, "up to %llu of %llu",
              (unsigned long long)cl_log_durable_index(log), (unsigned long long)acknowledged);
        drop(log);
        cl_blk_close(left);
    }
}

/* A full log is trimmed, and somebody appends as soon as he may: nothing that the older superblock needs is written
 * over. */
static void freed(void)
{
    struct cl_blk *memory = fresh(12);
    struct cl_blk *disk =
        bad_disk(memory, (struct cl_blk_fault_config){.latency_min_ns = 1000, .latency_max_ns = 5000});
    struct cl_log_config config = {.blk = disk};
    struct cl_log *log = open_log(&config, 0, NULL);
    struct cl_log_op op;
    uint64_t next = 1;
    for (unsigned round = 0; round < 40; round++) {
        uint8_t data[600];
        struct cl_log_op trim = {0};
        bool refused = false;
        for (bool taken = true; taken; settle(log)) { /* until it is full */
            op = (struct cl_log_op){.data = data, .tag = next * 3, .bytes = make(next, data)};
            taken = take(log, &op) == 0;
            next += taken;
        }
        CHECK(cl_log_trim(log, next - 1 - below(20), &trim) == 0, "trim");
        for (unsigned more = 0; more < 5;) {
            op = (struct cl_log_op){.data = data, .tag = next * 3, .bytes = make(next, data)};
            int rc = cl_log_append(log, &op);
            refused |= rc == -ENOSPC || rc == -EAGAIN;
            while (rc == 0 && op.result == CL_LOG_PENDING)
                if (cl_log_pump(log) == 0)
                    now_ns = cl_max(now_ns, cl_log_next_ns(log));
            next += rc == 0;
            more += rc == 0;
            if (rc && cl_log_pump(log) == 0)
                now_ns = cl_max(now_ns, cl_log_next_ns(log));
            whole_without_either(memory, next - 1);
        }
        CHECK(refused && trim.result == 0, "it was not full, or was not trimmed");
    }
    drop(log);
    cl_blk_close(disk);
}

/* Until both superblocks name a snapshot the next one is not begun: its place is that of the one before, which one of
 * them still names. */
static void snapshots(void)
{
    struct cl_blk *memory = memory_disk(AREA);
    struct cl_log_layout layout = {.area_id = 13, .flush_bytes = 8192, .snapshot_bytes = 8192};
    CHECK(cl_log_format(memory, 0, &layout, NULL) == 0, "format");
    struct cl_blk *disk =
        bad_disk(memory, (struct cl_blk_fault_config){.latency_min_ns = 1000, .latency_max_ns = 1000});
    struct cl_log_config config = {.blk = disk};
    struct cl_log *log = open_log(&config, 0, NULL);
    for (unsigned round = 0; round < 4; round++) {
        struct cl_log_op op = {0};
        CHECK(cl_log_snapshot_begin(log, 1, 1) == 0 && cl_log_snapshot_write(log, "state", 5) == 5, "snapshot");
        CHECK(cl_log_snapshot_commit(log, &op) == 0, "commit");
        while (op.result == CL_LOG_PENDING) {
            CHECK(cl_log_snapshot_begin(log, 2, 1) == -EAGAIN, "begun over the one before");
            if (cl_log_pump(log) == 0)
                now_ns = cl_max(now_ns, cl_log_next_ns(log));
        }
        CHECK(op.result == 0, "%d", op.result);
    }
    drop(log);
    cl_blk_close(disk);
}

/* A device that takes one request at a time fails the first: what waited behind it is never sent. */
static void behind(void)
{
    struct cl_blk_memory_config of_one = {.bytes = AREA, .depth = 1};
    struct cl_log_layout layout = {.area_id = 14, .flush_bytes = 8192};
    struct cl_blk *memory;
    struct cl_blk_stats before, after;
    struct cl_log_op ops[3];
    CHECK(cl_blk_memory_new(&of_one, &memory, NULL) == 0, "memory");
    CHECK(cl_log_format(memory, 0, &layout, NULL) == 0, "format");
    struct cl_blk *disk =
        bad_disk(memory, (struct cl_blk_fault_config){.latency_min_ns = 1000, .latency_max_ns = 1000});
    struct cl_log_config config = {.blk = disk};
    struct cl_log *log = open_log(&config, 0, NULL);
    settle(log);
    cl_blk_stats(disk, 0, &before);
    CHECK(cl_blk_fault_set(
              disk, &(struct cl_blk_fault_config){.latency_min_ns = 1000, .latency_max_ns = 1000, .write_error = 1},
              NULL) == 0,
          "set");
    for (unsigned i = 0; i < 3; i++) {
        append(log, &ops[i], i + 1);
        cl_log_pump(log);
    }
    settle(log);
    cl_blk_stats(disk, 0, &after);
    CHECK(after.submitted == before.submitted + 1, "%llu were sent",
          (unsigned long long)(after.submitted - before.submitted));
    for (unsigned i = 0; i < 3; i++)
        CHECK(ops[i].result == -EIO, "%d", ops[i].result);
    drop(log);
    cl_blk_close(disk);
}

/* What a trim frees is free only when both superblocks say so: until then the older one needs it. */
static void older(void)
{
    struct cl_blk *disk =
        bad_disk(fresh(12), (struct cl_blk_fault_config){.latency_min_ns = 1000, .latency_max_ns = 1000});
    struct cl_log_config config = {.blk = disk, .confirm_ns = UINT64_MAX};
    struct cl_log_op op = {0}, trim = {0};
    struct cl_log_stats stats;
    struct cl_log *log = open_log(&config, 0, NULL);
    for (unsigned i = 1; i <= 5; i++) {
        append(log, &op, i);
        settle(log);
    }
    uint64_t before = cl_log_free_bytes(log);
    cl_log_stats(log, &stats);
    uint64_t written = stats.superblocks;
    CHECK(cl_log_trim(log, 5, &trim) == 0, "trim");
    while (stats.superblocks == written) {
        CHECK(cl_log_free_bytes(log) == before, "no superblock says that it is free");
        if (cl_log_pump(log) == 0)
            now_ns = cl_max(now_ns, cl_log_next_ns(log));
        cl_log_stats(log, &stats);
    }
    CHECK(cl_log_free_bytes(log) == before, "the older superblock needs what is free");
    settle(log);
    CHECK(cl_log_free_bytes(log) > before && trim.result == 0, "nothing was freed");
    drop(log);
    cl_blk_close(disk);
}

int main(int argc, char **argv)
{
    static const struct named all[] = {
        {"full", full},   {"votes", votes},         {"no_space", no_space}, {"reserve", reserve}, {"ranges", ranges},
        {"freed", freed}, {"snapshots", snapshots}, {"behind", behind},     {"emptied", emptied}, {"older", older}};
    keep_heap();
    return run_named(argc, argv, all, sizeof all / sizeof *all);
}

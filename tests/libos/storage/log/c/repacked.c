/* A log that copies what is kept out of the way of its head: what it makes room for, and what is asked of it meanwhile.
 * argv: seed, then garbage, churn, read_on, version, given_up or hurried. */
#include "records.h"

/* Records that are kept, and others that come and are truncated, each in a flush of its own: many times what the ring
 * holds. */
static void garbage(void)
{
    static const uint64_t keeps[] = {0, 1, 20, 300};
    for (unsigned k = 0; k < 4; k++) {
        struct cl_blk *disk = fresh(16);
        struct cl_log_config config = {.blk = disk};
        struct cl_log *log = open_log(&config, 0, NULL);
        struct cl_log_op op = {0};
        struct cl_log_usage usage;
        struct cl_log_stats stats;
        uint64_t next = 1;
        while (next <= keeps[k])
            append_alone(log, next++);
        for (unsigned round = 0; round < 1500; round++) {
            uint64_t few = 1 + below(3);
            for (uint64_t i = 0; i < few; i++)
                append_alone(log, next + i);
            int rc;
            while ((rc = cl_log_truncate(log, next, &op)) == -EAGAIN)
                settle(log);
            CHECK(rc == 0, "truncate: %d", rc);
            settle(log);
            if (round % 97 == 0) {
                drop(log);
                log = open_log(&config, 0, NULL);
                CHECK(verify(log) == keeps[k], "%llu are there", (unsigned long long)cl_log_durable_index(log));
            }
        }
        cl_log_usage(log, &usage);
        cl_log_stats(log, &stats);
        CHECK(usage.kept_bytes + usage.dead_bytes + usage.free_bytes + usage.reserved_bytes == usage.ring_bytes,
              "does not add up");
        CHECK(stats.repacks, "no room was made");
        CHECK(usage.kept_bytes < usage.ring_bytes / 2 && usage.free_bytes, "%llu kept",
              (unsigned long long)usage.kept_bytes);
        CHECK(close_log(log) == 0, "close");
        cl_blk_close(disk);
    }
}

/* Appended, truncated, trimmed and voted at random, such that what is kept takes half of the ring at most: it is never
 * full. */
static void churn(void)
{
    struct cl_blk *disk = fresh(17);
    struct cl_log_config config = {.blk = disk};
    struct cl_log *log = open_log(&config, 0, NULL);
    struct cl_log_op op = {0};
    uint64_t first = 1, next = 1, passes = 0;
    for (unsigned round = 0; round < 6000; round++) {
        struct cl_log_usage usage;
        uint64_t draw = below(10);
        cl_log_usage(log, &usage);
        if (usage.kept_bytes > usage.ring_bytes / 2) {
            first += (next - first) / 2;
            CHECK(cl_log_trim(log, first, NULL) == 0, "trim");
        } else if (draw < 6) {
            append_alone(log, next++);
        } else if (draw < 9) {
            uint64_t few = below(4), from = next > first + few ? next - few : first;
            int rc;
            while ((rc = cl_log_truncate(log, from, &op)) == -EAGAIN)
                settle(log);
            CHECK(rc == 0, "truncate: %d", rc);
            next = from;
        } else {
            struct cl_log_op vote = {.data = &next, .bytes = 8};
            int rc;
            while ((rc = cl_log_meta_set(log, &vote)) == -EAGAIN)
                settle(log);
            CHECK(rc == 0, "vote: %d", rc);
            settle(log);
        }
        settle(log);
        if (round % 199 == 0) {
            struct cl_log_stats stats;
            cl_log_stats(log, &stats);
            passes += stats.repacks;
            CHECK(verify(log) == next - first, "records");
            drop(log);
            log = open_log(&config, 0, NULL);
            CHECK(verify(log) == next - first && cl_log_next_index(log) == next, "records after opening");
        }
    }
    CHECK(passes > 5, "nothing was copied");
    drop(log);
    cl_blk_close(disk);
}

/* A cursor that is open while what it reads is copied and overwritten reads all the same. */
static void read_on(void)
{
    struct cl_blk *disk = fresh(18);
    struct cl_log_config config = {.blk = disk};
    struct cl_log *log = open_log(&config, 0, NULL);
    struct cl_log_cursor *c;
    struct cl_log_record r;
    struct cl_log_op op = {0};
    uint8_t want[600];
    for (uint64_t i = 1; i <= 60; i++)
        append_alone(log, i);
    CHECK(cl_log_cursor_open(log, 1, &c) == 0, "cursor");
    for (uint64_t i = 1; i <= 60; i++) {
        CHECK(next_record(log, c, &r) == 1 && r.index == i && r.bytes == make(i, want) &&
                  !memcmp(r.data, want, r.bytes),
              "record %llu: %s", (unsigned long long)i, cl_log_cursor_why(c));
        for (unsigned k = 0; k < 40; k++) {
            append_alone(log, 61);
            while (cl_log_truncate(log, 61, &op) == -EAGAIN)
                settle(log);
            settle(log);
        }
    }
    CHECK(next_record(log, c, &r) == 0, "more than there is");
    cl_log_cursor_close(c);
    drop(log);
    cl_blk_close(disk);
}

struct hurry {
    struct cl_log *log;
    struct cl_log_op ops[64]; /* in flight, or done */
    uint64_t asked, next;
    uint32_t bytes[8192]; /* of each record that is kept */
    uint64_t tags[8192];
};

/* What the records that are kept take, each in a flush of its own. */
static uint64_t kept_blocks(const struct hurry *h)
{
    uint64_t all = 0;
    for (uint64_t i = 1; i < h->next; i++)
        all += cl_log_round(h->bytes[i] + 96u) / CL_LOG_BLOCK_BYTES;
    return all;
}

/* Append, truncate or vote, once the log takes it. What was asked for before need not be done. */
static void ask_at_once(struct hurry *h, bool vote, uint64_t cut_from, uint32_t bytes)
{
    static const uint8_t data[8192];
    struct cl_log_op *op = &h->ops[h->asked++ % 64];
    int rc = -EAGAIN;
    for (unsigned tries = 0; rc == -EAGAIN; tries++) {
        CHECK(tries < 10000, "it does not get on");
        if (op->result != CL_LOG_PENDING) {
            *op = (struct cl_log_op){.data = data, .tag = rng(), .bytes = vote ? 8 : cut_from ? 0 : bytes};
            rc = vote       ? cl_log_meta_set(h->log, op)
                 : cut_from ? cl_log_truncate(h->log, cut_from, op)
                            : cl_log_append(h->log, op);
        }
        if (rc == -EAGAIN && cl_log_pump(h->log) == 0 && cl_log_next_ns(h->log) != UINT64_MAX)
            now_ns = cl_max(now_ns, cl_log_next_ns(h->log));
    }
    CHECK(rc == 0, "%d: a ring of %llu bytes of which %llu blocks are kept", rc,
          (unsigned long long)cl_log_ring_bytes(h->log), (unsigned long long)kept_blocks(h));
    if (vote)
        return;
    h->bytes[h->next] = bytes;
    h->tags[h->next] = op->tag;
    h->next = cut_from ? cut_from : h->next + 1;
}

static void check_all(struct hurry *h)
{
    struct cl_log_cursor *c;
    struct cl_log_record r;
    settle(h->log);
    CHECK(cl_log_cursor_open(h->log, 1, &c) == 0, "cursor");
    for (uint64_t i = 1; i < h->next; i++)
        CHECK(next_record(h->log, c, &r) == 1 && r.index == i && r.bytes == h->bytes[i] && r.tag == h->tags[i],
              "record %llu: %s", (unsigned long long)i, cl_log_cursor_why(c));
    CHECK(next_record(h->log, c, &r) == 0, "more than there is");
    cl_log_cursor_close(c);
}

/* Rings of few flushes, and of more, on a disk that takes its time, while what was asked for is not waited for. What is
 * kept takes a third of the ring at most, so it is never full, not for a moment either. */
static void hurried(void)
{
    static struct hurry h;
    for (unsigned flushes = CL_LOG_RING_FLUSHES; flushes <= 16; flushes++) {
        uint64_t blocks = 2 * flushes + flushes % 2, passes = 0;
        struct cl_blk *memory = memory_disk((2 + blocks) * CL_LOG_BLOCK_BYTES);
        struct cl_log_layout layout = {.area_id = flushes, .flush_bytes = 8192};
        char err[256];
        CHECK(cl_log_format(memory, 0, &layout, err) == 0, "%s", err);
        struct cl_blk_fault_config slow = {.seed = rng(), .latency_min_ns = 1000, .latency_max_ns = 90000};
        struct cl_blk *disk = bad_disk(memory, slow);
        struct cl_log_config config = {.blk = disk};
        h = (struct hurry){.log = open_log(&config, 0, NULL), .next = 1};
        for (unsigned round = 1; round <= 2000; round++) {
            uint32_t bytes = (uint32_t)below(below(3) ? 600 : cl_log_max_bytes(h.log) + 1);
            bool full = kept_blocks(&h) + cl_log_round(bytes + 96u) / CL_LOG_BLOCK_BYTES > blocks / 3;
            ask_at_once(&h, below(20) == 0, full || below(3) == 0 ? h.next - below(h.next) : 0, bytes);
            for (uint64_t pumps = below(4); pumps; pumps--)
                if (cl_log_pump(h.log) == 0)
                    now_ns += below(30000);
            if (round % 500)
                continue;
            struct cl_log_stats stats;
            check_all(&h);
            cl_log_stats(h.log, &stats);
            passes += stats.repacks;
            drop(h.log);
            h.log = open_log(&config, 0, NULL);
            check_all(&h);
        }
        CHECK(passes > 5, "nothing was copied");
        drop(h.log);
        cl_blk_close(disk);
    }
}

/* Truncate at the end again and again, which takes a block each time, until something was copied and no longer: that
 * waits to be sent. */
static void until_copied(struct cl_log *log)
{
    struct cl_log_op op = {0};
    struct cl_log_stats stats = {0};
    for (unsigned turn = 0; !stats.repacked_bytes; turn++) {
        CHECK(turn < 10000, "nothing was copied");
        if (!cl_log_busy(log))
            CHECK(cl_log_truncate(log, cl_log_next_index(log), &op) == 0, "truncate");
        if (cl_log_pump(log) == 0)
            now_ns = cl_max(now_ns, cl_log_next_ns(log));
        cl_log_stats(log, &stats);
    }
}

/* A program that does not know copies must not open a log that has some: both superblocks say so before the first is
 * written. */
static void version(void)
{
    struct cl_blk *memory = fresh(19);
    struct cl_blk *disk =
        bad_disk(memory, (struct cl_blk_fault_config){.latency_min_ns = 1000, .latency_max_ns = 1000});
    struct cl_log_config config = {.blk = disk};
    struct cl_log *log = open_log(&config, 0, NULL);
    append_alone(log, 1);
    until_copied(log);
    for (unsigned slot = 0; slot < 2; slot++) {
        const uint8_t *block = (const uint8_t *)cl_blk_memory_data(memory) + slot * CL_LOG_BLOCK_BYTES;
        const struct cl_log_disk_super *s = (const void *)block;
        CHECK(s->version == 3, "has copies, and superblock %u is of version %u", slot, s->version);
    }
    drop(log);
    cl_blk_close(disk);
}

enum { KEPT = 40, GIVEN_UP = 21 };

/* The first of the records are as they were, and then there is one other. */
static void first_and_other(struct cl_log *log)
{
    struct cl_log_cursor *c;
    struct cl_log_record r;
    uint8_t want[600];
    CHECK(cl_log_cursor_open(log, 1, &c) == 0, "cursor");
    for (uint64_t i = 1; i < GIVEN_UP; i++)
        CHECK(next_record(log, c, &r) == 1 && r.index == i && r.tag == i * 3 && r.bytes == make(i, want) &&
                  !memcmp(r.data, want, r.bytes),
              "record %llu: %s", (unsigned long long)i, cl_log_cursor_why(c));
    CHECK(next_record(log, c, &r) == 1 && r.index == GIVEN_UP && r.bytes == 5 && !memcmp(r.data, "other", 5),
          "record %u is one that was given up", GIVEN_UP);
    CHECK(next_record(log, c, &r) == 0, "more than there is");
    CHECK(cl_log_cursor_close(c) == 0, "close");
}

/* What was copied is given up, and another record comes in its place, all in the flush of the copies. */
static void given_up(void)
{
    struct cl_blk *disk = fresh(20);
    struct cl_log_config config = {.blk = disk, .fixed_records = 4 * KEPT, .fixed_wait_ns = 1000000};
    struct cl_log_op cut = {0}, other = {.data = "other", .bytes = 5};
    struct cl_log *log = open_log(&config, 0, NULL);
    for (uint64_t i = 1; i <= KEPT; i++)
        append_alone(log, i);
    until_copied(log);
    CHECK(cl_log_truncate(log, GIVEN_UP, &cut) == 0 && cl_log_append(log, &other) == 0, "truncate and append");
    settle(log);
    CHECK(cut.result == 0 && other.result == 0 && cut.lsn == other.lsn, "not durable");
    first_and_other(log);
    drop(log);
    log = open_log(&config, 0, NULL);
    first_and_other(log);
    drop(log);
    cl_blk_close(disk);
}

int main(int argc, char **argv)
{
    static const struct named all[] = {{"garbage", garbage}, {"churn", churn},       {"read_on", read_on},
                                       {"version", version}, {"given_up", given_up}, {"hurried", hurried}};
    keep_heap();
    return run_named(argc, argv, all, sizeof all / sizeof *all);
}

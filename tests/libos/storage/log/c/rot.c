/* What a log makes of a device that is not as it left it: a bit flipped at every byte, leftovers of other logs and of
 * earlier epochs, a superblock lost at the moment of an acknowledgement. argv: seed, then flips, closed, confirmed,
 * unreadable, leftovers, gap, reopened, copied or acknowledged; of how many bytes one is flipped. */
#include "records.h"

#define RECORDS 40

static uint8_t image[AREA];
static unsigned boundary[RECORDS + 2]; /* first record of each flush */
static unsigned n_flushes, stride;

enum leave { ABRUPTLY, CLOSED, CONFIRMED };

static void build(struct cl_blk *disk, enum leave leave)
{
    struct cl_log_config config = {.blk = disk};
    struct cl_log *log = open_log(&config, 0, NULL);
    struct cl_log_op ops[RECORDS], meta = {.data = "vote", .bytes = 4};
    for (unsigned i = 0; i < RECORDS;) {
        boundary[n_flushes++] = i;
        for (unsigned burst = 1 + i % 5; burst && i < RECORDS; burst--, i++)
            append(log, &ops[i], i + 1);
        if (n_flushes == 3)
            CHECK(cl_log_meta_set(log, &meta) == 0, "meta");
        settle(log);
    }
    boundary[n_flushes] = RECORDS;
    if (leave == CONFIRMED) {
        struct cl_log_stats stats;
        now_ns = cl_log_next_ns(log);
        CHECK(cl_log_pump(log), "there was nothing to confirm");
        settle(log);
        cl_log_stats(log, &stats);
        CHECK(stats.said_flush == stats.last_flush && cl_log_next_ns(log) == UINT64_MAX, "not confirmed");
    }
    if (leave == CLOSED)
        CHECK(close_log(log) == 0, "close");
    else
        drop(log);
    memcpy(image, cl_blk_memory_data(disk), AREA);
}

/* Whether a byte of the image is one of a flush's header; each flush is of one block. */
static bool in_header(uint64_t at)
{
    const uint8_t *block = image + at / CL_LOG_BLOCK_BYTES * CL_LOG_BLOCK_BYTES;
    return at >= 2 * CL_LOG_BLOCK_BYTES && at % CL_LOG_BLOCK_BYTES < sizeof(struct cl_log_disk_flush) &&
           ((const struct cl_log_disk_flush *)block)->bytes;
}

/* Open what a flip left in each way. Returns the records found, or -1: refused. */
static int64_t attempt(struct cl_blk *disk, uint64_t at, enum leave leave)
{
    struct cl_log_config config = {.blk = disk};
    struct cl_log_report report;
    struct cl_log *log;
    char err[256];
    int rc = cl_log_open_wait(&config, &log, &report, err);
    if (rc == 0) {
        int64_t found = (int64_t)verify(log);
        uint64_t lost = RECORDS - (uint64_t)found;
        CHECK(lost == 0 || (leave == ABRUPTLY && lost == RECORDS - boundary[n_flushes - 1] &&
                            report.tail == CL_LOG_TAIL_TORN && report.bad_index == (uint64_t)found + 1),
              "byte %llu: %llu records lost without a word: %s", (unsigned long long)at, (unsigned long long)lost,
              report.why);
        CHECK(at >= 2 * CL_LOG_BLOCK_BYTES || at % CL_LOG_BLOCK_BYTES >= 512 || report.bad_superblocks,
              "byte %llu: a bad superblock was not reported", (unsigned long long)at);
        CHECK(lost || !in_header(at), "byte %llu: a bad header was taken for a good one", (unsigned long long)at);
        drop(log);
        return found;
    }
    CHECK(rc == -EBADMSG && strstr(err, "offset"), "byte %llu: %d %s", (unsigned long long)at, rc, err);
    if (report.area_id == 0) /* no superblock */
        return -1;
    CHECK(report.bad_offset / 8192 * 8192 <= at && report.bad_index, "byte %llu: %s", (unsigned long long)at, err);
    memcpy(cl_blk_memory_data(disk), image, AREA);
    return -1;
}

/* After a pause, which confirms what was acknowledged last, only what that is about is tried: superblocks and the last
 * flushes. */
static void flips(enum leave leave)
{
    struct cl_blk *disk = fresh(77);
    build(disk, leave);
    uint8_t *data = cl_blk_memory_data(disk);
    unsigned refused = 0, torn = 0, unharmed = 0;
    uint64_t end = AREA;
    while (image[end - 1] == 0)
        end--;
    for (uint64_t at = 0; at < end; at += stride) {
        if (at >= 512 && at < CL_LOG_BLOCK_BYTES)
            continue;
        if (leave == CONFIRMED && at >= 2 * CL_LOG_BLOCK_BYTES && at + 4 * CL_LOG_BLOCK_BYTES < end)
            continue;
        memcpy(data, image, AREA);
        uint8_t bit = (uint8_t)(1u << below(8));
        data[at] ^= bit;
        int64_t found = attempt(disk, at, leave);
        refused += found < 0;
        torn += found >= 0 && found < RECORDS;
        unharmed += found == RECORDS;
        if (found >= 0)
            continue;
        data[at] ^= bit; /* the same, and told to cut: what is left is a log that goes on */
        struct cl_log_config config = {.blk = disk, .on_damage = CL_LOG_CUT};
        struct cl_log_op op;
        struct cl_log *log = open_log(&config, 0, NULL);
        uint64_t n = verify(log);
        append(log, &op, n + 1);
        settle(log);
        CHECK(op.result == 0, "append after the cut");
        drop(log);
        config.on_damage = CL_LOG_REFUSE;
        log = open_log(&config, 0, NULL);
        CHECK(verify(log) == n + 1, "what was cut came back");
        drop(log);
    }
    CHECK(refused > 1000 / stride && (leave == ABRUPTLY ? torn > 50 / stride : torn == 0), "%u refused, %u torn",
          refused, torn);
    printf("%u refused, %u torn, %u without effect\n", refused, torn, unharmed);
    cl_blk_close(disk);
}

/* Which record begins a block of the image, 0: none. */
static void first_records(struct cl_blk *disk, uint64_t first[AREA / CL_LOG_BLOCK_BYTES])
{
    struct cl_log_config config = {.blk = disk, .on_damage = CL_LOG_READ_ONLY};
    struct cl_log *log = open_log(&config, 0, NULL);
    struct cl_log_cursor *c;
    struct cl_log_record r;
    CHECK(cl_log_cursor_open(log, 1, &c) == 0, "cursor");
    while (next_record(log, c, &r) == 1)
        if (!first[r.offset / CL_LOG_BLOCK_BYTES])
            first[r.offset / CL_LOG_BLOCK_BYTES] = r.index;
    CHECK(cl_log_cursor_close(c) == 0, "close");
    drop(log);
}

/* Open with one block that cannot be read. first: of its records, 0 if it holds none. */
static void one_unreadable(struct cl_blk *disk, uint64_t block, uint64_t first, bool refused)
{
    uint64_t offset = block * CL_LOG_BLOCK_BYTES;
    struct cl_log_config config = {.blk = disk};
    struct cl_log_report report;
    struct cl_log_op op;
    char where[64];
    CHECK(cl_blk_fault_unreadable(disk, offset + below(8) * 512, 512, true) == 0, "mark");
    config.on_damage = CL_LOG_READ_ONLY;
    struct cl_log *log = open_log(&config, 0, &report);
    CHECK(report.unreadable_blocks == 1 && report.unreadable_offset == offset, "block %llu", (unsigned long long)block);
    CHECK((report.tail == CL_LOG_TAIL_DAMAGED) == refused, "block %llu: %s", (unsigned long long)block, report.why);
    CHECK(verify(log) == (first ? first - 1 : RECORDS), "block %llu", (unsigned long long)block);
    drop(log);
    config.on_damage = CL_LOG_REFUSE;
    log = open_log(&config, refused ? -EBADMSG : 0, &report);
    if (refused) {
        snprintf(where, sizeof where, "the block at offset %llu cannot be read: ", (unsigned long long)offset);
        CHECK(!strncmp(report.why, where, strlen(where)) && strstr(report.why, strerror(EIO)), "%s", report.why);
        config.on_damage = CL_LOG_CUT;
        log = open_log(&config, 0, NULL);
    }
    uint64_t n = verify(log);
    append(log, &op, n + 1); /* over the block, if that was the end */
    settle(log);
    CHECK(op.result == 0, "append");
    drop(log);
    config.on_damage = CL_LOG_REFUSE;
    log = open_log(&config, 0, &report);
    CHECK(verify(log) == n + 1 && report.unreadable_blocks == 0, "%s", report.why);
    drop(log);
}

/* Each block in turn cannot be read: what lies behind the end of a log that was closed does not matter, right behind
 * the end of one that was not there might have been more. */
static void unreadable(void)
{
    for (enum leave leave = ABRUPTLY; leave <= CONFIRMED; leave++) {
        uint64_t first[AREA / CL_LOG_BLOCK_BYTES] = {0}, last = 0;
        struct cl_blk *memory = fresh(78);
        n_flushes = 0;
        build(memory, leave);
        first_records(memory, first);
        struct cl_blk *disk = bad_disk(memory, (struct cl_blk_fault_config){.latency_max_ns = 1000});
        for (uint64_t b = 0; b < AREA / CL_LOG_BLOCK_BYTES; b++)
            last = first[b] ? b : last;
        for (uint64_t b = 0; b < AREA / CL_LOG_BLOCK_BYTES; b++) {
            memcpy(cl_blk_memory_data(memory), image, AREA);
            one_unreadable(disk, b, first[b], first[b] || (b == last + 1 && leave != CLOSED));
            CHECK(cl_blk_fault_unreadable(disk, 0, AREA, false) == 0, "mend");
        }
        struct cl_log_config config = {.blk = disk};
        struct cl_log *log;
        char err[256];
        CHECK(cl_blk_fault_unreadable(disk, 0, 2 * CL_LOG_BLOCK_BYTES, true) == 0, "mark");
        CHECK(cl_log_open(&config, &log, err) == 0, "%s", err);
        settle(log);
        CHECK(cl_log_error(log) == -EBADMSG && strstr(cl_log_why(log), "cannot be read"), "%s", cl_log_why(log));
        cl_log_discard(log);
        cl_blk_close(disk);
    }
}

/* A read back that fails says where, and harms nothing: when the block can be read again, so can the record. */
static void unreadable_record(void)
{
    struct cl_blk *memory = fresh(79);
    n_flushes = 0;
    build(memory, ABRUPTLY);
    struct cl_blk *disk = bad_disk(memory, (struct cl_blk_fault_config){.latency_max_ns = 1000});
    struct cl_log_config config = {.blk = disk};
    struct cl_log *log = open_log(&config, 0, NULL);
    struct cl_log_cursor *c;
    struct cl_log_record r;
    settle(log);
    CHECK(cl_blk_fault_unreadable(disk, 2 * CL_LOG_BLOCK_BYTES, AREA - 2 * CL_LOG_BLOCK_BYTES, true) == 0, "mark");
    CHECK(cl_log_cursor_open(log, 1, &c) == 0, "cursor");
    CHECK(next_record(log, c, &r) == -EIO && strstr(cl_log_cursor_why(c), "at offset 8192 failed"), "%s",
          cl_log_cursor_why(c));
    CHECK(cl_blk_fault_unreadable(disk, 0, AREA, false) == 0, "mend");
    CHECK(next_record(log, c, &r) == 1 && r.index == 1, "it can be read again");
    CHECK(cl_log_cursor_close(c) == 0, "close");
    CHECK(cl_log_error(log) == 0, "a read ended the log");
    drop(log);
    cl_blk_close(disk);
}

/* A log on an area where another one was, of which flushes of the right number lie at the right places. */
static void leftovers(void)
{
    struct cl_blk *disk = fresh(1);
    build(disk, ABRUPTLY);
    struct cl_log_layout layout = {.area_id = 2, .flush_bytes = 8192};
    struct cl_log_config config = {.blk = disk};
    struct cl_log_report report;
    struct cl_log_op op;
    for (unsigned n = 0; n < 8; n++) {
        memcpy(cl_blk_memory_data(disk), image, AREA);
        CHECK(cl_log_format(disk, 0, &layout, NULL) == 0, "format");
        struct cl_log *log = open_log(&config, 0, NULL);
        for (unsigned i = 1; i <= n; i++) {
            append(log, &op, i);
            settle(log);
        }
        drop(log);
        log = open_log(&config, 0, &report);
        CHECK(verify(log) == n && report.tail == CL_LOG_TAIL_CLEAN, "%u: %s", n, report.why);
        drop(log);
    }
    cl_blk_close(disk);
}

/* Two flushes in flight at a power cut, of which only the second was stored. What is then written in place of the first
 * must not bring the second back. */
static void gap(void)
{
    struct cl_blk *memory = fresh(3);
    struct cl_blk_fault_config faults = {.seed = 1, .latency_min_ns = 1000, .latency_max_ns = 1000};
    struct cl_blk *disk = bad_disk(memory, faults);
    struct cl_log_config config = {.blk = disk, .in_flight = 2};
    struct cl_log_report report;
    struct cl_log_op ops[4];
    struct cl_log *log = open_log(&config, 0, NULL);
    append(log, &ops[0], 1);
    settle(log);
    append(log, &ops[1], 2);
    cl_log_pump(log);
    append(log, &ops[2], 3);
    cl_log_pump(log);
    settle(log);
    struct cl_log_stats stats;
    cl_log_stats(log, &stats);
    CHECK(stats.flushes == 3, "two were in flight side by side");
    drop(log);
    uint8_t *data = cl_blk_memory_data(memory);
    memset(data + 3 * CL_LOG_BLOCK_BYTES, 0, CL_LOG_BLOCK_BYTES); /* superblocks, flush 1, flush 2 */
    log = open_log(&config, 0, &report);
    CHECK(report.tail == CL_LOG_TAIL_TORN && verify(log) == 1, "%s", report.why);
    append(log, &ops[3], 2);
    settle(log);
    drop(log);
    log = open_log(&config, 0, &report);
    CHECK(verify(log) == 2, "a flush of an earlier epoch was adopted");
    CHECK(report.tail == CL_LOG_TAIL_CLEAN, "%s", report.why);
    drop(log);
    cl_blk_close(disk);
}

/* A log that was closed and opened again: the crash comes before both superblocks are of the new epoch, and the one
 * that is rots. The old one says "closed, nothing follows", which was true in its time. */
static void reopened(void)
{
    struct cl_blk *disk = fresh(6);
    build(disk, CLOSED);
    struct cl_log_config config = {.blk = disk};
    struct cl_log_report report;
    struct cl_log_op op;
    struct cl_log *log = open_log(&config, 0, NULL);
    append(log, &op, RECORDS + 1);
    settle(log);
    CHECK(op.result == 0, "append");
    drop(log);
    uint8_t *data = cl_blk_memory_data(disk);
    struct cl_log_disk_super *slots[] = {(void *)data, (void *)(data + CL_LOG_BLOCK_BYTES)};
    CHECK(!slots[0]->closed && !slots[1]->closed, "both are of the new epoch");
    unsigned first = slots[0]->generation > slots[1]->generation; /* the one written at once; the other followed */
    memcpy(slots[!first], image + !first * CL_LOG_BLOCK_BYTES, CL_LOG_BLOCK_BYTES);
    slots[first]->crc ^= 1;
    open_log(&config, -EBADMSG, &report);
    CHECK(report.bad_index == RECORDS + 1 && report.bad_superblocks == 1u << first, "%s", report.why);
    cl_blk_close(disk);
}

/* One of the records rots while the log is open. Re-packing does not make a good one of it: it stays where it lies, is
 * refused, and so is the log when it is opened. */
static void copied(void)
{
    enum { KEPT = 20 };
    struct cl_blk *disk = fresh(20);
    struct cl_log_config config = {.blk = disk};
    struct cl_log *log = open_log(&config, 0, NULL);
    struct cl_log_cursor *c;
    struct cl_log_record r;
    struct cl_log_stats stats;
    uint64_t bad = 1 + below(KEPT);
    for (uint64_t i = 1; i <= KEPT; i++)
        append_alone(log, i);
    CHECK(cl_log_cursor_open(log, bad, &c) == 0 && next_record(log, c, &r) == 1 && r.bytes, "record");
    ((uint8_t *)cl_blk_memory_data(disk))[r.offset + sizeof(struct cl_log_disk_record)] ^= 1;
    CHECK(cl_log_cursor_close(c) == 0, "close");
    for (unsigned round = 0; round < 300; round++) { /* it fills: what is behind that record cannot be freed */
        uint8_t data[600];
        struct cl_log_op op = {.data = data, .tag = 3 * (KEPT + 1), .bytes = make(KEPT + 1, data)};
        int rc = take(log, &op);
        settle(log);
        while (rc == 0 && cl_log_truncate(log, KEPT + 1, &op) == -EAGAIN)
            settle(log);
        settle(log);
    }
    cl_log_stats(log, &stats);
    CHECK(stats.repacked_bytes, "nothing was copied");
    for (uint64_t i = 1; i <= KEPT; i++) {
        uint8_t want[600];
        CHECK(cl_log_cursor_open(log, i, &c) == 0, "cursor");
        int rc = next_record(log, c, &r);
        CHECK(rc == (i == bad ? -EBADMSG : 1), "record %llu, of which %llu is damaged: %d", (unsigned long long)i,
              (unsigned long long)bad, rc);
        CHECK(rc < 0 || (r.bytes == make(i, want) && !memcmp(r.data, want, r.bytes)), "content");
        CHECK(cl_log_cursor_close(c) == 0, "close");
    }
    drop(log);
    open_log(&config, -EBADMSG, NULL);
    cl_blk_close(disk);
}

/* Pump until it is acknowledged and no further, then what a crash leaves of the memory below if either superblock rots
 * as well. */
static void crash_when_done(struct cl_log *log, struct cl_blk *memory, const struct cl_log_op *op, uint64_t first,
                            uint64_t snapshot)
{
    while (op->result == CL_LOG_PENDING)
        if (cl_log_pump(log) == 0 && cl_log_next_ns(log) != UINT64_MAX)
            now_ns = cl_max(now_ns, cl_log_next_ns(log));
    CHECK(op->result == 0, "%d", op->result);
    for (uint64_t slot = 0; slot < 2; slot++) {
        struct cl_blk *left = memory_disk(AREA);
        struct cl_log_config config = {.blk = left};
        struct cl_log_report report;
        struct cl_log_snapshot found;
        uint8_t *data = cl_blk_memory_data(left);
        memcpy(data, cl_blk_memory_data(memory), AREA);
        data[slot * CL_LOG_BLOCK_BYTES + below(512)] ^= 1;
        struct cl_log *again = open_log(&config, 0, &report);
        CHECK(report.bad_superblocks == 1u << slot, "%u", report.bad_superblocks);
        CHECK(cl_log_first_index(again) == first, "slot %llu: records from %llu on, not %llu", (unsigned long long)slot,
              (unsigned long long)cl_log_first_index(again), (unsigned long long)first);
        cl_log_snapshot_get(again, &found);
        CHECK(found.index == snapshot, "slot %llu: the snapshot of %llu, not %llu", (unsigned long long)slot,
              (unsigned long long)found.index, (unsigned long long)snapshot);
        drop(again);
        cl_blk_close(left);
    }
}

/* What a superblock says is acknowledged when either of them may rot. */
static void acknowledged(void)
{
    struct cl_blk *memory = memory_disk(AREA);
    struct cl_log_layout layout = {.area_id = 9, .flush_bytes = 8192, .snapshot_bytes = 8192};
    char err[256];
    CHECK(cl_log_format(memory, 0, &layout, err) == 0, "%s", err);
    struct cl_blk *disk =
        bad_disk(memory, (struct cl_blk_fault_config){.latency_min_ns = 1000, .latency_max_ns = 1000});
    struct cl_log_config config = {.blk = disk};
    struct cl_log *log = open_log(&config, 0, NULL);
    struct cl_log_op op;
    uint64_t next = 1, snapshot = 0;
    for (unsigned round = 0; round < 20; round++) {
        uint64_t first = cl_log_first_index(log);
        do {
            append(log, &op, next++);
            settle(log);
        } while (next < first + 3);
        if (round % 2) {
            snapshot = next - 1;
            CHECK(cl_log_snapshot_begin(log, snapshot, 7) == 0 && cl_log_snapshot_write(log, "state", 5) == 5,
                  "snapshot");
            CHECK(cl_log_snapshot_commit(log, &op) == 0, "commit");
        } else {
            first = next - 1;
            CHECK(cl_log_trim(log, first, &op) == 0, "trim");
        }
        crash_when_done(log, memory, &op, first, snapshot);
        if (round % 3)
            settle(log);
    }
    drop(log);
    cl_blk_close(disk);
}

int main(int argc, char **argv)
{
    CHECK(argc == 4, "usage");
    stride = (unsigned)atoi(argv[3]);
    keep_heap();
    rng_state = strtoull(argv[1], NULL, 10);
    if (!strcmp(argv[2], "flips"))
        flips(ABRUPTLY);
    else if (!strcmp(argv[2], "closed"))
        flips(CLOSED);
    else if (!strcmp(argv[2], "confirmed"))
        flips(CONFIRMED);
    else if (!strcmp(argv[2], "unreadable")) {
        unreadable();
        unreadable_record();
    } else if (!strcmp(argv[2], "leftovers"))
        leftovers();
    else if (!strcmp(argv[2], "gap"))
        gap();
    else if (!strcmp(argv[2], "reopened"))
        reopened();
    else if (!strcmp(argv[2], "copied"))
        copied();
    else
        acknowledged();
    printf("ok\n");
    return 0;
}

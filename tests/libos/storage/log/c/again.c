/* Logs that are opened again, and readers of one that changes, in the rare states that random runs do not meet: a flush
 * that another writer could have made, what was given up by a cut, a block of zeros that cannot be read, a ring that
 * grows where it just ended, a truncation under a read, a format of another version. argv: seed, then forged, cut,
 * zeros, grown, read, stale or version. */
#include "libos/storage/log/internal.h"
#include "records.h"

static struct cl_log_disk_flush *flush_at(struct cl_blk *disk, unsigned block)
{
    return (void *)((uint8_t *)cl_blk_memory_data(disk) + (uint64_t)block * CL_LOG_BLOCK_BYTES);
}

/* Move what a flush says of its indexes by so much, with checksums that are right. */
static void forge(struct cl_log_disk_flush *h, uint64_t area_id, uint64_t offset, int64_t by)
{
    h->first_index += (uint64_t)by;
    uint8_t *at = (uint8_t *)(h + 1);
    for (uint32_t i = 0; i < h->records; i++) {
        struct cl_log_disk_record *r = (void *)at;
        r->index += (uint64_t)by;
        r->crc = cl_log_record_crc(cl_log_seed(area_id, h->epoch, h->lsn), r);
        at += cl_log_record_bytes(r->bytes);
    }
    h->crc = cl_crc32c(cl_log_seed(area_id, offset, 0), &h->lsn, sizeof *h - 8);
}

/* A flush whose checksums are right, and that does not begin where the one before it ended, is none. */
static void forged(void)
{
    for (int by = -2; by <= 2; by++) {
        struct cl_blk *disk = fresh(20);
        struct cl_log_config config = {.blk = disk};
        struct cl_log_report report;
        struct cl_log_op ops[6];
        struct cl_log *log = open_log(&config, 0, NULL);
        for (unsigned i = 0; i < 6; i++) {
            append(log, &ops[i], i + 1);
            if (i % 2)
                settle(log);
        }
        drop(log);
        forge(flush_at(disk, 3), 20, 3 * CL_LOG_BLOCK_BYTES, by);
        log = open_log(&config, by ? -EBADMSG : 0, &report);
        CHECK(report.next_index == (by ? 3 : 7), "%d: up to %llu", by, (unsigned long long)report.next_index);
        if (log)
            drop(log);
        cl_blk_close(disk);
    }
}

/* Of a closed log that was opened again the newer superblock rots, so the older one knows nothing of the epoch of what
 * follows. That is given up, and does not come back behind what is then appended. */
static void cut(void)
{
    struct cl_blk *disk = fresh(21);
    struct cl_log_config config = {.blk = disk};
    struct cl_log_op op;
    struct cl_log *log = open_log(&config, 0, NULL);
    append(log, &op, 1);
    settle(log);
    CHECK(close_log(log) == 0, "close");
    struct cl_log_disk_super *slots[] = {(void *)flush_at(disk, 0), (void *)flush_at(disk, 1)};
    struct cl_log_disk_super old[2] = {*slots[0], *slots[1]};
    CHECK(old[0].closed && old[1].closed, "both say that it was closed");
    log = open_log(&config, 0, NULL);
    for (unsigned i = 2; i <= 3; i++) {
        append(log, &op, i);
        settle(log);
    }
    drop(log);
    unsigned newer = slots[1]->generation > slots[0]->generation;
    slots[newer]->crc ^= 1;
    *slots[!newer] = old[!newer];
    open_log(&config, -EBADMSG, NULL);
    config.on_damage = CL_LOG_CUT;
    log = open_log(&config, 0, NULL);
    CHECK(verify(log) == 1, "cut");
    append(log, &op, 2);
    settle(log);
    drop(log);
    config.on_damage = CL_LOG_REFUSE;
    log = open_log(&config, 0, NULL);
    CHECK(verify(log) == 2, "what was given up came back");
    drop(log);
    cl_blk_close(disk);
}

/* A block that cannot be read where the checksum says that it held zeros: nothing is lost, and it can be read again. */
static void zeros(void)
{
    static const uint8_t data[16384];
    struct cl_blk *memory = memory_disk(AREA);
    struct cl_log_layout layout = {.area_id = 22, .flush_bytes = 32768};
    CHECK(cl_log_format(memory, 0, &layout, NULL) == 0, "format");
    struct cl_blk *disk = bad_disk(memory, (struct cl_blk_fault_config){.latency_max_ns = 1000});
    struct cl_log_config config = {.blk = disk};
    struct cl_log_report report;
    struct cl_log_op op = {.data = data, .bytes = sizeof data};
    struct cl_log_cursor *c;
    struct cl_log_record r;
    struct cl_log *log = open_log(&config, 0, NULL);
    CHECK(cl_log_append(log, &op) == 0, "append");
    drop(log);
    CHECK(cl_blk_fault_unreadable(disk, 4 * CL_LOG_BLOCK_BYTES, 512, true) == 0, "mark");
    log = open_log(&config, 0, &report);
    CHECK(report.unreadable_blocks == 1 && report.tail == CL_LOG_TAIL_CLEAN, "%s", report.why);
    CHECK(cl_log_cursor_open(log, 1, &c) == 0, "cursor");
    CHECK(next_record(log, c, &r) == 1 && r.bytes == sizeof data && !memcmp(r.data, data, sizeof data), "%s",
          cl_log_cursor_why(c));
    CHECK(cl_log_cursor_close(c) == 0, "close");
    drop(log);
    log = open_log(&config, 0, &report);
    CHECK(report.unreadable_blocks == 0, "the sector was not replaced");
    drop(log);
    cl_blk_close(disk);
}

/* The area grows when the last flush ended so close to the end of the ring that the next one was to begin at the ring's
 * beginning. Before it takes an append both superblocks know of the new end, and what is appended is found. */
static void grown(void)
{
    uint64_t less = AREA - 65536;
    struct cl_blk *memory = memory_disk(AREA);
    struct cl_log_layout layout = {.area_id = 23, .flush_bytes = 8192};
    memory->bytes = less;
    CHECK(cl_log_format(memory, 0, &layout, NULL) == 0, "format");
    struct cl_blk *disk =
        bad_disk(memory, (struct cl_blk_fault_config){.latency_min_ns = 1000, .latency_max_ns = 1000});
    struct cl_log_config config = {.blk = disk};
    struct cl_log_report report;
    struct cl_log_op op;
    struct cl_log *log = open_log(&config, 0, NULL);
    uint64_t next = 1;
    uint64_t blocks = less / CL_LOG_BLOCK_BYTES - 2; /* of the ring */
    for (; next < blocks - 1; next++) {
        append(log, &op, next);
        settle(log);
        if (next % 20 == 0)
            CHECK(cl_log_trim(log, next - 1, NULL) == 0, "trim");
        settle(log);
    }
    CHECK(cl_log_truncate(log, next, &op) == 0, "truncate"); /* one block is left behind it, and a flush may have two */
    drop(log);
    memory->bytes = disk->bytes = AREA;
    log = open_log(&config, 0, &report);
    CHECK(report.grown_bytes == 65536, "%llu", (unsigned long long)report.grown_bytes);
    const struct cl_log_disk_super *slots[] = {(void *)flush_at(memory, 0), (void *)flush_at(memory, 1)};
    CHECK(slots[0]->area_bytes == AREA && slots[1]->area_bytes == AREA, "one would not look behind the old end");
    append(log, &op, next);
    drop(log);
    log = open_log(&config, 0, &report);
    CHECK(verify(log) && cl_log_durable_index(log) == next, "what was appended first is lost: %s", report.why);
    drop(log);
    cl_blk_close(disk);
}

/* A log with six records in one flush. */
static struct cl_log *six(struct cl_blk *disk, struct cl_log_op ops[6])
{
    struct cl_log_config config = {.blk = disk};
    struct cl_log *log = open_log(&config, 0, NULL);
    for (unsigned i = 0; i < 6; i++)
        append(log, &ops[i], i + 1);
    settle(log);
    return log;
}

static const struct cl_blk_fault_config QUICK = {.latency_min_ns = 1000, .latency_max_ns = 1000};
static const struct cl_blk_fault_config SLOW = {.latency_min_ns = 1000000, .latency_max_ns = 1000000};

/* A truncation becomes durable, and others are appended, while the device reads what it gives up. */
static void read_under_truncation(void)
{
    struct cl_blk *disk = bad_disk(fresh(24), QUICK);
    struct cl_log_op ops[6], truncate = {0}, other = {.data = "other", .bytes = 5, .tag = 1};
    struct cl_log *log = six(disk, ops);
    struct cl_log_cursor *c;
    struct cl_log_record r;
    CHECK(cl_log_cursor_open(log, 2, &c) == 0, "cursor");
    CHECK(cl_log_truncate(log, 4, &truncate) == 0 && cl_log_append(log, &other) == 0, "truncate");
    cl_log_pump(log);
    CHECK(cl_blk_fault_set(disk, &SLOW, NULL) == 0, "set");
    CHECK(cl_log_cursor_next(c, &r) == -EAGAIN, "read");
    cl_log_pump(log);
    now_ns += 2000;
    cl_log_pump(log);
    CHECK(other.result == 0 && cl_log_cursor_next(c, &r) == -EAGAIN, "the truncation is durable, the read is not done");
    for (uint64_t i = 2; i <= 4; i++)
        CHECK(next_record(log, c, &r) == 1 && r.index == i && r.tag == (i == 4 ? 1 : i * 3), "record %llu has tag %llu",
              (unsigned long long)i, (unsigned long long)r.tag);
    CHECK(next_record(log, c, &r) == 0, "a record that was given up");
    CHECK(cl_log_cursor_close(c) == 0, "close");
    drop(log);
    cl_blk_close(disk);
}

/* Who read records that were given up is told so, though others have their indexes by now. */
static void stale(void)
{
    struct cl_blk *disk = bad_disk(fresh(25), QUICK);
    struct cl_log_op ops[6], truncate = {0};
    struct cl_log *log = six(disk, ops);
    struct cl_log_cursor *behind, *before;
    struct cl_log_record r;
    CHECK(cl_log_cursor_open(log, 4, &behind) == 0 && cl_log_cursor_open(log, 3, &before) == 0, "cursors");
    CHECK(next_record(log, behind, &r) == 1 && r.index == 4, "record");
    CHECK(cl_log_truncate(log, 3, &truncate) == 0, "truncate");
    for (unsigned i = 2; i < 6; i++)
        append(log, &ops[i], i + 1);
    settle(log);
    CHECK(next_record(log, behind, &r) == -ESTALE, "it goes on as if nothing had happened");
    for (unsigned i = 3; i <= 6; i++)
        CHECK(next_record(log, before, &r) == 1 && r.index == i, "record %u", i);
    CHECK(cl_log_cursor_close(behind) == 0 && cl_log_cursor_close(before) == 0, "close");
    drop(log);
    cl_blk_close(disk);
}

/* A superblock that is whole and of a version that we do not know: whichever it is and whatever the other one says,
 * nobody opens the log, not even to look at it, and nothing is written. */
static void foreign_version(void)
{
    static const uint32_t versions[] = {0, CL_LOG_VERSION_COPIES + 1, UINT32_MAX};
    static uint8_t good[AREA], bad[AREA];
    struct cl_blk *disk = fresh(26);
    struct cl_log_op ops[6];
    CHECK(close_log(six(disk, ops)) == 0, "close");
    uint8_t *data = cl_blk_memory_data(disk);
    memcpy(good, data, AREA);
    for (unsigned i = 0; i < 27; i++) {
        unsigned slots = 1 + i % 3; /* bit 0, bit 1: which are of that version */
        uint32_t version = versions[i / 3 % 3];
        struct cl_log_config config = {.blk = disk, .on_damage = i / 9};
        struct cl_log *log;
        char err[256], want[256];
        memcpy(data, good, AREA);
        for (unsigned slot = 0; slot < 2; slot++)
            if (slots >> slot & 1) {
                struct cl_log_disk_super *s = (void *)flush_at(disk, slot);
                s->version = version;
                s->crc = cl_log_super_crc(s);
            }
        memcpy(bad, data, AREA);
        snprintf(want, sizeof want, "the superblock at offset %u is of format version %u, and this program knows ",
                 slots & 1 ? 0 : CL_LOG_BLOCK_BYTES, version);
        int rc = cl_log_open_wait(&config, &log, NULL, err);
        CHECK(rc == -EPROTO && !strncmp(err, want, strlen(want)), "slots %u, on_damage %u: %d %s", slots,
              config.on_damage, rc, err);
        CHECK(!memcmp(data, bad, AREA), "slots %u, on_damage %u: it was written to", slots, config.on_damage);
    }
    memcpy(data, good, AREA);
    struct cl_log_config config = {.blk = disk};
    struct cl_log *log = open_log(&config, 0, NULL);
    CHECK(verify(log) == 6, "the log that it was made of");
    drop(log);
    cl_blk_close(disk);
}

int main(int argc, char **argv)
{
    static const struct named all[] = {{"forged", forged},
                                       {"cut", cut},
                                       {"zeros", zeros},
                                       {"grown", grown},
                                       {"read", read_under_truncation},
                                       {"stale", stale},
                                       {"version", foreign_version}};
    return run_named(argc, argv, all, sizeof all / sizeof *all);
}

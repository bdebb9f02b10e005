/* A log whose area grows, again and again, wherever its head and end lie: what it holds stays, the new space is used,
 * and a power cut right after the growth, or before it is durable, loses nothing. argv: seed. */
#include "support.h"

#define MOST (4u << 20)

static uint64_t first = 1, next = 1; /* what the log must hold */
static uint64_t growths, waits, grown_copies;
static struct cl_blk *memory;
static bool copies; /* it has records that were copied */

static uint32_t make(uint64_t index, uint8_t out[6000])
{
    uint32_t bytes = (uint32_t)(index * 2654435761u % 6000);
    for (uint32_t i = 0; i < bytes; i++)
        out[i] = (uint8_t)(index * 7 + i);
    return bytes;
}

static void verify(struct cl_log *log)
{
    struct cl_log_cursor *c;
    struct cl_log_record r;
    uint8_t want[6000];
    int rc;
    CHECK(cl_log_first_index(log) == first && cl_log_durable_index(log) + 1 == next, "%llu..%llu, not %llu..%llu",
          (unsigned long long)cl_log_first_index(log), (unsigned long long)cl_log_durable_index(log) + 1,
          (unsigned long long)first, (unsigned long long)next);
    CHECK(cl_log_cursor_open(log, first, &c) == 0, "cursor");
    uint64_t index = first;
    for (; (rc = next_record(log, c, &r)) == 1; index++)
        CHECK(r.index == index && r.bytes == make(index, want) && !memcmp(r.data, want, r.bytes), "record %llu",
              (unsigned long long)index);
    CHECK(rc == 0 && index == next, "%d: %s", rc, cl_log_cursor_why(c));
    CHECK(cl_log_cursor_close(c) == 0, "close");
}

static bool append(struct cl_log *log)
{
    static uint8_t data[6000];
    struct cl_log_op op = {.data = data, .bytes = make(next, data)};
    int rc;
    while ((rc = cl_log_append(log, &op)) == -EAGAIN)
        settle(log);
    CHECK(rc == 0 || rc == -ENOSPC, "%d", rc);
    settle(log);
    next += rc == 0;
    return rc == 0;
}

static void trim_to(struct cl_log *log, uint64_t index)
{
    first = cl_max(first, index);
    CHECK(cl_log_trim(log, first, NULL) == 0, "trim");
    settle(log);
}

/* Some appends, with the oldest given up when there is no room. */
static void go_round(struct cl_log *log, unsigned appends)
{
    for (unsigned i = 0; i < appends; i++)
        if (!append(log))
            trim_to(log, first + 1 + below(next - first));
    if (below(4) == 0)
        trim_to(log, next);
}

/* Fill it up: the space that is there must be usable to the end. */
static void use_all(struct cl_log *log)
{
    trim_to(log, next);
    uint64_t free_bytes = cl_log_free_bytes(log), before = next;
    while (append(log))
        continue;
    CHECK(cl_log_free_bytes(log) < 2 * 8192 && next - before >= free_bytes / 8192, "%llu records in %llu bytes",
          (unsigned long long)(next - before), (unsigned long long)free_bytes);
    verify(log);
    trim_to(log, first + below(next - first));
}

static void crash(struct cl_blk *disk, struct cl_log *log)
{
    cl_blk_fault_crash(disk);
    cl_log_discard(log);
}

/* Cut off while it opens: what was written by then is all there is. */
static void open_and_crash(struct cl_blk *disk)
{
    struct cl_log_config config = {.blk = disk, .now_ns = cl_blk_fault_clock_word, .now_arg = &now_ns};
    struct cl_log *log;
    CHECK(cl_log_open(&config, &log, NULL) == 0, "open");
    for (uint64_t pumps = below(60); pumps && cl_log_state(log) == CL_LOG_OPENING; pumps--)
        if (cl_log_pump(log) == 0 && cl_log_next_ns(log) != UINT64_MAX)
            now_ns = cl_max(now_ns, cl_log_next_ns(log));
    crash(disk, log);
}

/* Programs that know no copies must go on refusing it. */
static void check_version(void)
{
    for (unsigned slot = 0; slot < 2; slot++) {
        const uint8_t *block = (const uint8_t *)cl_blk_memory_data(memory) + slot * CL_LOG_BLOCK_BYTES;
        const struct cl_log_disk_super *s = (const void *)block;
        CHECK(s->version == CL_LOG_VERSION_COPIES, "has copies, and superblock %u is of version %u", slot, s->version);
    }
}

/* One life at one size. Returns what of the area is not used yet. */
static uint64_t live(struct cl_blk *disk)
{
    struct cl_log_config config = {.blk = disk};
    struct cl_log_report report;
    struct cl_log_stats stats;
    struct cl_log *log = open_log(&config, 0, &report);
    growths += report.grown_bytes != 0;
    waits += report.unused_bytes != 0;
    grown_copies += copies && report.grown_bytes;
    if (copies)
        check_version();
    verify(log);
    if (below(2)) { /* the first append may lie where the ring grew */
        append(log);
        crash(disk, log);
        log = open_log(&config, 0, NULL);
        verify(log);
    }
    go_round(log, (unsigned)below(150));
    if (below(4) == 0)
        use_all(log);
    verify(log);
    cl_log_stats(log, &stats);
    copies |= stats.repacked_bytes != 0;
    if (below(2))
        CHECK(close_log(log) == 0, "close");
    else
        crash(disk, log);
    return report.unused_bytes;
}

int main(int argc, char **argv)
{
    CHECK(argc == 2, "usage");
    rng_state = strtoull(argv[1], NULL, 10);
    struct cl_blk_fault_config faults = {
        .seed = rng(), .survive = 0.5, .torn = 0.5, .latency_min_ns = 1000, .latency_max_ns = 9000};
    for (unsigned world = 0; world < 6; world++) {
        struct cl_blk *disk;
        struct cl_log_layout layout = {.flush_bytes = 8192, .snapshot_bytes = below(2) * 70000};
        memory = memory_disk(MOST);
        copies = false;
        uint8_t *data = cl_blk_memory_data(memory);
        for (unsigned i = 0; i < MOST; i++) /* what the area grows by need not be zeros */
            data[i] = (uint8_t)(i * 31 >> 3);
        memory->bytes = (512 + 4 * below(20)) << 10;
        CHECK(cl_log_format(memory, 0, &layout, NULL) == 0, "format");
        disk = bad_disk(memory, faults);
        first = next = 1;
        for (uint64_t unused = 0; memory->bytes < MOST || unused;) {
            uint64_t more = 4096 * below(100);
            memory->bytes = disk->bytes = cl_min(memory->bytes + more, (uint64_t)MOST);
            if (below(2))
                open_and_crash(disk);
            unused = live(disk);
        }
        cl_blk_close(disk);
    }
    CHECK(growths > 20 && waits > 5 && grown_copies > 2, "%llu growths, %llu had to wait, %llu had copies",
          (unsigned long long)growths, (unsigned long long)waits, (unsigned long long)grown_copies);
    printf("%llu growths, %llu had to wait\nok\n", (unsigned long long)growths, (unsigned long long)waits);
    return 0;
}

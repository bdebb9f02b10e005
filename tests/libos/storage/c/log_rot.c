/* What a log makes of a device that is not as it left it: a bit flipped at every byte, leftovers of other logs and of earlier epochs, a full
 * area, many laps. argv: seed, then flips, closed, leftovers, gap or full. */
#include "log_support.h"

#define AREA (256u << 10)
#define RECORDS 40

static uint8_t image[AREA];
static unsigned boundary[RECORDS + 2]; /* first record of each flush */
static unsigned n_flushes;

static uint32_t make(uint64_t index, uint8_t out[600])
{
    uint32_t bytes = (uint32_t)(index * 97 % 600);
    for (uint32_t i = 0; i < bytes; i++)
        out[i] = (uint8_t)(index + i);
    return bytes;
}

static void append(struct cl_log *log, struct cl_log_op *op, uint64_t index)
{
    uint8_t data[600];
    *op = (struct cl_log_op){.data = data, .tag = index * 3, .bytes = make(index, data)};
    CHECK(cl_log_append(log, op) == 0 && op->index == index, "append");
}

/* How many records it holds; each must be what `make` made of it. */
static uint64_t verify(struct cl_log *log)
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

static struct cl_blk *fresh(uint64_t area_id)
{
    struct cl_blk *disk = memory_disk(AREA);
    struct cl_log_layout layout = {.area_id = area_id, .flush_bytes = 8192};
    char err[256];
    CHECK(cl_log_format(disk, 0, &layout, err) == 0, "%s", err);
    return disk;
}

static void build(struct cl_blk *disk, bool closed)
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
    if (closed)
        CHECK(close_log(log) == 0, "close");
    else
        drop(log);
    memcpy(image, cl_blk_memory_data(disk), AREA);
}

/* Open what a flip left in each way. Returns the records found, or -1: refused. */
static int64_t attempt(struct cl_blk *disk, uint64_t at, bool closed)
{
    struct cl_log_config config = {.blk = disk};
    struct cl_log_report report;
    struct cl_log *log;
    char err[256];
    int rc = cl_log_open_wait(&config, &log, &report, err);
    if (rc == 0) {
        int64_t found = (int64_t)verify(log);
        uint64_t lost = RECORDS - (uint64_t)found;
        CHECK(lost == 0 || (!closed && lost == RECORDS - boundary[n_flushes - 1] && report.tail == CL_LOG_TAIL_TORN &&
                            report.bad_index == (uint64_t)found + 1),
              "byte %llu: %llu records lost without a word: %s", (unsigned long long)at, (unsigned long long)lost,
              report.why);
        CHECK(at >= 2 * CL_LOG_BLOCK_BYTES || at % CL_LOG_BLOCK_BYTES >= 512 || report.bad_superblocks,
              "byte %llu: a bad superblock was not reported", (unsigned long long)at);
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

static void flips(bool closed)
{
    struct cl_blk *disk = fresh(77);
    build(disk, closed);
    uint8_t *data = cl_blk_memory_data(disk);
    unsigned refused = 0, torn = 0, unharmed = 0;
    uint64_t end = AREA;
    while (image[end - 1] == 0)
        end--;
    for (uint64_t at = 0; at < end; at++) {
        if (at >= 512 && at < CL_LOG_BLOCK_BYTES)
            continue;
        memcpy(data, image, AREA);
        uint8_t bit = (uint8_t)(1u << below(8));
        data[at] ^= bit;
        int64_t found = attempt(disk, at, closed);
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
    CHECK(refused > 1000 && (closed ? torn == 0 : torn > 50), "%u refused, %u torn", refused, torn);
    printf("%u refused, %u torn, %u without effect\n", refused, torn, unharmed);
    cl_blk_close(disk);
}

/* A log on an area where another one was, of which flushes of the right number lie at the right places. */
static void leftovers(void)
{
    struct cl_blk *disk = fresh(1);
    build(disk, false);
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

/* Two flushes in flight at a power cut, of which only the second was stored. What is then written in place of the first must not bring
 * the second back. */
static void gap(void)
{
    struct cl_blk *memory = fresh(3);
    struct cl_blk_fault_config faults = {.seed = 1, .latency_min_ns = 1000, .latency_max_ns = 1000};
    struct cl_blk *disk = bad_disk(memory, faults);
    struct cl_log_config config = {.blk = disk};
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

/* Fill it up, find it unharmed and still able to vote, trim, and go round many times. */
static void full(void)
{
    struct cl_blk *disk = fresh(4);
    struct cl_log_config config = {.blk = disk};
    struct cl_log *log = open_log(&config, 0, NULL);
    uint64_t next = 1;
    unsigned laps = 0;
    for (unsigned round = 0; round < 300; round++) {
        uint8_t data[600], vote[8];
        struct cl_log_op op, meta = {.data = &next, .bytes = 8};
        int rc;
        do {
            op = (struct cl_log_op){.data = data, .tag = next * 3, .bytes = make(next, data)};
            rc = cl_log_append(log, &op);
            next += rc == 0;
            settle(log);
        } while (rc == 0);
        CHECK(rc == -ENOSPC && cl_log_error(log) == 0, "%d", rc);
        CHECK(cl_log_meta_set(log, &meta) == 0, "a full log must still take a vote");
        settle(log);
        if (round % 10 == 0) {
            drop(log);
            log = open_log(&config, 0, NULL);
            CHECK(cl_log_append(log, &op) == -ENOSPC, "full after opening");
        }
        CHECK(verify(log) && cl_log_durable_index(log) == next - 1, "all is there");
        CHECK(cl_log_meta_get(log, vote) == 8 && !memcmp(vote, &next, 8), "the vote is there");
        CHECK(cl_log_trim(log, next - below(20), NULL) == 0, "trim");
        settle(log);
        laps++;
    }
    CHECK(close_log(log) == 0, "close");
    cl_blk_close(disk);
    printf("%u laps, %llu records\n", laps, (unsigned long long)next);
}

int main(int argc, char **argv)
{
    CHECK(argc == 3, "usage");
    rng_state = strtoull(argv[1], NULL, 10);
    if (!strcmp(argv[2], "flips"))
        flips(false);
    else if (!strcmp(argv[2], "closed"))
        flips(true);
    else if (!strcmp(argv[2], "leftovers"))
        leftovers();
    else if (!strcmp(argv[2], "gap"))
        gap();
    else
        full();
    printf("ok\n");
    return 0;
}

/* What the device says was acknowledged, and when it says so: not while appends follow each other, after a pause, also
 * beside a write that hangs; and that no append waits for it. On a virtual clock; argv: seed. */
#include "support.h"

#define AREA (1u << 20)
#define WRITE_NS 1000

static struct cl_blk *memory, *disk;

static void append(struct cl_log *log, struct cl_log_op *op)
{
    static const uint8_t data[100];
    *op = (struct cl_log_op){.data = data, .bytes = sizeof data};
    CHECK(cl_log_append(log, op) == 0, "append");
}

static struct cl_log_stats stats_of(const struct cl_log *log)
{
    struct cl_log_stats stats;
    cl_log_stats(log, &stats);
    return stats;
}

/* Pump until the append is done; how long it took. */
static uint64_t wait_for(struct cl_log *log, const struct cl_log_op *op)
{
    uint64_t began_ns = now_ns;
    while (op->result == CL_LOG_PENDING)
        if (cl_log_pump(log) == 0)
            now_ns = cl_max(now_ns, cl_log_next_ns(log));
    CHECK(op->result == 0, "%d", op->result);
    return now_ns - began_ns;
}

/* Power off; damage the last flush of an image of the disk, and say what an opening makes of it. */
static uint32_t tail_if_last_rots(struct cl_log *log)
{
    struct cl_blk *copy = memory_disk(AREA);
    uint8_t *data = cl_blk_memory_data(copy);
    struct cl_log_config config = {.blk = copy, .on_damage = CL_LOG_READ_ONLY};
    struct cl_log_report before, report;
    memcpy(data, cl_blk_memory_data(memory), AREA);
    drop(open_log(&config, 0, &before));
    CHECK(before.tail == CL_LOG_TAIL_CLEAN && before.last_flush == stats_of(log).last_flush, "%s", before.why);
    uint64_t place = before.last_offset - CL_LOG_BLOCK_BYTES; /* all flushes here are of one block */
    data[place + below(sizeof(struct cl_log_disk_flush) + 100)] ^= (uint8_t)(1u << below(8));
    drop(open_log(&config, 0, &report));
    CHECK(report.last_flush == before.last_flush - 1, "the damage was not seen");
    CHECK(report.tail == CL_LOG_TAIL_CLEAN || strstr(report.why, "offset"), "no offset: %s", report.why);
    cl_blk_close(copy);
    return report.tail;
}

/* The loop of a busy writer: nothing is written but his flushes, and each says that the one before it was
 * acknowledged. */
static void busy_writer(struct cl_log *log)
{
    struct cl_log_op op;
    for (unsigned i = 0; i < 20; i++) {
        append(log, &op);
        CHECK(wait_for(log, &op) == WRITE_NS, "an append takes one write");
        now_ns += below(CL_LOG_CONFIRM_NS - 2 * WRITE_NS);
        cl_log_pump(log);
        struct cl_log_stats s = stats_of(log);
        CHECK(s.confirms == 0 && s.said_flush == s.last_flush - 1, "%llu confirmed", (unsigned long long)s.confirms);
    }
    CHECK(tail_if_last_rots(log) != CL_LOG_TAIL_DAMAGED, "who says that it was acknowledged?");
}

/* After the pause it is said; until then the log is not busy, and says when it wants to be pumped. */
static void pause_after(struct cl_log *log)
{
    struct cl_log_op op;
    append(log, &op);
    wait_for(log, &op);
    uint64_t acknowledged_ns = now_ns, superblocks = stats_of(log).superblocks;
    CHECK(!cl_log_busy(log), "a pause is no work");
    CHECK(cl_log_next_ns(log) == acknowledged_ns + CL_LOG_CONFIRM_NS, "when to pump");
    now_ns = cl_log_next_ns(log) - 1;
    CHECK(cl_log_pump(log) == 0 && !cl_log_busy(log), "too early");
    now_ns++;
    CHECK(cl_log_pump(log) > 0 && cl_log_busy(log), "not then");
    settle(log);
    CHECK(stats_of(log).superblocks == superblocks + 2, "one in each slot");
    CHECK(stats_of(log).said_flush == stats_of(log).last_flush, "said");
    CHECK(tail_if_last_rots(log) == CL_LOG_TAIL_DAMAGED, "it takes the flush for torn");
    now_ns += 10 * CL_LOG_CONFIRM_NS;
    CHECK(cl_log_pump(log) == 0 && cl_log_next_ns(log) == UINT64_MAX, "it is said once");
}

/* An append that comes while a superblock is under way takes as long as any. */
static void append_beside(struct cl_log *log)
{
    struct cl_log_op ops[2];
    append(log, &ops[0]);
    wait_for(log, &ops[0]);
    now_ns = cl_log_next_ns(log);
    cl_log_pump(log);
    now_ns += WRITE_NS / 2;
    append(log, &ops[1]);
    CHECK(wait_for(log, &ops[1]) == WRITE_NS, "an append waited for a superblock");
    settle(log);
}

/* The next flush would have said it, but it hangs: then a superblock does. */
static void beside_a_hung_write(struct cl_log *log)
{
    struct cl_blk_fault_config slow = {.latency_min_ns = 100 * CL_LOG_CONFIRM_NS,
                                       .latency_max_ns = 100 * CL_LOG_CONFIRM_NS};
    struct cl_blk_fault_config quick = {.latency_min_ns = WRITE_NS, .latency_max_ns = WRITE_NS};
    struct cl_log_op ops[2];
    append(log, &ops[0]);
    wait_for(log, &ops[0]);
    uint64_t number = stats_of(log).last_flush;
    CHECK(cl_blk_fault_set(disk, &slow, NULL) == 0, "set");
    append(log, &ops[1]);
    cl_log_pump(log);
    CHECK(cl_blk_fault_set(disk, &quick, NULL) == 0, "set");
    for (uint64_t end = now_ns + CL_LOG_CONFIRM_NS + 2 * WRITE_NS; now_ns < end; now_ns += WRITE_NS)
        cl_log_pump(log);
    cl_log_pump(log);
    CHECK(ops[1].result == CL_LOG_PENDING, "that one hangs");
    CHECK(stats_of(log).said_flush == number, "nobody said that flush %llu was acknowledged",
          (unsigned long long)number);
    settle(log);
}

/* However appends come, nothing stays unsaid for longer than twice the pause and two writes. */
static void never_longer(struct cl_log *log)
{
    struct cl_log_op ops[64];
    uint64_t seen = stats_of(log).last_flush, at_ns[1024] = {0}, oldest = seen + 1;
    for (unsigned i = 0; i < 64; i++) {
        append(log, &ops[i]);
        for (uint64_t until = now_ns + below(4) * below(CL_LOG_CONFIRM_NS); now_ns <= until;) {
            cl_log_pump(log);
            struct cl_log_stats s = stats_of(log);
            while (seen < s.last_flush)
                at_ns[++seen % 1024] = now_ns;
            oldest = cl_max(oldest, s.said_flush + 1);
            CHECK(oldest > seen || now_ns - at_ns[oldest % 1024] <= 2 * CL_LOG_CONFIRM_NS + 2 * WRITE_NS,
                  "flush %llu was acknowledged %llu ns ago", (unsigned long long)oldest,
                  (unsigned long long)(now_ns - at_ns[oldest % 1024]));
            now_ns = cl_max(now_ns + 1, cl_min(cl_log_next_ns(log), until));
        }
    }
    settle(log);
    CHECK(stats_of(log).confirms > 5 && stats_of(log).flushes > 60, "both happened");
}

int main(int argc, char **argv)
{
    CHECK(argc == 2, "usage");
    rng_state = strtoull(argv[1], NULL, 10);
    now_ns = 1;
    struct cl_blk_fault_config faults = {.latency_min_ns = WRITE_NS, .latency_max_ns = WRITE_NS};
    struct cl_log_layout layout = {.flush_bytes = 8192};
    memory = memory_disk(AREA);
    CHECK(cl_log_format(memory, 0, &layout, NULL) == 0, "format");
    disk = bad_disk(memory, faults);
    void (*const parts[])(struct cl_log *) = {busy_writer, pause_after, append_beside, beside_a_hung_write,
                                              never_longer};
    for (unsigned i = 0; i < sizeof parts / sizeof *parts; i++) {
        struct cl_log_config config = {.blk = disk};
        struct cl_log *log = open_log(&config, 0, NULL);
        settle(log);
        CHECK(cl_log_trim(log, cl_log_next_index(log), NULL) == 0, "trim");
        settle(log);
        parts[i](log);
        CHECK(close_log(log) == 0, "close");
    }
    cl_blk_close(disk);
    printf("ok\n");
    return 0;
}

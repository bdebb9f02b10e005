/* A log whose writes fail, which is opened again by another process before the power goes: what it has then is there
 * after the loss of power as well. A failed write may be read back though it is not durable.
 * Usage: log_reopened SEED SCENARIO    appends or superblocks: what fails */
#include "support.h"

#define ROUNDS 300
#define BATCH 40

static struct cl_blk *memory, *disk;
static struct cl_blk_fault_config faults;
static struct cl_log_config config;
static uint64_t adopted;

static void set_faults(double write_error, double survive)
{
    char err[256];
    struct cl_blk_fault_config f = faults;
    f.write_error = write_error;
    f.survive = survive;
    f.clock = cl_blk_fault_clock_word;
    f.clock_arg = &now_ns;
    CHECK(cl_blk_fault_set(disk, &f, err) == 0, "%s", err);
}

/* n records of up to 3 KB; how many were acknowledged. */
static unsigned append(struct cl_log *log, unsigned n)
{
    static uint8_t data[3000];
    struct cl_log_op ops[BATCH] = {0};
    unsigned good = 0, sent = 0;
    for (; sent < n; sent++) {
        ops[sent].data = data;
        ops[sent].bytes = (uint32_t)below(sizeof data);
        if (cl_log_append(log, &ops[sent]))
            break;
        if (below(3) == 0)
            cl_log_pump(log);
    }
    settle(log);
    for (unsigned i = 0; i < sent; i++)
        good += ops[i].result == 0;
    return good;
}

static void up(void)
{
    char err[256];
    struct cl_log_layout layout = {.area_id = 1 + below(1000), .flush_bytes = 16384};
    memory = memory_disk(1 << 20);
    CHECK(cl_log_format(memory, 0, &layout, err) == 0, "%s", err);
    faults = (struct cl_blk_fault_config){.seed = rng(), .torn = 0.5, .latency_min_ns = 1000, .latency_max_ns = 90000};
    disk = bad_disk(memory, faults);
    config = (struct cl_log_config){.blk = disk, .buffers = 8};
}

/* Opened again without a loss of power, used or not, and then the power goes. */
static void again(uint64_t acknowledged)
{
    set_faults(0, 0);
    struct cl_log *log = open_log(&config, 0, NULL);
    uint64_t found = cl_log_durable_index(log);
    CHECK(found >= acknowledged, "%llu of %llu are there", (unsigned long long)found, (unsigned long long)acknowledged);
    adopted += found > acknowledged;
    if (below(2))
        found += append(log, 1 + (unsigned)below(BATCH / 2));
    cl_blk_fault_crash(disk);
    cl_log_discard(log);
    log = open_log(&config, 0, NULL);
    CHECK(cl_log_durable_index(log) >= found, "%llu of %llu are left", (unsigned long long)cl_log_durable_index(log),
          (unsigned long long)found);
    CHECK(close_log(log) == 0, "close");
}

static void appends(void)
{
    for (int i = 0; i < ROUNDS; i++) {
        up();
        struct cl_log *log = open_log(&config, 0, NULL);
        uint64_t good = append(log, (unsigned)below(BATCH));
        set_faults(below(2) ? 1 : 0.3, 0);
        good += append(log, 1 + (unsigned)below(BATCH - 1));
        drop(log);
        again(good);
        cl_blk_close(disk);
    }
    CHECK(adopted > ROUNDS / 10, "only %llu rounds had what was not acknowledged", (unsigned long long)adopted);
}

static void superblocks(void)
{
    for (int i = 0; i < ROUNDS; i++) {
        up();
        struct cl_log *log = open_log(&config, 0, NULL);
        uint64_t good = append(log, 1 + (unsigned)below(BATCH - 1));
        struct cl_log_op op = {0};
        set_faults(1, 0);
        CHECK(cl_log_trim(log, below(good + 1), &op) == 0, "trim");
        settle(log);
        CHECK(op.result == -EIO, "%d", op.result);
        drop(log);
        again(good);
        cl_blk_close(disk);
    }
}

int main(int argc, char **argv)
{
    static const struct named all[] = {{"appends", appends}, {"superblocks", superblocks}};
    keep_heap();
    return run_named(argc, argv, all, sizeof all / sizeof *all);
}

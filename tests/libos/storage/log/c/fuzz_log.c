/* Fuzzing recovery: an area whose bytes are anybody's. libFuzzer's entry, and a main of its own with a seeded mutator
 * for compilers without libFuzzer: argv[1] seed, argv[2] inputs.
 *
 * An input is a list of patches to a good area: 3 bytes of where, 1 of how many, the bytes. If its first byte is odd
 * the checksums are made right again afterwards, so that what lies behind them is reached. Whatever is opened must be
 * readable to its end, and go on. */
#include "support.h"

#include "libos/storage/log/internal.h"

#define AREA (128u << 10)

static struct cl_blk *disk;
static uint8_t good[AREA];

static void prepare(void)
{
    struct cl_log_layout layout = {.area_id = 9, .flush_bytes = 8192, .snapshot_bytes = 1000};
    disk = memory_disk(2 * AREA);
    CHECK(cl_log_format(disk, 0, &layout, NULL) == 0, "format");
    struct cl_log_config config = {.blk = disk};
    struct cl_log *log = open_log(&config, 0, NULL);
    struct cl_log_op ops[30], more[3] = {0};
    for (unsigned i = 0; i < 30; i++) {
        ops[i] = (struct cl_log_op){.data = good, .bytes = i * 13, .tag = i};
        CHECK(cl_log_append(log, &ops[i]) == 0, "append");
        if (i % 4 == 0)
            settle(log);
    }
    more[0] = (struct cl_log_op){.data = "term", .bytes = 4};
    CHECK(cl_log_truncate(log, 25, &more[1]) == 0 && cl_log_meta_set(log, &more[0]) == 0, "records");
    settle(log);
    CHECK(cl_log_snapshot_begin(log, 20, 1) == 0 && cl_log_snapshot_write(log, "state", 5) == 5, "snapshot");
    CHECK(cl_log_snapshot_commit(log, &more[2]) == 0, "commit");
    settle(log);
    drop(log);
}

/* Make the checksums of superblocks, flushes and their records those of what is there now. */
static void mend(uint8_t *area, uint64_t bytes)
{
    for (unsigned i = 0; i < 2; i++) {
        struct cl_log_disk_super *s = (struct cl_log_disk_super *)(area + i * CL_LOG_BLOCK_BYTES);
        s->crc = cl_log_super_crc(s);
    }
    for (uint64_t at = 2 * CL_LOG_BLOCK_BYTES; at < bytes; at += CL_LOG_BLOCK_BYTES) {
        struct cl_log_disk_flush *h = (struct cl_log_disk_flush *)(area + at);
        if (h->magic != cl_log_magic(9))
            continue;
        uint64_t end = at + cl_min(h->bytes, bytes - at), pos = at + sizeof *h;
        for (uint32_t i = 0; i < h->records && pos + sizeof(struct cl_log_disk_record) <= end; i++) {
            struct cl_log_disk_record *r = (struct cl_log_disk_record *)(area + pos);
            if (cl_log_record_bytes(r->bytes) > end - pos)
                break;
            r->crc = cl_log_record_crc(cl_log_seed(9, h->epoch, h->lsn), r);
            pos += cl_log_record_bytes(r->bytes);
        }
        h->crc = cl_crc32c(cl_log_seed(9, at, 0), &h->lsn, sizeof *h - 8);
    }
}

static void read_all(struct cl_log *log)
{
    struct cl_log_cursor *c;
    struct cl_log_record r;
    struct cl_log_snapshot s;
    uint8_t buf[2000];
    cl_log_meta_get(log, buf);
    CHECK(cl_log_first_index(log) <= cl_log_durable_index(log) + 1, "indexes");
    CHECK(cl_log_cursor_open(log, cl_log_first_index(log), &c) == 0, "cursor");
    int rc;
    uint64_t n = 0;
    while ((rc = next_record(log, c, &r)) == 1)
        CHECK(n++ < AREA && cl_crc32c(0, r.data, r.bytes) + 1ull, "endless"); /* each byte is read */
    CHECK(rc == 0 && n == cl_log_durable_index(log) + 1 - cl_log_first_index(log),
          "%llu..%llu: %llu can be read: %d %s", (unsigned long long)cl_log_first_index(log),
          (unsigned long long)cl_log_durable_index(log), (unsigned long long)n, rc, cl_log_cursor_why(c));
    CHECK(cl_log_cursor_close(c) == 0, "close");
    cl_log_snapshot_get(log, &s);
    while (cl_log_snapshot_read(log, s.number, 0, buf, sizeof buf) == -EAGAIN)
        cl_log_pump(log);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!disk) {
        prepare();
        memcpy(good, cl_blk_memory_data(disk), AREA);
    }
    uint8_t *area = cl_blk_memory_data(disk);
    memcpy(area, good, AREA);
    bool fix = size && data[0] & 1;
    for (size_t at = 1; at + 4 < size;) {
        uint64_t where = (data[at] | (uint64_t)data[at + 1] << 8 | (uint64_t)data[at + 2] << 16) % AREA;
        size_t n = 1 + data[at + 3] % 16;
        n = cl_min(cl_min(n, size - at - 4), AREA - where);
        memcpy(area + where, data + at + 4, n);
        at += 4 + n;
    }
    if (fix)
        mend(area, AREA);
    for (uint32_t mode = CL_LOG_REFUSE; mode <= CL_LOG_READ_ONLY; mode++) {
        struct cl_log_config config = {.blk = disk, .on_damage = mode};
        struct cl_log_report report;
        struct cl_log *log;
        char err[256] = "";
        if (cl_log_open_wait(&config, &log, &report, err)) {
            CHECK(err[0], "refused without a reason");
            continue;
        }
        read_all(log);
        struct cl_log_op op = {.data = "more", .bytes = 4, .result = 1};
        if (cl_log_append(log, &op) == 0) {
            settle(log);
            CHECK(op.result == 0, "append");
            read_all(log);
        }
        drop(log);
    }
    return 0;
}

#ifndef FUZZ
int main(int argc, char **argv)
{
    CHECK(argc == 3, "usage");
    keep_heap();
    rng_state = strtoull(argv[1], NULL, 10);
    for (uint64_t left = strtoull(argv[2], NULL, 10); left; left--) {
        uint8_t input[200];
        size_t n = 1 + below(sizeof input);
        for (size_t i = 0; i < n; i++)
            input[i] = (uint8_t)rng();
        for (size_t at = 1; at + 4 < n; at += 20) { /* near what matters: superblocks, and headers of blocks */
            uint64_t where =
                below(3) ? below(40) * CL_LOG_BLOCK_BYTES % AREA + below(160) : below(2) * 4096 + below(512);
            input[at] = (uint8_t)where;
            input[at + 1] = (uint8_t)(where >> 8);
            input[at + 2] = (uint8_t)(where >> 16);
            if (below(2))
                memset(input + at + 5, 0, cl_min(n - at - 5, 15));
        }
        LLVMFuzzerTestOneInput(input, n);
    }
    cl_blk_close(disk);
    printf("ok\n");
    return 0;
}
#endif

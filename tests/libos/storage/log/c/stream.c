/* Opening reads ahead: rings of many segments and flushes of less and of more than one, wrapped, from a disk that
 * answers in any order. All records are found, with what they held; a bad block in the middle ends what is found there,
 * and is damage. Usage: log_stream SEED RING_KIB FLUSH_KIB */
#include "support.h"

static uint64_t first = 1, next = 1;
static uint8_t *data; /* what record i holds begins at i % 251 */

static void append_for(struct cl_log *log, uint64_t bytes)
{
    struct cl_log_op *ops = calloc(1 << 16, sizeof *ops);
    uint64_t done = 0;
    CHECK(ops, "memory");
    for (unsigned n = 0; done < bytes;) {
        uint32_t size = (uint32_t)(below(4) ? below(600) : below(cl_log_max_bytes(log) + 1));
        struct cl_log_op *op = &ops[n % (1 << 16)];
        *op = (struct cl_log_op){.data = data + next % 251, .bytes = size, .tag = size};
        int rc = cl_log_append(log, op);
        if (rc == 0) {
            n++;
            next++;
            done += size;
        } else {
            CHECK(rc == -EAGAIN || rc == -ENOSPC, "%d", rc);
            settle(log);
            if (cl_log_free_bytes(log) < cl_log_ring_bytes(log) / 4) {
                first = (cl_log_first_index(log) + next) / 2;
                CHECK(cl_log_trim(log, first, NULL) == 0, "trim");
            }
            settle(log);
        }
    }
    settle(log);
    free(ops);
}

/* Records from `first` to before `end`. Where one in the middle lies. */
static uint64_t verify(struct cl_log *log, uint64_t end)
{
    struct cl_log_cursor *cursor;
    struct cl_log_record record;
    uint64_t middle = 0;
    CHECK(cl_log_first_index(log) == first && cl_log_next_index(log) == end, "%llu .. %llu, expected %llu .. %llu",
          (unsigned long long)cl_log_first_index(log), (unsigned long long)cl_log_next_index(log),
          (unsigned long long)first, (unsigned long long)end);
    CHECK(cl_log_cursor_open(log, first, &cursor) == 0, "cursor");
    for (uint64_t i = first; i < end; i++) {
        CHECK(next_record(log, cursor, &record) == 1 && record.index == i, "record %llu", (unsigned long long)i);
        CHECK(record.bytes == record.tag && memcmp(record.data, data + i % 251, record.bytes) == 0, "content of %llu",
              (unsigned long long)i);
        if (i == (first + end) / 2)
            middle = record.offset;
    }
    cl_log_cursor_close(cursor);
    return middle;
}

int main(int argc, char **argv)
{
    CHECK(argc == 4, "usage");
    rng_state = strtoull(argv[1], NULL, 10);
    uint64_t ring = strtoull(argv[2], NULL, 10) << 10, flush = strtoull(argv[3], NULL, 10) << 10;
    struct cl_log_layout layout = {.flush_bytes = (uint32_t)flush};
    struct cl_blk *memory = memory_disk(ring + 2 * CL_LOG_BLOCK_BYTES);
    struct cl_log_report report;
    CHECK(cl_log_format(memory, 0, &layout, NULL) == 0, "format");
    struct cl_blk_fault_config slow = {.seed = rng(), .latency_min_ns = 1000, .latency_max_ns = 90000};
    struct cl_blk *disk = bad_disk(memory, slow);
    struct cl_log_config config = {.blk = disk};
    data = malloc(flush + 251);
    CHECK(data, "memory");
    for (uint64_t i = 0; i < flush + 251; i++)
        data[i] = (uint8_t)rng();

    struct cl_log *log = open_log(&config, 0, NULL);
    for (uint64_t bytes = ring / 3; bytes < 2 * ring; bytes += ring / 2) {
        append_for(log, bytes / 2 + below(ring / 8));
        drop(log);
        log = open_log(&config, 0, &report);
        CHECK(report.tail == CL_LOG_TAIL_CLEAN, "%s", report.why);
        verify(log, next);
    }
    uint64_t middle = verify(log, next);
    drop(log);
    ((uint8_t *)cl_blk_memory_data(memory))[middle + 3] ^= 1; /* disk keeps nothing back: its cache is empty */
    open_log(&config, -EBADMSG, &report);
    CHECK(report.tail == CL_LOG_TAIL_DAMAGED &&
              (report.next_index <= (first + next) / 2 || report.first_index > (first + next) / 2),
          "%d, up to %llu", report.tail, (unsigned long long)report.next_index);
    config.on_damage = CL_LOG_READ_ONLY;
    log = open_log(&config, 0, &report);
    first = report.first_index; /* of records that were copied, the first ones may lie behind what is bad */
    verify(log, report.next_index);
    drop(log);
    printf("%llu records\nok\n", (unsigned long long)next - 1);
    free(data);
    cl_blk_close(disk);
    return 0;
}

/* The port of resp on several kthreads: clients that count, block and publish, while another thread reads its counters.
 * With a log what was answered is there after a power cut; 2: of a device that writes in the call, too.
 * Usage: resp_threads KTHREADS LOG(0|1|2) ROUNDS SEED */
#include "apps/resp/serve.h"
#include "apps/resp/writer.h"
#include "drivers/blk/fault.h"
#include "drivers/blk/memory.h"
#include "resp_link.h"
#include "tests/libos/storage/log/c/keeping.h"

#define DISK_BYTES (8u << 20)
#define MEMORY_BYTES (8u << 20)

static struct cl_resp_service *service;
static struct cl_blk *disk, *top; /* the log's: disk, or what is over it */
static struct keeping keeping;
static struct cl_log_shared shared;
static char err[256];

static struct cl_resp *new_engine(void)
{
    const struct cl_resp_settings settings = {.memory_bytes = MEMORY_BYTES};
    struct cl_resp *r;
    CHECK(!cl_resp_new(&settings, &r, err), "%s", err);
    return r;
}

static void open_log(uint64_t seed, bool in_call)
{
    struct cl_blk *memory;
    struct cl_blk_memory_config bytes = {.bytes = DISK_BYTES};
    struct cl_blk_fault_config faults = {
        .seed = seed, .survive = 0.5, .torn = 0.5, .latency_min_ns = 1000, .latency_max_ns = 30000};
    struct cl_log_layout layout = {.flush_bytes = 65536};
    CHECK(!cl_blk_memory_new(&bytes, &memory, err), "%s", err);
    CHECK(!cl_log_format(memory, 0, &layout, err), "%s", err);
    CHECK(!cl_blk_fault_new(memory, &faults, &disk, err), "%s", err);
    top = in_call ? keeping_over(&keeping, disk) : disk;
    struct cl_log_config config = {.blk = top, .buffers = 8};
    CHECK(!cl_log_open_wait(&config, &shared.log, NULL, err), "%s", err);
    CHECK(!cl_log_share(&shared, shared.log, cl_runtime_sched(hosts[1]), err), "%s", err);
}

/* What the counters say grows. */
static void look(void)
{
    static uint64_t accepted, units;
    const struct cl_resp_port *port = cl_resp_service_port(service);
    const struct cl_resp_writer_counts *writer = cl_resp_service_writer(service);
    uint64_t closed = cl_load_relaxed(&port->closed), now = cl_load_relaxed(&port->accepted);
    CHECK(now >= accepted && closed <= CLIENTS + 2, "%llu accepted, %llu closed", (unsigned long long)now,
          (unsigned long long)closed);
    accepted = now;
    if (writer) {
        CHECK(cl_load_relaxed(&writer->units) >= units, "units go back");
        units = cl_load_relaxed(&writer->units);
    }
}

static uint64_t counted(struct cl_resp *r)
{
    struct cl_resp_client *c = cl_resp_connect(r, "10.0.0.1:1", "10.0.0.2:6379");
    uint64_t len;
    CHECK_EQ(cl_resp_feed(c, (const uint8_t *)"GET all\r\n", 9), 9);
    const char *reply = (const char *)cl_resp_out(c, &len);
    CHECK(len > 4 && *reply == '$', "no count");
    return strtoull((const char *)memchr(reply, '\n', len) + 1, NULL, 10);
}

/* The state by the log alone, after a power cut. */
static void recover(unsigned rounds)
{
    static uint8_t pieces[1 << 20];
    struct cl_log_cursor *cursor;
    struct cl_log_record record;
    struct cl_log_config config = {.blk = top, .buffers = 8};
    uint64_t bytes = 0;
    int rc;
    cl_blk_fault_crash(disk);
    cl_log_discard(shared.log);
    CHECK(!cl_log_open_wait(&config, &shared.log, NULL, err), "%s", err);
    struct cl_resp *r = new_engine();
    CHECK(!cl_log_cursor_open(shared.log, cl_log_first_index(shared.log), &cursor), "no cursor");
    while ((rc = cl_log_cursor_next(cursor, &record)) != 0) {
        if (rc == -EAGAIN) {
            cl_log_pump(shared.log);
            continue;
        }
        CHECK(rc == 1 && bytes + record.bytes <= sizeof pieces, "%d: %s", rc, cl_log_cursor_why(cursor));
        memcpy(pieces + bytes, record.data, record.bytes);
        bytes += record.bytes;
        if (record.kind == CL_RESP_PIECE)
            continue;
        CHECK(!cl_resp_apply(r, pieces, bytes, err), "%s", err);
        bytes = 0;
    }
    CHECK(!cl_log_cursor_close(cursor), "close");
    CHECK_EQ(counted(r), (uint64_t)CLIENTS * rounds);
    cl_resp_delete(r);
    CHECK(!cl_log_close(shared.log, err), "%s", err);
    cl_blk_close(disk);
}

int main(int argc, char **argv)
{
    CHECK(argc == 5, "usage");
    unsigned rounds = (unsigned)atoi(argv[3]);
    int log = atoi(argv[2]);
    struct cl_resp *r = new_engine();
    make_hosts((uint32_t)atoi(argv[1]));
    if (log)
        open_log(strtoull(argv[4], NULL, 10), log == 2);
    CHECK(!cl_resp_serve(hosts[1], r, PORT, 64, log ? &shared : NULL, 1, &service, err), "%s", err);
    start_hosts();
    ask_all(rounds, look);
    for (unsigned i = 0; i < 2; i++)
        CHECK_EQ(cl_runtime_stop(hosts[i], -1), 0);
    CHECK(!cl_resp_check(r, err), "%s", err);
    const struct cl_resp_writer_counts *writer = cl_resp_service_writer(service);
    if (writer)
        printf("%llu units in %llu batches\n", (unsigned long long)writer->units, (unsigned long long)writer->batches);
    CHECK((keeping.calls > 0) == (log == 2 && atoi(argv[1]) == 1), "%u writes in the call", keeping.calls);
    cl_resp_service_delete(service);
    cl_resp_delete(r);
    if (log) {
        cl_log_unshare(&shared);
        recover(rounds);
    }
    end_hosts();
    printf("ok\n");
    return 0;
}

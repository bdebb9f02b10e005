/* Adaptive batching beside fixed settings, on a disk and a clock of the test's own: closed loops of writers and arrivals at random, on
 * disks that do different numbers of writes side by side. Nothing is measured: the same seed gives the same numbers.
 * Usage: log_batching SHAPE [EACH]    prints a line a load: the setting that is best there, and what adaptive reaches of it.
 * EACH: of the fixed numbers of records and of flushes in flight one, or every second one, is tried. */
#include "support.h"

#include "libos/sched/internal.h"
#include "libos/sched/runq.h"
#include "libos/storage/log/internal.h"
#include <corelane/libos/log_shared.h>
#include <corelane/libos/uthread.h>

#include <math.h>
#include <sys/eventfd.h>

#define RECORD 256
#define APPEND_NS 200  /* what an append costs its uthread, besides waiting */
#define SUBMIT_NS 2000 /* what a flush costs its kthread */
#define TURN_NS 100
#define MOST 64 /* writers, arrivals under way at a time and requests of the disk */

/* A disk: `lanes` writes side by side, each for so long; what comes meanwhile waits. Of the log's four in flight one lane and two lanes
 * do not do all, which the log has to find out. */
struct shape {
    const char *name;
    unsigned lanes;
    uint64_t write_ns, kib_ns;
    double least; /* of the best fixed setting, at each load: a bit under what is reached (docs/log.md, "Batching") */
};

static const struct shape shapes[] = {{"one_lane", 1, 60000, 100, 0.79},
                                      {"two_lanes", 2, 60000, 100, 0.72},
                                      {"four_lanes", 4, 60000, 100, 0.85},
                                      {"many_lanes", 64, 60000, 100, 0.81},
                                      {"flash", 16, 12000, 50, 0.75}};

struct disk {
    struct cl_blk blk; /* first */
    struct cl_blk *inner;
    const struct shape *shape;
    uint64_t free_ns[MOST]; /* of each lane */
    struct {
        struct cl_blk_req *req;
        uint64_t at_ns;
    } flying[MOST];
    unsigned n_flying;
    int event_fd;
};

static unsigned disk_submit(struct cl_blk *blk, unsigned queue, struct cl_blk_req **reqs, unsigned n)
{
    struct disk *d = (struct disk *)blk;
    (void)queue;
    for (unsigned i = 0; i < n; i++) {
        struct cl_blk_req *r = reqs[i];
        unsigned lane = 0;
        for (unsigned k = 1; k < d->shape->lanes; k++)
            if (d->free_ns[k] < d->free_ns[lane])
                lane = k;
        CHECK(d->n_flying < MOST, "room");
        r->result = r->op == CL_BLK_WRITE ? cl_blk_write(d->inner, 0, r->offset, r->buf, r->bytes, r->flags)
                                          : cl_blk_read(d->inner, 0, r->offset, r->buf, r->bytes);
        now_ns += SUBMIT_NS;
        uint64_t ns = d->shape->write_ns + r->bytes / 1024 * d->shape->kib_ns;
        d->free_ns[lane] = cl_max(now_ns, d->free_ns[lane]) + ns;
        d->flying[d->n_flying].req = r;
        d->flying[d->n_flying++].at_ns = d->free_ns[lane];
    }
    return n;
}

static unsigned disk_poll(struct cl_blk *blk, unsigned queue, struct cl_blk_req **done, unsigned n)
{
    struct disk *d = (struct disk *)blk;
    unsigned got = 0;
    (void)queue;
    for (unsigned i = 0; i < d->n_flying && got < n;) {
        if (d->flying[i].at_ns > now_ns) {
            i++;
            continue;
        }
        done[got++] = d->flying[i].req;
        d->flying[i] = d->flying[--d->n_flying];
    }
    return got;
}

static uint64_t disk_next(struct cl_blk *blk, unsigned queue)
{
    const struct disk *d = (struct disk *)blk;
    uint64_t next = UINT64_MAX;
    (void)queue;
    for (unsigned i = 0; i < d->n_flying; i++)
        next = cl_min(next, d->flying[i].at_ns);
    return next;
}

static int disk_fd(struct cl_blk *blk, unsigned queue)
{
    (void)queue;
    return ((struct disk *)blk)->event_fd;
}

static void disk_arm(struct cl_blk *blk, unsigned queue, bool on)
{
    (void)blk;
    (void)queue;
    (void)on;
}

static const struct cl_blk_ops disk_ops = {
    .name = "lanes", .submit = disk_submit, .poll = disk_poll, .fd = disk_fd, .arm = disk_arm, .next_ns = disk_next};

struct setting {
    uint32_t records, wait_us, in_flight;
};

static struct disk disk;
static struct cl_blk *memory; /* what is written to it */
static struct cl_log_shared shared;
static struct cl_sched *sched;
static uint64_t appends, waited_ns, end_ns;

static void append(void)
{
    uint8_t data[RECORD] = {0};
    struct cl_log_future f = {.op = {.data = data, .bytes = sizeof data}};
    CHECK(cl_log_begin(&shared, &f) == 0, "begin");
    now_ns += APPEND_NS;
    CHECK(cl_log_future_wait(&f) == 0, "append");
    appends++;
}

static void writer(void *arg)
{
    (void)arg;
    while (now_ns < end_ns)
        append();
}

static void arrival(void *arg)
{
    uint64_t intended = (uintptr_t)arg;
    append();
    waited_ns += now_ns - intended;
}

static void up(const struct shape *shape, struct setting s)
{
    struct cl_log_layout layout = {.flush_bytes = 65536};
    struct cl_sched_config sc;
    char err[256];
    now_ns = 1000000;
    appends = waited_ns = 0;
    if (!memory) /* one for all runs: the kernel takes longer to give 32 MiB, page by page, than a run takes */
        memory = memory_disk(32 << 20);
    CHECK(cl_log_format(memory, 0, &layout, err) == 0, "%s", err);
    disk = (struct disk){.inner = memory, .shape = shape, .event_fd = eventfd(0, EFD_NONBLOCK)};
    disk.blk = *memory;
    disk.blk.ops = &disk_ops;
    struct cl_log_config config = {
        .blk = &disk.blk, .in_flight = s.in_flight, .fixed_records = s.records, .fixed_wait_ns = s.wait_us * 1000ull};
    struct cl_log *log = open_log(&config, 0, NULL);
    cl_sched_config_init(&sc);
    static struct cl_clock clock;
    cl_clock_virtual(&clock, &now_ns);
    sc.clock = &clock;
    CHECK(cl_sched_new(&sc, &sched, err) == 0 && cl_log_share(&shared, log, sched, err) == 0, "%s", err);
    sched->let_go_ticks = UINT64_MAX; /* no sched_yield: no disk waits for this CPU, and on a busy one each takes ms */
}

static void down(void)
{
    cl_sched_stop(sched, 0);
    cl_log_unshare(&shared);
    cl_sched_delete(sched);
    CHECK(close_log(shared.log) == 0, "close");
    close(disk.event_fd);
}

/* One turn of the kthread; without work, on to the next thing that happens. */
static void turn(uint64_t next_ns)
{
    const struct cl_kthread *k = &sched->kthreads[0];
    int work = cl_sched_step(sched, 0);
    now_ns += TURN_NS;
    bool waits =
        work == 1 && shared.log->config.fixed_wait_ns; /* it does not sleep, for the time alone sends the flush */
    if ((work && !waits) || cl_runq_len(&k->runq) || sched->n_inject)
        return;
    next_ns = cl_min(next_ns, cl_min(cl_log_next_ns(shared.log), k->timers.next_ns));
    if (next_ns != UINT64_MAX)
        now_ns = cl_max(now_ns, next_ns);
}

/* Appends a second. */
static double closed_loop(const struct shape *shape, struct setting s, unsigned writers)
{
    up(shape, s);
    end_ns = now_ns + 500 * shape->write_ns;
    for (unsigned i = 0; i < writers; i++)
        CHECK(cl_sched_spawn(sched, writer, NULL) == 0, "spawn");
    while (now_ns < end_ns - 400 * shape->write_ns) /* by then the device is known */
        turn(UINT64_MAX);
    uint64_t start = now_ns;
    appends = 0;
    while (cl_sched_live(sched))
        turn(UINT64_MAX);
    double rate = (double)appends / (double)(now_ns - start) * 1e9;
    struct cl_log_stats stats;
    cl_log_stats(shared.log, &stats);
    if (s.in_flight) /* given */
        CHECK(stats.width == s.in_flight, "%llu fly", (unsigned long long)stats.width);
    else if (shape->lanes >= 4)
        CHECK(stats.width == 4, "%llu fly", (unsigned long long)stats.width);
    down();
    return rate;
}

/* One over the mean time from when an append was due until it was durable. */
static double open_loop(const struct shape *shape, struct setting s, double in_a_write)
{
    up(shape, s);
    struct cl_random random = {42};
    unsigned n = 2000;
    double due = (double)now_ns;
    for (unsigned i = 0; i < n;) {
        due -= log(1 - (double)(cl_random_next(&random) >> 11) / 9007199254740992.0) * (double)shape->write_ns /
               in_a_write;
        while (now_ns < (uint64_t)due)
            turn((uint64_t)due);
        CHECK(cl_sched_spawn(sched, arrival, (void *)(uintptr_t)due) == 0, "spawn");
        i++;
    }
    while (cl_sched_live(sched))
        turn(UINT64_MAX);
    double speed = (double)n / (double)waited_ns * 1e9;
    down();
    return speed;
}

static double reached(const struct shape *shape, struct setting s, unsigned load)
{
    static const double in_a_write[] = {0.1, 0.5, 2, 4};
    static const unsigned writers[] = {1, 2, 4, 8, 16, 32, 64};
    return load < 7 ? closed_loop(shape, s, writers[load]) : open_loop(shape, s, in_a_write[load - 7]);
}

int main(int argc, char **argv)
{
    CHECK(argc == 2 || argc == 3, "usage");
    unsigned each = argc == 3 ? (unsigned)atoi(argv[2]) : 1;
    CHECK(each == 1 || each == 2, "usage");
    keep_heap();
    const struct shape *shape = shapes;
    while (strcmp(shape->name, argv[1]))
        CHECK(++shape < shapes + sizeof shapes / sizeof *shapes, "no such shape");
    static const char *loads[] = {"1 writer",   "2 writers",   "4 writers",   "8 writers", "16 writers", "32 writers",
                                  "64 writers", "0.1 a write", "0.5 a write", "2 a write", "4 a write"};
    static const uint32_t records[] = {1, 2, 4, 8, 16, 32, 64}, flights[] = {1, 2, 4, 8, 16};
    bool bad = false;
    for (unsigned load = 0; load < 11; load++) {
        double ours = reached(shape, (struct setting){0}, load), best = 0;
        struct setting which = {0};
        for (unsigned r = 0; r < 7; r += each)
            for (unsigned f = 0; f < 5; f += each) {
                struct setting s = {records[r], r ? 50 : 0, flights[f]};
                double got = reached(shape, s, load);
                if (got > best) {
                    best = got;
                    which = s;
                }
            }
        printf("%s, %s: %.3f of %u records or %u us, %u in flight (%.0f)\n", shape->name, loads[load], ours / best,
               which.records, which.wait_us, which.in_flight, best);
        bad |= ours < shape->least * best;
    }
    CHECK(cl_blk_close(memory) == 0, "close");
    CHECK(!bad, "adaptive batching misses its part of the best fixed setting");
    printf("ok\n");
    return 0;
}

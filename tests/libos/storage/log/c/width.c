/* How many flushes fly side by side, on devices of the test's own that do several, one, or now one and now several at
 * once. Usage: log_width SCENARIO SEED */
#include "libos/storage/log/width.h"

#include "drivers/random.h"
#include "tests/support/c/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST 4
#define WRITE_NS 60000
#define RING 16 /* flushes from the first that is not done to the last one sent, at most: a log's buffers */

static struct cl_random random_state;

#define LONE_LATE 32 /* as of width.c */
#define SMALL 4096
#define LARGE (256u << 10)

/* A device that does `lanes` writes at once, each in 60 us and up to a third more, and a large one in 200 us more.
 * Every `stall_each`-th takes 50 ms; 0: none. */
struct device {
    unsigned lanes, stall_each;
    uint64_t free_ns[MOST];
};

struct world {
    struct cl_log_width width;
    struct device device;
    unsigned demand; /* flushes that wait to fly, besides those that do */
    uint32_t bytes;  /* of a flush */
    int64_t skew_ns; /* of the log's clock */
    struct cl_log_flown flown[RING];
    uint64_t done_ns[RING]; /* 0: does not fly */
    uint64_t sent, now_ns;
    unsigned flights;
    /* What a scenario looks at. */
    uint64_t crowded; /* flushes sent while others flew */
    uint32_t trials;  /* times that more flew than before */
};

static struct world w;

static uint64_t clock_ns(void)
{
    return w.now_ns + (uint64_t)w.skew_ns;
}

static uint64_t device_takes(struct device *d)
{
    unsigned lane = 0;
    for (unsigned i = 1; i < d->lanes; i++)
        if (d->free_ns[i] < d->free_ns[lane])
            lane = i;
    uint64_t ns = WRITE_NS + cl_random_below(&random_state, WRITE_NS / 3) + (w.bytes == LARGE ? 200000 : 0);
    if (d->stall_each && cl_random_below(&random_state, d->stall_each) == 0)
        ns = 50000000;
    d->free_ns[lane] = (w.now_ns > d->free_ns[lane] ? w.now_ns : d->free_ns[lane]) + ns;
    return d->free_ns[lane];
}

static void send_one(void)
{
    uint32_t before = w.width.now;
    unsigned i = w.sent % RING;
    cl_log_width_sent(&w.width, &w.flown[i], &w.flown[(w.sent - 1) % RING], w.flights, w.bytes, clock_ns());
    w.crowded += w.flights > 0;
    w.trials += w.width.now > before;
    w.done_ns[i] = device_takes(&w.device);
    w.flights++;
    w.sent++;
}

static void finish_next(void)
{
    unsigned first = RING;
    for (unsigned i = 0; i < RING; i++)
        if (w.done_ns[i] && (first == RING || w.done_ns[i] < w.done_ns[first]))
            first = i;
    w.now_ns = w.done_ns[first];
    w.done_ns[first] = 0;
    w.flights--;
    cl_log_width_done(&w.width, &w.flown[first], clock_ns());
}

/* `flushes` more are sent, as soon as they may be. */
static void run(uint64_t flushes)
{
    for (uint64_t end = w.sent + flushes; w.sent < end;) {
        uint32_t limit = cl_log_width_limit(&w.width);
        CHECK(limit >= 1 && limit <= w.width.now && w.width.now <= w.width.most, "the limit is %u", limit);
        while (w.flights < limit && w.flights < w.demand && w.sent < end && !w.done_ns[w.sent % RING])
            send_one();
        if (w.flights)
            finish_next();
    }
}

static void up(unsigned lanes, uint32_t most, unsigned demand)
{
    w = (struct world){.device.lanes = lanes, .demand = demand, .bytes = SMALL, .now_ns = 1ull << 40};
    cl_log_width_init(&w.width, most, 1);
}

static void forget(void)
{
    w.crowded = w.trials = 0;
}

/* One at a time: all but the trials fly alone, and of those there are fewer and fewer. */
static void serial(void)
{
    up(1, MOST, MOST);
    run(2000);
    CHECK(w.width.now <= 2, "%u fly", w.width.now);
    CHECK(w.trials <= 2, "%u trials at first", w.trials);
    run(100000);
    forget();
    run(200000);
    CHECK(w.crowded * 100 < 2 * 200000, "%llu had others beside them", (unsigned long long)w.crowded);
    CHECK(w.trials >= 2 && w.trials <= 12, "%u trials", w.trials);
}

/* Two at a time: two fly, and not one. */
static void pairs(void)
{
    up(2, MOST, MOST);
    run(100000);
    forget();
    run(200000);
    CHECK(w.width.now >= 2, "%u fly", w.width.now);
    CHECK(w.crowded * 100 > 90 * 200000, "%llu had others beside them", (unsigned long long)w.crowded);
}

/* All at once: all fly, but for one in a while that flies alone to be compared with. */
static void side_by_side(void)
{
    up(MOST, MOST, MOST);
    for (int i = 0; i < 1000; i++) {
        run(100);
        CHECK(w.width.now == MOST, "%u fly after %llu", w.width.now, (unsigned long long)w.sent);
    }
    CHECK(w.width.lone[0].ns > WRITE_NS / 2 && w.width.lone[0].ns < 2 * WRITE_NS, "alone it takes %llu ns",
          (unsigned long long)w.width.lone[0].ns);
    CHECK(w.crowded * 100 > 98 * w.sent, "%llu had others beside them", (unsigned long long)w.crowded);
}

/* A device that stalls now and then, whoever is there, still does all at once. */
static void stalls(void)
{
    up(MOST, MOST, MOST);
    w.device.stall_each = 200;
    run(1000);
    uint64_t narrow = 0;
    for (int i = 0; i < 1000; i++) {
        run(100);
        narrow += w.width.now < MOST;
    }
    CHECK(narrow == 0, "%llu times fewer fly", (unsigned long long)narrow);
}

/* Somebody else's writes had filled it, and are gone. */
static void mended(void)
{
    up(1, MOST, MOST);
    run(20000);
    w.device.lanes = MOST;
    run(80000);
    CHECK(w.width.now == MOST, "%u fly", w.width.now);
    forget();
    run(100000);
    CHECK(w.width.now == MOST && !w.trials, "%u fly", w.width.now);
}

/* One at a time is asked for: the first trial goes on, with nothing to decide it. */
static void lone(void)
{
    up(1, MOST, 1);
    run(50000);
    CHECK(w.width.now == 2 && w.width.tries && !w.crowded, "%u fly", w.width.now);
}

/* One flies at first; on a device that does all at once all do before many have been sent, and on one that does one it
 * stays at that. */
static void soon(void)
{
    up(MOST, MOST, MOST);
    run(2);
    CHECK(w.width.now == 1 && !w.crowded, "%u fly", w.width.now);
    run(40);
    CHECK(w.width.now == MOST, "%u fly", w.width.now);
    up(1, MOST, MOST);
    run(20);
    CHECK(w.width.now == 1 && w.crowded <= 8, "%u fly, and %llu had others beside them", w.width.now,
          (unsigned long long)w.crowded);
}

/* Small ones alone, and then many large ones: these take longer because they are large, and the device does all at
 * once. */
static void sizes(void)
{
    up(MOST, MOST, MOST);
    for (int i = 0; i < 1000; i++) {
        w.bytes = SMALL;
        w.demand = 1;
        run(20);
        w.bytes = LARGE;
        w.demand = MOST;
        run(32);
        CHECK(w.width.now == MOST, "%u fly after %llu", w.width.now, (unsigned long long)w.sent);
    }
}

/* The same on a device that does one at a time: that is found out by the small ones. */
static void sizes_serial(void)
{
    up(1, MOST, MOST);
    for (int i = 0; i < 100; i++) {
        w.bytes = i & 1 ? SMALL : LARGE;
        run(32);
    }
    w.bytes = SMALL;
    run(5000);
    CHECK(w.width.now <= 2, "%u fly", w.width.now);
}

/* A lone one stalls, or the clock is set back while it flies, which then seems to take for ever: what is found out soon
 * is no other. */
static void odd_times(void)
{
    for (int back = 0; back < 2; back++) {
        up(1, MOST, 1);
        run(100);
        send_one();
        w.skew_ns -= back ? 1000000000 : 0;
        w.now_ns += back ? 0 : 10000000000;
        w.done_ns[(w.sent - 1) % RING] = cl_max(w.now_ns, w.done_ns[(w.sent - 1) % RING]);
        finish_next();
        w.demand = MOST;
        run(2000);
        CHECK(w.width.now <= 2, "%u fly, and alone it takes %llu ns", w.width.now,
              (unsigned long long)w.width.lone[0].ns);
    }
}

/* So many are said to fly: they do from the first one on, until the device turns out to do fewer. */
static void given(void)
{
    for (unsigned lanes = 1; lanes <= MOST; lanes *= MOST) {
        up(lanes, MOST, MOST);
        cl_log_width_init(&w.width, MOST, MOST);
        run(LONE_LATE);
        CHECK(w.width.now == MOST && w.crowded == LONE_LATE - 1, "%u fly, and %llu had others beside them", w.width.now,
              (unsigned long long)w.crowded);
        run(200);
        CHECK(w.width.now == lanes, "%u fly", w.width.now);
    }
}

/* No more than one may fly. */
static void one(void)
{
    up(MOST, 1, MOST);
    run(50000);
    CHECK(w.width.now == 1 && !w.crowded && !w.trials, "%u fly", w.width.now);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } all[] = {{"serial", serial},
               {"pairs", pairs},
               {"side_by_side", side_by_side},
               {"stalls", stalls},
               {"mended", mended},
               {"lone", lone},
               {"soon", soon},
               {"given", given},
               {"one", one},
               {"sizes", sizes},
               {"sizes_serial", sizes_serial},
               {"odd_times", odd_times}};
    CHECK(argc == 3, "usage");
    random_state.state = strtoull(argv[2], NULL, 10);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!strcmp(argv[1], all[i].name)) {
            all[i].run();
            printf("ok\n");
            return 0;
        }
    return 2;
}

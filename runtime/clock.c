/* See clock.h. Calibration brackets a reading of CLOCK_MONOTONIC by two readings of the counter, keeps the tightest of
 * several brackets, and does so again some milliseconds later. Half a bracket's width is a hard bound on its error, so
 * the bound on the rate is the sum of both over the window: 2 to 5 ppm here.
 *
 * The kernel's own factor for the counter is to be had from the first page of a perf event (perf_event_open(2),
 * time_mult and time_shift); a dummy software event suffices and needs no PMU and no privilege by default. It is taken
 * when the measurement agrees with it: it is exact where the measurement is only bounded. */
#include <corelane/runtime/clock.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#define WINDOW_CHECK_NS 2000000 /* enough to confirm the kernel's factor */
#define WINDOW_FULL_NS 9000000  /* to stand on the measurement alone */
#define BRACKETS 16

uint32_t cl_tsc_fallback;

uint64_t cl_monotonic_raw_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC_RAW, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

#if defined(__x86_64__)
/* Whether the kernel lists the TSC as a clock source; it takes it off the list when it finds it unstable. */
static bool kernel_trusts_tsc(void)
{
    char text[256];
    int fd = open("/sys/devices/system/clocksource/clocksource0/available_clocksource", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return true; /* no sysfs: the processor's own promise decides */
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    if (n <= 0)
        return true;
    text[n] = 0;
    char *save = NULL;
    for (char *word = strtok_r(text, " \n", &save); word; word = strtok_r(NULL, " \n", &save))
        if (!strcmp(word, "tsc"))
            return true;
    return false;
}
#endif

static bool counter_usable(void)
{
    const char *asked = getenv("CORELANE_CLOCK");
    if (asked && !strcmp(asked, "monotonic"))
        return false;
#if defined(__x86_64__)
    unsigned a, b, c, d;
    /* CPUID 80000007h EDX bit 8: the TSC ticks at one rate in all P-, C- and T-states (Intel SDM vol. 3, 18.17.1). */
    return __get_cpuid(0x80000007, &a, &b, &c, &d) && (d & (1u << 8)) && kernel_trusts_tsc();
#elif defined(__aarch64__)
    return true; /* the generic timer has a constant rate by architecture */
#else
    return false;
#endif
}

__attribute__((constructor)) static void choose_counter(void)
{
    cl_tsc_fallback = !counter_usable();
}

/* One tight bracket: CLOCK_MONOTONIC was `ns` when the counter stood at tsc, give or take slack ticks. */
struct bracket {
    uint64_t tsc, slack;
    int64_t ns;
};

static int take_bracket(struct bracket *out)
{
    out->slack = UINT64_MAX;
    for (int i = 0; i < BRACKETS; i++) {
        struct timespec ts;
        uint64_t before = cl_tsc_ordered();
        if (clock_gettime(CLOCK_MONOTONIC, &ts))
            return -errno;
        uint64_t after = cl_tsc_ordered();
        if ((after - before) / 2 + 1 < out->slack) {
            out->slack = (after - before) / 2 + 1;
            out->tsc = before + (after - before) / 2;
            out->ns = (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
        }
    }
    return 0;
}

int cl_clock_pair(uint64_t *tsc, int64_t *ns)
{
    struct bracket b;
    int err = take_bracket(&b);
    if (err)
        return err;
    *tsc = b.tsc;
    *ns = b.ns;
    return 0;
}

#if !defined(__aarch64__)
/* Ticks a second by the kernel's conversion, 0 if it does not say. */
static double kernel_hz(void)
{
    struct perf_event_attr attr = {.type = PERF_TYPE_SOFTWARE,
                                   .size = sizeof attr,
                                   .config = PERF_COUNT_SW_DUMMY,
                                   .disabled = 1,
                                   .exclude_kernel = 1,
                                   .exclude_hv = 1};
    int fd = (int)syscall(SYS_perf_event_open, &attr, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
    if (fd < 0)
        return 0;
    size_t bytes = (size_t)sysconf(_SC_PAGESIZE);
    struct perf_event_mmap_page *page = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (page == MAP_FAILED)
        return 0;
    double hz = 0;
    if (page->cap_user_time && page->time_mult)
        hz = 1e9 * (double)(1ull << page->time_shift) / (double)page->time_mult; /* ns = ticks * mult >> shift */
    munmap(page, bytes);
    return hz;
}
#endif

static double stated_hz(uint32_t *source)
{
#if defined(__aarch64__)
    uint64_t hz;
    __asm__ volatile("mrs %0, cntfrq_el0" : "=r"(hz));
    *source = CL_CLOCK_ARCH;
    return (double)hz;
#else
    *source = CL_CLOCK_KERNEL;
    return kernel_hz();
#endif
}

static void set_rate(struct cl_clock *c, double hz)
{
    c->hz = (uint64_t)(hz + 0.5);
    c->ns_per_tick = (uint64_t)(1e9 / hz * (double)(1ull << CL_CLOCK_NS_SHIFT) + 0.5);
    c->ticks_per_ns = (uint64_t)(hz / 1e9 * (double)(1ull << CL_CLOCK_TICKS_SHIFT) + 0.5);
}

int cl_clock_from_hz(struct cl_clock *out, uint64_t hz, uint64_t base_tsc, int64_t base_ns)
{
    if (hz < 1000000 || hz > 32000000000ull)
        return -EINVAL;
    *out = (struct cl_clock){.base_tsc = base_tsc, .base_ns = base_ns, .source = CL_CLOCK_MEASURED};
    set_rate(out, (double)hz);
    return 0;
}

void cl_clock_virtual(struct cl_clock *out, const uint64_t *now_ns)
{
    *out = (struct cl_clock){.source = CL_CLOCK_VIRTUAL, .word = now_ns};
    set_rate(out, 1e9); /* exact in both fixed points */
}

/* Rate between two brackets, and the bound on its relative error. */
static double measured_hz(const struct bracket *a, const struct bracket *b, double *error)
{
    double ticks = (double)(b->tsc - a->tsc);
    *error = (double)(a->slack + b->slack) / ticks;
    return ticks * 1e9 / (double)(b->ns - a->ns);
}

static int wait_and_bracket(int64_t ns, struct bracket *out)
{
    struct timespec ts = {0, ns};
    nanosleep(&ts, NULL); /* cut short by a signal: a shorter window, and the bound says so */
    return take_bracket(out);
}

int cl_clock_calibrate(struct cl_clock *out)
{
    struct bracket first, last;
    int err = take_bracket(&first);
    if (err)
        return err;
    *out = (struct cl_clock){.base_tsc = first.tsc, .base_ns = first.ns};
    if (cl_tsc_fallback) {
        set_rate(out, 1e9);
        out->source = CL_CLOCK_MONOTONIC;
        out->error_ppb = 500000; /* what NTP may slew CLOCK_MONOTONIC against _RAW at most, adjtimex(2) */
        out->base_error_ns = (uint32_t)cl_min(first.slack, (uint64_t)UINT32_MAX);
        return 0;
    }
    double error, stated = stated_hz(&out->source);
    err = wait_and_bracket(stated > 0 ? WINDOW_CHECK_NS : WINDOW_FULL_NS, &last);
    if (err)
        return err;
    double hz = measured_hz(&first, &last, &error);
    if (stated > 0 && (stated > hz * (1 + error) || stated < hz * (1 - error))) {
        /* They differ by more than the measurement allows (clock being slewed, virtual counter scaled): measure well.
         */
        err = wait_and_bracket(WINDOW_FULL_NS - WINDOW_CHECK_NS, &last);
        if (err)
            return err;
        hz = measured_hz(&first, &last, &error);
        stated = 0;
    }
    if (stated <= 0)
        out->source = CL_CLOCK_MEASURED;
    set_rate(out, stated > 0 ? stated : hz);
    out->error_ppb = (uint32_t)cl_min(error * 1e9 + 1, 4e9);
    out->base_error_ns = (uint32_t)cl_min((double)first.slack * 1e9 / hz + 1, 4e9);
    out->window_us = (uint32_t)((last.ns - first.ns) / 1000);
    return 0;
}

static struct cl_clock default_clock;
static pthread_once_t default_once = PTHREAD_ONCE_INIT;

static void calibrate_default(void)
{
    if (cl_clock_calibrate(&default_clock)) {
        /* CLOCK_MONOTONIC cannot be read: no Linux does that; count nanoseconds all the same. */
        cl_tsc_fallback = 1;
        set_rate(&default_clock, 1e9);
        default_clock.source = CL_CLOCK_MONOTONIC;
    }
}

const struct cl_clock *cl_clock_default(void)
{
    pthread_once(&default_once, calibrate_default);
    return &default_clock;
}

uint64_t cl_tsc_read(void)
{
    return cl_tsc();
}

bool cl_tsc_is_fallback(void)
{
    return cl_tsc_fallback != 0;
}

int64_t cl_clock_now_ns(const struct cl_clock *clock)
{
    return cl_clock_ns(clock);
}

int64_t cl_clock_tsc_to_ns(const struct cl_clock *clock, uint64_t tsc)
{
    return cl_tsc_to_ns(clock, tsc);
}

uint64_t cl_clock_ns_to_tsc(const struct cl_clock *clock, int64_t ns)
{
    return cl_ns_to_tsc(clock, ns);
}

int64_t cl_clock_ticks_to_ns(const struct cl_clock *clock, int64_t ticks)
{
    return cl_ticks_to_ns(clock, ticks);
}

int64_t cl_clock_ns_to_ticks(const struct cl_clock *clock, int64_t ns)
{
    return cl_ns_to_ticks(clock, ns);
}

int cl_timeline_step(struct cl_timeline *t, uint64_t from_tsc, int64_t offset_ns)
{
    uint32_t n = t->n;
    if (n >= CL_TIMELINE_STEPS)
        return -ENOSPC;
    if (n > 0 && from_tsc < t->steps[n - 1].from_tsc)
        return -EINVAL;
    t->steps[n] = (struct cl_timeline_step){from_tsc, offset_ns};
    cl_store_release(&t->n, n + 1); /* release: who sees the new count sees the step */
    return (int)(n + 1);
}

int64_t cl_timeline_ns(const struct cl_timeline *t, const struct cl_clock *clock, uint64_t tsc, uint32_t version)
{
    uint32_t n = cl_min(cl_load_acquire(&t->n), version); /* acquire: pairs with cl_timeline_step */
    int64_t offset_ns = 0;
    while (n-- > 0)
        if (t->steps[n].from_tsc <= tsc) {
            offset_ns = t->steps[n].offset_ns;
            break;
        }
    return cl_tsc_to_ns(clock, tsc) + offset_ns;
}

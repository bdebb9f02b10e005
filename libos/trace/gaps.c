/* The machine's gaps: time that a kthread's thread did not have its CPU, or that passed between two looks of its loop
 * at the clock with nothing of ours between them. And those of its interpreter.
 *
 * By counters: the kernel says how long a thread has run, to the nanosecond, and how often it was switched away from.
 * The time that has passed since the last look, less that, less what the thread let go of itself (parks, cores that
 * others have), was taken. The host's part is in it where the kernel knows of it (steal time).
 *
 * A look is two system calls, about 1 us. There is one for each of the slowest requests of 20 us or more, for each
 * other such one in which the thread has been switched away from, and one each millisecond in which something comes and
 * the thread has been switched away from. That it has not been, the kernel says
 * without a call: the page of a perf event of a thread (perf_event_open(2), a dummy software event, which needs no
 * privilege by default) has a word, `lock`, that changes when the thread is brought back to a CPU. While it stands
 * still the thread has run all the time. Such an event makes a switch dearer, by a microsecond or two, so kthreads
 * whose cores move do without (cl_tracer_watch_thread is not called), and so does a thread while it is switched away
 * from all the time, as one that shares its core with others and yields to them: of them a gap is told if the last
 * look was a moment ago, and there is one look each millisecond.
 *
 * Who was it? Where the thread was switched away from, the kernel is asked how long it stood in line for a CPU since
 * (/proc/thread-self/schedstat, 2 us): others ran there meanwhile. What is left of a gap it slept, or the machine took.
 *
 * By the interpreter: it says when it begins to collect garbage on the kthread's thread, and when it has.
 *
 * By stamps: the loop looks at the clock each CLOCK_EVERY turns without work, and at each poll that brings something.
 *
 * Not seen: what takes the CPU inside a handler and is counted as that thread's, such as interrupts, and pauses of a
 * host that does not tell its guests. */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define LEAST_US 10      /* shorter ones are not told */
#define REST_US 5        /* a shorter rest was a system call that came back at once: it is of the thread's own time */
#define MOMENT_US 2000   /* without a page: so long the thread may have been awake, beside a slow message, since it */
#define ANEW_US 250000   /* with one: then it is taken anew, for the two clocks drift apart, ... */
#define AGAIN_US 1000000 /* so long a thread does without its page that is switched away from more often than ... */
#define MOST_SWITCHES 8  /* ... so many times a millisecond, which would cost it 1 % of its time */
#define DRIFT_SHIFT 17   /* ... by no more than this part: 8 ppm */

static int counts_of_thread(struct cl_tracer_counts *out)
{
    struct rusage u;
    struct timespec cpu;
    if (getrusage(RUSAGE_THREAD, &u) || clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu))
        return -errno;
    *out = (struct cl_tracer_counts){.cpu_ns = (uint64_t)cpu.tv_sec * 1000000000u + (uint64_t)cpu.tv_nsec,
                                     .faults = (uint64_t)u.ru_minflt + (uint64_t)u.ru_majflt,
                                     .switches = (uint64_t)u.ru_nivcsw,
                                     .sleeps = (uint64_t)u.ru_nvcsw};
    return 0;
}

/* "time on a CPU, time in line for one, slices", in ns. */
static int waited_of_thread(int fd, uint64_t *ns)
{
    char text[64], *at;
    ssize_t n = pread(fd, text, sizeof text - 1, 0);
    if (n <= 0)
        return n < 0 ? -errno : -ENODATA;
    text[n] = 0;
    (void)strtoull(text, &at, 10);
    *ns = strtoull(at, NULL, 10);
    return 0;
}

static uint64_t us(const struct cl_clock *clock, int64_t n)
{
    return (uint64_t)cl_ns_to_ticks(clock, n * 1000);
}

void cl_tracer_watch(struct cl_tracer *t, const struct cl_clock *clock)
{
    bool real = !clock->word;
    t->clock = clock;
    t->counts = real ? counts_of_thread : NULL;
    t->waited = waited_of_thread;
    t->waited_fd = -1;
    t->gap_ticks = us(clock, LEAST_US);
    t->stopped_ticks = real ? t->gap_ticks : CL_TRACER_NEVER; /* a virtual clock jumps */
    t->rest_ticks = us(clock, REST_US);
}

/* Changes whenever the thread is brought back to a CPU. */
static uint32_t brought_back(const struct cl_tracer *t)
{
    return t->page ? cl_load_relaxed(&t->page->lock) : 0; /* relaxed: of this thread, as of a signal handler */
}

/* The page of a new event of the thread. Without one if the kernel gives none. */
static void open_page(struct cl_tracer *t, uint64_t now)
{
    struct perf_event_attr attr = {.type = PERF_TYPE_SOFTWARE,
                                   .size = sizeof attr,
                                   .config = PERF_COUNT_SW_DUMMY,
                                   .exclude_kernel = 1,
                                   .exclude_hv = 1};
    int fd = (int)syscall(SYS_perf_event_open, &attr, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
    t->page_again = 0;
    if (fd < 0)
        return;
    void *page = mmap(NULL, (size_t)sysconf(_SC_PAGESIZE), PROT_READ, MAP_SHARED, fd, 0);
    close(fd); /* the mapping keeps it */
    t->page = page == MAP_FAILED ? NULL : page;
    t->checked = (struct cl_tracer_checked){now, brought_back(t)};
    t->seen.at = 0; /* its word says nothing of the time before */
}

static void close_page(struct cl_tracer *t)
{
    if (t->page)
        munmap((void *)(uintptr_t)t->page, (size_t)sysconf(_SC_PAGESIZE));
    t->page = NULL;
}

void cl_tracer_watch_thread(struct cl_tracer *t)
{
    if (!t->counts)
        return;
    t->waited_fd = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    open_page(t, cl_tracer_stamp(t));
}

void cl_tracer_unwatch(struct cl_tracer *t)
{
    close_page(t);
    if (t->waited_fd >= 0)
        close(t->waited_fd);
    t->waited_fd = -1;
}

bool cl_tracer_switched(const struct cl_tracer *t)
{
    return t->page && brought_back(t) != t->seen.brought_back;
}

/* Ticks of `gone`, of time that the thread has stood in line. */
static uint32_t waited(const struct cl_tracer *t, uint64_t ns, uint64_t gone)
{
    uint64_t ticks = t->waited_fd >= 0 ? (uint64_t)cl_ns_to_ticks(t->clock, (int64_t)ns) : 0;
    return (uint32_t)cl_min(cl_min(ticks, gone), (uint64_t)UINT32_MAX);
}

static uint32_t cpu(void)
{
    int on = sched_getcpu();
    return on < 0 ? 0 : (uint32_t)on + 1;
}

/* Whether the thread was switched away from between two looks: else it has not stood in line. */
static bool switched(const struct cl_tracer_counts *was, const struct cl_tracer_counts *now)
{
    return was->switches != now->switches || was->sleeps != now->sleeps;
}

/* Look, and say in *gap what has been counted since the last time. took: by the message that is reason for it.
 * False: there was none, or the kernel does not say. The word is read first: who is brought back after that is
 * found by the next look, with what it missed by then. */
static bool look(struct cl_tracer *t, uint64_t took, struct cl_trace_gap *gap)
{
    struct cl_tracer_seen was = t->seen, *now = &t->seen;
    uint32_t word = brought_back(t);
    for (unsigned tries = 2; tries; tries--) { /* again, if the kernel gave the CPU to others in the middle of it */
        if (!t->counts || t->counts(&now->counts))
            return false;
        now->counts.waited_ns = was.counts.waited_ns;
        if (t->waited_fd >= 0 && (!was.looked || switched(&was.counts, &now->counts)))
            (void)t->waited(t->waited_fd, &now->counts.waited_ns);
        now->at = now->looked = cl_tracer_stamp(t);
        if (tries == 1 || brought_back(t) == word) /* else the next look finds it */
            break;
        word = brought_back(t);
    }
    now->brought_back = word;
    now->rested = t->rested;
    now->away = cl_load_relaxed(&t->away_ticks);
    uint64_t passed = now->looked > was.looked ? now->looked - was.looked : 0;
    uint64_t ran = (uint64_t)cl_ns_to_ticks(t->clock, (int64_t)(now->counts.cpu_ns - was.counts.cpu_ns));
    uint64_t left = (now->rested - was.rested) + (now->away - was.away), known = ran + left;
    bool can_tell = t->page || passed < us(t->clock, MOMENT_US) + left + took;
    *gap = (struct cl_trace_gap){.kind = CL_TRACE_GAP,
                                 .kthread = (uint8_t)t->index,
                                 .how = CL_TRACE_GAP_COUNTERS,
                                 .n = 1,
                                 .begin = was.at,
                                 .end = cl_max(now->at, was.at),
                                 .gone = can_tell && passed > known ? passed - known : 0,
                                 .faults = (uint32_t)(now->counts.faults - was.counts.faults),
                                 .switches = (uint32_t)(now->counts.switches - was.counts.switches),
                                 .sleeps = (uint32_t)(now->counts.sleeps - was.counts.sleeps)};
    gap->gone = cl_min(gap->gone, gap->end - gap->begin);
    gap->waited = waited(t, now->counts.waited_ns - was.counts.waited_ns, gap->gone);
    gap->cpu = cpu();
    return was.at != 0;
}

uint64_t cl_tracer_look(struct cl_tracer *t, uint64_t took, uint64_t id)
{
    struct cl_trace_gap gap;
    uint64_t before = t->seen.looked;
    if (!look(t, took, &gap))
        return 0;
    gap.id = id;
    if (gap.gone > t->gap_ticks + ((t->seen.looked - before) >> DRIFT_SHIFT))
        cl_tracer_put(t, &gap);
    return gap.faults | (uint64_t)gap.switches << 32;
}

/* Whether the kernel's word costs more than it is worth. The word moves by two each time. */
static bool too_dear(struct cl_tracer *t, uint64_t now)
{
    struct cl_tracer_checked was = t->checked;
    t->checked = (struct cl_tracer_checked){now, brought_back(t)};
    uint64_t most = (now - was.at) * MOST_SWITCHES / t->ticks_per_ms;
    return (t->checked.word - was.word) / 2 > cl_max(most, (uint64_t)MOST_SWITCHES);
}

void cl_tracer_check(struct cl_tracer *t)
{
    uint64_t now = cl_tracer_stamp(t);
    if (t->page_again)
        t->looks = 1;
    if (!t->page)
        return;
    if (too_dear(t, now))
        t->page_again = now + us(t->clock, AGAIN_US); /* closed when the thread rests, which it does all the time */
    if (t->seen.at && brought_back(t) == t->seen.brought_back && now - t->seen.looked < us(t->clock, ANEW_US))
        t->seen.at = now; /* it has run all the time */
    else
        (void)cl_tracer_look(t, 0, 0);
}

/* Of a thread that has rested, by whose page_again there is something to do. */
static CL_NOINLINE void change_page(struct cl_tracer *t, uint64_t now)
{
    if (t->page)
        close_page(t);
    else
        open_page(t, now);
}

void cl_tracer_stopped(struct cl_tracer *t, uint64_t from, uint64_t to)
{
    struct cl_trace_gap gap;
    if (t->mode == CL_TRACE_OFF)
        return;
    if (!look(t, 0, &gap)) /* else it would be told twice, by the counters, too */
        gap = (struct cl_trace_gap){.kind = CL_TRACE_GAP, .kthread = (uint8_t)t->index, .n = 1, .cpu = cpu()};
    gap.how = CL_TRACE_GAP_STAMPS;
    gap.begin = from;
    gap.end = to;
    gap.gone = to - from;
    gap.waited = (uint32_t)cl_min((uint64_t)gap.waited, gap.gone);
    cl_tracer_put(t, &gap);
}

void cl_tracer_collects(struct cl_tracer *t, bool begins, uint32_t generation)
{
    uint64_t now = cl_tracer_stamp(t), from = t->collects_from;
    t->collects_from = begins ? now : 0;
    if (begins || !from || now - from <= t->gap_ticks || t->mode == CL_TRACE_OFF)
        return;
    t->idle_at = 0; /* it is told once */
    cl_tracer_put(t, &(struct cl_trace_gap){.kind = CL_TRACE_GAP,
                                            .kthread = (uint8_t)t->index,
                                            .how = CL_TRACE_GAP_COLLECTS,
                                            .n = generation + 1,
                                            .begin = from,
                                            .end = now,
                                            .gone = now - from,
                                            .cpu = cpu()});
}

void cl_tracer_idle(struct cl_tracer *t)
{
    uint64_t now = cl_tracer_stamp(t), before = t->idle_at;
    t->idle_at = t->mode == CL_TRACE_OFF ? 0 : now;
    if (cl_unlikely(before && now - before > t->stopped_ticks && now > before))
        cl_tracer_stopped(t, before, now);
}

void cl_tracer_rested(struct cl_tracer *t, uint64_t from)
{
    uint64_t now = cl_tracer_stamp(t), took = now - from;
    t->idle_at = 0;
    cl_store_relaxed(&t->had, now);
    if (took > t->rest_ticks)
        t->rested += took;
    if (cl_unlikely(t->page_again && (t->page || now >= t->page_again)))
        change_page(t, now);
}

/* An application that fights for cores, for tests/iokernel/cores/test_hostile.py: it answers datagrams, or computes for
 * ever, and notes in a file when it ran.
 *
 *   cores_app SOCKET NAME FILE latency [KTHREADS] echo on port 9000; computes for WORK turns a request
 *   cores_app SOCKET NAME FILE probed             computes, with probes
 *   cores_app SOCKET NAME FILE unprobed           computes, and never looks at anything
 *   cores_app SOCKET NAME FILE preemptible        the same, in code that may be interrupted: a sibling may go on with
 *   it cores_app SOCKET NAME FILE blocking           the same, with every signal blocked
 *   cores_app SOCKET NAME FILE cedes              the same, but says that it cedes when it loses its core
 *   cores_app SOCKET NAME FILE relapsing          says so, and soon after that it runs, which it does
 *   cores_app SOCKET NAME FILE ringing            computes, with probes, calls for help all the time, and writes
 *                                                 whatever comes to its mind into its doorbell words
 *
 * There is a job for each kthread, and any of them may go on with it where it looks or may be interrupted.
 *
 * Prints "ready", then reads commands from its standard input: b: one more uthread, which blocks in the kernel until
 * the next g; c: one that computes, with probes, until then; x: _exit; end of file: stop and unregister.
 *
 * The file (struct notes, one for each kthread) is made by the test and mapped by both. A run is a stretch of stamps of
 * cl_tsc() on one CPU, each at most GAP_US behind the one before: whoever is not on the core, for whatever reason,
 * makes no stamps, so that the noted runs never hold more than what the kthread did run. The one that goes on is there
 * as well, so that of a process that is killed nothing is missing. */
#include "../../../../drivers/port/internal.h"
#include <corelane/libos/libos.h>
#include <corelane/runtime/clock.h>

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define RUNS 65536
#define GAP_US 20
#define WORK 300
#define MOST_KTHREADS 2

struct run {
    uint64_t begin, end; /* cl_tsc() */
    uint64_t stamps;
    uint64_t cpu;
};

/* Writer: its kthread, but for `slot`. Readers: the test, relaxed; `n` is stored after the run (release). */
struct notes {
    uint64_t slot, gap_ticks, work, n;
    struct run open; /* the one that goes on, read when the process is gone; `end` is stored last (release) */
    struct run runs[RUNS];
};

static struct notes *notes;
static struct port *port;
static bool probed, preemptible, blocking, lying, relapsing, ringing;
static uint64_t gap_ticks;

/* cl_tsc(), and the CPU that it was read on: between two reads a kthread may move. */
static uint64_t tsc_and_cpu(uint64_t *cpu)
{
#if defined(__x86_64__)
    unsigned aux;
    if (!cl_tsc_is_fallback()) {
        uint64_t now = __builtin_ia32_rdtscp(&aux);
        *cpu = aux & 0xfff; /* as Linux numbers it: arch/x86/include/asm/segment.h */
        return now;
    }
#endif
    *cpu = (uint64_t)sched_getcpu();
    return cl_tsc();
}

/* Nothing in it lets another kthread go on with the uthread. */
static void stamp(void)
{
    struct notes *mine = &notes[cl_kthread_index()];
    struct run *open = &mine->open;
    uint64_t cpu, now = tsc_and_cpu(&cpu);
    if (now - open->end > gap_ticks || cpu != open->cpu) {
        if (open->stamps) {
            mine->runs[mine->n % RUNS] = *open;
            cl_store_release(&mine->n, mine->n + 1);
        }
        open->stamps = 0;
        cl_store_relaxed(&open->begin, now); /* from here on up to `end` it is no run */
        cl_store_release(&open->cpu, cpu);
    }
    cl_store_relaxed(&open->stamps, open->stamps + 1);
    cl_store_release(&open->end, now);
}

static void compute(void)
{
    if (preemptible)
        cl_preemptible_begin();
    for (unsigned i = 0; i < WORK; i++)
        __asm__ volatile("");
    if (preemptible)
        cl_preemptible_end();
    struct notes *mine = &notes[cl_kthread_index()];
    cl_store_relaxed(&mine->work, mine->work + 1);
}

/* Say what an honest kthread would say, or worse, and go on all the same. */
static void lie(void)
{
    static uint64_t lost[MOST_KTHREADS];
    uint32_t k = (uint32_t)cl_kthread_index();
    struct port_arena *a = cl_load_acquire(&port->current);
    struct cl_arena_kthread *me = port_lines(a, k);
    const struct cl_state_kthread *slot = &a->slots[a->slot + k];
    uint32_t grant = cl_load_acquire(&slot->grant); /* before the owner, as in drivers/port/cores.c */
    bool mine = cl_load_acquire(&a->cores[slot->cpu].owner) == a->slot + k + 1;
    uint64_t now = cl_tsc();
    lost[k] = mine ? 0 : lost[k] ? lost[k] : now;
    bool relapsed = relapsing && lost[k] && now - lost[k] > gap_ticks * 10;
    cl_store_relaxed(&me->park, mine || relapsed ? CL_KTHREAD_RUNNING : CL_KTHREAD_CEDED);
    if (mine)
        cl_store_release(&me->signals.acted, grant);
    cl_fence_seq_cst();
}

/* Whatever, and more often than any loop decides. */
static void ring(void)
{
    static uint64_t garbage = 1;
    struct port_arena *a = cl_load_acquire(&port->current);
    garbage = garbage * 6364136223846793005ull + 1442695040888963407ull;
    cl_store_relaxed(&port_lines(a, 0)->help_tsc, garbage);
    __atomic_fetch_add(&port_lines(a, 0)->help, (uint32_t)(garbage >> 33) | 1, __ATOMIC_RELEASE);
    cl_store_relaxed(&a->bell->help_rung, (uint32_t)(garbage >> 32) | 1);
    cl_store_relaxed(&a->bell->rung, garbage);
}

static void job(void *arg)
{
    (void)arg;
    if (blocking) {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_BLOCK, &all, NULL);
    }
    for (;;) {
        compute();
        stamp();
        if (probed)
            CL_PROBE();
        if (lying)
            lie();
        if (ringing)
            ring();
    }
}

static int gate[2];      /* a pipe: a byte each for who blocks */
static uint32_t gone_on; /* atomic */

static void block(void *arg)
{
    char byte;
    (void)arg;
    while (read(gate[0], &byte, 1) < 0)
        continue;
}

static void grind(void *arg)
{
    (void)arg;
    for (uint32_t before = cl_load_relaxed(&gone_on); cl_load_relaxed(&gone_on) == before;) {
        compute();
        stamp();
        CL_PROBE();
    }
}

/* Whether it worked. */
static bool obey(struct cl_runtime *rt, char command)
{
    switch (command) {
    case 'b':
        return cl_runtime_spawn(rt, block, NULL) == 0;
    case 'c':
        return cl_runtime_spawn(rt, grind, NULL) == 0;
    case 'g':
        cl_store_relaxed(&gone_on, gone_on + 1);
        return write(gate[1], "g", 1) == 1;
    default:
        _exit(0);
    }
}

static int64_t answer(const uint8_t *request, int64_t len, uint8_t *reply, int64_t room, void *arg)
{
    (void)arg;
    stamp();
    compute();
    if (len > room)
        return CL_HANDLER_ERROR;
    memcpy(reply, request, (size_t)len);
    stamp();
    return len;
}

static struct notes *map(const char *path, unsigned kthreads)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    void *at = fd < 0 ? MAP_FAILED : mmap(NULL, kthreads * sizeof *notes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return at == MAP_FAILED ? NULL : at;
}

/* The iokernel's number of our first kthread, as it stands in the log. */
static uint32_t slot(void)
{
    return cl_load_acquire(&port->current)->slot + 1;
}

int main(int argc, char **argv)
{
    char err[256] = "", command;
    struct cl_runtime *rt;
    unsigned kthreads = argc == 6 ? (unsigned)atoi(argv[5]) : 1;
    if (argc < 5 || kthreads < 1 || kthreads > MOST_KTHREADS || !(notes = map(argv[3], kthreads)) || pipe(gate) < 0)
        return fprintf(stderr, "cores_app SOCKET NAME FILE KIND [KTHREADS]\n"), 2;
    bool latency = strcmp(argv[4], "latency") == 0;
    ringing = strcmp(argv[4], "ringing") == 0;
    probed = ringing || strcmp(argv[4], "probed") == 0;
    preemptible = strcmp(argv[4], "preemptible") == 0;
    relapsing = strcmp(argv[4], "relapsing") == 0;
    lying = relapsing || strcmp(argv[4], "cedes") == 0;
    blocking = lying || strcmp(argv[4], "blocking") == 0;
    gap_ticks = (uint64_t)cl_ns_to_ticks(cl_clock_default(), GAP_US * 1000);
    struct cl_runtime_config config = {.socket_path = argv[1],
                                       .name = argv[2],
                                       .kthreads = kthreads,
                                       .kind = latency ? CL_RUNTIME_LATENCY : CL_RUNTIME_BATCH};
    if (cl_runtime_new(&config, &rt, err) < 0)
        return fprintf(stderr, "%s\n", err), 1;
    port = port_of(cl_runtime_nic(rt));
    int rc = latency ? cl_runtime_bind_udp(rt, 9000, answer, NULL) : 0;
    for (unsigned k = 0; !latency && rc >= 0 && k < kthreads; k++)
        rc = cl_runtime_spawn(rt, job, NULL);
    if (rc < 0 || cl_runtime_start(rt, err) < 0)
        return fprintf(stderr, "%s\n", err), 1;
    for (unsigned k = kthreads; k-- > 0;) { /* the first one's last: then all are known */
        notes[k].gap_ticks = gap_ticks;
        cl_store_release(&notes[k].slot, slot() + k);
    }
    printf("ready\n");
    fflush(stdout);
    while (read(STDIN_FILENO, &command, 1) == 1)
        if (!obey(rt, command))
            return 1;
    if (latency) /* the others never end */
        cl_runtime_delete(rt);
    return 0;
}

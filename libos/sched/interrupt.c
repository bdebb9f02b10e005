/* The interrupt: a signal from the iokernel to a kthread that has lost its core and does not poll its preemption flag,
 * or, where that is wanted, whose uthread has run for a quantum.
 *
 * The handler runs on the kthread's signal stack. It does one of three things if the core is lost.
 *
 *   Switches the uthread away, if its code is known to be interruptible: its address is in a registered range
 *   (cl_preemptible_add), or it is between cl_preemptible_begin and _end. The handler makes the uthread call
 *   cl_preempt_entry as if its code had done so just here, and returns. That trampoline saves every register on the
 *   uthread's own stack, calls the scheduler, and restores them, perhaps on another kthread. Nothing of the signal's
 *   frame is kept, so that what the kernel ties to a thread there (the signal stack) does not move with the uthread.
 *
 *   Waits in place, if it is other code: that may hold locks and thread-local state. So does the handler of another
 *   signal, wherever it runs: it is known by the signals that it blocks, and could not end on another thread, whose
 *   mask and signal stack its frame does not hold. (One that blocks nothing, by SA_NODEFER, is not known. It must use
 *   the signal stack.)
 *
 *   Returns, if the kthread waits for its core already, is in the scheduler's loop, which polls soon, or holds a
 *   spinlock. A sibling that has a core would wait for that lock while it keeps that core. The loop sees to it then
 *   (k->preempt_pending); if it does not come to that in time, the iokernel evicts the kthread.
 *
 * Interrupting inside a range is sound if code there holds nothing that others wait for and keeps no address of a
 * thread-local in a register: so compiled numeric code, and nothing that calls out. A call out of the range is outside
 * of it, and waits in place.
 *
 * If a quantum is over, it switches the uthread away, after Shinjuku (NSDI 2019), or does nothing: code that may not be
 * interrupted goes on, and the iokernel sends another signal a quantum later. A signal is for what ran when it was sent
 * (cl_state_kthread.quantum_over): one that comes late finds that something else runs, and does nothing, either.
 *
 * On aarch64 everything waits in place, and no quantum is over by a signal. Tests: tests/libos/sched/c/signalled.c. */
#include "internal.h"

#include <corelane/libos/probe.h>

#include <signal.h>
#include <stdio.h>
#include <ucontext.h>

#define RANGES 4096
#define RED_ZONE 128
#define SCHEDULER_BYTES 4096 /* stack that the trampoline and a switch take, without the registers */

/* Code that may be interrupted. A slot is used for one range only, ever, so that a reader never sees halves of two;
 * `end` 0: not in use. Writers: under the lock (end: release); readers: handlers (acquire). */
static struct {
    uint64_t begin, end;
} ranges[RANGES];
static uint32_t n_ranges; /* slots ever used; release after the slot is complete */
static pthread_mutex_t ranges_lock = PTHREAD_MUTEX_INITIALIZER;

int cl_preemptible_add(const void *begin, const void *end)
{
    uint64_t b = (uint64_t)(uintptr_t)begin, e = (uint64_t)(uintptr_t)end;
    if (b >= e)
        return -EINVAL;
    int rc = 0;
    pthread_mutex_lock(&ranges_lock);
    uint32_t i = 0;
    while (i < n_ranges && !(ranges[i].begin == b && (ranges[i].end == 0 || ranges[i].end == e)))
        i++;
    if (i == RANGES) {
        rc = -ENOSPC;
    } else {
        cl_store_relaxed(&ranges[i].begin, b);
        cl_store_release(&ranges[i].end, e);
        if (i == n_ranges)
            cl_store_release(&n_ranges, n_ranges + 1);
    }
    pthread_mutex_unlock(&ranges_lock);
    return rc;
}

void cl_preemptible_remove(const void *begin)
{
    pthread_mutex_lock(&ranges_lock);
    for (uint32_t i = 0; i < n_ranges; i++)
        if (ranges[i].begin == (uint64_t)(uintptr_t)begin)
            cl_store_release(&ranges[i].end, 0);
    pthread_mutex_unlock(&ranges_lock);
}

#if defined(__x86_64__)
static bool in_range(uint64_t pc)
{
    uint32_t n = cl_load_acquire(&n_ranges);
    for (uint32_t i = 0; i < n; i++)
        if (pc < cl_load_acquire(&ranges[i].end) && pc >= cl_load_relaxed(&ranges[i].begin))
            return true;
    return false;
}

#include <cpuid.h>

/* What of the registers xsave saves, and the room it takes. AMX tiles (17, 18) are left out: code that uses them is not
 * interrupted; PKRU (9) belongs to the thread. Constant after install; the trampoline knows the names. */
#define XCR0_PKRU (1ull << 9)
#define XCR0_AMX (3ull << 17)
uint64_t cl_preempt_mask __attribute__((used)), cl_preempt_bytes __attribute__((used));
static bool has_xgetbv1;

__asm__(".text\n"
        ".type cl_preempt_entry, @function\n"
        "cl_preempt_entry:\n\t"
        "pushfq\n\t"
        "cld\n\t"
        "pushq %rax\n\tpushq %rcx\n\tpushq %rdx\n\tpushq %rbx\n\tpushq %rbp\n\tpushq %rsi\n\tpushq %rdi\n\t"
        "pushq %r8\n\tpushq %r9\n\tpushq %r10\n\tpushq %r11\n\tpushq %r12\n\tpushq %r13\n\tpushq %r14\n\tpushq %r15\n\t"
        "movq %rsp, %rbx\n\t"
        "subq cl_preempt_bytes(%rip), %rsp\n\t"
        "andq $-64, %rsp\n\t"
        "xorl %eax, %eax\n\t" /* xsave leaves most of its header as it was, and xrstor wants it zero */
        "movq %rax, 512(%rsp)\n\tmovq %rax, 520(%rsp)\n\tmovq %rax, 528(%rsp)\n\tmovq %rax, 536(%rsp)\n\t"
        "movq %rax, 544(%rsp)\n\tmovq %rax, 552(%rsp)\n\tmovq %rax, 560(%rsp)\n\tmovq %rax, 568(%rsp)\n\t"
        "movl cl_preempt_mask(%rip), %eax\n\t"
        "movl 4+cl_preempt_mask(%rip), %edx\n\t"
        "xsave64 (%rsp)\n\t"
        "xorl %ebp, %ebp\n\t" /* where unwinding ends */
        "call cl_preempted\n\t"
        "movl cl_preempt_mask(%rip), %eax\n\t"
        "movl 4+cl_preempt_mask(%rip), %edx\n\t"
        "xrstor64 (%rsp)\n\t"
        "movq %rbx, %rsp\n\t"
        "popq %r15\n\tpopq %r14\n\tpopq %r13\n\tpopq %r12\n\tpopq %r11\n\tpopq %r10\n\tpopq %r9\n\tpopq %r8\n\t"
        "popq %rdi\n\tpopq %rsi\n\tpopq %rbp\n\tpopq %rbx\n\tpopq %rdx\n\tpopq %rcx\n\tpopq %rax\n\t"
        "popfq\n\t"
        "ret $128\n" /* RED_ZONE */
        ".size cl_preempt_entry, .-cl_preempt_entry\n");
extern char cl_preempt_entry[];

/* Bounds of the section CL_PROBE_TEXT, by the linker. */
extern char __start_cl_probe_text[] __attribute__((visibility("hidden")));
extern char __stop_cl_probe_text[] __attribute__((visibility("hidden")));

static void prepare(void)
{
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE))
        return; /* cl_preempt_mask stays 0: everything waits in place */
    unsigned lo, hi;
    __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    uint64_t mask = (lo | (uint64_t)hi << 32) & ~(XCR0_AMX | XCR0_PKRU), bytes = 576;
    for (unsigned i = 2; i < 63; i++)
        if (mask >> i & 1 && __get_cpuid_count(0xd, i, &a, &b, &c, &d))
            bytes = cl_max(bytes, (uint64_t)a + b);
    if (__get_cpuid_count(0xd, 1, &a, &b, &c, &d))
        has_xgetbv1 = a >> 2 & 1;
    cl_preempt_bytes = bytes;
    cl_preempt_mask = mask;
}

static bool amx_in_use(void)
{
    unsigned lo, hi;
    if (!has_xgetbv1)
        return false;
    __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(1));
    (void)hi;
    return lo & XCR0_AMX;
}

/* What the kernel fills in of a sigset_t. */
static uint64_t mask_of(const sigset_t *set)
{
    uint64_t mask;
    memcpy(&mask, set, sizeof(mask));
    return mask;
}

/* Make the interrupted code call the trampoline, if it is safe there. */
static bool switch_away(struct cl_kthread *k, ucontext_t *uc)
{
    struct cl_uthread *me = k->current;
    greg_t *regs = uc->uc_mcontext.gregs;
    uint64_t pc = (uint64_t)regs[REG_RIP];
    char *sp = (char *)regs[REG_RSP];
    bool marked = me->preemptible &&
                  !(pc >= (uint64_t)(uintptr_t)__start_cl_probe_text && pc < (uint64_t)(uintptr_t)__stop_cl_probe_text);
    if (mask_of(&uc->uc_sigmask) & ~mask_of(&k->signals_blocked))
        return false; /* in the handler of another signal */
    if (!cl_preempt_mask || k->no_switch || k->on_loop_stack || !(marked || in_range(pc)) || amx_in_use())
        return false;
    if (sp > me->stack_top || sp - me->stack_lo < (ptrdiff_t)(RED_ZONE + cl_preempt_bytes + 64 + SCHEDULER_BYTES))
        return false;
    sp -= RED_ZONE + 8;
    *(uint64_t *)sp = pc;
    regs[REG_RSP] = (greg_t)sp;
    regs[REG_RIP] = (greg_t)(uintptr_t)cl_preempt_entry;
    return true;
}
#else
static void prepare(void)
{
}

static bool switch_away(struct cl_kthread *k, ucontext_t *uc)
{
    (void)k;
    (void)uc;
    return false;
}
#endif

/* The process's: signals are. */
static struct sigaction previous;
static int installed; /* the signal; under the lock */

static void pass_on(int signal, siginfo_t *info, void *context)
{
    if (previous.sa_flags & SA_SIGINFO)
        previous.sa_sigaction(signal, info, context);
    else if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN)
        previous.sa_handler(signal); /* the default is to ignore it: see CL_SCHED_SIGNAL */
}

/* Wait inside the handler, with its signal let through, since the iokernel sends it to a new owner that no wake reaches
 * (docs/cores.md). As one that is away the kthread only notes it. */
static void wait_in_handler(struct cl_kthread *k, int signal)
{
    struct cl_cores *c = k->sched->cores;
    sigset_t mine;
    sigemptyset(&mine);
    sigaddset(&mine, signal);
    do {
        k->away = true;
        pthread_sigmask(SIG_UNBLOCK, &mine, NULL);
        cl_cede_in_place(k);
        pthread_sigmask(SIG_BLOCK, &mine, NULL);
        k->away = false;
    } while (k->preempt_pending && c->ops->lost(c, k->index)); /* again, just when we got up */
}

/* The core is ours. Relaxed counters: only handlers of this thread write them. */
static void on_quantum(struct cl_kthread *k, void *context)
{
    struct cl_cores *c = k->sched->cores;
    if (k->away || !k->current || !c->ops->quantum_over(c, k->index))
        cl_count(&k->stats.quantum_late, 1);
    else if (cl_load_relaxed(&cl_spins_held) || !switch_away(k, context))
        cl_count(&k->stats.quantum_held, 1);
    else
        cl_count(&k->stats.quantum_signals, 1);
}

/* On a thread that has adopted kthreads, outside of a turn, everything is other code. */
static void on_interrupt(int signal, siginfo_t *info, void *context)
{
    struct cl_kthread *k = cl_kthread_self();
    int err = errno;
    struct cl_cores *c = k ? k->sched->cores : NULL;
    if (c)
        c->ops->signalled(c, k->index);
    if (!k)
        cl_adopted_interrupt(wait_in_handler, signal);
    if (!c) {
        pass_on(signal, info, context);
    } else if (!c->ops->lost(c, k->index)) {
        on_quantum(k, context);
    } else {
        cl_count(&k->stats.interrupts, 1);
        if (k->away || !k->current || cl_load_relaxed(&cl_spins_held))
            k->preempt_pending = 1;
        else if (!switch_away(k, context))
            wait_in_handler(k, signal);
    }
    errno = err;
}

int cl_interrupt_install(int signal, char err[256])
{
    int rc = 0;
    pthread_mutex_lock(&ranges_lock);
    if (!installed) {
        struct sigaction action = {.sa_sigaction = on_interrupt, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART};
        prepare();
        if (sigaction(signal, NULL, &previous) || sigaction(signal, &action, NULL)) {
            rc = -errno;
            snprintf(err, 256, "cannot install the handler of signal %d: %s", signal, strerror(errno));
        } else {
            installed = signal;
        }
    }
    pthread_mutex_unlock(&ranges_lock);
    return rc;
}

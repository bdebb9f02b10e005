/* What a switch must keep: callee-saved registers, floating-point control words; and the alignment of fresh stacks,
 * which an aligned SSE store checks. Usage: registers KTHREADS MODE */
#include "check.h"

#include <fenv.h>
#include <math.h>

#define ROUNDS 3000

/* Fills all callee-saved registers, yields, and compares. Its own frame is what the compiler makes of the clobbers. */
static void registers_kept(uint64_t seed)
{
#if defined(__x86_64__)
    uint64_t bad;
    __asm__ volatile("leaq 1(%[seed]), %%rbx\n\t"
                     "leaq 2(%[seed]), %%r12\n\t"
                     "leaq 3(%[seed]), %%r13\n\t"
                     "leaq 4(%[seed]), %%r14\n\t"
                     "leaq 5(%[seed]), %%r15\n\t"
                     "pushq %%rbp\n\t"
                     "leaq 6(%[seed]), %%rbp\n\t"
                     "pushq %[seed]\n\t"
                     "movq %%rsp, %%rcx\n\t" /* align, keeping the old stack pointer above */
                     "andq $-16, %%rsp\n\t"
                     "pushq %%rcx\n\t"
                     "pushq %%rcx\n\t"
                     "call cl_uthread_yield@PLT\n\t"
                     "popq %%rcx\n\t"
                     "movq %%rcx, %%rsp\n\t"
                     "popq %%rax\n\t"
                     "leaq 21(%%rax,%%rax,4), %%rdx\n\t"
                     "addq %%rax, %%rdx\n\t" /* 6 seed + 21 */
                     "subq %%rbx, %%rdx\n\t"
                     "subq %%r12, %%rdx\n\t"
                     "subq %%r13, %%rdx\n\t"
                     "subq %%r14, %%rdx\n\t"
                     "subq %%r15, %%rdx\n\t"
                     "subq %%rbp, %%rdx\n\t"
                     "popq %%rbp\n\t"
                     : "=&d"(bad)
                     : [seed] "S"(seed)
                     : "rax", "rbx", "rcx", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "cc", "memory",
                       "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11",
                       "xmm12", "xmm13", "xmm14", "xmm15");
    CHECK_EQ(bad, 0);
#elif defined(__aarch64__)
    register double d8 __asm__("d8") = (double)seed;
    __asm__ volatile("" : "+w"(d8));
    cl_uthread_yield();
    __asm__ volatile("" : "+w"(d8));
    CHECK(d8 == (double)seed);
#endif
}

static void aligned(void *arg)
{
#if defined(__x86_64__)
    /* A movaps to a local faults if the entry was misaligned. */
    float lane[4] CL_ALIGNED(16);
    __asm__ volatile("movaps %%xmm0, %0" : "=m"(lane));
    CHECK_EQ((uintptr_t)lane % 16, 0);
#endif
    CHECK_EQ((uintptr_t)__builtin_frame_address(0) % 16, 0);
    *(unsigned *)arg += 1;
}

struct job {
    int rounding;
    uint64_t seed;
};

/* 1/3 rounded up differs from 1/3 rounded down in the last place: the uthread's own rounding mode must be in force. */
static void round_as_told(void *arg)
{
    struct job *job = arg;
    volatile double one = 1.0, three = 3.0;
    volatile long double lone = 1.0L, lthree = 3.0L;
    CHECK_EQ(fegetround(), FE_TONEAREST); /* a fresh uthread has the mode of the scheduler's maker */
    CHECK_EQ(fesetround(job->rounding), 0);
    double expected = one / three;
    long double lexpected = lone / lthree;
    for (int i = 0; i < ROUNDS; i++) {
        registers_kept(job->seed * 1000 + (uint64_t)i);
        CHECK_EQ(fegetround(), job->rounding);
        CHECK(one / three == expected);
        CHECK(lone / lthree == lexpected);
    }
}

static void root(void *arg)
{
    static const int modes[] = {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
    struct job jobs[16];
    cl_uthread_id ids[16];
    unsigned n_aligned = 0;
    for (unsigned i = 0; i < 100; i++) {
        CHECK_EQ(cl_uthread_spawn(aligned, &n_aligned, ids), 0);
        CHECK_EQ(cl_uthread_join(ids[0]), 0);
    }
    CHECK_EQ(n_aligned, 100);
    for (unsigned i = 0; i < 16; i++) {
        jobs[i] = (struct job){modes[i % 4], i};
        CHECK_EQ(cl_uthread_spawn(round_as_told, &jobs[i], &ids[i]), 0);
    }
    for (unsigned i = 0; i < 16; i++)
        CHECK_EQ(cl_uthread_join(ids[i]), 0);
    CHECK_EQ(fegetround(), FE_TONEAREST);
    (void)arg;
}

int main(int argc, char **argv)
{
    struct cl_sched_config c = config_from(argc, argv);
    struct cl_sched *s = sched_started(&c);
    CHECK_EQ(cl_sched_run(s, root, NULL), 0);
    sched_stop_clean(s);
    return 0;
}

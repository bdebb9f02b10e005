/* See memory.h. */
#include "memory.h"
#include "linux.h"

#include <signal.h>
#include <ucontext.h>

/* From `at` to `last` one byte of each 4 KiB. Returns what is behind `last`, or the byte that is not there. */
uintptr_t cl_posix_touch_read(uintptr_t at, uintptr_t last);
uintptr_t cl_posix_touch_write(uintptr_t at, uintptr_t last);
extern const char cl_posix_touch_begin[], cl_posix_touch_failed[];

#define FUNCTION(name) ".hidden " name "\n.globl " name "\n.type " name ", %function\n" name ":\n.cfi_startproc\n"
#define END(name) ".cfi_endproc\n.size " name ", .-" name "\n"
#define LABEL(name) ".hidden " name "\n.globl " name "\n" name ":\n"

/* A write is one in which nothing changes, whoever else writes there. */
#ifdef __x86_64__
#define NEXT "orq $4095, %rdi\nincq %rdi\ncmpq %rsi, %rdi\njbe 1b\nleaq 1(%rsi), %rax\nret\n"
#define READ "1: movb (%rdi), %al\n" NEXT
#define WRITE "1: lock orb $0, (%rdi)\n" NEXT
#define FAILED "movq %rdi, %rax\nret\n"
#define PC uc_mcontext.gregs[REG_RIP]
#elif defined(__aarch64__)
#define NEXT "orr x0, x0, #4095\nadd x0, x0, #1\ncmp x0, x1\nb.ls 1b\nadd x0, x1, #1\nret\n"
#define READ "hint #34\n1: ldrb w2, [x0]\n" NEXT
#define WRITE "hint #34\n1: ldxrb w2, [x0]\nstxrb w3, w2, [x0]\ncbnz w3, 1b\n" NEXT
#define FAILED "ret\n"
#define PC uc_mcontext.pc
#else
#error "of this machine there is no look at memory"
#endif

__asm__(".text\n" LABEL("cl_posix_touch_begin")   /**/
        FUNCTION("cl_posix_touch_read") READ      /**/
            END("cl_posix_touch_read")            /**/
        FUNCTION("cl_posix_touch_write") WRITE    /**/
            LABEL("cl_posix_touch_failed") FAILED /**/
                END("cl_posix_touch_write"));

bool cl_posix_memory_fault(void *context)
{
    ucontext_t *c = context;
    uintptr_t at = (uintptr_t)c->PC, begin = (uintptr_t)cl_posix_touch_begin, end = (uintptr_t)cl_posix_touch_failed;
    if (at - begin >= end - begin)
        return false;
    c->PC = (__typeof__(c->PC))end;
    return true;
}

enum { UNKNOWN, HEARS, BLOCKS };
static __thread volatile uint8_t signals __attribute__((tls_model("initial-exec")));

void cl_posix_signals_changed(void)
{
    signals = UNKNOWN;
}

static uintptr_t touch(uintptr_t at, uintptr_t last, bool out)
{
    return out ? cl_posix_touch_write(at, last) : cl_posix_touch_read(at, last);
}

static CL_NOINLINE uintptr_t touch_unblocked(uintptr_t at, uintptr_t last, bool out)
{
    sigset_t both, before;
    sigemptyset(&both);
    sigaddset(&both, SIGSEGV);
    sigaddset(&both, SIGBUS);
    pthread_sigmask(SIG_UNBLOCK, &both, &before);
    uintptr_t end = touch(at, last, out);
    bool blocks = sigismember(&before, SIGSEGV) || sigismember(&before, SIGBUS);
    signals = blocks ? BLOCKS : HEARS;
    if (blocks)
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    return end;
}

static size_t touchable(const void *p, size_t n, bool out)
{
    uintptr_t at = (uintptr_t)p, last = at + n - 1;
    if (n == 0 || cl_linux_is_outside(p, n))
        return 0;
    uintptr_t end = cl_likely(signals == HEARS) ? touch(at, last, out) : touch_unblocked(at, last, out);
    return end - at;
}

size_t cl_posix_readable(const void *p, size_t n)
{
    return touchable(p, n, false);
}

size_t cl_posix_writable(void *p, size_t n)
{
    return touchable(p, n, true);
}

static int64_t pieces(const struct iovec *vec, int64_t n, int64_t most, bool out)
{
    int64_t sum = 0;
    for (int64_t i = 0; i < n && sum < most; i++) {
        size_t len = cl_min(vec[i].iov_len, (size_t)(most - sum));
        size_t there = touchable(vec[i].iov_base, len, out);
        sum += (int64_t)there;
        if (there < len)
            break;
    }
    return sum;
}

int64_t cl_posix_pieces_readable(const struct iovec *vec, int64_t n, int64_t most)
{
    return pieces(vec, n, most, false);
}

int64_t cl_posix_pieces_writable(const struct iovec *vec, int64_t n, int64_t most)
{
    return pieces(vec, n, most, true);
}

/* Calls that are left in the middle. Of a thread that is cancelled: calls at which libc would act on pthread_cancel do
 * so here, too (../interrupted.c). Of a handler that leaves one by longjmp: one that sleeps, as they nearly always do,
 * is undone. */
#include "next.h"

#include <pthread.h>
#include <setjmp.h>

bool cl_preload_cancels;

CL_NOINLINE void cl_preload_cancelled(void)
{
    if (!cl_preload_inside) /* else it is a handler's call, in the middle of one of ours */
        pthread_testcancel();
}

NEXT_FIRST(int, pthread_cancel, (pthread_t thread), (thread))
PUBLIC int pthread_cancel(pthread_t thread)
{
    int rc = next_pthread_cancel(thread);
    if (rc == 0 && cl_preload_on) {
        cl_store_relaxed(&cl_preload_cancels, true); /* a thread that does not see it yet is told when it sleeps */
        cl_posix_cancel(thread);
    }
    return rc;
}

/* What slept is undone. Of what was in the middle of its work that cannot be. */
static void leave(void)
{
    if (cl_likely(!cl_preload_inside))
        return;
    if (cl_posix_leave_call())
        cl_preload_inside = 0;
    else
        (void)cl_posix_refuse(
            "a handler of a signal has left a call on a socket of the dataplane by longjmp: this thread's "
            "calls on such sockets say EAGAIN from now on; have the handler set a flag, and the call "
            "end with EINTR",
            0);
}

/* libc's names for one function; __longjmp_chk is that of _FORTIFY_SOURCE. */
#define JUMP(name)                                                                                                     \
    __attribute__((noreturn)) void name(jmp_buf to, int value);                                                        \
    PUBLIC void name(jmp_buf to, int value)                                                                            \
    {                                                                                                                  \
        static void (*next)(jmp_buf to, int value);                                                                    \
        leave();                                                                                                       \
        if (cl_unlikely(!next))                                                                                        \
            next = (void (*)(jmp_buf to, int value))dlsym(RTLD_NEXT, #name);                                           \
        next(to, value);                                                                                               \
        __builtin_unreachable();                                                                                       \
    }
JUMP(longjmp)
JUMP(_longjmp)
JUMP(siglongjmp)
JUMP(__longjmp_chk)

/* sigaction and signal: handlers without SA_RESTART, which end the call in which they run. Nobody says which handler
 * has ended a sleep of ours, so one of ours stands before each of them, which notes that it ran (../interrupted.c); the
 * program sees its own. Those of signals by which a program is told that it is wrong stay alone, and so do those that
 * are set by libc's rarer functions (sigset, sysv_signal after siginterrupt, ...): of such it is as if each might have
 * run. */
#include "next.h"

#include <signal.h>

typedef void handler(int number, siginfo_t *info, void *context);
typedef void (*simple)(int number);

static handler *handlers[NSIG]; /* the program's, behind ours. Written before ours is set; release, acquire */

static void on_signal(int number, siginfo_t *info, void *context)
{
    handler *fn = cl_load_acquire(&handlers[number]);
    cl_posix_ended_by_handler();
    fn(number, info, context); /* of one without SA_SIGINFO the others are just not looked at */
}

static bool is_noted(int number, const struct sigaction *action)
{
    return cl_preload_on && action && number > 0 && number < NSIG && !cl_posix_signal_is_fatal(number) &&
           action->sa_handler != SIG_DFL && action->sa_handler != SIG_IGN && !(action->sa_flags & SA_RESTART) &&
           !cl_preload_borrowed();
}

int cl_preload_next_sigaction(int number, const struct sigaction *action, struct sigaction *old)
{
    static int (*next)(int number, const struct sigaction *action, struct sigaction *old);
    if (cl_unlikely(!next))
        next = (int (*)(int, const struct sigaction *, struct sigaction *))dlsym(RTLD_NEXT, "sigaction");
    return next(number, action, old);
}

static handler *before(int number)
{
    return number > 0 && number < NSIG ? cl_load_acquire(&handlers[number]) : NULL;
}

PUBLIC int sigaction(int number, const struct sigaction *action, struct sigaction *old)
{
    struct sigaction noted;
    if (cl_preload_catches(number))
        return cl_preload_fault_action(number, action, old, BY_RUNTIME);
    if (BY_RUNTIME)
        return cl_preload_next_sigaction(number, action, old);
    handler *last = before(number);
    bool note = is_noted(number, action);
    if (note) {
        noted = *action;
        noted.sa_sigaction = on_signal;
        cl_store_release(&handlers[number], action->sa_sigaction);
        cl_posix_noted_by(on_signal);
    }
    int rc = cl_preload_next_sigaction(number, note ? &noted : action, old);
    if (rc && note)
        cl_store_release(&handlers[number], last);
    if (rc == 0 && old && old->sa_sigaction == on_signal)
        old->sa_sigaction = last;
    return rc;
}

PUBLIC int __sigaction(int number, const struct sigaction *action, struct sigaction *old) __THROW
    __attribute__((alias("sigaction")));

/* libc's handlers go on with a call as a rule; what was there before is the program's. */
#define SIGNAL(name, flags)                                                                                            \
    simple name(int number, simple action);                                                                            \
    PUBLIC simple name(int number, simple action)                                                                      \
    {                                                                                                                  \
        static simple (*next)(int number, simple action);                                                              \
        if (cl_unlikely(!next))                                                                                        \
            next = (simple(*)(int, simple))dlsym(RTLD_NEXT, #name);                                                    \
        struct sigaction fault = {.sa_handler = action, .sa_flags = (flags)}, was;                                     \
        if (cl_preload_catches(number) && action != SIG_ERR)                                                           \
            return cl_preload_fault_action(number, &fault, &was, false) ? SIG_ERR : was.sa_handler;                    \
        handler *last = before(number);                                                                                \
        simple old = next(number, action);                                                                             \
        return old == (simple)(uintptr_t)on_signal ? (simple)(uintptr_t)last : old;                                    \
    }
SIGNAL(signal, SA_RESTART)
SIGNAL(bsd_signal, SA_RESTART)
SIGNAL(ssignal, SA_RESTART)
SIGNAL(sysv_signal, (int)SA_RESETHAND | SA_NODEFER)
SIGNAL(__sysv_signal, (int)SA_RESETHAND | SA_NODEFER)

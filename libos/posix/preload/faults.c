/* SIGSEGV and SIGBUS. A look at memory that is not there (../memory.h) fails, and nobody is told. All else is passed on
 * as if nothing stood before it: to the runtime's own handler, which names stacks that have run over, and to what the
 * program has set, by the flags and the mask that it has given. Of what it has not set, or ignores, the kernel is asked
 * again, with the instruction or the signal, so that the process ends as it would have.
 *
 * Otherwise than without us: a program that ignores one of them does not hand that on by exec. Handlers that are set by
 * libc's rarer functions (sigset, ...) stand alone: a pointer to no memory calls them. */
#include "../memory.h"
#include "next.h"

#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SIGNALS 2
#define ACTIONS 16 /* in which a handler that is just read is not overwritten */

#ifdef __x86_64__
#define FLAGS_OF_LIBC 0x04000000 /* SA_RESTORER, which libc gives to the kernel with each, and shows */
#else
#define FLAGS_OF_LIBC 0
#endif

typedef void handler(int number, siginfo_t *info, void *context);

/* The program's, by turns; the last one is in force. Set and read by handlers, too, so without a lock. */
static struct {
    struct sigaction all[ACTIONS];
    uint32_t begun, last; /* RMW; release, acquire */
} actions[SIGNALS];
static handler *runtimes[SIGNALS]; /* NULL. Release, acquire */
static bool catches;

static unsigned index_of(int number)
{
    return number == SIGBUS;
}

bool cl_preload_catches(int number)
{
    return catches && (number == SIGSEGV || number == SIGBUS);
}

static struct sigaction action_of(int number)
{
    unsigned i = index_of(number);
    return actions[i].all[cl_load_acquire(&actions[i].last)];
}

static void keep(int number, const struct sigaction *action)
{
    unsigned i = index_of(number);
    uint32_t next = (__atomic_fetch_add(&actions[i].begun, 1, __ATOMIC_RELAXED) + 1) % ACTIONS;
    actions[i].all[next] = *action;
    cl_store_release(&actions[i].last, next);
}

static bool is_handler(const struct sigaction *action)
{
    return action->sa_handler != SIG_DFL && action->sa_handler != SIG_IGN;
}

/* Neither a handler of the program's nor one of ours: the kernel is to do what it does then. */
static void by_kernel(int number, const siginfo_t *info, bool ignores)
{
    bool of_instruction = info->si_code > 0 && !(number == SIGBUS && info->si_code == BUS_MCEERR_AO);
    struct sigaction none = {.sa_handler = SIG_DFL};
    if (ignores && info->si_code <= 0)
        return;
    cl_preload_next_sigaction(number, &none, NULL);
    if (!of_instruction) /* else it faults again */
        (void)cl_preload_linux(SYS_rt_tgsigqueueinfo, cl_preload_linux(SYS_getpid), cl_preload_linux(SYS_gettid),
                               number, info);
}

static void pass_on(int number, siginfo_t *info, void *context)
{
    struct sigaction action = action_of(number), reset = action;
    if (!is_handler(&action)) {
        by_kernel(number, info, action.sa_handler == SIG_IGN);
        return;
    }
    reset.sa_handler = SIG_DFL;
    if (action.sa_flags & (int)SA_RESETHAND)
        (void)cl_preload_fault_action(number, &reset, NULL, false);
    action.sa_sigaction(number, info, context); /* of one without SA_SIGINFO the others are just not looked at */
}

static void on_fault(int number, siginfo_t *info, void *context)
{
    if (info->si_code > 0 && cl_posix_memory_fault(context))
        return;
    handler *fn = cl_load_acquire(&runtimes[index_of(number)]);
    (fn ? fn : pass_on)(number, info, context);
}

/* What the kernel has for it. */
static struct sigaction in_front_of(const struct sigaction *action)
{
    struct sigaction front = {.sa_flags = SA_ONSTACK};
    if (is_handler(action))
        front = *action;
    front.sa_flags = (front.sa_flags & ~(int)SA_RESETHAND) | SA_SIGINFO;
    front.sa_sigaction = on_fault;
    return front;
}

int cl_preload_fault_action(int number, const struct sigaction *action, struct sigaction *old, bool by_runtime)
{
    struct sigaction before = action_of(number), now, front, kept;
    int rc;
    if (by_runtime) {
        if (old)
            *old = (struct sigaction){.sa_sigaction = pass_on, .sa_flags = SA_SIGINFO};
        if (action)
            cl_store_release(&runtimes[index_of(number)], action->sa_sigaction);
        return 0;
    }
    if (cl_preload_borrowed() || !action) {
        rc = cl_preload_next_sigaction(number, action, &now);
    } else {
        front = in_front_of(action);
        kept = *action;
        kept.sa_flags |= FLAGS_OF_LIBC;
        keep(number, &kept);
        rc = cl_preload_next_sigaction(number, &front, &now);
    }
    if (rc == 0 && old)
        *old = now.sa_sigaction == on_fault ? before : now;
    return rc;
}

void cl_preload_catch_faults(void)
{
    static const int numbers[SIGNALS] = {SIGSEGV, SIGBUS};
    for (unsigned i = 0; i < SIGNALS; i++) {
        struct sigaction had, front;
        (void)cl_preload_next_sigaction(numbers[i], NULL, &had);
        keep(numbers[i], &had);
        front = in_front_of(&had);
        (void)cl_preload_next_sigaction(numbers[i], &front, NULL);
    }
    catches = true;
}

/* A thread that blocks them is to be known (../memory.h). */
#define MASK(name)                                                                                                     \
    int name(int how, const sigset_t *set, sigset_t *old);                                                             \
    PUBLIC int name(int how, const sigset_t *set, sigset_t *old)                                                       \
    {                                                                                                                  \
        static int (*next)(int how, const sigset_t *set, sigset_t *old);                                               \
        if (cl_unlikely(!next))                                                                                        \
            next = (int (*)(int, const sigset_t *, sigset_t *))dlsym(RTLD_NEXT, #name);                                \
        if (set && !BY_RUNTIME)                                                                                        \
            cl_posix_signals_changed();                                                                                \
        return next(how, set, old);                                                                                    \
    }
MASK(pthread_sigmask)
MASK(sigprocmask)

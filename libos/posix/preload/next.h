/* What stands before libc's functions, and how to reach those. A call on a descriptor that is not ours costs one load
 * and a compare, and goes on to libc.
 *
 * A handler of a signal that comes in the middle of one of our calls finds `cl_preload_inside` set: what it asks of our
 * sockets is answered with EAGAIN. */
#ifndef CORELANE_LIBOS_POSIX_PRELOAD_NEXT_H
#define CORELANE_LIBOS_POSIX_PRELOAD_NEXT_H

#include "../counts.h"
#include "../posix.h"

#include <dlfcn.h>
#include <errno.h>

#define PUBLIC __attribute__((visibility("default")))

/* Written by ../table.c; 0: Linux'. Hidden: found without a load. */
extern __attribute__((visibility("hidden"))) uint8_t cl_preload_kinds[CL_POSIX_FDS];
extern bool cl_preload_on; /* a configuration was given, and taken */
extern __thread uint32_t cl_preload_inside __attribute__((tls_model("initial-exec")));

static inline uint8_t kind_of(int fd)
{
    return (uint32_t)fd < CL_POSIX_FDS ? cl_load_relaxed(&cl_preload_kinds[fd]) : CL_POSIX_LINUX;
}

/* Of a descriptor that is copied or closed, which is no use of it. */
static inline bool is_known(int fd)
{
    return cl_unlikely(kind_of(fd) != CL_POSIX_LINUX);
}

static inline bool is_ours(int fd)
{
    return is_known(fd) && (kind_of(fd) != CL_POSIX_INHERITED || cl_posix_uses_inherited(fd));
}

/* A number for a function that is wrapped (../counts.h), before the library begins. */
unsigned cl_preload_number(const char *name);

/* inner.c */
/* From where to where the code of the runtime's library lies; found at the beginning. */
extern uintptr_t cl_preload_runtime[2];
void cl_preload_find_runtime(void);
/* In a function that libc has, too: the runtime calls it, for itself. */
#define BY_RUNTIME                                                                                                     \
    cl_unlikely((uintptr_t)__builtin_return_address(0) - cl_preload_runtime[0] <                                       \
                cl_preload_runtime[1] - cl_preload_runtime[0])

/* Whether calls are traced is known: after that the functions of libc's that are found are called at once, or
 * counted. */
extern bool cl_preload_traces, cl_preload_decided;
void cl_preload_passed(unsigned call);

/* `next_NAME`: libc's function, found at its first call. What goes on to it is counted if calls are traced, but for the
 * runtime's own: `name` jumps there as its last step, so that who called that is known here, too. */
#define NEXT(type, name, parameters, arguments)                                                                        \
    NUMBERED(name)                                                                                                     \
    static type first_##name parameters;                                                                               \
    static type(*next_##name) parameters = first_##name;                                                               \
    static type(*real_##name) parameters;                                                                              \
    static type counted_##name parameters                                                                              \
    {                                                                                                                  \
        if (!BY_RUNTIME)                                                                                               \
            cl_preload_passed(call_##name);                                                                            \
        return real_##name arguments;                                                                                  \
    }                                                                                                                  \
    static type first_##name parameters                                                                                \
    {                                                                                                                  \
        real_##name = (type(*) parameters)dlsym(RTLD_NEXT, #name);                                                     \
        if (!cl_preload_decided)                                                                                       \
            return real_##name arguments;                                                                              \
        next_##name = cl_preload_traces ? counted_##name : real_##name;                                                \
        return next_##name arguments;                                                                                  \
    }

/* The same of one that is called in any case, before it is known whose the call is. */
#define NEXT_FIRST(type, name, parameters, arguments)                                                                  \
    NUMBERED(name)                                                                                                     \
    static type first_##name parameters;                                                                               \
    static type(*next_##name) parameters = first_##name;                                                               \
    static type first_##name parameters                                                                                \
    {                                                                                                                  \
        next_##name = (type(*) parameters)dlsym(RTLD_NEXT, #name);                                                     \
        return next_##name arguments;                                                                                  \
    }

/* The function that stands before libc's, of the descriptor `of`: of one of ours the result is `call`. That is out of
 * line, so that a call on any other one keeps nothing on the stack. */
#define WRAP(type, name, parameters, arguments, of, call)                                                              \
    NEXT(type, name, parameters, arguments)                                                                            \
    static CL_NOINLINE type ours_##name parameters                                                                     \
    {                                                                                                                  \
        return is_ours(of) ? (type)(call) : next_##name arguments;                                                     \
    }                                                                                                                  \
    PUBLIC type name parameters                                                                                        \
    {                                                                                                                  \
        return is_known(of) ? ours_##name arguments : next_##name arguments;                                           \
    }

#define NUMBERED(name)                                                                                                 \
    static __attribute__((unused)) unsigned call_##name;                                                               \
    static __attribute__((constructor(101))) void number_##name(void)                                                  \
    {                                                                                                                  \
        call_##name = cl_preload_number(#name);                                                                        \
    }

/* Set errno of a call that failed, and return -1. Threads that go on while exit ends the process find sockets that are
 * closed already: they are held up, as by Linux nobody lives to see that; but for a second at most, in case that exit
 * waits for them. */
int64_t cl_preload_failed(int64_t error);

/* A call of ours has answered. */
void cl_preload_counted(unsigned call, int64_t answer);

/* The result of one of our calls, as libc gives it: evaluated unless we are inside of one. */
#define ANSWER(name, call)                                                                                             \
    ({                                                                                                                 \
        int64_t answer = -EAGAIN;                                                                                      \
        int before = errno;                                                                                            \
        if (cl_likely(cl_preload_inside++ == 0))                                                                       \
            answer = (call);                                                                                           \
        cl_preload_inside--;                                                                                           \
        cl_preload_counted(call_##name, answer);                                                                       \
        if (cl_unlikely(answer < 0))                                                                                   \
            answer = cl_preload_failed(answer);                                                                        \
        else                                                                                                           \
            errno = before; /* Linux leaves it alone; our own calls may have failed in between */                      \
        answer;                                                                                                        \
    })

/* The same of a call at which libc would act on the thread's having been cancelled (cancel.c). If libc does not, it was
 * not this thread, and the call is made again. */
#define POINT(name, call)                                                                                              \
    ({                                                                                                                 \
        int64_t point;                                                                                                 \
        do {                                                                                                           \
            if (cl_unlikely(cl_load_relaxed(&cl_preload_cancels)))                                                     \
                cl_preload_cancelled();                                                                                \
            point = ANSWER(name, call);                                                                                \
        } while (cl_unlikely(point < 0) && errno == ECANCELED);                                                        \
        point;                                                                                                         \
    })

/* cancel.c: some thread has been cancelled; then it was perhaps the caller. */
extern bool cl_preload_cancels;
void cl_preload_cancelled(void);

/* inner.c: the runtime has received a message: what descriptors came with it are its own. */
void cl_preload_got(struct msghdr *m);

/* past.c: a system call of this library's own, whatever it is on. */
long cl_preload_linux(long number, ...);

/* waits.c: what is wrong with a time that a call may wait, and its mask of signals; NULL: there is none. -EFAULT,
 * -EINVAL. */
int cl_preload_wrong_time(const struct timespec *t, const sigset_t *mask);
/* One of them is. It writes nothing. */
bool cl_preload_polls_ours(struct pollfd *fds, nfds_t n);

/* faults.c: SIGSEGV and SIGBUS come here first, which tell of pointers to no memory. */
void cl_preload_catch_faults(void);
bool cl_preload_catches(int number);
/* sigaction of one of them. */
int cl_preload_fault_action(int number, const struct sigaction *action, struct sigaction *old, bool by_runtime);

/* signals.c: libc's. */
int cl_preload_next_sigaction(int number, const struct sigaction *action, struct sigaction *old);

/* stdio.c: at the end of the process what its streams on our sockets hold is sent, while those are open. */
void cl_preload_flush(void);

/* This is a child of vfork, with its parent's memory: it may change descriptors, but not what we know of them. */
bool cl_preload_borrowed(void);

#endif

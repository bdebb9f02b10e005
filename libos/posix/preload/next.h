/* What stands before libc's functions, and how to reach those. A call on a descriptor that is not ours costs one load and
 * a compare, and goes on to libc.
 *
 * A handler of a signal that comes in the middle of one of our calls finds `cl_preload_inside` set: what it asks of our
 * sockets is answered with EAGAIN. */
#ifndef CORELANE_LIBOS_POSIX_PRELOAD_NEXT_H
#define CORELANE_LIBOS_POSIX_PRELOAD_NEXT_H

#include "../posix.h"

#include <dlfcn.h>
#include <errno.h>

#define PUBLIC __attribute__((visibility("default")))

/* Written by ../table.c; 0: Linux'. */
extern uint8_t cl_preload_kinds[CL_POSIX_FDS];
extern bool cl_preload_on; /* a configuration was given, and taken */
extern __thread uint32_t cl_preload_inside __attribute__((tls_model("initial-exec")));

static inline bool is_ours(int fd)
{
    return cl_unlikely((uint32_t)fd < CL_POSIX_FDS && cl_load_relaxed(&cl_preload_kinds[fd]));
}

/* `next_NAME`: libc's function, found at its first call. */
#define NEXT(type, name, parameters, arguments)                                                                        \
    static type first_##name parameters;                                                                               \
    static type(*next_##name) parameters = first_##name;                                                               \
    static type first_##name parameters                                                                                \
    {                                                                                                                  \
        next_##name = (type(*) parameters)dlsym(RTLD_NEXT, #name);                                                     \
        return next_##name arguments;                                                                                  \
    }

/* Set errno of a call that failed, and return -1. Threads that go on while exit ends the process find sockets that are
 * closed already: they are held up, as by Linux nobody lives to see that; but for a second at most, in case that exit
 * waits for them. */
int64_t cl_preload_failed(int64_t error);

/* How often a function of libc's was called for one of ours, and failed. If calls are traced. */
struct cl_preload_count {
    const char *name;
    uint64_t calls, failed; /* RMW */
    struct cl_preload_count *next;
};
extern bool cl_preload_traces;
void cl_preload_counted(struct cl_preload_count *c, int64_t answer);

/* The result of one of our calls, as libc gives it: evaluated unless we are inside of one. */
#define ANSWER(call)                                                                                                   \
    ({                                                                                                                 \
        int64_t answer = -EAGAIN;                                                                                      \
        if (cl_likely(cl_preload_inside++ == 0))                                                                       \
            answer = (call);                                                                                           \
        cl_preload_inside--;                                                                                           \
        if (cl_unlikely(cl_preload_traces)) {                                                                          \
            static struct cl_preload_count count = {.name = __func__};                                                 \
            cl_preload_counted(&count, answer);                                                                        \
        }                                                                                                              \
        if (cl_unlikely(answer < 0))                                                                                   \
            answer = cl_preload_failed(answer);                                                                        \
        answer;                                                                                                        \
    })

/* inner.c */
/* From where to where the code of the runtime's library lies; found at the beginning. */
extern uintptr_t cl_preload_runtime[2];
void cl_preload_find_runtime(void);
/* In a function that libc has, too: the runtime calls it, for itself. */
#define BY_RUNTIME                                                                                                     \
    cl_unlikely((uintptr_t)__builtin_return_address(0) - cl_preload_runtime[0] <                                       \
                cl_preload_runtime[1] - cl_preload_runtime[0])
/* The runtime has received a message: what descriptors came with it are its own. */
void cl_preload_got(struct msghdr *m);

/* This is a child of vfork, with its parent's memory: it may change descriptors, but not what we know of them. */
bool cl_preload_borrowed(void);

#endif

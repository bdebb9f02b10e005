/* Sockets of Linux programs on a runtime: calls by descriptor, as POSIX has them. Read this page first.
 *
 *   the program --> preload/ (libc's names) --> calls, transfer, options, poll, epoll --> socket --> stream (net/tcp)
 *                       |                                     |
 *                       +--> Linux: what is not ours          +--> kthreads: who turns them, waits: who sleeps
 *
 * A socket of ours has a descriptor of Linux, its placeholder: a socket of the kernel that is never bound. So numbers,
 * limits, dup and fstat are Linux', options are checked and kept by it, and a socket that turns out to be Linux' (by
 * its address) is so by forgetting it here. `kinds` tells of each descriptor whether it is ours: one byte, 0 for those
 * that are not.
 *
 * State is the process's, as descriptors are: there is one runtime, made when a call first needs it (cl_posix_start),
 * so that a program may fork before; of processes that were forked so one has it (family.h). The calls return what the
 * system call returns, or -errno, and print nothing: `say` gets one sentence for each thing that a program asked for
 * and does not get, once.
 *
 * Kthreads (kthreads.c). None has a thread of its own. A thread that calls borrows one for the call; a thread that
 * waits for connections keeps one, which it turns while it waits; those that nobody keeps are turned by a thread of
 * ours. Only where an iokernel manages the cores they have threads, and each call is passed to one.
 *
 * Waiting (waits.c). A watch joins a socket to a set: that of an epoll descriptor, or a thread's own. What a socket
 * tells lists its watches, and wakes who sleeps for the set by an eventfd, which the real epoll_wait or ppoll has
 * beside what is Linux'. An epoll descriptor in another one, or in a poll, is lent: Linux tells of it by that eventfd,
 * too, which is readable for as long as something is ready.
 *
 * Locks, in this order: the structure's mutex (waits.c); a stream's guard; a socket's; a set's. The table's and that of
 * keeping kthreads are taken with none of these held.
 *
 * NOT here yet: the parent's sockets in a child.
 *
 * Tests: tests/libos/posix. */
#ifndef CORELANE_LIBOS_POSIX_POSIX_H
#define CORELANE_LIBOS_POSIX_POSIX_H

#include <corelane/runtime/base.h>

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/uio.h>

#define CL_POSIX_FDS (1u << 20) /* descriptors from here on are Linux' */

#define CL_POSIX_TYPE_MASK 0xf /* of what socket() is given as a type, beside its flags */

enum cl_posix_kind { CL_POSIX_LINUX = 0, CL_POSIX_SOCKET, CL_POSIX_EPOLL, CL_POSIX_INHERITED };

/* Once, before all others. words: "key=value,...", as cl_posix_parse (config.h) has them. kinds: CL_POSIX_FDS of them,
 * 0, written here alone. say: gets sentences; failed: the runtime cannot be made, and nothing of ours will work: it
 * does not return, as a rule. -errno with a reason. */
CL_API int cl_posix_open(const char *words, uint8_t *kinds, void (*say)(const char *sentence),
                         void (*failed)(const char *sentence), char err[256]);
/* Memory that is 0 in a child, however it was forked (clone, _Fork and system calls ask no handler of pthread_atfork),
 * but not in one that shares all memory. NULL: there is none. */
CL_API void *cl_posix_wiped_page(void);
/* The process ends: say so to all peers. */
CL_API void cl_posix_end(void);
/* Calls are to be traced: the configuration says so. */
CL_API bool cl_posix_traces(void);
/* Say that a call is not to be had on a descriptor of ours. -error. */
CL_API int64_t cl_posix_refuse(const char *sentence, int error);

/* The thread was cancelled by libc: if it sleeps in a call of ours that returns -ECANCELED, and libc is to act on it.
 * If that does not, it was another thread of the same name, which never slept here. */
CL_API void cl_posix_cancel(pthread_t thread);
CL_API void cl_posix_not_cancelled(void);
/* A handler of a signal leaves the call of ours in which it has come. True: that slept, and is undone. */
CL_API bool cl_posix_leave_call(void);

/* A handler without SA_RESTART runs in the calling thread: a call of ours that sleeps ends with -EINTR. */
CL_API void cl_posix_ended_by_handler(void);
/* fn is what the kernel has as the handler of signals of which that is said each time. */
CL_API void cl_posix_noted_by(void (*fn)(int number, siginfo_t *info, void *context));
/* By it the kernel says that the program is wrong, or that means to end it: nobody has gone on after it. */
CL_API bool cl_posix_signal_is_fatal(int number);

/* A TCP or UDP socket was made by Linux; it may become ours. type: as given to socket(). */
CL_API int cl_posix_socket(int fd, int domain, int type);
CL_API int cl_posix_close(int fd);
/* At the beginning: find sockets that came by exec (inherited.h). */
CL_API void cl_posix_find_inherited(void);
/* A call uses a descriptor of kind CL_POSIX_INHERITED, which is Linux' from now on. Says so (inherited.h). False. */
CL_API bool cl_posix_uses_inherited(int fd);
/* The descriptor, just made, is the runtime's own (inner.c). Returns its number, which may be another one. */
CL_API int cl_posix_inner(int fd);
CL_API bool cl_posix_is_inner(int fd);
/* An eventfd of the runtime's own, though the program may have as many descriptors as it may. -errno. */
int cl_posix_inner_eventfd(void);
/* Around making some of them: there are numbers for them above the program's limit. May be nested. False: there are
 * not, and it is not to be lowered. */
bool cl_posix_inner_raise(void);
void cl_posix_inner_lower(void);
/* It was given to the process for the runtime, and stays what it is. */
void cl_posix_inner_given(int fd);
/* This is a child, in which they are of no use: it may close them. */
void cl_posix_inner_forget(void);
CL_API int cl_posix_inner_close(int fd);
/* The highest descriptor that is not the runtime's own, nor, in a child, its parent's. -errno: there is no telling. */
int cl_posix_last_of_program(void);
/* The descriptor was closed behind our back. */
CL_API void cl_posix_closed(int fd);
/* `copy` is a descriptor that Linux has just made of fd. Returns it. */
CL_API int cl_posix_duplicated(int fd, int copy);

CL_API int cl_posix_bind(int fd, const struct sockaddr *addr, socklen_t len);
CL_API int cl_posix_listen(int fd, int backlog);
CL_API int cl_posix_accept(int fd, struct sockaddr *addr, socklen_t *len, int flags);
CL_API int cl_posix_connect(int fd, const struct sockaddr *addr, socklen_t len);
CL_API int cl_posix_shutdown(int fd, int how);
CL_API int cl_posix_name(int fd, struct sockaddr *addr, socklen_t *len, bool peer);

/* As recvmsg and sendmsg, of messages of the caller's own: themselves and their pieces are memory. */
CL_API int64_t cl_posix_receive(int fd, struct msghdr *m, int flags);
CL_API int64_t cl_posix_send(int fd, const struct msghdr *m, int flags);
/* recvmsg, sendmsg, recvmmsg and sendmmsg; *left: as recvmmsg's time-out, NULL for ever. */
CL_API int64_t cl_posix_receive_message(int fd, struct msghdr *m, int flags);
CL_API int64_t cl_posix_send_message(int fd, const struct msghdr *m, int flags);
CL_API int64_t cl_posix_receive_many(int fd, struct mmsghdr *m, unsigned n, int flags, struct timespec *left);
CL_API int64_t cl_posix_send_many(int fd, struct mmsghdr *m, unsigned n, int flags);
/* As readv and writev, with flags of recv and send. The pieces are memory, what they point to need not be. */
CL_API int64_t cl_posix_read(int fd, const struct iovec *vec, int64_t n, int flags);
CL_API int64_t cl_posix_write(int fd, const struct iovec *vec, int64_t n, int flags);
CL_API int64_t cl_posix_sendfile(int fd, int from, int64_t *offset, int64_t len);

/* As splice(2). One end is a pipe. */
CL_API int64_t cl_posix_splice(int in, const int64_t *in_at, int out, const int64_t *out_at, size_t len,
                               unsigned flags);

CL_API int cl_posix_setsockopt(int fd, int level, int name, const void *value, socklen_t len);
CL_API int cl_posix_getsockopt(int fd, int level, int name, void *value, socklen_t *len);
CL_API int cl_posix_fcntl(int fd, int command, int64_t arg);
CL_API int cl_posix_ioctl(int fd, unsigned long request, void *arg);

/* Linux has made one. Returns it. */
CL_API int cl_posix_epoll_create(int epfd);
/* fd is ours. */
CL_API int cl_posix_epoll_ctl(int epfd, int op, int fd, struct epoll_event *event);
CL_API int cl_posix_epoll_wait(int epfd, struct epoll_event *events, int n, int64_t timeout_ns, const sigset_t *mask);
/* One of them is ours. timeout_ns < 0: for ever. */
CL_API int cl_posix_poll(struct pollfd *fds, nfds_t n, int64_t timeout_ns, const sigset_t *mask);
/* n: no more than cl_posix_select_within says. */
CL_API int cl_posix_select(int n, fd_set *in, fd_set *out, fd_set *except, int64_t timeout_ns, const sigset_t *mask);
/* The bits of sets of n at which Linux would look: those of its table of files, in which none is of the runtime's own.
 * For programs that take the limit of open files for n, and have sets of less. */
CL_API int cl_posix_select_within(int n);
/* A time, none of whose parts is below 0; of one that is too long for this the longest that any instant may be added
 * to. */
static inline int64_t cl_posix_ns(int64_t s, int64_t ns)
{
    const int64_t most = 1ll << 62;
    return s < most / 1000000000 ? s * 1000000000 + ns : most;
}
static inline size_t cl_posix_set_bytes(int n)
{
    return ((size_t)n + NFDBITS - 1) / NFDBITS * sizeof(fd_mask);
}
static inline bool cl_posix_in_set(int fd, const fd_set *set)
{
    return set && ((const unsigned long *)set)[fd / NFDBITS] >> fd % NFDBITS & 1;
}

#endif

/* A program that knows nothing of corelane: system calls by their numbers, past libc's functions. It prints the results
 * of its calls; the test runs it on Linux' sockets and on ours, and compares (../test_twin.py).
 *
 *   past ADDRESS SEQUENCE */
#include "pairs.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>

#define SIGNALS_BYTES 8

/* Of pselect6. */
struct signals {
    const sigset_t *mask;
    size_t bytes;
};

static void names(void)
{
    struct sockaddr_in at = here;
    socklen_t len = sizeof at;
    int value = 1;
    int l = (int)syscall(SYS_socket, AF_INET, SOCK_STREAM, 0), c = (int)syscall(SYS_socket, AF_INET, SOCK_STREAM, 0);
    say("setsockopt", syscall(SYS_setsockopt, l, SOL_SOCKET, SO_REUSEADDR, &value, sizeof value));
    say("bind", syscall(SYS_bind, l, &at, sizeof at));
    say("listen", syscall(SYS_listen, l, 8));
    say("getsockname", syscall(SYS_getsockname, l, &at, &len));
    say("connect", syscall(SYS_connect, c, &at, len));
    wait_for(l, POLLIN);
    int s = say_fd("accept4", (int)syscall(SYS_accept4, l, &at, &len, SOCK_CLOEXEC));
    printf("a name of %u bytes, the same address: %d\n", len, at.sin_addr.s_addr == here.sin_addr.s_addr);
    say("getpeername", syscall(SYS_getpeername, c, &at, &len));
    len = sizeof value;
    say("getsockopt", syscall(SYS_getsockopt, l, SOL_SOCKET, SO_ACCEPTCONN, &value, &len));
    printf("%d\n", value);
    say("shutdown", syscall(SYS_shutdown, c, SHUT_WR));
    say("read", read(s, &value, sizeof value));
    say("accept", syscall(SYS_accept, s, NULL, NULL));
    say("connect", syscall(SYS_connect, s, &at, sizeof at));
}

static void bytes(void)
{
    char data[16] = "", word[4] = "abc";
    struct iovec vec[2] = {{word, 2}, {word + 2, 1}};
    struct msghdr m = {.msg_iov = vec, .msg_iovlen = 2};
    struct mmsghdr many[2] = {{m, 0}, {m, 0}};
    int c, s;
    pair(&c, &s);
    say("write", syscall(SYS_write, c, "abc", 3));
    say("writev", syscall(SYS_writev, c, vec, 2));
    say("pwritev2", syscall(SYS_pwritev2, c, vec, 2, -1L, -1L, 0));
    say("sendto", syscall(SYS_sendto, c, "abc", 3, MSG_NOSIGNAL, NULL, 0));
    say("sendmsg", syscall(SYS_sendmsg, c, &m, 0));
    say("sendmmsg", syscall(SYS_sendmmsg, c, many, 2, 0));
    say("recvfrom", syscall(SYS_recvfrom, s, data, 3, MSG_WAITALL, NULL, NULL));
    for (int n = 0; n < 18; sched_yield())
        ioctl(s, FIONREAD, &n);
    say("read", syscall(SYS_read, s, data, 3));
    say("readv", syscall(SYS_readv, s, vec, 2));
    say("preadv2", syscall(SYS_preadv2, s, vec, 2, -1L, -1L, 0));
    say("preadv2 at a place", syscall(SYS_preadv2, s, vec, 2, 1L, 0L, 0));
    say("recvmsg", syscall(SYS_recvmsg, s, &m, 0));
    say("recvmmsg", syscall(SYS_recvmmsg, s, many, 2, MSG_DONTWAIT, NULL));
    printf("%s %s\n", data, word);
    say("nothing", syscall(SYS_recvfrom, s, data, 8, MSG_DONTWAIT, NULL, NULL));
    say("of Linux", syscall(SYS_write, STDOUT_FILENO, "abc\n", 4));
    say("of nobody", syscall(SYS_read, 1000, data, 8));
}

static void files(void)
{
    int c, s, p[2], file = (int)syscall(SYS_memfd_create, "file", 0);
    char data[16] = "";
    long at = 2;
    pair(&c, &s);
    say("write", write(file, "01234567", 8));
    say("sendfile", syscall(SYS_sendfile, c, file, &at, 4));
    printf("at %ld\n", at);
    say("pipe", pipe(p));
    wait_for(s, POLLIN);
    say("splice", syscall(SYS_splice, s, NULL, p[1], NULL, 16, 0));
    say("splice", syscall(SYS_splice, p[0], NULL, c, NULL, 16, 0));
    say("read", recv(s, data, 4, MSG_WAITALL));
    printf("%s\n", data);
}

static void descriptors(void)
{
    int c, s, file = open("/dev/null", O_RDWR);
    char data[8] = "";
    pair(&c, &s);
    int copy = say_fd("dup", (int)syscall(SYS_dup, c));
    say("write by it", syscall(SYS_write, copy, "a", 1));
    say("close", syscall(SYS_close, c));
    say("close again", syscall(SYS_close, c));
    say("over a file", syscall(SYS_dup3, copy, file, O_CLOEXEC) == file ? 0 : -1);
    say("dup3 over itself", syscall(SYS_dup3, file, file, 0));
    say("write by it", write(file, "b", 1));
    int other = open("/dev/null", O_RDWR);
    say("a file over it", syscall(SYS_dup3, other, file, 0) == file ? 0 : -1);
    say("write to the file", write(file, "c", 1));
    say("FIONBIO", syscall(SYS_ioctl, copy, FIONBIO, &(int){1}));
    say("F_GETFL", (fcntl(copy, F_GETFL) & O_NONBLOCK) != 0);
    say("read", syscall(SYS_read, copy, data, 8));
    say("F_SETFL", syscall(SYS_fcntl, s, F_SETFL, O_NONBLOCK));
    int last = say_fd("F_DUPFD", (int)syscall(SYS_fcntl, s, F_DUPFD, 300));
    for (int n = 0; n < 2; sched_yield())
        ioctl(s, FIONREAD, &n);
    say("read by it", read(last, data, 8));
    printf("%s\n", data);
    say("read again", read(last, data, 8));
    say("close_range", syscall(SYS_close_range, last, last + 5, 0));
    say("read", read(last, data, 8));
    say("close_range of the other end", syscall(SYS_close_range, copy, copy, 0));
    wait_for(s, POLLIN);
    say("the end", read(s, data, 8));
    pair(&c, &s);
    say("close_range of all", syscall(SYS_close_range, 3, ~0u, 0));
    say("write", write(c, "x", 1));
    pair(&c, &s);
    say("write", write(c, "new", 3));
    wait_for(s, POLLIN);
    say("read", read(s, data, 8));
}

static void polls(void)
{
    int c, s, inner = (int)syscall(SYS_epoll_create1, 0), outer = (int)syscall(SYS_epoll_create1, EPOLL_CLOEXEC);
    struct epoll_event e = {.events = EPOLLIN, .data.u32 = 7};
    struct timespec none = {0, 0}, day = {86400, 0};
    sigset_t mask;
    sigemptyset(&mask);
    pair(&c, &s);
    say("nested", syscall(SYS_epoll_ctl, outer, EPOLL_CTL_ADD, inner, &e));
    say("ADD", syscall(SYS_epoll_ctl, inner, EPOLL_CTL_ADD, s, &e));
    say("nothing", syscall(SYS_epoll_pwait, outer, &e, 1, 0, NULL, SIGNALS_BYTES));
    say("write", write(c, "x", 1));
    struct pollfd p = {s, POLLIN, 0};
    say("ppoll", syscall(SYS_ppoll, &p, 1, &day, &mask, SIGNALS_BYTES));
    printf("some of the day is over: %d\n", day.tv_sec == 86399 && day.tv_nsec > 0);
    say("ppoll in no time", syscall(SYS_ppoll, &p, 1, &none, NULL, 0));
    say("ppoll with a wrong mask", syscall(SYS_ppoll, &p, 1, &none, &mask, 4));
    say("ppoll with a wrong time", syscall(SYS_ppoll, &p, 1, &(struct timespec){0, -1}, NULL, 0));
    say("epoll_pwait", syscall(SYS_epoll_pwait, inner, &e, 1, 10000, &mask, SIGNALS_BYTES));
    printf("of %u\n", e.data.u32);
    say("epoll_pwait2", syscall(SYS_epoll_pwait2, outer, &e, 1, &(struct timespec){10, 0}, NULL, SIGNALS_BYTES));
    say("epoll_pwait with a wrong mask", syscall(SYS_epoll_pwait, inner, &e, 1, 10000, &mask, 4));
#ifdef SYS_poll
    say("poll", syscall(SYS_poll, &p, 1, 0));
    say("epoll_wait", syscall(SYS_epoll_wait, inner, &e, 1, 0));
#endif
    say("DEL", syscall(SYS_epoll_ctl, inner, EPOLL_CTL_DEL, s, NULL));
    say("nothing", syscall(SYS_epoll_pwait, inner, &e, 1, 0, NULL, SIGNALS_BYTES));
}

static void selects(void)
{
    int c, s;
    struct timespec day = {86400, 0};
    sigset_t mask;
    struct signals of = {&mask, SIGNALS_BYTES}, wrong = {&mask, 4};
    fd_set in;
    sigemptyset(&mask);
    pair(&c, &s);
    FD_ZERO(&in);
    FD_SET(s, &in);
    say("nothing", syscall(SYS_pselect6, s + 1, &in, NULL, NULL, &(struct timespec){0, 1000}, NULL));
    say("write", write(c, "x", 1));
    FD_SET(s, &in);
    say("pselect6", syscall(SYS_pselect6, s + 1, &in, NULL, NULL, &day, &of));
    printf("is set: %d; some of the day is over: %d\n", FD_ISSET(s, &in) != 0, day.tv_sec == 86399);
    say("with a wrong mask", syscall(SYS_pselect6, s + 1, &in, NULL, NULL, &day, &wrong));
#ifdef SYS_select
    struct timeval t = {86400, 0};
    say("select", syscall(SYS_select, s + 1, &in, NULL, NULL, &t));
    printf("is set: %d; some of the day is over: %d\n", FD_ISSET(s, &in) != 0, t.tv_sec == 86399);
#endif
}

/* Sets end where a page does: no call reads or writes behind what Linux looks at. */
static void small_sets(void)
{
    char *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    fd_set *small = (fd_set *)(pages + 4096 - sizeof(fd_set));
    int c, s, p[2];
    pair(&c, &s);
    wait_for(c, POLLOUT); /* there is a runtime, with descriptors of its own */
    munmap(pages + 4096, 4096);
    say("pipe", pipe(p));
    for (int i = 0; i < 2; i++) { /* of ours, and of Linux alone */
        FD_ZERO(small);
        FD_SET(i ? p[1] : c, small);
        say("pselect6", syscall(SYS_pselect6, 1 << 20, NULL, small, NULL, &(struct timespec){10, 0}, NULL));
#ifdef SYS_select
        say("select", syscall(SYS_select, 1 << 20, NULL, small, NULL, &(struct timeval){10, 0}));
#endif
    }
}

static long got; /* by the thread */

static void *read_in_vain(void *arg)
{
    char data[8];
    got = syscall(SYS_read, *(int *)arg, data, 8);
    pthread_testcancel();
    printf("not cancelled\n");
    return NULL;
}

/* They are no points at which a thread is cancelled. */
static void cancelled(void)
{
    int c, s;
    void *end;
    pthread_t thread;
    pair(&c, &s);
    pthread_create(&thread, NULL, read_in_vain, &s);
    usleep(10000); /* it sleeps by then, or the sequence shows less */
    say("pthread_cancel", pthread_cancel(thread));
    usleep(10000);
    say("write", write(c, "x", 1));
    pthread_join(thread, &end);
    printf("read %ld, cancelled: %d\n", got, end == PTHREAD_CANCELED);
}

/* Not among those that are compared. */
static void refused(void)
{
    char data[8], parameters[256] = {0};
    int c, s;
    pair(&c, &s);
    say("io_uring_setup", syscall(SYS_io_uring_setup, 4, parameters));
    say("io_uring_setup", syscall(SYS_io_uring_setup, 4, parameters));
    say("write", write(c, "abc", 3));
    wait_for(s, POLLIN);
    say("read", read(s, data, 8));
}

static const struct sequence sequences[] = {
    {"names", names},      {"bytes", bytes},     {"files", files},           {"descriptors", descriptors},
    {"polls", polls},      {"selects", selects}, {"small_sets", small_sets}, {"cancelled", cancelled},
    {"io_uring", refused}, {NULL, NULL}};

int main(int argc, char **argv)
{
    return run_with_address(sequences, argc, argv);
}

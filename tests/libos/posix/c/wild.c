/* A program that knows nothing of corelane, and whose pointers are wrong: no memory, memory that may not be written,
 * and memory that ends too early. It prints the results of its calls; the test runs it on Linux' sockets and on ours,
 * and compares (../test_twin.py).
 *
 *   wild ADDRESS SEQUENCE */
#include "pairs.h"

#include <fcntl.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>

#define PAGE 4096
#define WILD 6
#define BYTES 200 /* that are sent at a time */

static char *edge; /* memory up to here, and none from here on */
static char *volatile wild[WILD];
static const char *const names[WILD] = {"NULL", "8", "-1", "no page", "a page for reading", "behind a file's end"};
static char data[PAGE];

static void map(void)
{
    char *p = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int file = memfd_create("short", MFD_CLOEXEC);
    mprotect(p + PAGE, PAGE, PROT_NONE);
    mprotect(p + 2 * PAGE, PAGE, PROT_READ);
    edge = p + PAGE;
    wild[1] = (char *)8;
    wild[2] = (char *)-1;
    wild[3] = p + PAGE;
    wild[4] = p + 2 * PAGE;
    wild[5] = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
}

static void say_of(unsigned i, const char *what, long rc)
{
    printf("%s. ", names[i]);
    say(what, rc);
}

/* What is there to be read, which must not have gone. */
static void say_left(int fd)
{
    int n = -1;
    ioctl(fd, FIONREAD, &n);
    printf("%d left\n", n);
}

static void send_some(int from, int to)
{
    say("send", send(from, data, BYTES, 0));
    wait_for(to, POLLIN);
}

static long read_by(unsigned how, int fd, void *p, size_t n)
{
    struct iovec vec[2] = {{data, 1}, {p, n}};
    struct msghdr m = {.msg_iov = vec + 1, .msg_iovlen = 1};
    struct mmsghdr many = {.msg_hdr = {.msg_iov = vec + 1, .msg_iovlen = 1}};
    switch (how) {
    case 0:
        return read(fd, p, n);
    case 1:
        return readv(fd, vec + 1, 1);
    case 2:
        return recv(fd, p, n, MSG_PEEK);
    case 3:
        return recvfrom(fd, p, n, MSG_DONTWAIT, NULL, NULL);
    case 4:
        return recvmsg(fd, &m, MSG_DONTWAIT);
    case 5:
        return recvmmsg(fd, &many, 1, MSG_DONTWAIT, NULL);
    case 6:
        return readv(fd, vec, 2);
    case 7:
        return recv(fd, p, n, MSG_WAITALL);
    default:
        return preadv2(fd, vec + 1, 1, -1, 0);
    }
}
#define READS 9

static long write_by(unsigned how, int fd, void *p, size_t n)
{
    struct iovec vec[2] = {{p, n}, {data, 1}};
    struct mmsghdr many = {.msg_hdr = {.msg_iov = vec, .msg_iovlen = 2}};
    switch (how) {
    case 0:
        return write(fd, p, n);
    case 1:
        return writev(fd, vec, 2);
    case 2:
        return send(fd, p, n, MSG_NOSIGNAL);
    case 3:
        return sendmsg(fd, &many.msg_hdr, 0);
    default:
        return sendmmsg(fd, &many, 1, 0);
    }
}
#define WRITES 5

/* A stream keeps what it could not give. */
static void streams(void)
{
    int c, s;
    pair(&c, &s);
    for (unsigned i = 0; i < WILD; i++)
        say_of(i, "nothing is there", recv(s, wild[i], 1, MSG_DONTWAIT));
    send_some(c, s);
    for (unsigned i = 0; i < WILD; i++)
        for (unsigned how = 0; how < READS; how++)
            if (how != 6) {
                say_of(i, "read", read_by(how, s, wild[i], BYTES));
                say_left(s);
            }
    say("too short", recv(s, edge - 100, 300, 0));
    say("in two pieces", readv(s, (struct iovec[]){{data, 50}, {edge - 100, 300}}, 2));
    say_left(s);
    say("just as long", recv(s, edge - BYTES, 9000, 0));
    for (unsigned i = 0; i < WILD; i++)
        for (unsigned how = 0; how < WRITES; how++)
            if (i != 4)
                say_of(i, "write", write_by(how, c, wild[i], 100));
    say("too long", send(c, edge - 100, 200, 0));
    say("just as long", send(c, edge - 100, 100, 0));
    wait_for(s, POLLIN);
    say_left(s);
    shutdown(c, SHUT_WR);
    say("read", recv(s, data, sizeof data, MSG_WAITALL));
    for (unsigned i = 0; i < WILD; i++) {
        say_of(i, "at the end", read(s, wild[i], 100));
        say_of(i, "when it is shut", send(c, wild[i], 100, MSG_NOSIGNAL));
    }
}

/* A datagram that could not be given is gone. */
static void datagrams(void)
{
    struct sockaddr_in at;
    socklen_t len = sizeof at;
    int s = socket(AF_INET, SOCK_DGRAM, 0);
    bind(s, (struct sockaddr *)&here, sizeof here);
    getsockname(s, (struct sockaddr *)&at, &len);
    connect(s, (struct sockaddr *)&at, sizeof at);
    for (unsigned i = 0; i < WILD; i++)
        for (unsigned how = 0; how < READS; how++)
            if (how != 6) {
                send_some(s, s);
                say_of(i, "read", read_by(how, s, wild[i], BYTES));
                say_left(s);
                say("the next", recv(s, data, sizeof data, MSG_DONTWAIT));
                say("the next", recv(s, data, sizeof data, MSG_DONTWAIT));
            }
    send_some(s, s);
    say("too short", recv(s, edge - 100, 300, 0));
    send_some(s, s);
    say("just as long", recv(s, edge - BYTES, 9000, 0));
    for (unsigned i = 0; i < WILD; i++)
        for (unsigned how = 0; how < WRITES; how++)
            if (i != 4)
                say_of(i, "write", write_by(how, s, wild[i], 100));
    for (unsigned i = 0; i < WILD; i++) {
        struct iovec vec = {data, BYTES};
        struct msghdr m = {.msg_name = wild[i], .msg_namelen = sizeof at, .msg_iov = &vec, .msg_iovlen = 1};
        struct msghdr told = {.msg_iov = &vec, .msg_iovlen = 1, .msg_control = wild[i], .msg_controllen = 100};
        if (i != 0 && i != 4)
            say_of(i, "sendmsg", sendmsg(s, &m, 0));
        setsockopt(s, IPPROTO_IP, IP_PKTINFO, &(int){1}, sizeof(int));
        send_some(s, s);
        if (i)
            say_of(i, "recvmsg", recvmsg(s, &m, 0));
        else
            recv(s, data, sizeof data, 0);
        send_some(s, s);
        say_of(i, "control", recvmsg(s, &told, 0));
        printf("%zu\n", told.msg_controllen);
    }
}

/* Names, lengths and values. */
static void values(void)
{
    struct sockaddr_in at;
    int c, s, fds[4] = {0};
    pair(&c, &s);
    int l = listener(&at);
    fds[0] = c;
    fds[1] = l;
    fds[2] = socket(AF_INET, SOCK_STREAM, 0);
    fds[3] = socket(AF_INET, SOCK_DGRAM, 0);
    for (unsigned i = 0; i < WILD; i++)
        for (unsigned k = 0; k < 4; k++) {
            struct sockaddr *name = (struct sockaddr *)wild[i];
            socklen_t *len = (socklen_t *)wild[i], room = sizeof at;
            int fd = fds[k], value;
            printf("%u: ", k);
            if (i != 4) {
                say_of(i, "bind", bind(fd, name, sizeof at));
                say_of(i, "connect", connect(fd, name, sizeof at));
                say_of(i, "setsockopt", setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, name, 4));
                say_of(i, "of TCP", k < 3 ? setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, name, 4) : 0);
                say_of(i, "SO_LINGER", setsockopt(fd, SOL_SOCKET, SO_LINGER, name, 8));
                say_of(i, "SO_RCVTIMEO", setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, name, 16));
                say_of(i, "congestion", k < 3 ? setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, 5) : 0);
            }
            say_of(i, "getsockname", getsockname(fd, name, &room));
            room = sizeof at;
            say_of(i, "getsockname", getsockname(fd, (struct sockaddr *)&at, len));
            say_of(i, "getpeername", getpeername(fd, (struct sockaddr *)&at, len));
            room = 4;
            say_of(i, "getsockopt", getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, name, &room));
            say_of(i, "getsockopt", getsockopt(fd, SOL_SOCKET, SO_ERROR, &value, len));
            room = 104;
            say_of(i, "TCP_INFO", k < 3 ? getsockopt(fd, IPPROTO_TCP, TCP_INFO, name, &room) : 0);
            say_of(i, "FIONREAD", ioctl(fd, FIONREAD, wild[i]));
            say_of(i, "FIONBIO", i == 4 ? 0 : ioctl(fd, FIONBIO, wild[i]));
        }
    strcpy(edge - 5, "reno"); /* which ends with the page, though not with the room that it is said to have */
    edge[-1] = 0;
    say("congestion", setsockopt(c, IPPROTO_TCP, TCP_CONGESTION, edge - 5, 16));
    getsockname(l, (struct sockaddr *)&at, &(socklen_t){sizeof at});
    for (unsigned i = 1; i < WILD; i++)
        for (unsigned how = 0; how < 2; how++) {
            socklen_t room = sizeof at;
            int o = socket(AF_INET, SOCK_STREAM, 0);
            say("connect", connect(o, (struct sockaddr *)&at, sizeof at));
            wait_for(l, POLLIN);
            say_of(i, "accept",
                   accept(l, how ? (struct sockaddr *)&here : (struct sockaddr *)wild[i],
                          how ? (socklen_t *)wild[i] : &room));
            close(o);
        }
}

/* A connection that is accepted into no memory is lost. Its peer, whose bytes have come, is told so by a reset. */
static void lost(void)
{
    struct sockaddr_in at;
    int l = listener(&at);
    for (unsigned i = 1; i < WILD; i++)
        for (unsigned bytes = 0; bytes <= BYTES; bytes += BYTES) {
            socklen_t room = sizeof at;
            int o = socket(AF_INET, SOCK_STREAM, 0);
            say("connect", connect(o, (struct sockaddr *)&at, sizeof at));
            if (bytes)
                say("write", write(o, data, bytes));
            wait_for(l, POLLIN);
            poll(&(struct pollfd){.fd = o, .events = POLLIN}, 1, 20); /* they come meanwhile */
            say_of(i, "accept", accept(l, (struct sockaddr *)wild[i], &room));
            wait_for(o, POLLIN);
            say("read", read(o, data, 10));
            say("read again", read(o, data, 10));
            say("write", send(o, data, 10, MSG_NOSIGNAL));
            close(o);
        }
}

/* Messages, vectors, offsets: what a call reads itself, or writes. */
static void messages(void)
{
    int c, s, unix_ends[2], file = memfd_create("file", MFD_CLOEXEC);
    pair(&c, &s);
    socketpair(AF_UNIX, SOCK_DGRAM, 0, unix_ends);
    say("file", ftruncate(file, 100));
    struct msghdr *left = (struct msghdr *)(edge - sizeof *left);
    *left = (struct msghdr){.msg_iov = &(struct iovec){data, 10}, .msg_iovlen = 1};
    for (unsigned i = 0; i < WILD; i++) {
        struct iovec *vec = (struct iovec *)wild[i];
        struct msghdr m = {.msg_iov = vec, .msg_iovlen = 1}, with = {.msg_control = wild[i], .msg_controllen = 64};
        struct mmsghdr *many = (struct mmsghdr *)wild[i];
        with.msg_iov = &(struct iovec){data, 1};
        with.msg_iovlen = 1;
        send_some(c, s);
        say_of(i, "readv", readv(s, vec, i == 4 ? 0 : 1));
        say_of(i, "writev", writev(c, vec, i == 4 ? 0 : 1));
        say_of(i, "recvmsg", recvmsg(s, (struct msghdr *)vec, MSG_DONTWAIT));
        if (i == 4) {
            recv(s, data, sizeof data, MSG_DONTWAIT);
            continue;
        }
        say_of(i, "sendmsg", sendmsg(c, (struct msghdr *)vec, 0));
        say_of(i, "recvmsg", recvmsg(s, &m, MSG_DONTWAIT));
        say_of(i, "sendmsg", sendmsg(c, &m, 0));
        say_of(i, "sendmsg", i ? sendmsg(c, &with, 0) : 0);
        say_of(i, "recvmmsg", recvmmsg(s, many, 2, MSG_DONTWAIT, NULL));
        say_of(i, "sendmmsg", sendmmsg(c, many, 2, 0));
        say_of(i, "of Unix", sendmsg(unix_ends[0], (struct msghdr *)vec, 0));
        say_of(i, "of Unix", sendmmsg(unix_ends[0], many, 2, 0));
        say_of(i, "of Unix", i ? sendmsg(unix_ends[0], &with, 0) : 0);
        say_of(i, "time", i ? recvmmsg(s, &(struct mmsghdr){.msg_hdr = with}, 1, 0, (struct timespec *)vec) : 0);
        say_of(i, "sendfile", i ? sendfile(c, file, (off_t *)wild[i], 100) : 0);
        say_of(i, "splice", i ? splice(s, (off64_t *)wild[i], file, NULL, 10, 0) : 0);
        wait_for(s, POLLIN);
        while (recv(s, data, sizeof data, MSG_DONTWAIT) > 0)
            ;
    }
    say("two messages, one of which is there", sendmmsg(c, (struct mmsghdr *)left, 2, 0));
}

/* Waiting. */
static void waits(void)
{
    int c, s, epfd = epoll_create1(0), other = epoll_create1(0), p[2];
    pair(&c, &s);
    say("pipe", pipe(p));
    watch(other, EPOLL_CTL_ADD, p[0], EPOLLIN, 7);
    for (int ready = 0; ready < 2; ready++) {
        struct pollfd polls = {s, POLLIN, 0};
        for (unsigned i = 0; i < WILD; i++) {
            struct epoll_event *e = (struct epoll_event *)wild[i];
            const sigset_t *mask = (const sigset_t *)wild[i];
            const struct timespec *t = (const struct timespec *)wild[i], none = {0, 0};
            say_of(i, "epoll_wait", epoll_wait(epfd, e, 8, 0));
            say_of(i, "epoll_wait", epoll_wait(other, e, 8, 0));
            if (i && i != 4) {
                say_of(i, "epoll_pwait", epoll_pwait(epfd, (struct epoll_event *)data, 8, 0, mask));
                say_of(i, "epoll_pwait2", epoll_pwait2(epfd, (struct epoll_event *)data, 8, t, NULL));
                say_of(i, "ppoll", ppoll(&polls, 1, &none, mask));
                say_of(i, "ppoll", syscall(SYS_ppoll, &polls, 1, t, NULL, 8));
                say_of(i, "pselect", syscall(SYS_pselect6, s + 1, NULL, NULL, NULL, t, NULL));
                say_of(i, "pselect", syscall(SYS_pselect6, s + 1, NULL, NULL, NULL, &none, mask));
            }
            say_of(i, "epoll_ctl", i == 4 ? 0 : epoll_ctl(epfd, EPOLL_CTL_ADD, c, e));
            say_of(i, "epoll_ctl", i == 4 ? 0 : epoll_ctl(epfd, 7, c, e));
            say_of(i, "poll", poll((struct pollfd *)wild[i], i == 4 ? 0 : 2, 0));
            say_of(i, "select", i && i != 4 ? select(s + 1, (fd_set *)wild[i], NULL, NULL, &(struct timeval){0}) : 0);
        }
        say_told("still there", epfd);
        say_told("still there", other);
        watch(epfd, EPOLL_CTL_ADD, s, EPOLLIN | EPOLLET, 5);
        send_some(c, s);
        say("write", write(p[1], "x", 1));
    }
}

/* What is read only while a call is to write there. */
static void only_read(void)
{
    int c, s;
    pair(&c, &s);
    send_some(c, s);
    char *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct pollfd *polls = (struct pollfd *)page;
    fd_set *set = (fd_set *)(page + 512);
    struct msghdr *m = (struct msghdr *)(page + 1024);
    struct mmsghdr *many = (struct mmsghdr *)(page + 1536);
    *polls = (struct pollfd){s, POLLIN, 0};
    FD_SET(s, set);
    *m = (struct msghdr){.msg_iov = &(struct iovec){data, 10}, .msg_iovlen = 1};
    many->msg_hdr = *m;
    mprotect(page, PAGE, PROT_READ);
    say("poll", poll(polls, 1, 0));
    say("poll", poll(polls, 1, 1000));
    say("select", select(s + 1, set, NULL, NULL, &(struct timeval){0}));
    say("recvmsg", recvmsg(s, m, 0));
    say_left(s);
    say("recvmmsg", recvmmsg(s, many, 1, 0, NULL));
    say_left(s);
    say("sendmsg", sendmsg(c, m, 0));
    say("sendmmsg", sendmmsg(c, many, 1, 0));
}

static void *in_thread(void *arg)
{
    sigset_t all, now;
    sigfillset(&all);
    int fd = *(int *)arg;
    say("in a thread", recv(fd, wild[3], 10, 0));
    pthread_sigmask(SIG_SETMASK, &all, NULL);
    say("with all signals blocked", recv(fd, wild[3], 10, 0));
    pthread_sigmask(SIG_SETMASK, NULL, &now);
    printf("they are: %d\n", sigismember(&now, SIGSEGV));
    say("and again", recv(fd, wild[3], 10, 0));
    return NULL;
}

static volatile sig_atomic_t came;
static sigjmp_buf back;

static void on_fault(int number, siginfo_t *info, void *context)
{
    (void)context;
    printf("a handler: %d, code %d, at %d\n", number, info->si_code, info->si_addr == wild[3]);
    came++;
    siglongjmp(back, 1);
}

static void on_sent(int number)
{
    printf("a handler: %d\n", number);
}

static const char *which(const struct sigaction *a)
{
    return a->sa_handler == SIG_DFL      ? "none"
           : a->sa_handler == SIG_IGN    ? "ignored"
           : a->sa_handler == on_sent    ? "of what is sent"
           : a->sa_sigaction == on_fault ? "of faults"
                                         : "?";
}

int __sigaction(int number, const struct sigaction *action, struct sigaction *old); /* libc's other name */

static void say_set(const char *what)
{
    struct sigaction now, same;
    sigaction(SIGSEGV, NULL, &now);
    __sigaction(SIGSEGV, NULL, &same);
    if (same.sa_sigaction != now.sa_sigaction)
        printf("by its other name: %s\n", which(&same));
    printf("%s: %s, flags %x, blocks %d\n", what, which(&now), (unsigned)now.sa_flags,
           sigismember(&now.sa_mask, SIGUSR1));
}

/* A child that ends by the fault that it makes, or by a signal that it is sent. */
static void say_end(const char *what, bool sent, void (*handler)(int))
{
    int status = 0;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
        if (handler)
            signal(SIGSEGV, handler);
        if (sent)
            raise(SIGSEGV);
        else
            *(volatile char *)wild[3] = 1;
        _exit(7);
    }
    waitpid(child, &status, 0);
    printf("%s: signal %d, exit %d\n", what, WIFSIGNALED(status) ? WTERMSIG(status) : 0,
           WIFEXITED(status) ? WEXITSTATUS(status) : -1);
}

/* Faults that are the program's own are as ever. */
static void faults(void)
{
    int c, s;
    pthread_t thread;
    struct sigaction a = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    pair(&c, &s);
    send_some(c, s);
    say_set("at first");
    say_end("a fault", false, NULL);
    say_end("sent", true, NULL);
    say_end("a fault, ignored", false, SIG_IGN);
    say_end("sent, ignored", true, SIG_IGN);
    say_end("sent to a handler", true, on_sent);
    sigaddset(&a.sa_mask, SIGUSR1);
    sigaction(SIGSEGV, &a, NULL);
    say_set("one is set");
    say("read", recv(s, wild[3], 10, 0));
    if (sigsetjmp(back, 1) == 0)
        *(volatile char *)wild[3] = 1;
    printf("it came %d times\n", (int)came);
    say("read", recv(s, wild[3], 10, 0));
    say_set("before signal");
    signal(SIGSEGV, on_sent);
    say_set("signal");
    raise(SIGSEGV);
    a = (struct sigaction){.sa_handler = on_sent, .sa_flags = (int)SA_RESETHAND};
    sigaction(SIGSEGV, &a, NULL);
    say("read", recv(s, wild[3], 10, 0));
    say_set("once");
    raise(SIGSEGV);
    say_set("after it");
    say("read", recv(s, wild[3], 10, 0));
    pthread_create(&thread, NULL, in_thread, &s);
    pthread_join(thread, NULL);
}

static const struct sequence sequences[] = {{"streams", streams},     {"datagrams", datagrams}, {"values", values},
                                            {"messages", messages},   {"lost", lost},           {"waits", waits},
                                            {"only_read", only_read}, {"faults", faults},       {NULL, NULL}};

int main(int argc, char **argv)
{
    map();
    return run_with_address(sequences, argc, argv);
}

/* A program that knows nothing of corelane: the same calls by libc's other names for them, as compilers and older
 * programs use. It prints the results; the test runs it on Linux' sockets and on ours, and compares (../test_twin.py).
 *
 *   forms ADDRESS SEQUENCE */
#include "pairs.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/uio.h>

/* Of _FORTIFY_SOURCE; `room`: of the buffer. */
ssize_t __read_chk(int fd, void *data, size_t len, size_t room);
ssize_t __recv_chk(int fd, void *data, size_t len, size_t room, int flags);
ssize_t __recvfrom_chk(int fd, void *data, size_t len, size_t room, int flags, struct sockaddr *from, socklen_t *n);
int __poll_chk(struct pollfd *fds, nfds_t n, int ms, size_t room);
int __ppoll_chk(struct pollfd *fds, nfds_t n, const struct timespec *t, const sigset_t *mask, size_t room);

static void checked(void)
{
    struct sockaddr_in from;
    struct timespec none = {0, 0};
    socklen_t len = sizeof from;
    char data[8];
    int c, s;
    pair(&c, &s);
    struct pollfd p = {s, POLLIN, 0};
    say("__poll_chk", __poll_chk(&p, 1, 0, sizeof p));
    say("write", write(c, "abcdef", 6));
    say("__poll_chk", __poll_chk(&p, 1, 10000, sizeof p));
    say("__ppoll_chk", __ppoll_chk(&p, 1, &none, NULL, sizeof p));
    say("__read_chk", __read_chk(s, data, 2, sizeof data));
    say("__recv_chk", __recv_chk(s, data, 1, sizeof data, MSG_PEEK));
    say("__recvfrom_chk", __recvfrom_chk(s, data, 8, sizeof data, MSG_DONTWAIT, (struct sockaddr *)&from, &len));
    printf("%.4s, a name of %u bytes\n", data, len);
    say("__recv_chk", __recv_chk(s, data, 8, sizeof data, MSG_DONTWAIT));
}

static volatile sig_atomic_t signals;

static void on_signal(int number)
{
    (void)number;
    signals++;
}

/* With a mask of signals: one that is blocked, and waits, comes inside of the call. */
static void masked(void)
{
    int c, s, epfd = epoll_create(1);
    sigset_t usual, blocked;
    struct timespec second = {10, 0}, wrong = {0, 1000000000};
    struct epoll_event e;
    fd_set in;
    pair(&c, &s);
    signal(SIGUSR1, on_signal);
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR1);
    sigprocmask(SIG_BLOCK, &blocked, &usual);
    say("ADD", watch(epfd, EPOLL_CTL_ADD, s, EPOLLIN, 1));
    FD_ZERO(&in);
    FD_SET(s, &in);
    struct pollfd p = {s, POLLIN, 0};
    raise(SIGUSR1);
    say("epoll_pwait", epoll_pwait(epfd, &e, 1, 10000, &usual));
    raise(SIGUSR1);
    say("epoll_pwait2", epoll_pwait2(epfd, &e, 1, &second, &usual));
    raise(SIGUSR1);
    say("ppoll", ppoll(&p, 1, &second, &usual));
    raise(SIGUSR1);
    say("pselect", pselect(s + 1, &in, NULL, NULL, &second, &usual));
    printf("signals: %d\n", (int)signals);
    say("a wrong time", epoll_pwait2(epfd, &e, 1, &wrong, &usual));
    say("a wrong time", ppoll(&p, 1, &wrong, &usual));
    say("a wrong time", pselect(s + 1, &in, NULL, NULL, &wrong, &usual));
    say("write", write(c, "x", 1));
    wait_for(s, POLLIN);
    raise(SIGUSR1); /* it stays where something is ready at once */
    say("epoll_pwait", epoll_pwait(epfd, &e, 1, 10000, &blocked));
    say("ppoll", ppoll(&p, 1, &second, &blocked));
    FD_SET(s, &in);
    say("pselect", pselect(s + 1, &in, NULL, NULL, &second, &blocked));
    printf("signals: %d\n", (int)signals);
}

static void copied(void)
{
    int c, s;
    char data[8];
    pair(&c, &s);
    int over = open("/dev/null", O_RDWR);
    say("dup3", dup3(c, over, O_CLOEXEC) == over ? 0 : -1);
    printf("is closed by exec: %d\n", (fcntl64(over, F_GETFD) & FD_CLOEXEC) != 0);
    say("dup3 of itself", dup3(over, over, 0));
    say("dup2 of itself", dup2(over, over) == over ? 0 : -1);
    say("dup2 of nothing", dup2(1000, over));
    say("dup3 with a wrong flag", dup3(s, over, O_APPEND));
    int last = say_fd("F_DUPFD", fcntl64(over, F_DUPFD, 200));
    say("F_SETFL", fcntl64(last, F_SETFL, O_NONBLOCK));
    say("read", read(c, data, 8));
    say("close", close(c));
    FILE *file = fdopen(over, "w");
    say("fclose", file ? fclose(file) : -1);
    say("write", write(last, "x", 1));
    wait_for(s, POLLIN);
    say("read", read(s, data, 8));
    closefrom(last);
    say("the end", recv(s, data, 8, 0));
    say("write to what is closed", write(last, "x", 1));
}

static void pieces(void)
{
    int c, s;
    off64_t at = 2;
    char a[4] = "", b[4] = "";
    struct iovec out[2] = {{"ab", 2}, {"cd", 2}}, in[2] = {{a, 2}, {b, 4}};
    struct mmsghdr m[2] = {{{.msg_iov = &out[0], .msg_iovlen = 1}, 0}, {{.msg_iov = &out[1], .msg_iovlen = 1}, 0}};
    FILE *file = tmpfile();
    pair(&c, &s);
    fputs("01234567", file);
    fflush(file);
    say("sendfile64", sendfile64(c, fileno(file), &at, 4));
    printf("at %ld\n", (long)at);
    say("sendmmsg", sendmmsg(c, m, 2, 0));
    say("recv", recv(s, a, 4, MSG_WAITALL));
    printf("%.4s\n", a);
    for (int n = 0, i = 0; n < 4 && i < 10000; i++, poll(NULL, 0, i > 100))
        n = (int)recv(s, b, 4, MSG_PEEK);
    m[0].msg_hdr.msg_iov = &in[0];
    m[1].msg_hdr.msg_iov = &in[1];
    say("recvmmsg", recvmmsg(s, m, 2, MSG_DONTWAIT, NULL));
    printf("%u of %.2s, %u of %.2s\n", m[0].msg_len, a, m[1].msg_len, b);
    say("recvmmsg of nothing", recvmmsg(s, m, 2, MSG_DONTWAIT, NULL));
}

static const struct sequence sequences[] = {
    {"checked", checked}, {"masked", masked}, {"copied", copied}, {"pieces", pieces}, {NULL, NULL}};

int main(int argc, char **argv)
{
    return run_with_address(sequences, argc, argv);
}

/* A program that knows nothing of corelane: sequences of calls on TCP sockets, whose results it prints, one a line. The
 * test runs it on Linux' sockets and on ours, and compares (../test_twin.py).
 *
 *   calls ADDRESS SEQUENCE
 *
 * The other end of a connection is of the same process: what it does comes in a known order. Waits are by poll, so that
 * no result depends on time. */
#include "pairs.h"

#include <fcntl.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>

static void names(void)
{
    struct sockaddr_in at, name;
    socklen_t len = sizeof name;
    int l = listener(&at), c = socket(AF_INET, SOCK_STREAM, 0), s;
    say("peer of a fresh one", getpeername(c, (struct sockaddr *)&name, &len));
    say("read of a fresh one", read(c, &name, 1));
    say("connect", connect(c, (struct sockaddr *)&at, sizeof at));
    say("connect again", connect(c, (struct sockaddr *)&at, sizeof at));
    len = sizeof name;
    s = say_fd("accept", accept(l, (struct sockaddr *)&name, &len));
    printf("its length: %u, its address is ours: %d\n", len, name.sin_addr.s_addr == here.sin_addr.s_addr);
    struct sockaddr_in own;
    len = sizeof own;
    say("name of the client", getsockname(c, (struct sockaddr *)&own, &len));
    printf("the same port: %d\n", own.sin_port == name.sin_port);
    len = 4;
    say("peer, cut short", getpeername(c, (struct sockaddr *)&own, &len));
    printf("whole length: %u\n", len);
    say("accept of a connection", accept(s, NULL, NULL));
    say("listen of a connection", listen(s, 1));
    say("bind again", bind(l, (struct sockaddr *)&at, sizeof at));
    int other = socket(AF_INET, SOCK_STREAM, 0);
    say("bind where one listens", bind(other, (struct sockaddr *)&at, sizeof at));
    say("read of a listener", read(l, &name, 1));
    say("shutdown of a fresh one", shutdown(other, SHUT_RDWR));
    struct stat st;
    say("fstat", fstat(c, &st));
    printf("is a socket: %d\n", S_ISSOCK(st.st_mode) != 0);
    say("lseek", lseek(c, 0, SEEK_SET));
}

static void bytes(void)
{
    int c, s, n = -1;
    char data[64] = "";
    pair(&c, &s);
    say("write", write(c, "hello", 5));
    wait_for(s, POLLIN);
    say("FIONREAD", ioctl(s, FIONREAD, &n));
    printf("waiting: %d\n", n);
    say("peek", recv(s, data, 3, MSG_PEEK));
    struct iovec vec[2] = {{data, 2}, {data + 2, 60}};
    say("readv", readv(s, vec, 2));
    printf("%s\n", data);
    say("nothing there", recv(s, data, sizeof data, MSG_DONTWAIT));
    say("out of band", recv(s, data, sizeof data, MSG_OOB));
    struct iovec out[3] = {{"a", 1}, {"", 0}, {"bcd", 3}};
    struct msghdr m = {.msg_iov = out, .msg_iovlen = 3};
    say("sendmsg", sendmsg(s, &m, 0));
    say("send nothing", send(s, data, 0, 0));
    say("all of it", recv(c, data, 4, MSG_WAITALL));
    printf("%.4s\n", data);
    say("read nothing", read(c, data, 0));
    int on = 1;
    say("FIONBIO", ioctl(c, FIONBIO, &on));
    printf("non-blocking: %d\n", (fcntl(c, F_GETFL) & O_NONBLOCK) != 0);
    say("read", read(c, data, 1));
    say("F_SETFL", fcntl(c, F_SETFL, 0));
    struct timeval t = {0, 1000};
    say("SO_RCVTIMEO", setsockopt(c, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t));
    say("read in time", read(c, data, 1));
}

static void ends(void)
{
    int c, s, error;
    socklen_t len = sizeof error;
    char data[8];
    signal(SIGPIPE, SIG_IGN);
    pair(&c, &s);
    say("write", write(c, "bye", 3));
    say("shutdown", shutdown(c, SHUT_WR));
    say("write after it", write(c, "x", 1));
    say("read", recv(s, data, 3, MSG_WAITALL));
    wait_for(s, POLLIN);
    say("the end", read(s, data, 8));
    say("the end again", read(s, data, 8));
    say("write back", write(s, "ok", 2));
    say("read back", recv(c, data, 2, MSG_WAITALL));
    say("close", close(s));
    wait_for(c, POLLIN);
    say("the end here", read(c, data, 8));
    close(c);
    /* A reset: closed with something unread. */
    pair(&c, &s);
    say("write", write(c, "unread", 6));
    wait_for(s, POLLIN);
    say("close", close(s));
    wait_for(c, POLLHUP);
    struct pollfd p = {c, POLLIN | POLLOUT | POLLRDHUP, 0};
    say("poll", poll(&p, 1, 0));
    say_events("events", (unsigned)p.revents);
    say("SO_ERROR", getsockopt(c, SOL_SOCKET, SO_ERROR, &error, &len));
    printf("%s\n", error ? name_of(error) : "none");
    say("SO_ERROR again", getsockopt(c, SOL_SOCKET, SO_ERROR, &error, &len));
    printf("%s\n", error ? name_of(error) : "none");
    say("read", read(c, data, 8));
    say("write", send(c, "x", 1, MSG_NOSIGNAL));
    close(c);
    /* The same, found by a read. */
    pair(&c, &s);
    struct linger l = {1, 0};
    say("SO_LINGER", setsockopt(s, SOL_SOCKET, SO_LINGER, &l, sizeof l));
    say("close", close(s));
    wait_for(c, POLLHUP);
    say("read", read(c, data, 8));
    say("read again", read(c, data, 8));
    say("read a closed descriptor", read(s, data, 8));
}

static volatile sig_atomic_t pipes;

static void on_pipe(int signal)
{
    (void)signal;
    pipes++;
}

static void broken(void)
{
    int c, s;
    signal(SIGPIPE, on_pipe);
    pair(&c, &s);
    shutdown(c, SHUT_WR);
    say("write", write(c, "x", 1));
    printf("signals: %d\n", pipes);
    say("send without", send(c, "x", 1, MSG_NOSIGNAL));
    printf("signals: %d\n", pipes);
}

static void refused(void)
{
    struct sockaddr_in at;
    int error;
    socklen_t len = sizeof error;
    close(listener(&at));
    int c = socket(AF_INET, SOCK_STREAM, 0);
    say("connect", connect(c, (struct sockaddr *)&at, sizeof at));
    close(c);
    c = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    say("connect", connect(c, (struct sockaddr *)&at, sizeof at));
    wait_for(c, POLLOUT);
    say("SO_ERROR", getsockopt(c, SOL_SOCKET, SO_ERROR, &error, &len));
    printf("%s\n", error ? name_of(error) : "none");
}

static void opening(void)
{
    struct sockaddr_in at;
    int error, l = listener(&at), c = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    socklen_t len = sizeof error;
    say("connect", connect(c, (struct sockaddr *)&at, sizeof at));
    wait_for(c, POLLOUT);
    say("SO_ERROR", getsockopt(c, SOL_SOCKET, SO_ERROR, &error, &len));
    printf("%s\n", error ? name_of(error) : "none");
    wait_for(l, POLLIN);
    int s = say_fd("accept", accept4(l, NULL, NULL, SOCK_NONBLOCK));
    printf("non-blocking: %d\n", (fcntl(s, F_GETFL) & O_NONBLOCK) != 0);
    say("read", read(s, &error, 1));
    fcntl(l, F_SETFL, O_NONBLOCK);
    say("nothing to accept", accept(l, NULL, NULL));
    struct tcp_info info;
    len = sizeof info;
    say("TCP_INFO", getsockopt(s, IPPROTO_TCP, TCP_INFO, &info, &len));
    printf("state: %d\n", info.tcpi_state);
}

static void copies(void)
{
    int c, s, copy;
    char data[8];
    pair(&c, &s);
    copy = say_fd("dup", dup(c));
    say("close", close(c));
    say("write by the copy", write(copy, "ab", 2));
    say("read", recv(s, data, 2, MSG_WAITALL));
    int high = say_fd("F_DUPFD", fcntl(copy, F_DUPFD_CLOEXEC, 100));
    printf("not below: %d\n", high >= 100);
    int over = open("/dev/null", O_RDWR);
    say("dup2", dup2(high, over) == over ? 0 : -1);
    fcntl(copy, F_SETFL, O_NONBLOCK);
    printf("the flag is of all: %d\n", (fcntl(over, F_GETFL) & O_NONBLOCK) != 0);
    say("read by it", read(over, data, 1));
    close(copy);
    close(high);
    say("write by the last", write(over, "c", 1));
    say("read", recv(s, data, 1, MSG_WAITALL));
    int null = open("/dev/null", O_RDWR);
    say("dup2 over it", dup2(null, over) == over ? 0 : -1);
    say("the end", read(s, data, 8));
    say("write to what is there now", write(over, "x", 1));
}

static void *drain(void *arg)
{
    int fd = *(int *)arg;
    char data[5000];
    long sum = 0, n;
    unsigned char next = 0;
    while ((n = read(fd, data, sizeof data)) > 0)
        for (long i = 0; i < n; i++, sum++)
            if ((unsigned char)data[i] != next++)
                return (void *)-1;
    return (void *)sum;
}

#define LONG 3000001

static void much(void)
{
    int c, s;
    pthread_t thread;
    void *sum;
    char *data = malloc(LONG);
    for (long i = 0; i < LONG; i++)
        data[i] = (char)i;
    pair(&c, &s);
    pthread_create(&thread, NULL, drain, &s);
    struct iovec vec[2] = {{data, 1000}, {data + 1000, LONG - 1000}};
    say("writev of much", writev(c, vec, 2));
    shutdown(c, SHUT_WR);
    pthread_join(thread, &sum);
    printf("came: %ld\n", (long)sum);
    FILE *file = tmpfile();
    fwrite(data, 1, 100000, file);
    fflush(file);
    close(c);
    close(s);
    pair(&c, &s);
    pthread_create(&thread, NULL, drain, &s);
    off_t at = 0;
    say("sendfile", sendfile(c, fileno(file), &at, 1000000));
    printf("offset: %ld\n", (long)at);
    shutdown(c, SHUT_WR);
    pthread_join(thread, &sum);
    printf("came: %ld\n", (long)sum);
}

static void options(void)
{
    int c, s, on = 1, value = 0;
    socklen_t len = sizeof value;
    pair(&c, &s);
    say("TCP_NODELAY", setsockopt(c, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on));
    say("its value", getsockopt(c, IPPROTO_TCP, TCP_NODELAY, &value, &len));
    printf("%d\n", value != 0);
    say("SO_KEEPALIVE", setsockopt(c, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on));
    say("no such option", setsockopt(c, SOL_SOCKET, 12345, &on, sizeof on));
    say("too short", setsockopt(c, IPPROTO_TCP, TCP_NODELAY, &on, 1));
    say("SO_TYPE", getsockopt(c, SOL_SOCKET, SO_TYPE, &value, &len));
    printf("%d\n", value == SOCK_STREAM);
    say("SO_ACCEPTCONN", getsockopt(c, SOL_SOCKET, SO_ACCEPTCONN, &value, &len));
    printf("%d\n", value);
    value = 10000;
    say("SO_SNDBUF", setsockopt(c, SOL_SOCKET, SO_SNDBUF, &value, sizeof value));
    say("its value", getsockopt(c, SOL_SOCKET, SO_SNDBUF, &value, &len));
    printf("%d\n", value);
}

/* Whoever closes all that he does not know closes nothing that the sockets need; numbers are the lowest. */
static void closes(void)
{
    int c, s, closed = 0;
    char data[8];
    pair(&c, &s);
    wait_for(c, POLLOUT);
    int first = open("/dev/null", O_RDWR), second = open("/dev/null", O_RDWR);
    printf("the next numbers: %d %d\n", first - s, second - s);
    for (int fd = 3; fd < 70000; fd++)
        if (fd != c && fd != s)
            closed += close(fd) == 0;
    printf("closed: %d\n", closed);
    say("write", write(c, "one", 3));
    wait_for(s, POLLIN);
    say("read", read(s, data, 8));
    first = c < s ? c : s;
    second = c < s ? s : c;
    say("close_range below", first > 3 ? close_range(3, (unsigned)first - 1, 0) : 0);
    say("between", second > first + 1 ? close_range((unsigned)first + 1, (unsigned)second - 1, 0) : 0);
    say("above", close_range((unsigned)second + 1, ~0u, 0));
    say("the wrong way round", close_range(9, 8, 0));
    say("write", write(s, "two", 3));
    wait_for(c, POLLIN);
    say("read", read(c, data, 8));
    int epfd = epoll_create1(0);
    say("ADD", watch(epfd, EPOLL_CTL_ADD, c, EPOLLIN, 1));
    say("all of them", close_range(3, ~0u, 0));
    say("write", write(c, "x", 1));
    pair(&c, &s);
    say("write", write(c, "new", 3));
    wait_for(s, POLLIN);
    say("read", read(s, data, 8));
}

static int drained; /* atomic */

static void *drain_late(void *arg)
{
    int fd = *(int *)arg;
    long sum = 0, n;
    usleep(20000);
    __atomic_store_n(&drained, 1, __ATOMIC_SEQ_CST);
    while ((n = read(fd, (char[65536]){0}, 65536)) > 0)
        sum += n;
    return (void *)sum;
}

/* close waits until the peer has acknowledged all of it. */
static void lingers(void)
{
    int c, s, size = 5000;
    pthread_t thread;
    void *sum;
    long wrote = 0, n;
    char much[20000] = {0};
    struct linger l = {1, 30}, got;
    socklen_t len = sizeof got;
    pair(&c, &s);
    say("SO_RCVBUF", setsockopt(s, SOL_SOCKET, SO_RCVBUF, &size, sizeof size));
    setsockopt(c, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    say("SO_LINGER", setsockopt(c, SOL_SOCKET, SO_LINGER, &l, sizeof l));
    say("its value", getsockopt(c, SOL_SOCKET, SO_LINGER, &got, &len));
    printf("%d %d\n", got.l_onoff, got.l_linger);
    while ((n = send(c, much, sizeof much, MSG_DONTWAIT)) > 0)
        wrote += n; /* until nothing goes: the peer takes no more */
    pthread_create(&thread, NULL, drain_late, &s);
    say("close", close(c));
    printf("the peer has read: %d\n", __atomic_load_n(&drained, __ATOMIC_SEQ_CST));
    pthread_join(thread, &sum);
    printf("all of it: %d\n", (long)sum == wrote);
    pair(&c, &s);
    l.l_linger = 30;
    say("SO_LINGER", setsockopt(c, SOL_SOCKET, SO_LINGER, &l, sizeof l));
    say("write", write(c, "x", 1));
    say("close at once", close(c));
    wait_for(s, POLLRDHUP);
    say("read", read(s, much, 8));
    say("read", read(s, much, 8));
}

/* A writer whom nobody reads waits for so long. */
static void timed(void)
{
    int c, s;
    long n;
    struct timeval t = {0, 2000};
    pair(&c, &s);
    char *much = calloc(1, LONG);
    say("SO_SNDTIMEO", setsockopt(c, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof t));
    while ((n = write(c, much, LONG)) > 0)
        ;
    say("write in time", n);
    free(much);
}

/* Two listeners of one port: each connection is one's. */
static void shares(void)
{
    struct sockaddr_in at = here;
    socklen_t len = sizeof at;
    int l[2], on = 1, other = socket(AF_INET, SOCK_STREAM, 0), took = 0;
    for (int i = 0; i < 2; i++) {
        l[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        say("SO_REUSEPORT", setsockopt(l[i], SOL_SOCKET, SO_REUSEPORT, &on, sizeof on));
        say("bind", bind(l[i], (struct sockaddr *)&at, sizeof at));
        say("listen", listen(l[i], 8));
        getsockname(l[i], (struct sockaddr *)&at, &len);
    }
    say("bind of another", bind(other, (struct sockaddr *)&at, sizeof at));
    for (int i = 0; i < 8; i++) {
        int c = socket(AF_INET, SOCK_STREAM, 0);
        struct pollfd p[2] = {{l[0], POLLIN, 0}, {l[1], POLLIN, 0}};
        if (i == 4)
            say("close of one", close(l[0]));
        if (connect(c, (struct sockaddr *)&at, sizeof at) || poll(p + (i >= 4), i >= 4 ? 1 : 2, 10000) != 1)
            printf("waited in vain\n");
        took += accept(l[i >= 4 || p[1].revents], NULL, NULL) >= 0;
    }
    printf("taken: %d\n", took);
}

/* Programs that are started by vfork and posix_spawn, which close what is theirs: it stays open here. */
static void spawns(void)
{
    int c, s, status = -1;
    char data[8];
    char *words[] = {"true", NULL};
    pid_t pid;
    pair(&c, &s);
    if ((pid = vfork()) == 0) {
        close(c);
        _exit(3);
    }
    say("waitpid", waitpid(pid, &status, 0) == pid ? 0 : -1);
    printf("status: %d\n", WEXITSTATUS(status));
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addclose(&actions, c);
    posix_spawn_file_actions_addclose(&actions, s);
    say("posix_spawnp", posix_spawnp(&pid, "true", &actions, NULL, words, environ));
    say("waitpid", waitpid(pid, &status, 0) == pid ? 0 : -1);
    printf("status: %d\n", WEXITSTATUS(status));
    say("write", write(c, "abc", 3));
    wait_for(s, POLLIN);
    say("read", read(s, data, 8));
}

static const struct sequence sequences[] = {
    {"names", names},     {"timed", timed},   {"shares", shares},   {"spawns", spawns},   {"bytes", bytes},
    {"ends", ends},       {"broken", broken}, {"refused", refused}, {"opening", opening}, {"closes", closes},
    {"lingers", lingers}, {"copies", copies}, {"much", much},       {"options", options}, {NULL, NULL}};

int main(int argc, char **argv)
{
    return run_with_address(sequences, argc, argv);
}

/* A program that knows nothing of corelane: calls that wait, in which the handler of a signal runs, and whose thread is
 * cancelled. It prints the results; the test runs it on Linux' sockets and on ours, and compares (../test_twin.py).
 *
 *   interrupted ADDRESS SEQUENCE */
#include "bound.h"
#include "pairs.h"

#include <fcntl.h>
#include <linux/sockios.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>

#define HANDLED 3 /* times that a handler runs in a call that goes on */

static atomic_int handled;

static void on_signal(int number)
{
    (void)number;
    atomic_fetch_add(&handled, 1);
}

struct kind {
    const char *name;
    long (*call)(int fd);
    int (*prepare)(void); /* its descriptor; others are in `c` and `l` */
};

/* What waits, by a thread of its own. */
struct waiting {
    const struct kind *kind;
    int fd;
    pthread_t thread;
    atomic_int tid, done, again;
    long rc;
    int error, cleaned;
    bool disabled;
};

static void wait_until(atomic_int *flag)
{
    while (!atomic_load(flag))
        sched_yield();
}

static int c, l;              /* the other end, and the listener, of what waits */
static struct sockaddr_in at; /* of the listener, or of the datagram socket */
static char data[1 << 16];
static atomic_int goes; /* what waits is to go on */

static int of_pair(void)
{
    int s;
    pair(&c, &s);
    return s;
}

static int of_listener(void)
{
    return l = listener(&at);
}

static int of_datagrams(void)
{
    c = new_socket();
    return bound(&at);
}

/* Bytes that have left, and are not acknowledged. */
static int under_way(int s)
{
    int all = 0, unsent = 0;
    if (ioctl(s, SIOCOUTQ, &all) || ioctl(s, SIOCOUTQNSD, &unsent))
        printf("its bytes are not told\n");
    return all - unsent;
}

/* The peer does not read: there is no room, nor will there be. What is under way makes some when it is acknowledged,
 * and who does that may have to wait for a CPU. */
static int of_full(void)
{
    int s = of_pair();
    do {
        while (send(s, data, sizeof data, MSG_DONTWAIT) > 0)
            ;
        while (under_way(s))
            poll(NULL, 0, 1);
    } while (send(s, data, 1, MSG_DONTWAIT) > 0);
    return s;
}

/* A call that sends a byte, until it is to go on: a persist timer sends what is left of a window that is smaller than a
 * segment, and makes room once more. */
static long again_while_there_is_room(long (*call)(int fd), int fd)
{
    long rc;
    do
        rc = call(fd);
    while (rc == 1 && !atomic_load(&goes));
    return rc;
}

static int of_timed(void)
{
    struct timeval t = {100, 0};
    int s = of_pair();
    say("SO_RCVTIMEO", setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t));
    return s;
}

static long call_read(int fd)
{
    return read(fd, data, 1);
}

static long call_readv(int fd)
{
    struct iovec vec = {data, 1};
    return readv(fd, &vec, 1);
}

static long call_recv(int fd)
{
    return recv(fd, data, 1, 0);
}

static long call_peek(int fd)
{
    return recv(fd, data, 1, MSG_PEEK);
}

static long call_recvfrom(int fd)
{
    return recvfrom(fd, data, 1, 0, NULL, NULL);
}

static long call_recvmsg(int fd)
{
    struct iovec vec = {data, 1};
    struct msghdr m = {.msg_iov = &vec, .msg_iovlen = 1};
    return recvmsg(fd, &m, 0);
}

static long call_recvmmsg(int fd)
{
    struct iovec vec = {data, 1};
    struct mmsghdr m = {.msg_hdr = {.msg_iov = &vec, .msg_iovlen = 1}};
    return recvmmsg(fd, &m, 1, 0, NULL);
}

static long call_splice(int fd)
{
    int p[2];
    return pipe(p) ? -1 : splice(fd, NULL, p[1], NULL, 1, 0);
}

static long call_accept(int fd)
{
    return accept(fd, NULL, NULL) < 0 ? -1 : 0;
}

static long call_accept4(int fd)
{
    return accept4(fd, NULL, NULL, SOCK_CLOEXEC) < 0 ? -1 : 0;
}

static long send_byte(int fd)
{
    return send(fd, data, 1, 0);
}

static long write_byte(int fd)
{
    return write(fd, data, 1);
}

static long sendmsg_byte(int fd)
{
    struct iovec vec = {data, 1};
    struct msghdr m = {.msg_iov = &vec, .msg_iovlen = 1};
    return sendmsg(fd, &m, 0);
}

static long call_send(int fd)
{
    return again_while_there_is_room(send_byte, fd);
}

static long call_write(int fd)
{
    return again_while_there_is_room(write_byte, fd);
}

static long call_sendmsg(int fd)
{
    return again_while_there_is_room(sendmsg_byte, fd);
}

static long call_poll(int fd)
{
    struct pollfd p = {fd, POLLIN, 0};
    return poll(&p, 1, -1);
}

static long call_ppoll(int fd)
{
    struct pollfd p = {fd, POLLIN, 0};
    return ppoll(&p, 1, NULL, NULL);
}

static long call_select(int fd)
{
    fd_set in;
    FD_ZERO(&in);
    FD_SET(fd, &in);
    return select(fd + 1, &in, NULL, NULL, NULL);
}

static long call_pselect(int fd)
{
    fd_set in;
    FD_ZERO(&in);
    FD_SET(fd, &in);
    return pselect(fd + 1, &in, NULL, NULL, NULL, NULL);
}

static long call_epoll(int fd)
{
    struct epoll_event e;
    int epfd = epoll_create1(0);
    return watch(epfd, EPOLL_CTL_ADD, fd, EPOLLIN, 1) ? -1 : epoll_wait(epfd, &e, 1, -1);
}

static const struct kind all[] = {{"read", call_read, of_pair},
                                  {"readv", call_readv, of_pair},
                                  {"recv", call_recv, of_pair},
                                  {"recv that peeks", call_peek, of_pair},
                                  {"recvfrom", call_recvfrom, of_pair},
                                  {"recvmsg", call_recvmsg, of_pair},
                                  {"recvmmsg", call_recvmmsg, of_pair},
                                  {"splice", call_splice, of_pair},
                                  {"recv with a time", call_recv, of_timed},
                                  {"recv of a datagram", call_recv, of_datagrams},
                                  {"recvmsg of a datagram", call_recvmsg, of_datagrams},
                                  {"accept", call_accept, of_listener},
                                  {"accept4", call_accept4, of_listener},
                                  {"send", call_send, of_full},
                                  {"write", call_write, of_full},
                                  {"sendmsg", call_sendmsg, of_full},
                                  {"poll", call_poll, of_pair},
                                  {"ppoll", call_ppoll, of_pair},
                                  {"select", call_select, of_pair},
                                  {"pselect", call_pselect, of_pair},
                                  {"epoll_wait", call_epoll, of_pair}};
#define CALLS (sizeof all / sizeof *all)

static void on_cancel(void *arg)
{
    ((struct waiting *)arg)->cleaned = 1;
}

static void *wait_there(void *arg)
{
    struct waiting *w = arg;
    int before;
    if (w->disabled)
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    pthread_cleanup_push(on_cancel, w);
    atomic_store(&w->tid, (int)syscall(SYS_gettid));
    w->rc = w->kind->call(w->fd);
    w->error = errno;
    atomic_store(&w->done, 1);
    pthread_cleanup_pop(0);
    if (w->disabled) {
        pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &before);
        pthread_testcancel();
    }
    return NULL;
}

/* What Linux says of it. */
static void read_of(const struct waiting *w, const char *name, char line[256])
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%d/%s", atomic_load(&w->tid), name);
    FILE *file = fopen(path, "r");
    line[0] = 0;
    if (!file)
        return;
    if (!fgets(line, 256, file))
        line[0] = 0;
    fclose(file);
}

/* Whether Linux says that it sleeps, and for no lock on its way: a handler that runs there ends nothing. */
static bool sleeps(const struct waiting *w)
{
    char call[256], stat[256], still[256];
    read_of(w, "syscall", call); /* of one that has lost its CPU, too */
    read_of(w, "stat", stat);
    read_of(w, "syscall", still);
    const char *end = strrchr(stat, ')');
    bool is_call = call[0] >= '0' && call[0] <= '9' && atoi(call) != SYS_futex;
    return end && end[2] == 'S' && is_call && !strcmp(call, still);
}

/* Until it sleeps, or has ended. */
static bool fell_asleep(const struct waiting *w)
{
    for (;;) {
        if (atomic_load(&w->done))
            return false;
        if (atomic_load(&w->tid) && sleeps(w))
            return true;
        poll(NULL, 0, 1);
    }
}

static void begin_kind(struct waiting *w, const struct kind *kind)
{
    *w = (struct waiting){.kind = kind};
    w->fd = w->kind->prepare();
    pthread_create(&w->thread, NULL, wait_there, w);
}

static void begin(struct waiting *w, unsigned i)
{
    begin_kind(w, &all[i]);
}

/* Have what it waits for happen. */
static void let_go_on(struct waiting *w)
{
    if (w->kind->prepare == of_listener) {
        int other = socket(AF_INET, SOCK_STREAM, 0);
        say("connect", connect(other, (struct sockaddr *)&at, sizeof at));
        return;
    }
    if (w->kind->prepare == of_datagrams) {
        say("sendto", send_at(c, "x", 1, 0, &at));
        return;
    }
    if (w->kind->prepare != of_full) {
        say("write", write(c, "x", 1));
        return;
    }
    static char taken[1 << 16];
    atomic_store(&goes, 1);
    while (!atomic_load(&w->done))
        if (recv(c, taken, sizeof taken, MSG_DONTWAIT) < 0)
            poll(NULL, 0, 1);
    atomic_store(&goes, 0);
}

static void say_end(struct waiting *w)
{
    void *how;
    pthread_join(w->thread, &how);
    if (how == PTHREAD_CANCELED) {
        printf("%s: cancelled, and cleaned up: %d\n", w->kind->name, w->cleaned);
        return;
    }
    errno = w->error;
    say(w->kind->name, w->rc);
}

static void handle(int flags)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = flags};
    sigaction(SIGUSR1, &action, NULL);
}

/* Have a handler end the call. One that runs while it looks at what came does not (docs/posix.md): then once more. */
static void end_by(struct waiting *w, int number)
{
    while (fell_asleep(w)) {
        pthread_kill(w->thread, number);
        poll(NULL, 0, 1);
    }
}

/* The handler ends the call. */
static void ends(void)
{
    handle(0);
    for (unsigned i = 0; i < CALLS; i++) {
        struct waiting w;
        begin(&w, i);
        end_by(&w, SIGUSR1);
        say_end(&w);
    }
}

/* Have handlers of SA_RESTART run in it until it ends. Whether it goes on. */
static bool goes_on(struct waiting *w)
{
    atomic_store(&handled, 0);
    for (int n = 0; n < HANDLED && fell_asleep(w); n++) {
        pthread_kill(w->thread, SIGUSR1);
        while (atomic_load(&handled) == n)
            sched_yield();
    }
    return fell_asleep(w);
}

/* The handler ran, and the call goes on, if Linux has it so. */
static void restarts(void)
{
    handle(SA_RESTART);
    for (unsigned i = 0; i < CALLS; i++) {
        struct waiting w;
        begin(&w, i);
        if (goes_on(&w))
            let_go_on(&w);
        say_end(&w);
    }
}

/* Handlers of both kinds: each does what it is there for, and is what the program sees. */
static void of_both_kinds(void)
{
    struct sigaction ending = {.sa_handler = on_signal}, found, again;
    handle(SA_RESTART);
    sigaction(SIGUSR2, &ending, NULL);
    say("sigaction", sigaction(SIGUSR2, NULL, &found));
    printf("its handler: %d\n", found.sa_handler == on_signal);
    say("again", sigaction(SIGUSR2, &ending, &again));
    printf("its handler: %d\n", again.sa_handler == on_signal);
    printf("signal's: %d\n", signal(SIGUSR2, SIG_IGN) == on_signal);
    sigaction(SIGUSR2, &ending, &found);
    printf("ignored: %d\n", found.sa_handler == SIG_IGN);
    say("no signal", sigaction(NSIG, &ending, NULL));
    for (unsigned i = 0; i < CALLS; i++) {
        struct waiting w;
        begin(&w, i);
        if (goes_on(&w))
            end_by(&w, SIGUSR2);
        say_end(&w);
    }
}

static int of_kin_listener(void)
{
    return l;
}

static int of_kin_datagrams(void)
{
    return c;
}

/* While another process, which has the sockets too, serves: of Linux' sockets that is nothing. */
static void in_a_family(void)
{
    static const struct kind kin[] = {{"accept", call_accept, of_kin_listener},
                                      {"poll", call_poll, of_kin_listener},
                                      {"select", call_select, of_kin_listener},
                                      {"epoll_wait", call_epoll, of_kin_listener},
                                      {"recv of a datagram", call_recv, of_kin_datagrams}};
    int serves[2], both[2];
    char byte;
    l = listener(&at);
    c = bound(&at);
    if (pipe(serves) || pipe(both))
        exit(1);
    if (fork() == 0) {
        close(both[1]);
        struct pollfd p[2] = {{l, POLLIN, 0}, {c, POLLIN, 0}};
        say("its poll", poll(p, 2, 0));
        if (write(serves[1], "x", 1) == 1)
            (void)!read(both[0], &byte, 1); /* until its parent ends */
        _exit(0);
    }
    say("it serves", read(serves[0], &byte, 1));
    for (unsigned i = 0; i < sizeof kin / sizeof *kin; i++) {
        struct waiting w;
        handle(0);
        begin_kind(&w, &kin[i]);
        end_by(&w, SIGUSR1);
        say_end(&w);
        handle(SA_RESTART);
        begin_kind(&w, &kin[i]);
        if (goes_on(&w))
            pthread_cancel(w.thread);
        say_end(&w);
        begin_kind(&w, &kin[i]);
        if (fell_asleep(&w))
            pthread_cancel(w.thread);
        say_end(&w);
    }
}

/* What is cancelled has done nothing: what it waited for is there for the next one. */
static void cancelled(void)
{
    for (unsigned i = 0; i < CALLS; i++) {
        struct waiting w;
        begin(&w, i);
        if (fell_asleep(&w))
            pthread_cancel(w.thread);
        say_end(&w);
        if (w.kind->prepare == of_full)
            continue;
        let_go_on(&w);
        if (w.kind->prepare == of_listener)
            say("accept", accept(w.fd, NULL, NULL) < 0 ? -1 : 0);
        else
            say("recv", recv(w.fd, data, 1, 0));
    }
}

/* One that does not want to be is so later. */
static void cancelled_later(void)
{
    for (unsigned i = 0; i < CALLS; i++) {
        struct waiting w = {.kind = &all[i], .disabled = true};
        w.fd = w.kind->prepare();
        pthread_create(&w.thread, NULL, wait_there, &w);
        if (fell_asleep(&w))
            pthread_cancel(w.thread);
        if (fell_asleep(&w))
            let_go_on(&w);
        say_end(&w);
        say("the call", w.rc);
    }
}

static void *receive_at_once(void *arg)
{
    struct waiting *w = arg;
    int before;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    atomic_store(&w->tid, 1);
    wait_until(&w->done);
    say("while it is disabled", recv(w->fd, data, 1, 0));
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &before);
    say("and then", recv(w->fd, data, 1, 0));
    return NULL;
}

/* Before it calls, though the call would not wait. */
static void cancelled_before(void)
{
    struct waiting w = {.kind = &all[2]};
    w.fd = of_pair();
    say("write", write(c, "ab", 2));
    wait_for(w.fd, POLLIN);
    pthread_create(&w.thread, NULL, receive_at_once, &w);
    wait_until(&w.tid);
    pthread_cancel(w.thread);
    atomic_store(&w.done, 1);
    say_end(&w);
    say("recv", recv(w.fd, data, 2, 0));
}

static sigjmp_buf out;

static void jump(int number)
{
    (void)number;
    siglongjmp(out, 1);
}

static void *leave_and_call_again(void *arg)
{
    struct waiting *w = arg;
    if (sigsetjmp(out, 1) == 0) {
        atomic_store(&w->tid, (int)syscall(SYS_gettid));
        w->kind->call(w->fd);
        printf("it did not wait\n");
    }
    atomic_store(&w->done, 1);
    wait_until(&w->again);
    w->rc = w->kind->call(w->fd);
    w->error = errno;
    atomic_store(&w->done, 1);
    return NULL;
}

/* As programs do that have a time-out by SIGALRM: the handler does not come back. */
static void left(void)
{
    struct sigaction action = {.sa_handler = jump};
    sigaction(SIGUSR1, &action, NULL);
    for (unsigned i = 0; i < CALLS; i++) {
        struct waiting w = {.kind = &all[i]};
        w.fd = w.kind->prepare();
        pthread_create(&w.thread, NULL, leave_and_call_again, &w);
        if (fell_asleep(&w))
            pthread_kill(w.thread, SIGUSR1);
        wait_until(&w.done);
        atomic_store(&w.done, 0);
        atomic_store(&w.again, 1);
        let_go_on(&w);
        say_end(&w);
        say("close", close(w.fd));
        if (w.kind->prepare == of_pair) /* it is not held by what was left */
            say("the end", recv(c, data, 1, 0));
    }
}

static const struct sequence sequences[] = {{"ends", ends},
                                            {"restarts", restarts},
                                            {"of_both_kinds", of_both_kinds},
                                            {"family", in_a_family}, /* it says a word on ours */
                                            {"cancelled", cancelled},
                                            {"cancelled_later", cancelled_later},
                                            {"cancelled_before", cancelled_before},
                                            {"left", left},
                                            {NULL, NULL}};

int main(int argc, char **argv)
{
    return run_with_address(sequences, argc, argv);
}

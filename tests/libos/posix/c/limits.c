/* A program that knows nothing of corelane: as many descriptors as there may be. It prints the results of its calls,
 * and numbers; the test runs it on Linux' sockets and on ours, and compares (../test_twin.py).
 *
 *   limits ADDRESS SEQUENCE */
#include "bound.h"
#include "pairs.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>

#define MOST 40
#define SMALL_BYTES 16384 /* the least that libc takes */

static void limit(unsigned n)
{
    struct rlimit l;
    getrlimit(RLIMIT_NOFILE, &l);
    l.rlim_cur = n;
    say("setrlimit", setrlimit(RLIMIT_NOFILE, &l));
}

static void say_limit(void)
{
    struct rlimit l;
    getrlimit(RLIMIT_NOFILE, &l);
    printf("as many as %u\n", (unsigned)l.rlim_cur);
}

/* Sockets until there are no more. Returns the last. */
static int use_up(void)
{
    int last = -1;
    for (int fd; (fd = socket(AF_INET, SOCK_STREAM, 0)) >= 0;)
        last = fd;
    printf("up to %d: %s\n", last, name_of(errno));
    return last;
}

static void *poll_it(void *arg)
{
    struct pollfd p = {(int)(intptr_t)arg, POLLIN, 0};
    char data[8];
    say("poll", poll(&p, 1, 10000));
    say("recv", recv(p.fd, data, 1, 0));
    say("recv of the next", recv(p.fd, data, 1, 0));
    return NULL;
}

static void in_a_thread(void *(*fn)(void *arg), int fd)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, fn, (void *)(intptr_t)fd) == 0)
        pthread_join(thread, NULL);
}

/* All calls but those that make descriptors go on as before, by threads that have never waited, too. */
static void exhausted(void)
{
    struct sockaddr_in at;
    int c, s, l = listener(&at), waits = socket(AF_INET, SOCK_STREAM, 0);
    pair(&c, &s);
    limit(MOST);
    int last = use_up();
    say("socket", socket(AF_INET, SOCK_DGRAM, 0));
    say("dup", dup(c));
    say("epoll_create1", epoll_create1(0));
    say("connect", connect(waits, (struct sockaddr *)&at, sizeof at));
    wait_for(l, POLLIN);
    say("accept", accept(l, NULL, NULL));
    wait_for(l, POLLIN); /* it waits still */
    say("write", write(c, "ab", 2));
    in_a_thread(poll_it, s);
    say("close", close(last));
    say("accept", accept(l, NULL, NULL));
    say("close", close(last));
    int epfd = epoll_create1(0);
    say("epoll_create1", epfd);
    say("ADD", watch(epfd, EPOLL_CTL_ADD, s, EPOLLIN, 1));
    say("write", write(c, "c", 1));
    wait_for(s, POLLIN);
    say_told("epoll_wait", epfd);
    say_limit();
}

/* The limit is so low before there is a runtime. */
static void tiny(void)
{
    struct sockaddr_in at;
    char data[4];
    limit(7);
    int l = listener(&at), c = socket(AF_INET, SOCK_STREAM, 0);
    say("connect", connect(c, (struct sockaddr *)&at, sizeof at));
    int s = accept(l, NULL, NULL);
    printf("%d %d %d\n", l, c, s);
    say("write", write(c, "abc", 3));
    say("recv", recv(s, data, 3, MSG_WAITALL));
    use_up();
    say_limit();
}

/* What a careless program closes. */
static void all_closed(void)
{
    int c, s;
    char data[4];
    pair(&c, &s);
    say("write", write(c, "a", 1));
    say("recv", recv(s, data, 1, MSG_WAITALL));
    say("close_range", close_range(3, ~0u, 0));
    say("recv", recv(s, data, 1, 0));
    pair(&c, &s);
    printf("%d %d\n", c, s);
    for (int fd = 3; fd < 1024; fd++)
        (void)close(fd);
    say("recv", recv(s, data, 1, 0));
    pair(&c, &s);
    printf("%d %d\n", c, s);
    closefrom(3);
    pair(&c, &s);
    say("write", write(c, "abc", 3));
    say("recv", recv(s, data, 3, MSG_WAITALL));
    printf("%d %d\n", c, s);
}

/* A program that closes standard error finds nothing in the file that has its number then. */
static void number_two(void)
{
    int tos = 16, s = socket(AF_INET, SOCK_STREAM, 0);
    struct stat st;
    FILE *file = tmpfile();
    say("bind", bind(s, (struct sockaddr *)&here, sizeof here));
    close(2);
    say("its number", dup(fileno(file)));
    say("IP_TOS", setsockopt(s, IPPROTO_IP, IP_TOS, &tos, sizeof tos)); /* of which a sentence is said */
    say("fstat", fstat(2, &st));
    printf("%ld bytes\n", (long)st.st_size);
}

static void of_datagrams(void)
{
    struct sockaddr_in at;
    char data[200];
    struct iovec vec[2] = {{data, 100}, {data + 100, 100}};
    int u = bound(&at);
    struct msghdr m = {.msg_name = &at, .msg_namelen = sizeof at, .msg_iov = vec, .msg_iovlen = 2};
    say("sendmsg", sendmsg(u, &m, 0));
    wait_for(u, POLLIN);
    say("recvmsg", recvmsg(u, &m, 0));
    say("sendto", send_at(u, data, 5, 0, &at));
    say("recv", recv(u, data, sizeof data, 0));
}

static void *use_all(void *arg)
{
    struct sockaddr_in at;
    char data[200];
    int l = listener(&at), c = socket(AF_INET, SOCK_STREAM, 0), epfd = epoll_create1(0);
    say("connect", connect(c, (struct sockaddr *)&at, sizeof at));
    int s = say_fd("accept", accept(l, NULL, NULL));
    struct iovec vec[2] = {{data, 100}, {data + 100, 100}};
    say("writev", writev(c, vec, 2));
    say("recv", recv(s, data, 200, MSG_WAITALL));
    say("sendfile", sendfile(c, *(int *)arg, NULL, 200));
    fd_set in;
    FD_ZERO(&in);
    FD_SET(s, &in);
    say("select", select(s + 1, &in, NULL, NULL, NULL));
    wait_for(s, POLLIN);
    say("ADD", watch(epfd, EPOLL_CTL_ADD, s, EPOLLIN, 1));
    say_told("epoll_wait", epfd);
    say("readv", readv(s, vec, 2));
    of_datagrams();
    return NULL;
}

/* Of a thread's stack as little as may be. */
static void small_stacks(void)
{
    pthread_attr_t small;
    pthread_t thread;
    char data[200] = "";
    FILE *file = tmpfile();
    fwrite(data, 1, sizeof data, file);
    rewind(file);
    int fd = fileno(file);
    pthread_attr_init(&small);
    say("stack", pthread_attr_setstacksize(&small, SMALL_BYTES));
    if (pthread_create(&thread, &small, use_all, &fd) == 0)
        pthread_join(thread, NULL);
}

/* Sets of another size than an fd_set's, and what is behind them, which is not theirs. */
struct sets {
    unsigned long in[2 * FD_SETSIZE / NFDBITS], after[FD_SETSIZE / NFDBITS];
};

/* select or pselect of two descriptors in a set of so many bits. */
static void look_in(const char *what, bool p, int n, unsigned bits, const int *fds)
{
    static struct sets sets;
    fd_set *in = (fd_set *)sets.in;
    memset(&sets, 0xff, sizeof sets);
    memset(sets.in, 0, bits / 8);
    for (unsigned i = 0; i < 2; i++)
        sets.in[fds[i] / NFDBITS] |= 1ul << fds[i] % NFDBITS;
    say(what, p ? pselect(n, in, NULL, NULL, &(struct timespec){0, 0}, NULL)
                : select(n, in, NULL, NULL, &(struct timeval){0, 0}));
    for (unsigned i = 0; i < 2; i++)
        printf("%d", (int)(sets.in[fds[i] / NFDBITS] >> fds[i] % NFDBITS & 1));
    unsigned changed = 0;
    for (const char *at = (char *)&sets + bits / 8; at < (char *)(&sets + 1); at++)
        changed += *at != (char)0xff;
    printf(", behind it %u bytes are others\n", changed);
}

static void select_of(const char *what, int n, unsigned bits, int a, int b)
{
    look_in(what, false, n, bits, (int[]){a, b});
    look_in(what, true, n, bits, (int[]){a, b});
}

/* Linux looks at as many bits as its table of files has, though a program says that there are more. */
static void sizes_of_sets(void)
{
    enum { FILES = 4096, LOW = 64, HIGH = 1500 };
    int c, s, ends[2];
    limit(FILES);
    pair(&c, &s);
    say("pipe", pipe(ends));
    say("write", write(c, "x", 1) + write(ends[1], "x", 1));
    wait_for(s, POLLIN);
    select_of("one word of ours", s + 1, LOW, s, c);
    select_of("one word of Linux'", ends[1] + 1, LOW, ends[0], ends[1]);
    select_of("as many as may be, ours", getdtablesize(), FD_SETSIZE, s, c);
    select_of("as many as may be, Linux'", getdtablesize(), FD_SETSIZE, ends[0], ends[1]);
    pid_t child = fork();
    if (child == 0) {
        select_of("in a child", getdtablesize(), FD_SETSIZE, ends[0], ends[1]);
        _exit(0);
    }
    say("waitpid", waitpid(child, NULL, 0) == child);
    say("dup2", dup2(s, HIGH));
    say("dup2", dup2(ends[0], HIGH + 1));
    select_of("more than an fd_set", HIGH + 1, 2 * FD_SETSIZE, HIGH, s);
    select_of("more, Linux'", HIGH + 2, 2 * FD_SETSIZE, HIGH + 1, ends[1]);
    select_of("of both", HIGH + 2, 2 * FD_SETSIZE, HIGH, HIGH + 1);
    select_of("more, as many as may be", getdtablesize(), 2 * FD_SETSIZE, HIGH, HIGH + 1);
    select_of("one that is not open", HIGH + 3, 2 * FD_SETSIZE, HIGH, HIGH + 2);
    limit((unsigned)HIGH + 2);
    int last = use_up();
    select_of("no number is left", FILES, 2 * FD_SETSIZE, s, HIGH + 1);
    say("close", close(last));
}

static const struct sequence sequences[] = {{"exhausted", exhausted},
                                            {"tiny", tiny},
                                            {"all_closed", all_closed},
                                            {"number_two", number_two},
                                            {"small_stacks", small_stacks},
                                            {"sizes_of_sets", sizes_of_sets},
                                            {NULL, NULL}};

int main(int argc, char **argv)
{
    return run_with_address(sequences, argc, argv);
}

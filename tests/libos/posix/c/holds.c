/* A program that knows nothing of corelane: what a connection holds back, and what it is told to do by itself. It
 * prints the results of its calls; the test runs it on Linux' sockets and on ours, and compares (../test_twin.py).
 *
 *   holds ADDRESS SEQUENCE
 *
 * How much was written and has not left tells whether it is held (SIOCOUTQNSD), at once and not after a time. */
#include "pairs.h"

#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/time.h>
#include <sys/uio.h>

static char data[1 << 15];

static void set(int fd, int level, int name, int value)
{
    say("set", setsockopt(fd, level, name, &value, sizeof value));
}

static void get(const char *what, int fd, int level, int name)
{
    int value = -1;
    socklen_t len = sizeof value;
    say(what, getsockopt(fd, level, name, &value, &len));
    printf("%d of %u bytes\n", value, len);
}

static void say_held(int fd)
{
    int n = -1;
    say("SIOCOUTQNSD", ioctl(fd, SIOCOUTQNSD, &n));
    printf("held: %d\n", n);
}

/* Until so much waits there. */
static void wait_for_bytes(int fd, int bytes)
{
    for (int i = 0, n = 0; i < 10000; i++) {
        if (ioctl(fd, FIONREAD, &n) == 0 && n == bytes)
            return;
        poll(NULL, 0, i > 100);
    }
    printf("waited in vain\n");
}

/* Until all that was written is acknowledged: Nagle's rule holds nothing. */
static void wait_for_acks(int fd)
{
    for (int i = 0, n = 1; i < 10000; i++) {
        if (ioctl(fd, SIOCOUTQ, &n) == 0 && n == 0)
            return;
        poll(NULL, 0, i > 100);
    }
    printf("waited in vain\n");
}

static void corks(void)
{
    int c, s;
    pair(&c, &s);
    set(c, IPPROTO_TCP, TCP_CORK, 1);
    get("TCP_CORK", c, IPPROTO_TCP, TCP_CORK);
    say("write", write(c, data, 10));
    say("write", write(c, data, 10));
    say_held(c);
    set(c, IPPROTO_TCP, TCP_CORK, 0);
    say_held(c);
    wait_for_bytes(s, 20);
    say("read", read(s, data, sizeof data));
    set(c, IPPROTO_TCP, TCP_CORK, 1);
    say("write", write(c, data, 10));
    set(c, IPPROTO_TCP, TCP_NODELAY, 1); /* lets it out, ... */
    say_held(c);
    say("write", write(c, data, 10)); /* ... and that alone */
    say_held(c);
    set(c, IPPROTO_TCP, TCP_NODELAY, 0);
    say_held(c);
    set(c, IPPROTO_TCP, TCP_NODELAY, 1);
    set(c, IPPROTO_TCP, TCP_CORK, 0);
    wait_for_bytes(s, 20);
    set(c, IPPROTO_TCP, TCP_CORK, 1);
    say("write", write(c, data, 10));
    say("shutdown", shutdown(c, SHUT_WR)); /* with the end it leaves */
    wait_for_bytes(s, 30);
}

/* It leaves by itself after a while: no test of how long. */
static void uncorked_by_time(void)
{
    int c, s;
    pair(&c, &s);
    set(c, IPPROTO_TCP, TCP_CORK, 1);
    say("write", write(c, data, 10));
    wait_for_bytes(s, 10);
    say("send", send(c, data, 10, MSG_MORE));
    wait_for_bytes(s, 20);
}

static void mores(void)
{
    int c, s;
    struct iovec vec[2] = {{data, 3}, {data, 4}};
    struct msghdr m = {.msg_iov = vec, .msg_iovlen = 2};
    pair(&c, &s);
    say("send", send(c, data, 10, MSG_MORE));
    say_held(c);
    say("sendmsg", sendmsg(c, &m, MSG_MORE));
    say_held(c);
    say("send", send(c, data, 10, 0));
    wait_for_bytes(s, 27);
    say_held(c);
    set(c, IPPROTO_TCP, TCP_NODELAY, 1);
    say("send", send(c, data, 10, MSG_MORE)); /* held all the same */
    say_held(c);
    say("send", send(c, data, 1, 0));
    say_held(c);
    say("send", send(c, data, 10, MSG_MORE));
    say("write from the peer", write(s, "x", 1)); /* lets it out */
    wait_for_bytes(c, 1);
    wait_for_bytes(s, 48);
    say("close", close(c));
    wait_for(s, POLLHUP);
    say("send to it", send(s, data, 1, MSG_MORE | MSG_NOSIGNAL));
}

static int file_of(int bytes)
{
    char name[] = "/tmp/holds-XXXXXX";
    int fd = mkstemp(name);
    unlink(name);
    if (fd < 0 || ftruncate(fd, bytes))
        printf("no file\n");
    return fd;
}

/* A header and a file: as servers send them. */
static void files(void)
{
    int c, s, small = file_of(100), whole = file_of(16384);
    off_t at = 0;
    pair(&c, &s);
    set(c, IPPROTO_TCP, TCP_CORK, 1);
    say("header", write(c, data, 50));
    say("sendfile", sendfile(c, small, &at, 100));
    say_held(c);
    set(c, IPPROTO_TCP, TCP_CORK, 0);
    wait_for_bytes(s, 150);
    wait_for_acks(c);
    say("header", send(c, data, 50, MSG_MORE));
    at = 0;
    say("sendfile", sendfile(c, small, &at, 100));
    say_held(c);
    wait_for_bytes(s, 300);
    wait_for_acks(c);
    say("of more than there is", sendfile(c, whole, NULL, 1 << 20));
    wait_for_bytes(s, 300 + 16384);
    wait_for_acks(c);
    say("at its end", sendfile(c, whole, NULL, 10));
}

static void keeps(void)
{
    int c, s;
    pair(&c, &s);
    get("SO_KEEPALIVE", c, SOL_SOCKET, SO_KEEPALIVE);
    get("TCP_KEEPIDLE", c, IPPROTO_TCP, TCP_KEEPIDLE);
    set(c, IPPROTO_TCP, TCP_KEEPIDLE, 30);
    set(c, IPPROTO_TCP, TCP_KEEPINTVL, 5);
    set(c, IPPROTO_TCP, TCP_KEEPCNT, 3);
    set(c, SOL_SOCKET, SO_KEEPALIVE, 1);
    get("TCP_KEEPIDLE", c, IPPROTO_TCP, TCP_KEEPIDLE);
    get("TCP_KEEPINTVL", c, IPPROTO_TCP, TCP_KEEPINTVL);
    get("TCP_KEEPCNT", c, IPPROTO_TCP, TCP_KEEPCNT);
    for (int i = 0; i < 3; i++) {
        static const int names[] = {TCP_KEEPIDLE, TCP_KEEPINTVL, TCP_KEEPCNT};
        set(c, IPPROTO_TCP, names[i], 0);
        set(c, IPPROTO_TCP, names[i], -1);
        set(c, IPPROTO_TCP, names[i], 32768);
        set(c, IPPROTO_TCP, names[i], i == 2 ? 127 : 32767);
        get("value", c, IPPROTO_TCP, names[i]);
    }
}

/* A peer that answers nothing ends a connection that asks: here both are of one stack, so it is asked, and answers. */
static void asked(void)
{
    int c, s;
    pair(&c, &s);
    set(c, IPPROTO_TCP, TCP_KEEPIDLE, 1);
    set(c, IPPROTO_TCP, TCP_KEEPINTVL, 1);
    set(c, IPPROTO_TCP, TCP_KEEPCNT, 1);
    set(c, SOL_SOCKET, SO_KEEPALIVE, 1);
    struct pollfd p = {c, POLLIN, 0};
    say("nothing for a while", poll(&p, 1, 1200));
    say("write", write(c, "x", 1));
    wait_for_bytes(s, 1);
}

/* What a listener has been told its connections begin with. */
static void inherits(void)
{
    struct sockaddr_in at;
    int l = listener(&at), c = socket(AF_INET, SOCK_STREAM, 0);
    struct linger linger = {1, 7};
    struct timeval t = {3, 0};
    socklen_t len;
    set(l, IPPROTO_TCP, TCP_NODELAY, 1);
    set(l, IPPROTO_TCP, TCP_CORK, 1);
    set(l, SOL_SOCKET, SO_KEEPALIVE, 1);
    set(l, IPPROTO_TCP, TCP_KEEPIDLE, 30);
    set(l, IPPROTO_TCP, TCP_KEEPINTVL, 5);
    set(l, IPPROTO_TCP, TCP_KEEPCNT, 3);
    set(l, SOL_SOCKET, SO_SNDBUF, 50000);
    say("SO_LINGER", setsockopt(l, SOL_SOCKET, SO_LINGER, &linger, sizeof linger));
    say("SO_RCVTIMEO", setsockopt(l, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t));
    say("connect", connect(c, (struct sockaddr *)&at, sizeof at));
    int s = say_fd("accept", accept(l, NULL, NULL));
    get("TCP_NODELAY", s, IPPROTO_TCP, TCP_NODELAY);
    get("TCP_CORK", s, IPPROTO_TCP, TCP_CORK);
    get("SO_KEEPALIVE", s, SOL_SOCKET, SO_KEEPALIVE);
    get("TCP_KEEPIDLE", s, IPPROTO_TCP, TCP_KEEPIDLE);
    get("TCP_KEEPINTVL", s, IPPROTO_TCP, TCP_KEEPINTVL);
    get("TCP_KEEPCNT", s, IPPROTO_TCP, TCP_KEEPCNT);
    get("SO_SNDBUF", s, SOL_SOCKET, SO_SNDBUF);
    linger = (struct linger){0, 0};
    len = sizeof linger;
    say("SO_LINGER", getsockopt(s, SOL_SOCKET, SO_LINGER, &linger, &len));
    printf("%d %d\n", linger.l_onoff, linger.l_linger);
    t.tv_sec = 0;
    len = sizeof t;
    say("SO_RCVTIMEO", getsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &t, &len));
    printf("%ld\n", (long)t.tv_sec);
    say("write", write(s, data, 10));
    say_held(s);
    set(s, IPPROTO_TCP, TCP_CORK, 0);
    wait_for_bytes(c, 10);
}

static void queues(void)
{
    struct sockaddr_in at;
    int l = listener(&at), fresh = socket(AF_INET, SOCK_STREAM, 0), n = -1;
    say("SIOCOUTQ of a listener", ioctl(l, SIOCOUTQ, &n));
    say("SIOCOUTQNSD of a listener", ioctl(l, SIOCOUTQNSD, &n));
    say("SIOCOUTQ of a fresh one", ioctl(fresh, SIOCOUTQ, &n));
    printf("%d\n", n);
}

static const struct sequence sequences[] = {{"corks", corks},
                                            {"uncorked_by_time", uncorked_by_time},
                                            {"mores", mores},
                                            {"files", files},
                                            {"keeps", keeps},
                                            {"asked", asked},
                                            {"inherits", inherits},
                                            {"queues", queues},
                                            {NULL, NULL}};

int main(int argc, char **argv)
{
    return run_with_address(sequences, argc, argv);
}

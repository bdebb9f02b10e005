/* A program that knows nothing of corelane: sequences of calls on UDP sockets, whose results it prints, one a line, as
 * calls.c does for TCP (../test_twin.py). Both ends are of this process; waits are by poll.
 *
 *   datagrams ADDRESS SEQUENCE */
#include "bound.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

/* Two that are connected to each other. */
static void pair(int *a, int *b)
{
    struct sockaddr_in at_a, at_b;
    *a = bound(&at_a);
    *b = bound(&at_b);
    if (connect(*a, (struct sockaddr *)&at_b, sizeof at_b) || connect(*b, (struct sockaddr *)&at_a, sizeof at_a)) {
        printf("not connected: %s\n", name_of(errno));
        exit(1);
    }
}

static void names(void)
{
    struct sockaddr_in at, name, own;
    socklen_t len = sizeof name;
    char data[64] = "";
    int s = bound(&at), c = new_socket();
    say("peer of a fresh one", getpeername(c, (struct sockaddr *)&name, &len));
    say("send of a fresh one", send(c, "x", 1, 0));
    say("receive of a fresh one", recv(c, data, 1, MSG_DONTWAIT));
    say("to port 0", send_at(c, "x", 1, 0, &here));
    say("a name too short", sendto(c, "x", 1, 0, (struct sockaddr *)&at, 4));
    say("sendto", send_at(c, "hello", 5, 0, &at));
    wait_for(s, POLLIN);
    len = sizeof name;
    say("recvfrom", recvfrom(s, data, sizeof data, 0, (struct sockaddr *)&name, &len));
    printf("%s, length of the name: %u, our address: %d\n", data, len, name.sin_addr.s_addr == here.sin_addr.s_addr);
    len = sizeof own;
    say("its name", getsockname(c, (struct sockaddr *)&own, &len));
    printf("any address: %d, the same port: %d\n", own.sin_addr.s_addr == INADDR_ANY, own.sin_port == name.sin_port);
    say("answer", send_at(s, "back", 4, 0, &name));
    wait_for(c, POLLIN);
    len = 4;
    say("name cut short", recvfrom(c, data, sizeof data, 0, (struct sockaddr *)&name, &len));
    printf("whole length: %u\n", len);
    say("connect", connect(c, (struct sockaddr *)&at, sizeof at));
    len = sizeof own;
    say("its name", getsockname(c, (struct sockaddr *)&own, &len));
    printf("our address: %d\n", own.sin_addr.s_addr == here.sin_addr.s_addr);
    say("its peer", getpeername(c, (struct sockaddr *)&own, &len));
    printf("the server: %d\n", own.sin_port == at.sin_port);
    say("send", send(c, "again", 5, 0));
    wait_for(s, POLLIN);
    say("read", read(s, data, sizeof data));
    say("bind again", bind(s, (struct sockaddr *)&at, sizeof at));
    int other = new_socket();
    say("bind of what is bound", bind(other, (struct sockaddr *)&at, sizeof at));
    say("listen", listen(s, 1));
    say("accept", accept(s, NULL, NULL));
    struct sockaddr none = {.sa_family = AF_UNSPEC};
    say("connect to nobody", connect(c, &none, sizeof none));
    say("peer of nobody", getpeername(c, (struct sockaddr *)&own, &len));
    say("send to nobody", send(c, "x", 1, 0));
    len = sizeof own;
    getsockname(s, (struct sockaddr *)&own, &len);
    printf("as bound: %d\n", own.sin_addr.s_addr == here.sin_addr.s_addr && own.sin_port == at.sin_port);
}

static void bytes(void)
{
    struct sockaddr_in at, name;
    char data[64] = "", long_one[3000];
    int s = bound(&at), c = new_socket(), n = -1;
    say("sendto", send_at(c, "hello", 5, 0, &at));
    say("nothing", send_at(c, "", 0, 0, &at));
    say("more", send_at(c, "0123456789", 10, 0, &at));
    wait_for(s, POLLIN);
    say("FIONREAD", ioctl(s, FIONREAD, &n));
    printf("%d\n", n);
    say("peek", recv(s, data, 2, MSG_PEEK));
    say("peek at its length", recv(s, data, 2, MSG_PEEK | MSG_TRUNC));
    struct iovec vec[2] = {{data, 2}, {data + 2, 2}};
    struct msghdr m = {.msg_iov = vec, .msg_iovlen = 2, .msg_name = &name, .msg_namelen = sizeof name};
    say("recvmsg", recvmsg(s, &m, 0));
    printf("%s, cut: %d, length of the name: %u\n", data, (m.msg_flags & MSG_TRUNC) != 0, m.msg_namelen);
    wait_for(s, POLLIN);
    say("of length 0", recv(s, data, sizeof data, 0));
    wait_for(s, POLLIN);
    say("MSG_TRUNC", recv(s, data, 3, MSG_TRUNC));
    printf("%.4s\n", data);
    say("none is left", recv(s, data, sizeof data, MSG_DONTWAIT));
    say("FIONREAD", ioctl(s, FIONREAD, &n));
    printf("%d\n", n);
    say("out of band", recv(s, data, sizeof data, MSG_OOB | MSG_DONTWAIT));
    say("send out of band", send_at(c, "x", 1, MSG_OOB, &at));
    say("too long", send_at(c, long_one, 70000, 0, &at));
    struct iovec out[3] = {{"a", 1}, {"", 0}, {"bcd", 3}};
    say("connect", connect(c, (struct sockaddr *)&at, sizeof at));
    say("writev", writev(c, out, 3));
    say("write", write(c, "ef", 2));
    struct msghdr to = {.msg_iov = out, .msg_iovlen = 1, .msg_name = &at, .msg_namelen = sizeof at};
    say("sendmsg with a name", sendmsg(c, &to, 0));
    for (int i = 0; i < 3; i++) {
        memset(data, 0, sizeof data);
        wait_for(s, POLLIN);
        say("read", read(s, data, sizeof data));
        printf("%s\n", data);
    }
    int on = 1;
    say("FIONBIO", ioctl(s, FIONBIO, &on));
    say("read", read(s, data, 1));
    say("F_SETFL", fcntl(s, F_SETFL, 0));
    struct timeval t = {0, 1000};
    say("SO_RCVTIMEO", setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t));
    say("read in time", read(s, data, 1));
}

static void many(void)
{
    struct sockaddr_in at, names_of[4];
    char data[4][8] = {{0}};
    struct iovec in[4], out[3] = {{"one", 3}, {"two", 3}, {"three", 5}};
    struct mmsghdr sent[3] = {0}, got[4] = {0};
    int s = bound(&at), c = new_socket();
    for (int i = 0; i < 3; i++)
        sent[i].msg_hdr =
            (struct msghdr){.msg_iov = &out[i], .msg_iovlen = 1, .msg_name = &at, .msg_namelen = sizeof at};
    for (int i = 0; i < 4; i++) {
        in[i] = (struct iovec){data[i], 4};
        got[i].msg_hdr = (struct msghdr){
            .msg_iov = &in[i], .msg_iovlen = 1, .msg_name = &names_of[i], .msg_namelen = sizeof names_of[i]};
    }
    say("recvmmsg of none", recvmmsg(s, got, 4, MSG_DONTWAIT, NULL));
    say("sendmmsg", sendmmsg(c, sent, 3, 0));
    printf("%u %u %u\n", sent[0].msg_len, sent[1].msg_len, sent[2].msg_len);
    wait_for(s, POLLIN);
    say("recvmmsg", recvmmsg(s, got, 2, 0, NULL));
    say("the rest", recvmmsg(s, got + 2, 2, MSG_WAITFORONE, NULL));
    for (int i = 0; i < 3; i++)
        printf("%.4s %u %d\n", data[i], got[i].msg_len, (got[i].msg_hdr.msg_flags & MSG_TRUNC) != 0);
    struct timespec t = {0, 2000000}, no_time = {0, -1};
    say("a wrong time", recvmmsg(s, got, 1, 0, &no_time));
    t.tv_nsec = 0;
    send_at(c, "x", 1, 0, &at);
    say("no time", recvmmsg(s, got, 4, 0, &t));
    sent[1].msg_hdr.msg_namelen = 2;
    say("the second is wrong", sendmmsg(c, sent, 3, 0));
    say("all are", sendmmsg(c, sent + 1, 2, 0));
    say("none", sendmmsg(c, sent, 0, 0));
}

static void refused(void)
{
    struct sockaddr_in at;
    int error = 0, s = bound(&at), c = new_socket();
    socklen_t len = sizeof error;
    char data[8];
    close(s); /* nobody has the port now */
    say("to nobody", send_at(c, "x", 1, 0, &at));
    say("unconnected: not told", recv(c, data, 8, MSG_DONTWAIT));
    for (int how = 0; how < 4; how++) {
        say("connect", connect(c, (struct sockaddr *)&at, sizeof at));
        say("send", send(c, "x", 1, 0));
        wait_for(c, POLLERR);
        struct pollfd p = {c, POLLIN | POLLOUT, 0};
        say("poll", poll(&p, 1, 0));
        say_events("events", (unsigned)p.revents);
        if (how == 0)
            say("recv", recv(c, data, 8, 0));
        if (how == 1)
            say("send", send(c, "x", 1, 0));
        if (how == 2) {
            say("SO_ERROR", getsockopt(c, SOL_SOCKET, SO_ERROR, &error, &len));
            printf("%s\n", error ? name_of(error) : "none");
        }
        if (how == 3)
            say("peek", recv(c, data, 8, MSG_PEEK));
        say("it is told once", recv(c, data, 8, MSG_DONTWAIT));
    }
}

static void *send_late(void *arg)
{
    usleep(2000);
    send(*(int *)arg, "late", 4, 0);
    return NULL;
}

static void waits(void)
{
    int a, b, epfd = epoll_create1(0);
    pthread_t thread;
    struct epoll_event e = {.events = EPOLLIN, .data.fd = 7};
    char data[8];
    fd_set in;
    pair(&a, &b);
    say("ADD", epoll_ctl(epfd, EPOLL_CTL_ADD, a, &e));
    for (int i = 0; i < 4; i++) {
        pthread_create(&thread, NULL, send_late, &b);
        if (i == 0)
            say("epoll_wait", epoll_wait(epfd, &e, 1, 10000));
        if (i == 1) {
            FD_ZERO(&in);
            FD_SET(a, &in);
            say("select", select(a + 1, &in, NULL, NULL, NULL));
        }
        if (i == 2)
            wait_for(a, POLLIN);
        say("recv", recv(a, data, 8, 0));
        pthread_join(thread, NULL);
    }
    say_told("nothing", epfd);
    e.events = EPOLLIN | EPOLLET;
    say("MOD", epoll_ctl(epfd, EPOLL_CTL_MOD, a, &e));
    for (int i = 0; i < 2; i++) {
        send(b, "x", 1, 0);
        wait_for(a, POLLIN);
        say_told("edge", epfd);
        say_told("not again", epfd);
    }
    e.events = EPOLLIN | EPOLLOUT | EPOLLONESHOT;
    say("MOD", epoll_ctl(epfd, EPOLL_CTL_MOD, a, &e));
    say_told("once", epfd);
    say_told("no more", epfd);
    say("DEL", epoll_ctl(epfd, EPOLL_CTL_DEL, a, NULL));
    say("DEL again", epoll_ctl(epfd, EPOLL_CTL_DEL, a, NULL));
}

static void *shut_late(void *arg)
{
    usleep(2000);
    shutdown(*(int *)arg, SHUT_RD);
    return NULL;
}

static void shut(void)
{
    int a, b, fresh = new_socket();
    pthread_t thread;
    char data[8];
    struct pollfd p;
    say("of a fresh one", shutdown(fresh, SHUT_RDWR));
    pair(&a, &b);
    say("no such side", shutdown(a, 7));
    pthread_create(&thread, NULL, shut_late, &a);
    say("recv that waits", recv(a, data, 8, 0));
    pthread_join(thread, NULL);
    p = (struct pollfd){a, POLLIN | POLLOUT | POLLRDHUP, 0};
    say("poll", poll(&p, 1, 0));
    say_events("events", (unsigned)p.revents);
    say("recv at once", recv(a, data, 8, MSG_DONTWAIT));
    say("send goes on", send(a, "x", 1, 0));
    say("SHUT_WR", shutdown(a, SHUT_WR));
    say("send", send(a, "x", 1, 0));
    say("poll", poll(&p, 1, 0));
    say_events("events", (unsigned)p.revents);
}

static void shared(void)
{
    int on = 1, sum = 0;
    char data[8];
    for (int option = 0; option < 2; option++) {
        struct sockaddr_in at = here;
        socklen_t len = sizeof at;
        int s[2];
        for (int i = 0; i < 2; i++) {
            s[i] = new_socket();
            say("option", setsockopt(s[i], SOL_SOCKET, option ? SO_REUSEADDR : SO_REUSEPORT, &on, sizeof on));
            say("bind", bind(s[i], (struct sockaddr *)&at, sizeof at));
            getsockname(s[i], (struct sockaddr *)&at, &len);
        }
        int other = new_socket();
        say("one that does not share", bind(other, (struct sockaddr *)&at, sizeof at));
        for (int i = 0; i < 8; i++) {
            int c = new_socket();
            send_at(c, "x", 1, 0, &at);
            struct pollfd p[2] = {{s[0], POLLIN, 0}, {s[1], POLLIN, 0}};
            if (poll(p, 2, 10000) != 1)
                printf("waited in vain\n");
            sum += recv(s[p[1].revents != 0], data, 8, MSG_DONTWAIT) == 1;
            close(c);
        }
        printf("each came to one: %d\n", sum);
        close(s[0]);
        close(s[1]);
        close(other);
    }
}

static void elsewhere(void)
{
    struct sockaddr_in linux_at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}, name;
    socklen_t len = sizeof linux_at;
    char data[8];
    int server = new_socket(), one = new_socket(), two = new_socket();
    say("bind on 127.0.0.1", bind(server, (struct sockaddr *)&linux_at, sizeof linux_at));
    getsockname(server, (struct sockaddr *)&linux_at, &len);
    say("sendto", send_at(one, "x", 1, 0, &linux_at));
    wait_for(server, POLLIN);
    len = sizeof name;
    say("recvfrom", recvfrom(server, data, 8, 0, (struct sockaddr *)&name, &len));
    say("answer", send_at(server, "yz", 2, 0, &name));
    wait_for(one, POLLIN);
    say("recv", recv(one, data, 8, 0));
    say("connect", connect(two, (struct sockaddr *)&linux_at, sizeof linux_at));
    say("send", send(two, "abc", 3, 0));
    wait_for(server, POLLIN);
    say("recv", recv(server, data, 8, 0));
}

/* Sockets of ours that send to an address of Linux: one whose port nobody named, and a server's. */
static void send_apart(void)
{
    struct sockaddr_in linux_at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}, name, at, named;
    socklen_t len = sizeof linux_at;
    char data[8];
    int to = new_socket(), one = bound(&at), two = bound(&named);
    bind(to, (struct sockaddr *)&linux_at, sizeof linux_at);
    getsockname(to, (struct sockaddr *)&linux_at, &len);
    say("sendto", send_at(one, "x", 1, 0, &linux_at));
    wait_for(to, POLLIN);
    len = sizeof name;
    say("recvfrom", recvfrom(to, data, 8, 0, (struct sockaddr *)&name, &len));
    printf("the same port: %d\n", name.sin_port == at.sin_port);
    say("answer", send_at(to, "yz", 2, 0, &name));
    wait_for(one, POLLIN);
    say("recv", recv(one, data, 8, 0));
    close(two);
    two = new_socket();
    say("bind by name", bind(two, (struct sockaddr *)&named, sizeof named));
    say("sendto", send_at(two, "abc", 3, 0, &linux_at));
    wait_for(to, POLLIN);
    say("recv", recv(to, data, 8, 0));
    int own = new_socket();
    say("to the server", send_at(own, "own", 3, 0, &named));
    wait_for(two, POLLIN);
    say("recv", recv(two, data, 8, 0));
}

static void copies(void)
{
    int a, b;
    char data[8];
    pair(&a, &b);
    int copy = dup(a);
    say("close", close(a));
    say("send by the copy", send(copy, "ab", 2, 0));
    wait_for(b, POLLIN);
    say("recv", recv(b, data, 8, 0));
    say("close", close(copy));
    say("send to nobody", send(b, "x", 1, 0));
    wait_for(b, POLLERR);
    say("recv", recv(b, data, 8, 0));
    say("recv of what is closed", recv(copy, data, 8, 0));
}

/* What was sent before a connect was sent to the socket as it was before. */
static void reconnected(void)
{
    struct sockaddr_in at, other_at;
    struct sockaddr nobody = {.sa_family = AF_UNSPEC};
    char data[8];
    for (int i = 0; i < 4; i++) {
        int one = bound(&at), other = bound(&other_at);
        struct sockaddr *next = i % 2 ? (struct sockaddr *)&at : &nobody;
        say("connect", connect(one, (struct sockaddr *)&other_at, sizeof other_at));
        say("not from whom it is connected to", send_at(one, "x", 1, 0, &at));
        say("connect again", connect(one, next, sizeof at));
        say("from anybody", send_at(other, "abc", 3, 0, &other_at));
        say("connect other", connect(other, (struct sockaddr *)&at, sizeof at));
        wait_for(other, POLLIN);
        say("recv", recv(other, data, 8, 0));
        say("recv", recv(one, data, 8, MSG_DONTWAIT));
        close(one);
        close(other);
    }
}

/* As often as one likes: nobody else is asked. */
static void refused_often(void)
{
    struct sockaddr_in at;
    int s = bound(&at), c = new_socket(), told = 0;
    char data[8];
    close(s);
    say("connect", connect(c, (struct sockaddr *)&at, sizeof at));
    for (int i = 0; i < 1000; i++) {
        say("send", send(c, "x", 1, 0));
        if (poll(&(struct pollfd){c, POLLERR, 0}, 1, 1000) != 1) /* Linux, too, may take a moment */
            break;
        told += recv(c, data, 8, MSG_DONTWAIT) < 0 && errno == ECONNREFUSED;
    }
    printf("told: %d\n", told);
}

static const struct sequence sequences[] = {{"names", names},
                                            {"bytes", bytes},
                                            {"many", many},
                                            {"refused", refused},
                                            {"refused_often", refused_often},
                                            {"waits", waits},
                                            {"shut", shut},
                                            {"shared", shared},
                                            {"copies", copies},
                                            {"elsewhere", elsewhere},
                                            {"apart", send_apart},
                                            {"reconnected", reconnected},
                                            {NULL, NULL}};

int main(int argc, char **argv)
{
    return run_with_address(sequences, argc, argv);
}

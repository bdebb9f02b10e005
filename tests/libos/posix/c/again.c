/* A program that knows nothing of corelane: sockets that are used once more, or in an order that no program means. It
 * prints the results of its calls; the test runs it on Linux' sockets and on ours, and compares (../test_twin.py).
 *
 *   again ADDRESS SEQUENCE */
#include "pairs.h"

static void say_name(const char *what, int fd)
{
    struct sockaddr_in at = {0};
    socklen_t len = sizeof at;
    say(what, getsockname(fd, (struct sockaddr *)&at, &len));
    printf("address: %d, port: %d\n", at.sin_addr.s_addr == here.sin_addr.s_addr, at.sin_port != 0);
}

static void say_poll(int fd)
{
    struct pollfd p = {fd, POLLIN | POLLOUT | POLLRDHUP, 0};
    say("poll", poll(&p, 1, 0));
    say_events("events", (unsigned)p.revents);
}

/* A shutdown that fails, as there is no connection, is remembered. */
static void shut_before(int how)
{
    struct sockaddr_in at;
    char data[8];
    int l = listener(&at), c = socket(AF_INET, SOCK_STREAM, 0);
    say("shutdown", shutdown(c, how));
    say_poll(c);
    say("connect", connect(c, (struct sockaddr *)&at, sizeof at));
    int s = say_fd("accept", accept(l, NULL, NULL));
    say_poll(c);
    say("send", send(c, "x", 1, MSG_NOSIGNAL));
    if (how == SHUT_RD)
        wait_for(s, POLLIN);
    say_poll(s);
    say("recv", recv(c, data, 8, MSG_DONTWAIT));
    say("write", write(s, "abc", 3));
    wait_for(c, POLLIN);
    if (how == SHUT_WR)
        say("recv", recv(c, data, 8, MSG_DONTWAIT));
    say("shutdown", shutdown(c, SHUT_WR));
    wait_for(s, POLLRDHUP);
    say_poll(s);
}

static void shut_first(void)
{
    shut_before(SHUT_WR);
}

static void shut_first_to_read(void)
{
    shut_before(SHUT_RD);
}

/* The same of one that listens then: what it takes has said its end. */
static void shut_listener(void)
{
    struct sockaddr_in at = here;
    socklen_t len = sizeof at;
    char data[8];
    int l = socket(AF_INET, SOCK_STREAM, 0), c = socket(AF_INET, SOCK_STREAM, 0);
    say("bind", bind(l, (struct sockaddr *)&at, sizeof at));
    say("shutdown", shutdown(l, SHUT_WR));
    say("listen", listen(l, 4));
    getsockname(l, (struct sockaddr *)&at, &len);
    say("connect", connect(c, (struct sockaddr *)&at, sizeof at));
    wait_for(c, POLLRDHUP);
    say("read", read(c, data, 8));
    int s = say_fd("accept", accept(l, NULL, NULL));
    say("send", send(s, "x", 1, MSG_NOSIGNAL));
    say("write", write(c, "abc", 3));
    wait_for(s, POLLIN);
    say_poll(s);
    say("read", read(s, data, 8));
    say("close", close(c));
    wait_for(s, POLLRDHUP);
    say("read", read(s, data, 8));
    say_poll(s);
}

/* Until the connection is over at both ends: its peer's address is gone with it. */
static void wait_until_over(int fd)
{
    struct sockaddr_in at;
    for (int i = 0; i < 10000; i++) {
        socklen_t len = sizeof at;
        if (getpeername(fd, (struct sockaddr *)&at, &len) < 0)
            return;
        poll(NULL, 0, i > 100);
    }
    printf("waited in vain\n");
}

/* A connection that is over may be bound, and is no more than that. */
static void over(void)
{
    struct sockaddr_in at = here;
    char data[8];
    int c, s;
    pair(&c, &s);
    say("bind of an open one", bind(c, (struct sockaddr *)&at, sizeof at));
    say("write", write(s, "abc", 3));
    wait_for(c, POLLIN);
    say("shutdown", shutdown(c, SHUT_WR));
    wait_for(s, POLLRDHUP);
    say("shutdown", shutdown(s, SHUT_WR));
    wait_until_over(c);
    wait_until_over(s);
    say("shutdown again", shutdown(c, SHUT_WR));
    say("shutdown again", shutdown(s, SHUT_RDWR));
    say_name("name", c);
    say("bind", bind(c, (struct sockaddr *)&at, sizeof at));
    say_name("name", c);
    say("bind again", bind(c, (struct sockaddr *)&at, sizeof at));
    say("bind", bind(s, (struct sockaddr *)&at, sizeof at));
    say("listen", listen(c, 1));
    say("connect", connect(c, (struct sockaddr *)&at, sizeof at));
    say("read", read(c, data, 8));
    say("read", read(c, data, 8));
    say_poll(c);
}

/* A connection that was refused leaves a name. */
static void refused(void)
{
    struct sockaddr_in at;
    int l = listener(&at), c = socket(AF_INET, SOCK_STREAM, 0), b = socket(AF_INET, SOCK_STREAM, 0);
    close(l);
    say("connect", connect(c, (struct sockaddr *)&at, sizeof at));
    say_name("name", c);
    say("bind", bind(b, (struct sockaddr *)&here, sizeof here));
    say("connect of one that is bound", connect(b, (struct sockaddr *)&at, sizeof at));
    say_name("name", b);
    l = listener(&at);
    say("connect", connect(c, (struct sockaddr *)&at, sizeof at));
    say("connect", connect(b, (struct sockaddr *)&at, sizeof at));
    say_name("name", b);
}

static const struct sequence sequences[] = {{"shut_first", shut_first},
                                            {"shut_first_to_read", shut_first_to_read},
                                            {"shut_listener", shut_listener},
                                            {"over", over},
                                            {"refused", refused},
                                            {NULL, NULL}};

int main(int argc, char **argv)
{
    return run_with_address(sequences, argc, argv);
}

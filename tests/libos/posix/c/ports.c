/* A program that knows nothing of corelane: who has a port, and for how long. It prints the results; the test runs it
 * on Linux' sockets and on ours, and compares (../test_twin.py).
 *
 *   ports ADDRESS SEQUENCE */
#include "pairs.h"

static int shares; /* SO_REUSEADDR of the sockets that are made */

static int stream(void)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &shares, sizeof shares))
        printf("SO_REUSEADDR: %s\n", name_of(errno));
    return fd;
}

static long bind_at(int fd, const struct sockaddr_in *at)
{
    return bind(fd, (const struct sockaddr *)at, sizeof *at);
}

static long connect_to(int fd, const struct sockaddr_in *at)
{
    return connect(fd, (const struct sockaddr *)at, sizeof *at);
}

static struct sockaddr_in name_of_fd(int fd)
{
    struct sockaddr_in at = here;
    socklen_t len = sizeof at;
    say("getsockname", getsockname(fd, (struct sockaddr *)&at, &len));
    return at;
}

static void try_to_bind(const char *what, const struct sockaddr_in *at)
{
    int fd = stream();
    say(what, bind_at(fd, at));
    close(fd);
}

/* A port that is free: one that was had, and is given back. */
static struct sockaddr_in some_port(void)
{
    struct sockaddr_in at;
    close(listener(&at));
    return at;
}

/* Until it is over at both ends, as Linux sees it. */
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

/* The port of a connection that is open, at either end, is taken for who does not share it. */
static void of_open_ones(void)
{
    struct sockaddr_in at = some_port(), own;
    for (shares = 0; shares < 2; shares++) {
        int l = stream(), c = stream(), value = -1;
        socklen_t len = sizeof value;
        say("bind", bind_at(l, &at));
        say("listen", listen(l, 4));
        say("connect", connect_to(c, &at));
        int s = say_fd("accept", accept(l, NULL, NULL));
        say("SO_REUSEADDR", getsockopt(s, SOL_SOCKET, SO_REUSEADDR, &value, &len));
        printf("%d\n", value);
        own = name_of_fd(c);
        try_to_bind("bind to the listener's", &at);
        try_to_bind("bind to that of who opened it", &own);
        say("close of the listener", close(l));
        try_to_bind("bind to that of who accepted it", &at);
        int before = shares;
        shares = !shares;
        try_to_bind("by the other kind", &at);
        shares = before;
        struct sockaddr_in any = at;
        any.sin_addr.s_addr = INADDR_ANY;
        try_to_bind("bind at all addresses", &any);
        struct linger none = {1, 0}; /* nothing is left of it */
        setsockopt(c, SOL_SOCKET, SO_LINGER, &none, sizeof none);
        say("close", close(c));
        wait_for(s, POLLERR);
        try_to_bind("bind when it is over", &at);
        try_to_bind("bind when it is over", &own);
        say("bind of the one that was accepted", bind_at(s, &here));
        say("close", close(s));
    }
}

/* Two share one until one of them listens. */
static void shared(void)
{
    struct sockaddr_in at = some_port();
    shares = 1;
    int a = stream(), b = stream(), c = stream(), d = stream();
    say("bind", bind_at(a, &at));
    say("bind", bind_at(b, &at));
    say("bind", bind_at(d, &at));
    shares = 0;
    try_to_bind("bind of one that does not share", &at);
    say("listen", listen(a, 4));
    say("listen", listen(b, 4));
    say("bind", bind_at(c, &at));
    say("close", close(a));
    say("bind", bind_at(c, &at));
    say("listen", listen(b, 4));
    struct sockaddr_in to;
    int l = listener(&to);
    say("connect", connect_to(c, &to));
    say("connect by the same pair of ends", connect_to(d, &to));
    say("accept", accept(l, NULL, NULL) < 0 ? -1 : 0);
}

/* A listener that is shut has its port still if it asked for that by number. */
static void of_a_shut_listener(void)
{
    for (int by_number = 0; by_number < 2; by_number++)
        for (int how = 0; how < 2; how++) {
            struct sockaddr_in at = some_port(), chosen = here;
            int l = stream(), b = stream(), c = stream();
            say("bind", bind_at(l, by_number ? &at : &chosen));
            at = name_of_fd(l);
            say("listen", listen(l, 4));
            say("shutdown of writing", shutdown(l, SHUT_WR));
            say("bind while it listens", bind_at(b, &at));
            if (how)
                say("to nobody", connect(l, &(struct sockaddr){.sa_family = AF_UNSPEC}, sizeof(struct sockaddr)));
            else
                say("shutdown", shutdown(l, SHUT_RD));
            struct sockaddr_in now = name_of_fd(l);
            printf("the same name: %d\n", now.sin_port == at.sin_port);
            say("connect", connect_to(c, &at));
            say("bind to its port", bind_at(b, &at));
            say("bind it", bind_at(l, &here));
            say("listen", listen(l, 4));
            now = name_of_fd(l);
            printf("the same port: %d\n", now.sin_port == at.sin_port);
            say("connect", connect_to(socket(AF_INET, SOCK_STREAM, 0), &now));
            int s = say_fd("accept", accept(l, NULL, NULL));
            say("shutdown of both", shutdown(l, SHUT_RDWR));
            say("listen with a connection open", listen(l, 4));
            close(s);
            close(l);
            close(b);
            close(c);
        }
}

/* The same of one that shares. */
static void of_a_shut_listener_that_shares(void)
{
    shares = 1;
    of_a_shut_listener();
}

/* One that was bound by number keeps it when its connection is over; of others it was only lent. */
static void after_a_connection(void)
{
    struct sockaddr_in to, at = some_port();
    int l = listener(&to);
    for (int by_number = 0; by_number < 2; by_number++) {
        int c = stream();
        say("bind", bind_at(c, by_number ? &at : &here));
        struct sockaddr_in own = name_of_fd(c);
        say("connect", connect_to(c, &to));
        int s = say_fd("accept", accept(l, NULL, NULL));
        say("shutdown", shutdown(s, SHUT_WR)); /* so what remains of it is at that end */
        wait_for(c, POLLRDHUP);
        say("shutdown", shutdown(c, SHUT_WR));
        wait_until_over(c);
        try_to_bind("bind to its port", &own);
        say("bind it", bind_at(c, &here));
        close(c);
        try_to_bind("bind when it is closed", &own);
    }
}

static const struct sequence sequences[] = {{"of_open_ones", of_open_ones},
                                            {"shared", shared},
                                            {"of_a_shut_listener", of_a_shut_listener},
                                            {"of_a_shut_listener_that_shares", of_a_shut_listener_that_shares},
                                            {"after_a_connection", after_a_connection},
                                            {NULL, NULL}};

int main(int argc, char **argv)
{
    return run_with_address(sequences, argc, argv);
}

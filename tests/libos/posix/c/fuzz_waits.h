/* Calls that look, wait, copy and ask, as the program that draws calls makes them (fuzz.c). */
#ifndef TESTS_LIBOS_POSIX_FUZZ_WAITS_H
#define TESTS_LIBOS_POSIX_FUZZ_WAITS_H

#include "fuzz_names.h"

#define SETS 2
#define NESTED 1000 /* what the second set is known by in the first */
#define COPIES 200  /* numbers of copies begin there */

static int epfds[SETS];

/* Descriptors. */

static void copy(void)
{
    struct slot *s = anyone();
    unsigned how = draw(3);
    if (!s || s->fds[1] >= 0)
        return;
    int number = COPIES + index_of(s);
    for (const struct slot *other = slots; other < slots + SLOTS; other++)
        if (other->kind != FREE && (other->fds[0] == number || other->fds[1] == number))
            return;
    int fd = how == 0   ? fcntl(s->fds[0], F_DUPFD, number)
             : how == 1 ? dup2(s->fds[0], number)
                        : dup3(s->fds[0], number, O_CLOEXEC);
    printf("%d.copy: %d\n", index_of(s), fd);
    s->fds[1] = fd;
}

/* Of two descriptors one is closed: the other goes on. */
static void close_one(void)
{
    struct slot *s = anyone();
    if (!s || s->fds[1] < 0)
        return;
    unsigned which = draw(2);
    note(s, which ? "close of the copy" : "close of the first", close(s->fds[which]));
    if (!which)
        s->fds[0] = s->fds[1];
    s->fds[1] = -1;
}

/* Over another one's copy. */
static void copy_over(void)
{
    struct slot *s = anyone(), *to = anyone();
    if (!s || !to || s == to || s->fds[1] >= 0 || to->fds[1] < 0)
        return;
    printf("%d.copy over: %d\n", index_of(s), dup2(s->fds[0], to->fds[1]));
    s->fds[1] = to->fds[1];
    to->fds[1] = -1;
}

static void set_blocking(void)
{
    struct slot *s = anyone();
    int on = (int)draw(2);
    if (!s || s->kind == LISTENS || s->kind == DATAGRAM)
        return;
    s->non_blocking = on;
    if (draw(2))
        note(s, "FIONBIO", ioctl(fd_of(s), FIONBIO, &on));
    else
        note(s, "F_SETFL", fcntl(fd_of(s), F_SETFL, on ? O_NONBLOCK : 0));
    printf("%d\n", (fcntl(fd_of(s), F_GETFL) & O_NONBLOCK) != 0);
}

/* An option that is a number, set and read again. */
static void set_number(const struct slot *s, const char *what, int level, int name, int value)
{
    int found = -1;
    socklen_t len = sizeof found;
    note(s, what, setsockopt(fd_of(s), level, name, &value, sizeof value));
    note(s, "its value", getsockopt(fd_of(s), level, name, &found, &len));
    printf("%d\n", found);
}

/* Of those that a socket takes in some states alone; off, or a number that is none. */
static void options_of_states(void)
{
    static const int names[] = {TCP_WINDOW_CLAMP, TCP_FASTOPEN,     TCP_FASTOPEN_CONNECT, TCP_FASTOPEN_NO_COOKIE,
                                TCP_REPAIR,       TCP_REPAIR_QUEUE, TCP_REPAIR_OPTIONS,   TCP_QUEUE_SEQ,
                                TCP_TIMESTAMP,    TCP_FASTOPEN_KEY};
    struct slot *s = anyone();
    unsigned which = draw(sizeof names / sizeof *names);
    int value = names[which] != TCP_WINDOW_CLAMP && draw(2) ? -2 : 0;
    bool inherited = s && s->kind == LISTENS && s->n; /* as in `options` */
    if (!s || inherited)
        return;
    printf("%d to %d, ", names[which], value);
    note(s, "an option", setsockopt(fd_of(s), IPPROTO_TCP, names[which], &value, sizeof value));
}

static void options(void)
{
    static const struct number {
        const char *what;
        int level, name;
    } numbers[] = {{"TCP_NODELAY", IPPROTO_TCP, TCP_NODELAY},  {"SO_KEEPALIVE", SOL_SOCKET, SO_KEEPALIVE},
                   {"TCP_KEEPCNT", IPPROTO_TCP, TCP_KEEPCNT},  {"TCP_QUICKACK", IPPROTO_TCP, TCP_QUICKACK},
                   {"SO_REUSEADDR", SOL_SOCKET, SO_REUSEADDR}, {"SO_OOBINLINE", SOL_SOCKET, SO_OOBINLINE}};
    static const int asked[] = {SO_ACCEPTCONN, SO_TYPE, SO_DOMAIN, SO_PROTOCOL, SO_BROADCAST, SO_RCVLOWAT};
    struct slot *s = anyone();
    int value = 0;
    socklen_t len = sizeof value;
    unsigned which = draw(16);
    if (!s)
        return;
    if (which < 6) {
        /* A shared port: bind says of two datagram sockets what it does not of others. Acknowledgements that are held
         * back: one of a SYN, too, and then who connected first is not accepted first. */
        bool of_open = numbers[which].name == SO_REUSEADDR || numbers[which].name == TCP_QUICKACK;
        int number = (int)draw(3);
        if (numbers[which].name == TCP_QUICKACK) /* of 2 the result depends on what is to be acknowledged just then */
            number %= 2;
        bool inherited = s->kind == LISTENS && s->n; /* by who waits there, though not on Linux (docs/posix.md) */
        if (!inherited && (!of_open || s->kind == OPEN))
            set_number(s, numbers[which].what, numbers[which].level, numbers[which].name, number);
    } else if (which < 12) {
        note(s, "an option", getsockopt(fd_of(s), SOL_SOCKET, asked[which - 6], &value, &len));
        printf("%d %u\n", value, len);
    } else if (which < 14) {
        note(s, "SO_ERROR", getsockopt(fd_of(s), SOL_SOCKET, SO_ERROR, &value, &len));
        printf("%s\n", value ? name_of(value) : "none");
        s->told = false;
    } else if (!s->reset) {
        note(s, "FIONREAD", ioctl(fd_of(s), FIONREAD, &value));
        printf("%d\n", value);
    }
}

/* Looking. */

/* Of a select that does not wait: it is over, or wrong. */
static struct timeval no_time(void)
{
    static const struct timeval times[] = {{0, -1},       {-1, 0},       {-1, 999999},   {0, LONG_MAX},
                                           {0, 1l << 32}, {0, LONG_MIN}, {LONG_MAX, -1}, {1, -2000000}};
    return draw(2) ? (struct timeval){0, 0} : times[draw(sizeof times / sizeof *times)];
}

static void look(void)
{
    struct slot *s = anyone();
    fd_set in, out;
    if (!s)
        return;
    int fd = fd_of(s);
    struct timeval t = no_time();
    struct pollfd p = {fd, (short)(POLLIN | (draw(2) ? POLLOUT : 0) | (draw(2) ? POLLRDHUP : 0)), 0};
    note(s, "poll", poll(&p, 1, 0));
    say_events("events", (unsigned)p.revents);
    FD_ZERO(&in);
    FD_ZERO(&out);
    FD_SET(fd, &in);
    FD_SET(fd, &out);
    int upto = fd % 2 ? fd + 1 : getdtablesize(); /* as some programs have it */
    note(s, "select", select(upto, &in, &out, NULL, &t));
    printf("%d %d, %ld %ld left\n", FD_ISSET(fd, &in) != 0, FD_ISSET(fd, &out) != 0, (long)t.tv_sec, t.tv_usec);
    note(s, "ppoll", ppoll(&p, 1, &(struct timespec){0, draw(2) ? 0 : -1}, NULL));
}

/* At all of them, and at one of Linux'. */
static void look_at_all(void)
{
    struct pollfd p[SLOTS + 2];
    struct timespec none = {0, 0};
    fd_set in, out, except;
    int n = 0, most = 0;
    FD_ZERO(&in);
    FD_ZERO(&out);
    FD_ZERO(&except);
    for (const struct slot *s = slots; s < slots + SLOTS; s++)
        if (s->kind != FREE) {
            p[n] = (struct pollfd){fd_of(s), (short)(draw(2) ? POLLIN : POLLIN | POLLOUT | POLLRDHUP), 0};
            FD_SET(p[n].fd, &in);
            FD_SET(p[n].fd, draw(2) ? &out : &except);
            most = p[n].fd > most ? p[n].fd : most;
            n++;
        }
    p[n++] = (struct pollfd){STDOUT_FILENO, POLLPRI, 0};
    p[n++] = (struct pollfd){-1, POLLIN, 0};
    say("poll of all", draw(2) ? poll(p, (nfds_t)n, 0) : ppoll(p, (nfds_t)n, &none, NULL));
    for (int i = 0; i < n; i++)
        say_events("of them", (unsigned)p[i].revents);
    say("select of all", pselect(most + 1, &in, &out, &except, &none, NULL));
    for (int i = 0; i + 2 < n; i++)
        printf("%d%d%d ", FD_ISSET(p[i].fd, &in) != 0, FD_ISSET(p[i].fd, &out) != 0, FD_ISSET(p[i].fd, &except) != 0);
    printf("\n");
}

static void watch_one(void)
{
    static const unsigned how[] = {EPOLLIN,
                                   EPOLLIN | EPOLLOUT,
                                   EPOLLIN | EPOLLRDHUP,
                                   EPOLLIN | EPOLLONESHOT,
                                   EPOLLOUT,
                                   EPOLLIN | EPOLLOUT | EPOLLONESHOT,
                                   EPOLLIN | EPOLLEXCLUSIVE,
                                   EPOLLIN | EPOLLRDHUP | EPOLLEXCLUSIVE,
                                   0};
    struct slot *s = anyone();
    int op = draw(3) == 0 ? EPOLL_CTL_DEL : draw(2) ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
    if (!s)
        return;
    unsigned set = draw(SETS), second = s->fds[1] >= 0 && draw(2);
    printf("set %u op %d of the %s: ", set, op, second ? "copy" : "first");
    note(s, "epoll_ctl", watch(epfds[set], op, s->fds[second], how[draw(9)], 2 * (unsigned)index_of(s) + second));
}

/* One set in the other. */
static void nest(void)
{
    static bool inside;
    if (draw(4) == 0)
        say("nest", watch(epfds[0], (inside = !inside) ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, epfds[1], EPOLLIN, NESTED));
}

static void wait_now(void)
{
    struct epoll_event e[4 * SLOTS];
    unsigned found[2 * SLOTS] = {0}, set = draw(SETS), nested = 0;
    int n = epoll_wait(epfds[set], e, 4 * SLOTS, 0);
    printf("set %u ", set);
    say("epoll_wait", n);
    for (int i = 0; i < n; i++)
        if (e[i].data.u32 == NESTED)
            nested = e[i].events;
        else
            found[e[i].data.u32 % (2 * SLOTS)] |= e[i].events;
    for (int i = 0; i < 2 * SLOTS; i++)
        if (found[i]) {
            printf("%d", i);
            say_events("", found[i]);
        }
    if (nested)
        say_events("nested", nested);
}

#endif

/* A program that knows nothing of corelane: options that are asked for, and flags of send and recv. It prints the
 * results of its calls; the test runs it on Linux' sockets and on ours, and compares (../test_twin.py).
 *
 *   asks ADDRESS SEQUENCE */
#include "pairs.h"

#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <sched.h>
#include <stdbool.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <termios.h>

static int number_of(int fd, int level, int name)
{
    int value = -1;
    socklen_t len = sizeof value;
    return getsockopt(fd, level, name, &value, &len) ? -1 : value;
}

/* What differs between links is not printed. */
static void sizes(void)
{
    struct sockaddr_in at = here;
    socklen_t len = sizeof at;
    int c, s, udp = socket(AF_INET, SOCK_DGRAM, 0), fresh = socket(AF_INET, SOCK_STREAM, 0);
    pair(&c, &s);
    printf("segments: %d %d\n", number_of(c, IPPROTO_TCP, TCP_MAXSEG) >= 1000,
           number_of(s, IPPROTO_TCP, TCP_MAXSEG) >= 1000);
    say("of a fresh one", number_of(fresh, IPPROTO_TCP, TCP_MAXSEG));
    printf("packets: %d %d\n", number_of(c, IPPROTO_IP, IP_MTU) >= 1040, number_of(s, IPPROTO_IP, IP_MTU) >= 1040);
    say("of a fresh one", number_of(fresh, IPPROTO_IP, IP_MTU));
    say("of a datagram socket", number_of(udp, IPPROTO_IP, IP_MTU));
    say("bind", bind(udp, (struct sockaddr *)&at, sizeof at));
    getsockname(udp, (struct sockaddr *)&at, &len);
    say("connect", connect(udp, (struct sockaddr *)&at, sizeof at));
    printf("of a connected one: %d\n", number_of(udp, IPPROTO_IP, IP_MTU) >= 1040);
}

static void wait_for_bytes(int fd, int n)
{
    for (int there = 0; there < n; sched_yield())
        ioctl(fd, FIONREAD, &there);
}

/* Bytes that nobody wants to have. */
static void drops(void)
{
    int c, s;
    char data[8] = "-------";
    struct iovec vec[2] = {{data, 1}, {data + 1, 2}};
    struct msghdr m = {.msg_iov = vec, .msg_iovlen = 2};
    pair(&c, &s);
    say("nothing", recv(s, NULL, 1000000, MSG_TRUNC | MSG_DONTWAIT));
    say("write", write(c, "0123456789", 10));
    wait_for_bytes(s, 10);
    say("peek", recv(s, NULL, 4, MSG_TRUNC | MSG_PEEK));
    say("drop", recv(s, NULL, 4, MSG_TRUNC));
    say("drop pieces", recvmsg(s, &m, MSG_TRUNC));
    printf("%s\n", data);
    say("read", read(s, data, 1));
    say("write", write(c, "ab", 2));
    wait_for_bytes(s, 4);
    say("drop all", recv(s, NULL, 4, MSG_TRUNC | MSG_WAITALL));
    printf("%s\n", data);
    say("write", write(c, "ab", 2));
    shutdown(c, SHUT_WR);
    wait_for_bytes(s, 2);
    say("drop more than there is", recv(s, NULL, 1 << 30, MSG_TRUNC | MSG_WAITALL));
    say("the end", recv(s, NULL, 1000, MSG_TRUNC));
}

/* Without SO_ZEROCOPY it is nothing. */
static void zero_copy(void)
{
    int c, s;
    char data[8];
    pair(&c, &s);
    say("SO_ZEROCOPY off", setsockopt(c, SOL_SOCKET, SO_ZEROCOPY, &(int){0}, sizeof(int)));
    say("send", send(c, "abc", 3, MSG_ZEROCOPY));
    say("read", recv(s, data, 3, MSG_WAITALL));
    say("SO_ERROR", number_of(c, SOL_SOCKET, SO_ERROR));
}

static void say_congestion(const char *what, int fd)
{
    char name[16] = "";
    socklen_t len = sizeof name;
    say(what, getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &len));
    printf("%s\n", name);
}

static void congestion(void)
{
    struct sockaddr_in at;
    int l = listener(&at), c = socket(AF_INET, SOCK_STREAM, 0);
    say("of a listener", setsockopt(l, IPPROTO_TCP, TCP_CONGESTION, "reno", 4));
    say("of a fresh one", setsockopt(c, IPPROTO_TCP, TCP_CONGESTION, "reno", 4));
    say("an unknown one", setsockopt(c, IPPROTO_TCP, TCP_CONGESTION, "unknown", 7));
    say("connect", connect(c, (struct sockaddr *)&at, sizeof at));
    wait_for(l, POLLIN);
    int s = accept(l, NULL, NULL);
    say_congestion("of who connected", c);
    say_congestion("of what was accepted", s);
    say("of a connection", setsockopt(s, IPPROTO_TCP, TCP_CONGESTION, "cubic", 5));
    say_congestion("now", s);
}

#define OPTION(level, name)                                                                                            \
    {                                                                                                                  \
#name, level, name                                                                                             \
    }

/* But what depends on the link, the time and the machine: sizes of buffers that are tuned, TCP_QUICKACK, ... */
static const struct option {
    const char *text;
    int level, name;
} options[] = {OPTION(SOL_SOCKET, SO_TYPE),
               OPTION(SOL_SOCKET, SO_DOMAIN),
               OPTION(SOL_SOCKET, SO_PROTOCOL),
               OPTION(SOL_SOCKET, SO_ACCEPTCONN),
               OPTION(SOL_SOCKET, SO_ERROR),
               OPTION(SOL_SOCKET, SO_KEEPALIVE),
               OPTION(SOL_SOCKET, SO_LINGER),
               OPTION(SOL_SOCKET, SO_OOBINLINE),
               OPTION(SOL_SOCKET, SO_REUSEADDR),
               OPTION(SOL_SOCKET, SO_REUSEPORT),
               OPTION(SOL_SOCKET, SO_RCVLOWAT),
               OPTION(SOL_SOCKET, SO_SNDLOWAT),
               OPTION(SOL_SOCKET, SO_RCVTIMEO),
               OPTION(SOL_SOCKET, SO_SNDTIMEO),
               OPTION(SOL_SOCKET, SO_BROADCAST),
               OPTION(SOL_SOCKET, SO_DEBUG),
               OPTION(SOL_SOCKET, SO_DONTROUTE),
               OPTION(SOL_SOCKET, SO_PRIORITY),
               OPTION(SOL_SOCKET, SO_MARK),
               OPTION(SOL_SOCKET, SO_ZEROCOPY),
               OPTION(SOL_SOCKET, SO_TIMESTAMP),
               OPTION(SOL_SOCKET, SO_PEERCRED),
               OPTION(SOL_SOCKET, SO_BINDTODEVICE),
               OPTION(SOL_SOCKET, 12345),
               OPTION(IPPROTO_TCP, TCP_NODELAY),
               OPTION(IPPROTO_TCP, TCP_CORK),
               OPTION(IPPROTO_TCP, TCP_KEEPIDLE),
               OPTION(IPPROTO_TCP, TCP_KEEPINTVL),
               OPTION(IPPROTO_TCP, TCP_KEEPCNT),
               OPTION(IPPROTO_TCP, TCP_SYNCNT),
               OPTION(IPPROTO_TCP, TCP_LINGER2),
               OPTION(IPPROTO_TCP, TCP_DEFER_ACCEPT),
               OPTION(IPPROTO_TCP, TCP_USER_TIMEOUT),
               OPTION(IPPROTO_TCP, TCP_FASTOPEN),
               OPTION(IPPROTO_TCP, TCP_ULP),
               OPTION(IPPROTO_TCP, TCP_CONGESTION),
               OPTION(IPPROTO_TCP, 12345),
               OPTION(IPPROTO_UDP, UDP_CORK),
               OPTION(IPPROTO_UDP, UDP_SEGMENT),
               OPTION(IPPROTO_IP, IP_TOS),
               OPTION(IPPROTO_IP, IP_TTL),
               OPTION(IPPROTO_IP, IP_MTU_DISCOVER),
               OPTION(IPPROTO_IP, IP_RECVERR),
               OPTION(IPPROTO_IP, IP_PKTINFO),
               OPTION(IPPROTO_IP, IP_FREEBIND),
               OPTION(IPPROTO_IP, IP_TRANSPARENT),
               OPTION(IPPROTO_IP, IP_MULTICAST_LOOP),
               OPTION(IPPROTO_IP, IP_MULTICAST_TTL),
               OPTION(IPPROTO_IP, IP_MULTICAST_IF),
               OPTION(IPPROTO_IP, IP_MULTICAST_ALL),
               OPTION(IPPROTO_IP, IP_RECVTTL),
               OPTION(IPPROTO_IP, IP_OPTIONS),
               OPTION(IPPROTO_IPV6, IPV6_V6ONLY)};

/* What a getter gives in so much room. */
static void say_option(const struct option *o, int fd, socklen_t room)
{
    unsigned char value[32];
    socklen_t len = room;
    memset(value, 0xa5, sizeof value);
    int rc = getsockopt(fd, o->level, o->name, value, &len);
    printf("  %s in %u: %s, %u:", o->text, room, rc ? name_of(errno) : "0", len);
    for (unsigned i = 0; i < 20; i++)
        printf(" %02x", value[i]);
    printf("\n");
}

static void say_options(const char *what, int fd)
{
    printf("%s\n", what);
    for (unsigned i = 0; i < sizeof options / sizeof *options; i++)
        for (socklen_t room = 0; room <= 16; room = room ? 4 * room : 1)
            say_option(&options[i], fd, room);
}

static void getters(void)
{
    struct sockaddr_in at = here;
    int c, s, fresh = socket(AF_INET, SOCK_STREAM, 0), udp = socket(AF_INET, SOCK_DGRAM, 0), l = listener(&at);
    say_options("a fresh one", fresh);
    at.sin_port = 0;
    say("bind", bind(fresh, (struct sockaddr *)&at, sizeof at));
    say_options("a bound one", fresh);
    say_options("a listener", l);
    pair(&c, &s);
    say_options("who connected", c);
    say_options("what was accepted", s);
    say_options("a datagram socket", udp);
    say("bind", bind(udp, (struct sockaddr *)&at, sizeof at));
    say_options("a bound datagram socket", udp);
    close(s);
    wait_for(c, POLLIN);
    say_options("one whose peer has closed", c);
    say("write", write(c, "x", 1));
    wait_for(c, POLLHUP);
    say_options("one that was reset", c);
}

#define VALUES 4

/* But those that are refused, with a sentence (../test_programs.py). */
static void setters(void)
{
    static const int values[VALUES] = {1, 0, -1, 7};
    int c, s, fds[3];
    pair(&c, &s);
    fds[0] = c;
    fds[1] = socket(AF_INET, SOCK_STREAM, 0);
    fds[2] = socket(AF_INET, SOCK_DGRAM, 0);
    for (unsigned k = 0; k < 3; k++)
        for (unsigned i = 0; i < sizeof options / sizeof *options; i++) {
            const struct option *o = &options[i];
            bool refused = o->name == SO_ZEROCOPY || (o->level == IPPROTO_UDP) || o->name == SO_MARK;
            for (unsigned v = 0; v < VALUES && !refused; v++) {
                int rc = setsockopt(fds[k], o->level, o->name, &values[v], sizeof values[v]);
                printf("%u: %s = %d: %s\n", k, o->text, values[v], rc ? name_of(errno) : "0");
                say_option(o, fds[k], 4);
            }
            if (refused)
                continue;
            int rc = setsockopt(fds[k], o->level, o->name, &values[1], 1);
            printf("%u: %s by a byte: %s\n", k, o->text, rc ? name_of(errno) : "0");
            say_option(o, fds[k], 4);
        }
}

/* What a connection has of its listener, and then is given itself. */
static void begun(void)
{
    static const int values[] = {1, 7};
    for (unsigned i = 0; i < 2 * sizeof options / sizeof *options; i++) {
        const struct option *o = &options[i / 2];
        if (o->level == IPPROTO_UDP || o->name == SO_ZEROCOPY || o->name == SO_MARK || o->name == TCP_DEFER_ACCEPT)
            continue; /* refused; or it is not accepted without data */
        struct sockaddr_in at;
        int l = listener(&at), c = socket(AF_INET, SOCK_STREAM, 0);
        say(o->text, setsockopt(l, o->level, o->name, &values[i % 2], sizeof(int)));
        say("connect", connect(c, (struct sockaddr *)&at, sizeof at));
        wait_for(l, POLLIN);
        int s = accept(l, NULL, NULL);
        say_option(o, s, 4);
        say("again", setsockopt(s, o->level, o->name, &values[1 - i % 2], sizeof(int)));
        say_option(o, s, 4);
        close(l);
        close(c);
        close(s);
    }
}

/* SO_PEERNAME, which has a port of its own each time. */
static void say_peer(const char *what, int fd)
{
    static const socklen_t rooms[] = {0, 1, 2, sizeof here, sizeof here + 1, 64};
    struct sockaddr_storage peer, found;
    for (unsigned i = 0; i < sizeof rooms / sizeof *rooms; i++) {
        socklen_t len = sizeof peer, room = rooms[i];
        memset(&found, 0xa5, sizeof found);
        int known = getpeername(fd, (struct sockaddr *)&peer, &len);
        say(what, getsockopt(fd, SOL_SOCKET, SO_PEERNAME, &found, &room));
        printf("%u, the same: %d\n", room, known == 0 && memcmp(&peer, &found, room) == 0);
    }
}

static void peers(void)
{
    struct sockaddr_in at = here;
    socklen_t len = sizeof at;
    int c, s, udp = socket(AF_INET, SOCK_DGRAM, 0);
    pair(&c, &s);
    say_peer("who connected", c);
    say_peer("what was accepted", s);
    say_peer("a listener", listener(&at));
    say_peer("a fresh one", socket(AF_INET, SOCK_STREAM, 0));
    at.sin_port = 0;
    say("bind", bind(udp, (struct sockaddr *)&at, sizeof at));
    say_peer("a datagram socket", udp);
    getsockname(udp, (struct sockaddr *)&at, &len);
    say("connect", connect(udp, (struct sockaddr *)&at, sizeof at));
    say_peer("a connected datagram socket", udp);
    say("a peer is not set", setsockopt(c, SOL_SOCKET, SO_PEERNAME, &at, sizeof at));
}

static void say_ioctl(const char *what, int fd, unsigned long request)
{
    char data[64] = {0};
    say(what, ioctl(fd, request, data));
    printf("%d\n", *(int *)data);
}

/* What any descriptor may be asked. */
static void as_a_file(int fd)
{
    struct stat st;
    char data[8] = "";
    struct flock l = {.l_type = F_RDLCK};
    say("fstat", fstat(fd, &st));
    printf("a socket: %d, of %ld bytes\n", S_ISSOCK(st.st_mode), (long)st.st_size);
    say("lseek", lseek(fd, 0, SEEK_SET));
    say("pread", pread(fd, data, 1, 0));
    say("pwrite", pwrite(fd, data, 1, 0));
    say("ftruncate", ftruncate(fd, 0));
    say("fsync", fsync(fd));
    say("mmap", mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED ? -1 : 0);
    say("isatty", isatty(fd) ? 1 : -1);
    say("fchdir", fchdir(fd));
    say("posix_fadvise", posix_fadvise(fd, 0, 0, POSIX_FADV_NORMAL));
    say("F_GETLK", fcntl(fd, F_GETLK, &l));
    say("F_GETFL", fcntl(fd, F_GETFL) & (O_ACCMODE | O_NONBLOCK | O_APPEND));
    say("F_GETFD", fcntl(fd, F_GETFD));
    say("F_GETOWN", fcntl(fd, F_GETOWN));
    say("F_GETSIG", fcntl(fd, F_GETSIG));
    say("F_GETPIPE_SZ", fcntl(fd, F_GETPIPE_SZ));
    say("F_ADD_SEALS", fcntl(fd, F_ADD_SEALS, 0));
    say("no such command", fcntl(fd, 12345));
    say_ioctl("FIONREAD", fd, FIONREAD);
    say_ioctl("SIOCOUTQ", fd, SIOCOUTQ);
    say_ioctl("SIOCATMARK", fd, SIOCATMARK);
    say_ioctl("FIOGETOWN", fd, FIOGETOWN);
    say_ioctl("FIOCLEX", fd, FIOCLEX);
    say("F_GETFD", fcntl(fd, F_GETFD));
    say_ioctl("TCGETS", fd, TCGETS);
    say_ioctl("no such request", fd, 0xabcdef);
}

static void files(void)
{
    struct sockaddr_in at = here;
    int c, s, udp = socket(AF_INET, SOCK_DGRAM, 0);
    as_a_file(listener(&at));
    pair(&c, &s);
    as_a_file(c);
    as_a_file(s);
    at.sin_port = 0;
    say("bind", bind(udp, (struct sockaddr *)&at, sizeof at));
    as_a_file(udp);
}

static const struct sequence sequences[] = {
    {"sizes", sizes}, {"drops", drops}, {"zero_copy", zero_copy}, {"congestion", congestion}, {"getters", getters},
    {"files", files}, {"set", setters}, {"connections", begun},   {"peers", peers},           {NULL, NULL}};

int main(int argc, char **argv)
{
    return run_with_address(sequences, argc, argv);
}

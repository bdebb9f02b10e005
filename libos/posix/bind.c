/* bind, and who of ours has a port. */
#include "descriptors.h"
#include "inherited.h"
#include "linux.h"
#include "names.h"
#include "socket.h"

#include <netinet/in.h>
#include <pthread.h>

#define FIRST_PORT 32768 /* of those that Linux gives by itself, too */
#define LAST_PORT 60999

/* Who of ours has a port: asked by bind and listen, seldom. */
struct holder {
    const struct cl_posix_socket *s; /* that asks */
    bool found;                      /* there is one, ... */
    bool apart;                      /* ... at another address */
};

static pthread_mutex_t binding =
    PTHREAD_MUTEX_INITIALIZER;        /* from a look at who has a port to the state that says so */
static __thread struct holder *asked; /* of cl_posix_each, which has no argument */

/* A connection that is over has given its port back, unless it was bound to that by number. */
static bool holds_port(const struct cl_posix_socket *s, uint32_t state)
{
    if (state <= CL_POSIX_LISTENS)
        return true;
    return !(s->chosen || cl_load_relaxed(&s->found)) || cl_load_relaxed(&s->rebound) ||
           !(cl_posix_socket_ready(s) & CL_STREAM_READY_OVER);
}

static bool both_share(const struct cl_posix_socket *s, const struct cl_posix_socket *other, uint32_t state)
{
    return (s->reuse_port && cl_load_relaxed(&other->reuse_port)) ||
           (s->reuse_address && cl_load_relaxed(&other->reuse_address) && (s->datagram || state != CL_POSIX_LISTENS));
}

/* net/ipv4/inet_connection_sock.c: inet_bind_conflict. */
static void look_at(struct cl_posix_object *o)
{
    const struct cl_posix_socket *other = (const struct cl_posix_socket *)o, *s = asked->s;
    uint32_t state = cl_load_acquire(&other->state);
    if (other == s || state == CL_POSIX_FRESH || other->datagram != s->datagram || other->own.port != s->own.port)
        return; /* a fresh one has no port yet, and whoever makes it writes; one that is bound keeps its port */
    uint32_t theirs = cl_load_relaxed(&other->own.ipv4);
    bool apart = theirs && s->own.ipv4 && theirs != s->own.ipv4;
    if (both_share(s, other, state) || !holds_port(other, state) || (apart && state > CL_POSIX_LISTENS))
        return;
    asked->found = true;
    if (!s->chosen) /* a number that was asked for */
        asked->apart |= apart;
}

static bool is_taken(const struct cl_posix_socket *s)
{
    struct holder h = {.s = s};
    asked = &h;
    cl_posix_each(CL_POSIX_SOCKET, look_at);
    asked = NULL;
    if (h.apart)
        cl_posix_say_once("a port can be bound at one address of the dataplane alone, and not at another one besides: "
                          "bind to 0.0.0.0");
    return h.found;
}

/* Who of ours listens there: asked by connect to 127.0.0.1. */
static __thread const struct cl_tcp_addr *sought; /* NULL: it was found */

static void look_for_listener(struct cl_posix_object *o)
{
    const struct cl_posix_socket *s = (const struct cl_posix_socket *)o;
    if (!sought || s->datagram || cl_load_acquire(&s->state) != CL_POSIX_LISTENS || s->own.port != sought->port)
        return;
    if (s->own.ipv4 == INADDR_ANY || s->own.ipv4 == sought->ipv4)
        sought = NULL;
}

bool cl_posix_has_listener(const struct cl_tcp_addr *at)
{
    sought = at;
    cl_posix_each(CL_POSIX_SOCKET, look_for_listener);
    return !sought;
}

static bool only_ipv6(int fd)
{
    int on = 0;
    socklen_t len = sizeof on;
    return cl_linux(SYS_getsockopt, fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, &len) == 0 && on;
}

/* Whether it listens here, or is Linux'. */
static bool is_ours(int fd, const struct cl_posix_socket *s, const struct cl_tcp_addr *at, bool is_ipv4)
{
    if (!is_ipv4 || (s->datagram && cl_posix_loops(at->ipv4)) || !cl_posix_listens_at(at->ipv4, at->port))
        return false; /* of datagrams nobody could tell which of them came from outside */
    if (s->domain == AF_INET)
        return true;
    if (only_ipv6(fd)) {
        cl_posix_say_once("a socket bound to IPv6 alone stays Linux': there is no IPv6 here");
        return false;
    }
    cl_posix_say_once("a socket bound to IPv6 and IPv4 is taken for IPv4 alone: there is no IPv6 here");
    return true;
}

static int choose_port(struct cl_posix_socket *s)
{
    static uint32_t next; /* a number */
    for (uint32_t i = FIRST_PORT; i <= LAST_PORT; i++) {
        uint32_t n = __atomic_fetch_add(&next, 1, __ATOMIC_RELAXED) % (LAST_PORT - FIRST_PORT + 1);
        s->own.port = (uint16_t)(FIRST_PORT + n);
        if (!is_taken(s))
            return 0;
    }
    return -EADDRINUSE;
}

int cl_posix_bind_ours(struct cl_posix_socket *s, const struct cl_tcp_addr *at)
{
    pthread_mutex_lock(&binding);
    if (cl_load_relaxed(&s->state) != CL_POSIX_FRESH) {
        pthread_mutex_unlock(&binding);
        return s->datagram ? 0 : -EINVAL; /* by another thread: a datagram that it sends has its port */
    }
    s->own = *at;
    s->chosen = at->port == 0;
    int rc = at->port == 0 ? choose_port(s) : is_taken(s) ? -EADDRINUSE : 0;
    s->placed = rc == 0 && at->ipv4 != INADDR_ANY;
    if (rc == 0)
        cl_store_release(&s->state, CL_POSIX_BOUND);
    else
        s->own = (struct cl_tcp_addr){0};
    pthread_mutex_unlock(&binding);
    return rc;
}

static int bind_here(struct cl_posix_socket *s, const struct cl_tcp_addr *at)
{
    int rc = cl_posix_bind_ours(s, at);
    if (rc || !s->datagram)
        return rc;
    cl_fence_seq_cst(); /* as in listen_ours */
    return cl_posix_started() ? cl_posix_datagram_open(s, cl_posix_start(&rc)) : 0;
}

/* A connection that is over has given its port back, unless it was bound to that by number, and may be bound again,
 * though that is of no use but for its name (net/ipv4/inet_hashtables.c: inet_put_port). */
static bool has_given_back(struct cl_posix_socket *s)
{
    return !s->datagram && (s->chosen || s->found) && !s->rebound && cl_posix_socket_is_over(s);
}

static int bind_name(struct cl_posix_socket *s, const struct cl_tcp_addr *at)
{
    struct cl_tcp_addr before = s->own;
    pthread_mutex_lock(&binding);
    s->own = *at;
    int rc = at->port == 0 ? choose_port(s) : is_taken(s) ? -EADDRINUSE : 0;
    if (rc) {
        s->own = before;
    } else {
        s->placed = at->ipv4 != INADDR_ANY;
        s->chosen = at->port == 0;
        s->found = false;
        s->rebound = true;
    }
    pthread_mutex_unlock(&binding);
    return rc;
}

int cl_posix_bind(int fd, const struct sockaddr *addr, socklen_t len)
{
    struct cl_tcp_addr at;
    bool is_ipv4;
    struct cl_posix_socket *s = cl_posix_socket_of(fd);
    if (!s)
        return cl_posix_no_socket(fd);
    int rc = cl_posix_name_read(s->domain, addr, len, &at, &is_ipv4);
    if (rc == 0 && cl_load_relaxed(&s->state) != CL_POSIX_FRESH)
        rc = has_given_back(s) && is_ipv4 && cl_posix_listens_at(at.ipv4, at.port) ? bind_name(s, &at) : -EINVAL;
    else if (rc == 0) {
        bool ours = is_ours(fd, s, &at, is_ipv4);
        cl_posix_trace(fd, "bind", at.ipv4, at.port, ours);
        rc = ours ? bind_here(s, &at) : (int)cl_linux(SYS_bind, fd, addr, len);
        if (rc == 0 && ours)
            cl_posix_mark(fd, true);
        else if (rc == 0)
            cl_posix_give_to_linux(fd, s);
    }
    cl_posix_socket_put(s);
    return rc;
}

int cl_posix_bind_listener(struct cl_posix_socket *s)
{
    pthread_mutex_lock(&binding);
    bool taken = is_taken(s);
    if (!taken)
        cl_store_release(&s->state, CL_POSIX_LISTENS);
    pthread_mutex_unlock(&binding);
    return taken ? -EADDRINUSE : 0;
}

/* What connections begin with: the options of their listener. Linux makes a connection's socket of its listener's
 * (net/core/sock.c: sk_clone_lock); here its placeholder is a new one, which is given each of them. */
#include "linux.h"
#include "memory.h"
#include "socket.h"

#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>

#define MOST_BYTES 16 /* of a value; longer ones are of filters, keys and groups */

/* In the order in which they were set first. None goes before the socket does, and `next` is set once. */
struct cl_posix_given {
    struct cl_posix_given *next;
    int level, name;
    socklen_t len;
    unsigned char value[MOST_BYTES];
};

/* What is a listener's alone, or a socket's own from the beginning. */
static bool is_handed_on(int level, int name)
{
    static const struct {
        int level, name;
    } not [] = {
        {SOL_SOCKET, SO_REUSEADDR}, /* kept here (options.c) */
        {SOL_SOCKET, SO_REUSEPORT},
        {SOL_SOCKET, SO_PRIORITY},
        {SOL_SOCKET, SO_INCOMING_CPU},
        {IPPROTO_TCP, TCP_DEFER_ACCEPT},
        {IPPROTO_TCP, TCP_FASTOPEN},
        {IPPROTO_TCP, TCP_QUICKACK},
        {IPPROTO_IP, IP_OPTIONS}, /* those of the first segment */
        {IPPROTO_IP, IP_MULTICAST_TTL},
        {IPPROTO_IP, IP_MULTICAST_IF},
        {IPPROTO_IP, IP_ADD_MEMBERSHIP},
        {IPPROTO_IP, IP_DROP_MEMBERSHIP},
        {IPPROTO_IP, IP_ADD_SOURCE_MEMBERSHIP},
        {IPPROTO_IP, IP_DROP_SOURCE_MEMBERSHIP},
    };
    for (unsigned i = 0; i < sizeof not / sizeof *not ; i++)
        if (not [i].level == level && not [i].name == name)
            return false;
    return true;
}

int cl_posix_begins_with(struct cl_posix_socket *s, int level, int name, const void *value, socklen_t len)
{
    if (level == IPPROTO_TCP && name == TCP_CONGESTION)
        len = (socklen_t)cl_posix_readable(value, cl_min(len, (socklen_t)MOST_BYTES)); /* a name, in any room */
    if (!is_handed_on(level, name) || !value || len > MOST_BYTES)
        return 0;
    struct cl_posix_given *fresh = calloc(1, sizeof *fresh), **at = &s->given;
    if (!fresh)
        return -ENOMEM;
    cl_spin_lock(&s->lock);
    while (*at && ((*at)->level != level || (*at)->name != name))
        at = &(*at)->next;
    struct cl_posix_given *g = *at ? *at : fresh;
    g->level = level;
    g->name = name;
    g->len = len;
    memcpy(g->value, value, len);
    bool is_known = *at;
    *at = g;
    cl_spin_unlock(&s->lock);
    if (is_known)
        free(fresh);
    return 0;
}

void cl_posix_begins_end(struct cl_posix_socket *s)
{
    for (struct cl_posix_given *g; (g = s->given); free(g))
        s->given = g->next;
}

/* The connection itself has them from its listener (corelane/libos/stream.h). Here: what is asked of its socket. */
void cl_posix_inherit(struct cl_posix_socket *l, int fd, struct cl_posix_socket *s)
{
    struct cl_posix_given g = {.next = NULL};
    cl_spin_lock(&l->lock);
    g.next = l->given;
    memcpy(s->option, l->option, sizeof s->option);
    memcpy(s->congestion, l->congestion, sizeof s->congestion);
    cl_spin_unlock(&l->lock);
    s->reuse_address = l->reuse_address;
    s->reuse_port = l->reuse_port;
    s->receive_ns = l->receive_ns;
    s->send_ns = l->send_ns;
    s->first_ttl = IPDEFTTL; /* of its peer's first segment, as is usual: it is not kept (tcp_v4_syn_recv_sock) */
    s->lingers = l->lingers;
    s->linger_ns = l->linger_ns;
    cl_store_relaxed(&s->resets, cl_load_relaxed(&l->resets));
    while (g.next) {
        cl_spin_lock(&l->lock);
        g = *g.next;
        cl_spin_unlock(&l->lock);
        (void)cl_linux(SYS_setsockopt, fd, g.level, g.name, g.value, g.len);
    }
}

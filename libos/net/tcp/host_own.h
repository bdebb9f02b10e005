/* What the files of a host share (host.h): its sockets, packets and time (host.c), and the calls on sockets
 * (host_sockets.c). */
#ifndef CORELANE_LIBOS_NET_TCP_HOST_OWN_H
#define CORELANE_LIBOS_NET_TCP_HOST_OWN_H

#include "host.h"
#include "machine.h"

/* A connection, and what its user knows of it. It outlives either. */
struct cl_host_socket {
    struct cl_tcp_host *host;
    struct cl_tcp_conn conn;
    struct cl_flow_key key;
    struct cl_tcp_listener *listener; /* of one that listens */
    struct cl_tcp_settings settings;  /* if it has its own */
    uint32_t order;                   /* of those that wait to be accepted */
    bool open;                        /* the user has it */
    bool lives;                       /* the connection does */
    bool connecting, opened, waits;   /* waits: to be accepted */
    bool eof;                         /* the user has read all that there is */
    int error;                        /* to be told, once */
    uint32_t iss, irs;                /* of the SYNs */
    struct cl_tcp_host_traffic traffic;
    uint64_t looked_ns; /* when the times of traffic were brought up to date, ... */
    bool busy, limited; /* ... and what has been the case since */
};

struct sent {
    struct sent *next;
    uint64_t at_ns;
    uint32_t len;
    uint8_t bytes[];
};

struct cl_tcp_host {
    uint32_t ipv4;
    uint32_t order;
    struct cl_tcp_stack stack;
    struct cl_tcp_counts counts;
    struct cl_tcp_turn turn;
    struct sent *first, **last;
    struct cl_host_socket sockets[CL_TCP_HOST_SOCKETS];
};

extern const struct cl_tcp_events cl_host_events;

static inline void cl_host_begin(struct cl_host_socket *s)
{
    cl_tcp_begin(&s->conn, &s->host->turn);
}

/* Bring the times of its traffic up to date. */
void cl_host_look(struct cl_host_socket *s);

static inline void cl_host_finish(struct cl_host_socket *s)
{
    bool lives = cl_tcp_finish(&s->conn);
    cl_host_look(s);
    if (lives)
        return;
    s->lives = false;
    if (s->waits && s->error) /* it was reset before it was accepted, and accept does not give it out */
        s->waits = false;
}

/* A socket with a connection. NULL: there is no place for one. */
struct cl_host_socket *cl_host_new_socket(struct cl_tcp_host *h, const struct cl_flow_key *key, bool open);
/* Whose connection has these ends; NULL: nobody's. */
struct cl_host_socket *cl_host_find(struct cl_tcp_host *h, const struct cl_flow_key *key);
/* Of a port; NULL: nobody listens. */
struct cl_tcp_listener *cl_host_find_listener(struct cl_tcp_host *h, uint16_t port_be);
/* An option of cl_tcp_host_set. -EINVAL. */
int cl_host_set(struct cl_tcp_settings *s, int option, uint32_t value);

#endif

/* The queue of a UDP socket: what of a datagram waits there for a reader. Used by socket.c, and by ports.c where
 * sockets are recycled. */
#ifndef CORELANE_LIBOS_NET_QUEUE_H
#define CORELANE_LIBOS_NET_QUEUE_H

#include "chunk.h"
#include <corelane/libos/spin.h>
#include <corelane/libos/sync.h>

struct cl_datagram {
    struct cl_chunk *chunks;
    uint64_t from; /* cl_udp_flow */
    uint32_t to_be;
    uint16_t len;
    uint8_t ttl, tos;
};

struct cl_udp_queue {
    struct cl_spin lock; /* of the ring, and of the socket's kind */
    uint32_t size;       /* datagrams at most */
    uint32_t head;
    uint32_t count;   /* also read without the lock, relaxed */
    bool error_told;  /* a post came for an ICMP error, and no reader has come by it since: no other one is needed */
    uint32_t readers; /* inside recvfrom, connect or close; the socket is reused when none is */
    uint32_t life;    /* how often its socket was opened: under table_lock */
    struct cl_sem filled;
    struct cl_datagram *ring;
    void (*told_fn)(void *arg); /* cl_udp_watch; under the lock, as its argument */
    void *told_arg;
};

struct cl_udp_origin;
/* Whom a datagram came from, and how. */
void cl_udp_origin_of(const struct cl_datagram *d, struct cl_udp_origin *out);

struct cl_pollable;
struct cl_udp_group;
struct cl_udp_socket;

bool cl_udp_is_queued(const struct cl_udp_socket *s);
/* Begin a call on a socket that may have been closed, and opened as another one: false, it was. Else it is not reused
 * until cl_udp_let_go. Any thread. */
bool cl_udp_keep(struct cl_udp_socket *s, uint32_t life);
void cl_udp_let_go(struct cl_udp_socket *s);
/* Nobody is inside of a call on it any more. */
bool cl_udp_queue_unused(const struct cl_udp_queue *queue);
void cl_udp_queue_delete(struct cl_udp_queue *queue);
/* What of its socket is ready (CL_POLL_...). */
uint32_t cl_udp_ready(const struct cl_pollable *member);
/* Under the queue's lock, and the group's if there is one: it is connected to another peer (0: to nobody). */
void cl_udp_queue_set_peer(struct cl_udp_socket *s, uint64_t peer);
/* Under table_lock: a socket, new or recycled, gets a port and an empty queue. */
void cl_udp_queue_take_over(struct cl_udp_socket *s, struct cl_udp_queue *fresh, uint16_t port,
                            struct cl_udp_group *group);

#endif

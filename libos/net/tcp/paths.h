/* What connections of one runtime know together of the paths to their peers: MTUs that are smaller than the link's, and
 * when to look whether one has grown (RFC 1191, section 6.3).
 *
 * A small table by peer, in which a later one takes the place of an earlier one with the same hash: who is forgotten is
 * found out about again. An entry is looked at by connections whose segments are smaller than both ends would take, and
 * by new ones. One connection at a time tries a larger packet; the others do what it has found out.
 *
 * Threads: any kthread in a turn; a lock, which is held for some ten instructions. */
#ifndef CORELANE_LIBOS_NET_TCP_PATHS_H
#define CORELANE_LIBOS_NET_TCP_PATHS_H

#include <corelane/libos/spin.h>

#define CL_TCP_PATHS 256
#define CL_TCP_PATH_AGAIN_MS 600000 /* after a packet was found too large (RFC 1191, section 6.3: 10 minutes) */
#define CL_TCP_PATH_MORE_MS 120000  /* after a larger one has come: the next size (the same: 2 minutes) */
#define CL_TCP_PATH_OLD_MS 3600000  /* nobody has looked for so long: it is forgotten */

struct cl_tcp_conn;

struct cl_tcp_path {
    uint32_t peer_be; /* 0: none */
    uint32_t due_ms;  /* when to look again */
    uint16_t mtu;     /* packets of so many bytes pass */
    uint16_t tries;   /* bytes of the packet that is being tried by `who`; 0: none */
    uint32_t end;     /* the number behind its data */
    const struct cl_tcp_conn *who;
};

struct cl_tcp_paths {
    struct cl_spin lock;
    uint32_t look_ms; /* no entry is due earlier; also read without the lock, relaxed, as the next one */
    uint32_t any;     /* there was an entry, ever */
    struct cl_tcp_path of[CL_TCP_PATHS];
};

/* Also for machine.h: path.c.
 * Of a connection that has agreed with its peer on the size of segments: as large as its path takes. */
void cl_tcp_path_agreed(struct cl_tcp_conn *c);
/* Something may be found out of a path that takes less than both ends. most: bytes of new data that a segment may have
 * now. Returns how many a packet that is to be tried has; 0: none is. Segments may have grown by what others know. */
uint32_t cl_tcp_path_try(struct cl_tcp_conn *c, uint32_t most);
/* It has left. */
void cl_tcp_path_tried(struct cl_tcp_conn *c);
/* What was tried is lost; or acknowledged, perhaps. */
void cl_tcp_path_failed(struct cl_tcp_conn *c);
void cl_tcp_path_acked(struct cl_tcp_conn *c);

#endif

/* Typed values (../../resp) as a state machine: an engine without clients, to which is applied what the engine of the
 * node that leads has done ahead (ahead.h).
 *
 * Commands of RESP are not deterministic: what SPOP takes depends on the order of a table, what is evicted on memory
 * that connections take, what has expired on a clock. So entries are not commands but units (../../resp/propagate.h):
 * what commands have done, with all of that decided. Whoever executes commands opens an epoch, by an entry with a
 * random number, and his units count on from 1 in it. An entry of another epoch, or out of turn, is refused, on all
 * replicas alike: a leader that has lost its place cannot add to what its successor does, however late its entries
 * come, and none of its units is left out or done twice. A query is answered the epoch: who gets his own knows that at
 * some instant since he asked nobody else executed.
 *
 * A client of a node's port could send entries, too, that depose who executes, or units that nobody can apply, which
 * would stop the group for good. So ../service/serve.c takes no commands there.
 *
 * A unit longer than an entry is in pieces, which are kept until the last one has come, or another epoch. */
#ifndef CORELANE_APPS_RAFT_NODE_RESP_MACHINE_H
#define CORELANE_APPS_RAFT_NODE_RESP_MACHINE_H

#include "../../resp/engine.h"
#include "node.h"

/* An entry: u32 magic, u32 kind, u64 epoch, u64 number, little endian; then data. */
#define RAFT_RESP_HEADER 24
#define RAFT_RESP_ADDRESS 8 /* u32 IPv4 address, u32 port */

// cffi: begin
/* Tells groups of this machine from others': exclusive or with the memory it is among the group's settings. */
#define CL_RAFT_RESP_SETTINGS 0x7265737000000000
#define CL_RAFT_RESP_IMAGE_MAGIC 0x49524c43 /* "CLRI" */
#define CL_RAFT_RESP_IMAGE_VERSION 1
// cffi: end

enum raft_resp_kind {
    RAFT_RESP_OPEN = 1,  /* begin an epoch; data: where its clients are served */
    RAFT_RESP_PIECE = 2, /* of units, another one follows */
    RAFT_RESP_UNITS = 3,
};

struct raft_resp_bytes {
    uint8_t *data;
    uint64_t len, room;
};

struct raft_resp {
    struct cl_resp *r;                /* the state */
    struct cl_resp_settings settings; /* of engines */
    uint64_t epoch, next;             /* 0: none was opened; the number that comes next in it */
    uint32_t ipv4, port;              /* of who opened it */
    struct raft_resp_bytes pieces;
    uint64_t images;              /* begun so far: who reads one sees by this that another was begun */
    struct raft_resp_bytes image; /* that is being read: its next frame */
    uint64_t image_at;            /* of the frame: bytes taken */
    bool image_over;
    struct raft_resp_bytes in; /* of an image that is being loaded: what is no whole frame yet */
    bool in_begun;             /* its header was read */
    char why[256];
};

/* Make an engine of memory_bytes, 1 MiB or more, and the vtable on it. A seed and a manual clock are for tests; nothing
 * that is applied looks at a clock. -errno with a reason in err. */
int raft_resp_new(struct raft_resp *m, const struct cl_resp_settings *settings, struct cl_raft_machine *out,
                  char err[256]);
/* Whether a snapshot has room for values that take all of their memory, `beside` bytes of the node's own too. -ENOSPC
 * with a reason in err. */
int raft_resp_fits(const struct raft_resp *m, uint64_t room, uint64_t beside, char err[256]);
void raft_resp_delete(struct raft_resp *m);
/* Write an entry's header. */
void raft_resp_header(uint8_t out[RAFT_RESP_HEADER], enum raft_resp_kind kind, uint64_t epoch, uint64_t number);
/* Begin reading the state, as units that make it in an engine that is empty; it ends who reads it now. */
void raft_resp_image_begin(struct raft_resp *m);
/* The next units, good until the next call; *len 0: there are no more. Nothing may be applied meanwhile. */
const uint8_t *raft_resp_image_next(struct raft_resp *m, uint64_t *len);

#endif

/* Redis' protocols in front of a simulated real node (CL_RAFT_SIM_RESP): typed values are its state machine, and
 * whoever leads executes commands ahead (../node/ahead.h), as the service has it; connections are the simulation's.
 *
 * A client has one connection at a time, and one request on it. A request's text is made here, and its replies are read
 * here, as a client's library would. Each is preceded by a command to some other key, so that values of all types,
 * expiry and units longer than an entry come along; their answers are not judged, but replicas must agree on them.
 * Clocks are manual: wall clocks of the nodes for who executes, none for who applies. */
#ifndef CORELANE_APPS_RAFT_SIM_REAL_RESP_H
#define CORELANE_APPS_RAFT_SIM_REAL_RESP_H

#include "../node/ahead.h"
#include "world.h"

#define REAL_RESP_SNAPSHOT_BYTES (256u << 10)
#define REAL_RESP_MEMORY (4u << 20)
#define REAL_RESP_OUT 8192 /* of replies to a request, at most */

struct real;

/* The state machine. */
struct real_values {
    struct raft_resp resp;
    struct cl_raft_machine machine;
    uint64_t image_bytes; /* of the image that is saved, once it is known */
};

/* A client's connection. */
struct real_conn {
    struct cl_resp_client *client; /* NULL: there is none */
    uint32_t session, expects;     /* the connection; replies that are awaited, 0: none */
    struct sim_request request;    /* that is being answered */
    uint32_t bytes;
    uint8_t out[REAL_RESP_OUT];
};

struct real_port {
    struct real *r;
    struct raft_ahead ahead;
    struct real_conn conns[SIM_CLIENTS];
    struct cl_random random;
    uint64_t due_ns; /* when its timer comes, on the node's clock */
};

/* real_values.c. A new, empty one. -errno with a reason in err. */
int real_values_new(struct real *r, char err[256]);
struct cl_raft_machine real_values_machine(struct real *r);

/* real_resp.c. The node is made. -errno with a reason in err. */
int real_port_new(struct real *r, char err[256]);
void real_port_delete(struct real *r);
void real_port_request(struct real *r, const struct sim_request *q);
/* Before each poll of the node; the port's timer comes once a tick. Returns when it is to be polled again at the
 * latest. */
uint64_t real_port_give(struct real *r);
/* After it: send what may be sent. */
void real_port_send(struct real *r);

#endif

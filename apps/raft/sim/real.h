/* A node that is the real one: what its files share. See world.h for what else there is.
 *
 *   real.c          its lifecycle, its environment
 *   real_machine.c  its state machine
 *   real_values.c real_resp.c   its state machine and its port where clients speak RESP
 *   real_channel.c  what is between it and the network, in some worlds
 *   real_disk.c     its block device and what goes wrong with it */
#ifndef CORELANE_APPS_RAFT_SIM_REAL_H
#define CORELANE_APPS_RAFT_SIM_REAL_H

#include <corelane/libos/log.h>
#include "../transport/channel.h"
#include "../node/node.h"
#include "real_resp.h"
#include "store.h"
#include "world.h"

#define REAL_SNAPSHOT_BYTES (8 << 10)
#define REAL_STORE_SNAPSHOT_BYTES (SIM_STORE_BYTES + (128 << 10))
#define REAL_IN_FLIGHT 3 /* flushes of the log */
#define REAL_CONFIRM_NS SIM_MS

/* What the disk has been told to do. */
enum real_bad { REAL_GOOD, REAL_FAILS, REAL_FULL };

struct real {
    struct sim_world *world;
    struct sim_node *owner;
    struct cl_blk *blk;
    struct cl_log *log;
    struct cl_raft_node *node;
    struct raft_channel *channel; /* NULL: frames are datagrams */
    struct sim_machine machine;   /* its own sessions are not used: the node has some */
    struct sim_store store;       /* CL_RAFT_SIM_KV: the state machine that answers; the other one must say the same */
    struct real_values values;    /* CL_RAFT_SIM_RESP: the state machine, and */
    struct real_port *port;       /* what clients are connected to; NULL: it is down */
    bool running;
    bool began; /* its log says who voted first */
    enum real_bad bad;
    bool hurt; /* it was, or may have been, in this incarnation: what was submitted meanwhile may fail later */
    uint64_t all_slow_ns;         /* this: how much slower than it was drawn */
    bool slow, hung;              /* and this to be slow, or to do nothing */
    uint64_t said;                /* the last flush of which the disk says that it was acknowledged */
    uint64_t held, held_snapshot; /* durable in its log, or in a snapshot, as of its last check */
    uint64_t wake_ns;             /* virtual time of the next wake that is under way; 0: none */
};

static inline struct real *real_of(struct sim_node *n)
{
    return n->real;
}

static inline uint64_t real_clock(void *arg)
{
    struct real *r = arg;
    return sim_local_ns(r->world, r->owner);
}

/* Its wall clock, which jumps in some worlds. */
static inline uint64_t real_wall_ms(struct real *r)
{
    return real_clock(r) / SIM_MS + 10000 + (uint64_t)r->owner->wall_ms;
}

static inline bool real_has_store(const struct real *r)
{
    return r->world->options.mode == CL_RAFT_SIM_KV;
}

static inline bool real_has_values(const struct real *r)
{
    return r->world->options.mode == CL_RAFT_SIM_RESP;
}

static inline uint64_t real_snapshot_bytes(const struct real *r)
{
    return real_has_store(r)    ? REAL_STORE_SNAPSHOT_BYTES
           : real_has_values(r) ? REAL_RESP_SNAPSHOT_BYTES
                                : REAL_SNAPSHOT_BYTES;
}

/* real_channel.c */
bool real_post(struct real *r, uint32_t to, const uint8_t *data, uint32_t bytes);
int real_channel_new(struct real *r);
void real_channel_delete(struct real *r);

/* real_machine.c */
struct cl_raft_machine real_machine(struct real *r);
/* Load a piece of a snapshot: an image of `of`, NULL: there is none, and struct sim_machine. */
int real_load(struct real *r, const struct cl_raft_machine *of, uint64_t at, const uint8_t *data, uint64_t bytes,
              uint64_t total);

/* real_disk.c */
/* A new device with an empty log on it. */
int real_new_disk(struct real *r);
/* Have the disk do what it is to do by now. */
void real_set_disk(struct real *r);
void real_fail_disk(struct sim_world *w, struct sim_node *n);
void real_mend_disk(struct sim_world *w, struct sim_node *n);
bool real_rot(struct sim_world *w, struct sim_node *n);

#endif

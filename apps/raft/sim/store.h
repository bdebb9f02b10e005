/* The replicated key-value store (../kv_machine.h) as the state machine of a simulated real node.
 *
 * A register's value lies in the store as text, and every command is done by memcached's commands whose answers decide
 * what the client hears. Other keys, with expiry, are written, touched and deleted beside it, drawn from the command,
 * so that items move and end. Its clock runs STORE_HASTE times as fast as the log's, as a run takes less than a second.
 *
 * The model (machine.h) runs along and must say the same; its bytes are behind the store's image in a snapshot. */
#ifndef CORELANE_APPS_RAFT_SIM_STORE_H
#define CORELANE_APPS_RAFT_SIM_STORE_H

#include "../node/kv_machine.h"
#include "machine.h"

#define SIM_STORE_BYTES (1u << 20)
#define SIM_STORE_HASTE 200

struct sim_store {
    struct raft_kv kv;
    struct cl_raft_machine machine;
};

/* An empty one in place of what was there. -errno with a reason in err. */
int sim_store_new(struct sim_store *s, char err[256]);
void sim_store_free(struct sim_store *s);
/* Carry a command out: GET and what changes something. What the store said, as the model would. -EPROTO: it said
 * something else than its protocol has. */
int sim_store_apply(struct sim_store *s, uint64_t index, uint64_t clock_ms, const struct sim_command *c,
                    struct sim_outcome *out);
/* A GET as a query. */
int sim_store_query(struct sim_store *s, uint64_t clock_ms, const struct sim_command *c, struct sim_outcome *out);
/* cl_kv_digest. */
uint64_t sim_store_digest(const struct sim_store *s);

#endif

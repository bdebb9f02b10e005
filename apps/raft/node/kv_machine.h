/* The key-value store (../kv) as a state machine: commands are memcached's, as they come in a datagram without its
 * header.
 *
 * Replicas must stay the same, and a store evicts by what was asked for, which only the leader knows. So the replicated
 * store never evicts (no_evict in ../kv/store.h): a command that would store more than three quarters of the log is
 * answered `SERVER_ERROR out of memory storing object` when it is applied, by what was applied before it, so on all
 * replicas alike. For that, memory_bytes must be the same on all of them, which the node enforces (node.h). Items
 * expire by the log's clock. A query changes nothing that others see, and what may change something is refused as a
 * query. `stats` differs from replica to replica, in length too, so a command may not have it. */
#ifndef CORELANE_APPS_RAFT_NODE_KV_MACHINE_H
#define CORELANE_APPS_RAFT_NODE_KV_MACHINE_H

#include "../../kv/command.h"
#include "node.h"

struct raft_kv {
    struct cl_kv *store;
};

// cffi: begin
#define CL_RAFT_KV_SEED 0x7261667476616c75 /* of the store's hash, in groups that began before they drew one */
// cffi: end

/* How a datagram of commands is to be done. */
enum raft_kv_way {
    RAFT_KV_LOG,   /* changes something: through the log */
    RAFT_KV_READ,  /* nothing but get, gets, me, the binary protocol's, and what touches no item: a query; mg may change
                   * one */
    RAFT_KV_LOCAL, /* one line of version, stats, verbosity, mn: of this replica, at once */
};

enum raft_kv_way raft_kv_way(const struct raft_kv *kv, const uint8_t *text, uint64_t bytes);
/* Make a store of that memory, and the vtable on it. -errno with a reason in err. */
int raft_kv_new(struct raft_kv *kv, uint64_t memory_bytes, struct cl_raft_machine *out, char err[256]);
/* Whether a snapshot has room whatever the store will hold, `beside` bytes of the node's own too. -ENOSPC with a reason
 * in err. */
int raft_kv_fits(const struct raft_kv *kv, uint64_t room, uint64_t beside, char err[256]);
void raft_kv_delete(struct raft_kv *kv);

#endif

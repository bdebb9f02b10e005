/* The key-value store (../kv) as a state machine: commands are memcached's, as they come in a datagram without its header.
 *
 * Replicas must stay the same, and a store evicts by what was asked for, which only the leader knows. So the replicated store
 * never evicts: a leader refuses to store when three quarters of the memory hold live items (raft_kv_full), and a replica that
 * would have to evict nevertheless stops. Items expire by the log's clock. A GET reads and changes nothing that others see. */
#ifndef CORELANE_APPS_RAFT_KV_MACHINE_H
#define CORELANE_APPS_RAFT_KV_MACHINE_H

#include "../kv/command.h"
#include "node.h"

struct raft_kv {
    struct cl_kv *store;
    uint64_t evictions; /* as of the last command */
};

/* How a datagram of commands is to be done. */
enum raft_kv_way {
    RAFT_KV_LOG,   /* changes something: through the log */
    RAFT_KV_READ,  /* get, gets: a query */
    RAFT_KV_LOCAL, /* version, stats, verbosity: of this replica, at once */
};

enum raft_kv_way raft_kv_way(const uint8_t *text, uint64_t bytes);
/* A leader should refuse what stores. */
bool raft_kv_full(const struct raft_kv *kv);
/* Make a store of that memory, and the vtable on it. -errno with a reason in err. */
int raft_kv_new(struct raft_kv *kv, uint64_t memory_bytes, struct cl_raft_machine *out, char err[256]);
void raft_kv_delete(struct raft_kv *kv);

#endif

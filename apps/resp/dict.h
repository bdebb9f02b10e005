/* A table of byte strings that grows and shrinks one bucket at a time (linear hashing, Litwin, VLDB 1980).
 *
 * Nodes are the user's, each in one block with its key. Nothing is ever rehashed at once, so no command pays for the
 * growth of a large table.
 *
 * A scan goes through the hashes in the order of their reversed bits. In that order a bucket is an interval: it is cut
 * in two when the bucket is split, and joined again when it is merged. The cursor is where the next interval begins. So
 * what is there from the first call of a scan to the last is seen at least once, however the table grows or shrinks in
 * between, and is seen twice only if the table has shrunk. */
#ifndef CORELANE_APPS_RESP_DICT_H
#define CORELANE_APPS_RESP_DICT_H

#include "../kv/hash.h"
#include "memory.h"

#define CL_RDICT_SEGMENT 256 /* buckets */

struct cl_rnode {
    struct cl_rnode *next;
    uint32_t hash, key_len;
};

struct cl_rdict {
    struct cl_rnode **first; /* the first segment, of `first_room` buckets */
    struct cl_rnode ***more; /* [more_room] the others */
    uint32_t first_room, more_room;
    uint32_t buckets; /* in use */
    uint32_t count;   /* nodes */
    uint32_t key_at;  /* offset of the key in a node; constant */
};

/* A byte string in somebody's memory. */
struct cl_slice {
    const uint8_t *p;
    uint32_t len;
};

static inline struct cl_slice cl_rnode_key(const struct cl_rdict *d, const struct cl_rnode *n)
{
    return (struct cl_slice){(const uint8_t *)n + d->key_at, n->key_len};
}

static inline uint32_t cl_rdict_hash(const struct kv_secret *secret, struct cl_slice key)
{
    return (uint32_t)(kv_hash(secret, key.p, key.len) >> 17);
}

void cl_rdict_init(struct cl_rdict *d, uint32_t key_at);
/* Forget all nodes, which the caller has freed, and free the rest. */
void cl_rdict_end(struct cl_rmem *m, struct cl_rdict *d);
/* The place that points to the node of that key, or NULL. Good until the table changes. */
struct cl_rnode **cl_rdict_place(const struct cl_rdict *d, uint32_t hash, struct cl_slice key);
struct cl_rnode *cl_rdict_find(const struct cl_rdict *d, uint32_t hash, struct cl_slice key);
/* node->hash, node->key_len and the key are set; the key is not in it. */
void cl_rdict_add(struct cl_rmem *m, struct cl_rdict *d, struct cl_rnode *node);
/* Take the node at a place out. The caller frees it. The table shrinks, unless `keep`: then no other node moves. */
struct cl_rnode *cl_rdict_take(struct cl_rmem *m, struct cl_rdict *d, struct cl_rnode **place, bool keep);
void cl_rdict_shrink(struct cl_rmem *m, struct cl_rdict *d);
/* The chain of bucket i, i < d->buckets. */
struct cl_rnode *cl_rdict_bucket(const struct cl_rdict *d, uint32_t i);
/* The chain at a cursor, and the next cursor, 0 at the end. */
struct cl_rnode *cl_rdict_scan(const struct cl_rdict *d, uint64_t *cursor);
/* Some node, by a random number. NULL: it is empty. Of nodes in one bucket all are equally probable. */
struct cl_rnode *cl_rdict_random(const struct cl_rdict *d, uint64_t (*random)(void *arg), void *arg);
/* What the table takes beside its nodes, in bytes. */
uint64_t cl_rdict_bytes(const struct cl_rdict *d);

/* Every node n, bucket after bucket; the table must not change, but n may be freed by its end. */
#define CL_RDICT_EACH(d, n)                                                                                            \
    for (uint32_t i_##n = 0; i_##n < (d)->buckets; i_##n++)                                                            \
        for (struct cl_rnode *n = cl_rdict_bucket((d), i_##n), *next_##n; n && (next_##n = n->next, true); n = next_##n)

#endif

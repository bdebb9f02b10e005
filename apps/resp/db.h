/* Databases: keys, their values and their time; who watches keys, who waits for them, who is told of changes. */
#ifndef CORELANE_APPS_RESP_DB_H
#define CORELANE_APPS_RESP_DB_H

#include "resp.h"

/* A key that was given something while somebody blocks on it. */
struct cl_rready {
    struct cl_rready *next;
    uint32_t db, key_len;
    uint8_t key[];
};

static inline struct cl_rdb *cl_rdb_of(struct cl_resp_client *c)
{
    return &c->r->db[c->db];
}

static inline struct cl_slice cl_entry_key(const struct cl_entry *e)
{
    return (struct cl_slice){e->key, e->node.key_len};
}

void cl_rdb_init(struct cl_resp *r, uint32_t number);
void cl_rdb_end(struct cl_resp *r, uint32_t number);
/* Whether its time is over. */
static inline bool cl_entry_expired(const struct cl_resp *r, const struct cl_entry *e)
{
    return e->expires_ms && e->expires_ms <= r->now_ms && !r->applying;
}
/* The key as it lies there, expired or not; nothing is noted. */
struct cl_entry *cl_rdb_peek(struct cl_rdb *db, struct cl_slice key);
/* The key, for who reads it: hits and misses are counted, its use is noted; one whose time is over is removed. */
struct cl_entry *cl_rdb_read(struct cl_resp_client *c, struct cl_slice key);
/* The same for who writes it: nothing is counted. */
struct cl_entry *cl_rdb_write(struct cl_resp_client *c, struct cl_slice key);
/* The same without a note of its use. */
struct cl_entry *cl_rdb_look(struct cl_resp_client *c, struct cl_slice key);
/* Both, for a value of that type: false if it has another, which was answered. *out NULL: there is no such key. */
bool cl_rdb_read_as(struct cl_resp_client *c, struct cl_slice key, enum cl_rtype type, struct cl_entry **out);
bool cl_rdb_write_as(struct cl_resp_client *c, struct cl_slice key, enum cl_rtype type, struct cl_entry **out);
/* A new key; there is none of that name. Its value is the caller's to set. */
struct cl_entry *cl_rdb_add(struct cl_resp_client *c, struct cl_slice key, enum cl_rtype type);
struct cl_entry *cl_rdb_add_in(struct cl_resp *r, struct cl_rdb *db, struct cl_slice key, enum cl_rtype type);
/* A key for a new value of that type, which is the caller's to set: e, without its value and its time, or a new one. */
struct cl_entry *cl_rdb_replace(struct cl_resp_client *c, struct cl_entry *e, struct cl_slice key, enum cl_rtype type);
/* Remove a key and its value. Nobody is told. `keep`: the table does not shrink, so that a scan may go on. */
void cl_rdb_remove(struct cl_resp *r, struct cl_rdb *db, struct cl_entry *e, bool keep);
/* Remove a key, and tell of it. */
void cl_rdb_delete(struct cl_resp_client *c, struct cl_entry *e);
/* The same of one whose last element was taken, which was the change. */
void cl_rdb_delete_empty(struct cl_resp_client *c, struct cl_entry *e);
/* Remove a key whose time is over, and tell of that. */
void cl_rdb_expire(struct cl_resp *r, struct cl_rdb *db, struct cl_entry *e, bool keep);
/* When it expires, in ms of the wall clock; 0: never. */
void cl_entry_expire_at(struct cl_resp *r, struct cl_rdb *db, struct cl_entry *e, int64_t ms);
/* Note that it was used, by the policy's measure. */
void cl_entry_touch(struct cl_resp *r, struct cl_entry *e);
uint32_t cl_entry_idle_s(const struct cl_resp *r, const struct cl_entry *e);
uint32_t cl_entry_frequency(const struct cl_resp *r, const struct cl_entry *e);
/* A key has changed: who watches it is to know. */
void cl_rdb_changed(struct cl_resp_client *c, struct cl_slice key);
void cl_rdb_changed_in(struct cl_resp *r, struct cl_rdb *db, struct cl_slice key);
/* Whoever watches anything in it is to know: it will have the keys of another, or none (NULL). */
void cl_rdb_changed_all(struct cl_resp *r, struct cl_rdb *db, struct cl_rdb *with);
/* A list, sorted set or stream has come, or got more: who blocks on it may be served. */
void cl_rdb_ready(struct cl_resp_client *c, struct cl_slice key);
/* Publish an event of a class (CL_RN_*), if settings ask for it. */
void cl_rdb_notify(struct cl_resp *r, uint32_t class, const char *event, struct cl_slice key, uint32_t db);
/* Changed, told, and counted as so many changes as Redis counts: what most commands end with. Of none nothing is
 * propagated. */
void cl_rdb_wrote(struct cl_resp_client *c, uint32_t class, const char *event, struct cl_slice key, uint64_t changes);
/* Remove all keys. */
void cl_rdb_flush(struct cl_resp *r, struct cl_rdb *db);
/* Remove up to n keys whose time is over. Returns how many there were. */
uint32_t cl_rdb_expire_some(struct cl_resp *r, struct cl_rdb *db, uint32_t n);

#endif

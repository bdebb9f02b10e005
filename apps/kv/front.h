/* How a store's servers show themselves to the commands of any of them: what `stats` says of connections. The store
 * knows one front at most; without one `stats` says nothing of the kind. */
#ifndef CORELANE_APPS_KV_FRONT_H
#define CORELANE_APPS_KV_FRONT_H

#include "command_layout.h"

struct kv_front_ops {
    void (*general)(void *front, struct kv_command *c);  /* lines of `stats` */
    void (*settings)(void *front, struct kv_command *c); /* lines of `stats settings` */
    /* Lines of `stats conns` about the i-th connection, listening sockets among them. False: there are no more. */
    bool (*conn)(void *front, struct kv_command *c, uint32_t i);
};

#define KV_FRONT_CONN_BYTES 1024 /* that the lines of one connection take at most */

/* A line of statistics, in the session's protocol (stats.c). */
void kv_stat_text(struct kv_command *c, const char *name, const char *value);
void kv_stat_u64(struct kv_command *c, const char *name, uint64_t value);

#endif

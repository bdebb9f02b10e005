/* What the servers of a store share: how they were set up, who is connected, and how much memory connections hold.
 *
 * Connections stand in a table of max_connections places, which is made with the front and touched as it fills. A place
 * is taken and given back under a lock, by whoever opens and closes a connection; in between it belongs to whoever
 * works on the connection. Places are never freed before the front is, so `stats conns` may read any of them.
 * Budget: memory that connections hold (conn.h) beside their places, for all of them together.
 * Through kv_front_ops (../front.h) the commands `stats`, `stats settings` and `stats conns` show all that. */
#ifndef CORELANE_APPS_KV_STREAM_FRONT_H
#define CORELANE_APPS_KV_STREAM_FRONT_H

#include <corelane/libos/spin.h>
#include "../front.h"
#include "conn.h"

// cffi: begin
/* How a store is served. Zero in a field that says so takes the default. Strings are copied. */
struct cl_kv_front_config {
    uint32_t max_connections; /* memcached's -c; 0: 1024 */
    uint32_t idle_timeout_s;  /* connections that say nothing for so long are closed; 0: never */
    uint32_t backlog;         /* connections that are being opened, at most; 0: 1024 */
    uint32_t ipv4;            /* what `stats` says about itself: address, ports; 0: none */
    uint32_t tcp_port, udp_port;
    uint32_t kthreads;           /* threads of the store that serve; one more than these serves the Unix socket */
    uint32_t requests_per_event; /* commands of a connection before others have a turn, memcached's -R; 0: 20 */
    /* That connections may hold: values on their way, answers not read; one item at least. 0: 64 MiB, or 8 items. */
    uint64_t budget_bytes;
    const char *path;   /* of the Unix socket; NULL: none */
    uint32_t path_mode; /* of that: its permissions, memcached's -a; 0: 0700 */
};

/* Of all connections, since the front was made. */
struct cl_kv_front_counts {
    uint64_t connections; /* now */
    uint64_t opened;      /* ever */
    uint64_t most;        /* at one time */
    uint64_t rejected;    /* since there were max_connections */
    uint64_t idle_kicks;  /* closed, since they said nothing */
    uint64_t pauses;      /* of the Unix socket's listener: no descriptor, or no memory, for one more */
    uint64_t bytes_read, bytes_written;
    uint64_t commands_held; /* came in pieces */
    uint64_t held_back;     /* answers for which there was no room */
    uint64_t yields;        /* turns that ended by requests_per_event */
    uint64_t held_bytes;    /* of the budget, now */
    uint64_t budget_bytes;
};

struct cl_kv_front;
/* -ENOMEM. The store must outlive it. */
CL_API int cl_kv_front_new(struct cl_kv *store, const struct cl_kv_front_config *config, struct cl_kv_front **out);
/* Nobody may be connected. */
CL_API void cl_kv_front_delete(struct cl_kv_front *front);
CL_API void cl_kv_front_counts(const struct cl_kv_front *front, struct cl_kv_front_counts *out);
// cffi: end

/* Who executes commands in the store's place, and answers later: one turn of a connection at a time. A closed
 * connection is known by its state and serial. */
struct kv_elsewhere {
    void *arg;
    /* Begin a turn with the first commands of in[0..len), at least one if it is complete, or with the next part of a
     * retrieval of which session.skip bytes are done. Returns how many bytes are done with. Then kv_conn.waits, or what
     * is complete was answered (kv_conn_say), or session.want is as of cl_kv_process. */
    uint64_t (*run)(void *arg, struct kv_conn *c, struct kv_side *side, const uint8_t *in, uint64_t len);
};

enum kv_kind { KV_TCP, KV_UNIX };

#define KV_FIRST_NUMBER 3 /* of connections; before them come the sockets that listen */

struct kv_side_line {
    struct kv_side side;
} CL_ALIGNED(64);

struct cl_kv_front {
    struct cl_kv *store;
    struct cl_kv_front_config config;
    char *path;
    void *places;                         /* memory of: */
    struct kv_conn *conns;                /* [max_connections] */
    const struct kv_elsewhere *elsewhere; /* NULL: the store executes; set before the first connection */
    uint32_t *free;                       /* places that are free: a stack */
    uint32_t n_free;                      /* under the lock, as all up to `rejected` */
    struct cl_spin lock;
    uint32_t most;
    uint64_t opened, rejected;
    uint64_t idle_kicks;          /* added to by anybody */
    uint64_t pauses;              /* writer: the thread of local.c, as of the next; readers: anybody, relaxed */
    uint32_t paused;              /* the Unix socket takes nobody now */
    uint64_t held CL_ALIGNED(64); /* bytes of the budget in use; added to by anybody */
    uint32_t n_sides;
    struct kv_side_line sides[];
};

/* A place for a connection, as new. NULL: there are max_connections. */
struct kv_conn *kv_front_open(struct cl_kv_front *f, enum kv_kind kind);
void kv_front_close(struct kv_conn *c);
static inline struct kv_side *kv_front_side(struct cl_kv_front *f, uint32_t i)
{
    return &f->sides[i].side;
}

/* Bytes of the budget that are not in use; 1 at least. A hint: others take at the same time. */
static inline uint64_t kv_front_left(const struct cl_kv_front *f)
{
    uint64_t held = cl_load_relaxed(&f->held), all = f->config.budget_bytes;
    return held < all ? all - held : 1;
}

static inline bool kv_front_has(const struct cl_kv_front *f, uint64_t bytes)
{
    return kv_front_left(f) >= bytes;
}

/* Relaxed, as the next: a count that bounds, and orders nothing. */
static inline void kv_front_give(struct cl_kv_front *f, uint64_t bytes)
{
    __atomic_fetch_sub(&f->held, bytes, __ATOMIC_RELAXED);
}

/* Take bytes of the budget. False: there are not so many. */
static inline bool kv_front_take(struct cl_kv_front *f, uint64_t bytes)
{
    uint64_t before = __atomic_fetch_add(&f->held, bytes, __ATOMIC_RELAXED);
    if (before + bytes <= f->config.budget_bytes)
        return true;
    kv_front_give(f, bytes);
    return false;
}

/* Relaxed: a count for people. */
static inline void kv_front_count_kick(struct cl_kv_front *f)
{
    __atomic_fetch_add(&f->idle_kicks, 1, __ATOMIC_RELAXED);
}

/* The connection has said nothing for longer than it may. */
static inline bool kv_front_idle(const struct cl_kv_front *f, const struct kv_conn *c, uint32_t now_s)
{
    return f->config.idle_timeout_s && now_s - c->last_s > f->config.idle_timeout_s;
}

#endif

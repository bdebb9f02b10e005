/* The engine behind the port: databases of typed values, and clients that talk to them in RESP2 or RESP3.
 *
 * It knows no network, no thread and no clock but its own. Bytes of a client go in (cl_resp_feed), replies lie in the
 * client's chain until they are taken (cl_resp_taken). So tests run it without a port, and move its clock.
 *
 * One command at a time: whoever calls into an engine holds its owner's lock (serve.c has one for a runtime). Hence
 * commands are atomic across keys, as Redis' are, whatever kthread they came in at.
 *
 * Memory: all that clients can make grow lies in `mem` and is counted: values, keys, what was not parsed yet, replies
 * that were not taken, queues of MULTI, names. Before a command that may take memory the engine evicts (evict.c) until
 * what the command may take at most fits under `maxmemory`, or refuses it with Redis' -OOM.
 *
 * What is where: README.md. */
#ifndef CORELANE_APPS_RESP_RESP_H
#define CORELANE_APPS_RESP_RESP_H

#include <stdio.h>
#include "dict.h"
#include "topics.h"

#define CL_RESP_VERSION "7.0.15" /* of Redis, whose commands and errors these are */
#define CL_RESP_DATABASES 16
#define CL_RESP_INLINE_MOST 65536     /* bytes of an inline command, and of the count lines of another */
#define CL_RESP_UNITS_HIGH (1u << 20) /* units that wait to be taken: above it no commands are run */
#define CL_RESP_ELSEWHERE 128         /* bytes of what clients are told who have to go elsewhere */
#define CL_RESP_OUT_HIGH (1u << 20)   /* replies that wait: so many bytes of each client always may */
#define CL_RESP_OUT_PART 8            /* and beyond that one in so many of all memory, of all clients together */

/* Types of values. */
enum cl_rtype { CL_R_STRING = 0, CL_R_LIST, CL_R_SET, CL_R_ZSET, CL_R_HASH, CL_R_STREAM, CL_R_TYPES, CL_R_NONE };

/* Bytes with room to grow. */
struct cl_bytes {
    uint32_t len, room;
    uint8_t data[];
};

/* How a string is kept. */
enum cl_rstring { CL_R_INT = 0, CL_R_EMBEDDED, CL_R_RAW };

/* A key and its value. */
struct cl_entry {
    struct cl_rnode node;
    int64_t expires_ms; /* wall clock; 0: never */
    uint32_t heap_at;   /* place in the heap of what expires, + 1; 0: not in it */
    uint32_t used_at;   /* seconds when it was used last; with an LFU policy minutes << 8 | counter */
    uint8_t type;       /* enum cl_rtype */
    uint8_t how;        /* of a string: enum cl_rstring; of a set: 1 all were integers so far */
    uint16_t pass;      /* of the rewrite that has put it (durable.h), or during which it was made */
    uint32_t pad;
    union {
        int64_t integer;
        struct cl_bytes *bytes;
        struct cl_rset *set;
        struct cl_rhash *hash;
        struct cl_rlist *list;
        struct cl_rzset *zset;
        struct cl_rstream *stream;
        void *value;
    };
    uint8_t key[];
};

struct cl_rdb {
    uint32_t number;
    struct cl_rdict keys;
    struct cl_entry **heap; /* [heap_room] what expires, the next one first */
    uint32_t heap_n, heap_room;
    struct cl_rtopics watched, blocked;
    uint64_t rewritten; /* a cursor: where the rewrite is in `keys` */
    bool rewriting;     /* not all of them were put */
};

/* Replies that wait to be taken. */
struct cl_rchunk {
    struct cl_rchunk *next;
    uint32_t len, room;
    uint8_t data[];
};
struct cl_rchain {
    struct cl_rchunk *first, *last;
    uint64_t bytes;
    uint32_t taken; /* of the first */
};

/* Of the replies that wait the first `open` bytes may be taken, the next `first` when a unit is durable, and so the
 * `rest` (durable.c). */
struct cl_rheld {
    uint64_t open, first, first_unit, rest, rest_unit;
    uint64_t opened;                    /* portions that are open, ever */
    uint64_t answered_by;               /* the write by which the last one was, counted in cl_rdurable */
    struct cl_resp_client *next, *prev; /* those of whom some wait */
    bool listed;
};

/* Arguments that outlive the buffer that they came in: in one block. */
struct cl_rargs {
    struct cl_rargs *next;
    const struct cl_rcmd *cmd;
    uint32_t argc;
    uint64_t bytes; /* of the block */
    struct cl_slice argv[];
};

/* Where the parser is in a command (parse.c). Offsets are from the command's first byte. */
struct cl_rparser {
    uint32_t left;     /* bulks still to come */
    int32_t multibulk; /* 1: in a multibulk command, 0: not begun */
    int64_t bulk_len;  /* of the bulk that is coming, -1: its header is not here */
    uint64_t at;       /* looked at so far */
    uint32_t argc, room;
    struct cl_rspan {
        uint64_t at;
        uint32_t len;
    } * args; /* [room] */
};

/* cl_resp_client.flags */
#define CL_RC_MULTI 0x1       /* commands are queued */
#define CL_RC_DIRTY_CAS 0x2   /* a watched key has changed */
#define CL_RC_DIRTY_EXEC 0x4  /* a command could not be queued */
#define CL_RC_CLOSE_AFTER 0x8 /* no more commands; it ends when its replies are taken */
#define CL_RC_CLOSE_NOW 0x10  /* it ends, replies or not */
#define CL_RC_BLOCKED 0x20    /* waits for a key */
#define CL_RC_REPLY_OFF 0x40  /* CLIENT REPLY OFF */
#define CL_RC_REPLY_SKIP 0x80 /* ... SKIP: of this command */
#define CL_RC_REPLY_SKIP_NEXT 0x100
#define CL_RC_MONITOR 0x200
#define CL_RC_EXEC 0x400 /* inside of EXEC: nothing blocks */
#define CL_RC_NO_EVICT 0x800
#define CL_RC_WOKEN 0x1000   /* in the list of those that have something to send or to do */
#define CL_RC_PUSHING 0x2000 /* what is written is a push: CLIENT REPLY does not hold it back */
#define CL_RC_RETRY 0x4000   /* a blocked command is tried again */
#define CL_RC_FAILED 0x8000  /* the command has answered an error */
#define CL_RC_NO_TOUCH 0x10000
#define CL_RC_POSTPONED 0x20000 /* its next command waits for the end of a pause */
#define CL_RC_ABORTS 0x40000    /* EXEC: an error says that the transaction is given up */

struct cl_resp;
struct cl_rcmd;

struct cl_resp_client {
    struct cl_resp *r;
    struct cl_resp_client *next, *prev; /* all clients */
    struct cl_resp_client *next_woken;
    uint64_t id;
    uint32_t flags, db;
    uint32_t protocol; /* 2 or 3 */
    uint32_t authenticated;
    int64_t made_ms, used_ms;
    char peer[48], own[48];
    struct cl_bytes *name;

    struct cl_rparser parser;
    struct cl_bytes *in; /* of an incomplete command, or of those that wait */
    struct cl_rchain out;
    struct cl_rheld held;
    int64_t soft_since_ms; /* when `out` came over the soft limit; 0: it is not */

    const struct cl_rcmd *cmd; /* that runs */
    const struct cl_rcmd *last_cmd;
    uint32_t argc;
    const struct cl_slice *argv;

    struct cl_rargs *queue, *queue_last; /* MULTI */
    uint32_t queued;
    uint64_t queue_bytes;
    struct cl_rlink *watching;
    struct cl_rlink *channels, *patterns; /* subscriptions */
    uint32_t n_channels, n_patterns;

    /* Blocked. */
    struct cl_rlink *waits_for;
    struct cl_rargs *blocked_call;
    int64_t deadline_ms; /* 0: none */
    struct cl_resp_client *next_blocked, *prev_blocked;

    void (*wake)(void *arg); /* there is something to send, or to close, that the client's own bytes did not cause */
    void *wake_arg;
};

/* What writes have done, for a log or for replicas (propagate.h). */
struct cl_runits {
    uint8_t *data;
    uint64_t len, room;
};
struct cl_rpropagation {
    struct cl_runits open, taken;
    uint64_t units; /* complete ones, ever */
    uint64_t ended; /* of `open`: where the last complete one ends */
    uint32_t db;    /* that the unit is in */
    bool on;
    bool said; /* the command that runs has said itself what it does */
};

/* A log behind the engine (durable.h). */
struct cl_rdurable {
    bool on;        /* replies wait for it */
    bool rewriting; /* a pass goes on */
    bool finishing; /* all keys were put, and what lies before them is still there */
    bool asked;     /* for one */
    bool confirms;  /* replicas, not a log of its own: replies that tell of no unit wait for a number of their own */
    uint16_t pass;
    int32_t error;                  /* errno: it has failed, and nothing is written any more */
    uint64_t unit;                  /* the last one that is durable */
    uint64_t taken;                 /* the last one that was taken */
    uint32_t replicas;              /* others that have what is durable, at least */
    uint64_t room;                  /* bytes of units that it may still take */
    struct cl_resp_client *holding; /* clients with replies that wait */
    uint32_t n_holding;             /* how many they are */
    uint64_t write;                 /* times that some of them were answered, and 1 */
    uint32_t answered, active;      /* clients: the last time; that time or the one before */
    uint64_t refused, unanswered;   /* writes for want of room, or after a failure; clients when it failed */
    uint64_t bytes, base_bytes;     /* of the log now, and behind the last rewrite */
    uint64_t pass_bytes;            /* that this pass, or the last one, has put */
    uint64_t rewrites;              /* complete ones */
    int64_t rewritten_ms;           /* when the last one was complete; 0: there was none */
};

/* Where clients are sent whose commands are not for this engine; error empty: it does them. */
struct cl_relsewhere {
    char error[CL_RESP_ELSEWHERE];
    char host[48]; /* that does them, and its port; "" and 0: nobody knows */
    uint16_t port;
};

/* Settings that CONFIG knows (config.c). */
struct cl_rconfig {
    uint64_t maxmemory;
    int64_t policy;  /* enum cl_rpolicy */
    int64_t samples; /* maxmemory-samples */
    int64_t lfu_log_factor, lfu_decay_time;
    int64_t databases, maxclients, timeout_s;
    int64_t bulk_most;  /* proto-max-bulk-len */
    int64_t query_most; /* client-query-buffer-limit */
    int64_t pubsub_hard, pubsub_soft, pubsub_soft_s;
    int64_t normal_hard, normal_soft, normal_soft_s;
    int64_t notify; /* CL_RN_* */
    int64_t hz, slowlog_slower_us, slowlog_most, stream_node_entries;
    int64_t rewrite_percent, rewrite_least; /* auto-aof-rewrite-percentage, -min-size */
    int64_t hash_entries, hash_value, zset_entries, zset_value, set_intset, list_size, list_depth;
    char password[256];
};

/* notify-keyspace-events */
#define CL_RN_KEYSPACE 0x1  /* K */
#define CL_RN_KEYEVENT 0x2  /* E */
#define CL_RN_GENERIC 0x4   /* g */
#define CL_RN_STRING 0x8    /* $ */
#define CL_RN_LIST 0x10     /* l */
#define CL_RN_SET 0x20      /* s */
#define CL_RN_HASH 0x40     /* h */
#define CL_RN_ZSET 0x80     /* z */
#define CL_RN_EXPIRED 0x100 /* x */
#define CL_RN_EVICTED 0x200 /* e */
#define CL_RN_STREAM 0x400  /* t */
#define CL_RN_MISS 0x800    /* m */
#define CL_RN_MODULE 0x1000 /* d */
#define CL_RN_NEW 0x2000    /* n */
#define CL_RN_ALL 0x17fc    /* A: g$lshzxetd */

struct cl_rstats {
    uint64_t commands, connections, rejected, expired, evicted, hits, misses, errors;
    uint64_t bytes_in, bytes_out, pubsub_dropped;
};

/* Of one command (INFO commandstats). */
struct cl_rcmd_stats {
    uint64_t calls, failed, rejected;
};

struct cl_resp {
    struct cl_rmem mem;
    struct kv_secret secret;
    struct cl_rdb db[CL_RESP_DATABASES];
    struct cl_rconfig config;
    struct cl_rstats stats;
    const struct cl_rcmd *commands; /* table.c; ends with a name of NULL */
    uint32_t n_commands;
    struct cl_rdict by_name;             /* of commands */
    struct cl_rcmd_stats *command_stats; /* [n_stats] by cl_rcall_number */
    uint32_t n_stats;
    struct cl_resp_client *clients, *woken, *running;
    struct cl_resp_client *blocked, *blocked_last;
    uint32_t n_clients, n_blocked;
    uint64_t next_id;
    struct cl_rtopics channels, patterns;
    struct cl_rready *ready, *ready_last; /* keys that blocked clients may be served from */
    uint64_t dirty;
    struct cl_rpropagation propagation;
    struct cl_rdurable durable;
    struct cl_relsewhere elsewhere;
    uint32_t applying; /* what was propagated (apply.c) */
    int64_t now_ms;    /* wall clock: constant within a command */
    int64_t moved_ms;  /* what a test has added to the clock, or the clock itself if it is a manual one */
    int64_t started_ms, paused_until_ms;
    bool pause_all; /* or writes alone */
    uint32_t n_postponed;
    uint32_t manual_clock, active_expire;
    uint32_t evict_db; /* where eviction looks next */
    uint32_t n_monitors;
    uint64_t random;
    /* Set by engine.c, so that files below need not know those above. */
    void (*publish)(struct cl_resp *r, struct cl_slice channel, struct cl_slice message);
    struct cl_slice *argv; /* [argv_room] of the command that came last */
    uint32_t argv_room;
    uint32_t still_blocked; /* the command that is tried again finds nothing */
    char why[96];           /* the setting that was refused last was */
    uint64_t unread;        /* bytes of replies that wait, of all clients */
    bool crowded;   /* these were too many: who has more than CL_RESP_OUT_HIGH waits until half of them has left */
    uint64_t limit; /* bytes that values and clients may take, whatever maxmemory says */
};

/* A command that runs has c->argc arguments in c->argv, and answers. */
typedef void (*cl_rcmd_fn)(struct cl_resp_client *c);

static inline struct cl_slice cl_slice_of(const char *text)
{
    return (struct cl_slice){(const uint8_t *)text, (uint32_t)strlen(text)};
}

static inline bool cl_slice_same(struct cl_slice a, struct cl_slice b)
{
    return a.len == b.len && memcmp(a.p, b.p, a.len) == 0;
}

/* What may be in use: maxmemory, or what the engine was given if that is less. */
static inline uint64_t cl_resp_limit(const struct cl_resp *r)
{
    return r->config.maxmemory && r->config.maxmemory < r->limit ? r->config.maxmemory : r->limit;
}

/* The n-th argument. */
#define ARG(c, n) ((c)->argv[n])

/* Of the engine r, which is a cl_resp. */
uint64_t cl_resp_random(void *r);

#endif

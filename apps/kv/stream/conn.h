/* A client's connection: bytes in, bytes out, whatever carries them. Private to apps/kv. Read this page first.
 *
 *   TCP (tcp.c) ---+
 *                  +-> kv_conn_take -> cl_kv_process -> answers -> kv_conn.write
 *   Unix (local.c) +
 *
 * What comes is executed where it lies. Two things are kept, and nothing else:
 *   in   the one command that has not all come: a line without its end, a value that is on its way
 *   out  answers for which the transport has no room. While there are any nothing more is taken: who does not read his
 *        answers is not read from
 * A turn executes as many commands as memcached's -R says (cl_kv_front_config.requests_per_event). If more have come
 * they are the transport's to give again, in a later turn, when others that are ready have had theirs.
 * What is kept is bounded: `in` by the longest line or the largest item, `out` by one answer of the command layer; and
 * by the front's budget for all connections together (front.h). What finds no memory is refused as memcached 1.6
 *   refuses it: a value      SERVER_ERROR out of memory storing object; it is thrown away as it comes
 *   a line       SERVER_ERROR out of memory reading request, and the connection is over
 *   an answer    SERVER_ERROR out of memory writing get response, and the connection is over
 * Where somebody else executes (front.h, kv_elsewhere), a connection has one turn of commands under way, and takes
 * nothing before its answer has come and gone.
 * A line of more than KV_LINE_PATIENCE bytes that has not ended and is no get or gets ends the connection without a
 * word, as in memcached.
 *
 * Threads: whoever works on a connection works alone; he brings what belongs to his thread (kv_side). What `stats
 * conns` shows of a connection are words that anybody reads (relaxed). */
#ifndef CORELANE_APPS_KV_STREAM_CONN_H
#define CORELANE_APPS_KV_STREAM_CONN_H

#include "../ahead.h"
#include "../command_layout.h"
#include "../watch.h"

#define KV_LINE_PATIENCE 2048

struct cl_kv_front;

/* What a thread brings to the connections that it works on. */
struct kv_side {
    struct cl_kv_thread *thread;
    uint8_t *scratch; /* answers of a burst; CL_KV_ANSWER_ROOM bytes */
    uint8_t *spill;   /* an answer that is longer; made when the first comes */
    uint64_t spill_room;
    uint64_t bytes_read, bytes_written; /* writer: the thread; readers: anybody, relaxed */
    uint64_t commands_held;             /* commands that came in pieces */
    uint64_t held_back;                 /* times that an answer found no room */
    uint64_t yields;                    /* turns that ended before the commands that had come */
    struct kv_ahead ahead;              /* commands that have come, of whatever connections */
};

struct kv_held {
    uint64_t len, from; /* data[from..len) counts */
    uint64_t room;
    uint8_t *data;
};

/* kv_conn.state, as `stats conns` names them. */
enum kv_conn_state {
    KV_CONN_CLOSED = 0,
    KV_CONN_READ,    /* waits for a command */
    KV_CONN_PARSE,   /* executes one */
    KV_CONN_NREAD,   /* waits for the rest of a value */
    KV_CONN_SWALLOW, /* throws a value away */
    KV_CONN_WRITE,   /* waits for its peer to read */
    KV_CONN_WATCH,   /* is shown events */
    KV_CONN_CLOSING
};

/* What a command looks at lies in the first KV_CONN_HOT bytes. */
struct kv_conn {
    struct cl_kv_session session;
    struct cl_kv_front *front;
    /* Send. Returns how many bytes were taken; fewer than len: there is no room for more now. < 0: it is over. */
    int64_t (*write)(void *link, const void *data, int64_t len);
    void *link;
    bool over;    /* no more commands: close when `out` is empty */
    bool ended;   /* nothing more comes: over, when what has come is done */
    bool kicked;  /* since it said nothing */
    bool stopped; /* the command in `in` waits for room to answer */
    bool yields;  /* more has come than the last turn was for */
    bool waits;   /* for the answer of who executes elsewhere */
    uint32_t number;
    /* For anybody, relaxed, as the last ones. */
    uint32_t state;  /* enum kv_conn_state */
    uint32_t last_s; /* the store's time of the last command */
    struct kv_watcher watcher;
    struct kv_held in, out;
    /* Have kv_conn_go_on called soon. For what is answered later. */
    void (*wake)(void *link);
    uint32_t serial; /* of all that had its place, the low bits */
    uint32_t kind;   /* enum kv_kind (front.h) */
    uint32_t peer, own;
    uint16_t peer_port, own_port;
} CL_ALIGNED(CL_CACHELINE);
#define KV_CONN_HOT (3 * CL_CACHELINE)
_Static_assert(offsetof(struct kv_conn, out.len) + sizeof(uint64_t) <= KV_CONN_HOT, "three lines for a command");

/* A turn: execute what comes. Returns how many bytes were taken: all, or fewer while the peer does not read or
 * (c->yields) when the turn is over; what was not is given again, for which the transport of one that yields has to
 * see. */
int64_t kv_conn_take(struct kv_conn *c, struct kv_side *side, const uint8_t *data, int64_t len);
/* There may be room again: send what waits, and go on with the command that waits. False: there is still none. */
bool kv_conn_go_on(struct kv_conn *c, struct kv_side *side);
/* Nothing more comes. Returns whether the transport is to close it now; else it is as soon as kv_conn_done. */
bool kv_conn_end(struct kv_conn *c);
/* Whether the transport is to close it. */
static inline bool kv_conn_done(const struct kv_conn *c)
{
    return c->over && c->out.len == 0;
}
/* Whether it is to be shown events, by kv_conn_show, a few times a second. */
static inline bool kv_conn_watches(const struct kv_conn *c)
{
    return c->watcher.kinds != 0;
}
void kv_conn_show(struct kv_conn *c, struct kv_side *side);
/* For who executes elsewhere. Send an answer from inside of `run`; what finds no room is kept. */
void kv_conn_say(struct kv_conn *c, struct kv_side *side, const uint8_t *data, uint64_t len);
/* The turn that was under way is answered: from anywhere on the connection's kthread. `ends`: nothing is executed after
 * it. */
void kv_conn_answered(struct kv_conn *c, const uint8_t *data, uint64_t len, bool ends);
/* Free what it holds. */
void kv_conn_release(struct kv_conn *c);

#endif

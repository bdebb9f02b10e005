/* Inside the load engine: objects that its files share. sockload.h says what it does.
 *
 * A worker's memory is written by its thread alone while it runs; other threads read `progress` (relaxed) and write
 * `abort` of the object (relaxed: it is a wish, nothing is ordered by it). */
#ifndef CORELANE_BENCH_LOAD_SOCKLOAD_ENGINE_H
#define CORELANE_BENCH_LOAD_SOCKLOAD_ENGINE_H

#include "came.h"
#include "carrier.h"
#include "sockload.h"
#include <corelane/runtime/clock.h>
#include "../../../drivers/nic/loadgen/arrivals.h"
#include "../../../drivers/nic/loadgen/zipf.h"
#include "../../harness/tls.h"
#include <pthread.h>
#include <sys/socket.h>

#define CL_SOCKLOAD_NEVER UINT64_MAX
#define CL_SOCKLOAD_KEY_ROOM 256
#define CL_SOCKLOAD_BLOCK 1024 /* records that follow one another */

/* One request. id: its number in the worker, which the echo protocol carries. */
struct cl_request {
    uint64_t id;
    uint64_t due, sent; /* stamps */
    uint64_t key;
    uint64_t hold_ns;
    uint64_t record; /* where its record is; NEVER: it has none */
    uint32_t count;  /* keys of a scan */
    uint8_t op;
    uint8_t second; /* the SET of an UPDATE */
    uint8_t measured;
    uint8_t held;
    uint8_t live; /* awaits its answer */
};

enum cl_conn_state { CL_CONN_CLOSED, CL_CONN_OPENING, CL_CONN_SHAKING, CL_CONN_GREETING, CL_CONN_READY };

/* A connection. Its outstanding requests are ring[first .. first + outstanding - 1], by the ring's mask. */
struct cl_conn {
    int fd;                          /* over sockets of Linux; -1 */
    struct cl_stream *stream;        /* over the dataplane; NULL */
    struct cl_udp_socket *datagrams; /* likewise */
    struct cl_tls *tls;              /* NULL: plain */
    uint8_t state;
    uint8_t queued; /* in the worker's queue of free connections */
    bool wants_out; /* to be told of room to write */
    bool last;      /* the server said that it ends it: nothing more is sent on it */
    uint32_t first, outstanding;
    struct cl_request *ring;
    uint8_t *in, *out;
    uint32_t in_at, in_len, in_room; /* in[in_at .. in_len - 1] is not taken yet */
    uint32_t out_at, out_len, out_room;
    uint32_t need;      /* bytes that the next answer has at least */
    uint32_t greetings; /* answers to the greeting that are to come */
    uint64_t retry;     /* stamp: not opened anew before */
};

struct cl_worker;

/* A protocol. Both functions are pure: all that they know is the object and the request. */
struct cl_protocol {
    /* Write the request. Its length; -1 if there is no room. */
    int64_t (*write)(const struct cl_sockload *s, const struct cl_request *r, uint8_t *out, uint64_t room);
    /* What in[0..n-1] is as the answer to r: its length and *worth; 0: more must come, at least *need bytes in all; -1:
     * nothing that an answer begins with. end: no more comes (the connection was closed by the server). */
    int64_t (*read)(const struct cl_sockload *s, const struct cl_request *r, const uint8_t *in, uint32_t n, bool end,
                    uint32_t *worth, uint32_t *need);
};

extern const struct cl_protocol cl_sockload_protocol_echo, cl_sockload_protocol_memcached, cl_sockload_protocol_resp,
    cl_sockload_protocol_http, cl_sockload_protocol_custom;

struct cl_sockload {
    struct cl_sockload_config config;
    const struct cl_protocol *protocol;
    const struct cl_carrier *carrier;
    struct cl_tls_client *tls; /* NULL: plain */
    const struct cl_clock *clock;
    struct sockaddr_storage server;
    socklen_t server_bytes;
    bool by_id;  /* answers name their request */
    bool stream; /* TCP */
    char *host, *path, *headers, *greeting, *tls_host;
    uint16_t *key_bytes;
    uint32_t *value_bytes;
    uint64_t *hold_ns, *replay_ns;
    uint32_t longest_value, ring_mask;
    double upto[CL_SOCKLOAD_OPS]; /* cumulative shares */
    struct cl_zipf zipf;
    /* Of the run. */
    uint32_t mode; /* enum cl_mode */
    uint32_t depth, window;
    double rate;
    uint64_t start, warm_end, end, drain_end; /* stamps */
    uint64_t record_stride;                   /* every so many blocks one is kept */
    uint32_t abort;
    uint32_t finished; /* workers that are done. Writers: they; reader: the caller */
    uint32_t n_workers, running;
    struct cl_worker *workers;
    struct cl_hist *hists[CL_SOCKLOAD_HISTS]; /* of all workers, after a run */
};

enum cl_mode { CL_MODE_RUN, CL_MODE_PRELOAD };

/* When requests of a worker are due. */
struct cl_due {
    struct cl_gaps gaps;
    uint64_t mean_gap; /* ticks, 24 binary places */
    uint64_t due_q16;  /* after the start, 16 binary places */
    uint32_t at, left; /* in the table */
    uint64_t given;    /* replay: its next entry */
};

/* Datagrams of one system call. */
#define CL_SOCKLOAD_DATAGRAMS 8
#define CL_SOCKLOAD_DATAGRAM_ROOM 65536
#define CL_SOCKLOAD_WIRE_ROOM 32768

struct cl_inbox {
    struct mmsghdr headers[CL_SOCKLOAD_DATAGRAMS];
    struct iovec parts[CL_SOCKLOAD_DATAGRAMS];
    union cl_came controls[CL_SOCKLOAD_DATAGRAMS];
    uint64_t came[CL_SOCKLOAD_DATAGRAMS]; /* stamps */
    uint8_t data[CL_SOCKLOAD_DATAGRAMS][CL_SOCKLOAD_DATAGRAM_ROOM];
};

/* Datagrams of one length that are due together leave in one system call (UDP_SEGMENT, udp(7)): the kernel's stack is
 * passed once for all of them, and the server sees each by itself. Longer ones would be cut by the path. */
#define CL_SOCKLOAD_TOGETHER 16
#define CL_SOCKLOAD_TOGETHER_BYTES 1400

struct cl_together {
    struct cl_request requests[CL_SOCKLOAD_TOGETHER];
    uint8_t text[CL_SOCKLOAD_TOGETHER * CL_SOCKLOAD_TOGETHER_BYTES];
};

struct cl_worker {
    struct cl_sockload *s;
    uint32_t number;
    pthread_t thread; /* over sockets of Linux, as epoll */
    int epoll;
    struct cl_poll *set;          /* over the dataplane, as the next */
    uint32_t on_uthread;          /* it runs there. Writer: who starts it, then the uthread; reader: who waits */
    struct cl_carried_call *call; /* what it runs there */
    void *(*main)(void *w);
    bool connecting; /* before the first run, or between two */
    bool runs;       /* requests are sent when they are due */
    uint64_t came;   /* stamp: when the carrier had what it gave last by `receive` */
    uint8_t *wire;   /* TLS: what was received, CL_SOCKLOAD_WIRE_ROOM */
    uint32_t n_conns;
    struct cl_conn *conns;
    uint32_t *free; /* queue of free connections: their numbers */
    uint32_t free_head, free_tail, free_mask;
    uint32_t look_at;         /* the connection that look_after sees next */
    struct cl_request *by_id; /* echo over UDP: request id at id & by_id_mask */
    uint32_t by_id_mask;
    struct cl_inbox *inbox;       /* UDP */
    struct cl_together *together; /* NULL: each request has a system call of its own */
    bool singly;                  /* so it is, too: this path takes no datagrams together */
    struct cl_due due;
    struct cl_random random;
    uint64_t next_due; /* stamp; NEVER: no more */
    struct cl_request next;
    bool prepared; /* next is drawn and written */
    uint8_t *text; /* the bytes of next */
    uint64_t text_len, text_room;
    uint8_t *second_text; /* those of the SET of an UPDATE */
    uint64_t outstanding;
    uint64_t ids;      /* requests drawn so far */
    uint64_t measured; /* sent in this run and measured */
    uint64_t inserted; /* keys that this worker asked to add */
    uint64_t stored;   /* of these, the server has */
    uint64_t preload_next;
    bool starved;  /* a due request found no free connection */
    uint64_t open; /* connections. Writer: the worker, or who opens them before; readers: any, relaxed */
    struct cl_sockload_record *records;
    uint64_t records_room, records_used;
    struct cl_hist *hists[CL_SOCKLOAD_HISTS];
    struct cl_sockload_counts counts;
    uint64_t progress_sent, progress_answered; /* writer: the worker; readers: any, relaxed */
    uint64_t cpu_begin_ns;
    int error;
    char reason[160];
    char heard[96]; /* the first answer that was not right */
};

/* schedule.c: the first due time of a run, and the one after `next_due`. */
int cl_sockload_due_init(struct cl_due *d, const struct cl_sockload_config *c, uint64_t seed);
void cl_sockload_due_free(struct cl_due *d);
void cl_sockload_due_begin(struct cl_worker *w);
void cl_sockload_due_next(struct cl_worker *w);

/* what.c: draw what the next request asks for. */
void cl_sockload_what_init(struct cl_sockload *s);
void cl_sockload_what_draw(struct cl_worker *w, struct cl_request *r);

/* values.c. */
uint64_t cl_sockload_mix64(uint64_t x);
unsigned cl_sockload_key_write(const struct cl_sockload *s, uint64_t key, uint8_t *out);
uint32_t cl_sockload_value_bytes(const struct cl_sockload *s, uint64_t key);
void cl_sockload_value_write(uint64_t key, uint8_t *out, uint32_t n);
bool cl_sockload_value_is(uint64_t key, const uint8_t *in, uint32_t n);

/* conn.c. They return 0 or -errno; a connection that failed is closed, and opened again by look_after. */
int cl_sockload_conn_init(struct cl_worker *w, struct cl_conn *c, uint32_t ring);
void cl_sockload_conn_free(struct cl_conn *c); /* once it is closed */
int cl_sockload_conn_open(struct cl_worker *w, struct cl_conn *c);
void cl_sockload_conn_close(struct cl_worker *w, struct cl_conn *c);
/* The socket has room, or is connected: go on. */
int cl_sockload_conn_writable(struct cl_worker *w, struct cl_conn *c);
/* Send bytes now, as far as they go, and keep the rest (TCP). -EAGAIN: UDP took nothing. */
int cl_sockload_conn_send(struct cl_worker *w, struct cl_conn *c, const uint8_t *data, uint64_t n);
/* Receive what there is (TCP), into in[in_len..]: bytes, 0 for the end, -EAGAIN for nothing. more: also what the
 * carrier has; else only what was taken from it before, and is to be decrypted still. */
int64_t cl_sockload_conn_receive(struct cl_worker *w, struct cl_conn *c, bool more);
/* The greeting's answers that are there are taken: 0 while more must come, 1 if all came, -EPROTO. */
int cl_sockload_conn_greeted(struct cl_conn *c);

/* Note why a connection did not open, unless a run is under way, which goes on. */
void cl_sockload_worker_explain(struct cl_worker *w, int error, const char *what, const char *why);

/* The oldest outstanding request of a connection. */
static inline struct cl_request *cl_sockload_oldest(struct cl_worker *w, struct cl_conn *c)
{
    return &c->ring[c->first & w->s->ring_mask];
}

/* account.c. Note why the run fails, and end it. */
int cl_sockload_worker_fail(struct cl_worker *w, int error, const char *what);
/* Put a connection into the queue of free ones, if it is; take the one that is free for the longest time. */
void cl_sockload_worker_offer(struct cl_worker *w, struct cl_conn *c);
struct cl_conn *cl_sockload_worker_take(struct cl_worker *w);
/* A request has its answer, which came at that stamp; it will have none any more. */
void cl_sockload_worker_settle(struct cl_worker *w, struct cl_request *r, uint32_t worth, uint64_t came);
void cl_sockload_worker_lose(struct cl_worker *w, struct cl_request *r);
/* Keep the beginning of the first answer that is not right, or not whole, for a person. */
void cl_sockload_worker_hear(struct cl_worker *w, const uint8_t *in, uint32_t n);
/* Close a connection; what is outstanding on it is lost. expected: it ended after a whole answer. */
void cl_sockload_worker_drop(struct cl_worker *w, struct cl_conn *c, bool expected);

/* sending.c. Draw and write the next request, if it is not: 0, or -errno and the run fails. */
int cl_sockload_worker_prepare(struct cl_worker *w);
/* Send what is due by `now`, some of it. False: there is nothing, or no connection is free. */
bool cl_sockload_worker_send(struct cl_worker *w, uint64_t now);
/* The second part of an UPDATE, on the connection of the first. */
void cl_sockload_worker_send_second(struct cl_worker *w, struct cl_conn *c, struct cl_request r);

/* receiving.c: what a TCP connection, a UDP socket has received. */
void cl_sockload_worker_read(struct cl_worker *w, struct cl_conn *c);
void cl_sockload_worker_read_datagrams(struct cl_worker *w, struct cl_conn *c);

/* worker.c. */
void *cl_sockload_worker_main(void *arg);
/* Open all connections until `deadline` (stamp). */
int cl_sockload_worker_connect(struct cl_worker *w, uint64_t deadline);
int cl_sockload_worker_close(struct cl_worker *w, uint64_t unused);
/* The carrier: there is room to send on c, something has come. */
void cl_sockload_worker_event(struct cl_worker *w, struct cl_conn *c, bool room, bool come);

#endif

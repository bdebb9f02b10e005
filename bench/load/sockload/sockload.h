/* Open-loop load on kernel sockets, for any server: when requests are due, who sends them, what answers are worth.
 *
 * Rules, those of drivers/nic/loadgen/loadgen.h. The gaps between requests are drawn beforehand. Latency runs from the
 * *intended* send time. A request that cannot be sent in time is sent as soon as possible, counted as late and charged
 * the delay; none is skipped. What was due and never sent is `dropped`, what was sent and never answered rightly is
 * unanswered; both count as infinite in the percentiles. Late are two kinds, told apart: `held` requests were late
 * because no connection was free (the server's doing), the others because this program was (`lag` has their delays).
 *
 *   offered = sent + dropped         sent = answered + unanswered         answered = hits + misses + stored
 *   unanswered includes wrong and errors (an answer that is not right is no answer), and broken (the connection ended).
 *
 * Connections. A request takes the connection that is free for the longest time. On one with TCP at most `depth`
 * requests are outstanding, and answers come in their order. UDP with CL_SOCKLOAD_ECHO has ids, so a socket may have
 * any number outstanding; with CL_SOCKLOAD_CUSTOM it has one. A connection that ends, or whose oldest request waits
 * longer than timeout_ns, is opened anew; what was outstanding on it stays unanswered.
 *
 * Threads. `threads` workers, each with its connections, its share of the rate, and its own random numbers; they share
 * nothing while they run. One other thread makes the object, starts runs, waits and reads. What it reads of a run that
 * is under way are single words (progress); results are whole once cl_sockload_done says so.
 *
 * Files: sockload (object, runs), worker (the loop of a thread), sending, receiving, account (what became of each
 * request), conn (connections), sockets and dataplane (what carries them, carrier.h), schedule (due times), what (what
 * a request asks for), values (keys and values), and one a protocol: echo, memcached, resp, http.
 * Carriers. The bytes go over sockets of Linux, or, with `runtime`, over corelane's own stack, whatever NIC that has;
 * one thread then, on the runtime's kthread. With `tls` TCP has TLS between (harness/tls.h).
 *
 * Does not deal with: HTTP/2, more than one server address. Tests: tests/bench/load/. */
#ifndef CORELANE_BENCH_LOAD_SOCKLOAD_SOCKLOAD_H
#define CORELANE_BENCH_LOAD_SOCKLOAD_SOCKLOAD_H

#include <corelane/runtime/base.h>
#include "../../../runtime/hist.h"

// cffi: begin
#define CL_SOCKLOAD_TCP 0
#define CL_SOCKLOAD_UDP 1

#define CL_SOCKLOAD_ECHO 0 /* the request comes back; a reference server is told how long it keeps it (struct below) */
#define CL_SOCKLOAD_MEMCACHED 1
#define CL_SOCKLOAD_RESP 2 /* Redis */
#define CL_SOCKLOAD_HTTP 3
#define CL_SOCKLOAD_CUSTOM 4

/* Operations. INSERT: a SET of a key that was not there. SCAN: one GET of 1 to `scan_most` consecutive keys. UPDATE: a
 * GET, then a SET of the same key: one request, from the first send to the last answer. */
#define CL_SOCKLOAD_GET 0
#define CL_SOCKLOAD_SET 1
#define CL_SOCKLOAD_INSERT 2
#define CL_SOCKLOAD_DELETE 3
#define CL_SOCKLOAD_SCAN 4
#define CL_SOCKLOAD_UPDATE 5
#define CL_SOCKLOAD_OPS 6

#define CL_SOCKLOAD_MAX_THREADS 64
#define CL_SOCKLOAD_UNANSWERED 0xffffffffffffffff /* in a record */

/* What a reply is worth. A custom reply function returns more than 0 for a whole right answer (how many bytes it has),
 * 0 if there must be more, CL_SOCKLOAD_IS_WRONG for what is no right answer. */
#define CL_SOCKLOAD_HIT 0
#define CL_SOCKLOAD_MISS 1
#define CL_SOCKLOAD_STORED 2
#define CL_SOCKLOAD_ERROR 3 /* the server says that it failed */
#define CL_SOCKLOAD_WRONG 4 /* another answer than was to come */
#define CL_SOCKLOAD_LAST 16 /* beside HIT to ERROR: the server ends the connection after it */
#define CL_SOCKLOAD_IS_WRONG -1

/* What an echo request begins with, little-endian; the answer begins with the same. A reference server (reference/)
 * keeps the request hold_ns and answers with reply_bytes; a plain echo server sends it back as it is. */
struct cl_sockload_head {
    uint64_t id;
    uint32_t bytes;       /* of the request */
    uint32_t reply_bytes; /* of the answer, this head included */
    uint64_t hold_ns;
    uint64_t mark; /* of id: a stranger's bytes are told apart */
    uint64_t due;  /* when it was to be sent: a stamp of this machine's counter, for servers that know it */
};

/* Custom: write request `id` to out[0..room-1], return its length (0 or less: the run fails). */
typedef int64_t (*cl_sockload_ask)(uint64_t id, uint8_t *out, int64_t room);
/* Custom: what in[0..n-1] is to request `id`, as above. */
typedef int64_t (*cl_sockload_answer)(uint64_t id, const uint8_t *in, int64_t n);

struct cl_runtime;

/* All times in ns. Zero means the default, in brackets. What pointers point to is copied, but the functions. */
struct cl_sockload_config {
    struct cl_runtime
        *runtime; /* that carries it, with one kthread; it runs, and outlives this. NULL: sockets of Linux */
    uint32_t transport, protocol;
    const char *address; /* IPv4 or IPv6, as numbers */
    uint32_t port;
    uint32_t threads;     /* [1] */
    uint32_t connections; /* of all threads together, at least one each [threads] */
    uint32_t depth;       /* requests outstanding on a TCP connection at most [1] */
    const int32_t *cpus;  /* where each thread is pinned, -1: nowhere; NULL: nowhere */
    uint32_t spin;        /* 1: a thread never sleeps while something is outstanding or soon due */
    uint32_t fresh;       /* 1: a connection for every request, closed after the answer */
    uint64_t seed;
    uint32_t arrivals;         /* CL_ARRIVALS_POISSON, _UNIFORM or _BURSTY */
    uint32_t burst;            /* bursty: mean number of requests in a burst [16] */
    double duty;               /* bursty: fraction of time that bursts take */
    const uint64_t *replay_ns; /* due times after the start, ascending, instead of drawn ones; NULL: none */
    uint64_t n_replay;
    uint64_t late_ns;            /* sent later than this after its time: late [10 us] */
    uint64_t drain_ns;           /* how long answers are awaited after the end [1 s] */
    uint64_t timeout_ns;         /* 0: none, but the end of the drain */
    uint64_t connect_ns;         /* for all connections together, at the start [10 s] */
    uint64_t keys;               /* [1] */
    double zipf;                 /* exponent of the popularity of keys; 0: all alike */
    uint32_t latest;             /* 1: what was inserted last is the most popular (YCSB D) */
    uint32_t scan_most;          /* [100] */
    double mix[CL_SOCKLOAD_OPS]; /* share of each operation; all zero: GET only */
    const uint16_t *key_bytes;   /* drawn by key; n_key_bytes is a power of two */
    uint32_t n_key_bytes;
    const uint32_t *value_bytes; /* likewise */
    uint32_t n_value_bytes;
    const uint64_t *hold_ns; /* echo: what the reference server is to keep a request, drawn by request; likewise */
    uint32_t n_hold_ns;
    uint32_t request_bytes, reply_bytes; /* echo: at least sizeof(struct cl_sockload_head) [64, request_bytes] */
    const char *host, *path;             /* HTTP; {key} in the path stands for the key's name */
    const char *headers;                 /* HTTP: more header lines, each with its \r\n; NULL: none */
    const char *greeting;                /* RESP: sent on each new connection (AUTH, SELECT); NULL: none */
    uint32_t greeting_replies;           /* how many "+OK" answer it */
    uint32_t tls;                        /* TCP: 1: with TLS, 2: and whoever the server is */
    const char *tls_host;                /* whom its certificate must name; NULL: no matter whom */
    const char *tls_ca; /* a file of those that sign certificates (PEM); NULL: those that this machine trusts */
    cl_sockload_ask ask;
    cl_sockload_answer answer;
    uint32_t custom_room; /* custom: room of a request [65536] */
    uint64_t records;     /* requests of which a record is kept, in blocks of 1024 that follow one another [0: none] */
};

/* What became of a run, measured requests only. Writer: each worker its own; whole and final once the run is over. */
struct cl_sockload_counts {
    uint64_t offered, sent, answered, late, held, dropped;
    uint64_t wrong, errors, broken, timeouts;
    uint64_t hits, misses, stored;
    uint64_t stray;      /* answers to nothing that is outstanding: too late, doubled, unasked */
    uint64_t reconnects; /* connections opened anew, but those that the server ended after a whole answer */
    uint64_t refused;    /* of these, the server did not take at once */
    uint64_t bytes_out, bytes_in;
    uint64_t in_time;           /* right answers that came within the measured time, to whatever requests */
    uint64_t first_ns, last_ns; /* after the start: when the first of these came, and the last answer of all */
    uint64_t cpu_ns;            /* of the workers, this run */
};

/* A request, in the order of its due time within a worker. */
struct cl_sockload_record {
    uint64_t due_ns;     /* after the run's start */
    uint64_t latency_ns; /* from then; CL_SOCKLOAD_UNANSWERED */
    uint32_t lag_ns;     /* sent so long after that, at most UINT32_MAX */
    uint16_t worker;
    uint16_t op;
};

#define CL_SOCKLOAD_LATENCY 0    /* from the intended send time, infinite ones included */
#define CL_SOCKLOAD_FROM_SEND 1  /* from the real one, answered requests */
#define CL_SOCKLOAD_LAG 2        /* intended to real send time, but of held requests */
#define CL_SOCKLOAD_LATENCY_OF 3 /* + operation: as the first, of one operation; answered requests */
#define CL_SOCKLOAD_HISTS (CL_SOCKLOAD_LATENCY_OF + CL_SOCKLOAD_OPS)

struct cl_sockload;

/* New object; nothing is opened yet. -errno with a reason in err[256]. */
CL_API int cl_sockload_new(const struct cl_sockload_config *config, struct cl_sockload **out, char *err);
/* Ends what runs, closes all. */
CL_API void cl_sockload_delete(struct cl_sockload *s);
/* Open all connections. -errno with a reason; connections that are open stay so, and may be fewer than asked for. */
CL_API int cl_sockload_connect(struct cl_sockload *s, char *err);
/* Start storing every key (memcached, RESP), `depth` SETs outstanding on a connection. Then wait as for a run. */
CL_API int cl_sockload_preload(struct cl_sockload *s, uint32_t depth, char *err);
/* Start a run: warm_ns that is not measured, then measured_ns, at `rate` requests a second (given arrivals: ignored).
 * window: 0; or closed loop, not open: so many requests outstanding at any time, for probing a peak only. -EBUSY. */
CL_API int cl_sockload_run(struct cl_sockload *s, double rate, uint64_t warm_ns, uint64_t measured_ns, uint32_t window,
                           char *err);
/* 1 if nothing runs. */
CL_API int cl_sockload_done(struct cl_sockload *s);
/* Wait for the workers. 0, or -errno of the first that failed, with its reason. */
CL_API int cl_sockload_wait(struct cl_sockload *s, char *err);
/* No more requests, no waiting for answers: what is due by now and not answered is not counted. */
CL_API void cl_sockload_abort(struct cl_sockload *s);
/* Requests sent and answered so far, warm-up and preload included. Any thread, any time. */
CL_API void cl_sockload_progress(const struct cl_sockload *s, uint64_t *sent, uint64_t *answered);
/* Connections that are open. */
CL_API uint32_t cl_sockload_open(const struct cl_sockload *s);
/* The beginning of the first answer that was not right, "" if all were. After a run. */
CL_API const char *cl_sockload_heard(const struct cl_sockload *s);
/* After a run. The histogram is that of all workers, valid until the next run. Records: at most `room`, by worker. */
CL_API void cl_sockload_counts(const struct cl_sockload *s, struct cl_sockload_counts *out);
CL_API const struct cl_hist *cl_sockload_hist(const struct cl_sockload *s, unsigned which);
CL_API uint64_t cl_sockload_records(const struct cl_sockload *s, struct cl_sockload_record *out, uint64_t room);

/* What key k is called and what its value is, as it is stored; their length. Room: 256, and what the value needs. */
CL_API unsigned cl_sockload_key(const struct cl_sockload *s, uint64_t key, uint8_t *out);
CL_API unsigned cl_sockload_value(const struct cl_sockload *s, uint64_t key, uint8_t *out, uint32_t room);
/* For tests: what protocol `protocol` makes of in[0..n-1] as the answer to one request for `op` of `key` (scan: of
 * `count` keys): its length (0: more must come, negative: beyond repair), and what it is worth. */
CL_API int64_t cl_sockload_judge(const struct cl_sockload *s, uint32_t op, uint64_t key, uint32_t count,
                                 const uint8_t *in, uint32_t n, uint32_t *worth);
/* For tests: the bytes of such a request. */
CL_API int64_t cl_sockload_write(const struct cl_sockload *s, uint32_t op, uint64_t key, uint32_t count, uint8_t *out,
                                 uint32_t room);
// cffi: end
_Static_assert(sizeof(struct cl_sockload_head) == 40, "what is on the wire has no holes");

#endif

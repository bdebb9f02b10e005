/* Open-loop load generator: when requests are due, what they say, and what their answers are worth.
 *
 * One engine, used in two ways: as a NIC (cl_loadgen_nic_new: rx_burst gives the requests due by now, tx_burst takes
 * the replies) inside somebody's poll loop, and as a client thread over a queue of any other NIC
 * (cl_loadgen_client_start).
 *
 * Rules. The gaps between requests are drawn beforehand into a table. Latency runs from the intended send time. A
 * request that cannot be sent in time is sent as soon as possible, counted as late and charged the delay; none is
 * skipped. What was due and never sent is `dropped`, what was sent and never answered rightly is `unanswered`; both
 * count as infinite in the percentiles. `closed` arrivals (a window of outstanding requests) are not open loop: for
 * probing a peak only.
 *
 *   sent = answered + unanswered         answered = hits + misses + stored (memcached)
 *   unanswered includes wrong and errors: a wrong answer is no answer. offered = sent + dropped.
 *
 * A run is a list of phases, each with its rate and duration, counts and histogram; a phase that is not `measured`
 * (warm-up) has no histogram, and phases of the same `series` share one: the same stretch of a load that repeats. The
 * rate changes from one request to the next. A request belongs to the phase of its intended time. After the last phase
 * the engine sends what is still due and waits for answers for `drain_ns` at most. Runs follow each other on one
 * engine; the preload is done once.
 *
 * Threads: one thread (the poller of the NIC, or the client thread) calls due, generate and receive. Any other thread
 * starts a run, waits for it and then reads the results; the words between them are in struct cl_loadgen
 * (engine.h).
 *
 * Files: load/arrivals (gaps), load/zipf, load/random, load/wire (frames, ARP), load/echo, load/memcached, load/engine
 * (schedule, accounting), load/nic, load/client.
 * Does not deal with: TCP (../tcpload), more than one server address per engine, memcached requests longer than a
 * datagram (nor does memcached), connection churn.
 * Tests: tests/drivers/test_loadgen_*.py. */
#ifndef CORELANE_DRIVERS_NIC_LOADGEN_LOADGEN_H
#define CORELANE_DRIVERS_NIC_LOADGEN_LOADGEN_H

#include <corelane/runtime/clock.h>
#include "../../../runtime/hist.h"
#include <corelane/drivers/nic.h>

// cffi: begin
#define CL_LOAD_ECHO 0
#define CL_LOAD_MEMCACHED 1

#define CL_ARRIVALS_POISSON 0
#define CL_ARRIVALS_UNIFORM 1
#define CL_ARRIVALS_BURSTY 2
#define CL_ARRIVALS_CLOSED 3

#define CL_LOAD_IDLE 0      /* no run yet, or the last one's results are ready */
#define CL_LOAD_RESOLVING 1 /* asking for the server's MAC address */
#define CL_LOAD_PRELOADING 2
#define CL_LOAD_RUNNING 3
#define CL_LOAD_DRAINING 4
#define CL_LOAD_FAILED 5 /* the server's address was not resolved, or the preload got nowhere */
#define CL_LOAD_ASKED 6  /* asked for a run, which the engine's thread has not seen yet */

#define CL_LOAD_MAX_PHASES 1024
#define CL_LOAD_GAP_NS 1000
#define CL_LOAD_SERVICE_AT 8 /* where a payload says what to spend: ns, 4 bytes, in the machine's order */

/* Zero means the default, given in brackets. IPv4 addresses and ports in host byte order. */
/* Largest IP packet that is sent. */
#define CL_LOAD_MTU 1500

struct cl_loadgen_config {
    uint32_t traffic;
    uint32_t arrivals;
    uint64_t seed;
    uint8_t mac[6];         /* own address [02:00:00:00:00:01] */
    uint8_t server_mac[6];  /* [asked for by ARP] */
    uint32_t ip;            /* first own address [10.77.0.1] */
    uint32_t server_ip;     /* [10.77.0.2] */
    uint16_t server_port;   /* [9000] */
    uint16_t first_port;    /* own ports are first_port .. first_port + flows - 1 [20000] */
    uint32_t flows;         /* a power of two up to 16384 [64] */
    uint32_t ips;           /* own addresses, over which the flows are spread; a power of two up to `flows` [1] */
    uint32_t checksum;      /* 1: UDP checksums are computed (real peers); 0: they are 0, which RFC 768 permits */
    uint32_t outstanding;   /* requests that may await an answer; a power of two [262144, or what `flows` permits] */
    uint32_t burst;         /* bursty: mean number of requests in a burst [16] */
    double duty;            /* bursty: fraction of time that bursts take, 0 (all at once) .. 1 */
    uint32_t window;        /* closed: requests kept outstanding [64] */
    uint64_t late_ns;       /* sent later than this after its time: counted as late [10000] */
    uint64_t drain_ns;      /* how long answers are awaited after the last request [50 ms] */
    uint64_t give_up_ns;    /* resolving, and preloading without progress: after this it has failed [5 s] */
    uint32_t payload_bytes; /* echo: 8 .. CL_LOAD_MTU - 28 [22] */
    /* echo: what a server of synthetic service times is to spend on a request (CL_LOAD_SERVICE_AT in the payload, which
     * has then 16 bytes at least): long_ns for `long_fraction` of them, chosen beforehand, service_ns for the others */
    uint32_t service_ns, long_ns;
    double long_fraction;         /* 0..1; long requests have histograms of their own */
    uint32_t keys;                /* memcached [1000000] */
    uint32_t key_bytes;           /* memcached: 1..250 [16] */
    uint32_t value_bytes;         /* memcached: 1..65536 [64] */
    uint32_t preload;             /* memcached: 1: set every key before the first run */
    uint32_t preload_window;      /* memcached: SETs outstanding while preloading; a power of two [64] */
    double get_fraction;          /* memcached: of requests that are GETs, 0..1 */
    double zipf;                  /* memcached: exponent of the popularity of keys; 0: all alike */
    const struct cl_clock *clock; /* [the process's] */
};

struct cl_loadgen_phase {
    uint64_t duration_ns;
    double rate; /* requests a second; 0: a pause */
    uint32_t measured;
    uint32_t series; /* measured phases of the same number share a histogram; 0: it has its own */
};

/* Requests given one by one (echo traffic with a service time): when each is due after the run's start, ascending, and
 * what is to be spent on it. What became of them, written by the engine's thread, ns after the run's start: when each
 * was sent, and when it was rightly answered (0: never). And when whoever polls the engine stayed away for
 * CL_LOAD_GAP_NS or longer, and for how long; the first `room` of these. */
struct cl_loadgen_replay {
    uint64_t n;
    const uint64_t *at_ns;
    const uint32_t *service_ns;
    uint64_t *sent_ns, *answered_ns;
    uint64_t room, n_gaps;
    uint64_t *gap_at_ns, *gap_ns;
};

/* What became of a phase. Writer: the engine's thread; whole and final once the run is over. */
struct cl_loadgen_counts {
    uint64_t offered; /* due by the schedule */
    uint64_t sent;
    uint64_t answered; /* rightly */
    uint64_t late;
    uint64_t dropped; /* due, never sent */
    uint64_t wrong;   /* answers with other contents than expected */
    uint64_t errors;  /* answers that say that the server failed (memcached: ERROR, SERVER_ERROR, CLIENT_ERROR) */
    uint64_t hits, misses, stored;
    uint64_t late_max_ns;
    uint64_t start_tsc;                /* when the phase began by the schedule */
    uint64_t last_tsc;                 /* when its last right answer came */
    uint64_t sent_long, answered_long; /* of `sent` and `answered` */
};

/* What belongs to no phase. */
struct cl_loadgen_other {
    uint64_t stray;   /* answers to nothing that is outstanding: duplicates, or later than the drain */
    uint64_t foreign; /* frames that are no answer at all */
    uint64_t arp_requests, arp_answered;
    uint64_t preloaded; /* keys set */
    uint64_t preload_resent, preload_refused;
};

struct cl_loadgen;

/* New engine. -errno with a reason in err[256]. Seeds and tables are drawn here: some 100 ms with a million keys. */
CL_API int cl_loadgen_new(const struct cl_loadgen_config *config, struct cl_loadgen **out, char *err);
CL_API void cl_loadgen_delete(struct cl_loadgen *lg);

/* Start a run; the engine's thread begins it at its next look. -EBUSY while one is under way; -EINVAL. */
CL_API int cl_loadgen_run(struct cl_loadgen *lg, const struct cl_loadgen_phase *phases, unsigned n, char *err);
/* Start a run of given requests, of one phase that is not measured. `replay` and what it points to stay the caller's,
 * who leaves them alone until the run is over. -EBUSY; -EINVAL: no request, or the engine's traffic has no service
 * times. */
CL_API int cl_loadgen_replay(struct cl_loadgen *lg, struct cl_loadgen_replay *replay, char *err);
/* End the run at the next look: no more requests, no waiting. Its results are then ready as usual. */
CL_API void cl_loadgen_abort(struct cl_loadgen *lg);
CL_API uint32_t cl_loadgen_state(const struct cl_loadgen *lg);
/* Why the state is CL_LOAD_FAILED. */
CL_API const char *cl_loadgen_reason(const struct cl_loadgen *lg);
/* Counts of a phase of the last run; -EINVAL if there is none of that number. */
CL_API int cl_loadgen_counts(const struct cl_loadgen *lg, unsigned phase, struct cl_loadgen_counts *out);
/* Latencies in ns of a measured phase, infinite ones included once the run is over; NULL for others. Valid until the
 * next run. With long requests: those of the others (what was due and never sent is among these), and of the long
 * ones. */
CL_API const struct cl_hist *cl_loadgen_latency(const struct cl_loadgen *lg, unsigned phase);
CL_API const struct cl_hist *cl_loadgen_latency_long(const struct cl_loadgen *lg, unsigned phase);
CL_API void cl_loadgen_other(const struct cl_loadgen *lg, struct cl_loadgen_other *out);

/* The engine's thread. How many requests (at most n <= CL_NIC_BURST) are due, ARP included. */
CL_API unsigned cl_loadgen_due(struct cl_loadgen *lg, uint64_t now, unsigned n);
/* Write what is due into frames[0..n-1] (data, room given; len set); n is at most what cl_loadgen_due just said. */
CL_API unsigned cl_loadgen_generate(struct cl_loadgen *lg, uint64_t now, struct cl_frame *frames, unsigned n);
/* Take replies that arrived by `now` into account. The frames stay the caller's. */
CL_API void cl_loadgen_receive(struct cl_loadgen *lg, uint64_t now, const struct cl_frame *frames, unsigned n);
/* When due will next be positive, as far as is known: UINT64_MAX if nothing is under way. */
CL_API uint64_t cl_loadgen_next_tsc(const struct cl_loadgen *lg);

/* The engine as a NIC with one queue and its own buffers [2048]. The engine must outlive it. */
CL_API int cl_loadgen_nic_new(struct cl_loadgen *lg, uint32_t buffers, struct cl_nic **out, char *err);

struct cl_loadgen_client;

/* A thread that drives the engine over queue `queue` of `nic`, pinned to `cpu` (-1: not pinned). spin 1: polls all the
 * time while a run is under way; 0: sleeps until something is due or has come. Between runs it always sleeps. */
CL_API int cl_loadgen_client_start(struct cl_loadgen *lg, struct cl_nic *nic, unsigned queue, int cpu, uint32_t spin,
                                   struct cl_loadgen_client **out, char *err);
/* End the thread (and the run) and wait for it. Returns the CPU time that it used, in ns. */
CL_API uint64_t cl_loadgen_client_stop(struct cl_loadgen_client *client);

/* Key k of the memcached traffic as the generator writes it; returns its length (room: 256). Likewise its value. */
CL_API unsigned cl_loadgen_key(const struct cl_loadgen *lg, uint32_t k, uint8_t *out);
CL_API unsigned cl_loadgen_value(const struct cl_loadgen *lg, uint32_t k, uint8_t *out);

/* The drawing of tables, for tests: n gaps with mean 1; n ranks 0..keys-1, 0 the most popular. */
CL_API int cl_load_draw_gaps(uint32_t arrivals, uint64_t seed, uint32_t burst, double duty, double *out, uint32_t n);
CL_API int cl_load_draw_zipf(uint64_t seed, double exponent, uint32_t keys, uint32_t *out, uint32_t n);
// cffi: end

#endif

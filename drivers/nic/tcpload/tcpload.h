/* TCP load: a client of thousands of connections with a small TCP of its own, over a queue of any NIC.
 *
 *   ask      requests and answers of request_bytes on connections that stay, one under way on each (no pipelining)
 *   churn    set up, one request, closed, by the client first: the server keeps no TIME_WAIT
 *   send     bytes without end to the server, on every connection; receive: from it
 *   hold     connections that stay and say nothing
 *
 * Open loop, by the rules of ../loadgen/loadgen.h: requests are due by gaps drawn beforehand, latency runs from the
 * intended time. A request goes onto the connection that has been idle longest. If none is idle it waits, is late, and
 * is charged. What was due and never sent is `dropped`. A request of churn is answered when the server's FIN has come.
 *
 * What a byte must be is known from its place in the stream, in both directions (cl_tcpload_pattern), and each byte
 * that comes is compared. Streams of different ports begin at different places of the pattern. The server echoes (ask,
 * churn), takes (send) or makes the same pattern (receive).
 *
 * With a script, of ask alone, requests are not of the pattern but what the script says, and answers must be what it
 * says to the byte. Each connection goes through all of it, over and over, from a line of its own on.
 *
 * Its TCP (RFC 9293): three-way handshake, acknowledgements that ride on requests or else wait 40 ms at most, one
 * acknowledgement at least for two segments of a burst that was received together, windows in both directions, window
 * scale and timestamps (RFC 7323, no PAWS), FIN, resets to segments of no connection. No congestion control: it sends
 * what the window permits. No loss recovery either: the NICs that it is meant for lose nothing. What is not
 * acknowledged after 200 ms is sent again from there on, so that a rare loss does not end a run, and is counted
 * (`resent`); what comes out of order is refused and counted (`gaps`). A figure of a run with either is a figure of
 * something else.
 *
 * A run opens its connections, runs its phases, waits for answers, and ends all connections by resets. With `keep`
 * those on which all was answered stay for the next run, which opens what is missing; they say nothing meanwhile, and
 * what comes on one makes it end. An aborted run, one that failed and the end of the client's thread leave none.
 *
 * Threads: one (the client's, or the poller of the NIC) calls due, generate and receive; another starts runs, waits and
 * reads results, as in ../loadgen/loadgen.h. The clock is the processor's.
 * Files: pattern.c (what bytes must be), segment.c (what frames look like), conn.c (what comes, what leaves),
 * schedule.c (when), attack.c (what an attacker adds), attackers.c (one with connections), tcpload.c (life, control),
 * client.c (a thread on a NIC), nic.c (a NIC).
 * Tests: tests/bench/tcp. */
#ifndef CORELANE_DRIVERS_NIC_TCPLOAD_TCPLOAD_H
#define CORELANE_DRIVERS_NIC_TCPLOAD_TCPLOAD_H

#include "../loadgen/loadgen.h"

// cffi: begin
#define CL_TCPLOAD_ASK 0
#define CL_TCPLOAD_CHURN 1
#define CL_TCPLOAD_SEND 2
#define CL_TCPLOAD_RECEIVE 3
#define CL_TCPLOAD_HOLD 4

#define CL_TCPLOAD_IDLE 0    /* no run yet, or the last one's results are ready */
#define CL_TCPLOAD_ASKED 1   /* for a run, which the client's thread has not seen yet */
#define CL_TCPLOAD_OPENING 2 /* its connections */
#define CL_TCPLOAD_RUNNING 3
#define CL_TCPLOAD_DRAINING 4 /* awaits answers */
#define CL_TCPLOAD_ENDING 5   /* resets leave */
#define CL_TCPLOAD_FAILED 6   /* connections were not opened; see cl_tcpload_reason */

/* What an attacker sends who shares the client's link. The first ones know who talks to whom, and see nothing of it. */
#define CL_TCPLOAD_ATTACK_NONE 0
#define CL_TCPLOAD_ATTACK_SYN 1        /* SYNs from many places, never answered: a flood */
#define CL_TCPLOAD_ATTACK_ACK 2        /* acknowledgements of no connection */
#define CL_TCPLOAD_ATTACK_BLIND_RST 3  /* resets of the client's connections, at random numbers (RFC 5961, section 3) */
#define CL_TCPLOAD_ATTACK_BLIND_SYN 4  /* the same with SYNs (section 4) */
#define CL_TCPLOAD_ATTACK_BLIND_DATA 5 /* the same with a segment's worth of data (section 5) */
#define CL_TCPLOAD_ATTACK_BLIND_ACK 6  /* the same with acknowledgements */
/* The others have connections of their own to the client's server, from addresses of their own, and see its answers.
 * They ask it for as much as it takes, unless they say otherwise. */
#define CL_TCPLOAD_ATTACK_ZERO_WINDOW 7 /* sockstress: never offer a window for the answers, but acknowledge probes */
#define CL_TCPLOAD_ATTACK_SLOW_READER 8 /* read a few bytes of the answers now and then */
#define CL_TCPLOAD_ATTACK_TINY 9        /* segments, windows and an MSS of one byte */
#define CL_TCPLOAD_ATTACK_OPTIMISTIC 10 /* acknowledge answers before they came, also those that were never sent */
#define CL_TCPLOAD_ATTACK_OVERLAP 11    /* pieces that overlap, with different bytes, seldom the one that comes next */
#define CL_TCPLOAD_ATTACK_OUTSIDE 12    /* data beyond the window */
#define CL_TCPLOAD_ATTACK_PORTS 13      /* connections from every port, which say nothing and stay */
/* ... and who does no harm, for comparison: one whose connections ask, and read and acknowledge the answers. */
#define CL_TCPLOAD_NEIGHBOUR 14

#define CL_TCPLOAD_MAX_PHASES 1024
#define CL_TCPLOAD_PATTERN 8191 /* bytes until it repeats: prime, so that no slip by whole segments goes unseen */
#define CL_TCPLOAD_ROOM 16384   /* bytes of a pattern that may be read from any place in it */

#define CL_TCPLOAD_LINES 65535

/* What is asked and answered. Line i: requests[request_at[i]..request_at[i + 1]), and the same of answers. A request is
 * of up to one segment, an answer of at least a byte. Stays the caller's, and as it is while the client exists. */
struct cl_tcpload_script {
    uint32_t lines;
    const uint8_t *requests, *answers;
    const uint32_t *request_at, *answer_at;
};

/* Zero means the default, given in brackets. Addresses and ports in host byte order. */
struct cl_tcpload_config {
    uint32_t traffic;
    uint32_t arrivals; /* CL_ARRIVALS_POISSON or _UNIFORM; _CLOSED: whatever is idle asks (for probing a peak only) */
    uint64_t seed;
    uint8_t mac[6];                         /* own [02:00:00:00:00:01] */
    uint8_t server_mac[6];                  /* or by cl_tcpload_aim */
    uint32_t ip;                            /* first own address [10.77.0.1] */
    uint32_t ips;                           /* own addresses [1] */
    uint32_t server_ip;                     /* [10.77.0.2] */
    uint16_t server_port;                   /* [9000] */
    uint16_t first_port;                    /* [20000] */
    uint32_t ports;                         /* of each own address, used in turn [40000] */
    uint32_t connections;                   /* at one time, up to ports * ips [1] */
    uint32_t request_bytes;                 /* ask, churn: up to one segment [64] */
    uint32_t window_bytes;                  /* offered to the server [1 MiB] */
    uint32_t mtu;                           /* [1500] */
    uint32_t plain;                         /* 1: no timestamps and no window scale */
    uint32_t verify;                        /* 1: TCP checksums of what comes are computed, too */
    uint32_t keep;                          /* 1: connections stay open between runs; of ask alone */
    const struct cl_tcpload_script *script; /* of ask; NULL: the pattern */
    uint64_t late_ns;                       /* sent later than this after its time: counted as late [10000] */
    uint64_t drain_ns;                      /* how long answers are awaited after the last phase [50 ms] */
    uint64_t give_up_ns;                    /* opening without progress: after this it has failed [5 s] */
};

/* What became of a phase. Writer: the client's thread; whole and final once the run is over. */
struct cl_tcpload_counts {
    uint64_t offered, sent, answered, late, dropped; /* requests */
    uint64_t wrong;                                  /* segments with other bytes than expected, or too many */
    uint64_t late_max_ns;
    uint64_t start_tsc, last_tsc; /* when the phase began by the schedule, when its last right answer came */
    uint64_t bytes_in;            /* compared with the pattern, in this phase's time */
    uint64_t bytes_out;           /* acknowledged by the server, in this phase's time */
};

/* What belongs to no phase: since the client was made. */
struct cl_tcpload_other {
    uint64_t segments_in, segments_out;
    uint64_t opened, resets; /* connections; of them, those that the server reset */
    uint64_t again, gaps;    /* segments that came twice; that came out of order, and were refused */
    uint64_t resent;         /* times that a connection went back to what was not acknowledged */
    uint64_t foreign;        /* frames of no connection, and no ARP */
    uint64_t bad_checksums;
    uint64_t attacks;         /* segments of the attacker */
    uint64_t attackers;       /* connections that it opened */
    uint64_t attackers_bytes; /* of answers that it had in order */
};

struct cl_tcpload;

/* The bytes of every stream, from any place 0 .. CL_TCPLOAD_PATTERN - 1 on: CL_TCPLOAD_ROOM of them may be read. A
 * stream's byte k is the one at (its first place + k) modulo CL_TCPLOAD_PATTERN. Constant, any thread. */
CL_API const uint8_t *cl_tcpload_pattern(void);
/* The first place of both streams of a connection, by the client's port. */
CL_API uint32_t cl_tcpload_place(uint16_t port);

/* -errno with a reason in err[256]. */
CL_API int cl_tcpload_new(const struct cl_tcpload_config *config, struct cl_tcpload **out, char *err);
CL_API void cl_tcpload_delete(struct cl_tcpload *load);
/* The server's MAC address, if it was not known before. Not while a run is under way. */
CL_API void cl_tcpload_aim(struct cl_tcpload *load, const uint8_t mac[6]);
/* From the next run on an attacker sends `rate` segments a second while requests are due, at equal distances. They cost
 * the client's thread some time of its own. connections: of its own, for the kinds that have some, up to 131072; they
 * are opened by and by, take their turns, and are left behind by the run. Not while a run is under way. -EINVAL,
 * -ENOMEM. */
CL_API int cl_tcpload_attack(struct cl_tcpload *load, uint32_t kind, double rate, uint32_t connections);
/* Start a run; series of phases are not known here. -EBUSY while one is under way; -EINVAL. */
CL_API int cl_tcpload_run(struct cl_tcpload *load, const struct cl_loadgen_phase *phases, unsigned n, char *err);
/* End the run at the next look: no more requests, no waiting. */
CL_API void cl_tcpload_abort(struct cl_tcpload *load);
CL_API uint32_t cl_tcpload_state(const struct cl_tcpload *load);
/* Why it is FAILED. */
CL_API void cl_tcpload_reason(const struct cl_tcpload *load, char reason[256]);
/* Connections that are established now. */
CL_API uint32_t cl_tcpload_open(const struct cl_tcpload *load);
/* As of cl_loadgen_counts and cl_loadgen_latency. */
CL_API int cl_tcpload_counts(const struct cl_tcpload *load, unsigned phase, struct cl_tcpload_counts *out);
CL_API const struct cl_hist *cl_tcpload_latency(const struct cl_tcpload *load, unsigned phase);
CL_API void cl_tcpload_other(const struct cl_tcpload *load, struct cl_tcpload_other *out);

/* The client's thread. At most how many frames (n at most) it would send now. */
CL_API unsigned cl_tcpload_due(struct cl_tcpload *load, uint64_t now, unsigned n);
/* Write what is due into frames[0..n-1]; returns how many were needed, perhaps fewer than were said to be due. */
CL_API unsigned cl_tcpload_generate(struct cl_tcpload *load, uint64_t now, struct cl_frame *frames, unsigned n);
/* Take frames that arrived by `now`. They stay the caller's. */
CL_API void cl_tcpload_receive(struct cl_tcpload *load, uint64_t now, const struct cl_frame *frames, unsigned n);

/* The client as a NIC with one queue and its own buffers [2048]. The client must outlive it. */
CL_API int cl_tcpload_nic_new(struct cl_tcpload *load, uint32_t buffers, struct cl_nic **out, char *err);

struct cl_tcpload_client;

/* A thread that polls queue 0 of `nic` while a run is under way, pinned to `cpu` (-1: not pinned), and sleeps between
 * runs. */
CL_API int cl_tcpload_client_start(struct cl_tcpload *load, struct cl_nic *nic, int cpu, struct cl_tcpload_client **out,
                                   char *err);
/* End the thread (and the run) and wait for it. */
CL_API void cl_tcpload_client_stop(struct cl_tcpload_client *client);
// cffi: end

#endif

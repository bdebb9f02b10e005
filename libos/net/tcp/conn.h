/* A connection: its block, who owns what, and the calls of the state machine. Read this page first.
 *
 *                  segment                    cl_tcp_emit_fn: a segment, and where its data lies
 *     turns.c -> cl_tcp_input (input.c) --+        ^
 *     the user -> cl_tcp_write (user.c) --+-> cl_tcp_finish (conn.c) -> output.c
 *     its alarm -> cl_tcp_timers (timers.c)        |
 *                                                  +-> the user's callbacks (corelane/libos/tcp.h)
 *
 * The machine is pure: it knows no NIC, no thread, no clock and no lock. All files of this folder are it, but those
 * of net.h, which make a runtime's connections of it, and what stands on these: stream sockets (sockets.h) and handlers
 * (serve.h). It is given segments, the time, memory of chunks and a function that sends. So the same objects run in the
 * runtime, under a virtual clock, in fuzzers and in the model checker.
 *
 * Owner. Whoever works on a connection holds it, alone, from cl_tcp_begin to the end of cl_tcp_finish: a turn. In the
 * runtime that is the holder of its flow (../flow.h), on any kthread. Nothing in a block is atomic. The turn carries
 * what belongs to the kthread (cache of chunks, counters), so a holder may move between two callbacks.
 *
 * Memory. A block (CL_TCP_IDLE_BYTES with its flow and alarm) and nothing else while nothing waits. Bytes lie in chunks
 * (../chunk.h) of the application's pool, which is the bound for all connections together:
 *   send      what was written and is not acknowledged, up to send_limit bytes; inside of a turn also the empty chunk
 *             of what was acknowledged in it, for what will be written (buffer.h)
 *   records   of segments under way, from the second on (scoreboard.h): one chunk for about 120 of them
 *   receive   what is in order and not taken, up to receive_limit bytes
 *   loans     who leases what came, or sends from regions (loans.h): one chunk; and one for each piece of a region or
 *             kept frame, beside that
 *   out of order (reassembly.h)  inside the window offered, so within receive_limit, in CL_TCP_RANGES ranges at most
 * Neighbouring chunks of a queue are merged while they fit into one, so a queue takes at most twice its bytes and one
 * chunk more, whatever sizes come. If the pool is used up, or the connection has its share of it (buffer.h): a write
 * takes less; what comes out of order is refused, the last to arrive first, also to make room for what comes in order;
 * what is in order and finds no chunk is as if lost, and the windows of those with something unread stay shut for a
 * moment (CL_TCP_PRESSURE_NS). A segment for which there is no record waits. The right edge of the window never moves
 * left.
 *
 * Invariants (cl_tcp_invariant, asserted by tests after each turn)
 *   una <= nxt <= una + send.bytes + SYN + FIN, as sequence numbers
 *   the records of the scoreboard are una..nxt, without gaps, and its counts are right (scoreboard.h)
 *   rcv_nxt <= rcv_edge, receive.bytes + (rcv_edge - rcv_nxt) <= receive_limit, or a unit of the scale if that is
 *     more, + one unit
 *   what is out of order lies between rcv_nxt and rcv_edge, sorted, with gaps between
 *   if something is unacknowledged, or must be, a timer is set: no connection outlives its timers
 *   CLOSED: no timers, and no chunks but what the user has not read yet; send without bytes has none either
 *   CL_TCP_PLAIN: all is as the short ways of input.c and output.c need it (cl_tcp_is_plain)
 *
 * States (RFC 9293, section 3.3.2). LISTEN is the state of a block that a SYN has just made (listen.h); a listener is
 * no connection. Flags of what the user has closed stand beside the state:
 *
 *   SYN_SENT -> SYN_RECEIVED -> ESTABLISHED -> FIN_WAIT_1 -> FIN_WAIT_2 -> TIME_WAIT -> CLOSED
 *         \________________________^  |           \-> CLOSING ------------^
 *                                     +-> CLOSE_WAIT -> LAST_ACK -> CLOSED
 *
 * Implemented
 *   RFC 9293   the state machine with simultaneous open and close, half-close; MSS (3.7.1); Nagle (3.7.4; as Minshall
 *              has it, by the last small segment) and its off switch; what is held on purpose (output.c); silly window
 *              avoidance on both sides (3.8.6.2); window management; a FIN at a closed window is taken; zero-window
 *              probes (3.8.6.1; a probe is an old sequence number without data, as Linux sends it, so that nothing can
 *              be taken back; which window is newer the acknowledgement tells first: ack.c); delayed acknowledgements
 *              (3.8.6.3), quick ones at the start; keep-alive (3.8.4); time-out of the user (3.8.3, also as RFC 5482's
 *              local limit); urgent data taken as data, as RFC 6093 advises, and counted
 *   RFC 1323   header prediction (appendix F): what nearly every segment is goes a short way, to the same end
 *              (input.c), and so does what nearly every answer is (output.c)
 *   RFC 7323   window scale, timestamps, PAWS; a segment without a timestamp, where they were agreed, is taken, as in
 *              Linux and FreeBSD (section 3.2 would have it dropped: input.c)
 *   RFC 2018   SACK, both ways (scoreboard.c); also of what came twice (2883)
 *   RFC 5961   resets, SYNs and acknowledgements that are not exact get a challenge, at a rate for each connection;
 *              a reset with the number of the peer's FIN is taken for exact, as in Linux
 *   RFC 1337   a reset does not end TIME_WAIT
 *   RFC 6191   a SYN that is surely new does, and opens again
 *   RFC 3168   ECN: agreement, echo, reduction (ecn.c); 8257: DCTCP on the wire, as rule of the settings
 *   RFC 6298   RTT, RTO, back-off, Karn's rule
 *   RFC 8985   RACK-TLP: losses by time, from RTT/4 or three SACKed segments on; tail loss probes; times in ns
 *   RFC 6675   the scoreboard and its pipe; what is lost is RACK's to say
 *   RFC 6937   PRR with its slow start reduction bound, also for NewReno
 *   RFC 2883   DSACK adapts RACK's window (8985, section 6.2), and undoes a fall that was a mistake (3708)
 *   RFC 5682   F-RTO, with and without SACK
 *   RFC 3042   limited transmit
 *   RFC 7661   a window grows only by what used it (cc.h)
 *   RFC 2861   a window decays while idle, and what is left of it leaves in bursts over a round trip
 *   RFC 5681   slow start, congestion avoidance; without SACK fast retransmit by the third duplicate, through cc.h
 *   RFC 6582   NewReno for peers without SACK
 *   RFC 4987   SYN cookies where a backlog is full (cookie.h)
 *   RFC 1122   4.2.3.9: ICMP errors, soft and hard ones, looked at as RFC 5927 says (path.c)
 *   RFC 1191   a path MTU that shrinks, is kept for other connections to that peer, and is tried again with a larger
 *              packet after 10 minutes (paths.h); RFC 4821 in its simplest form, where routers say nothing
 *   RFC 6528   initial sequence numbers; 6056, section 3.3.3: ports (ports.h)
 *   RFC 2525, 2.17; 9293, 3.6.1: a reset if the user closes and data is or comes unread
 *
 * NOT implemented yet
 *   R2 of a SYN: it is given up after 127 s and not after 3 minutes (9293, 3.8.3)
 *   SACK blocks that cover a segment in part; blocks of acknowledgements older than una; Eifel (3522)
 *   accurate ECN (RFC 9768); pacing but after idleness; CUBIC's HyStart++
 *   a smaller block for TIME_WAIT
 *   a packet that tries a path and is lost counts as any loss (RFC 4821, section 7.7, would not)
 *   TCP Fast Open; MD5 and AO; data in a SYN (it is sent again, and taken then)
 *   receive buffers that tune themselves; frames that are made of a region's own memory: no NIC here takes a frame in
 *   two pieces
 *   sizes of buffers before the SYN, for each connection
 *
 * Tests: tests/libos/net/tcp. */
#ifndef CORELANE_LIBOS_NET_TCP_CONN_H
#define CORELANE_LIBOS_NET_TCP_CONN_H

#include <corelane/libos/tcp.h>
#include "../chunk.h"
#include "../flow_hash.h"
#include "cc.h"
#include "paths.h"
#include "rtt.h"
#include "../segment.h"

#define CL_TCP_IDLE_BYTES 512
#define CL_TCP_PRESSURE_NS 10000000ull
#define CL_TCP_USER_TIMER_NS (1ull << 26)
#define CL_TCP_SHARE 4         /* see cl_tcp_has_its_share */
#define CL_TCP_MSS_DEFAULT 536 /* of a peer that names none (RFC 9293, section 3.7.1) */
#define CL_TCP_MSS_LEAST 64    /* a smaller one is taken for this: else a peer makes our headers its amplifier */

enum cl_tcp_state {
    CL_TCP_CLOSED = 0,
    CL_TCP_LISTEN,
    CL_TCP_SYN_SENT,
    CL_TCP_SYN_RECEIVED,
    CL_TCP_ESTABLISHED,
    CL_TCP_FIN_WAIT_1,
    CL_TCP_FIN_WAIT_2,
    CL_TCP_CLOSE_WAIT,
    CL_TCP_CLOSING,
    CL_TCP_LAST_ACK,
    CL_TCP_TIME_WAIT
};

/* cl_tcp_conn.flags */
#define CL_TCP_PASSIVE 0x1             /* a listener's, and counted there while `half` or until it is accepted */
#define CL_TCP_TIMES 0x2               /* timestamps were agreed */
#define CL_TCP_SACKS 0x4               /* the peer takes SACK blocks */
#define CL_TCP_SCALES 0x8              /* windows are scaled */
#define CL_TCP_NO_DELAY 0x10           /* Nagle's rule is off */
#define CL_TCP_KEEP_ALIVE 0x20         /* probes while idle */
#define CL_TCP_SYN_OUT 0x40            /* our SYN was sent; its number is una until it is acknowledged */
#define CL_TCP_FIN_WANTED 0x80         /* the user writes no more */
#define CL_TCP_FIN_OUT 0x100           /* our FIN was sent: the last number before nxt */
#define CL_TCP_READ_SHUT 0x200         /* the user reads no more: data resets the connection */
#define CL_TCP_FIN_CAME 0x400          /* the peer's FIN is in order: rcv_nxt is behind it */
#define CL_TCP_FIN_AHEAD 0x800         /* the peer's FIN came, at fin_seq, and something before it is missing */
#define CL_TCP_ACK_NOW 0x1000          /* an acknowledgement is due with this turn */
#define CL_TCP_ACK_SOON 0x2000         /* ... or when the timer comes */
#define CL_TCP_RECOVERING 0x8000       /* from a loss, until recover_seq is acknowledged */
#define CL_TCP_TIMED_OUT 0x10000       /* that loss was found by the time-out */
#define CL_TCP_FORCE 0x20000           /* one segment is sent whatever the windows say: the time-out has come */
#define CL_TCP_OFFERING 0x40000        /* the user is inside `data` */
#define CL_TCP_TOLD 0x80000            /* `ended` was called, or must not be */
#define CL_TCP_WANTS_ROOM 0x100000     /* a write took less than it was given */
#define CL_TCP_KEEP_FRAMES 0x200000    /* what waits may stay in its frame */
#define CL_TCP_TRIES_PATH 0x400000     /* a packet that is larger than the path is known to take is under way */
#define CL_TCP_ANSWERED_LATER 0x800000 /* by uthreads, and not inside of `data` */
#define CL_TCP_CORK 0x1000000          /* what fills no segment waits until this is off */
#define CL_TCP_PLAIN 0x2000000 /* cl_tcp_is_plain: since the end of a turn; whatever may change that takes it off */
/* ... of recovery */
#define CL_TCP_PROBING 0x80000000u      /* CL_TCP_TIMER_RESEND is that of a tail loss probe */
#define CL_TCP_REORDERING 0x40000000u   /* ... is that of RACK's reordering window */
#define CL_TCP_PROBED 0x20000000u       /* a probe has left, and what came of it is not known */
#define CL_TCP_PROBED_AGAIN 0x10000000u /* ... and was something that had been sent before */
#define CL_TCP_PROBED_FIRST 0x8000000u  /* recovery stood still and was probed, and nothing came yet */
#define CL_TCP_FRTO 0x4000000u          /* the time-out may have been a mistake: wait for an acknowledgement */
#define CL_TCP_FRTO_NEW 0x4000          /* ... for the second, and meanwhile send new data only */

/* cl_tcp_conn.marks (ecn.c), whether it is paced, and what of Nagle's rule is no setting (output.c) */
#define CL_TCP_MARKS_ECN 1         /* was agreed */
#define CL_TCP_MARKS_ECHO 2        /* a mark came, and our segments say so */
#define CL_TCP_MARKS_REDUCED 4     /* an echo came, until reduced_seq is acknowledged */
#define CL_TCP_MARKS_SAY_REDUCED 8 /* with the next segment of new data */
#define CL_TCP_MARKS_OF_ECN 15     /* those */
#define CL_TCP_MARKS_PACED 16      /* after idleness: bursts, until an acknowledgement says how fast */
#define CL_TCP_MARKS_SMALL 32      /* a small segment has left, and ends at small_seq; not with MARKS_REDUCED */
#define CL_TCP_MARKS_MORE 64       /* more is written soon, and a small segment waits for it; until something comes */
#define CL_TCP_MARKS_PUSH 128      /* what was written by now leaves, whatever would hold it; until more is written */

/* cl_tcp_conn.events: to be told with this turn */
#define CL_TCP_EVENT_OPENED 1
#define CL_TCP_EVENT_DATA 2
#define CL_TCP_EVENT_WRITABLE 4
#define CL_TCP_EVENT_EOF 8
#define CL_TCP_EVENT_RELEASED 16
#define CL_TCP_EVENT_ENDED 32
#define CL_TCP_EVENT_TIMER 64

/* What it stands still for (stall.c). */
enum cl_tcp_stall { CL_TCP_STALL_NONE = 0, CL_TCP_STALL_RESEND, CL_TCP_STALL_WINDOW, CL_TCP_STALL_HOLE };

/* What a timer waits for. */
enum cl_tcp_timer {
    CL_TCP_TIMER_RESEND = 0, /* an acknowledgement (see also CL_TCP_PROBING); nothing under way: a window (persist) */
    CL_TCP_TIMER_ACK,        /* data to send with an acknowledgement */
    CL_TCP_TIMER_KEEP,       /* life: keep-alive, the end of FIN_WAIT_2 without a user, of TIME_WAIT */
    CL_TCP_TIMER_SEND,       /* a buffer for a segment, or while paced its time */
    CL_TCP_TIMERS
};

/* cl_tcp_settings.ecn, as Linux numbers them */
#define CL_TCP_ECN_OFF 0
#define CL_TCP_ECN_OFFER 1 /* and take */
#define CL_TCP_ECN_TAKE 2  /* where the peer offers it */

struct cl_icmp_about;
struct cl_tcp_listener;
struct cl_tcp_reassembly;

/* Constant while connections have it. Times in ms, sizes in bytes. */
struct cl_tcp_settings {
    uint32_t send_limit, receive_limit;
    uint32_t user_timeout_ms; /* 0: by the number of retransmissions */
    uint32_t keep_idle_ms, keep_interval_ms;
    uint32_t keep_probes;
    uint32_t delayed_ack_ms;
    uint32_t rto_least_ms; /* of the variation's part (rtt.h) */
    uint32_t time_wait_ms; /* twice the longest life of a segment */
    uint32_t fin_wait_ms;  /* FIN_WAIT_2 without a user */
    uint16_t mss;          /* what we take: MTU - 40 */
    uint8_t wscale;        /* ours */
    uint8_t options;       /* CL_TCPO_WSCALE, _SACK_OK, _TIMES: what we propose and accept */
    uint8_t ecn;           /* CL_TCP_ECN_* */
    uint8_t syn_retries, syn_ack_retries;
    bool black_holes; /* time-outs of full segments make them smaller (path.c) */
    bool no_tail_probes;
    bool keeps_window;  /* also while idle, beyond what RFC 2861 allows */
    bool no_prediction; /* all goes the long ways of input.c, ack.c and output.c, where the short ones do the same */
    uint32_t flags;     /* CL_TCP_NO_DELAY, CL_TCP_KEEP_ALIVE: as connections begin */
    const struct cl_tcp_cc_ops *cc;
};

/* Where data of a segment lies: in `chunk`, from data[offset] on, and in those behind it. len 0: no chunk. */
struct cl_tcp_bytes {
    const struct cl_chunk *chunk;
    uint32_t offset, len;
};

struct cl_tcp_conn;
struct cl_tcp_turn;
/* Send a segment of c. False: there is no buffer; it was not sent, and is tried again. */
typedef bool (*cl_tcp_emit_fn)(struct cl_tcp_turn *turn, struct cl_tcp_conn *c, const struct cl_tcp_segment *s,
                               const struct cl_tcp_bytes *data);

/* Settings with other times of keep-alive, of connections that have asked for them (keep.c). Those below n are
 * constant, and are never given back. */
#define CL_TCP_KEEPS 32
struct cl_tcp_keeps {
    struct cl_spin lock;
    uint32_t n;
    struct cl_tcp_keep {
        const struct cl_tcp_settings *like; /* which they are in all else */
        struct cl_tcp_settings settings;
    } of[CL_TCP_KEEPS];
};

/* What connections of an application share. Constant but for the two words that are hints, relaxed, the paths, and the
 * settings that connections ask for. */
struct cl_tcp_stack {
    struct cl_tcp_settings settings; /* unless a listener has others */
    struct cl_chunks *chunks;
    struct cl_flow_secret secret; /* of sequence numbers and timestamps; not that of the table */
    uint64_t pressure_until_ns;   /* by whoever was refused memory */
    uint64_t cookies_until_ns;    /* cookies that were given out may be right until then (cookie.h) */
    struct cl_tcp_paths paths;
    struct cl_tcp_keeps keeps;
};

/* What a turn has. */
struct cl_tcp_turn {
    struct cl_tcp_stack *stack;
    cl_tcp_emit_fn emit;
    /* Who listens on c's port and takes one more, which is counted then (cl_tcp_admit); NULL: nobody. Or NULL. */
    struct cl_tcp_listener *(*listener)(struct cl_tcp_turn *turn, const struct cl_tcp_conn *c);
    /* The ends of c. Or NULL: what is known of paths is not shared. */
    const struct cl_flow_key *(*key)(const struct cl_tcp_conn *c);
    /* Keep the frame in which the segment of now lies, until the chunk, which stands for it, is given back: make the
     * chunk's owner. False: no, it has to be copied. Or NULL: none is ever kept. */
    bool (*keep)(struct cl_tcp_turn *turn, struct cl_chunk *chunk);
    void (*called)(
        struct cl_tcp_turn *turn); /* a callback has returned, perhaps elsewhere and late: mend what follows. Or NULL */
    /* A cache of a kthread is about to be used, perhaps inside of a callback that has blocked, and goes on on another
     * one: see that `kthread` and `counts` are those of the caller. Or NULL: there is one. */
    void (*here)(struct cl_tcp_turn *turn);
    /* c has stood still from then until then, which is over; n: segments. Or NULL: nobody wants to know. */
    void (*stalled)(struct cl_tcp_turn *turn, const struct cl_tcp_conn *c, enum cl_tcp_stall why, uint64_t begin_ns,
                    uint64_t end_ns, uint32_t n);
    struct cl_tcp_counts *counts; /* of the kthread */
    unsigned kthread;             /* its cache of chunks */
    uint64_t now_ns;
    struct cl_tcp_range twice; /* what has come a second time, to be told with the next acknowledgement */
    /* While `data` is called: what it was given, and whether the user has leased that. */
    const uint8_t *offered;
    uint32_t offered_len;
    bool leased;
};

/* Bytes in order: see buffer.h. */
struct cl_tcp_buffer {
    struct cl_chunk *first, *last;
    uint32_t bytes;
    uint32_t limit; /* of bytes, as the socket has it */
};

/* cl_tcp_record.flags */
#define CL_TCP_RECORD_LOST 1   /* taken for lost, and not sent again since */
#define CL_TCP_RECORD_SACKED 2 /* the peer has it, and something before it is missing */
#define CL_TCP_RECORD_AGAIN 4  /* it was sent more than once */

/* A segment under way: see scoreboard.h. */
struct cl_tcp_record {
    uint64_t sent_ns; /* the last time */
    uint32_t seq;
    uint16_t len; /* in numbers: SYN and FIN count */
    uint8_t flags;
    uint8_t pad;
};

struct cl_tcp_board;

struct cl_tcp_conn {
    struct cl_tcp_turn *turn; /* whoever holds it; NULL: nobody does */
    uint32_t flags;           /* CL_TCP_* */
    uint8_t state;            /* enum cl_tcp_state */
    uint8_t events;           /* CL_TCP_EVENT_* */
    uint8_t snd_scale : 4, rcv_scale : 4;
    uint8_t marks; /* CL_TCP_MARKS_* */
    /* Sending (RFC 9293, section 3.3.1). nxt is the highest number ever sent: what is sent again is told by the
     * records. */
    uint32_t una, nxt;
    uint32_t wnd, wnd_max; /* offered by the peer: now, and the largest since a time-out overrode it */
    uint32_t wl1, wl2;     /* the segment that said so */
    uint16_t mss;          /* that both ends take, options not counted; cc.mss is what the path takes of it */
    uint8_t dup_acks;      /* without SACK; of more the scoreboard has the rest */
    uint8_t retries;       /* since something was acknowledged; of keep-alive: unanswered */
    /* Receiving. */
    uint32_t rcv_nxt, rcv_edge;
    uint32_t fin_seq;           /* of the peer's FIN, with CL_TCP_FIN_AHEAD */
    uint32_t last_ack_sent;     /* Last.ACK.sent (RFC 7323, section 4.3) */
    uint16_t rcv_mss;           /* the longest segment that came: two of them are acknowledged at once */
    uint16_t dsacks;            /* reports of what came twice, ever, modulo 2^16 */
    uint32_t quick : 5;         /* acknowledgements more that are not delayed */
    uint32_t challenges : 4;    /* sent since challenge_at, */
    uint32_t challenge_at : 15; /* which is the time in steps of CL_TCP_CHALLENGE_STEP_MS */
    uint32_t error : 8; /* errno with which it ended; before that what ICMP said since something was acknowledged */
    /* Timestamps. */
    uint32_t ts_recent, ts_recent_ms; /* TS.Recent, and when it was set */
    uint32_t ts_offset;
    struct cl_tcp_buffer send, receive;
    struct cl_chunk *send_at; /* in which nxt is, or which is before it; NULL: look from the first on */
    struct cl_tcp_reassembly *aside;
    uint64_t due_ns[CL_TCP_TIMERS]; /* CL_TCP_NEVER: not set */
    /* What is under way (scoreboard.h): one segment, or the scoreboard. */
    struct cl_tcp_record one;
    struct cl_tcp_board *board; /* NULL: there is none */
    uint32_t recover_seq; /* RecoveryPoint (RFC 6675); with CL_TCP_PROBED the probe's end (TLP.end_seq, RFC 8985) */
    union {
        uint32_t reduced_seq; /* with CL_TCP_MARKS_REDUCED: nxt at that time */
        uint32_t small_seq;   /* with CL_TCP_MARKS_SMALL: the end of the last small segment */
    };
    uint32_t user_timeout_ms;
    uint32_t loans;    /* the number of its struct cl_tcp_loans (loans.h), and one more; 0: there is none */
    uint32_t stall_us; /* with `stall`: low word of the time in us when that began */
    uint32_t timer_at; /* the time of cl_tcp_set_timer, in steps of CL_TCP_USER_TIMER_NS; 0: none. 9 years of them */
    struct cl_tcp_rtt rtt;
    struct cl_tcp_cc cc;
    uint32_t heard_ms;    /* low word of the time when a segment came, ... */
    uint32_t progress_ms; /* ... and when something was acknowledged, or nothing was due */
    const struct cl_tcp_settings *settings;
    const struct cl_tcp_events *user;
    void *arg;
    struct cl_tcp_listener *listener; /* of a passive one until it is accepted or over */
    uint32_t resent;                  /* segments, ever */
    uint16_t stalled_n;               /* with `stall`: segments */
    uint8_t stall : 7;                /* enum cl_tcp_stall, of what is sent */
    uint8_t deaf : 1;                 /* the user writes no more, and reads what has come: more resets the connection */
    uint8_t delivery;                 /* the delivery rate, packed (rate.c); 0: none was measured */
};

/* With its flow, its alarm, and its bucket and index in the tables. */
_Static_assert(sizeof(struct cl_tcp_conn) <= CL_TCP_IDLE_BYTES - 80 - 56 - 20, "an idle connection");

#define CL_TCP_NEVER UINT64_MAX
#define CL_TCP_SEND 0
#define CL_TCP_RECEIVE 1

/* Settings as Linux has them, for an MTU. */
void cl_tcp_settings_default(struct cl_tcp_settings *s, uint32_t mtu);

/* Begin and end of a turn. */
static inline void cl_tcp_begin(struct cl_tcp_conn *c, struct cl_tcp_turn *turn)
{
    c->turn = turn;
    turn->twice = (struct cl_tcp_range){0};
}
/* Send what is to be sent, and call the user. The end of the turn. False: the connection is CLOSED, the user knows, and
 * its block is free. */
bool cl_tcp_finish(struct cl_tcp_conn *c);
/* When cl_tcp_timers wants a turn; CL_TCP_NEVER: not by itself. */
static inline uint64_t cl_tcp_due_ns(const struct cl_tcp_conn *c)
{
    uint64_t a = cl_min(c->due_ns[CL_TCP_TIMER_RESEND], c->due_ns[CL_TCP_TIMER_ACK]);
    uint64_t b = cl_min(c->due_ns[CL_TCP_TIMER_KEEP], c->due_ns[CL_TCP_TIMER_SEND]);
    uint64_t user = cl_unlikely(c->timer_at) ? c->timer_at * CL_TCP_USER_TIMER_NS : CL_TCP_NEVER;
    return cl_min(cl_min(a, b), user);
}
_Static_assert(CL_TCP_TIMERS == 4, "those");

/* A new block, inside of a turn. key tells connections apart in the sequence numbers. The user is asked for later. */
void cl_tcp_init(struct cl_tcp_conn *c, struct cl_tcp_turn *turn, const struct cl_flow_key *key,
                 const struct cl_tcp_settings *settings);
/* The same with numbers of the caller's, for a block of a connection that is over. */
void cl_tcp_restart(struct cl_tcp_conn *c, struct cl_tcp_turn *turn, const struct cl_tcp_settings *settings,
                    uint32_t iss, uint32_t ts_offset);
/* Open actively: the SYN leaves with the turn. */
void cl_tcp_connect(struct cl_tcp_conn *c, const struct cl_tcp_events *user, void *arg);

/* Inside of a turn: a segment that came for the connection. data: s->len bytes. */
void cl_tcp_input(struct cl_tcp_conn *c, const struct cl_tcp_segment *s, const uint8_t *data);
/* Inside of a turn: an ICMP error came that quotes a segment of the connection (../icmp.h). */
void cl_tcp_complain(struct cl_tcp_conn *c, const struct cl_icmp_about *about);
/* Inside of a turn: whatever is due. */
void cl_tcp_timers(struct cl_tcp_conn *c);

void cl_tcp_get_info(const struct cl_tcp_conn *c, struct cl_tcp_info *out);

/* The bytes that wait for the user. */
static inline uint32_t cl_tcp_waiting(const struct cl_tcp_conn *c)
{
    return c->receive.bytes;
}

/* Whether the block is what the invariants above say. NULL: it is; else what is wrong. */
const char *cl_tcp_invariant(const struct cl_tcp_conn *c);

#endif

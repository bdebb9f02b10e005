/* The scoreboard: what is known of each segment under way (RFC 2018, section 7; RFC 6675, section 3).
 *
 * A record for each segment, in order, without gaps: together they are una..nxt. While that is one segment (a SYN, a
 * request) its record is in the connection (cl_tcp_conn.one), and there is no scoreboard. From the second on records
 * lie in chunks of the application's pool, which exist until all is acknowledged. A segment that finds no room for its
 * record does not leave yet (cl_tcp_board_room): so memory bounds what is under way, and what is lost is always known.
 *
 * This file counts and marks. What is lost, and when, say rack.c, probe.c and recovery.c. */
#ifndef CORELANE_LIBOS_NET_TCP_SCOREBOARD_H
#define CORELANE_LIBOS_NET_TCP_SCOREBOARD_H

#include "conn.h"

/* A round trip of which the delivery rate is measured (rate.c). */
struct cl_tcp_round {
    uint64_t since_ns;  /* 0: none has begun */
    uint32_t delivered; /* una by then, and the bytes beyond it that had come */
    uint32_t end;       /* it is over when this is acknowledged */
    bool limited;       /* the application had no more to send */
};

/* What the first of the chunks has for all. Sequence numbers, bytes, ns. */
struct cl_tcp_board_state {
    struct cl_tcp_board *last;
    uint64_t rack_ns;      /* when the latest sent of those that have come was sent: RACK.xmit_ts; 0: none came */
    uint64_t rack_rtt_ns;  /* RACK.rtt */
    uint32_t rack_end;     /* RACK.end_seq */
    uint32_t highest;      /* behind all that has come: RACK.fack */
    uint32_t sacked, lost; /* bytes of records with these marks */
    uint32_t sacked_n;     /* records */
    uint32_t lost_from;    /* nothing before it is lost */
    uint32_t dsack_round;  /* RACK.dsack_round: the window grows again when this is acknowledged */
    uint32_t more_dups;    /* than a byte counts: cl_tcp_conn.dup_acks */
    uint32_t prr_flight, prr_delivered, prr_out; /* RFC 6937: RecoverFS, prr_delivered, prr_out */
    struct cl_tcp_round round;
};

#define CL_TCP_BOARD_RECORDS ((CL_CHUNK_ROOM - sizeof(struct cl_tcp_board_state) - 16) / sizeof(struct cl_tcp_record))

struct cl_tcp_board {
    struct cl_tcp_board_state all; /* of the first one alone */
    struct cl_tcp_board *next;
    uint16_t from, to; /* its records are records[from..to) */
    uint16_t sacked_n; /* of them */
    uint16_t pad;
    struct cl_tcp_record records[CL_TCP_BOARD_RECORDS];
};
_Static_assert(sizeof(struct cl_tcp_board) <= CL_CHUNK_ROOM, "one chunk");

/* Where a walk over the records is. */
struct cl_tcp_walk {
    struct cl_tcp_board *board; /* NULL: at cl_tcp_conn.one */
    unsigned at;
};

/* The first record; NULL: nothing is under way. */
struct cl_tcp_record *cl_tcp_walk_first(struct cl_tcp_conn *c, struct cl_tcp_walk *w);
/* The record that has number seq, which is under way. */
struct cl_tcp_record *cl_tcp_walk_to(struct cl_tcp_conn *c, struct cl_tcp_walk *w, uint32_t seq);
struct cl_tcp_record *cl_tcp_walk_next(struct cl_tcp_walk *w);
/* Go on behind the records of this chunk. */
struct cl_tcp_record *cl_tcp_walk_skip(struct cl_tcp_walk *w);

static inline uint32_t cl_tcp_record_end(const struct cl_tcp_record *r)
{
    return r->seq + r->len;
}

/* What an acknowledgement told (cl_tcp_board_take). */
struct cl_tcp_told {
    uint32_t delivered; /* bytes that have come, told for the first time: acknowledged, or by SACK */
    uint64_t oldest_ns; /* when the first was sent of what is acknowledged now and was sent once; 0: none was */
    uint64_t latest_ns; /* ... the last, by SACK or not */
    bool again;         /* acknowledged now was something that was sent more than once */
    bool original;      /* what was sent once has come, and not by SACK before: of numbers before recover_seq */
    bool sacked;        /* a SACK block told something new */
    bool duplicate;     /* something came twice (RFC 2883): */
    struct cl_tcp_range twice;
};

/* Room for one record more. False: there is no memory for it. */
bool cl_tcp_board_room(struct cl_tcp_conn *c);
/* It did not leave: nothing has use for that room now, and no chunk is without records. */
void cl_tcp_board_unused(struct cl_tcp_conn *c);
/* Numbers seq to before end have left for the first time. There is room. */
void cl_tcp_board_add(struct cl_tcp_conn *c, uint32_t seq, uint32_t end);
/* They have left again, and are no longer lost. They began a record, and were lost, all of them. If a record has to be
 * cut and there is no memory for that, its rest counts as sent, until RACK or a time-out finds it. */
void cl_tcp_board_again(struct cl_tcp_conn *c, uint32_t seq, uint32_t end);
/* A segment acknowledges what is before una and what its SACK blocks say. */
void cl_tcp_board_take(struct cl_tcp_conn *c, const struct cl_tcp_segment *s, struct cl_tcp_told *told);
/* A record is lost, or is not. SACKed ones stay. */
void cl_tcp_board_lose(struct cl_tcp_conn *c, struct cl_tcp_record *r);
void cl_tcp_board_find(struct cl_tcp_conn *c, struct cl_tcp_record *r);
/* The peer has thrown away what it had told by SACK (RFC 2018, section 8): forget that. */
void cl_tcp_board_reneged(struct cl_tcp_conn *c);
void cl_tcp_board_free(struct cl_tcp_conn *c);

/* Bytes with a mark, CL_TCP_RECORD_LOST or _SACKED. */
static inline uint32_t cl_tcp_board_lost(const struct cl_tcp_conn *c)
{
    return c->board ? c->board->all.lost : c->one.flags & CL_TCP_RECORD_LOST ? c->one.len : 0;
}

static inline uint32_t cl_tcp_board_sacked(const struct cl_tcp_conn *c)
{
    return c->board ? c->board->all.sacked : 0;
}

/* Whether the records are what the above says. NULL: they are. */
const char *cl_tcp_board_invariant(const struct cl_tcp_conn *c);

#endif

/* memcached's commands over byte buffers, whichever transport they came by. A session that begins with 0x80 is in the
 * binary protocol (apps/kv/binary.h), any other in ASCII.
 *
 * cl_kv_process takes bytes and a place for the answer, executes what commands are complete, and says how far it came:
 *
 *   CL_KV_MORE  everything complete was done; the rest of the input waits for more bytes (session.want says how many
 *               bytes from its start on would complete the command, as far as that is known)
 *   CL_KV_FULL  the answer has no room for the next piece; call again from where it stopped with more room
 *   CL_KV_TURN  session.most commands were executed: the rest of the input is for a later turn, when others had theirs
 *   CL_KV_QUIT  the rest of the input is dropped: the client asked to be disconnected, or sent a line without end, or
 *               what follows may be a value of which nobody knows where it ends. A stream is closed, a datagram is over
 *
 * A value is never executed. The data block of a refused store is skipped; if its size is not known, or it does not end
 * where it should, all the rest is dropped.
 *
 * Commands: get gets gat gats set add replace append prepend cas incr decr touch delete flush_all version verbosity
 * stats lru_crawler cache_memlimit quit, and the meta commands mg ms md ma me mn. watch, where the transport can show
 * it. Not there: what steers slabs, LRU or external storage.
 * Answers are those of memcached 1.6, byte for byte, but for what docs/kv.md lists. */
#ifndef CORELANE_APPS_KV_COMMAND_H
#define CORELANE_APPS_KV_COMMAND_H

#include "store.h"

// cffi: begin
#define CL_KV_MORE 0
#define CL_KV_FULL 1
#define CL_KV_QUIT 2
#define CL_KV_TURN 3
#define CL_KV_TEXT 1
#define CL_KV_BINARY 2
#define CL_KV_LINE_MAX 1048576  /* longest command line */
#define CL_KV_ANSWER_MAX 4096   /* longest answer but for values */
#define CL_KV_ANSWER_ROOM 65536 /* that servers of datagrams have for an answer at least, to answer alike */

/* What a command does (cl_kv_measure). */
#define CL_KV_IDLES 0  /* neither reads nor writes items: it is refused, or answered alike by every replica */
#define CL_KV_READS 1  /* items */
#define CL_KV_WRITES 2 /* it may change some */
#define CL_KV_SHOWS 3  /* statistics, which are one server's */
#define CL_KV_STEERS 4 /* it is about one server, or the connection */

/* The first command of a stream, measured and not executed. */
struct cl_kv_extent {
    uint64_t from, to; /* where it lies in the input; before it is data that is thrown away */
    uint64_t swallow;  /* bytes behind it that are to be thrown away: the data of a refused store */
    uint64_t answer;   /* bytes of its answer, at most; not known of CL_KV_SHOWS */
    uint32_t does;     /* CL_KV_READS, ... */
    uint32_t keys;     /* of a get, gets, gat or gats, and the binary protocol's: how many */
};

/* State between calls. One a stream; for datagrams, zeroed before each. */
struct cl_kv_session {
    struct cl_kv_thread *thread;
    uint64_t swallow; /* input bytes to be thrown away: the data of a refused store */
    uint64_t keeps;   /* bytes of one command that the transport can keep until all of it has come; 0: any number */
    uint32_t most;    /* commands of a turn, memcached's -R; 0: any number */
    uint32_t done;    /* of them; the transport begins a turn by setting it to 0 */
    uint64_t want;    /* with CL_KV_MORE and unconsumed input: bytes needed from its start, 0 if unknown */
    uint32_t skip;    /* a retrieval that stopped for room goes on this far into its line, a dump after so many */
    uint32_t
        replicated; /* 1: refuse what is about this server alone, such as stats, as replicas would answer differently */
    uint32_t protocol;       /* as the first byte says: 0 not known yet, CL_KV_TEXT, CL_KV_BINARY */
    uint32_t watches;        /* kinds of events that `watch` asked for: nothing else is done any more */
    uint32_t may_watch;      /* 1: the transport can show them */
    uint32_t dump_partition; /* where a dump goes on that stopped for room: partition, place, last place */
    uint64_t dump_at, dump_end;
};

/* Where answers go. When `room` does not do, what there is moves to `spill`, once, and the answer goes on there.
 * One of them must be able to take CL_KV_ANSWER_MAX bytes plus the largest value, or CL_KV_FULL may come for ever. */
struct cl_kv_out {
    uint8_t *data;
    uint64_t len, room;
    uint8_t *spill; /* NULL: none */
    uint64_t spill_room;
};

/* Execute commands from in[0..len); *consumed is how many bytes are done with. Returns CL_KV_MORE, _FULL, _TURN
 * or _QUIT. */
CL_API int cl_kv_process(struct cl_kv_session *session, const uint8_t *in, uint64_t len, uint64_t *consumed,
                         struct cl_kv_out *out);
/* Measure the first command and execute nothing. Returns CL_KV_QUIT if it is refused so that the stream ends, or asks
 * for that, else CL_KV_MORE. out->to == out->from: it has not all come; `from` bytes are done with, session->want is
 * set. Else session->swallow is as it will be once it was executed. */
CL_API int cl_kv_measure(struct cl_kv_session *session, const uint8_t *in, uint64_t len, struct cl_kv_extent *out);
/* The same as cl_kv_process of a request that is all there, as a datagram is, whose answer has to be all there, too: a
 * last command that is not complete is answered with an error, and an answer without room is an error instead. */
CL_API void cl_kv_process_whole(struct cl_kv_session *session, const uint8_t *in, uint64_t len, struct cl_kv_out *out);
// cffi: end

#endif

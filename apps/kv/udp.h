/* memcached's UDP framing around the command layer, and the burst handler that makes the store a server.
 *
 * A datagram begins with 8 bytes, big endian: request id, sequence number, datagrams in this message, zero. A request
 * is one datagram; one that says that it is part of several is refused, as memcached refuses it. An answer is split so
 * that no datagram exceeds CL_KV_UDP_DATAGRAM bytes (or the room given, if that is less).
 *
 * A datagram that is itself an answer gets none, not even an error: two servers would go on for ever. Commands are in
 * lower case; answers of either protocol begin with a capital, a digit or 0x81. The later datagrams of a split one may
 * begin with anything, and have a sequence number.
 *
 * A burst goes through three stages, so that its cache misses overlap: parse and hash every request and fetch the
 * buckets; fetch the items; execute. A GET of one key whose value fits one datagram is formatted straight into the
 * reply. Every datagram is counted: datagrams = answered + silent + answers + runts. */
#ifndef CORELANE_APPS_KV_UDP_H
#define CORELANE_APPS_KV_UDP_H

#include <corelane/libos/udp.h>
#include "command.h"

/* The answer to a request of several datagrams. */
#define CL_KV_UDP_MULTI "SERVER_ERROR multi-packet request not supported\r\n"

// cffi: begin
#define CL_KV_UDP_HEADER 8
#define CL_KV_UDP_DATAGRAM 1400

/* One thread's server side. Counters: written by that thread, read by anybody (relaxed). */
struct cl_kv_udp {
    struct cl_kv_thread *thread;
    uint8_t *spill;
    uint64_t spill_room;
    uint64_t datagrams;    /* requests seen */
    uint64_t answered;     /* requests that got an answer */
    uint64_t silent;       /* requests that wanted none (noreply, quit) or for whose answer there was no room */
    uint64_t answers;      /* were answers themselves: dropped */
    uint64_t runts;        /* too short for the header: dropped */
    uint64_t fast_gets;    /* answered by the short way */
    uint64_t split;        /* answers that took several datagrams */
    uint64_t cut;          /* answers that lost datagrams, as no buffer was free */
    uint64_t multi_packet; /* refused: request in several datagrams */
    /* Send `used` bytes of a request's reply and get room for more: cl_udp_reply_more, or the like of another
     * transport. */
    int (*more)(struct cl_udp_req *req, int64_t used);
};

/* Whether a datagram is an answer, not a request: nobody may answer it. */
CL_API bool cl_kv_udp_is_answer(const uint8_t *datagram, int64_t len);

/* A server: one cl_kv_udp a thread. */
struct cl_kv_server;

/* One cl_kv_udp for each of the store's threads; `more` NULL: answers of several datagrams are refused. -ENOMEM. */
CL_API int cl_kv_server_new(struct cl_kv *store, int (*more)(struct cl_udp_req *, int64_t), struct cl_kv_server **out);
CL_API void cl_kv_server_delete(struct cl_kv_server *server);
/* Thread i's side; NULL if there is no such thread. */
CL_API struct cl_kv_udp *cl_kv_server_udp(struct cl_kv_server *server, uint32_t i);
/* Handle up to 64 requests on the thread that owns `udp`. */
CL_API void cl_kv_udp_batch(struct cl_kv_udp *udp, struct cl_udp_req *reqs, unsigned n);
/* The same as a burst handler; arg is the cl_kv_udp. */
CL_API void cl_kv_udp_handler(struct cl_udp_req *reqs, unsigned n, void *arg);
// cffi: end

#endif

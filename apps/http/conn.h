/* A connection: requests in, answers out, one after the other, and for how long each state may last.
 *
 *   IDLE -> HEAD -> BODY -> ANSWER -> IDLE ...     ANSWER -> LINGER -> over
 *
 * The machine knows no TCP and no TLS: bytes come by cl_http_take, and leave by a link. So it runs on a connection of
 * libos (wire.c), behind TLS, and in tests without a network (host.c).
 *
 * A request that comes while an answer is being sent waits unread (cl_http_take takes nothing), so a peer that sends
 * and does not read is held back by TCP. IDLE has nothing but this block. LINGER: an error was answered, our side is
 * shut, and what the peer still sends is read and dropped for a while; else a reset could overtake the answer (RFC
 * 9112, section 9.6).
 *
 * Owner: whoever holds the connection; calls of one never overlap. What they call may block (files, handlers). */
#ifndef CORELANE_APPS_HTTP_CONN_H
#define CORELANE_APPS_HTTP_CONN_H

#include "exchange.h"

/* What carries the bytes. */
struct cl_http_link {
    /* Returns how many were taken; cl_http_room tells of more room. < 0: it is over. */
    int64_t (*write)(void *wire, const void *data, int64_t len);
    /* As write, of a file that has a region, without a copy: cl_http_released tells when the bytes may go. NULL: what
     * is below copies anyway. */
    int64_t (*lend)(void *wire, const struct cl_http_file *f, uint64_t from, int64_t len);
    void (*shutdown)(void *wire); /* write no more */
    void (*close)(void *wire);    /* nor read */
    void (*abort)(void *wire);    /* now, with a reset */
    struct cl_http_around around; /* calls of handlers */
};

enum cl_http_state {
    CL_HTTP_IDLE = 0,
    CL_HTTP_HEAD_STATE,
    CL_HTTP_BODY_STATE,
    CL_HTTP_ANSWERS,
    CL_HTTP_LINGERS,
    CL_HTTP_OVER
};

struct cl_http_conn {
    const struct cl_http_link *link;
    void *wire;
    struct cl_http_service *service;
    struct cl_http_exchange *now; /* NULL: idle */
    uint8_t state;                /* enum cl_http_state */
    bool eof;                     /* the peer sends no more */
    uint32_t ticks;               /* in this state, or of the window */
    uint64_t moved;               /* bytes in this window; LINGER: dropped */
    uint32_t requests;
    struct cl_http_file *lent; /* bytes of it may still be sent, or NULL; the connection has a reference */
    uint64_t lent_bytes;
};

/* New connection. NULL: as many exist as may, or no memory; it is counted. */
struct cl_http_conn *cl_http_conn_new(struct cl_http_service *s, const struct cl_http_link *link, void *wire);
/* Bytes came. Returns how many were taken; the rest is to be offered again when cl_http_room returns true. */
int64_t cl_http_take(struct cl_http_conn *c, const uint8_t *data, int64_t len);
/* There is room to write again. True: what was not taken is to be offered. */
bool cl_http_room(struct cl_http_conn *c);
/* So many of the bytes that were lent are no longer needed. */
void cl_http_released(struct cl_http_conn *c, int64_t bytes);
/* The peer has sent its last byte, and all of them were taken. */
void cl_http_eof(struct cl_http_conn *c);
/* tick_ms have passed. */
void cl_http_tick(struct cl_http_conn *c);
/* The link is gone. failed: by an error. */
void cl_http_conn_delete(struct cl_http_conn *c, bool failed);

#endif

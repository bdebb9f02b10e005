/* A request and its answer, while a connection works on them.
 *
 * The answer is a row of spans: first the head, then what `next` gives, until it gives no more. Spans lie in memory
 * that the exchange owns or has a reference of, so a peer that reads slowly costs its connection's send buffer and no
 * copy. Owner: the connection. Threads: whoever holds the connection. */
#ifndef CORELANE_APPS_HTTP_EXCHANGE_H
#define CORELANE_APPS_HTTP_EXCHANGE_H

#include "condition.h"
#include "file.h"
#include "handler.h"
#include "service.h"

#define CL_HTTP_ANSWER_HEAD 2048 /* bytes of an answer's head, or of a part's, and of a short body behind it */

/* What `next` has done. */
#define CL_HTTP_SPAN 1      /* there is another span */
#define CL_HTTP_END 0       /* the answer is whole */
#define CL_HTTP_FAILED (-1) /* it cannot be ended: the connection is reset */

/* Around the call of a compiled handler. */
struct cl_http_around {
    void (*begin)(void *wire);
    bool (*end)(void *wire); /* whether it faulted */
};

struct cl_http_exchange {
    struct cl_http_request request;
    struct cl_http_service *service;
    struct cl_http_exchange *next_spare;
    /* The request's body. */
    const uint8_t *body;
    uint64_t body_len;
    uint8_t *body_kept; /* a copy, if it came in pieces; or NULL */
    uint64_t body_room;
    bool wants_body; /* somebody will look at it; else it is read and dropped */
    int early;       /* status that its head has earned, before its body if that would wait for 100. 0: none */
    bool closes;     /* the connection ends with this answer */
    /* The answer. */
    uint16_t status;
    const uint8_t *span;
    uint64_t span_len;
    int (*next)(struct cl_http_exchange *x); /* NULL: there are no more spans */
    struct cl_http_file *file;
    uint64_t at, left; /* of the file, or of the range: the next byte, and how many */
    uint8_t *piece;    /* of a file that is not in memory: where pieces of it are read to */
    uint16_t range, n_ranges;
    struct cl_http_range ranges[CL_HTTP_RANGES];
    char boundary[24];
    /* Of a handler. */
    const struct cl_http_route *route; /* NULL: files */
    const struct cl_http_around *around;
    void *around_wire;
    uint8_t *reply; /* memory of its answer, or NULL */
    uint64_t reply_room;
    bool answered, streams;
    struct cl_http_call call;
    uint32_t head_len;
    char head[CL_HTTP_ANSWER_HEAD];
};

/* A new one, from the kthread's spare ones if there are any. NULL: no memory. */
struct cl_http_exchange *cl_http_exchange_new(struct cl_http_service *s);
/* Let go of all that it owns. */
void cl_http_exchange_delete(struct cl_http_exchange *x);
/* Keep a piece of the body, all of which is `len` bytes long if that is known. 0, 413 or 503. */
int cl_http_exchange_keep(struct cl_http_exchange *x, const uint8_t *data, uint32_t len);
/* What those that are free take of memory_bytes. */
uint64_t cl_http_exchange_spare_bytes(const struct cl_http_thread *t);
void cl_http_exchange_free_spares(struct cl_http_thread *t);

#endif

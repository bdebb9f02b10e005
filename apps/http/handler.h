/* Handlers: functions that answer what is asked of paths of theirs, instead of files.
 *
 * A compiled one gets the target (path and query, as it came), the body, and room for the answer's body. It may block.
 * A foreign one, of a language run-time, gets a struct cl_http_call, on the kthread's own stack under the no-switch
 * rule (corelane/libos/sched.h); it answers by cl_http_reply, whole, or as a stream of which it is asked for the next
 * piece when the one before it has left. */
#ifndef CORELANE_APPS_HTTP_HANDLER_H
#define CORELANE_APPS_HTTP_HANDLER_H

#include <corelane/libos/sched.h>

// cffi: begin
struct cl_http_service;

/* Returns the status, 200 to 599, and *answered: bytes of the answer's body, 0 to room. Anything else, and a fault, is
 * answered by 500. */
typedef int64_t (*cl_http_handler)(const uint8_t *target, int64_t target_len, const uint8_t *body, int64_t len,
                                   uint8_t *reply, int64_t room, int64_t *answered, void *arg);

/* cl_http_foreign's op */
#define CL_HTTP_CALL_BEGIN 0 /* answer it */
#define CL_HTTP_CALL_NEXT 1  /* the next piece of its stream, by cl_http_reply_piece, or none: it ends */
#define CL_HTTP_CALL_END 2   /* nobody will ask for more of its stream */

/* A request, while it is answered. Texts are good until the function returns. */
struct cl_http_call {
    const char *method;  /* "GET" */
    const char *target;  /* path and query */
    const char *headers; /* lines, "Name: value CR LF" each */
    const uint8_t *body;
    uint32_t target_len, headers_len;
    uint64_t body_len;
    uint64_t stream; /* the function's own, from BEGIN on: not 0 if the answer is a stream */
};

/* 0. -ENOMEM: it is answered by 503, < 0: by 500; if the answer has begun it is cut off. */
typedef int (*cl_http_foreign)(struct cl_http_call *call, int op, void *arg);

/* Which methods a handler takes: bits. Who takes GET takes HEAD. */
#define CL_HTTP_TAKES_GET 1
#define CL_HTTP_TAKES_POST 4
#define CL_HTTP_TAKES_PUT 8
#define CL_HTTP_TAKES_DELETE 16
#define CL_HTTP_TAKES_OPTIONS 32
#define CL_HTTP_TAKES_PATCH 64

/* Answer what is asked of a path, or if it ends with a star of all that begin so, by a handler; the longest that fits
 * counts. Paths are compared as they come, without decoding. type: of its answers. room: bytes of the longest one.
 * Before the service serves. -EINVAL, -ENOMEM. */
CL_API int cl_http_add_handler(struct cl_http_service *s, const char *path, uint32_t methods, const char *type,
                               uint64_t room, cl_http_handler fn, void *arg);
CL_API int cl_http_add_foreign(struct cl_http_service *s, const char *path, uint32_t methods, cl_http_foreign fn,
                               void *arg);
/* Of a foreign handler at BEGIN: the answer. headers: lines with CR LF, without a length. Everything is copied. stream:
 * pieces follow, and body is the first of them, or none. -EINVAL: a status or lines that cannot be, -ENOMEM. */
CL_API int cl_http_reply(struct cl_http_call *call, int status, const char *headers, uint64_t headers_len,
                         const uint8_t *body, uint64_t len, bool stream);
/* At NEXT: the next piece. -ENOMEM. */
CL_API int cl_http_reply_piece(struct cl_http_call *call, const uint8_t *data, uint64_t len);
// cffi: end

struct cl_http_exchange;

struct cl_http_route {
    struct cl_http_route *next;
    uint32_t methods, path_len;
    bool prefix;
    uint64_t room;
    cl_http_handler handler; /* or ... */
    cl_http_foreign foreign;
    void *arg;
    char *type, *what; /* `what` of `doing` */
    struct cl_doing doing;
    char path[];
};

/* Find the exchange's handler by its target, and whether it takes the request. 0, or a status to answer with. */
int cl_http_route(struct cl_http_exchange *x);
/* What of Allow the exchange's handler says. */
void cl_http_route_refuse(struct cl_http_exchange *x, int status);
/* Have the handler answer a request that is whole. May block. */
void cl_http_handler_answer(struct cl_http_exchange *x);
/* The exchange ends: its handler's stream is given up. */
void cl_http_handler_end(struct cl_http_exchange *x);
void cl_http_routes_delete(struct cl_http_service *s);

#endif

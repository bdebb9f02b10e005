/* A request as it comes, by llhttp: its head, what the head says of the body, and what is refused.
 *
 * Bytes come in any pieces. The texts of a request that came in one piece lie there, and are gone with it; of another
 * one, in a copy that the request owns. So they are good while what cl_http_request_feed was given last is.
 *
 * Refused with a status beyond what llhttp refuses (RFC 9112, sections 3.2, 6.1, 6.3 and 11.2, where a proxy and we
 * could see different requests):
 *   400  both lengths, two lengths, chunked in HTTP/1.0; no Host or two in HTTP/1.1, or one that is no host, in the
 *        target neither; a line of the head that LF alone ends, or that goes on in the next (obs-fold); a header
 *        without a name
 *   413  a length, or that of a chunk, above the limit; a chunked body whose frames and trailers go on
 *   414  a target, 431 a head that is longer than the limit
 *   417  expects what we do not know
 *   501  a transfer coding other than chunked; a method that is not ours
 *   505  another version than 1.x
 * Threads: one at a time. */
#ifndef CORELANE_APPS_HTTP_REQUEST_H
#define CORELANE_APPS_HTTP_REQUEST_H

#include "llhttp/parser.h"
#include "text.h"

#define CL_HTTP_HEADERS 96 /* of a request */
#define CL_HTTP_HEAD_MOST 65535

/* Fields that are looked at. */
enum cl_http_field {
    CL_HTTP_OTHER = 0,
    CL_HTTP_HOST,
    CL_HTTP_CONTENT_LENGTH,
    CL_HTTP_TRANSFER_ENCODING,
    CL_HTTP_EXPECT,
    CL_HTTP_RANGE,
    CL_HTTP_IF_RANGE,
    CL_HTTP_IF_MATCH,
    CL_HTTP_IF_NONE_MATCH,
    CL_HTTP_IF_MODIFIED_SINCE,
    CL_HTTP_IF_UNMODIFIED_SINCE,
    CL_HTTP_FIELDS
};

enum cl_http_method {
    CL_HTTP_GET = 0,
    CL_HTTP_HEAD,
    CL_HTTP_POST,
    CL_HTTP_PUT,
    CL_HTTP_DELETE,
    CL_HTTP_OPTIONS,
    CL_HTTP_PATCH,
    CL_HTTP_METHODS
};

enum cl_http_stage {
    CL_HTTP_READS_HEAD = 0,
    CL_HTTP_READS_BODY,
    CL_HTTP_WHOLE,  /* there is nothing more of it */
    CL_HTTP_REFUSED /* with `status` */
};

/* A header, as places in the head. */
struct cl_http_header {
    uint16_t name_at, name_len, value_at, value_len;
};

struct cl_http_request;

/* What its owner is asked. 0, or the status to refuse it with. */
struct cl_http_asks {
    /* The head is complete. */
    int (*head)(struct cl_http_request *r);
    /* Bytes of the body, without the chunks' frames. */
    int (*body)(struct cl_http_request *r, const uint8_t *data, uint32_t len);
};

struct cl_http_limits {
    uint32_t target_most, head_most; /* bytes; CL_HTTP_HEAD_MOST at most */
    uint64_t body_most;              /* of a length, and of one chunk's */
    uint64_t chunked_most; /* bytes of a chunked body as it comes: frames, their extensions and trailers too */
};

struct cl_http_request {
#if CL_HTTP_PARSES
    llhttp_t parser;
#endif
    const struct cl_http_asks *asks;
    const struct cl_http_limits *limits;
    const char *bytes;  /* of the head */
    uint8_t *kept;      /* the copy, or NULL */
    uint32_t kept_room; /* its bytes */
    uint32_t head_len;  /* bytes of the head in earlier pieces */
    uint32_t head_end;  /* behind its last byte; 0: not seen yet */
    uint32_t line_len;  /* bytes of the line that goes on */
    uint32_t lines;     /* of the head, complete ones that are not empty */
    uint8_t last;       /* byte of the piece before */
    const char *piece;
    uint64_t length;     /* of the body, if `sized` */
    uint64_t frame;      /* bytes of the body as it came, the chunks' frames included */
    uint16_t status;     /* refused with */
    uint8_t stage;       /* enum cl_http_stage */
    uint8_t method;      /* enum cl_http_method */
    uint8_t minor;       /* of the version 1.x */
    bool keep_alive;     /* the peer wants the connection to go on */
    bool chunked, sized; /* how long its body is; neither: it has none */
    bool expects;        /* 100 Continue */
    uint16_t target_at, target_len;
    uint16_t n;                     /* headers */
    uint8_t first[CL_HTTP_FIELDS];  /* of each field, the header that has it + 1; 0: none */
    uint8_t times[CL_HTTP_FIELDS];  /* how often it is there */
    uint8_t field[CL_HTTP_HEADERS]; /* enum cl_http_field of each */
    struct cl_http_header header[CL_HTTP_HEADERS];
};

/* Whether this build has a parser. */
bool cl_http_parses(void);
void cl_http_request_begin(struct cl_http_request *r, const struct cl_http_asks *asks,
                           const struct cl_http_limits *limits);
/* The next bytes. Returns how many belong to this request, all of them unless it is CL_HTTP_WHOLE or CL_HTTP_REFUSED.
 * */
int64_t cl_http_request_feed(struct cl_http_request *r, const uint8_t *data, int64_t len);
/* Free what it owns. */
void cl_http_request_end(struct cl_http_request *r);

static inline struct cl_http_text cl_http_part(const struct cl_http_request *r, uint32_t at, uint32_t len)
{
    return (struct cl_http_text){r->bytes + at, len};
}

static inline struct cl_http_text cl_http_target(const struct cl_http_request *r)
{
    return cl_http_part(r, r->target_at, r->target_len);
}

/* The value of a header by its place. */
static inline struct cl_http_text cl_http_value_of(const struct cl_http_request *r, unsigned i)
{
    return cl_http_part(r, r->header[i].value_at, r->header[i].value_len);
}

/* The value of the first header of a field; len 0, at NULL: there is none. */
static inline struct cl_http_text cl_http_value(const struct cl_http_request *r, enum cl_http_field field)
{
    return r->first[field] ? cl_http_value_of(r, r->first[field] - 1u) : (struct cl_http_text){NULL, 0};
}

static inline bool cl_http_has_body(const struct cl_http_request *r)
{
    return r->chunked || r->length;
}

#endif

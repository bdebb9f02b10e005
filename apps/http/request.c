/* See request.h. */
#include "request.h"
#include "path.h"

#include <stdlib.h>

#define KEPT_LEAST 1024

#if CL_HTTP_PARSES

static const struct cl_http_text names[CL_HTTP_FIELDS] = {
    [CL_HTTP_OTHER] = {"", 0},
    [CL_HTTP_HOST] = {"host", 4},
    [CL_HTTP_CONTENT_LENGTH] = {"content-length", 14},
    [CL_HTTP_TRANSFER_ENCODING] = {"transfer-encoding", 17},
    [CL_HTTP_EXPECT] = {"expect", 6},
    [CL_HTTP_RANGE] = {"range", 5},
    [CL_HTTP_IF_RANGE] = {"if-range", 8},
    [CL_HTTP_IF_MATCH] = {"if-match", 8},
    [CL_HTTP_IF_NONE_MATCH] = {"if-none-match", 13},
    [CL_HTTP_IF_MODIFIED_SINCE] = {"if-modified-since", 17},
    [CL_HTTP_IF_UNMODIFIED_SINCE] = {"if-unmodified-since", 19},
};

static const uint8_t methods[] = {
    [HTTP_GET] = 1 + CL_HTTP_GET,    [HTTP_HEAD] = 1 + CL_HTTP_HEAD,     [HTTP_POST] = 1 + CL_HTTP_POST,
    [HTTP_PUT] = 1 + CL_HTTP_PUT,    [HTTP_DELETE] = 1 + CL_HTTP_DELETE, [HTTP_OPTIONS] = 1 + CL_HTTP_OPTIONS,
    [HTTP_PATCH] = 1 + CL_HTTP_PATCH};

bool cl_http_parses(void)
{
    return true;
}

static struct cl_http_request *request_of(llhttp_t *p)
{
    return cl_container_of(p, struct cl_http_request, parser);
}

/* Have llhttp stop; it has its own error for it. */
static int refuse(struct cl_http_request *r, int status)
{
    r->status = (uint16_t)status;
    return HPE_USER;
}

/* Where in the head a byte of this piece is. */
static uint32_t place(const struct cl_http_request *r, const char *at)
{
    return r->head_len + (uint32_t)(at - r->piece);
}

static bool too_long(const struct cl_http_request *r, const char *end)
{
    return place(r, end) > r->limits->head_most;
}

static int on_url(llhttp_t *p, const char *at, size_t len)
{
    struct cl_http_request *r = request_of(p);
    if (!r->target_len)
        r->target_at = (uint16_t)place(r, at);
    if (r->target_len + len > r->limits->target_most || too_long(r, at + len))
        return refuse(r, 414);
    r->target_len = (uint16_t)(r->target_len + len);
    return 0;
}

/* Headers behind a chunked body (trailers) are read, and forgotten. */
static bool is_trailer(const struct cl_http_request *r)
{
    return r->stage != CL_HTTP_READS_HEAD;
}

static int on_field(llhttp_t *p, const char *at, size_t len)
{
    struct cl_http_request *r = request_of(p);
    if (is_trailer(r))
        return 0;
    if (r->n >= CL_HTTP_HEADERS || too_long(r, at + len))
        return refuse(r, 431);
    struct cl_http_header *h = &r->header[r->n];
    if (!h->name_len)
        h->name_at = (uint16_t)place(r, at);
    h->name_len = (uint16_t)(h->name_len + len);
    return 0;
}

static int on_value(llhttp_t *p, const char *at, size_t len)
{
    struct cl_http_request *r = request_of(p);
    if (is_trailer(r))
        return 0;
    if (too_long(r, at + len))
        return refuse(r, 431);
    struct cl_http_header *h = &r->header[r->n];
    if (!h->value_len)
        h->value_at = (uint16_t)place(r, at);
    h->value_len = (uint16_t)(h->value_len + len);
    return 0;
}

/* A header is complete; what it says is looked at when all of them are. */
static int on_value_complete(llhttp_t *p)
{
    struct cl_http_request *r = request_of(p);
    if (!is_trailer(r) && ++r->n < CL_HTTP_HEADERS)
        r->header[r->n] = (struct cl_http_header){0};
    return 0;
}

/* Copy bytes of this piece behind those of earlier ones. */
static bool keep(struct cl_http_request *r, const uint8_t *data, uint32_t len)
{
    uint32_t need = r->head_len + len;
    if (need > r->kept_room) {
        uint32_t room = cl_max(cl_max(2 * r->kept_room, need), (uint32_t)KEPT_LEAST);
        uint8_t *fresh = realloc(r->kept, room);
        if (!fresh)
            return false;
        r->kept = fresh;
        r->kept_room = room;
    }
    memcpy(r->kept + r->head_len, data, len);
    r->bytes = (const char *)r->kept;
    return true;
}

/* False: one has no name. */
static bool look_at_headers(struct cl_http_request *r)
{
    for (unsigned i = 0; i < r->n; i++) {
        if (r->header[i].name_len == 0)
            return false;
        struct cl_http_text name = cl_http_part(r, r->header[i].name_at, r->header[i].name_len);
        struct cl_http_text value = cl_http_trim(cl_http_value_of(r, i));
        r->header[i].value_at = (uint16_t)(value.len ? value.at - r->bytes : 0);
        r->header[i].value_len = (uint16_t)value.len;
        unsigned field = CL_HTTP_OTHER + 1;
        while (field < CL_HTTP_FIELDS && !cl_http_is_any_case(name, names[field]))
            field++;
        if (field == CL_HTTP_FIELDS)
            continue;
        r->field[i] = (uint8_t)field;
        if (r->times[field]++ == 0)
            r->first[field] = (uint8_t)(i + 1);
    }
    return true;
}

/* What a request of this length and version may say. 0, or the status to refuse it with. */
static int check_framing(struct cl_http_request *r)
{
    unsigned lengths = r->times[CL_HTTP_CONTENT_LENGTH], codings = r->times[CL_HTTP_TRANSFER_ENCODING];
    if (lengths > 1 || codings > 1 || (lengths && codings) || (codings && r->minor == 0))
        return 400;
    if (codings && !cl_http_is_any_case(cl_http_value(r, CL_HTTP_TRANSFER_ENCODING), CL_HTTP_TEXT("chunked")))
        return 501;
    r->chunked = codings;
    r->sized = lengths;
    r->length = lengths ? r->parser.content_length : 0;
    return r->length > r->limits->body_most ? 413 : 0;
}

static bool is_host_char(char at)
{
    unsigned char c = (unsigned char)at;
    return c > ' ' && c < 127 && !strchr("\"#,/<>?@[\\]^`{|}", c);
}

/* A name or an address, and a port (RFC 9110, section 7.2; RFC 3986, section 3.2.2). A name may be empty; no comma: two
 * hosts that somebody joined are none. */
static bool is_host(struct cl_http_text host)
{
    const char *at = host.at, *end = at + host.len;
    bool literal = at < end && *at == '[';
    at += literal;
    while (at < end && is_host_char(*at) && (literal || *at != ':'))
        at++;
    if (literal && (at == end || *at++ != ']'))
        return false;
    if (at < end && *at++ != ':')
        return false;
    while (at < end && *at >= '0' && *at <= '9')
        at++;
    return at == end;
}

/* The line has one space on either side of the target, and its version is one of HTTP's (RFC 9112, section 3): llhttp
 * lets more spaces through, and RTSP. A target has no fragment (RFC 9110, section 7.1). */
static bool line_is_right(const struct cl_http_request *r)
{
    const char *target = r->bytes + r->target_at, *end = target + r->target_len;
    return r->target_at >= 2 && target[-2] != ' ' && memcmp(end, " HTTP/", 6) == 0 &&
           !memchr(target, '#', r->target_len);
}

/* The absolute form names a host, and no user (RFC 9110, sections 4.2.1 and 4.2.4). */
static bool authority_is_right(const struct cl_http_request *r)
{
    struct cl_http_text host = cl_http_target_authority(cl_http_target(r));
    return !host.at || (host.len && is_host(host));
}

/* One host in HTTP/1.1. */
static bool host_is_right(const struct cl_http_request *r)
{
    unsigned hosts = r->times[CL_HTTP_HOST];
    return hosts <= 1 && (r->minor == 0 || hosts == 1) && is_host(cl_http_value(r, CL_HTTP_HOST));
}

/* All that is expected is to be told to go on. */
static int check_expectations(struct cl_http_request *r)
{
    for (unsigned i = 0; i < r->n; i++) {
        struct cl_http_text list = cl_http_value_of(r, i), one;
        while (r->field[i] == CL_HTTP_EXPECT && cl_http_next_of(&list, &one)) {
            if (!cl_http_is_any_case(one, CL_HTTP_TEXT("100-continue")))
                return 417;
            r->expects = cl_http_has_body(r);
        }
    }
    return 0;
}

static int check_head(struct cl_http_request *r)
{
    if (r->parser.http_major != 1)
        return 505;
    r->minor = cl_min(r->parser.http_minor, (uint8_t)1); /* a later 1.x is read as 1.1 (RFC 9110, section 2.5) */
    unsigned method = r->parser.method < sizeof methods ? methods[r->parser.method] : 0;
    if (!method)
        return 501;
    r->method = (uint8_t)(method - 1);
    if (!look_at_headers(r))
        return 400;
    int status = check_framing(r);
    if (status)
        return status;
    if (!line_is_right(r) || !authority_is_right(r) || !host_is_right(r))
        return 400;
    return r->minor ? check_expectations(r) : 0;
}

static int on_headers_complete(llhttp_t *p)
{
    struct cl_http_request *r = request_of(p);
    if (!r->head_end) /* llhttp has seen an end where there is none */
        return refuse(r, 400);
    if (r->kept && !keep(r, (const uint8_t *)r->piece, r->head_end - r->head_len))
        return refuse(r, 503);
    if (!r->kept)
        r->bytes = r->piece;
    r->keep_alive = llhttp_should_keep_alive(p) && !(p->flags & F_CONNECTION_CLOSE); /* of both, close counts */
    p->upgrade = 0; /* to nothing: the request goes on as one of HTTP/1.1 (RFC 9110, section 7.8) */
    int status = check_head(r);
    if (!status)
        status = r->asks->head(r);
    r->stage = CL_HTTP_READS_BODY;
    return status ? refuse(r, status) : 0;
}

/* A chunk that is too long is refused before it comes. */
static int on_chunk_header(llhttp_t *p)
{
    struct cl_http_request *r = request_of(p);
    return p->content_length > r->limits->body_most ? refuse(r, 413) : 0;
}

static int on_body(llhttp_t *p, const char *at, size_t len)
{
    struct cl_http_request *r = request_of(p);
    int status = r->asks->body(r, (const uint8_t *)at, (uint32_t)len);
    return status ? refuse(r, status) : 0;
}

static int on_message_complete(llhttp_t *p)
{
    request_of(p)->stage = CL_HTTP_WHOLE;
    return HPE_PAUSED;
}

static const llhttp_settings_t settings = {.on_url = on_url,
                                           .on_header_field = on_field,
                                           .on_header_value = on_value,
                                           .on_header_value_complete = on_value_complete,
                                           .on_headers_complete = on_headers_complete,
                                           .on_chunk_header = on_chunk_header,
                                           .on_body = on_body,
                                           .on_message_complete = on_message_complete};

void cl_http_request_begin(struct cl_http_request *r, const struct cl_http_asks *asks,
                           const struct cl_http_limits *limits)
{
    memset(r, 0, offsetof(struct cl_http_request, header));
    r->header[0] = (struct cl_http_header){0};
    llhttp_init(&r->parser, HTTP_REQUEST, &settings);
    r->parser.lenient_flags = LENIENT_VERSION; /* check_head() looks at it */
    r->asks = asks;
    r->limits = limits;
}

/* The status for what llhttp has refused. */
static int status_of(const struct cl_http_request *r, const uint8_t *data, int64_t at, int64_t len)
{
    if (r->status)
        return r->status;
    switch (llhttp_get_errno(&r->parser)) {
    case HPE_INVALID_METHOD: /* if it could be one it is not known */
        return at < len && cl_http_is_token_char((char)data[at]) ? 501 : 400;
    case HPE_PAUSED_H2_UPGRADE:
        return 505;
    default:
        return 400;
    }
}

static int64_t refuse_now(struct cl_http_request *r, int status, int64_t took)
{
    if (r->parser.method == HTTP_HEAD) /* its answer has no body, whatever else was wrong (RFC 9110, section 9.3.2) */
        r->method = CL_HTTP_HEAD;
    r->status = (uint16_t)status;
    r->stage = CL_HTTP_REFUSED;
    return took;
}

/* The lines of a head, up to the empty one that ends it: llhttp lets LF alone end some of them, and joins those that go
 * on in the next. False: one is not right. */
static bool lines_are_right(struct cl_http_request *r, const uint8_t *data, int64_t len)
{
    const uint8_t *at = data, *end = data + len;
    while (at < end && !r->head_end) {
        if (r->line_len == 0 && r->lines && cl_http_is_space((char)*at))
            return false;
        const uint8_t *lf = memchr(at, '\n', (size_t)(end - at));
        if (!lf) {
            r->line_len += (uint32_t)(end - at);
            break;
        }
        if ((lf > data ? lf[-1] : r->last) != '\r')
            return false;
        bool empty = r->line_len + (lf - at) == 1;
        at = lf + 1;
        r->line_len = 0;
        if (!empty)
            r->lines++;
        else if (r->lines) /* those before the first line do not count (RFC 9112, section 2.2) */
            r->head_end = r->head_len + (uint32_t)(at - data);
    }
    r->last = end[-1];
    return true;
}

/* The last line of a chunked body ends with CR LF: the same. */
static bool ends_right(const struct cl_http_request *r, const uint8_t *data, int64_t took)
{
    return !r->chunked || (took > 1 ? data[took - 2] : r->last) == '\r';
}

/* All of the piece is of the head, and it is not complete. */
static void head_goes_on(struct cl_http_request *r, const uint8_t *data, int64_t len)
{
    int status = 0;
    if (r->head_len + len > r->limits->head_most)
        status = r->n ? 431 : r->target_len ? 414 : 400;
    else if (!keep(r, data, (uint32_t)len))
        status = 503;
    r->head_len += (uint32_t)len;
    if (status)
        refuse_now(r, status, len);
}

int64_t cl_http_request_feed(struct cl_http_request *r, const uint8_t *data, int64_t len)
{
    if (r->stage == CL_HTTP_READS_HEAD && !lines_are_right(r, data, len))
        return refuse_now(r, 400, len);
    r->piece = (const char *)data;
    llhttp_errno_t rc = llhttp_execute(&r->parser, r->piece, (size_t)len);
    if (rc == HPE_OK) {
        if (r->stage == CL_HTTP_READS_HEAD)
            head_goes_on(r, data, len);
        else if (!r->kept && !keep(r, data, r->head_end)) /* it is answered when the body has come */
            refuse_now(r, 503, len);
        else if ((r->frame += (uint64_t)len) > r->limits->chunked_most && r->chunked)
            refuse_now(r, 413, len); /* or it never ends: an extension, or trailers, bring no byte of the body */
        r->last = data[len - 1];
        return len;
    }
    const char *stopped = llhttp_get_error_pos(&r->parser);
    int64_t took = stopped ? stopped - r->piece : len;
    if (r->stage != CL_HTTP_WHOLE)
        return refuse_now(r, status_of(r, data, took, len), took);
    return ends_right(r, data, took) ? took : refuse_now(r, 400, took);
}

#else

bool cl_http_parses(void)
{
    return false;
}

void cl_http_request_begin(struct cl_http_request *r, const struct cl_http_asks *asks,
                           const struct cl_http_limits *limits)
{
    memset(r, 0, sizeof *r);
    r->asks = asks;
    r->limits = limits;
}

int64_t cl_http_request_feed(struct cl_http_request *r, const uint8_t *data, int64_t len)
{
    (void)data;
    r->status = 501;
    r->stage = CL_HTTP_REFUSED;
    return len;
}

#endif

void cl_http_request_end(struct cl_http_request *r)
{
    free(r->kept);
    r->kept = NULL;
    r->kept_room = 0;
}

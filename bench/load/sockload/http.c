/* HTTP/1.1 GETs (RFC 9112), one after the other on a connection that stays open. Of an answer are read: the status, and
 * how long its body is (Content-Length, chunked, or until the connection ends), and whether it is the connection's last
 * (section 9.3). 200 to 299 is a hit, 300 to 399 a miss (what is elsewhere, or has not changed, costs less), 400 and
 * more an error. Interim answers (1xx) are passed over. Bodies are counted and thrown away. Not read: trailers'
 * meaning, compression, redirects. */
#include "engine.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define HEAD_MOST 65536

static int64_t write_request(const struct cl_sockload *s, const struct cl_request *r, uint8_t *out, uint64_t room)
{
    uint8_t name[CL_SOCKLOAD_KEY_ROOM];
    const char *path = s->path, *mark = strstr(path, "{key}");
    int before = mark ? (int)(mark - path) : (int)strlen(path);
    unsigned key = mark ? cl_sockload_key_write(s, r->key, name) : 0;
    int n = snprintf((char *)out, room, "GET %.*s%.*s%s HTTP/1.1\r\nHost: %s\r\nUser-Agent: corelane\r\n%s%s\r\n",
                     before, path, (int)key, (char *)name, mark ? mark + 5 : "", s->host, s->headers ? s->headers : "",
                     s->config.fresh ? "Connection: close\r\n" : "");
    return n < 0 || (uint64_t)n >= room ? -1 : n;
}

/* What a header of the answer says about its body, and about the connection. */
struct body {
    uint64_t length;
    bool known, chunked, last;
};

static bool is_named(const uint8_t *line, uint64_t n, const char *name)
{
    uint64_t len = strlen(name);
    return n > len && !strncasecmp((const char *)line, name, len) && line[len] == ':';
}

static bool has_word(const uint8_t *line, uint64_t n, const char *word)
{
    uint64_t len = strlen(word);
    for (uint64_t i = 0; i + len <= n; i++)
        if (!strncasecmp((const char *)line + i, word, len))
            return true;
    return false;
}

/* The number at the line's end, in base 10; false: there is none. */
static bool number_of(const uint8_t *line, uint64_t n, uint64_t *out)
{
    uint64_t i = strlen("content-length:"), digits = 0;
    while (i < n && (line[i] == ' ' || line[i] == '\t'))
        i++;
    *out = 0;
    for (; i < n && line[i] >= '0' && line[i] <= '9' && digits < 18; i++, digits++)
        *out = 10 * *out + (uint64_t)(line[i] - '0');
    while (i < n && (line[i] == ' ' || line[i] == '\t'))
        i++;
    return digits && i == n;
}

static bool read_headers(const uint8_t *in, uint64_t head, struct body *body)
{
    const uint8_t *at = memchr(in, '\n', head);
    *body = (struct body){.last = !memcmp(in, "HTTP/1.0", 8)};
    for (at++; at < in + head - 2;) {
        const uint8_t *end = memchr(at, '\r', (size_t)(in + head - at));
        uint64_t n = (uint64_t)(end - at);
        if (is_named(at, n, "content-length")) {
            if (!number_of(at, n, &body->length))
                return false;
            body->known = true;
        }
        if (is_named(at, n, "transfer-encoding") && has_word(at, n, "chunked"))
            body->chunked = true;
        if (is_named(at, n, "connection"))
            body->last = has_word(at, n, "close") || (body->last && !has_word(at, n, "keep-alive"));
        at = end + 2;
    }
    return true;
}

/* The number at the beginning of a chunk's line, in base 16; false: there is none, or it is beyond all sense. */
static bool chunk_size(const uint8_t *line, const uint8_t *end, uint64_t *out)
{
    unsigned digits = 0;
    for (*out = 0; line < end && isxdigit(*line) && digits < 10; line++, digits++)
        *out = 16 * *out + (uint64_t)(isdigit(*line) ? *line - '0' : (*line | 32) - 'a' + 10);
    return digits && (line == end || *line == '\r' || *line == ';' || *line == ' ');
}

/* Length of the chunked body at `in`; 0 with *need; -1. */
static int64_t chunks(const uint8_t *in, uint64_t n, uint64_t *need)
{
    uint64_t at = 0;
    for (;;) {
        const uint8_t *end = memchr(in + at, '\n', n - at);
        *need = n + 1;
        if (!end)
            return n - at > 1024 ? -1 : 0;
        uint64_t size;
        if (!chunk_size(in + at, end, &size))
            return -1;
        at = (uint64_t)(end + 1 - in);
        if (size == 0)
            break;
        if (n < at + size + 2) {
            *need = at + size + 2;
            return 0;
        }
        if (memcmp(in + at + size, "\r\n", 2))
            return -1;
        at += size + 2;
    }
    for (;;) { /* trailers, up to an empty line */
        const uint8_t *end = memchr(in + at, '\n', n - at);
        if (!end)
            return 0;
        bool empty = (uint64_t)(end - in) - at <= 1;
        at = (uint64_t)(end + 1 - in);
        if (empty)
            return (int64_t)at;
    }
}

static int64_t body_bytes(const struct body *body, int status, const uint8_t *in, uint64_t n, bool end, uint64_t *need)
{
    if (status == 204 || status == 304)
        return 0;
    if (body->chunked) {
        int64_t took = chunks(in, n, need);
        return took > 0 ? took : took < 0 ? -1 : -2;
    }
    if (!body->known) {
        *need = n + 1;
        return end ? (int64_t)n : -2;
    }
    *need = body->length;
    return n >= body->length ? (int64_t)body->length : -2;
}

static int64_t read_answer(const struct cl_sockload *s, const struct cl_request *r, const uint8_t *in, uint32_t n,
                           bool end, uint32_t *worth, uint32_t *need)
{
    uint32_t skipped = 0;
    (void)s;
    (void)r;
    for (;;) {
        const uint8_t *from = in + skipped;
        uint32_t have = n - skipped;
        const uint8_t *stop = memmem(from, have, "\r\n\r\n", 4);
        *need = n + 1;
        if (have >= 5 && memcmp(from, "HTTP/", 5))
            return -1;
        if (!stop)
            return have > HEAD_MOST ? -1 : 0;
        uint64_t head = (uint64_t)(stop + 4 - from), more = 0;
        int status = head > 12 ? atoi((const char *)from + 9) : 0;
        struct body body;
        if (status < 100 || status > 599 || !read_headers(from, head, &body))
            return -1;
        if (status < 200 && status != 101) {
            skipped += (uint32_t)head;
            continue;
        }
        int64_t length = body_bytes(&body, status, from + head, have - head, end, &more);
        if (length == -1)
            return -1;
        *need = (uint32_t)cl_min(skipped + head + more, (uint64_t)UINT32_MAX);
        *worth = status < 300 ? CL_SOCKLOAD_HIT : status < 400 ? CL_SOCKLOAD_MISS : CL_SOCKLOAD_ERROR;
        *worth |= body.last ? CL_SOCKLOAD_LAST : 0;
        return length == -2 ? 0 : (int64_t)(skipped + head) + length;
    }
}

const struct cl_protocol cl_sockload_protocol_http = {write_request, read_answer};

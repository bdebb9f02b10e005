/* memcached's ASCII protocol over TCP (memcached's doc/protocol.txt): get, set, delete.
 *
 * Requests are written and answers read strictly: lengths and keys as they must be, values as values.c says. */
#include "engine.h"

#include <stdio.h>
#include <string.h>

#define LINE_MOST 512 /* of an answer's line; longer ones are none */

static int64_t put(uint8_t *out, uint64_t room, uint64_t at, const char *text)
{
    uint64_t n = strlen(text);
    if (at + n > room)
        return -1;
    memcpy(out + at, text, n);
    return (int64_t)(at + n);
}

static int64_t write_set(const struct cl_sockload *s, const struct cl_request *r, uint8_t *out, uint64_t room)
{
    uint32_t n = cl_sockload_value_bytes(s, r->key);
    char tail[32];
    if (room < (uint64_t)n + CL_SOCKLOAD_KEY_ROOM + 64)
        return -1;
    int64_t at = put(out, room, 0, "set ");
    at += cl_key_write(s, r->key, out + at);
    snprintf(tail, sizeof(tail), " 0 0 %u\r\n", n);
    at = put(out, room, (uint64_t)at, tail);
    cl_value_write(r->key, out + at, n);
    return put(out, room, (uint64_t)at + n, "\r\n");
}

static int64_t write_get(const struct cl_sockload *s, const struct cl_request *r, uint8_t *out, uint64_t room)
{
    int64_t at = put(out, room, 0, r->op == CL_SOCKLOAD_DELETE ? "delete" : "get");
    for (uint32_t i = 0; i < r->count; i++) {
        if ((uint64_t)at + CL_SOCKLOAD_KEY_ROOM + 4 > room)
            return -1;
        out[at++] = ' ';
        at += cl_key_write(s, r->key + i, out + at);
    }
    return put(out, room, (uint64_t)at, "\r\n");
}

static int64_t write_request(const struct cl_sockload *s, const struct cl_request *r, uint8_t *out, uint64_t room)
{
    bool set = r->op == CL_SOCKLOAD_SET || r->op == CL_SOCKLOAD_INSERT || r->second;
    return set ? write_set(s, r, out, room) : write_get(s, r, out, room);
}

/* Length of the line at `in` with its end; 0: it is not whole; -1: it is too long. */
static int64_t line(const uint8_t *in, uint32_t n)
{
    const uint8_t *end = memchr(in, '\n', cl_min(n, (uint32_t)LINE_MOST));
    if (!end)
        return n >= LINE_MOST ? -1 : 0;
    return end > in && end[-1] == '\r' ? end + 1 - in : -1;
}

static bool is(const uint8_t *in, int64_t n, const char *text)
{
    return (size_t)n == strlen(text) + 2 && !memcmp(in, text, (size_t)n - 2);
}

static bool begins(const uint8_t *in, int64_t n, const char *text)
{
    return (size_t)n >= strlen(text) + 2 && !memcmp(in, text, strlen(text));
}

static bool is_error(const uint8_t *in, int64_t n)
{
    return is(in, n, "ERROR") || begins(in, n, "SERVER_ERROR") || begins(in, n, "CLIENT_ERROR");
}

static int64_t read_stored(const uint8_t *in, int64_t n, bool deleting, uint32_t *worth)
{
    if (is_error(in, n))
        *worth = CL_SOCKLOAD_ERROR;
    else if (is(in, n, deleting ? "DELETED" : "STORED"))
        *worth = CL_SOCKLOAD_STORED;
    else if (deleting && is(in, n, "NOT_FOUND"))
        *worth = CL_SOCKLOAD_MISS;
    else
        return -1;
    return n;
}

/* A VALUE line of key..key+count-1 and its value: their length, 0 with *need, -1. *key: whose it is. */
static int64_t read_value(const struct cl_sockload *s, const uint8_t *in, uint32_t n, int64_t head, uint64_t *key,
                          uint32_t count, uint32_t *need)
{
    uint8_t name[CL_SOCKLOAD_KEY_ROOM];
    char text[LINE_MOST + 1];
    for (uint32_t i = 0; i < count; i++, (*key)++) {
        unsigned long long bytes;
        int end = 0;
        unsigned len = cl_key_write(s, *key, name);
        if (head < 6 + len || memcmp(in + 6, name, len) || in[6 + len] != ' ')
            continue;
        memcpy(text, in + 6 + len, (size_t)head - 6 - len);
        text[head - 6 - len] = 0;
        if (sscanf(text, " %*u %llu%n", &bytes, &end) != 1 || text[end] != '\r' ||
            bytes != cl_sockload_value_bytes(s, *key))
            return -1;
        uint64_t whole = (uint64_t)head + bytes + 2;
        *need = (uint32_t)whole;
        if (n < whole)
            return 0;
        return memcmp(in + whole - 2, "\r\n", 2) || !cl_value_is(*key, in + head, (uint32_t)bytes) ? -1
                                                                                                   : (int64_t)whole;
    }
    return -1;
}

static int64_t read_got(const struct cl_sockload *s, const struct cl_request *r, const uint8_t *in, uint32_t n,
                        uint32_t *worth, uint32_t *need)
{
    uint64_t key = r->key;
    uint32_t at = 0, found = 0, left = r->count;
    for (;;) {
        int64_t head = line(in + at, n - at);
        if (head <= 0)
            return head;
        if (is(in + at, head, "END")) {
            *worth = found ? CL_SOCKLOAD_HIT : CL_SOCKLOAD_MISS;
            return at + head;
        }
        if (!found && is_error(in + at, head)) {
            *worth = CL_SOCKLOAD_ERROR;
            return at + head;
        }
        if (!left || !begins(in + at, head, "VALUE "))
            return -1;
        uint64_t first = key;
        int64_t whole = read_value(s, in + at, n - at, head, &key, left, need);
        if (whole <= 0) {
            *need += at;
            return whole;
        }
        left -= (uint32_t)(key - first) + 1;
        key++;
        found++;
        at += (uint32_t)whole;
    }
}

static int64_t read_answer(const struct cl_sockload *s, const struct cl_request *r, const uint8_t *in, uint32_t n,
                           bool end, uint32_t *worth, uint32_t *need)
{
    bool got = (r->op == CL_SOCKLOAD_GET || r->op == CL_SOCKLOAD_SCAN || r->op == CL_SOCKLOAD_UPDATE) && !r->second;
    int64_t took;
    (void)end;
    *need = n + 1;
    if (got) {
        took = read_got(s, r, in, n, worth, need);
    } else {
        int64_t head = line(in, n);
        took = head <= 0 ? head : read_stored(in, head, r->op == CL_SOCKLOAD_DELETE, worth);
    }
    return took;
}

const struct cl_protocol cl_protocol_memcached = {write_request, read_answer};

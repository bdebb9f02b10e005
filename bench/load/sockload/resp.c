/* Redis' serialization protocol, RESP2 (redis.io, "Redis serialization protocol specification"): GET, SET, DEL, MGET.
 *
 * Answers are bulk strings, simple strings, errors, integers, and arrays of bulk strings; a RESP3 null is a null. */
#include "engine.h"

#include <stdio.h>
#include <string.h>

#define LINE_MOST 1024

static int64_t put_bulk_head(uint8_t *out, uint64_t room, uint64_t at, char kind, uint32_t n)
{
    char text[24];
    int len = snprintf(text, sizeof(text), "%c%u\r\n", kind, n);
    if (at + (uint64_t)len > room)
        return -1;
    memcpy(out + at, text, (size_t)len);
    return (int64_t)at + len;
}

static int64_t put_word(uint8_t *out, uint64_t room, uint64_t at, const uint8_t *word, uint32_t n)
{
    int64_t from = put_bulk_head(out, room, at, '$', n);
    if (from < 0 || (uint64_t)from + n + 2 > room)
        return -1;
    memcpy(out + from, word, n);
    memcpy(out + from + n, "\r\n", 2);
    return from + n + 2;
}

static int64_t put_value(const struct cl_sockload *s, uint64_t key, uint8_t *out, uint64_t room, uint64_t at)
{
    uint32_t n = cl_sockload_value_bytes(s, key);
    int64_t from = put_bulk_head(out, room, at, '$', n);
    if (from < 0 || (uint64_t)from + n + 2 > room)
        return -1;
    cl_value_write(key, out + from, n);
    memcpy(out + from + n, "\r\n", 2);
    return from + n + 2;
}

static int64_t write_request(const struct cl_sockload *s, const struct cl_request *r, uint8_t *out, uint64_t room)
{
    bool set = r->op == CL_SOCKLOAD_SET || r->op == CL_SOCKLOAD_INSERT || r->second;
    const char *verb = set ? "SET" : r->op == CL_SOCKLOAD_DELETE ? "DEL" : r->op == CL_SOCKLOAD_SCAN ? "MGET" : "GET";
    uint8_t name[CL_SOCKLOAD_KEY_ROOM];
    int64_t at = put_bulk_head(out, room, 0, '*', set ? 3 : 1 + r->count);
    at = at < 0 ? at : put_word(out, room, (uint64_t)at, (const uint8_t *)verb, (uint32_t)strlen(verb));
    for (uint32_t i = 0; at > 0 && i < r->count; i++)
        at = put_word(out, room, (uint64_t)at, name, cl_key_write(s, r->key + i, name));
    return set && at > 0 ? put_value(s, r->key, out, room, (uint64_t)at) : at;
}

/* The line at `in`: its length with its end, and the number in it; 0: not whole; -1: none. */
static int64_t line(const uint8_t *in, uint32_t n, int64_t *number)
{
    char text[24];
    const uint8_t *end = memchr(in, '\n', cl_min(n, (uint32_t)LINE_MOST));
    if (!end)
        return n >= LINE_MOST ? -1 : 0;
    if (end - in < 2 || end[-1] != '\r')
        return -1;
    size_t digits = cl_min((size_t)(end - in) - 2, sizeof(text) - 1);
    memcpy(text, in + 1, digits);
    text[digits] = 0;
    long long value = 0;
    *number = sscanf(text, "%lld", &value) == 1 ? value : 0;
    return end + 1 - in;
}

/* A bulk string of `key`: its length, 0 with *need, -1. *found: it is there. */
static int64_t read_bulk(const struct cl_sockload *s, uint64_t key, const uint8_t *in, uint32_t n, bool *found,
                         uint32_t *need)
{
    int64_t bytes, head = line(in, n, &bytes);
    *found = false;
    if (head <= 0)
        return head;
    if (in[0] == '_' || (in[0] == '$' && bytes == -1))
        return head;
    if (in[0] != '$' || bytes != (int64_t)cl_sockload_value_bytes(s, key))
        return -1;
    uint64_t whole = (uint64_t)head + (uint64_t)bytes + 2;
    *need = (uint32_t)whole;
    *found = true;
    if (n < whole)
        return 0;
    return memcmp(in + whole - 2, "\r\n", 2) || !cl_value_is(key, in + head, (uint32_t)bytes) ? -1 : (int64_t)whole;
}

static int64_t read_many(const struct cl_sockload *s, const struct cl_request *r, const uint8_t *in, uint32_t n,
                         uint32_t *worth, uint32_t *need)
{
    int64_t items, at = line(in, n, &items);
    uint32_t hits = 0;
    if (at <= 0)
        return at;
    if (in[0] != '*' || items != r->count)
        return -1;
    for (uint32_t i = 0; i < r->count; i++) {
        bool found;
        int64_t took = at < (int64_t)n ? read_bulk(s, r->key + i, in + at, n - (uint32_t)at, &found, need) : 0;
        if (took <= 0) {
            *need += (uint32_t)at;
            return took;
        }
        hits += found;
        at += took;
    }
    *worth = hits ? CL_SOCKLOAD_HIT : CL_SOCKLOAD_MISS;
    return at;
}

static int64_t read_whole(const struct cl_sockload *s, const struct cl_request *r, const uint8_t *in, uint32_t n,
                          uint32_t *worth, uint32_t *need)
{
    int64_t number, head = line(in, n, &number);
    if (head <= 0)
        return head;
    if (in[0] == '-') {
        *worth = CL_SOCKLOAD_ERROR;
        return head;
    }
    bool stored = r->op == CL_SOCKLOAD_SET || r->op == CL_SOCKLOAD_INSERT || r->second;
    if (stored) {
        *worth = CL_SOCKLOAD_STORED;
        return head == 5 && !memcmp(in, "+OK", 3) ? head : -1;
    }
    if (r->op == CL_SOCKLOAD_DELETE) {
        *worth = number ? CL_SOCKLOAD_STORED : CL_SOCKLOAD_MISS;
        return in[0] == ':' ? head : -1;
    }
    if (r->op == CL_SOCKLOAD_SCAN)
        return read_many(s, r, in, n, worth, need);
    bool found;
    int64_t took = read_bulk(s, r->key, in, n, &found, need);
    *worth = found ? CL_SOCKLOAD_HIT : CL_SOCKLOAD_MISS;
    return took;
}

static int64_t read_answer(const struct cl_sockload *s, const struct cl_request *r, const uint8_t *in, uint32_t n,
                           bool end, uint32_t *worth, uint32_t *need)
{
    (void)end;
    *need = n + 1;
    return read_whole(s, r, in, n, worth, need);
}

const struct cl_protocol cl_protocol_resp = {write_request, read_answer};

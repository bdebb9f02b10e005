/* Bytes that are not terminated, as header fields have them. */
#ifndef CORELANE_APPS_HTTP_TEXT_H
#define CORELANE_APPS_HTTP_TEXT_H

#include <corelane/runtime/base.h>

#include <string.h>

struct cl_http_text {
    const char *at;
    uint32_t len;
};

#define CL_HTTP_TEXT(literal) ((struct cl_http_text){literal, sizeof(literal) - 1})

static inline char cl_http_lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c | 0x20) : c;
}

static inline bool cl_http_is(struct cl_http_text a, struct cl_http_text b)
{
    return a.len == b.len && memcmp(a.at, b.at, a.len) == 0;
}

/* Whether `a` is `lower`, which has no capitals, in any case. */
static inline bool cl_http_is_any_case(struct cl_http_text a, struct cl_http_text lower)
{
    if (a.len != lower.len)
        return false;
    for (uint32_t i = 0; i < a.len; i++)
        if (cl_http_lower(a.at[i]) != lower.at[i])
            return false;
    return true;
}

static inline bool cl_http_is_space(char c)
{
    return c == ' ' || c == '\t';
}

/* Of a method, or of a header's name (RFC 9110, section 5.6.2). */
static inline bool cl_http_is_token_char(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c && strchr("!#$%&'*+-.^_`|~", c) != NULL);
}

/* Without spaces and tabs at its ends (OWS of RFC 9110, section 5.6.3). */
static inline struct cl_http_text cl_http_trim(struct cl_http_text t)
{
    for (; t.len && cl_http_is_space(t.at[0]); t.at++)
        t.len--;
    while (t.len && cl_http_is_space(t.at[t.len - 1]))
        t.len--;
    return t;
}

/* The next member of a list with commas (RFC 9110, section 5.6.1), trimmed; empty ones are skipped. Commas inside of
 * quotes do not count. False: there is none. */
static inline bool cl_http_next_of(struct cl_http_text *list, struct cl_http_text *member)
{
    while (list->len) {
        uint32_t n = 0;
        bool quoted = false;
        for (; n < list->len && (quoted || list->at[n] != ','); n++)
            quoted ^= list->at[n] == '"';
        *member = cl_http_trim((struct cl_http_text){list->at, n});
        uint32_t step = cl_min(n + 1, list->len);
        list->at += step;
        list->len -= step;
        if (member->len)
            return true;
    }
    return false;
}

#endif

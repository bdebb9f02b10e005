/* See parse.h. */
#include "parse.h"
#include "number.h"

#include <ctype.h>
#include <limits.h>

#define ARGS_FIRST 8u
#define ARGS_KEPT 1024u
#define UNAUTHENTICATED_ARGS 10
#define UNAUTHENTICATED_BYTES 16384

void cl_rparse_end(struct cl_resp_client *c)
{
    struct cl_rparser *p = &c->parser;
    cl_rmem_free(&c->r->mem, p->args, p->room * sizeof *p->args);
    *p = (struct cl_rparser){.bulk_len = -1};
}

void cl_rparse_reset(struct cl_resp_client *c)
{
    struct cl_rparser *p = &c->parser;
    if (cl_unlikely(p->room > ARGS_KEPT)) {
        cl_rparse_end(c);
        return;
    }
    p->left = p->argc = 0;
    p->multibulk = 0;
    p->bulk_len = -1;
    p->at = 0;
}

static void add(struct cl_resp_client *c, uint64_t at, uint32_t len)
{
    struct cl_rparser *p = &c->parser;
    if (p->argc == p->room) {
        uint32_t room = cl_max(2 * p->room, ARGS_FIRST);
        p->args = cl_rmem_resize(&c->r->mem, p->args, p->room * sizeof *p->args, room * sizeof *p->args);
        p->room = room;
    }
    p->args[p->argc++] = (struct cl_rspan){at, len};
}

static enum cl_rparse wrong(char error[128], const char *what)
{
    snprintf(error, 128, "%s", what);
    return CL_RP_ERROR;
}

/* The number on the line that begins at p->at, behind its first byte. MORE: the line is not here. */
static enum cl_rparse count_line(struct cl_rparser *p, const uint8_t *buf, uint64_t len, int64_t *out, bool *valid)
{
    const uint8_t *from = buf + p->at, *end = memchr(from, '\r', len - p->at);
    if (!end || (uint64_t)(end - buf) + 2 > len)
        return CL_RP_MORE;
    struct cl_slice text = {from + 1, (uint32_t)cl_min(end - from - 1, (int64_t)64)};
    *valid = end > from && cl_rnum_int(text, out);
    p->at = (uint64_t)(end - buf) + 2;
    return CL_RP_COMMAND;
}

static enum cl_rparse first_line(struct cl_resp_client *c, const uint8_t *buf, uint64_t len, char error[128])
{
    struct cl_rparser *p = &c->parser;
    int64_t n;
    bool valid;
    if (count_line(p, buf, len, &n, &valid) == CL_RP_MORE)
        return len > CL_RESP_INLINE_MOST ? wrong(error, "too big mbulk count string") : CL_RP_MORE;
    if (!valid || n > INT_MAX)
        return wrong(error, "invalid multibulk length");
    if (n > UNAUTHENTICATED_ARGS && !c->authenticated)
        return wrong(error, "unauthenticated multibulk length");
    p->multibulk = 1;
    p->left = (uint32_t)cl_max(n, (int64_t)0);
    return CL_RP_COMMAND;
}

static enum cl_rparse bulk_line(struct cl_resp_client *c, const uint8_t *buf, uint64_t len, char error[128])
{
    struct cl_rparser *p = &c->parser;
    uint8_t first = p->at < len ? buf[p->at] : '$';
    uint64_t at = p->at;
    int64_t n;
    bool valid;
    if (count_line(p, buf, len, &n, &valid) == CL_RP_MORE)
        return len - at > CL_RESP_INLINE_MOST ? wrong(error, "too big bulk count string") : CL_RP_MORE;
    if (first != '$') {
        snprintf(error, 128, "expected '$', got '%c'", first);
        return CL_RP_ERROR;
    }
    if (!valid || n < 0 || n > c->r->config.bulk_most)
        return wrong(error, "invalid bulk length");
    if (n > UNAUTHENTICATED_BYTES && !c->authenticated)
        return wrong(error, "unauthenticated bulk length");
    p->bulk_len = n;
    return CL_RP_COMMAND;
}

enum cl_rparse cl_rparse(struct cl_resp_client *c, const uint8_t *buf, uint64_t len, char error[128])
{
    struct cl_rparser *p = &c->parser;
    enum cl_rparse rc;
    if (!p->multibulk) {
        if (buf[0] != '*')
            return CL_RP_INLINE;
        if ((rc = first_line(c, buf, len, error)) != CL_RP_COMMAND)
            return rc;
    }
    for (; p->left; p->left--) {
        if (p->bulk_len < 0 && (rc = bulk_line(c, buf, len, error)) != CL_RP_COMMAND)
            return rc;
        if (len - p->at < (uint64_t)p->bulk_len + 2)
            return CL_RP_MORE;
        add(c, p->at, (uint32_t)p->bulk_len);
        p->at += (uint64_t)p->bulk_len + 2;
        p->bulk_len = -1;
    }
    return CL_RP_COMMAND;
}

static int hex(uint8_t ch)
{
    return ch >= '0' && ch <= '9' ? ch - '0' : tolower(ch) - 'a' + 10;
}

/* One escape inside of double quotes, at p[0] == '\\'. Returns how many bytes it takes. */
static unsigned unescape(const uint8_t *p, const uint8_t *end, uint8_t *out)
{
    static const char names[] = "nrtba", values[] = "\n\r\t\b\a";
    if (end - p >= 4 && p[1] == 'x' && isxdigit(p[2]) && isxdigit(p[3])) {
        *out = (uint8_t)(hex(p[2]) << 4 | hex(p[3]));
        return 4;
    }
    if (end - p < 2) {
        *out = *p;
        return 1;
    }
    const char *at = p[1] ? strchr(names, p[1]) : NULL;
    *out = at ? (uint8_t)values[at - names] : p[1];
    return 2;
}

/* The word at p, written to *to. Returns its end; NULL: the quotes are not balanced. */
static uint8_t *word(uint8_t *p, uint8_t *end, uint8_t **to)
{
    uint8_t quote = 0;
    while (p < end) {
        if (quote && *p == quote) {
            if (p + 1 < end && !isspace(p[1]))
                return NULL;
            return p + 1;
        }
        if (quote == '"' && *p == '\\') {
            p += unescape(p, end, *to);
            (*to)++;
        } else if (quote == '\'' && *p == '\\' && p + 1 < end && p[1] == '\'') {
            *(*to)++ = '\'';
            p += 2;
        } else if (!quote && (*p == '"' || *p == '\'')) {
            quote = *p++;
        } else if (!quote && (isspace(*p) || *p == 0)) {
            return p;
        } else {
            *(*to)++ = *p++;
        }
    }
    return quote ? NULL : p;
}

enum cl_rparse cl_rparse_inline(struct cl_resp_client *c, uint8_t *buf, uint64_t len, char error[128])
{
    struct cl_rparser *p = &c->parser;
    uint8_t *newline = len > p->at ? memchr(buf + p->at, '\n', len - p->at) : NULL;
    if (!newline) {
        p->at = len;
        return len > CL_RESP_INLINE_MOST ? wrong(error, "too big inline request") : CL_RP_MORE;
    }
    uint8_t *end = newline > buf && newline[-1] == '\r' ? newline - 1 : newline, *at = buf, *to = buf;
    for (;;) {
        while (at < end && isspace(*at))
            at++;
        if (at >= end || *at == 0)
            break;
        uint8_t *start = to = at;
        at = word(at, end, &to);
        if (!at)
            return wrong(error, "unbalanced quotes in request");
        add(c, (uint64_t)(start - buf), (uint32_t)(to - start));
    }
    p->at = (uint64_t)(newline - buf) + 1;
    return CL_RP_COMMAND;
}

/* See command.h. */
#include "command.h"
#include "number.h"
#include "reply.h"

#include <ctype.h>
#include <math.h>

bool cl_arg_int(struct cl_resp_client *c, uint32_t n, int64_t *out)
{
    if (cl_rnum_int(ARG(c, n), out))
        return true;
    cl_reply_not_integer(c);
    return false;
}

bool cl_arg_in(struct cl_resp_client *c, uint32_t n, int64_t least, int64_t most, int64_t *out, const char *what)
{
    if (cl_rnum_int(ARG(c, n), out) && *out >= least && *out <= most)
        return true;
    cl_reply_error(c, "%s", what);
    return false;
}

bool cl_arg_double(struct cl_resp_client *c, uint32_t n, double *out)
{
    if (cl_rnum_double(ARG(c, n), out))
        return true;
    cl_reply_error(c, "ERR value is not a valid float");
    return false;
}

bool cl_arg_deadline(struct cl_resp_client *c, uint32_t n, int64_t *out)
{
    long double s;
    *out = 0;
    if (!cl_rnum_long_double(ARG(c, n), &s)) {
        cl_reply_error(c, "ERR timeout is not a float or out of range");
        return false;
    }
    long double ms = ceill(s * 1000);
    if (ms > (long double)INT64_MAX) {
        cl_reply_error(c, "ERR timeout is out of range");
        return false;
    }
    if (ms < 0) {
        cl_reply_error(c, "ERR timeout is negative");
        return false;
    }
    int64_t wait = (int64_t)ms;
    if (wait > INT64_MAX - c->r->now_ms) {
        cl_reply_error(c, "ERR timeout is out of range");
        return false;
    }
    *out = wait ? c->r->now_ms + wait : 0;
    return true;
}

static uint8_t folded(uint8_t ch, bool any_case)
{
    return any_case ? (uint8_t)tolower(ch) : ch;
}

/* A class, p[0] == '['. Returns its end; *hit: ch is in it. */
static const uint8_t *class_of(const uint8_t *p, const uint8_t *end, uint8_t ch, bool any_case, bool *hit)
{
    bool not = ++p < end && *p == '^', found = false;
    if (not )
        p++;
    for (; p < end && *p != ']'; p++) {
        uint8_t low = *p, high;
        if (*p == '\\' && p + 1 < end) {
            low = high = *++p;
        } else if (p + 2 < end && p[1] == '-') {
            high = p[2];
            p += 2;
        } else {
            high = low;
        }
        low = folded(low, any_case);
        high = folded(high, any_case);
        found |= ch >= cl_min(low, high) && ch <= cl_max(low, high);
    }
    *hit = found != not ;
    return p < end ? p + 1 : p;
}

/* One element of the pattern other than '*' against one character. Returns the rest of the pattern; NULL: no. */
static const uint8_t *element(const uint8_t *p, const uint8_t *end, uint8_t ch, bool any_case)
{
    bool hit = true;
    ch = folded(ch, any_case);
    if (*p == '?')
        return p + 1;
    if (*p == '[') {
        p = class_of(p, end, ch, any_case, &hit);
        return hit ? p : NULL;
    }
    if (*p == '\\' && p + 1 < end)
        p++;
    return folded(*p, any_case) == ch ? p + 1 : NULL;
}

/* Goes back to the last '*' alone, so it takes time of the product of both lengths at most. */
bool cl_glob(struct cl_slice pattern, struct cl_slice text, bool any_case)
{
    const uint8_t *p = pattern.p, *p_end = p + pattern.len, *t = text.p, *t_end = t + text.len;
    const uint8_t *star = NULL, *from = NULL;
    while (t < t_end) {
        const uint8_t *next = NULL;
        if (p < p_end && *p == '*') {
            star = ++p;
            from = t;
            continue;
        }
        if (p < p_end && (next = element(p, p_end, *t, any_case))) {
            p = next;
            t++;
        } else if (star) {
            p = star;
            t = ++from;
        } else {
            return false;
        }
    }
    while (p < p_end && *p == '*')
        p++;
    return p == p_end;
}

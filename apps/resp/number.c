/* See number.h. */
#include "number.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define TEXT_MOST 5120 /* as long as a long double without an exponent may be */

static bool digits(const uint8_t *p, uint32_t n, uint64_t *out)
{
    uint64_t v = 0;
    if (n == 0 || n > 20 || (p[0] == '0' && n > 1))
        return false;
    for (uint32_t i = 0; i < n; i++)
        if (p[i] < '0' || p[i] > '9' || __builtin_mul_overflow(v, 10, &v) ||
            __builtin_add_overflow(v, (uint64_t)(p[i] - '0'), &v))
            return false;
    *out = v;
    return true;
}

bool cl_rnum_int(struct cl_slice s, int64_t *out)
{
    bool minus = s.len && s.p[0] == '-';
    uint64_t v;
    if (!digits(s.p + minus, s.len - minus, &v) || (minus && v == 0) || v > (uint64_t)INT64_MAX + minus)
        return false;
    *out = minus ? (int64_t)(0 - v) : (int64_t)v;
    return true;
}

bool cl_rnum_uint(struct cl_slice s, uint64_t *out)
{
    return digits(s.p, s.len, out);
}

/* A copy that ends with a zero. */
static bool text_of(struct cl_slice s, char text[TEXT_MOST])
{
    if (s.len == 0 || s.len >= TEXT_MOST || isspace(s.p[0]))
        return false;
    memcpy(text, s.p, s.len);
    text[s.len] = 0;
    return true;
}

bool cl_rnum_double(struct cl_slice s, double *out)
{
    char text[TEXT_MOST], *end;
    if (!text_of(s, text))
        return false;
    errno = 0;
    double v = strtod(text, &end);
    if (end != text + s.len || isnan(v) || (errno == ERANGE && (fabs(v) == HUGE_VAL || fpclassify(v) == FP_ZERO)))
        return false;
    *out = v;
    return true;
}

bool cl_rnum_long_double(struct cl_slice s, long double *out)
{
    char text[TEXT_MOST], *end;
    if (!text_of(s, text))
        return false;
    errno = 0;
    long double v = strtold(text, &end);
    if (end != text + s.len || isnan(v) || (errno == ERANGE && (fabsl(v) == HUGE_VALL || fpclassify(v) == FP_ZERO)))
        return false;
    *out = v;
    return true;
}

unsigned cl_rnum_format(char *out, int64_t v)
{
    char text[CL_RNUM_ROOM];
    uint64_t u = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
    unsigned n = 0, at = 0;
    do
        text[n++] = (char)('0' + u % 10);
    while (u /= 10);
    if (v < 0)
        out[at++] = '-';
    while (n)
        out[at++] = text[--n];
    return at;
}

unsigned cl_rnum_format_double(char *out, double v)
{
    if (isinf(v))
        return (unsigned)snprintf(out, CL_RNUM_DOUBLE_ROOM, v > 0 ? "inf" : "-inf");
    if (fabs(v) < 1e15 && v == (double)(int64_t)v)
        return cl_rnum_format(out, (int64_t)v);
    return (unsigned)snprintf(out, CL_RNUM_DOUBLE_ROOM, "%.17g", v);
}

unsigned cl_rnum_format_long(char *out, long double v)
{
    unsigned n = (unsigned)snprintf(out, CL_RNUM_LONG_ROOM, "%.17Lf", v);
    while (n && out[n - 1] == '0')
        n--;
    if (n && out[n - 1] == '.')
        n--;
    if (n == 2 && out[0] == '-' && out[1] == '0') {
        out[0] = '0';
        n = 1;
    }
    return n;
}

/* See path.h. */
#include "path.h"

struct cl_http_text cl_http_target_authority(struct cl_http_text target)
{
    const char *end = target.at + target.len, *scheme = target.len ? memchr(target.at, ':', target.len) : NULL;
    if (!scheme || *target.at == '/' || end - scheme < 3 || memcmp(scheme, "://", 3) != 0)
        return (struct cl_http_text){NULL, 0};
    const char *from = scheme + 3, *at = from;
    while (at < end && *at != '/' && *at != '?')
        at++;
    return (struct cl_http_text){from, (uint32_t)(at - from)};
}

struct cl_http_text cl_http_target_path(struct cl_http_text target)
{
    const char *end = target.at + target.len, *at = target.at;
    if (target.len && *at != '/') { /* the absolute form */
        struct cl_http_text authority = cl_http_target_authority(target);
        if (!authority.at)
            return (struct cl_http_text){at, 0};
        at = authority.at + authority.len;
        if (at == end || *at == '?')
            return CL_HTTP_TEXT("/");
    }
    const char *query = memchr(at, '?', (size_t)(end - at));
    return (struct cl_http_text){at, (uint32_t)((query ? query : end) - at)};
}

struct cl_http_text cl_http_target_origin(struct cl_http_text target)
{
    struct cl_http_text authority = cl_http_target_authority(target);
    if (!authority.at)
        return target;
    const char *end = target.at + target.len, *at = authority.at + authority.len;
    if (at == end)
        return CL_HTTP_TEXT("/");
    return *at == '/' ? (struct cl_http_text){at, (uint32_t)(end - at)} : target;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = cl_http_lower(c);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The next byte of a path; -1: a wrong escape. */
static int next_byte(const char **at, const char *end)
{
    if (**at != '%')
        return (unsigned char)*(*at)++;
    if (end - *at < 3)
        return -1;
    int high = hex_digit((*at)[1]), low = hex_digit((*at)[2]);
    *at += 3;
    return high < 0 || low < 0 ? -1 : high << 4 | low;
}

/* A segment that ends at n has come, and begins at `from`: where the next one begins. -1: it leads above the root. */
static int close_segment(const char *out, int from, int n)
{
    bool dot = n - from == 1 && out[from] == '.', up = n - from == 2 && out[from] == '.' && out[from + 1] == '.';
    if (dot)
        return from;
    if (!up)
        return n;
    if (from == 0)
        return -1;
    for (from--; from && out[from - 1] != '/'; from--) /* behind the slash of the segment before that */
        ;
    return from;
}

int cl_http_path(struct cl_http_text path, char out[CL_HTTP_PATH_MOST])
{
    const char *at = path.at, *end = at + path.len;
    int n = 0, from = 0;
    if (at == end || *at++ != '/')
        return -1;
    while (at < end) {
        int byte = next_byte(&at, end);
        if (byte <= 0)
            return -1;
        if (n >= CL_HTTP_PATH_MOST - 2)
            return CL_HTTP_PATH_LONG;
        if (byte != '/') {
            out[n++] = (char)byte;
            continue;
        }
        int kept = close_segment(out, from, n);
        if (kept < 0)
            return -1;
        if (kept == n && n > from)
            out[kept++] = '/';
        n = from = kept;
    }
    int kept = close_segment(out, from, n);
    if (kept < 0)
        return -1;
    out[kept] = 0;
    return kept;
}

bool cl_http_path_hidden(const char *path)
{
    if (strncmp(path, ".well-known/", 12) == 0)
        path += 12;
    return path[0] == '.' || strstr(path, "/.") != NULL;
}

/* See files.h. */
#include "files.h"
#include "path.h"
#include "pieces.h"
#include "respond.h"

#include <errno.h>
#include <stdio.h>

#define INDEX "index.html"

static void send_whole(struct cl_http_exchange *x)
{
    const struct cl_http_file *f = x->file;
    cl_http_head_begin(x, 200);
    (void)cl_http_head_add(x, f->meta, f->meta_len);
    (void)cl_http_head_field(x, "Content-Type", f->type);
    cl_http_head_end(x, f->size);
    if (x->request.method == CL_HTTP_HEAD || (f->data && cl_http_head_with(x, f->data, f->size)))
        return;
    x->at = 0;
    x->left = f->size;
    if (!cl_http_pieces_begin(x))
        cl_http_refuse(x, 503, "Retry-After: 1\r\n");
}

static void send_range(struct cl_http_exchange *x)
{
    const struct cl_http_range *r = &x->ranges[0];
    char value[80];
    snprintf(value, sizeof value, "bytes %llu-%llu/%llu", (unsigned long long)r->from,
             (unsigned long long)(r->from + r->len - 1), (unsigned long long)x->file->size);
    cl_http_head_begin(x, 206);
    (void)cl_http_head_add(x, x->file->meta, x->file->meta_len);
    (void)cl_http_head_field(x, "Content-Type", x->file->type);
    (void)cl_http_head_field(x, "Content-Range", value);
    cl_http_head_end(x, r->len);
    x->at = r->from;
    x->left = r->len;
    if (!cl_http_pieces_begin(x))
        cl_http_refuse(x, 503, "Retry-After: 1\r\n");
}

static void send_parts(struct cl_http_exchange *x)
{
    char value[80];
    static uint64_t last; /* relaxed: only that it differs from what was given out lately matters */
    uint64_t number = __atomic_add_fetch(&last, 0x9e3779b97f4a7c15ull, __ATOMIC_RELAXED);
    snprintf(x->boundary, sizeof x->boundary, "part-%016llx", (unsigned long long)number);
    snprintf(value, sizeof value, "multipart/byteranges; boundary=%s", x->boundary);
    cl_http_head_begin(x, 206);
    (void)cl_http_head_add(x, x->file->meta, x->file->meta_len);
    (void)cl_http_head_field(x, "Content-Type", value);
    cl_http_head_end(x, cl_http_parts_bytes(x));
    if (!cl_http_parts_begin(x))
        cl_http_refuse(x, 503, "Retry-After: 1\r\n");
}

static void send_file(struct cl_http_exchange *x)
{
    const struct cl_http_file *f = x->file;
    struct cl_http_validators v = {{f->etag, f->etag_len}, f->modified_s};
    int status = cl_http_condition(&x->request, &v);
    if (status == 304) {
        cl_http_head_begin(x, 304);
        (void)cl_http_head_add(x, f->meta, f->meta_len);
        cl_http_head_end(x, CL_HTTP_NO_LENGTH);
        return;
    }
    if (status) {
        cl_http_refuse(x, status, NULL);
        return;
    }
    int n = cl_http_ranges(&x->request, &v, f->size, x->ranges);
    if (n < 0) {
        char line[64];
        snprintf(line, sizeof line, "Content-Range: bytes */%llu\r\n", (unsigned long long)f->size);
        cl_http_refuse(x, 416, line);
        return;
    }
    x->n_ranges = (uint16_t)n;
    (n == 0 ? send_whole : n == 1 ? send_range : send_parts)(x);
}

static int status_of(int error)
{
    switch (error) {
    case ENOENT:
    case ENOTDIR:
    case ENAMETOOLONG:
        return 404;
    case EACCES:
    case EPERM:
    case ELOOP: /* a symlink */
    case EXDEV: /* one that leads out of the root */
        return 403;
    default:
        return 503;
    }
}

/* A byte of a path that stands for itself in a URL (RFC 3986, section 3.3). */
static bool is_path_char(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c && strchr("-._~!$&'()*+,;=:@/", c) != NULL);
}

/* A directory is asked for without its slash: relative links of its page would mean other places. It is sent to the
 * path that was found, not to the one that was written: "//host" and "/\host" lead browsers to other servers. */
static void redirect(struct cl_http_exchange *x, const char *path)
{
    char line[CL_HTTP_ANSWER_HEAD / 2] = "Location: /";
    size_t n = strlen(line), most = sizeof line - sizeof "%00/\r\n";
    for (; *path && n < most; path++)
        n += (size_t)snprintf(line + n, sizeof line - n, is_path_char(*path) ? "%c" : "%%%02X", (unsigned char)*path);
    struct cl_http_text target = cl_http_target(&x->request);
    const char *query = memchr(target.at, '?', target.len);
    size_t query_len = query ? target.len - (size_t)(query - target.at) : 0;
    if (*path || n + query_len >= most) {
        cl_http_refuse(x, 414, NULL);
        return;
    }
    snprintf(line + n, sizeof line - n, "/%.*s\r\n", (int)query_len, query ? query : "");
    cl_http_refuse(x, 301, line);
}

static void find_and_send(struct cl_http_exchange *x, char *path, int len)
{
    struct cl_http_service *s = x->service;
    bool directory = len == 0 || path[len - 1] == '/';
    int error = ENAMETOOLONG;
    if (directory && len + sizeof INDEX > CL_HTTP_PATH_MOST) {
        cl_http_refuse(x, 404, NULL);
        return;
    }
    if (directory)
        memcpy(path + len, INDEX, sizeof INDEX);
    switch (cl_http_cache_find(s->cache, path, cl_load_relaxed(&s->now_ms), &x->file, &error)) {
    case CL_HTTP_FILE:
        send_file(x);
        break;
    case CL_HTTP_DIRECTORY:
        if (directory) /* a folder with the name of an index */
            cl_http_refuse(x, 404, NULL);
        else
            redirect(x, path);
        break;
    default:
        cl_http_refuse(x, status_of(error), NULL);
    }
}

int cl_http_files_early(const struct cl_http_exchange *x)
{
    unsigned method = x->request.method;
    if (!x->service->cache)
        return 404;
    return method == CL_HTTP_GET || method == CL_HTTP_HEAD || method == CL_HTTP_OPTIONS ? 0 : 405;
}

void cl_http_files_refuse(struct cl_http_exchange *x, int status)
{
    cl_http_refuse(x, status, status == 405 ? "Allow: GET, HEAD, OPTIONS\r\n" : NULL);
}

void cl_http_files_answer(struct cl_http_exchange *x)
{
    struct cl_http_request *r = &x->request;
    char path[CL_HTTP_PATH_MOST];
    if (r->method == CL_HTTP_OPTIONS) {
        cl_http_head_begin(x, 204);
        (void)cl_http_head_field(x, "Allow", "GET, HEAD, OPTIONS");
        cl_http_head_end(x, CL_HTTP_NO_LENGTH);
        return;
    }
    int len = cl_http_path(cl_http_target_path(cl_http_target(r)), path);
    if (len < 0)
        cl_http_refuse(x, len == CL_HTTP_PATH_LONG ? 404 : 400, NULL);
    else if (!x->service->options.hidden && cl_http_path_hidden(path))
        cl_http_refuse(x, 404, NULL);
    else
        find_and_send(x, path, len);
}

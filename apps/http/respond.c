/* See respond.h. */
#include "respond.h"

#include <stdio.h>

static const struct {
    int status;
    const char *reason;
} reasons[] = {
    {100, "Continue"},
    {200, "OK"},
    {201, "Created"},
    {202, "Accepted"},
    {204, "No Content"},
    {205, "Reset Content"},
    {206, "Partial Content"},
    {301, "Moved Permanently"},
    {302, "Found"},
    {303, "See Other"},
    {304, "Not Modified"},
    {307, "Temporary Redirect"},
    {308, "Permanent Redirect"},
    {400, "Bad Request"},
    {401, "Unauthorized"},
    {403, "Forbidden"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {406, "Not Acceptable"},
    {408, "Request Timeout"},
    {409, "Conflict"},
    {410, "Gone"},
    {411, "Length Required"},
    {412, "Precondition Failed"},
    {413, "Content Too Large"},
    {414, "URI Too Long"},
    {415, "Unsupported Media Type"},
    {416, "Range Not Satisfiable"},
    {417, "Expectation Failed"},
    {422, "Unprocessable Content"},
    {429, "Too Many Requests"},
    {431, "Request Header Fields Too Large"},
    {500, "Internal Server Error"},
    {501, "Not Implemented"},
    {502, "Bad Gateway"},
    {503, "Service Unavailable"},
    {504, "Gateway Timeout"},
    {505, "HTTP Version Not Supported"},
};

const char *cl_http_reason(int status)
{
    for (unsigned i = 0; i < sizeof reasons / sizeof *reasons; i++)
        if (reasons[i].status == status)
            return reasons[i].reason;
    return "Unknown";
}

static void append(struct cl_http_exchange *x, const char *text, size_t len)
{
    memcpy(x->head + x->head_len, text, len);
    x->head_len += (uint32_t)len;
}

#define APPEND(x, literal) append(x, literal, sizeof(literal) - 1)

/* A number in decimal digits. */
static void append_number(struct cl_http_exchange *x, uint64_t n)
{
    char digits[20];
    unsigned at = sizeof digits;
    do
        digits[--at] = (char)('0' + n % 10);
    while (n /= 10);
    append(x, digits + at, sizeof digits - at);
}

void cl_http_head_begin(struct cl_http_exchange *x, int status)
{
    x->status = (uint16_t)status;
    x->head_len = 0;
    if (status == 200) {
        APPEND(x, "HTTP/1.1 200 OK\r\n");
    } else {
        const char *reason = cl_http_reason(status);
        APPEND(x, "HTTP/1.1 ");
        append_number(x, (uint64_t)status);
        APPEND(x, " ");
        append(x, reason, strlen(reason));
        APPEND(x, "\r\n");
    }
    APPEND(x, "Server: corelane\r\nDate: ");
    append(x, cl_http_date_now(x->service), CL_HTTP_DATE_BYTES);
    APPEND(x, "\r\n");
    if (x->closes)
        APPEND(x, "Connection: close\r\n");
    else if (x->request.minor == 0)
        APPEND(x, "Connection: keep-alive\r\n");
}

bool cl_http_head_add(struct cl_http_exchange *x, const char *lines, size_t len)
{
    if (x->head_len + len + 64 > sizeof x->head) /* what the end needs stays free */
        return false;
    append(x, lines, len);
    return true;
}

bool cl_http_head_field(struct cl_http_exchange *x, const char *name, const char *value)
{
    size_t name_len = strlen(name), value_len = strlen(value);
    if (x->head_len + name_len + value_len + 4 + 64 > sizeof x->head)
        return false;
    append(x, name, name_len);
    APPEND(x, ": ");
    append(x, value, value_len);
    APPEND(x, "\r\n");
    return true;
}

void cl_http_head_end(struct cl_http_exchange *x, uint64_t length)
{
    if (length != CL_HTTP_NO_LENGTH) {
        APPEND(x, "Content-Length: ");
        append_number(x, length);
        APPEND(x, "\r\n");
    }
    APPEND(x, "\r\n");
    x->span = (const uint8_t *)x->head;
    x->span_len = x->head_len;
}

bool cl_http_head_with(struct cl_http_exchange *x, const void *body, uint64_t len)
{
    if (len > sizeof x->head - x->head_len)
        return false;
    append(x, body, (size_t)len);
    x->span_len = x->head_len;
    return true;
}

void cl_http_refuse(struct cl_http_exchange *x, int status, const char *more)
{
    char text[64];
    int len = snprintf(text, sizeof text, "%d %s\n", status, cl_http_reason(status));
    cl_http_head_begin(x, status);
    if (more)
        (void)cl_http_head_add(x, more, strlen(more));
    (void)cl_http_head_field(x, "Content-Type", "text/plain; charset=utf-8");
    cl_http_head_end(x, (uint64_t)len);
    if (x->request.method != CL_HTTP_HEAD)
        (void)cl_http_head_with(x, text, (uint64_t)len); /* what the lines leave free is enough */
}

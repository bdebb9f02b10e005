/* See tls.h. */
#include "tls.h"

#include <errno.h>

/* All that is to be sent is small: it fits into the send buffer. */
static int flush(struct cl_tls *t, struct cl_tcp_conn *tcp)
{
    uint8_t *data;
    int64_t len = cl_tls_out(t, &data);
    if (len == 0)
        return 0;
    int64_t n = cl_tcp_write(tcp, data, len);
    cl_tls_sent(t);
    return n == len ? 0 : -EIO;
}

int cl_bench_tls_begin(struct cl_tls *t, struct cl_tcp_conn *tcp)
{
    int rc = cl_tls_shake(t);
    return rc < 0 ? rc : flush(t, tcp);
}

int cl_bench_tls_put(struct cl_tls *t, struct cl_tcp_conn *tcp, const uint8_t *data, int64_t len)
{
    int rc = cl_tls_put(t, data, len);
    return rc || cl_tls_is_open(t) ? rc : cl_bench_tls_begin(t, tcp);
}

int64_t cl_bench_tls_write(struct cl_tls *t, struct cl_tcp_conn *tcp, const void *data, int64_t len)
{
    if (cl_tls_write(t, data, len) != len)
        return -EIO;
    return flush(t, tcp) < 0 ? -EIO : len;
}

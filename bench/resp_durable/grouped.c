/* See grouped.h. */
#include "grouped.h"

#include <corelane/runtime/counter.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BLOCK 4096ull
#define AREA (1ull << 18) /* bytes of requests that may wait */

struct cl_bench_grouped {
    int fd;
    uint32_t group, n;
    uint64_t file_bytes, at; /* at: of the next write */
    uint64_t len;            /* of what waits in area */
    uint64_t writes;         /* writer: the kthread; readers: anybody, as of error */
    int error;
    uint8_t *area;
    struct cl_tcp_conn *waiting[];
};

static void opened(struct cl_tcp_conn *c, void *arg)
{
    (void)arg;
    cl_tcp_no_delay(c, true);
}

static void answer(struct cl_tcp_conn *c, void *arg)
{
    (void)arg;
    (void)cl_tcp_write(c, "+OK\r\n", 5);
}

static void write_all(struct cl_bench_grouped *g)
{
    uint64_t bytes = (g->len + BLOCK - 1) / BLOCK * BLOCK;
    if (g->at + bytes > g->file_bytes)
        g->at = 0;
    if (pwrite(g->fd, g->area, bytes, (off_t)g->at) != (ssize_t)bytes) {
        cl_store_relaxed(&g->error, errno ? errno : EIO);
        return;
    }
    g->at += bytes;
    cl_count(&g->writes, 1);
    for (uint32_t i = 0; i < g->n; i++)
        (void)cl_tcp_wake(g->waiting[i]);
    g->n = 0;
    g->len = 0;
}

static int64_t came(struct cl_tcp_conn *c, const uint8_t *data, int64_t len, void *arg)
{
    struct cl_bench_grouped *g = arg;
    if (g->n < g->group && g->len + (uint64_t)len <= AREA) {
        memcpy(g->area + g->len, data, (size_t)len);
        g->len += (uint64_t)len;
        g->waiting[g->n++] = c;
    }
    if (g->n == g->group)
        write_all(g);
    return len;
}

static void eof(struct cl_tcp_conn *c, void *arg)
{
    (void)arg;
    cl_tcp_close(c);
}

static void ended(struct cl_tcp_conn *c, int error, void *arg)
{
    struct cl_bench_grouped *g = arg;
    (void)error;
    for (uint32_t i = 0; i < g->n; i++)
        if (g->waiting[i] == c)
            g->waiting[i--] = g->waiting[--g->n];
}

static const struct cl_tcp_events events = {
    .opened = opened, .data = came, .woken = answer, .eof = eof, .ended = ended};

int cl_bench_grouped_new(int fd, uint64_t file_bytes, uint32_t group, struct cl_bench_grouped **out)
{
    if (!group || file_bytes < AREA)
        return -EINVAL;
    struct cl_bench_grouped *g = calloc(1, sizeof *g + group * sizeof g->waiting[0]);
    uint8_t *area = aligned_alloc(BLOCK, AREA);
    if (!g || !area) {
        free(g);
        free(area);
        return -ENOMEM;
    }
    memset(area, 0, AREA);
    *g = (struct cl_bench_grouped){.fd = fd, .group = group, .file_bytes = file_bytes, .area = area};
    *out = g;
    return 0;
}

int cl_bench_grouped_listen(struct cl_runtime *rt, uint16_t port, uint32_t backlog, struct cl_bench_grouped *g)
{
    return cl_runtime_listen_tcp(rt, port, backlog, &events, g);
}

uint64_t cl_bench_grouped_writes(const struct cl_bench_grouped *g)
{
    return cl_load_relaxed(&g->writes);
}

int cl_bench_grouped_error(const struct cl_bench_grouped *g)
{
    return cl_load_relaxed(&g->error);
}

void cl_bench_grouped_delete(struct cl_bench_grouped *g)
{
    if (!g)
        return;
    free(g->area);
    free(g);
}

/* See serve.h. */
#include "serve.h"
#include "exchange.h"
#include "handler.h"
#include "tls.h"
#include "wire.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define CLOCK_NS 100000000ull /* how often the service looks at the time */
#define BACKLOG 4096
#define FRAMES_MOST(body) (2 * (body) + 65536) /* bytes of chunks with their frames */
#define WHOLE_PART 64 /* a file in memory takes at most such a part of it: a quarter of a shard */

void cl_http_options_init(struct cl_http_options *o)
{
    *o = (struct cl_http_options){.cache_bytes = 256ull << 20,
                                  .memory_bytes = 256ull << 20,
                                  .connections = 65536,
                                  .fresh_ms = 1000,
                                  .target_most = 8192,
                                  .head_most = 16384,
                                  .body_most = 1 << 20,
                                  .tick_ms = 1000,
                                  .keep_alive_ms = 75000,
                                  .head_ms = 10000,
                                  .window_ms = 20000,
                                  .window_bytes = 10240,
                                  .linger_ms = 2000};
}

bool cl_http_built(void)
{
    return cl_http_parses();
}

static int check(const struct cl_http_options *o, char err[256])
{
    const char *wrong = o->tick_ms == 0                    ? "tick_ms is 0"
                        : o->connections == 0              ? "connections is 0"
                        : o->head_most > CL_HTTP_HEAD_MOST ? "head_most is more than 65535"
                        : o->target_most > o->head_most    ? "target_most is more than head_most"
                        : o->target_most < 16              ? "target_most is less than 16"
                                                           : NULL;
    if (!wrong)
        return 0;
    snprintf(err, 256, "%s", wrong);
    return -EINVAL;
}

static int make_cache(struct cl_http_service *s, const char *root, char err[256])
{
    const struct cl_http_options *o = &s->options;
    struct cl_http_loader *loader;
    int rc = cl_http_loader_new(root, o->symlinks, o->cache_bytes / WHOLE_PART, &loader, err);
    if (rc)
        return rc;
    rc = cl_http_cache_new(loader, o->cache_bytes, o->fresh_ms, &s->cache);
    if (rc) {
        snprintf(err, 256, "out of memory");
        cl_http_loader_delete(loader);
    }
    return rc;
}

int cl_http_service_new(const struct cl_http_options *o, const char *root, uint32_t kthreads,
                        struct cl_http_service **out, char err[256])
{
    int rc = check(o, err);
    if (rc)
        return rc;
    if (!cl_http_parses()) {
        snprintf(err, 256, "it was built without llhttp: apt-get install node-llhttp, and build again");
        return -ENOSYS;
    }
    struct cl_http_service *s = calloc(1, sizeof *s);
    struct cl_http_thread *threads = aligned_alloc(CL_CACHELINE, kthreads * sizeof *threads);
    if (!s || !threads) {
        free(s);
        free(threads);
        snprintf(err, 256, "out of memory");
        return -ENOMEM;
    }
    memset(threads, 0, kthreads * sizeof *threads);
    s->threads = threads;
    s->n_threads = kthreads;
    s->options = *o;
    s->limits = (struct cl_http_limits){.target_most = o->target_most,
                                        .head_most = o->head_most,
                                        .body_most = o->body_most,
                                        .chunked_most = FRAMES_MOST(o->body_most)};
    cl_http_set_time(s, 1, time(NULL));
    rc = root ? make_cache(s, root, err) : 0;
    if (rc)
        cl_http_service_delete(s);
    else
        *out = s;
    return rc;
}

void cl_http_set_time(struct cl_http_service *s, uint64_t now_ms, int64_t date_s)
{
    uint32_t next = s->date + 1;
    char *to = s->dates[next % CL_HTTP_DATES];
    cl_store_relaxed(&s->now_ms, now_ms);
    cl_http_date_write(to, date_s);
    if (memcmp(to, s->dates[s->date % CL_HTTP_DATES], CL_HTTP_DATE_BYTES) != 0)
        cl_store_release(&s->date, next); /* release: who reads the number reads the text */
}

static int64_t on_clock(void *arg)
{
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    cl_http_set_time(arg, cl_sched_now_ns(cl_sched_self()) / 1000000, ts.tv_sec);
    return 0;
}

int cl_http_set_certificate(struct cl_http_service *s, const char *certificates, const char *key, char err[256])
{
    struct cl_http_tls_context *made;
    int rc = cl_http_tls_context_new(certificates, key, &made, err);
    if (rc)
        return rc;
    if (s->tls)
        cl_http_tls_context_add(s->tls, made);
    else
        s->tls = made;
    return 0;
}

static int listen_on(struct cl_http_service *s, struct cl_runtime *rt, uint16_t port, bool tls, char err[256])
{
    int rc = port ? cl_http_wire_listen(s, rt, port, BACKLOG, tls) : 0;
    if (rc)
        snprintf(err, 256, "cannot serve TCP port %u: %s", port, strerror(-rc));
    return rc;
}

int cl_http_serve(struct cl_http_service *s, struct cl_runtime *rt, uint16_t port, uint16_t tls_port, char err[256])
{
    struct cl_runtime_info info;
    const struct cl_every *clock;
    cl_runtime_info(rt, &info);
    if (info.kthreads > s->n_threads || (tls_port && !s->tls)) {
        snprintf(err, 256, "%s", tls_port && !s->tls ? "TLS needs a certificate" : "it was made for fewer kthreads");
        return -EINVAL;
    }
    int rc = cl_runtime_every(rt, CLOCK_NS, on_clock, s, 0, &clock);
    if (rc)
        snprintf(err, 256, "cannot start the clock: %s", strerror(-rc));
    if (rc == 0)
        rc = listen_on(s, rt, port, false, err);
    if (rc == 0)
        rc = listen_on(s, rt, tls_port, true, err);
    if (rc == 0) {
        s->rt = rt;
        s->ports[0] = port;
        s->ports[1] = tls_port;
    }
    return rc;
}

void cl_http_drain(struct cl_http_service *s)
{
    cl_store_relaxed(&s->draining, 1);
    for (unsigned i = 0; s->rt && i < 2; i++)
        if (s->ports[i])
            (void)cl_runtime_unlisten_tcp(s->rt, s->ports[i]); /* -ENOENT: it drains already */
}

uint32_t cl_http_alive(const struct cl_http_service *s)
{
    return cl_load_relaxed(&s->alive);
}

uint64_t cl_http_used_bytes(const struct cl_http_service *s)
{
    uint64_t used = cl_load_relaxed(&s->used_bytes);
    for (unsigned k = 0; k < s->n_threads; k++)
        used -= cl_http_exchange_spare_bytes(&s->threads[k]);
    return used;
}

void cl_http_sum_counts(const struct cl_http_service *s, struct cl_http_counts *out)
{
    uint64_t *sum = (uint64_t *)out;
    _Static_assert(sizeof *out % sizeof *sum == 0, "counts are all of one kind");
    *out = (struct cl_http_counts){0};
    for (unsigned k = 0; k < s->n_threads; k++) {
        const uint64_t *of = (const uint64_t *)&s->threads[k].counts;
        for (unsigned i = 0; i < sizeof *out / sizeof *sum; i++)
            sum[i] += cl_load_relaxed(&of[i]);
    }
}

void cl_http_files_usage(struct cl_http_service *s, struct cl_http_files_usage *out)
{
    struct cl_http_cache_counts n = {0};
    if (s->cache)
        cl_http_cache_counts(s->cache, &n);
    *out = (struct cl_http_files_usage){n.hits, n.looks, n.loads, n.evicted, n.entries, n.bytes};
}

void cl_http_service_delete(struct cl_http_service *s)
{
    if (!s)
        return;
    cl_http_cache_delete(s->cache);
    cl_http_tls_context_delete(s->tls);
    cl_http_routes_delete(s);
    for (unsigned k = 0; k < s->n_threads; k++) {
        cl_http_exchange_free_spares(&s->threads[k]);
        free(s->threads[k].record);
    }
    free(s->threads);
    free(s);
}

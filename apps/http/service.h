/* What all connections of a server share. */
#ifndef CORELANE_APPS_HTTP_SERVICE_H
#define CORELANE_APPS_HTTP_SERVICE_H

#include "cache.h"
#include "date.h"
#include "request.h"

#include <corelane/libos/sched.h>

// cffi: begin
/* Times in ms; they pass in ticks of tick_ms, so each may take that much longer. Sizes in bytes. Zero is no default:
 * start from cl_http_options_init. */
struct cl_http_options {
    uint64_t cache_bytes;   /* memory of files */
    uint64_t memory_bytes;  /* memory of requests and answers under way, of all connections together */
    uint32_t connections;   /* at one time; more are reset */
    uint32_t fresh_ms;      /* how old an answer from memory may be */
    uint32_t target_most;   /* of a request: 414 */
    uint32_t head_most;     /* of a request, its target included: 431; 65535 at most */
    uint64_t body_most;     /* of a request: 413 */
    uint32_t tick_ms;       /* how often a connection is looked at */
    uint32_t keep_alive_ms; /* without a request: closed */
    uint32_t head_ms;       /* from the first byte of a request to the end of its head (TLS: and the handshake): 408 */
    uint32_t window_ms;     /* of bodies and answers: in each such time ... */
    uint32_t window_bytes;  /* ... so many bytes have to go through: 408, or a reset */
    uint32_t linger_ms;     /* after an error: how long what the peer still sends is read and dropped */
    uint32_t requests;      /* of a connection; then it is closed. 0: any number */
    bool symlinks;          /* links that stay below the root are followed */
    bool hidden;            /* names that begin with a dot are served */
};

/* What a server has done. Writers: kthreads, each for itself; readers: anybody. */
struct cl_http_counts {
    uint64_t opened, ended;       /* connections */
    uint64_t refused_connections; /* as many exist as may, or there is no memory for one */
    uint64_t failed_connections;  /* ended with an error, not by us */
    uint64_t requests;            /* answered, errors included */
    uint64_t pipelined;           /* that came before the answer to the one before them had left */
    uint64_t bytes;               /* of answers, heads included */
    uint64_t ok, redirects, client_errors, server_errors; /* answers by their status: 1xx and 2xx, 3xx, 4xx, 5xx */
    uint64_t not_modified, partial;                       /* 304 and 206 */
    uint64_t late_heads, slow_bodies, slow_readers, idle; /* time-outs */
    uint64_t handler_errors;                              /* that raised, faulted, or answered what cannot be: 500 */
    uint64_t no_memory;                                   /* refused since memory_bytes was used up: 503 */
    uint64_t cut;                                         /* answers that could not be ended: a file became shorter */
    uint64_t handshakes, resumed, failed_handshakes;      /* of TLS; `resumed` of those that were done */
};
// cffi: end

#define CL_HTTP_DATES 8 /* one of them is of now; a reader has seconds until its place is written again */

struct cl_http_thread {
    struct cl_http_counts counts CL_ALIGNED(CL_CACHELINE);
    struct cl_http_exchange *spare; /* exchanges that are free, for its kthread; they stay charged */
    uint32_t spares;                /* read by anybody (relaxed) */
    uint8_t *record;                /* memory for a record of TLS, or NULL: lent to who decrypts, for its turn */
};

struct cl_http_service {
    struct cl_http_options options;
    struct cl_http_limits limits;
    struct cl_http_cache *cache;     /* NULL: no files are served */
    struct cl_http_route *routes;    /* of handlers (handler.h) */
    struct cl_http_tls_context *tls; /* its certificates; NULL: it has none */
    struct cl_http_thread *threads;
    uint32_t n_threads;
    struct cl_runtime *rt; /* NULL: it serves on none */
    uint16_t ports[2];     /* where it listens; 0: none */
    /* Written by anybody, atomically (relaxed: numbers). */
    uint64_t used_bytes; /* of memory_bytes */
    uint32_t alive;      /* connections */
    uint32_t draining;   /* no new requests: connections end after their answers */
    /* Written by the clock of the service (release), read by connections (acquire). */
    uint64_t now_ms;
    uint32_t date;
    char dates[CL_HTTP_DATES][32];
};

/* Of the kthread that calls; elsewhere the first. Not to be kept across what blocks. */
static inline struct cl_http_thread *cl_http_here(struct cl_http_service *s)
{
    int k = cl_kthread_index();
    return &s->threads[k < 0 ? 0 : k];
}

/* Take memory for a request. False: as much is used as may be. */
static inline bool cl_http_charge(struct cl_http_service *s, uint64_t bytes)
{
    if (__atomic_add_fetch(&s->used_bytes, bytes, __ATOMIC_RELAXED) <= s->options.memory_bytes)
        return true;
    __atomic_sub_fetch(&s->used_bytes, bytes, __ATOMIC_RELAXED);
    cl_count(&cl_http_here(s)->counts.no_memory, 1);
    return false;
}

static inline void cl_http_refund(struct cl_http_service *s, uint64_t bytes)
{
    __atomic_sub_fetch(&s->used_bytes, bytes, __ATOMIC_RELAXED);
}

static inline const char *cl_http_date_now(const struct cl_http_service *s)
{
    return s->dates[cl_load_acquire(&s->date) % CL_HTTP_DATES];
}

#endif

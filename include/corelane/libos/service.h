/* Services that were compiled ahead of time: what such a shared object exports, and loading it into a runtime. Part of
 * the C API. `corelane compile service.py -o service.so` makes them (docs/compile.md); `corelane-run service.so` is a
 * program without Python that runs them.
 *
 * The object exports one variable, `corelane_service`, of type struct cl_service. Its code refers to functions of
 * libcorelane.so by name, and knows where some fields of public structs lie. So it is loaded only if everything that it
 * was made for is here: the ABI number, the layout of those structs, the functions, and what the processor must have.
 *
 * CL_SERVICE_ABI counts the incompatible changes of what such code sees: the structs below, and the signatures of the
 * entries: cl_udp_handler, cl_udp_burst_handler, cl_tcp_handler, cl_udp_classifier, cl_every_fn, cl_http_handler.
 *
 * Tests: tests/libos/service. */
#ifndef CORELANE_LIBOS_SERVICE_H
#define CORELANE_LIBOS_SERVICE_H

#include <corelane/libos/runtime.h>
#include <corelane/runtime/counter.h>

CL_EXTERN_C_BEGIN

// cffi: begin
#define CL_SERVICE_MAGIC 0x656369767265534cu /* "LService" */
#define CL_SERVICE_ABI 3
#define CL_SERVICE_MOST 256 /* entries of work of one service */

#define CL_SERVICE_UDP 1   /* a cl_udp_handler, or with `batching` a cl_udp_burst_handler */
#define CL_SERVICE_TCP 2   /* a cl_tcp_handler */
#define CL_SERVICE_EVERY 3 /* a cl_every_fn */
#define CL_SERVICE_JOB 4   /* a cl_every_fn that is called once, on a uthread of its own from the start on */
#define CL_SERVICE_HTTP 5  /* a cl_http_handler; all of them are of one server */

/* HTTP: what a handler answers, as cl_http_add_handler has it (apps/http/handler.h). */
struct cl_service_http {
    const char *path, *type;
    uint64_t room;
    uint32_t methods;
    uint32_t pad;
};

/* One thing that a service does. */
struct cl_service_work {
    uint32_t kind;
    uint32_t port;            /* UDP, TCP, HTTP */
    uint32_t ordered;         /* UDP: as cl_runtime_bind_udp_ordered */
    uint32_t backlog, window; /* TCP: as cl_runtime_serve_tcp */
    uint32_t pad;
    uint64_t period_ns;               /* EVERY */
    const char *name;                 /* of the function, for people */
    void *entry;                      /* the function */
    void *state;                      /* its `arg`; may be NULL */
    const struct cl_udp_types *types; /* UDP: requests in queues by type; or NULL */
    const struct cl_service_http *http;
    const struct cl_udp_batching *batching; /* UDP: requests that wait for others; or NULL */
};

/* A server of some protocol, on a runtime. drain: take no more. alive: connections that are open. counts: its counters,
 * any thread. end: free it, when the runtime has stopped. */
struct cl_service_server {
    void *of; /* the first argument of all of them */
    void (*drain)(void *of);
    uint32_t (*alive)(void *of);
    cl_counters_fn counts;
    void (*end)(void *of);
};
struct cl_service;
/* Makes the server of all work of one kind, before the runtime starts. port: as cl_service_bind. -errno with a
 * sentence. */
typedef int (*cl_service_server_fn)(struct cl_runtime *rt, const struct cl_service *service, uint16_t port,
                                    struct cl_service_server *out, char err[256]);

/* What the object exports. */
struct cl_service {
    uint64_t magic;
    uint32_t abi;
    uint32_t n_work;      /* 1..CL_SERVICE_MOST */
    uint64_t layout;      /* cl_service_layout() of the corelane that it was made for */
    const char *corelane; /* the version of that, for people */
    const char *cpu;      /* what its code needs: "x86-64", "x86-64-v2", -v3, -v4 (the psABI's levels); "armv8-a" */
    const char *name;     /* of the service: what its application is called unless somebody says otherwise */
    const struct cl_service_work *work;
    cl_service_server_fn http; /* of the work of kind HTTP; NULL: there is none */
};

/* A number that changes with the place of any field that compiled code reaches by itself. */
CL_API uint64_t cl_service_layout(void);
/* Load an object. It stays loaded: its code may be on a stack. -errno with a sentence: it cannot be loaded, is no
 * service, or was made for another corelane or processor. Any thread. */
CL_API int cl_service_open(const char *path, const struct cl_service **out, char err[256]);
/* Whether this processor has what code of that level needs: 0, or -ENOTSUP with a sentence. */
CL_API int cl_service_cpu(const char *level, char err[256]);
/* What a runtime was given of a service. */
struct cl_service_bound;
/* Give a runtime that was not started what the service does. port: that of its only handler, or of its HTTP server if
 * it has no other, if it is not to be the one that it names; 0: as they say. -errno with a sentence; `*out` is the
 * caller's even then, unless it is NULL. */
CL_API int cl_service_bind(struct cl_runtime *rt, const struct cl_service *service, uint16_t port,
                           struct cl_service_bound **out, char err[256]);
/* Free it. The runtime must have been deleted, or never started. NULL is allowed. */
CL_API void cl_service_unbind(struct cl_service_bound *bound);
/* Servers take no more connections and requests. Any thread, while the runtime exists. */
CL_API void cl_service_drain(struct cl_service_bound *bound);
/* Connections of servers that are open. */
CL_API uint32_t cl_service_alive(const struct cl_service_bound *bound);
/* Counters of servers, a cl_counters_fn. */
CL_API unsigned cl_service_counters(void *bound, struct cl_counter *out, unsigned room);
/* Readable when a job has ended that cl_service_next_job has not told of. -1: there is no job. It belongs to
 * `bound`. */
CL_API int cl_service_jobs_fd(const struct cl_service_bound *bound);
/* A job that has ended, each once. 1: its name and what it returned (CL_HANDLER_RAISED: it raised). 0: none now. One
 * thread at a time. */
CL_API int cl_service_next_job(struct cl_service_bound *bound, const char **name, int64_t *result);
/* Whether it has nothing else to do: it is jobs alone, and all of them were told. */
CL_API bool cl_service_is_done(const struct cl_service_bound *bound);
// cffi: end

CL_EXTERN_C_END
#endif

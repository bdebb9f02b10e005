/* Services that were compiled ahead of time: what such a shared object exports, and loading it into a runtime. Part of
 * the C API. `corelane compile service.py -o service.so` makes them (docs/compile.md); `corelane-run service.so` is a
 * program without Python that runs them.
 *
 * The object exports one variable, `corelane_service`, of type struct cl_service. Its code refers to functions of
 * libcorelane.so by name, and knows where some fields of public structs lie. So it is loaded only if everything that it
 * was made for is here: the ABI number, the layout of those structs, the functions, and what the processor must have.
 *
 * CL_SERVICE_ABI counts the incompatible changes of what such code sees: the structs below, and the signatures of the
 * entries: cl_udp_handler, cl_tcp_handler, cl_udp_classifier, cl_every_fn.
 *
 * Tests: tests/libos/service. */
#ifndef CORELANE_LIBOS_SERVICE_H
#define CORELANE_LIBOS_SERVICE_H

#include <corelane/libos/runtime.h>

CL_EXTERN_C_BEGIN

// cffi: begin
#define CL_SERVICE_MAGIC 0x656369767265534cu /* "LService" */
#define CL_SERVICE_ABI 1
#define CL_SERVICE_MOST 256 /* entries of work of one service */

#define CL_SERVICE_UDP 1     /* a cl_udp_handler */
#define CL_SERVICE_TCP 2     /* a cl_tcp_handler */
#define CL_SERVICE_EVERY 3   /* a cl_every_fn */
#define CL_SERVICE_UTHREAD 4 /* a cl_uthread_fn, on a uthread of its own from the start on */

/* One thing that a service does. */
struct cl_service_work {
    uint32_t kind;
    uint32_t port;            /* UDP, TCP */
    uint32_t ordered;         /* UDP: as cl_runtime_bind_udp_ordered */
    uint32_t backlog, window; /* TCP: as cl_runtime_serve_tcp */
    uint32_t pad;
    uint64_t period_ns;               /* EVERY */
    const char *name;                 /* of the function, for people */
    void *entry;                      /* the function */
    void *state;                      /* its `arg`; may be NULL */
    const struct cl_udp_types *types; /* UDP: requests in queues by type; or NULL */
};

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
};

/* A number that changes with the place of any field that compiled code reaches by itself. */
CL_API uint64_t cl_service_layout(void);
/* Load an object. It stays loaded: its code may be on a stack. -errno with a sentence: it cannot be loaded, is no
 * service, or was made for another corelane or processor. Any thread. */
CL_API int cl_service_open(const char *path, const struct cl_service **out, char err[256]);
/* Whether this processor has what code of that level needs: 0, or -ENOTSUP with a sentence. */
CL_API int cl_service_cpu(const char *level, char err[256]);
/* Give a runtime that was not started what the service does. port: that of its only handler, if it is not to be the
 * one that it names; 0: as they say. -errno with a sentence. */
CL_API int cl_service_bind(struct cl_runtime *rt, const struct cl_service *service, uint16_t port, char err[256]);
// cffi: end

CL_EXTERN_C_END
#endif

/* The store as an application on a runtime: its port, and the sweep of expired items. */
#ifndef CORELANE_APPS_KV_SERVE_H
#define CORELANE_APPS_KV_SERVE_H

#include <corelane/libos/runtime.h>
#include "udp.h"

// cffi: begin
struct cl_kv_service;

/* Serve `store` on a UDP port, or with port 0 on none, of a runtime that has not started; the store needs a thread for
 * each kthread. Expired items are swept ten times a second by a timer. -EINVAL (too few threads), -EADDRINUSE, -ENOMEM,
 * with a reason in err. */
CL_API int cl_kv_serve(struct cl_runtime *rt, struct cl_kv *store, uint16_t port, struct cl_kv_service **out,
                       char err[256]);
/* Free what cl_kv_serve made. The runtime must have stopped, or never started. The store stays the caller's. */
CL_API void cl_kv_service_delete(struct cl_kv_service *service);
/* Kthread k's counters; NULL if there is none. */
CL_API const struct cl_kv_udp *cl_kv_service_udp(const struct cl_kv_service *service, uint32_t k);
// cffi: end

#endif

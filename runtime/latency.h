/* What an application says of the latency of its services: a histogram for each kthread and service, in the last pages
 * of its arena. For people (corelane top, Prometheus): the iokernel sums them when somebody asks. Kthreads record into
 * pages of this layout in memory of their own (libos/trace/latency.c), which outlives an iokernel; a thread of the
 * application copies them into the arena of today some times a second.
 *
 * The cost is a page of memory for each kthread and service that is used, and for a request that is recorded a count of
 * leading zeros and two adds to lines that no other kthread writes. So who records takes a sample; requests are counted
 * besides, all of them, once a burst.
 *
 * Writer: the kthread that answered, alone (relaxed, as hist.h has it); in the arena who copies. Reader: the iokernel's
 * control thread, which takes numbers only, never a length or a position, and bounds them. */
#ifndef CORELANE_RUNTIME_LATENCY_H
#define CORELANE_RUNTIME_LATENCY_H

#include "hist.h"

#include <stddef.h>
#include <string.h>

CL_EXTERN_C_BEGIN

// cffi: begin
#define CL_LATENCY_SERVICES 8 /* of an application; others are not told of */
#define CL_LATENCY_DIGITS 1   /* 16 buckets a doubling: a percentile is 6 % above the true one at most */
#define CL_LATENCY_LIMIT_NS 0x3ffffffff
#define CL_LATENCY_BUCKETS 496 /* of these digits and this limit */
#define CL_LATENCY_PAGE 4096

struct cl_latency {
    uint64_t requests; /* answered, recorded or not */
    uint64_t reserved[7];
    struct cl_hist hist; /* ns from the first moment known of a request to its answer; its counts follow */
    uint64_t counts[CL_LATENCY_BUCKETS];
};

struct cl_latency_name {
    char text[32]; /* letters, digits and _.:-; zero-terminated: "udp:11211" */
};

/* Writer: the application, once (n last, release). */
struct cl_latency_names {
    uint32_t n;
    uint32_t reserved;
    struct cl_latency_name service[CL_LATENCY_SERVICES];
};
// cffi: end

_Static_assert(sizeof(struct cl_latency) == CL_LATENCY_PAGE, "a page: what is not used takes no memory");
_Static_assert(offsetof(struct cl_latency, counts) == offsetof(struct cl_latency, hist) + sizeof(struct cl_hist),
               "where hist.h looks for them");
_Static_assert(sizeof(struct cl_latency_names) <= CL_LATENCY_PAGE, "a page, before those of the kthreads");

/* Bytes of all of it for so many kthreads. */
static inline uint64_t cl_latency_bytes(uint32_t n_kthreads)
{
    return ((uint64_t)n_kthreads * CL_LATENCY_SERVICES + 1) * CL_LATENCY_PAGE;
}

/* Of the part that begins there: the page of a kthread and service. */
static inline struct cl_latency *cl_latency_of(void *part, uint32_t kthread, uint32_t service)
{
    return (struct cl_latency *)((uint8_t *)part + CL_LATENCY_PAGE) + (uint64_t)kthread * CL_LATENCY_SERVICES + service;
}

/* Before the first record, in zeroed memory. */
static inline void cl_latency_init(struct cl_latency *at)
{
    cl_hist_init(&at->hist, CL_LATENCY_DIGITS, CL_LATENCY_LIMIT_NS);
}

/* The hot path: the latency of one request that was drawn. */
static inline void cl_latency_record(struct cl_latency *at, uint64_t ns)
{
    cl_hist_record(&at->hist, ns);
}

/* So many requests were answered, once a burst. */
static inline void cl_latency_count(struct cl_latency *at, uint64_t n)
{
    cl_count(&at->requests, n);
}

/* Name the next service: its number, or -1 if there is no room for one more. For one thread, before kthreads run. */
static inline int cl_latency_name(void *part, const char *name)
{
    struct cl_latency_names *names = (struct cl_latency_names *)part;
    uint32_t n = cl_load_relaxed(&names->n); /* nobody else writes it */
    if (n >= CL_LATENCY_SERVICES)
        return -1;
    strncpy(names->service[n].text, name, sizeof names->service[n].text - 1);
    cl_store_release(&names->n, n + 1); /* whoever sees it sees the name */
    return (int)n;
}

CL_EXTERN_C_END
#endif

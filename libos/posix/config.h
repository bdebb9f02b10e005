/* What the process's runtime is made of, and which addresses are ours. */
#ifndef CORELANE_LIBOS_POSIX_CONFIG_H
#define CORELANE_LIBOS_POSIX_CONFIG_H

#include <corelane/runtime/base.h>

#define CL_POSIX_PATTERNS 32

/* Listeners at some addresses: those of which the bits in mask are these. */
struct cl_posix_pattern {
    uint32_t address, mask;
    uint16_t port; /* 0: any */
};

struct cl_posix_config {
    char nic[128];              /* "tap:NAME", "af_xdp:NAME", "memory" (a wire to nobody); or empty: attached */
    int xskmap_fd, link_fd;     /* of af_xdp: the XDP program's map of sockets, and what keeps it attached; -1: none */
    char socket[128];           /* attached: the iokernel's socket */
    char name[32];              /* attached: the application's */
    uint32_t host, host_prefix; /* Linux' own address on a tap, host byte order */
    uint32_t address, prefix;   /* ours; attached: as the iokernel says */
    uint32_t gateway;
    uint32_t kthreads;   /* 1..64 */
    uint32_t poll;       /* CL_SCHED_ADAPTIVE, CL_SCHED_BLOCK */
    uint32_t record;     /* what is written down of requests: CL_RUNTIME_TRACE_* */
    bool trace;          /* say of each socket where it goes, and at the end what was called */
    bool loopback;       /* 127.0.0.0/8 is the program's own, not the machine's */
    uint32_t n_patterns; /* of listeners that are ours; 0: all */
    struct cl_posix_pattern patterns[CL_POSIX_PATTERNS];
};

/* "nic=tap:cl0,host=10.77.0.1/24,address=10.77.0.2/24,kthreads=2,gateway=10.77.0.1,poll=block,loopback=1,
 * listen=80;10.77.0.*:443;127.0.0.1:*,record=full",
 * "nic=af_xdp:eth0,xskmap=1008,link=1009,address=10.77.0.2/24" (the descriptors are the process's), or
 * "socket=/run/corelane.sock,name=cache,kthreads=2". -EINVAL with a sentence. */
int cl_posix_parse(const char *words, struct cl_posix_config *out, char err[256]);

#endif

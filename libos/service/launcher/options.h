/* The command line of corelane-run, which is that of `corelane run` as far as a compiled service has a use for it. */
#ifndef CORELANE_LIBOS_SERVICE_OPTIONS_H
#define CORELANE_LIBOS_SERVICE_OPTIONS_H

#include <corelane/libos/sched.h>

struct options {
    const char *service; /* the shared object */
    const char *socket;  /* attached: the iokernel's */
    const char *nic;     /* embedded: tap:NAME or af_xdp:NAME */
    const char *name;    /* of the application; NULL: the service's */
    uint32_t address, prefix, gateway, host, host_prefix;
    int32_t xskmap_fd, link_fd; /* of af_xdp: `corelane run` hands them over; -1: none */
    uint32_t kthreads, poll, kind;
    int32_t cpus[CL_SCHED_MAX_KTHREADS];
    uint32_t n_cpus;
    uint32_t guaranteed, max_cores, weight, deadline_us, quantum_us, quantum_signal;
    uint32_t port;
    bool check, json, with_parent, replace;
    double spin_us, seconds, stop_s, wait_s; /* seconds < 0: until a signal */
};

/* Parse a command line; what it points to stays the caller's. False: it is wrong, or was --help, and was answered;
 * *status is what the process ends with. */
bool options_parse(int argc, char **argv, struct options *out, int *status);

#endif

/* NICs of programs that are C from the beginning on: by their names, as on the command line of `corelane run`. */
#ifndef CORELANE_LIBOS_NICS_H
#define CORELANE_LIBOS_NICS_H

#include <corelane/drivers/nic.h>

struct cl_nic_choice {
    const char *name; /* "tap:NAME", "af_xdp:NAME", "memory" (a wire to nobody) */
    uint32_t queues;
    uint32_t address;           /* ours, host byte order; a tap's MAC address follows from it */
    uint32_t host, host_prefix; /* Linux' own address on a tap; 0: what it has */
    int32_t xskmap_fd;          /* of af_xdp: the map of sockets of a program that another process has attached */
};

/* Open it. -errno with a sentence; -EINVAL: there is none of that name. */
CL_API int cl_nic_choose(const struct cl_nic_choice *choice, struct cl_nic **out, char err[256]);

#endif

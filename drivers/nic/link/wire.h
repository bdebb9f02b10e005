/* What the files of a wire share. */
#ifndef CORELANE_DRIVERS_NIC_LINK_WIRE_H
#define CORELANE_DRIVERS_NIC_LINK_WIRE_H

#include "path.h"

#include <pthread.h>

struct cl_wire {
    struct cl_nic *nics[2];
    struct cl_path *paths[2]; /* [i]: from nics[i] to the other */
    const struct cl_clock *clock;
    pthread_t thread;
    bool threaded;
    int stop_fd;   /* becomes readable when the thread is to end */
    uint32_t stop; /* writer: close; reader: the thread */
};

/* wire.c: close the NICs and free all. It has no thread. */
void cl_wire_free(struct cl_wire *wire);

#endif

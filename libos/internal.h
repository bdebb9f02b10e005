/* A runtime, as the files of this folder know it: runtime.c (its life), attach.c (its iokernel), source.c (its
 * scheduler), bind.c, stats.c, stuck.c. See corelane/libos/runtime.h. */
#ifndef CORELANE_LIBOS_INTERNAL_H
#define CORELANE_LIBOS_INTERNAL_H

#include <corelane/libos/runtime.h>
#include "../runtime/control.h"
#include "net/netif.h"

#include <stdio.h>

struct cl_runtime {
    struct cl_sched *sched;
    struct cl_netif *nif;
    struct cl_trace *trace; /* NULL: nothing is traced */
    struct cl_nic *nic;
    bool own_nic; /* attached mode: the port is ours to close */
    bool started, stopped;
    bool threaded;   /* a kthread has a thread of its own */
    bool stepped;    /* by whoever moves its virtual clock: it has no threads */
    int left;        /* what cl_runtime_stop returned */
    uint32_t member; /* which one of its group it is, + 1; 0: it is of none */
    bool drained;    /* it has said that it drains */
    /* Attached, and not told which CPUs to use: those are the iokernel's word, of whichever one there is. */
    bool follows;
    pthread_mutex_t place_lock;
    bool placeable; /* under place_lock: the kthreads run */
    struct cl_spin note_lock;
    char note[CL_CONTROL_NOTE_BYTES]; /* under note_lock */
    cl_runtime_event on_event;
    void *event_arg;
    cl_counters_fn more; /* under the port's lock, as the next one */
    void *more_arg;
    struct cl_spin every_lock;
    struct cl_every *every;   /* all of them, under every_lock */
    struct cl_name *names;    /* of functions, pushed by exchange; they go with the runtime */
    struct cl_raises *raises; /* of compiled code (raised.h) */
    struct cl_spin elastic_lock;
    struct cl_elastic *elastic; /* its user's, under elastic_lock; NULL: it has none */
};

/* One line in err[256], or err NULL; returns rc. */
static inline int cl_refuse(char *err, int rc, const char *why)
{
    if (err)
        snprintf(err, 256, "%s", why);
    return rc;
}

/* stuck.c. */
void cl_names_delete(struct cl_name *all);

/* attach.c. Open the port to an iokernel, which becomes rt->nic. -errno. */
int cl_runtime_attach(struct cl_runtime *rt, const struct cl_runtime_config *config, char *err);
/* Attached, and its kthreads run: put them where the iokernel wants them. From now on, or no longer, that follows
 * it. */
void cl_runtime_follow(struct cl_runtime *rt, bool follows);

/* member.c. Choose ports of its own among those that its place in its group gives it. */
void cl_runtime_take_ports(struct cl_runtime *rt);
/* It has stopped: let the iokernel take the answers that it has given, if it drained. */
void cl_runtime_flush(struct cl_runtime *rt);

/* source.c. Make rt->sched, whose work source is the interface. -errno. */
int cl_runtime_make_sched(struct cl_runtime *rt, const struct cl_runtime_config *config, unsigned kthreads, char *err);

#endif

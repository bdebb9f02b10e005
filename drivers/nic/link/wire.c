/* A wire between two NICs: see link.h. */
#include "wire.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define RETRY_NS 10000 /* a NIC says nothing when it has room again for what it did not take */

/* From NIC i to the other. */
static unsigned move_frames(struct cl_wire *w, unsigned i)
{
    struct cl_nic *from = w->nics[i], *to = w->nics[!i];
    struct cl_path *p = w->paths[i];
    struct cl_frame frames[CL_NIC_BURST];
    uint64_t now = cl_clock_stamp(w->clock);
    unsigned moved = 0;
    for (unsigned q = 0; q < from->n_queues; q++) {
        unsigned n = from->ops->rx_burst(from, q, frames, CL_NIC_BURST);
        if (!n)
            continue;
        cl_path_offer(p, frames, n, q % to->n_queues, now);
        from->ops->free(from, q, frames, n);
        moved += n;
    }
    cl_path_advance(p, now);
    for (unsigned q = 0; q < to->n_queues; q++)
        if (cl_path_has(p, q))
            moved += cl_path_send(p, to, q);
    return moved;
}

unsigned cl_wire_step(struct cl_wire *w)
{
    return move_frames(w, 0) + move_frames(w, 1);
}

uint64_t cl_wire_next_tsc(struct cl_wire *w)
{
    uint64_t next = UINT64_MAX;
    for (unsigned i = 0; i < 2; i++) {
        struct cl_nic *from = w->nics[i], *to = w->nics[!i];
        next = cl_min(next, w->paths[i]->next_tsc);
        for (unsigned q = 0; from->ops->next_tsc && q < from->n_queues; q++)
            next = cl_min(next, from->ops->next_tsc(from, q));
        for (unsigned q = 0; q < to->n_queues; q++)
            if (cl_path_has(w->paths[i], q))
                next = cl_min(next, cl_clock_stamp(w->clock) + (uint64_t)cl_ns_to_ticks(w->clock, RETRY_NS));
    }
    return next;
}

void cl_wire_counts(const struct cl_wire *w, unsigned path, struct cl_link_counts *out)
{
    cl_path_counts(w->paths[path], out);
}

void cl_wire_free(struct cl_wire *w)
{
    for (unsigned i = 0; i < 2; i++) {
        w->nics[i]->ops->close(w->nics[i]);
        cl_path_delete(w->paths[i]);
    }
    free(w);
}

int cl_wire_new(struct cl_nic *const nics[2], const struct cl_link_config *const paths[2], struct cl_wire **out,
                char *err)
{
    if (cl_path_check(paths[0], err) || cl_path_check(paths[1], err))
        return -EINVAL;
    if (cl_nic_clock(nics[0]) != cl_nic_clock(nics[1])) {
        if (err)
            snprintf(err, 256, "the NICs of a wire live by different clocks; give both the same");
        return -EINVAL;
    }
    struct cl_wire *w = calloc(1, sizeof *w);
    if (w) {
        w->clock = cl_nic_clock(nics[0]);
        for (unsigned i = 0; i < 2; i++) {
            w->nics[i] = nics[i];
            w->paths[i] = cl_path_new(paths[i], nics[!i], w->clock, i);
        }
        if (w->paths[0] && w->paths[1]) {
            *out = w;
            return 0;
        }
        cl_path_delete(w->paths[0]);
        cl_path_delete(w->paths[1]);
        free(w);
    }
    if (err)
        snprintf(err, 256, "out of memory for the frames of a path; give it fewer");
    return -ENOMEM;
}

/* Attached mode: the port to an iokernel, what it says, where it wants the kthreads, and the counters that it shows. */
#include "../drivers/port/port.h"
#include "elastic.h"
#include "internal.h"
#include "net/traced.h"

#include <errno.h>
#include <string.h>

#define REATTACH_MS 100 /* pause between attempts after the iokernel died */

_Static_assert(sizeof(((struct cl_runtime_info *)0)->note) == CL_CONTROL_NOTE_BYTES, "of ACCEPT");

static void keep_note(struct cl_runtime *rt, const char *note)
{
    cl_spin_lock(&rt->note_lock);
    memcpy(rt->note, note, sizeof rt->note);
    cl_spin_unlock(&rt->note_lock);
}

/* Where cores are not managed kthreads run where the iokernel of today puts them, and anywhere while there is none: the
 * next one may put others on the CPUs that the last one gave us. Returns how many kthreads may not run there.
 * *left_out: it moves cores, and we came when nobody did. */
static unsigned place_kthreads(struct cl_runtime *rt, bool *left_out)
{
    struct cl_port_info granted;
    unsigned failed = 0;
    *left_out = false;
    pthread_mutex_lock(&rt->place_lock);
    if (rt->placeable) {
        cl_port_info(rt->nic, &granted);
        keep_note(rt, granted.note);
        *left_out = granted.managed && !rt->nic->cores;
        if (rt->follows && !granted.managed)
            failed = cl_sched_place(rt->sched, granted.state == CL_PORT_GONE ? NULL : granted.cpus);
    }
    pthread_mutex_unlock(&rt->place_lock);
    return failed;
}

void cl_runtime_follow(struct cl_runtime *rt, bool follows)
{
    bool left_out;
    pthread_mutex_lock(&rt->place_lock);
    rt->placeable = follows;
    pthread_mutex_unlock(&rt->place_lock);
    if (follows)
        (void)place_kthreads(rt, &left_out); /* another iokernel may have come since cl_runtime_new; that said so */
}

/* Another iokernel may have another uplink: a tap that is made anew has another MAC address. */
static void forget_neighbours(struct cl_runtime *rt)
{
    pthread_mutex_lock(&rt->place_lock);
    if (rt->placeable) /* it runs */
        cl_arp_forget(rt->nif->arp);
    pthread_mutex_unlock(&rt->place_lock);
}

/* The port's watcher thread tells; its states are our events. */
static void on_port(void *arg, int state, const char *text)
{
    struct cl_runtime *rt = arg;
    char more[512 + 96];
    _Static_assert(CL_EVENT_ATTACHED == CL_PORT_ATTACHED && CL_EVENT_STALLED == CL_PORT_STALLED &&
                       CL_EVENT_GONE == CL_PORT_GONE && CL_EVENT_DRAIN == CL_PORT_DRAIN,
                   "events pass through");
    bool left_out = false;
    if (state == CL_PORT_ATTACHED)
        forget_neighbours(rt);
    unsigned failed = state == CL_PORT_STALLED || state == CL_PORT_DRAIN ? 0 : place_kthreads(rt, &left_out);
    if (failed) {
        snprintf(more, sizeof more, "%s; %u kthreads may not run on the CPUs that it gives them", text, failed);
        text = more;
    } else if (left_out && state == CL_PORT_ATTACHED) {
        snprintf(more, sizeof more, "%s; it moves cores, but not of this application until that is started anew", text);
        text = more;
    }
    if (rt->on_event)
        rt->on_event(rt->event_arg, state, text);
}

_Static_assert(CL_RUNTIME_LATENCY == CL_CONTROL_LATENCY && CL_RUNTIME_BATCH == CL_CONTROL_BATCH, "passed through");

int cl_runtime_attach(struct cl_runtime *rt, const struct cl_runtime_config *c, char *err)
{
    struct cl_port_config port = {.socket_path = c->socket_path,
                                  .name = c->name ? c->name : program_invocation_short_name,
                                  .n_kthreads = c->kthreads ? c->kthreads : 1,
                                  .ipv4 = c->ipv4,
                                  .reattach_ms = REATTACH_MS,
                                  .kind = c->kind,
                                  .guaranteed = c->guaranteed,
                                  .maximum = c->max_cores,
                                  .weight = c->weight,
                                  .deadline_us = c->deadline_us,
                                  .quantum_us = c->quantum_us,
                                  .quantum_signal = c->quantum_signal,
                                  .on_change = on_port,
                                  .arg = rt};
    rt->own_nic = true;
    rt->follows = !c->cpus;
    int rc = cl_port_nic_new(&port, &rt->nic, err);
    if (rc < 0)
        return rc;
    struct cl_port_info granted;
    cl_port_info(rt->nic, &granted);
    keep_note(rt, granted.note);
    if (*granted.note && rt->on_event)
        rt->on_event(rt->event_arg, CL_EVENT_LIMITED, granted.note);
    return 0;
}

/* What the port's watcher publishes. */
static unsigned count_all(void *arg, struct cl_counter *out, unsigned room)
{
    struct cl_runtime *rt = arg;
    unsigned n = cl_runtime_counters(rt, out, room);
    n += cl_elastic_counters(rt, out + n, room - n);
    return n + (rt->more ? rt->more(rt->more_arg, out + n, room - n) : 0);
}

static void tell_latency(void *arg, void *part, uint32_t n_kthreads)
{
    cl_netif_tell_latency(((const struct cl_runtime *)arg)->nif, part, n_kthreads);
}

static void ask_trace(void *arg, uint32_t how)
{
    const struct cl_runtime *rt = arg;
    (void)cl_trace_set_mode(rt->trace, how - 1); /* -EINVAL: it stays as it is, and whoever asked sees that */
}

void cl_runtime_publish(struct cl_runtime *rt, cl_counters_fn more, void *arg)
{
    if (!rt->own_nic)
        return;
    cl_port_publish_latency(rt->nic, tell_latency, rt);
    cl_port_on_trace(rt->nic, ask_trace, rt);
    cl_port_publish(rt->nic, NULL, NULL); /* nobody reads them meanwhile */
    rt->more = more;
    rt->more_arg = arg;
    cl_port_publish(rt->nic, count_all, rt);
}

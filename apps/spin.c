/* See spin.h. */
#include "spin.h"
#include <corelane/libos/probe.h>
#include <corelane/libos/sched.h>
#include <corelane/runtime/clock.h>
#include "../runtime/net.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROBE_NS 200        /* a probe that took longer than this let somebody else run */
#define MOST_NS 1000000000u /* that a request may ask for */

/* A kthread's own: where it is in the table, and what it did. Writer: that kthread; readers: anybody (relaxed). */
struct walker {
    uint64_t next, requests, ticks;
} CL_ALIGNED(64);

struct cl_spinner {
    bool asked; /* CL_SPINNER_REQUEST */
    bool no_probes;
    uint32_t boundary_ns;
    uint64_t probe_ticks;
    struct walker walker[CL_SCHED_MAX_KTHREADS + 1]; /* the last one is for threads that are no kthread */
    uint64_t times[CL_SPINNER_TIMES];
};

/* Splitmix64; uniform in (0, 1]. */
static double draw(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return (double)(((z ^ (z >> 31)) >> 11) + 1) * 0x1p-53;
}

static double service_ns(const struct cl_spinner_config *c, uint64_t *state)
{
    switch (c->distribution) {
    case CL_SPINNER_EXPONENTIAL:
        return -log(draw(state)) * c->mean_ns;
    case CL_SPINNER_BIMODAL:
        return draw(state) <= c->long_part ? c->long_ns : c->mean_ns;
    default:
        return c->mean_ns;
    }
}

static const char *reason_against(const struct cl_spinner_config *c)
{
    if (c->distribution > CL_SPINNER_REQUEST)
        return "the distribution must be constant, exponential, bimodal or request";
    if (!(c->mean_ns >= 0 && c->mean_ns <= 1e9))
        return "the service time must be from 0 to 1e9 ns";
    if (c->distribution == CL_SPINNER_BIMODAL &&
        !(c->long_ns >= 0 && c->long_ns <= 1e9 && c->long_part >= 0 && c->long_part <= 1))
        return "the long service time must be from 0 to 1e9 ns, its part from 0 to 1";
    return NULL;
}

int cl_spinner_new(const struct cl_spinner_config *config, struct cl_spinner **out, char err[256])
{
    const char *why = reason_against(config);
    if (why) {
        snprintf(err, 256, "%s", why);
        return -EINVAL;
    }
    struct cl_spinner *s = aligned_alloc(64, sizeof(*s));
    if (!s) {
        snprintf(err, 256, "out of memory");
        return -ENOMEM;
    }
    memset(s, 0, sizeof(*s));
    const struct cl_clock *clock = cl_clock_default();
    s->asked = config->distribution == CL_SPINNER_REQUEST;
    s->boundary_ns = config->boundary_ns;
    s->no_probes = config->no_probes;
    s->probe_ticks = (uint64_t)cl_clock_ns_to_ticks(clock, PROBE_NS);
    uint64_t state = config->seed;
    for (unsigned i = 0; i < CL_SPINNER_TIMES; i++)
        s->times[i] = (uint64_t)cl_clock_ns_to_ticks(clock, (int64_t)service_ns(config, &state));
    for (unsigned k = 0; k <= CL_SCHED_MAX_KTHREADS; k++) /* apart, so that kthreads do not march in step */
        s->walker[k].next = (uint64_t)k * (CL_SPINNER_TIMES / (CL_SCHED_MAX_KTHREADS + 1));
    *out = s;
    return 0;
}

void cl_spinner_delete(struct cl_spinner *s)
{
    free(s);
}

/* Keep the kthread busy for so long, what others run in between not counted: at a probe, or at any time, since a CPU
 * that the kernel or a host has taken works for nobody. */
static void spend(uint64_t ticks, uint64_t start, uint64_t probe_ticks)
{
    for (uint64_t last = start, spent = 0; spent < ticks;) {
        CL_PROBE();
        uint64_t probed = cl_tsc();
        if (cl_unlikely(probed - last > probe_ticks))
            last = probed;
        cl_relax();
        uint64_t now = cl_tsc();
        spent += cl_likely(now - last <= probe_ticks) ? now - last : 0;
        last = now;
    }
}

/* The same without probes. It calls nothing, so that it may be switched away from anywhere. */
static CL_NOINLINE void spend_unprobed(uint64_t ticks, uint64_t start, uint64_t probe_ticks)
{
    for (uint64_t last = start, spent = 0; spent < ticks;) {
        cl_relax();
        uint64_t now = cl_tsc();
        spent += cl_likely(now - last <= probe_ticks) ? now - last : 0;
        last = now;
    }
}

/* What the request asks for, in ticks; 0 if it is too short to say. */
static uint64_t asked_ticks(const uint8_t *request, int64_t len)
{
    if (len < CL_SPINNER_AT + 4)
        return 0;
    return (uint64_t)cl_clock_ns_to_ticks(cl_clock_default(), cl_min(cl_get32(request + CL_SPINNER_AT), MOST_NS));
}

int64_t cl_spinner_handler(const uint8_t *request, int64_t len, uint8_t *reply, int64_t room, void *arg)
{
    struct cl_spinner *s = arg;
    uint64_t start = cl_tsc();
    int k = cl_kthread_index();
    struct walker *w = &s->walker[k >= 0 ? k : CL_SCHED_MAX_KTHREADS];
    uint64_t ticks = s->asked ? asked_ticks(request, len) : s->times[w->next++ % CL_SPINNER_TIMES];
    cl_count(&w->requests, 1);
    cl_count(&w->ticks, ticks);
    int64_t n = cl_udp_from_server(cl_current_request()) ? 0 : cl_min(len, room);
    memcpy(reply, request, (size_t)n);
    if (!s->no_probes) {
        spend(ticks, start, s->probe_ticks);
        return n;
    }
    bool may = cl_preemptible_begin() == 0; /* not on a thread that is no kthread */
    spend_unprobed(ticks, start, s->probe_ticks);
    if (may)
        cl_preemptible_end();
    return n;
}

int64_t cl_spinner_classify(const uint8_t *request, int64_t len, void *arg)
{
    const struct cl_spinner *s = arg;
    return len >= CL_SPINNER_AT + 4 && cl_get32(request + CL_SPINNER_AT) > s->boundary_ns;
}

const uint64_t *cl_spinner_times(const struct cl_spinner *s)
{
    return s->times;
}

void cl_spinner_stats(const struct cl_spinner *s, uint64_t *requests, uint64_t *ticks)
{
    *requests = *ticks = 0;
    for (unsigned k = 0; k <= CL_SCHED_MAX_KTHREADS; k++) {
        *requests += cl_load_relaxed(&s->walker[k].requests);
        *ticks += cl_load_relaxed(&s->walker[k].ticks);
    }
}

/* A kthread that has not ended, and the code that it is in. */
#include "internal.h"

#include <dlfcn.h>

static void describe(const struct cl_sched_running *k, struct cl_runtime_stuck *out, char text[256])
{
    const struct cl_udp_socket *s = cl_netif_socket_of(k->runner);
    const char *name = s ? cl_load_acquire(&s->name) : NULL;
    Dl_info symbol = {0};
    char at[96];
    *out = (struct cl_runtime_stuck){.kthread = k->kthread, .tid = k->tid, .port = s ? s->port : 0};
    out->fn = s ? (void *)(uintptr_t)s->fn.plain : (void *)(uintptr_t)k->fn;
    out->arg = s ? s->arg : k->arg;
    if (!name && out->fn && dladdr(out->fn, &symbol))
        name = symbol.dli_sname;
    snprintf(at, sizeof at, "%.60s at %p", name ? name : "a function", out->fn);
    if (s)
        snprintf(text, 256, "kthread %u (thread %d) in the handler of %s port %u, %s,", k->kthread, k->tid,
                 s->kind == CL_UDP_CLOSED ? "TCP" : "UDP", s->port, at); /* no handler of UDP is ever closed */
    else if (k->fn)
        snprintf(text, 256, "kthread %u (thread %d) in a uthread, %s,", k->kthread, k->tid, at);
    else
        snprintf(text, 256, "kthread %u (thread %d) in the scheduler's loop", k->kthread, k->tid);
}

unsigned cl_runtime_stuck(const struct cl_runtime *rt, struct cl_runtime_stuck *out, char text[256])
{
    struct cl_sched_running running, worst = {0};
    unsigned n = 0;
    for (unsigned k = 0; k < rt->nif->n_queues; k++)
        if (cl_sched_running(rt->sched, k, &running) && (n++ == 0 || (running.fn && !worst.fn)))
            worst = running;
    if (n)
        describe(&worst, out, text);
    return n;
}

/* A kthread that has not ended, and the code that it is in; what functions are called. */
#include "internal.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct cl_name {
    struct cl_name *next;
    const void *fn;
    char name[];
};

int cl_runtime_name(struct cl_runtime *rt, const void *fn, const char *name)
{
    size_t bytes = strlen(name) + 1;
    struct cl_name *made = malloc(sizeof *made + bytes);
    if (!made)
        return -ENOMEM;
    made->fn = fn;
    memcpy(made->name, name, bytes);
    made->next = cl_load_relaxed(&rt->names);
    while (!__atomic_compare_exchange_n(&rt->names, &made->next, made, true, __ATOMIC_RELEASE, __ATOMIC_RELAXED))
        ; /* release: whoever finds it reads it */
    return 0;
}

void cl_names_delete(struct cl_name *all)
{
    for (struct cl_name *one; (one = all); free(one))
        all = one->next;
}

/* NULL: nobody knows. */
static const char *name_of(const struct cl_runtime *rt, const void *fn)
{
    Dl_info symbol = {0};
    const char *name = NULL;
    for (const struct cl_name *one = cl_load_acquire(&rt->names); one; one = one->next)
        if (one->fn == fn)
            name = one->name; /* the last one was said first */
    if (!name && fn && dladdr(fn, &symbol))
        name = symbol.dli_sname;
    return name;
}

/* What is called, and how to say so. */
static const char *describe_fn(const struct cl_runtime *rt, void *fn, char at[96])
{
    const char *name = name_of(rt, fn);
    snprintf(at, 96, "%.60s at %p", name ? name : "a function", fn);
    return at;
}

static void describe(const struct cl_runtime *rt, const struct cl_sched_running *k, struct cl_runtime_stuck *out,
                     char text[256])
{
    const struct cl_doing *doing = k->doing;
    const struct cl_udp_socket *s = doing ? NULL : cl_netif_socket_of(k->runner);
    char at[96];
    *out = (struct cl_runtime_stuck){.kthread = k->kthread, .tid = k->tid};
    out->port = s ? s->port : doing ? doing->port : 0;
    out->fn = s ? (void *)(uintptr_t)s->fn.plain : doing ? doing->fn : (void *)(uintptr_t)k->fn;
    out->arg = s ? s->arg : doing ? doing->arg : k->arg;
    int n = snprintf(text, 256, "kthread %u (thread %d) in ", k->kthread, k->tid);
    char *rest = text + n;
    size_t room = 256 - (size_t)n;
    if (doing)
        snprintf(rest, room, "%.100s, %s,", doing->what, describe_fn(rt, out->fn, at));
    else if (s)
        snprintf(rest, room, "the handler of %s port %u, %s,", s->kind == CL_UDP_CLOSED ? "TCP" : "UDP", s->port,
                 describe_fn(rt, out->fn, at)); /* no handler of UDP is ever closed */
    else if (k->fn)
        snprintf(rest, room, "a uthread, %s,", describe_fn(rt, out->fn, at));
    else
        snprintf(rest, room, "the scheduler's loop");
}

unsigned cl_runtime_stuck(const struct cl_runtime *rt, struct cl_runtime_stuck *out, char text[256])
{
    struct cl_sched_running running, worst = {0};
    unsigned n = 0;
    for (unsigned k = 0; k < rt->nif->n_queues; k++)
        if (cl_sched_running(rt->sched, k, &running) && (n++ == 0 || (running.fn && !worst.fn)))
            worst = running;
    if (n)
        describe(rt, &worst, out, text);
    return n;
}

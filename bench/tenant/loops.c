/* See loops.h. */
#include "loops.h"

#include <corelane/libos/probe.h>
#include <corelane/libos/uthread.h>
#include <corelane/runtime/clock.h>

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define SIDE 32

_Static_assert(sizeof(((struct cl_tenant_page *)0)->stamps) == CL_TENANT_STAMPS * sizeof(uint64_t), "as many as said");

struct job {
    double a[SIDE][SIDE] CL_ALIGNED(64), b[SIDE][SIDE], c[SIDE][SIDE];
    struct cl_tenant_page *page;
    uint64_t turn;
    uint32_t looks;
};

/* Add rows k to k + 3 of b, times a[i][k], to c[i]: about 100 ns. */
static void part(struct job *j, int i, int k)
{
    double *restrict out = j->c[i];
    for (int end = k + 4; k < end; k++)
        for (int n = 0; n < SIDE; n++)
            out[n] += j->a[i][k] * j->b[k][n];
}

/* c[i] = a[i] * b. */
static void row(struct job *j, int i)
{
    memset(j->c[i], 0, sizeof j->c[i]);
    for (int k = 0; k < SIDE; k += 4) {
        part(j, i, k);
        if (j->looks == CL_TENANT_PROBES)
            CL_PROBE();
    }
}

static void work(struct job *j)
{
    while (cl_load_relaxed(&j->page->turn) == j->turn) { /* relaxed: it guards nothing */
        for (int i = 0; i < SIDE; i++)
            row(j, i);
        j->a[0][0] = j->c[SIDE - 1][SIDE - 1] * 1e-3; /* so that each product needs the one before */
        cl_count(&j->page->work, 1);
    }
}

static struct job *job_new(struct cl_tenant_page *page, uint32_t looks)
{
    struct job *j = aligned_alloc(64, sizeof *j);
    if (!j)
        return NULL;
    memset(j, 0, sizeof *j);
    j->page = page;
    j->turn = cl_load_relaxed(&page->turn);
    j->looks = looks;
    for (int i = 0; i < SIDE; i++)
        for (int k = 0; k < SIDE; k++) {
            j->a[i][k] = 1.0 / (1 + i + k);
            j->b[i][k] = 1.0 / (1 + i * k);
        }
    return j;
}

static void on_uthread(void *arg)
{
    struct job *j = arg;
    if (j->looks == CL_TENANT_DEAF) {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_BLOCK, &all, NULL);
    }
    work(j);
    free(j);
}

int cl_tenant_spawn(struct cl_runtime *rt, struct cl_tenant_page *page, uint32_t looks)
{
    struct job *j = job_new(page, looks);
    if (!j)
        return -ENOMEM;
    if (j->turn % 2 == 0) { /* over already */
        free(j);
        return 0;
    }
    int rc = cl_runtime_spawn(rt, on_uthread, j);
    if (rc)
        free(j);
    return rc;
}

void cl_tenant_run(struct cl_tenant_page *page)
{
    struct job *j = job_new(page, CL_TENANT_PLAIN);
    if (j && j->turn % 2)
        work(j);
    free(j);
}

int64_t cl_tenant_handler(const uint8_t *request, int64_t len, uint8_t *reply, int64_t room, void *arg)
{
    struct cl_tenant_page *page = arg;
    uint64_t now = cl_tsc(), n = page->calls;
    cl_store_relaxed(&page->stamps[n % CL_TENANT_STAMPS], now);
    cl_store_release(&page->calls, n + 1); /* release: the stamp */
    len = cl_min(len, room);
    memcpy(reply, request, (size_t)len);
    return len;
}

/* See exchange.h. */
#include "exchange.h"

#include <corelane/libos/sched.h>
#include <corelane/libos/uthread.h>

#include <errno.h>

void cl_bench_exchange_send(void *arg)
{
    struct cl_bench_exchange *x = arg;
    struct cl_udp_addr to = {.ipv4 = x->ipv4, .port = (uint16_t)x->port};
    uint64_t due_ns = cl_sched_now_ns(cl_sched_self());
    for (;;) {
        if (cl_uthread_sleep_until_ns(due_ns += x->interval_ns) < 0)
            return; /* the runtime stops */
        uint64_t number = x->sent++;
        int64_t rc = cl_udp_sendto(x->socket, &number, sizeof number, &to);
        if (rc < 0) {
            x->error = rc;
            return;
        }
    }
}

/* Links here keep the order: an answer's number is at least the next one. */
void cl_bench_exchange_receive(void *arg)
{
    struct cl_bench_exchange *x = arg;
    uint64_t number, next = 0;
    for (;;) {
        int64_t got = cl_udp_recvfrom(x->socket, &number, sizeof number, NULL, -1);
        if (got == -ESHUTDOWN)
            return;
        if (got < 0) {
            x->error = got;
            return;
        }
        if (got != sizeof number || number < next || number >= x->sent) {
            x->wrong++;
            continue;
        }
        next = number + 1;
        x->answered++;
    }
}

/* Two runtimes on one thread and one virtual clock: a client asks an echo server at a rate, over a link that loses,
 * delays, reorders and marks. Both ends are recorded.
 *
 * Usage: two_hosts SEED REQUESTS INTERVAL_US KTHREADS A.pcap B.pcap. Prints the answers, the requests without one, and
 * the clock. REQUESTS 0: a uthread of the server waits for a time without sleeping, so that no time passes. */
#include <corelane/drivers/memory.h>
#include <corelane/libos/libos.h>
#include <corelane/libos/stepper.h>
#include "drivers/nic/link/link.h"
#include "drivers/nic/pcap.h"

#include "tests/support/c/check.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define IP_CLIENT 0x0a4d0001u
#define IP_SERVER 0x0a4d0002u
#define PATIENCE_NS 20000000

static struct cl_udp_socket *sock;
static uint64_t requests, interval_ns, answered, lost, stopped;

static int64_t echo(const uint8_t *request, int64_t len, uint8_t *reply, int64_t room, void *arg)
{
    (void)arg;
    CHECK(len <= room);
    memcpy(reply, request, (size_t)len);
    return len;
}

static bool ask(uint64_t number)
{
    struct cl_udp_addr server = {.ipv4 = IP_SERVER, .port = 9000};
    uint64_t answer, until = cl_sched_now_ns(cl_sched_self()) + PATIENCE_NS;
    CHECK_EQ(cl_udp_sendto(sock, &number, sizeof number, &server), sizeof number);
    for (;;) {
        int64_t left = (int64_t)(until - cl_sched_now_ns(cl_sched_self()));
        int64_t got = left > 0 ? cl_udp_recvfrom(sock, &answer, sizeof answer, NULL, left) : -ETIMEDOUT;
        if (got < 0) {
            CHECK(got == -ETIMEDOUT || got == -ESHUTDOWN, "%lld", (long long)got);
            return false;
        }
        CHECK_EQ(got, sizeof answer);
        if (answer == number) /* else a late one */
            return true;
    }
}

static void client(void *arg)
{
    (void)arg;
    uint64_t next = cl_sched_now_ns(cl_sched_self());
    for (uint64_t i = 0; i < requests; i++) {
        cl_uthread_sleep_until_ns(next += interval_ns);
        if (ask(i))
            answered++;
        else
            lost++;
    }
}

/* What a stop ends: it sleeps for longer than the run lasts. */
static void sleeper(void *arg)
{
    (void)arg;
    CHECK_EQ(cl_uthread_sleep_ns(UINT64_MAX / 2), -ESHUTDOWN);
    stopped++;
}

/* Waits for a time without sleeping. */
static void spinner(void *arg)
{
    uint64_t until = cl_sched_now_ns(cl_sched_self()) + 1000;
    (void)arg;
    while (cl_sched_now_ns(cl_sched_self()) < until)
        cl_uthread_yield();
}

static struct cl_nic *recorded(struct cl_nic *nic, const char *path)
{
    struct cl_pcap_config c = {.path = path};
    char err[256] = "";
    CHECK(cl_pcap_nic_new(nic, &c, &nic, err) == 0, "%s", err);
    return nic;
}

static struct cl_runtime *host(struct cl_nic *nic, uint32_t ipv4, struct cl_stepper *stepper)
{
    struct cl_runtime_config c = {.nic = nic, .ipv4 = ipv4, .ipv4_prefix = 24};
    struct cl_runtime *rt;
    char err[256] = "";
    CHECK(cl_runtime_new(&c, &rt, err) == 0, "%s", err);
    CHECK_EQ(cl_runtime_start(rt, err), -EINVAL); /* no thread sleeps by a virtual clock */
    CHECK_EQ(cl_runtime_step(rt), -EINVAL);
    CHECK(cl_stepper_add_runtime(stepper, rt, err) == 0, "%s", err);
    CHECK_EQ(cl_stepper_add_runtime(stepper, rt, err), -EALREADY);
    return rt;
}

int main(int argc, char **argv)
{
    CHECK(argc == 7);
    uint64_t now_ns = 1000000000;
    uint32_t kthreads = (uint32_t)atoi(argv[4]);
    struct cl_clock clock;
    struct cl_nic *ends[2];
    struct cl_stepper *stepper;
    char err[256] = "";
    requests = strtoull(argv[2], NULL, 10);
    interval_ns = strtoull(argv[3], NULL, 10) * 1000;
    cl_clock_virtual(&clock, &now_ns);
    struct cl_memory_config m = {.clock = &clock, .queues = {kthreads, kthreads}};
    struct cl_link_config there = {.seed = strtoull(argv[1], NULL, 10),
                                   .rate_bps = 100000000,
                                   .delay_ns = 200000,
                                   .jitter_ns = 100000,
                                   .to_bad = 0.01,
                                   .to_good = 0.3,
                                   .loss_bad = 1,
                                   .reorder = 0.1};
    const struct cl_link_config *paths[2] = {&there, &there};
    CHECK_EQ(cl_memory_link_new(&m, ends, err), 0);
    CHECK(cl_link_nic_new(ends[0], paths, &ends[0], err) == 0, "%s", err);
    ends[0] = recorded(ends[0], argv[5]);
    ends[1] = recorded(ends[1], argv[6]);
    CHECK_EQ(cl_stepper_new(&now_ns, &stepper), 0);
    struct cl_runtime *a = host(ends[0], IP_CLIENT, stepper), *b = host(ends[1], IP_SERVER, stepper);
    CHECK_EQ(cl_udp_open(a, 0, 0, &sock), 0);
    CHECK_EQ(cl_runtime_bind_udp(b, 9000, echo, NULL), 0);
    CHECK_EQ(cl_runtime_spawn(a, client, NULL), 0);
    CHECK_EQ(cl_runtime_spawn(b, sleeper, NULL), 0);
    if (!requests) {
        CHECK_EQ(cl_runtime_spawn(b, spinner, NULL), 0);
        CHECK_EQ(cl_stepper_run(stepper, now_ns + 10000, err), -ELOOP);
        CHECK_EQ(cl_runtime_stop(b, 0), 1);
    }
    while (answered + lost < requests)
        CHECK(cl_stepper_run(stepper, now_ns + 10000000, err) == 0, "%s", err);
    CHECK_EQ(cl_runtime_stop(a, 0), 0);
    CHECK_EQ(cl_runtime_stop(b, 0), !requests);
    CHECK_EQ(stopped, 1);
    printf("%" PRIu64 " %" PRIu64 " %" PRIu64 "\n", answered, lost, now_ns);
    cl_stepper_delete(stepper);
    cl_runtime_delete(a);
    cl_runtime_delete(b);
    cl_nic_close(ends[0]);
    cl_nic_close(ends[1]);
    return 0;
}

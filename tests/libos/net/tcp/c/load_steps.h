/* The load of the benchmarks (drivers/nic/tcpload) against the echo of a runtime, on a virtual clock, with the work of
 * the stack counted in basic blocks of its code (-fsanitize-coverage=trace-pc, see test_attacks.py): these are the same
 * on each machine. */
#ifndef TESTS_LIBOS_TCP_LOAD_STEPS_H
#define TESTS_LIBOS_TCP_LOAD_STEPS_H

#include "drivers/nic/tcpload/tcpload.h"
#include "tests/libos/net/tcp/c/endpoints.h"

#include <corelane/drivers/memory.h>
#include <corelane/libos/stepper.h>
#include <stdlib.h>

#define SERVER_IP 0x0a4d0002u
#define CLIENT_IP 0x0a4d0001u
#define PORT 9000

static uint64_t now_ns = 1000000000, blocks;
static struct cl_nic *ends[2];
static struct cl_tcpload *load;
static struct cl_frame waiting[CL_NIC_BURST];
static unsigned n_waiting;

void __sanitizer_cov_trace_pc(void);
void __sanitizer_cov_trace_pc(void)
{
    blocks++;
}

/* The client's time: that of the clock by which it reckons, at the stepper's pace. */
static uint64_t ticks(void)
{
    return (uint64_t)cl_ns_to_ticks(cl_clock_default(), (int64_t)now_ns);
}

static unsigned step(void *arg)
{
    struct cl_frame frames[CL_NIC_BURST];
    unsigned got = cl_nic_rx(ends[1], 0, frames, CL_NIC_BURST);
    (void)arg;
    cl_tcpload_receive(load, ticks(), frames, got);
    cl_nic_free(ends[1], 0, frames, got);
    if (n_waiting == 0) {
        unsigned due = cl_tcpload_due(load, ticks(), CL_NIC_BURST), n = cl_nic_alloc(ends[1], 0, waiting, due);
        n_waiting = cl_tcpload_generate(load, ticks(), waiting, n);
        cl_nic_free(ends[1], 0, waiting + n_waiting, n - n_waiting);
    }
    unsigned sent = cl_nic_tx(ends[1], 0, waiting, n_waiting);
    n_waiting -= sent;
    memmove(waiting, waiting + sent, n_waiting * sizeof *waiting);
    return got + sent;
}

static uint64_t next_ns(void *arg)
{
    (void)arg;
    return now_ns + 5000;
}

static struct cl_runtime *rt;
static struct cl_stepper *stepper;
static char err[256];

/* A runtime whose connections may take so much memory, and a client of it; of its echo, unless it names a port. */
static void begin(uint64_t memory, struct cl_tcpload_config client)
{
    static struct cl_clock clock;
    cl_clock_virtual(&clock, &now_ns);
    struct cl_memory_config link = {
        .clock = &clock, .ring_slots = 4096, .buffers = 16384, .ipv4 = {SERVER_IP, CLIENT_IP}, .ipv4_prefix = 8};
    CHECK_EQ(cl_memory_link_new(&link, ends, err), 0);
    struct cl_runtime_config config = {.nic = ends[0], .chunk_bytes = memory, .seed = 1};
    CHECK(cl_runtime_new(&config, &rt, err) == 0, "%s", err);
    CHECK_EQ(cl_runtime_listen_tcp(rt, PORT, 4096, &echo_events, NULL), 0);
    client.ip = CLIENT_IP;
    client.server_ip = SERVER_IP;
    client.server_port = client.server_port ? client.server_port : PORT;
    memcpy(client.server_mac, ends[0]->mac, 6);
    memcpy(client.mac, ends[1]->mac, 6);
    CHECK(cl_tcpload_new(&client, &load, err) == 0, "%s", err);
    CHECK_EQ(cl_stepper_new(&now_ns, &stepper), 0);
    CHECK(cl_stepper_add_runtime(stepper, rt, err) == 0, "%s", err);
    CHECK_EQ(cl_stepper_add(stepper, &(struct cl_stepped){step, next_ns, &load}), 0);
}

static void pass(uint64_t ns)
{
    CHECK(cl_stepper_run(stepper, now_ns + ns, err) == 0, "%s", err);
}

/* Run a phase until its connections are open. */
static void open_all(const struct cl_loadgen_phase *phase)
{
    CHECK(cl_tcpload_run(load, phase, 1, err) == 0, "%s", err);
    while (cl_tcpload_state(load) <= CL_TCPLOAD_OPENING && cl_tcpload_state(load) != CL_TCPLOAD_IDLE)
        pass(100000);
}

/* Until the run is over. */
static void finish(void)
{
    while (cl_tcpload_state(load) == CL_TCPLOAD_RUNNING || cl_tcpload_state(load) == CL_TCPLOAD_DRAINING)
        pass(100000);
    CHECK(cl_tcpload_state(load) != CL_TCPLOAD_FAILED);
}

static void end(void)
{
    CHECK_EQ(cl_runtime_stop(rt, 0), 0);
    cl_stepper_delete(stepper);
    cl_tcpload_delete(load);
    cl_runtime_delete(rt);
    cl_nic_close(ends[0]);
    cl_nic_close(ends[1]);
}

#endif

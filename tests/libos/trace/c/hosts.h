/* A client and a server on a link, in virtual time, of which the server is traced. */
#ifndef TESTS_LIBOS_TRACE_C_HOSTS_H
#define TESTS_LIBOS_TRACE_C_HOSTS_H

#include "tests/libos/storage/log/c/support.h"

#include <corelane/drivers/memory.h>
#include "drivers/nic/fault.h"
#include "drivers/nic/link/link.h"
#include <corelane/libos/libos.h>
#include <corelane/libos/stepper.h>
#include <corelane/libos/stream.h>
#include <corelane/libos/uthread.h>
#include "libos/internal.h"

#define IP_CLIENT 0x0a4d0001u
#define IP_SERVER 0x0a4d0002u
#define PATH_NS 10000 /* of the link, one way */

static struct cl_stepper *stepper;
static struct cl_runtime *client, *server;
static struct cl_nic *ends[2];
static bool over; /* the client has done all that it does */

static inline struct cl_runtime *host(unsigned end, uint32_t ipv4, uint32_t trace, uint32_t quantum_us)
{
    struct cl_runtime_config c = {.nic = ends[end],
                                  .ipv4 = ipv4,
                                  .ipv4_prefix = 24,
                                  .name = "waits",
                                  .trace = trace,
                                  .quantum_us = quantum_us,
                                  .trace_one_in = 1000000000,
                                  .trace_records = 65536};
    struct cl_runtime *rt;
    char err[256] = "";
    CHECK(cl_runtime_new(&c, &rt, err) == 0, "%s", err);
    CHECK(cl_stepper_add_runtime(stepper, rt, err) == 0, "%s", err);
    return rt;
}

static inline void dump(const char *path)
{
    static uint8_t records[65536 * CL_TRACE_RECORD];
    const struct cl_tracer *t = cl_trace_tracer(server->trace, 0);
    const uint8_t *segment = (const uint8_t *)t->ring - cl_trace_ring_offset(65536, 0);
    uint64_t next = 0, lost = 0, garbage = 0;
    uint32_t n = cl_trace_read(segment, (uint64_t)cl_trace_bytes(1, 65536), 0, &next, records, 65536, &lost, &garbage);
    CHECK(lost == 0 && garbage == 0);
    FILE *f = fopen(path, "w");
    CHECK(f && fwrite(records, CL_TRACE_RECORD, n, f) == n && fclose(f) == 0);
}

static inline void make_hosts(uint32_t trace, uint32_t quantum_us)
{
    static struct cl_clock clock;
    struct cl_memory_config m = {.clock = &clock};
    struct cl_link_config path = {.delay_ns = PATH_NS};
    const struct cl_link_config *paths[2] = {&path, &path};
    struct cl_fault_config faults = {.adjustable = 1};
    char err[256] = "";
    now_ns = 1000000000;
    cl_clock_virtual(&clock, &now_ns);
    CHECK_EQ(cl_memory_link_new(&m, ends, err), 0);
    CHECK(cl_link_nic_new(ends[0], paths, &ends[0], err) == 0, "%s", err);
    CHECK(cl_fault_nic_new(ends[1], &faults, &ends[1], err) == 0, "%s", err);
    CHECK_EQ(cl_stepper_new(&now_ns, &stepper), 0);
    client = host(0, IP_CLIENT, CL_RUNTIME_TRACE_OFF, 0);
    server = host(1, IP_SERVER, trace, quantum_us);
}

/* Until it is over, and what is under way has come; then write all records of the server to a file. */
static inline void run_to_the_end(const char *path)
{
    char err[256] = "";
    for (unsigned i = 0; i < 5000 && !over; i++)
        CHECK(cl_stepper_run(stepper, now_ns + 1000000, err) == 0, "%s", err);
    CHECK(over);
    CHECK(cl_stepper_run(stepper, now_ns + 10000000, err) == 0, "%s", err);
    dump(path);
}

static inline void stop_hosts(void)
{
    cl_runtime_stop(client, 0);
    cl_runtime_stop(server, 0);
    cl_stepper_delete(stepper);
}

static inline void delete_hosts(void)
{
    cl_runtime_delete(client);
    cl_runtime_delete(server);
    cl_nic_close(ends[0]);
    cl_nic_close(ends[1]);
}

#endif

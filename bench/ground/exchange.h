/* The client of a UDP exchange: one uthread sends at a rate, another takes the answers. */
#ifndef CORELANE_BENCH_GROUND_EXCHANGE_H
#define CORELANE_BENCH_GROUND_EXCHANGE_H

#include <corelane/libos/udp.h>

// cffi: begin
/* Writers: the two uthreads. Readers: whoever steps their runtime, between steps. */
struct cl_bench_exchange {
    struct cl_udp_socket *socket;
    uint32_t ipv4; /* host byte order, of the echo server, as the port */
    uint32_t port;
    uint64_t interval_ns;
    uint64_t sent, answered;
    uint64_t wrong; /* answers to what was never sent, or a second time */
    int64_t error;  /* a call failed with this, and the exchange has ended; 0: none did */
};

/* A uthread; arg: a struct cl_bench_exchange. Each request is a number, due interval_ns after the one before, whatever
 * became of that. It ends when its runtime stops. */
CL_API void cl_bench_exchange_send(void *arg);
CL_API void cl_bench_exchange_receive(void *arg);
// cffi: end

#endif

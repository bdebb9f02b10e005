/* Ports of connections that go out (RFC 6056): all there are come one after the other for one peer, and what is used
 * for one says nothing of another's, nor of those of another start.
 *
 * argv[1]: a seed. Prints "ok". */
#include "libos/net/tcp/ports.h"
#include "tests/support/c/check.h"

#define STARTS 200

static uint32_t port_of(const struct cl_flow_secret *secret, uint32_t peer_be, uint16_t peer_port_be, uint32_t n)
{
    struct cl_flow_key key = {.peer_be = peer_be, .own_be = 1, .peer_port_be = peer_port_be};
    return cl_tcp_port_for(secret, &key, n, CL_TCP_FIRST_PORT, CL_TCP_PORTS);
}

/* How many of the numbers have come before. */
static unsigned twice(const uint32_t *of, unsigned n)
{
    unsigned same = 0;
    for (unsigned i = 0; i < n; i++)
        for (unsigned k = 0; k < i; k++)
            same += of[i] == of[k];
    return same;
}

int main(int argc, char **argv)
{
    static bool used[CL_TCP_PORTS];
    uint32_t first[STARTS], to_another_host[STARTS], to_another_port[STARTS];
    CHECK(argc == 2);
    uint64_t dice = strtoull(argv[1], NULL, 0);
    struct cl_flow_secret secret;
    for (unsigned i = 0; i < STARTS; i++) {
        secret = (struct cl_flow_secret){next_random(&dice), next_random(&dice)};
        first[i] = port_of(&secret, 2, 80, 0);
        to_another_host[i] = (port_of(&secret, 3, 80, 0) + CL_TCP_PORTS - first[i]) % CL_TCP_PORTS;
        to_another_port[i] = (port_of(&secret, 2, 81, 0) + CL_TCP_PORTS - first[i]) % CL_TCP_PORTS;
    }
    /* Of 200 numbers below 28 232 that are drawn 0.7 pairs are the same. */
    CHECK(twice(first, STARTS) < 6 && twice(to_another_host, STARTS) < 6 && twice(to_another_port, STARTS) < 6);
    for (uint32_t n = 0; n < CL_TCP_PORTS; n++) {
        uint32_t port = port_of(&secret, 2, 80, n);
        CHECK(port >= CL_TCP_FIRST_PORT && port < CL_TCP_FIRST_PORT + CL_TCP_PORTS && !used[port - CL_TCP_FIRST_PORT]);
        used[port - CL_TCP_FIRST_PORT] = true;
    }
    puts("ok");
    return 0;
}

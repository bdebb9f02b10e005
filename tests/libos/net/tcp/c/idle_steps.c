/* What connections that say nothing cost the stack (load_steps.h), in basic blocks of 200 ms.
 *
 * argv: how many. Prints the blocks. */
#include "tests/libos/net/tcp/c/load_steps.h"

#define MEMORY (2u << 20)
#define QUIET_NS 100000000ull /* what opened them is over */

int main(int argc, char **argv)
{
    struct cl_tcp_counts before, after;
    CHECK_EQ(argc, 2);
    uint32_t n = (uint32_t)atoi(argv[1]);
    begin(MEMORY, (struct cl_tcpload_config){.traffic = CL_TCPLOAD_HOLD, .connections = n});
    struct cl_loadgen_phase phase = {.duration_ns = 1000000000, .rate = 1, .measured = 1};
    open_all(&phase);
    pass(QUIET_NS);
    cl_runtime_tcp_counts(rt, &before);
    CHECK_EQ(before.begun - before.over, n);
    blocks = 0;
    pass(200000000);
    printf("%llu\n", (unsigned long long)blocks);
    cl_runtime_tcp_counts(rt, &after);
    CHECK_EQ(after.begun - after.over, n);
    CHECK_EQ(after.segments_in + after.segments_out, before.segments_in + before.segments_out);
    cl_tcpload_abort(load);
    finish();
    end();
    return 0;
}

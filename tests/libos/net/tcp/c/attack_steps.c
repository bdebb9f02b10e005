/* What the stack does for a segment of an attacker, in basic blocks: the attackers of the benchmark (load_steps.h).
 *
 * argv: the attack, 0 for none (then it is requests that are counted); connections of the attacker. Prints the blocks
 * for a segment. */
#include "tests/libos/net/tcp/c/load_steps.h"

#define RATE 200000.0
#define SEGMENTS 8000.0
#define MEMORY (2u << 20) /* that connections may take: those of some attackers use it up */

int main(int argc, char **argv)
{
    struct cl_tcpload_counts counts;
    struct cl_tcpload_other other;
    CHECK_EQ(argc, 3);
    uint32_t kind = (uint32_t)atoi(argv[1]);
    begin(MEMORY, (struct cl_tcpload_config){.traffic = CL_TCPLOAD_ASK, .connections = 10});
    CHECK_EQ(cl_tcpload_attack(load, kind, RATE, (uint32_t)atoi(argv[2])), 0);
    struct cl_loadgen_phase phase = {
        .duration_ns = (uint64_t)(SEGMENTS / RATE * 1e9), .rate = kind ? 1000 : RATE, .measured = 1};
    open_all(&phase);
    blocks = 0;
    finish();
    CHECK_EQ(cl_tcpload_counts(load, 0, &counts), 0);
    cl_tcpload_other(load, &other);
    CHECK(counts.answered > 0 && counts.answered == counts.offered);
    CHECK(!kind || other.attacks > SEGMENTS * 0.9, "%llu segments", (unsigned long long)other.attacks);
    printf("%llu\n", (unsigned long long)(blocks / (kind ? other.attacks : counts.answered)));
    end();
    return 0;
}

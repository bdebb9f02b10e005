/* What congestion control counts in slow start is nothing that was acknowledged behind it. */
#include "libos/net/tcp/cc.h"
#include "tests/support/c/check.h"

#define MSS 1000u

static struct cl_tcp_cc_ack of(uint32_t acked, bool limited)
{
    return (struct cl_tcp_cc_ack){.now_ns = 1, .rtt_ns = 1000000, .acked = acked, .limited = limited};
}

/* In a recovery PRR may lead the window to below the threshold, where what is under way is noted. */
static void behind_recovery(void)
{
    struct cl_tcp_cc cc;
    cl_tcp_cc_init(&cc, &cl_tcp_newreno, MSS);
    cc.window = 20 * MSS;
    uint32_t threshold = cl_tcp_cc_fall(&cc, 1, false);
    CHECK(threshold == 10 * MSS, "it falls to %u", threshold);
    cc.window = 8 * MSS;
    struct cl_tcp_cc_ack ack = of(MSS, cl_tcp_cc_limited(&cc, 8 * MSS));
    CHECK(cc.most == 8 * MSS, "noted are %u", cc.most);
    cl_tcp_cc_acked(&cc, &ack, true);
    cc.window = threshold;
    for (unsigned i = 1; i <= 10; i++) {
        CHECK(cc.window == threshold, "it has grown to %u when %u segments were acknowledged", cc.window, i - 1);
        ack = of(MSS, cl_tcp_cc_limited(&cc, threshold));
        CHECK(ack.limited, "a full window is no limit");
        cl_tcp_cc_acked(&cc, &ack, false);
    }
    CHECK(cc.window == threshold + MSS, "a window was acknowledged, and it is %u", cc.window);
}

int main(void)
{
    behind_recovery();
    puts("ok");
    return 0;
}

/* How windows grow and fall by themselves, without a connection.
 *
 * argv[1]: the name of a case. Prints "ok". */
#include "libos/net/tcp/cc.h"
#include "tests/support/c/check.h"

#include <math.h>
#include <string.h>

#define MSS 1000u
#define SECOND 1000000000ull
#define CASE(name)                                                                                                     \
    {                                                                                                                  \
#name, name                                                                                                    \
    }

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

/* Behind slow start, with windows of so many segments; then it falls. */
static struct cl_tcp_cc fallen(const struct cl_tcp_cc_ops *ops, uint32_t window)
{
    struct cl_tcp_cc cc;
    cl_tcp_cc_init(&cc, ops, MSS);
    cc.window = window * MSS;
    cc.window = cl_tcp_cc_fall(&cc, SECOND, false);
    return cc;
}

/* A window that is always full is acknowledged for so long, two segments at a time. */
static void full(struct cl_tcp_cc *cc, uint64_t *now_ns, uint64_t rtt_ns, uint64_t for_ns)
{
    for (uint64_t until_ns = *now_ns + for_ns; *now_ns < until_ns;) {
        struct cl_tcp_cc_ack ack = of(2 * MSS, true);
        ack.now_ns = *now_ns;
        ack.rtt_ns = rtt_ns;
        cl_tcp_cc_acked(cc, &ack, false);
        *now_ns += rtt_ns * 2 * MSS / cc->window;
    }
}

/* RFC 9438, section 4.2: W_cubic(t) = C (t - K)^3 + W_max, steep, flat where it fell, and steep again. */
static void cubic_follows_its_curve(void)
{
    const uint64_t rtt_ns = SECOND / 10;
    struct cl_tcp_cc cc = fallen(&cl_tcp_cubic, 1000);
    uint64_t now_ns = 2 * SECOND;
    double k = cbrt(1000 * 0.3 / 0.4);
    CHECK_EQ(cc.window, 700 * MSS);
    for (double t = 1; t < 1.5 * k; t++) {
        full(&cc, &now_ns, rtt_ns, 2 * SECOND + (uint64_t)(t * 1e9) - now_ns);
        double curve = 0.4 * pow(t - k, 3) + 1000, later = 0.4 * pow(t + 0.1 - k, 3) + 1000; /* a round trip ahead */
        double window = (double)cc.window / MSS;
        CHECK(window > curve - 2 && window < later + 2, "after %.0f s it is %.1f, and the curve %.1f", t, window,
              curve);
    }
    CHECK(cc.window > 1000 * MSS, "it is %u", cc.window);
}

/* Section 4.3: where the curve is below it, as AIMD with the same mean would: 9/17 of a segment a round trip up to the
 * window before the fall, and one beyond. */
static void cubic_is_no_slower_than_aimd(void)
{
    const uint64_t rtt_ns = SECOND / 1000;
    struct cl_tcp_cc cc = fallen(&cl_tcp_cubic, 100);
    uint64_t now_ns = 2 * SECOND;
    full(&cc, &now_ns, rtt_ns, 50 * rtt_ns);
    double window = (double)cc.window / MSS;
    CHECK(fabs(window - (70 + 50 * 9 / 17.)) < 1.5, "after 50 round trips it is %.1f", window);
    full(&cc, &now_ns, rtt_ns, 50 * rtt_ns);
    double first = (100 - 70) * 17 / 9.; /* round trips to there */
    window = (double)cc.window / MSS;
    CHECK(fabs(window - (100 + 100 - first)) < 2.5, "after 100 round trips it is %.1f", window);
}

/* Section 4.7: who falls before he was up again leaves room to others. */
static void cubic_converges_fast(void)
{
    struct cl_tcp_cc cc = fallen(&cl_tcp_cubic, 1000);
    uint64_t now_ns = 2 * SECOND;
    cc.window = 900 * MSS;
    cc.window = cl_tcp_cc_fall(&cc, now_ns, false);
    CHECK_EQ(cc.window, 630 * MSS);
    double top = 900 * 1.7 / 2, k = cbrt((top - 630) / 0.4);
    full(&cc, &now_ns, SECOND / 10, (uint64_t)(k * 1e9));
    CHECK(fabs((double)cc.window / MSS - top) < 2, "it is flat at %.1f", (double)cc.window / MSS);
}

/* Section 4.9's mistake: the window and the curve are what they were. */
static void cubic_forgets_a_mistake(void)
{
    struct cl_tcp_cc cc;
    cl_tcp_cc_init(&cc, &cl_tcp_cubic, MSS);
    cc.window = 1000 * MSS;
    cc.threshold = 500 * MSS;
    cc.window = cl_tcp_cc_fall(&cc, SECOND, false);
    CHECK(cl_tcp_cc_may_undo(&cc));
    cl_tcp_cc_undo(&cc);
    CHECK(cc.window == 1000 * MSS && cc.threshold == 700 * MSS, "%u, %u", cc.window, cc.threshold);
    CHECK(!cl_tcp_cc_may_undo(&cc));
}

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {
    CASE(behind_recovery),      CASE(cubic_follows_its_curve), CASE(cubic_is_no_slower_than_aimd),
    CASE(cubic_converges_fast), CASE(cubic_forgets_a_mistake),
};

int main(int argc, char **argv)
{
    for (unsigned i = 0; argc == 2 && i < sizeof cases / sizeof *cases; i++)
        if (strcmp(argv[1], cases[i].name) == 0) {
            cases[i].run();
            puts("ok");
        }
    return 0;
}

/* CUBIC (RFC 9438): the window as a cubic function of the time since the last fall, that is flat where it fell, and
 * never below what AIMD with the same mean would have. Windows in segments, time in seconds, as the RFC has them. */
#include "cc.h"

#define C 0.4                               /* segments/s^3 (section 5) */
#define BETA 0.7                            /* section 4.6 */
#define ALPHA (3 * (1 - BETA) / (1 + BETA)) /* section 4.3 */
#define NS_PER_US 1000ull
#define MOST_A_ROUND 1.5 /* times the window (section 4.2) */

/* The cube root of x >= 0, the same bits on every machine. Newton's rule from above; within 1e-9 of the root. */
static double cube_root(double x)
{
    double r = x > 1 ? x : 1;
    if (x <= 0)
        return 0;
    for (unsigned i = 0; i < 200; i++) {
        double next = (2 * r + x / (r * r)) / 3;
        if (next >= r * (1 - 1e-12))
            break;
        r = next;
    }
    return r;
}

static double window_of(const struct cl_tcp_cc *cc)
{
    return (double)cc->window / cc->mss;
}

/* No growth has begun: there is nothing to see. */
static void rest(struct cl_tcp_cc *cc)
{
    cc->of.cubic.epoch_ns = 0;
    cc->watches = false;
}

static void init(struct cl_tcp_cc *cc)
{
    rest(cc);
    cc->of.cubic.top = cc->of.cubic.old_top = 0;
}

/* Sections 4.2 and 4.8: growth begins at the window of now, which may be above the top, after an undo or a slow
 * start. */
static void begin(struct cl_tcp_cc *cc, uint64_t now_ns)
{
    double window = window_of(cc);
    cc->of.cubic.epoch_ns = now_ns;
    cc->watches = true;
    cc->of.cubic.grew_us = 0;
    cc->of.cubic.friendly = window;
    if (window < (double)cc->of.cubic.top) {
        cc->of.cubic.rise_s = (float)cube_root(((double)cc->of.cubic.top - window) / C);
    } else {
        cc->of.cubic.rise_s = 0;
        cc->of.cubic.top = (float)window;
    }
}

static double cubic_at(const struct cl_tcp_cc *cc, double s)
{
    double from_top = s - (double)cc->of.cubic.rise_s;
    return C * from_top * from_top * from_top + (double)cc->of.cubic.top;
}

/* As much as the field holds, which is 71 minutes. */
static uint32_t grown_us(const struct cl_tcp_cc *cc, uint64_t now_ns)
{
    return (uint32_t)cl_min((now_ns - cc->of.cubic.epoch_ns) / NS_PER_US, (uint64_t)UINT32_MAX);
}

static void grow(struct cl_tcp_cc *cc, const struct cl_tcp_cc_ack *ack)
{
    if (cc->of.cubic.epoch_ns == 0)
        begin(cc, ack->now_ns);
    cc->of.cubic.grew_us = grown_us(cc, ack->now_ns);
    double window = window_of(cc), acked = (double)ack->acked / cc->mss;
    double s = (double)(ack->now_ns - cc->of.cubic.epoch_ns) * 1e-9;
    double alpha = cc->of.cubic.friendly >= (double)cc->before / cc->mss ? 1 : ALPHA;
    cc->of.cubic.friendly += alpha * acked / window;
    double target = cubic_at(cc, s + (double)ack->rtt_ns * 1e-9);
    target = cl_min(cl_max(target, window), MOST_A_ROUND * window);
    double next = window + (target - window) / window * acked;
    if (cubic_at(cc, s) < cc->of.cubic.friendly)
        next = cl_max(next, cc->of.cubic.friendly);
    cc->window = (uint32_t)(next * cc->mss + 0.5);
}

/* While the application and not the window holds sending back the curve stands still (section 5.8). */
static void saw(struct cl_tcp_cc *cc, const struct cl_tcp_cc_ack *ack)
{
    if (!ack->limited)
        cc->of.cubic.epoch_ns = ack->now_ns - cc->of.cubic.grew_us * NS_PER_US;
}

static uint32_t fall(struct cl_tcp_cc *cc, uint64_t now_ns, bool ecn)
{
    double window = window_of(cc);
    (void)now_ns;
    (void)ecn;
    cc->of.cubic.old_top = cc->of.cubic.top;
    /* Fast convergence (section 4.7): it fell before it was up again, so there are others now. */
    cc->of.cubic.top = (float)(window < (double)cc->of.cubic.top ? window * (1 + BETA) / 2 : window);
    rest(cc);
    return (uint32_t)(BETA * cc->window);
}

static void undo(struct cl_tcp_cc *cc)
{
    cc->of.cubic.top = cc->of.cubic.old_top;
    rest(cc);
}

const struct cl_tcp_cc_ops cl_tcp_cubic = {"cubic", init, saw, grow, fall, undo};

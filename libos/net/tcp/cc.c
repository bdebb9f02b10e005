/* What all rules share, and newreno. See cc.h. */
#include "cc.h"

#include <string.h>

#define FIRST_WINDOW 14600 /* RFC 6928, section 2 */

static const struct cl_tcp_cc_ops *const rules[] = {&cl_tcp_cubic, &cl_tcp_newreno, &cl_tcp_dctcp};
#define RULES (sizeof rules / sizeof rules[0])

const struct cl_tcp_cc_ops *cl_tcp_cc_find(const char *name)
{
    for (unsigned i = 0; i < RULES; i++)
        if (strcmp(rules[i]->name, name) == 0)
            return rules[i];
    return NULL;
}

const struct cl_tcp_cc_ops *cl_tcp_cc_ops(const struct cl_tcp_cc *cc)
{
    return rules[cc->rule];
}

/* What a connection keeps of it: a byte, not a pointer. */
static uint8_t rule_of(const struct cl_tcp_cc_ops *ops)
{
    uint8_t i = 0;
    while (rules[i] != ops)
        i++;
    return i;
}

void cl_tcp_cc_init(struct cl_tcp_cc *cc, const struct cl_tcp_cc_ops *ops, uint32_t mss)
{
    *cc = (struct cl_tcp_cc){.rule = rule_of(ops), .mss = (uint16_t)mss, .threshold = CL_TCP_CC_NO_THRESHOLD};
    cc->window = cl_min(10 * mss, cl_max(2 * mss, (uint32_t)FIRST_WINDOW));
    ops->init(cc);
}

void cl_tcp_cc_choose(struct cl_tcp_cc *cc, const struct cl_tcp_cc_ops *ops)
{
    uint32_t window = cc->window, threshold = cc->threshold;
    cl_tcp_cc_init(cc, ops, cc->mss);
    cc->window = window;
    cc->threshold = threshold;
}

/* Returns the bytes acknowledged that slow start did not use. */
static uint32_t slow_start(struct cl_tcp_cc *cc, uint32_t acked)
{
    uint32_t grow = cl_min(acked, cc->threshold - cc->window);
    cc->window += grow;
    if (cc->window < cc->threshold)
        return 0;
    cc->acked = 0;
    return acked - grow;
}

void cl_tcp_cc_acked(struct cl_tcp_cc *cc, const struct cl_tcp_cc_ack *ack, bool recovering)
{
    struct cl_tcp_cc_ack rest = *ack;
    const struct cl_tcp_cc_ops *ops = rules[cc->rule];
    if (cc->watches)
        ops->saw(cc, ack);
    if (recovering)
        cc->acked = 0; /* or `most`, if PRR's window is below the threshold: behind recovery none of it counts */
    if (recovering || !ack->limited || ack->acked == 0)
        return;
    if (cc->window < cc->threshold)
        rest.acked = slow_start(cc, ack->acked);
    if (rest.acked)
        ops->grow(cc, &rest);
}

uint32_t cl_tcp_cc_fall(struct cl_tcp_cc *cc, uint64_t now_ns, bool ecn)
{
    uint32_t to = rules[cc->rule]->fall(cc, now_ns, ecn);
    cc->before = cc->window;
    cc->threshold_before = ecn ? 0 : cc->threshold;
    cc->threshold = cl_max(to, CL_TCP_CC_WINDOWS_LEAST * cc->mss);
    cc->acked = 0;
    return cc->threshold;
}

void cl_tcp_cc_undo(struct cl_tcp_cc *cc)
{
    if (!cl_tcp_cc_may_undo(cc))
        return;
    cc->window = cl_max(cc->window, cc->before);
    cc->threshold = cl_max(cc->threshold, cc->threshold_before);
    cc->threshold_before = 0;
    cc->acked = 0;
    rules[cc->rule]->undo(cc);
}

void cl_tcp_cc_timed_out(struct cl_tcp_cc *cc, uint64_t now_ns, bool first)
{
    if (first)
        cl_tcp_cc_fall(cc, now_ns, false);
    cc->window = cc->mss;
    cc->acked = 0;
}

void cl_tcp_cc_idle(struct cl_tcp_cc *cc, uint64_t idle_ns, uint64_t rto_ns)
{
    uint32_t least = cl_min(10 * cc->mss, cc->window);
    if (idle_ns < rto_ns)
        return;
    cc->threshold =
        cc->threshold == CL_TCP_CC_NO_THRESHOLD ? cc->threshold : cl_max(cc->threshold, cc->window - cc->window / 4);
    for (; idle_ns >= rto_ns && cc->window > least; idle_ns -= rto_ns)
        cc->window = cl_max(cc->window / 2, least);
    cc->acked = 0;
}

/* newreno: a segment for each window acknowledged (RFC 5681, section 3.1), and half after a loss. */

static void reno_init(struct cl_tcp_cc *cc)
{
    (void)cc;
}

static void reno_grow(struct cl_tcp_cc *cc, const struct cl_tcp_cc_ack *ack)
{
    cc->acked += ack->acked;
    while (cc->acked >= cc->window) {
        cc->acked -= cc->window;
        cc->window += cc->mss;
    }
}

static uint32_t reno_fall(struct cl_tcp_cc *cc, uint64_t now_ns, bool ecn)
{
    (void)now_ns;
    (void)ecn;
    return cc->window / 2;
}

static void reno_undo(struct cl_tcp_cc *cc)
{
    (void)cc;
}

const struct cl_tcp_cc_ops cl_tcp_newreno = {"newreno", reno_init, NULL, reno_grow, reno_fall, reno_undo};

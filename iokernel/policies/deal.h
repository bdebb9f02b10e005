/* Dealing cores to applications that all want more of them: core by core to whoever has attained least for its weight.
 *
 * What counts is the service of the last while, not of all time, lest a newcomer be owed hours: each application's
 * `lag` is its core time over its weight, less the average of those that compete now, and is kept within `credit_ns`.
 * Who wants nothing saves up nothing. (The average as the reference is EEVDF's virtual time, Stoica and Abdel-Wahab,
 * 1995.) A core that is held stays until its holder is `slice_ns` ahead, since every move costs; and goes back to it
 * where a latency application takes it from a batch one in between.
 *
 * memory[1]: cores that it was dealt last, of a batch application; memory[2]: attained_ns at the last call; memory[3]:
 * lag, a double. */
#ifndef CORELANE_IOKERNEL_POLICIES_DEAL_H
#define CORELANE_IOKERNEL_POLICIES_DEAL_H

#include <corelane/iokernel/policy.h>

/* Deal `cores` among the applications of a kind, each of which may come to want(application) in all; starts from their
 * `grant`. Returns what is left. */
uint32_t cl_policy_deal(const struct cl_policy_view *view, struct cl_policy_app *apps, uint32_t kind,
                        uint32_t (*want)(const struct cl_policy_app *), uint32_t cores, double slice_ns,
                        double credit_ns);

/* What an application wants where nothing else is said: of latency class one core more than it holds if something
 * waits, and no more than it uses otherwise; of batch class all that it could use. */
uint32_t cl_policy_wanted(const struct cl_policy_app *a);

/* Write the grants of a policy that puts latency applications first: what is guaranteed to either kind and wanted, and
 * to latency applications what they want of the rest, dealt as above. Returns what is left for batch applications. */
uint32_t cl_policy_latency_first(const struct cl_policy_view *view, struct cl_policy_app *apps, double slice_ns,
                                 double credit_ns);

#endif

/* See width.h.
 *
 * A device that does several writes at once gives each back in about the time of a lone one. One that does not makes
 * them wait for each other; then small flushes sent early only stand in line, and records do better to gather. So
 * flushes that had others beside them are compared with the mean of those that were in flight alone. If most of a round
 * took nearly twice as long, the device does not even do half as many at once as there were, and half as many may be in
 * flight from now on. From time to time twice as many are tried for a round, the more seldom the more often that was in
 * vain: a device may have been busy with somebody else's writes.
 *
 * A flush much larger than those that were alone takes longer for that, and says nothing; it has also little to gain
 * from gathering.
 *
 * Votes are counted and times not added up, so a single stall of the device decides nothing. On a load that never has
 * two flushes side by side nothing is found out, and nothing needs to be. */
#include "width.h"

#include <corelane/runtime/base.h>

#define ROUND 32     /* flushes with others beside them */
#define MOST_SLOW 24 /* of these */
#define SLOW_NUM 9   /* times a lone one's time, over SLOW_DEN */
#define SLOW_DEN 5
#define LONE_PART 8 /* weight of the newest one in their mean */
#define LONE_LEAST_NS 1000
#define SMALL_BYTES 32768 /* up to here disks take about as long as for a block */
#define LONE_EACH 512     /* flushes, and then one goes alone */
#define LONE_FIRST 32     /* while none has */
#define PATIENCE 512
#define MOST_PATIENCE 32768

void cl_log_width_init(struct cl_log_width *w, uint32_t most)
{
    *w = (struct cl_log_width){.now = most, .most = most, .patience = PATIENCE};
}

uint32_t cl_log_width_limit(const struct cl_log_width *w)
{
    return w->since_lone >= (w->lone_ns ? LONE_EACH : LONE_FIRST) ? 1 : w->now;
}

static void begin_round(struct cl_log_width *w)
{
    w->crowded = w->slow = 0;
}

static void try_wider(struct cl_log_width *w)
{
    w->now = 2 * w->now < w->most ? 2 * w->now : w->most;
    w->tries = true;
    begin_round(w);
}

void cl_log_width_sent(struct cl_log_width *w, struct cl_log_flown *f, struct cl_log_flown *last, uint32_t others,
                       uint32_t bytes, uint64_t now_ns)
{
    *f = (struct cl_log_flown){.sent_ns = now_ns, .bytes = bytes, .beside = others > 0};
    if (others)
        last->beside = true;
    w->since_lone++;
    if (w->now < w->most && !w->tries && ++w->narrow >= w->patience)
        try_wider(w);
}

static void end_round(struct cl_log_width *w)
{
    bool slow = w->slow >= MOST_SLOW;
    if (slow || w->tries)
        w->narrow = 0;
    if (slow) {
        w->now = (w->now + 1) / 2;
        if (w->tries && w->patience < MOST_PATIENCE)
            w->patience *= 2;
    } else if (w->tries) {
        w->patience = PATIENCE;
    }
    w->tries = false;
    begin_round(w);
}

static void flew_alone(struct cl_log_width *w, const struct cl_log_flown *f, uint64_t took)
{
    if (w->lone_ns) {
        took = cl_min(took, cl_max(2 * w->lone_ns, LONE_LEAST_NS)); /* a single stall does not count as what it took */
        w->lone_ns += took / LONE_PART - w->lone_ns / LONE_PART;
        w->lone_bytes += f->bytes / LONE_PART - w->lone_bytes / LONE_PART;
    } else {
        w->lone_ns = took;
        w->lone_bytes = f->bytes;
    }
    w->since_lone = 0;
}

void cl_log_width_done(struct cl_log_width *w, const struct cl_log_flown *f, uint64_t now_ns)
{
    uint64_t took = now_ns > f->sent_ns ? now_ns - f->sent_ns : 0; /* 0: somebody set the clock back */
    if (!f->beside) {
        flew_alone(w, f, took);
        return;
    }
    if (!w->lone_ns || w->now == 1 || (f->bytes > SMALL_BYTES && f->bytes > 2 * w->lone_bytes))
        return;
    w->slow += took * SLOW_DEN > w->lone_ns * SLOW_NUM;
    if (++w->crowded == ROUND)
        end_round(w);
}

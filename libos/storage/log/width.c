/* See width.h.
 *
 * A device that does several writes at once gives each back in about the time of a lone one. One that does not makes
 * them wait for each other; then flushes sent early only stand in line, and records do better to gather.
 *
 * The log begins with one flush in flight, unless it is told how many. That costs little on any device: an append waits
 * for the rest of the flush in flight, half of one in the mean, and then for its own. As soon as it is known how long a
 * lone flush takes, twice as many are tried. As long as that goes well, twice as many again are tried at once. Where it
 * does not, half as many fly from then on, and they are tried again later, the more seldom the more often that was in
 * vain: a device may have been busy with somebody else's writes.
 *
 * What decides is each flush of which both guesses, that the device does `now` at once and that it does half as many,
 * expect different times. If it does half, a flush that is sent while as many are in flight begins when one or more of
 * those are done, which the log sees. So it takes a lone one's time and that wait. If the device does all, the wait
 * does not show. What is nearer is one vote. Waits that are short beside a lone one's time say nothing.
 *
 * Large flushes take longer for their size, so they are compared with large ones that were alone, and only with those
 * of about their size.
 *
 * Votes are counted and times not added up, and to narrow what went well it takes more of them than flushes can be in
 * flight: so a single stall of the device decides nothing. On a load that never has two flushes side by side nothing is
 * found out, and nothing needs to be. */
#include "width.h"

#include <corelane/runtime/base.h>

#define TRIAL_GOOD 4    /* votes for wider that end a trial */
#define TRIAL_BAD 2     /* votes against it: what is given up too soon is tried again soon */
#define SPARE 4         /* votes besides those of all in flight that narrow it otherwise */
#define LEAST_WAIT 2    /* a wait says something from a lone one's time over this on */
#define SLOW_PART 2     /* a flush waited if it took longer than a lone one by the wait over this */
#define MEAN_PART 8     /* weight of the newest one in a mean */
#define FORGET_PART 256 /* with each one alone it is forgotten by so much what being beside others costs */
#define LEAST_GAIN 16   /* a gain of less than a lone one's time over this is none: who was parted stays so */
#define LONE_LEAST_NS 1000
#define SMALL_BYTES 65536   /* up to here disks take about as long as for a block */
#define LONE_EACH 512       /* flushes for each that may be in flight, and then one goes alone */
#define LONE_FIRST 4        /* that are alone before anything is judged by them */
#define LONE_LATE 32        /* flushes, and then one goes alone, where not so many did yet */
#define PATIENCE 128        /* flushes for each that may be in flight, and then it is tried wider */
#define MOST_PATIENCE 32768 /* flushes */
#define LESS_OFTEN 4        /* each time that this was in vain */

void cl_log_width_init(struct cl_log_width *w, uint32_t most, uint32_t first)
{
    *w = (struct cl_log_width){.now = first, .most = most, .patience = PATIENCE};
}

uint32_t cl_log_width_limit(const struct cl_log_width *w)
{
    return w->learns || w->since_lone >= LONE_EACH * w->now ? 1 : w->now;
}

bool cl_log_width_parts(const struct cl_log_width *w)
{
    uint64_t alone = w->lone[0].ns, costs = w->beside_ns > alone ? w->beside_ns - alone : 0;
    return cl_log_width_limit(w) > 1 && w->idle_ns / 2 > cl_max(costs, alone / LEAST_GAIN);
}

/* Those of about the size of this one. */
static struct cl_log_lone *kind_of(struct cl_log_width *w, uint32_t bytes)
{
    return &w->lone[bytes > SMALL_BYTES];
}

static void into_mean(uint64_t *mean, uint64_t value)
{
    *mean += value / MEAN_PART - *mean / MEAN_PART;
}

static uint32_t half(const struct cl_log_width *w)
{
    return (w->now + 1) / 2;
}

static void change(struct cl_log_width *w, uint32_t now, bool tries)
{
    w->now = now;
    w->tries = tries;
    w->votes = 0;
    w->narrow = 0;
    w->round++;
}

static void try_wider(struct cl_log_width *w)
{
    if (w->now < w->most)
        change(w, cl_min(2 * w->now, w->most), true);
}

void cl_log_width_sent(struct cl_log_width *w, struct cl_log_flown *f, struct cl_log_flown *last, uint32_t others,
                       uint32_t bytes, uint64_t now_ns)
{
    bool known = kind_of(w, bytes)->seen == LONE_FIRST;
    w->since_lone++;
    bool other_known = w->lone[bytes <= SMALL_BYTES].seen == LONE_FIRST;
    w->learns = !known && w->now > 1 && (other_known || w->since_lone >= LONE_LATE);
    if (!w->tries && known && w->now < w->most && ++w->narrow >= cl_min(w->patience * w->now, (uint32_t)MOST_PATIENCE))
        try_wider(w);
    *f = (struct cl_log_flown){.sent_ns = now_ns, .bytes = bytes, .round = w->round, .beside = others > 0};
    if (others)
        last->beside = true;
    else if (w->done)
        into_mean(&w->idle_ns, now_ns - cl_min(now_ns, w->done_ns[w->done % CL_LOG_WIDTH_DONE]));
    if (w->now > 1 && others >= half(w))
        f->turn = w->done + others - half(w) + 1;
}

static void flew_alone(struct cl_log_width *w, const struct cl_log_flown *f, uint64_t took)
{
    struct cl_log_lone *lone = kind_of(w, f->bytes);
    w->since_lone = 0;
    w->beside_ns -= w->beside_ns / FORGET_PART;
    if (lone->seen == LONE_FIRST) { /* a single stall does not count as what it took */
        into_mean(&lone->ns, cl_min(took, cl_max(2 * lone->ns, LONE_LEAST_NS)));
        into_mean(&lone->bytes, f->bytes);
        return;
    }
    if (!lone->seen || took < lone->ns)
        *lone = (struct cl_log_lone){.ns = took, .bytes = f->bytes, .seen = lone->seen};
    if (++lone->seen < LONE_FIRST)
        return;
    w->learns = false;
    if (w->now == 1)
        try_wider(w);
}

/* What one had beside others took, of the small ones. */
static void flew_beside(struct cl_log_width *w, const struct cl_log_flown *f, uint64_t took)
{
    took = cl_min(took, 4 * w->lone[0].ns);
    if (f->bytes > SMALL_BYTES)
        return;
    if (w->beside_ns)
        into_mean(&w->beside_ns, took);
    else
        w->beside_ns = took;
}

static void vote(struct cl_log_width *w, bool slow)
{
    w->votes += slow ? 1 : -1;
    if (w->tries && w->votes <= -TRIAL_GOOD) {
        w->patience = PATIENCE;
        change(w, w->now, false);
        try_wider(w);
    } else if (w->tries && w->votes >= TRIAL_BAD) {
        w->patience = cl_min(LESS_OFTEN * w->patience, (uint32_t)MOST_PATIENCE);
        change(w, half(w), false);
    } else if (!w->tries) {
        w->votes = cl_max(w->votes, 0);
        if (w->votes >= (int32_t)w->now + SPARE)
            change(w, half(w), false);
    }
}

/* A vote, if the time of this flush is one. */
static void judge(struct cl_log_width *w, const struct cl_log_flown *f, uint64_t took)
{
    const struct cl_log_lone *lone = kind_of(w, f->bytes);
    bool alike = f->bytes <= SMALL_BYTES || (f->bytes <= 2 * lone->bytes && 2 * f->bytes >= lone->bytes);
    if (!f->turn || f->round != w->round || lone->seen < LONE_FIRST)
        return;
    if (f->turn > w->done) { /* it has overtaken those that it would have to wait for */
        vote(w, false);
        return;
    }
    if (!alike || w->done - f->turn >= CL_LOG_WIDTH_DONE)
        return;
    uint64_t begun = w->done_ns[f->turn % CL_LOG_WIDTH_DONE], wait = begun > f->sent_ns ? begun - f->sent_ns : 0;
    if (wait >= lone->ns / LEAST_WAIT)
        vote(w, took > lone->ns + wait / SLOW_PART);
}

void cl_log_width_done(struct cl_log_width *w, const struct cl_log_flown *f, uint64_t now_ns)
{
    uint64_t took = now_ns > f->sent_ns ? now_ns - f->sent_ns : 0; /* 0: somebody set the clock back */
    if (f->beside) {
        flew_beside(w, f, took);
        judge(w, f, took);
    } else {
        flew_alone(w, f, took);
    }
    w->done_ns[++w->done % CL_LOG_WIDTH_DONE] = now_ns;
}

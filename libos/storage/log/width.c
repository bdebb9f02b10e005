/* See width.h.
 *
 * A device that does several writes at once gives each back in about the time of a lone one. One that does not makes
 * them wait for each other; then flushes sent early only stand in line, and records do better to gather.
 *
 * The log begins with one flush in flight, which costs little on any device: an append waits for the rest of the flush
 * in flight, half of one in the mean, and then for its own. Wherever twice as many may do better, they are tried. As
 * long as that goes well, twice as many again are tried at once. Where it does not, half as many fly from then on, and
 * they are tried again later, the more seldom the more often that was in vain: a device may have been busy with
 * somebody else's writes.
 *
 * What decides is where both guesses, that the device does `now` at once and that it does half as many, expect different
 * times of a flush. If it does half, a flush that is sent while as many are in flight begins when one or more of those
 * are done, which the log sees. So it takes a lone one's time and that wait, which is most of a vote for half; if the
 * device does all, the wait does not show. Waits that are short beside a lone one's time say nothing.
 *
 * A flush much larger than those that were alone takes longer for that, and says nothing. It has also little to gain
 * from gathering, so that in a trial it is one for wider.
 *
 * Votes are counted and times not added up, and it takes more of them than flushes can be in flight: so a single stall
 * of the device decides nothing. On a load that never has two flushes side by side nothing is found out, and nothing
 * needs to be. */
#include "width.h"

#include <corelane/runtime/base.h>

#define TRIAL 4         /* votes that end a trial */
#define SPARE 4         /* votes besides those of all in flight that narrow it otherwise */
#define LEAST_WAIT 2    /* a wait says something from a lone one's time over this on */
#define SLOW_NUM 3      /* a flush waited if it took longer than a lone one by this part of the wait .. */
#define SLOW_DEN 4      /* .. over this */
#define LONE_PART 8     /* weight of the newest one in their mean */
#define LONE_LEAST_NS 1000
#define SMALL_BYTES 32768 /* up to here disks take about as long as for a block */
#define LONE_EACH 512     /* flushes, and then one goes alone */
#define LONE_FIRST 4      /* that fly alone before others are let beside them */
#define PATIENCE 128
#define MOST_PATIENCE 32768

void cl_log_width_init(struct cl_log_width *w, uint32_t most)
{
    *w = (struct cl_log_width){.now = 1, .most = most, .patience = PATIENCE};
}

uint32_t cl_log_width_limit(const struct cl_log_width *w)
{
    return w->since_lone >= LONE_EACH ? 1 : w->now;
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
    w->since_lone++;
    if (!w->tries && w->lone == LONE_FIRST && w->now < w->most && ++w->narrow >= w->patience)
        try_wider(w);
    *f = (struct cl_log_flown){.sent_ns = now_ns, .bytes = bytes, .round = w->round, .beside = others > 0};
    if (others)
        last->beside = true;
    if (w->now > 1 && others >= half(w))
        f->turn = w->done + others - half(w) + 1;
}

static void flew_alone(struct cl_log_width *w, const struct cl_log_flown *f, uint64_t took)
{
    w->since_lone = 0;
    if (w->lone < LONE_FIRST) {
        if (!w->lone || took < w->lone_ns) {
            w->lone_ns = took;
            w->lone_bytes = f->bytes;
        }
        if (++w->lone == LONE_FIRST)
            try_wider(w);
        return;
    }
    took = cl_min(took, cl_max(2 * w->lone_ns, LONE_LEAST_NS)); /* a single stall does not count as what it took */
    w->lone_ns += took / LONE_PART - w->lone_ns / LONE_PART;
    w->lone_bytes += f->bytes / LONE_PART - w->lone_bytes / LONE_PART;
}

static void vote(struct cl_log_width *w, bool slow)
{
    w->votes += slow ? 1 : -1;
    if (w->tries && w->votes <= -TRIAL) {
        w->patience = PATIENCE;
        change(w, w->now, false);
        try_wider(w);
    } else if (w->tries && w->votes >= TRIAL) {
        w->patience = cl_min(2 * w->patience, MOST_PATIENCE);
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
    if (!f->turn || f->round != w->round)
        return;
    if (f->turn > w->done) { /* it has overtaken those that it would have to wait for */
        vote(w, false);
        return;
    }
    if (w->done - f->turn >= CL_LOG_WIDTH_DONE)
        return;
    uint64_t begun = w->done_ns[f->turn % CL_LOG_WIDTH_DONE], wait = begun > f->sent_ns ? begun - f->sent_ns : 0;
    if (wait >= w->lone_ns / LEAST_WAIT)
        vote(w, took > w->lone_ns + wait * SLOW_NUM / SLOW_DEN);
}

void cl_log_width_done(struct cl_log_width *w, const struct cl_log_flown *f, uint64_t now_ns)
{
    uint64_t took = now_ns > f->sent_ns ? now_ns - f->sent_ns : 0; /* 0: somebody set the clock back */
    if (!f->beside)
        flew_alone(w, f, took);
    else if (f->bytes <= SMALL_BYTES || f->bytes <= 2 * w->lone_bytes)
        judge(w, f, took);
    else if (w->tries && f->round == w->round)
        vote(w, false);
    w->done_ns[++w->done % CL_LOG_WIDTH_DONE] = now_ns;
}

/* In how many parts clients' commands go. In one: a batch has all of them, and nothing goes meanwhile; what a batch
 * costs is paid seldom. In many: batches are small, overlap, and wait for nobody. Which is better depends on what a
 * batch costs disks, processors and the network, on who shares them, and on who the clients are; none of that is known
 * to a leader. So it tries.
 *
 * Time goes in trials of ROUNDS rounds. In a cycle the best choice has `span` trials, and then each other one has one.
 * What counts is a score: the time for which each command has a client wait, in the mean. By Little's law that is the
 * number of commands that are there over those committed in a time. A client that has its answer and is expected to
 * send its next command counts as one that waits. So where clients wait for their answers, their number is the same
 * under each choice, and the choice of the least score commits most; and where commands come by themselves, it is the
 * one under which they wait least.
 *
 * A choice's score is held against the best one's of the same cycle, since both change with the load. Once two cycles
 * have been, a choice that is better by GAIN in the mean is the best one. Each cycle is longer than the one before, so
 * that trials of what is worse cost little, and what is far worse has one in SELDOM cycles; but cycles are short again
 * when the best choice changes, or its score.
 *
 * It begins with FIRST, many parts: that is never far from the best one, and right for a few commands. Where there is
 * one at a time all choices are the same, and nothing is learned; with too few to tell, FIRST it is.
 *
 * Pure: no clock, no randomness. */
#include "parts.h"

#define FIRST 4           /* the choice that a leader begins with: 16 parts */
#define SETTLE 4          /* rounds of a trial that do not count: what the choice before has done is in them */
#define ROUNDS 12         /* of a trial, in all */
#define LEAST_AT_ONCE 1.5 /* commands that are there in the mean: with fewer nothing is learned */
#define WEIGH 4           /* the newest trial weighs so much of a mean, or more */
#define LEARN_CYCLES 2    /* before the best choice may change */
#define MOST_SPAN 128
#define GAIN 0.98 /* better: its score is so much of the best one's at most */
#define FAR 1.25  /* far more: by so much */
#define WORST 2.0 /* more than this times the best one's score is taken for this: a stall is no choice's fault */
#define SELDOM 4  /* cycles, and what is far worse has a trial in one of them */
#define OFF 2     /* trials in a row that are far off: the load has changed */

static const uint8_t parts[CL_RAFT_PARTS_CHOICES] = {1, 2, 4, 8, 16};

uint32_t cl_raft_parts_now(const struct cl_raft_parts *p)
{
    return parts[p->begun ? p->now : FIRST];
}

static void into_mean(double *mean, double value)
{
    *mean = *mean ? *mean + (value - *mean) / WEIGH : value;
}

static void begin_trial(struct cl_raft_parts *p, uint8_t choice)
{
    p->now = choice;
    p->area_ns = p->busy_ns = p->done = 0;
    p->rounds = 0;
}

static void begin_cycle(struct cl_raft_parts *p, uint32_t span)
{
    p->span = span < 1 ? 1 : span > MOST_SPAN ? MOST_SPAN : span;
    p->trials = 0;
}

/* Ratios are over the new best one's score from now on. */
static void change_best(struct cl_raft_parts *p, uint8_t best)
{
    double by = p->ratio[best];
    p->ratio[p->best] = 1;
    for (unsigned i = 0; i < CL_RAFT_PARTS_CHOICES; i++)
        p->ratio[i] /= by;
    p->best = best;
    p->score = 0;
    p->off = 0;
    p->cycles = 1;
}

static void end_cycle(struct cl_raft_parts *p)
{
    uint8_t least = p->best;
    p->ratio[p->best] = GAIN;
    for (uint8_t i = 0; i < CL_RAFT_PARTS_CHOICES; i++)
        if (p->ratio[i] && p->ratio[i] < p->ratio[least])
            least = i;
    p->cycles++;
    if (p->cycles < LEARN_CYCLES) {
        begin_cycle(p, p->span);
    } else if (least != p->best) {
        change_best(p, least);
        begin_cycle(p, p->span / 4);
    } else {
        begin_cycle(p, 2 * p->span);
    }
}

static void best_scored(struct cl_raft_parts *p, double score)
{
    int32_t off = !p->score ? 0 : score > p->score * FAR ? 1 : score < p->score / FAR ? -1 : 0;
    p->off = off && (p->off > 0) == (off > 0) ? p->off + off : off;
    if (p->off >= OFF || p->off <= -OFF) {
        p->off = 0;
        p->score = 0;
        begin_cycle(p, p->span / 4);
    }
    into_mean(&p->score, score);
    p->last_score = score;
}

/* The choice of this cycle's next trial: the others come in their order. */
static uint8_t next_choice(const struct cl_raft_parts *p)
{
    if (p->trials < p->span)
        return p->best;
    uint8_t other = (uint8_t)(p->trials - p->span);
    return other < p->best ? other : other + 1;
}

/* What is far worse has a trial in one of SELDOM cycles. */
static bool is_left_out(const struct cl_raft_parts *p, uint8_t choice)
{
    return p->ratio[choice] > FAR && p->cycles % SELDOM;
}

static void end_trial(struct cl_raft_parts *p)
{
    double score = p->area_ns / p->done, ratio = score / p->last_score;
    if (p->now == p->best)
        best_scored(p, score);
    else
        into_mean(&p->ratio[p->now], ratio < WORST ? ratio : WORST);
    p->trials++;
    while (p->trials >= p->span && p->trials < CL_RAFT_PARTS_CHOICES - 1 + p->span && is_left_out(p, next_choice(p)))
        p->trials++;
    if (p->trials == p->span + CL_RAFT_PARTS_CHOICES - 1)
        end_cycle(p);
}

void cl_raft_parts_round(struct cl_raft_parts *p, uint64_t area_ns, uint64_t busy_ns, uint64_t done)
{
    if (!p->begun)
        *p = (struct cl_raft_parts){.begun = 1, .best = FIRST, .now = FIRST, .span = 1};
    if (p->rounds++ >= SETTLE) {
        p->area_ns += (double)area_ns;
        p->busy_ns += (double)busy_ns;
        p->done += (double)done;
    }
    if (p->rounds < ROUNDS)
        return;
    bool tells = p->done && p->area_ns >= LEAST_AT_ONCE * p->busy_ns;
    if (tells && p->now == next_choice(p))
        end_trial(p);
    begin_trial(p, tells ? next_choice(p) : FIRST);
}

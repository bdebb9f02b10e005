/* The service's turn: the clock, the node, its channels and the device of its log. Each burst of requests ends with
 * one, and so does each timer; while the log has something in flight the scheduler asks for them
 * (corelane/libos/complete.h). */
#include "internal.h"
#include <corelane/libos/log.h>
#include <corelane/runtime/clock.h>
#include <errno.h>
#include <stdio.h>

#define CHANNEL_GRAIN_NS 125000 /* what is due later moves with each burst: the timer not more often than this */

uint64_t serve_now(void *arg)
{
    const struct cl_raft_service *s = arg;
    return (uint64_t)cl_clock_ns(s->clock);
}

bool serve_disk_busy(const struct cl_raft_service *s)
{
    struct cl_log *log = s->config.node.log;
    return log && cl_raft_node_state(s->node) != CL_RAFT_STOPPED &&
           (cl_log_busy(log) || cl_raft_node_state(s->node) == CL_RAFT_RECOVERING);
}

static bool may_call(const struct cl_raft_service *s)
{
    return cl_raft_in_call_may(&s->in_call, s->now_ns) && cl_sched_alone();
}

void serve_begin(struct cl_raft_service *s)
{
    s->now_ns = serve_now(s);
}

void serve_poll(struct cl_raft_service *s)
{
    if (s->in_call.limit_ns)
        cl_blk_keep(s->config.blk, s->config.blk_queue, may_call(s));
    bool at_once = s->give && s->give(s);
    uint64_t next = cl_raft_node_poll(s->node);
    if (at_once)
        next = s->now_ns + 1;
    uint64_t due = raft_channel_poll(&s->channel, s->now_ns); /* after the node, whose frames acknowledge */
    if (due < UINT64_MAX - 2 * CHANNEL_GRAIN_NS)
        next = cl_min(next, due - due % CHANNEL_GRAIN_NS + CHANNEL_GRAIN_NS);
    if (next != s->timer.deadline_ns || !s->timer.pos)
        if (next != UINT64_MAX)
            cl_timer_arm(&s->timer, cl_max(next, 1ull));
    if (!s->disk_flies && serve_disk_busy(s)) {
        s->disk_flies = 1;
        cl_sched_in_flight(1);
    }
}

/* A lone write that was kept, once what was sent before it has gone: in this thread, or to the device. */
static void settle(struct cl_raft_service *s)
{
    struct cl_raft_in_call *c = &s->in_call;
    bool here = may_call(s);
    if (!cl_blk_settle(s->config.blk, s->config.blk_queue, here) || !here)
        return;
    uint64_t began = s->now_ns;
    serve_begin(s);
    cl_raft_in_call_ended(c, began, s->now_ns);
}

/* While the log has something in flight the scheduler polls the device for us, lets the kernel's worker run and, when
 * it parks, is woken by the device (corelane/libos/complete.h). In its loop. */
static unsigned collect(void *arg, unsigned self, unsigned k)
{
    struct cl_raft_service *s = arg;
    if (k != 0 || self != 0 || !s->disk_flies)
        return 0;
    serve_begin(s);
    settle(s);
    uint64_t before = cl_log_durable_index(s->config.node.log);
    serve_poll(s);
    bool more = cl_log_durable_index(s->config.node.log) != before;
    if (serve_disk_busy(s))
        return more;
    s->disk_flies = 0;
    cl_sched_landed(cl_runtime_sched(s->rt), 0, 1);
    return 1;
}

static void arm_disk(void *arg, unsigned k, bool on)
{
    struct cl_raft_service *s = arg;
    if (k == 0)
        cl_blk_arm(s->config.blk, s->config.blk_queue, on);
}

static bool disk_ready(void *arg, unsigned k)
{
    struct cl_raft_service *s = arg;
    return k == 0 && s->disk_flies && s->config.blk->ops->ready(s->config.blk, s->config.blk_queue);
}

static int sleep_on_disk(void *arg, unsigned k, const uint32_t *word, uint32_t value, int64_t timeout_ns)
{
    struct cl_raft_service *s = arg;
    (void)k;
    return s->config.blk->ops->wait_word(s->config.blk, s->config.blk_queue, word, value, timeout_ns);
}

static int disk_fd(void *arg, unsigned k)
{
    struct cl_raft_service *s = arg;
    return k == 0 ? cl_blk_fd(s->config.blk, s->config.blk_queue) : -1;
}

int serve_watch_disk(struct cl_raft_service *s, char err[256])
{
    s->completions = (struct cl_completions){.arg = s, .poll = collect, .arm = arm_disk, .fd = disk_fd};
    if (!s->config.node.log)
        return 0;
    if (s->config.blk && s->config.blk->ops->wait_word) {
        s->completions.ready = disk_ready;
        s->completions.sleep = sleep_on_disk;
    }
    if (!s->config.blk) {
        snprintf(err, 256, "a Raft node with a log needs the device that the log is on");
        return -EINVAL;
    }
    const struct cl_raft_node_config *c = &s->config.node;
    if (s->config.in_call)
        s->in_call.limit_ns = cl_raft_in_call_limit(c->tick_ns * c->raft.election_ticks);
    return cl_sched_completions_add(cl_runtime_sched(s->rt), &s->completions, err);
}

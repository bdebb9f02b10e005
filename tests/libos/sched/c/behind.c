/* A kthread that turns all the time and still falls behind: after some full polls in a row an idle sibling takes frames
 * from its queue, and no more once a poll was not full. Stepped, so that which look sees what is certain. */
#include "check.h"
#include "libos/sched/internal.h"

static unsigned queued[2], inbox[2], handled[2], stolen;

static unsigned poll_queue(void *arg, unsigned self, unsigned queue)
{
    unsigned n = cl_min(queued[queue], 32u);
    (void)arg;
    queued[queue] -= n;
    inbox[self] += n;
    stolen += self == queue ? 0 : n;
    return n;
}

static bool ready(void *arg, unsigned queue)
{
    (void)arg;
    return queued[queue] + inbox[queue] != 0;
}

static unsigned pending(void *arg, unsigned queue)
{
    (void)arg;
    return inbox[queue];
}

static void run(void *arg, unsigned self)
{
    (void)arg;
    handled[self] += inbox[self];
    inbox[self] = 0;
}

/* One turn of both; how many frames kthread 1 took meanwhile. */
static unsigned turn(struct cl_sched *s)
{
    unsigned before = stolen;
    CHECK(cl_sched_step(s, 0) > 0);
    CHECK_EQ(cl_sched_step(s, 1) > 0, stolen > before);
    unsigned took = stolen - before;
    while (inbox[1])
        CHECK(cl_sched_step(s, 1) > 0);
    return took;
}

int main(void)
{
    struct cl_work_source source = {.poll = poll_queue, .ready = ready, .pending = pending, .run = run};
    struct cl_sched_config c = config_from(0, NULL);
    c.n_kthreads = 2;
    c.source = &source;
    struct cl_sched *s = sched_new(&c);
    for (unsigned i = 0; i < 100; i++) { /* a load that it carries: a poll takes all there is */
        queued[0] = 1 + i % (CL_BEHIND_FRAMES - 1);
        CHECK_EQ(turn(s), 0);
    }
    for (unsigned burst = 0; burst < 3; burst++) { /* a burst that is over before it counts */
        queued[0] = (CL_BEHIND_POLLS - 1) * 32 + 1;
        while (queued[0])
            CHECK_EQ(turn(s), 0);
    }
    queued[0] = 10000;
    for (unsigned i = 1; i < CL_BEHIND_POLLS; i++)
        CHECK_EQ(turn(s), 0);
    unsigned shared = 0;
    for (; queued[0] > 64; shared++)
        CHECK_EQ(turn(s), 32);
    CHECK(shared > 100);
    queued[0] = 1;
    CHECK_EQ(turn(s), 0);
    while (queued[0])
        turn(s);
    CHECK(handled[1] > 3000 && handled[0] > 3000);
    CHECK_EQ(handled[1], stolen);
    cl_sched_delete(s);
    return 0;
}

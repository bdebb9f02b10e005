/* Every interleaving, up to a number of preemptions, of senders, receivers, selects, a close, a timer and a cancel on
 * channels: the code of libos/sched/channel.c on four threads. What was sent is received once, in order of each sender;
 * a call that fails has sent and received nothing; nobody is forgotten. Usage: channel_model PREEMPTIONS
 *
 * See model.h. */
#define THREADS 4
#include "model.h"

static struct cl_channel *a, *b;
static struct cl_scope *scope;
static uint64_t got[8];      /* how often each value was received */
static int results[THREADS]; /* 1: not known yet */
static bool ran, sent_both;

static void count_value(uint64_t value)
{
    check(value > 0 && value < 8, "a value that nobody sent");
    got[value]++;
    check(got[value] == 1, "a value was received twice");
}

static void receive_one(struct cl_channel *c, int64_t timeout_ns)
{
    uint64_t value = 0;
    int rc = cl_channel_receive(c, &value, timeout_ns);
    results[running] = rc;
    if (rc == 0)
        count_value(value);
    else
        check(value == 0, "one that failed has received something");
}

static void send_one(struct cl_channel *c, uint64_t value, int64_t timeout_ns)
{
    results[running] = cl_channel_send(c, &value, timeout_ns);
}

/* 0, 1: two senders and two receivers, through one slot or none. */
static void of_pairs(unsigned me)
{
    if (me < 2)
        send_one(a, me + 1, -1);
    else
        receive_one(a, -1);
    check(results[me] == 0, "a call that has a partner fails");
}

/* 2: one sends two to a channel of one slot and closes it; two receive until it is closed and empty. */
static void of_close(unsigned me)
{
    if (me == 0) {
        send_one(a, 1, -1);
        send_one(a, 2, -1);
        check(cl_channel_close(a) == 0, "it was open");
    } else if (me < 3) {
        do
            receive_one(a, -1);
        while (results[me] == 0);
        check(results[me] == -EPIPE, "an odd end");
    }
}

/* 3: the time of a receiver is over while one sends; 4: of a sender, who has a rendezvous with one that polls. */
static void of_time(unsigned me)
{
    if (me == 1) {
        while (scenario == 4 && !armed && results[0] == 1)
            wait_point(); /* nothing else may end it */
        expire_now();
    } else if (scenario == 3 && me == 0) {
        receive_one(a, 5);
        check(results[0] == 0 || results[0] == -ETIMEDOUT, "an odd result");
    } else if (scenario == 3 && me == 2) {
        send_one(a, 1, -1); /* there is a slot */
    } else if (scenario == 4 && me == 0) {
        send_one(a, 1, 5);
        check(results[0] == 0 || results[0] == -ETIMEDOUT, "an odd result");
    } else if (scenario == 4 && me == 2) {
        receive_one(a, 0);
        check(results[2] == 0 || results[2] == -EAGAIN, "an odd result");
    }
}

/* 5: a select over two channels, to each of which one sends; who is not received by it is by the next. */
static int select_both(int64_t timeout_ns)
{
    uint64_t values[2] = {0, 0};
    struct cl_channel_case cases[2] = {{a, &values[0], CL_CHANNEL_RECEIVE, 1}, {b, &values[1], CL_CHANNEL_RECEIVE, 1}};
    int rc = cl_channel_select(cases, 2, NULL, timeout_ns);
    if (rc >= 0) {
        check(cases[rc].rc == 0 && values[rc] && !values[1 - rc], "not exactly one case was done");
        count_value(values[rc]);
    } else {
        check(!values[0] && !values[1], "one that failed has received something");
    }
    return rc;
}

static void of_select(unsigned me)
{
    if (me == 0) {
        check(select_both(-1) >= 0, "a select fails");
        check(select_both(-1) >= 0, "a select fails");
    } else if (me < 3) {
        send_one(me == 1 ? a : b, me, -1);
        check(results[me] == 0, "a send fails");
    }
}

/* 6: two selects that meet: one receives from a or b, the other sends to b or a. And one more sender and receiver. */
static void of_meeting(unsigned me)
{
    if (me == 0) {
        check(select_both(-1) >= 0, "a select fails");
    } else if (me == 1) {
        uint64_t value = 1;
        struct cl_channel_case cases[2] = {{b, &value, CL_CHANNEL_SEND, 1}, {a, &value, CL_CHANNEL_SEND, 1}};
        check(cl_channel_select(cases, 2, NULL, -1) >= 0, "a select fails");
    } else if (me == 2) {
        send_one(a, 2, -1);
        check(results[2] == 0, "a send fails");
    } else {
        check(select_both(-1) >= 0, "a select fails");
    }
}

/* 7: a select of thread 0 is cancelled, or its time is over, while one sends to a channel of one slot. */
static void of_cancel(unsigned me)
{
    if (me == 0) {
        results[0] = select_both(5);
        check(results[0] >= 0 || results[0] == -ECANCELED || results[0] == -ETIMEDOUT, "an odd result");
    } else if (me == 1) {
        expire_now();
    } else if (me == 2) {
        send_one(a, 1, -1);
    } else {
        cl_scope_cancel(scope);
    }
}

/* 8: a sender and a receiver that wait are cancelled, closed or served; nobody is left behind. */
static void of_end(unsigned me)
{
    if (me == 0) {
        receive_one(a, -1);
        check(results[0] == 0 || results[0] == -ECANCELED || results[0] == -EPIPE, "an odd result");
    } else if (me == 1) {
        send_one(a, 1, -1);
        check(results[1] == 0 || results[1] == -EPIPE, "an odd result");
    } else if (me == 2) {
        cl_scope_cancel(scope);
    } else {
        check(cl_channel_close(a) == 0, "it was open");
    }
}

/* 9: a sender waits until one element was taken, and then for nothing, until it is cancelled. */
static void of_room(unsigned me)
{
    if (me == 0) {
        send_one(a, 1, -1);
        send_one(a, 2, -1);
        check(results[0] == 0, "a send fails");
        sent_both = true;
        receive_one(b, -1);
        check(results[0] == -ECANCELED, "a cancel got lost");
    } else if (me == 1) {
        receive_one(a, -1);
    } else if (me == 2) {
        while (!sent_both)
            wait_point();
        cl_scope_cancel(scope);
    }
}

static void (*const scenarios[])(unsigned me) = {of_pairs,  of_pairs,   of_close,  of_time, of_time,
                                                 of_select, of_meeting, of_cancel, of_end,  of_room};
static const uint32_t capacities[] = {0, 1, 1, 1, 0, 0, 0, 1, 0, 1};

static void thread_run(unsigned me)
{
    ran = true;
    scenarios[scenario](me);
}

/* After a run: what was sent was received, or is there. */
static void check_sums(void)
{
    uint64_t value, received = 0;
    for (struct cl_channel *c = a; c; c = c == a ? b : NULL) {
        while (cl_channel_receive(c, &value, 0) == 0)
            count_value(value);
        check(!c->waiting[0].first && !c->waiting[1].first, "somebody is left in a queue");
        check(c->stats.sent == c->stats.received, "sent and received do not add up");
        received += c->stats.received;
    }
    uint64_t sent = 0;
    for (unsigned i = 0; i < 8; i++)
        sent += got[i];
    check(sent == received, "a value has gone astray");
}

static void set_up(void)
{
    if (ran)
        check_sums();
    ran = sent_both = false;
    (void)cl_channel_delete(a);
    (void)cl_channel_delete(b);
    set_up_uthreads();
    memset(got, 0, sizeof got);
    for (unsigned i = 0; i < THREADS; i++)
        results[i] = 1;
    check(cl_channel_new(capacities[scenario], 8, &a) == 0, "no channel");
    check(cl_channel_new(capacities[scenario], 8, &b) == 0, "no channel");
    if (a > b) { /* a select takes locks by address, and runs are to repeat */
        struct cl_channel *higher = a;
        a = b;
        b = higher;
    }
    check(cl_scope_open(CL_SCOPE_FOREVER, &scope) == 0, "no scope"); /* of thread 0 */
}

int main(int argc, char **argv)
{
    unsigned bound = argc > 1 ? (unsigned)atoi(argv[1]) : 2;
    for (scenario = 0; scenario < sizeof scenarios / sizeof *scenarios; scenario++) {
        limit = bound;
        printf("scenario %u: %lu interleavings\n", scenario, explore(set_up));
        fflush(stdout);
    }
    ran = false;
    scenario = 0;
    set_up();
    (void)cl_channel_delete(a);
    (void)cl_channel_delete(b);
    cl_scopes_delete(&sched);
    return 0;
}

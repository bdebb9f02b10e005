/* See run.h. */
#include "run.h"
#include "side.h"
#include "../../apps/raft/core/bytes.h"
#include "../../drivers/random.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BEGIN_NS 1000000000ull /* 0 means `none` to protocols */
#define GREET_NS 100000000ull  /* the two sides get to know each other, without a loss */
#define GRACE_NS 1000000000ull
#define GREETING UINT64_MAX /* a frame's number */

_Static_assert(CL_BENCH_LOSS_DATAGRAM_BYTES == LOSS_DATAGRAM_BYTES + LOSS_OVERHEAD_BYTES, "run.h");

/* Side 0 sends frames that are their number and zeros; side 1 answers them with the same number, or does not. */
struct run {
    struct cl_bench_loss_result *result;
    struct loss_link links[2]; /* [i] is from side i to the other */
    struct loss_side *sides[2];
    uint64_t poll_ns[2], now_ns, counted_from_ns;
    uint64_t next, end; /* numbers that side 0 is to send */
    uint32_t bytes, answer_bytes;
    uint64_t *due_ns;  /* by number; NULL: a frame goes when the link has room, and none is answered */
    uint64_t *came_ns; /* answers, by number; UINT64_MAX: not yet */
    uint32_t *asked;   /* numbers, in the order of coming; side 1's transport has the answers of the first `answered` */
    uint64_t answered, n_asked;
    uint8_t *came; /* at side 1; a bit a number */
    uint64_t newest;
};

static bool put_frame(struct run *r, int from, uint64_t number, uint32_t bytes)
{
    uint8_t frame[CL_BENCH_LOSS_FRAME_BYTES] = {0};
    put64(frame, number);
    return r->sides[from]->send(r->sides[from], frame, bytes, r->now_ns);
}

/* Give the transport what is due; when the next is, if nothing comes before. */
static uint64_t feed(struct run *r)
{
    for (; r->next < r->end; r->next++) {
        uint64_t at_ns = r->due_ns ? r->due_ns[r->next] : loss_link_room_ns(&r->links[0]);
        if (at_ns > r->now_ns)
            return at_ns;
        if (!put_frame(r, 0, r->next, r->bytes))
            break; /* the window is full: there is room when an acknowledgement comes */
    }
    return UINT64_MAX;
}

static void answer(struct run *r)
{
    while (r->answered < r->n_asked && put_frame(r, 1, r->asked[r->answered], r->answer_bytes))
        r->answered++;
}

static void on_request(struct run *r, uint64_t number)
{
    uint8_t *byte = &r->came[number / 8], bit = (uint8_t)(1 << number % 8);
    r->result->twice += (*byte & bit) != 0;
    *byte |= bit;
    r->result->disordered += number < r->newest;
    r->newest = cl_max(r->newest, number);
    if (r->due_ns)
        r->asked[r->n_asked++] = (uint32_t)number;
    else if (r->now_ns >= r->counted_from_ns)
        r->result->delivered++;
}

static void on_answer(struct run *r, uint64_t number)
{
    r->result->twice += r->came_ns[number] != UINT64_MAX;
    r->came_ns[number] = r->now_ns;
    r->result->delivered++;
}

static void arrive(struct run *r, int link)
{
    const struct loss_datagram *d = loss_link_take(&r->links[link]);
    struct loss_side *to = r->sides[1 - link];
    uint32_t bytes;
    const uint8_t *frame = to->receive(to, d->data, d->bytes, r->now_ns, &bytes);
    if (!frame || get64(frame) == GREETING)
        return;
    if (link == 0)
        on_request(r, get64(frame));
    else
        on_answer(r, get64(frame));
}

static void poll_side(struct run *r, int side)
{
    r->poll_ns[side] = cl_max(r->sides[side]->poll(r->sides[side], r->now_ns), r->now_ns + 1);
}

/* Until a time, or until all answers are there. */
static void run_until(struct run *r, uint64_t end_ns)
{
    while (!r->due_ns || r->result->delivered < r->end) {
        uint64_t fed_ns = feed(r);
        answer(r);
        poll_side(r, 0);
        poll_side(r, 1);
        uint64_t arrive_ns[2] = {loss_link_next_ns(&r->links[0]), loss_link_next_ns(&r->links[1])};
        uint64_t poll_ns = cl_min(r->poll_ns[0], r->poll_ns[1]), first_ns = cl_min(arrive_ns[0], arrive_ns[1]);
        uint64_t at_ns = cl_min(cl_min(poll_ns, first_ns), cl_min(fed_ns, end_ns));
        r->now_ns = cl_max(r->now_ns, at_ns);
        if (at_ns == end_ns)
            return;
        if (first_ns == at_ns)
            arrive(r, arrive_ns[0] == at_ns ? 0 : 1);
    }
}

static int begin(struct run *r, const struct cl_bench_loss_settings *s)
{
    bool channel = s->protocol == CL_BENCH_LOSS_CHANNEL;
    for (uint32_t i = 0; i < 2; i++) {
        if (loss_link_init(&r->links[i], s->seed * 2 + i, s->bits_per_s, s->delay_ns))
            return -ENOMEM;
        r->sides[i] = channel ? loss_channel_new(i + 1, &r->links[i]) : loss_go_back_n_new(&r->links[i]);
        if (!r->sides[i])
            return -ENOMEM;
    }
    r->now_ns = BEGIN_NS;
    for (int i = 0; i < 2; i++)
        put_frame(r, i, GREETING, 8);
    run_until(r, BEGIN_NS + GREET_NS);
    for (int i = 0; i < 2; i++)
        loss_link_begin(&r->links[i], s->loss);
    memset(r->result->fates, CL_BENCH_LOSS_NOT_SENT, CL_BENCH_LOSS_FATES);
    r->links[0].fates = r->result->fates;
    r->links[0].n_fates = CL_BENCH_LOSS_FATES;
    return 0;
}

static void end(struct run *r)
{
    for (int i = 0; i < 2; i++) {
        if (r->sides[i])
            r->sides[i]->end(r->sides[i]);
        loss_link_free(&r->links[i]);
    }
    free(r->came);
    free(r->asked);
    free(r->due_ns);
}

static void sum(struct run *r)
{
    struct cl_bench_loss_result *out = r->result;
    for (int i = 0; i < 2; i++) {
        struct loss_side_counts c = r->sides[i]->counts(r->sides[i]);
        out->datagrams += r->links[i].number;
        out->lost += r->links[i].lost;
        out->sent_again += c.sent_again;
        out->timeouts += c.timeouts;
        out->probes += c.probes;
        out->duplicates += c.duplicates;
        out->given_up += c.given_up;
    }
}

static int fail(int rc, char err[256])
{
    snprintf(err, 256, "%s", rc == -EINVAL ? "such a link, or such frames, cannot be" : "no memory for the run");
    return rc;
}

static bool possible(const struct cl_bench_loss_settings *s)
{
    return s->bits_per_s && s->bits_per_s <= 1000000000000ull && s->loss >= 0 && s->loss < 1 &&
           s->protocol <= CL_BENCH_LOSS_GO_BACK_N;
}

int cl_bench_loss_stream(const struct cl_bench_loss_settings *s, uint64_t warm_ns, uint64_t measure_ns,
                         struct cl_bench_loss_result *result, char err[256])
{
    struct run r = {.result = result, .bytes = CL_BENCH_LOSS_FRAME_BYTES};
    *result = (struct cl_bench_loss_result){.ns = measure_ns};
    if (!possible(s))
        return fail(-EINVAL, err);
    int rc = begin(&r, s);
    double per_ns = (double)s->bits_per_s / 8e9 / CL_BENCH_LOSS_DATAGRAM_BYTES;
    r.end = (uint64_t)((double)(warm_ns + measure_ns) * per_ns) + LOSS_FLYING;
    r.came = calloc(r.end / 8 + 1, 1);
    if (!rc && r.came) {
        r.counted_from_ns = r.now_ns + warm_ns;
        run_until(&r, r.counted_from_ns + measure_ns);
        sum(&r);
    } else {
        rc = fail(-ENOMEM, err);
    }
    end(&r);
    return rc;
}

/* Frames whose times are drawn. */
static bool draw_times(struct run *r, uint64_t seed, double per_s)
{
    struct cl_random draw = {seed};
    double at_ns = (double)r->now_ns;
    r->due_ns = malloc(r->end * sizeof(*r->due_ns));
    r->asked = malloc(r->end * sizeof(*r->asked));
    r->came = calloc(r->end / 8 + 1, 1);
    for (uint64_t i = 0; r->due_ns && i < r->end; i++) {
        at_ns += cl_random_exp(&draw) * 1e9 / per_s;
        r->due_ns[i] = (uint64_t)at_ns;
        r->came_ns[i] = UINT64_MAX;
    }
    return r->due_ns && r->asked && r->came;
}

int cl_bench_loss_requests(const struct cl_bench_loss_settings *s, double per_s, uint32_t n, uint32_t request_bytes,
                           uint32_t answer_bytes, uint64_t *latency_ns, struct cl_bench_loss_result *result,
                           char err[256])
{
    struct run r = {.result = result, .bytes = request_bytes, .answer_bytes = answer_bytes, .came_ns = latency_ns};
    uint32_t least = cl_min(request_bytes, answer_bytes), most = cl_max(request_bytes, answer_bytes);
    *result = (struct cl_bench_loss_result){0};
    if (!possible(s) || least < 8 || most > CL_BENCH_LOSS_FRAME_BYTES || !n || !(per_s > 0))
        return fail(-EINVAL, err);
    int rc = begin(&r, s);
    r.end = n;
    if (!rc && draw_times(&r, s->seed, per_s)) {
        uint64_t began_ns = r.now_ns;
        run_until(&r, r.due_ns[n - 1] + GRACE_NS);
        result->ns = r.now_ns - began_ns;
        for (uint32_t i = 0; i < n; i++)
            latency_ns[i] -= latency_ns[i] == UINT64_MAX ? 0 : r.due_ns[i];
        sum(&r);
    } else {
        rc = fail(-ENOMEM, err);
    }
    end(&r);
    return rc;
}

/* See flight.h. */
#include "flight.h"

void cl_link_flight_init(struct cl_link_flight *f, const struct cl_link_config *c, const struct cl_clock *clock)
{
    f->delay_ticks = (uint64_t)cl_ns_to_ticks(clock, (int64_t)c->delay_ns);
    f->jitter_ticks = (uint64_t)cl_ns_to_ticks(clock, (int64_t)c->jitter_ns);
    f->overtake_ticks = (uint64_t)cl_ns_to_ticks(clock, CL_LINK_OVERTAKE_NS);
    f->reorder = c->reorder;
    f->reorder_by = c->reorder_by ? c->reorder_by : 3;
    cl_link_list_init(&f->flying);
    cl_link_list_init(&f->held);
}

static void fly(struct cl_link_flight *f, struct cl_link_store *s, uint32_t slot)
{
    cl_link_push(s, &f->flying, slot);
    f->passed++;
}

/* Let those go on that enough others have passed, behind the last of these. */
static void let_go(struct cl_link_flight *f, struct cl_link_store *s)
{
    while (f->held.first != CL_LINK_NONE && (int32_t)(f->passed - s->slots[f->held.first].passed) >= 0) {
        uint32_t slot = cl_link_pop(s, &f->held);
        s->slots[slot].at = f->last_tsc;
        fly(f, s, slot);
    }
}

bool cl_link_leave(struct cl_link_flight *f, struct cl_link_store *s, uint32_t slot, uint64_t left_tsc)
{
    struct cl_link_slot *frame = &s->slots[slot];
    /* Both draws for every frame, so that the n-th meets the same fate whatever the rates are. */
    bool back = cl_random_unit(&f->random) <= f->reorder;
    uint64_t jitter = cl_random_below(&f->random, f->jitter_ticks + 1);
    f->last_tsc = cl_max(f->last_tsc, left_tsc + f->delay_ticks + jitter);
    frame->at = f->last_tsc;
    frame->passed = f->passed + f->reorder_by;
    if (back)
        cl_link_push(s, &f->held, slot);
    else
        fly(f, s, slot);
    let_go(f, s);
    return back;
}

uint32_t cl_link_come(struct cl_link_flight *f, struct cl_link_store *s, uint64_t now)
{
    if (f->flying.first != CL_LINK_NONE && s->slots[f->flying.first].at <= now)
        return cl_link_pop(s, &f->flying);
    if (f->held.first != CL_LINK_NONE && s->slots[f->held.first].at + f->overtake_ticks <= now)
        return cl_link_pop(s, &f->held);
    return CL_LINK_NONE;
}

uint64_t cl_link_flight_next(const struct cl_link_flight *f, const struct cl_link_store *s)
{
    uint64_t next = f->flying.first == CL_LINK_NONE ? UINT64_MAX : s->slots[f->flying.first].at;
    if (f->held.first != CL_LINK_NONE)
        next = cl_min(next, s->slots[f->held.first].at + f->overtake_ticks);
    return next;
}

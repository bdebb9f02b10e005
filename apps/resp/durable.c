/* See durable.h. */
#include "durable.h"
#include "propagate.h"
#include "reply.h"

#include <errno.h>

#define FORM_PER_ARG 64 /* what the form of a write takes beyond its arguments, at most, but for a moved collection */
#define FORM_LEAST 512

static void enlist(struct cl_resp_client *c)
{
    struct cl_rdurable *d = &c->r->durable;
    if (c->held.listed)
        return;
    c->held.listed = true;
    c->held.prev = NULL;
    c->held.next = d->holding;
    if (d->holding)
        d->holding->held.prev = c;
    d->holding = c;
    d->n_holding++;
}

/* What is durable is open, and what waits behind it is next. */
static void advance(struct cl_resp_client *c)
{
    struct cl_rheld *h = &c->held;
    for (unsigned i = 0; i < 2 && h->first_unit <= c->r->durable.unit; i++) {
        h->open += h->first;
        h->opened += h->first != 0;
        h->first = h->rest;
        h->first_unit = h->rest_unit;
        h->rest = 0;
    }
}

void cl_rdurable_replied(struct cl_resp_client *c)
{
    struct cl_rheld *h = &c->held;
    uint64_t fresh = cl_rdurable_held(c) - h->first - h->rest;
    if (!c->r->durable.on)
        return;
    if (fresh) {
        if (c->r->durable.confirms && c->r->propagation.units <= c->r->durable.taken)
            c->r->propagation.units++;
        h->rest += fresh;
        h->rest_unit = c->r->propagation.units;
    }
    advance(c);
    if (cl_rdurable_held(c))
        enlist(c);
}

void cl_rdurable_taken(struct cl_resp_client *c, uint64_t n)
{
    if (c->r->durable.on)
        c->held.open -= n;
}

uint64_t cl_rdurable_held(const struct cl_resp_client *c)
{
    return c->r->durable.on ? c->out.bytes - c->held.open : 0;
}

void cl_rdurable_until(struct cl_resp *r, uint64_t unit)
{
    struct cl_rdurable *d = &r->durable;
    uint32_t answered = 0, again = 0;
    d->unit = cl_max(d->unit, unit);
    for (struct cl_resp_client *c = r->durable.holding, *next; c; c = next) {
        next = c->held.next;
        uint64_t open = c->held.open;
        advance(c);
        if (c->held.open != open) {
            answered++;
            again += c->held.answered_by == d->write;
            c->held.answered_by = d->write + 1;
            cl_client_wake(c);
        }
        if (!cl_rdurable_held(c))
            cl_rdurable_forget(c);
    }
    if (!answered)
        return;
    d->active = d->answered + answered - again;
    d->answered = answered;
    d->write++;
}

void cl_rdurable_failed(struct cl_resp *r, int error)
{
    r->durable.error = error;
    r->propagation.on = false;
    r->propagation.open.len = r->propagation.ended = 0;
    r->durable.rewriting = r->durable.finishing = false;
    for (struct cl_resp_client *c; (c = r->durable.holding);) {
        cl_reply_drop(c); /* which takes it off the list */
        c->flags |= CL_RC_CLOSE_NOW;
        r->durable.unanswered++;
        cl_client_wake(c);
    }
    r->durable.unit = UINT64_MAX; /* nobody waits any more: reads go on */
}

/* What a command will put into the log at most, as far as its arguments tell. */
static uint64_t form_bytes(const struct cl_resp_client *c)
{
    uint64_t bytes = FORM_LEAST + c->argc * (uint64_t)FORM_PER_ARG + c->queue_bytes;
    for (uint32_t i = 0; i < c->argc; i++)
        bytes += c->argv[i].len;
    return bytes;
}

bool cl_rdurable_may_write(struct cl_resp_client *c, const struct cl_rcmd *cmd)
{
    struct cl_rdurable *d = &c->r->durable;
    if (cl_likely(!d->on) || !(cmd->flags & CL_RF_WRITE))
        return true;
    /* What takes no memory may use what is kept back: it is the way out of a log that is full. */
    uint64_t room = d->room / (cmd->flags & CL_RF_DENYOOM ? 2 : 1);
    if (cl_likely(!d->error && c->r->propagation.open.len + form_bytes(c) <= room))
        return true;
    d->refused++;
    cl_reply_error(c, "MISCONF Errors writing to the AOF file: %s", strerror(d->error ? d->error : ENOSPC));
    return false;
}

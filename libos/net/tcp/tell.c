/* Calling the user (corelane/libos/tcp.h). Callbacks change the connection, but send nothing: the end of the turn
 * does. */
#include "machine.h"

static const struct cl_tcp_events nobody;

static const struct cl_tcp_events *user_of(const struct cl_tcp_conn *c)
{
    return c->user ? c->user : &nobody;
}

/* The user closed inside of `data`, and did not take all: the peer is to know (RFC 2525, section 2.17), if it lives. */
static void not_wanted(struct cl_tcp_conn *c)
{
    bool over = c->state == CL_TCP_CLOSED || c->state == CL_TCP_TIME_WAIT;
    if (c->receive.bytes == 0)
        return;
    if (!over)
        cl_tcp_abort(c);
    else
        cl_tcp_buffer_drop(c, CL_TCP_RECEIVE, c->receive.bytes);
}

/* Offer what waits, a chunk at a time. */
static void offer_waiting(struct cl_tcp_conn *c)
{
    if (!user_of(c)->data)
        return;
    while (c->receive.bytes) {
        const struct cl_chunk *chunk = c->receive.first;
        uint32_t len = chunk->len, took = cl_tcp_call_data(c, chunk->bytes + chunk->from, len);
        bool leased = c->turn->leased;        /* then it is out of the buffer */
        if (c->receive.bytes == 0 && !leased) /* the user closed, and it is gone */
            return;
        if (took && !leased)
            cl_tcp_buffer_drop(c, CL_TCP_RECEIVE, took);
        if (c->flags & CL_TCP_READ_SHUT) { /* the user closed meanwhile: the rest is not wanted */
            not_wanted(c);
            return;
        }
        if (took < len)
            break;
    }
    cl_tcp_window_opened(c);
}

/* The next event that may be told. 0: none. */
static unsigned next_event(const struct cl_tcp_conn *c)
{
    unsigned may = c->events;
    if (c->receive.bytes) /* the user reads what waits before it hears of an end */
        may &= ~(unsigned)(CL_TCP_EVENT_EOF | CL_TCP_EVENT_ENDED);
    return may & -may;
}

static void tell_one(struct cl_tcp_conn *c, unsigned event)
{
    const struct cl_tcp_events *user = user_of(c);
    if (event == CL_TCP_EVENT_DATA) {
        offer_waiting(c);
    } else if (event == CL_TCP_EVENT_RELEASED) {
        int64_t bytes = cl_tcp_take_released(c);
        if (user->released) {
            user->released(c, bytes, c->arg);
            cl_tcp_returned(c);
        }
    } else if (event == CL_TCP_EVENT_ENDED) {
        c->flags |= CL_TCP_TOLD;
        c->events = 0;
        if (user->ended) {
            user->ended(c, c->error, c->arg);
            cl_tcp_returned(c);
        }
        c->user = NULL;
    } else {
        void (*call)(struct cl_tcp_conn *, void *) = event == CL_TCP_EVENT_OPENED     ? user->opened
                                                     : event == CL_TCP_EVENT_WRITABLE ? user->writable
                                                     : event == CL_TCP_EVENT_TIMER    ? user->timer
                                                                                      : user->eof;
        if (call) {
            call(c, c->arg);
            cl_tcp_returned(c);
        }
    }
}

void cl_tcp_tell_events(struct cl_tcp_conn *c)
{
    if (c->flags & CL_TCP_TOLD)
        c->events = 0;
    for (unsigned event; (event = next_event(c));) {
        c->events &= (uint8_t)~event;
        tell_one(c, event);
    }
}

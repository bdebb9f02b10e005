/* The user's calls (RFC 9293, section 3.10.1 to 3.10.6). */
#include "window.h"

#include <errno.h>
#include <string.h>

#define SEND_MOST (1u << 30) /* numbers of a buffer stay comparable */
#define QUIET_MOST 4096      /* bytes, of a read that keeps others from the connection in a section of its own */

void cl_tcp_connect(struct cl_tcp_conn *c, const struct cl_tcp_events *user, void *arg)
{
    c->user = user;
    c->arg = arg;
    c->state = CL_TCP_SYN_SENT;
    c->progress_ms = cl_tcp_now_ms(c);
}

int64_t cl_tcp_write_room(const struct cl_tcp_conn *c, int64_t len)
{
    if ((c->flags & (CL_TCP_FIN_WANTED | CL_TCP_TOLD)) || c->state < CL_TCP_SYN_SENT || len < 0)
        return -EPIPE;
    uint32_t limit = cl_min(c->send.limit, SEND_MOST);
    uint32_t room = limit > c->send.bytes ? limit - c->send.bytes : 0;
    return cl_min(len, (int64_t)room);
}

void cl_tcp_wrote(struct cl_tcp_conn *c, int64_t len, int64_t room, int64_t done)
{
    if (done < len)
        c->flags |= CL_TCP_WANTS_ROOM;
    if (done)
        c->marks &= (uint8_t) ~(CL_TCP_MARKS_MORE | CL_TCP_MARKS_PUSH);
    if (done < room && c->send.bytes == 0) /* no acknowledgement will tell of room */
        cl_tcp_set(c, CL_TCP_TIMER_SEND, CL_TCP_RETRY_NS);
}

int64_t cl_tcp_write(struct cl_tcp_conn *c, const void *data, int64_t len)
{
    int64_t room = cl_tcp_write_room(c, len);
    struct cl_chunk *last = c->send.last;
    if (room < 0)
        return room;
    if (cl_likely(room == len && len && last && len <= cl_tcp_room_behind(last))) {
        if (c->send.bytes == 0) /* cl_tcp_buffer_acked */
            last->seq = cl_tcp_data_end(c);
        memcpy(last->data + last->from + last->len, data, (size_t)len);
        last->len = (uint16_t)(last->len + len);
        c->send.bytes += (uint32_t)len;
        cl_tcp_wrote(c, len, room, len);
        return len;
    }
    uint32_t done = cl_tcp_buffer_append(c, CL_TCP_SEND, cl_tcp_data_end(c), data, (uint32_t)room);
    cl_tcp_wrote(c, len, room, done);
    return done;
}

int64_t cl_tcp_read(struct cl_tcp_conn *c, void *data, int64_t room)
{
    uint8_t *to = data;
    int64_t done = 0;
    while (done < room && c->receive.bytes) {
        const struct cl_chunk *chunk = c->receive.first;
        uint32_t n = (uint32_t)cl_min(room - done, (int64_t)chunk->len);
        memcpy(to + done, chunk->bytes + chunk->from, n);
        cl_tcp_buffer_drop(c, CL_TCP_RECEIVE, n);
        done += n;
    }
    if (done)
        cl_tcp_window_opened(c);
    return done;
}

bool cl_tcp_reads_quietly(const struct cl_tcp_conn *c, int64_t room)
{
    uint32_t take = (uint32_t)cl_min(room, (int64_t)c->receive.bytes);
    if (take == 0 || take > QUIET_MOST || c->loans || c->events)
        return false;
    return cl_tcp_receive_room(c) + take < c->rcv_edge - c->rcv_nxt + cl_tcp_window_worth(c);
}

void cl_tcp_set_user(struct cl_tcp_conn *c, const struct cl_tcp_events *events, void *arg)
{
    c->user = events;
    c->arg = arg;
}

void cl_tcp_answers_later(struct cl_tcp_conn *c)
{
    c->flags |= CL_TCP_ANSWERED_LATER;
}

static void turn_flag(struct cl_tcp_conn *c, uint32_t flag, bool on)
{
    c->flags = on ? c->flags | flag : c->flags & ~flag;
}

void cl_tcp_no_delay(struct cl_tcp_conn *c, bool on)
{
    turn_flag(c, CL_TCP_NO_DELAY, on);
    if (on)
        c->marks |= CL_TCP_MARKS_PUSH;
}

void cl_tcp_cork(struct cl_tcp_conn *c, bool on)
{
    turn_flag(c, CL_TCP_CORK, on);
    if (on)
        return;
    c->marks &= (uint8_t)~CL_TCP_MARKS_MORE;
    if (c->flags & CL_TCP_NO_DELAY)
        c->marks |= CL_TCP_MARKS_PUSH;
}

void cl_tcp_more(struct cl_tcp_conn *c)
{
    c->marks |= CL_TCP_MARKS_MORE;
}

void cl_tcp_set_timer(struct cl_tcp_conn *c, uint64_t in_ns)
{
    bool never = in_ns == UINT64_MAX || c->state == CL_TCP_CLOSED;
    c->timer_at = never ? 0 : (uint32_t)((c->turn->now_ns + in_ns) / CL_TCP_USER_TIMER_NS + 1);
}

void cl_tcp_resume(struct cl_tcp_conn *c)
{
    if (!(c->flags & CL_TCP_OFFERING))
        c->events |= CL_TCP_EVENT_DATA;
}

void cl_tcp_shutdown(struct cl_tcp_conn *c)
{
    c->flags |= CL_TCP_FIN_WANTED;
    cl_tcp_not_plain(c);
    if (c->state == CL_TCP_ESTABLISHED)
        c->state = CL_TCP_FIN_WAIT_1;
    else if (c->state == CL_TCP_CLOSE_WAIT)
        c->state = CL_TCP_LAST_ACK;
}

/* Both sides are done already: what waits is not wanted, and `ended` waits for nothing more. */
static bool was_done(struct cl_tcp_conn *c)
{
    if (c->state != CL_TCP_CLOSED && c->state != CL_TCP_TIME_WAIT)
        return false;
    c->flags |= CL_TCP_READ_SHUT;
    if (c->receive.bytes && !(c->flags & CL_TCP_OFFERING))
        cl_tcp_buffer_drop(c, CL_TCP_RECEIVE, c->receive.bytes);
    return true;
}

void cl_tcp_close(struct cl_tcp_conn *c)
{
    if (was_done(c) || (c->flags & CL_TCP_READ_SHUT))
        return;
    bool unread = c->receive.bytes && !(c->flags & CL_TCP_OFFERING);
    c->flags |= CL_TCP_READ_SHUT;
    if (c->state == CL_TCP_SYN_SENT) {
        cl_tcp_end(c, c->send.bytes ? ECONNABORTED : 0);
        return;
    }
    if (unread) { /* RFC 2525, section 2.17 */
        cl_tcp_abort(c);
        return;
    }
    cl_tcp_shutdown(c);
    if (c->state == CL_TCP_FIN_WAIT_2)
        cl_tcp_set(c, CL_TCP_TIMER_KEEP, c->settings->fin_wait_ms * CL_TCP_MS);
}

void cl_tcp_abort(struct cl_tcp_conn *c)
{
    if (was_done(c))
        return;
    if (c->state >= CL_TCP_SYN_RECEIVED)
        cl_tcp_send_reset(c, c->nxt, true);
    c->flags |= CL_TCP_READ_SHUT;
    cl_tcp_end(c, ECONNABORTED);
}

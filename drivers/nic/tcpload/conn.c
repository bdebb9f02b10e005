/* Connections: what comes, and what leaves. */
#include "engine.h"

#define MSS_DEFAULT 536 /* of a server that names none (RFC 9293, section 3.7.1) */

void cl_tcpload_queue(struct cl_tcpload *load, struct conn *c)
{
    if (c->flags & IN_OUT)
        return;
    c->flags |= IN_OUT;
    ring_push(&load->out, (uint32_t)(c - load->conns));
}

static void send_now(struct cl_tcpload *load, struct conn *c)
{
    c->flags |= NOW;
    cl_tcpload_queue(load, c);
}

static void reset(struct cl_tcpload *load, struct conn *c)
{
    c->state = RESETTING;
    send_now(load, c);
}

/* An acknowledgement is owed; of two segments it is sent at once. */
static void owe(struct cl_tcpload *load, struct conn *c)
{
    if (c->rcv_nxt - c->acked >= 2u * load->mss) {
        send_now(load, c);
        return;
    }
    if (!(c->flags & OWES))
        c->ack_ms = load->now_ms + ACK_MS;
    c->flags |= OWES;
    if (!(c->flags & IN_LATER)) {
        c->flags |= IN_LATER;
        ring_push(&load->later, (uint32_t)(c - load->conns));
    }
}

void cl_tcpload_open_one(struct cl_tcpload *load, struct conn *c)
{
    uint32_t flow = ring_pop(&load->free_flows), iss = (uint32_t)cl_random_next(&load->random);
    uint16_t place = (uint16_t)cl_tcpload_place((uint16_t)(load->config.first_port + flow % load->config.ports));
    if (load->config.script)
        place = (uint16_t)((uint64_t)flow * load->config.script->lines / load->flows);
    *c = (struct conn){.una = iss,
                       .nxt = iss + 1,
                       .end = iss + 1,
                       .edge = iss + 1,
                       .flow = flow,
                       .since_ms = load->now_ms,
                       .out_place = place,
                       .in_place = place,
                       .flags = c->flags & (IN_OUT | IN_LATER),
                       .mss = MSS_DEFAULT,
                       .state = OPENING};
    load->conn_of[flow] = (uint32_t)(c - load->conns);
    load->n_opening++;
    send_now(load, c);
}

/* The connection is no more; its flow may be used again when all others have been. */
static void forget(struct cl_tcpload *load, struct conn *c)
{
    if (c->state == OPENING)
        load->n_opening--;
    else
        cl_store_relaxed(&load->n_open, load->n_open - 1);
    load->conn_of[c->flow] = NONE;
    ring_push(&load->free_flows, c->flow);
    load->outstanding -= !!(c->flags & BUSY);
    c->state = CLOSED;
    c->flags &= IN_OUT | IN_LATER;
    if (load->config.traffic == CL_TCPLOAD_CHURN)
        ring_push(&load->idle, (uint32_t)(c - load->conns));
}

void cl_tcpload_ask(struct cl_tcpload *load, struct conn *c, uint64_t intended, uint32_t phase, uint64_t now)
{
    struct cl_tcpload_counts *counts = &load->phases[phase].counts;
    uint64_t lateness = now - intended;
    if (load->config.traffic == CL_TCPLOAD_CHURN)
        cl_tcpload_open_one(load, c);
    else
        c->end += request_bytes(load, c);
    c->intended = intended;
    c->phase = (uint16_t)phase;
    c->got = 0;
    c->flags |= BUSY;
    load->outstanding++;
    cl_count(&counts->sent, 1);
    if (cl_unlikely(lateness > load->late_ticks)) {
        uint64_t ns = (uint64_t)cl_ticks_to_ns(load->clock, (int64_t)lateness);
        cl_count(&counts->late, 1);
        cl_store_relaxed(&counts->late_max_ns, cl_max(counts->late_max_ns, ns));
    }
    cl_tcpload_queue(load, c);
}

static void answered(struct cl_tcpload *load, struct conn *c, uint64_t now)
{
    struct phase *p = phase_of(load, c);
    c->flags &= (uint16_t)~BUSY;
    load->outstanding--;
    if (c->flags & SPOILED)
        return;
    cl_count(&p->counts.answered, 1);
    cl_store_relaxed(&p->counts.last_tsc, now);
    if (p->latency)
        cl_hist_record(p->latency,
                       now > c->intended ? (uint64_t)cl_ticks_to_ns(load->clock, (int64_t)(now - c->intended)) : 0);
}

/* Whether the bytes are those that are to come next. */
static bool is_right(const struct cl_tcpload *load, const struct conn *c, const struct segment *s)
{
    const struct cl_tcpload_script *script = load->config.script;
    if (!script)
        return memcmp(s->data, load->pattern + c->in_place, s->len) == 0;
    return (c->flags & BUSY) && s->len <= answer_bytes(load, c) - c->got &&
           memcmp(s->data, script->answers + script->answer_at[c->out_place] + c->got, s->len) == 0;
}

/* The next line of the script. */
static void turn_over(const struct cl_tcpload *load, struct conn *c)
{
    if (load->config.script)
        c->out_place = c->out_place + 1u < load->config.script->lines ? (uint16_t)(c->out_place + 1) : 0;
}

/* Bytes in order. */
static void take_data(struct cl_tcpload *load, struct conn *c, const struct segment *s, uint64_t now)
{
    uint32_t traffic = load->config.traffic, asked = answer_bytes(load, c);
    bool right = is_right(load, c, s);
    c->in_place = place_after(c->in_place, s->len);
    c->rcv_nxt += s->len;
    c->got += s->len;
    owe(load, c);
    if (traffic == CL_TCPLOAD_ASK || traffic == CL_TCPLOAD_CHURN)
        right = right && (c->flags & BUSY) && c->got <= asked;
    else
        right = right && traffic == CL_TCPLOAD_RECEIVE;
    struct phase *p = c->flags & BUSY ? phase_of(load, c) : &load->phases[load->current];
    if (cl_unlikely(!right)) {
        cl_count(&p->counts.wrong, 1);
        c->flags |= SPOILED;
    } else if (state_of(load) >= CL_TCPLOAD_RUNNING) {
        cl_count(&load->phases[load->current].counts.bytes_in, s->len);
    }
    if (!(c->flags & BUSY) || c->got < asked)
        return;
    if (traffic == CL_TCPLOAD_CHURN) {
        c->flags |= CLOSES;
        cl_tcpload_queue(load, c);
    } else {
        answered(load, c, now);
        turn_over(load, c);
        ring_push(&load->idle, (uint32_t)(c - load->conns));
    }
}

static void established(struct cl_tcpload *load, struct conn *c, const struct segment *s)
{
    c->state = OPEN;
    c->una = s->ack;
    c->rcv_nxt = c->acked = s->seq + 1;
    c->edge = s->ack + s->window; /* not scaled in a SYN */
    c->mss = (uint16_t)cl_min(s->mss ? s->mss : MSS_DEFAULT, load->mss);
    if (s->scale != 255 && !load->config.plain) {
        c->snd_scale = s->scale & 15;
        c->rcv_scale = load->window_scale & 15;
    }
    if (s->has_times && !load->config.plain) {
        c->flags |= TIMES;
        c->ts_recent = s->ts_val;
        c->mss -= TIMES_BYTES; /* RFC 6691 */
    }
    load->n_opening--;
    cl_store_relaxed(&load->n_open, load->n_open + 1); /* read by cl_tcpload_open */
    cl_count(&load->other.opened, 1);
    if (load->config.traffic == CL_TCPLOAD_CHURN)
        c->end += load->config.request_bytes;
    if (load->config.traffic == CL_TCPLOAD_ASK)
        ring_push(&load->idle, (uint32_t)(c - load->conns));
    if (load->config.traffic == CL_TCPLOAD_SEND)
        c->flags |= ENDLESS;
    send_now(load, c);
}

static void take_syn(struct cl_tcpload *load, struct conn *c, const struct segment *s)
{
    if ((s->flags & (SYN | ACK)) == (SYN | ACK) && s->ack == c->nxt)
        established(load, c, s);
    else if ((s->flags & ACK) && load->n_owed < OWED_MOST) /* of an older connection (RFC 9293, section 3.10.7.3) */
        load->owed[load->n_owed++] = (struct owed){.flow = c->flow, .seq = s->ack};
}

static void take_ack(struct cl_tcpload *load, struct conn *c, const struct segment *s)
{
    if (before(c->una, s->ack) && !before(c->nxt, s->ack)) {
        if (state_of(load) >= CL_TCPLOAD_RUNNING && (c->flags & ENDLESS))
            cl_count(&load->phases[load->current].counts.bytes_out, s->ack - c->una);
        c->una = s->ack;
        c->since_ms = load->now_ms;
    }
    uint32_t edge = s->ack + (s->window << c->snd_scale);
    if (before(c->edge, edge))
        c->edge = edge;
    if ((c->flags & ENDLESS) && c->edge - c->nxt >= c->mss && !before(c->edge, c->nxt))
        cl_tcpload_queue(load, c);
}

/* Both have closed, and know it: there is nothing to wait for (the server has no TIME_WAIT, and the port has a
 * rest). */
static bool is_over(const struct conn *c)
{
    return (c->flags & (FIN_OUT | FIN_IN)) == (FIN_OUT | FIN_IN) && c->una == c->nxt;
}

/* One of both has closed, or knows it. A server that closes before it was asked to leaves a request unanswered. */
static void take_end(struct cl_tcpload *load, struct conn *c, const struct segment *s, uint64_t now)
{
    if (s->flags & FIN) {
        c->rcv_nxt++;
        c->flags |= FIN_IN | CLOSES;
        c->flags |= NOW;
    }
    if (is_over(c) && (c->flags & BUSY) && c->got == load->config.request_bytes)
        answered(load, c, now);
    cl_tcpload_queue(load, c);
}

void cl_tcpload_take(struct cl_tcpload *load, const struct segment *s, uint64_t now)
{
    uint32_t index = load->conn_of[s->flow];
    if (cl_unlikely(index == NONE)) {
        if (!(s->flags & RST) && (s->flags & ACK) && load->n_owed < OWED_MOST)
            load->owed[load->n_owed++] = (struct owed){.flow = s->flow, .seq = s->ack};
        return;
    }
    struct conn *c = &load->conns[index];
    if (cl_unlikely(c->state == RESETTING))
        return;
    if (cl_unlikely(s->flags & RST)) {
        cl_count(&load->other.resets, 1);
        forget(load, c);
        return;
    }
    if (cl_unlikely(c->state == OPENING)) {
        take_syn(load, c, s);
        return;
    }
    if (cl_unlikely(s->len && between_runs(load))) {
        reset(load, c);
        return;
    }
    take_ack(load, c, s);
    if (cl_unlikely(s->seq != c->rcv_nxt)) {
        if (s->len || (s->flags & (SYN | FIN))) {
            cl_count(before(s->seq, c->rcv_nxt) ? &load->other.again : &load->other.gaps, 1);
            send_now(load, c);
        }
        return;
    }
    if (s->has_times)
        c->ts_recent = s->ts_val;
    if (s->len)
        take_data(load, c, s, now);
    if ((s->flags & FIN) || (c->flags & FIN_IN))
        take_end(load, c, s, now);
}

/* The next segment of an open connection. False: it has none to send. */
static bool emit_one(struct cl_tcpload *load, struct conn *c, struct cl_frame *frame)
{
    uint32_t room = before(c->edge, c->nxt) ? 0 : c->edge - c->nxt;
    uint32_t left = c->flags & ENDLESS ? UINT32_MAX : c->flags & FIN_OUT ? 0 : c->end - c->nxt;
    uint32_t len = cl_min(cl_min(left, room), (uint32_t)c->mss);
    if (len < c->mss && len < left)
        len = 0; /* silly window: whole segments only (RFC 9293, section 3.8.6.2.1) */
    bool fin = (c->flags & (CLOSES | FIN_OUT)) == CLOSES && len == left;
    if (!len && !fin && !(c->flags & NOW))
        return false;
    uint8_t flags = (uint8_t)(ACK | (fin ? FIN : 0) | (len && len == left ? PSH : 0));
    cl_tcpload_write(load, c, flags, c->nxt, len, frame);
    if (c->una == c->nxt)
        c->since_ms = load->now_ms;
    c->nxt += len + fin;
    if (!load->config.script)
        c->out_place = place_after(c->out_place, len);
    c->acked = c->rcv_nxt;
    c->flags &= (uint16_t) ~(NOW | OWES);
    c->flags |= fin ? FIN_OUT : 0;
    return true;
}

/* It is written next, to its end: whoever received from that buffer last has its lines. */
static void fetch(const struct conn *c, const struct cl_frame *frame)
{
    for (uint32_t i = 0; i < (uint32_t)c->mss + CL_CACHELINE; i += CL_CACHELINE)
        cl_prefetch_write(frame->data + i);
}

unsigned cl_tcpload_emit(struct cl_tcpload *load, struct conn *c, struct cl_frame *frames, unsigned n)
{
    unsigned k = 0;
    if (cl_unlikely(c->state == OPENING || c->state == RESETTING)) {
        if (!(c->flags & NOW))
            return 0;
        c->flags &= (uint16_t)~NOW;
        cl_tcpload_write(load, c, c->state == OPENING ? SYN : RST | ACK, c->nxt, 0, frames);
        if (c->state == RESETTING)
            forget(load, c);
        return 1;
    }
    if (c->state == CLOSED)
        return 0;
    for (; k < n; k++) {
        if ((c->flags & ENDLESS) && k + 1 < n)
            fetch(c, &frames[k + 1]);
        if (!emit_one(load, c, &frames[k]))
            break;
    }
    if (is_over(c) && !(c->flags & NOW))
        forget(load, c);
    return k;
}

void cl_tcpload_reset(struct cl_tcpload *load, bool all)
{
    for (uint32_t i = 0; i < load->config.connections; i++) {
        struct conn *c = &load->conns[i];
        if (c->state == OPENING) /* nobody knows of it but by chance, and gets a reset then */
            forget(load, c);
        else if (c->state == OPEN && (all || !is_fit(c)))
            reset(load, c);
    }
}

static void go_back(struct cl_tcpload *load, struct conn *c)
{
    cl_count(&load->other.resent, 1);
    c->since_ms = load->now_ms;
    if (c->state == OPEN) {
        uint32_t bytes = c->nxt - c->una - !!(c->flags & FIN_OUT);
        if (!load->config.script)
            c->out_place =
                (uint16_t)((c->out_place + (uint64_t)CL_TCPLOAD_PATTERN * (bytes / CL_TCPLOAD_PATTERN + 1) - bytes) %
                           CL_TCPLOAD_PATTERN);
        c->nxt = c->una;
        c->flags &= (uint16_t)~FIN_OUT;
    }
    send_now(load, c);
}

void cl_tcpload_look_for_losses(struct cl_tcpload *load)
{
    struct conn *c = &load->conns[load->looked_at];
    load->looked_at = load->looked_at + 1 < load->config.connections ? load->looked_at + 1 : 0;
    bool waits = c->state == OPENING || (c->state == OPEN && c->una != c->nxt);
    if (cl_unlikely(waits && load->now_ms - c->since_ms >= RESEND_MS))
        go_back(load, c);
}

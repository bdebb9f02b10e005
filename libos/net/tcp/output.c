/* Sending: what may leave now, and the segments for it (RFC 9293, sections 3.7.4, 3.8.6 and 3.10.8's numbers). */
#include "window.h"

static bool has_sacks(const struct cl_tcp_conn *c)
{
    return c->aside || c->turn->twice.from != c->turn->twice.to;
}

/* SACK blocks go with every acknowledgement while something is missing. */
static unsigned sack_blocks(const struct cl_tcp_conn *c, struct cl_tcp_range *out)
{
    unsigned room = c->flags & CL_TCP_TIMES ? CL_TCP_MAX_SACKS - 1 : CL_TCP_MAX_SACKS, n = 0;
    bool twice = c->turn->twice.from != c->turn->twice.to;
    if (!(c->flags & CL_TCP_SACKS))
        return 0;
    if (twice) /* first (RFC 2883, section 4) */
        out[n++] = c->turn->twice;
    return n + cl_tcp_aside_sacks(c, out + n, room - n);
}

static inline void say_times(const struct cl_tcp_conn *c, struct cl_tcp_options *o, uint32_t now_ms)
{
    if (c->flags & CL_TCP_TIMES) {
        o->has |= CL_TCPO_TIMES;
        o->ts_val = now_ms + c->ts_offset;
        o->ts_ecr = c->ts_recent;
    }
}

/* What all segments but SYNs and resets say of us now. */
static void fill(struct cl_tcp_conn *c, struct cl_tcp_segment *s)
{
    s->window = cl_tcp_window(c, false);
    if (c->marks & CL_TCP_MARKS_ECHO)
        s->flags |= CL_TCPF_ECE;
    say_times(c, &s->options, cl_tcp_now_ms(c));
    if (cl_unlikely(has_sacks(c)))
        s->options.n_sack = (uint8_t)sack_blocks(c, s->options.sack);
}

uint32_t cl_tcp_mss_now(const struct cl_tcp_conn *c)
{
    struct cl_tcp_range blocks[CL_TCP_MAX_SACKS];
    unsigned n = cl_unlikely(has_sacks(c)) ? sack_blocks(c, blocks) : 0;
    return c->cc.mss - (n ? 4 + 8 * n : 0);
}

static inline bool emit(struct cl_tcp_conn *c, const struct cl_tcp_segment *s, const struct cl_tcp_bytes *data)
{
    static const struct cl_tcp_bytes none;
    struct cl_tcp_turn *turn = c->turn;
    if (!turn->emit(turn, c, s, data ? data : &none)) {
        cl_tcp_set(c, CL_TCP_TIMER_SEND, CL_TCP_RETRY_NS);
        return false;
    }
    cl_count(&turn->counts->segments_out, 1);
    cl_count(&turn->counts->bytes_out, s->len);
    return true;
}

/* An acknowledgement has left. */
static void acked(struct cl_tcp_conn *c)
{
    c->flags &= ~(uint32_t)(CL_TCP_ACK_NOW | CL_TCP_ACK_SOON);
    cl_tcp_unset(c, CL_TCP_TIMER_ACK);
    c->turn->twice = (struct cl_tcp_range){0};
    c->last_ack_sent = c->rcv_nxt;
}

void cl_tcp_send_ack(struct cl_tcp_conn *c)
{
    struct cl_tcp_segment s = {.seq = c->nxt, .ack = c->rcv_nxt, .flags = CL_TCPF_ACK};
    fill(c, &s);
    if (emit(c, &s, NULL)) {
        if (c->quick)
            c->quick--;
        acked(c);
    }
}

void cl_tcp_send_probe(struct cl_tcp_conn *c)
{
    struct cl_tcp_segment s = {.seq = c->una - 1, .ack = c->rcv_nxt, .flags = CL_TCPF_ACK};
    fill(c, &s);
    cl_count(&c->turn->counts->probes, 1);
    (void)emit(c, &s, NULL); /* its timer comes again */
}

void cl_tcp_send_reset(struct cl_tcp_conn *c, uint32_t seq, bool ack)
{
    struct cl_tcp_segment s = {.seq = seq, .flags = CL_TCPF_RST};
    if (ack) {
        s.flags |= CL_TCPF_ACK;
        s.ack = c->rcv_nxt;
    }
    if (c->flags & CL_TCP_TIMES) { /* RFC 7323, section 3.2: it should */
        s.options.has = CL_TCPO_TIMES;
        s.options.ts_val = cl_tcp_now_ms(c) + c->ts_offset;
        s.options.ts_ecr = c->ts_recent;
    }
    cl_count(&c->turn->counts->resets_out, 1);
    (void)emit(c, &s, NULL); /* if it is lost the peer asks again, and then nobody knows it */
}

void cl_tcp_challenge(struct cl_tcp_conn *c)
{
    uint32_t now = cl_tcp_now_ms(c) / CL_TCP_CHALLENGE_STEP_MS;
    if (((now - c->challenge_at) & 0x7fff) >= CL_TCP_CHALLENGE_MS / CL_TCP_CHALLENGE_STEP_MS) {
        c->challenge_at = now & 0x7fff;
        c->challenges = 0;
    }
    if (c->challenges == CL_TCP_CHALLENGES) {
        cl_count(&c->turn->counts->challenges_limited, 1);
        return;
    }
    c->challenges++;
    cl_count(&c->turn->counts->challenges, 1);
    cl_tcp_send_ack(c);
}

void cl_tcp_syn(struct cl_tcp_conn *c, struct cl_tcp_segment *s)
{
    *s = (struct cl_tcp_segment){.seq = c->una, .flags = CL_TCPF_SYN | cl_tcp_ecn_of_syn(c)};
    if (c->state == CL_TCP_SYN_RECEIVED) {
        s->flags |= CL_TCPF_ACK;
        s->ack = c->rcv_nxt;
    }
    s->window = cl_tcp_window(c, true);
    cl_tcp_offer_options(c, &s->options);
}

static void send_syn(struct cl_tcp_conn *c)
{
    bool again = c->flags & CL_TCP_SYN_OUT;
    struct cl_tcp_segment s;
    cl_tcp_syn(c, &s);
    if (!emit(c, &s, NULL))
        return;
    if (c->state == CL_TCP_SYN_RECEIVED)
        acked(c);
    c->flags |= CL_TCP_SYN_OUT;
    cl_tcp_sent(c, c->una, c->una + 1, again);
    if (c->due_ns[CL_TCP_TIMER_RESEND] == CL_TCP_NEVER) /* a SYN that comes again and again puts no end off */
        cl_tcp_set(c, CL_TCP_TIMER_RESEND, cl_tcp_conn_rto_ns(c));
}

/* A new segment fills the congestion window, and that in one go: nothing that is under way was sent before. */
static bool ends_burst(struct cl_tcp_conn *c, uint32_t len)
{
    struct cl_tcp_walk w;
    const struct cl_tcp_record *first = cl_tcp_walk_first(c, &w);
    return (!first || first->sent_ns == c->turn->now_ns) && cl_tcp_in_flight(c) + len + c->cc.mss > c->cc.window;
}

/* A segment that is not full has left: small_under_way asks. */
static void note_small(struct cl_tcp_conn *c, uint32_t end)
{
    if (c->marks & CL_TCP_MARKS_REDUCED)
        return;
    c->marks |= CL_TCP_MARKS_SMALL;
    c->small_seq = end;
}

/* A segment of data from seq on, with the FIN if that is so. False: there is no buffer. */
static bool send_data(struct cl_tcp_conn *c, uint32_t seq, uint32_t len, bool fin)
{
    struct cl_tcp_segment s = {.seq = seq, .ack = c->rcv_nxt, .flags = CL_TCPF_ACK, .len = (uint16_t)len};
    struct cl_tcp_bytes data = cl_tcp_buffer_at(c, seq, len);
    uint32_t end = seq + len + fin;
    bool again = cl_seq_before(seq, c->nxt);
    if (!again && !cl_tcp_board_room(c)) {
        cl_tcp_set(c, CL_TCP_TIMER_SEND, CL_TCP_RETRY_NS);
        return false;
    }
    if (len && (seq + len == cl_tcp_data_end(c) || seq + len == c->una + c->wnd || (!again && ends_burst(c, len))))
        s.flags |= CL_TCPF_PSH; /* no more comes soon */
    if (fin)
        s.flags |= CL_TCPF_FIN;
    fill(c, &s);
    if ((c->marks & CL_TCP_MARKS_ECN) && len && !again) {
        s.ecn = CL_TCP_ECT0;
        s.flags |= c->marks & CL_TCP_MARKS_SAY_REDUCED ? CL_TCPF_CWR : 0;
    }
    if (!emit(c, &s, &data)) {
        cl_tcp_board_unused(c);
        return false;
    }
    if (s.ecn)
        c->marks &= (uint8_t)~CL_TCP_MARKS_SAY_REDUCED;
    acked(c);
    if (c->una == c->nxt) { /* nothing was under way */
        c->progress_ms = cl_tcp_now_ms(c);
        cl_tcp_unset(c, CL_TCP_TIMER_RESEND);
    }
    cl_tcp_sent(c, seq, end, again);
    if (fin)
        c->flags |= CL_TCP_FIN_OUT;
    if (!again && len && len < c->cc.mss)
        note_small(c, seq + len);
    c->flags &= ~(uint32_t)CL_TCP_FORCE;
    cl_tcp_watch_sent(c, again);
    return true;
}

/* What is lost, as far as the windows allow. False: it waits, and so does what is new. */
static bool send_lost(struct cl_tcp_conn *c)
{
    uint32_t seq, end;
    while (cl_tcp_lost(c, &seq, &end)) {
        uint32_t len = cl_min(end - seq, cl_tcp_mss_now(c)), data_end = cl_tcp_data_end(c);
        bool fin = false;
        if (cl_unlikely((c->flags & CL_TCP_TRIES_PATH) && end - seq > len))
            cl_tcp_path_failed(c);
        if (cl_seq_before(data_end, seq + len)) { /* the last number is the FIN's */
            len = data_end - seq;
            fin = true;
        } else if (seq + len == data_end && (c->flags & CL_TCP_FIN_OUT) && end != data_end) {
            fin = true; /* it goes with the last byte again */
        }
        bool fits = cl_tcp_in_flight(c) + len <= c->cc.window && cl_seq_upto(seq + len, c->una + c->wnd);
        if (!fits && !(c->flags & CL_TCP_FORCE))
            return false;
        if (!send_data(c, seq, len, fin))
            return false;
    }
    return true;
}

/* A small segment is under way (draft-minshall-nagle-00): full ones are no reason to wait for their
 * acknowledgements. */
static bool small_under_way(const struct cl_tcp_conn *c)
{
    if (c->marks & CL_TCP_MARKS_REDUCED) /* it is not known */
        return c->una != c->nxt;
    return (c->marks & CL_TCP_MARKS_SMALL) && cl_seq_before(c->una, c->small_seq) && cl_seq_upto(c->small_seq, c->nxt);
}

/* Whether all that waits, which fills no segment, leaves: Nagle's rule (RFC 9293, section 3.7.4), and those who hold it
 * on purpose. They hold it for a time-out of retransmission at most, as nothing is under way by then (persist). */
static bool small_leaves(const struct cl_tcp_conn *c)
{
    if (c->marks & CL_TCP_MARKS_PUSH)
        return true;
    if ((c->flags & CL_TCP_CORK) || (c->marks & CL_TCP_MARKS_MORE))
        return false;
    return (c->flags & CL_TCP_NO_DELAY) || !small_under_way(c);
}

/* How much new data a segment takes now; *fin: with the FIN. False: none, and no FIN. */
static bool choose_new(const struct cl_tcp_conn *c, uint32_t *len, bool *fin)
{
    uint32_t unsent = c->flags & CL_TCP_FIN_OUT ? 0 : cl_tcp_data_end(c) - c->nxt;
    if (unsent == 0 && !cl_tcp_fin_due(c))
        return false;
    uint32_t under_way = c->nxt - c->una, flight = cl_tcp_in_flight(c), full = cl_tcp_mss_now(c);
    uint32_t window = c->wnd > under_way ? c->wnd - under_way : 0;
    uint32_t congestion = c->cc.window > flight ? c->cc.window - flight : 0;
    if (c->flags & CL_TCP_FORCE) /* a probe (RFC 8985, section 7.3) */
        congestion = cl_max(congestion, full);
    *len = cl_min(cl_min(unsent, full), cl_min(window, congestion));
    *fin = cl_tcp_fin_due(c) && *len == unsent && window > *len;
    if (*len == 0)
        return *fin;
    if (*len == full || *fin || (c->flags & CL_TCP_FORCE))
        return true;
    if (*len == unsent)
        return small_leaves(c);
    /* Held by a window: only if that is worth it (section 3.8.6.2.1). */
    return *len >= c->wnd_max / 2 && *len == window;
}

/* After a burst: the next one, so that a window takes a round trip. */
static void pace(struct cl_tcp_conn *c)
{
    cl_tcp_set(c, CL_TCP_TIMER_SEND, c->rtt.smoothed_ns * CL_TCP_BURST * c->cc.mss / c->cc.window);
}

/* New data in a packet that is larger than the path is known to take: followed by as much, so that it shows soon when
 * that one alone is lost. */
static void try_path(struct cl_tcp_conn *c)
{
    uint32_t unsent = c->flags & CL_TCP_FIN_OUT ? 0 : cl_tcp_data_end(c) - c->nxt, under_way = c->nxt - c->una;
    uint32_t window = c->wnd > under_way ? c->wnd - under_way : 0, flight = cl_tcp_in_flight(c);
    uint32_t most = cl_min(unsent, cl_min(window, c->cc.window > flight ? c->cc.window - flight : 0)) / 2;
    if (c->flags & (CL_TCP_TRIES_PATH | CL_TCP_RECOVERING))
        return;
    uint32_t len = cl_tcp_path_try(c, most);
    if (len && send_data(c, c->nxt, len, false))
        cl_tcp_path_tried(c);
}

static void send_new(struct cl_tcp_conn *c)
{
    bool paced = (c->marks & CL_TCP_MARKS_PACED) && !(c->flags & CL_TCP_FORCE), fin;
    uint32_t len;
    if (paced && c->due_ns[CL_TCP_TIMER_SEND] != CL_TCP_NEVER)
        return;
    if (cl_unlikely(cl_tcp_path_limits(c)))
        try_path(c);
    for (unsigned n = 1; choose_new(c, &len, &fin); n++) {
        if (!send_data(c, c->nxt, len, fin))
            return;
        if (paced && n == CL_TCP_BURST) {
            pace(c);
            return;
        }
    }
}

/* What nearly every answer to a request is: a segment at most, which nothing holds, while nothing is under way or
 * missing. `send_new` would send it all, and `send_answer` does what is left of that then. */
static inline bool is_answer(const struct cl_tcp_conn *c, uint32_t now_ms)
{
    uint32_t len = c->send.bytes, asked = CL_TCP_PLAIN | CL_TCP_FIN_WANTED | CL_TCP_CORK | CL_TCP_FORCE;
    uint8_t harmless = CL_TCP_MARKS_SMALL | CL_TCP_MARKS_PUSH;
    return (c->flags & asked) == CL_TCP_PLAIN && len && len <= c->cc.mss && len <= c->wnd && len <= c->cc.window &&
           c->una == c->nxt && c->send.first == c->send.last && !(c->marks & (uint8_t)~harmless) &&
           c->turn->twice.from == c->turn->twice.to &&
           now_ms - c->progress_ms < c->settings->rto_least_ms; /* restart_after_idle */
}

static inline bool send_answer(struct cl_tcp_conn *c, uint32_t now_ms)
{
    uint32_t seq = c->nxt, len = c->send.bytes;
    struct cl_tcp_bytes data = {c->send.first, c->send.first->from, len};
    struct cl_tcp_segment s; /* without SACK blocks, which are not looked at */
    s.seq = seq;
    s.ack = c->rcv_nxt;
    s.window = cl_tcp_window(c, false);
    s.urgent = 0;
    s.flags = CL_TCPF_ACK | CL_TCPF_PSH;
    s.len = (uint16_t)len;
    s.ecn = 0;
    s.options.has = s.options.n_sack = 0;
    say_times(c, &s.options, now_ms);
    if (!emit(c, &s, &data))
        return false;
    acked(c);
    c->send_at = c->send.first;
    c->progress_ms = now_ms;
    c->one = (struct cl_tcp_record){.sent_ns = c->turn->now_ns, .seq = seq, .len = (uint16_t)len};
    c->nxt = seq + len;
    if (len < c->cc.mss) {
        c->marks |= CL_TCP_MARKS_SMALL;
        c->small_seq = c->nxt;
    }
    cl_tcp_watch_first(c);
    return true;
}

/* Something is to leave after a while in which nothing did: what the window knew of the path is old (RFC 2861), and no
 * acknowledgements come that would say when to send. */
static void restart_after_idle(struct cl_tcp_conn *c)
{
    if (c->una != c->nxt || c->send.bytes == 0 || c->settings->keeps_window)
        return;
    uint64_t idle_ns = (cl_tcp_now_ms(c) - c->progress_ms) * CL_TCP_MS, rto_ns;
    if (idle_ns == 0 || idle_ns < (rto_ns = cl_tcp_conn_rto_ns(c)))
        return;
    cl_tcp_cc_idle(&c->cc, idle_ns, rto_ns);
    c->marks |= CL_TCP_MARKS_PACED;
}

/* Something waits for the peer's window, and nothing is under way whose acknowledgement would tell of it. */
static void watch_window(struct cl_tcp_conn *c)
{
    if (c->una != c->nxt || c->due_ns[CL_TCP_TIMER_RESEND] != CL_TCP_NEVER)
        return;
    if (c->send.bytes == 0 && !cl_tcp_fin_due(c))
        return;
    c->progress_ms = cl_tcp_now_ms(c);
    cl_tcp_set(c, CL_TCP_TIMER_RESEND, cl_tcp_conn_rto_ns(c));
    cl_tcp_stall_window(c);
}

/* A request has come, as a rule, and is not answered yet: nothing is to leave. */
static inline bool is_quiet(const struct cl_tcp_conn *c)
{
    uint32_t asked = CL_TCP_PLAIN | CL_TCP_FIN_WANTED | CL_TCP_FORCE | CL_TCP_ACK_NOW;
    return (c->flags & asked) == CL_TCP_PLAIN && c->send.bytes == 0 && cl_tcp_is_plain(c);
}

void cl_tcp_output(struct cl_tcp_conn *c)
{
    uint32_t now_ms = cl_tcp_now_ms(c);
    if (is_quiet(c))
        return;
    if (cl_likely(is_answer(c, now_ms)) && send_answer(c, now_ms))
        return;
    cl_tcp_not_plain(c);
    if (c->state == CL_TCP_SYN_SENT || c->state == CL_TCP_SYN_RECEIVED) {
        if (!(c->flags & CL_TCP_SYN_OUT) || cl_tcp_board_lost(c))
            send_syn(c);
        return;
    }
    if (c->state < CL_TCP_ESTABLISHED)
        return;
    if (c->state != CL_TCP_TIME_WAIT) {
        restart_after_idle(c);
        if (send_lost(c))
            send_new(c);
        watch_window(c);
        c->flags &= ~(uint32_t)CL_TCP_FORCE;
    }
    if (c->flags & CL_TCP_ACK_NOW)
        cl_tcp_send_ack(c);
}

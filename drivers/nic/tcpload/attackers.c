/* An attacker with connections of its own. They take turns, in each of which one sends at most one segment; one that
 * the server has just let in comes before that. What a segment says is the kind's. There are no timestamps, no scale
 * of windows, and no timers: what was lost is sent again some turns later.
 *
 * Of those that overlap each has its own turn for the missing piece, which makes the server answer what waits behind
 * it, some 4 KiB. If all did so in the same 5 ms they would ask for 8 Gb/s of answers, which is more than a core has
 * time for whoever asks so, and says nothing of pieces that overlap. */
#include "engine.h"

#include <stdlib.h>

#define DATA_BYTES 1400
#define SLOW_BYTES 64      /* that a slow reader takes in a turn */
#define SLOW_WINDOW 512    /* that it offers */
#define AGAIN_TURNS 16     /* go back to what is not acknowledged; the missing piece of those that overlap */
#define OVERLAP_BYTES 4096 /* within which pieces lie */

enum { GONE = 1, ASKED, HERE, STALE };

void cl_tcpload_attackers_free(struct attack *a)
{
    free(a->own);
    free(a->answers.at);
    *a = (struct attack){0};
}

bool cl_tcpload_attackers_new(struct attack *a, uint32_t n)
{
    a->own = calloc(n, sizeof *a->own);
    if (!a->own || !cl_tcpload_make_ring(&a->answers, n)) {
        cl_tcpload_attackers_free(a);
        return false;
    }
    for (uint32_t i = 0; i < n; i++)
        a->own[i].state = GONE; /* touched now: who measures memory shall not find it later */
    a->n = n;
    return true;
}

static void answer(struct attack *a, struct attacker *m)
{
    if (m->answers)
        return;
    m->answers = true;
    ring_push(&a->answers, (uint32_t)(m - a->own));
}

void cl_tcpload_attackers_take(struct cl_tcpload *load, const struct segment *s)
{
    struct attack *a = &load->attack;
    struct attacker *m = &a->own[s->attacker];
    if (s->flags & RST) {
        m->state = GONE;
    } else if (m->state == HERE && (s->flags & SYN)) { /* what opened it was lost */
        m->turns = 0;
        answer(a, m);
    } else if (m->state == ASKED && (s->flags & (SYN | ACK)) == (SYN | ACK) && s->ack == m->nxt) {
        m->state = HERE;
        m->una = m->first = m->nxt;
        m->edge = s->ack + s->window;
        m->answer = m->rcv_nxt = m->told = s->seq + 1;
        cl_count(&load->other.attackers, 1);
        answer(a, m);
    } else if (m->state == ASKED && (s->flags & ACK)) { /* of a connection that an earlier run left behind */
        m->state = STALE;
        m->nxt = s->ack;
        answer(a, m);
    } else if (m->state == HERE) {
        if (before(m->una, s->ack))
            m->una = s->ack;
        if (before(m->edge, s->ack + s->window))
            m->edge = s->ack + s->window;
        if (s->seq != m->rcv_nxt)
            return;
        m->rcv_nxt += s->len;
        cl_count(&load->other.attackers_bytes, s->len);
    }
}

/* As much new data as the server's window takes. */
static void ask_more(const struct cl_tcpload *load, struct attacker *m, struct forged *f, uint32_t most)
{
    uint32_t room = before(m->nxt, m->edge) ? m->edge - m->nxt : 0;
    if (m->turns % AGAIN_TURNS == 0)
        m->nxt = m->una;
    f->seq = m->nxt;
    f->len = (uint16_t)cl_min(cl_min(room, most), load->config.mtu - 40u);
    f->place = (uint16_t)(m->nxt % CL_TCPLOAD_PATTERN);
    m->nxt += f->len;
}

/* Data with other bytes at each time. */
static void piece(struct forged *f, uint32_t seq, uint32_t len, uint64_t r)
{
    f->seq = seq;
    f->len = (uint16_t)len;
    f->place = (uint16_t)((r >> 40) % CL_TCPLOAD_PATTERN);
}

/* What a connection that is open sends in this turn. False: nothing. */
static bool say(struct cl_tcpload *load, struct attacker *m, struct forged *f)
{
    uint64_t r = cl_random_next(&load->attack.random);
    switch (load->attack.kind) {
    case CL_TCPLOAD_ATTACK_ZERO_WINDOW:
        f->window = 0;
        ask_more(load, m, f, DATA_BYTES);
        return true;
    case CL_TCPLOAD_ATTACK_SLOW_READER:
        m->told += cl_min(m->rcv_nxt - m->told, (uint32_t)SLOW_BYTES);
        f->ack = m->told;
        f->window = SLOW_WINDOW;
        ask_more(load, m, f, DATA_BYTES);
        return true;
    case CL_TCPLOAD_ATTACK_TINY:
        f->ack = m->rcv_nxt;
        f->window = 1;
        ask_more(load, m, f, 1);
        return true;
    case CL_TCPLOAD_NEIGHBOUR:
        f->ack = m->rcv_nxt;
        ask_more(load, m, f, load->config.request_bytes);
        return true;
    case CL_TCPLOAD_ATTACK_OPTIMISTIC:
        f->ack = m->turns % 2 ? m->answer + (m->nxt - m->first) : m->rcv_nxt; /* the server echoes what it is sent */
        if (m->turns % 2 == 0)
            ask_more(load, m, f, DATA_BYTES);
        return true;
    case CL_TCPLOAD_ATTACK_OVERLAP:
        f->ack = m->rcv_nxt;
        if ((m->turns + (uint32_t)(m - load->attack.own)) % AGAIN_TURNS == 0)
            piece(f, m->una, DATA_BYTES, r);
        else
            piece(f, m->una + 1 + r % OVERLAP_BYTES, 1 + (uint32_t)(r >> 20) % DATA_BYTES, r);
        return true;
    case CL_TCPLOAD_ATTACK_OUTSIDE:
        f->ack = m->rcv_nxt;
        piece(f, m->edge + 1 + (r & 0xfffffff), DATA_BYTES, r);
        return true;
    default:
        return m->turns == 1; /* CL_TCPLOAD_ATTACK_PORTS: it acknowledges the server's SYN */
    }
}

static struct attacker *next_one(struct attack *a)
{
    struct attacker *m = &a->own[ring_len(&a->answers) ? ring_pop(&a->answers) : a->turn++ % a->n];
    m->answers = false;
    return m;
}

bool cl_tcpload_attackers_turn(struct cl_tcpload *load, struct cl_frame *frame)
{
    struct attack *a = &load->attack;
    struct attacker *m = next_one(a);
    uint32_t index = (uint32_t)(m - a->own);
    struct forged f = {.ip = load->config.ip + ATTACKERS_FROM + index % ATTACKERS,
                       .port = (uint16_t)(ATTACKERS_PORT + index / ATTACKERS),
                       .flags = ACK,
                       .window = 65535,
                       .seq = m->nxt,
                       .ack = m->told};
    if (m->state == STALE) {
        m->state = GONE;
        f.flags = RST;
    } else if (m->state == HERE) {
        m->turns++;
        if (!say(load, m, &f))
            return false;
    } else {
        if (m->state == GONE)
            *m = (struct attacker){.state = ASKED, .nxt = (uint32_t)cl_random_next(&a->random) + 1};
        f.flags = SYN;
        f.seq = m->nxt - 1;
        f.ack = 0;
        f.mss = a->kind == CL_TCPLOAD_ATTACK_TINY;
    }
    cl_tcpload_write_forged(load, &f, frame);
    return true;
}

/* What was sent to a peer and is kept until it is acknowledged: when it goes again. See channel.h, "Sending". */
#include "internal.h"

#define BURST 32    /* sent again at a time */
#define OVERTAKEN 3 /* places, where the network reorders */
#define REORDERS_NS 1000000000ull

uint64_t raft_channel_timeout_ns(const struct raft_channel_peer *p)
{
    return raft_rtt_timeout_ns(&p->rtt);
}

uint64_t raft_kept_probe_at(const struct raft_channel_peer *p)
{
    uint64_t ns = raft_rtt_probe_ns(&p->rtt, p->probed);
    bool may = p->first < p->next && p->theirs && !p->silent && ns < raft_channel_timeout_ns(p);
    return may ? p->sent_ns + ns : UINT64_MAX;
}

uint64_t raft_kept_timeout_at(const struct raft_channel_peer *p)
{
    if (p->first == p->next)
        return UINT64_MAX;
    return (p->theirs ? raft_sent_of(p, p->first)->at_ns : p->asked_ns) + raft_channel_timeout_ns(p);
}

void raft_kept_transmit(struct raft_channel *ch, struct raft_channel_peer *p, uint64_t number, uint64_t now_ns)
{
    struct raft_sent *s = raft_sent_of(p, number);
    uint8_t *datagram = p->buffers + (uint64_t)s->buffer * ch->buffer_bytes;
    raft_datagram_header(ch, p, datagram, RAFT_DATAGRAM_NUMBERED, number);
    if (s->times) {
        cl_count(&p->count.retransmitted, 1);
        p->again_until = cl_max(p->again_until, number);
    }
    s->at_ns = p->sent_ns = now_ns;
    s->place = ++p->place;
    s->overtaken = false;
    s->times += s->times < 255;
    if (raft_datagram_emit(ch, p, datagram, s->bytes))
        raft_channel_acknowledged_in_header(p);
    raft_channel_due_at(ch, cl_min(now_ns + raft_channel_timeout_ns(p), raft_kept_probe_at(p)));
}

void raft_kept_again(struct raft_channel *ch, struct raft_channel_peer *p, uint64_t before_ns, uint64_t now_ns)
{
    unsigned n = 0;
    for (uint64_t i = p->first; i < p->next && n < BURST; i++) {
        struct raft_sent *s = raft_sent_of(p, i);
        if (!s->kept || s->at_ns >= before_ns)
            continue;
        n++;
        raft_kept_transmit(ch, p, i, now_ns);
    }
}

static bool earlier(uint32_t place, uint32_t other)
{
    return (int32_t)(other - place) > 0;
}

/* Where the network keeps the order, whatever went before what came is lost. */
static bool overtaken(const struct raft_channel_peer *p, const struct raft_sent *s, uint64_t now_ns)
{
    if (!earlier(s->place, p->came_place))
        return false;
    bool keeps_order = now_ns >= p->reorders_until_ns, far = p->came_place - s->place >= OVERTAKEN && s->times == 1;
    return keeps_order || far || now_ns - s->at_ns >= raft_rtt_late_ns(&p->rtt);
}

void raft_kept_overtaken(struct raft_channel *ch, struct raft_channel_peer *p, uint64_t now_ns)
{
    unsigned n = 0;
    p->look = false;
    for (uint64_t i = p->first; i < p->next && n < BURST; i++) {
        struct raft_sent *s = raft_sent_of(p, i);
        if (!s->kept)
            continue;
        if (overtaken(p, s, now_ns)) {
            n++;
            raft_kept_transmit(ch, p, i, now_ns);
            s->overtaken = true;
        } else if (i > p->again_until) {
            break; /* those after it went after it */
        }
    }
}

static void forget(struct raft_channel_peer *p, uint64_t number)
{
    struct raft_sent *s = raft_sent_of(p, number);
    if (s->kept)
        p->free[p->n_free++] = s->buffer;
    s->kept = 0;
}

void raft_kept_forget_all(struct raft_channel_peer *p, uint64_t *counter)
{
    cl_count(counter, RAFT_CHANNEL_WINDOW - p->n_free);
    for (; p->first < p->next; p->first++)
        forget(p, p->first);
    p->silent = 0;
    p->probed = 0;
    p->tried = false;
}

/* What an acknowledgement tells. */
struct news {
    uint64_t sent_ns; /* of the newest that came and went only once; 0: there is none */
    uint32_t place;   /* the latest that is known to have come */
    bool reordered;
};

static void settle(struct raft_channel_peer *p, uint64_t number, uint64_t now_ns, struct news *news)
{
    const struct raft_sent *s = raft_sent_of(p, number);
    if (!s->kept)
        return;
    forget(p, number);
    p->silent = p->probed = 0;
    p->look = true;
    /* Of one that went again it is the last sending that came, unless that was too short a time ago (RFC 8985, section
     * 6.2). */
    bool last = s->times == 1 || now_ns - s->at_ns >= p->rtt.least_ns / 2;
    news->reordered |= last ? s->times == 1 && earlier(s->place, p->came_place) : s->overtaken;
    if (last && earlier(news->place, s->place))
        news->place = s->place;
    if (s->times == 1)
        news->sent_ns = cl_max(news->sent_ns, s->at_ns);
}

void raft_kept_acknowledged(struct raft_channel *ch, struct raft_channel_peer *p, uint64_t ack, const uint64_t *words,
                            uint32_t n_words, uint64_t now_ns)
{
    struct news news = {.place = p->came_place};
    uint32_t before = p->n_free, silent = p->silent;
    if (ack >= p->next)
        return;
    for (uint64_t n = p->first; n <= ack; n++)
        settle(p, n, now_ns, &news);
    for (uint32_t k = 0; k < n_words; k++)
        for (uint64_t left = words[k]; left; left &= left - 1) {
            uint64_t n = ack + 2 + 64 * (uint64_t)k + (uint64_t)__builtin_ctzll(left);
            if (n >= p->first && n < p->next)
                settle(p, n, now_ns, &news);
        }
    while (p->first < p->next && !raft_sent_of(p, p->first)->kept)
        p->first++;
    p->came_place = news.place;
    if (news.reordered)
        p->reorders_until_ns = now_ns + REORDERS_NS;
    if (news.sent_ns)
        raft_rtt_sample(&p->rtt, now_ns > news.sent_ns ? now_ns - news.sent_ns : 0);
    if (silent && p->n_free == before && !p->tried) { /* it is there, and has not got what went last */
        p->tried = true;
        raft_kept_again(ch, p, now_ns, now_ns);
    }
}

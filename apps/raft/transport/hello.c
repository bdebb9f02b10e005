/* Who is at the other end: hellos, and what changes with another incarnation. See channel.h, "Incarnations". */
#include "internal.h"

#define ASK_NS (2 * RAFT_RTT_MS) /* between two hellos that ask */

static void say_hello(struct raft_channel *ch, struct raft_channel_peer *p, uint64_t to, uint64_t word, uint64_t back)
{
    uint8_t datagram[RAFT_CHANNEL_HEADER] = {0};
    raft_datagram_header(ch, p, datagram, RAFT_DATAGRAM_HELLO, p->first);
    put64(datagram + 24, to);
    put64(datagram + 40, word);
    put64(datagram + 48, back);
    raft_datagram_emit(ch, p, datagram, sizeof(datagram));
}

static uint64_t word_for(struct raft_channel *ch, struct raft_channel_peer *p)
{
    while (!p->word) {
        uint64_t z = ch->random += 0x9e3779b97f4a7c15ull;
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
        z = (z ^ z >> 27) * 0x94d049bb133111ebull;
        p->word = z ^ z >> 31;
    }
    return p->word;
}

void raft_hello_ask(struct raft_channel *ch, struct raft_channel_peer *p, uint64_t to, uint64_t now_ns)
{
    if (p->word && now_ns < p->asked_ns + ASK_NS)
        return;
    p->asked_ns = now_ns;
    say_hello(ch, p, to, word_for(ch, p), 0);
}

static void adopt(struct raft_channel *ch, struct raft_channel_peer *p, uint64_t theirs, uint64_t now_ns)
{
    if (p->theirs) {
        raft_kept_forget_all(p, &p->count.reset);
        p->first = p->next = 1;
    }
    p->theirs = theirs;
    p->rtt = (struct raft_rtt){0};
    p->silent = p->probed = 0;
    p->came_place = p->place;
    p->again_until = 0;
    p->came = (struct raft_numbers){0};
    raft_pieces_drop_before(&p->pieces, UINT64_MAX);
    raft_channel_acknowledged(p);
    for (uint64_t n = p->first; n < p->next; n++)
        raft_kept_transmit(ch, p, n, now_ns); /* none has gone yet */
}

void raft_hello_take(struct raft_channel *ch, struct raft_channel_peer *p, const uint8_t *data, uint64_t now_ns)
{
    uint64_t theirs = get64(data + 16), word = get64(data + 40), back = get64(data + 48);
    bool lives = p->word && back == p->word && get64(data + 24) == ch->incarnation;
    bool known = theirs == p->theirs || lives;
    cl_count(&p->count.control, 1);
    /* Before anything numbered goes, which it takes only when it knows us. */
    if (word && !known)
        p->asked_ns = now_ns;
    if (word)
        say_hello(ch, p, theirs, known ? 0 : word_for(ch, p), word);
    if (!lives)
        return;
    p->word = 0;
    if (theirs != p->theirs)
        adopt(ch, p, theirs, now_ns);
}

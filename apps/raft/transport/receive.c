/* Datagrams that come: acknowledgements, frames and pieces of them. See channel.h, "Receiving". */
#include "internal.h"

#include <errno.h>

static void ack_by(struct raft_channel *ch, struct raft_channel_peer *p, uint64_t at_ns)
{
    p->ack_at_ns = p->ack_at_ns ? cl_min(p->ack_at_ns, at_ns) : at_ns;
    raft_channel_due_at(ch, p->ack_at_ns);
}

/* A numbered datagram of the present incarnations. */
static const uint8_t *on_numbered(struct raft_channel *ch, struct raft_channel_peer *p, uint64_t number,
                                  struct raft_piece *piece, uint64_t now_ns)
{
    const uint8_t *frame = NULL;
    if (raft_numbers_has(&p->came, number)) {
        cl_count(&p->count.duplicates, 1);
        ack_by(ch, p, now_ns);
        return NULL;
    }
    int rc = number > p->came.got + RAFT_CHANNEL_WINDOW || piece->index >= number ? -EINVAL : 0;
    piece->frame = number - piece->index;
    if (!rc && !piece->index && piece->n == piece->bytes)
        frame = piece->data; /* the usual case, not copied */
    else if (!rc)
        rc = raft_pieces_enter(&p->pieces, piece, &frame);
    if (rc < 0) {
        cl_count(rc == -ENOBUFS ? &p->count.no_room : &p->count.malformed, 1);
        return NULL;
    }
    raft_numbers_add(&p->came, number);
    cl_count(&p->count.accepted, 1);
    bool soon = ++p->unacknowledged >= RAFT_CHANNEL_ACK_EVERY || p->came.highest > p->came.got;
    ack_by(ch, p, soon ? now_ns : now_ns + RAFT_ACK_DELAY_NS);
    return frame;
}

/* The acknowledgement that a datagram carries, which has more words behind the header if it is nothing else. */
static void on_acknowledgement(struct raft_channel *ch, struct raft_channel_peer *p, const uint8_t *data, uint32_t more,
                               uint64_t now_ns)
{
    uint64_t words[RAFT_NUMBERS_WORDS] = {get64(data + 48)};
    uint32_t n = 1 + more;
    for (uint32_t k = 1; k < n; k++)
        words[k] = get64(data + RAFT_CHANNEL_HEADER + 8 * (k - 1));
    raft_kept_acknowledged(ch, p, get64(data + 40), words, n, now_ns);
}

/* Whether what is behind the header can be. */
static bool well_formed(const struct raft_piece *piece, bool numbered)
{
    if (numbered)
        return true; /* see on_numbered */
    if (!piece->bytes)
        return piece->n % 8 == 0 && piece->n / 8 < RAFT_NUMBERS_WORDS;
    return !piece->index && piece->n == piece->bytes;
}

static const uint8_t *on_data(struct raft_channel *ch, struct raft_channel_peer *p, const uint8_t *data, int64_t len,
                              uint64_t now_ns, uint32_t *bytes)
{
    uint64_t theirs = get64(data + 16), number = get64(data + 32), kept = get32(data + 8) >> 16;
    bool numbered = data[9] & RAFT_DATAGRAM_NUMBERED,
         present = theirs == p->theirs && get64(data + 24) == ch->incarnation;
    struct raft_piece piece = {.bytes = get32(data + 56),
                               .index = get32(data + 60) & 0xffff,
                               .size = get32(data + 60) >> 16,
                               .data = data + RAFT_CHANNEL_HEADER,
                               .n = (uint32_t)len - RAFT_CHANNEL_HEADER};
    const uint8_t *frame = NULL;
    *bytes = piece.bytes;
    if (theirs != p->theirs)
        raft_hello_ask(ch, p, theirs, now_ns);
    if (!present && numbered) {
        cl_count(&p->count.stale, 1);
        if (theirs == p->theirs)
            ack_by(ch, p, now_ns); /* it does not know this one yet: by this it hears of it */
        return NULL;
    }
    if (kept >= number || number >> 62 || !well_formed(&piece, numbered)) {
        cl_count(&p->count.malformed, 1);
        return NULL;
    }
    if (present) {
        if (raft_numbers_skip(&p->came, number - kept)) /* given up, and all that was begun before with it */
            raft_pieces_drop_before(&p->pieces, number - kept);
        on_acknowledgement(ch, p, data, numbered || piece.bytes ? 0 : piece.n / 8, now_ns);
    }
    if (numbered) {
        frame = on_numbered(ch, p, number, &piece, now_ns);
    } else {
        cl_count(piece.bytes ? &p->count.unnumbered : &p->count.control, 1);
        frame = piece.bytes ? piece.data : NULL;
    }
    cl_count(&p->count.frames_in, frame != NULL);
    return frame;
}

bool raft_channel_is(const uint8_t *data, int64_t len)
{
    return len >= RAFT_CHANNEL_HEADER && get32(data) == RAFT_DATAGRAM_MAGIC;
}

const uint8_t *raft_channel_receive(struct raft_channel *ch, const uint8_t *data, int64_t len, uint64_t now_ns,
                                    uint32_t *bytes)
{
    bool good = raft_channel_is(data, len) && data[8] == RAFT_DATAGRAM_VERSION && data[9] <= RAFT_DATAGRAM_HELLO &&
                get64(data + 16) && cl_crc32c(0, data + 8, RAFT_CHANNEL_HEADER - 8) == get32(data + 4);
    if (!good) {
        cl_count(&ch->malformed, 1);
        return NULL;
    }
    struct raft_channel_peer *p = raft_channel_find(ch, get32(data + 12));
    if (!p)
        return NULL;
    cl_count(&p->count.datagrams_in, 1);
    if (!(data[9] & RAFT_DATAGRAM_HELLO))
        return on_data(ch, p, data, len, now_ns, bytes);
    raft_hello_take(ch, p, data, now_ns);
    return NULL;
}

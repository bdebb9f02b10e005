/* A channel and its peers, sending, and what is due by time. See channel.h. */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>

#define UDP_HEADERS 28 /* IPv4 and UDP, of the MTU */
#define LARGEST 9216

void raft_channel_init(struct raft_channel *ch, uint32_t id, uint64_t incarnation, uint32_t mtu)
{
    memset(ch, 0, sizeof(*ch));
    ch->id = id;
    ch->incarnation = ch->random = incarnation;
    ch->buffer_bytes = cl_min(mtu - UDP_HEADERS, (uint32_t)LARGEST);
    ch->piece = ch->buffer_bytes - RAFT_CHANNEL_HEADER;
    ch->next_ns = UINT64_MAX;
}

int raft_channel_add(struct raft_channel *ch, uint32_t id, uint32_t frame_max)
{
    struct raft_channel_peer *p = &ch->peers[ch->n_peers];
    p->id = id;
    p->index = ch->n_peers++;
    p->first = p->next = 1;
    p->pieces.frame_max = frame_max;
    p->pieces.most = RAFT_CHANNEL_PARTIAL;
    p->sent = calloc(RAFT_CHANNEL_WINDOW, sizeof(*p->sent));
    p->buffers = malloc((uint64_t)RAFT_CHANNEL_WINDOW * ch->buffer_bytes);
    p->free = malloc(RAFT_CHANNEL_WINDOW * sizeof(*p->free));
    if (!p->sent || !p->buffers || !p->free)
        return -ENOMEM;
    while (p->n_free < RAFT_CHANNEL_WINDOW) {
        p->free[p->n_free] = (uint16_t)(RAFT_CHANNEL_WINDOW - 1 - p->n_free);
        p->n_free++;
    }
    return 0;
}

void raft_channel_free(struct raft_channel *ch)
{
    for (uint32_t i = 0; i < ch->n_peers; i++) {
        struct raft_channel_peer *p = &ch->peers[i];
        raft_pieces_free(&p->pieces);
        free(p->sent);
        free(p->buffers);
        free(p->free);
    }
}

static void put_piece(uint8_t *out, const uint8_t *data, uint32_t bytes, uint32_t i, uint32_t size, uint32_t n)
{
    put32(out + 56, bytes);
    put32(out + 60, i | size << 16);
    memcpy(out + RAFT_CHANNEL_HEADER, data + (uint64_t)i * size, n);
}

static void acknowledge(struct raft_channel *ch, struct raft_channel_peer *p)
{
    uint8_t datagram[RAFT_CHANNEL_HEADER + 8 * RAFT_NUMBERS_WORDS] = {0};
    uint32_t words = cl_max(raft_numbers_words(&p->came), 1u);
    raft_datagram_header(ch, p, datagram, 0, p->next);
    for (uint32_t k = 1; k < words; k++)
        put64(datagram + RAFT_CHANNEL_HEADER + 8 * (k - 1), raft_numbers_selective(&p->came, k));
    raft_datagram_emit(ch, p, datagram, RAFT_CHANNEL_HEADER + 8 * (words - 1));
    raft_channel_acknowledged(p);
}

static bool send_numbered(struct raft_channel *ch, struct raft_channel_peer *p, const uint8_t *data, uint32_t bytes,
                          uint64_t now_ns)
{
    uint32_t pieces = cl_max((bytes + ch->piece - 1) / ch->piece, 1u);
    if (p->next - p->first + pieces > RAFT_CHANNEL_WINDOW) {
        cl_count(&p->count.window_full, 1);
        return false;
    }
    for (uint32_t i = 0; i < pieces; i++) {
        uint32_t n = cl_min(ch->piece, bytes - i * ch->piece);
        uint64_t number = p->next++;
        struct raft_sent *s = raft_sent_of(p, number);
        *s =
            (struct raft_sent){.buffer = p->free[--p->n_free], .bytes = (uint16_t)(RAFT_CHANNEL_HEADER + n), .kept = 1};
        put_piece(p->buffers + (uint64_t)s->buffer * ch->buffer_bytes, data, bytes, i, ch->piece, n);
        if (p->theirs)
            raft_kept_transmit(ch, p, number, now_ns);
    }
    if (!p->theirs) {
        raft_hello_ask(ch, p, 0, now_ns);
        raft_channel_due_at(ch, now_ns + raft_channel_timeout_ns(p));
    }
    return true;
}

bool raft_channel_send(struct raft_channel *ch, uint32_t to, const uint8_t *data, uint32_t bytes, bool lasting,
                       uint64_t now_ns)
{
    struct raft_channel_peer *p = raft_channel_find(ch, to);
    if (!p)
        return false;
    if (lasting || bytes > ch->piece) {
        if (!send_numbered(ch, p, data, bytes, now_ns))
            return false;
    } else {
        uint8_t datagram[LARGEST];
        raft_datagram_header(ch, p, datagram, 0, p->next);
        put_piece(datagram, data, bytes, 0, ch->piece, bytes);
        if (!raft_datagram_emit(ch, p, datagram, RAFT_CHANNEL_HEADER + bytes))
            return false;
        raft_channel_acknowledged_in_header(p);
    }
    cl_count(&p->count.frames_out, 1);
    return true;
}

static void probe(struct raft_channel *ch, struct raft_channel_peer *p, uint64_t now_ns)
{
    cl_count(&p->count.probes, 1);
    p->probed++;
    raft_kept_transmit(ch, p, p->first, now_ns);
}

static void on_timeout(struct raft_channel *ch, struct raft_channel_peer *p, uint64_t now_ns)
{
    uint64_t before_ns = now_ns - raft_channel_timeout_ns(p) + 1;
    cl_count(&p->count.timeouts, 1);
    if (++p->silent > RAFT_CHANNEL_SILENT) {
        raft_kept_forget_all(p, &p->count.given_up);
        return;
    }
    raft_rtt_double(&p->rtt);
    p->tried = false;
    if (p->theirs)
        raft_kept_again(ch, p, before_ns, now_ns);
    else
        raft_hello_ask(ch, p, 0, now_ns);
}

uint64_t raft_channel_poll(struct raft_channel *ch, uint64_t now_ns)
{
    ch->next_ns = UINT64_MAX;
    for (uint32_t i = 0; i < ch->n_peers; i++) {
        struct raft_channel_peer *p = &ch->peers[i];
        if (p->look)
            raft_kept_overtaken(ch, p, now_ns);
        if (now_ns >= raft_kept_timeout_at(p))
            on_timeout(ch, p, now_ns);
        if (now_ns >= raft_kept_probe_at(p))
            probe(ch, p, now_ns);
        if (p->ack_at_ns && now_ns >= p->ack_at_ns)
            acknowledge(ch, p);
        raft_channel_due_at(ch, cl_min(raft_kept_timeout_at(p), raft_kept_probe_at(p)));
        raft_channel_due_at(ch, p->ack_at_ns ? p->ack_at_ns : UINT64_MAX);
    }
    return ch->next_ns;
}

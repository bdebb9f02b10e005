/* What the files of a channel share. kept.c: what was sent and is kept; hello.c, which uses it: who is there; channel.c
 * and receive.c, which use both: sending and time, and what comes. See channel.h. */
#ifndef CORELANE_APPS_RAFT_TRANSPORT_INTERNAL_H
#define CORELANE_APPS_RAFT_TRANSPORT_INTERNAL_H

#include "channel.h"
#include "../../../libos/storage/crc32c.h"
#include "../core/bytes.h"

#define RAFT_DATAGRAM_MAGIC 0x54524c43u
#define RAFT_DATAGRAM_VERSION 1
#define RAFT_DATAGRAM_NUMBERED 1 /* flags */
#define RAFT_DATAGRAM_HELLO 2

static inline struct raft_channel_peer *raft_channel_find(struct raft_channel *ch, uint32_t id)
{
    for (uint32_t i = 0; i < ch->n_peers; i++)
        if (ch->peers[i].id == id)
            return &ch->peers[i];
    cl_count(&ch->unknown_peer, 1);
    return NULL;
}

static inline void raft_channel_due_at(struct raft_channel *ch, uint64_t at_ns)
{
    ch->next_ns = cl_min(ch->next_ns, at_ns);
}

static inline bool raft_datagram_emit(struct raft_channel *ch, struct raft_channel_peer *p, uint8_t *datagram,
                                      uint32_t bytes)
{
    put32(datagram + 4, cl_crc32c(0, datagram + 8, RAFT_CHANNEL_HEADER - 8));
    if (ch->send(ch->arg, p->index, datagram, bytes) < 0) {
        cl_count(&p->count.not_sent, 1);
        return false;
    }
    cl_count(&p->count.datagrams_out, 1);
    return true;
}

static inline void raft_datagram_header(const struct raft_channel *ch, struct raft_channel_peer *p, uint8_t *out,
                                        uint32_t flags, uint64_t number)
{
    put32(out, RAFT_DATAGRAM_MAGIC);
    put32(out + 8, RAFT_DATAGRAM_VERSION | flags << 8 | (uint32_t)(number - p->first) << 16);
    put32(out + 12, ch->id);
    put64(out + 16, ch->incarnation);
    put64(out + 24, p->theirs);
    put64(out + 32, number);
    put64(out + 40, p->came.got);
    put64(out + 48, raft_numbers_selective(&p->came, 0));
}

/* All that has come was acknowledged. */
static inline void raft_channel_acknowledged(struct raft_channel_peer *p)
{
    p->unacknowledged = 0;
    p->ack_at_ns = 0;
}

/* A datagram went that acknowledges what its header has bits for. */
static inline void raft_channel_acknowledged_in_header(struct raft_channel_peer *p)
{
    if (raft_numbers_words(&p->came) <= 1)
        raft_channel_acknowledged(p);
}

static inline struct raft_sent *raft_sent_of(const struct raft_channel_peer *p, uint64_t number)
{
    return &p->sent[number % RAFT_CHANNEL_WINDOW];
}

/* kept.c. */
/* Send a datagram that is kept, for the first time or again. */
void raft_kept_transmit(struct raft_channel *ch, struct raft_channel_peer *p, uint64_t number, uint64_t now_ns);
/* Send again what is kept and went before that time, the oldest numbers; the rest when these are acknowledged: it is
 * overtaken then. */
void raft_kept_again(struct raft_channel *ch, struct raft_channel_peer *p, uint64_t before_ns, uint64_t now_ns);
/* Send again what was overtaken by what came. */
void raft_kept_overtaken(struct raft_channel *ch, struct raft_channel_peer *p, uint64_t now_ns);
/* Keep nothing any more; what was kept is counted. */
void raft_kept_forget_all(struct raft_channel_peer *p, uint64_t *counter);
/* All up to `ack` has come, and what has a bit in the words, from ack + 2 on. */
void raft_kept_acknowledged(struct raft_channel *ch, struct raft_channel_peer *p, uint64_t ack, const uint64_t *words,
                            uint32_t n_words, uint64_t now_ns);
/* When the oldest goes again for an acknowledgement, and by its timeout, if nothing goes or comes before. */
uint64_t raft_kept_probe_at(const struct raft_channel_peer *p);
uint64_t raft_kept_timeout_at(const struct raft_channel_peer *p);

/* hello.c. */
/* Ask who is there, though not with each datagram. to: the incarnation that is asked; 0: not known. */
void raft_hello_ask(struct raft_channel *ch, struct raft_channel_peer *p, uint64_t to, uint64_t now_ns);
/* A hello came. */
void raft_hello_take(struct raft_channel *ch, struct raft_channel_peer *p, const uint8_t *data, uint64_t now_ns);

#endif

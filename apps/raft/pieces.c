/* See pieces.h. */
#include "pieces.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

void raft_pieces_free(struct raft_pieces *pieces)
{
    for (int i = 0; i < RAFT_PARTIAL; i++)
        free(pieces->partial[i].data);
}

/* The frame's place, or a free one; NULL: there is none. */
static struct raft_partial *place_of(struct raft_pieces *pieces, const struct raft_piece *piece)
{
    struct raft_partial *empty = NULL;
    for (uint32_t i = 0; i < RAFT_PARTIAL; i++) {
        struct raft_partial *p = &pieces->partial[(pieces->next + i) % RAFT_PARTIAL];
        if (p->pieces && p->frame == piece->frame && p->sender == piece->sender)
            return p;
        if (!p->pieces && !empty)
            empty = p;
    }
    return empty;
}

static bool begin(struct raft_pieces *pieces, struct raft_partial *p, const struct raft_piece *piece)
{
    if (!p->data)
        p->data = malloc(pieces->frame_max);
    if (!p->data)
        return false;
    memset(p->seen, 0, sizeof(p->seen));
    p->sender = piece->sender;
    p->frame = piece->frame;
    p->bytes = piece->bytes;
    p->size = piece->size;
    p->pieces = (piece->bytes + piece->size - 1) / piece->size;
    p->got = 0;
    return true;
}

int raft_pieces_enter(struct raft_pieces *pieces, const struct raft_piece *piece, const uint8_t **frame)
{
    uint64_t at = (uint64_t)piece->index * piece->size;
    if (!piece->size || piece->bytes > pieces->frame_max || at >= piece->bytes ||
        ((uint64_t)piece->bytes + piece->size - 1) / piece->size > RAFT_PIECES_MAX ||
        piece->n != cl_min((uint64_t)piece->size, piece->bytes - at))
        return -EINVAL;
    struct raft_partial *p = place_of(pieces, piece);
    if (!p || (!p->pieces && !begin(pieces, p, piece)))
        return -ENOBUFS;
    if (p->bytes != piece->bytes || p->size != piece->size)
        return -EINVAL;
    uint64_t *word = &p->seen[piece->index / 64], bit = 1ull << piece->index % 64;
    if (*word & bit)
        return 0;
    *word |= bit;
    memcpy(p->data + at, piece->data, piece->n);
    if (++p->got < p->pieces)
        return 0;
    p->pieces = 0;
    *frame = p->data;
    return 1;
}

void raft_pieces_give_up(struct raft_pieces *pieces)
{
    pieces->partial[pieces->next++ % RAFT_PARTIAL].pieces = 0;
}

void raft_pieces_drop_before(struct raft_pieces *pieces, uint64_t frame)
{
    for (int i = 0; i < RAFT_PARTIAL; i++)
        if (pieces->partial[i].frame < frame)
            pieces->partial[i].pieces = 0;
}

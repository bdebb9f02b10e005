/* See pieces.h. */
#include "pieces.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

void raft_pieces_free(struct raft_pieces *pieces)
{
    for (uint32_t i = 0; i < pieces->places; i++)
        free(pieces->partial[i].data);
    free(pieces->partial);
}

static bool add_places(struct raft_pieces *pieces)
{
    uint32_t n = cl_min(cl_max(2 * pieces->places, 8u), pieces->most);
    struct raft_partial *more = realloc(pieces->partial, n * sizeof(*more));
    if (!more)
        return false;
    memset(more + pieces->places, 0, (n - pieces->places) * sizeof(*more));
    pieces->partial = more;
    pieces->places = n;
    return true;
}

/* The frame's place, or a free one; NULL: there is none. */
static struct raft_partial *place_of(struct raft_pieces *pieces, const struct raft_piece *piece)
{
    struct raft_partial *empty = NULL;
    for (uint32_t i = 0; i < pieces->used; i++) {
        struct raft_partial *p = &pieces->partial[i];
        if (p->pieces && p->frame == piece->frame && p->sender == piece->sender)
            return p;
        if (!p->pieces && !empty)
            empty = p;
    }
    if (empty || pieces->used == pieces->most || (pieces->used == pieces->places && !add_places(pieces)))
        return empty;
    return &pieces->partial[pieces->used++];
}

static bool begin(struct raft_partial *p, const struct raft_piece *piece)
{
    if (p->room < piece->bytes) {
        uint8_t *data = realloc(p->data, piece->bytes);
        if (!data)
            return false;
        p->data = data;
        p->room = piece->bytes;
    }
    memset(p->seen, 0, sizeof(p->seen));
    p->sender = piece->sender;
    p->frame = piece->frame;
    p->bytes = piece->bytes;
    p->size = piece->size;
    p->pieces = (piece->bytes + piece->size - 1) / piece->size;
    p->got = 0;
    return true;
}

static void end(struct raft_pieces *pieces, struct raft_partial *p)
{
    p->pieces = 0;
    while (pieces->used && !pieces->partial[pieces->used - 1].pieces)
        pieces->used--;
}

int raft_pieces_enter(struct raft_pieces *pieces, const struct raft_piece *piece, const uint8_t **frame)
{
    uint64_t at = (uint64_t)piece->index * piece->size;
    if (!piece->size || piece->bytes > pieces->frame_max || at >= piece->bytes ||
        ((uint64_t)piece->bytes + piece->size - 1) / piece->size > RAFT_PIECES_MAX ||
        piece->n != cl_min((uint64_t)piece->size, piece->bytes - at))
        return -EINVAL;
    struct raft_partial *p = place_of(pieces, piece);
    if (!p || (!p->pieces && !begin(p, piece)))
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
    end(pieces, p);
    *frame = p->data;
    return 1;
}

void raft_pieces_give_up(struct raft_pieces *pieces)
{
    if (pieces->used)
        end(pieces, &pieces->partial[pieces->next++ % pieces->used]);
}

void raft_pieces_drop_before(struct raft_pieces *pieces, uint64_t frame)
{
    for (uint32_t i = pieces->used; i-- > 0;)
        if (pieces->partial[i].frame < frame)
            end(pieces, &pieces->partial[i]);
}

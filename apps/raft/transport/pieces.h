/* Frames put together from pieces, for link.c and channel.c. Every piece but the last is of one size. */
#ifndef CORELANE_APPS_RAFT_TRANSPORT_PIECES_H
#define CORELANE_APPS_RAFT_TRANSPORT_PIECES_H

#include <corelane/runtime/base.h>

#define RAFT_PIECES_MAX 4096 /* of a frame */

struct raft_piece {
    uint64_t sender, frame; /* which frame, in the caller's words */
    uint32_t bytes;         /* of the frame */
    uint32_t size;          /* of every piece but the last */
    uint32_t index;
    const uint8_t *data;
    uint32_t n;
};

struct raft_partial {
    uint64_t sender, frame;
    uint32_t bytes, size, pieces, got; /* pieces 0: free */
    uint64_t seen[RAFT_PIECES_MAX / 64];
    uint8_t *data; /* room bytes; what a frame needs, kept for the next one */
    uint32_t room;
};

struct raft_pieces {
    uint32_t frame_max;
    uint32_t most;         /* frames at one time that are not whole */
    uint32_t used, places; /* none is from `used` on; places that there is memory for */
    uint32_t next;         /* to be given up in its turn */
    struct raft_partial *partial;
};

void raft_pieces_free(struct raft_pieces *pieces);
/* 1: the frame is whole, at *frame until the next call; 0: not yet, or it was there already; -EINVAL: such a piece
 * cannot be; -ENOBUFS: `most` others are not whole, or there is no memory. */
int raft_pieces_enter(struct raft_pieces *pieces, const struct raft_piece *piece, const uint8_t **frame);
/* Give one of them up, each in its turn. */
void raft_pieces_give_up(struct raft_pieces *pieces);
/* Give up those of a number below `frame`. */
void raft_pieces_drop_before(struct raft_pieces *pieces, uint64_t frame);

#endif

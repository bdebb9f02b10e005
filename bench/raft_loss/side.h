/* One end of a link, as the run sees it: Raft's channel (channel_side.c) or go-back-N (go_back_n.c). Frames of one
 * datagram each. Virtual time is passed in; datagrams go onto the link that the side was made with. */
#ifndef CORELANE_BENCH_RAFT_LOSS_SIDE_H
#define CORELANE_BENCH_RAFT_LOSS_SIDE_H

#include "link.h"

struct loss_side_counts {
    uint64_t sent_again, timeouts, probes, duplicates, given_up;
};

struct loss_side {
    /* False: the window is full; nothing was taken. */
    bool (*send)(struct loss_side *side, const uint8_t *frame, uint32_t bytes, uint64_t now_ns);
    /* The frame that the datagram brings, good until the next call, or NULL. */
    const uint8_t *(*receive)(struct loss_side *side, const uint8_t *data, uint32_t bytes, uint64_t now_ns,
                              uint32_t *frame_bytes);
    /* Send what is due; when to call again, if nothing comes before. */
    uint64_t (*poll)(struct loss_side *side, uint64_t now_ns);
    struct loss_side_counts (*counts)(const struct loss_side *side);
    void (*end)(struct loss_side *side);
    struct loss_link *out;
};

/* id: 1 or 2; the other side has the other one. NULL: no memory. */
struct loss_side *loss_channel_new(uint32_t id, struct loss_link *out);
struct loss_side *loss_go_back_n_new(struct loss_link *out);

#endif

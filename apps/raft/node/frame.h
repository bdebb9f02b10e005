/* Frames besides the core's messages: what a client or another node asks of a node, and the answer.
 *
 *     0  u32 magic "CLRQ" or "CLRA"   4  u8 version, u8 kind or status, u16 0   8  u32 CRC32C with this field 0   12
 *     u32 bytes
 *    16  u64 cluster   24  u32 from (0: a client), u32 to (0: whoever gets it)   32  u64 ticket, given back in the
 *    answer
 *    40  u64 session; in an answer: the leader, 0 if none is known   48  u64 sequence   56  data
 *
 * Kinds are those of commands (node.h), 3: a query, and what an operator asks of the node that gets it
 * (apps/raft/service/admin.c): 4: its status, 5: to change the members, 6: to hand leadership over, 7: to set the log's
 * clock, 8: a piece of its newest snapshot. */
#ifndef CORELANE_APPS_RAFT_NODE_FRAME_H
#define CORELANE_APPS_RAFT_NODE_FRAME_H

#include <corelane/runtime/base.h>

#define NODE_FRAME_HEADER 56
#define NODE_FRAME_QUERY 3
#define NODE_FRAME_STATUS 4
#define NODE_FRAME_MEMBERS 5
#define NODE_FRAME_TRANSFER 6
#define NODE_FRAME_CLOCK 7
#define NODE_FRAME_SNAPSHOT 8
#define NODE_FRAME_LAST NODE_FRAME_SNAPSHOT

struct node_frame {
    bool answer;
    int kind; /* or status */
    uint32_t from, to;
    uint64_t ticket, session, sequence;
    const uint8_t *data;
    uint32_t bytes;
};

/* Whether `data` begins like one. */
bool node_frame_is(const uint8_t *data, uint64_t bytes);
/* Write it: NODE_FRAME_HEADER + frame->bytes bytes, which is returned. */
uint32_t node_frame_encode(uint64_t cluster, const struct node_frame *frame, uint8_t *out);
/* False: it is damaged, or of another cluster or version. */
bool node_frame_decode(uint64_t cluster, const uint8_t *data, uint64_t bytes, struct node_frame *out);
/* The same of one of which only the first `there` bytes are: `data` is NULL then, and its checksum is not checked. */
bool node_frame_begins(uint64_t cluster, const uint8_t *data, uint64_t there, uint64_t bytes, struct node_frame *out);

#endif

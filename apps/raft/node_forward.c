/* Frames between nodes besides the core's: a node that does not lead passes on what its clients ask, and gets the answer back.
 *
 *     0  u32 magic "CLRQ" or "CLRA"   4  u8 version, u8 kind or status, u16 0   8  u32 CRC32C with this field 0   12  u32 bytes
 *    16  u64 cluster   24  u32 from, u32 to   32  u64 ticket   40  u64 session   48  u64 sequence   56  data
 *
 * Kinds are those of commands, and 3: a query. */
#include "node_internal.h"
#include "bytes.h"
#include "../../libos/storage/crc32c.h"

#define REQUEST 0x51524c43u
#define ANSWER 0x41524c43u
#define VERSION 1
#define QUERY 3

static void send_frame(struct cl_raft_node *node, uint32_t magic, int kind, uint32_t to, const uint64_t words[3],
                       const uint8_t *data, uint32_t bytes)
{
    uint8_t *p = node->out;
    uint32_t all = NODE_FRAME_HEADER + bytes;
    put32(p, magic);
    put32(p + 4, VERSION | (uint32_t)kind << 8);
    put32(p + 8, 0);
    put32(p + 12, all);
    put64(p + 16, node->config.raft.cluster);
    put32(p + 24, node->config.raft.id);
    put32(p + 28, to);
    for (int i = 0; i < 3; i++)
        put64(p + 32 + 8 * i, words[i]);
    if (bytes)
        memcpy(p + NODE_FRAME_HEADER, data, bytes);
    put32(p + 8, cl_crc32c(0, p, all));
    node->config.env.send(node->config.env.arg, to, p, all);
}

/* Pass on to the leader what is not for this node to do. False: this node leads, or it has to be refused here. */
bool node_forward(struct cl_raft_node *node, int kind, uint64_t session, uint64_t sequence, const uint8_t *data,
                  uint32_t bytes, const struct node_asker *asker)
{
    uint32_t leader = cl_raft_leader(node->raft);
    if (!leader || leader == node->config.raft.id || asker->from)
        return false;
    uint64_t ticket = node->ticket_next++;
    struct node_forward *f = &node->forwards[ticket & (CL_RAFT_WAITING - 1)];
    if (f->ticket)
        cl_count(&node->count.forward_lost, 1);
    *f = (struct node_forward){ticket, asker->token};
    send_frame(node, REQUEST, kind, leader, (uint64_t[3]){ticket, session, sequence}, data, bytes);
    cl_count(&node->count.forwarded, 1);
    return true;
}

void node_send_answer(struct cl_raft_node *node, const struct node_asker *asker, int status, const uint8_t *reply,
                      uint32_t bytes)
{
    send_frame(node, ANSWER, status, asker->from, (uint64_t[3]){asker->ticket, 0, 0}, reply, bytes);
}

static void on_answer(struct cl_raft_node *node, int status, uint64_t ticket, const uint8_t *data, uint32_t bytes)
{
    struct node_forward *f = &node->forwards[ticket & (CL_RAFT_WAITING - 1)];
    if (!ticket || f->ticket != ticket)
        return; /* answered already, or given up */
    f->ticket = 0;
    cl_count(&node->count.forward_answers, 1);
    cl_count(&node->count.answered, 1);
    node->config.env.answer(node->config.env.arg, &f->token, status, data, bytes);
}

static bool frame_good(const struct cl_raft_node *node, const uint8_t *data, uint64_t bytes)
{
    static const uint8_t zeros[4];
    uint32_t crc = cl_crc32c(0, data, 8);
    crc = cl_crc32c(crc, zeros, 4);
    return bytes == get32(data + 12) && data[4] == VERSION && !data[6] && !data[7] &&
           get64(data + 16) == node->config.raft.cluster && get32(data + 28) == node->config.raft.id &&
           get32(data + 24) && cl_crc32c(crc, data + 12, bytes - 12) == get32(data + 8);
}

bool node_frame(struct cl_raft_node *node, const uint8_t *data, uint64_t bytes)
{
    if (bytes < NODE_FRAME_HEADER || (get32(data) != REQUEST && get32(data) != ANSWER))
        return false;
    if (!frame_good(node, data, bytes)) {
        cl_count(&node->count.frames_refused, 1);
        return true;
    }
    int kind = data[5];
    const uint8_t *body = data + NODE_FRAME_HEADER;
    uint32_t n = (uint32_t)bytes - NODE_FRAME_HEADER;
    struct node_asker asker = {.from = get32(data + 24), .ticket = get64(data + 32)};
    if (get32(data) == ANSWER) {
        on_answer(node, kind, asker.ticket, body, n);
    } else if (kind == QUERY) {
        cl_count(&node->count.queries, 1);
        node_ask(node, body, n, &asker);
    } else if (kind <= CL_RAFT_CLOSE) {
        cl_count(&node->count.commands, 1);
        node_submit(node, kind, get64(data + 40), get64(data + 48), body, n, &asker);
    } else {
        cl_count(&node->count.frames_refused, 1);
    }
    return true;
}

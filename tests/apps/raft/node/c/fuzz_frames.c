/* Feeds arbitrary bytes to a node: as frames, as frames whose checksum and addresses are right, as pieces of frames.
 *
 * Under libFuzzer, or by itself: fuzz_frames ROUNDS SEED mutates frames of a real node. */
#include "apps/raft/core/bytes.h"
#include "apps/raft/transport/link.h"
#include "apps/raft/node/node.h"
#include "apps/raft/node/frame.h"
#include "apps/raft/node/internal.h"
#include "libos/storage/crc32c.h"
#include <stdio.h>
#include <stdlib.h>

#define KEPT 64
#define KEPT_BYTES 2048

static struct cl_raft_node *nodes[2]; /* 1 is fuzzed; 2 talks to it, so that there are real frames */
static struct raft_link fuzzed_link;
static uint64_t now_ns = 1, runs, reached; /* reached: messages that went into the core */
static uint8_t kept[KEPT][KEPT_BYTES];     /* the newest frames sent */
static uint32_t kept_bytes[KEPT], n_kept;

static uint64_t clock_of(void *arg)
{
    (void)arg;
    return now_ns;
}

static bool keep_frame(void *arg, uint32_t to, const uint8_t *data, uint32_t bytes, bool lasting)
{
    (void)arg, (void)to, (void)lasting;
    if (bytes > KEPT_BYTES)
        return false;
    memcpy(kept[n_kept % KEPT], data, bytes);
    kept_bytes[n_kept++ % KEPT] = bytes;
    return true;
}

static void no_answer(void *arg, const struct cl_raft_token *token, int status, const uint8_t *reply, uint32_t bytes)
{
    (void)arg, (void)token, (void)status, (void)reply, (void)bytes;
}

static int64_t apply_nothing(void *arg, uint64_t index, uint64_t clock, const uint8_t *data, uint32_t bytes,
                             uint8_t *reply, uint32_t room)
{
    (void)arg, (void)index, (void)clock, (void)data, (void)bytes, (void)reply;
    return room > 2 ? 2 : 0;
}

static int64_t query_nothing(void *arg, uint64_t clock, const uint8_t *data, uint32_t bytes, uint8_t *reply,
                             uint32_t room)
{
    return apply_nothing(arg, 0, clock, data, bytes, reply, room);
}

static int64_t save_nothing(void *arg, uint64_t at, uint8_t *out, uint64_t room)
{
    (void)arg, (void)room;
    if (at >= 100)
        return 0;
    memset(out, 1, 100);
    return 100;
}

static int load_nothing(void *arg, uint64_t at, const uint8_t *data, uint64_t bytes, uint64_t total)
{
    (void)arg, (void)at, (void)data, (void)bytes, (void)total;
    return 0;
}

static void make(uint32_t id)
{
    struct cl_raft_node_config c = {
        .raft = {.id = id, .log_entries = 64, .log_bytes = 32768, .entry_bytes = 4096, .message_bytes = 1024},
        .env = {NULL, clock_of, clock_of, keep_frame, no_answer},
        .machine = {.apply = apply_nothing, .query = query_nothing, .save = save_nothing, .load = load_nothing},
        .max_sessions = 4,
        .snapshot_bytes = 1 << 20,
        .incarnation = id,
    };
    char err[256];
    c.raft.members = (struct cl_raft_members){.n_voters = 3, .voters = {1, 2, 3}};
    cl_raft_node_delete(nodes[id - 1]);
    if (cl_raft_node_new(&c, &nodes[id - 1], err))
        abort();
    cl_raft_node_poll(nodes[id - 1]);
}

/* That all three are known, whatever was heard of them. */
static void meet(struct cl_raft_node *node)
{
    for (uint32_t i = 0, id = node->config.raft.id; i < 3; i++)
        node->incarnations.known[i] =
            (struct node_incarnation){.id = 1 + (id - 1 + i) % 3, .incarnation = 1 + (id - 1 + i) % 3};
    node->incarnations.count = 3;
}

static void set_up(void)
{
    make(1);
    make(2);
    raft_link_init(&fuzzed_link, 1500, 8192);
}

static void check(void)
{
    struct cl_raft_status s;
    struct cl_raft_counters c;
    struct cl_raft *raft = cl_raft_node_core(nodes[0]);
    cl_raft_status(raft, &s);
    cl_raft_counters(raft, &c);
    if (s.commit > s.last || s.applied > s.commit || s.durable > s.last || s.first > s.last + 1 ||
        c.messages_in < c.handled + c.stale_term + c.refused_field + c.refused_cluster + c.from_strangers) {
        fprintf(stderr, "commit %lu applied %lu durable %lu first %lu last %lu\n", s.commit, s.applied, s.durable,
                s.first, s.last);
        abort();
    }
}

static void receive(const uint8_t *data, size_t size)
{
    uint8_t *copy =
        malloc(size ? size : 1); /* of exactly that size, so that the sanitizer sees each read past its end */
    memcpy(copy, data, size);
    struct cl_raft_counters before, after;
    cl_raft_counters(cl_raft_node_core(nodes[0]), &before);
    cl_raft_node_receive(nodes[0], copy, size);
    cl_raft_counters(cl_raft_node_core(nodes[0]), &after);
    reached += after.messages_in - before.messages_in;
    cl_raft_node_poll(nodes[0]);
    free(copy);
}

/* Give a frame what a decoder asks for, so that the code behind it is reached. */
static void receive_checked(const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size);
    memcpy(copy, data, size);
    bool lives = size >= 64 && !memcmp(copy, "CLRL", 4);
    bool core = !lives && !node_frame_is(copy, size) && size >= CL_RAFT_HEADER_BYTES;
    copy[4] = core ? RAFT_WIRE_VERSION : lives ? 2 : 1;
    if (core || lives) {
        put64(copy + (lives ? 48 : 96), nodes[0]->config.raft.group_settings);
        put64(copy + (lives ? 56 : 112), nodes[0]->config.raft.first_voters);
    }
    if (core)
        put64(copy + 104, 2 + copy[24] % 2);
    put32(copy + 8, 0);
    put32(copy + 12, (uint32_t)size);
    put64(copy + 16, 0);
    put32(copy + 24, 2 + copy[24] % 2);
    put32(copy + 28, 1);
    meet(nodes[0]);
    put32(copy + 8, cl_crc32c(0, copy, size));
    receive(copy, size);
    free(copy);
}

static void receive_pieces(const uint8_t *data, size_t size)
{
    struct cl_udp_addr from = {1, 2, 0};
    uint32_t bytes;
    for (size_t at = 0; at < size; at += 40) {
        size_t n = cl_min(size - at, (size_t)40);
        uint8_t *copy = malloc(n);
        memcpy(copy, data + at, n);
        const uint8_t *frame = raft_link_receive(&fuzzed_link, &from, copy, (int64_t)n, &bytes);
        if (frame && bytes)
            runs += frame[0] & frame[bytes - 1] & 0; /* all of it is there to be read */
        free(copy);
    }
}

static void one_input(const uint8_t *data, size_t size)
{
    receive(data, size);
    if (size >= NODE_FRAME_HEADER)
        receive_checked(data, size);
    receive_pieces(data, size);
    now_ns += 1000000;
    cl_raft_node_poll(nodes[0]);
    check();
    if (++runs % 4096 == 0 || cl_raft_node_state(nodes[0]) == CL_RAFT_STOPPED)
        make(1); /* what came may have made a state in which little is taken */
}

#ifdef FUZZER
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!nodes[0])
        set_up();
    one_input(data, size);
    return 0;
}
#else
static uint64_t state;

static uint64_t next_random(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

int main(int argc, char **argv)
{
    uint64_t rounds = argc > 1 ? strtoull(argv[1], NULL, 0) : 1000;
    state = (argc > 2 ? strtoull(argv[2], NULL, 0) : 1) | 1;
    set_up();
    struct cl_raft_token token = {{1}};
    for (uint64_t i = 0; i < rounds; i++) {
        uint8_t frame[KEPT_BYTES] = {0};
        now_ns += 500000;
        cl_raft_node_submit(nodes[i & 1], CL_RAFT_APPLY, 0, 0, frame, (uint32_t)(next_random() % 200), &token);
        cl_raft_node_poll(nodes[1]);
        uint32_t k = (uint32_t)(next_random() % cl_max(cl_min(n_kept, (uint32_t)KEPT), 1u));
        uint32_t bytes = kept_bytes[k];
        memcpy(frame, kept[k], bytes);
        if (!bytes)
            continue;
        cl_raft_node_receive(nodes[1], frame, bytes);
        for (uint64_t n = next_random() % 4; n; n--)
            frame[next_random() % bytes] ^= (uint8_t)(1u << next_random() % 8);
        if (next_random() % 8 == 0)
            bytes = (uint32_t)(next_random() % bytes);
        one_input(frame, bytes);
    }
    printf("%lu inputs, %lu messages\n", rounds, reached);
    raft_link_free(&fuzzed_link);
    cl_raft_node_delete(nodes[0]);
    cl_raft_node_delete(nodes[1]);
    return 0;
}
#endif

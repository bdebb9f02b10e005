/* How many batches a leader has on their way, in virtual time: three real nodes in memory, links with a delay, and
 * clients at the leader that send at even distances, or one that waits for its answer.
 *
 * Usage: pipeline LINK_US GAP_US BATCHES REPLICATE SLOW_PPM SHARED_US   (GAP_US 0: one client that waits; BATCHES,
 * REPLICATE 0: the node's default). SLOW_PPM of the frames with entries take SLOW_NS longer. SHARED_US: the nodes share
 * something that each frame with entries, and each answer to one, takes for so long, one after the other.
 * Prints: commands answered in the measured second, batches that went, those that went ahead of a commit, the most
 * messages with entries on their way to one follower, the longest time to an answer and the mean one in us, and whether
 * the leader sends to a majority first. */
#include "apps/raft/node/node.h"
#include "drivers/random.h"

#include "tests/support/c/check.h"

#include <string.h>

#define NODES 3u
#define FRAMES 65536u
#define TICK_NS 1000000u
#define MEASURED_NS 1000000000ull
#define SLOW_NS 800000u

struct frame {
    uint64_t at_ns;
    uint32_t from, to, bytes;
    bool entries;
    uint8_t *data;
};

static struct cl_raft_node *nodes[NODES];
static struct frame frames[FRAMES]; /* in the order in which they arrive */
static uint64_t first_frame, next_frame, now_ns, link_ns, slow_ppm, shared_ns, shared_until_ns;
static uint32_t replicate;
static struct cl_random random_state = {7};
static uint64_t answered, longest_ns, waited_ns, flying[NODES], most_flying;

static uint64_t env_now(void *arg)
{
    (void)arg;
    return now_ns;
}

static uint64_t env_wall(void *arg)
{
    (void)arg;
    return now_ns / 1000000;
}

static uint64_t arrival(bool entries, bool answer)
{
    uint64_t at = now_ns + link_ns;
    if (entries && cl_random_below(&random_state, 1000000) < slow_ppm)
        at += SLOW_NS;
    if (!shared_ns || !(entries || answer))
        return at;
    shared_until_ns = (shared_until_ns > at ? shared_until_ns : at) + shared_ns;
    return shared_until_ns;
}

/* The newest one to its place among those that are on their way. */
static void put_in_order(void)
{
    for (uint64_t i = next_frame - 1; i > first_frame; i--) {
        struct frame *f = &frames[i % FRAMES], *before = &frames[(i - 1) % FRAMES], swap = *f;
        if (before->at_ns <= f->at_ns)
            return;
        *f = *before;
        *before = swap;
    }
}

static bool env_send(void *arg, uint32_t to, const uint8_t *data, uint32_t bytes, bool lasting)
{
    struct cl_raft_msg m;
    struct cl_raft_wire_counters wire = {0};
    (void)lasting;
    CHECK(next_frame - first_frame < FRAMES);
    struct frame *f = &frames[next_frame++ % FRAMES];
    bool ours = !cl_raft_decode(0, data, bytes, &m, &wire);
    *f = (struct frame){.from = *(uint32_t *)arg, .to = to, .bytes = bytes};
    f->entries = ours && m.type == CL_RAFT_APPEND && m.n_entries;
    f->at_ns = arrival(f->entries, ours && m.type == CL_RAFT_APPEND_REPLY);
    f->data = malloc(bytes);
    memcpy(f->data, data, bytes);
    if (f->entries && ++flying[to - 1] > most_flying)
        most_flying = flying[to - 1];
    put_in_order();
    return true;
}

static void env_answer(void *arg, const struct cl_raft_token *token, int status, const uint8_t *reply, uint32_t bytes)
{
    (void)arg;
    (void)reply;
    (void)bytes;
    CHECK_EQ(status, CL_RAFT_OK);
    answered++;
    waited_ns += now_ns - token->words[0];
    if (now_ns - token->words[0] > longest_ns)
        longest_ns = now_ns - token->words[0];
}

static int64_t apply(void *arg, uint64_t index, uint64_t clock_ms, const uint8_t *command, uint32_t bytes,
                     uint8_t *reply, uint32_t room)
{
    (void)arg, (void)index, (void)clock_ms, (void)command, (void)bytes, (void)reply, (void)room;
    return 0;
}

static int64_t query(void *arg, uint64_t clock_ms, const uint8_t *text, uint32_t bytes, uint8_t *reply, uint32_t room)
{
    (void)arg, (void)clock_ms, (void)text, (void)bytes, (void)reply, (void)room;
    return 0;
}

static int64_t save(void *arg, uint64_t at, uint8_t *out, uint64_t room)
{
    (void)arg, (void)at, (void)out, (void)room;
    return 0;
}

static int load(void *arg, uint64_t at, const uint8_t *data, uint64_t bytes, uint64_t total)
{
    (void)arg, (void)at, (void)data, (void)bytes, (void)total;
    return 0;
}

/* Let everything happen up to that time: frames arrive, nodes are polled when they asked to be. */
static void run_until(uint64_t until_ns)
{
    static uint64_t wake_ns[NODES];
    for (;;) {
        uint64_t at = first_frame < next_frame ? frames[first_frame % FRAMES].at_ns : UINT64_MAX;
        unsigned node = NODES;
        for (unsigned i = 0; i < NODES; i++) {
            if (wake_ns[i] < at) {
                at = wake_ns[i];
                node = i;
            }
        }
        if (at > until_ns)
            break;
        now_ns = at > now_ns ? at : now_ns;
        if (node == NODES) {
            struct frame *f = &frames[first_frame++ % FRAMES];
            node = f->to - 1;
            flying[node] -= f->entries;
            cl_raft_node_receive(nodes[node], f->data, f->bytes);
            free(f->data);
        }
        wake_ns[node] = cl_raft_node_poll(nodes[node]);
    }
    now_ns = until_ns;
}

static struct cl_raft_node *start(unsigned batches)
{
    static uint32_t ids[NODES];
    for (unsigned i = 0; i < NODES; i++) {
        char err[256];
        ids[i] = i + 1;
        struct cl_raft_node_config c = {
            .tick_ns = TICK_NS, .batches = batches, .replicate = replicate, .raft = {.id = i + 1, .seed = 1}};
        c.raft.election_ticks = 100;
        c.raft.entry_bytes = 4096;
        c.raft.members = (struct cl_raft_members){.n_voters = NODES, .voters = {1, 2, 3}};
        c.env = (struct cl_raft_env){
            .arg = &ids[i], .now_ns = env_now, .wall_ms = env_wall, .send = env_send, .answer = env_answer};
        c.machine = (struct cl_raft_machine){.apply = apply, .query = query, .save = save, .load = load};
        CHECK(!cl_raft_node_new(&c, &nodes[i], err), "%s", err);
    }
    run_until(TICK_NS);
    cl_raft_campaign(cl_raft_node_core(nodes[0]));
    run_until(now_ns + 100 * link_ns + 100 * TICK_NS);
    CHECK_EQ(cl_raft_leader(cl_raft_node_core(nodes[0])), 1);
    return nodes[0];
}

static void submit(struct cl_raft_node *leader)
{
    struct cl_raft_token token = {{now_ns}};
    cl_raft_node_submit(leader, CL_RAFT_APPLY, 0, 0, (const uint8_t *)"x", 1, &token);
    cl_raft_node_poll(leader);
}

int main(int argc, char **argv)
{
    CHECK(argc == 7);
    replicate = (uint32_t)atoi(argv[4]);
    slow_ppm = strtoull(argv[5], NULL, 0);
    shared_ns = strtoull(argv[6], NULL, 0) * 1000;
    link_ns = strtoull(argv[1], NULL, 0) * 1000;
    uint64_t gap_ns = strtoull(argv[2], NULL, 0) * 1000;
    struct cl_raft_node_counters before, after;
    struct cl_raft_node *leader = start((unsigned)atoi(argv[3]));
    struct cl_raft_replicate chosen;
    most_flying = answered = longest_ns = waited_ns = 0;
    cl_raft_node_counters(leader, &before);
    for (uint64_t until = now_ns + MEASURED_NS; now_ns < until;) {
        uint64_t heard = answered;
        submit(leader);
        if (gap_ns)
            run_until(now_ns + gap_ns);
        while (!gap_ns && answered == heard)
            run_until(now_ns + 1000);
    }
    uint64_t done = answered;
    run_until(now_ns + 10 * link_ns + 10 * TICK_NS); /* whoever waits is answered */
    cl_raft_node_counters(leader, &after);
    cl_raft_node_replicate(leader, &chosen);
    printf("answered %lu batches %lu ahead %lu most_flying %lu longest_us %lu mean_us %lu majority %d\n", done,
           after.batches - before.batches, after.batches_ahead - before.batches_ahead, most_flying, longest_ns / 1000,
           waited_ns / 1000 / answered, chosen.to == CL_RAFT_TO_MAJORITY);
    for (unsigned i = 0; i < NODES; i++)
        cl_raft_node_delete(nodes[i]);
    while (first_frame < next_frame)
        free(frames[first_frame++ % FRAMES].data);
    return 0;
}

/* See batches.h. */
#include "batches.h"

#include "../../apps/raft/node/node.h"
#include <corelane/libos/log.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NODES CL_BENCH_RAFT_NODES
#define LEADER_IN_NS 1000000000ull /* a leader has to be there by then */
#define ANSWER_IN_NS 1000000000ull /* and a command has its answer */
#define MOST_COMMAND 4000
#define FLUSH_BYTES 262144
#define SNAPSHOT_BYTES 262144
#define EVENTS 65536

enum kind { FRAME, COMMAND, RUN };

struct event {
    uint64_t at_ns, number; /* number: of two at a time the earlier one first */
    enum kind kind;
    uint32_t to, bytes; /* RUN: bytes is the node's run that it is */
    uint8_t *data;      /* FRAME */
};

struct node {
    struct world *world;
    struct bench_lanes disk;
    struct cl_log *log;
    struct cl_raft_node *raft;
    uint32_t id, run; /* run: the one that is to come; others were replaced by it */
    uint64_t now_ns;  /* its processor is busy until then */
    uint64_t run_ns;  /* when it runs next; UINT64_MAX: at an event */
    uint64_t worker_ns;
    struct event *inbox;
    uint32_t n_inbox;
};

struct world {
    const struct cl_bench_raft_batches *config;
    struct cl_bench_raft_batched *out;
    struct node nodes[NODES];
    struct event *heap;
    uint32_t n_heap;
    uint64_t events, now_ns;
    uint64_t begin_ns, end_ns; /* of what is measured; 0: no command was answered yet */
    uint64_t next_due;         /* of due_ns: what is sent next */
    struct node *leader;       /* NULL: none yet */
    struct node *on_core;      /* one_core: whose it was last, until core_ns */
    uint64_t core_ns;
    uint64_t led_ns, answers;
    uint64_t last_answer_ns, appends; /* appends: frames that the leader sent */
    int rc;
};

static bool before(const struct event *a, const struct event *b)
{
    return a->at_ns < b->at_ns || (a->at_ns == b->at_ns && a->number < b->number);
}

static void push(struct world *w, struct event e)
{
    if (w->n_heap == EVENTS) {
        w->rc = -ENOBUFS;
        free(e.data);
        return;
    }
    e.number = w->events++;
    uint32_t i = w->n_heap++;
    for (; i && before(&e, &w->heap[(i - 1) / 2]); i = (i - 1) / 2)
        w->heap[i] = w->heap[(i - 1) / 2];
    w->heap[i] = e;
}

static struct event pop(struct world *w)
{
    struct event first = w->heap[0], last = w->heap[--w->n_heap];
    uint32_t i = 0, next;
    for (; (next = 2 * i + 1) < w->n_heap; i = next) {
        next += next + 1 < w->n_heap && before(&w->heap[next + 1], &w->heap[next]);
        if (!before(&w->heap[next], &last))
            break;
        w->heap[i] = w->heap[next];
    }
    w->heap[i] = last;
    return first;
}

static void work_for(struct node *n, uint64_t ns)
{
    n->now_ns += ns;
    n->worker_ns += ns;
}

/* Have it run at a time, when its processor is free, or earlier if that was said before. */
static void run_at(struct node *n, uint64_t at_ns)
{
    at_ns = cl_max(at_ns, n->now_ns);
    if (n->run_ns <= at_ns)
        return;
    n->run_ns = at_ns;
    push(n->world, (struct event){.at_ns = at_ns, .kind = RUN, .to = n->id, .bytes = ++n->run});
}

/* What a node needs of the world. */

static uint64_t clock_of(void *arg)
{
    return ((const struct node *)arg)->now_ns;
}

static uint64_t wall_ms(void *arg)
{
    return 10000 + clock_of(arg) / 1000000;
}

static bool send_frame(void *arg, uint32_t to, const uint8_t *data, uint32_t bytes, bool lasting)
{
    struct node *n = arg;
    struct world *w = n->world;
    uint8_t *copy = malloc(bytes);
    (void)lasting;
    if (!copy) {
        w->rc = -ENOMEM;
        return false;
    }
    memcpy(copy, data, bytes);
    work_for(n, w->config->frame_ns);
    w->appends += n == w->leader;
    push(w, (struct event){
                .at_ns = n->now_ns + w->config->link_ns, .kind = FRAME, .to = to, .bytes = bytes, .data = copy});
    return true;
}

static void note(struct world *w, uint64_t took_ns, uint64_t at_ns)
{
    struct cl_bench_raft_batched *out = w->out;
    if (!w->end_ns) {
        w->begin_ns = at_ns + w->config->warm_ns;
        w->end_ns = w->begin_ns + w->config->for_ns;
    }
    if (at_ns >= w->begin_ns && at_ns < w->end_ns && out->commands < out->room)
        out->each_ns[out->commands++] = (uint32_t)cl_min(took_ns, (uint64_t)UINT32_MAX);
}

static void send_command(struct world *w, uint64_t at_ns)
{
    push(w, (struct event){.at_ns = at_ns + w->config->link_ns, .kind = COMMAND, .to = w->leader->id});
}

/* The next one that arrives, while not all have. */
static void send_due(struct world *w)
{
    if (w->next_due < w->config->arrivals)
        send_command(w, w->led_ns + w->config->due_ns[w->next_due++]);
}

static void answer(void *arg, const struct cl_raft_token *token, int status, const uint8_t *reply, uint32_t bytes)
{
    struct node *n = arg;
    struct world *w = n->world;
    (void)reply;
    (void)bytes;
    if (status != CL_RAFT_OK && status != CL_RAFT_BUSY) {
        w->rc = -EPROTO;
        return;
    }
    work_for(n, w->config->command_ns);
    uint64_t at_ns = n->now_ns + w->config->link_ns;
    w->last_answer_ns = at_ns;
    w->answers++;
    if (status == CL_RAFT_OK)
        note(w, at_ns - token->words[0], at_ns);
    else
        w->out->refused += w->begin_ns && at_ns >= w->begin_ns && at_ns < w->end_ns;
    if (w->config->clients)
        send_command(w, at_ns);
}

/* The state machine: nothing. */

static int64_t apply(void *arg, uint64_t index, uint64_t clock_ms, const uint8_t *command, uint32_t bytes,
                     uint8_t *reply, uint32_t room)
{
    (void)arg;
    (void)clock_ms;
    (void)command;
    (void)bytes;
    if (room < sizeof index)
        return sizeof index;
    memcpy(reply, &index, sizeof index);
    return sizeof index;
}

static int64_t query(void *arg, uint64_t clock_ms, const uint8_t *query, uint32_t bytes, uint8_t *reply, uint32_t room)
{
    (void)arg;
    (void)clock_ms;
    (void)query;
    (void)bytes;
    (void)reply;
    (void)room;
    return 0;
}

static int64_t save(void *arg, uint64_t at, uint8_t *out, uint64_t room)
{
    (void)arg;
    if (at || !room)
        return 0;
    *out = 0;
    return 1;
}

static int load(void *arg, uint64_t at, const uint8_t *data, uint64_t bytes, uint64_t total)
{
    (void)arg;
    (void)at;
    (void)data;
    (void)bytes;
    (void)total;
    return 0;
}

static int node_begin(struct world *w, struct node *n, char err[256])
{
    const struct cl_bench_raft_batches *c = w->config;
    struct cl_log_layout layout = {.area_id = n->id, .flush_bytes = FLUSH_BYTES, .snapshot_bytes = SNAPSHOT_BYTES};
    struct cl_log_config log = {.blk = &n->disk.blk, .search_bytes = FLUSH_BYTES, .now_ns = clock_of, .now_arg = n};
    int rc = bench_lanes_begin(&n->disk, &c->disk, &n->now_ns, &n->worker_ns);
    if (rc)
        snprintf(err, 256, "no descriptor for a disk: %s", strerror(-rc));
    if (rc == 0)
        rc = cl_log_format(&n->disk.blk, 0, &layout, err);
    if (rc == 0)
        rc = cl_log_open_wait(&log, &n->log, NULL, err);
    if (rc)
        return rc;
    struct cl_raft_node_config config = {
        .raft = {.id = n->id, .seed = n->id, .cluster = 1},
        .env = {n, clock_of, wall_ms, send_frame, answer},
        .machine = {.arg = n, .apply = apply, .query = query, .save = save, .load = load},
        .log = n->log,
        .batches = c->batches,
        .fixed_commands = c->fixed_commands,
        .fixed_wait_ns = c->fixed_wait_ns,
    };
    config.raft.members.n_voters = NODES;
    for (uint32_t i = 0; i < NODES; i++)
        config.raft.members.voters[i] = i + 1;
    n->inbox = malloc(EVENTS * sizeof *n->inbox);
    if (!n->inbox)
        return -ENOMEM;
    rc = cl_raft_node_new(&config, &n->raft, err);
    n->run_ns = UINT64_MAX;
    run_at(n, n->now_ns);
    return rc;
}

static void node_end(struct node *n)
{
    if (n->log)
        cl_log_close(n->log, NULL);
    cl_raft_node_delete(n->raft);
    for (uint32_t i = 0; i < n->n_inbox; i++)
        free(n->inbox[i].data);
    free(n->inbox);
    bench_lanes_end(&n->disk);
}

static void take(struct node *n, const struct event *e)
{
    struct world *w = n->world;
    uint8_t command[MOST_COMMAND] = {0};
    struct cl_raft_token token = {{e->at_ns - w->config->link_ns}}; /* when it was sent */
    if (e->kind == FRAME) {
        work_for(n, w->config->frame_ns);
        cl_raft_node_receive(n->raft, e->data, e->bytes);
        free(e->data);
        return;
    }
    work_for(n, w->config->command_ns);
    cl_raft_node_submit(n->raft, CL_RAFT_APPLY, 0, 0, command, w->config->command_bytes, &token);
}

/* All that has come, and then what is to be done. */
static void run_node(struct world *w, struct node *n)
{
    if (w->config->one_core && w->core_ns > w->now_ns) { /* another one has it until then */
        n->run_ns = UINT64_MAX;
        run_at(n, w->core_ns);
        return;
    }
    n->run_ns = UINT64_MAX;
    n->now_ns = cl_max(n->now_ns, w->now_ns);
    if (w->config->one_core && w->on_core != n)
        work_for(n, w->config->hand_over_ns);
    for (uint32_t i = 0; i < n->n_inbox; i++)
        take(n, &n->inbox[i]);
    n->n_inbox = 0;
    uint64_t next = cl_raft_node_poll(n->raft);
    w->on_core = n;
    w->core_ns = n->now_ns;
    if (cl_raft_node_state(n->raft) == CL_RAFT_STOPPED)
        w->rc = -EPROTO;
    run_at(n, next);
}

static void step(struct world *w)
{
    struct event e = pop(w);
    struct node *n = &w->nodes[e.to - 1];
    w->now_ns = e.at_ns;
    if (e.kind != RUN) {
        n->inbox[n->n_inbox++] = e; /* there is room for all that the heap holds */
        if (e.kind == COMMAND && !w->config->clients)
            send_due(w);
        run_at(n, e.at_ns);
    } else if (e.bytes == n->run) {
        run_node(w, n);
    }
}

static struct node *leader_of(struct world *w)
{
    for (uint32_t i = 0; i < NODES; i++)
        if (cl_raft_node_state(w->nodes[i].raft) == CL_RAFT_RUNNING && cl_raft_node_led_ns(w->nodes[i].raft))
            return &w->nodes[i];
    return NULL;
}

static int elect(struct world *w)
{
    while (!(w->leader = leader_of(w)) && !w->rc && w->n_heap && w->now_ns < LEADER_IN_NS)
        step(w);
    return w->rc ? w->rc : w->leader ? 0 : -ETIMEDOUT;
}

/* Counts of the leader so far. */
static void counts(const struct node *n, struct cl_bench_raft_batched *out)
{
    struct cl_raft_node_counters c;
    cl_raft_node_counters(n->raft, &c);
    out->batches = c.batches;
    out->all_commands = c.commands;
    out->worker_ns = n->worker_ns;
    out->disk_ns = n->disk.busy_ns;
    out->ns = n->now_ns;
}

/* What it counted since `first`. */
static void counts_since(const struct world *w, const struct cl_bench_raft_batched *first)
{
    struct cl_bench_raft_batched *out = w->out;
    counts(w->leader, out);
    out->batches -= first->batches;
    out->all_commands -= first->all_commands;
    out->worker_ns -= first->worker_ns;
    out->disk_ns -= first->disk_ns;
    out->ns -= first->ns;
    out->appends = w->appends;
}

static void send_first_commands(struct world *w)
{
    w->led_ns = w->last_answer_ns = w->now_ns;
    for (uint32_t i = 0; i < w->config->clients; i++)
        send_command(w, w->now_ns);
    if (!w->config->clients)
        send_due(w);
}

/* Whether there is something left to be measured: time, or commands that have no answer yet. */
static bool goes_on(const struct world *w)
{
    bool all = w->config->arrivals && w->answers == w->config->arrivals;
    return !w->rc && !all && (!w->end_ns || w->now_ns < w->end_ns) && w->now_ns < w->last_answer_ns + ANSWER_IN_NS;
}

static int drive(struct world *w, char err[256])
{
    struct cl_bench_raft_batched first = {0};
    int rc = elect(w);
    if (rc) {
        snprintf(err, 256, "no leader came: %s", strerror(-rc));
        return rc;
    }
    send_first_commands(w);
    while (goes_on(w)) {
        if (!first.ns && w->end_ns && w->now_ns >= w->begin_ns) {
            w->appends = 0;
            counts(w->leader, &first);
        }
        step(w);
    }
    counts_since(w, &first);
    bool done = w->end_ns && (w->now_ns >= w->end_ns || (w->config->arrivals && w->answers == w->config->arrivals));
    rc = w->rc ? w->rc : done ? 0 : -ETIMEDOUT;
    if (rc)
        snprintf(err, 256, "a command was not done: %s %s", strerror(-rc), cl_raft_node_why(w->leader->raft));
    return rc;
}

int cl_bench_raft_batches(const struct cl_bench_raft_batches *config, struct cl_bench_raft_batched *out, char err[256])
{
    if (!config->disk.lanes || config->disk.lanes > BENCH_LANES_MOST || !(config->clients || config->arrivals) ||
        config->clients > EVENTS / 8 || config->command_bytes > MOST_COMMAND) {
        snprintf(err, 256, "1 to %d lanes, 1 to %d clients or arrivals, and commands of up to %d bytes",
                 BENCH_LANES_MOST, EVENTS / 8, MOST_COMMAND);
        return -EINVAL;
    }
    struct world *w = calloc(1, sizeof *w);
    int rc = w ? 0 : -ENOMEM;
    if (w) {
        w->config = config;
        w->out = out;
        out->commands = out->refused = 0;
        w->heap = malloc(EVENTS * sizeof *w->heap);
        rc = w->heap ? 0 : -ENOMEM;
    }
    if (rc)
        snprintf(err, 256, "no memory for the group");
    for (uint32_t i = 0; i < NODES && rc == 0; i++) {
        w->nodes[i].world = w;
        w->nodes[i].id = i + 1;
        rc = node_begin(w, &w->nodes[i], err);
    }
    if (rc == 0)
        rc = drive(w, err);
    for (uint32_t i = 0; w && i < NODES; i++)
        if (w->nodes[i].world)
            node_end(&w->nodes[i]);
    for (uint32_t i = 0; w && w->heap && i < w->n_heap; i++)
        free(w->heap[i].data);
    free(w ? w->heap : NULL);
    free(w);
    return rc;
}

/* See ahead.h. */
#include "ahead.h"
#include "../core/bytes.h"
#include <corelane/libos/log.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ELSEWHERE_BYTES 128   /* of what clients are told who have to go elsewhere */
#define OPENING UINT64_MAX    /* in an item's place: the entry that opens an epoch */
#define PUT_OFF_NS 2000000000 /* that the group takes nothing: then reads, too, wait for too long */

static int new_engine(const struct raft_ahead *a, struct cl_resp **out, char err[256])
{
    struct cl_resp_settings settings = a->config.settings;
    settings.memory_bytes = a->config.values->settings.memory_bytes;
    return cl_resp_new(&settings, out, err);
}

/* Have the engine a->making behind the port. */
static void take_over(struct raft_ahead *a)
{
    struct cl_resp *old = a->front;
    a->front = a->making;
    a->making = NULL;
    a->config.become(a->config.arg, a->front);
    cl_resp_delete(old);
}

/* What clients are told who come to a node that does not execute commands. MOVED is what Redis' nodes say of a key that
 * another one has; there are no slots here. */
static void say_where(struct raft_ahead *a)
{
    const struct raft_resp *values = a->config.values;
    uint32_t leader = cl_raft_leader(cl_raft_node_core(a->config.node)), ip = values->ipv4;
    char error[ELSEWHERE_BYTES], host[16];
    bool known = leader && ip && a->config.address(a->config.arg, leader) == ip;
    snprintf(host, sizeof host, "%u.%u.%u.%u", ip >> 24, ip >> 16 & 255, ip >> 8 & 255, ip & 255);
    snprintf(error, sizeof error, "MOVED 0 %s:%u", host, values->port);
    if (a->state != RAFT_AHEAD_FOLLOWS)
        snprintf(error, sizeof error, "LOADING This node was elected and takes over the values: ask again");
    else if (!known)
        snprintf(error, sizeof error, "CLUSTERDOWN No node of the group leads: ask again");
    cl_resp_elsewhere(a->front, error, known ? host : "", known ? (uint16_t)values->port : 0);
}

static void step_down(struct raft_ahead *a)
{
    char err[256];
    bool led = a->state == RAFT_AHEAD_LEADS;
    if (led && new_engine(a, &a->making, err))
        return; /* no memory now: the next turn tries again, and nothing is answered meanwhile */
    cl_count(&a->count.lost, led);
    a->state = RAFT_AHEAD_FOLLOWS;
    cl_store_relaxed(&a->count.leads, 0);
    a->epoch = 0;
    a->lost = a->opened = false;
    a->left = a->first = a->next = a->off_ns = 0;
    if (led)
        take_over(a);
    cl_resp_delete(a->making);
    a->making = NULL;
}

static void submit(struct raft_ahead *a, enum raft_resp_kind kind, uint64_t number, const void *data, uint32_t bytes,
                   uint64_t item)
{
    struct cl_raft_token token = {{a->config.kind, a->epoch, item, a->now_ns}};
    raft_resp_header(a->entry, kind, a->epoch, number);
    memcpy(a->entry + RAFT_RESP_HEADER, data, bytes);
    a->submits = true;
    a->refused = false;
    cl_raft_node_submit(a->config.node, CL_RAFT_APPLY, 0, 0, a->entry, RAFT_RESP_HEADER + bytes, &token);
    a->submits = false;
}

static void open_epoch(struct raft_ahead *a)
{
    uint8_t address[RAFT_RESP_ADDRESS];
    uint64_t word = a->config.random(a->config.arg);
    if (!word)
        return;
    a->epoch = word | 1;
    a->state = RAFT_AHEAD_OPENS;
    a->now_ns = 0; /* it is no client's */
    put32(address, a->config.ipv4);
    put32(address + 4, a->config.port);
    submit(a, RAFT_RESP_OPEN, 0, address, sizeof address, OPENING);
}

static void begin_making(struct raft_ahead *a)
{
    char err[256];
    cl_resp_delete(a->making);
    a->making = NULL;
    if (new_engine(a, &a->making, err)) {
        a->lost = true;
        return;
    }
    raft_resp_image_begin(a->config.values);
    a->images = a->config.values->images;
    a->state = RAFT_AHEAD_MAKES;
}

static void lead(struct raft_ahead *a)
{
    cl_resp_propagate(a->making);
    cl_resp_confirm(a->making);
    a->number = 1;
    a->unit = cl_resp_unit(a->making);
    take_over(a);
    a->state = RAFT_AHEAD_LEADS;
    cl_count(&a->count.opened, 1);
    cl_store_relaxed(&a->count.leads, 1);
}

/* Some more of the values, from which nothing is missing as long as the epoch is this node's and has no units. */
static void make_some(struct raft_ahead *a)
{
    struct raft_resp *m = a->config.values;
    char err[256];
    uint64_t len;
    if (m->epoch != a->epoch) {
        a->lost = true;
        return;
    }
    if (a->state == RAFT_AHEAD_OPENS || m->images != a->images) { /* a snapshot was taken meanwhile */
        begin_making(a);
        return;
    }
    const uint8_t *units = raft_resp_image_next(m, &len);
    if (!len)
        lead(a);
    else if (cl_resp_apply(a->making, units, len, err))
        a->lost = true;
}

/* What is committed is on a majority of the voters. */
static void count_replicas(const struct raft_ahead *a)
{
    struct cl_raft_status status;
    cl_raft_status(cl_raft_node_core(a->config.node), &status);
    cl_resp_replicas(a->front, status.members.n_voters / 2);
}

bool raft_ahead_turn(struct raft_ahead *a)
{
    const struct cl_raft_node *node = a->config.node;
    bool leads = cl_raft_node_led_ns(node) && cl_raft_node_state(node) == CL_RAFT_RUNNING;
    if (a->state != RAFT_AHEAD_FOLLOWS && (a->lost || !leads))
        step_down(a);
    else if (a->state == RAFT_AHEAD_FOLLOWS && leads)
        open_epoch(a);
    else if (a->opened && a->state != RAFT_AHEAD_LEADS)
        make_some(a);
    if (a->state == RAFT_AHEAD_LEADS)
        count_replicas(a);
    else
        say_where(a);
    return a->state == RAFT_AHEAD_MAKES;
}

/* How many bytes of units the log may still take, of which the node keeps an eighth for what has no choice. */
static uint64_t room(const struct raft_ahead *a)
{
    const struct cl_log *log = a->config.log;
    if (!log)
        return UINT64_MAX;
    uint64_t kept = cl_log_ring_bytes(log) / 8, left = cl_log_free_bytes(log);
    return left > kept ? (left - kept) / 4 : 0;
}

/* Give the group an entry of what was taken. False: it does not take it now. */
static bool send_entry(struct raft_ahead *a, uint64_t now_ns)
{
    uint64_t most = a->config.entry_bytes - CL_RAFT_COMMAND_HEADER - RAFT_RESP_HEADER;
    uint32_t bytes = (uint32_t)cl_min(a->left, most);
    bool last = bytes == a->left;
    uint64_t item = a->next++;
    a->items[item % RAFT_AHEAD_ITEMS] = (struct raft_ahead_item){.unit = last ? a->unit : 0};
    submit(a, last ? RAFT_RESP_UNITS : RAFT_RESP_PIECE, a->number, a->at, bytes, item);
    if (a->refused) {
        a->next = item;
        a->off_ns = a->off_ns ? a->off_ns : now_ns;
        cl_count(&a->count.put_off, 1);
        return false;
    }
    a->off_ns = 0;
    a->number++;
    a->at += bytes;
    a->left -= bytes;
    cl_count(&a->count.entries, 1);
    cl_count(&a->count.bytes, bytes);
    return true;
}

/* Have the group say whether this is still the epoch. */
static void send_query(struct raft_ahead *a)
{
    uint64_t item = a->next++;
    struct cl_raft_token token = {{a->config.kind, a->epoch, item, a->now_ns}};
    a->items[item % RAFT_AHEAD_ITEMS] = (struct raft_ahead_item){.unit = a->unit, .query = true};
    cl_count(&a->count.queries, 1);
    cl_raft_node_query(a->config.node, (const uint8_t *)"", 0, &token);
}

bool raft_ahead_has(const struct raft_ahead *a)
{
    return a->state == RAFT_AHEAD_LEADS && (a->left || cl_resp_unit(a->front) != a->unit);
}

bool raft_ahead_give(struct raft_ahead *a, uint64_t now_ns)
{
    if (a->state != RAFT_AHEAD_LEADS)
        return a->lost || (a->state == RAFT_AHEAD_OPENS && a->opened);
    a->now_ns = now_ns;
    while (!a->lost && a->next - a->first < RAFT_AHEAD_ITEMS && raft_ahead_has(a)) {
        if (a->left) {
            if (!send_entry(a, now_ns))
                break;
            continue;
        }
        a->at = cl_resp_units(a->front, &a->left, &a->unit);
        if (!a->left)
            send_query(a);
    }
    cl_resp_log_room(a->front, 0, room(a));
    a->lost |= a->off_ns && now_ns > a->off_ns + PUT_OFF_NS;
    return a->lost;
}

void raft_ahead_answer(struct raft_ahead *a, const struct cl_raft_token *token, int status, const uint8_t *reply,
                       uint32_t bytes)
{
    if (token->words[1] != a->epoch) {
        cl_count(&a->count.late, 1);
        return;
    }
    if (token->words[2] == OPENING) {
        a->opened = status == CL_RAFT_OK;
        a->lost |= !a->opened;
        return;
    }
    struct raft_ahead_item *i = &a->items[token->words[2] % RAFT_AHEAD_ITEMS];
    if (status == CL_RAFT_BUSY && a->submits) { /* it comes again */
        a->refused = true;
        return;
    }
    if (status != CL_RAFT_OK || (i->query && (bytes != 8 || get64(reply) != a->epoch))) {
        a->lost = true;
        return;
    }
    i->done = true;
    uint64_t unit = 0;
    for (; a->first != a->next && a->items[a->first % RAFT_AHEAD_ITEMS].done; a->first++)
        unit = cl_max(unit, a->items[a->first % RAFT_AHEAD_ITEMS].unit);
    if (unit && !a->lost)
        cl_resp_durable(a->front, unit);
}

int raft_ahead_new(struct raft_ahead *a, const struct raft_ahead_config *config, char err[256])
{
    *a = (struct raft_ahead){.config = *config, .entry = malloc(config->entry_bytes)};
    if (!a->entry) {
        snprintf(err, 256, "no memory for entries of RESP");
        return -ENOMEM;
    }
    int rc = new_engine(a, &a->front, err);
    if (!rc)
        say_where(a);
    return rc;
}

void raft_ahead_delete(struct raft_ahead *a)
{
    cl_resp_delete(a->front);
    cl_resp_delete(a->making);
    free(a->entry);
    *a = (struct raft_ahead){0};
}

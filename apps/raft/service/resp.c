/* Redis' protocols in front of a group of nodes: the port of ../../resp, whose engine the node that leads has.
 *
 * Executed ahead. The engine behind the port runs commands as they come, on a copy of the replicated values
 * (../node/resp_machine.h). What it has done goes into the log as units, in its order, and replies are held until the
 * units that they may tell of are committed (../../resp/durable.h). Replies that tell of no new unit, those to reads, are
 * held until a query, asked after them, has found this node's epoch: at that instant, and so when the read was done, no
 * other node executed commands. So whatever a client is told is in the group's log, and nobody is told what is out of
 * date, by lease and without. That the group answers in any order does no harm: `items` are released in theirs.
 *
 *   FOLLOWS  an engine without values, which says who leads
 *   OPENS    this node leads, and has proposed an epoch of its own
 *   MAKES    that was applied: so was all that came before. An engine is made from the values, some at a time
 *   LEADS    it is behind the port
 *
 * An answer that is no good, or another leader, ends LEADS: the engine goes, with what was not committed, and all
 * connections with it; for who waits for a reply the outcome is not known. A leader that stays one opens the next epoch.
 *
 * Transitions are made from the timer alone, never in a call from the port or the node, which would not find its engine
 * again. All on one kthread, so the port's lock is never waited for. */
#include "internal.h"
#include "../core/bytes.h"
#include "../../resp/serve.h"
#include <corelane/libos/log.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

#define ELSEWHERE_BYTES 128   /* of what clients are told who have to go elsewhere */
#define ITEMS 64              /* entries and queries that are not answered */
#define OPENING UINT64_MAX    /* in an item's place: the entry that opens an epoch */
#define PUT_OFF_NS 2000000000 /* that the group takes nothing: then reads, too, wait for too long */

enum state { FOLLOWS, OPENS, MAKES, LEADS };

struct item {
    uint64_t unit; /* of the engine: with this, all up to it is confirmed; 0: a piece of more */
    bool query, done;
};

struct serve_resp {
    struct cl_raft_service *s;
    struct cl_resp_service *port;
    struct cl_resp *front, *making; /* behind the port; that is being made */
    enum state state;
    uint64_t epoch;  /* 0: FOLLOWS */
    bool opened;     /* OPENS: it was answered */
    bool lost;       /* something was answered that ends the epoch */
    uint64_t images; /* MAKES: as of when the image was begun */
    uint64_t number; /* of the next entry */
    const uint8_t *at;
    uint64_t left, unit; /* LEADS: units that were taken and not given to the group, and the number of the last */
    struct item items[ITEMS];
    uint64_t first, next; /* items: the oldest, and behind the newest */
    bool submits;         /* inside of a submit, */
    bool refused;         /* which was put off */
    uint64_t off_ns;      /* since when entries are put off; 0: they are not */
    uint8_t *entry;
};

static const struct cl_raft_resp_config *config(const struct serve_resp *f)
{
    return &f->s->config.resp;
}

static int new_engine(const struct serve_resp *f, struct cl_resp **out, char err[256])
{
    struct cl_resp_settings settings = {
        .memory_bytes = f->s->values.memory_bytes, .policy = config(f)->policy, .password = config(f)->password};
    return cl_resp_new(&settings, out, err);
}

/* Have the engine f->making behind the port. */
static void take_over(struct serve_resp *f)
{
    struct cl_resp *old = f->front;
    f->front = f->making;
    f->making = NULL;
    cl_resp_service_become(f->port, f->front);
    cl_resp_delete(old);
}

/* What clients are told who come to a node that does not execute commands. MOVED is what Redis' nodes say of a key that
 * another one has; there are no slots here. */
static void say_where(struct serve_resp *f)
{
    const struct cl_raft_service *s = f->s;
    uint32_t leader = cl_raft_leader(cl_raft_node_core(s->node)), ip = s->values.ipv4;
    char error[ELSEWHERE_BYTES], host[16];
    bool known = false;
    for (uint32_t i = 0; i < s->config.n_peers; i++)
        known |= s->config.peers[i].id == leader && s->config.peers[i].ipv4 == ip;
    snprintf(host, sizeof host, "%u.%u.%u.%u", ip >> 24, ip >> 16 & 255, ip >> 8 & 255, ip & 255);
    snprintf(error, sizeof error, "MOVED 0 %s:%u", host, s->values.port);
    if (f->state != FOLLOWS)
        snprintf(error, sizeof error, "LOADING This node was elected and takes over the values: ask again");
    else if (!known)
        snprintf(error, sizeof error, "CLUSTERDOWN No node of the group leads: ask again");
    cl_resp_elsewhere(f->front, error, known ? host : "", known ? (uint16_t)s->values.port : 0);
}

static void step_down(struct serve_resp *f)
{
    char err[256];
    bool led = f->state == LEADS;
    if (led && new_engine(f, &f->making, err))
        return; /* no memory now: the next turn tries again, and nothing is answered meanwhile */
    cl_count(&f->s->count.resp_lost, led);
    f->state = FOLLOWS;
    cl_store_relaxed(&f->s->count.resp_leads, 0);
    f->epoch = 0;
    f->lost = f->opened = false;
    f->left = f->first = f->next = f->off_ns = 0;
    if (led)
        take_over(f);
    cl_resp_delete(f->making);
    f->making = NULL;
}

static void submit(struct serve_resp *f, enum raft_resp_kind kind, uint64_t number, const void *data, uint32_t bytes,
                   uint64_t item)
{
    struct cl_raft_token token = {{SERVE_RESP_CLIENT, f->epoch, item, 0}};
    raft_resp_header(f->entry, kind, f->epoch, number);
    memcpy(f->entry + RAFT_RESP_HEADER, data, bytes);
    f->submits = true;
    f->refused = false;
    cl_raft_node_submit(f->s->node, CL_RAFT_APPLY, 0, 0, f->entry, RAFT_RESP_HEADER + bytes, &token);
    f->submits = false;
}

static void open_epoch(struct serve_resp *f)
{
    uint8_t address[RAFT_RESP_ADDRESS];
    struct cl_runtime_info info;
    if (getrandom(&f->epoch, sizeof f->epoch, 0) != sizeof f->epoch)
        return;
    f->epoch |= 1;
    f->state = OPENS;
    cl_runtime_info(f->s->rt, &info);
    put32(address, info.ipv4);
    put32(address + 4, config(f)->port);
    submit(f, RAFT_RESP_OPEN, 0, address, sizeof address, OPENING);
}

static void begin_making(struct serve_resp *f)
{
    char err[256];
    cl_resp_delete(f->making);
    f->making = NULL;
    if (new_engine(f, &f->making, err)) {
        f->lost = true;
        return;
    }
    raft_resp_image_begin(&f->s->values);
    f->images = f->s->values.images;
    f->state = MAKES;
}

static void lead(struct serve_resp *f)
{
    cl_resp_propagate(f->making);
    cl_resp_confirm(f->making);
    f->number = 1;
    f->unit = cl_resp_unit(f->making);
    take_over(f);
    f->state = LEADS;
    cl_count(&f->s->count.resp_opened, 1);
    cl_store_relaxed(&f->s->count.resp_leads, 1);
}

/* Some more of the values, from which nothing is missing as long as the epoch is this node's and has no units. */
static void make_some(struct serve_resp *f)
{
    struct raft_resp *m = &f->s->values;
    char err[256];
    uint64_t len;
    if (m->epoch != f->epoch) {
        f->lost = true;
        return;
    }
    if (f->state == OPENS || m->images != f->images) { /* a snapshot was taken meanwhile */
        begin_making(f);
        return;
    }
    const uint8_t *units = raft_resp_image_next(m, &len);
    if (!len)
        lead(f);
    else if (cl_resp_apply(f->making, units, len, err))
        f->lost = true;
}

/* What is committed is on a majority of the voters. */
static void count_replicas(const struct serve_resp *f)
{
    struct cl_raft_status status;
    cl_raft_status(cl_raft_node_core(f->s->node), &status);
    cl_resp_replicas(f->front, status.members.n_voters / 2);
}

bool serve_resp_turn(struct cl_raft_service *s)
{
    struct serve_resp *f = s->resp;
    bool leads = cl_raft_node_led_ns(s->node) && cl_raft_node_state(s->node) == CL_RAFT_RUNNING;
    if (f->state != FOLLOWS && (f->lost || !leads))
        step_down(f);
    else if (f->state == FOLLOWS && leads)
        open_epoch(f);
    else if (f->opened && f->state != LEADS)
        make_some(f);
    if (f->state == LEADS)
        count_replicas(f);
    else
        say_where(f);
    return f->state == MAKES;
}

/* How many bytes of units the log may still take, of which the node keeps an eighth for what has no choice. */
static uint64_t room(const struct cl_raft_service *s)
{
    struct cl_log *log = s->config.node.log;
    if (!log)
        return UINT64_MAX;
    uint64_t kept = cl_log_ring_bytes(log) / 8, left = cl_log_free_bytes(log);
    return left > kept ? (left - kept) / 4 : 0;
}

/* Give the group an entry of what was taken. False: it does not take it now. */
static bool send_entry(struct serve_resp *f)
{
    struct cl_raft_service *s = f->s;
    uint64_t most = s->config.node.raft.entry_bytes - CL_RAFT_COMMAND_HEADER - RAFT_RESP_HEADER;
    uint32_t bytes = (uint32_t)cl_min(f->left, most);
    bool last = bytes == f->left;
    uint64_t item = f->next++;
    f->items[item % ITEMS] = (struct item){.unit = last ? f->unit : 0};
    submit(f, last ? RAFT_RESP_UNITS : RAFT_RESP_PIECE, f->number, f->at, bytes, item);
    if (f->refused) {
        f->next = item;
        f->off_ns = f->off_ns ? f->off_ns : s->now_ns;
        cl_count(&s->count.resp_put_off, 1);
        return false;
    }
    f->off_ns = 0;
    f->number++;
    f->at += bytes;
    f->left -= bytes;
    cl_count(&s->count.resp_entries, 1);
    cl_count(&s->count.resp_bytes, bytes);
    return true;
}

/* Have the group say whether this is still the epoch. */
static void send_query(struct serve_resp *f)
{
    uint64_t item = f->next++;
    struct cl_raft_token token = {{SERVE_RESP_CLIENT, f->epoch, item, 0}};
    f->items[item % ITEMS] = (struct item){.unit = f->unit, .query = true};
    cl_count(&f->s->count.resp_queries, 1);
    cl_raft_node_query(f->s->node, (const uint8_t *)"", 0, &token);
}

/* Give the group what the engine has done. */
static bool send_all(struct cl_raft_service *s)
{
    struct serve_resp *f = s->resp;
    if (f->state != LEADS)
        return f->lost || (f->state == OPENS && f->opened);
    while (!f->lost && f->next - f->first < ITEMS) {
        if (f->left) {
            if (!send_entry(f))
                break;
            continue;
        }
        if (cl_resp_unit(f->front) == f->unit)
            break;
        f->at = cl_resp_units(f->front, &f->left, &f->unit);
        if (!f->left)
            send_query(f);
    }
    cl_resp_log_room(f->front, 0, room(s));
    f->lost |= f->off_ns && s->now_ns > f->off_ns + PUT_OFF_NS;
    return f->lost;
}

void serve_resp_answer(struct cl_raft_service *s, const struct cl_raft_token *token, int status, const uint8_t *reply,
                       uint32_t bytes)
{
    struct serve_resp *f = s->resp;
    if (token->words[1] != f->epoch) {
        cl_count(&s->count.resp_late, 1);
        return;
    }
    if (token->words[2] == OPENING) {
        f->opened = status == CL_RAFT_OK;
        f->lost |= !f->opened;
        return;
    }
    struct item *i = &f->items[token->words[2] % ITEMS];
    if (status == CL_RAFT_BUSY && f->submits) { /* it comes again */
        f->refused = true;
        return;
    }
    if (status != CL_RAFT_OK || (i->query && (bytes != 8 || get64(reply) != f->epoch))) {
        f->lost = true;
        return;
    }
    i->done = true;
    uint64_t unit = 0;
    for (; f->first != f->next && f->items[f->first % ITEMS].done; f->first++)
        unit = cl_max(unit, f->items[f->first % ITEMS].unit);
    if (unit && !f->lost)
        cl_resp_durable(f->front, unit);
}

/* The port has called the engine. */
static void after(void *arg)
{
    struct serve_resp *f = arg;
    struct cl_raft_service *s = f->s;
    if (f->state != LEADS || cl_kthread_index() < 0 || (!f->left && cl_resp_unit(f->front) == f->unit))
        return;
    serve_begin(s);
    serve_poll(s);
    cl_raft_in_call_work(&s->in_call, s->now_ns, cl_sched_turn());
}

int serve_resp_bind(struct cl_raft_service *s, char err[256])
{
    const struct cl_raft_resp_config *c = &s->config.resp;
    struct serve_resp *f = calloc(1, sizeof *f);
    if (!f || !(f->entry = malloc(s->config.node.raft.entry_bytes))) {
        free(f);
        snprintf(err, 256, "no memory for the port of RESP");
        return -ENOMEM;
    }
    f->s = s;
    s->resp = f;
    s->give = send_all;
    int rc = new_engine(f, &f->front, err);
    if (rc)
        return rc;
    say_where(f);
    rc = cl_resp_serve(s->rt, f->front, c->port, c->backlog, NULL, &f->port, err);
    if (!rc)
        cl_resp_service_after(f->port, after, f);
    return rc;
}

void serve_resp_delete(struct serve_resp *f)
{
    if (!f)
        return;
    cl_resp_service_delete(f->port);
    cl_resp_delete(f->front);
    cl_resp_delete(f->making);
    free(f->entry);
    free(f);
}

struct cl_resp_service *cl_raft_service_resp(struct cl_raft_service *s)
{
    return s->resp ? s->resp->port : NULL;
}

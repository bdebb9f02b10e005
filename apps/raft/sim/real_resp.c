/* See real_resp.h. */
#include "real_resp.h"
#include "real.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_BYTES 512
#define OTHERS 12u /* keys of each type beside the registers */
#define PORT 6379
#define ADDRESS(id) (10u << 24 | (id))

static uint64_t env_random(void *arg)
{
    struct real_port *p = arg;
    return cl_random_next(&p->random);
}

static uint32_t env_address(void *arg, uint32_t id)
{
    (void)arg;
    return ADDRESS(id);
}

static void reply(struct real_port *p, const struct sim_request *q, const struct sim_reply *out)
{
    struct sim_reply r = *out;
    r.client = q->client;
    r.session = q->command.session;
    r.sequence = q->command.sequence;
    sim_answer(p->r->world, &r);
}

static void drop(struct real_conn *k)
{
    cl_resp_disconnect(k->client);
    *k = (struct real_conn){0};
}

/* Its engine is another one from here on: all connections end. */
static void env_become(void *arg, struct cl_resp *r)
{
    struct real_port *p = arg;
    (void)r;
    for (uint32_t i = 0; i < SIM_CLIENTS; i++)
        if (p->conns[i].client) {
            reply(p, &p->conns[i].request, &(struct sim_reply){.status = SIM_ENDED});
            drop(&p->conns[i]);
            p->r->world->result->connections_ended++;
        }
}

int real_port_new(struct real *r, char err[256])
{
    const struct sim_world *w = r->world;
    struct real_port *p = calloc(1, sizeof *p);
    if (!p) {
        snprintf(err, 256, "no memory for a port");
        return -ENOMEM;
    }
    r->port = p;
    p->r = r;
    p->random.state = sim_mix(w->swarm.config.seed ^ sim_mix((uint64_t)r->owner->epoch * SIM_NODES + r->owner->id + 1));
    const struct raft_ahead_config config = {
        .node = r->node,
        .values = &r->values.resp,
        .settings = {.seed = cl_random_next(&p->random) | 1, .manual_ms = 1},
        .log = r->log,
        .entry_bytes = w->swarm.config.entry_bytes,
        .ipv4 = ADDRESS(r->owner->id),
        .port = PORT,
        .kind = 1,
        .arg = p,
        .random = env_random,
        .address = env_address,
        .become = env_become,
    };
    return raft_ahead_new(&p->ahead, &config, err);
}

void real_port_delete(struct real *r)
{
    struct real_port *p = r->port;
    if (!p)
        return;
    r->world->result->epochs_opened += p->ahead.count.opened;
    r->world->result->epochs_lost += p->ahead.count.lost;
    raft_ahead_delete(&p->ahead); /* its clients go with an engine */
    free(p);
    r->port = NULL;
}

static void look_at_clock(struct real *r)
{
    cl_resp_move(r->port->ahead.front, (int64_t)real_wall_ms(r));
}

/* Something to another key, drawn from the command. */
static int beside(char *out, uint64_t word)
{
    static const char *const forms[] = {
        "SET n%u %lu PX 30", "SETRANGE n%u 1%02lu0 end", "SADD e%u a b m%lu", "SPOP e%u",        "ZADD z%u %lu a 2 b",
        "ZPOPMIN z%u",       "HSET h%u f%lu v",          "DEL h%u n%lu",      "PEXPIRE e%u %lu", "LPUSH l%u %lu",
        "LTRIM l%u 0 %lu",   "RENAME l%u l%lu"};
    unsigned form = (unsigned)(word % (sizeof forms / sizeof *forms)), key = (unsigned)(word >> 8) % OTHERS;
    int n = snprintf(out, TEXT_BYTES / 2, forms[form], key, (word >> 16) % OTHERS);
    return n + snprintf(out + n, TEXT_BYTES / 2, "\r\n");
}

/* The request as text, and how many replies it has. */
static uint32_t write_request(const struct sim_request *q, char *out, uint32_t *expects)
{
    const struct sim_command *c = &q->command;
    unsigned key = c->key % SIM_KEYS;
    char *at = out;
    *expects = 1;
    if (q->part != SIM_SWAP) { /* between WATCH and EXEC nothing may come */
        at += beside(at, sim_mix(c->input + ((uint64_t)c->session << 32 | c->sequence)));
        ++*expects;
    }
    if (q->part == SIM_LOOK) {
        at += sprintf(at, "WATCH r%u\r\nGET r%u\r\n", key, key);
        ++*expects;
    } else if (q->part == SIM_SWAP) {
        at += sprintf(at, "MULTI\r\nSET r%u %016lx\r\nEXEC\r\n", key, q->text);
        *expects = 3;
    } else if (c->kind == CL_HISTORY_GET) {
        at += sprintf(at, "GET r%u\r\n", key);
    } else if (c->kind == CL_HISTORY_ADD) {
        at += sprintf(at, "INCRBY r%u %lu\r\n", key, c->input);
    } else if (c->kind == CL_HISTORY_DELETE) {
        at += sprintf(at, "DEL r%u\r\n", key);
    } else {
        at += sprintf(at, "%s r%u %016lx\r\n", c->kind == CL_HISTORY_APPEND ? "APPEND" : "SET", key, q->text);
    }
    return (uint32_t)(at - out);
}

void real_port_request(struct real *r, const struct sim_request *q)
{
    struct real_port *p = r->port;
    struct real_conn *k = &p->conns[q->client];
    char text[TEXT_BYTES];
    bool same = k->client && k->session == q->command.session;
    if (!same && !q->opens) { /* it has ended */
        reply(p, q, &(struct sim_reply){.status = SIM_ENDED});
        return;
    }
    if (!same) {
        if (k->client)
            drop(k);
        k->client = cl_resp_connect(p->ahead.front, "10.1.0.1:1", "10.0.0.1:1");
        k->session = q->command.session;
    }
    k->request = *q;
    k->bytes = 0;
    uint32_t n = write_request(q, text, &k->expects);
    look_at_clock(r);
    if (!k->client || cl_resp_feed(k->client, (const uint8_t *)text, n) != n)
        sim_fail(r->world, "#%u does not take a request of %u bytes", r->owner->id, n);
}

/* Take up leadership or let go of it, and look at the time. */
static bool turn(struct real *r)
{
    look_at_clock(r);
    bool more = raft_ahead_turn(&r->port->ahead);
    look_at_clock(r); /* of another engine, maybe */
    (void)cl_resp_tick(r->port->ahead.front);
    return more;
}

uint64_t real_port_give(struct real *r)
{
    struct real_port *p = r->port;
    uint64_t now_ns = real_clock(r);
    if (now_ns >= p->due_ns)
        p->due_ns = turn(r) ? now_ns : now_ns + r->world->swarm.tick_ns;
    if (raft_ahead_give(&p->ahead, now_ns))
        p->due_ns = now_ns;
    return p->due_ns;
}

/* How long a reply of RESP2 is, 0 if it is not all there. */
static uint32_t reply_bytes(const uint8_t *p, uint32_t bytes)
{
    const uint8_t *line = bytes ? memchr(p, '\n', bytes) : NULL;
    if (!line)
        return 0;
    uint32_t head = (uint32_t)(line - p) + 1;
    long n = *p == '$' || *p == '*' ? strtol((const char *)p + 1, NULL, 10) : -1;
    if (n < 0)
        return head;
    if (*p == '$')
        return head + (uint32_t)n + 2 <= bytes ? head + (uint32_t)n + 2 : 0;
    for (uint32_t one; n; n--, head += one)
        if (!(one = reply_bytes(p + head, bytes - head)))
            return 0;
    return head;
}

/* The register as the history has it. */
static uint64_t value_of(const uint8_t *p, uint32_t key)
{
    char *text;
    long n = strtol((const char *)p + 1, &text, 10);
    if (n < 0)
        return CL_HISTORY_ABSENT;
    text += 2;
    return key ? cl_history_digest((const uint8_t *)text, (uint64_t)n) : strtoull(text, NULL, 10);
}

/* Where it says that the leader is. */
static uint32_t leader_of(const char *error)
{
    unsigned id = 0;
    if (sscanf(error, "-MOVED 0 10.0.0.%u:6379", &id) != 1)
        return 0;
    return id;
}

static bool is(const uint8_t *p, const char *word)
{
    return !memcmp(p, word, strlen(word));
}

/* What is said of a command that was not done. */
static bool says_no(const uint8_t *p)
{
    return is(p, "-MOVED ") || is(p, "-CLUSTERDOWN ") || is(p, "-LOADING ") || is(p, "-MISCONF ") ||
           is(p, "-EXECABORT ");
}

/* The last reply to a request. */
static void read_reply(struct real_port *p, struct real_conn *k, const uint8_t *last)
{
    const struct sim_request *q = &k->request;
    struct sim_world *w = p->r->world;
    struct sim_reply out = {.status = SIM_DONE};
    uint32_t kind = q->command.kind;
    bool gets = q->part == SIM_LOOK || (q->part == SIM_WHOLE && kind == CL_HISTORY_GET);
    if (q->part == SIM_SWAP && (is(last, "*-1\r\n") || says_no(last))) {
        out.outcome.refused = true;
    } else if (says_no(last)) {
        out.status = SIM_ELSEWHERE;
        out.leader = leader_of((const char *)last);
        w->result->moved += out.leader != 0;
    } else if (gets && *last == '$') {
        out.outcome.value = value_of(last, q->command.key % SIM_KEYS);
    } else if (*last == ':' && kind == CL_HISTORY_DELETE) {
        out.outcome.refused = last[1] == '0';
    } else if (*last == ':' && (kind == CL_HISTORY_ADD || kind == CL_HISTORY_APPEND)) {
        out.outcome.value = strtoull((const char *)last + 1, NULL, 10);
    } else if (!is(last, "+OK\r\n") && !is(last, "*1\r\n+OK\r\n")) {
        sim_fail(w, "#%u answers %.40s", p->r->owner->id, (const char *)last);
    }
    k->expects = 0;
    reply(p, q, &out);
}

static void take(struct real_port *p, struct real_conn *k)
{
    uint64_t len;
    for (const uint8_t *at; (at = cl_resp_out(k->client, &len));) {
        if (!k->expects || k->bytes + len >= sizeof k->out)
            return sim_fail(p->r->world, "#%u sends %lu bytes that nobody awaits", p->r->owner->id, len);
        memcpy(k->out + k->bytes, at, len);
        k->bytes += (uint32_t)len;
        cl_resp_taken(k->client, len);
    }
    k->out[k->bytes] = 0;
    const uint8_t *last = NULL;
    uint32_t there = 0, begin = 0;
    for (uint32_t n; there < k->expects && (n = reply_bytes(k->out + begin, k->bytes - begin)); there++) {
        last = k->out + begin;
        begin += n;
    }
    if (k->expects && there == k->expects)
        read_reply(p, k, last);
}

void real_port_send(struct real *r)
{
    for (uint32_t i = 0; i < SIM_CLIENTS && !r->world->stopped; i++)
        if (r->port->conns[i].client)
            take(r->port, &r->port->conns[i]);
}

/* See engine.h. */
#include "engine.h"
#include "apply.h"
#include "block.h"
#include "call.h"
#include "client.h"
#include "config.h"
#include "db.h"
#include "durable.h"
#include "propagate.h"
#include "pubsub.h"
#include "reply.h"
#include "table.h"
#include "value.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>

#define MEMORY_LEAST (1u << 20)
#define EXPIRE_MOST 1000 /* keys of a database at a time */
#define TICK_MS 100

static void look_at_clock(struct cl_resp *r)
{
    struct timespec t;
    r->now_ms = r->moved_ms;
    if (r->manual_clock)
        return;
    clock_gettime(CLOCK_REALTIME, &t);
    r->now_ms = t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static int secrets(struct cl_resp *r, uint64_t seed)
{
    r->random = seed;
    if (!seed && getrandom(&r->random, sizeof r->random, 0) != sizeof r->random)
        return -EIO;
    if (!seed)
        return getrandom(&r->secret, sizeof r->secret, 0) == sizeof r->secret ? 0 : -EIO;
    for (unsigned i = 0; i < 4; i++)
        r->secret.word[i] = cl_resp_random(r);
    return 0;
}

static void name_commands(struct cl_resp *r)
{
    cl_rdict_init(&r->by_name, offsetof(struct cl_rname, key));
    r->commands = cl_rtable;
    while (r->commands[r->n_commands].name)
        r->n_commands++;
    r->n_stats = cl_rcall_number(r, NULL); /* which none has: the number behind the last */
    r->command_stats = cl_rmem_zero(&r->mem, r->n_stats * sizeof *r->command_stats);
    for (uint32_t i = 0; i < r->n_commands; i++) {
        struct cl_slice name = cl_slice_of(r->commands[i].name);
        struct cl_rname *n = cl_rmem_new(&r->mem, sizeof *n + name.len);
        n->node = (struct cl_rnode){.hash = cl_rdict_hash(&r->secret, name), .key_len = name.len};
        n->cmd = &r->commands[i];
        memcpy(n->key, name.p, name.len);
        cl_rdict_add(&r->mem, &r->by_name, &n->node);
    }
}

static void publish(struct cl_resp *r, struct cl_slice channel, struct cl_slice message)
{
    (void)cl_pubsub_publish(r, channel, message);
}

static int configure(struct cl_resp *r, const struct cl_resp_settings *s, char err[256])
{
    const char *why;
    cl_rconfig_default(&r->config);
    if (s->policy && !cl_rconfig_set(r, cl_slice_of("maxmemory-policy"), cl_slice_of(s->policy), &why)) {
        snprintf(err, 256, "maxmemory-policy %.64s: %.160s", s->policy, why);
        return -EINVAL;
    }
    if (s->password && !cl_rconfig_set(r, cl_slice_of("requirepass"), cl_slice_of(s->password), &why)) {
        snprintf(err, 256, "%s", why);
        return -EINVAL;
    }
    r->config.maxmemory = s->memory_bytes;
    return 0;
}

int cl_resp_new(const struct cl_resp_settings *s, struct cl_resp **out, char err[256])
{
    if (s->memory_bytes < MEMORY_LEAST) {
        snprintf(err, 256, "%llu bytes are too few: 1 MiB or more", (unsigned long long)s->memory_bytes);
        return -EINVAL;
    }
    struct cl_resp *r = calloc(1, sizeof *r);
    if (!r) {
        snprintf(err, 256, "out of memory");
        return -ENOMEM;
    }
    r->limit = s->memory_bytes;
    r->manual_clock = s->manual_ms != 0;
    r->moved_ms = s->manual_ms;
    r->active_expire = 1;
    r->publish = publish;
    int rc = configure(r, s, err);
    if (!rc && (rc = secrets(r, s->seed)))
        snprintf(err, 256, "the kernel gives no random numbers: %s", strerror(-rc));
    if (rc) {
        free(r);
        return rc;
    }
    look_at_clock(r);
    r->started_ms = r->now_ms;
    for (uint32_t i = 0; i < CL_RESP_DATABASES; i++)
        cl_rdb_init(r, i);
    cl_rtopics_init(&r->channels, &r->mem, &r->secret, r);
    cl_rtopics_init(&r->patterns, &r->mem, &r->secret, r);
    name_commands(r);
    *out = r;
    return 0;
}

static void free_own(struct cl_resp *r)
{
    cl_rprop_free(r);
    CL_RDICT_EACH(&r->by_name, n)
    cl_rmem_free(&r->mem, n, sizeof(struct cl_rname) + n->key_len);
    cl_rdict_end(&r->mem, &r->by_name);
    cl_rmem_free(&r->mem, r->command_stats, r->n_stats * sizeof *r->command_stats);
    cl_rmem_free(&r->mem, r->argv, r->argv_room * sizeof *r->argv);
    cl_rtopics_end(&r->channels);
    cl_rtopics_end(&r->patterns);
}

void cl_resp_delete(struct cl_resp *r)
{
    if (!r)
        return;
    while (r->clients)
        cl_client_free(r->clients);
    for (uint32_t i = 0; i < CL_RESP_DATABASES; i++)
        cl_rdb_end(r, i);
    free_own(r);
    cl_rmem_end(&r->mem);
    free(r);
}

struct cl_resp_client *cl_resp_connect(struct cl_resp *r, const char *peer, const char *own)
{
    look_at_clock(r);
    if (r->n_clients >= r->config.maxclients) {
        r->stats.rejected++;
        return NULL;
    }
    return cl_client_new(r, peer, own);
}

/* Tell whoever has something to do. */
static void wake_all(struct cl_resp *r)
{
    for (struct cl_resp_client *c; (c = r->woken);) {
        r->woken = c->next_woken;
        c->flags &= ~(uint32_t)CL_RC_WOKEN;
        cl_rdurable_replied(c);
        if (c->wake)
            c->wake(c->wake_arg);
    }
}

void cl_resp_disconnect(struct cl_resp_client *c)
{
    struct cl_resp *r = c->r;
    cl_client_free(c);
    wake_all(r);
}

void cl_resp_on_wake(struct cl_resp_client *c, void (*wake)(void *arg), void *arg)
{
    c->wake = wake;
    c->wake_arg = arg;
}

uint64_t cl_resp_feed(struct cl_resp_client *c, const uint8_t *data, uint64_t len)
{
    struct cl_resp *r = c->r;
    look_at_clock(r);
    uint64_t taken = cl_client_feed(c, data, len);
    r->stats.bytes_in += taken;
    cl_rprop_end(r); /* keys that made room for bytes alone */
    cl_rdurable_replied(c);
    wake_all(r);
    return taken;
}

void cl_resp_propagate(struct cl_resp *r)
{
    r->propagation.on = true;
}

/* All of them may run commands that they were kept from. */
static void wake_clients(struct cl_resp *r)
{
    for (struct cl_resp_client *c = r->clients; c; c = c->next)
        cl_client_wake(c);
}

const uint8_t *cl_resp_units(struct cl_resp *r, uint64_t *len, uint64_t *unit)
{
    bool stalled = r->propagation.open.len > CL_RESP_UNITS_HIGH;
    const uint8_t *units = cl_rprop_take(r, len, unit);
    r->durable.taken = *unit;
    if (stalled)
        wake_clients(r);
    wake_all(r);
    return units;
}

uint32_t cl_resp_waiting(const struct cl_resp *r)
{
    return r->durable.n_holding;
}

uint32_t cl_resp_active(const struct cl_resp *r)
{
    return r->durable.active;
}

uint64_t cl_resp_units_bytes(const struct cl_resp *r)
{
    return r->propagation.open.len;
}

void cl_resp_hold(struct cl_resp *r)
{
    r->durable.on = true;
    r->durable.write = 1;
    r->durable.unit = r->propagation.units;
    r->durable.room = UINT64_MAX;
}

void cl_resp_confirm(struct cl_resp *r)
{
    cl_resp_hold(r);
    r->durable.confirms = true;
    r->durable.taken = r->propagation.units;
}

void cl_resp_replicas(struct cl_resp *r, uint32_t n)
{
    r->durable.replicas = n;
}

uint64_t cl_resp_unit(const struct cl_resp *r)
{
    return r->propagation.units;
}

void cl_resp_elsewhere(struct cl_resp *r, const char *error, const char *host, uint16_t port)
{
    struct cl_relsewhere *e = &r->elsewhere;
    snprintf(e->error, sizeof e->error, "%s", error);
    snprintf(e->host, sizeof e->host, "%s", host);
    e->port = port;
}

void cl_resp_durable(struct cl_resp *r, uint64_t unit)
{
    cl_rdurable_until(r, unit);
    wake_all(r);
}

uint64_t cl_resp_held(const struct cl_resp_client *c)
{
    return cl_rdurable_held(c);
}

void cl_resp_waits(const struct cl_resp_client *c, struct cl_resp_waits *out)
{
    const struct cl_rheld *h = &c->held;
    *out = (struct cl_resp_waits){.opened = h->opened,
                                  .held = cl_rdurable_held(c) ? (h->first != 0) + (h->rest != 0) : 0,
                                  .blocked = (c->flags & CL_RC_BLOCKED) != 0};
}

void cl_resp_failed(struct cl_resp *r, int error)
{
    cl_rdurable_failed(r, error);
    wake_all(r);
}

void cl_resp_log_room(struct cl_resp *r, uint64_t bytes, uint64_t room)
{
    r->durable.bytes = bytes;
    r->durable.room = room;
}

bool cl_resp_wants_rewrite(const struct cl_resp *r, uint64_t growth)
{
    const struct cl_rdurable *d = &r->durable;
    uint64_t percent = (uint64_t)r->config.rewrite_percent;
    if (!d->on || d->error || d->rewriting || d->finishing)
        return false;
    if (d->asked)
        return true;
    uint64_t grown = d->bytes - cl_min(d->bytes, d->base_bytes);
    if (grown > growth)
        return true;
    return percent && d->bytes >= (uint64_t)r->config.rewrite_least && grown >= d->base_bytes / 100 * percent;
}

void cl_resp_rewrite(struct cl_resp *r)
{
    r->durable.asked = false;
    cl_rrewrite_begin(r);
}

bool cl_resp_rewrites(const struct cl_resp *r)
{
    return r->durable.rewriting;
}

bool cl_resp_rewrite_step(struct cl_resp *r, uint64_t bytes)
{
    return cl_rrewrite_step(r, bytes);
}

void cl_resp_rewritten(struct cl_resp *r, uint64_t bytes)
{
    look_at_clock(r);
    r->durable.finishing = false;
    r->durable.rewrites++;
    r->durable.rewritten_ms = r->now_ms;
    r->durable.bytes = r->durable.base_bytes = bytes;
}

void cl_resp_rewrite_abort(struct cl_resp *r)
{
    r->durable.rewriting = false;
    r->durable.base_bytes = r->durable.bytes;
}

uint64_t cl_resp_rewrite_bytes(const struct cl_resp *r)
{
    return r->durable.pass_bytes;
}

int cl_resp_apply(struct cl_resp *r, const uint8_t *units, uint64_t len, char err[256])
{
    look_at_clock(r);
    int rc = cl_rapply(r, units, len, err);
    if (r->ready)
        cl_rblock_serve(r);
    cl_rprop_end(r);
    wake_all(r);
    return rc;
}

const uint8_t *cl_resp_out(const struct cl_resp_client *c, uint64_t *len)
{
    const struct cl_rchunk *chunk = c->out.first;
    uint32_t taken = c->out.taken;
    while (chunk && chunk->len == taken) { /* a chunk that was begun and not used */
        chunk = chunk->next;
        taken = 0;
    }
    *len = chunk ? chunk->len - taken : 0;
    if (c->r->durable.on)
        *len = cl_min(*len, c->held.open);
    return *len ? chunk->data + taken : NULL;
}

void cl_resp_taken(struct cl_resp_client *c, uint64_t n)
{
    struct cl_rchain *out = &c->out;
    c->r->stats.bytes_out += n;
    out->bytes -= n;
    cl_reply_left(c->r, n);
    cl_rdurable_taken(c, n);
    for (struct cl_rchunk *chunk; (chunk = out->first);) {
        uint64_t part = cl_min(n, (uint64_t)(chunk->len - out->taken));
        n -= part;
        out->taken += (uint32_t)part;
        if (out->taken < chunk->len)
            return;
        out->first = chunk->next;
        if (!out->first)
            out->last = NULL;
        out->taken = 0;
        cl_rmem_free(&c->r->mem, chunk, sizeof *chunk + chunk->room);
    }
}

int cl_resp_ends(const struct cl_resp_client *c)
{
    if (c->flags & CL_RC_CLOSE_NOW)
        return 2;
    return (c->flags & CL_RC_CLOSE_AFTER) && !cl_rdurable_held(c);
}

static void idle_clients(struct cl_resp *r)
{
    int64_t before = r->now_ms - r->config.timeout_s * 1000;
    for (struct cl_resp_client *c = r->clients; r->config.timeout_s && c; c = c->next)
        if (c->used_ms < before && !(c->flags & (CL_RC_BLOCKED | CL_RC_POSTPONED | CL_RC_MONITOR)) &&
            !(c->n_channels + c->n_patterns)) {
            c->flags |= CL_RC_CLOSE_NOW;
            cl_client_wake(c);
        }
}

static void end_pause(struct cl_resp *r)
{
    if (r->paused_until_ms && r->paused_until_ms <= r->now_ms)
        cl_rcall_unpause(r);
}

int64_t cl_resp_tick(struct cl_resp *r)
{
    look_at_clock(r);
    for (uint32_t i = 0; r->active_expire && i < CL_RESP_DATABASES; i++)
        (void)cl_rdb_expire_some(r, &r->db[i], EXPIRE_MOST);
    cl_rblock_timeouts(r);
    idle_clients(r);
    end_pause(r);
    cl_rprop_end(r);
    wake_all(r);
    int64_t next = cl_rblock_next_ms(r), left = next ? cl_max(next - r->now_ms, (int64_t)1) : TICK_MS;
    return cl_min(left, (int64_t)TICK_MS);
}

void cl_resp_move(struct cl_resp *r, int64_t ms)
{
    r->moved_ms += ms;
    look_at_clock(r);
}

uint64_t cl_resp_used(const struct cl_resp *r, uint64_t *limit)
{
    *limit = cl_resp_limit(r);
    return r->mem.used;
}

int64_t cl_resp_check(struct cl_resp *r, char err[256])
{
    uint64_t unread = 0;
    for (struct cl_resp_client *c = r->clients; c; c = c->next)
        unread += c->out.bytes;
    if (unread != r->unread) {
        snprintf(err, 256, "%llu bytes of replies wait, and %llu are counted", (unsigned long long)unread,
                 (unsigned long long)r->unread);
        return -1;
    }
    for (uint32_t i = 0; i < CL_RESP_DATABASES; i++) {
        struct cl_rdb *db = &r->db[i];
        uint32_t n = 0, expire = 0;
        CL_RDICT_EACH(&db->keys, node)
        {
            struct cl_entry *e = (struct cl_entry *)node;
            n++;
            expire += e->heap_at != 0;
            if ((e->expires_ms != 0) != (e->heap_at != 0) || (e->heap_at && db->heap[e->heap_at - 1] != e)) {
                snprintf(err, 256, "a key that expires is not where the heap of database %u has it", i);
                return -1;
            }
        }
        if (n != db->keys.count || expire != db->heap_n) {
            snprintf(err, 256, "database %u has %u keys and counts %u, %u of them expire and %u are in its heap", i, n,
                     db->keys.count, expire, db->heap_n);
            return -1;
        }
    }
    return 0;
}

/* See db.h. */
#include "db.h"
#include "propagate.h"
#include "reply.h"
#include "value.h"

#define LFU_FIRST 5 /* counter of a new key */

/* The heap of what expires: the root is next. */

static void put(struct cl_rdb *db, uint32_t at, struct cl_entry *e)
{
    db->heap[at] = e;
    e->heap_at = at + 1;
}

static void up(struct cl_rdb *db, uint32_t at)
{
    struct cl_entry *e = db->heap[at];
    for (; at; at = (at - 1) / 2) {
        struct cl_entry *parent = db->heap[(at - 1) / 2];
        if (parent->expires_ms <= e->expires_ms)
            break;
        put(db, at, parent);
    }
    put(db, at, e);
}

static void down(struct cl_rdb *db, uint32_t at)
{
    struct cl_entry *e = db->heap[at];
    for (uint32_t child; (child = 2 * at + 1) < db->heap_n; at = child) {
        if (child + 1 < db->heap_n && db->heap[child + 1]->expires_ms < db->heap[child]->expires_ms)
            child++;
        if (e->expires_ms <= db->heap[child]->expires_ms)
            break;
        put(db, at, db->heap[child]);
    }
    put(db, at, e);
}

static void heap_remove(struct cl_rdb *db, struct cl_entry *e)
{
    uint32_t at = e->heap_at - 1;
    struct cl_entry *last = db->heap[--db->heap_n];
    e->heap_at = 0;
    if (last == e)
        return;
    put(db, at, last);
    up(db, at);
    down(db, last->heap_at - 1);
}

static void heap_add(struct cl_resp *r, struct cl_rdb *db, struct cl_entry *e)
{
    if (db->heap_n == db->heap_room) {
        uint32_t room = cl_max(2 * db->heap_room, 16u);
        db->heap = cl_rmem_resize(&r->mem, db->heap, db->heap_room * sizeof *db->heap, room * sizeof *db->heap);
        db->heap_room = room;
    }
    put(db, db->heap_n++, e);
    up(db, db->heap_n - 1);
}

void cl_entry_expire_at(struct cl_resp *r, struct cl_rdb *db, struct cl_entry *e, int64_t ms)
{
    if (e->heap_at)
        heap_remove(db, e);
    e->expires_ms = ms;
    if (ms)
        heap_add(r, db, e);
}

/* Use. */

static uint32_t minutes(const struct cl_resp *r)
{
    return (uint32_t)(r->now_ms / 60000) & 0xffffff;
}

static bool lfu(const struct cl_resp *r)
{
    return r->config.policy & 1; /* enum cl_rpolicy: odd numbers */
}

uint32_t cl_entry_frequency(const struct cl_resp *r, const struct cl_entry *e)
{
    uint32_t counter = e->used_at & 0xff, passed = (minutes(r) - (e->used_at >> 8)) & 0xffffff;
    uint32_t decay = r->config.lfu_decay_time ? passed / (uint32_t)r->config.lfu_decay_time : 0;
    return decay > counter ? 0 : counter - decay;
}

uint32_t cl_entry_idle_s(const struct cl_resp *r, const struct cl_entry *e)
{
    uint32_t now = (uint32_t)(r->now_ms / 1000);
    return now > e->used_at ? now - e->used_at : 0;
}

/* A counter that grows ever more slowly (Morris, CACM 1978), and falls with the minutes. */
static void count_use(struct cl_resp *r, struct cl_entry *e)
{
    uint32_t counter = cl_entry_frequency(r, e), above = counter > LFU_FIRST ? counter - LFU_FIRST : 0;
    uint64_t one_in = above * (uint64_t)r->config.lfu_log_factor + 1;
    if (counter < 255 && cl_resp_random(r) % one_in == 0)
        counter++;
    e->used_at = minutes(r) << 8 | counter;
}

void cl_entry_touch(struct cl_resp *r, struct cl_entry *e)
{
    if (lfu(r))
        count_use(r, e);
    else
        e->used_at = (uint32_t)(r->now_ms / 1000);
}

/* Keys. */

void cl_rdb_init(struct cl_resp *r, uint32_t number)
{
    struct cl_rdb *db = &r->db[number];
    *db = (struct cl_rdb){.number = number};
    cl_rdict_init(&db->keys, offsetof(struct cl_entry, key));
    cl_rtopics_init(&db->watched, &r->mem, &r->secret, db);
    cl_rtopics_init(&db->blocked, &r->mem, &r->secret, db);
}

void cl_rdb_end(struct cl_resp *r, uint32_t number)
{
    cl_rdb_flush(r, &r->db[number]);
    cl_rtopics_end(&r->db[number].watched);
    cl_rtopics_end(&r->db[number].blocked);
}

struct cl_entry *cl_rdb_peek(struct cl_rdb *db, struct cl_slice key)
{
    return (struct cl_entry *)cl_rdict_find(&db->keys, cl_rdict_hash(db->watched.secret, key), key);
}

struct cl_entry *cl_rdb_look(struct cl_resp_client *c, struct cl_slice key)
{
    struct cl_rdb *db = cl_rdb_of(c);
    struct cl_entry *e = cl_rdb_peek(db, key);
    if (!e || cl_likely(!cl_entry_expired(c->r, e)))
        return e;
    cl_rdb_expire(c->r, db, e, false);
    return NULL;
}

struct cl_entry *cl_rdb_write(struct cl_resp_client *c, struct cl_slice key)
{
    struct cl_entry *e = cl_rdb_look(c, key);
    if (e && !(c->flags & CL_RC_NO_TOUCH))
        cl_entry_touch(c->r, e);
    return e;
}

struct cl_entry *cl_rdb_read(struct cl_resp_client *c, struct cl_slice key)
{
    struct cl_entry *e = cl_rdb_write(c, key);
    if (e) {
        c->r->stats.hits++;
    } else {
        c->r->stats.misses++;
        cl_rdb_notify(c->r, CL_RN_MISS, "keymiss", key, c->db);
    }
    return e;
}

static bool is(struct cl_resp_client *c, struct cl_entry *e, enum cl_rtype type)
{
    if (!e || e->type == type)
        return true;
    cl_reply_wrong_type(c);
    return false;
}

bool cl_rdb_read_as(struct cl_resp_client *c, struct cl_slice key, enum cl_rtype type, struct cl_entry **out)
{
    *out = cl_rdb_read(c, key);
    return is(c, *out, type);
}

bool cl_rdb_write_as(struct cl_resp_client *c, struct cl_slice key, enum cl_rtype type, struct cl_entry **out)
{
    *out = cl_rdb_write(c, key);
    return is(c, *out, type);
}

struct cl_entry *cl_rdb_add_in(struct cl_resp *r, struct cl_rdb *db, struct cl_slice key, enum cl_rtype type)
{
    struct cl_entry *e = cl_rmem_new(&r->mem, sizeof *e + key.len);
    *e = (struct cl_entry){.node = {.hash = cl_rdict_hash(&r->secret, key), .key_len = key.len}, .type = (uint8_t)type};
    e->pass = r->durable.pass;
    e->used_at = lfu(r) ? minutes(r) << 8 | LFU_FIRST : (uint32_t)(r->now_ms / 1000);
    memcpy(e->key, key.p, key.len);
    cl_rdict_add(&r->mem, &db->keys, &e->node);
    cl_rdb_notify(r, CL_RN_NEW, "new", key, db->number);
    return e;
}

struct cl_entry *cl_rdb_add(struct cl_resp_client *c, struct cl_slice key, enum cl_rtype type)
{
    return cl_rdb_add_in(c->r, cl_rdb_of(c), key, type);
}

struct cl_entry *cl_rdb_replace(struct cl_resp_client *c, struct cl_entry *e, struct cl_slice key, enum cl_rtype type)
{
    if (!e)
        return cl_rdb_add(c, key, type);
    cl_rvalue_free(c->r, e);
    e->type = (uint8_t)type;
    e->how = 0;
    cl_entry_expire_at(c->r, cl_rdb_of(c), e, 0);
    return e;
}

void cl_rdb_remove(struct cl_resp *r, struct cl_rdb *db, struct cl_entry *e, bool keep)
{
    if (e->heap_at)
        heap_remove(db, e);
    cl_rdict_take(&r->mem, &db->keys, cl_rdict_place(&db->keys, e->node.hash, cl_entry_key(e)), keep);
    cl_rvalue_free(r, e);
    cl_rmem_free(&r->mem, e, sizeof *e + e->node.key_len);
}

/* Names of removed keys outlive them for as long as somebody is told. */
#define NAME_ROOM 512

static void remove_and_tell(struct cl_resp *r, struct cl_rdb *db, struct cl_entry *e, uint32_t class, const char *event,
                            bool keep)
{
    uint8_t near[NAME_ROOM];
    struct cl_slice key = {near, e->node.key_len};
    if (key.len > NAME_ROOM)
        key.p = cl_rmem_new(&r->mem, key.len);
    memcpy((uint8_t *)(uintptr_t)key.p, e->key, key.len);
    cl_rdb_remove(r, db, e, keep);
    cl_rdb_changed_in(r, db, key);
    cl_rdb_notify(r, class, event, key, db->number);
    if (key.p != near)
        cl_rmem_free(&r->mem, (uint8_t *)(uintptr_t)key.p, key.len);
}

void cl_rdb_delete(struct cl_resp_client *c, struct cl_entry *e)
{
    c->r->dirty++;
    cl_rdb_delete_empty(c, e);
}

void cl_rdb_delete_empty(struct cl_resp_client *c, struct cl_entry *e)
{
    remove_and_tell(c->r, cl_rdb_of(c), e, CL_RN_GENERIC, "del", false);
}

void cl_rdb_expire(struct cl_resp *r, struct cl_rdb *db, struct cl_entry *e, bool keep)
{
    r->stats.expired++;
    cl_rprop_gone(r, db->number, cl_entry_key(e));
    remove_and_tell(r, db, e, CL_RN_EXPIRED, "expired", keep);
}

uint32_t cl_rdb_expire_some(struct cl_resp *r, struct cl_rdb *db, uint32_t n)
{
    uint32_t done = 0;
    for (; done < n && db->heap_n && cl_entry_expired(r, db->heap[0]); done++)
        cl_rdb_expire(r, db, db->heap[0], false);
    return done;
}

void cl_rdb_flush(struct cl_resp *r, struct cl_rdb *db)
{
    CL_RDICT_EACH(&db->keys, n)
    {
        struct cl_entry *e = (struct cl_entry *)n;
        cl_rvalue_free(r, e);
        cl_rmem_free(&r->mem, e, sizeof *e + e->node.key_len);
    }
    cl_rdict_end(&r->mem, &db->keys);
    cl_rmem_free(&r->mem, db->heap, db->heap_room * sizeof *db->heap);
    db->heap = NULL;
    db->heap_n = db->heap_room = 0;
}

/* Changes. */

/* A watched key has changed: e is what it has now. A link's note says that what lies there had expired when it was
 * watched, or has come so: for its client there was no key, and if there is none now nothing has changed. */
static void mark(struct cl_resp *r, struct cl_rtopic *t, bool was, const struct cl_entry *e)
{
    bool gone = !e || cl_entry_expired(r, e);
    for (struct cl_rlink *link = t->first; link; link = link->next) {
        if (gone && (link->note || !was))
            link->note = e != NULL;
        else
            link->client->flags |= CL_RC_DIRTY_CAS;
    }
}

void cl_rdb_changed_in(struct cl_resp *r, struct cl_rdb *db, struct cl_slice key)
{
    struct cl_rtopic *t = cl_rtopic_find(&db->watched, key);
    if (t)
        mark(r, t, true, cl_rdb_peek(db, key));
}

void cl_rdb_changed(struct cl_resp_client *c, struct cl_slice key)
{
    cl_rdb_changed_in(c->r, cl_rdb_of(c), key);
}

void cl_rdb_changed_all(struct cl_resp *r, struct cl_rdb *db, struct cl_rdb *with)
{
    CL_RDICT_EACH(&db->watched.by_name, n)
    {
        struct cl_rtopic *t = (struct cl_rtopic *)n;
        const struct cl_entry *was = cl_rdb_peek(db, cl_rtopic_name(t));
        const struct cl_entry *e = with ? cl_rdb_peek(with, cl_rtopic_name(t)) : NULL;
        if (was || e)
            mark(r, t, was != NULL, e);
    }
}

void cl_rdb_ready(struct cl_resp_client *c, struct cl_slice key)
{
    struct cl_resp *r = c->r;
    if (cl_likely(!r->n_blocked) || !cl_rtopic_find(&cl_rdb_of(c)->blocked, key))
        return;
    for (struct cl_rready *at = r->ready; at; at = at->next)
        if (at->db == c->db && at->key_len == key.len && memcmp(at->key, key.p, key.len) == 0)
            return;
    struct cl_rready *ready = cl_rmem_new(&r->mem, sizeof *ready + key.len);
    *ready = (struct cl_rready){.db = c->db, .key_len = key.len};
    memcpy(ready->key, key.p, key.len);
    if (r->ready_last)
        r->ready_last->next = ready;
    else
        r->ready = ready;
    r->ready_last = ready;
}

static void publish(struct cl_resp *r, uint32_t db, const char *space, struct cl_slice tail, struct cl_slice message)
{
    char near[NAME_ROOM];
    uint64_t room = tail.len + 48ull;
    char *name = room > sizeof near ? cl_rmem_new(&r->mem, room) : near;
    int n = snprintf(name, room > sizeof near ? room : sizeof near, "__%s@%u__:", space, db);
    memcpy(name + n, tail.p, tail.len);
    r->publish(r, (struct cl_slice){(uint8_t *)name, (uint32_t)n + tail.len}, message);
    if (name != near)
        cl_rmem_free(&r->mem, name, room);
}

void cl_rdb_notify(struct cl_resp *r, uint32_t class, const char *event, struct cl_slice key, uint32_t db)
{
    if (cl_likely(!(r->config.notify & class)))
        return;
    if (r->config.notify & CL_RN_KEYSPACE)
        publish(r, db, "keyspace", key, cl_slice_of(event));
    if (r->config.notify & CL_RN_KEYEVENT)
        publish(r, db, "keyevent", cl_slice_of(event), key);
}

void cl_rdb_wrote(struct cl_resp_client *c, uint32_t class, const char *event, struct cl_slice key, uint64_t changes)
{
    c->r->dirty += changes;
    cl_rdb_changed(c, key);
    cl_rdb_notify(c->r, class, event, key, c->db);
}

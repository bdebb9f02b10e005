/* See cache.h. */
#include "cache.h"

#include <corelane/libos/scope.h>

#include <errno.h>
#include <stdlib.h>

#define SHARDS 16
#define BUCKETS 1024       /* of a shard */
#define BLOCK_BYTES 16     /* what malloc takes of a block for itself */
#define ENTRIES_MOST 16384 /* of a shard: names that are not there cost memory, too */

struct entry {
    struct entry *next;                /* of its bucket; under the shard's lock, as all up to `looking` */
    struct entry *around, **around_at; /* of all of the shard */
    uint64_t hash;
    uint32_t refs; /* users, and the table's */
    bool used;     /* since the hand went by */
    bool known;    /* it was looked at */
    enum cl_http_found found;
    int error;
    uint64_t looked_ms;
    struct cl_http_file *file;
    struct cl_mutex looking; /* held by the uthread that has a loader look */
    uint32_t path_len;       /* its 0 included */
    char path[];
};

struct shard {
    struct cl_spin lock CL_ALIGNED(CL_CACHELINE);
    struct entry *all, *hand;
    uint64_t bytes;
    uint32_t entries;
    struct cl_http_cache_counts counts;
    struct entry *buckets[BUCKETS];
};

struct cl_http_cache {
    struct cl_http_loader *loader;
    uint64_t shard_most; /* bytes */
    uint32_t fresh_ms;
    struct shard shards[SHARDS];
};

static uint64_t hash_of(const char *path)
{
    uint64_t h = 0xcbf29ce484222325ull; /* FNV-1a */
    for (; *path; path++)
        h = (h ^ (unsigned char)*path) * 0x100000001b3ull;
    return h ^ h >> 29;
}

/* Entries. The shard's lock is held. */

static uint64_t cost(const struct entry *e)
{
    return sizeof *e + e->path_len + BLOCK_BYTES + (e->file ? cl_http_file_cost(e->file) + BLOCK_BYTES : 0);
}

static struct entry *find(struct shard *s, uint64_t hash, const char *path)
{
    struct entry *e = s->buckets[hash / SHARDS % BUCKETS];
    while (e && (e->hash != hash || strcmp(e->path, path) != 0))
        e = e->next;
    return e;
}

static void put_entry(struct entry *e)
{
    if (--e->refs)
        return;
    cl_http_file_put(e->file);
    free(e);
}

static void enter(struct shard *s, struct entry *e)
{
    struct entry **bucket = &s->buckets[e->hash / SHARDS % BUCKETS];
    e->next = *bucket;
    *bucket = e;
    e->around = s->all;
    e->around_at = &s->all;
    if (s->all)
        s->all->around_at = &e->around;
    s->all = e;
    e->refs++;
    s->entries++;
    s->bytes += cost(e);
}

static void leave(struct shard *s, struct entry *e)
{
    struct entry **at = &s->buckets[e->hash / SHARDS % BUCKETS];
    while (*at != e)
        at = &(*at)->next;
    *at = e->next;
    if (s->hand == e)
        s->hand = e->around;
    *e->around_at = e->around;
    if (e->around)
        e->around->around_at = e->around_at;
    s->entries--;
    s->bytes -= cost(e);
    s->counts.evicted++;
    put_entry(e);
}

/* Let go of what was not used lately, until it fits. `kept` stays. */
static void shrink(const struct cl_http_cache *c, struct shard *s, const struct entry *kept)
{
    uint64_t left = 2ull * s->entries; /* steps: each has lost its second chance by then */
    while ((s->bytes > c->shard_most || s->entries > ENTRIES_MOST) && left--) {
        struct entry *e = s->hand ? s->hand : s->all;
        if (!e)
            return;
        s->hand = e->around;
        if (e->used || e == kept)
            e->used = false;
        else
            leave(s, e);
    }
}

static void set_file(struct shard *s, struct entry *e, struct cl_http_file *file)
{
    struct cl_http_file *before = e->file;
    uint64_t was = cost(e);
    e->file = file;
    s->bytes += cost(e) - was;
    cl_http_file_put(before);
}

/* Looking a path up. */

static struct entry *new_entry(const char *path, uint64_t hash)
{
    size_t len = strlen(path) + 1;
    struct entry *e = calloc(1, sizeof *e + len);
    if (!e)
        return NULL;
    e->hash = hash;
    cl_mutex_init(&e->looking);
    e->path_len = (uint32_t)len;
    memcpy(e->path, path, len);
    return e;
}

/* The entry of a path, which may be a new one, with a reference. NULL: no memory. */
static struct entry *entry_of(const struct cl_http_cache *c, struct shard *s, uint64_t hash, const char *path)
{
    struct entry *e = find(s, hash, path);
    if (!e && (e = new_entry(path, hash))) {
        enter(s, e);
        shrink(c, s, e);
    }
    if (e)
        e->refs++;
    return e;
}

static bool is_fresh(const struct cl_http_cache *c, const struct entry *e, uint64_t now_ms)
{
    return e->known && now_ms - e->looked_ms <= c->fresh_ms;
}

static enum cl_http_found tell(struct entry *e, struct cl_http_file **file, int *error)
{
    e->used = true;
    *error = e->error;
    if (e->found == CL_HTTP_FILE)
        *file = cl_http_file_get(e->file);
    return e->found;
}

/* What a loader has found. A file that is in the table no more is not kept. */
static void settle(const struct cl_http_cache *c, struct shard *s, struct entry *e, const struct cl_http_job *job,
                   uint64_t now_ms)
{
    bool there = find(s, e->hash, e->path) == e;
    s->counts.looks++;
    e->known = true;
    e->looked_ms = now_ms;
    e->error = job->error;
    if (job->found == CL_HTTP_SAME)
        return;
    s->counts.loads += job->found == CL_HTTP_FILE;
    e->found = job->found;
    if (there) {
        set_file(s, e, job->made);
        shrink(c, s, e);
    } else {
        cl_http_file_put(e->file);
        e->file = job->made;
    }
}

/* Have a loader look at it, unless somebody has done so meanwhile. The lock of the shard is not held; the result is
 * what was found. */
static enum cl_http_found look(struct cl_http_cache *c, struct shard *s, struct entry *e, uint64_t now_ms,
                               struct cl_http_file **file, int *error)
{
    cl_shield_enter();
    bool locked = cl_mutex_lock(&e->looking) == 0; /* no uthread: there is one thread then */
    cl_shield_leave();
    cl_spin_lock(&s->lock);
    bool fresh = is_fresh(c, e, now_ms);
    struct cl_http_file *known = e->found == CL_HTTP_FILE && e->file ? cl_http_file_get(e->file) : NULL;
    cl_spin_unlock(&s->lock);
    if (!fresh) {
        struct cl_http_job job = {.path = e->path, .known = known};
        cl_http_load(c->loader, &job);
        cl_spin_lock(&s->lock);
        settle(c, s, e, &job, now_ms);
        cl_spin_unlock(&s->lock);
    }
    cl_spin_lock(&s->lock);
    enum cl_http_found found = tell(e, file, error);
    cl_spin_unlock(&s->lock);
    cl_http_file_put(known);
    if (locked)
        (void)cl_mutex_unlock(&e->looking);
    return found;
}

enum cl_http_found cl_http_cache_find(struct cl_http_cache *c, const char *path, uint64_t now_ms,
                                      struct cl_http_file **file, int *error)
{
    uint64_t hash = hash_of(path);
    struct shard *s = &c->shards[hash % SHARDS];
    enum cl_http_found found = CL_HTTP_NOTHING;
    *file = NULL;
    *error = ENOMEM;
    cl_spin_lock(&s->lock);
    struct entry *e = entry_of(c, s, hash, path);
    bool fresh = e && is_fresh(c, e, now_ms);
    if (fresh) {
        s->counts.hits++;
        found = tell(e, file, error);
        e->refs--;
    }
    cl_spin_unlock(&s->lock);
    if (!e || fresh)
        return found;
    found = look(c, s, e, now_ms, file, error);
    cl_spin_lock(&s->lock);
    put_entry(e);
    cl_spin_unlock(&s->lock);
    return found;
}

int cl_http_cache_read(struct cl_http_cache *c, const struct cl_http_file *f, uint8_t *to, uint64_t from, uint64_t len)
{
    struct cl_http_job job = {.file = f, .to = to, .from = from, .len = len};
    cl_http_load(c->loader, &job);
    return job.error;
}

/* From the beginning to the end. */

int cl_http_cache_new(struct cl_http_loader *loader, uint64_t bytes_most, uint32_t fresh_ms, struct cl_http_cache **out)
{
    struct cl_http_cache *c = aligned_alloc(CL_CACHELINE, sizeof *c);
    if (!c)
        return -ENOMEM;
    memset(c, 0, sizeof *c);
    c->loader = loader;
    c->shard_most = bytes_most / SHARDS;
    c->fresh_ms = fresh_ms;
    *out = c;
    return 0;
}

void cl_http_cache_counts(struct cl_http_cache *c, struct cl_http_cache_counts *out)
{
    *out = (struct cl_http_cache_counts){0};
    for (unsigned i = 0; i < SHARDS; i++) {
        struct shard *s = &c->shards[i];
        cl_spin_lock(&s->lock);
        out->hits += s->counts.hits;
        out->looks += s->counts.looks;
        out->loads += s->counts.loads;
        out->evicted += s->counts.evicted;
        out->entries += s->entries;
        out->bytes += s->bytes;
        cl_spin_unlock(&s->lock);
    }
}

void cl_http_cache_delete(struct cl_http_cache *c)
{
    if (!c)
        return;
    for (unsigned i = 0; i < SHARDS; i++)
        while (c->shards[i].all)
            leave(&c->shards[i], c->shards[i].all);
    cl_http_loader_delete(c->loader);
    free(c);
}

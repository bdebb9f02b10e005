/* See front.h. */
#include "front.h"
#include "shown.h"
#include <errno.h>
#include <stdlib.h>

#define CONNECTIONS 1024
#define BACKLOG 1024
#define REQUESTS_PER_EVENT 20 /* memcached's */
#define BUDGET_BYTES (64ull << 20)
#define PATH_MODE 0700 /* memcached's, too */

static void sides_init(struct cl_kv_front *f)
{
    for (uint32_t i = 0; i < f->n_sides; i++) {
        struct kv_side *side = &f->sides[i].side;
        side->thread = cl_kv_thread(f->store, i);
        side->spill_room = f->store->item_max_bytes + CL_KV_ANSWER_MAX;
    }
}

static bool allocate(struct cl_kv_front *f)
{
    /* Zeroed as it is touched, which aligned_alloc would not give. */
    f->places = calloc(f->config.max_connections + 1ull, sizeof(*f->conns));
    f->conns = (struct kv_conn *)(((uintptr_t)f->places + CL_CACHELINE - 1) & ~(uintptr_t)(CL_CACHELINE - 1));
    f->free = malloc(f->config.max_connections * sizeof(*f->free));
    f->path = f->config.path ? strdup(f->config.path) : NULL;
    f->config.path = f->path;
    bool all = f->places && f->free && (f->path || !f->config.path);
    for (uint32_t i = 0; i < f->n_sides && all; i++)
        all = (f->sides[i].side.scratch = malloc(CL_KV_ANSWER_ROOM)) != NULL;
    return all;
}

int cl_kv_front_new(struct cl_kv *store, const struct cl_kv_front_config *config, struct cl_kv_front **out)
{
    uint32_t n = store->n_threads;
    size_t bytes = sizeof(struct cl_kv_front) + n * sizeof(struct kv_side_line);
    struct cl_kv_front *f = aligned_alloc(64, (bytes + 63) & ~(size_t)63);
    if (!f)
        return -ENOMEM;
    memset(f, 0, bytes);
    f->store = store;
    f->n_sides = n;
    f->config = *config;
    if (!config->max_connections)
        f->config.max_connections = CONNECTIONS;
    if (!config->backlog)
        f->config.backlog = BACKLOG;
    if (!config->requests_per_event)
        f->config.requests_per_event = REQUESTS_PER_EVENT;
    if (!config->budget_bytes)
        f->config.budget_bytes = cl_max(BUDGET_BYTES, 8 * store->item_max_bytes);
    if (!config->path_mode)
        f->config.path_mode = PATH_MODE;
    f->config.budget_bytes = cl_max(f->config.budget_bytes, store->item_max_bytes + CL_KV_ANSWER_MAX);
    if (!allocate(f)) {
        cl_kv_front_delete(f);
        return -ENOMEM;
    }
    sides_init(f);
    f->n_free = f->config.max_connections;
    for (uint32_t i = 0; i < f->n_free; i++) /* the lowest number first, as descriptors */
        f->free[i] = f->n_free - 1 - i;
    kv_shown_begin(f);
    *out = f;
    return 0;
}

void cl_kv_front_delete(struct cl_kv_front *f)
{
    if (!f)
        return;
    kv_shown_end(f);
    for (uint32_t i = 0; i < f->n_sides; i++) {
        free(f->sides[i].side.scratch);
        free(f->sides[i].side.spill);
    }
    free(f->path);
    free(f->free);
    free(f->places);
    free(f);
}

struct kv_conn *kv_front_open(struct cl_kv_front *f, enum kv_kind kind)
{
    struct kv_conn *c = NULL;
    uint32_t serial;
    cl_spin_lock(&f->lock);
    if (f->n_free) {
        cl_store_relaxed(&f->n_free, f->n_free - 1); /* relaxed, as the next ones: others read them to be shown */
        c = &f->conns[f->free[f->n_free]];
        cl_count(&f->opened, 1);
        cl_store_relaxed(&f->most, cl_max(f->most, f->config.max_connections - f->n_free));
    } else {
        cl_count(&f->rejected, 1);
    }
    serial = (uint32_t)f->opened;
    cl_spin_unlock(&f->lock);
    if (!c)
        return NULL;
    *c = (struct kv_conn){.front = f,
                          .number = (uint32_t)(c - f->conns),
                          .serial = serial,
                          .kind = kind,
                          .session.may_watch = !f->elsewhere,
                          .session.most = f->elsewhere ? 0 : f->config.requests_per_event};
    return c;
}

void kv_front_close(struct kv_conn *c)
{
    struct cl_kv_front *f = c->front;
    kv_conn_release(c);
    cl_store_relaxed(&c->state, KV_CONN_CLOSED);
    cl_spin_lock(&f->lock);
    f->free[f->n_free] = c->number;
    cl_store_relaxed(&f->n_free, f->n_free + 1);
    cl_spin_unlock(&f->lock);
}

/* See kv_machine.h. */
#include "kv_machine.h"
#include "../../kv/image.h"
#include "../../kv/layout.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define SWEEP_ITEMS 16 /* checked for expiry with each command */
#define ITEM_BYTES 8192
#define NODE_BYTES 4096 /* of a snapshot: its header and the group's members */
#define NO_QUERY "CLIENT_ERROR a query is lines of get, gets or me, or one of mn, version, stats or verbosity\r\n"

static bool begins(const uint8_t *text, uint64_t bytes, const char *word)
{
    uint64_t n = strlen(word);
    return bytes > n && !memcmp(text, word, n) && text[n] <= ' ';
}

/* Whether all commands are there, and none may change anything, or is about one server. */
static bool only_reads(const struct raft_kv *kv, const uint8_t *text, uint64_t bytes)
{
    struct cl_kv_session session = {.thread = cl_kv_thread(kv->store, 0)};
    struct cl_kv_extent e;
    while (bytes) {
        if (cl_kv_measure(&session, text, bytes, &e) == CL_KV_QUIT || e.to == e.from || e.swallow ||
            e.does > CL_KV_READS)
            return false;
        text += e.to;
        bytes -= e.to;
    }
    return true;
}

enum raft_kv_way raft_kv_way(const struct raft_kv *kv, const uint8_t *text, uint64_t bytes)
{
    const uint8_t *end = memchr(text, '\n', bytes);
    bool alone = end && end + 1 == text + bytes;
    if (alone && (begins(text, bytes, "version") || begins(text, bytes, "stats") || begins(text, bytes, "verbosity") ||
                  begins(text, bytes, "mn")))
        return RAFT_KV_LOCAL;
    return bytes && only_reads(kv, text, bytes) ? RAFT_KV_READ : RAFT_KV_LOG;
}

/* The log's clock is ms since 1970, of which the seconds fit until 2106. 0 and 1 are special to the store. */
static struct cl_kv_thread *at_time(struct raft_kv *kv, uint64_t clock_ms)
{
    cl_kv_set_time(kv->store, (uint32_t)cl_max(clock_ms / 1000, 2ull));
    struct cl_kv_thread *t = cl_kv_thread(kv->store, 0);
    cl_kv_tick(t);
    return t;
}

static int64_t run_commands_at(struct raft_kv *kv, uint64_t clock_ms, bool applied, const uint8_t *text, uint32_t bytes,
                               uint8_t *reply, uint32_t room)
{
    struct cl_kv_session session = {.thread = at_time(kv, clock_ms), .replicated = applied};
    struct cl_kv_out out = {.data = reply, .room = room};
    cl_kv_process_whole(&session, text, bytes, &out);
    return (int64_t)out.len;
}

static int64_t apply_commands(void *arg, uint64_t index, uint64_t clock_ms, const uint8_t *text, uint32_t bytes,
                              uint8_t *reply, uint32_t room)
{
    struct raft_kv *kv = arg;
    (void)index;
    int64_t n = run_commands_at(kv, clock_ms, true, text, bytes, reply, room);
    cl_kv_sweep(cl_kv_thread(kv->store, 0), SWEEP_ITEMS);
    return n;
}

static int64_t query_commands(void *arg, uint64_t clock_ms, const uint8_t *text, uint32_t bytes, uint8_t *reply,
                              uint32_t room)
{
    if (raft_kv_way(arg, text, bytes) != RAFT_KV_LOG)
        return run_commands_at(arg, clock_ms, false, text, bytes, reply, room);
    uint32_t n = cl_min(room, (uint32_t)strlen(NO_QUERY));
    memcpy(reply, NO_QUERY, n);
    return n;
}

static int64_t save_store(void *arg, uint64_t at, uint8_t *out, uint64_t room)
{
    return cl_kv_image_save(((struct raft_kv *)arg)->store, at, out, room);
}

static int load_store(void *arg, uint64_t at, const uint8_t *data, uint64_t bytes, uint64_t total)
{
    (void)total;
    return cl_kv_image_load(((struct raft_kv *)arg)->store, at, data, bytes);
}

/* Replicas must hash alike, and strangers must not know how: whoever chooses keys could have them collide. */
static void seed_store(void *arg, uint64_t word)
{
    cl_kv_reseed(((struct raft_kv *)arg)->store, word);
}

int raft_kv_new(struct raft_kv *kv, uint64_t memory_bytes, struct cl_raft_machine *out, char err[256])
{
    /* The seed is that of groups that began before they drew one. */
    struct cl_kv_config config = {.memory_bytes = memory_bytes,
                                  .item_max_bytes = ITEM_BYTES,
                                  .index_bytes = memory_bytes / 6,
                                  .manual_clock = 1,
                                  .no_evict = 1,
                                  .seed = CL_RAFT_KV_SEED};
    int rc = cl_kv_new(&config, &kv->store, err);
    if (rc)
        return rc;
    kv->store->unix_base_s = 0; /* the log's clock counts from 1970 on every replica alike, not from its start */
    *out = (struct cl_raft_machine){.arg = kv,
                                    .apply = apply_commands,
                                    .query = query_commands,
                                    .save = save_store,
                                    .load = load_store,
                                    .seed = seed_store,
                                    .settings = memory_bytes,
                                    .answer_bytes = CL_KV_ANSWER_ROOM,
                                    .ages_ms = 1000};
    return 0;
}

int raft_kv_fits(const struct raft_kv *kv, uint64_t room, uint64_t beside, char err[256])
{
    uint64_t most = (uint64_t)cl_kv_image_most(kv->store) + beside + NODE_BYTES;
    if (most <= room)
        return 0;
    snprintf(
        err, 256,
        "the store's snapshot may take %llu MiB, and the log sets %llu MiB apart for one, a quarter of its size: lower "
        "memory_bytes on all nodes, or give a larger log",
        (unsigned long long)((most >> 20) + 1), (unsigned long long)(room >> 20));
    return -ENOSPC;
}

void raft_kv_delete(struct raft_kv *kv)
{
    if (kv->store)
        cl_kv_delete(kv->store);
}

/* See kv_machine.h. */
#include "kv_machine.h"
#include "../kv/image.h"
#include "../kv/layout.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define SWEEP_ITEMS 16 /* looked at for expiry with each command */
#define ITEM_BYTES 8192

static bool begins(const uint8_t *text, uint64_t bytes, const char *word)
{
    uint64_t n = strlen(word);
    return bytes > n && !memcmp(text, word, n) && text[n] <= ' ';
}

enum raft_kv_way raft_kv_way(const uint8_t *text, uint64_t bytes)
{
    if (begins(text, bytes, "version") || begins(text, bytes, "stats") || begins(text, bytes, "verbosity"))
        return RAFT_KV_LOCAL;
    if (!begins(text, bytes, "get") && !begins(text, bytes, "gets"))
        return RAFT_KV_LOG;
    const uint8_t *end = memchr(text, '\n', bytes);
    /* More commands behind it: they may change something. */
    return end && end + 1 == text + bytes ? RAFT_KV_READ : RAFT_KV_LOG;
}

bool raft_kv_full(const struct raft_kv *kv)
{
    struct cl_kv_usage usage;
    cl_kv_usage(kv->store, &usage);
    return usage.live_bytes > usage.log_bytes / 4 * 3;
}

/* The log's clock is ms since 1970, of which the seconds fit until 2106. 0 and 1 are special to the store. */
static struct cl_kv_thread *at_time(struct raft_kv *kv, uint64_t clock_ms)
{
    cl_kv_set_time(kv->store, (uint32_t)cl_max(clock_ms / 1000, 2ull));
    struct cl_kv_thread *t = cl_kv_thread(kv->store, 0);
    cl_kv_tick(t);
    return t;
}

static int64_t run_commands_at(struct raft_kv *kv, uint64_t clock_ms, const uint8_t *text, uint32_t bytes,
                               uint8_t *reply, uint32_t room)
{
    struct cl_kv_session session = {.thread = at_time(kv, clock_ms)};
    struct cl_kv_out out = {.data = reply, .room = room};
    uint64_t consumed;
    int rc = cl_kv_process(&session, text, bytes, &consumed, &out);
    const char *error = NULL;
    if (rc == CL_KV_FULL)
        error = "SERVER_ERROR out of memory writing get response\r\n";
    else if (rc == CL_KV_MORE && (consumed < bytes || session.swallow))
        error = session.want || session.swallow ? "CLIENT_ERROR bad data chunk\r\n" : "ERROR\r\n";
    if (error && strlen(error) <= room) {
        out.len = strlen(error);
        memcpy(reply, error, out.len);
    }
    return (int64_t)out.len;
}

static int64_t apply_commands(void *arg, uint64_t index, uint64_t clock_ms, const uint8_t *text, uint32_t bytes,
                              uint8_t *reply, uint32_t room)
{
    struct raft_kv *kv = arg;
    struct cl_kv_usage usage;
    (void)index;
    int64_t n = run_commands_at(kv, clock_ms, text, bytes, reply, room);
    cl_kv_sweep(cl_kv_thread(kv->store, 0), SWEEP_ITEMS);
    cl_kv_usage(kv->store, &usage);
    return usage.evictions + usage.index_evictions != kv->evictions ? -ENOMEM : n;
}

static int64_t query_commands(void *arg, uint64_t clock_ms, const uint8_t *text, uint32_t bytes, uint8_t *reply,
                              uint32_t room)
{
    return run_commands_at(arg, clock_ms, text, bytes, reply, room);
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

int raft_kv_new(struct raft_kv *kv, uint64_t memory_bytes, struct cl_raft_machine *out, char err[256])
{
    /* The seed is no secret here: replicas must hash alike. Who may send commands may also fill the store. */
    struct cl_kv_config config = {.memory_bytes = memory_bytes,
                                  .item_max_bytes = ITEM_BYTES,
                                  .index_bytes = memory_bytes / 6,
                                  .manual_clock = 1,
                                  .seed = 0x7261667476616c75ull};
    int rc = cl_kv_new(&config, &kv->store, err);
    if (rc)
        return rc;
    kv->store->unix_base_s = 0; /* the log's clock counts from 1970 on every replica alike, not from its start */
    kv->evictions = 0;
    *out = (struct cl_raft_machine){
        .arg = kv, .apply = apply_commands, .query = query_commands, .save = save_store, .load = load_store};
    return 0;
}

void raft_kv_delete(struct raft_kv *kv)
{
    if (kv->store)
        cl_kv_delete(kv->store);
}

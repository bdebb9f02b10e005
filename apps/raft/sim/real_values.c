/* The state machine of a simulated real node that is typed values: what it is told, and that all replicas say the same
 * after each entry. In a snapshot the values' image comes first, and behind it struct sim_machine, which tells whose it
 * is. */
#include "real.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define OTHERS 12u

int real_values_new(struct real *r, char err[256])
{
    const struct cl_resp_settings settings = {
        .memory_bytes = REAL_RESP_MEMORY, .seed = r->world->swarm.config.seed | 1, .manual_ms = 1};
    raft_resp_delete(&r->values.resp);
    return raft_resp_new(&r->values.resp, &settings, &r->values.machine, err);
}

/* What they say of all keys that clients write, in an order that is none of their tables'. */
static uint64_t digest(struct real *r)
{
    static const char *const questions[] = {
        "GET n%u",  "PEXPIRETIME n%u", "SORT e%u ALPHA", "PEXPIRETIME e%u", "ZRANGE z%u 0 -1 WITHSCORES",
        "HLEN h%u", "LRANGE l%u 0 -1"};
    const struct raft_resp *m = &r->values.resp;
    uint64_t out = sim_mix(m->epoch ^ sim_mix(m->next)), len;
    struct cl_resp_client *c = cl_resp_connect(m->r, "a", "b");
    static const char registers[] = "MGET r0 r1 r2 r3\r\n";
    char text[2048];
    int n = snprintf(text, sizeof text, "%s", registers);
    unsigned key = (unsigned)(r->machine.applied % OTHERS); /* of the others some at a time */
    for (unsigned q = 0; q < sizeof questions / sizeof *questions; q++) {
        n += snprintf(text + n, sizeof text - (unsigned)n, questions[q], key);
        n += snprintf(text + n, sizeof text - (unsigned)n, "\r\n");
    }
    if (!c || cl_resp_feed(c, (const uint8_t *)text, (uint64_t)n) != (uint64_t)n)
        sim_fail(r->world, "#%u's values do not answer", r->owner->id);
    for (const uint8_t *at; c && (at = cl_resp_out(c, &len)); cl_resp_taken(c, len))
        for (uint64_t i = 0; i < len; i++)
            out = (out ^ at[i]) * 0x100000001b3ull;
    cl_resp_disconnect(c);
    return out;
}

static int64_t values_apply(void *arg, uint64_t index, uint64_t clock_ms, const uint8_t *command, uint32_t bytes,
                            uint8_t *reply, uint32_t room)
{
    struct real *r = arg;
    const struct cl_raft_machine *m = &r->values.machine;
    int64_t n = m->apply(m->arg, index, clock_ms, command, bytes, reply, room);
    if (n < 0)
        return n;
    r->machine.applied = index;
    sim_check_clock(r->world, r->owner, clock_ms);
    sim_check_applied(r->world, r->owner, index, sim_mix(digest(r) + clock_ms + (n != 0)));
    r->world->result->units_refused += n != 0;
    return n;
}

static int64_t values_query(void *arg, uint64_t clock_ms, const uint8_t *query, uint32_t bytes, uint8_t *reply,
                            uint32_t room)
{
    struct real *r = arg;
    return r->values.machine.query(r->values.machine.arg, clock_ms, query, bytes, reply, room);
}

static int64_t values_save(void *arg, uint64_t at, uint8_t *out, uint64_t room)
{
    struct real *r = arg;
    struct real_values *v = &r->values;
    if (!at && r->world->swarm.logless) /* it is kept at once, and what was before goes */
        sim_check_node(r->world, r->owner);
    if (!at)
        v->image_bytes = UINT64_MAX;
    if (v->image_bytes == UINT64_MAX) {
        int64_t n = v->machine.save(v->machine.arg, at, out, room);
        if (n)
            return n;
        v->image_bytes = at;
    }
    uint64_t n = cl_min(room, v->image_bytes + sizeof(r->machine) - at);
    memcpy(out, (const uint8_t *)&r->machine + (at - v->image_bytes), n);
    return (int64_t)n;
}

static int values_load(void *arg, uint64_t at, const uint8_t *data, uint64_t bytes, uint64_t total)
{
    struct real *r = arg;
    return real_load(r, &r->values.machine, at, data, bytes, total);
}

static int64_t values_check(void *arg, const uint8_t *command, uint32_t bytes, uint8_t *reply, uint32_t room)
{
    struct real *r = arg;
    return r->values.machine.check(r->values.machine.arg, command, bytes, reply, room);
}

static const char *values_why(void *arg)
{
    struct real *r = arg;
    return r->values.machine.why(r->values.machine.arg);
}

struct cl_raft_machine real_values_machine(struct real *r)
{
    return (struct cl_raft_machine){.arg = r,
                                    .apply = values_apply,
                                    .query = values_query,
                                    .save = values_save,
                                    .load = values_load,
                                    .check = values_check,
                                    .why = values_why};
}

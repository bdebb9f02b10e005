/* See store.h. */
#include "store.h"
#include "../../kv/image.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROOM 16384
#define OTHERS 40 /* keys beside the registers */
#define LARGEST 1500

int sim_store_new(struct sim_store *s, char err[256])
{
    sim_store_free(s);
    return raft_kv_new(&s->kv, SIM_STORE_BYTES, &s->machine, err);
}

void sim_store_free(struct sim_store *s)
{
    raft_kv_delete(&s->kv);
    *s = (struct sim_store){0};
}

/* One entry may hold several commands, so these are of one index. The answer ends with 0. */
struct call {
    struct sim_store *store;
    uint64_t index, clock_ms;
    char reply[ROOM + 1];
};

static CL_PRINTF(2, 3) const char *tell(struct call *c, const char *format, ...)
{
    char text[128];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    const struct cl_raft_machine *m = &c->store->machine;
    int64_t got =
        m->apply(m->arg, c->index, c->clock_ms, (const uint8_t *)text, (uint32_t)n, (uint8_t *)c->reply, ROOM);
    c->reply[got < 0 ? 0 : got] = 0;
    return c->reply;
}

static bool is(const char *reply, const char *word)
{
    return !strncmp(reply, word, strlen(word));
}

/* "VALUE r1 0 5[ 77]\r\n12345\r\nEND\r\n", or "END\r\n". */
static int parse_value(const char *reply, uint64_t *value, uint64_t *unique)
{
    *value = CL_HISTORY_ABSENT;
    if (is(reply, "END\r\n"))
        return 0;
    unsigned long v, u = 0;
    if (sscanf(reply, "VALUE r%*u 0 %*u %lu\r\n%lu\r\nEND", &u, &v) != 2 || !u)
        return -EPROTO;
    *value = v;
    *unique = u;
    return 0;
}

static int store_value(struct call *c, unsigned key, uint64_t value)
{
    char digits[24];
    int n = snprintf(digits, sizeof(digits), "%lu", value);
    return is(tell(c, "set r%u 0 0 %d\r\n%s\r\n", key, n, digits), "STORED\r\n") ? 0 : -EPROTO;
}

/* By `cas`, which must find the item as `gets` did. */
static int swap_value(struct call *c, unsigned key, uint64_t value, uint64_t unique)
{
    char digits[24];
    int n = snprintf(digits, sizeof(digits), "%lu", value);
    return is(tell(c, "cas r%u 0 0 %d %lu\r\n%s\r\n", key, n, unique, digits), "STORED\r\n") ? 0 : -EPROTO;
}

/* Something to another key. Answers may differ from what is hoped for, but not from replica to replica. */
static void beside(struct call *c, uint64_t word)
{
    unsigned key = (unsigned)(word % OTHERS), what = (unsigned)(word >> 8) % 8,
             bytes = (unsigned)(word >> 16) % LARGEST;
    char text[LARGEST + 64];
    const struct cl_raft_machine *m = &c->store->machine;
    if (what == 0) {
        tell(c, "delete n%u\r\n", key);
    } else if (what == 1) {
        tell(c, "touch n%u %u\r\n", key, 1 + (unsigned)(word >> 40) % 20);
    } else {
        int n = sprintf(text, "%s n%u 3 %u %u\r\n", what == 2 ? "append" : "set", key,
                        what < 5 ? 1 + (unsigned)(word >> 40) % 20 : 0, bytes);
        memset(text + n, 'a' + (int)(word >> 32) % 26, bytes);
        memcpy(text + n + bytes, "\r\n", 2);
        m->apply(m->arg, c->index, c->clock_ms, (const uint8_t *)text, (uint32_t)n + bytes + 2, (uint8_t *)c->reply,
                 ROOM);
    }
}

static int carry_out(struct call *call, const struct sim_command *c, struct sim_outcome *out)
{
    unsigned key = c->key % SIM_KEYS;
    uint64_t before, unique = 0, registers[SIM_KEYS];
    int rc = parse_value(tell(call, "gets r%u\r\n", key), &before, &unique);
    if (rc)
        return rc;
    registers[key] = before;
    *out = sim_machine_execute(registers, c); /* what a client of memcached works out from what it read */
    if (c->kind == CL_HISTORY_DELETE)
        return is(tell(call, "delete r%u\r\n", key), out->refused ? "NOT_FOUND\r\n" : "DELETED\r\n") ? 0 : -EPROTO;
    if (c->kind == CL_HISTORY_GET || out->refused)
        return 0;
    if (c->kind == CL_HISTORY_ADD && before != CL_HISTORY_ABSENT)
        return strtoul(tell(call, "incr r%u %lu\r\n", key, c->input), NULL, 10) == out->value ? 0 : -EPROTO;
    return c->kind == CL_HISTORY_CAS && unique ? swap_value(call, key, out->value, unique)
                                               : store_value(call, key, out->value);
}

int sim_store_apply(struct sim_store *s, uint64_t index, uint64_t clock_ms, const struct sim_command *c,
                    struct sim_outcome *out)
{
    struct call call = {.store = s, .index = index, .clock_ms = clock_ms * SIM_STORE_HASTE};
    int rc = carry_out(&call, c, out);
    beside(&call, sim_mix(c->input + ((uint64_t)c->session << 32 | c->sequence)));
    return rc;
}

int sim_store_query(struct sim_store *s, uint64_t clock_ms, const struct sim_command *c, struct sim_outcome *out)
{
    char text[32], reply[ROOM + 1];
    const struct cl_raft_machine *m = &s->machine;
    uint64_t unique;
    int n = snprintf(text, sizeof(text), "gets r%u\r\n", c->key % SIM_KEYS);
    int64_t got =
        m->query(m->arg, clock_ms * SIM_STORE_HASTE, (const uint8_t *)text, (uint32_t)n, (uint8_t *)reply, ROOM);
    reply[got < 0 ? 0 : got] = 0;
    *out = (struct sim_outcome){0};
    return parse_value(reply, &out->value, &unique);
}

uint64_t sim_store_digest(const struct sim_store *s)
{
    uint64_t digest = 0;
    cl_kv_digest(s->kv.store, &digest);
    return digest;
}

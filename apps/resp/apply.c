/* See apply.h. */
#include "apply.h"
#include "call.h"

#include <errno.h>

#define ARGS_MOST (1u << 30)
#define ARGV_LEAST 16u

struct reader {
    const uint8_t *at, *end;
};

/* A line of a kind and a number. */
static bool number(struct reader *in, char kind, uint32_t *out)
{
    const uint8_t *p = in->at;
    uint64_t v = 0;
    if (p == in->end || *p++ != kind)
        return false;
    for (; p < in->end && *p >= '0' && *p <= '9' && v <= UINT32_MAX; p++)
        v = 10 * v + (uint64_t)(*p - '0');
    if (p - in->at < 2 || in->end - p < 2 || p[0] != '\r' || p[1] != '\n' || v > UINT32_MAX)
        return false;
    in->at = p + 2;
    *out = (uint32_t)v;
    return true;
}

static bool bulk(struct reader *in, struct cl_slice *out)
{
    if (!number(in, '$', &out->len) || (uint64_t)(in->end - in->at) < out->len + 2ull)
        return false;
    out->p = in->at;
    in->at += out->len;
    if (in->at[0] != '\r' || in->at[1] != '\n')
        return false;
    in->at += 2;
    return true;
}

/* The next command, as the arguments of c. */
static bool next(struct reader *in, struct cl_resp_client *c)
{
    struct cl_resp *r = c->r;
    uint32_t argc;
    if (!number(in, '*', &argc) || argc == 0 || argc > ARGS_MOST || argc > (uint64_t)(in->end - in->at))
        return false;
    if (argc > r->argv_room) {
        uint32_t most = cl_max(argc, ARGV_LEAST);
        r->argv = cl_rmem_resize(&r->mem, r->argv, r->argv_room * sizeof *r->argv, most * sizeof *r->argv);
        r->argv_room = most;
    }
    for (uint32_t i = 0; i < argc; i++)
        if (!bulk(in, &r->argv[i]))
            return false;
    c->argc = argc;
    c->argv = r->argv;
    return true;
}

static bool run(struct cl_resp_client *c)
{
    bool sub;
    const struct cl_rcmd *cmd = cl_rcall_find(c->r, c->argv, c->argc, &sub);
    if (!cmd || !cl_rcall_arity(cmd, c->argc) || !((cmd->flags & CL_RF_WRITE) || !strcmp(cmd->name, "select")))
        return false;
    c->cmd = cmd;
    c->flags &= ~(uint32_t)CL_RC_FAILED;
    cmd->fn(c);
    return !(c->flags & CL_RC_FAILED);
}

static int apply_all(struct cl_resp_client *c, const uint8_t *bytes, uint64_t len, char err[256])
{
    struct reader in = {bytes, bytes + len};
    while (in.at < in.end) {
        unsigned long long from = (unsigned long long)(in.at - bytes);
        if (!next(&in, c)) {
            snprintf(err, 256, "at byte %llu of %llu no command begins", from, (unsigned long long)len);
            return -EBADMSG;
        }
        if (!run(c)) {
            snprintf(err, 256, "the command %.*s at byte %llu of %llu cannot be applied",
                     (int)cl_min(ARG(c, 0).len, 64u), ARG(c, 0).p, from, (unsigned long long)len);
            return -EBADMSG;
        }
    }
    return 0;
}

int cl_rapply(struct cl_resp *r, const uint8_t *bytes, uint64_t len, char err[256])
{
    struct cl_resp_client c = {.r = r, .protocol = 2, .flags = CL_RC_REPLY_OFF | CL_RC_EXEC, .authenticated = 1};
    uint64_t limit = r->limit;
    struct cl_rconfig config = r->config;
    r->applying = 1;
    r->limit = UINT64_MAX / 4;
    r->config.maxmemory = 0;
    r->config.bulk_most = INT32_MAX;
    int rc = apply_all(&c, bytes, len, err);
    r->applying = 0;
    r->limit = limit;
    r->config.maxmemory = config.maxmemory;
    r->config.bulk_most = config.bulk_most;
    return rc;
}

/* What a command is: a row of the table (table.c), from which COMMAND, its docs and the checks before it are made. */
#ifndef CORELANE_APPS_RESP_COMMAND_H
#define CORELANE_APPS_RESP_COMMAND_H

#include "resp.h"

/* Flags, in the order in which COMMAND names them. */
#define CL_RF_WRITE 0x1
#define CL_RF_READONLY 0x2
#define CL_RF_DENYOOM 0x4 /* may take memory */
#define CL_RF_ADMIN 0x8
#define CL_RF_PUBSUB 0x10
#define CL_RF_NOSCRIPT 0x20
#define CL_RF_BLOCKING 0x40
#define CL_RF_LOADING 0x80
#define CL_RF_STALE 0x100
#define CL_RF_SKIP_MONITOR 0x200
#define CL_RF_FAST 0x400
#define CL_RF_NO_AUTH 0x800
#define CL_RF_NO_KEYS 0x1000 /* keys are optional */
#define CL_RF_NO_ASYNC_LOADING 0x2000
#define CL_RF_NO_MULTI 0x4000
#define CL_RF_MOVABLE 0x8000 /* where keys stand depends on the arguments: `keys` finds them */
#define CL_RF_ALLOW_BUSY 0x10000
/* Not named. */
#define CL_RF_NOW 0x100000        /* is run, not queued, inside of MULTI */
#define CL_RF_SUBSCRIBED 0x200000 /* may be called by a subscriber in RESP2 */
#define CL_RF_SECRET 0x800000     /* has a password, which MONITOR does not show */
#define CL_RF_GROWS 0x400000      /* keeps its arguments: is refused where one that DENYOOMs is */

#define CL_RCMD_KEYS 1024 /* that `keys` finds at most */

enum cl_rgroup {
    CL_RG_CONNECTION,
    CL_RG_SERVER,
    CL_RG_GENERIC,
    CL_RG_STRING,
    CL_RG_BITMAP,
    CL_RG_LIST,
    CL_RG_SET,
    CL_RG_ZSET,
    CL_RG_HASH,
    CL_RG_STREAM,
    CL_RG_PUBSUB,
    CL_RG_TRANSACTIONS,
    CL_RG_SCRIPTING
};

struct cl_rcmd {
    const char *name;
    cl_rcmd_fn fn;
    int32_t arity; /* with the name; below 0: that many or more */
    uint32_t flags;
    int32_t first, last, step; /* keys among the arguments; last below 0: from the end */
    enum cl_rgroup group;
    const char *since, *summary;
    const struct cl_rcmd *subs; /* ends with a name of NULL; the second argument says which */
    /* Which arguments are keys; returns how many, or -1: the arguments are wrong. */
    int (*keys)(const struct cl_slice *argv, uint32_t argc, uint32_t *out);
};

/* Whether an argument is that word, in either case. */
static inline bool cl_slice_is(struct cl_slice s, const char *word)
{
    return s.len == strlen(word) && strncasecmp((const char *)s.p, word, s.len) == 0;
}

#define ARG_IS(c, n, word) cl_slice_is(ARG(c, n), word)

/* Arguments as numbers; false: it was answered that they are none. */
bool cl_arg_int(struct cl_resp_client *c, uint32_t n, int64_t *out);
/* In a range; `what` is the error. */
bool cl_arg_in(struct cl_resp_client *c, uint32_t n, int64_t least, int64_t most, int64_t *out, const char *what);
bool cl_arg_double(struct cl_resp_client *c, uint32_t n, double *out);
/* A time-out in seconds, as the time it ends in ms; 0: never. */
bool cl_arg_deadline(struct cl_resp_client *c, uint32_t n, int64_t *out);
/* Shell-style pattern: * ? [a-z] [^a] \x */
bool cl_glob(struct cl_slice pattern, struct cl_slice text, bool any_case);

#endif

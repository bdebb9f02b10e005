/* Commands that take from the first of several keys that has something: at once (LMPOP, ZMPOP), or as soon as one has
 * (BLPOP, BZPOPMIN, BLMPOP, BZMPOP and their like). */
#ifndef CORELANE_APPS_RESP_FIRST_H
#define CORELANE_APPS_RESP_FIRST_H

#include "command.h"

/* Elements of which type of value, and from which of its two ends. */
struct cl_rfirst {
    enum cl_rtype type;
    const char *ends[2]; /* in words of the command: the first one is false, the second one true */
    /* One of what a key has, in an array with its name. */
    void (*one)(struct cl_resp_client *c, struct cl_entry *e, struct cl_slice key, bool end);
    /* Up to so many, the same. */
    void (*many)(struct cl_resp_client *c, struct cl_entry *e, struct cl_slice key, bool end, int64_t count);
};

/* The value, NULL if there is none, for a command that may wait for it: one of another type is an error for who asks
 * first, and nothing to wait for later. False: answered. */
bool cl_rfirst_awaited(struct cl_resp_client *c, struct cl_slice key, enum cl_rtype type, struct cl_entry **e);
/* Keys from argument 1 on, and a time-out behind them. */
void cl_rfirst_one(struct cl_resp_client *c, const struct cl_rfirst *of, bool end);
/* numkeys at argument n, keys, the end's word, COUNT; waits: with a time-out in argument 1. */
void cl_rfirst_many(struct cl_resp_client *c, const struct cl_rfirst *of, uint32_t n, bool waits);

#endif

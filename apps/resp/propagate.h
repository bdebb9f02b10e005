/* What writes have done, as commands that do the same again wherever and whenever they are applied: for a log, and for
 * replicas.
 *
 * The form is Redis' for its own log and replicas (redis.io, "Replication", how writes are propagated), commands as
 * arrays of bulks. What a command does is said as it was given where that does the same again; else the command says
 * something else in its place: times are absolute, and what chance, a clock, a setting or the order of a table has
 * decided is named. A key that has expired or was evicted is a DEL where that happened. What a blocked client was given
 * is a command of its own, one that does not block.
 *
 * A unit is what one command of a client has done: all of a transaction, the keys that it found expired, the blocked
 * clients that it served. It is to be applied whole or not at all. Each begins and ends in database 0, so units can be
 * joined, and a reader may begin at any of them. Whoever applies them (apply.h) lets no key expire by its own clock.
 *
 * Units gather until they are taken; what they take counts as memory of the engine, and while CL_RESP_UNITS_HIGH bytes
 * of them wait no commands are run. */
#ifndef CORELANE_APPS_RESP_PROPAGATE_H
#define CORELANE_APPS_RESP_PROPAGATE_H

#include "resp.h"

static inline bool cl_rprop_on(const struct cl_resp *r)
{
    return r->propagation.on && !r->applying;
}

/* A command of argc arguments in a database; each of them follows by one call. Only if it is on. */
void cl_rprop_begin(struct cl_resp *r, uint32_t db, uint32_t argc);
void cl_rprop_arg(struct cl_resp *r, struct cl_slice arg);
void cl_rprop_text(struct cl_resp *r, const char *arg);
void cl_rprop_int(struct cl_resp *r, int64_t arg);
/* A command of a client in its database. */
void cl_rprop_all(struct cl_resp_client *c, const struct cl_slice *argv, uint32_t argc);
/* The command that runs has said what it does: it is not said as it was given. */
static inline void cl_rprop_instead(struct cl_resp_client *c)
{
    c->r->propagation.said = true;
}
/* Say this instead: CL_RPROP(c, cl_slice_of("DEL"), key). */
void cl_rprop_say(struct cl_resp_client *c, const struct cl_slice *argv, uint32_t argc);
#define CL_RPROP(c, ...)                                                                                               \
    do {                                                                                                               \
        if (cl_rprop_on((c)->r))                                                                                       \
            cl_rprop_say((c), (struct cl_slice[]){__VA_ARGS__},                                                        \
                         sizeof((struct cl_slice[]){__VA_ARGS__}) / sizeof(struct cl_slice));                          \
    } while (0)
/* The same with an integer as the last argument. */
void cl_rprop_say_int(struct cl_resp_client *c, const char *name, struct cl_slice key, int64_t v);
/* A key is gone that no command has removed. */
void cl_rprop_gone(struct cl_resp *r, uint32_t db, struct cl_slice key);
/* The unit is complete, if one was begun. */
void cl_rprop_end(struct cl_resp *r);
/* Units that were not taken, all in one: NULL if there are none. They stay until this is called again. *unit: the
 * number of the last one, from 1. */
const uint8_t *cl_rprop_take(struct cl_resp *r, uint64_t *len, uint64_t *unit);
void cl_rprop_free(struct cl_resp *r);

#endif

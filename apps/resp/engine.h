/* The engine from outside: for the port (serve.c), for Python (engine.py) and its tests. */
#ifndef CORELANE_APPS_RESP_ENGINE_H
#define CORELANE_APPS_RESP_ENGINE_H

#include <corelane/runtime/base.h>

// cffi: begin
struct cl_resp;
struct cl_resp_client;

struct cl_resp_settings {
    uint64_t memory_bytes; /* all that values and clients may take */
    uint64_t seed;         /* of the hash secret and of random choices; 0: the kernel's random numbers */
    int64_t manual_ms;     /* not 0: a manual clock that stands at it, until it is moved; 0: the wall clock */
    const char *policy;    /* maxmemory-policy; NULL: noeviction */
    const char *password;  /* NULL: none */
};

/* -EINVAL (memory under 1 MiB, an unknown policy), -ENOMEM, with a reason in err. */
CL_API int cl_resp_new(const struct cl_resp_settings *settings, struct cl_resp **out, char err[256]);
/* Its clients go with it. NULL is allowed. */
CL_API void cl_resp_delete(struct cl_resp *r);
/* A client that came from `peer` to `own`, as CLIENT LIST shows them. NULL: there are maxclients; say so to it. */
CL_API struct cl_resp_client *cl_resp_connect(struct cl_resp *r, const char *peer, const char *own);
CL_API void cl_resp_disconnect(struct cl_resp_client *c);
/* When somebody else's command, or the time, has left something for the client to be sent, or has it go on: `wake` is
 * called. NULL: nobody is. */
CL_API void cl_resp_on_wake(struct cl_resp_client *c, void (*wake)(void *arg), void *arg);
/* Run the commands in what has come. Returns how many bytes were taken; the rest is to be given again when replies were
 * taken or the client was woken. len 0: go on with what it has. */
CL_API uint64_t cl_resp_feed(struct cl_resp_client *c, const uint8_t *data, uint64_t len);
/* The next piece of its replies, and its length; NULL: there is none. */
CL_API const uint8_t *cl_resp_out(const struct cl_resp_client *c, uint64_t *len);
CL_API void cl_resp_taken(struct cl_resp_client *c, uint64_t n);
/* 0: it stays; 1: it ends when its replies are taken; 2: it ends now. */
CL_API int cl_resp_ends(const struct cl_resp_client *c);
/* Look at the time: keys and blocked commands whose time is over. Ten times a second, and when what it returns is
 * over: in how many ms something has to happen, 100 at most. */
CL_API int64_t cl_resp_tick(struct cl_resp *r);
/* From here on say what writes do (propagate.h): those who take the units are to come often. */
CL_API void cl_resp_propagate(struct cl_resp *r);
/* The units since the last call, joined; NULL: none. They stay until the next call. *unit: the number of the last unit
 * ever, from 1; 0: there was none. */
CL_API const uint8_t *cl_resp_units(struct cl_resp *r, uint64_t *len, uint64_t *unit);
/* How many bytes of units wait to be taken. */
CL_API uint64_t cl_resp_units_bytes(const struct cl_resp *r);

/* A log or replicas behind the engine (durable.h). From here on replies wait for cl_resp_durable. After
 * cl_resp_propagate. */
CL_API void cl_resp_hold(struct cl_resp *r);
/* The same for replicas: replies that tell of no unit wait, too, for a number of their own. cl_resp_units says it, with
 * no bytes if there is no unit up to it. */
CL_API void cl_resp_confirm(struct cl_resp *r);
/* So many others have what is durable, at least (WAIT). */
CL_API void cl_resp_replicas(struct cl_resp *r, uint32_t n);
/* The number of the last unit, or of the last replies without one. */
CL_API uint64_t cl_resp_unit(const struct cl_resp *r);
/* This engine does not do what is asked of it: commands but those about the connection and the server are answered that
 * error, which begins with its code. host and port: who does them; "" and 0: nobody. error "": it does them. */
CL_API void cl_resp_elsewhere(struct cl_resp *r, const char *error, const char *host, uint16_t port);
/* Units up to that one are durable. */
CL_API void cl_resp_durable(struct cl_resp *r, uint64_t unit);
/* How many clients wait for it, and how many the last two writes have answered: they are likely to ask again. */
CL_API uint32_t cl_resp_waiting(const struct cl_resp *r);
CL_API uint32_t cl_resp_active(const struct cl_resp *r);
/* Bytes of a client's replies that wait for it: it is not to be closed for want of something to send. */
CL_API uint64_t cl_resp_held(const struct cl_resp_client *c);
/* What a client waits for. */
struct cl_resp_waits {
    uint64_t opened;  /* portions of its replies that wait no more, ever (durable.h) */
    uint32_t held;    /* portions that wait: 0, 1 or 2 */
    uint32_t blocked; /* 1: for a key */
};
CL_API void cl_resp_waits(const struct cl_resp_client *c, struct cl_resp_waits *out);
/* The log takes nothing any more, by that errno. Clients with replies that wait are closed; writes are refused. */
CL_API void cl_resp_failed(struct cl_resp *r, int error);
/* How long the log is, and how many bytes of units it may take: half of them at most by commands that take memory. */
CL_API void cl_resp_log_room(struct cl_resp *r, uint64_t bytes, uint64_t room);
/* Whether the log is long enough for a rewrite, by the settings or by having grown by more than `growth`, or one was
 * asked for; begin it, when all units were taken; whether one
 * goes on; put about so many bytes of keys, true: with that unit all are; and that from its first unit on the log alone
 * is there, in so many bytes. */
CL_API bool cl_resp_wants_rewrite(const struct cl_resp *r, uint64_t growth);
CL_API void cl_resp_rewrite(struct cl_resp *r);
CL_API bool cl_resp_rewrites(const struct cl_resp *r);
CL_API bool cl_resp_rewrite_step(struct cl_resp *r, uint64_t bytes);
CL_API void cl_resp_rewritten(struct cl_resp *r, uint64_t bytes);
/* Give up a pass: the log as it is stays right. */
CL_API void cl_resp_rewrite_abort(struct cl_resp *r);
/* Bytes that this pass, or the last one, has put. */
CL_API uint64_t cl_resp_rewrite_bytes(const struct cl_resp *r);
/* Do what units say (apply.h), whole ones, and serve who blocks on what came. 0, or -EBADMSG with a reason in err: the
 * state is what the units before the bad one have left. */
CL_API int cl_resp_apply(struct cl_resp *r, const uint8_t *units, uint64_t len, char err[256]);
/* Move a manual clock, also back. */
CL_API void cl_resp_move(struct cl_resp *r, int64_t ms);
/* Bytes in use, and what they may be. */
CL_API uint64_t cl_resp_used(const struct cl_resp *r, uint64_t *limit);
/* The invariants of the databases, walked: 0, or -1 with what is wrong in err. For tests. */
CL_API int64_t cl_resp_check(struct cl_resp *r, char err[256]);
// cffi: end

#endif

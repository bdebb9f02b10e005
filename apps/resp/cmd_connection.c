/* Commands about the connection: who it is, what it speaks, which database it uses; and CLIENT, about others. */
#include "block.h"
#include "bytes.h"
#include "call.h"
#include "client.h"
#include "commands.h"
#include "number.h"
#include "pubsub.h"
#include "reply.h"

void cl_cmd_ping(struct cl_resp_client *c)
{
    if (c->argc > 2) {
        cl_reply_error(c, "ERR wrong number of arguments for 'ping' command");
    } else if (c->protocol == 2 && c->n_channels + c->n_patterns) {
        cl_reply_array(c, 2);
        cl_reply_text(c, "pong");
        cl_reply_slice(c, c->argc == 2 ? ARG(c, 1) : cl_slice_of(""));
    } else if (c->argc == 2) {
        cl_reply_slice(c, ARG(c, 1));
    } else {
        cl_reply_status(c, "PONG");
    }
}

void cl_cmd_echo(struct cl_resp_client *c)
{
    cl_reply_slice(c, ARG(c, 1));
}

void cl_cmd_quit(struct cl_resp_client *c)
{
    cl_reply_ok(c);
    c->flags |= CL_RC_CLOSE_AFTER;
}

void cl_cmd_reset(struct cl_resp_client *c)
{
    cl_pubsub_leave(c, true, true, false);
    cl_client_reset(c);
    cl_bytes_free(&c->r->mem, c->name);
    c->name = NULL;
    cl_reply_status(c, "RESET");
}

void cl_cmd_select(struct cl_resp_client *c)
{
    int64_t n;
    if (!cl_rnum_int(ARG(c, 1), &n)) {
        cl_reply_not_integer(c);
    } else if (n < 0 || n >= c->r->config.databases) {
        cl_reply_error(c, "ERR DB index is out of range");
    } else {
        c->db = (uint32_t)n;
        cl_reply_ok(c);
    }
}

/* Takes the same time whatever of it is right. */
static bool right_password(const struct cl_resp *r, struct cl_slice user, struct cl_slice password)
{
    char has[sizeof r->config.password] = {0}, given[sizeof r->config.password] = {0};
    uint8_t differs = 0;
    size_t len = strlen(r->config.password);
    memcpy(has, r->config.password, len);
    memcpy(given, password.p, cl_min((size_t)password.len, sizeof given));
    for (size_t i = 0; i < sizeof has; i++)
        differs |= (uint8_t)(has[i] ^ given[i]);
    return !differs && (len == 0 || password.len == len) && cl_slice_same(user, cl_slice_of("default"));
}

static bool authenticate(struct cl_resp_client *c, struct cl_slice user, struct cl_slice password)
{
    bool free_for_all = !c->r->config.password[0] && cl_slice_same(user, cl_slice_of("default"));
    if (!free_for_all && !right_password(c->r, user, password)) {
        cl_reply_error(c, "WRONGPASS invalid username-password pair or user is disabled.");
        return false;
    }
    c->authenticated = 1;
    return true;
}

void cl_cmd_auth(struct cl_resp_client *c)
{
    if (c->argc > 3) {
        cl_reply_syntax(c);
        return;
    }
    if (c->argc == 2 && !c->r->config.password[0]) {
        cl_reply_error(c, "ERR AUTH <password> called without any password configured for the default user. Are you "
                          "sure your configuration is correct?");
        return;
    }
    if (authenticate(c, c->argc == 3 ? ARG(c, 1) : cl_slice_of("default"), ARG(c, c->argc - 1)))
        cl_reply_ok(c);
}

static bool set_name(struct cl_resp_client *c, struct cl_slice name)
{
    for (uint32_t i = 0; i < name.len; i++)
        if (name.p[i] < '!' || name.p[i] > '~') {
            cl_reply_error(c, "ERR Client names cannot contain spaces, newlines or special characters.");
            return false;
        }
    cl_bytes_free(&c->r->mem, c->name);
    c->name = name.len ? cl_bytes_new(&c->r->mem, name) : NULL;
    return true;
}

static void greet(struct cl_resp_client *c)
{
    cl_reply_map(c, 7);
    cl_reply_text(c, "server");
    cl_reply_text(c, "redis");
    cl_reply_text(c, "version");
    cl_reply_text(c, CL_RESP_VERSION);
    cl_reply_text(c, "proto");
    cl_reply_int(c, c->protocol);
    cl_reply_text(c, "id");
    cl_reply_int(c, (int64_t)c->id);
    cl_reply_text(c, "mode");
    cl_reply_text(c, "standalone");
    cl_reply_text(c, "role");
    cl_reply_text(c, "master");
    cl_reply_text(c, "modules");
    cl_reply_array(c, 0);
}

void cl_cmd_hello(struct cl_resp_client *c)
{
    int64_t protocol = c->protocol;
    if (c->argc > 1) {
        if (!cl_rnum_int(ARG(c, 1), &protocol)) {
            cl_reply_error(c, "ERR Protocol version is not an integer or out of range");
            return;
        }
        if (protocol < 2 || protocol > 3) {
            cl_reply_error(c, "NOPROTO unsupported protocol version");
            return;
        }
    }
    for (uint32_t i = 2; i < c->argc; i++) {
        if (ARG_IS(c, i, "auth") && i + 2 < c->argc) {
            if (!authenticate(c, ARG(c, i + 1), ARG(c, i + 2)))
                return;
            i += 2;
        } else if (ARG_IS(c, i, "setname") && i + 1 < c->argc) {
            if (!set_name(c, ARG(c, ++i)))
                return;
        } else {
            cl_reply_error(c, "ERR Syntax error in HELLO option '%.*s'", (int)cl_min(ARG(c, i).len, 128u), ARG(c, i).p);
            return;
        }
    }
    if (!c->authenticated) {
        cl_reply_error(c, "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO "
                          "<proto> AUTH <user> <pass> option can be used to authenticate the client and select the "
                          "RESP protocol version at the same time");
        return;
    }
    c->protocol = (uint32_t)protocol;
    greet(c);
}

/* CLIENT. */

void cl_cmd_client_id(struct cl_resp_client *c)
{
    cl_reply_int(c, (int64_t)c->id);
}

void cl_cmd_client_getname(struct cl_resp_client *c)
{
    if (c->name)
        cl_reply_slice(c, cl_bytes_slice(c->name));
    else
        cl_reply_null(c);
}

void cl_cmd_client_setname(struct cl_resp_client *c)
{
    if (set_name(c, ARG(c, 2)))
        cl_reply_ok(c);
}

static int describe(const struct cl_resp_client *of, char *out, size_t room)
{
    char flags[8], name[64] = "NULL";
    unsigned n = 0;
    if (of->flags & CL_RC_MONITOR)
        flags[n++] = 'O';
    if (of->n_channels + of->n_patterns)
        flags[n++] = 'P';
    if (of->flags & CL_RC_MULTI)
        flags[n++] = 'x';
    if (of->flags & (CL_RC_BLOCKED | CL_RC_POSTPONED))
        flags[n++] = 'b';
    if (of->flags & CL_RC_DIRTY_CAS)
        flags[n++] = 'd';
    if (!n)
        flags[n++] = 'N';
    flags[n] = 0;
    if (of->last_cmd)
        cl_rcall_name(of->r, of->last_cmd, name);
    int64_t now = of->r->now_ms;
    return snprintf(out, room,
                    "id=%llu addr=%s laddr=%s fd=0 name=%.*s age=%lld idle=%lld flags=%s db=%u sub=%u psub=%u ssub=0 "
                    "multi=%d qbuf=%u qbuf-free=%u argv-mem=0 multi-mem=%llu rbs=0 rbp=0 obl=0 oll=%d omem=%llu "
                    "tot-mem=%llu events=r cmd=%s user=default redir=-1 resp=%u\n",
                    (unsigned long long)of->id, of->peer, of->own, of->name ? (int)of->name->len : 0,
                    of->name ? (const char *)of->name->data : "", (long long)(now - of->made_ms) / 1000,
                    (long long)(now - of->used_ms) / 1000, flags, of->db, of->n_channels, of->n_patterns,
                    of->flags & CL_RC_MULTI ? (int)of->queued : -1, of->in ? of->in->len : 0,
                    of->in ? of->in->room - of->in->len : 0, (unsigned long long)of->queue_bytes, of->out.first ? 1 : 0,
                    (unsigned long long)of->out.bytes,
                    (unsigned long long)(sizeof *of + of->out.bytes + of->queue_bytes), name, of->protocol);
}

#define LINE_ROOM 1024

void cl_cmd_client_info(struct cl_resp_client *c)
{
    char line[LINE_ROOM];
    int n = describe(c, line, sizeof line);
    cl_reply_verbatim(c, line, (uint64_t)cl_min(n, LINE_ROOM - 1), "txt");
}

static bool of_type(const struct cl_resp_client *of, struct cl_slice type, bool *known)
{
    bool subscriber = of->n_channels + of->n_patterns;
    *known = true;
    if (cl_slice_is(type, "normal"))
        return !subscriber;
    if (cl_slice_is(type, "pubsub"))
        return subscriber;
    *known = cl_slice_is(type, "master") || cl_slice_is(type, "replica") || cl_slice_is(type, "slave");
    return false;
}

static bool listed(struct cl_resp_client *c, const struct cl_resp_client *of, bool *known)
{
    int64_t id;
    *known = true;
    if (c->argc == 2)
        return true;
    if (ARG_IS(c, 2, "type"))
        return of_type(of, ARG(c, 3), known);
    for (uint32_t i = 3; i < c->argc; i++)
        if (cl_rnum_int(ARG(c, i), &id) && (uint64_t)id == of->id)
            return true;
    return false;
}

void cl_cmd_client_list(struct cl_resp_client *c)
{
    char line[LINE_ROOM];
    struct cl_bytes *text = cl_bytes_room(&c->r->mem, 0);
    bool by_id = c->argc > 3 && ARG_IS(c, 2, "id"), by_type = c->argc == 4 && ARG_IS(c, 2, "type"), known = true;
    int64_t id;
    for (uint32_t i = 3; by_id && i < c->argc; i++)
        if (!cl_rnum_int(ARG(c, i), &id) || id < 1) {
            cl_reply_error(c, "ERR Invalid client ID");
            cl_bytes_free(&c->r->mem, text);
            return;
        }
    for (const struct cl_resp_client *of = c->r->clients; of && known && (c->argc == 2 || by_id || by_type);
         of = of->next)
        if (listed(c, of, &known))
            text = cl_bytes_append(&c->r->mem, text, line,
                                   (uint64_t)cl_min(describe(of, line, sizeof line), LINE_ROOM - 1));
    if (c->argc > 2 && !by_id && !by_type)
        cl_reply_syntax(c);
    else if (!known)
        cl_reply_error(c, "ERR Unknown client type '%.*s'", (int)cl_min(ARG(c, 3).len, 128u), ARG(c, 3).p);
    else
        cl_reply_verbatim(c, (const char *)text->data, text->len, "txt");
    cl_bytes_free(&c->r->mem, text);
}

struct kill {
    int64_t id;
    const struct cl_slice *addr, *laddr, *type;
    bool skip_me;
};

static bool kill_options(struct cl_resp_client *c, struct kill *k)
{
    *k = (struct kill){.skip_me = true};
    for (uint32_t i = 2; i < c->argc; i += 2) {
        bool known = true, more = i + 1 < c->argc;
        if (!more)
            return cl_reply_syntax(c), false;
        const struct cl_slice *value = &ARG(c, i + 1);
        if (ARG_IS(c, i, "id")) {
            if (!cl_rnum_int(*value, &k->id) || k->id < 1) {
                cl_reply_error(c, "ERR client-id should be greater than 0");
                return false;
            }
        } else if (ARG_IS(c, i, "addr"))
            k->addr = value;
        else if (ARG_IS(c, i, "laddr"))
            k->laddr = value;
        else if (ARG_IS(c, i, "user")) {
            if (!cl_slice_same(*value, cl_slice_of("default"))) {
                cl_reply_error(c, "ERR No such user '%.*s'", (int)cl_min(value->len, 128u), value->p);
                return false;
            }
        } else if (ARG_IS(c, i, "skipme") && (cl_slice_is(*value, "yes") || cl_slice_is(*value, "no")))
            k->skip_me = cl_slice_is(*value, "yes");
        else if (ARG_IS(c, i, "type")) {
            k->type = value;
            (void)of_type(c, *value, &known);
            if (!known) {
                cl_reply_error(c, "ERR Unknown client type '%.*s'", (int)cl_min(value->len, 128u), value->p);
                return false;
            }
        } else
            return cl_reply_syntax(c), false;
    }
    return true;
}

static bool killed(const struct cl_resp_client *c, const struct cl_resp_client *of, const struct kill *k)
{
    bool known;
    return !(k->id && (uint64_t)k->id != of->id) && !(k->addr && !cl_slice_same(*k->addr, cl_slice_of(of->peer))) &&
           !(k->laddr && !cl_slice_same(*k->laddr, cl_slice_of(of->own))) &&
           !(k->type && !of_type(of, *k->type, &known)) && !(of == c && k->skip_me);
}

static void end(struct cl_resp_client *c, struct cl_resp_client *of)
{
    of->flags |= of == c ? CL_RC_CLOSE_AFTER : CL_RC_CLOSE_NOW;
    cl_client_wake(of);
}

void cl_cmd_client_kill(struct cl_resp_client *c)
{
    struct kill k = {0};
    int64_t n = 0;
    if (c->argc == 3)
        k.addr = &ARG(c, 2);
    else if (!kill_options(c, &k))
        return;
    for (struct cl_resp_client *of = c->r->clients; of; of = of->next)
        if (killed(c, of, &k)) {
            end(c, of);
            n++;
        }
    if (c->argc != 3)
        cl_reply_int(c, n);
    else if (n)
        cl_reply_ok(c);
    else
        cl_reply_error(c, "ERR No such client");
}

void cl_cmd_client_pause(struct cl_resp_client *c)
{
    int64_t ms;
    if (c->argc > 4) {
        cl_reply_wrong_part(c);
        return;
    }
    if (c->argc == 4 && !ARG_IS(c, 3, "write") && !ARG_IS(c, 3, "all")) {
        cl_reply_error(c, "ERR CLIENT PAUSE mode must be WRITE or ALL");
        return;
    }
    if (!cl_rnum_int(ARG(c, 2), &ms) || ms > INT64_MAX - c->r->now_ms) {
        cl_reply_error(c, "ERR timeout is not an integer or out of range");
        return;
    }
    if (ms < 0) {
        cl_reply_error(c, "ERR timeout is negative");
        return;
    }
    bool all = c->argc == 3 || ARG_IS(c, 3, "all"), goes_on = c->r->paused_until_ms > c->r->now_ms;
    c->r->pause_all = all || (goes_on && c->r->pause_all);
    c->r->paused_until_ms = cl_max(c->r->paused_until_ms, c->r->now_ms + ms);
    cl_reply_ok(c);
}

void cl_cmd_client_unpause(struct cl_resp_client *c)
{
    cl_rcall_unpause(c->r);
    cl_reply_ok(c);
}

void cl_cmd_client_reply(struct cl_resp_client *c)
{
    if (ARG_IS(c, 2, "on")) {
        c->flags &= ~(uint32_t)(CL_RC_REPLY_SKIP | CL_RC_REPLY_OFF);
        cl_reply_ok(c);
    } else if (ARG_IS(c, 2, "off")) {
        c->flags |= CL_RC_REPLY_OFF;
    } else if (ARG_IS(c, 2, "skip")) {
        if (!(c->flags & CL_RC_REPLY_OFF))
            c->flags |= CL_RC_REPLY_SKIP_NEXT;
    } else {
        cl_reply_syntax(c);
    }
}

void cl_cmd_client_unblock(struct cl_resp_client *c)
{
    int64_t id;
    bool error = c->argc == 4 && ARG_IS(c, 3, "error");
    if (c->argc > 4) {
        cl_reply_wrong_part(c);
        return;
    }
    if (c->argc == 4 && !error && !ARG_IS(c, 3, "timeout")) {
        cl_reply_error(c, "ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR");
        return;
    }
    if (!cl_arg_int(c, 2, &id))
        return;
    struct cl_resp_client *of = c->r->blocked;
    while (of && of->id != (uint64_t)id)
        of = of->next_blocked;
    if (of && error)
        cl_reply_error(of, "UNBLOCKED client unblocked via CLIENT UNBLOCK");
    else if (of)
        cl_reply_null_array(of);
    if (of)
        cl_rblock_end(of);
    cl_reply_int(c, of != NULL);
}

static void on_off(struct cl_resp_client *c, uint32_t flag)
{
    if (!ARG_IS(c, 2, "on") && !ARG_IS(c, 2, "off")) {
        cl_reply_syntax(c);
        return;
    }
    c->flags = ARG_IS(c, 2, "on") ? c->flags | flag : c->flags & ~flag;
    cl_reply_ok(c);
}

void cl_cmd_client_noevict(struct cl_resp_client *c)
{
    on_off(c, CL_RC_NO_EVICT);
}

void cl_cmd_client_getredir(struct cl_resp_client *c)
{
    cl_reply_int(c, -1);
}

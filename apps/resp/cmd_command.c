/* COMMAND: the table, as clients ask for it. */
#include "call.h"
#include "commands.h"
#include "reply.h"

#include <ctype.h>

static const char *const flag_names[] = {
    "write",    "readonly",    "denyoom",      "admin", "pubsub",  "noscript",          "blocking",
    "loading",  "stale",       "skip_monitor", "fast",  "no_auth", "no_mandatory_keys", "no_async_loading",
    "no_multi", "movablekeys", "allow_busy"};
#define N_FLAGS (sizeof flag_names / sizeof flag_names[0])

static const char *const group_names[] = {"connection", "server",       "generic",    "string", "bitmap",
                                          "list",       "set",          "sorted-set", "hash",   "stream",
                                          "pubsub",     "transactions", "scripting"};
static const char *const category_names[] = {"@connection", "@admin",       "@keyspace",  "@string", "@bitmap",
                                             "@list",       "@set",         "@sortedset", "@hash",   "@stream",
                                             "@pubsub",     "@transaction", "@scripting"};

static void upper(char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        text[i] = (char)toupper(text[i]);
}

static void reply_flags(struct cl_resp_client *c, const struct cl_rcmd *cmd)
{
    int64_t n = 0;
    for (unsigned i = 0; i < N_FLAGS; i++)
        n += cmd->flags >> i & 1;
    cl_reply_set(c, n);
    for (unsigned i = 0; i < N_FLAGS; i++)
        if (cmd->flags >> i & 1)
            cl_reply_status(c, flag_names[i]);
}

#define CATEGORIES 6 /* that a command has at most */

static int64_t categories(const struct cl_rcmd *cmd, const char *names[CATEGORIES])
{
    int64_t n = 0;
    if (cmd->flags & CL_RF_WRITE)
        names[n++] = "@write";
    if (cmd->flags & CL_RF_READONLY)
        names[n++] = "@read";
    if (cmd->group != CL_RG_SERVER)
        names[n++] = category_names[cmd->group];
    if (cmd->flags & CL_RF_ADMIN)
        names[n++] = "@admin";
    names[n++] = cmd->flags & CL_RF_FAST ? "@fast" : "@slow";
    if (cmd->flags & CL_RF_BLOCKING)
        names[n++] = "@blocking";
    return n;
}

static void reply_categories(struct cl_resp_client *c, const struct cl_rcmd *cmd)
{
    const char *names[CATEGORIES];
    int64_t n = categories(cmd, names);
    cl_reply_set(c, n);
    for (int64_t i = 0; i < n; i++)
        cl_reply_status(c, names[i]);
}

static int64_t count(const struct cl_rcmd *cmd)
{
    int64_t n = 0;
    while (cmd && cmd[n].name)
        n++;
    return n;
}

/* One level of parts below it at most, which have none. */
static void reply_row(struct cl_resp_client *c, const struct cl_rcmd *cmd, bool is_sub)
{
    char name[64];
    cl_rcall_name(c->r, cmd, name);
    cl_reply_array(c, 10);
    cl_reply_text(c, name);
    cl_reply_int(c, cmd->arity);
    reply_flags(c, cmd);
    cl_reply_int(c, cmd->first);
    cl_reply_int(c, cmd->last);
    cl_reply_int(c, cmd->step);
    reply_categories(c, cmd);
    cl_reply_array(c, 0);                             /* tips */
    cl_reply_array(c, 0);                             /* key specifications */
    cl_reply_array(c, is_sub ? 0 : count(cmd->subs)); /* which follow */
}

static void reply_info(struct cl_resp_client *c, const struct cl_rcmd *cmd)
{
    reply_row(c, cmd, false);
    for (const struct cl_rcmd *sub = cmd->subs; sub && sub->name; sub++)
        reply_row(c, sub, true);
}

void cl_cmd_command(struct cl_resp_client *c)
{
    cl_reply_array(c, c->r->n_commands);
    for (uint32_t i = 0; i < c->r->n_commands; i++)
        reply_info(c, &c->r->commands[i]);
}

void cl_cmd_command_count(struct cl_resp_client *c)
{
    cl_reply_int(c, c->r->n_commands);
}

/* "name" or "name|part". */
static const struct cl_rcmd *named(struct cl_resp_client *c, struct cl_slice s)
{
    struct cl_slice parts[2] = {s, {NULL, 0}};
    const uint8_t *bar = memchr(s.p, '|', s.len);
    bool sub;
    if (bar) {
        parts[0].len = (uint32_t)(bar - s.p);
        parts[1] = (struct cl_slice){bar + 1, s.len - parts[0].len - 1};
    }
    const struct cl_rcmd *cmd = cl_rcall_find(c->r, parts, bar ? 2 : 1, &sub);
    return bar && !sub ? NULL : cmd;
}

void cl_cmd_command_info(struct cl_resp_client *c)
{
    if (c->argc == 2) {
        cl_cmd_command(c);
        return;
    }
    cl_reply_array(c, c->argc - 2);
    for (uint32_t i = 2; i < c->argc; i++) {
        const struct cl_rcmd *cmd = named(c, ARG(c, i));
        if (cmd)
            reply_info(c, cmd);
        else
            cl_reply_null(c);
    }
}

static void reply_docs(struct cl_resp_client *c, const struct cl_rcmd *cmd, bool is_sub)
{
    char name[64];
    int64_t subs = is_sub ? 0 : count(cmd->subs);
    cl_rcall_name(c->r, cmd, name);
    cl_reply_text(c, name);
    cl_reply_map(c, 3 + (subs > 0));
    cl_reply_text(c, "summary");
    cl_reply_text(c, cmd->summary);
    cl_reply_text(c, "since");
    cl_reply_text(c, cmd->since);
    cl_reply_text(c, "group");
    cl_reply_text(c, group_names[cmd->group]);
    if (!subs)
        return;
    cl_reply_text(c, "subcommands");
    cl_reply_map(c, subs);
}

static void reply_docs_of(struct cl_resp_client *c, const struct cl_rcmd *cmd)
{
    reply_docs(c, cmd, false);
    for (const struct cl_rcmd *sub = cmd->subs; sub && sub->name; sub++)
        reply_docs(c, sub, true);
}

void cl_cmd_command_docs(struct cl_resp_client *c)
{
    struct cl_rchunk *at = cl_reply_defer(c);
    int64_t n = 0;
    for (uint32_t i = 0; c->argc == 2 && i < c->r->n_commands; i++, n++)
        reply_docs_of(c, &c->r->commands[i]);
    for (uint32_t i = 2; i < c->argc; i++) {
        const struct cl_rcmd *cmd = named(c, ARG(c, i));
        if (!cmd)
            continue;
        reply_docs_of(c, cmd);
        n++;
    }
    cl_reply_deferred(c, at, '%', n);
}

static bool in_category(const struct cl_rcmd *cmd, struct cl_slice category)
{
    const char *names[CATEGORIES];
    int64_t n = categories(cmd, names);
    while (n > 0 && !cl_slice_is(category, names[n - 1] + 1))
        n--;
    return n > 0;
}

/* FILTERBY's kinds. There are no modules. */
enum filter { ALL, PATTERN, CATEGORY, MODULE };

/* 1 if the command or part was listed, else 0. */
static int64_t list_one(struct cl_resp_client *c, const struct cl_rcmd *cmd, enum filter filter)
{
    char name[64];
    cl_rcall_name(c->r, cmd, name);
    if (filter == MODULE || (filter == CATEGORY && !in_category(cmd, ARG(c, 4))) ||
        (filter == PATTERN && !cl_glob(ARG(c, 4), cl_slice_of(name), true)))
        return 0;
    cl_reply_text(c, name);
    return 1;
}

void cl_cmd_command_list(struct cl_resp_client *c)
{
    enum filter filter = ALL;
    if (c->argc == 5 && ARG_IS(c, 2, "filterby"))
        filter = ARG_IS(c, 3, "pattern")  ? PATTERN
                 : ARG_IS(c, 3, "aclcat") ? CATEGORY
                 : ARG_IS(c, 3, "module") ? MODULE
                                          : ALL;
    if (c->argc != 2 && filter == ALL) {
        cl_reply_syntax(c);
        return;
    }
    struct cl_rchunk *at = cl_reply_defer(c);
    int64_t n = 0;
    for (uint32_t i = 0; i < c->r->n_commands; i++) {
        const struct cl_rcmd *cmd = &c->r->commands[i];
        n += list_one(c, cmd, filter);
        for (const struct cl_rcmd *part = cmd->subs; part && part->name; part++)
            n += list_one(c, part, filter);
    }
    cl_reply_deferred(c, at, '*', n);
}

/* Which of the arguments are keys. Returns how many; -1: they are wrong. */
static int keys_of(const struct cl_rcmd *cmd, const struct cl_slice *argv, uint32_t argc, uint32_t *out)
{
    int n = 0;
    if (cmd->keys)
        return cmd->keys(argv, argc, out);
    if (!cmd->first)
        return 0;
    int32_t last = cmd->last < 0 ? (int32_t)argc + cmd->last : cmd->last;
    for (int32_t i = cmd->first; i <= last && i < (int32_t)argc && n < CL_RCMD_KEYS; i += cmd->step)
        out[n++] = (uint32_t)i;
    return n;
}

/* A command line behind the second argument, and which of its arguments are keys. Returns how many; 0: answered. */
static int keys_asked(struct cl_resp_client *c, const struct cl_rcmd **cmd, uint32_t *at)
{
    bool sub;
    const struct cl_slice *argv = c->argv + 2;
    uint32_t argc = c->argc - 2;
    int n;
    *cmd = cl_rcall_find(c->r, argv, argc, &sub);
    if (!*cmd)
        cl_reply_error(c, "ERR Invalid command specified");
    else if (!(*cmd)->first && !(*cmd)->keys)
        cl_reply_error(c, "ERR The command has no key arguments");
    else if (!cl_rcall_arity(*cmd, argc))
        cl_reply_error(c, "ERR Invalid number of arguments specified for command");
    else if ((n = keys_of(*cmd, argv, argc, at)) <= 0)
        cl_reply_error(c, "ERR Invalid arguments specified for command");
    else
        return n;
    return 0;
}

void cl_cmd_command_getkeys(struct cl_resp_client *c)
{
    uint32_t at[CL_RCMD_KEYS];
    const struct cl_rcmd *cmd;
    int n = keys_asked(c, &cmd, at);
    if (n)
        cl_reply_array(c, n);
    for (int i = 0; i < n; i++)
        cl_reply_slice(c, ARG(c, 2 + at[i]));
}

/* What commands do with the first key that they name and with the others, in Redis' words; a row of others NULL: the
 * same. Commands that are in no row read the values of all their keys. */
#define READS "RO access"
static const struct key_use {
    const char *first, *others;
    const char *commands; /* each between blanks */
} key_uses[] = {
    {"RO", NULL,
     " exists touch type strlen llen scard sismember zcard hexists hlen hstrlen xlen watch object|encoding object|freq "
     "object|idletime object|refcount memory|usage "},
    {READS, "OW update", " copy sort "},
    {"OW insert", NULL, " msetnx setnx "},
    {"OW update", NULL, " mset psetex set setex "},
    {"OW update", READS, " bitop sdiffstore sunionstore zdiffstore zinterstore zrangestore zunionstore "},
    {"RM delete", NULL, " del unlink "},
    {"RW access delete", NULL,
     " getdel blmpop blpop brpop lmpop lpop rpop spop bzmpop bzpopmax bzpopmin zmpop zpopmax zpopmin "},
    {"RW access delete", "OW insert", " renamenx "},
    {"RW access delete", "OW update", " rename "},
    {"RW access delete", "RW insert", " blmove brpoplpush lmove rpoplpush smove "},
    {"RW access update", NULL,
     " move decr decrby getex getset incr incrby incrbyfloat setbit zincrby hincrby hincrbyfloat bitfield "},
    {"RW delete", NULL, " lrem ltrim srem zrem zremrangebylex zremrangebyrank zremrangebyscore hdel xdel xtrim "},
    {"RW insert", NULL, " append linsert lpush lpushx rpush rpushx sadd hsetnx "},
    {"RW update", NULL, " expire expireat persist pexpire pexpireat setrange lset zadd hmset hset xadd xsetid "},
    {"RW update", READS, " sinterstore "},
};

static bool has_word(struct cl_resp_client *c, const char *word)
{
    for (uint32_t i = 3; i < c->argc; i++)
        if (ARG_IS(c, i, word))
            return true;
    return false;
}

/* Whether a BITFIELD at argument 2 reads alone, and is right. */
static bool only_gets(const struct cl_resp_client *c)
{
    for (uint32_t i = 4; i < c->argc;) {
        uint32_t words = ARG_IS(c, i, "get") ? 3 : ARG_IS(c, i, "overflow") ? 2 : 0;
        if (!words || i + words > c->argc)
            return false;
        i += words;
    }
    return true;
}

/* What the command at argument 2 does with its n-th key. */
static const char *key_use(struct cl_resp_client *c, const struct cl_rcmd *cmd, int n)
{
    char name[64], word[72];
    if (cmd->fn == cl_cmd_set && has_word(c, "get"))
        return "RW access update";
    if (cmd->fn == cl_cmd_bitfield && only_gets(c))
        return READS;
    cl_rcall_name(c->r, cmd, name);
    snprintf(word, sizeof word, " %s ", name);
    for (unsigned i = 0; i < sizeof key_uses / sizeof key_uses[0]; i++)
        if (strstr(key_uses[i].commands, word))
            return n && key_uses[i].others ? key_uses[i].others : key_uses[i].first;
    return READS;
}

static void reply_words(struct cl_resp_client *c, const char *words)
{
    int64_t n = 1;
    for (const char *p = words; *p; p++)
        n += *p == ' ';
    cl_reply_set(c, n);
    for (size_t len; n; n--, words += len + 1) {
        len = strcspn(words, " ");
        cl_reply_raw(c, "+", 1);
        cl_reply_raw(c, words, len);
        cl_reply_raw(c, "\r\n", 2);
    }
}

void cl_cmd_command_getkeysandflags(struct cl_resp_client *c)
{
    uint32_t at[CL_RCMD_KEYS];
    const struct cl_rcmd *cmd;
    int n = keys_asked(c, &cmd, at);
    if (n)
        cl_reply_array(c, n);
    for (int i = 0; i < n; i++) {
        cl_reply_array(c, 2);
        cl_reply_slice(c, ARG(c, 2 + at[i]));
        reply_words(c, key_use(c, cmd, i));
    }
}

/* HELP of the command whose part was called. */
void cl_cmd_help(struct cl_resp_client *c)
{
    bool sub;
    char line[160];
    const struct cl_rcmd *cmd = cl_rcall_find(c->r, c->argv, 1, &sub);
    cl_reply_array(c, 1 + 2 * count(cmd->subs));
    snprintf(line, sizeof line, "%s <subcommand> [<arg> [value] [opt] ...]. Subcommands are:", cmd->name);
    upper(line, strlen(cmd->name));
    cl_reply_status(c, line);
    for (const struct cl_rcmd *part = cmd->subs; part->name; part++) {
        snprintf(line, sizeof line, "%s", part->name);
        upper(line, strlen(line));
        cl_reply_status(c, line);
        snprintf(line, sizeof line, "    %s", part->summary);
        cl_reply_status(c, line);
    }
}

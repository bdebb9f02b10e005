/* See table.h. A row: name, function, arity, flags, first and last key and their step, group, the version of Redis that
 * had it first, what it does. Containers have no function of their own. */
#include "table.h"
#include "commands.h"
#include "number.h"

#define W CL_RF_WRITE
#define R CL_RF_READONLY
#define MEM CL_RF_DENYOOM
#define FAST CL_RF_FAST
#define ADMIN CL_RF_ADMIN
#define NOSCRIPT CL_RF_NOSCRIPT
#define LOAD (CL_RF_LOADING | CL_RF_STALE)
#define PS (CL_RF_PUBSUB | CL_RF_NOSCRIPT | CL_RF_LOADING | CL_RF_STALE)
#define NOAUTH CL_RF_NO_AUTH
#define SUBSCRIBED CL_RF_SUBSCRIBED
#define NOW CL_RF_NOW
#define NO_MULTI CL_RF_NO_MULTI
#define BLOCK (CL_RF_BLOCKING | CL_RF_NOSCRIPT | CL_RF_GROWS)
#define BUSY CL_RF_ALLOW_BUSY
#define SILENT CL_RF_SECRET
#define MOVABLE CL_RF_MOVABLE
#define GROWS CL_RF_GROWS

#define HELP(group, since)                                                                                             \
    {                                                                                                                  \
        "help", cl_cmd_help, 2, LOAD, 0, 0, 0, group, since, "Print this help.", 0, 0                                  \
    }

static const struct cl_rcmd client_subs[] = {
    {"getname", cl_cmd_client_getname, 2, NOSCRIPT | LOAD, 0, 0, 0, CL_RG_CONNECTION, "2.6.9", "Own name.", 0, 0},
    {"getredir", cl_cmd_client_getredir, 2, NOSCRIPT | LOAD, 0, 0, 0, CL_RG_CONNECTION, "6.0.0",
     "Whom invalidations go to: nobody.", 0, 0},
    HELP(CL_RG_CONNECTION, "5.0.0"),
    {"id", cl_cmd_client_id, 2, NOSCRIPT | LOAD, 0, 0, 0, CL_RG_CONNECTION, "5.0.0", "Own number.", 0, 0},
    {"info", cl_cmd_client_info, 2, NOSCRIPT | LOAD, 0, 0, 0, CL_RG_CONNECTION, "6.2.0", "The own connection.", 0, 0},
    {"kill", cl_cmd_client_kill, -3, ADMIN | NOSCRIPT | LOAD, 0, 0, 0, CL_RG_CONNECTION, "2.4.0", "End connections.", 0,
     0},
    {"list", cl_cmd_client_list, -2, ADMIN | NOSCRIPT | LOAD, 0, 0, 0, CL_RG_CONNECTION, "2.4.0", "All connections.", 0,
     0},
    {"no-evict", cl_cmd_client_noevict, 3, ADMIN | NOSCRIPT | LOAD, 0, 0, 0, CL_RG_CONNECTION, "7.0.0",
     "Accepted; connections are never evicted.", 0, 0},
    {"pause", cl_cmd_client_pause, -3, ADMIN | NOSCRIPT | LOAD, 0, 0, 0, CL_RG_CONNECTION, "3.0.0",
     "Run no commands, or nothing that writes, for a while.", 0, 0},
    {"reply", cl_cmd_client_reply, 3, NOSCRIPT | LOAD, 0, 0, 0, CL_RG_CONNECTION, "3.2.0", "Answer commands, or not.",
     0, 0},
    {"setname", cl_cmd_client_setname, 3, NOSCRIPT | LOAD, 0, 0, 0, CL_RG_CONNECTION, "2.6.9",
     "Give the connection a name.", 0, 0},
    {"unblock", cl_cmd_client_unblock, -3, ADMIN | NOSCRIPT | LOAD, 0, 0, 0, CL_RG_CONNECTION, "5.0.0",
     "End the waiting of a blocked command.", 0, 0},
    {"unpause", cl_cmd_client_unpause, 2, ADMIN | NOSCRIPT | LOAD, 0, 0, 0, CL_RG_CONNECTION, "6.2.0", "End a pause.",
     0, 0},
    {0}};

static const struct cl_rcmd config_subs[] = {
    {"get", cl_cmd_config_get, -3, ADMIN | NOSCRIPT | LOAD, 0, 0, 0, CL_RG_SERVER, "2.0.0", "Settings.", 0, 0},
    HELP(CL_RG_SERVER, "5.0.0"),
    {"resetstat", cl_cmd_config_resetstat, 2, ADMIN | NOSCRIPT | LOAD, 0, 0, 0, CL_RG_SERVER, "2.0.0",
     "Begin counters at 0.", 0, 0},
    {"rewrite", cl_cmd_config_rewrite, 2, ADMIN | NOSCRIPT | LOAD, 0, 0, 0, CL_RG_SERVER, "2.8.0",
     "Refused: there is no file.", 0, 0},
    {"set", cl_cmd_config_set, -4, ADMIN | NOSCRIPT | LOAD, 0, 0, 0, CL_RG_SERVER, "2.0.0", "Change settings.", 0, 0},
    {0}};

static const struct cl_rcmd command_subs[] = {
    {"count", cl_cmd_command_count, 2, LOAD, 0, 0, 0, CL_RG_SERVER, "2.8.13", "How many commands there are.", 0, 0},
    {"docs", cl_cmd_command_docs, -2, LOAD, 0, 0, 0, CL_RG_SERVER, "7.0.0", "What commands do.", 0, 0},
    {"getkeys", cl_cmd_command_getkeys, -4, LOAD, 0, 0, 0, CL_RG_SERVER, "2.8.13", "Keys of a command line.", 0, 0},
    {"getkeysandflags", cl_cmd_command_getkeysandflags, -4, LOAD, 0, 0, 0, CL_RG_SERVER, "7.0.0",
     "The same, and what is done with them.", 0, 0},
    HELP(CL_RG_SERVER, "5.0.0"),
    {"info", cl_cmd_command_info, -2, LOAD, 0, 0, 0, CL_RG_SERVER, "2.8.13", "Arity, flags and keys.", 0, 0},
    {"list", cl_cmd_command_list, -2, LOAD, 0, 0, 0, CL_RG_SERVER, "7.0.0", "Names of commands.", 0, 0},
    {0}};

static const struct cl_rcmd object_subs[] = {
    {"encoding", cl_cmd_object_encoding, 3, R, 2, 2, 1, CL_RG_GENERIC, "2.2.3", "How a value is kept.", 0, 0},
    {"freq", cl_cmd_object_freq, 3, R, 2, 2, 1, CL_RG_GENERIC, "4.0.0", "How often a key is used.", 0, 0},
    HELP(CL_RG_GENERIC, "6.2.0"),
    {"idletime", cl_cmd_object_idletime, 3, R, 2, 2, 1, CL_RG_GENERIC, "2.2.3", "Since when it was not used.", 0, 0},
    {"refcount", cl_cmd_object_refcount, 3, R, 2, 2, 1, CL_RG_GENERIC, "2.2.3", "Always 1.", 0, 0},
    {0}};

static const struct cl_rcmd memory_subs[] = {
    {"doctor", cl_cmd_memory_doctor, 2, 0, 0, 0, 0, CL_RG_SERVER, "4.0.0", "Nothing to report.", 0, 0},
    HELP(CL_RG_SERVER, "4.0.0"),
    {"purge", cl_cmd_memory_purge, 2, 0, 0, 0, 0, CL_RG_SERVER, "4.0.0", "Accepted; there is nothing to do.", 0, 0},
    {"usage", cl_cmd_memory_usage, -3, R, 2, 2, 1, CL_RG_SERVER, "4.0.0", "Bytes of a key and its value.", 0, 0},
    {0}};

static const struct cl_rcmd slowlog_subs[] = {
    {"get", cl_cmd_slowlog_get, -2, ADMIN | LOAD, 0, 0, 0, CL_RG_SERVER, "2.2.12", "Empty: none is kept.", 0, 0},
    HELP(CL_RG_SERVER, "6.2.0"),
    {"len", cl_cmd_slowlog_len, 2, ADMIN | LOAD, 0, 0, 0, CL_RG_SERVER, "2.2.12", "0.", 0, 0},
    {"reset", cl_cmd_slowlog_reset, 2, ADMIN | LOAD, 0, 0, 0, CL_RG_SERVER, "2.2.12", "Accepted.", 0, 0},
    {0}};

static const struct cl_rcmd pubsub_subs[] = {{"channels", cl_cmd_pubsub_channels, -2, CL_RF_PUBSUB | LOAD, 0, 0, 0,
                                              CL_RG_PUBSUB, "2.8.0", "Channels with subscribers.", 0, 0},
                                             HELP(CL_RG_PUBSUB, "6.2.0"),
                                             {"numpat", cl_cmd_pubsub_numpat, 2, CL_RF_PUBSUB | LOAD, 0, 0, 0,
                                              CL_RG_PUBSUB, "2.8.0", "How many patterns there are.", 0, 0},
                                             {"numsub", cl_cmd_pubsub_numsub, -2, CL_RF_PUBSUB | LOAD, 0, 0, 0,
                                              CL_RG_PUBSUB, "2.8.0", "How many subscribers channels have.", 0, 0},
                                             {0}};

static const struct cl_rcmd function_subs[] = {{"flush", cl_cmd_function_flush, -2, NOSCRIPT | W, 0, 0, 0,
                                                CL_RG_SCRIPTING, "7.0.0", "Accepted: there are none.", 0, 0},
                                               HELP(CL_RG_SCRIPTING, "7.0.0"),
                                               {0}};

static const struct cl_rcmd acl_subs[] = {
    HELP(CL_RG_SERVER, "6.0.0"),
    {"whoami", cl_cmd_acl_whoami, 2, NOSCRIPT | LOAD, 0, 0, 0, CL_RG_SERVER, "6.0.0", "default", 0, 0},
    {0}};

static const struct cl_rcmd xinfo_subs[] = {
    HELP(CL_RG_STREAM, "5.0.0"),
    {"stream", cl_cmd_xinfo_stream, -3, R, 2, 2, 1, CL_RG_STREAM, "5.0.0", "Length, IDs, first and last.", 0, 0},
    {0}};

/* A number at argument `at`, and so many keys behind it. */
static int counted_keys(const struct cl_slice *argv, uint32_t argc, uint32_t at, uint32_t *out)
{
    int64_t n;
    if (at >= argc || !cl_rnum_int(argv[at], &n) || n < 1 || n > (int64_t)argc - at - 1 || n > CL_RCMD_KEYS - 1)
        return -1;
    for (uint32_t i = 0; i < (uint32_t)n; i++)
        out[i] = at + 1 + i;
    return (int)n;
}

static int keys_at_1(const struct cl_slice *argv, uint32_t argc, uint32_t *out)
{
    return counted_keys(argv, argc, 1, out);
}

static int keys_at_2(const struct cl_slice *argv, uint32_t argc, uint32_t *out)
{
    return counted_keys(argv, argc, 2, out);
}

static int keys_at_2_and_1(const struct cl_slice *argv, uint32_t argc, uint32_t *out)
{
    int n = counted_keys(argv, argc, 2, out + 1);
    out[0] = 1;
    return n < 0 ? -1 : n + 1;
}

/* The key to be sorted, and the last one to store it under. */
static int keys_of_sort(const struct cl_slice *argv, uint32_t argc, uint32_t *out)
{
    int n = 1;
    out[0] = 1;
    for (uint32_t i = 2; i < argc; i++)
        if (cl_slice_is(argv[i], "limit"))
            i += 2;
        else if (cl_slice_is(argv[i], "get") || cl_slice_is(argv[i], "by"))
            i++;
        else if (cl_slice_is(argv[i], "store") && i + 1 < argc) {
            out[1] = i + 1;
            n = 2;
        }
    return n;
}

static int keys_of_xread(const struct cl_slice *argv, uint32_t argc, uint32_t *out)
{
    uint32_t i = 1;
    while (i < argc && !cl_slice_is(argv[i], "streams"))
        i++;
    uint32_t left = argc - cl_min(i + 1, argc), n = left / 2;
    if (n == 0 || n > CL_RCMD_KEYS)
        return -1;
    for (uint32_t k = 0; k < n; k++)
        out[k] = i + 1 + k;
    return (int)n;
}

#define CONTAINER(name, flags, group, since, text, subs)                                                               \
    {                                                                                                                  \
        name, 0, -2, flags, 0, 0, 0, group, since, text, subs, 0                                                       \
    }

const struct cl_rcmd cl_rtable[] = {
    /* Connection. */
    {"auth", cl_cmd_auth, -2, NOSCRIPT | LOAD | FAST | NOAUTH | BUSY | SILENT, 0, 0, 0, CL_RG_CONNECTION, "1.0.0",
     "Give the password.", 0, 0},
    CONTAINER("client", 0, CL_RG_CONNECTION, "2.4.0", "Connections.", client_subs),
    {"echo", cl_cmd_echo, 2, LOAD | FAST, 0, 0, 0, CL_RG_CONNECTION, "1.0.0", "Answer the argument.", 0, 0},
    {"hello", cl_cmd_hello, -1, NOSCRIPT | LOAD | FAST | NOAUTH | BUSY | SILENT, 0, 0, 0, CL_RG_CONNECTION, "6.0.0",
     "Agree on the protocol.", 0, 0},
    {"ping", cl_cmd_ping, -1, FAST | SUBSCRIBED, 0, 0, 0, CL_RG_CONNECTION, "1.0.0", "Answer PONG.", 0, 0},
    {"quit", cl_cmd_quit, -1, NOSCRIPT | LOAD | FAST | NOAUTH | BUSY | SUBSCRIBED | NOW, 0, 0, 0, CL_RG_CONNECTION,
     "1.0.0", "End the connection.", 0, 0},
    {"reset", cl_cmd_reset, 1, NOSCRIPT | LOAD | FAST | NOAUTH | BUSY | SUBSCRIBED | NOW, 0, 0, 0, CL_RG_CONNECTION,
     "6.2.0", "As if it had just connected.", 0, 0},
    {"select", cl_cmd_select, 2, LOAD | FAST, 0, 0, 0, CL_RG_CONNECTION, "1.0.0", "Use another database.", 0, 0},
    /* Server. */
    CONTAINER("acl", 0, CL_RG_SERVER, "6.0.0", "Users: there is one.", acl_subs),
    {"bgrewriteaof", cl_cmd_bgrewriteaof, 1, ADMIN | NOSCRIPT, 0, 0, 0, CL_RG_SERVER, "1.0.0", "Rewrite the log.", 0,
     0},
    {"waitaof", cl_cmd_waitaof, 4, NOSCRIPT, 0, 0, 0, CL_RG_GENERIC, "7.2.0", "Wait until writes are durable.", 0, 0},
    {"command", cl_cmd_command, -1, LOAD, 0, 0, 0, CL_RG_SERVER, "2.8.13", "The table of commands.", command_subs, 0},
    CONTAINER("config", 0, CL_RG_SERVER, "2.0.0", "Settings.", config_subs),
    {"dbsize", cl_cmd_dbsize, 1, R | FAST, 0, 0, 0, CL_RG_SERVER, "1.0.0", "How many keys there are.", 0, 0},
    {"debug", cl_cmd_debug, -2, ADMIN | NOSCRIPT | LOAD, 0, 0, 0, CL_RG_SERVER, "1.0.0", "For tests.", 0, 0},
    {"flushall", cl_cmd_flushall, -1, W, 0, 0, 0, CL_RG_SERVER, "1.0.0", "Remove the keys of all databases.", 0, 0},
    {"flushdb", cl_cmd_flushdb, -1, W, 0, 0, 0, CL_RG_SERVER, "1.0.0", "Remove all keys.", 0, 0},
    CONTAINER("function", 0, CL_RG_SCRIPTING, "7.0.0", "Functions: there are none.", function_subs),
    {"info", cl_cmd_info, -1, LOAD, 0, 0, 0, CL_RG_SERVER, "1.0.0", "Numbers of the server.", 0, 0},
    {"lastsave", cl_cmd_lastsave, 1, LOAD | FAST, 0, 0, 0, CL_RG_SERVER, "1.0.0",
     "When the log was rewritten last, or the server was started.", 0, 0},
    CONTAINER("memory", 0, CL_RG_SERVER, "4.0.0", "Memory in use.", memory_subs),
    {"monitor", cl_cmd_monitor, 1, ADMIN | NOSCRIPT | LOAD, 0, 0, 0, CL_RG_SERVER, "1.0.0",
     "Show each command that is run.", 0, 0},
    {"role", cl_cmd_role, 1, NOSCRIPT | LOAD | FAST, 0, 0, 0, CL_RG_SERVER, "2.8.12",
     "Master, or whom a group of nodes has for one.", 0, 0},
    CONTAINER("slowlog", 0, CL_RG_SERVER, "2.2.12", "Slow commands: none are kept.", slowlog_subs),
    {"swapdb", cl_cmd_swapdb, 3, W | FAST, 0, 0, 0, CL_RG_SERVER, "4.0.0", "Exchange two databases.", 0, 0},
    {"time", cl_cmd_time, 1, LOAD | FAST, 0, 0, 0, CL_RG_SERVER, "2.6.0", "The server's clock.", 0, 0},
    /* Keys. */
    {"copy", cl_cmd_copy, -3, W | MEM, 1, 2, 1, CL_RG_GENERIC, "6.2.0", "Copy a key.", 0, 0},
    {"del", cl_cmd_del, -2, W, 1, -1, 1, CL_RG_GENERIC, "1.0.0", "Remove keys.", 0, 0},
    {"exists", cl_cmd_exists, -2, R | FAST, 1, -1, 1, CL_RG_GENERIC, "1.0.0", "How many of the keys exist.", 0, 0},
    {"expire", cl_cmd_expire, -3, W | FAST, 1, 1, 1, CL_RG_GENERIC, "1.0.0", "Have a key expire in seconds.", 0, 0},
    {"expireat", cl_cmd_expireat, -3, W | FAST, 1, 1, 1, CL_RG_GENERIC, "1.2.0", "Have a key expire at a time.", 0, 0},
    {"expiretime", cl_cmd_expiretime, 2, R | FAST, 1, 1, 1, CL_RG_GENERIC, "7.0.0", "When a key expires.", 0, 0},
    {"keys", cl_cmd_keys, 2, R, 0, 0, 0, CL_RG_GENERIC, "1.0.0", "Names that match.", 0, 0},
    {"move", cl_cmd_move, 3, W | FAST, 1, 1, 1, CL_RG_GENERIC, "1.0.0", "Move a key to another database.", 0, 0},
    CONTAINER("object", 0, CL_RG_GENERIC, "2.2.3", "How a value is kept and used.", object_subs),
    {"persist", cl_cmd_persist, 2, W | FAST, 1, 1, 1, CL_RG_GENERIC, "2.2.0", "Have a key never expire.", 0, 0},
    {"pexpire", cl_cmd_pexpire, -3, W | FAST, 1, 1, 1, CL_RG_GENERIC, "2.6.0", "Have a key expire in ms.", 0, 0},
    {"pexpireat", cl_cmd_pexpireat, -3, W | FAST, 1, 1, 1, CL_RG_GENERIC, "2.6.0", "The same at a time in ms.", 0, 0},
    {"pexpiretime", cl_cmd_pexpiretime, 2, R | FAST, 1, 1, 1, CL_RG_GENERIC, "7.0.0", "When it expires, in ms.", 0, 0},
    {"pttl", cl_cmd_pttl, 2, R | FAST, 1, 1, 1, CL_RG_GENERIC, "2.6.0", "In how many ms it expires.", 0, 0},
    {"randomkey", cl_cmd_randomkey, 1, R, 0, 0, 0, CL_RG_GENERIC, "1.0.0", "Any key.", 0, 0},
    {"rename", cl_cmd_rename, 3, W, 1, 2, 1, CL_RG_GENERIC, "1.0.0", "Give a key another name.", 0, 0},
    {"renamenx", cl_cmd_renamenx, 3, W | FAST, 1, 2, 1, CL_RG_GENERIC, "1.0.0", "The same if that is free.", 0, 0},
    {"scan", cl_cmd_scan, -2, R, 0, 0, 0, CL_RG_GENERIC, "2.8.0", "Names, some at a time.", 0, 0},
    {"sort", cl_cmd_sort, -2, W | MEM | MOVABLE, 1, 1, 1, CL_RG_GENERIC, "1.0.0", "Elements in order.", 0,
     keys_of_sort},
    {"sort_ro", cl_cmd_sort_ro, -2, R | MOVABLE, 1, 1, 1, CL_RG_GENERIC, "7.0.0", "The same, to read.", 0, 0},
    {"touch", cl_cmd_touch, -2, R | FAST, 1, -1, 1, CL_RG_GENERIC, "3.2.1", "Use keys.", 0, 0},
    {"ttl", cl_cmd_ttl, 2, R | FAST, 1, 1, 1, CL_RG_GENERIC, "1.0.0", "In how many seconds it expires.", 0, 0},
    {"type", cl_cmd_type, 2, R | FAST, 1, 1, 1, CL_RG_GENERIC, "1.0.0", "The type of a value.", 0, 0},
    {"unlink", cl_cmd_unlink, -2, W | FAST, 1, -1, 1, CL_RG_GENERIC, "4.0.0", "Remove keys.", 0, 0},
    {"wait", cl_cmd_wait, 3, NOSCRIPT, 0, 0, 0, CL_RG_GENERIC, "3.0.0",
     "How many replicas have what was written before.", 0, 0},
    /* Strings. */
    {"append", cl_cmd_append, 3, W | MEM | FAST, 1, 1, 1, CL_RG_STRING, "2.0.0", "Append to a string.", 0, 0},
    {"decr", cl_cmd_decr, 2, W | MEM | FAST, 1, 1, 1, CL_RG_STRING, "1.0.0", "Subtract 1.", 0, 0},
    {"decrby", cl_cmd_decrby, 3, W | MEM | FAST, 1, 1, 1, CL_RG_STRING, "1.0.0", "Subtract an integer.", 0, 0},
    {"get", cl_cmd_get, 2, R | FAST, 1, 1, 1, CL_RG_STRING, "1.0.0", "A string.", 0, 0},
    {"getdel", cl_cmd_getdel, 2, W | FAST, 1, 1, 1, CL_RG_STRING, "6.2.0", "A string, which is removed.", 0, 0},
    {"getex", cl_cmd_getex, -2, W | FAST, 1, 1, 1, CL_RG_STRING, "6.2.0", "A string; set when it expires.", 0, 0},
    {"getrange", cl_cmd_getrange, 4, R, 1, 1, 1, CL_RG_STRING, "2.4.0", "A part of a string.", 0, 0},
    {"getset", cl_cmd_getset, 3, W | MEM | FAST, 1, 1, 1, CL_RG_STRING, "1.0.0", "Exchange a string.", 0, 0},
    {"incr", cl_cmd_incr, 2, W | MEM | FAST, 1, 1, 1, CL_RG_STRING, "1.0.0", "Add 1.", 0, 0},
    {"incrby", cl_cmd_incrby, 3, W | MEM | FAST, 1, 1, 1, CL_RG_STRING, "1.0.0", "Add an integer.", 0, 0},
    {"incrbyfloat", cl_cmd_incrbyfloat, 3, W | MEM | FAST, 1, 1, 1, CL_RG_STRING, "2.6.0", "Add a number.", 0, 0},
    {"lcs", cl_cmd_lcs, -3, R, 1, 2, 1, CL_RG_STRING, "7.0.0", "The longest common subsequence.", 0, 0},
    {"mget", cl_cmd_mget, -2, R | FAST, 1, -1, 1, CL_RG_STRING, "1.0.0", "Strings.", 0, 0},
    {"mset", cl_cmd_mset, -3, W | MEM, 1, -1, 2, CL_RG_STRING, "1.0.1", "Set strings.", 0, 0},
    {"msetnx", cl_cmd_msetnx, -3, W | MEM, 1, -1, 2, CL_RG_STRING, "1.0.1", "The same if none exists.", 0, 0},
    {"psetex", cl_cmd_psetex, 4, W | MEM, 1, 1, 1, CL_RG_STRING, "2.6.0", "Set a string that expires, in ms.", 0, 0},
    {"set", cl_cmd_set, -3, W | MEM, 1, 1, 1, CL_RG_STRING, "1.0.0", "Set a string.", 0, 0},
    {"setex", cl_cmd_setex, 4, W | MEM, 1, 1, 1, CL_RG_STRING, "2.0.0", "Set a string that expires.", 0, 0},
    {"setnx", cl_cmd_setnx, 3, W | MEM | FAST, 1, 1, 1, CL_RG_STRING, "1.0.0", "Set what does not exist.", 0, 0},
    {"setrange", cl_cmd_setrange, 4, W | MEM, 1, 1, 1, CL_RG_STRING, "2.2.0", "Overwrite a part.", 0, 0},
    {"strlen", cl_cmd_strlen, 2, R | FAST, 1, 1, 1, CL_RG_STRING, "2.2.0", "How long a string is.", 0, 0},
    {"substr", cl_cmd_getrange, 4, R, 1, 1, 1, CL_RG_STRING, "1.0.0", "A part of a string.", 0, 0},
    /* Bits. */
    {"bitcount", cl_cmd_bitcount, -2, R, 1, 1, 1, CL_RG_BITMAP, "2.6.0", "How many bits are 1.", 0, 0},
    {"bitfield", cl_cmd_bitfield, -2, W | MEM, 1, 1, 1, CL_RG_BITMAP, "3.2.0", "Integers of any width.", 0, 0},
    {"bitfield_ro", cl_cmd_bitfield_ro, -2, R | FAST, 1, 1, 1, CL_RG_BITMAP, "6.0.0", "The same, to read.", 0, 0},
    {"bitop", cl_cmd_bitop, -4, W | MEM, 2, -1, 1, CL_RG_BITMAP, "2.6.0", "Combine strings bit by bit.", 0, 0},
    {"bitpos", cl_cmd_bitpos, -3, R, 1, 1, 1, CL_RG_BITMAP, "2.8.7", "The first bit that is 1, or 0.", 0, 0},
    {"getbit", cl_cmd_getbit, 3, R | FAST, 1, 1, 1, CL_RG_BITMAP, "2.2.0", "A bit.", 0, 0},
    {"setbit", cl_cmd_setbit, 4, W | MEM, 1, 1, 1, CL_RG_BITMAP, "2.2.0", "Set a bit.", 0, 0},
    /* Lists. */
    {"blmove", cl_cmd_blmove, 6, W | MEM | BLOCK, 1, 2, 1, CL_RG_LIST, "6.2.0", "LMOVE that waits.", 0, 0},
    {"blmpop", cl_cmd_blmpop, -5, W | CL_RF_BLOCKING | GROWS | MOVABLE, 0, 0, 0, CL_RG_LIST, "7.0.0",
     "LMPOP that waits.", 0, keys_at_2},
    {"blpop", cl_cmd_blpop, -3, W | BLOCK, 1, -2, 1, CL_RG_LIST, "2.0.0", "LPOP that waits.", 0, 0},
    {"brpop", cl_cmd_brpop, -3, W | BLOCK, 1, -2, 1, CL_RG_LIST, "2.0.0", "RPOP that waits.", 0, 0},
    {"brpoplpush", cl_cmd_brpoplpush, 4, W | MEM | BLOCK, 1, 2, 1, CL_RG_LIST, "2.2.0", "The same.", 0, 0},
    {"lindex", cl_cmd_lindex, 3, R, 1, 1, 1, CL_RG_LIST, "1.0.0", "An element.", 0, 0},
    {"linsert", cl_cmd_linsert, 5, W | MEM, 1, 1, 1, CL_RG_LIST, "2.2.0", "Insert beside an element.", 0, 0},
    {"llen", cl_cmd_llen, 2, R | FAST, 1, 1, 1, CL_RG_LIST, "1.0.0", "How many elements there are.", 0, 0},
    {"lmove", cl_cmd_lmove, 5, W | MEM, 1, 2, 1, CL_RG_LIST, "6.2.0", "Move an element to another list.", 0, 0},
    {"lmpop", cl_cmd_lmpop, -4, W | MOVABLE, 0, 0, 0, CL_RG_LIST, "7.0.0", "Take from the first list that has some.", 0,
     keys_at_1},
    {"lpop", cl_cmd_lpop, -2, W | FAST, 1, 1, 1, CL_RG_LIST, "1.0.0", "Take from the front.", 0, 0},
    {"lpos", cl_cmd_lpos, -3, R, 1, 1, 1, CL_RG_LIST, "6.0.6", "Where an element is.", 0, 0},
    {"lpush", cl_cmd_lpush, -3, W | MEM | FAST, 1, 1, 1, CL_RG_LIST, "1.0.0", "Add at the front.", 0, 0},
    {"lpushx", cl_cmd_lpushx, -3, W | MEM | FAST, 1, 1, 1, CL_RG_LIST, "2.2.0", "The same to what exists.", 0, 0},
    {"lrange", cl_cmd_lrange, 4, R, 1, 1, 1, CL_RG_LIST, "1.0.0", "Elements of a range.", 0, 0},
    {"lrem", cl_cmd_lrem, 4, W, 1, 1, 1, CL_RG_LIST, "1.0.0", "Remove equal elements.", 0, 0},
    {"lset", cl_cmd_lset, 4, W | MEM, 1, 1, 1, CL_RG_LIST, "1.0.0", "Set an element.", 0, 0},
    {"ltrim", cl_cmd_ltrim, 4, W, 1, 1, 1, CL_RG_LIST, "1.0.0", "Keep a range.", 0, 0},
    {"rpop", cl_cmd_rpop, -2, W | FAST, 1, 1, 1, CL_RG_LIST, "1.0.0", "Take from the end.", 0, 0},
    {"rpoplpush", cl_cmd_rpoplpush, 3, W | MEM, 1, 2, 1, CL_RG_LIST, "1.2.0", "From an end to a front.", 0, 0},
    {"rpush", cl_cmd_rpush, -3, W | MEM | FAST, 1, 1, 1, CL_RG_LIST, "1.0.0", "Add at the end.", 0, 0},
    {"rpushx", cl_cmd_rpushx, -3, W | MEM | FAST, 1, 1, 1, CL_RG_LIST, "2.2.0", "The same to what exists.", 0, 0},
    /* Sets. */
    {"sadd", cl_cmd_sadd, -3, W | MEM | FAST, 1, 1, 1, CL_RG_SET, "1.0.0", "Add members.", 0, 0},
    {"scard", cl_cmd_scard, 2, R | FAST, 1, 1, 1, CL_RG_SET, "1.0.0", "How many members there are.", 0, 0},
    {"sdiff", cl_cmd_sdiff, -2, R, 1, -1, 1, CL_RG_SET, "1.0.0", "Members of the first set alone.", 0, 0},
    {"sdiffstore", cl_cmd_sdiffstore, -3, W | MEM, 1, -1, 1, CL_RG_SET, "1.0.0", "The same, stored.", 0, 0},
    {"sinter", cl_cmd_sinter, -2, R, 1, -1, 1, CL_RG_SET, "1.0.0", "Members of all sets.", 0, 0},
    {"sintercard", cl_cmd_sintercard, -3, R | MOVABLE, 0, 0, 0, CL_RG_SET, "7.0.0", "How many that are.", 0, keys_at_1},
    {"sinterstore", cl_cmd_sinterstore, -3, W | MEM, 1, -1, 1, CL_RG_SET, "1.0.0", "The same, stored.", 0, 0},
    {"sismember", cl_cmd_sismember, 3, R | FAST, 1, 1, 1, CL_RG_SET, "1.0.0", "Whether it is a member.", 0, 0},
    {"smembers", cl_cmd_smembers, 2, R, 1, 1, 1, CL_RG_SET, "1.0.0", "All members.", 0, 0},
    {"smismember", cl_cmd_smismember, -3, R | FAST, 1, 1, 1, CL_RG_SET, "6.2.0", "Whether these are.", 0, 0},
    {"smove", cl_cmd_smove, 4, W | FAST, 1, 2, 1, CL_RG_SET, "1.0.0", "Move a member.", 0, 0},
    {"spop", cl_cmd_spop, -2, W | FAST, 1, 1, 1, CL_RG_SET, "1.0.0", "Take random members.", 0, 0},
    {"srandmember", cl_cmd_srandmember, -2, R, 1, 1, 1, CL_RG_SET, "1.0.0", "Random members.", 0, 0},
    {"srem", cl_cmd_srem, -3, W | FAST, 1, 1, 1, CL_RG_SET, "1.0.0", "Remove members.", 0, 0},
    {"sscan", cl_cmd_sscan, -3, R, 1, 1, 1, CL_RG_SET, "2.8.0", "Members, some at a time.", 0, 0},
    {"sunion", cl_cmd_sunion, -2, R, 1, -1, 1, CL_RG_SET, "1.0.0", "Members of any set.", 0, 0},
    {"sunionstore", cl_cmd_sunionstore, -3, W | MEM, 1, -1, 1, CL_RG_SET, "1.0.0", "The same, stored.", 0, 0},
    /* Sorted sets. */
    {"bzmpop", cl_cmd_bzmpop, -5, W | CL_RF_BLOCKING | GROWS | MOVABLE, 0, 0, 0, CL_RG_ZSET, "7.0.0",
     "ZMPOP that waits.", 0, keys_at_2},
    {"bzpopmax", cl_cmd_bzpopmax, -3, W | BLOCK | FAST, 1, -2, 1, CL_RG_ZSET, "5.0.0", "ZPOPMAX that waits.", 0, 0},
    {"bzpopmin", cl_cmd_bzpopmin, -3, W | BLOCK | FAST, 1, -2, 1, CL_RG_ZSET, "5.0.0", "ZPOPMIN that waits.", 0, 0},
    {"zadd", cl_cmd_zadd, -4, W | MEM | FAST, 1, 1, 1, CL_RG_ZSET, "1.2.0", "Add members, or change scores.", 0, 0},
    {"zcard", cl_cmd_zcard, 2, R | FAST, 1, 1, 1, CL_RG_ZSET, "1.2.0", "How many members there are.", 0, 0},
    {"zcount", cl_cmd_zcount, 4, R | FAST, 1, 1, 1, CL_RG_ZSET, "2.0.0", "How many have such scores.", 0, 0},
    {"zdiff", cl_cmd_zdiff, -3, R | MOVABLE, 0, 0, 0, CL_RG_ZSET, "6.2.0", "Members of the first alone.", 0, keys_at_1},
    {"zdiffstore", cl_cmd_zdiffstore, -4, W | MEM | MOVABLE, 1, 1, 1, CL_RG_ZSET, "6.2.0", "The same, stored.", 0,
     keys_at_2_and_1},
    {"zincrby", cl_cmd_zincrby, 4, W | MEM | FAST, 1, 1, 1, CL_RG_ZSET, "1.2.0", "Add to a score.", 0, 0},
    {"zinter", cl_cmd_zinter, -3, R | MOVABLE, 0, 0, 0, CL_RG_ZSET, "6.2.0", "Members of all.", 0, keys_at_1},
    {"zintercard", cl_cmd_zintercard, -3, R | MOVABLE, 0, 0, 0, CL_RG_ZSET, "7.0.0", "How many that are.", 0,
     keys_at_1},
    {"zinterstore", cl_cmd_zinterstore, -4, W | MEM | MOVABLE, 1, 1, 1, CL_RG_ZSET, "2.0.0", "The same, stored.", 0,
     keys_at_2_and_1},
    {"zlexcount", cl_cmd_zlexcount, 4, R | FAST, 1, 1, 1, CL_RG_ZSET, "2.8.9", "How many are in between.", 0, 0},
    {"zmpop", cl_cmd_zmpop, -4, W | MOVABLE, 0, 0, 0, CL_RG_ZSET, "7.0.0", "Take from the first that has some.", 0,
     keys_at_1},
    {"zmscore", cl_cmd_zmscore, -3, R | FAST, 1, 1, 1, CL_RG_ZSET, "6.2.0", "Scores.", 0, 0},
    {"zpopmax", cl_cmd_zpopmax, -2, W | FAST, 1, 1, 1, CL_RG_ZSET, "5.0.0", "Take the last ones.", 0, 0},
    {"zpopmin", cl_cmd_zpopmin, -2, W | FAST, 1, 1, 1, CL_RG_ZSET, "5.0.0", "Take the first ones.", 0, 0},
    {"zrandmember", cl_cmd_zrandmember, -2, R, 1, 1, 1, CL_RG_ZSET, "6.2.0", "Random members.", 0, 0},
    {"zrange", cl_cmd_zrange, -4, R, 1, 1, 1, CL_RG_ZSET, "1.2.0", "Members of a range.", 0, 0},
    {"zrangebylex", cl_cmd_zrangebylex, -4, R, 1, 1, 1, CL_RG_ZSET, "2.8.9", "... by name.", 0, 0},
    {"zrangebyscore", cl_cmd_zrangebyscore, -4, R, 1, 1, 1, CL_RG_ZSET, "1.0.5", "... by score.", 0, 0},
    {"zrangestore", cl_cmd_zrangestore, -5, W | MEM, 1, 2, 1, CL_RG_ZSET, "6.2.0", "A range, stored.", 0, 0},
    {"zrank", cl_cmd_zrank, 3, R | FAST, 1, 1, 1, CL_RG_ZSET, "2.0.0", "Where a member stands.", 0, 0},
    {"zrem", cl_cmd_zrem, -3, W | FAST, 1, 1, 1, CL_RG_ZSET, "1.2.0", "Remove members.", 0, 0},
    {"zremrangebylex", cl_cmd_zremrangebylex, 4, W, 1, 1, 1, CL_RG_ZSET, "2.8.9", "Remove a range by name.", 0, 0},
    {"zremrangebyrank", cl_cmd_zremrangebyrank, 4, W, 1, 1, 1, CL_RG_ZSET, "2.0.0", "... by rank.", 0, 0},
    {"zremrangebyscore", cl_cmd_zremrangebyscore, 4, W, 1, 1, 1, CL_RG_ZSET, "1.2.0", "... by score.", 0, 0},
    {"zrevrange", cl_cmd_zrevrange, -4, R, 1, 1, 1, CL_RG_ZSET, "1.2.0", "A range, backwards.", 0, 0},
    {"zrevrangebylex", cl_cmd_zrevrangebylex, -4, R, 1, 1, 1, CL_RG_ZSET, "2.8.9", "... by name.", 0, 0},
    {"zrevrangebyscore", cl_cmd_zrevrangebyscore, -4, R, 1, 1, 1, CL_RG_ZSET, "2.2.0", "... by score.", 0, 0},
    {"zrevrank", cl_cmd_zrevrank, 3, R | FAST, 1, 1, 1, CL_RG_ZSET, "2.0.0", "Where it stands, from the end.", 0, 0},
    {"zscan", cl_cmd_zscan, -3, R, 1, 1, 1, CL_RG_ZSET, "2.8.0", "Members, some at a time.", 0, 0},
    {"zscore", cl_cmd_zscore, 3, R | FAST, 1, 1, 1, CL_RG_ZSET, "1.2.0", "A score.", 0, 0},
    {"zunion", cl_cmd_zunion, -3, R | MOVABLE, 0, 0, 0, CL_RG_ZSET, "6.2.0", "Members of any.", 0, keys_at_1},
    {"zunionstore", cl_cmd_zunionstore, -4, W | MEM | MOVABLE, 1, 1, 1, CL_RG_ZSET, "2.0.0", "The same, stored.", 0,
     keys_at_2_and_1},
    /* Hashes. */
    {"hdel", cl_cmd_hdel, -3, W | FAST, 1, 1, 1, CL_RG_HASH, "2.0.0", "Remove fields.", 0, 0},
    {"hexists", cl_cmd_hexists, 3, R | FAST, 1, 1, 1, CL_RG_HASH, "2.0.0", "Whether a field exists.", 0, 0},
    {"hget", cl_cmd_hget, 3, R | FAST, 1, 1, 1, CL_RG_HASH, "2.0.0", "The value of a field.", 0, 0},
    {"hgetall", cl_cmd_hgetall, 2, R, 1, 1, 1, CL_RG_HASH, "2.0.0", "All fields and values.", 0, 0},
    {"hincrby", cl_cmd_hincrby, 4, W | MEM | FAST, 1, 1, 1, CL_RG_HASH, "2.0.0", "Add an integer.", 0, 0},
    {"hincrbyfloat", cl_cmd_hincrbyfloat, 4, W | MEM | FAST, 1, 1, 1, CL_RG_HASH, "2.6.0", "Add a number.", 0, 0},
    {"hkeys", cl_cmd_hkeys, 2, R, 1, 1, 1, CL_RG_HASH, "2.0.0", "All fields.", 0, 0},
    {"hlen", cl_cmd_hlen, 2, R | FAST, 1, 1, 1, CL_RG_HASH, "2.0.0", "How many fields there are.", 0, 0},
    {"hmget", cl_cmd_hmget, -3, R | FAST, 1, 1, 1, CL_RG_HASH, "2.0.0", "Values of fields.", 0, 0},
    {"hmset", cl_cmd_hmset, -4, W | MEM | FAST, 1, 1, 1, CL_RG_HASH, "2.0.0", "Set fields.", 0, 0},
    {"hrandfield", cl_cmd_hrandfield, -2, R, 1, 1, 1, CL_RG_HASH, "6.2.0", "Random fields.", 0, 0},
    {"hscan", cl_cmd_hscan, -3, R, 1, 1, 1, CL_RG_HASH, "2.8.0", "Fields, some at a time.", 0, 0},
    {"hset", cl_cmd_hset, -4, W | MEM | FAST, 1, 1, 1, CL_RG_HASH, "2.0.0", "Set fields.", 0, 0},
    {"hsetnx", cl_cmd_hsetnx, 4, W | MEM | FAST, 1, 1, 1, CL_RG_HASH, "2.0.0", "Set a field that is new.", 0, 0},
    {"hstrlen", cl_cmd_hstrlen, 3, R | FAST, 1, 1, 1, CL_RG_HASH, "3.2.0", "How long a value is.", 0, 0},
    {"hvals", cl_cmd_hvals, 2, R, 1, 1, 1, CL_RG_HASH, "2.0.0", "All values.", 0, 0},
    /* Streams. */
    {"xadd", cl_cmd_xadd, -5, W | MEM | FAST, 1, 1, 1, CL_RG_STREAM, "5.0.0", "Append an entry.", 0, 0},
    {"xdel", cl_cmd_xdel, -3, W | FAST, 1, 1, 1, CL_RG_STREAM, "5.0.0", "Remove entries.", 0, 0},
    CONTAINER("xinfo", 0, CL_RG_STREAM, "5.0.0", "Numbers of a stream.", xinfo_subs),
    {"xlen", cl_cmd_xlen, 2, R | FAST, 1, 1, 1, CL_RG_STREAM, "5.0.0", "How many entries there are.", 0, 0},
    {"xrange", cl_cmd_xrange, -4, R, 1, 1, 1, CL_RG_STREAM, "5.0.0", "Entries of a range.", 0, 0},
    {"xread", cl_cmd_xread, -4, R | CL_RF_BLOCKING | MOVABLE | GROWS, 0, 0, 0, CL_RG_STREAM, "5.0.0",
     "Entries behind IDs, or wait for them.", 0, keys_of_xread},
    {"xrevrange", cl_cmd_xrevrange, -4, R, 1, 1, 1, CL_RG_STREAM, "5.0.0", "A range, backwards.", 0, 0},
    {"xsetid", cl_cmd_xsetid, -3, W | MEM | FAST, 1, 1, 1, CL_RG_STREAM, "5.0.0", "Set the last ID.", 0, 0},
    {"xtrim", cl_cmd_xtrim, -4, W, 1, 1, 1, CL_RG_STREAM, "5.0.0", "Remove old entries.", 0, 0},
    /* Publishing. */
    {"psubscribe", cl_cmd_psubscribe, -2, PS | SUBSCRIBED | GROWS, 0, 0, 0, CL_RG_PUBSUB, "2.0.0",
     "Listen to patterns.", 0, 0},
    {"publish", cl_cmd_publish, 3, CL_RF_PUBSUB | LOAD | FAST, 0, 0, 0, CL_RG_PUBSUB, "2.0.0", "Send a message.", 0, 0},
    CONTAINER("pubsub", 0, CL_RG_PUBSUB, "2.8.0", "Channels and their subscribers.", pubsub_subs),
    {"punsubscribe", cl_cmd_punsubscribe, -1, PS | SUBSCRIBED, 0, 0, 0, CL_RG_PUBSUB, "2.0.0", "And no more.", 0, 0},
    {"subscribe", cl_cmd_subscribe, -2, PS | SUBSCRIBED | GROWS, 0, 0, 0, CL_RG_PUBSUB, "2.0.0", "Listen to channels.",
     0, 0},
    {"unsubscribe", cl_cmd_unsubscribe, -1, PS | SUBSCRIBED, 0, 0, 0, CL_RG_PUBSUB, "2.0.0", "And no more.", 0, 0},
    /* Transactions. */
    {"discard", cl_cmd_discard, 1, NOSCRIPT | LOAD | FAST | BUSY | NOW, 0, 0, 0, CL_RG_TRANSACTIONS, "2.0.0",
     "Forget what was queued.", 0, 0},
    {"exec", cl_cmd_exec, 1, NOSCRIPT | LOAD | NOW, 0, 0, 0, CL_RG_TRANSACTIONS, "1.2.0", "Run what was queued.", 0, 0},
    {"multi", cl_cmd_multi, 1, NOSCRIPT | LOAD | FAST | BUSY | NOW, 0, 0, 0, CL_RG_TRANSACTIONS, "1.2.0",
     "Queue what follows.", 0, 0},
    {"unwatch", cl_cmd_unwatch, 1, NOSCRIPT | LOAD | FAST | BUSY, 0, 0, 0, CL_RG_TRANSACTIONS, "2.2.0",
     "Watch nothing.", 0, 0},
    {"watch", cl_cmd_watch, -2, NOSCRIPT | LOAD | FAST | BUSY | NOW | GROWS, 1, -1, 1, CL_RG_TRANSACTIONS, "2.2.0",
     "Run the next transaction only if keys stay as they are.", 0, 0},
    {0}};

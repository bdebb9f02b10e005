/* The functions of the commands. What each does is said in table.c; each answers c. */
#ifndef CORELANE_APPS_RESP_COMMANDS_H
#define CORELANE_APPS_RESP_COMMANDS_H

#include "command.h"

/* cmd_bits.c */
void cl_cmd_setbit(struct cl_resp_client *c);
void cl_cmd_getbit(struct cl_resp_client *c);
void cl_cmd_bitcount(struct cl_resp_client *c);
void cl_cmd_bitpos(struct cl_resp_client *c);
void cl_cmd_bitop(struct cl_resp_client *c);
void cl_cmd_bitfield(struct cl_resp_client *c);
void cl_cmd_bitfield_ro(struct cl_resp_client *c);

/* cmd_command.c */
void cl_cmd_help(struct cl_resp_client *c);
void cl_cmd_command(struct cl_resp_client *c);
void cl_cmd_command_count(struct cl_resp_client *c);
void cl_cmd_command_info(struct cl_resp_client *c);
void cl_cmd_command_docs(struct cl_resp_client *c);
void cl_cmd_command_list(struct cl_resp_client *c);
void cl_cmd_command_getkeys(struct cl_resp_client *c);
void cl_cmd_command_getkeysandflags(struct cl_resp_client *c);

/* cmd_connection.c */
void cl_cmd_ping(struct cl_resp_client *c);
void cl_cmd_echo(struct cl_resp_client *c);
void cl_cmd_quit(struct cl_resp_client *c);
void cl_cmd_reset(struct cl_resp_client *c);
void cl_cmd_select(struct cl_resp_client *c);
void cl_cmd_auth(struct cl_resp_client *c);
void cl_cmd_hello(struct cl_resp_client *c);
void cl_cmd_client_id(struct cl_resp_client *c);
void cl_cmd_client_getname(struct cl_resp_client *c);
void cl_cmd_client_setname(struct cl_resp_client *c);
void cl_cmd_client_info(struct cl_resp_client *c);
void cl_cmd_client_list(struct cl_resp_client *c);
void cl_cmd_client_kill(struct cl_resp_client *c);
void cl_cmd_client_pause(struct cl_resp_client *c);
void cl_cmd_client_unpause(struct cl_resp_client *c);
void cl_cmd_client_reply(struct cl_resp_client *c);
void cl_cmd_client_unblock(struct cl_resp_client *c);
void cl_cmd_client_noevict(struct cl_resp_client *c);
void cl_cmd_client_getredir(struct cl_resp_client *c);

/* cmd_hash.c */
void cl_cmd_hset(struct cl_resp_client *c);
void cl_cmd_hmset(struct cl_resp_client *c);
void cl_cmd_hsetnx(struct cl_resp_client *c);
void cl_cmd_hget(struct cl_resp_client *c);
void cl_cmd_hmget(struct cl_resp_client *c);
void cl_cmd_hdel(struct cl_resp_client *c);
void cl_cmd_hexists(struct cl_resp_client *c);
void cl_cmd_hlen(struct cl_resp_client *c);
void cl_cmd_hstrlen(struct cl_resp_client *c);
void cl_cmd_hgetall(struct cl_resp_client *c);
void cl_cmd_hkeys(struct cl_resp_client *c);
void cl_cmd_hvals(struct cl_resp_client *c);
void cl_cmd_hincrby(struct cl_resp_client *c);
void cl_cmd_hincrbyfloat(struct cl_resp_client *c);
void cl_cmd_hscan(struct cl_resp_client *c);
void cl_cmd_hrandfield(struct cl_resp_client *c);

/* cmd_keys.c */
void cl_cmd_del(struct cl_resp_client *c);
void cl_cmd_unlink(struct cl_resp_client *c);
void cl_cmd_exists(struct cl_resp_client *c);
void cl_cmd_touch(struct cl_resp_client *c);
void cl_cmd_type(struct cl_resp_client *c);
void cl_cmd_expire(struct cl_resp_client *c);
void cl_cmd_pexpire(struct cl_resp_client *c);
void cl_cmd_expireat(struct cl_resp_client *c);
void cl_cmd_pexpireat(struct cl_resp_client *c);
void cl_cmd_ttl(struct cl_resp_client *c);
void cl_cmd_pttl(struct cl_resp_client *c);
void cl_cmd_expiretime(struct cl_resp_client *c);
void cl_cmd_pexpiretime(struct cl_resp_client *c);
void cl_cmd_persist(struct cl_resp_client *c);
void cl_cmd_keys(struct cl_resp_client *c);
void cl_cmd_scan(struct cl_resp_client *c);
void cl_cmd_randomkey(struct cl_resp_client *c);
void cl_cmd_dbsize(struct cl_resp_client *c);
void cl_cmd_rename(struct cl_resp_client *c);
void cl_cmd_renamenx(struct cl_resp_client *c);
void cl_cmd_move(struct cl_resp_client *c);
void cl_cmd_copy(struct cl_resp_client *c);
void cl_cmd_flushdb(struct cl_resp_client *c);
void cl_cmd_flushall(struct cl_resp_client *c);
void cl_cmd_swapdb(struct cl_resp_client *c);
void cl_cmd_object_encoding(struct cl_resp_client *c);
void cl_cmd_object_refcount(struct cl_resp_client *c);
void cl_cmd_object_idletime(struct cl_resp_client *c);
void cl_cmd_object_freq(struct cl_resp_client *c);
void cl_cmd_memory_usage(struct cl_resp_client *c);

/* cmd_list.c */
void cl_cmd_lpush(struct cl_resp_client *c);
void cl_cmd_rpush(struct cl_resp_client *c);
void cl_cmd_lpushx(struct cl_resp_client *c);
void cl_cmd_rpushx(struct cl_resp_client *c);
void cl_cmd_lpop(struct cl_resp_client *c);
void cl_cmd_rpop(struct cl_resp_client *c);
void cl_cmd_llen(struct cl_resp_client *c);
void cl_cmd_lindex(struct cl_resp_client *c);
void cl_cmd_lset(struct cl_resp_client *c);
void cl_cmd_lrange(struct cl_resp_client *c);
void cl_cmd_ltrim(struct cl_resp_client *c);
void cl_cmd_lrem(struct cl_resp_client *c);
void cl_cmd_linsert(struct cl_resp_client *c);
void cl_cmd_lpos(struct cl_resp_client *c);
void cl_cmd_lmove(struct cl_resp_client *c);
void cl_cmd_rpoplpush(struct cl_resp_client *c);
void cl_cmd_blmove(struct cl_resp_client *c);
void cl_cmd_brpoplpush(struct cl_resp_client *c);
void cl_cmd_blpop(struct cl_resp_client *c);
void cl_cmd_brpop(struct cl_resp_client *c);
void cl_cmd_lmpop(struct cl_resp_client *c);
void cl_cmd_blmpop(struct cl_resp_client *c);

/* cmd_server.c */
void cl_cmd_info(struct cl_resp_client *c);
void cl_cmd_config_get(struct cl_resp_client *c);
void cl_cmd_config_set(struct cl_resp_client *c);
void cl_cmd_config_resetstat(struct cl_resp_client *c);
void cl_cmd_config_rewrite(struct cl_resp_client *c);
void cl_cmd_time(struct cl_resp_client *c);
void cl_cmd_bgrewriteaof(struct cl_resp_client *c);
void cl_cmd_waitaof(struct cl_resp_client *c);
void cl_cmd_lastsave(struct cl_resp_client *c);
void cl_cmd_role(struct cl_resp_client *c);
void cl_cmd_wait(struct cl_resp_client *c);
void cl_cmd_monitor(struct cl_resp_client *c);
void cl_cmd_slowlog_get(struct cl_resp_client *c);
void cl_cmd_slowlog_len(struct cl_resp_client *c);
void cl_cmd_slowlog_reset(struct cl_resp_client *c);
void cl_cmd_function_flush(struct cl_resp_client *c);
void cl_cmd_acl_whoami(struct cl_resp_client *c);
void cl_cmd_memory_doctor(struct cl_resp_client *c);
void cl_cmd_memory_purge(struct cl_resp_client *c);
void cl_cmd_debug(struct cl_resp_client *c);

/* cmd_set.c */
void cl_cmd_sadd(struct cl_resp_client *c);
void cl_cmd_srem(struct cl_resp_client *c);
void cl_cmd_smove(struct cl_resp_client *c);
void cl_cmd_sismember(struct cl_resp_client *c);
void cl_cmd_smismember(struct cl_resp_client *c);
void cl_cmd_scard(struct cl_resp_client *c);
void cl_cmd_srandmember(struct cl_resp_client *c);
void cl_cmd_spop(struct cl_resp_client *c);
void cl_cmd_sscan(struct cl_resp_client *c);
void cl_cmd_smembers(struct cl_resp_client *c);
void cl_cmd_sinter(struct cl_resp_client *c);
void cl_cmd_sunion(struct cl_resp_client *c);
void cl_cmd_sdiff(struct cl_resp_client *c);
void cl_cmd_sinterstore(struct cl_resp_client *c);
void cl_cmd_sunionstore(struct cl_resp_client *c);
void cl_cmd_sdiffstore(struct cl_resp_client *c);
void cl_cmd_sintercard(struct cl_resp_client *c);

/* cmd_sort.c */
void cl_cmd_sort(struct cl_resp_client *c);
void cl_cmd_sort_ro(struct cl_resp_client *c);

/* cmd_stream.c */
void cl_cmd_xadd(struct cl_resp_client *c);
void cl_cmd_xtrim(struct cl_resp_client *c);
void cl_cmd_xlen(struct cl_resp_client *c);
void cl_cmd_xdel(struct cl_resp_client *c);
void cl_cmd_xsetid(struct cl_resp_client *c);
void cl_cmd_xrange(struct cl_resp_client *c);
void cl_cmd_xrevrange(struct cl_resp_client *c);
void cl_cmd_xread(struct cl_resp_client *c);
void cl_cmd_xinfo_stream(struct cl_resp_client *c);

/* cmd_string.c */
void cl_cmd_set(struct cl_resp_client *c);
void cl_cmd_setnx(struct cl_resp_client *c);
void cl_cmd_setex(struct cl_resp_client *c);
void cl_cmd_psetex(struct cl_resp_client *c);
void cl_cmd_get(struct cl_resp_client *c);
void cl_cmd_getset(struct cl_resp_client *c);
void cl_cmd_getdel(struct cl_resp_client *c);
void cl_cmd_getex(struct cl_resp_client *c);
void cl_cmd_mget(struct cl_resp_client *c);
void cl_cmd_mset(struct cl_resp_client *c);
void cl_cmd_msetnx(struct cl_resp_client *c);
void cl_cmd_strlen(struct cl_resp_client *c);
void cl_cmd_append(struct cl_resp_client *c);
void cl_cmd_setrange(struct cl_resp_client *c);
void cl_cmd_getrange(struct cl_resp_client *c);
void cl_cmd_incr(struct cl_resp_client *c);
void cl_cmd_decr(struct cl_resp_client *c);
void cl_cmd_incrby(struct cl_resp_client *c);
void cl_cmd_decrby(struct cl_resp_client *c);
void cl_cmd_incrbyfloat(struct cl_resp_client *c);
void cl_cmd_lcs(struct cl_resp_client *c);

/* cmd_zalgebra.c */
void cl_cmd_zunion(struct cl_resp_client *c);
void cl_cmd_zinter(struct cl_resp_client *c);
void cl_cmd_zdiff(struct cl_resp_client *c);
void cl_cmd_zunionstore(struct cl_resp_client *c);
void cl_cmd_zinterstore(struct cl_resp_client *c);
void cl_cmd_zdiffstore(struct cl_resp_client *c);
void cl_cmd_zintercard(struct cl_resp_client *c);

/* cmd_zrange.c */
void cl_cmd_zrange(struct cl_resp_client *c);
void cl_cmd_zrevrange(struct cl_resp_client *c);
void cl_cmd_zrangebyscore(struct cl_resp_client *c);
void cl_cmd_zrevrangebyscore(struct cl_resp_client *c);
void cl_cmd_zrangebylex(struct cl_resp_client *c);
void cl_cmd_zrevrangebylex(struct cl_resp_client *c);
void cl_cmd_zrangestore(struct cl_resp_client *c);
void cl_cmd_zcount(struct cl_resp_client *c);
void cl_cmd_zlexcount(struct cl_resp_client *c);
void cl_cmd_zremrangebyrank(struct cl_resp_client *c);
void cl_cmd_zremrangebyscore(struct cl_resp_client *c);
void cl_cmd_zremrangebylex(struct cl_resp_client *c);

/* cmd_zset.c */
void cl_cmd_zadd(struct cl_resp_client *c);
void cl_cmd_zincrby(struct cl_resp_client *c);
void cl_cmd_zcard(struct cl_resp_client *c);
void cl_cmd_zscore(struct cl_resp_client *c);
void cl_cmd_zmscore(struct cl_resp_client *c);
void cl_cmd_zrank(struct cl_resp_client *c);
void cl_cmd_zrevrank(struct cl_resp_client *c);
void cl_cmd_zrem(struct cl_resp_client *c);
void cl_cmd_zscan(struct cl_resp_client *c);
void cl_cmd_zrandmember(struct cl_resp_client *c);
void cl_cmd_zpopmin(struct cl_resp_client *c);
void cl_cmd_zpopmax(struct cl_resp_client *c);
void cl_cmd_bzpopmin(struct cl_resp_client *c);
void cl_cmd_bzpopmax(struct cl_resp_client *c);
void cl_cmd_zmpop(struct cl_resp_client *c);
void cl_cmd_bzmpop(struct cl_resp_client *c);

/* exec.c */
void cl_cmd_multi(struct cl_resp_client *c);
void cl_cmd_discard(struct cl_resp_client *c);
void cl_cmd_exec(struct cl_resp_client *c);
void cl_cmd_watch(struct cl_resp_client *c);
void cl_cmd_unwatch(struct cl_resp_client *c);

/* pubsub.c */
void cl_cmd_subscribe(struct cl_resp_client *c);
void cl_cmd_psubscribe(struct cl_resp_client *c);
void cl_cmd_unsubscribe(struct cl_resp_client *c);
void cl_cmd_punsubscribe(struct cl_resp_client *c);
void cl_cmd_publish(struct cl_resp_client *c);
void cl_cmd_pubsub_channels(struct cl_resp_client *c);
void cl_cmd_pubsub_numsub(struct cl_resp_client *c);
void cl_cmd_pubsub_numpat(struct cl_resp_client *c);

#endif

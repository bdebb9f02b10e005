/* What the commands of sorted sets share. */
#ifndef CORELANE_APPS_RESP_ZSETS_H
#define CORELANE_APPS_RESP_ZSETS_H

#include "command.h"
#include "zset.h"

/* n members were taken: tell of it, and remove the key if none is left. */
void cl_zsets_took(struct cl_resp_client *c, struct cl_entry *e, struct cl_slice key, const char *event, int64_t n);
/* A member, with its score if asked for: in RESP3 as a pair. */
void cl_zsets_reply_member(struct cl_resp_client *c, const struct cl_rznode *n, bool with_score);
/* The header of n such. */
void cl_zsets_reply_count(struct cl_resp_client *c, int64_t n, bool with_scores);
/* Put it under a key, in place of whatever was there, or remove the key if it is empty; answer how many it has. It is
 * no longer the caller's. */
void cl_zsets_store(struct cl_resp_client *c, struct cl_slice key, struct cl_rzset *z, const char *event);

#endif

/* A client's life, and the way of its bytes: from what came to the commands, and out again. */
#ifndef CORELANE_APPS_RESP_CLIENT_H
#define CORELANE_APPS_RESP_CLIENT_H

#include "resp.h"

struct cl_resp_client *cl_client_new(struct cl_resp *r, const char *peer, const char *own);
void cl_client_free(struct cl_resp_client *c);
/* As it was when it came (RESET), but for its subscriptions and its name. */
void cl_client_reset(struct cl_resp_client *c);
/* See cl_resp_feed. */
uint64_t cl_client_feed(struct cl_resp_client *c, const uint8_t *data, uint64_t len);
/* Whether it would run commands if they came. */
bool cl_client_stalled(const struct cl_resp_client *c);

#endif

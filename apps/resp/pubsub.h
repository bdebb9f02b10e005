/* Channels and patterns: who has subscribed to what, and what is pushed to them. */
#ifndef CORELANE_APPS_RESP_PUBSUB_H
#define CORELANE_APPS_RESP_PUBSUB_H

#include "resp.h"

/* Push a message to subscribers of the channel and of patterns that match. Returns how many got it. */
uint32_t cl_pubsub_publish(struct cl_resp *r, struct cl_slice channel, struct cl_slice message);
/* It subscribes to nothing any more; `tell`: it is told so of each. */
void cl_pubsub_leave(struct cl_resp_client *c, bool channels, bool patterns, bool tell);

#endif

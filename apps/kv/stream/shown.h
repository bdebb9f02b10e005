/* What the front shows of itself through `stats` (../front.h). */
#ifndef CORELANE_APPS_KV_STREAM_SHOWN_H
#define CORELANE_APPS_KV_STREAM_SHOWN_H

#include "front.h"

void kv_shown_begin(struct cl_kv_front *f);
void kv_shown_end(struct cl_kv_front *f);
/* For who watches connections. */
void kv_shown_opened(const struct kv_conn *c);
void kv_shown_closed(const struct kv_conn *c, const char *reason);

#endif

/* What corelane-run says: lines for people on stderr, or JSON on stdout, and to systemd. */
#ifndef CORELANE_LIBOS_SERVICE_REPORT_H
#define CORELANE_LIBOS_SERVICE_REPORT_H

#include <corelane/libos/service.h>

#include "options.h"

/* An event of the runtime, or of the program; from any thread. */
void report_event(const struct options *o, const char *event, const char *text);
void report_serving(const struct options *o, const char *name, const struct cl_service *s, struct cl_runtime *rt);
/* Those that were replaced have ended, but for `left` of them. */
void report_replaced(const struct options *o, const char *text, int members, int left);
/* A job has ended; result as cl_service_next_job. */
void report_job(const struct options *o, const char *name, int64_t result);
/* replaced: since another process has taken over. */
void report_stopped(const struct options *o, const char *name, const struct cl_runtime *rt,
                    struct cl_service_bound *bound, bool replaced);
/* It could not be done; returns 1, what the process then ends with. */
int report_error(const struct options *o, const char *what, const char *why);
/* Tell systemd, if it asked (sd_notify(3)). */
void report_state(const char *assignments);

#endif

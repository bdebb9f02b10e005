/* What there is to do with a value of any type: free it, measure it, name how it is kept. */
#ifndef CORELANE_APPS_RESP_VALUE_H
#define CORELANE_APPS_RESP_VALUE_H

#include "resp.h"

extern const char *const cl_rtype_names[CL_R_TYPES + 2];

void cl_rvalue_free(struct cl_resp *r, struct cl_entry *e);
/* The same, and the entry is an empty string. */
void cl_rvalue_clear(struct cl_resp *r, struct cl_entry *e);
/* Bytes of key and value, estimated from the first `samples` elements (0: of all). */
uint64_t cl_rvalue_bytes(const struct cl_resp *r, const struct cl_entry *e, uint64_t samples);
/* OBJECT ENCODING: Redis' name for what comes nearest to how we keep it. */
const char *cl_rvalue_encoding(const struct cl_resp *r, const struct cl_entry *e);
/* Strings. `text` is for an integer. */
struct cl_slice cl_rvalue_text(const struct cl_entry *e, char text[24]);
void cl_rvalue_set(struct cl_resp *r, struct cl_entry *e, struct cl_slice s);
void cl_rvalue_set_int(struct cl_resp *r, struct cl_entry *e, int64_t v);
/* As bytes that may be written to, of at least `len` bytes; new ones are 0. */
struct cl_bytes *cl_rvalue_raw(struct cl_resp *r, struct cl_entry *e, uint64_t len);
/* A copy of the value of `from` in `to`, which has none. */
void cl_rvalue_copy(struct cl_resp *r, struct cl_entry *to, const struct cl_entry *from);

#endif

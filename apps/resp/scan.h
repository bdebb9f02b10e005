/* The SCAN family: cursors, COUNT and MATCH. Guarantees: dict.h. */
#ifndef CORELANE_APPS_RESP_SCAN_H
#define CORELANE_APPS_RESP_SCAN_H

#include "command.h"

struct cl_rscan {
    uint64_t cursor;
    int64_t count;
    bool match;
    struct cl_slice pattern;
    int type; /* SCAN's TYPE: -1 any, CL_R_NONE: no key has it */
};

/* The cursor in argument n, and everything else as if no options were given; false: answered. */
bool cl_rscan_begin(struct cl_resp_client *c, uint32_t n, struct cl_rscan *scan);
/* Options from argument n on; false: answered. `keys`: TYPE may be given. */
bool cl_rscan_options(struct cl_resp_client *c, uint32_t n, bool keys, struct cl_rscan *scan);
/* Write the reply: some elements, of which `emit` writes each and returns how many texts that were. */
void cl_rscan_reply(struct cl_resp_client *c, struct cl_rscan *scan, const struct cl_rdict *d,
                    int64_t (*emit)(struct cl_resp_client *c, const struct cl_rscan *scan, struct cl_rnode *n));
/* Of nothing. */
void cl_rscan_empty(struct cl_resp_client *c);

#endif

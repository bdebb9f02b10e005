/* Which of two ways commits sooner: both are tried, and the better one is kept. See chooser.c. */
#ifndef CORELANE_APPS_RAFT_NODE_CHOOSER_H
#define CORELANE_APPS_RAFT_NODE_CHOOSER_H

#include <corelane/runtime/base.h>

// cffi: begin
/* All zero: begins with way 0, and knows nothing. */
struct cl_raft_chooser {
    uint64_t sum_ns[2], count[2]; /* of this round's batches, by way */
    uint64_t mean_ns[2];          /* of a batch, over the last rounds; 0: not known */
    uint64_t rounds;              /* since it was made, or the way changed */
    uint32_t gone;                /* batches of this round that went */
    uint32_t epochs;              /* of this round, each of as many batches; the other way has the last one */
    uint8_t way;                  /* the better one, as far as it is known */
    uint8_t last;                 /* of the batch that went last */
    uint8_t learned;              /* it has compared them */
    uint8_t pad[5];
};

/* A batch goes. Which way, 0 or 1; *counts: for which of them its time counts. */
CL_API int cl_raft_chooser_next(struct cl_raft_chooser *c, int *counts);
/* A batch was committed that took so long, and counts for that way. */
CL_API void cl_raft_chooser_took(struct cl_raft_chooser *c, int counts, uint64_t ns);
// cffi: end

#endif

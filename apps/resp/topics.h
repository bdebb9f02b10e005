/* Names that clients wait at: keys that are watched, keys that somebody blocks on, channels and patterns.
 *
 * A topic exists while a client is linked to it. A link is in two lists: its topic's, in order of arrival, and its
 * client's. */
#ifndef CORELANE_APPS_RESP_TOPICS_H
#define CORELANE_APPS_RESP_TOPICS_H

#include "dict.h"

struct cl_resp_client;

struct cl_rlink {
    struct cl_rtopic *topic;
    struct cl_resp_client *client;
    struct cl_rlink *next, *prev;           /* of the topic */
    struct cl_rlink *next_mine, *prev_mine; /* of the client */
    struct cl_rlink **mine;                 /* the client's list */
    uint32_t note;                          /* the user's */
};

struct cl_rtopic {
    struct cl_rnode node;
    struct cl_rtopics *home;
    struct cl_rlink *first, *last;
    uint32_t n;
    uint8_t name[];
};

struct cl_rtopics {
    struct cl_rmem *mem;
    const struct kv_secret *secret;
    struct cl_rdict by_name;
    void *owner; /* the user's */
};

static inline struct cl_slice cl_rtopic_name(const struct cl_rtopic *t)
{
    return (struct cl_slice){t->name, t->node.key_len};
}

void cl_rtopics_init(struct cl_rtopics *all, struct cl_rmem *mem, const struct kv_secret *secret, void *owner);
void cl_rtopics_end(struct cl_rtopics *all);
/* NULL: nobody is there. */
struct cl_rtopic *cl_rtopic_find(const struct cl_rtopics *all, struct cl_slice name);
/* The client's link in its list *mine, or NULL. Looks through those of the client. */
struct cl_rlink *cl_rlink_find(struct cl_rlink *mine, const struct cl_rtopics *all, struct cl_slice name);
struct cl_rlink *cl_rlink_add(struct cl_rtopics *all, struct cl_slice name, struct cl_resp_client *client,
                              struct cl_rlink **mine);
/* The topic goes with its last link. */
void cl_rlink_remove(struct cl_rlink *link);

#endif

/* Sets and hashes: tables whose nodes have a member, or a field and its value, in one block. */
#ifndef CORELANE_APPS_RESP_SET_H
#define CORELANE_APPS_RESP_SET_H

#include "resp.h"

struct cl_rset {
    struct cl_rdict dict; /* of struct cl_rmember */
};

struct cl_rmember {
    struct cl_rnode node;
    uint8_t key[];
};

struct cl_rhash {
    struct cl_rdict dict; /* of struct cl_rfield */
};

struct cl_rfield {
    struct cl_rnode node;
    uint32_t value_len, room; /* room: bytes behind this header */
    uint8_t key[];            /* the field, and behind it its value */
};

static inline struct cl_slice cl_rmember_key(const struct cl_rnode *n)
{
    return (struct cl_slice){((const struct cl_rmember *)n)->key, n->key_len};
}

static inline struct cl_slice cl_rfield_key(const struct cl_rnode *n)
{
    return (struct cl_slice){((const struct cl_rfield *)n)->key, n->key_len};
}

static inline struct cl_slice cl_rfield_value(const struct cl_rnode *n)
{
    const struct cl_rfield *f = (const struct cl_rfield *)n;
    return (struct cl_slice){f->key + n->key_len, f->value_len};
}

struct cl_rset *cl_rset_new(struct cl_rmem *m);
void cl_rset_free(struct cl_rmem *m, struct cl_rset *s);
/* False: it is in. */
bool cl_rset_add(struct cl_resp *r, struct cl_rset *s, struct cl_slice member);
bool cl_rset_has(struct cl_resp *r, const struct cl_rset *s, struct cl_slice member);
/* False: it was not in. */
bool cl_rset_remove(struct cl_resp *r, struct cl_rset *s, struct cl_slice member);

struct cl_rhash *cl_rhash_new(struct cl_rmem *m);
void cl_rhash_free(struct cl_rmem *m, struct cl_rhash *h);
/* True: the field is new. */
bool cl_rhash_set(struct cl_resp *r, struct cl_rhash *h, struct cl_slice field, struct cl_slice value);
/* NULL: there is none. */
struct cl_rnode *cl_rhash_find(struct cl_resp *r, const struct cl_rhash *h, struct cl_slice field);
bool cl_rhash_remove(struct cl_resp *r, struct cl_rhash *h, struct cl_slice field);

#endif

/* A sorted set: a table of members, and a skip list by (score, member) whose links know how many they pass (Pugh,
 * "A Skip List Cookbook", 1990). A member is one block: key, score and links. */
#ifndef CORELANE_APPS_RESP_ZSET_H
#define CORELANE_APPS_RESP_ZSET_H

#include "resp.h"

#define CL_RZ_LEVELS 32

struct cl_rznode;

struct cl_rzlink {
    struct cl_rznode *next;
    uint64_t span; /* how many steps of level 0 it goes; to the end: to behind the last */
};

struct cl_rznode {
    struct cl_rnode node;
    double score;
    struct cl_rznode *back; /* NULL: it is the first */
    uint32_t levels, pad;
    uint8_t key[]; /* the member, and behind it, aligned, the links */
};

struct cl_rzset {
    struct cl_rdict dict;
    struct cl_rznode *last;
    uint32_t levels;
    struct cl_rzlink head[CL_RZ_LEVELS];
};

/* Bounds of scores, or of members among equal scores. */
struct cl_rzrange {
    double min, max;
    bool min_open, max_open; /* the bound itself is outside */
    bool lex;                /* by member */
    int8_t min_end, max_end; /* of members: -1 before all, 1 behind all, 0: the text */
    struct cl_slice min_text, max_text;
};

static inline struct cl_slice cl_rz_member(const struct cl_rznode *n)
{
    return (struct cl_slice){n->key, n->node.key_len};
}

static inline struct cl_rzlink *cl_rz_links(struct cl_rznode *n)
{
    return (struct cl_rzlink *)(((uintptr_t)n->key + n->node.key_len + 7) & ~(uintptr_t)7);
}

/* The next one, or the one before; NULL at the end. n NULL is allowed for next: the first. */
static inline struct cl_rznode *cl_rz_next(struct cl_rzset *z, struct cl_rznode *n)
{
    return n ? cl_rz_links(n)->next : z->head[0].next;
}

struct cl_rzset *cl_rz_new(struct cl_rmem *m);
void cl_rz_free(struct cl_rmem *m, struct cl_rzset *z);
struct cl_rznode *cl_rz_find(struct cl_resp *r, const struct cl_rzset *z, struct cl_slice member);
/* The member is not in. */
struct cl_rznode *cl_rz_add(struct cl_resp *r, struct cl_rzset *z, struct cl_slice member, double score);
void cl_rz_move(struct cl_resp *r, struct cl_rzset *z, struct cl_rznode *n, double score);
void cl_rz_remove(struct cl_resp *r, struct cl_rzset *z, struct cl_rznode *n);
/* From 0. */
uint64_t cl_rz_rank(struct cl_rzset *z, struct cl_rznode *n);
/* NULL: there are not so many. */
struct cl_rznode *cl_rz_at(struct cl_rzset *z, uint64_t rank);
/* The first and the last one in the range, NULL: none. */
struct cl_rznode *cl_rz_first_in(struct cl_rzset *z, const struct cl_rzrange *range);
struct cl_rznode *cl_rz_last_in(struct cl_rzset *z, const struct cl_rzrange *range);
/* Byte by byte, the shorter one first. */
int cl_slice_order(struct cl_slice a, struct cl_slice b);

#endif

/* See list.h. */
#include "list.h"
#include "bytes.h"

struct cl_rlist *cl_rlist_new(struct cl_rmem *m)
{
    return cl_rmem_zero(m, sizeof(struct cl_rlist));
}

static struct cl_rlist_node *add_node(struct cl_rmem *m, struct cl_rlist *l, struct cl_rlist_node *after)
{
    struct cl_rlist_node *node = cl_rmem_new(m, sizeof *node), *next = after ? after->next : l->first;
    node->n = 0;
    node->from = 0;
    node->prev = after;
    node->next = next;
    *(after ? &after->next : &l->first) = node;
    *(next ? &next->prev : &l->last) = node;
    return node;
}

static void drop_node(struct cl_rmem *m, struct cl_rlist *l, struct cl_rlist_node *node)
{
    *(node->prev ? &node->prev->next : &l->first) = node->next;
    *(node->next ? &node->next->prev : &l->last) = node->prev;
    cl_rmem_free(m, node, sizeof *node);
}

void cl_rlist_free(struct cl_rmem *m, struct cl_rlist *l)
{
    for (struct cl_rlist_node *node = l->first, *next; node; node = next) {
        next = node->next;
        for (uint32_t i = 0; i < node->n; i++)
            cl_bytes_free(m, node->items[node->from + i]);
        cl_rmem_free(m, node, sizeof *node);
    }
    cl_rmem_free(m, l, sizeof *l);
}

void cl_rlist_push(struct cl_rmem *m, struct cl_rlist *l, struct cl_slice value, bool head)
{
    struct cl_rlist_node *node = head ? l->first : l->last;
    if (!node || (head ? node->from == 0 : node->from + node->n == CL_RLIST_NODE)) {
        node = add_node(m, l, head ? NULL : l->last);
        node->from = head ? CL_RLIST_NODE : 0;
    }
    uint32_t i = head ? --node->from : node->from + node->n;
    node->items[i] = cl_bytes_new(m, value);
    node->n++;
    l->count++;
}

struct cl_bytes *cl_rlist_pop(struct cl_rmem *m, struct cl_rlist *l, bool head)
{
    struct cl_rlist_node *node = head ? l->first : l->last;
    struct cl_bytes *b = node->items[head ? node->from : node->from + node->n - 1];
    node->from += head;
    l->count--;
    if (--node->n == 0)
        drop_node(m, l, node);
    return b;
}

struct cl_rlist_at cl_rlist_at(const struct cl_rlist *l, int64_t index)
{
    bool back = index < 0;
    uint64_t left = back ? (uint64_t) - (index + 1) : (uint64_t)index;
    if (left >= l->count)
        return (struct cl_rlist_at){NULL, 0};
    if (left > l->count / 2) { /* from the nearer end */
        left = l->count - 1 - left;
        back = !back;
    }
    struct cl_rlist_node *node = back ? l->last : l->first;
    while (left >= node->n) {
        left -= node->n;
        node = back ? node->prev : node->next;
    }
    return (struct cl_rlist_at){node, back ? node->from + node->n - 1 - (uint32_t)left : node->from + (uint32_t)left};
}

struct cl_rlist_at cl_rlist_step(struct cl_rlist_at at, bool forward)
{
    struct cl_rlist_node *node = at.node;
    if (forward && at.i + 1 < node->from + node->n)
        return (struct cl_rlist_at){node, at.i + 1};
    if (!forward && at.i > node->from)
        return (struct cl_rlist_at){node, at.i - 1};
    node = forward ? node->next : node->prev;
    if (!node)
        return (struct cl_rlist_at){NULL, 0};
    return (struct cl_rlist_at){node, forward ? node->from : node->from + node->n - 1};
}

void cl_rlist_set(struct cl_rmem *m, struct cl_rlist_at at, struct cl_slice value)
{
    struct cl_bytes **item = &at.node->items[at.i], *old = *item;
    *item = cl_bytes_new(m, value);
    cl_bytes_free(m, old);
}

/* A full node becomes two halves; returns where the place is now. */
static struct cl_rlist_at halve(struct cl_rmem *m, struct cl_rlist *l, struct cl_rlist_at at)
{
    struct cl_rlist_node *node = at.node, *half = add_node(m, l, node);
    uint32_t keep = node->n / 2;
    half->n = node->n - keep;
    memcpy(half->items, node->items + node->from + keep, half->n * sizeof *half->items);
    node->n = keep;
    if (at.i >= node->from + keep)
        return (struct cl_rlist_at){half, at.i - node->from - keep};
    return at;
}

void cl_rlist_insert(struct cl_rmem *m, struct cl_rlist *l, struct cl_rlist_at at, struct cl_slice value, bool before)
{
    if (at.node->n == CL_RLIST_NODE)
        at = halve(m, l, at);
    struct cl_rlist_node *node = at.node;
    uint32_t i = at.i + !before, end = node->from + node->n;
    if (end < CL_RLIST_NODE) {
        memmove(node->items + i + 1, node->items + i, (end - i) * sizeof *node->items);
    } else {
        memmove(node->items + node->from - 1, node->items + node->from, (i - node->from) * sizeof *node->items);
        node->from--;
        i--;
    }
    node->items[i] = cl_bytes_new(m, value);
    node->n++;
    l->count++;
}

struct cl_rlist_at cl_rlist_remove(struct cl_rmem *m, struct cl_rlist *l, struct cl_rlist_at at, bool forward)
{
    struct cl_rlist_node *node = at.node;
    struct cl_rlist_at next = cl_rlist_step(at, forward);
    cl_bytes_free(m, node->items[at.i]);
    memmove(node->items + at.i, node->items + at.i + 1, (node->from + node->n - at.i - 1) * sizeof *node->items);
    if (next.node == node && forward)
        next.i--;
    l->count--;
    if (--node->n == 0)
        drop_node(m, l, node);
    return next;
}

/* See topics.h. */
#include "topics.h"

void cl_rtopics_init(struct cl_rtopics *all, struct cl_rmem *mem, const struct kv_secret *secret, void *owner)
{
    *all = (struct cl_rtopics){.mem = mem, .secret = secret, .owner = owner};
    cl_rdict_init(&all->by_name, offsetof(struct cl_rtopic, name));
}

void cl_rtopics_end(struct cl_rtopics *all)
{
    cl_rdict_end(all->mem, &all->by_name);
}

struct cl_rtopic *cl_rtopic_find(const struct cl_rtopics *all, struct cl_slice name)
{
    if (cl_likely(!all->by_name.count))
        return NULL;
    return (struct cl_rtopic *)cl_rdict_find(&all->by_name, cl_rdict_hash(all->secret, name), name);
}

struct cl_rlink *cl_rlink_find(struct cl_rlink *mine, const struct cl_rtopics *all, struct cl_slice name)
{
    struct cl_rtopic *t = mine ? cl_rtopic_find(all, name) : NULL;
    for (; t && mine; mine = mine->next_mine)
        if (mine->topic == t)
            return mine;
    return NULL;
}

static struct cl_rtopic *topic(struct cl_rtopics *all, struct cl_slice name)
{
    struct cl_rtopic *t = cl_rtopic_find(all, name);
    if (t)
        return t;
    t = cl_rmem_zero(all->mem, sizeof *t + name.len);
    t->home = all;
    t->node.hash = cl_rdict_hash(all->secret, name);
    t->node.key_len = name.len;
    memcpy(t->name, name.p, name.len);
    cl_rdict_add(all->mem, &all->by_name, &t->node);
    return t;
}

struct cl_rlink *cl_rlink_add(struct cl_rtopics *all, struct cl_slice name, struct cl_resp_client *client,
                              struct cl_rlink **mine)
{
    struct cl_rtopic *t = topic(all, name);
    struct cl_rlink *link = cl_rmem_zero(all->mem, sizeof *link);
    *link = (struct cl_rlink){.topic = t, .client = client, .prev = t->last, .next_mine = *mine, .mine = mine};
    if (t->last)
        t->last->next = link;
    else
        t->first = link;
    t->last = link;
    t->n++;
    if (*mine)
        (*mine)->prev_mine = link;
    *mine = link;
    return link;
}

void cl_rlink_remove(struct cl_rlink *link)
{
    struct cl_rtopic *t = link->topic;
    struct cl_rtopics *all = t->home;
    *(link->prev ? &link->prev->next : &t->first) = link->next;
    *(link->next ? &link->next->prev : &t->last) = link->prev;
    *(link->prev_mine ? &link->prev_mine->next_mine : link->mine) = link->next_mine;
    if (link->next_mine)
        link->next_mine->prev_mine = link->prev_mine;
    cl_rmem_free(all->mem, link, sizeof *link);
    if (--t->n)
        return;
    cl_rdict_take(all->mem, &all->by_name, cl_rdict_place(&all->by_name, t->node.hash, cl_rtopic_name(t)), false);
    cl_rmem_free(all->mem, t, sizeof *t + t->node.key_len);
}

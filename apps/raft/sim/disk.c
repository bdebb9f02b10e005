/* The modelled stable storage (see disk.h). */
#include "disk.h"
#include <errno.h>
#include <stdlib.h>

int sim_disk_init(struct sim_disk *d)
{
    *d = (struct sim_disk){0};
    d->entries = malloc(SIM_ENTRIES * sizeof(*d->entries));
    return d->entries ? 0 : -ENOMEM;
}

static void drop_writes(struct sim_disk *d)
{
    for (; d->n_writes; d->n_writes--) {
        free(d->writes[d->writes_first].entries);
        d->writes_first = (d->writes_first + 1) % SIM_WRITES;
    }
    d->n_hards = 0;
    d->writes_until_ns = d->hards_until_ns = 0;
}

void sim_disk_free(struct sim_disk *d)
{
    drop_writes(d);
    free(d->entries);
    d->entries = NULL;
}

void sim_disk_clear(struct sim_disk *d)
{
    drop_writes(d);
    d->base = d->last = 0;
    d->term = 0;
    d->vote = 0;
    d->snapshot = (struct sim_snapshot){0};
    d->rotten = false;
}

bool sim_disk_write(struct sim_disk *d, struct sim_write write)
{
    if (d->n_writes == SIM_WRITES) {
        free(write.entries);
        return false;
    }
    d->writes[(d->writes_first + d->n_writes++) % SIM_WRITES] = write;
    return true;
}

bool sim_disk_write_hard(struct sim_disk *d, struct sim_hard hard)
{
    if (d->n_hards == SIM_WRITES)
        return false;
    d->hards[(d->hards_first + d->n_hards++) % SIM_WRITES] = hard;
    return true;
}

/* Carry out the first `n` entries of a write, or a truncation. */
static void carry_out(struct sim_disk *d, const struct sim_write *w, uint64_t n)
{
    if (w->kind == SIM_WRITE_TRUNCATE) {
        if (w->first <= d->last)
            d->last = w->first - 1 > d->base ? w->first - 1 : d->base;
        return;
    }
    for (uint64_t i = 0; i < n; i++) {
        uint64_t index = w->first + i;
        if (index <= d->base || index >= SIM_ENTRIES)
            continue;
        d->entries[index] = w->entries[i];
        d->last = index;
    }
}

bool sim_disk_written(struct sim_disk *d, struct sim_write *out)
{
    if (!d->n_writes)
        return false;
    *out = d->writes[d->writes_first];
    d->writes_first = (d->writes_first + 1) % SIM_WRITES;
    d->n_writes--;
    carry_out(d, out, out->last - out->first + 1);
    return true;
}

bool sim_disk_hard_written(struct sim_disk *d, struct sim_hard *out)
{
    if (!d->n_hards)
        return false;
    *out = d->hards[d->hards_first];
    d->hards_first = (d->hards_first + 1) % SIM_WRITES;
    d->n_hards--;
    d->term = out->term;
    d->vote = out->vote;
    return true;
}

void sim_disk_crash(struct sim_disk *d, struct cl_random *random)
{
    uint64_t whole = cl_random_below(random, d->n_writes + 1);
    struct sim_write w;
    for (uint64_t i = 0; i < whole && sim_disk_written(d, &w); i++)
        free(w.entries);
    if (d->n_writes && d->writes[d->writes_first].kind == SIM_WRITE_ENTRIES) {
        const struct sim_write *torn = &d->writes[d->writes_first];
        carry_out(d, torn, cl_random_below(random, torn->last - torn->first + 1));
    }
    struct sim_hard hard;
    for (uint64_t i = cl_random_below(random, d->n_hards + 1); i; i--)
        sim_disk_hard_written(d, &hard);
    drop_writes(d);
}

void sim_disk_snapshot(struct sim_disk *d, const struct sim_snapshot *snapshot, uint64_t first)
{
    d->snapshot = *snapshot;
    if (first && first - 1 > d->base) {
        d->base = first - 1;
        if (d->last < d->base)
            d->last = d->base;
    }
}

void sim_disk_install(struct sim_disk *d, const struct sim_snapshot *snapshot, bool keep)
{
    d->snapshot = *snapshot;
    d->base = snapshot->index;
    if (!keep || d->last < d->base)
        d->last = d->base;
}

bool sim_disk_holds(const struct sim_disk *d, uint64_t index, uint64_t term)
{
    if (index <= d->snapshot.index)
        return true;
    return index > d->base && index <= d->last && d->entries[index].term == term;
}

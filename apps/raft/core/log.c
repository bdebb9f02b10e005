/* The entries held in memory: two rings of fixed size. See internal.h. */
#include "internal.h"
#include "../../../runtime/pages.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

int raft_log_new(struct raft_log *log, uint64_t entries, uint64_t bytes)
{
    log->slots = cl_pages_new(entries * sizeof(*log->slots));
    log->bytes = cl_pages_new(bytes);
    if (!log->slots || !log->bytes)
        return -ENOMEM;
    log->slot_mask = entries - 1;
    log->byte_mask = bytes - 1;
    log->first = log->unstable = 1;
    return 0;
}

void raft_log_free(struct raft_log *log)
{
    free(log->slots);
    free(log->bytes);
}

uint64_t raft_log_term(const struct raft_log *log, uint64_t index)
{
    if (index + 1 == log->first)
        return log->base_term;
    return index >= log->first && index <= log->last ? raft_slot(log, index)->term : 0;
}

/* Bytes taken by the entries from `from` on, gaps at the ring's end included. */
uint64_t raft_log_used_bytes(const struct raft_log *log, uint64_t from)
{
    return from > log->last ? 0 : log->head - raft_slot(log, cl_max(from, log->first))->at;
}

int raft_log_append(struct raft_log *log, uint64_t term, uint32_t kind, const void *data, uint32_t bytes,
                    uint32_t spare_entries, uint32_t spare_bytes)
{
    uint64_t size = log->byte_mask + 1;
    uint64_t at = log->head;
    if ((at & log->byte_mask) + bytes > size)
        at = (at + size) & ~log->byte_mask;
    uint64_t tail = log->last < log->first ? at : raft_slot(log, log->first)->at;
    if (log->last + 1 - log->first + spare_entries > log->slot_mask || at + bytes + spare_bytes - tail > size)
        return -ENOSPC;
    struct raft_slot *slot = raft_slot(log, ++log->last);
    *slot = (struct raft_slot){.term = term, .at = at, .bytes = bytes, .generation = log->generation, .kind = kind};
    if (bytes)
        memcpy(log->bytes + (at & log->byte_mask), data, bytes);
    log->head = at + bytes;
    return 0;
}

void raft_log_truncate(struct raft_log *log, uint64_t from)
{
    if (from > log->last)
        return;
    log->head = raft_slot(log, from)->at;
    log->last = from - 1;
    log->generation++;
    log->durable = cl_min(log->durable, from - 1);
    if (from >= log->unstable)
        return; /* nobody was told of them */
    log->unstable = from;
    log->truncated_from = log->truncated_from ? cl_min(log->truncated_from, from) : from;
}

/* Entries before `first` go; first is at most last + 1. */
void raft_log_drop(struct raft_log *log, uint64_t first)
{
    if (first <= log->first)
        return;
    log->base_term = raft_log_term(log, first - 1);
    log->first = first;
}

/* Nothing is held any more, and the next entry comes after `index`. */
void raft_log_reset(struct raft_log *log, uint64_t index, uint64_t term)
{
    log->first = log->unstable = index + 1;
    log->last = log->durable = index;
    log->base_term = term;
    log->truncated_from = 0;
    log->generation++;
}

uint64_t raft_log_agree(const struct raft_log *log, uint64_t index, uint64_t term)
{
    index = cl_min(index, log->last);
    while (index >= log->first && raft_slot(log, index)->term > term)
        index--;
    return index;
}

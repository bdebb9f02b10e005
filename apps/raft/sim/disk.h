/* What a simulated replica of the core alone has on stable storage, and what is on its way there.
 *
 * It keeps the promises of corelane/libos/log.h and no more: log writes and truncations become durable in order, the
 * hard state and the log in any order to each other, and a crash leaves any prefix of what was under way, down to
 * single entries. (That the log itself keeps its promises on disks that tear, drop and reorder is the other mode's
 * matter.)
 *
 * Completions are told in order, each when its time has come; sim_disk_crash ends everything. */
#ifndef CORELANE_APPS_RAFT_SIM_DISK_H
#define CORELANE_APPS_RAFT_SIM_DISK_H

#include "../../../drivers/random.h"
#include "../core/raft.h"
#include "machine.h"

#define SIM_ENTRIES 8192    /* indices of a world, at most */
#define SIM_ENTRY_BYTES 232 /* a configuration is the largest */
#define SIM_WRITES 512      /* under way, at most */

struct sim_entry {
    uint64_t term;
    uint32_t kind, bytes;
    uint8_t data[SIM_ENTRY_BYTES];
};

struct sim_snapshot {
    uint64_t index, term; /* 0: none */
    struct cl_raft_members members;
    struct sim_machine machine;
};

#define SIM_WRITE_ENTRIES 0
#define SIM_WRITE_TRUNCATE 1

/* A change of the log that is under way. */
struct sim_write {
    uint64_t first, last; /* entries; truncation: drop from `first` */
    uint64_t last_term;
    uint32_t last_generation;
    uint8_t kind;
    struct sim_entry *entries; /* first..last, owned */
};

/* A change of term and vote. */
struct sim_hard {
    uint64_t seq, term;
    uint32_t vote;
};

struct sim_disk {
    uint64_t base, last;       /* the log holds base + 1 .. last */
    struct sim_entry *entries; /* [SIM_ENTRIES], by index */
    uint64_t term;
    uint32_t vote;
    struct sim_snapshot snapshot;
    struct sim_write writes[SIM_WRITES]; /* a ring */
    uint32_t writes_first, n_writes;
    struct sim_hard hards[SIM_WRITES]; /* a ring */
    uint32_t hards_first, n_hards;
    uint64_t writes_until_ns, hards_until_ns; /* when the last of each is done */
    bool rotten;                              /* something before the end of it is damaged */
};

/* 0 or -ENOMEM. */
int sim_disk_init(struct sim_disk *d);
void sim_disk_free(struct sim_disk *d);
/* Empty, as new. */
void sim_disk_clear(struct sim_disk *d);
/* Begin a write; its entries are handed over. False: too many are under way. */
bool sim_disk_write(struct sim_disk *d, struct sim_write write);
bool sim_disk_write_hard(struct sim_disk *d, struct sim_hard hard);
/* The oldest write is durable now: carry it out. The caller frees *out's entries. False: there is none. */
bool sim_disk_written(struct sim_disk *d, struct sim_write *out);
bool sim_disk_hard_written(struct sim_disk *d, struct sim_hard *out);
/* Crash: some prefix of what is under way becomes durable, nothing of the rest. */
void sim_disk_crash(struct sim_disk *d, struct cl_random *random);
/* A snapshot is durable: remember it, and drop the log up to `first` - 1. */
void sim_disk_snapshot(struct sim_disk *d, const struct sim_snapshot *snapshot, uint64_t first);
/* A snapshot that was received is durable. The log behind it stays if `keep`. */
void sim_disk_install(struct sim_disk *d, const struct sim_snapshot *snapshot, bool keep);
/* Whether entry `index` of `term` is durable, itself or within a snapshot. */
bool sim_disk_holds(const struct sim_disk *d, uint64_t index, uint64_t term);

#endif

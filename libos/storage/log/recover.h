/* Recovery's structures, shared by the files that are its steps:
 *
 *   recover.c   the steps in their order, the flushes of the lap one after another, the new epoch
 *   choose.c    the newest whole superblock
 *   lap.c       reading ahead once around the ring, and blocks that cannot be read
 *   again.c     writing again what may not be durable
 *   judge.c     what the end means: clean, torn or damaged
 *
 * Private to them. All of it belongs to the thread that is inside a call on the log. */
#ifndef CORELANE_LIBOS_STORAGE_LOG_RECOVER_H
#define CORELANE_LIBOS_STORAGE_LOG_RECOVER_H

#include "internal.h"

#define CL_LOG_SEGMENTS 16
#define CL_LOG_UNREADABLE_MOST 1024 /* blocks: with more, it is the device that fails */

/* Of a superblock or a segment. If it fails it is done again block by block, so that one bad sector costs its block
 * only. */
struct cl_log_read {
    struct cl_log_io io;
    struct cl_log_segment *segment; /* NULL: of a superblock */
    uint64_t left;                  /* bytes behind the block that is being read alone */
    bool alone;
    unsigned tries; /* of that block, that failed */
};

struct cl_log_segment {
    struct cl_log_read read;
    uint8_t *base; /* flush_bytes before it: the beginning of a flush that ends in this segment */
    uint64_t place, bytes;
    bool waiting;
};

struct cl_log_recover {
    enum { CL_LOG_SUPERS, CL_LOG_STREAM, CL_LOG_DRAIN, CL_LOG_SCAN, CL_LOG_MEND, CL_LOG_EPOCH } phase;
    struct cl_log_read supers[2];
    uint8_t *blocks; /* of the two */
    unsigned waiting;
    struct cl_log_segment segments[CL_LOG_SEGMENTS];
    uint8_t *room; /* of all segments */
    unsigned n_segments;
    uint64_t segment_bytes;
    unsigned current, posted, reading; /* checked next; asked for, from that one on; not there yet of those */
    uint64_t read_place;               /* where the next segment begins */
    uint64_t end;                      /* of the lap, or of the search */
    uint64_t at;                       /* place of the next flush, or of the next block to scan */
    bool searching, proof, torn, acknowledged_told;
    bool unread; /* the flush that is bad, or what might tell whether it is damaged, cannot be read at unread_place */
    uint64_t bad_place, beyond_place, unread_place;
    const char *bad_why;
    uint64_t highest_epoch;
    uint64_t
        acknowledged_lsn; /* the highest that the device says was, when the report's acknowledged_index was the last
                           * index */
    uint64_t unreadable[CL_LOG_UNREADABLE_MOST]; /* places */
    unsigned n_unreadable;
    struct cl_log_io look; /* at what ended the log, once more */
    bool looking;
    struct cl_log_io mend;
    unsigned n_mended;
    bool mending;
    bool again_loaded; /* what is to be written again next has been read into room */
    struct {
        uint64_t lsn, place;
    } again,        /* the flush from which on no flush says that they were acknowledged, or one a few earlier */
        again_next; /* and from which on that may be so soon */
};

static inline const uint8_t *cl_log_at_place(const struct cl_log_segment *g, uint64_t place)
{
    return g->base + (int64_t)(place - g->place);
}

/* choose.c: the newer of the whole superblocks that were read; NULL: the log has failed. */
const struct cl_log_disk_super *cl_log_choose(struct cl_log *log);

/* lap.c */
void cl_log_read_supers(struct cl_log *log);
int cl_log_lap_start(struct cl_log *log);  /* from r->read_place to r->end: -ENOMEM */
void cl_log_lap_ahead(struct cl_log *log); /* keep the device busy */
void cl_log_lap_free(struct cl_log *log);
/* The lowest place from `from` to before `to` at which a block could not be read; `to`: none. */
uint64_t cl_log_unreadable_from(const struct cl_log_recover *r, uint64_t from, uint64_t to);

/* again.c: the next step of it, once all is read; false: all is done. */
bool cl_log_write_again(struct cl_log *log);

/* judge.c: fill in the report, once all is read. */
void cl_log_judge(struct cl_log *log);

#endif

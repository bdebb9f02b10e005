/* The log's structures. Private to libos/storage. All of it belongs to the thread that is inside a call on the log. */
#ifndef CORELANE_LIBOS_STORAGE_LOG_INTERNAL_H
#define CORELANE_LIBOS_STORAGE_LOG_INTERNAL_H

#include "../crc32c.h"
#include "disk.h"
#include <corelane/runtime/clock.h>
#include "width.h"

#include <errno.h>
#include <string.h>

#define CL_LOG_SPAN_BYTES 16384 /* a span of the index ends at the record that reaches this */
#define CL_LOG_PIECES 4         /* pieces of a snapshot in memory */

/* One request and what to do when it is done. */
struct cl_log_io {
    struct cl_blk_req req; /* first: the device gives this back */
    void (*complete)(struct cl_log *log, struct cl_log_io *io);
};

/* A flush in memory: being filled (lsn == open_lsn), sealed, in flight or done, until all before it are done. */
struct cl_log_flush {
    struct cl_log_io io;
    uint8_t *buf;
    uint64_t lsn, place, first_index;
    uint32_t bytes, records; /* bytes: the header included */
    bool done;
    struct cl_log_flown flown;
    uint64_t stamps[2]; /* given to the device, and written; 0: nobody wants to know */
    uint64_t first_ns;  /* fixed_wait_ns: when the first record came */
    struct cl_log_op *first, *last;
};

/* Durable records that follow each other on the device without a gap, all of one flush. */
struct cl_log_span {
    uint64_t lsn, place; /* of the flush */
    uint64_t first_index;
    uint32_t at; /* of the header of the first one, or of the first of those before it that lie elsewhere now */
    uint32_t count, bytes;
    uint32_t skip; /* records before the first one, that lie elsewhere now */
};

/* What is durable: the result of applying flushes in order. */
struct cl_log_view {
    uint64_t first_index, next_index;
    uint64_t lsn;       /* the last flush applied */
    uint64_t flush_end; /* the place at which it ends; 0: none was applied since the log was opened */
    uint64_t end_place; /* where the one after it begins */
    uint64_t meta_number;
    uint32_t meta_bytes;
    uint8_t meta[CL_LOG_META_BYTES];
    struct cl_log_span *spans; /* spans[begin .. end - 1], by index */
    uint64_t begin, end, room;
    bool copies; /* the spans may not be in the order of their places: records were copied */
};

struct cl_log_super {
    struct cl_log_io io;
    struct cl_log_disk_super *block; /* 4096 bytes, aligned: what is being written */
    struct cl_log_disk_super now;    /* the durable one */
    bool busy, wanted;
    bool second;                              /* the one written last, or being written, is not in both slots yet */
    struct cl_log_op *waiting, *waiting_last; /* for the next one */
    struct cl_log_op *riding;                 /* on the one being written */
    struct cl_log_op *half;                   /* whose superblock is in one slot: acknowledged with the other */
    /* A meta blob that goes here because the ring is short of room: super.c. */
    struct cl_log_op *meta_op; /* NULL: none */
    uint8_t meta[CL_LOG_META_BYTES];
    unsigned meta_slots; /* that hold it */
};

/* See confirm.c. */
struct cl_log_confirm {
    uint64_t said_lsn;  /* durable: the device says that the flushes up to this one were acknowledged */
    uint64_t watch_lsn; /* acknowledged when at_ns was set */
    uint64_t at_ns;     /* when a superblock is to say so; 0: nothing to say; UINT64_MAX: one is on its way */
};

struct cl_log_piece {
    struct cl_log_io io;
    struct cl_log_disk_piece *block; /* CL_LOG_PIECE_BYTES */
    bool busy;
};

struct cl_log_snap {
    struct cl_log_piece pieces[CL_LOG_PIECES];
    bool begun, committing, publish; /* publish: the next superblock names it */
    uint32_t fill;                   /* data bytes in the piece being filled, which is pieces[filled % CL_LOG_PIECES] */
    uint64_t filled;                 /* pieces sent */
    unsigned in_flight;
    struct cl_log_snapshot next;
    struct cl_log_op *commit;
    struct cl_log_io read;
    uint8_t *read_buf;
    bool reading;
    uint64_t read_number, read_piece; /* what read_buf holds or will hold */
    int read_result;                  /* 1: nothing there */
    char why[CL_LOG_WHY_BYTES];       /* -EBADMSG: what is damaged */
};

enum cl_log_repack_phase {
    REPACK_REST,
    REPACK_VERSION,
    REPACK_NEXT,
    REPACK_READING,
    REPACK_COPY,
    REPACK_REST_GATHERED,
    REPACK_FREE,
    REPACK_FEWER
};

#define CL_LOG_SOURCES                                                                                                 \
    1024 /* flushes that are looked at for records to be copied, before the index is searched again */

#define CL_LOG_UNITS 256 /* flushes whose records are gathered at most */

/* Gathered records of one flush. */
struct cl_log_unit {
    uint64_t lsn;
    uint32_t begin, end; /* in `gather` */
};

/* See repack.c. */
struct cl_log_repack {
    struct cl_log_io io;
    enum cl_log_repack_phase phase;
    uint8_t *buf; /* the flush that is being copied from: flush_bytes; NULL: never */
    struct {
        uint64_t place;
        uint32_t bytes;      /* up to the end of its last record that is kept; 0: it has none */
    } * sources;             /* by number of the flush, from sources_lsn on */
    uint64_t sources_lsn;    /* 0: none is known */
    uint64_t lsn, until_lsn; /* the flush that is being copied from; the last one to be */
    uint8_t *gather;         /* records to be copied in one flush: flush_bytes */
    uint32_t gathered, n_units;
    struct cl_log_unit units[CL_LOG_UNITS];
    uint64_t copied_lsn;            /* the last flush that has copies */
    uint64_t begun_place;           /* behind what was acknowledged when the pass began */
    uint64_t copied_bytes;          /* that copies took of the ring */
    uint64_t free_place;            /* where the head is to be, for space that is asked for; 0: none is */
    uint64_t freed_place;           /* where it was the time before */
    bool short_of_room;             /* it was asked for since there was none for the next copy */
    uint64_t look_place;            /* nothing is considered before the ring is filled up to here */
    uint64_t rest_bytes;            /* what the last pass could not win */
    uint64_t rest_first, rest_kept; /* first_index then; what the records took at most that were kept when it began */
    uint64_t refused_place, refused_lsn; /* when it was found that nothing can be won */
};

/* See recover.c. */
struct cl_log_recover;

struct cl_log {
    struct cl_log_config config;
    struct cl_blk *blk;
    const struct cl_clock *clock; /* of who shares it, for stamps of its flushes; NULL: there are none */
    int state, error;
    bool closing; /* what waits goes at once */
    bool closed;  /* the next superblock is the last thing written */
    char why[CL_LOG_WHY_BYTES];
    struct cl_log_report report;

    /* Of the superblock, constant while it is ready. */
    uint64_t area_id, epoch, ring_offset, ring_bytes, ring_shift;
    uint32_t flush_bytes;

    /* Flushes: the one with number lsn is flushes[lsn % n_flushes]. view.lsn < sent_lsn + 1 <= open_lsn. */
    struct cl_log_flush *flushes;
    uint8_t *arena;
    uint32_t n_flushes;
    uint64_t sent_lsn, open_lsn;
    uint64_t open_place, open_index; /* of the flush being filled: where, and what the next append gets */
    uint64_t open_first;             /* the index of the last restart submitted */
    uint64_t meta_number;            /* of the newest blob submitted */
    uint64_t head_place;             /* durable: what lies before is free */
    unsigned flights;                /* flushes in flight */
    uint64_t flight_records;         /* in them */
    uint64_t cut_lsn;                /* the flush of the truncation or restart submitted last */
    bool gathers;                    /* the flush being filled waits for more: shared.c */
    bool merges;                     /* and small ones for larger ones in flight: see ripe in append.c */

    struct cl_log_width width;
    uint32_t first_flights; /* as many fly before the device is known */

    struct cl_log_view view;
    struct cl_log_super super;
    struct cl_log_confirm confirm;
    struct cl_log_repack repack;
    struct cl_log_snap snap;
    struct cl_log_recover *recover;
    struct cl_log_cursor *cursors;
    struct cl_blk_req *outbox, *outbox_last; /* to be submitted at the end of the pump */
    unsigned in_flight;                      /* requests posted and not completed */
    struct cl_log_stats stats;
};

static inline uint64_t cl_log_offset_of(const struct cl_log *log, uint64_t place)
{
    return log->ring_offset + (place - log->ring_shift) % log->ring_bytes;
}

static inline uint64_t cl_log_next_place(const struct cl_log *log, uint64_t place, uint64_t bytes)
{
    return cl_log_place_after(place, bytes, log->ring_bytes, log->ring_shift, log->flush_bytes);
}

/* Seeds: what a checksum covers besides the bytes behind it. */
static inline uint32_t cl_log_seed(uint64_t a, uint64_t b, uint64_t c)
{
    uint64_t words[3] = {a, b, c};
    return cl_crc32c(0, words, sizeof words);
}

static inline uint32_t cl_log_record_crc(uint32_t seed, const struct cl_log_disk_record *r)
{
    return cl_crc32c(seed, &r->bytes, sizeof *r - 4 + r->bytes);
}

static inline uint64_t cl_log_now_ns(const struct cl_log *log)
{
    return log->config.now_ns(log->config.now_arg);
}

static inline uint64_t cl_log_stamp(const struct cl_log *log)
{
    return log->clock ? cl_clock_stamp(log->clock) : 0;
}

/* Nothing fixed says when a flush goes. */
static inline bool cl_log_adapts(const struct cl_log *log)
{
    return log->config.fixed_records == 0 && log->config.fixed_wait_ns == 0;
}

static inline struct cl_log_flush *cl_log_flush_of(struct cl_log *log, uint64_t lsn)
{
    return &log->flushes[lsn % log->n_flushes];
}

/* log.c */
void cl_log_fail(struct cl_log *log, int error, const char *format, ...) CL_PRINTF(3, 4);
void cl_log_post(struct cl_log *log, struct cl_log_io *io, int op, unsigned flags, uint64_t offset, void *buf,
                 uint64_t bytes);
void cl_log_doorbell(struct cl_log *log); /* hands what was posted to the device; the pump ends with it */
void cl_log_done(struct cl_log *log, struct cl_log_op *first, int result); /* calls back the whole list */
void *cl_log_blocks(uint64_t bytes);                                       /* aligned for any device; NULL */
/* Known to the device as memory that requests often use. 0, or why it makes no difference. cl_log_forget before it is
 * freed. */
int cl_log_register(struct cl_log *log, void *blocks, uint64_t bytes);
void cl_log_forget(struct cl_log *log, void *blocks); /* NULL: nothing */

/* append.c */
int cl_log_flushes_start(struct cl_log *log);           /* behind what the view says: -ENOMEM */
uint64_t cl_log_open_records(const struct cl_log *log); /* in the flush being filled */
bool cl_log_unsent(const struct cl_log *log);           /* records wait to be sent */
/* Bytes of records for which the buffers have room; UINT64_MAX: nothing is taken any more, so that nobody waits for
 * it. */
uint64_t cl_log_buffer_room(const struct cl_log *log);
void cl_log_flushes_fail(struct cl_log *log);
bool cl_log_flushes_step(struct cl_log *log);
/* What a record is for, by how much of the ring is left to it: the last of it is for truncations, the very last for
 * copies. */
enum cl_log_use { CL_LOG_FOR_DATA, CL_LOG_FOR_CUT, CL_LOG_FOR_COPY };
/* Room for `bytes` of records in one flush: 0, and *out is that flush; -EAGAIN, -ENOSPC, or what ended the log. */
int cl_log_make_room(struct cl_log *log, uint64_t bytes, enum cl_log_use use, struct cl_log_flush **out);
/* Put a record behind those of the flush. *r: bytes, index, tag and kind. */
void cl_log_put(struct cl_log *log, struct cl_log_flush *f, const struct cl_log_disk_record *r, uint8_t what,
                const void *data);

/* view.c */
/* Whether a header is one of this log, written at this offset: its checksum. Not whether it is the one expected
 * there. */
bool cl_log_flush_ours(const struct cl_log *log, const struct cl_log_disk_flush *h, uint64_t offset);
/* Whether all records of a flush are whole and form a sequence: NULL, or why not, and *at is where in buf. */
const char *cl_log_flush_records(const struct cl_log *log, const uint8_t *buf, uint64_t *at);
/* Make the records of a whole flush, that follows the last one, part of the view. -ENOMEM. */
int cl_log_view_apply(struct cl_log *log, const uint8_t *buf);
void cl_log_view_trim(struct cl_log_view *view, uint64_t first_kept);
/* The bytes of the records that are there: no more than they take, and less where something was truncated or copied
 * within a span. */
uint64_t cl_log_view_bytes(const struct cl_log_view *view);
/* The same, no less than they take. */
uint64_t cl_log_view_most_bytes(const struct cl_log_view *view);
/* Where the oldest flush begins that has records which are there, and its number. False: there are none. */
bool cl_log_view_head(struct cl_log_view *view, uint64_t *lsn, uint64_t *place);
/* The first index from which on all records are there. */
uint64_t cl_log_view_whole_from(const struct cl_log_view *view);
/* The span that holds a record, NULL if there is no such record. */
const struct cl_log_span *cl_log_view_find(const struct cl_log_view *view, uint64_t index);

/* repack.c */
int cl_log_repack_start(struct cl_log *log); /* -ENOMEM */
bool cl_log_repack_step(struct cl_log *log);
/* There is no room for a record: whether there will be, since records are copied, or are now. */
bool cl_log_repack_helps(struct cl_log *log);
void cl_log_repack_free(struct cl_log *log);

/* confirm.c */
/* The device says now that the flushes up to lsn were acknowledged. */
void cl_log_confirm_said(struct cl_log *log, uint64_t lsn);
bool cl_log_confirm_step(struct cl_log *log);
uint64_t cl_log_confirm_next_ns(const struct cl_log *log);

/* super.c */
uint32_t cl_log_super_crc(const struct cl_log_disk_super *s);
void cl_log_super_want(struct cl_log *log, struct cl_log_op *op);
/* A meta blob, acknowledged when all before it is and both slots hold it; nothing is submitted meanwhile. */
void cl_log_super_meta(struct cl_log *log, struct cl_log_op *op);
bool cl_log_super_step(struct cl_log *log);
void cl_log_super_fail(struct cl_log *log);

/* recover.c */
int cl_log_recover_start(struct cl_log *log);
bool cl_log_recover_step(struct cl_log *log);
void cl_log_recover_free(struct cl_log *log);

/* grow.c: once all is read, and before anything is written. */
void cl_log_grow(struct cl_log *log, bool allowed);

/* cursor.c: records from `from` on are gone. */
void cl_log_cursors_cut(struct cl_log *log, uint64_t from);
void cl_log_cursors_free(struct cl_log *log);

/* snapshot.c */
bool cl_log_snapshot_step(struct cl_log *log);
void cl_log_snapshot_published(struct cl_log *log);
void cl_log_snapshot_fail(struct cl_log *log);
void cl_log_snapshot_free(struct cl_log *log);

#endif

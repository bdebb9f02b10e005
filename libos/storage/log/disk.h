/* What lies on the device; docs/log.md says the same for people. Private to libos/storage, to cut.py and to the
 * fuzzer's seeds.
 *
 * The area: two superblocks, two snapshot slots, the ring of flushes, all in blocks of 4096 bytes. Little-endian.
 *
 * A place is a position in the ring that never goes back: its offset in the ring is place less ring_shift, modulo
 * ring_bytes. So a flush that says another place than the one at which it is found is a leftover of an earlier lap. The
 * shift is the beginning of the lap in which the ring last grew (grow.c). */
#ifndef CORELANE_LIBOS_STORAGE_LOG_DISK_H
#define CORELANE_LIBOS_STORAGE_LOG_DISK_H

#include <corelane/libos/log.h>

#define CL_LOG_VERSION 1
#define CL_LOG_VERSION_GROWN 2 /* the same with a ring_shift, which programs that know version 1 only would overlook */
#define CL_LOG_VERSION_COPIES                                                                                          \
    3 /* the same, and records may be copies: programs that do not know them would end the log there */
#define CL_LOG_FLUSH_MAGIC 0x68736c66u /* "flsh", exclusive-or a hash of the area's id */

#define CL_LOG_FLUSH_LEAST 8192u
#define CL_LOG_FLUSH_MOST (64u << 20)
#define CL_LOG_RING_FLUSHES 4 /* a ring holds so many of the largest flushes at least */

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the format is little-endian and is read as it lies");

// cffi: begin
#define CL_LOG_SUPER_MAGIC 0x31676f6c656e6f63ull /* "conelog1" */

/* One sector at the beginning of blocks 0 and 1; the slot is generation modulo 2. The rest of the block is zero. */
struct cl_log_disk_super {
    uint64_t magic;
    uint32_t version;
    uint32_t crc; /* of the other 508 bytes, behind the slot's number */
    uint64_t area_id, area_bytes;
    uint64_t snapshot_offset, snapshot_bytes; /* of slot 0, of each of the two slots; multiples of 4096 */
    uint64_t ring_offset, ring_bytes;
    uint32_t flush_bytes;
    uint32_t closed; /* 1: nothing was in flight when this was written, and nothing has been written since */
    uint64_t generation;
    uint64_t epoch;                      /* of the opening that wrote this: its flushes carry it */
    uint64_t epoch_lsn;                  /* the first flush of that epoch: all before it were found whole */
    uint64_t durable_lsn, durable_index; /* acknowledged when this was written */
    uint64_t head_lsn, head_place;       /* where recovery begins */
    uint64_t first_index;                /* records before are trimmed */
    uint64_t next_index;                 /* if there is no flush at head_place */
    uint64_t meta_number;                /* of the meta blob below: a record of meta with a higher one is newer */
    uint64_t snapshot_number, snapshot_index, snapshot_tag, snapshot_length; /* number 0: none; slot: number modulo 2 */
    uint32_t meta_bytes;
    uint32_t zero;
    uint8_t meta[CL_LOG_META_BYTES];
    uint64_t ring_shift; /* version 1: 0 */
    uint8_t rest[56];
};
// cffi: end
_Static_assert(sizeof(struct cl_log_disk_super) == 512, "one sector: a crash leaves the old or the new");

/* Before the records of a flush, at the beginning of a block. */
struct cl_log_disk_flush {
    uint32_t magic;
    uint32_t crc; /* of the bytes behind it, seeded by area and offset */
    uint64_t lsn; /* flushes are numbered 1, 2, 3, ... without gaps */
    uint64_t place;
    uint64_t epoch;
    uint64_t first_index;                /* what the next append before this flush would have got */
    uint64_t durable_lsn, durable_index; /* known to be acknowledged when this was sent */
    uint32_t bytes;                      /* this header and the records; to the end of the block there are zeros */
    uint32_t records;
};
_Static_assert(sizeof(struct cl_log_disk_flush) == 64, "as docs/log.md says");

#define CL_LOG_DATA 0     /* index: its own */
#define CL_LOG_TRUNCATE 1 /* index: the first given up */
#define CL_LOG_RESTART 2  /* index: the next append's */
#define CL_LOG_META 3     /* index: the blob's number */
#define CL_LOG_COPY 4     /* index: of a record that was there before, and lies here from now on: repack.c */

/* Before the data of a record, at a multiple of 8; zeros follow the data up to the next. */
struct cl_log_disk_record {
    uint32_t crc;   /* of the bytes behind it and the data, seeded by area, epoch and flush */
    uint32_t bytes; /* of data */
    uint64_t index;
    uint64_t tag;
    uint32_t epoch;
    uint8_t what; /* CL_LOG_DATA, ... */
    uint8_t kind;
    uint16_t zero;
};
_Static_assert(sizeof(struct cl_log_disk_record) == 32, "as docs/log.md says");

/* Before each piece of a snapshot; a piece fills CL_LOG_PIECE_BYTES, but for the last one. */
#define CL_LOG_PIECE_BYTES 65536u
struct cl_log_disk_piece {
    uint32_t crc;   /* of the bytes behind it and the data, seeded by area, snapshot number and offset */
    uint32_t bytes; /* of data */
    uint64_t number, at;
    uint64_t zero;
};
_Static_assert(sizeof(struct cl_log_disk_piece) == 32, "as docs/log.md says");
#define CL_LOG_PIECE_DATA (CL_LOG_PIECE_BYTES - (uint32_t)sizeof(struct cl_log_disk_piece))

static inline uint32_t cl_log_magic(uint64_t area_id)
{
    return CL_LOG_FLUSH_MAGIC ^ (uint32_t)(area_id * 0x9e3779b97f4a7c15ull >> 32);
}

static inline uint64_t cl_log_round(uint64_t bytes)
{
    return (bytes + CL_LOG_BLOCK_BYTES - 1) & ~(uint64_t)(CL_LOG_BLOCK_BYTES - 1);
}

/* What a record takes in a flush. */
static inline uint64_t cl_log_record_bytes(uint64_t data_bytes)
{
    return sizeof(struct cl_log_disk_record) + ((data_bytes + 7) & ~7ull);
}

/* Where the flush after one of `bytes` at `place` begins: no flush begins where the largest one would not fit before
 * the end of the ring. */
static inline uint64_t cl_log_place_after(uint64_t place, uint64_t bytes, uint64_t ring_bytes, uint64_t ring_shift,
                                          uint64_t flush_bytes)
{
    place += cl_log_round(bytes);
    uint64_t left = ring_bytes - (place - ring_shift) % ring_bytes;
    return left < flush_bytes ? place + left : place;
}

#endif

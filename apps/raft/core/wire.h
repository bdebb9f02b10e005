/* Messages and configurations as bytes. Little endian; one message is
 *
 *     0  u32 magic "CLRF"      4  u8 version, u8 type, u8 flags, u8 0
 *     8  u32 CRC32C of the message with this field 0           12  u32 bytes, all of it
 *    16  u64 cluster          24  u32 from, u32 to             32  u64 term
 *    40  u64 index            48  u64 log_term                 56  u64 commit
 *    64  u64 round            72  u64 hint, offset or context  80  u64 received or total
 *    88  u32 n_entries, u32 data_bytes                         96  u64 group_settings
 *   104  u64 incarnation           112  u64 first_voters        120  entries; or a configuration and a snapshot's chunk
 *
 * An entry: u64 term, u32 bytes, u32 kind, its bytes. A configuration: u8 voters, u8 outgoing, u8 learners, u8 0, then
 * their ids, u32 each. Version 5, since which a node with a log has an incarnation, too. A decoder refuses what it does
 * not know; there is nothing optional. */
#ifndef CORELANE_APPS_RAFT_CORE_WIRE_H
#define CORELANE_APPS_RAFT_CORE_WIRE_H

#include "raft.h"

#define RAFT_ENTRY_HEADER 16
#define RAFT_WIRE_VERSION 5

// cffi: begin
#define CL_RAFT_HEADER_BYTES 120
#define CL_RAFT_MEMBERS_BYTES 196 /* the longest configuration: 4 + 3 lists of CL_RAFT_MAX_NODES */

/* What a decoder refused, by reason; decoded = those that were not. */
struct cl_raft_wire_counters {
    uint64_t decoded, cut_short, bad_magic, bad_version, bad_crc, bad_field, other_cluster;
};

/* Bytes that cl_raft_encode will write. */
CL_API uint32_t cl_raft_encoded_bytes(const struct cl_raft_msg *msg);
/* Encode a message that cl_raft_poll_message gave, before anything else goes into `raft`: its entries are read from the
 * log. A snapshot's chunk is msg->data. Returns the bytes written, or -EMSGSIZE. */
CL_API int64_t cl_raft_encode(const struct cl_raft *raft, const struct cl_raft_msg *msg, uint8_t *out, uint64_t room);
/* Check and decode; msg->data points into `in`. 0, or -EINVAL, counted. */
CL_API int cl_raft_decode(uint64_t cluster, const uint8_t *in, uint64_t len, struct cl_raft_msg *msg,
                          struct cl_raft_wire_counters *counters);

/* A configuration as bytes: how many of CL_RAFT_MEMBERS_BYTES were written. */
CL_API int cl_raft_members_encode(const struct cl_raft_members *members, uint8_t *out);
/* Bytes read, or -EINVAL: cut short, or not a valid configuration. */
CL_API int cl_raft_members_decode(const uint8_t *in, uint64_t len, struct cl_raft_members *out);
// cffi: end

/* The next encoded entry of [*p, end); *p moves on. 0, or -EINVAL. */
int raft_entry_next(const uint8_t **p, const uint8_t *end, struct cl_raft_entry *out);

#endif

/* See wire.h. */
#include "internal.h"
#include "bytes.h"
#include "../../../libos/storage/crc32c.h"
#include <errno.h>
#include <string.h>

#define MAGIC 0x46524c43u /* "CLRF" */

static uint8_t *put_ids(uint8_t *p, const uint32_t *ids, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++, p += 4)
        put32(p, ids[i]);
    return p;
}

int cl_raft_members_encode(const struct cl_raft_members *m, uint8_t *out)
{
    out[0] = (uint8_t)m->n_voters;
    out[1] = (uint8_t)m->n_outgoing;
    out[2] = (uint8_t)m->n_learners;
    out[3] = 0;
    uint8_t *p = put_ids(out + 4, m->voters, m->n_voters);
    p = put_ids(p, m->outgoing, m->n_outgoing);
    return (int)(put_ids(p, m->learners, m->n_learners) - out);
}

static const uint8_t *get_ids(const uint8_t *p, uint32_t *ids, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++, p += 4)
        ids[i] = get32(p);
    return p;
}

int cl_raft_members_decode(const uint8_t *in, uint64_t len, struct cl_raft_members *out)
{
    memset(out, 0, sizeof(*out));
    if (len < 4 || in[0] > CL_RAFT_MAX_NODES || in[1] > CL_RAFT_MAX_NODES || in[2] > CL_RAFT_MAX_NODES || in[3] ||
        len < 4 + 4ull * (in[0] + in[1] + in[2]))
        return -EINVAL;
    out->n_voters = in[0];
    out->n_outgoing = in[1];
    out->n_learners = in[2];
    const uint8_t *p = get_ids(in + 4, out->voters, out->n_voters);
    p = get_ids(p, out->outgoing, out->n_outgoing);
    p = get_ids(p, out->learners, out->n_learners);
    return raft_members_valid(out) ? (int)(p - in) : -EINVAL;
}

int raft_entry_next(const uint8_t **p, const uint8_t *end, struct cl_raft_entry *out)
{
    if (end - *p < RAFT_ENTRY_HEADER)
        return -EINVAL;
    out->term = get64(*p);
    out->bytes = get32(*p + 8);
    out->kind = get32(*p + 12);
    *p += RAFT_ENTRY_HEADER;
    if (!out->term || out->kind > CL_RAFT_MEMBERS || out->bytes > (uint64_t)(end - *p))
        return -EINVAL;
    out->data = *p;
    *p += out->bytes;
    return 0;
}

static uint32_t members_bytes(const struct cl_raft_msg *m)
{
    return 4 + 4 * (m->members.n_voters + m->members.n_outgoing + m->members.n_learners);
}

uint32_t cl_raft_encoded_bytes(const struct cl_raft_msg *m)
{
    uint32_t before = m->type == CL_RAFT_SNAPSHOT ? members_bytes(m) : 0;
    return CL_RAFT_HEADER_BYTES + before + m->data_bytes;
}

static void put_header(const struct cl_raft *r, const struct cl_raft_msg *m, uint8_t *out, uint32_t bytes)
{
    uint64_t a = m->type == CL_RAFT_SNAPSHOT || m->type == CL_RAFT_SNAPSHOT_REPLY ? m->offset : m->hint;
    if (m->type == CL_RAFT_READ || m->type == CL_RAFT_READ_REPLY)
        a = m->context;
    put32(out, MAGIC);
    out[4] = RAFT_WIRE_VERSION;
    out[5] = m->type;
    out[6] = m->flags;
    out[7] = 0;
    put32(out + 8, 0);
    put32(out + 12, bytes);
    put64(out + 16, r->config.cluster);
    put32(out + 24, m->from);
    put32(out + 28, m->to);
    put64(out + 32, m->term);
    put64(out + 40, m->index);
    put64(out + 48, m->log_term);
    put64(out + 56, m->commit);
    put64(out + 64, m->round);
    put64(out + 72, a);
    put64(out + 80, m->type == CL_RAFT_SNAPSHOT ? m->total : m->received);
    put32(out + 88, m->n_entries);
    put32(out + 92, m->data_bytes);
    put64(out + 96, r->config.group_settings);
    put64(out + 104, r->config.incarnation);
    put64(out + 112, r->config.first_voters);
}

void cl_raft_set_first_voters(struct cl_raft *r, uint64_t digest)
{
    r->config.first_voters = digest;
}

static void put_entries(const struct cl_raft *r, const struct cl_raft_msg *m, uint8_t *p)
{
    for (uint64_t i = m->index + 1; i <= m->index + m->n_entries; i++) {
        const struct raft_slot *slot = raft_slot(&r->log, i);
        put64(p, slot->term);
        put32(p + 8, slot->bytes);
        put32(p + 12, slot->kind);
        memcpy(p + RAFT_ENTRY_HEADER, r->log.bytes + (slot->at & r->log.byte_mask), slot->bytes);
        p += RAFT_ENTRY_HEADER + slot->bytes;
    }
}

int64_t cl_raft_encode(const struct cl_raft *r, const struct cl_raft_msg *m, uint8_t *out, uint64_t room)
{
    uint32_t bytes = cl_raft_encoded_bytes(m);
    if (bytes > room)
        return -EMSGSIZE;
    put_header(r, m, out, bytes);
    uint8_t *p = out + CL_RAFT_HEADER_BYTES;
    if (m->type == CL_RAFT_APPEND) {
        put_entries(r, m, p);
    } else if (m->type == CL_RAFT_SNAPSHOT) {
        p += cl_raft_members_encode(&m->members, p);
        if (m->data_bytes)
            memcpy(p, m->data, m->data_bytes);
    }
    put32(out + 8, cl_crc32c(0, out, bytes));
    return bytes;
}

static bool crc_good(const uint8_t *in, uint64_t len)
{
    static const uint8_t zeros[4];
    uint32_t crc = cl_crc32c(0, in, 8);
    crc = cl_crc32c(crc, zeros, 4);
    return cl_crc32c(crc, in + 12, len - 12) == get32(in + 8);
}

static void get_header(const uint8_t *in, struct cl_raft_msg *m)
{
    memset(m, 0, sizeof(*m));
    m->type = in[5];
    m->flags = in[6];
    m->from = get32(in + 24);
    m->to = get32(in + 28);
    m->term = get64(in + 32);
    m->index = get64(in + 40);
    m->log_term = get64(in + 48);
    m->commit = get64(in + 56);
    m->round = get64(in + 64);
    m->hint = m->offset = m->context = get64(in + 72);
    m->received = m->total = get64(in + 80);
    m->n_entries = get32(in + 88);
    m->data_bytes = get32(in + 92);
    m->group_settings = get64(in + 96);
    m->incarnation = get64(in + 104);
    m->first_voters = get64(in + 112);
}

/* What follows the header is what the header says, to the byte. */
static bool payload_good(const uint8_t *in, uint64_t len, struct cl_raft_msg *m)
{
    const uint8_t *p = in + CL_RAFT_HEADER_BYTES, *end = in + len;
    if (m->type == CL_RAFT_SNAPSHOT) {
        int n = cl_raft_members_decode(p, (uint64_t)(end - p), &m->members);
        if (n < 0)
            return false;
        p += n;
    }
    m->data = p;
    if ((uint64_t)(end - p) != m->data_bytes)
        return false;
    if (m->type != CL_RAFT_APPEND)
        return !m->n_entries && (m->type == CL_RAFT_SNAPSHOT || !m->data_bytes);
    struct cl_raft_entry e;
    for (uint32_t i = 0; i < m->n_entries; i++)
        if (raft_entry_next(&p, end, &e))
            return false;
    return p == end;
}

int cl_raft_decode(uint64_t cluster, const uint8_t *in, uint64_t len, struct cl_raft_msg *m,
                   struct cl_raft_wire_counters *counters)
{
    uint64_t *why = NULL;
    if (len < CL_RAFT_HEADER_BYTES || len != get32(in + 12))
        why = len >= 4 && get32(in) != MAGIC ? &counters->bad_magic : &counters->cut_short;
    else if (get32(in) != MAGIC)
        why = &counters->bad_magic;
    else if (in[4] != RAFT_WIRE_VERSION)
        why = &counters->bad_version;
    else if (!crc_good(in, len))
        why = &counters->bad_crc;
    else if (get64(in + 16) != cluster)
        why = &counters->other_cluster;
    if (!why) {
        get_header(in, m);
        bool type = m->type && m->type < CL_RAFT_TYPES && m->flags <= 15 && !in[7];
        why = type && payload_good(in, len, m) ? &counters->decoded : &counters->bad_field;
    }
    cl_count(why, 1);
    return why == &counters->decoded ? 0 : -EINVAL;
}

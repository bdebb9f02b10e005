/* See trace.h. The reader: bounded, and it believes nothing. */
#include "trace.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static bool possible(uint32_t n_rings, uint32_t ring_records)
{
    return n_rings >= 1 && n_rings <= CL_TRACE_MAX_RINGS && ring_records >= CL_TRACE_MIN_RECORDS &&
           ring_records <= CL_TRACE_MAX_RECORDS && (ring_records & (ring_records - 1)) == 0;
}

int64_t cl_trace_bytes(uint32_t n_rings, uint32_t ring_records)
{
    if (!possible(n_rings, ring_records))
        return -EINVAL;
    return (int64_t)cl_trace_ring_offset(ring_records, n_rings);
}

int cl_trace_check(const void *base, uint64_t bytes, char err[256])
{
    struct cl_trace_header h;
    if (bytes < sizeof h) {
        snprintf(err, 256, "it has %llu bytes, which is no trace segment", (unsigned long long)bytes);
        return -EPROTO;
    }
    memcpy(&h, base, sizeof h); /* once: what was checked is what counts */
    if (h.magic != CL_TRACE_MAGIC) {
        snprintf(err, 256, "it is no trace segment");
        return -EPROTO;
    }
    if (h.version != CL_TRACE_VERSION) {
        snprintf(err, 256, "its version is %u, this program reads %u: use the same corelane for both", h.version,
                 CL_TRACE_VERSION);
        return -EPROTO;
    }
    int64_t need = cl_trace_bytes(h.n_rings, h.ring_records);
    if (need < 0 || (uint64_t)need > bytes || h.total_bytes != (uint64_t)need || h.hz < 1000000 ||
        h.hz > 32000000000ull || h.base_tsc >= CL_TRACE_STAMP_MOST || h.base_ns < 0 ||
        h.base_ns >= CL_TRACE_STAMP_MOST) {
        snprintf(err, 256, "its header cannot be: %u rings of %u records in %llu bytes", h.n_rings, h.ring_records,
                 (unsigned long long)bytes);
        return -EPROTO;
    }
    return 0;
}

static bool message_valid(const struct cl_trace_message *m)
{
    return m->service < CL_TRACE_SERVICES && m->id && m->begin < CL_TRACE_STAMP_MOST && m->pickup <= m->start &&
           m->start <= m->end && m->end <= m->sent && m->blocked <= m->end - m->start &&
           m->ready <= m->end - m->start - m->blocked && m->shared;
}

/* What was not reached is UINT32_MAX, which is behind all. */
static bool command_valid(const struct cl_trace_command *c)
{
    return c->id && c->begin < CL_TRACE_STAMP_MOST && c->gone <= c->sent && c->gone <= c->flush &&
           c->flush <= c->written && c->written <= c->durable && c->gone <= c->others && c->gone <= c->agreed &&
           !(c->flags & ~(CL_TRACE_COMMAND_READ | CL_TRACE_COMMAND_FORWARDED));
}

bool cl_trace_valid(const void *record)
{
    union {
        struct cl_trace_message message;
        struct cl_trace_wait wait;
        struct cl_trace_core core;
        struct cl_trace_gap gap;
        struct cl_trace_command command;
        struct cl_trace_sample sample;
        struct cl_trace_burst burst;
    } r;
    memcpy(&r, record, sizeof r);
    if (r.message.kthread >= CL_TRACE_MAX_RINGS)
        return false;
    switch (r.message.kind) {
    case CL_TRACE_MESSAGE:
        return message_valid(&r.message);
    case CL_TRACE_WAIT:
        return r.wait.what < CL_TRACE_WAITS && r.wait.n && r.wait.begin < CL_TRACE_STAMP_MOST &&
               r.wait.first <= r.wait.blocked && r.wait.second <= r.wait.blocked - r.wait.first;
    case CL_TRACE_CORE:
        return r.core.begin <= r.core.end && r.core.end < CL_TRACE_STAMP_MOST && r.core.n;
    case CL_TRACE_GAP:
        return r.gap.begin <= r.gap.end && r.gap.end < CL_TRACE_STAMP_MOST && r.gap.gone <= r.gap.end - r.gap.begin &&
               r.gap.n && r.gap.waited <= r.gap.gone && r.gap.how >= CL_TRACE_GAP_STAMPS &&
               r.gap.how <= CL_TRACE_GAP_COLLECTS;
    case CL_TRACE_COMMAND:
        return command_valid(&r.command);
    case CL_TRACE_SAMPLE:
        return r.sample.n >= 1 && r.sample.n <= CL_TRACE_CHAIN && r.sample.stands &&
               r.sample.begin < CL_TRACE_STAMP_MOST;
    case CL_TRACE_BURST:
        return r.burst.begin < CL_TRACE_STAMP_MOST && r.burst.taken <= r.burst.given;
    default:
        return false;
    }
}

int cl_trace_ask_samples(int32_t pid, int32_t signal, uint32_t hz, uint32_t ms)
{
    union sigval value = {.sival_int = (int)(hz | ms << CL_TRACE_ASK_MS_SHIFT)};
    if (pid <= 0 || signal <= 0 || hz < 1 || hz > CL_TRACE_ASK_HZ || ms < 1 || ms > CL_TRACE_ASK_MS_MOST)
        return -EINVAL;
    return sigqueue(pid, signal, value) ? -errno : 0;
}

static void copy(const struct cl_trace_ring *ring, uint32_t ring_records, uint64_t number, uint64_t *to)
{
    const uint64_t *from = cl_trace_slot((struct cl_trace_ring *)(uintptr_t)ring, ring_records, number);
    for (unsigned i = 0; i < CL_TRACE_WORDS; i++)
        to[i] = cl_load_relaxed(&from[i]); /* relaxed: the head that is read behind the fence says whether they count */
}

/* The first record that is surely whole, of a ring whose head is this one. */
static uint64_t oldest_of(uint64_t head, uint32_t ring_records)
{
    return head + CL_TRACE_AHEAD > ring_records ? head + CL_TRACE_AHEAD - ring_records : 0;
}

/* The header is read again, and bounded again: it may be another by now. */
static bool find_ring(const void *base, uint64_t bytes, uint32_t index, struct cl_trace_ring **ring, uint32_t *records)
{
    const struct cl_trace_header *h = base;
    uint32_t n = cl_load_relaxed(&h->n_rings);
    *records = cl_load_relaxed(&h->ring_records);
    if (!possible(n, *records) || index >= n || cl_trace_ring_offset(*records, n) > bytes)
        return false;
    *ring = cl_trace_ring_of(base, *records, index);
    return true;
}

/* One of a group, and how long it ran. False: the records behind its first are others. */
static bool member_of(const struct cl_trace_group *g, const uint64_t *line, uint32_t n_lines, uint32_t i,
                      struct cl_trace_member *member, uint32_t *ran)
{
    struct cl_trace_more more;
    uint32_t of = (i + CL_TRACE_MORE_EACH - 1) / CL_TRACE_MORE_EACH;
    *member = g->first;
    *ran = g->ran;
    if (i == 0)
        return true;
    if (of >= n_lines)
        return false;
    memcpy(&more, line + (size_t)of * CL_TRACE_WORDS, sizeof more);
    *member = more.of[(i - 1) % CL_TRACE_MORE_EACH];
    *ran = g->in_row ? more.ran[(i - 1) % CL_TRACE_MORE_EACH] : g->ran;
    return more.kind == CL_TRACE_MORE;
}

/* The messages of a group, n_lines records from `line` on, into out. Returns how many; 0: it is none. */
static uint32_t messages_of(const uint64_t *line, uint32_t n_lines, void *out)
{
    struct cl_trace_group g;
    memcpy(&g, line, sizeof g);
    uint64_t start = g.start;
    for (uint32_t i = 0; i < g.n; i++) {
        bool counts = i + 1 == (g.in_row ? g.n : 1);
        struct cl_trace_member m;
        uint32_t ran;
        if (!member_of(&g, line, n_lines, i, &m, &ran))
            return 0;
        uint64_t begin = start - m.start, end = (uint64_t)m.start + ran, sent = end;
        uint32_t flags = m.flags | CL_TRACE_DRAWN | (g.in_row ? 0 : CL_TRACE_SHARED);
        if ((m.flags & CL_TRACE_ANSWERED) && g.sent > begin)
            sent = cl_max(end, cl_min(g.sent - begin, (uint64_t)UINT32_MAX));
        else if ((m.flags & CL_TRACE_ANSWERED) && !g.sent)
            flags |= CL_TRACE_UNSENT;
        struct cl_trace_message made = {.kind = CL_TRACE_MESSAGE,
                                        .kthread = g.kthread,
                                        .service = m.service,
                                        .flags = flags,
                                        .id = g.id + i,
                                        .begin = begin,
                                        .pickup = m.start - m.picked,
                                        .start = m.start,
                                        .end = (uint32_t)end,
                                        .sent = (uint32_t)sent,
                                        .flow = m.flow,
                                        .bytes = m.bytes,
                                        .shared = g.in_row ? 1 : g.n,
                                        .faults = counts ? g.faults : 0,
                                        .switches = counts ? g.switches : 0};
        if (sent > UINT32_MAX || !cl_trace_valid(&made))
            return 0;
        memcpy((uint8_t *)out + (size_t)i * CL_TRACE_RECORD, &made, sizeof made);
        start += g.in_row ? ran : 0;
    }
    return g.n;
}

/* Records that a group has, which begins there; 1: none does. */
static uint32_t lines_of(const uint64_t *line)
{
    struct cl_trace_group g;
    memcpy(&g, line, sizeof g);
    bool is_group = g.kind == CL_TRACE_GROUP && g.n >= 2 && g.n <= CL_TRACE_GROUP_MOST;
    return is_group ? 1 + (g.n - 1u + CL_TRACE_MORE_EACH - 1) / CL_TRACE_MORE_EACH : 1;
}

#define AT_ONCE 64 /* records that are copied; more than a group has */

/* What a reader of a ring is at. out: room for n, of which there are `kept`. */
struct reading {
    uint64_t next, lost, garbage;
    uint64_t *out;
    uint32_t kept, n;
};

/* Take the next record, or a whole group, of n that were copied. is_all: there are none behind these. Returns how many;
 * 0: they do not fit, or others of the group are behind these. */
static uint32_t take(struct reading *r, const uint64_t *line, uint32_t n, bool is_all, uint64_t oldest)
{
    uint32_t lines = lines_of(line), messages = lines > 1 ? (uint16_t)(line[0] >> 16) : 1;
    uint8_t kind = (uint8_t)line[0];
    uint64_t *to = r->out + (size_t)r->kept * CL_TRACE_WORDS;
    if (r->next < oldest || kind == CL_TRACE_MORE) { /* that is of a group that began before */
        r->lost++;
        return 1;
    }
    if ((lines > n && !is_all) || (r->kept && r->kept + messages > r->n))
        return 0;
    if (lines > n || messages > r->n) {
        r->garbage++;
        return 1;
    }
    uint32_t made = lines > 1 ? messages_of(line, lines, to) : cl_trace_valid(line);
    if (!made) {
        r->garbage++;
        return 1;
    }
    if (lines == 1)
        memcpy(to, line, CL_TRACE_RECORD);
    r->kept += made;
    return lines;
}

/* Copy some, and take them. Whether there may be more. */
static bool read_some(struct reading *r, struct cl_trace_ring *ring, uint32_t records, uint64_t until)
{
    uint64_t lines[AT_ONCE][CL_TRACE_WORDS];
    uint32_t n = (uint32_t)cl_min((uint64_t)AT_ONCE, until - r->next), i = 0, taken = 1;
    for (uint32_t k = 0; k < n; k++)
        copy(ring, records, r->next + k, lines[k]);
    __atomic_thread_fence(__ATOMIC_ACQUIRE); /* pairs with the writer's fence: see trace.h */
    uint64_t oldest = oldest_of(cl_load_relaxed(&ring->head), records);
    bool is_all = r->next + n == until;
    for (; i < n && taken && r->kept < r->n; i += taken, r->next += taken)
        taken = take(r, lines[i], n - i, is_all, oldest);
    return i && r->next < until && r->kept < r->n;
}

uint32_t cl_trace_read(const void *base, uint64_t bytes, uint32_t index, uint64_t *next, void *out, uint32_t n,
                       uint64_t *lost, uint64_t *garbage)
{
    struct cl_trace_ring *ring;
    uint32_t records;
    if (!find_ring(base, bytes, index, &ring, &records))
        return 0;
    uint64_t head = cl_load_acquire(&ring->head); /* acquire: the records below it */
    uint64_t oldest = oldest_of(head, records);
    struct reading r = {.next = cl_min(*next, head), .out = out, .n = n}; /* above it: a lie, or another writer's */
    if (r.next < oldest) {
        r.lost = oldest - r.next;
        r.next = oldest;
    }
    while (read_some(&r, ring, records, head))
        ;
    *next = r.next;
    *lost += r.lost;
    *garbage += r.garbage;
    return r.kept;
}

void cl_trace_counts(const void *base, uint64_t bytes, uint32_t index, uint64_t *written, uint64_t *overwritten)
{
    struct cl_trace_ring *ring;
    uint32_t records;
    *written = *overwritten = 0;
    if (!find_ring(base, bytes, index, &ring, &records))
        return;
    *written = cl_load_relaxed(&ring->head); /* relaxed: a count */
    *overwritten = *written > records ? *written - records : 0;
}

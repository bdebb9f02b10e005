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
        h.hz > 32000000000ull) {
        snprintf(err, 256, "its header cannot be: %u rings of %u records in %llu bytes", h.n_rings, h.ring_records,
                 (unsigned long long)bytes);
        return -EPROTO;
    }
    return 0;
}

static bool message_valid(const struct cl_trace_message *m)
{
    return m->service < CL_TRACE_SERVICES && m->id && m->pickup <= m->start && m->start <= m->end &&
           m->end <= m->sent && m->blocked <= m->end - m->start && m->ready <= m->end - m->start - m->blocked &&
           m->shared;
}

/* What was not reached is UINT32_MAX, which is behind all. */
static bool command_valid(const struct cl_trace_command *c)
{
    return c->id && c->gone <= c->sent && c->gone <= c->flush && c->flush <= c->written && c->written <= c->durable &&
           c->gone <= c->others && c->gone <= c->agreed &&
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
    } r;
    memcpy(&r, record, sizeof r);
    if (r.message.kthread >= CL_TRACE_MAX_RINGS)
        return false;
    switch (r.message.kind) {
    case CL_TRACE_MESSAGE:
        return message_valid(&r.message);
    case CL_TRACE_WAIT:
        return r.wait.what < CL_TRACE_WAITS && r.wait.n && r.wait.first <= r.wait.blocked &&
               r.wait.second <= r.wait.blocked - r.wait.first;
    case CL_TRACE_CORE:
        return r.core.begin <= r.core.end && r.core.n;
    case CL_TRACE_GAP:
        return r.gap.begin <= r.gap.end && r.gap.gone <= r.gap.end - r.gap.begin && r.gap.n &&
               r.gap.waited <= r.gap.gone && r.gap.how >= CL_TRACE_GAP_STAMPS && r.gap.how <= CL_TRACE_GAP_COLLECTS;
    case CL_TRACE_COMMAND:
        return command_valid(&r.command);
    case CL_TRACE_SAMPLE:
        return r.sample.n >= 1 && r.sample.n <= CL_TRACE_CHAIN && r.sample.stands;
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

uint32_t cl_trace_read(const void *base, uint64_t bytes, uint32_t index, uint64_t *next, void *out, uint32_t n,
                       uint64_t *lost, uint64_t *garbage)
{
    struct cl_trace_ring *ring;
    uint32_t records, kept = 0;
    if (!find_ring(base, bytes, index, &ring, &records))
        return 0;
    uint64_t head = cl_load_acquire(&ring->head); /* acquire: the records below it */
    uint64_t oldest = oldest_of(head, records);
    if (*next > head) /* a lie, or another writer's segment: begin anew */
        *next = head;
    if (*next < oldest) {
        *lost += oldest - *next;
        *next = oldest;
    }
    n = (uint32_t)cl_min((uint64_t)n, head - *next);
    uint64_t *to = out;
    for (uint32_t i = 0; i < n; i++)
        copy(ring, records, *next + i, to + (size_t)i * CL_TRACE_WORDS);
    __atomic_thread_fence(__ATOMIC_ACQUIRE); /* pairs with the writer's fence: see trace.h */
    oldest = oldest_of(cl_load_relaxed(&ring->head), records);
    for (uint32_t i = 0; i < n; i++) {
        uint64_t *record = to + (size_t)i * CL_TRACE_WORDS;
        if (*next + i < oldest)
            *lost += 1;
        else if (!cl_trace_valid(record))
            *garbage += 1;
        else
            memmove(to + (size_t)kept++ * CL_TRACE_WORDS, record, CL_TRACE_RECORD);
    }
    *next += n;
    return kept;
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

/* The readable trace of a run, kept only when asked for, and the digest that tells whether two runs were the same. */
#include "world.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEEP_BYTES (1u << 20) /* of the trace: its end is what one reads */

void sim_note(struct sim_world *w, uint64_t word)
{
    w->hash = (w->hash ^ word) * 0x9e3779b97f4a7c15ull;
    w->hash ^= w->hash >> 32;
}

static bool make_room(struct sim_world *w)
{
    if (!w->text) {
        w->text_room = 2 * KEEP_BYTES;
        w->text = malloc(w->text_room);
        if (!w->text)
            return false;
    }
    if (w->text_room - w->text_bytes < 512) {
        char *keep = w->text + w->text_bytes - KEEP_BYTES;
        char *line = memchr(keep, '\n', KEEP_BYTES);
        keep = line ? line + 1 : keep;
        w->text_bytes -= (uint64_t)(keep - w->text);
        memmove(w->text, keep, w->text_bytes);
    }
    return true;
}

void sim_say(struct sim_world *w, const char *format, ...)
{
    if (!w->options.trace || !make_room(w))
        return;
    char *at = w->text + w->text_bytes;
    int n = snprintf(at, 32, "%10.3f ms  ", (double)w->queue.now_ns / 1e6);
    va_list args;
    va_start(args, format);
    int m = vsnprintf(at + n, 440, format, args);
    va_end(args);
    n += m < 440 ? m : 439;
    at[n++] = '\n';
    at[n] = 0;
    w->text_bytes += (uint64_t)n;
}

static const char *const names[CL_RAFT_TYPES] = {
    "?",        "PREVOTE",        "PREVOTE_REPLY", "VOTE", "VOTE_REPLY", "APPEND", "APPEND_REPLY",
    "SNAPSHOT", "SNAPSHOT_REPLY", "TIMEOUT_NOW",   "READ", "READ_REPLY",
};

void sim_trace_message(struct sim_world *w, uint32_t at, const struct cl_raft_msg *m)
{
    sim_note(w, m->type | (uint64_t)m->flags << 8 | (uint64_t)m->from << 16 | (uint64_t)m->n_entries << 32);
    sim_note(w, m->term ^ m->index << 20 ^ m->commit << 40);
    if (!w->options.trace)
        return;
    const char *no = m->flags & CL_RAFT_REJECT ? " NO" : "", *name = m->type < CL_RAFT_TYPES ? names[m->type] : "?";
    if (m->type == CL_RAFT_APPEND)
        sim_say(w, "#%u <- #%u %s term %lu after %lu/%lu commit %lu entries %u round %lu", at, m->from, name, m->term,
                m->index, m->log_term, m->commit, m->n_entries, m->round);
    else if (m->type == CL_RAFT_APPEND_REPLY)
        sim_say(w, "#%u <- #%u %s%s term %lu durable %lu received %lu hint %lu/%lu round %lu", at, m->from, name, no,
                m->term, m->index, m->received, m->hint, m->log_term, m->round);
    else if (m->type == CL_RAFT_SNAPSHOT || m->type == CL_RAFT_SNAPSHOT_REPLY)
        sim_say(w, "#%u <- #%u %s%s term %lu index %lu/%lu offset %lu of %lu", at, m->from, name, no, m->term, m->index,
                m->log_term, m->offset, m->total);
    else
        sim_say(w, "#%u <- #%u %s%s term %lu index %lu/%lu%s", at, m->from, name, no, m->term, m->index, m->log_term,
                m->flags & CL_RAFT_FORCE ? " by order" : "");
}

/* Client sessions: which command of each client was applied last, and what it was answered (thesis 6.3).
 *
 * Part of the replicated state: changed only by applying the log, so every replica has the same. Kept in order of last
 * use, so what has expired, and what has to go for a new one, is at the front. */
#ifndef CORELANE_APPS_RAFT_NODE_SESSION_H
#define CORELANE_APPS_RAFT_NODE_SESSION_H

#include <corelane/runtime/base.h>

#define RAFT_NO_SESSION UINT32_MAX
#define RAFT_SESSIONS_MOST (1u << 24) /* their buckets, up to four times as many, are counted in 32 bits */

struct raft_session {
    uint64_t id, sequence, used_ms; /* id 0: free */
    uint32_t before, after;         /* by last use; `after` chains the free ones */
    uint32_t chain;                 /* of its hash bucket */
    uint32_t reply_bytes;
    uint8_t status; /* of the answer, CL_RAFT_OK... */
};

struct raft_sessions {
    struct raft_session *all;
    uint8_t *replies;  /* reply_room of each */
    uint32_t *buckets; /* first session of each hash, power of two */
    uint32_t mask, max, reply_room;
    uint32_t oldest, newest, unused, count;
};

/* -ENOMEM; -EINVAL: more than RAFT_SESSIONS_MOST. */
int raft_sessions_new(struct raft_sessions *s, uint32_t max, uint32_t reply_room);
void raft_sessions_free(struct raft_sessions *s);
/* RAFT_NO_SESSION: there is none. */
uint32_t raft_session_find(const struct raft_sessions *s, uint64_t id);
/* The one that was opened with this word (not 0) and has not been used yet, so that who asks again gets the same. */
uint32_t raft_session_opened(const struct raft_sessions *s, uint64_t word);
/* Make one, with a word that whoever asks chose, or 0; the one longest not used goes if there is no room (returns true
 * then). */
bool raft_session_open(struct raft_sessions *s, uint64_t id, uint64_t word, uint64_t now_ms);
void raft_session_close(struct raft_sessions *s, uint32_t i);
/* Remember an answer. */
void raft_session_used(struct raft_sessions *s, uint32_t i, uint64_t sequence, uint64_t now_ms, int status,
                       const uint8_t *reply, uint32_t bytes);
const uint8_t *raft_session_reply(const struct raft_sessions *s, uint32_t i, uint32_t *bytes);
/* End those not used since `before_ms`; how many. */
uint32_t raft_sessions_expire(struct raft_sessions *s, uint64_t before_ms);
/* The clock by which they were used was set from that time to this one: they are as old as before. */
void raft_sessions_shift(struct raft_sessions *s, uint64_t from_ms, uint64_t to_ms);
/* What the bytes of that many sessions are at most. */
uint64_t raft_sessions_most(uint32_t max, uint32_t reply_room);
/* As bytes; `out` NULL: only how many. */
uint64_t raft_sessions_save(const struct raft_sessions *s, uint8_t *out);
/* -EINVAL: not what save made, or more than fit. */
int raft_sessions_load(struct raft_sessions *s, const uint8_t *in, uint64_t bytes);

#endif

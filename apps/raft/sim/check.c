/* What must hold in a cluster, checked after every step for the node that took it.
 *
 *   election safety           at most one leader a term; at most one vote of a node a term, whatever it forgot in a
 *   crash leader append-only        a leader's log only grows while it leads
 *   log matching              entries of equal index and term are equal, and so are the entries before them
 *   leader completeness       a leader holds every entry committed in an earlier term
 *   state-machine safety      entries committed at an index are equal everywhere, and so are the machines after them
 *   nothing committed lost    no node drops an entry that it knows to be committed; the commit index never goes back
 *   durability                what is committed, and what an acknowledgement promises, is on stable storage where it
 *   must be
 *   membership                any majority of a configuration meets any of the one committed before it
 *
 * A node's check looks only at what changed since its last one, so that its cost does not grow with the log: the terms
 * of its entries are remembered, and a log that changed is compared from its end back to the first entry of equal term.
 * By log matching, which held before, all entries before that are unchanged; sim_check_end compares them all once at
 * the end. */
#include "../core/wire.h"
#include "world.h"
#include <string.h>

static uint64_t digest_of(const struct cl_raft_entry *e)
{
    uint64_t h = e->kind + 1, word = 0;
    uint32_t i = 0;
    for (; i + 8 <= e->bytes; i += 8) {
        memcpy(&word, e->data + i, 8);
        h = sim_mix(h + word + 0x9e3779b97f4a7c15ull);
    }
    word = 0;
    if (i < e->bytes)
        memcpy(&word, e->data + i, e->bytes - i);
    return sim_mix(h + word + e->bytes);
}

void sim_check_begin(struct sim_world *w)
{
    memset(w->leaders, 0, (w->terms_used + 1) * sizeof(*w->leaders));
    memset(w->votes, 0, (w->terms_used + 1) * sizeof(*w->votes));
    w->terms_used = 0;
    memset(w->machines, 0, (w->n_applied + 1) * sizeof(*w->machines));
    w->n_committed = w->n_applied = w->clock_ms = 0;
    w->n_seen = 0;
    w->run++;
    w->committed_members = w->swarm.config.members;
}

/* What a node has acknowledged must be there when it comes back. */
static void check_promise_kept(struct sim_world *w, struct sim_node *n, const struct cl_raft_status *s)
{
    if (!n->promised || n->promised <= s->snapshot_index || w->options.outcomes_only)
        return;
    if (n->promised > s->last || cl_raft_term_at(w->body->core(n), n->promised) != n->promised_term)
        sim_fail(w, "durability: #%u comes back without entry %lu of term %lu, which it had acknowledged", n->id,
                 n->promised, n->promised_term);
}

void sim_check_promise(struct sim_world *w, struct sim_node *n, uint64_t index)
{
    n->promised = index;
    n->promised_term = cl_raft_term_at(w->body->core(n), index);
}

void sim_check_start(struct sim_world *w, struct sim_node *n)
{
    struct cl_raft_status s;
    cl_raft_status(w->body->core(n), &s);
    uint32_t *terms = n->watch.terms;
    n->watch = (struct sim_watch){.term = s.term, .commit = s.commit, .role = s.role, .terms = terms};
    n->watch.last = s.snapshot_index;
    n->watch.applied = s.applied;
    for (uint64_t i = 1; i <= s.snapshot_index; i++)
        terms[i] = w->committed[i].term;
    check_promise_kept(w, n, &s);
    if (s.snapshot_index > w->n_committed)
        sim_fail(w, "#%u starts from a snapshot of %lu, and only %lu was ever committed", n->id, s.snapshot_index,
                 w->n_committed);
}

/* The entry of an index and a term, or the free slot where it belongs. */
static struct sim_seen *find(struct sim_world *w, uint32_t index, uint32_t term)
{
    uint64_t at = sim_mix((uint64_t)index << 32 | term);
    for (;; at++) {
        struct sim_seen *s = &w->seen[at & (SIM_SEEN - 1)];
        if (s->run != w->run || (s->index == index && s->term == term))
            return s;
    }
}

static bool in_bounds(struct sim_world *w, const struct cl_raft_status *s)
{
    if (s->last < SIM_ENTRIES && s->term < SIM_TERMS && w->n_seen < SIM_SEEN / 2)
        return true;
    w->stopped = true; /* a run that is too long for its tables ends here, judged so far; sums show it */
    w->result->cut_short++;
    return false;
}

/* An entry that is new in a node's log. */
static void check_entry(struct sim_world *w, struct sim_node *n, uint64_t index)
{
    struct cl_raft *core = w->body->core(n);
    struct cl_raft_entry e;
    if (cl_raft_entry(core, index, &e)) {
        sim_fail(w, "#%u does not hold entry %lu within its log", n->id, index);
        return;
    }
    uint32_t before = (uint32_t)cl_raft_term_at(core, index - 1);
    uint64_t digest = digest_of(&e);
    struct sim_seen *seen = find(w, (uint32_t)index, (uint32_t)e.term);
    if (seen->run != w->run) {
        *seen = (struct sim_seen){digest, (uint32_t)index, (uint32_t)e.term, before, w->run};
        w->n_seen++;
    } else if (seen->digest != digest || (before && seen->before && seen->before != before)) {
        sim_fail(w,
                 "log matching: #%u's entry %lu of term %lu is not the one that others have (term before: %u and %u)",
                 n->id, index, e.term, before, seen->before);
    }
    if (before && !seen->before)
        seen->before = before;
    n->watch.terms[index] = (uint32_t)e.term;
}

/* What changed in a node's log since its last check. */
static void check_log(struct sim_world *w, struct sim_node *n, const struct cl_raft_status *s)
{
    struct cl_raft *core = w->body->core(n);
    struct sim_watch *old = &n->watch;
    for (uint64_t i = old->commit + 1; i <= s->snapshot_index; i++) /* it came with a snapshot */
        old->terms[i] = w->committed[i].term;
    if (old->last < s->snapshot_index)
        old->last = s->snapshot_index;
    uint64_t low = s->snapshot_index + 1 > s->first ? s->snapshot_index + 1 : s->first, changed = s->last + 1;
    while (changed > low && (changed - 1 > old->last || old->terms[changed - 1] != cl_raft_term_at(core, changed - 1)))
        changed--;
    if (changed <= n->promised) {
        n->promised = changed - 1;
        n->promised_term = n->promised ? old->terms[n->promised] : 0;
    }
    if (changed <= old->last) {
        w->result->entries_truncated += old->last - changed + 1;
        if (changed <= old->commit)
            sim_fail(w, "#%u dropped entry %lu, which it knew to be committed", n->id, changed);
        if (old->role == CL_RAFT_LEADER && s->role == CL_RAFT_LEADER && old->term == s->term)
            sim_fail(w, "leader append-only: #%u dropped entry %lu while leading term %lu", n->id, changed, s->term);
    }
    for (uint64_t i = changed; i <= s->last && !w->stopped; i++)
        check_entry(w, n, i);
    old->last = s->last > s->snapshot_index ? s->last : s->snapshot_index;
}

static bool majority(const uint32_t *ids, uint32_t n, uint32_t mask)
{
    uint32_t have = 0;
    for (uint32_t i = 0; i < n; i++)
        have += mask >> ids[i] & 1;
    return have > n / 2;
}

bool sim_quorum(const struct cl_raft_members *m, uint32_t mask)
{
    return majority(m->voters, m->n_voters, mask) && (!m->n_outgoing || majority(m->outgoing, m->n_outgoing, mask));
}

/* Any quorum of one and any of the other have a node in common: no set is a quorum of one while the rest is of the
 * other. */
static bool overlap(const struct cl_raft_members *a, const struct cl_raft_members *b, uint32_t nodes)
{
    uint32_t all = (2u << nodes) - 2;
    for (uint32_t set = 0; set <= all; set += 2)
        if (sim_quorum(a, set) && sim_quorum(b, all & ~set))
            return false;
    return true;
}

static void check_members(struct sim_world *w, struct sim_node *n, uint64_t index)
{
    struct cl_raft_entry e;
    struct cl_raft_members m;
    if (cl_raft_entry(w->body->core(n), index, &e) || e.kind != CL_RAFT_MEMBERS)
        return;
    if (cl_raft_members_decode(e.data, e.bytes, &m) < 0) {
        sim_fail(w, "#%u committed a configuration at %lu that cannot be read", n->id, index);
        return;
    }
    if (!overlap(&w->committed_members, &m, w->n_nodes))
        sim_fail(w, "membership: the configuration of entry %lu has majorities that miss those of the one before",
                 index);
    w->committed_members = m;
    w->result->member_changes++;
}

/* Entry `index`, newly committed, must be durable at a majority. */
static void check_durable(struct sim_world *w, struct sim_node *n, const struct cl_raft_status *s, uint64_t index)
{
    if (!w->body->holds || s->role != CL_RAFT_LEADER || w->options.outcomes_only)
        return;
    uint32_t mask = 0;
    for (uint32_t i = 0; i < w->n_nodes; i++)
        if (w->body->holds(&w->nodes[i], index, n->watch.terms[index]))
            mask |= 1u << w->nodes[i].id;
    if (!sim_quorum(&s->members, mask))
        sim_fail(w, "durability: #%u committed entry %lu, which is not on stable storage at a majority (nodes 0x%x)",
                 n->id, index, mask);
}

/* A leader of term `term` must hold what was committed in earlier terms. */
static void check_complete(struct sim_world *w, struct sim_node *n, const struct cl_raft_status *s)
{
    uint64_t i = w->n_committed;
    while (i && w->committed[i].by_term >= s->term)
        i--;
    if (i > n->watch.last || (i && n->watch.terms[i] != w->committed[i].term))
        sim_fail(w, "leader completeness: #%u leads term %lu without entry %lu, committed in term %u", n->id, s->term,
                 i, w->committed[i].by_term);
}

/* Another leader has committed: a lease that goes on by its leader's own clock, whether that runs now or not, is no
 * lease. */
static void check_lease(struct sim_world *w, struct sim_node *n, struct sim_node *old, const struct cl_raft_status *s,
                        uint64_t term)
{
    uint64_t local_ns = sim_local_ns(w, old), tick_ns = w->swarm.tick_ns;
    /* A node that wakes itself began to count at a time of its own: its next tick may be about to come. */
    uint64_t ticks = w->body->wakes_itself ? s->ticks + (local_ns - old->watch.tick_local_ns) / tick_ns + 1
                                           : (local_ns - old->started_local_ns) / tick_ns;
    if (!w->options.outcomes_only && s->term < term && ticks < s->lease_until_tick)
        sim_fail(w, "leases: #%u commits in term %lu while #%u may answer reads by its lease of term %lu", n->id, term,
                 old->id, s->term);
}

uint64_t sim_lease_reads(struct sim_world *w, struct sim_node *n)
{
    struct cl_raft_counters c;
    cl_raft_counters(w->body->core(n), &c);
    return c.reads_by_lease;
}

void sim_check_lease_reads(struct sim_world *w, struct sim_node *n, uint64_t before)
{
    uint64_t now = sim_lease_reads(w, n);
    w->result->reads_by_lease += now - before;
    if (now != before && w->n_committed && w->committed[w->n_committed].by_term > cl_raft_term(w->body->core(n)) &&
        !w->options.outcomes_only)
        sim_fail(w, "leases: #%u answers a read by its lease of term %lu, and term %u has committed", n->id,
                 cl_raft_term(w->body->core(n)), w->committed[w->n_committed].by_term);
}

static void check_commit(struct sim_world *w, struct sim_node *n, const struct cl_raft_status *s)
{
    uint64_t had = n->watch.commit, known = w->n_committed;
    if (s->commit < had)
        sim_fail(w, "#%u's commit index went back from %lu to %lu", n->id, had, s->commit);
    if (s->commit > n->watch.last)
        sim_fail(w, "#%u takes entry %lu for committed and holds only %lu", n->id, s->commit, n->watch.last);
    for (uint64_t i = had + 1; i <= s->commit && !w->stopped; i++) {
        uint32_t term = n->watch.terms[i];
        if (i <= w->n_committed) {
            if (w->committed[i].term != term)
                sim_fail(w, "state-machine safety: #%u committed entry %lu of term %u, others that of term %u", n->id,
                         i, term, w->committed[i].term);
            continue;
        }
        struct sim_seen *seen = find(w, (uint32_t)i, term);
        w->committed[i] = (struct sim_committed){seen->run == w->run ? seen->digest : 0, term, (uint32_t)s->term};
        w->n_committed = i;
        w->result->entries_committed++;
        check_members(w, n, i);
    }
    /* Raft's 5.4.2: entries of earlier terms are committed by one of the leader's own term, never by counting them. */
    if (s->commit > had && s->role == CL_RAFT_LEADER && n->watch.terms[s->commit] != s->term)
        sim_fail(w, "leader completeness: #%u commits entry %lu of term %u by itself while it leads term %lu", n->id,
                 s->commit, n->watch.terms[s->commit], s->term);
    if (w->n_committed > known && !w->stopped) {
        check_durable(w, n, s, w->n_committed);
        for (uint32_t i = 0; i < w->n_nodes; i++) {
            struct sim_node *other = &w->nodes[i];
            struct cl_raft_status theirs;
            if (!w->body->core(other) || other->watch.role != CL_RAFT_LEADER || other == n)
                continue;
            cl_raft_status(w->body->core(other), &theirs);
            if (theirs.role == CL_RAFT_LEADER)
                check_complete(w, other, &theirs);
            if (theirs.role == CL_RAFT_LEADER && s->role == CL_RAFT_LEADER)
                check_lease(w, n, other, &theirs, s->term);
        }
    }
    n->watch.commit = s->commit;
}

/* Who leads with writes under way and a disk that does nothing gives up in time, if others' disks get on: if more is
 * committed than is durable here, one of a majority that it hears from has more. */
static void check_disk(struct sim_world *w, struct sim_node *n, const struct cl_raft_status *s)
{
    struct sim_watch *old = &n->watch;
    const struct cl_raft_config *c = &w->swarm.config;
    uint32_t most = c->disk_ticks ? c->disk_ticks : 5 * c->election_ticks;
    bool waits = s->role == CL_RAFT_LEADER && s->durable < s->commit;
    if (!waits || !old->waits || s->durable != old->durable) {
        old->waits = waits;
        old->durable = s->durable;
        old->waited = 0;
    } else if (s->ticks != old->ticks && ++old->waited > most + 2 * c->election_ticks + 2) {
        sim_fail(w, "#%u leads term %lu and nothing became durable in its log for %u ticks", n->id, s->term,
                 old->waited);
    }
    old->ticks = s->ticks;
}

static void check_role(struct sim_world *w, struct sim_node *n, const struct cl_raft_status *s)
{
    if (s->term < n->watch.term)
        sim_fail(w, "#%u's term went back from %lu to %lu", n->id, n->watch.term, s->term);
    bool leads = s->role == CL_RAFT_LEADER;
    if (s->term > w->terms_used)
        w->terms_used = (uint32_t)s->term;
    if (leads && w->leaders[s->term] != n->id) {
        if (w->leaders[s->term])
            sim_fail(w, "election safety: #%u and #%u both lead term %lu", w->leaders[s->term], n->id, s->term);
        w->leaders[s->term] = n->id;
        w->result->elections++;
        sim_say(w, "#%u leads term %lu, log to %lu, commit %lu", n->id, s->term, s->last, s->commit);
        check_complete(w, n, s);
    }
    if (!leads && n->watch.role == CL_RAFT_LEADER) {
        struct cl_raft_counters c;
        cl_raft_counters(w->body->core(n), &c);
        w->result->yielded_leaders += c.disk_hung - n->watch.yielded;
        n->watch.yielded = c.disk_hung;
    }
    if (s->role != n->watch.role || s->term != n->watch.term)
        sim_note(w, s->role | s->term << 8);
    n->watch.role = s->role;
    n->watch.term = s->term;
    n->watch.leader = s->leader;
    n->watch.full =
        s->free_entries <= w->swarm.config.log_entries / 4 || s->free_bytes <= w->swarm.config.log_bytes / 4;
}

void sim_check_node(struct sim_world *w, struct sim_node *n)
{
    struct cl_raft_status s;
    cl_raft_status(w->body->core(n), &s);
    if (!in_bounds(w, &s))
        return;
    if (s.ticks != n->watch.ticks || !s.ticks) /* else it may be one that does not run, and was told something */
        n->watch.tick_local_ns = sim_local_ns(w, n);
    if (s.snapshot_index > w->n_committed) {
        sim_fail(w, "#%u has a snapshot of %lu, and only %lu was ever committed", n->id, s.snapshot_index,
                 w->n_committed);
        return;
    }
    check_log(w, n, &s);
    if (!w->stopped)
        check_commit(w, n, &s);
    if (!w->stopped)
        check_disk(w, n, &s);
    if (!w->stopped)
        check_role(w, n, &s);
}

void sim_check_vote(struct sim_world *w, uint32_t voter, uint32_t candidate, uint64_t term)
{
    if (term >= SIM_TERMS)
        return;
    if (term > w->terms_used)
        w->terms_used = (uint32_t)term;
    uint8_t *vote = &w->votes[term][voter - 1];
    if (*vote && *vote != candidate)
        sim_fail(w, "election safety: #%u voted for #%u and for #%u in term %lu", voter, *vote, candidate, term);
    *vote = (uint8_t)candidate;
}

void sim_check_applied(struct sim_world *w, struct sim_node *n, uint64_t index, uint64_t machine_digest)
{
    if (index >= SIM_ENTRIES)
        return;
    /* A leader may apply in the step in which it commits: the check of the step has yet to come. */
    uint64_t *known = &w->machines[index];
    if (index > w->n_applied) {
        w->n_applied = index;
        *known = machine_digest;
    } else if (*known != machine_digest) {
        sim_fail(w, "state-machine safety: #%u's state machine after entry %lu is not that of others", n->id, index);
    }
    if (index <= n->watch.applied)
        sim_fail(w, "#%u applied entry %lu after entry %lu", n->id, index, n->watch.applied);
    n->watch.applied = index;
}

/* It may run twice as fast as any node's own clock, which may run fast too, wherever wall clocks jump to. */
void sim_check_clock(struct sim_world *w, struct sim_node *n, uint64_t clock_ms)
{
    uint64_t most_ms = 2 * (w->queue.now_ns + w->queue.now_ns / 10) / SIM_MS;
    if (!w->clock_ms)
        w->clock_ms = clock_ms;
    else if (clock_ms > w->clock_ms + most_ms + 2)
        sim_fail(w, "#%u applies an entry by which the log's clock has gone on for %lu ms since the first one", n->id,
                 clock_ms - w->clock_ms);
}

void sim_check_end(struct sim_world *w)
{
    for (uint32_t k = 0; k < w->n_nodes && !w->stopped; k++) {
        struct sim_node *n = &w->nodes[k];
        struct cl_raft *core = w->body->core(n);
        struct cl_raft_status s;
        if (!core)
            continue;
        cl_raft_status(core, &s);
        for (uint64_t i = s.first; i <= s.commit && !w->stopped; i++) {
            struct cl_raft_entry e;
            if (cl_raft_entry(core, i, &e) || e.term != w->committed[i].term ||
                (w->committed[i].digest && digest_of(&e) != w->committed[i].digest))
                sim_fail(w, "at the end #%u's entry %lu is not the one that was committed", n->id, i);
        }
    }
}

static bool has_caught_up(struct sim_world *w, uint32_t id, uint64_t commit)
{
    struct sim_node *n = &w->nodes[id - 1];
    struct cl_raft_status s;
    if (n->lost)
        return true;
    if (!n->up || n->failed || !w->body->core(n))
        return false;
    cl_raft_status(w->body->core(n), &s);
    return s.commit == commit && s.applied == commit;
}

bool sim_at_rest(struct sim_world *w)
{
    struct sim_node *leader = sim_leader(w);
    struct cl_raft_status s;
    if (!leader)
        return false;
    cl_raft_status(w->body->core(leader), &s);
    if (s.commit != s.last || s.members.n_outgoing || s.transfer_to)
        return false;
    for (uint32_t i = 0; i < s.members.n_voters; i++)
        if (!has_caught_up(w, s.members.voters[i], s.commit))
            return false;
    for (uint32_t i = 0; i < s.members.n_learners; i++)
        if (!has_caught_up(w, s.members.learners[i], s.commit))
            return false;
    return true;
}

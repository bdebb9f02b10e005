/* Situations of the core that seeds seldom make, step by step. Usage: core_scenarios NAME, one of those at the end */
#include "../../c/scenarios.h"
#include "apps/raft/core/bytes.h"
#include "apps/raft/core/wire.h"

static void done_at_once(struct cl_raft *raft)
{
    struct cl_raft_ready ready;
    struct cl_raft_entry e;
    while (cl_raft_ready(raft, &ready)) {
        if (ready.first && !cl_raft_entry(raft, ready.last, &e))
            cl_raft_persisted(raft, e.index, e.term, e.generation);
        if (ready.hard)
            cl_raft_hard_persisted(raft, ready.hard_seq);
    }
}

/* Entries 1 and 2 came from a leader that nobody else followed. The next one has the first of them, and committed
 * another second. */
static void commit(void)
{
    struct cl_raft_config config = {.id = 1, .log_entries = 64, .log_bytes = 32768, .entry_bytes = 1024};
    struct cl_raft *raft = NULL;
    struct cl_raft_status s;
    uint8_t entries[2][16] = {0};
    config.members = (struct cl_raft_members){.n_voters = 3, .voters = {1, 2, 3}};
    CHECK(!cl_raft_new(&config, &raft, err), "%s\n", err);
    for (int i = 0; i < 2; i++)
        put64(entries[i], 1); /* of term 1, empty */
    struct cl_raft_msg old = {.type = CL_RAFT_APPEND, .from = 2, .to = 1, .term = 1};
    old.data = entries[0];
    old.n_entries = 2;
    old.data_bytes = sizeof(entries);
    CHECK(!cl_raft_step(raft, &old), "an append of two entries is refused\n");
    done_at_once(raft);
    struct cl_raft_msg heartbeat = {
        .type = CL_RAFT_APPEND, .from = 3, .to = 1, .term = 2, .index = 1, .log_term = 1, .commit = 2};
    CHECK(!cl_raft_step(raft, &heartbeat), "a heartbeat is refused\n");
    done_at_once(raft);
    cl_raft_status(raft, &s);
    CHECK(s.last == 2 && s.commit == 1, "commits up to %lu of %lu entries, and only the first is the leader's\n",
          s.commit, s.last);
    struct cl_raft_msg m;
    bool told = false;
    while (cl_raft_poll_message(raft, &m))
        if (m.type == CL_RAFT_APPEND_REPLY && (told = true))
            CHECK(m.index == 1 && m.received == 1, "acknowledges entry %lu, which is not the leader's\n", m.index);
    CHECK(told, "the heartbeat is not answered\n");
    cl_raft_delete(raft);
}

enum { ELECTION_TICKS = 10, OLD_LEADER = 1, CANDIDATE = 3 };

/* One of three voters, with leases. */
static struct cl_raft *voter(uint32_t id, uint32_t election_ticks)
{
    struct cl_raft_config config = {.id = id, .log_entries = 64, .log_bytes = 32768, .entry_bytes = 1024};
    struct cl_raft *raft = NULL;
    config.lease_reads = 1;
    config.heartbeat_ticks = 1;
    config.trailing_entries = 1;
    config.election_ticks = election_ticks;
    config.members = (struct cl_raft_members){.n_voters = 3, .voters = {1, 2, 3}};
    CHECK(!cl_raft_new(&config, &raft, err), "%s\n", err);
    return raft;
}

static struct cl_raft *voter_with_leases(void)
{
    return voter(2, ELECTION_TICKS);
}

/* Whether it votes for the candidate of term 2. */
static bool votes(struct cl_raft *raft, uint8_t flags)
{
    struct cl_raft_msg m = {.type = CL_RAFT_VOTE, .from = CANDIDATE, .to = 2, .term = 2, .flags = flags};
    bool granted = false;
    cl_raft_step(raft, &m);
    done_at_once(raft);
    while (cl_raft_poll_message(raft, &m))
        granted |= m.type == CL_RAFT_VOTE_REPLY && !(m.flags & CL_RAFT_REJECT);
    return granted;
}

/* A leader did not run for a while, and others asked for pre-votes. One of them hears it again, and then what the
 * other, a candidate by now, had said before to its own pre-vote: no, this is term 2. Or it is started again after
 * that. */
static void lease(void)
{
    struct cl_raft_msg heartbeat = {.type = CL_RAFT_APPEND, .from = OLD_LEADER, .to = 2, .term = 1};
    struct cl_raft_msg no = {.type = CL_RAFT_PREVOTE_REPLY, .from = CANDIDATE, .to = 2, .term = 2};
    no.flags = CL_RAFT_REJECT;
    for (int forced = 0; forced < 2; forced++) {
        struct cl_raft *raft = voter_with_leases();
        for (int i = 0; i < ELECTION_TICKS; i++)
            cl_raft_tick(raft);
        CHECK(!cl_raft_step(raft, &heartbeat), "a heartbeat is refused\n");
        done_at_once(raft);
        cl_raft_step(raft, &no);
        done_at_once(raft);
        CHECK(cl_raft_term(raft) == 2 && !cl_raft_leader(raft), "it did not hear of term 2\n");
        for (int i = 0; i < ELECTION_TICKS && !forced; i++) {
            CHECK(!votes(raft, 0), "votes %d ticks after it heard from a leader, that leader's lease is on\n", i);
            cl_raft_tick(raft);
        }
        CHECK(votes(raft, forced ? CL_RAFT_FORCE : 0), "does not vote, and the old leader's lease is over\n");
        cl_raft_delete(raft);
    }
    struct cl_raft *raft = voter_with_leases();
    CHECK(!cl_raft_restore(raft, 2, 0, 0, 0, 0, NULL), "cannot be restored\n");
    for (int i = 0; i < ELECTION_TICKS; i++) {
        CHECK(!votes(raft, 0), "votes %d ticks after its start, and a leader's lease may be on\n", i);
        cl_raft_tick(raft);
    }
    CHECK(votes(raft, 0), "does not vote, and any old leader's lease is over\n");
    cl_raft_delete(raft);
}

/* Give everybody's messages to whom they are for, until there are none, but for those from and to node `apart`. */
static void exchange(struct cl_raft *const nodes[3], uint32_t apart)
{
    uint8_t frame[4096];
    struct cl_raft_wire_counters counters = {0};
    struct cl_raft_msg m;
    for (bool more = true; more;) {
        more = false;
        for (uint32_t id = 1; id <= 3; id++) {
            done_at_once(nodes[id - 1]);
            while (cl_raft_poll_message(nodes[id - 1], &m)) {
                uint32_t to = m.to;
                int64_t bytes = cl_raft_encode(nodes[id - 1], &m, frame, sizeof(frame));
                CHECK(bytes > 0, "a message of type %u cannot be encoded\n", m.type);
                if (id == apart || to == apart)
                    continue;
                CHECK(!cl_raft_decode(0, frame, (uint64_t)bytes, &m, &counters), "a message cannot be decoded\n");
                cl_raft_step(nodes[to - 1], &m);
                more = true;
            }
        }
    }
}

static bool commits_in_a_later_term(const struct cl_raft *raft, uint64_t than)
{
    struct cl_raft_status s;
    cl_raft_status(raft, &s);
    return s.role == CL_RAFT_LEADER && s.term > than && s.commit == s.last;
}

/* Node 1's ticks are as slow, and the others' as fast, as a lease bears: `margin` more of these in election_ticks. It
 * leads, and is cut off, and the others stand as soon as they may. Its ticks come `phase` later than theirs. */
static void outrun(uint64_t election_ticks, uint64_t phase)
{
    uint64_t margin = election_ticks / 4, slow = election_ticks, fast = election_ticks - margin;
    struct cl_raft *nodes[3];
    struct cl_raft_status s;
    for (uint32_t id = 1; id <= 3; id++)
        nodes[id - 1] = voter(id, (uint32_t)election_ticks);
    step(nodes[0], (struct cl_raft_msg){.type = CL_RAFT_TIMEOUT_NOW, .from = 2, .term = 1});
    exchange(nodes, 0);
    CHECK(cl_raft_leader(nodes[0]) == 1, "is not elected by order\n");
    uint64_t term = cl_raft_term(nodes[0]), cut = slow * election_ticks, now = 1;
    for (bool led = false; !led; now++) {
        uint32_t apart = now > cut ? 1 : 0;
        CHECK(now < 4 * cut, "nobody leads after it\n");
        if (now % slow == phase % slow)
            cl_raft_tick(nodes[0]);
        for (uint32_t id = 2; id <= 3 && now % fast == 0; id++)
            cl_raft_tick(nodes[id - 1]);
        if (apart && now % fast == 0)
            cl_raft_campaign(nodes[1]);
        exchange(nodes, apart);
        led = commits_in_a_later_term(nodes[1], term) || commits_in_a_later_term(nodes[2], term);
    }
    cl_raft_status(nodes[0], &s);
    CHECK(s.role != CL_RAFT_LEADER || s.ticks >= s.lease_until_tick,
          "with %lu election ticks another commits, and the lease is on for %lu ticks yet\n", election_ticks,
          s.lease_until_tick - s.ticks);
    for (int i = 0; i < 3; i++)
        cl_raft_delete(nodes[i]);
}

static void margin(void)
{
    for (uint64_t election_ticks = 4; election_ticks <= 24; election_ticks++)
        for (uint64_t phase = 0; phase < election_ticks; phase++)
            outrun(election_ticks, phase);
}

/* Make node 1 the leader of term 2. */
static void lead_by_order(struct cl_raft *raft)
{
    step(raft, (struct cl_raft_msg){.type = CL_RAFT_TIMEOUT_NOW, .from = 2, .term = 1});
    done_at_once(raft);
    step(raft, (struct cl_raft_msg){.type = CL_RAFT_VOTE_REPLY, .from = 2, .term = 2});
    done_at_once(raft);
    CHECK(cl_raft_leader(raft) == 1, "is not elected by order\n");
}

/* The round that a read begins now. */
static uint64_t begin_round(struct cl_raft *raft, uint64_t context)
{
    struct cl_raft_read read;
    struct cl_raft_msg m;
    uint64_t round = 0;
    CHECK(!cl_raft_read_index(raft, context), "a read is refused\n");
    cl_raft_poll_read(raft, &read);
    while (cl_raft_poll_message(raft, &m))
        round = cl_max(round, m.round);
    return round;
}

/* The answer to an old round comes when so many reads have begun newer ones that nobody knows any more when that one
 * began. */
static void rounds(void)
{
    enum { MANY = 64 }; /* RAFT_ROUNDS */
    struct cl_raft *raft = voter(1, ELECTION_TICKS);
    struct cl_raft_status s;
    uint64_t most = ELECTION_TICKS - 1 - ELECTION_TICKS / 4, newest = 0;
    lead_by_order(raft);
    uint64_t old = begin_round(raft, 1);
    cl_raft_status(raft, &s);
    uint64_t began = s.ticks;
    for (int i = 0; i < 4; i++)
        cl_raft_tick(raft);
    for (uint64_t i = 0; i < MANY; i++)
        newest = begin_round(raft, 2 + i);
    CHECK(newest >= old + MANY, "%lu rounds have begun since\n", newest - old);
    step(raft, (struct cl_raft_msg){.type = CL_RAFT_APPEND_REPLY, .from = 2, .term = 2, .round = old});
    cl_raft_status(raft, &s);
    CHECK(s.lease_until_tick <= began + most, "a round of tick %lu makes a lease until tick %lu\n", began,
          s.lease_until_tick);
    step(raft, (struct cl_raft_msg){.type = CL_RAFT_APPEND_REPLY, .from = 2, .term = 2, .round = newest});
    cl_raft_status(raft, &s);
    CHECK(s.lease_until_tick == s.ticks + most, "the newest round does not renew the lease\n");
    cl_raft_delete(raft);
}

enum { SNAPSHOT_INDEX = 5, CHUNK = 8, CHUNKS = 2 };

/* A chunk of a snapshot of entry 5, of term 1, by when the voters were 1 to 4. */
static struct cl_raft_msg chunk_of(uint32_t from, uint64_t term, uint64_t number)
{
    static const uint8_t data[CHUNK];
    struct cl_raft_msg m = {
        .type = CL_RAFT_SNAPSHOT, .from = from, .term = term, .index = SNAPSHOT_INDEX, .log_term = 1};
    m.offset = number * CHUNK;
    m.total = CHUNK * CHUNKS;
    m.data = data;
    m.data_bytes = CHUNK;
    m.members = (struct cl_raft_members){.n_voters = 4, .voters = {1, 2, 3, 4}};
    return m;
}

/* Whether a chunk is to be taken. Everything else is done. */
static bool hands_chunk(struct cl_raft *raft)
{
    struct cl_raft_ready ready;
    struct cl_raft_entry e;
    bool chunk = false;
    while (cl_raft_ready(raft, &ready)) {
        chunk |= ready.chunk;
        if (ready.first && !cl_raft_entry(raft, ready.last, &e))
            cl_raft_persisted(raft, e.index, e.term, e.generation);
        if (ready.hard)
            cl_raft_hard_persisted(raft, ready.hard_seq);
    }
    return chunk;
}

static void receive_snapshot(struct cl_raft *raft)
{
    for (uint64_t i = 0; i < CHUNKS; i++) {
        step(raft, chunk_of(2, 1, i));
        CHECK(hands_chunk(raft), "chunk %lu is not to be taken\n", i);
        cl_raft_chunk_taken(raft, 1);
    }
}

/* Appends entries of these kinds, of one term, after entry `index` of term 1. Configurations are of `voters` voters. */
static void append(struct cl_raft *raft, struct cl_raft_msg m, const uint32_t *kinds, uint32_t voters)
{
    uint8_t entries[1024], *p = entries;
    struct cl_raft_members members = {.n_voters = voters, .voters = {1, 2, 3, 4, 5}};
    for (uint32_t i = 0; i < m.n_entries; i++) {
        uint32_t bytes = 0;
        if (kinds[i] == CL_RAFT_MEMBERS)
            bytes = (uint32_t)cl_raft_members_encode(&members, p + RAFT_ENTRY_HEADER);
        put64(p, m.term);
        put32(p + 8, bytes);
        put32(p + 12, kinds[i]);
        p += RAFT_ENTRY_HEADER + bytes;
    }
    m.type = CL_RAFT_APPEND;
    m.log_term = m.index ? 1 : 0;
    m.data = entries;
    m.data_bytes = (uint32_t)(p - entries);
    step(raft, m);
    done_at_once(raft);
}

/* A fifth voter is to come after entry `index`, which takes another leader's entry there away again: it is four as
 * before. */
static void take_back(struct cl_raft *raft, uint64_t index)
{
    static const uint32_t fifth[] = {CL_RAFT_MEMBERS}, other[] = {CL_RAFT_NOOP};
    struct cl_raft_status s;
    append(raft, (struct cl_raft_msg){.from = 2, .term = 1, .index = index, .n_entries = 1}, fifth, 5);
    cl_raft_status(raft, &s);
    CHECK(s.members.n_voters == 5, "has %u voters, and the change is to five\n", s.members.n_voters);
    append(raft, (struct cl_raft_msg){.from = 3, .term = 2, .index = index, .n_entries = 1}, other, 0);
    cl_raft_status(raft, &s);
    CHECK(s.members.n_voters == 4, "rolls back to %u voters, and there were four\n", s.members.n_voters);
}

/* The configuration before one that is rolled back came with a snapshot, or its entry was dropped for one. */
static void rollback(void)
{
    static const uint32_t kinds[] = {CL_RAFT_NOOP, CL_RAFT_MEMBERS, CL_RAFT_NOOP};
    struct cl_raft *raft = voter(1, ELECTION_TICKS);
    uint64_t first;
    receive_snapshot(raft);
    CHECK(cl_raft_snapshot_installed(raft, 1) == 0, "keeps a log that it does not have\n");
    take_back(raft, SNAPSHOT_INDEX);
    cl_raft_delete(raft);
    raft = voter(1, ELECTION_TICKS);
    append(raft, (struct cl_raft_msg){.from = 2, .term = 1, .n_entries = 3, .commit = 3}, kinds, 4);
    cl_raft_applied(raft, 3);
    CHECK(!cl_raft_compact(raft, 3, CHUNK, &first) && first == 3, "keeps its log from entry %lu\n", first);
    take_back(raft, 3);
    cl_raft_delete(raft);
}

/* The first half of a snapshot came from one leader, and the second comes from the next, whose snapshot of the same
 * entry may be of other bytes. The driver says that it has the first half before it hears of the next leader, or
 * after. */
static void chunks(void)
{
    for (int late = 0; late < 2; late++) {
        struct cl_raft *raft = voter(1, ELECTION_TICKS);
        struct cl_raft_msg m;
        bool refused = false;
        step(raft, chunk_of(2, 1, 0));
        CHECK(hands_chunk(raft), "a first chunk is not to be taken\n");
        if (!late)
            cl_raft_chunk_taken(raft, 1);
        step(raft, (struct cl_raft_msg){.type = CL_RAFT_APPEND, .from = 3, .term = 2});
        if (late)
            cl_raft_chunk_taken(raft, 1);
        hands_chunk(raft);
        while (cl_raft_poll_message(raft, &m))
            ;
        step(raft, chunk_of(3, 2, 1));
        CHECK(!hands_chunk(raft), "takes the second half of another leader's snapshot\n");
        while (cl_raft_poll_message(raft, &m))
            refused |= m.type == CL_RAFT_SNAPSHOT_REPLY && (m.flags & CL_RAFT_REJECT) && m.to == 3;
        CHECK(refused, "does not ask the other leader to begin anew\n");
        step(raft, chunk_of(3, 2, 0));
        CHECK(hands_chunk(raft), "the other leader's first chunk is not to be taken\n");
        cl_raft_delete(raft);
    }
}

/* A snapshot that is being written takes the place of a log that may have to go: nobody stands with that. */
static void install(void)
{
    struct cl_raft *raft = voter(1, ELECTION_TICKS);
    struct cl_raft_status s;
    receive_snapshot(raft);
    for (int i = 0; i < 3 * ELECTION_TICKS; i++) {
        cl_raft_tick(raft);
        cl_raft_status(raft, &s);
        CHECK(s.role == CL_RAFT_FOLLOWER, "stands while it installs a leader's snapshot\n");
    }
    CHECK(cl_raft_snapshot_installed(raft, 1) == 0, "keeps a log that it does not have\n");
    cl_raft_tick(raft);
    cl_raft_status(raft, &s);
    CHECK(s.role == CL_RAFT_PRE_CANDIDATE, "does not stand, and the snapshot is installed\n");
    cl_raft_delete(raft);
}

/* How many chunks go to node 2, and each is refused as it comes. */
static unsigned refused_chunks(struct cl_raft *raft)
{
    enum { MOST = 100 };
    unsigned chunks = 0;
    struct cl_raft_msg m, refusal = {.type = CL_RAFT_SNAPSHOT_REPLY, .from = 2, .term = 2, .flags = CL_RAFT_REJECT};
    while (chunks < MOST && cl_raft_poll_message(raft, &m)) {
        if (m.type != CL_RAFT_SNAPSHOT)
            continue;
        chunks++;
        refusal.index = m.index;
        step(raft, refusal);
    }
    return chunks;
}

/* Who is to get a snapshot cannot take it for now, and says so of every chunk. */
static void refusals(void)
{
    struct cl_raft *raft = voter(1, ELECTION_TICKS);
    struct cl_raft_msg m;
    uint64_t index = 0, term, first;
    lead_by_order(raft);
    while (index < SNAPSHOT_INDEX)
        CHECK(!cl_raft_propose(raft, "x", 1, &index, &term), "a command is refused\n");
    while (cl_raft_poll_message(raft, &m))
        done_at_once(raft);
    step(raft, (struct cl_raft_msg){.type = CL_RAFT_APPEND_REPLY, .from = 3, .term = 2, .index = index});
    done_at_once(raft);
    cl_raft_applied(raft, index);
    CHECK(!cl_raft_compact(raft, index, CHUNK, &first) && first == index, "keeps its log from entry %lu\n", first);
    step(raft,
         (struct cl_raft_msg){.type = CL_RAFT_APPEND_REPLY, .from = 2, .term = 2, .index = 1, .flags = CL_RAFT_REJECT});
    for (int i = 0; i < ELECTION_TICKS / 2; i++) {
        unsigned chunks = refused_chunks(raft);
        CHECK(chunks == 1, "%u chunks bring each other on within a tick\n", chunks);
        cl_raft_tick(raft);
    }
    cl_raft_delete(raft);
}

/* Let node 2, whose log ends at *last, answer what the leader sends it. The leader's disk does nothing meanwhile. */
static void answer(struct cl_raft *raft, uint64_t *last)
{
    struct cl_raft_msg m;
    while (cl_raft_poll_message(raft, &m)) {
        struct cl_raft_msg reply = {.type = CL_RAFT_APPEND_REPLY, .from = 2, .to = 1, .term = 2, .round = m.round};
        if (m.type != CL_RAFT_APPEND || m.to != 2)
            continue;
        bool takes = m.index <= *last;
        *last = takes ? cl_max(*last, m.index + m.n_entries) : *last;
        reply.index = takes ? *last : m.index;
        reply.received = takes ? *last : 0;
        reply.hint = *last;
        reply.log_term = 2;
        reply.flags = takes ? 0 : CL_RAFT_REJECT;
        cl_raft_step(raft, &reply);
    }
}

/* A tick, and all that follows. */
static uint64_t commit_after_tick(struct cl_raft *raft, uint64_t *last)
{
    struct cl_raft_status s;
    cl_raft_tick(raft);
    for (int i = 0; i < 3; i++) {
        answer(raft, last);
        done_at_once(raft);
    }
    cl_raft_status(raft, &s);
    return s.commit;
}

/* Node 2 comes back with an old copy of its log: what it had acknowledged is lost there, and counts no more, nor does
 * what it says now. The last entry waits for the leader's own disk meanwhile. */
static void gone_back(void)
{
    enum { OLD = 2 };
    struct cl_raft *raft = voter(1, ELECTION_TICKS);
    struct cl_raft_status s;
    uint64_t index = 0, last = 0, term;
    lead_by_order(raft);
    while (index < SNAPSHOT_INDEX)
        CHECK(!cl_raft_propose(raft, "x", 1, &index, &term), "a command is refused\n");
    CHECK(commit_after_tick(raft, &last) == index && last == index, "does not commit what two of three have\n");
    CHECK(!cl_raft_propose(raft, "y", 1, &index, &term), "a command is refused\n");
    answer(raft, &last);
    CHECK(last == index, "node 2 is not sent entry %lu\n", index);
    last = OLD;
    for (int i = 0; i < ELECTION_TICKS / 2; i++) {
        uint64_t commit = commit_after_tick(raft, &last);
        CHECK(commit < index, "counts on a log that has lost what it had acknowledged: commits entry %lu\n", commit);
    }
    cl_raft_status(raft, &s);
    CHECK(s.role == CL_RAFT_LEADER && s.gone_back == 2, "says of node %u that its log went back\n", s.gone_back);
    last = index; /* it is started with the right one */
    struct cl_raft_msg right = {.type = CL_RAFT_APPEND_REPLY, .from = 2, .to = 1, .term = 2};
    right.index = right.received = last;
    cl_raft_step(raft, &right);
    CHECK(commit_after_tick(raft, &last) == index, "does not count on it any more, and it has its right log\n");
    last = OLD;
    for (int i = 0; i < 3 * ELECTION_TICKS; i++)
        commit_after_tick(raft, &last);
    cl_raft_status(raft, &s);
    CHECK(s.role != CL_RAFT_LEADER, "leads by the word of a node whose log went back\n");
    cl_raft_delete(raft);
}

/* Who leads lacks what was committed, as after a majority came back with old logs: nothing of it is taken. */
static void contradicts(void)
{
    static const uint32_t kinds[] = {CL_RAFT_NOOP, CL_RAFT_COMMAND, CL_RAFT_COMMAND};
    struct cl_raft *raft = voter(1, ELECTION_TICKS);
    struct cl_raft_status s;
    uint8_t entry[RAFT_ENTRY_HEADER] = {0};
    append(raft, (struct cl_raft_msg){.from = 2, .term = 1, .n_entries = 3, .commit = 2}, kinds, 0);
    put64(entry, 2);
    struct cl_raft_msg other = {.type = CL_RAFT_APPEND, .from = 3, .to = 1, .term = 2, .index = 1, .log_term = 1};
    other.data = entry;
    other.data_bytes = sizeof(entry);
    other.n_entries = 1;
    int rc = cl_raft_step(raft, &other);
    done_at_once(raft);
    cl_raft_status(raft, &s);
    CHECK(rc < 0 && s.last == 3 && s.commit == 2 && cl_raft_term_at(raft, 2) == 1,
          "gives up entry 2, which was committed, for another leader's: %d, up to %lu\n", rc, s.last);
    CHECK(s.contradicts == 3, "says of node %u that it contradicts\n", s.contradicts);
    cl_raft_delete(raft);
}

static const struct scenario all[] = {{"commit", commit},          {"lease", lease},       {"margin", margin},
                                      {"rounds", rounds},          {"rollback", rollback}, {"chunks", chunks},
                                      {"install", install},        {"refusals", refusals}, {"gone_back", gone_back},
                                      {"contradicts", contradicts}};

int main(int argc, char **argv)
{
    return run_scenario(argc, argv, all, sizeof(all) / sizeof(*all));
}

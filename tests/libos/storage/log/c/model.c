/* The log against a model that is an array: random appends, truncations, restarts, votes, trims and snapshots on a bad
 * disk, with a power cut, or an end of the process alone, now and then, before which writes may have failed. After each
 * the log must be what it was after some number of the operations, at least those that had been acknowledged, and be at
 * least that from then on. argv: seed, steps, bytes of the area, flushes in flight; churn: what is kept is little, and
 * much is truncated, so that the log is re-packed again and again. */
#include "support.h"

#define MAX_OPS 4096
#define MAX_RECORDS 65536

struct action {
    struct cl_log_op op;
    enum { APPEND, TRUNCATE, RESTART, META } what;
    uint64_t word; /* what the data is made of */
};

/* The model: record i has the word records[i % MAX_RECORDS]. */
struct model {
    uint64_t first, next, meta;
    uint64_t records[MAX_RECORDS];
};

static struct action actions[MAX_OPS]; /* since the log was opened; the first `acked` of them are done */
static unsigned n_actions, acked;
static struct model base, now; /* at the opening; after all actions */
static uint64_t trim_acked, trim_wanted, trim_asked[64];
static struct cl_log_op trim_ops[64];
static uint64_t snap_acked, snap_word[2], snap_length[2]; /* by number modulo 2 */
static bool failing;                                      /* writes may fail until the log is opened again */
static bool churn;
static uint64_t crashes, kills, failures, survivors, fulls, agains, passes;

static unsigned length_of(uint64_t word, unsigned most)
{
    unsigned kind = word % 8;
    return (unsigned)(kind == 0 ? 0 : kind < 6 || churn ? word / 8 % 300 : word / 8 % (most + 1));
}

static void fill(uint8_t *out, uint64_t word, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++)
        out[i] = (uint8_t)(word >> i % 57 ^ i);
}

static void done(struct cl_log_op *op)
{
    struct action *a = op->user;
    if (op->result) {
        CHECK(failing && op->result == -EIO, "%d", op->result);
        return;
    }
    CHECK(a == &actions[acked], "acknowledged out of order");
    acked++;
}

static void apply(struct model *m, const struct action *a)
{
    if (a->what == APPEND)
        m->records[m->next++ % MAX_RECORDS] = a->word;
    else if (a->what == TRUNCATE)
        m->next = a->op.index;
    else if (a->what == RESTART) {
        m->next = a->op.index;
        m->first = cl_max(m->first, a->op.index);
    } else
        m->meta = a->word;
}

static void act(struct cl_log *log)
{
    if (n_actions == MAX_OPS)
        return;
    static uint8_t data[1 << 20];
    struct action *a = &actions[n_actions];
    unsigned draw = (unsigned)below(100), most = cl_log_max_bytes(log);
    int rc;
    *a = (struct action){.word = rng() | 1};
    a->op.done = done;
    a->op.user = a;
    a->op.data = data;
    if (draw < (churn ? 60u : 85u)) {
        a->what = APPEND;
        a->op.bytes = length_of(a->word, most);
        a->op.tag = ~a->word;
        a->op.kind = (uint8_t)a->word;
        fill(data, a->word, a->op.bytes);
        rc = cl_log_append(log, &a->op);
        CHECK(rc || a->op.index == now.next, "index");
    } else if (draw < (churn ? 65u : 92u)) {
        a->what = META;
        a->op.bytes = (uint32_t)(a->word % (CL_LOG_META_BYTES + 1));
        fill(data, a->word, a->op.bytes);
        rc = cl_log_meta_set(log, &a->op);
    } else if (draw < (churn ? 99u : 98u)) {
        a->what = TRUNCATE;
        uint64_t from = now.next - below(cl_min(now.next - cl_max(now.first, cl_log_first_index(log)), 20) + 1);
        rc = cl_log_truncate(log, from, &a->op);
        CHECK(rc || a->op.index == from, "index");
    } else {
        a->what = RESTART;
        rc = cl_log_restart(log, now.next + below(10), &a->op);
    }
    fulls += rc == -ENOSPC;
    agains += rc == -EAGAIN;
    CHECK(rc == 0 || rc == -ENOSPC || rc == -EAGAIN, "%d", rc);
    if (rc == 0) {
        n_actions++;
        apply(&now, a);
    }
}

static void trimmed(struct cl_log_op *op)
{
    CHECK(op->result == 0 || (failing && op->result == -EIO), "%d", op->result);
    if (op->result == 0)
        trim_acked = cl_max(trim_acked, *(uint64_t *)op->user);
    *(uint64_t *)op->user = 0;
}

static void trim(struct cl_log *log)
{
    unsigned slot = 0;
    while (slot < 64 && trim_asked[slot])
        slot++;
    if (slot == 64)
        return;
    uint64_t first = cl_log_first_index(log), end = cl_min(cl_log_durable_index(log) + 1, now.next);
    if (end < first)
        return;
    struct cl_log_op *op = &trim_ops[slot];
    *op = (struct cl_log_op){0};
    trim_asked[slot] = first + below(end - first + 1);
    op->done = trimmed;
    op->user = &trim_asked[slot];
    trim_wanted = cl_max(trim_wanted, trim_asked[slot]);
    CHECK(cl_log_trim(log, trim_asked[slot], op) == 0, "trim");
}

static struct cl_log_op commit_op;
static bool committing;
static uint64_t snap_sent, snap_number; /* being written */

static void committed(struct cl_log_op *op)
{
    CHECK(op->result == 0 || (failing && op->result == -EIO), "%d", op->result);
    if (op->result) /* it may be there after the next opening */
        return;
    snap_acked = snap_number;
    snap_number = 0;
    committing = false;
}

static void snapshot(struct cl_log *log)
{
    uint8_t data[3000];
    struct cl_log_snapshot kept;
    cl_log_snapshot_get(log, &kept);
    if (committing)
        return;
    if (!snap_number) {
        int rc = cl_log_snapshot_begin(log, now.next, 7);
        CHECK(rc == 0 || rc == -EAGAIN, "%d", rc);
        if (rc)
            return;
        snap_number = kept.number + 1;
        snap_word[snap_number & 1] = rng();
        snap_length[snap_number & 1] = below(150000);
        snap_sent = 0;
    }
    uint64_t word = snap_word[snap_number & 1], length = snap_length[snap_number & 1];
    uint64_t some = 1 + below(sizeof data - 1);
    unsigned n = (unsigned)cl_min(length - snap_sent, some);
    for (unsigned i = 0; i < n; i++)
        data[i] = (uint8_t)(word >> (snap_sent + i) % 53);
    int64_t took = cl_log_snapshot_write(log, data, n);
    CHECK(took >= 0, "%lld", (long long)took);
    snap_sent += (uint64_t)took;
    if (snap_sent == length) {
        commit_op = (struct cl_log_op){.done = committed};
        CHECK(cl_log_snapshot_commit(log, &commit_op) == 0, "commit");
        committing = true;
    }
}

static void check_snapshot(struct cl_log *log)
{
    struct cl_log_snapshot s;
    static uint8_t buf[100000];
    cl_log_snapshot_get(log, &s);
    CHECK(s.number == snap_acked || (committing && s.number == snap_number), "%llu", (unsigned long long)s.number);
    snap_acked = s.number;
    snap_number = 0;
    committing = false;
    if (!s.number)
        return;
    CHECK(s.bytes == snap_length[s.number & 1], "length");
    for (uint64_t at = 0;;) {
        int64_t n = cl_log_snapshot_read(log, s.number, at, buf, 1 + below(sizeof buf));
        if (n == -EAGAIN) {
            if (cl_log_pump(log) == 0)
                now_ns = cl_max(now_ns, cl_log_next_ns(log));
            continue;
        }
        CHECK(n >= 0, "%lld", (long long)n);
        for (int64_t i = 0; i < n; i++)
            CHECK(buf[i] == (uint8_t)(snap_word[s.number & 1] >> (at + (uint64_t)i) % 53), "content");
        at += (uint64_t)n;
        if (n == 0) {
            CHECK(at == s.bytes, "end");
            return;
        }
    }
}

/* What the log holds, into words. */
static void contents(struct cl_log *log, struct model *m)
{
    struct cl_log_cursor *c;
    struct cl_log_record r;
    static uint8_t want[1 << 20], meta[CL_LOG_META_BYTES];
    m->first = m->next = cl_log_first_index(log);
    CHECK(cl_log_cursor_open(log, m->first, &c) == 0, "cursor");
    while (next_record(log, c, &r) == 1) {
        uint64_t word = ~r.tag;
        CHECK(r.index == m->next && r.kind == (uint8_t)word, "record %llu", (unsigned long long)r.index);
        CHECK(r.bytes == length_of(word, cl_log_max_bytes(log)), "length");
        fill(want, word, r.bytes);
        CHECK(memcmp(want, r.data, r.bytes) == 0, "content");
        m->records[m->next++ % MAX_RECORDS] = word;
    }
    CHECK(m->next == cl_log_durable_index(log) + 1, "the cursor ends at %llu, the log at %llu: %s",
          (unsigned long long)m->next, (unsigned long long)cl_log_durable_index(log), cl_log_cursor_why(c));
    CHECK(cl_log_cursor_close(c) == 0, "close");
    uint32_t n = cl_log_meta_get(log, meta);
    m->meta = 0;
    if (n)
        memcpy(&m->meta, meta, cl_min(n, 8));
    m->meta ^= n;
}

static uint64_t meta_of(uint64_t word)
{
    uint8_t buf[CL_LOG_META_BYTES];
    unsigned n = word ? (unsigned)(word % (CL_LOG_META_BYTES + 1)) : 0;
    uint64_t out = 0;
    fill(buf, word, n);
    if (n)
        memcpy(&out, buf, cl_min(n, 8));
    return out ^ n;
}

static bool same(const struct model *found, const struct model *want)
{
    if (found->next != cl_max(want->next, found->first) || found->meta != meta_of(want->meta))
        return false;
    if (found->first < cl_max(want->first, trim_acked) || found->first > cl_max(want->first, trim_wanted))
        return false;
    for (uint64_t i = found->first; i < found->next; i++)
        if (found->records[i % MAX_RECORDS] != want->records[i % MAX_RECORDS])
            return false;
    return true;
}

/* The log was opened again: it must be the base and some number of the actions. */
static void compare(struct cl_log *log, bool closed)
{
    static struct model found, want;
    contents(log, &found);
    want = base;
    unsigned k = 0;
    for (; k < acked; k++)
        apply(&want, &actions[k]);
    while (!same(&found, &want)) {
        CHECK(k < n_actions && !closed,
              "no number of operations gives this log: %u acknowledged of %u, records %llu..%llu", acked, n_actions,
              (unsigned long long)found.first, (unsigned long long)found.next);
        apply(&want, &actions[k++]);
    }
    survivors += k - acked;
    check_snapshot(log);
    trim_acked = trim_wanted = found.first;
    memset(trim_asked, 0, sizeof trim_asked);
    want.first = found.first;
    want.next = found.next;
    base = now = want;
    n_actions = acked = 0;
}

/* What is left of writes that are not durable: some, all or nothing, in pieces or not. */
static void set_faults(struct cl_blk *disk, double write_error)
{
    static const double some[] = {0, 0.7, 0.7, 1};
    char err[256];
    struct cl_blk_fault_config f = {.write_error = write_error,
                                    .survive = some[below(4)],
                                    .torn = some[below(3)],
                                    .latency_min_ns = 1000,
                                    .latency_max_ns = 90000};
    CHECK(cl_blk_fault_set(disk, &f, err) == 0, "%s", err);
    failing = write_error > 0;
}

/* Whoever has the log ends, with the power or alone. */
static void end(struct cl_blk *disk, struct cl_log *log)
{
    struct cl_log_stats stats;
    cl_log_stats(log, &stats);
    passes += stats.repacks;
    set_faults(disk, 0);
    if (below(2)) {
        cl_blk_fault_kill(disk);
        kills++;
    } else {
        cl_blk_fault_crash(disk);
        crashes++;
    }
    cl_log_discard(log);
}

/* Open it, now and then not at the first attempt. */
static struct cl_log *open_again(const struct cl_log_config *config, struct cl_log_report *report)
{
    struct cl_log_config c = *config;
    char err[256];
    c.now_ns = cl_blk_fault_clock_word;
    c.now_arg = &now_ns;
    while (below(3) == 0) {
        struct cl_log *log;
        CHECK(cl_log_open(&c, &log, err) == 0, "%s", err);
        for (uint64_t pumps = below(40); pumps && cl_log_state(log) == CL_LOG_OPENING; pumps--)
            if (cl_log_pump(log) == 0 && cl_log_next_ns(log) != UINT64_MAX)
                now_ns = cl_max(now_ns, cl_log_next_ns(log));
        end(c.blk, log);
    }
    return open_log(config, 0, report);
}

/* Whether what is kept is more than it should be. */
static bool holds_much(struct cl_log *log)
{
    struct cl_log_usage usage;
    cl_log_usage(log, &usage);
    return churn ? usage.kept_bytes > usage.ring_bytes / 2 : cl_log_free_bytes(log) < 65536;
}

/* Something is asked of the log, or not, and time goes on. */
static void use(struct cl_log *log)
{
    for (uint64_t burst = below(8) ? below(3) : below(60); burst && !cl_log_error(log); burst--)
        act(log);
    if (!cl_log_error(log) && ((!churn && below(40) == 0) || (below(4) == 0 && holds_much(log))))
        trim(log);
    if (!cl_log_error(log) && below(3) == 0)
        snapshot(log);
    if (below(3))
        now_ns += below(60000);
    cl_log_pump(log);
    CHECK(cl_log_error(log) == 0 || failing, "%s", cl_log_why(log));
}

int main(int argc, char **argv)
{
    CHECK(argc == 5 || (argc == 6 && !strcmp(argv[5], "churn")), "usage");
    churn = argc == 6;
    rng_state = strtoull(argv[1], NULL, 10);
    unsigned steps = (unsigned)atoi(argv[2]);
    struct cl_blk *memory = memory_disk(strtoull(argv[3], NULL, 10));
    struct cl_blk *disk = bad_disk(memory, (struct cl_blk_fault_config){.seed = rng()});
    struct cl_log_config config = {.blk = disk, .in_flight = (uint32_t)atoi(argv[4]), .buffers = 8};
    struct cl_log_layout layout = {.area_id = 1 + rng() % 1000, .snapshot_bytes = 150000, .flush_bytes = 16384};
    char err[256];
    CHECK(cl_log_format(memory, 0, &layout, err) == 0, "%s", err);
    set_faults(disk, 0);
    struct cl_log *log = open_log(&config, 0, NULL);
    base.first = base.next = now.first = now.next = 1;
    for (unsigned step = 0; step < steps; step++) {
        use(log);
        bool closed = false;
        if (!failing && below(400) == 0)
            set_faults(disk, below(2) ? 1 : 0.2);
        if (below(200) == 0 || (cl_log_error(log) && below(4) == 0)) {
            failures += cl_log_error(log) != 0;
            end(disk, log);
        } else if (!failing && (n_actions == MAX_OPS || below(900) == 0)) {
            settle(log);
            closed = true;
            CHECK(close_log(log) == 0, "close");
        } else {
            continue;
        }
        struct cl_log_report report;
        log = open_again(&config, &report);
        CHECK(report.bad_superblocks == 0 || !closed, "superblocks");
        compare(log, closed);
    }
    end(disk, log);
    log = open_again(&config, NULL);
    compare(log, false);
    CHECK(close_log(log) == 0, "close");
    cl_blk_close(disk);
    CHECK(steps < 10000 || (crashes > 5 && kills > 5 && failures > 5 && survivors && (!churn || passes > 20)),
          "too little happened: %llu passes", (unsigned long long)passes);
    printf("%llu crashes, %llu kills, %llu failures, %llu unacknowledged found, %llu full, %llu without buffer\nok\n",
           (unsigned long long)crashes, (unsigned long long)kills, (unsigned long long)failures,
           (unsigned long long)survivors, (unsigned long long)fulls, (unsigned long long)agains);
    return 0;
}

/* memcached's binary protocol: requests of a stream, and what each opcode does. */
#include "binary.h"
#include "prefix.h"
#include "watch.h"

#define EXTRAS_BYTES 4                                                /* of an answer with an item: its flags */
#define SHORT_BYTES (KV_BINARY_HEADER + CL_KV_KEY_MAX + EXTRAS_BYTES) /* longest answer but for values and statistics */

enum opcode {
    OP_GET,
    OP_SET,
    OP_ADD,
    OP_REPLACE,
    OP_DELETE,
    OP_INCR,
    OP_DECR,
    OP_QUIT,
    OP_FLUSH,
    OP_GETQ,
    OP_NOOP,
    OP_VERSION,
    OP_GETK,
    OP_GETKQ,
    OP_APPEND,
    OP_PREPEND,
    OP_STAT,
    OP_SETQ,
    OP_ADDQ,
    OP_REPLACEQ,
    OP_DELETEQ,
    OP_INCRQ,
    OP_DECRQ,
    OP_QUITQ,
    OP_FLUSHQ,
    OP_APPENDQ,
    OP_PREPENDQ,
    OP_TOUCH = 0x1c,
    OP_GAT,
    OP_GATQ,
    OP_SASL_LIST = 0x20,
    OP_SASL_AUTH,
    OP_SASL_STEP,
    OP_GATK,
    OP_GATKQ,
    OP_NONE
};

/* The talkative form of a quiet opcode; OP_NONE of one that is not quiet. */
static enum opcode talkative(uint8_t opcode)
{
    switch (opcode) {
    case OP_GETQ:
        return OP_GET;
    case OP_GETKQ:
        return OP_GETK;
    case OP_APPENDQ:
        return OP_APPEND;
    case OP_PREPENDQ:
        return OP_PREPEND;
    case OP_GATQ:
        return OP_GAT;
    case OP_GATKQ:
        return OP_GATK;
    default:
        return opcode >= OP_SETQ && opcode <= OP_FLUSHQ ? (enum opcode)(opcode - OP_SETQ + OP_SET) : OP_NONE;
    }
}

/* One request being executed. */
struct request {
    struct kv_command *c; /* line: the request; data: what follows its key; noreply: it is quiet */
    enum opcode op;       /* in its talkative form */
    uint32_t extras_len, key_len;
    uint64_t body_len;
    const uint8_t *extras;
    struct cl_kv_key key;
    uint64_t cas;
};

static const char *text_of(enum kv_status status)
{
    switch (status) {
    case KV_S_NOT_FOUND:
        return "Not found";
    case KV_S_EXISTS:
        return "Data exists for key.";
    case KV_S_TOO_LARGE:
        return "Too large.";
    case KV_S_INVALID:
        return "Invalid arguments";
    case KV_S_NOT_STORED:
        return "Not stored.";
    case KV_S_NON_NUMERIC:
        return "Non-numeric server-side value for incr or decr";
    case KV_S_FORBIDDEN:
        return "Auth failure.";
    case KV_S_UNKNOWN:
        return "Unknown command";
    case KV_S_NO_MEMORY:
        return "Out of memory";
    default:
        return "Not supported";
    }
}

/* Append an answer without extras and key. There is room. */
static void put_answer(struct cl_kv_out *out, const uint8_t *request, enum kv_status status, const void *value,
                       size_t len, uint64_t cas)
{
    uint8_t *p = kv_binary_header(out->data + out->len, request, status, 0, 0, len, cas);
    memcpy(p, value, len);
    out->len += KV_BINARY_HEADER + len;
}

static void refuse(const struct request *q, enum kv_status status)
{
    bool bad = status == KV_S_INVALID || status == KV_S_UNKNOWN || status == KV_S_NON_NUMERIC;
    if (bad && !q->c->thread->measured)
        cl_count(&q->c->thread->counters.bad_commands, 1);
    put_answer(q->c->out, q->c->line, status, text_of(status), strlen(text_of(status)), 0);
}

/* What went well, which a quiet request does not hear of. */
static void succeed(const struct request *q, const void *value, size_t len, uint64_t cas)
{
    if (!q->c->noreply)
        put_answer(q->c->out, q->c->line, KV_S_OK, value, len, cas);
}

static int invalid(const struct request *q)
{
    refuse(q, KV_S_INVALID);
    return CL_KV_QUIT;
}

/* A time of this protocol, which has no sign. */
static uint32_t expiry(const struct request *q, uint32_t time)
{
    if (time <= INT32_MAX)
        return cl_kv_expiry(q->c->thread, (int32_t)time);
    return (uint32_t)(time - q->c->thread->store->unix_base_s);
}

static void put_miss(const struct request *q, bool with_key)
{
    struct cl_kv_out *out = q->c->out;
    if (q->c->noreply)
        return;
    if (!with_key) {
        refuse(q, KV_S_NOT_FOUND);
        return;
    }
    uint8_t *p = kv_binary_header(out->data + out->len, q->c->line, KV_S_NOT_FOUND, 0, q->key.len, 0, 0);
    memcpy(p, q->key.data, q->key.len);
    out->len += KV_BINARY_HEADER + q->key.len;
}

/* Append an item, if it is there. -1: no room. */
static int append_item(const struct request *q, bool with_key, bool with_value)
{
    struct cl_kv_thread *t = q->c->thread;
    for (unsigned tries = 0;; tries++) {
        struct kv_ref r;
        struct cl_kv_meta meta;
        bool locked = tries >= KV_READ_TRIES;
        if (!kv_lookup(t, &q->key, &r, &meta, &locked)) {
            kv_watch_get(t, &q->key, false, 0);
            return CL_KV_NOT_FOUND;
        }
        uint32_t key_len = with_key ? q->key.len : 0, value_len = with_value ? meta.value_bytes : 0;
        uint8_t *start = kv_out_room(q->c->out, SHORT_BYTES + (uint64_t)value_len), *p = start;
        if (start) {
            p = kv_binary_header(p, q->c->line, KV_S_OK, EXTRAS_BYTES, key_len, value_len, meta.cas);
            kv_put_be(p, meta.flags, EXTRAS_BYTES);
            memcpy(p + EXTRAS_BYTES, q->key.data, key_len);
            p += EXTRAS_BYTES + key_len;
            kv_copy_out(p, kv_item_value(r.item), value_len);
            p += value_len;
        }
        if (!kv_lookup_done(t, &q->key, &r, locked))
            continue;
        if (!start)
            return -1;
        q->c->out->len += (uint64_t)(p - start);
        kv_watch_get(t, &q->key, true, meta.value_bytes);
        return CL_KV_OK;
    }
}

static int do_get(const struct request *q)
{
    struct cl_kv_counters *n = &q->c->thread->counters;
    bool touches = q->op == OP_TOUCH || q->op == OP_GAT || q->op == OP_GATK;
    bool with_key = q->op == OP_GETK || q->op == OP_GATK;
    if (!q->key_len || q->extras_len != (touches ? 4 : 0) || (!touches && q->body_len != q->key_len))
        return invalid(q);
    if (kv_measured(q->c, touches ? CL_KV_WRITES : CL_KV_READS, SHORT_BYTES + kv_value_most(q->c), 1))
        return CL_KV_MORE;
    int rc = append_item(q, with_key, q->op != OP_TOUCH);
    if (rc < 0)
        return CL_KV_FULL;
    kv_prefix_count_get(q->c->thread->store, &q->key, rc == CL_KV_OK);
    if (q->op != OP_TOUCH) {
        cl_count(&n->cmd_get, 1);
        cl_count(rc ? &n->get_misses : &n->get_hits, 1);
    }
    if (touches)
        cl_kv_touch(q->c->thread, &q->key, expiry(q, (uint32_t)kv_get_be(q->extras, 4)));
    if (rc)
        put_miss(q, with_key);
    return CL_KV_MORE;
}

/* How an opcode stores. A unique makes a cas of all that replace the value, where there are uniques. */
static int mode_of(const struct request *q)
{
    uint64_t cas = kv_told_cas(q->c->thread->store, q->cas);
    switch (q->op) {
    case OP_APPEND:
        return CL_KV_APPEND;
    case OP_PREPEND:
        return CL_KV_PREPEND;
    case OP_ADD:
        return cas ? CL_KV_CAS : CL_KV_ADD;
    case OP_REPLACE:
        return cas ? CL_KV_CAS : CL_KV_REPLACE;
    default:
        return cas ? CL_KV_CAS : CL_KV_SET;
    }
}

static enum kv_status status_of(int rc, int mode)
{
    switch (rc) {
    case CL_KV_EXISTS:
        return KV_S_EXISTS;
    case CL_KV_NOT_FOUND:
        return KV_S_NOT_FOUND;
    case CL_KV_TOO_LARGE:
        return KV_S_TOO_LARGE;
    case CL_KV_NO_MEMORY:
        return KV_S_NO_MEMORY;
    default:
        return mode == CL_KV_ADD ? KV_S_EXISTS : mode == CL_KV_REPLACE ? KV_S_NOT_FOUND : KV_S_NOT_STORED;
    }
}

static int do_store(struct request *q)
{
    bool joins = q->op == OP_APPEND || q->op == OP_PREPEND;
    struct kv_command *c = q->c;
    uint64_t block = q->body_len - q->key_len - q->extras_len;
    if (!q->key_len || q->extras_len != (joins ? 0 : 8))
        return invalid(q);
    bool taken = kv_fits(c->thread->store, q->key_len, block);
    if (taken && c->data_len < block) {
        c->session->want = (uint64_t)(c->data - c->line) + block;
        if (kv_may_wait(c))
            return KV_DATA_MISSING;
        taken = false;
    }
    if (taken)
        c->data_used = block;
    else
        c->session->swallow = block;
    if (kv_measured(c, CL_KV_WRITES, SHORT_BYTES, 0))
        return CL_KV_MORE;
    struct kv_written written = {0};
    struct kv_write w = {.mode = mode_of(q),
                         .drops_old = q->op == OP_SET,
                         .flags = joins ? 0 : (uint32_t)kv_get_be(q->extras, 4),
                         .expires_s = joins ? 0 : expiry(q, (uint32_t)kv_get_be(q->extras + 4, 4)),
                         .value = taken ? c->data : NULL,
                         .value_bytes = (uint32_t)block,
                         .cas = q->cas};
    kv_prefix_count(c->thread->store, &q->key, KV_PREFIX_SET);
    int rc = kv_write(c->thread, &q->key, &w, &written);
    if (rc)
        refuse(q, status_of(rc, w.mode));
    else
        succeed(q, "", 0, written.cas);
    return CL_KV_MORE;
}

static int do_delta(const struct request *q)
{
    if (!q->key_len || q->extras_len != 20 || q->body_len != q->key_len + 20)
        return invalid(q);
    if (kv_measured(q->c, CL_KV_WRITES, SHORT_BYTES, 0))
        return CL_KV_MORE;
    uint32_t time = (uint32_t)kv_get_be(q->extras + 16, 4);
    struct kv_changed changed;
    struct kv_change d = {.incr = q->op == OP_INCR,
                          .delta = kv_get_be(q->extras, 8),
                          .cas = q->cas,
                          .create = time != UINT32_MAX,
                          .created_s = expiry(q, time),
                          .initial = kv_get_be(q->extras + 8, 8)};
    int rc = kv_delta(q->c->thread, &q->key, &d, &changed);
    if (rc) {
        refuse(q, rc == CL_KV_NON_NUMERIC ? KV_S_NON_NUMERIC : status_of(rc, CL_KV_SET));
        return CL_KV_MORE;
    }
    uint8_t value[8];
    kv_put_be(value, changed.value, 8);
    succeed(q, value, 8, changed.cas);
    return CL_KV_MORE;
}

static int do_delete(const struct request *q)
{
    if (!q->key_len || q->extras_len || q->body_len != q->key_len)
        return invalid(q);
    if (kv_measured(q->c, CL_KV_WRITES, SHORT_BYTES, 0))
        return CL_KV_MORE;
    struct kv_removal d = {.has_cas = q->cas != 0, .cas = q->cas};
    kv_prefix_count(q->c->thread->store, &q->key, KV_PREFIX_DELETE);
    int rc = kv_remove(q->c->thread, &q->key, &d);
    if (rc)
        refuse(q, status_of(rc, CL_KV_SET));
    else
        succeed(q, "", 0, 0);
    return CL_KV_MORE;
}

static int do_flush(const struct request *q)
{
    if (q->key_len || q->body_len != q->extras_len || (q->extras_len != 0 && q->extras_len != 4))
        return invalid(q);
    if (kv_measured(q->c, CL_KV_WRITES, SHORT_BYTES, 0))
        return CL_KV_MORE;
    uint32_t time = q->extras_len ? (uint32_t)kv_get_be(q->extras, 4) : 0;
    if (q->c->thread->store->forbids & CL_KV_NO_FLUSH) {
        refuse(q, KV_S_FORBIDDEN);
        return CL_KV_MORE;
    }
    kv_flush(q->c->thread, time ? expiry(q, time) : 0);
    succeed(q, "", 0, 0);
    return CL_KV_MORE;
}

/* noop, version, quit: nothing but a header. */
static int do_plain(const struct request *q)
{
    if (q->body_len)
        return invalid(q);
    if (q->op == OP_VERSION)
        succeed(q, KV_VERSION, strlen(KV_VERSION), 0);
    else
        succeed(q, "", 0, 0);
    return q->op == OP_QUIT ? CL_KV_QUIT : CL_KV_MORE;
}

/* There is no authentication: what memcached answers that was built or started without it. */
static int do_sasl(const struct request *q)
{
    if (q->extras_len || (q->op == OP_SASL_LIST ? q->body_len != 0 : !q->key_len))
        return invalid(q);
    refuse(q, KV_S_UNKNOWN);
    q->c->session->swallow = q->body_len - q->key_len;
    return CL_KV_MORE;
}

static int do_unknown(const struct request *q)
{
    refuse(q, KV_S_UNKNOWN);
    q->c->session->swallow = q->body_len - q->key_len - q->extras_len;
    return CL_KV_MORE;
}

static int do_stat(const struct request *q)
{
    if (q->extras_len)
        return invalid(q);
    if (kv_measured(q->c, CL_KV_SHOWS, 0, 0))
        return CL_KV_MORE;
    return kv_stats_binary(q->c, (struct kv_token){q->key.data, q->key_len}) ? CL_KV_MORE : CL_KV_FULL;
}

static int execute(struct request *q)
{
    switch (q->op) {
    case OP_GET:
    case OP_GETK:
    case OP_TOUCH:
    case OP_GAT:
    case OP_GATK:
        return do_get(q);
    case OP_SET:
    case OP_ADD:
    case OP_REPLACE:
    case OP_APPEND:
    case OP_PREPEND:
        return do_store(q);
    case OP_INCR:
    case OP_DECR:
        return do_delta(q);
    case OP_DELETE:
        return do_delete(q);
    case OP_FLUSH:
        return do_flush(q);
    case OP_NOOP:
    case OP_VERSION:
    case OP_QUIT:
        return do_plain(q);
    case OP_SASL_LIST:
    case OP_SASL_AUTH:
    case OP_SASL_STEP:
        return do_sasl(q);
    case OP_STAT:
        return do_stat(q);
    default:
        return do_unknown(q);
    }
}

/* Read a header, which is there. */
static void read_header(struct request *q, struct kv_command *c)
{
    const uint8_t *p = c->line;
    enum opcode loud = talkative(p[1]);
    q->c = c;
    q->op = loud == OP_NONE ? (enum opcode)p[1] : loud;
    c->noreply = loud != OP_NONE;
    q->key_len = (uint32_t)kv_get_be(p + 2, 2);
    q->extras_len = p[4];
    q->body_len = kv_get_be(p + 8, 4);
    q->cas = kv_get_be(p + 16, 8);
    q->extras = p + KV_BINARY_HEADER;
}

/* One request of which the header is there; `len` bytes of it have come. KV_DATA_MISSING: the rest has not. */
static int one_request(struct kv_command *c, uint64_t len)
{
    struct request q;
    read_header(&q, c);
    uint64_t head = KV_BINARY_HEADER + q.extras_len + q.key_len;
    c->data = c->line + head;
    if (q.key_len + q.extras_len > q.body_len) {
        refuse(&q, KV_S_UNKNOWN);
        return CL_KV_QUIT;
    }
    if (q.key_len > CL_KV_KEY_MAX)
        return invalid(&q);
    if (len < head) {
        c->session->want = head;
        return KV_DATA_MISSING;
    }
    c->data_len = len - head;
    struct kv_token key = {q.extras + q.extras_len, q.key_len};
    q.key = kv_key_of(c->thread, key);
    return execute(&q);
}

int kv_binary_process(struct cl_kv_session *s, const uint8_t *in, uint64_t len, uint64_t *consumed,
                      struct cl_kv_out *out)
{
    uint64_t at = 0;
    int rc = CL_KV_MORE;
    for (;;) {
        uint64_t thrown = cl_min(s->swallow, len - at);
        s->swallow -= thrown;
        at += thrown;
        if (cl_unlikely(s->thread->measured))
            s->thread->measured->from = at;
        if (at < len && in[at] != KV_BINARY_REQUEST)
            rc = CL_KV_QUIT; /* as memcached: no answer fits something that is no request */
        if (at < len && len - at < KV_BINARY_HEADER)
            s->want = KV_BINARY_HEADER;
        if (len - at < KV_BINARY_HEADER || rc == CL_KV_QUIT)
            break;
        if (kv_turn_over(s)) {
            rc = CL_KV_TURN;
            break;
        }
        if (!kv_out_room(out, SHORT_BYTES)) {
            rc = CL_KV_FULL;
            break;
        }
        struct kv_command c;
        kv_begin(&c, s, out);
        c.line = in + at;
        rc = one_request(&c, len - at);
        if (rc == KV_DATA_MISSING || rc == CL_KV_FULL) {
            rc = rc == CL_KV_FULL ? CL_KV_FULL : CL_KV_MORE;
            break;
        }
        at += (uint64_t)(c.data - c.line) + c.data_used;
        if (cl_unlikely(s->thread->measured))
            break;
        s->done++;
        if (rc == CL_KV_QUIT)
            break;
    }
    *consumed = rc == CL_KV_QUIT ? len : at;
    return rc;
}

void kv_binary_refuse_rest(const uint8_t *request, uint64_t len, bool no_room, struct cl_kv_out *out)
{
    enum kv_status status = no_room ? KV_S_NO_MEMORY : KV_S_INVALID;
    if (len < KV_BINARY_HEADER || !kv_out_room(out, SHORT_BYTES))
        return;
    put_answer(out, request, status, text_of(status), strlen(text_of(status)), 0);
}

/* Datagrams in, datagrams out. See udp.h. */
#include "udp.h"
#include "ahead.h"
#include "command_layout.h"
#include "watch.h"
#include <errno.h>
#include <stdlib.h>

#define BATCH_MAX 64
#define END_BYTES 5

/* A server: contexts a cache line apart, then their spill buffers, which are touched only by long answers. */
struct cl_kv_server {
    uint32_t n;
    struct {
        struct cl_kv_udp udp;
    } CL_ALIGNED(128) side[];
};

int cl_kv_server_new(struct cl_kv *store, int (*more)(struct cl_udp_req *, int64_t), struct cl_kv_server **out)
{
    uint32_t n = store->n_threads;
    struct cl_kv_server *s = aligned_alloc(128, sizeof(*s) + n * sizeof(s->side[0]));
    if (!s)
        return -ENOMEM;
    memset(s, 0, sizeof(*s) + n * sizeof(s->side[0]));
    s->n = n;
    for (uint32_t i = 0; i < n; i++) {
        struct cl_kv_udp *u = &s->side[i].udp;
        u->thread = cl_kv_thread(store, i);
        u->more = more;
        u->spill_room = cl_max(2 * store->item_max_bytes + CL_KV_ANSWER_MAX, (uint64_t)CL_KV_ANSWER_ROOM);
        u->spill = malloc(u->spill_room);
        if (!u->spill) {
            cl_kv_server_delete(s);
            return -ENOMEM;
        }
    }
    *out = s;
    return 0;
}

void cl_kv_server_delete(struct cl_kv_server *s)
{
    if (!s)
        return;
    for (uint32_t i = 0; i < s->n; i++)
        free(s->side[i].udp.spill);
    free(s);
}

struct cl_kv_udp *cl_kv_server_udp(struct cl_kv_server *s, uint32_t i)
{
    return i < s->n ? &s->side[i].udp : NULL;
}

static void write_header(uint8_t *p, const uint8_t *request, uint32_t sequence, uint32_t total)
{
    memcpy(p, request, 2);
    p[2] = (uint8_t)(sequence >> 8);
    p[3] = (uint8_t)sequence;
    p[4] = (uint8_t)(total >> 8);
    p[5] = (uint8_t)total;
    p[6] = 0;
    p[7] = 0;
}

bool cl_kv_udp_is_answer(const uint8_t *datagram, int64_t len)
{
    if (len < CL_KV_UDP_HEADER)
        return false;
    bool several = datagram[4] || datagram[5] != 1, later = datagram[2] || datagram[3];
    if (several && later) /* of a request, too, only the first is refused */
        return true;
    uint8_t c = len > CL_KV_UDP_HEADER ? datagram[CL_KV_UDP_HEADER] : 0;
    return (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == 0x81;
}

/* What the first stage learned of a request. */
struct look {
    struct cl_kv_key key; /* len 0: none seen */
    bool fast;            /* "get <key>\r\n" and nothing else */
};

/* First stage for one request: recognise the short form, hash the key, send for its bucket. */
static inline void look_at(const struct cl_kv *store, const struct cl_udp_req *req, struct look *l)
{
    l->fast = false;
    l->key.len = 0;
    if (cl_unlikely(req->len < CL_KV_UDP_HEADER + 4))
        return;
    const uint8_t *p = req->data + CL_KV_UDP_HEADER;
    uint32_t n = (uint32_t)req->len - CL_KV_UDP_HEADER;
    bool get;
    if (!kv_look_at(store, p, n, &l->key, &get))
        return;
    const uint8_t *end = l->key.data + l->key.len;
    l->fast = get && end + 2 == p + n && end[0] == '\r' && end[1] == '\n' && req->data[4] == 0 && req->data[5] == 1;
}

/* Second stage for one request: send for its item, and for the reply's lines, which whoever sends it on has read last.
 * An answer is about as long as its item: no line more, which would come from there and back for nothing. */
static inline void look_further(const struct cl_kv *store, const struct cl_udp_req *req, const struct look *l)
{
    unsigned bytes = kv_prefetch_item(store, l->key.hash);
    if (l->fast) {
        uint32_t into = (uint32_t)((uintptr_t)req->reply % CL_CACHELINE);
        cl_prefetch_span_write(req->reply - into, into + (uint32_t)cl_min(req->room, (int64_t)bytes));
    }
}

/* Answer a GET of one key into req->reply. False: the long way has to do it. */
static inline bool fast_get(struct cl_kv_udp *u, struct cl_udp_req *req, const struct cl_kv_key *key)
{
    struct cl_kv_thread *t = u->thread;
    struct kv_ref r;
    struct cl_kv_meta meta;
    uint64_t room = cl_min((uint64_t)req->room, (uint64_t)CL_KV_UDP_DATAGRAM);
    uint8_t *p = req->reply + CL_KV_UDP_HEADER;
    if (cl_unlikely(req->room < CL_KV_UDP_HEADER + END_BYTES))
        return false;
    bool locked = false;
    if (kv_lookup(t, key, &r, &meta, &locked)) {
        if (cl_unlikely(CL_KV_UDP_HEADER + KV_VALUE_LINE_MAX + 2ull + END_BYTES + meta.value_bytes > room)) {
            if (locked)
                kv_unlock(kv_partition_of(t->store, key->hash));
            return false;
        }
        p = kv_format_value_line(p, key->data, key->len, &meta, false);
        kv_copy_out(p, kv_item_value(r.item), meta.value_bytes);
        p += meta.value_bytes;
        memcpy(p, "\r\n", 2);
        p += 2;
        if (cl_unlikely(!kv_lookup_done(t, key, &r, locked)))
            return false;
        cl_count(&t->counters.get_hits, 1);
    } else {
        cl_count(&t->counters.get_misses, 1);
    }
    memcpy(p, "END\r\n", END_BYTES);
    p += END_BYTES;
    write_header(req->reply, req->data, 0, 1);
    req->reply_len = p - req->reply;
    cl_count(&t->counters.cmd_get, 1);
    cl_count(&u->fast_gets, 1);
    cl_count(&u->answered, 1);
    return true;
}

/* Send an answer that does not fit one datagram of `part` payload bytes. */
static void send_split(struct cl_kv_udp *u, struct cl_udp_req *req, const uint8_t *answer, uint64_t len, uint64_t part)
{
    uint64_t total = (len + part - 1) / part;
    cl_count(&u->split, 1);
    for (uint64_t i = 0; i < total; i++) {
        uint64_t n = cl_min(part, len - i * part);
        if (req->room < (int64_t)n + CL_KV_UDP_HEADER) {
            cl_count(&u->cut, 1);
            return;
        }
        write_header(req->reply, req->data, (uint32_t)i, (uint32_t)total);
        memcpy(req->reply + CL_KV_UDP_HEADER, answer + i * part, n);
        if (i + 1 == total)
            req->reply_len = (int64_t)n + CL_KV_UDP_HEADER;
        else if (u->more(req, (int64_t)n + CL_KV_UDP_HEADER) < 0)
            req->room = 0;
    }
}

static void answer_text(struct cl_kv_out *o, const char *text)
{
    o->len = strlen(text);
    memcpy(o->data, text, o->len);
}

/* Run the command layer over a request's payload, the answer into *o. */
static void run_commands(struct cl_kv_udp *u, const struct cl_udp_req *req, struct cl_kv_out *o)
{
    struct cl_kv_session session = {.thread = u->thread};
    uint64_t len = (uint64_t)req->len - CL_KV_UDP_HEADER;
    if (len == 0) /* asks nothing, whatever its header says */
        return;
    if (req->data[4] != 0 || req->data[5] != 1) {
        cl_count(&u->multi_packet, 1);
        answer_text(o, CL_KV_UDP_MULTI);
        return;
    }
    cl_kv_process_whole(&session, req->data + CL_KV_UDP_HEADER, len, o);
}

/* A request that is not a plain GET, or whose answer is not plain. */
static CL_NOINLINE void long_way(struct cl_kv_udp *u, struct cl_udp_req *req)
{
    if (req->len < CL_KV_UDP_HEADER) {
        cl_count(&u->runts, 1);
        return;
    }
    if (cl_kv_udp_is_answer(req->data, req->len)) {
        cl_count(&u->answers, 1);
        return;
    }
    int64_t room = cl_min(req->room, (int64_t)CL_KV_UDP_DATAGRAM) - CL_KV_UDP_HEADER;
    struct cl_kv_out o = {.data = u->spill, .room = u->spill_room};
    if (room >= KV_SHORT_ANSWER_BYTES)
        o = (struct cl_kv_out){req->reply + CL_KV_UDP_HEADER, 0, (uint64_t)room, u->spill, u->spill_room};
    run_commands(u, req, &o);
    if (o.len > (uint64_t)cl_max(room, (int64_t)0) && !u->more)
        answer_text(&o, "SERVER_ERROR object too large for a datagram\r\n");
    if (!o.len || room <= 0 || (o.len > (uint64_t)room && !u->more)) {
        cl_count(&u->silent, 1);
        return;
    }
    cl_count(&u->answered, 1);
    if (o.len > (uint64_t)room) {
        send_split(u, req, o.data, o.len, (uint64_t)room);
        return;
    }
    if (o.data == u->spill)
        memcpy(req->reply + CL_KV_UDP_HEADER, o.data, o.len);
    write_header(req->reply, req->data, 0, 1);
    req->reply_len = (int64_t)o.len + CL_KV_UDP_HEADER;
}

static void batch(struct cl_kv_udp *u, struct cl_udp_req *reqs, unsigned n)
{
    const struct cl_kv *store = u->thread->store;
    struct look looks[BATCH_MAX];
    for (unsigned i = 0; i < n; i++)
        look_at(store, &reqs[i], &looks[i]);
    if (n > 1)
        for (unsigned i = 0; i < n; i++)
            if (looks[i].key.len)
                look_further(store, &reqs[i], &looks[i]);
    /* The short way neither counts by prefixes nor tells watchers. */
    if (cl_unlikely(cl_load_relaxed(&store->detail) || kv_watched(store, KV_WATCH_FETCHERS)))
        for (unsigned i = 0; i < n; i++)
            looks[i].fast = false;
    for (unsigned i = 0; i < n; i++) {
        reqs[i].reply_len = 0;
        if (!looks[i].fast || !fast_get(u, &reqs[i], &looks[i].key))
            long_way(u, &reqs[i]);
    }
    cl_count(&u->datagrams, n);
}

void cl_kv_udp_batch(struct cl_kv_udp *u, struct cl_udp_req *reqs, unsigned n)
{
    cl_kv_tick(u->thread);
    u->thread->client = 0;
    for (unsigned i = 0; i < n; i += BATCH_MAX)
        batch(u, reqs + i, cl_min(n - i, (unsigned)BATCH_MAX));
}

void cl_kv_udp_handler(struct cl_udp_req *reqs, unsigned n, void *arg)
{
    cl_kv_udp_batch(arg, reqs, n);
}

/* See conn.h. */
#include "conn.h"
#include "front.h"
#include <stdlib.h>

#define PIPELINE_BYTES 64 /* what is shorter is one command, as a rule */
#define GROWS_FROM 4096   /* what is held of a command that has just begun */

static void let_go(struct kv_conn *c, struct kv_held *h)
{
    kv_front_give(c->front, h->room);
    free(h->data);
    *h = (struct kv_held){0};
}

void kv_conn_release(struct kv_conn *c)
{
    kv_watch_leave(c->front->store, &c->watcher);
    let_go(c, &c->in);
    let_go(c, &c->out);
}

/* Have room for `len` bytes in all. False: there is no memory. */
static bool reserve(struct kv_conn *c, struct kv_held *h, uint64_t len, uint64_t most)
{
    if (len <= h->room)
        return true;
    uint64_t room = cl_max(len, cl_min(cl_max(2 * h->room, (uint64_t)GROWS_FROM), most));
    if (!kv_front_take(c->front, room - h->room))
        return false;
    uint8_t *data = realloc(h->data, room);
    if (!data) {
        kv_front_give(c->front, room - h->room);
        return false;
    }
    h->data = data;
    h->room = room;
    return true;
}

static bool keep(struct kv_conn *c, struct kv_held *h, const uint8_t *data, uint64_t len, uint64_t most)
{
    if (!reserve(c, h, h->len + len, most))
        return false;
    memcpy(h->data + h->len, data, len);
    h->len += len;
    return true;
}

static void end_with(struct kv_conn *c, struct kv_side *side, const char *text)
{
    c->over = true;
    if (c->session.protocol == CL_KV_TEXT && c->write(c->link, text, (int64_t)strlen(text)) > 0)
        cl_count(&side->bytes_written, strlen(text));
}

/* Send an answer; what finds no room is kept. */
static void answer(struct kv_conn *c, struct kv_side *side, const struct cl_kv_out *out)
{
    if (!out->len)
        return;
    int64_t sent = c->write(c->link, out->data, (int64_t)out->len);
    if (sent < 0) {
        c->over = true;
        return;
    }
    cl_count(&side->bytes_written, (uint64_t)sent);
    if ((uint64_t)sent == out->len)
        return;
    cl_count(&side->held_back, 1);
    if (!keep(c, &c->out, out->data + sent, out->len - (uint64_t)sent, 0))
        c->over = true; /* in the middle of an answer: there is nothing to be said */
}

/* Where an answer goes that is longer than a burst's. NULL: there is no memory, or as much is held as may. */
static uint8_t *spill_of(struct kv_conn *c, struct kv_side *side)
{
    if (!side->spill)
        side->spill = malloc(side->spill_room);
    return kv_front_has(c->front, side->spill_room) ? side->spill : NULL;
}

void kv_conn_say(struct kv_conn *c, struct kv_side *side, const uint8_t *data, uint64_t len)
{
    struct cl_kv_out out = {.data = (uint8_t *)data, .len = len};
    if (!c->out.len)
        answer(c, side, &out);
    else if (!keep(c, &c->out, data, len, 0))
        c->over = true;
}

void kv_conn_answered(struct kv_conn *c, const uint8_t *data, uint64_t len, bool ends)
{
    c->waits = false;
    bool kept = !len || keep(c, &c->out, data, len, 0);
    c->over = c->over || ends || !kept;
    c->wake(c->link);
}

/* Execute what is complete of in[0..len). Returns how many bytes are done with. */
static uint64_t execute(struct kv_conn *c, struct kv_side *side, const uint8_t *in, uint64_t len)
{
    const struct kv_elsewhere *e = c->front->elsewhere;
    if (e) {
        uint64_t taken = e->run(e->arg, c, side, in, len);
        c->stopped = !c->over && c->session.skip;
        return taken;
    }
    uint64_t done = 0, n;
    bool spills = false;
    int rc = 0;
    do {
        struct cl_kv_out out = {side->scratch, 0, CL_KV_ANSWER_ROOM, NULL, 0};
        if (spills)
            out = (struct cl_kv_out){spill_of(c, side), 0, side->spill_room, NULL, 0};
        if (!out.data) {
            end_with(c, side, "SERVER_ERROR out of memory writing get response\r\n");
            break;
        }
        c->session.keeps = kv_front_left(c->front);
        rc = cl_kv_process(&c->session, in + done, len - done, &n, &out);
        done += n;
        answer(c, side, &out);
        spills = rc == CL_KV_FULL && out.len == 0;
        if (rc == CL_KV_QUIT)
            c->over = true;
    } while (rc == CL_KV_FULL && !c->out.len && !c->over);
    c->stopped = !c->over && rc == CL_KV_FULL;
    c->yields = !c->over && rc == CL_KV_TURN;
    return done;
}

/* How many of the bytes that come belong to the command that is held, as far as is known. */
static uint64_t belonging(const struct kv_conn *c, const uint8_t *data, uint64_t len)
{
    if (c->session.want)
        return cl_min(len, c->session.want - c->in.len);
    const uint8_t *end = memchr(data, '\n', len);
    return end ? (uint64_t)(end - data) + 1 : len;
}

/* Whether a line that has not ended may go on. memcached: only those that ask for many keys are as long. */
static bool may_go_on(const struct kv_conn *c)
{
    const uint8_t *p = c->in.data, *end = p + c->in.len;
    if (c->session.protocol == CL_KV_BINARY || c->session.want || c->in.len <= KV_LINE_PATIENCE)
        return true;
    while (p < end && *p == ' ' && p - c->in.data <= 100)
        p++;
    bool gets = end - p > 5 && (memcmp(p, "get ", 4) == 0 || memcmp(p, "gets ", 5) == 0);
    return gets && c->in.len < CL_KV_LINE_MAX;
}

/* Keep the beginning of a command, or more of it. False: there is no memory for it. */
static bool hold(struct kv_conn *c, const uint8_t *data, uint64_t len)
{
    uint64_t most = c->session.want ? c->session.want : CL_KV_LINE_MAX;
    if (!keep(c, &c->in, data, len, most))
        return false;
    if (!may_go_on(c))
        c->over = true;
    return true;
}

/* in[0..len), the beginning of a command, cannot be kept. A value is refused now, and thrown away as it comes, as if
 * nothing of it had been kept before; of a line nobody knows where it ends. What is executed elsewhere is not refused
 * here. */
static void refuse_held(struct kv_conn *c, struct kv_side *side, const uint8_t *in, uint64_t len)
{
    struct cl_kv_out out = {side->scratch, 0, CL_KV_ANSWER_ROOM, NULL, 0};
    uint64_t n = 0;
    if (c->session.want && !c->front->elsewhere) {
        c->session.keeps = 1;
        if (cl_kv_process(&c->session, in, len, &n, &out) == CL_KV_QUIT)
            c->over = true;
        answer(c, side, &out);
    }
    if (n < len)
        end_with(c, side, "SERVER_ERROR out of memory reading request\r\n");
}

/* Bytes for the command that is held. Returns how many were taken. */
static uint64_t go_on_with_held(struct kv_conn *c, struct kv_side *side, const uint8_t *data, uint64_t len)
{
    uint64_t n = belonging(c, data, len);
    bool ends = c->session.want ? c->in.len + n == c->session.want : data[n - 1] == '\n';
    if (!hold(c, data, n)) {
        refuse_held(c, side, c->in.data, c->in.len);
        let_go(c, &c->in);
        return 0; /* it is looked at again, as what is to be thrown away */
    }
    if (c->over || !ends)
        return n;
    if (execute(c, side, c->in.data, c->in.len) == c->in.len)
        let_go(c, &c->in);
    return n;
}

/* Bytes that begin a command. Returns how many were taken. */
static uint64_t begin(struct kv_conn *c, struct kv_side *side, const uint8_t *data, uint64_t len)
{
    uint64_t done = execute(c, side, data, len);
    if (c->stopped && c->front->elsewhere) { /* in parts: it may not come in one piece again */
        const uint8_t *end = memchr(data + done, '\n', len - done);
        uint64_t line = (uint64_t)(end - data) + 1 - done;
        if (!hold(c, data + done, line))
            refuse_held(c, side, data + done, line);
        return done + line;
    }
    bool paused = c->yields || c->waits || (c->front->elsewhere && c->out.len);
    if (c->over || c->stopped || paused || done == len) {
        c->stopped = false; /* the transport has the command */
        return done;
    }
    cl_count(&side->commands_held, 1);
    if (!hold(c, data + done, len - done))
        refuse_held(c, side, data + done, len - done);
    return len;
}

static void show_state(struct kv_conn *c)
{
    enum kv_conn_state state = c->over              ? KV_CONN_CLOSING
                               : c->out.len         ? KV_CONN_WRITE
                               : c->watcher.kinds   ? KV_CONN_WATCH
                               : c->session.swallow ? KV_CONN_SWALLOW
                               : c->in.len          ? KV_CONN_NREAD
                                                    : KV_CONN_READ;
    cl_store_relaxed(&c->state, state);
}

/* Work for the connection by the thread of `side`. */
static void begin_turn(struct kv_conn *c, const struct kv_side *side)
{
    c->session.thread = side->thread;
    c->session.done = 0;
    c->yields = false;
    side->thread->client = c->number + KV_FIRST_NUMBER;
}

int64_t kv_conn_take(struct kv_conn *c, struct kv_side *side, const uint8_t *data, int64_t len)
{
    uint64_t at = 0, all = (uint64_t)len;
    begin_turn(c, side);
    if (!c->out.len && cl_load_relaxed(&c->last_s) != side->thread->now_s)
        cl_store_relaxed(&c->last_s, side->thread->now_s);
    cl_store_relaxed(&c->state, KV_CONN_PARSE);
    if (len >= PIPELINE_BYTES && !c->in.len)
        kv_ahead_pipeline(&side->ahead, side->thread->store, data, all);
    if (side->ahead.n)
        kv_ahead_fetch(&side->ahead, side->thread->store);
    /* What is held is one command, and goes first: it is never what ends a turn. */
    while (at < all && !c->over && !c->out.len && !c->yields && !c->waits)
        at += (c->in.len ? go_on_with_held : begin)(c, side, data + at, all - at);
    if (cl_unlikely(c->over)) {
        let_go(c, &c->in);
        at = all;
    }
    if (cl_unlikely(c->session.watches && !c->watcher.kinds) &&
        kv_watch_join(c->front->store, c->session.watches, &c->watcher))
        c->over = true;
    cl_count(&side->bytes_read, at);
    if (cl_unlikely(c->yields))
        cl_count(&side->yields, 1);
    show_state(c);
    return (int64_t)at;
}

/* Send what waits. */
static void flush(struct kv_conn *c, struct kv_side *side)
{
    struct kv_held *h = &c->out;
    if (!h->len)
        return;
    int64_t sent = c->write(c->link, h->data + h->from, (int64_t)(h->len - h->from));
    if (sent < 0)
        c->over = true;
    else
        cl_count(&side->bytes_written, (uint64_t)sent);
    if (sent > 0) {
        h->from += (uint64_t)sent;
        cl_store_relaxed(&c->last_s, side->thread->now_s);
    }
    if (sent < 0 || h->from == h->len)
        let_go(c, h);
}

bool kv_conn_go_on(struct kv_conn *c, struct kv_side *side)
{
    begin_turn(c, side);
    flush(c, side);
    if (!c->out.len && c->stopped && !c->waits && !c->over && execute(c, side, c->in.data, c->in.len) == c->in.len)
        let_go(c, &c->in);
    c->over = c->over || (c->ended && !c->stopped && !c->waits);
    show_state(c);
    return c->out.len == 0;
}

bool kv_conn_end(struct kv_conn *c)
{
    c->ended = true;
    c->over = c->over || !(c->stopped || c->waits);
    show_state(c);
    return kv_conn_done(c);
}

void kv_conn_show(struct kv_conn *c, struct kv_side *side)
{
    struct cl_kv_out out = {side->scratch, 0, CL_KV_ANSWER_ROOM, NULL, 0};
    do {
        flush(c, side);
        if (c->out.len || c->over)
            break;
        out.len = kv_watch_read(c->front->store, &c->watcher, side->scratch, CL_KV_ANSWER_ROOM);
        answer(c, side, &out);
    } while (out.len);
    show_state(c);
}

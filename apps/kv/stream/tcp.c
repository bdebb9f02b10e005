/* Connections of TCP in the event form (corelane/libos/tcp.h): run to completion on the kthread that works on one.
 *
 * What a burst has brought for all connections is looked at first (on_ahead), so that its cache misses overlap; the
 * first `data` of the burst sends for the items of all.
 *
 * Nothing here blocks, so the number of the kthread stays true through a callback. A burst of commands is what one call
 * of `data` brings, a frame or a chunk; its answers are one write.
 * End: when the last answer was written a FIN follows, and what still comes is taken and thrown away for a while, as a
 * reset might overtake the answer (RFC 2525, section 2.17). */
#include "tcp.h"
#include "shown.h"
#include <corelane/libos/sched.h>
#include <errno.h>

#define LINGER_NS 1000000000ull /* how long one that is over is listened to */
#define LOOK_NS 500000000ull    /* between looks at whether one is idle too long, with a clock that is moved by hand */
#define SHOW_NS 50000000ull     /* between looks for what a watcher is to see */
#define REJECTED "ERROR Too many open connections\r\n"

static struct kv_side *side_here(struct cl_kv_front *f)
{
    struct kv_side *side = kv_front_side(f, (uint32_t)cl_kthread_index());
    cl_kv_tick(side->thread);
    return side;
}

static int64_t write_tcp(void *link, const void *data, int64_t len)
{
    return cl_tcp_write(link, data, len);
}

static void wake_tcp(void *link)
{
    (void)cl_tcp_wake(link);
}

/* Of one that is over, and may have bytes on their way to us. */

static int64_t drop_data(struct cl_tcp_conn *c, const uint8_t *data, int64_t len, void *arg)
{
    (void)c;
    (void)data;
    (void)arg;
    return len;
}

static void close_now(struct cl_tcp_conn *c, void *arg)
{
    (void)arg;
    cl_tcp_close(c);
}

static void forget(struct cl_tcp_conn *c, int error, void *arg)
{
    struct kv_conn *conn = arg;
    (void)c;
    if (!conn)
        return;
    kv_shown_closed(conn, conn->kicked ? "idle_timeout" : error ? "error" : "normal");
    kv_front_close(conn);
}

static const struct cl_tcp_events leaving = {.data = drop_data, .eof = close_now, .timer = close_now, .ended = forget};

static void leave(struct cl_tcp_conn *c, struct kv_conn *conn)
{
    cl_tcp_set_user(c, &leaving, conn);
    cl_tcp_shutdown(c);
    cl_tcp_set_timer(c, LINGER_NS);
}

/* Of one that lives. */

static void look_again(struct cl_tcp_conn *c, const struct kv_conn *conn, uint32_t now_s)
{
    const struct cl_kv_front *f = conn->front;
    uint32_t most_s = f->config.idle_timeout_s;
    if (!most_s)
        return;
    uint64_t left_s = most_s + 1ull - cl_min(most_s, now_s - conn->last_s);
    cl_tcp_set_timer(c, f->store->manual_clock ? LOOK_NS : left_s * 1000000000ull);
}

static int64_t on_data(struct cl_tcp_conn *c, const uint8_t *data, int64_t len, void *arg)
{
    struct kv_conn *conn = arg;
    bool watched = kv_conn_watches(conn);
    if (cl_unlikely(conn->yields)) /* it waits for its turn, which on_woken begins */
        return 0;
    int64_t took = kv_conn_take(conn, side_here(conn->front), data, len);
    if (cl_unlikely(conn->yields))
        (void)cl_tcp_wake(c); /* behind all that are ready now */
    if (cl_unlikely(kv_conn_done(conn)))
        leave(c, conn);
    else if (cl_unlikely(kv_conn_watches(conn) && !watched))
        cl_tcp_set_timer(c, SHOW_NS);
    return took;
}

static void on_writable(struct cl_tcp_conn *c, void *arg)
{
    struct kv_conn *conn = arg;
    if (!kv_conn_go_on(conn, side_here(conn->front)))
        return;
    if (kv_conn_done(conn))
        leave(c, conn);
    else
        cl_tcp_resume(c);
}

/* Others have had their turns, or what was executed elsewhere is answered. */
static void on_woken(struct cl_tcp_conn *c, void *arg)
{
    struct kv_conn *conn = arg;
    if (conn->front->elsewhere) {
        on_writable(c, arg);
        return;
    }
    conn->yields = false;
    cl_tcp_resume(c);
}

/* Answers to what came before the FIN are still the peer's. */
static void on_eof(struct cl_tcp_conn *c, void *arg)
{
    struct kv_conn *conn = arg;
    if (kv_conn_end(conn))
        cl_tcp_close(c);
}

static void show(struct cl_tcp_conn *c, struct kv_conn *conn, struct kv_side *side)
{
    kv_conn_show(conn, side);
    if (kv_conn_done(conn))
        leave(c, conn);
    else
        cl_tcp_set_timer(c, SHOW_NS);
}

static void on_timer(struct cl_tcp_conn *c, void *arg)
{
    struct kv_conn *conn = arg;
    struct kv_side *side = side_here(conn->front);
    if (kv_conn_watches(conn)) {
        show(c, conn, side);
        return;
    }
    if (!kv_front_idle(conn->front, conn, side->thread->now_s)) {
        look_again(c, conn, side->thread->now_s);
        return;
    }
    kv_front_count_kick(conn->front);
    conn->kicked = true;
    if (conn->out.len) /* who does not read would not see the end either */
        cl_tcp_abort(c);
    else
        leave(c, conn);
}

static const struct cl_tcp_events living = {
    .data = on_data, .writable = on_writable, .eof = on_eof, .timer = on_timer, .ended = forget, .woken = on_woken};

static void on_opened(struct cl_tcp_conn *c, void *arg)
{
    struct cl_kv_front *f = arg;
    struct kv_side *side = side_here(f);
    struct kv_conn *conn = kv_front_open(f, KV_TCP);
    cl_tcp_no_delay(c, true); /* an answer is whole when it is written */
    if (!conn) {
        (void)cl_tcp_write(c, REJECTED, sizeof(REJECTED) - 1);
        leave(c, NULL);
        return;
    }
    cl_tcp_ends(c, &conn->peer, &conn->peer_port, &conn->own_port);
    conn->write = write_tcp;
    conn->wake = wake_tcp;
    conn->link = c;
    conn->last_s = side->thread->now_s;
    cl_store_relaxed(&conn->state, KV_CONN_READ);
    cl_tcp_set_user(c, &living, conn);
    kv_shown_opened(conn);
    look_again(c, conn, side->thread->now_s);
}

/* Of any connection: its commands are executed when the burst has been looked at. */
static void on_ahead(const uint8_t *data, int64_t len, void *arg)
{
    struct cl_kv_front *f = arg;
    kv_ahead_note(&kv_front_side(f, (uint32_t)cl_kthread_index())->ahead, f->store, data, (uint32_t)len);
}

/* Until it is open there is nobody to forget. */
static const struct cl_tcp_events opening = {.opened = on_opened, .ahead = on_ahead};

int cl_kv_listen_tcp(struct cl_kv_front *f, struct cl_runtime *rt)
{
    struct cl_runtime_info info;
    cl_runtime_info(rt, &info);
    if (f->n_sides < info.kthreads || !f->config.tcp_port)
        return -EINVAL;
    return cl_runtime_listen_tcp(rt, (uint16_t)f->config.tcp_port, f->config.backlog, &opening, f);
}

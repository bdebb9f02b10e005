/* See shown.h. Names and forms of lines are memcached's. */
#include "shown.h"
#include <inttypes.h>
#include <stdio.h>

#define NAME_BYTES 64
#define DOTTED_BYTES 16
#define ADDRESS_BYTES 256 /* a Unix socket's path has up to 108 */

enum listening { TCP_LISTENS, UDP_LISTENS, UNIX_LISTENS };
_Static_assert(UNIX_LISTENS + 1 == KV_FIRST_NUMBER, "numbers of what listens, then those of connections");

void cl_kv_front_counts(const struct cl_kv_front *f, struct cl_kv_front_counts *out)
{
    *out = (struct cl_kv_front_counts){.connections = f->config.max_connections - cl_load_relaxed(&f->n_free),
                                       .opened = cl_load_relaxed(&f->opened),
                                       .most = cl_load_relaxed(&f->most),
                                       .rejected = cl_load_relaxed(&f->rejected),
                                       .idle_kicks = cl_load_relaxed(&f->idle_kicks),
                                       .pauses = cl_load_relaxed(&f->pauses),
                                       .held_bytes = cl_load_relaxed(&f->held),
                                       .budget_bytes = f->config.budget_bytes};
    for (uint32_t i = 0; i < f->n_sides; i++) {
        const struct kv_side *side = &f->sides[i].side;
        out->bytes_read += cl_load_relaxed(&side->bytes_read);
        out->bytes_written += cl_load_relaxed(&side->bytes_written);
        out->commands_held += cl_load_relaxed(&side->commands_held);
        out->held_back += cl_load_relaxed(&side->held_back);
        out->yields += cl_load_relaxed(&side->yields);
    }
}

static void general(void *front, struct kv_command *c)
{
    const struct cl_kv_front *f = front;
    struct cl_kv_front_counts n;
    uint64_t watchers, sent, skipped;
    cl_kv_front_counts(f, &n);
    kv_stat_u64(c, "max_connections", f->config.max_connections);
    kv_stat_u64(c, "curr_connections", n.connections);
    kv_stat_u64(c, "total_connections", n.opened);
    kv_stat_u64(c, "rejected_connections", n.rejected);
    kv_stat_u64(c, "connection_structures", n.most);
    if (f->config.idle_timeout_s)
        kv_stat_u64(c, "idle_kicks", n.idle_kicks);
    kv_stat_u64(c, "bytes_read", n.bytes_read);
    kv_stat_u64(c, "bytes_written", n.bytes_written);
    kv_stat_u64(c, "accepting_conns", !cl_load_relaxed(&f->paused));
    kv_stat_u64(c, "listen_disabled_num", n.pauses);
    kv_stat_u64(c, "conn_yields", n.yields);
    kv_watch_counts(f->store, &watchers, &sent, &skipped);
    kv_stat_u64(c, "log_watchers", watchers);
    kv_stat_u64(c, "log_watcher_sent", sent);
    kv_stat_u64(c, "log_watcher_skipped", skipped);
    kv_stat_u64(c, "conn_held_bytes", n.held_bytes);
    kv_stat_u64(c, "conn_held_back", n.held_back);
}

static const char *dotted(char *text, uint32_t ip)
{
    snprintf(text, DOTTED_BYTES, "%u.%u.%u.%u", ip >> 24, ip >> 16 & 255, ip >> 8 & 255, ip & 255);
    return text;
}

static const char *address(char *text, const char *kind, uint32_t ipv4, uint32_t port)
{
    char ip[DOTTED_BYTES];
    snprintf(text, ADDRESS_BYTES, "%s:%s:%u", kind, dotted(ip, ipv4), port);
    return text;
}

static void settings(void *front, struct kv_command *c)
{
    const struct cl_kv_front *f = front;
    char inter[DOTTED_BYTES], mode[12];
    dotted(inter, f->config.ipv4);
    snprintf(mode, sizeof(mode), "%o", f->config.path_mode);
    kv_stat_u64(c, "maxconns", f->config.max_connections);
    kv_stat_u64(c, "tcpport", f->config.tcp_port);
    kv_stat_u64(c, "udpport", f->config.udp_port);
    kv_stat_text(c, "inter", inter);
    kv_stat_text(c, "domain_socket", f->path ? f->path : "NULL");
    kv_stat_text(c, "umask", mode);
    kv_stat_u64(c, "reqs_per_event", f->config.requests_per_event);
    kv_stat_u64(c, "tcp_backlog", f->config.backlog);
    kv_stat_text(c, "maxconns_fast", "yes");
    kv_stat_u64(c, "idle_timeout", f->config.idle_timeout_s);
    kv_stat_u64(c, "watcher_logbuf_size", KV_WATCH_BYTES);
    kv_stat_u64(c, "read_buf_mem_limit", f->config.budget_bytes >> 20);
}

static void conn_line(struct kv_command *c, uint32_t number, const char *what, const char *value)
{
    char name[NAME_BYTES];
    snprintf(name, sizeof(name), "%u:%s", number, what);
    kv_stat_text(c, name, value);
}

static void idle_line(struct kv_command *c, uint32_t number, uint32_t last_s)
{
    char text[24];
    snprintf(text, sizeof(text), "%u", c->thread->now_s - last_s);
    conn_line(c, number, "secs_since_last_cmd", text);
}

static const char *unix_address(char *text, const struct cl_kv_front *f)
{
    snprintf(text, ADDRESS_BYTES, "unix:%s", f->path);
    return text;
}

static void listening_lines(const struct cl_kv_front *f, struct kv_command *c, uint32_t i)
{
    const struct cl_kv_front_config *k = &f->config;
    char text[ADDRESS_BYTES];
    if (!(i == TCP_LISTENS ? k->tcp_port != 0 : i == UDP_LISTENS ? k->udp_port != 0 : f->path != NULL))
        return;
    if (i == UDP_LISTENS)
        conn_line(c, i, "UDP", "UDP");
    conn_line(c, i, "addr",
              i == TCP_LISTENS   ? address(text, "tcp", k->ipv4, k->tcp_port)
              : i == UDP_LISTENS ? address(text, "udp", k->ipv4, k->udp_port)
                                 : unix_address(text, f));
    conn_line(c, i, "state", i == UDP_LISTENS ? "conn_read" : "conn_listening");
    idle_line(c, i, c->thread->now_s);
}

static bool one_conn(void *front, struct kv_command *c, uint32_t i)
{
    static const char *const states[] = {
        [KV_CONN_READ] = "conn_read",       [KV_CONN_PARSE] = "conn_parse_cmd", [KV_CONN_NREAD] = "conn_nread",
        [KV_CONN_SWALLOW] = "conn_swallow", [KV_CONN_WRITE] = "conn_mwrite",    [KV_CONN_WATCH] = "conn_watch",
        [KV_CONN_CLOSING] = "conn_closing"};
    const struct cl_kv_front *f = front;
    char text[ADDRESS_BYTES];
    if (i < KV_FIRST_NUMBER) {
        listening_lines(f, c, i);
        return true;
    }
    if (i - KV_FIRST_NUMBER >= cl_load_relaxed(&f->most))
        return false;
    const struct kv_conn *conn = &f->conns[i - KV_FIRST_NUMBER];
    uint32_t state = cl_load_relaxed(&conn->state);
    if (state == KV_CONN_CLOSED)
        return true;
    bool tcp = cl_load_relaxed(&conn->kind) == KV_TCP;
    conn_line(c, i, "addr",
              tcp ? address(text, "tcp", cl_load_relaxed(&conn->peer), cl_load_relaxed(&conn->peer_port))
                  : unix_address(text, f));
    conn_line(c, i, "listen_addr", tcp ? address(text, "tcp", f->config.ipv4, f->config.tcp_port) : text);
    conn_line(c, i, "state", states[state]);
    idle_line(c, i, cl_load_relaxed(&conn->last_s));
    return true;
}

static const char *bare(char *text, const struct kv_conn *c)
{
    return c->kind == KV_TCP ? dotted(text, c->peer) : "unix";
}

static const char *transport(const struct kv_conn *c)
{
    return c->kind == KV_TCP ? "tcp" : "local";
}

static const struct kv_front_ops ops = {general, settings, one_conn};

/* Release: who sees the front sees it whole. */
void kv_shown_begin(struct cl_kv_front *f)
{
    cl_store_release(&f->store->front_ops, &ops);
    cl_store_release(&f->store->front, f);
}

void kv_shown_end(struct cl_kv_front *f)
{
    if (f->store->front == f)
        cl_store_release(&f->store->front, NULL);
}

void kv_shown_opened(const struct kv_conn *c)
{
    char ip[DOTTED_BYTES];
    if (kv_watched(c->front->store, KV_WATCH_CONNEVENTS))
        kv_watch_note(c->front->store, KV_WATCH_CONNEVENTS, "type=conn_new rip=%s rport=%u transport=%s cfd=%u",
                      bare(ip, c), c->peer_port, transport(c), c->number + KV_FIRST_NUMBER);
}

void kv_shown_closed(const struct kv_conn *c, const char *reason)
{
    char ip[DOTTED_BYTES];
    if (kv_watched(c->front->store, KV_WATCH_CONNEVENTS))
        kv_watch_note(c->front->store, KV_WATCH_CONNEVENTS,
                      "type=conn_close rip=%s rport=%u transport=%s reason=%s cfd=%u", bare(ip, c), c->peer_port,
                      transport(c), reason, c->number + KV_FIRST_NUMBER);
}

/* See host.h. */
#include "../icmp.h"
#include "cookie.h"
#include "host.h"
#include "machine.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK_BYTES (64u << 20)
#define HEADERS 20 /* of IPv4 */

/* A connection, and what its user knows of it. It outlives either. */
struct socket {
    struct cl_tcp_host *host;
    struct cl_tcp_conn conn;
    struct cl_flow_key key;
    struct cl_tcp_listener *listener; /* of one that listens */
    struct cl_tcp_settings settings;  /* if it has its own */
    uint32_t order;                   /* of those that wait to be accepted */
    bool open;                        /* the user has it */
    bool lives;                       /* the connection does */
    bool connecting, opened, waits;   /* waits: to be accepted */
    bool eof;                         /* the user has read all that there is */
    int error;                        /* to be told, once */
};

struct sent {
    struct sent *next;
    uint64_t at_ns;
    uint32_t len;
    uint8_t bytes[];
};

struct cl_tcp_host {
    uint32_t ipv4;
    uint32_t order;
    struct cl_tcp_stack stack;
    struct cl_tcp_counts counts;
    struct cl_tcp_turn turn;
    struct sent *first, **last;
    struct socket sockets[CL_TCP_HOST_SOCKETS];
};

static struct socket *get(const struct cl_tcp_host *h, int s)
{
    const struct socket *found = s >= 0 && s < CL_TCP_HOST_SOCKETS && h->sockets[s].open ? &h->sockets[s] : NULL;
    return (struct socket *)found;
}

static int number_of(const struct socket *s)
{
    return (int)(s - s->host->sockets);
}

/* Packets. */

static void send_packet(struct cl_tcp_host *h, const struct cl_flow_key *key, const struct cl_tcp_segment *s,
                        const struct cl_tcp_bytes *data)
{
    struct sent *p = malloc(sizeof *p + HEADERS + 60 + s->len);
    if (!p)
        return; /* as if lost */
    uint8_t *tcp = p->bytes + HEADERS;
    unsigned len = cl_tcp_segment_write(s, cl_be16(key->own_port_be), cl_be16(key->peer_port_be), tcp);
    const struct cl_chunk *chunk = data->chunk;
    for (uint32_t left = data->len, at = data->offset; left; chunk = chunk->next, at = chunk ? chunk->from : 0) {
        uint32_t n = cl_min(left, (uint32_t)chunk->from + chunk->len - at);
        memcpy(tcp + len, chunk->bytes + at, n);
        len += n;
        left -= n;
    }
    struct cl_ipv4 ip = {.version_ihl = 0x45,
                         .tos = s->ecn,
                         .total_len_be = cl_be16(HEADERS + len),
                         .frag_be = cl_be16(CL_IPV4_DF),
                         .ttl = 64,
                         .proto = CL_IPPROTO_TCP,
                         .src_be = key->own_be,
                         .dst_be = key->peer_be};
    ip.check = cl_csum_finish(cl_csum_add(0, &ip, sizeof ip));
    memcpy(p->bytes, &ip, sizeof ip);
    uint64_t sum = cl_csum_pseudo(key->own_be, key->peer_be, CL_IPPROTO_TCP, (uint16_t)len);
    cl_put16(tcp + 16, cl_csum_finish(cl_csum_add(sum, tcp, len)));
    p->len = HEADERS + len;
    p->at_ns = h->turn.now_ns;
    p->next = NULL;
    *h->last = p;
    h->last = &p->next;
}

static bool emit(struct cl_tcp_turn *turn, struct cl_tcp_conn *c, const struct cl_tcp_segment *s,
                 const struct cl_tcp_bytes *data)
{
    send_packet(cl_container_of(turn, struct cl_tcp_host, turn), &cl_container_of(c, struct socket, conn)->key, s,
                data);
    return true;
}

/* Of a segment that is of no connection. */
static void refuse(struct cl_tcp_host *h, const struct cl_flow_key *key, const struct cl_tcp_segment *s)
{
    static const struct cl_tcp_bytes none;
    struct cl_tcp_segment reset;
    if (cl_tcp_segment_refuse(s, &reset))
        send_packet(h, key, &reset, &none);
}

static struct cl_tcp_listener *find_listener(struct cl_tcp_host *h, uint16_t port_be)
{
    for (int i = 0; i < CL_TCP_HOST_SOCKETS; i++)
        if (h->sockets[i].listener && h->sockets[i].open && h->sockets[i].key.own_port_be == port_be)
            return h->sockets[i].listener;
    return NULL;
}

/* Of the port of one in TIME_WAIT, which its user has let go of. */
static struct cl_tcp_listener *listener_of(struct cl_tcp_turn *turn, const struct cl_tcp_conn *c)
{
    struct socket *s = cl_container_of(c, struct socket, conn);
    struct cl_tcp_listener *l = find_listener(cl_container_of(turn, struct cl_tcp_host, turn), s->key.own_port_be);
    if (s->open || !l || !cl_tcp_admit(l))
        return NULL;
    s->opened = s->connecting = false;
    s->error = 0;
    return l;
}

static const struct cl_flow_key *key_of(const struct cl_tcp_conn *c)
{
    return &cl_container_of(c, const struct socket, conn)->key;
}

uint32_t cl_tcp_host_next(struct cl_tcp_host *h, uint8_t *packet, uint32_t room, uint64_t *at_ns)
{
    struct sent *p = h->first;
    if (!p)
        return 0;
    uint32_t len = cl_min(p->len, room);
    memcpy(packet, p->bytes, len);
    *at_ns = p->at_ns;
    h->first = p->next;
    if (!h->first)
        h->last = &h->first;
    free(p);
    return len;
}

/* What the machine tells. */

static void on_opened(struct cl_tcp_conn *c, void *arg)
{
    struct socket *s = cl_container_of(c, struct socket, conn);
    (void)arg;
    s->opened = true;
    s->connecting = false;
    if (c->flags & CL_TCP_PASSIVE) {
        s->waits = true;
        s->order = s->host->order++;
    }
}

static void on_eof(struct cl_tcp_conn *c, void *arg)
{
    struct socket *s = cl_container_of(c, struct socket, conn);
    (void)arg;
    s->eof = true;
}

static void on_ended(struct cl_tcp_conn *c, int error, void *arg)
{
    struct socket *s = cl_container_of(c, struct socket, conn);
    (void)arg;
    s->connecting = false;
    s->error = error;
}

static const struct cl_tcp_events events = {.opened = on_opened, .eof = on_eof, .ended = on_ended};

static void begin(struct socket *s)
{
    cl_tcp_begin(&s->conn, &s->host->turn);
}

static void finish(struct socket *s)
{
    if (cl_tcp_finish(&s->conn))
        return;
    s->lives = false;
    if (s->waits && s->error) /* it was reset before it was accepted, and accept does not give it out */
        s->waits = false;
}

static struct socket *new_socket(struct cl_tcp_host *h, const struct cl_flow_key *key, bool open)
{
    for (int i = 0; i < CL_TCP_HOST_SOCKETS; i++) {
        struct socket *s = &h->sockets[i];
        if (s->open || s->lives || s->waits)
            continue;
        *s = (struct socket){.host = h, .key = *key, .open = open, .lives = true};
        cl_tcp_init(&s->conn, &h->turn, key, &h->stack.settings);
        return s;
    }
    return NULL;
}

static struct socket *find(struct cl_tcp_host *h, const struct cl_flow_key *key)
{
    for (int i = 0; i < CL_TCP_HOST_SOCKETS; i++)
        if (h->sockets[i].lives && cl_flow_key_equal(&h->sockets[i].key, key))
            return &h->sockets[i];
    return NULL;
}

/* For a SYN. NULL: there is no place for one. */
static struct socket *socket_for_syn(struct cl_tcp_host *h, const struct cl_flow_key *key, struct cl_tcp_listener *l,
                                     const struct cl_tcp_segment *syn)
{
    static const struct cl_tcp_bytes none;
    struct cl_tcp_segment answer;
    if (!cl_tcp_admit(l)) {
        if (!cl_tcp_takes(l)) {
            cl_count(&h->counts.dropped_backlog, 1);
            return NULL;
        }
        cl_tcp_cookie_answer(&h->turn, l, key, syn, &answer);
        send_packet(h, key, &answer, &none);
        return NULL;
    }
    struct socket *s = new_socket(h, key, false);
    if (s)
        cl_tcp_listen(&s->conn, l);
    else
        l->pending--;
    return s;
}

/* For the answer to a cookie. NULL: there is no place for one. */
static struct socket *socket_for_cookie(struct cl_tcp_host *h, const struct cl_flow_key *key, struct cl_tcp_listener *l,
                                        const struct cl_tcp_segment *seg)
{
    if (!cl_tcp_cookie_admit(l)) {
        cl_count(&h->counts.dropped_backlog, 1);
        return NULL;
    }
    struct socket *s = new_socket(h, key, false);
    if (s)
        cl_tcp_cookie_take(&s->conn, l, seg);
    else
        l->pending--;
    return s;
}

/* A segment of no connection. Returns one that was made for it. */
static struct socket *stranger(struct cl_tcp_host *h, const struct cl_flow_key *key, const struct cl_tcp_segment *seg)
{
    struct cl_tcp_listener *l = find_listener(h, key->own_port_be);
    if (l && (seg->flags & (CL_TCPF_SYN | CL_TCPF_ACK | CL_TCPF_RST)) == CL_TCPF_SYN)
        return socket_for_syn(h, key, l, seg);
    if (l && !(seg->flags & CL_TCPF_ACK)) /* it is dropped (RFC 9293, section 3.10.7.2) */
        return NULL;
    if (l && cl_tcp_cookie_right(&h->turn, key, seg))
        return socket_for_cookie(h, key, l, seg);
    refuse(h, key, seg);
    return NULL;
}

static void take_segment(struct cl_tcp_host *h, const struct cl_ipv4 *ip, const uint8_t *tcp, unsigned len)
{
    struct cl_tcp_segment seg;
    uint64_t sum = cl_csum_pseudo(ip->src_be, ip->dst_be, CL_IPPROTO_TCP, (uint16_t)len);
    if (!cl_tcp_segment_read(tcp, len, &seg) || cl_csum_finish(cl_csum_add(sum, tcp, len)))
        return;
    struct cl_flow_key key = {ip->src_be, ip->dst_be, cl_get16(tcp), cl_get16(tcp + 2), CL_IPPROTO_TCP};
    struct socket *s = find(h, &key);
    if (!s)
        s = stranger(h, &key, &seg);
    if (!s)
        return;
    seg.ecn = ip->tos & 3;
    begin(s);
    cl_tcp_input(&s->conn, &seg, tcp + seg.header_len);
    finish(s);
}

static void take_message(struct cl_tcp_host *h, const uint8_t *icmp, unsigned len)
{
    struct cl_net_self self = {.ip_be = cl_be32(h->ipv4)};
    struct cl_icmp_about about;
    bool is_error;
    if (cl_icmp_check(&self, icmp, len, false, false, &is_error) != CL_DROP_NONE || !is_error)
        return;
    cl_icmp_read(icmp, &about);
    struct cl_flow_key key = {about.dst_be, about.src_be, about.dst_port_be, about.src_port_be, about.protocol};
    struct socket *s = find(h, &key);
    if (!s)
        return;
    begin(s);
    cl_tcp_complain(&s->conn, &about);
    finish(s);
}

void cl_tcp_host_take(struct cl_tcp_host *h, const uint8_t *packet, uint32_t len)
{
    struct cl_ipv4 ip;
    if (len < HEADERS)
        return;
    memcpy(&ip, packet, sizeof ip);
    unsigned header = 4u * (ip.version_ihl & 15), total = cl_be16(ip.total_len_be);
    if (ip.version_ihl >> 4 != 4 || header < HEADERS || total > len || header > total || cl_be32(ip.dst_be) != h->ipv4)
        return;
    if (ip.proto == CL_IPPROTO_TCP)
        take_segment(h, &ip, packet + header, total - header);
    else if (ip.proto == CL_IPPROTO_ICMP)
        take_message(h, packet + header, total - header);
}

/* Time. */

static struct socket *first_due(const struct cl_tcp_host *h, uint64_t *due_ns)
{
    struct socket *first = NULL;
    *due_ns = CL_TCP_NEVER;
    for (int i = 0; i < CL_TCP_HOST_SOCKETS; i++) {
        const struct socket *s = &h->sockets[i];
        if (s->lives && cl_tcp_due_ns(&s->conn) < *due_ns) {
            *due_ns = cl_tcp_due_ns(&s->conn);
            first = (struct socket *)s;
        }
    }
    return first;
}

uint64_t cl_tcp_host_due_ns(const struct cl_tcp_host *h)
{
    uint64_t due_ns;
    (void)first_due(h, &due_ns);
    return due_ns;
}

void cl_tcp_host_run(struct cl_tcp_host *h, uint64_t now_ns)
{
    struct socket *s;
    uint64_t due_ns;
    while ((s = first_due(h, &due_ns)) && due_ns <= now_ns) {
        h->turn.now_ns = cl_max(h->turn.now_ns, due_ns);
        begin(s);
        cl_tcp_timers(&s->conn);
        finish(s);
    }
    h->turn.now_ns = cl_max(h->turn.now_ns, now_ns);
}

/* A host. */

int cl_tcp_host_new(uint32_t ipv4, uint32_t mtu, uint64_t now_ns, struct cl_tcp_host **out)
{
    struct cl_tcp_host *h = calloc(1, sizeof *h);
    if (!h)
        return -ENOMEM;
    h->ipv4 = ipv4;
    h->last = &h->first;
    h->stack.chunks = cl_chunks_new(CHUNK_BYTES, 1);
    h->turn = (struct cl_tcp_turn){.stack = &h->stack,
                                   .counts = &h->counts,
                                   .emit = emit,
                                   .listener = listener_of,
                                   .key = key_of,
                                   .now_ns = now_ns};
    cl_tcp_settings_default(&h->stack.settings, mtu);
    *out = h;
    if (h->stack.chunks)
        return 0;
    free(h);
    return -ENOMEM;
}

void cl_tcp_host_delete(struct cl_tcp_host *h)
{
    uint8_t none;
    uint64_t at_ns;
    while (cl_tcp_host_next(h, &none, 1, &at_ns))
        ;
    for (int i = 0; i < CL_TCP_HOST_SOCKETS; i++)
        free(h->sockets[i].listener);
    cl_chunks_delete(h->stack.chunks);
    free(h);
}

static int set(struct cl_tcp_settings *s, int option, uint32_t value)
{
    static const struct cl_tcp_cc_ops *const rules[] = {&cl_tcp_cubic, &cl_tcp_newreno, &cl_tcp_dctcp};
    uint32_t *const words[] = {
        [CL_TCP_SET_SEND_LIMIT] = &s->send_limit,          [CL_TCP_SET_RECEIVE_LIMIT] = &s->receive_limit,
        [CL_TCP_SET_USER_TIMEOUT] = &s->user_timeout_ms,   [CL_TCP_SET_KEEP_IDLE] = &s->keep_idle_ms,
        [CL_TCP_SET_KEEP_INTERVAL] = &s->keep_interval_ms, [CL_TCP_SET_KEEP_PROBES] = &s->keep_probes,
        [CL_TCP_SET_FIN_WAIT] = &s->fin_wait_ms,           [CL_TCP_SET_RTO_LEAST] = &s->rto_least_ms,
        [CL_TCP_SET_DELAYED_ACK] = &s->delayed_ack_ms};
    if (option == CL_TCP_SET_TAIL_PROBES) {
        s->no_tail_probes = value == 0;
    } else if (option == CL_TCP_SET_NO_DELAY || option == CL_TCP_SET_KEEP_ALIVE) {
        uint32_t flag = option == CL_TCP_SET_NO_DELAY ? CL_TCP_NO_DELAY : CL_TCP_KEEP_ALIVE;
        s->flags = value ? s->flags | flag : s->flags & ~flag;
    } else if (option == CL_TCP_SET_WSCALE) {
        s->wscale = (uint8_t)cl_min(value, (uint32_t)CL_TCP_MAX_WSCALE);
    } else if (option == CL_TCP_SET_ECN && value <= CL_TCP_ECN_TAKE) {
        s->ecn = (uint8_t)value;
    } else if (option == CL_TCP_SET_RULE && value < sizeof rules / sizeof *rules) {
        s->cc = rules[value];
    } else if (option == CL_TCP_SET_BLACK_HOLES) {
        s->black_holes = value;
    } else if (option == CL_TCP_SET_OPTIONS) {
        s->options = (uint8_t)value;
    } else if (option >= 0 && (size_t)option < sizeof words / sizeof *words && words[option]) {
        *words[option] = value;
    } else {
        return -EINVAL;
    }
    return 0;
}

int cl_tcp_host_set(struct cl_tcp_host *h, int option, uint32_t value)
{
    return set(&h->stack.settings, option, value);
}

uint64_t cl_tcp_host_held(const struct cl_tcp_host *h)
{
    struct cl_chunk_stats send, receive;
    cl_chunks_stats(h->stack.chunks, CL_CHUNKS_TCP_SEND, &send);
    cl_chunks_stats(h->stack.chunks, CL_CHUNKS_TCP_RECEIVE, &receive);
    return send.held_bytes + receive.held_bytes;
}

void cl_tcp_host_counts(const struct cl_tcp_host *h, struct cl_tcp_counts *out)
{
    *out = h->counts;
}

/* Sockets. */

int cl_tcp_host_listen(struct cl_tcp_host *h, uint16_t port, uint32_t backlog)
{
    struct cl_flow_key key = {.own_be = cl_be32(h->ipv4), .own_port_be = cl_be16(port), .protocol = CL_IPPROTO_TCP};
    if (find_listener(h, key.own_port_be))
        return -EADDRINUSE;
    struct socket *s = new_socket(h, &key, true);
    if (!s)
        return -EMFILE;
    s->lives = false;
    free(s->listener);
    s->listener = calloc(1, sizeof *s->listener);
    if (!s->listener) {
        s->open = false;
        return -ENOMEM;
    }
    *s->listener = (struct cl_tcp_listener){
        .settings = &h->stack.settings, .user = &events, .arg = h, .backlog = backlog, .accepts = true};
    return number_of(s);
}

int cl_tcp_host_accept(struct cl_tcp_host *h, int number, uint32_t *peer, uint16_t *peer_port)
{
    struct socket *l = get(h, number), *first = NULL;
    if (!l || !l->listener)
        return l ? -EINVAL : -EBADF;
    for (int i = 0; i < CL_TCP_HOST_SOCKETS; i++) {
        struct socket *s = &h->sockets[i];
        if (s->waits && s->key.own_port_be == l->key.own_port_be && (!first || s->order < first->order))
            first = s;
    }
    if (!first)
        return -EAGAIN;
    first->waits = false;
    first->open = true;
    cl_tcp_accepted(&first->conn);
    *peer = cl_be32(first->key.peer_be);
    *peer_port = cl_be16(first->key.peer_port_be);
    return number_of(first);
}

int cl_tcp_host_connect(struct cl_tcp_host *h, uint16_t own_port, uint32_t ipv4, uint16_t port)
{
    struct cl_flow_key key = {cl_be32(ipv4), cl_be32(h->ipv4), cl_be16(port), cl_be16(own_port), CL_IPPROTO_TCP};
    if (find(h, &key))
        return -EADDRINUSE;
    struct socket *s = new_socket(h, &key, true);
    if (!s)
        return -EMFILE;
    s->connecting = true;
    begin(s);
    cl_tcp_connect(&s->conn, &events, NULL);
    finish(s);
    return number_of(s);
}

int cl_tcp_host_connected(const struct cl_tcp_host *h, int number)
{
    const struct socket *s = get(h, number);
    if (!s)
        return -EBADF;
    return s->connecting ? -EINPROGRESS : s->opened ? 0 : -s->error;
}

/* The error of a connection, once. */
static int take_error(struct socket *s)
{
    int error = s->error;
    s->error = 0;
    return -error;
}

int cl_tcp_host_error(struct cl_tcp_host *h, int number)
{
    struct socket *s = get(h, number);
    return s ? -take_error(s) : -EBADF;
}

int64_t cl_tcp_host_read(struct cl_tcp_host *h, int number, void *data, int64_t room)
{
    struct socket *s = get(h, number);
    int64_t got = 0;
    if (!s)
        return -EBADF;
    if (s->lives) {
        begin(s);
        got = cl_tcp_read(&s->conn, data, room);
        finish(s);
    }
    if (got || room == 0 || s->eof)
        return got;
    if (s->error)
        return take_error(s);
    if (!s->opened && !s->connecting)
        return -ENOTCONN;
    return !s->lives || (s->conn.flags & CL_TCP_FIN_CAME) ? 0 : -EAGAIN;
}

int64_t cl_tcp_host_write(struct cl_tcp_host *h, int number, const void *data, int64_t len)
{
    struct socket *s = get(h, number);
    if (!s)
        return -EBADF;
    if (s->error)
        return take_error(s);
    if (!s->opened)
        return s->connecting ? -EAGAIN : -ENOTCONN;
    if (!s->lives)
        return -EPIPE;
    begin(s);
    int64_t took = cl_tcp_write(&s->conn, data, len);
    finish(s);
    return took || len == 0 ? took : -EAGAIN;
}

int cl_tcp_host_shutdown(struct cl_tcp_host *h, int number)
{
    struct socket *s = get(h, number);
    if (!s)
        return -EBADF;
    if (!s->lives || !s->opened)
        return -ENOTCONN;
    begin(s);
    cl_tcp_shutdown(&s->conn);
    finish(s);
    return 0;
}

/* A listener ends: so do those that nobody accepted. */
static void close_listener(struct cl_tcp_host *h, struct socket *l)
{
    for (int i = 0; i < CL_TCP_HOST_SOCKETS; i++) {
        struct socket *s = &h->sockets[i];
        if (!s->lives || s->conn.listener != l->listener)
            continue;
        s->waits = false;
        begin(s);
        cl_tcp_abort(&s->conn);
        finish(s);
    }
}

int cl_tcp_host_close(struct cl_tcp_host *h, int number, bool abort)
{
    struct socket *s = get(h, number);
    if (!s)
        return -EBADF;
    s->open = false;
    if (s->listener) {
        close_listener(h, s);
        free(s->listener);
        s->listener = NULL;
    } else if (s->lives) {
        begin(s);
        if (abort)
            cl_tcp_abort(&s->conn);
        else
            cl_tcp_close(&s->conn);
        finish(s);
    }
    return 0;
}

/* What all connections of a host share is its own from now on. */
static void own_setting(struct socket *s, int option, uint32_t value)
{
    if (s->conn.settings != &s->settings)
        s->settings = *s->conn.settings;
    s->conn.settings = &s->settings;
    (void)set(&s->settings, option, value);
    cl_tcp_keep_alive(&s->conn, s->conn.flags & CL_TCP_KEEP_ALIVE);
}

int cl_tcp_host_set_socket(struct cl_tcp_host *h, int number, int option, uint32_t value)
{
    struct socket *s = get(h, number);
    if (!s)
        return -EBADF;
    struct cl_tcp_conn *c = &s->conn;
    begin(s);
    switch (option) {
    case CL_TCP_SET_SEND_LIMIT:
    case CL_TCP_SET_RECEIVE_LIMIT:
        (option == CL_TCP_SET_SEND_LIMIT ? &c->send : &c->receive)->limit = value;
        break;
    case CL_TCP_SET_NO_DELAY:
        cl_tcp_no_delay(c, value);
        break;
    case CL_TCP_SET_KEEP_ALIVE:
        cl_tcp_keep_alive(c, value);
        break;
    case CL_TCP_SET_USER_TIMEOUT:
        c->user_timeout_ms = value;
        break;
    case CL_TCP_SET_QUICK_ACK:
        c->quick = value ? CL_TCP_QUICK : 0;
        break;
    default:
        own_setting(s, option, value);
    }
    if (s->lives)
        finish(s);
    return 0;
}

int cl_tcp_host_ready(const struct cl_tcp_host *h, int number)
{
    const struct socket *s = get(h, number);
    int what = 0;
    if (!s)
        return -EBADF;
    if (s->listener) {
        for (int i = 0; i < CL_TCP_HOST_SOCKETS; i++)
            if (h->sockets[i].waits && h->sockets[i].key.own_port_be == s->key.own_port_be)
                what = CL_TCP_READABLE;
        return what;
    }
    const struct cl_tcp_conn *c = &s->conn;
    bool over = !s->lives || c->state == CL_TCP_TIME_WAIT;
    if (s->error)
        what |= CL_TCP_FAILED;
    if (over)
        what |= CL_TCP_OVER | CL_TCP_WRITABLE;
    if (over || (c->flags & CL_TCP_FIN_CAME))
        what |= CL_TCP_READABLE | CL_TCP_PEER_SHUT;
    if (c->receive.bytes)
        what |= CL_TCP_READABLE;
    if (s->opened && c->send.bytes <= c->send.limit - c->send.limit / 3)
        what |= CL_TCP_WRITABLE;
    return what;
}

int cl_tcp_host_info(const struct cl_tcp_host *h, int number, struct cl_tcp_info *out)
{
    const struct socket *s = get(h, number);
    if (!s || s->listener)
        return s ? -ENOTCONN : -EBADF;
    cl_tcp_get_info(&s->conn, out);
    return 0;
}
